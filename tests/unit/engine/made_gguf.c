#include "made_gguf.h"

#include "base/file.h"
#include "engine/kernels/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Value types by their numbers in the format. */
enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

enum { ALIGNMENT = 32 };

/* ---- the writer --------------------------------------------------------------------------- */

void made_gguf_init(made_gguf *g)
{
    *g = (made_gguf){.version = 3};
    pj_buffer_init(&g->keys, 1 << 28);
    pj_buffer_init(&g->infos, 1 << 28);
    pj_buffer_init(&g->data, 1 << 28);
}

void made_gguf_fini(made_gguf *g)
{
    pj_buffer_fini(&g->keys);
    pj_buffer_fini(&g->infos);
    pj_buffer_fini(&g->data);
}

void made_gguf_bytes(pj_buffer *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) pj_buffer_char(out, (char)(value >> (8 * i)));
}

void made_gguf_text(pj_buffer *out, const char *text, size_t bytes)
{
    made_gguf_bytes(out, bytes, 8);
    pj_buffer_append(out, text, bytes);
}

void made_gguf_key(made_gguf *g, const char *key, uint32_t type)
{
    made_gguf_text(&g->keys, key, strlen(key));
    made_gguf_bytes(&g->keys, type, 4);
    g->key_count++;
}

static void array(made_gguf *g, const char *key, uint32_t type, uint64_t count)
{
    made_gguf_key(g, key, ARRAY);
    made_gguf_bytes(&g->keys, type, 4);
    made_gguf_bytes(&g->keys, count, 8);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void made_gguf_u32(made_gguf *g, const char *key, uint32_t value)
{
    made_gguf_key(g, key, U32);
    made_gguf_bytes(&g->keys, value, 4);
}

void made_gguf_f32(made_gguf *g, const char *key, float value)
{
    made_gguf_key(g, key, F32);
    made_gguf_bytes(&g->keys, bits_of(value), 4);
}

void made_gguf_bool(made_gguf *g, const char *key, bool value)
{
    made_gguf_key(g, key, BOOL);
    made_gguf_bytes(&g->keys, value, 1);
}

void made_gguf_string(made_gguf *g, const char *key, const char *value)
{
    made_gguf_key(g, key, STRING);
    made_gguf_text(&g->keys, value, strlen(value));
}

void made_gguf_strings(made_gguf *g, const char *key, const char *const *values, uint64_t count)
{
    array(g, key, STRING, count);
    for (uint64_t i = 0; i < count; i++) made_gguf_text(&g->keys, values[i], strlen(values[i]));
}

void made_gguf_u32s(made_gguf *g, const char *key, const uint32_t *values, uint64_t count)
{
    array(g, key, U32, count);
    for (uint64_t i = 0; i < count; i++) made_gguf_bytes(&g->keys, values[i], 4);
}

void made_gguf_f32s(made_gguf *g, const char *key, const float *values, uint64_t count)
{
    array(g, key, F32, count);
    for (uint64_t i = 0; i < count; i++) made_gguf_bytes(&g->keys, bits_of(values[i]), 4);
}

static void pad(pj_buffer *out)
{
    while (out->length % ALIGNMENT) pj_buffer_char(out, 0);
}

void made_gguf_tensor(made_gguf *g, const char *name, const uint64_t *sizes, uint32_t rank,
                      uint32_t type, const void *data, size_t bytes)
{
    pad(&g->data);
    made_gguf_text(&g->infos, name, strlen(name));
    made_gguf_bytes(&g->infos, rank, 4);
    for (uint32_t i = 0; i < rank; i++) made_gguf_bytes(&g->infos, sizes[i], 8);
    made_gguf_bytes(&g->infos, type, 4);
    made_gguf_bytes(&g->infos, g->data.length, 8);
    pj_buffer_append(&g->data, data, bytes);
    g->tensor_count++;
}

void made_gguf_file(const made_gguf *g, pj_buffer *file)
{
    pj_buffer_init(file, 1 << 29);
    pj_buffer_append(file, "GGUF", 4);
    made_gguf_bytes(file, g->version, 4);
    made_gguf_bytes(file, g->tensor_count, 8);
    made_gguf_bytes(file, g->key_count, 8);
    pj_buffer_append(file, pj_buffer_get(&g->keys), g->keys.length);
    pj_buffer_append(file, pj_buffer_get(&g->infos), g->infos.length);
    pad(file);
    pj_buffer_append(file, pj_buffer_get(&g->data), g->data.length);
    if (file->failed) abort();
}

void made_gguf_write(const made_gguf *g, const char *path)
{
    pj_buffer file;
    pj_error err;
    made_gguf_file(g, &file);
    if (pj_file_write(path, file.data, file.length, &err) != PJ_OK) abort();
    pj_buffer_fini(&file);
}

/* ---- quantising --------------------------------------------------------------------------- */

static uint16_t half_of(float value)
{
    uint16_t half;
    pj_blocks_quantise(PJ_F16, &value, &half, 1);
    return half;
}

static float float_of(uint16_t half)
{
    float value;
    pj_blocks_dequantise(PJ_F16, &half, &value, 1);
    return value;
}

static int clamp(double x, int low, int high)
{
    int n = (int)lrint(x);
    return n < low ? low : n > high ? high : n;
}

/* Six bits of scale and of minimum for each of eight sub-blocks, in twelve bytes. */
static void pack_scales(const int *scale, const int *minimum, uint8_t *packed)
{
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        packed[j + 4] = (uint8_t)(minimum[j] | (minimum[j + 4] >> 4) << 6);
        packed[j + 8] = (uint8_t)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

/* Sub-blocks of 32 values as scale q - minimum, q of `bits`; scales and minima as 6-bit shares. */
static void to_k(const float *x, int bits, uint8_t *block)
{
    int levels = (1 << bits) - 1, scales[8], minima[8];
    float widest = 0, lowest = 0, scale[8], minimum[8];
    for (int j = 0; j < 8; j++) {
        float low = 0, high = 0;
        for (int i = 0; i < 32; i++) {
            low = fminf(low, x[32 * j + i]);
            high = fmaxf(high, x[32 * j + i]);
        }
        scale[j] = (high - low) / (float)levels;
        minimum[j] = -low;
        widest = fmaxf(widest, scale[j]);
        lowest = fmaxf(lowest, minimum[j]);
    }
    uint16_t d = half_of(widest / 63), dmin = half_of(lowest / 63);
    float unit = float_of(d), unit_min = float_of(dmin);
    memset(block, 0, bits == 4 ? 144 : 176);
    memcpy(block, &d, 2);
    memcpy(block + 2, &dmin, 2);
    uint8_t *high = block + 16, *low = block + (bits == 4 ? 16 : 48);
    for (int j = 0; j < 8; j++) {
        scales[j] = unit > 0 ? clamp((double)(scale[j] / unit), 0, 63) : 0;
        minima[j] = unit_min > 0 ? clamp((double)(minimum[j] / unit_min), 0, 63) : 0;
        float step = unit * (float)scales[j], offset = unit_min * (float)minima[j];
        for (int i = 0; i < 32; i++) {
            int q = step > 0 ? clamp((double)((x[32 * j + i] + offset) / step), 0, levels) : 0;
            low[j / 2 * 32 + i] |= (uint8_t)((q & 15) << (j % 2 * 4));
            if (bits == 5) high[i] |= (uint8_t)((q >> 4) << j);
        }
    }
    pack_scales(scales, minima, block + 4);
}

static void to_q6_k(const float *x, uint8_t *block)
{
    float scale[16], widest = 0;
    for (int j = 0; j < 16; j++) {
        float largest = 0;
        for (int i = 0; i < 16; i++) largest = fmaxf(largest, fabsf(x[16 * j + i]));
        scale[j] = largest / 31;
        widest = fmaxf(widest, scale[j]);
    }
    uint16_t d = half_of(widest / 127);
    float unit = float_of(d);
    memset(block, 0, 210);
    memcpy(block + 208, &d, 2);
    for (int n = 0; n < 256; n++) {
        int scales = unit > 0 ? clamp((double)(scale[n / 16] / unit), -127, 127) : 0;
        float step = unit * (float)scales;
        int q = 32 + (step > 0 ? clamp((double)(x[n] / step), -32, 31) : 0);
        int half = n / 128, quarter = n % 128 / 32, l = n % 32;
        block[192 + n / 16] = (uint8_t)(int8_t)scales;
        block[half * 64 + quarter % 2 * 32 + l] |= (uint8_t)((q & 15) << (quarter / 2 * 4));
        block[128 + half * 32 + l] |= (uint8_t)((q >> 4) << (2 * quarter));
    }
}

/* ---- types that the engine unpacks to codes ---- */

/* Sets code q of value i in a zeroed block. */
static void put_code(pj_dtype type, uint8_t *block, size_t i, unsigned q)
{
    size_t half = i / 128, part = i % 128 / 32; /* of types with pairs of bits */
    uint8_t nibble = (uint8_t)(q << (i % 32 / 16 * 4)), pair = (uint8_t)(q << (2 * part));
    if (type == PJ_Q4_1) block[4 + i % 16] |= nibble;
    if (type == PJ_IQ4_NL) block[2 + i % 16] |= nibble;
    if (type == PJ_MXFP4) block[1 + i % 16] |= nibble;
    if (type == PJ_IQ4_XS) block[8 + i / 32 * 16 + i % 16] |= nibble;
    if (type == PJ_Q5_0 || type == PJ_Q5_1) {
        size_t at = type == PJ_Q5_0 ? 2 : 4;
        block[at + 4 + i % 16] |= (uint8_t)((q & 15) << (i / 16 * 4));
        block[at + i / 8] |= (uint8_t)((q >> 4) << (i % 8));
    }
    if (type == PJ_Q2_K) block[16 + half * 32 + i % 32] |= pair;
    if (type == PJ_Q3_K) {
        block[32 + half * 32 + i % 32] |= (uint8_t)((q & 3) << (2 * part));
        block[i % 32] |= (uint8_t)((q >> 2) << (i / 32));
    }
}

/* A scale for codes from -most to most; returns the number of codes. */
static unsigned put_scale(pj_dtype type, float most, uint8_t *block)
{
    static const struct {
        pj_dtype type;
        float span; /* largest code: d is the largest value divided by this */
        size_t at, after;
        unsigned codes;
    } scales[] = {
        {PJ_Q4_1, 7.5f, 0, 2, 16},   {PJ_Q5_0, 16, 0, 0, 32},        {PJ_Q5_1, 15.5f, 0, 2, 32},
        {PJ_IQ4_NL, 113, 0, 0, 16},  {PJ_IQ4_XS, 113 * 9, 0, 0, 16}, {PJ_Q2_K, 10.5f, 80, 82, 4},
        {PJ_Q3_K, 3 * 9, 108, 0, 8},
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].type != type) continue;
        uint16_t d = half_of(most / scales[i].span),
                 m = half_of(type == PJ_Q2_K ? most / 7 : -most);
        memcpy(block + scales[i].at, &d, 2);
        if (scales[i].after) memcpy(block + scales[i].after, &m, 2);
        if (type == PJ_Q2_K) memset(block, 0x77, 16);
        /* six bits each: 41 - 32 = 9 */
        if (type == PJ_Q3_K) memset(block + 96, 0x99, 8), memset(block + 104, 0xaa, 4);
        if (type == PJ_IQ4_XS) memset(block + 2, 0xaa, 2), memset(block + 4, 0x99, 4);
        return scales[i].codes;
    }
    block[0] = (uint8_t)(most > 0 ? 128 + (int)ceilf(log2f(most / 12)) : 0);
    return 16;
}

/* The code with the nearest value. */
static void to_codes(pj_dtype type, const float *x, uint8_t *block)
{
    const pj_dtype_info *info = pj_dtype_get(type);
    unsigned best[256] = {0};
    uint8_t empty[256] = {0}, trial[256];
    float most = 0, nearest[256], y[256];
    for (size_t i = 0; i < info->block_values; i++) most = fmaxf(most, fabsf(x[i]));
    unsigned codes = put_scale(type, most, empty);
    for (unsigned q = 0; q < codes; q++) {
        memcpy(trial, empty, info->block_bytes);
        for (size_t i = 0; i < info->block_values; i++) put_code(type, trial, i, q);
        pj_blocks_dequantise(type, trial, y, info->block_values);
        for (size_t i = 0; i < info->block_values; i++) {
            if (q > 0 && fabsf(y[i] - x[i]) >= nearest[i]) continue;
            nearest[i] = fabsf(y[i] - x[i]);
            best[i] = q;
        }
    }
    memcpy(block, empty, info->block_bytes);
    for (size_t i = 0; i < info->block_values; i++) put_code(type, block, i, best[i]);
}

void made_gguf_quantise(pj_dtype type, const float *x, void *row, size_t n)
{
    uint8_t *block = row;
    const pj_dtype_info *info = pj_dtype_get(type);
    if (type <= PJ_Q4_0) {
        pj_blocks_quantise(type, x, row, n);
        return;
    }
    for (size_t i = 0; i < n; i += info->block_values, block += info->block_bytes) {
        if (type > PJ_Q6_K)
            to_codes(type, x + i, block);
        else if (type == PJ_Q6_K)
            to_q6_k(x + i, block);
        else
            to_k(x + i, type == PJ_Q4_K ? 4 : 5, block);
    }
}

/* ---- copies of checkpoints ---------------------------------------------------------------- */

typedef struct copy {
    made_gguf *g;
    const pj_checkpoint *from;
    const pj_model_config *c;
    const made_gguf_options *o;
    const char *arch;
} copy;

/* Layers after the model's, for further tokens. */
static uint32_t heads_of(const copy *k)
{
    char name[64];
    snprintf(name, sizeof name, "model.layers.%u.eh_proj.weight", k->c->layers);
    return pj_checkpoint_find(k->from, name) != NULL;
}

static uint32_t file_type(pj_dtype type)
{
    static const uint32_t types[PJ_DTYPE_COUNT] = {
        [PJ_F32] = 0,    [PJ_F16] = 1,   [PJ_BF16] = 30, [PJ_Q8_0] = 8,
        [PJ_Q4_0] = 2,   [PJ_Q4_K] = 12, [PJ_Q5_K] = 13, [PJ_Q6_K] = 14,
        [PJ_Q4_1] = 3,   [PJ_Q5_0] = 6,  [PJ_Q5_1] = 7,  [PJ_IQ4_NL] = 20,
        [PJ_MXFP4] = 39, [PJ_Q2_K] = 10, [PJ_Q3_K] = 11, [PJ_IQ4_XS] = 23,
    };
    return types[type];
}

static float *values_of(const pj_tensor *t, size_t *count)
{
    pj_dtype type;
    if (!pj_file_dtype(t->type, &type)) abort();
    *count = t->bytes / pj_dtype_get(type)->block_bytes * pj_dtype_get(type)->block_values;
    float *values = malloc((*count + 1) * sizeof *values);
    if (!values) abort();
    pj_blocks_dequantise(type, t->data, values, *count);
    return values;
}

/* Permutes each head's rows to the order of llama GGUF files: 2i is i, 2i + 1 is i + half.
 */
static void permute(float *x, size_t heads, size_t dim, size_t cols)
{
    float *head = malloc(dim * cols * sizeof *head);
    if (!head) abort();
    for (size_t h = 0; h < heads; h++, x += dim * cols) {
        memcpy(head, x, dim * cols * sizeof *head);
        for (size_t i = 0; i < dim; i++)
            memcpy(x + i * cols, head + (i / 2 + i % 2 * (dim / 2)) * cols, cols * sizeof *x);
    }
    free(head);
}

/* Q2_0: per 64 values an f16 scale and codes of two bits for -1, 0, 1 and 2 times it. */
static void put_pairs(const copy *k, const char *name, const uint64_t *sizes, uint32_t rank,
                      const float *values, size_t count)
{
    enum { Q2_0 = 42, BLOCK = 64, BYTES = 18 };
    uint8_t *blocks = calloc(count / BLOCK, BYTES);
    float *rounded = malloc(count * sizeof *rounded);
    if (!blocks || !rounded || sizes[0] % BLOCK) abort();
    for (size_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i / BLOCK * BYTES;
        const uint16_t scale = 0x2c00; /* 1/16 */
        float code = roundf(values[i] * 16) + 1;
        code = code < 0 ? 0 : code > 3 ? 3 : code;
        memcpy(block, &scale, sizeof scale);
        block[2 + i % BLOCK / 4] |= (uint8_t)((unsigned)code << (i % 4 * 2));
        rounded[i] = (code - 1) / 16;
    }
    if (k->o->rounded)
        made_gguf_tensor(k->g, name, sizes, rank, file_type(PJ_F32), rounded, 4 * count);
    else
        made_gguf_tensor(k->g, name, sizes, rank, Q2_0, blocks, count / BLOCK * BYTES);
    free(blocks);
    free(rounded);
}

/* Writes a tensor; matrices are quantised to the given type if their rows are whole blocks. */
static void put(const copy *k, const char *name, const uint64_t *sizes, uint32_t rank,
                const float *values, pj_dtype stored)
{
    pj_dtype type = rank == 1 || strstr(name, "gate_inp") ? PJ_F32
                    : k->o->type < 0                      ? stored
                                                          : (pj_dtype)k->o->type;
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++) count *= (size_t)sizes[i];
    if (!pj_dtype_row_bytes(type, (size_t)sizes[0])) type = PJ_F32;
    if (k->o->pairs && rank > 1 && !strstr(name, "gate_inp")) {
        put_pairs(k, name, sizes, rank, values, count);
        return;
    }
    size_t bytes = pj_dtype_row_bytes(type, count);
    void *data = malloc(bytes + count * sizeof(float));
    if (!data) abort();
    made_gguf_quantise(type, values, data, count);
    if (k->o->rounded) {
        float *rounded = (float *)data + (bytes + 3) / 4;
        pj_blocks_dequantise(type, data, rounded, count);
        made_gguf_tensor(k->g, name, sizes, rank, file_type(PJ_F32), rounded, 4 * count);
    } else {
        made_gguf_tensor(k->g, name, sizes, rank, file_type(type), data, bytes);
    }
    free(data);
}

/* "self_attn.q_proj" and so on to the part of a name in the file; NULL: handled elsewhere. */
static const char *part_name(pj_arch arch, const char *part)
{
    bool closes = arch == PJ_ARCH_OLMO2 || arch == PJ_ARCH_OLMO3 || arch == PJ_ARCH_GEMMA2 ||
                  arch == PJ_ARCH_GEMMA3 || arch == PJ_ARCH_GPT_OSS || arch == PJ_ARCH_QWEN3_5 ||
                  arch == PJ_ARCH_GEMMA3N || arch == PJ_ARCH_GLM4_MOE;
    static const char *const names[][2] = {
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"post_self_attn_layernorm", "post_attention_norm"},
        {"post_mlp_layernorm", "post_ffw_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.dense", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.fc1", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.fc2", "ffn_down"},
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.router", "ffn_gate_inp"},
        {"block_sparse_moe.gate", "ffn_gate_inp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
        {"norm", "attn_norm"},
        {"attention_layernorm", "attn_norm"},
        {"feedforward_layernorm", "ffn_norm"},
        {"self_attn.query_layernorm", "attn_q_norm"},
        {"self_attn.key_layernorm", "attn_k_norm"},
        {"self_attn.attn_sub_norm", "attn_sub_norm"},
        {"mlp.ffn_sub_norm", "ffn_sub_norm"},
        {"mixer.q_proj", "attn_q"},
        {"mixer.k_proj", "attn_k"},
        {"mixer.v_proj", "attn_v"},
        {"mixer.o_proj", "attn_output"},
        {"mixer.up_proj", "ffn_up"},
        {"mixer.down_proj", "ffn_down"},
        {"feed_forward.gate_proj", "ffn_gate"},
        {"feed_forward.up_proj", "ffn_up"},
        {"feed_forward.down_proj", "ffn_down"},
        {"feed_forward.router", "ffn_gate_inp"},
        {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
        {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
        {"feed_forward.gate", "ffn_gate_inp"},
        {"feed_forward.w1", "ffn_gate"},
        {"feed_forward.w2", "ffn_down"},
        {"feed_forward.w3", "ffn_up"},
        {"operator_norm", "attn_norm"},
        {"ffn_norm", "ffn_norm"},
        {"self_attn.q_layernorm", "attn_q_norm"},
        {"self_attn.k_layernorm", "attn_k_norm"},
        {"self_attn.out_proj", "attn_output"},
        {"mlp.gate.wg", "ffn_gate_inp"},
        {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
        {"mlp.shared_mlp.down_proj", "ffn_down_shexp"},
        {"mixer.gate", "ffn_gate_inp"},
        {"mixer.fc1_latent_proj", "ffn_latent_down"},
        {"mixer.fc2_latent_proj", "ffn_latent_up"},
        {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
        {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
        {"block_sparse_moe.router.layer", "ffn_gate_inp"},
        {"shared_mlp.output_linear", "ffn_down_shexp"},
        {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
        {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
        {"self_attn.q_a_proj", "attn_q_a"},
        {"self_attn.q_a_layernorm", "attn_q_a_norm"},
        {"self_attn.q_b_proj", "attn_q_b"},
        {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
        {"self_attn.kv_b_proj", "attn_kv_b"},
        {"self_attn.indexer.wq_b", "indexer.attn_q_b"},
        {"self_attn.indexer.wk", "indexer.attn_k"},
        {"self_attn.indexer.k_norm", "indexer.k_norm"},
        {"self_attn.indexer.weights_proj", "indexer.proj"},
        {"enorm", "nextn.enorm"},
        {"hnorm", "nextn.hnorm"},
        {"eh_proj", "nextn.eh_proj"},
        {"shared_head.norm", "nextn.shared_head_norm"},
        {"altup.router_norm", "altup_router_norm"},
        {"altup.modality_router", "altup_router"},
        {"altup.prediction_coefs", "altup_predict_coef"},
        {"altup.correction_coefs", "altup_correct_coef"},
        {"laurel.linear_left", "laurel_l"},
        {"laurel.linear_right", "laurel_r"},
        {"laurel.post_laurel_norm", "laurel_post_norm"},
        {"per_layer_input_gate", "inp_gate"},
        {"per_layer_projection", "proj"},
        {"post_per_layer_input_norm", "post_norm"},
    };
    if (closes && strcmp(part, "post_attention_layernorm") == 0) return "post_attention_norm";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], part) == 0) return names[i][1];
    return NULL;
}

/* "model.layers.3.mamba.D": tensors of state-space layers, some without ".weight". */
static bool scan_name(const char *name, char *out, size_t bytes)
{
    static const char *const names[][2] = {
        {"in_proj", "ssm_in"},   {"conv1d", "ssm_conv1d"}, {"dt_bias", "ssm_dt.bias"},
        {"A_log", "ssm_a"},      {"D", "ssm_d"},           {"norm", "ssm_norm"},
        {"out_proj", "ssm_out"},
    };
    unsigned layer;
    char part[16] = "", kind[16] = "";
    const char *in = strstr(name, ".mamba."), *layers = strstr(name, "layers.");
    if (!in) in = strstr(name, ".mixer.");
    if (!in || sscanf(strchr(in + 1, '.'), ".%15[^.]%15s", part, kind) < 1) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(part, names[i][0]) == 0 && sscanf(layers, "layers.%u", &layer) == 1)
            return snprintf(out, bytes, "blk.%u.%s%s", layer, names[i][1], kind) > 0;
    return false;
}
static const char *const outside[][2] = {
    {"embed_tokens_per_layer", "per_layer_token_embd"},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
};

static bool own_name(pj_arch arch, const char *name, char *out, size_t bytes)
{
    unsigned layer;
    int end = 0;
    char part[128];
    const char *kind = strrchr(name, '.');
    if (strstr(name, ".experts.") || strstr(name, ".act_fn.") || strstr(name, "altup_") ||
        strstr(name, ".input_linear.") || strstr(name, "block_sparse_moe.output_linear."))
        return false;
    if (strncmp(name, "mtp.", 4) == 0) return false; /* a head of Qwen3.5 */
    if (scan_name(name, out, bytes)) return true;
    const char *linear = strstr(name, ".linear_attn."), *sinks = strstr(name, ".self_attn.sinks");
    if (linear || sinks) {
        static const char *const names[][2] = {
            {"in_proj_qkv.weight", "attn_qkv.weight"},
            {"in_proj_z.weight", "attn_gate.weight"},
            {"in_proj_b.weight", "ssm_beta.weight"},
            {"in_proj_a.weight", "ssm_alpha.weight"},
            {"conv1d.weight", "ssm_conv1d.weight"},
            {"A_log", "ssm_a"},
            {"dt_bias", "ssm_dt.bias"},
            {"norm.weight", "ssm_norm.weight"},
            {"out_proj.weight", "ssm_out.weight"},
        };
        if (sscanf(strstr(name, "layers."), "layers.%u", &layer) != 1) abort();
        if (sinks) return snprintf(out, bytes, "blk.%u.attn_sinks.weight", layer) > 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(linear + strlen(".linear_attn."), names[i][0]) == 0)
                return snprintf(out, bytes, "blk.%u.%s", layer, names[i][1]) > 0;
        abort();
    }
    if (strncmp(name, "model.", 6) == 0) name += 6;
    if (strncmp(name, "backbone.", 9) == 0) name += 9;
    bool corrects = strstr(name, ".e_score_correction_bias") || strstr(name, ".expert_bias");
    if (corrects && sscanf(name, "layers.%u.", &layer) == 1)
        return snprintf(out, bytes, "blk.%u.exp_probs_b.bias", layer) > 0;
    if (strstr(name, ".altup.correct_output_scale") && sscanf(name, "layers.%u.", &layer) == 1)
        return snprintf(out, bytes, "blk.%u.altup_correct_scale.weight", layer) > 0;
    snprintf(part, sizeof part, "%.*s", (int)(kind - name), name);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strcmp(part, outside[i][0]) == 0)
            return snprintf(out, bytes, "%s%s", outside[i][1], kind) > 0;
    if (strcmp(part, "embed_tokens") == 0 || strcmp(part, "embeddings") == 0)
        return snprintf(out, bytes, "token_embd%s", kind) > 0;
    if (strcmp(part, "norm") == 0 || strcmp(part, "final_layernorm") == 0 ||
        strcmp(part, "norm_f") == 0)
        return snprintf(out, bytes, "output_norm%s", kind) > 0;
    if (strcmp(part, "embedding_norm") == 0)
        return snprintf(out, bytes, "token_embd_norm%s", kind) > 0;
    if (strcmp(part, "lm_head") == 0) return snprintf(out, bytes, "output%s", kind) > 0;
    if (sscanf(part, "layers.%u.%n", &layer, &end) != 1 || end == 0) abort();
    if (strcmp(part + end, "pre_ff_layernorm") == 0)
        return snprintf(out, bytes, "blk.%u.ffn_norm", layer) > 0;
    const char *own = part_name(arch, part + end);
    if (!own) abort();
    return snprintf(out, bytes, "blk.%u.%s%s", layer, own, kind) > 0;
}

static pj_dtype stored_type(const pj_tensor *t)
{
    pj_dtype type = PJ_F32;
    pj_file_dtype(t->type, &type);
    return type;
}

static bool is_neighbours(const copy *k)
{
    static const char *const archs[] = {"llama", "smollm3", "granite", "granitemoe", "mistral3"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(k->arch, archs[i]) == 0) return true;
    return false;
}

/* Reorders value heads of Qwen3.5 from grouped by key head to interleaved over the key heads: the
 * first `before` rows stay; then heads of `lines` rows of `cols` values. */
static void tile_heads(const copy *k, float *x, size_t before, size_t lines, size_t cols)
{
    size_t keys = k->c->linear.key_heads, heads = k->c->linear.value_heads, per = heads / keys;
    size_t each = lines * cols;
    float *from = malloc(heads * each * sizeof *from);
    if (!from) abort();
    x += before * cols;
    memcpy(from, x, heads * each * sizeof *from);
    for (size_t key = 0; key < keys; key++)
        for (size_t j = 0; j < per; j++)
            memcpy(x + (j * keys + key) * each, from + (key * per + j) * each, each * sizeof *x);
    free(from);
}

/* The tensors of a gated-delta-rule layer with the changes that converters make. */
static void change_linear(const copy *k, const char *part, float *values, size_t count, size_t cols)
{
    const pj_model_config *c = k->c;
    size_t dim = c->linear.value_dim, keys = 2 * (size_t)c->linear.key_heads * c->linear.key_dim;
    for (size_t i = 0; strstr(part, "A_log") && i < count; i++) values[i] = -expf(values[i]);
    if (strstr(part, "in_proj_qkv")) tile_heads(k, values, keys, dim, cols);
    if (strstr(part, "conv1d")) tile_heads(k, values, keys, dim, c->linear.kernel);
    if (strstr(part, "in_proj_z")) tile_heads(k, values, 0, dim, cols);
    if (strstr(part, "in_proj_a") || strstr(part, "in_proj_b")) tile_heads(k, values, 0, 1, cols);
    if (strstr(part, "A_log") || strstr(part, "dt_bias")) tile_heads(k, values, 0, 1, 1);
    for (size_t row = 0; strstr(part, "out_proj") && row < c->hidden; row++)
        tile_heads(k, values + row * cols, 0, dim, 1);
}

/* Falcon-H1's multipliers are in its files' weights, and where something is scaled first, in
 * biases.
 */
static double folded(const copy *k, const char *name, bool bias, size_t row)
{
    const pj_multipliers *m = &k->c->multipliers;
    size_t values = (size_t)k->c->linear.value_heads * k->c->linear.value_dim;
    size_t keys = (size_t)k->c->linear.key_heads * k->c->linear.key_dim;
    const size_t ends[] = {values, 2 * values, 2 * values + keys, 2 * values + 2 * keys};
    int part = 0;
    while (part < 4 && row >= ends[part]) part++;
    double in = bias ? 1 : m->attention_in;
    if (k->c->arch != PJ_ARCH_FALCON_H1) return 1;
    if (strstr(name, "attn_q.") || strstr(name, "attn_v.")) return in;
    if (strstr(name, "attn_k.")) return in * k->c->score_scale * sqrt(k->c->head_dim);
    if (strstr(name, "attn_output.")) return m->attention_out;
    if (strstr(name, "ssm_out.")) return m->ssm_out;
    if (strstr(name, "ssm_in.")) return m->ssm[part] * (bias ? 1 : m->ssm_in);
    if (strstr(name, "ffn_gate.")) return m->gate;
    if (strstr(name, "ffn_down.")) return m->down;
    if (strstr(name, "token_embd.")) return k->c->embedding_scale;
    return strstr(name, "output.") ? k->c->logit_scale : 1;
}

static void copy_tensor(const copy *k, const pj_tensor *t)
{
    char name[96];
    size_t count;
    uint64_t sizes[PJ_TENSOR_MAX_RANK];
    const pj_model_config *c = k->c;
    if (!own_name(c->arch, t->name, name, sizeof name)) return;
    bool parts_of_qkv =
        strstr(name, "attn_q.") || strstr(name, "attn_k.") || strstr(name, "attn_v.");
    if (k->o->old_names && c->arch == PJ_ARCH_PHI && parts_of_qkv) return;
    float *values = values_of(t, &count);
    for (uint32_t i = 0; i < t->rank; i++) sizes[i] = t->shape[t->rank - 1 - i];
    size_t cols = t->rank == 2 ? (size_t)t->shape[1] : 1;
    if (is_neighbours(k) && strstr(name, "attn_q.")) permute(values, c->heads, c->head_dim, cols);
    if (is_neighbours(k) && strstr(name, "attn_k."))
        permute(values, c->kv_heads, c->head_dim, cols);
    /* Gemma's norm weights are stored as w, not w - 1 */
    bool gemma = c->arch == PJ_ARCH_GEMMA2 || c->arch == PJ_ARCH_GEMMA3;
    bool linear = strstr(t->name, ".linear_attn.") != NULL;
    bool adds = gemma || (c->arch == PJ_ARCH_QWEN3_5 && !linear);
    for (size_t i = 0; adds && strstr(name, "norm") && i < count; i++) values[i] += 1;
    if (linear) change_linear(k, t->name, values, count, cols);
    for (size_t i = 0; !linear && strstr(name, "ssm_a") && i < count; i++)
        values[i] = -expf(values[i]);
    for (size_t i = 0; i < count; i++) values[i] *= (float)folded(k, name, t->rank == 1, i / cols);
    bool column = strstr(name, "ssm_d") && !strstr(name, "ssm_dt");
    if (!linear && (column || strstr(name, "ssm_a") || strstr(name, "ssm_norm"))) {
        uint64_t lines = strstr(name, "ssm_norm") ? c->linear.key_heads : count;
        made_gguf_tensor(k->g, name, (uint64_t[]){count / lines, lines}, 2, 0, values,
                         count * sizeof *values);
        free(values);
        return;
    }
    if (strstr(name, "ssm_conv1d.weight")) {
        uint64_t two[2] = {c->linear.kernel, sizes[2]};
        made_gguf_tensor(k->g, name, two, 2, 0, values, count * sizeof *values);
        free(values);
        return;
    }
    /* in GGUF the shared expert's gate is a vector */
    uint32_t rank = strstr(name, "gate_inp_shexp") ? 1 : t->rank;
    put(k, name, sizes, rank, values, stored_type(t));
    free(values);
}

static const pj_tensor *expert_tensor(const copy *k, unsigned layer, unsigned expert,
                                      const char *part, const char *other)
{
    static const char *const blocks[] = {"mlp", "mixer", "block_sparse_moe", "feed_forward"};
    char name[128];
    const pj_tensor *t = NULL;
    for (int i = 0; !t && i < 4; i++) {
        snprintf(name, sizeof name, "model.layers.%u.%s.experts.%u.%s.weight", layer, blocks[i],
                 expert, i < 2 ? part : other);
        t = pj_checkpoint_find(k->from, name);
    }
    return t;
}

/* One of the three matrices of all experts of a layer, in one tensor or, as in older files, one
 * tensor per expert. */
static void copy_experts(const copy *k, unsigned layer, const char *part, const char *other,
                         const char *own)
{
    const pj_model_config *c = k->c;
    bool down = strcmp(part, "down_proj") == 0;
    uint64_t f = c->expert_intermediate;
    uint64_t rows = pj_config_expert_hidden(c);
    uint64_t sizes[3] = {down ? f : rows, down ? rows : f, c->experts};
    size_t each = (size_t)(sizes[0] * sizes[1]), count;
    char name[128];
    float *all = malloc(each * c->experts * sizeof *all);
    if (!all) abort();
    pj_dtype type = PJ_F32;
    for (unsigned e = 0; e < c->experts; e++) {
        const pj_tensor *t = expert_tensor(k, layer, e, part, other);
        size_t skip = 0;
        if (!t) { /* fused in the checkpoint: gate above up */
            snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s", layer,
                     down ? "down_proj" : "gate_up_proj");
            t = pj_checkpoint_find(k->from, name);
            snprintf(name, sizeof name, "model.layers.%u.block_sparse_moe.%s_linear.weight", layer,
                     down ? "output" : "input");
            if (!t) t = pj_checkpoint_find(k->from, name);
            skip = down ? e * each : (2 * e + (strcmp(part, "up_proj") == 0)) * each;
        }
        if (!t) abort();
        float *values = values_of(t, &count);
        memcpy(all + e * each, values + skip, each * sizeof *all);
        type = stored_type(t);
        free(values);
        snprintf(name, sizeof name, "blk.%u.ffn_%s.%u.weight", layer, own, e);
        if (k->o->old_names) put(k, name, sizes, 2, all + e * each, type);
    }
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", layer, own);
    if (!k->o->old_names) put(k, name, sizes, 3, all, type);
    free(all);
}

/* gpt-oss and Llama 4: gate (0), up (1) or down (2) of all experts, with gpt-oss's biases, out of
 * [in][out] with gate and up interleaved, or one after the other. */
static void copy_transposed(const copy *k, unsigned layer, int which, const char *own)
{
    const pj_model_config *c = k->c;
    bool halves = c->arch == PJ_ARCH_LLAMA4;
    size_t f = c->expert_intermediate, rows = which == 2 ? c->hidden : f, count;
    size_t cols = which == 2 ? f : c->hidden, all_rows = which == 2 ? rows : 2 * rows;
    size_t step = which == 2 || halves ? 1 : 2, first = which != 1 ? 0 : halves ? f : 1;
    const char *part = which == 2 ? "down_proj" : "gate_up_proj";
    char name[128];
    snprintf(name, sizeof name, "model.layers.%u.%s.experts.%s", layer,
             halves ? "feed_forward" : "mlp", part);
    const pj_tensor *t = pj_checkpoint_find(k->from, name);
    float *values = values_of(t, &count), *all = malloc(c->experts * rows * cols * sizeof *all);
    if (!all) abort();
    for (size_t e = 0; e < c->experts; e++)
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < cols; i++)
                all[(e * rows + r) * cols + i] =
                    values[(e * cols + i) * all_rows + r * step + first];
    uint64_t sizes[3] = {cols, rows, c->experts};
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", layer, own);
    put(k, name, sizes, 3, all, stored_type(t));
    free(values);
    if (halves) {
        free(all);
        return;
    }
    snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%s_bias", layer, part);
    values = values_of(pj_checkpoint_find(k->from, name), &count);
    for (size_t i = 0; i < c->experts * rows; i++) all[i] = values[i * step + first];
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.bias", layer, own);
    made_gguf_tensor(k->g, name, (uint64_t[]){rows, c->experts}, 2, 0, all,
                     c->experts * rows * sizeof *all);
    free(values);
    free(all);
}

/* Projections of all streams but the first, in one tensor. */
static void copy_streams(const copy *k, const char *part, const char *own)
{
    uint64_t n = k->c->hidden, count = k->c->streams.count - 1;
    uint64_t sizes[3] = {n, n, count};
    float *all = malloc(n * n * count * sizeof *all);
    char name[128];
    if (!all) abort();
    for (uint64_t i = 0; i < count; i++) {
        size_t values;
        snprintf(name, sizeof name, "model.%s.%u.weight", part, (unsigned)i);
        float *one = values_of(pj_checkpoint_find(k->from, name), &values);
        memcpy(all + i * n * n, one, values * sizeof *all);
        free(one);
    }
    put(k, own, sizes, 3, all, PJ_F32);
    free(all);
}

/* q, k and v of a layer in one tensor. */
static void copy_fused(const copy *k, unsigned layer, const char *kind)
{
    static const char *const parts[] = {"q_proj", "k_proj", "v_proj"};
    const pj_model_config *c = k->c;
    bool bias = strcmp(kind, "bias") == 0;
    size_t rows = (size_t)(c->heads + 2 * c->kv_heads) * c->head_dim, cols = bias ? 1 : c->hidden;
    float *all = malloc(rows * cols * sizeof *all), *to = all;
    if (!all) abort();
    char name[128];
    for (int i = 0; i < 3; i++) {
        size_t count;
        snprintf(name, sizeof name, "model.layers.%u.self_attn.%s.%s", layer, parts[i], kind);
        float *values = values_of(pj_checkpoint_find(k->from, name), &count);
        memcpy(to, values, count * sizeof *to);
        to += count;
        free(values);
    }
    snprintf(name, sizeof name, "blk.%u.attn_qkv.%s", layer, kind);
    uint64_t sizes[2] = {bias ? rows : cols, rows};
    put(k, name, sizes, bias ? 1 : 2, all, PJ_F32);
    free(all);
}

/* Granite: gate and up of the shared expert, whose rows follow each other in the folder. */
static void copy_shared_halves(const copy *k, unsigned layer)
{
    static const char *const parts[] = {"gate", "up"};
    uint64_t sizes[2] = {k->c->hidden, k->c->shared_intermediate};
    char name[128];
    size_t count;
    snprintf(name, sizeof name, "model.layers.%u.shared_mlp.input_linear.weight", layer);
    const pj_tensor *t = pj_checkpoint_find(k->from, name);
    float *values = values_of(t, &count);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_%s_shexp.weight", layer, parts[i]);
        put(k, name, sizes, 2, values + i * (count / 2), stored_type(t));
    }
    free(values);
}

static void copy_weights(const copy *k)
{
    const pj_model_config *c = k->c;
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(k->from); i++)
        copy_tensor(k, pj_checkpoint_tensor(k->from, i));
    if (c->streams.count) {
        copy_streams(k, "altup_projections", "altup_proj.weight");
        copy_streams(k, "altup_unembed_projections", "altup_unembd_proj.weight");
    }
    for (unsigned layer = 0; layer < c->layers + heads_of(k); layer++) {
        if (k->o->old_names && c->arch == PJ_ARCH_PHI) {
            copy_fused(k, layer, "weight");
            copy_fused(k, layer, "bias");
        }
        bool dense = layer < c->layers && c->layer_is_dense && c->layer_is_dense[layer];
        if (!c->experts || dense) continue;
        if (c->arch == PJ_ARCH_GPT_OSS || c->arch == PJ_ARCH_LLAMA4) {
            copy_transposed(k, layer, 0, "gate");
            copy_transposed(k, layer, 1, "up");
            copy_transposed(k, layer, 2, "down");
            continue;
        }
        if (c->arch == PJ_ARCH_GRANITE_MOE && c->shared_intermediate) copy_shared_halves(k, layer);
        if (c->arch != PJ_ARCH_NEMOTRON_H) copy_experts(k, layer, "gate_proj", "w1", "gate");
        copy_experts(k, layer, "up_proj", "w3", "up");
        copy_experts(k, layer, "down_proj", "w2", "down");
    }
}

/* ---- keys of a configuration -------------------------------------------------------------- */

static void number(const copy *k, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    made_gguf_u32(k->g, full, value);
}

static void real(const copy *k, const char *key, double value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    made_gguf_f32(k->g, full, (float)value);
}

static void word(const copy *k, const char *key, const char *value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    made_gguf_string(k->g, full, value);
}

static void flag(const copy *k, const char *key, bool value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    made_gguf_bool(k->g, full, value);
}

/* An array of booleans. */
static void flags(const copy *k, const char *key, const bool *values, uint32_t count)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    made_gguf_key(k->g, full, ARRAY);
    made_gguf_bytes(&k->g->keys, BOOL, 4);
    made_gguf_bytes(&k->g->keys, count, 8);
    for (uint32_t i = 0; i < count; i++) made_gguf_bytes(&k->g->keys, values[i], 1);
}

static void factors(const copy *k, const char *name, const double *values, uint32_t count)
{
    float list[256];
    uint64_t size = count;
    for (uint32_t i = 0; i < count; i++) list[i] = (float)values[i];
    made_gguf_tensor(k->g, name, &size, 1, 0, list, count * sizeof *list);
}

/* Llama 3.1: a divisor per frequency, depending on its wavelength. */
static void llama3_factors(const copy *k)
{
    const pj_rope_config *r = &k->c->rope;
    uint32_t pairs = k->c->rope.dims / 2;
    double list[256];
    for (uint32_t i = 0; i < pairs; i++) {
        double wavelength = 2 * M_PI * pow(r->theta, 2.0 * i / k->c->rope.dims);
        double turns = r->original_context / wavelength;
        double smooth = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        list[i] = turns < r->low_freq_factor    ? r->factor
                  : turns > r->high_freq_factor ? 1
                                                : 1 / ((1 - smooth) / r->factor + smooth);
    }
    factors(k, "rope_freqs.weight", list, pairs);
}

static void write_rope(const copy *k)
{
    const pj_model_config *c = k->c;
    const pj_rope_config *r = &c->rope;
    real(k, "rope.freq_base", r->theta);
    number(k, "rope.dimension_count", c->rope.dims);
    if (r->type == PJ_ROPE_LLAMA3) llama3_factors(k);
    if (r->type == PJ_ROPE_LINEAR || r->type == PJ_ROPE_YARN) {
        word(k, "rope.scaling.type", r->type == PJ_ROPE_YARN ? "yarn" : "linear");
        real(k, "rope.scaling.factor", r->factor);
    }
    if (c->window_rope.dims) real(k, "rope.freq_base_swa", c->window_rope.theta);
    if (r->type == PJ_ROPE_YARN && r->mscale_all_dim > 0)
        real(k, "rope.scaling.yarn_log_multiplier", r->mscale_all_dim * (c->latent.rank ? 0.1 : 1));
    if (c->query_beta > 0 && c->arch != PJ_ARCH_LLAMA4)
        real(k, "attention.temperature_scale", c->query_beta);
    if (r->type == PJ_ROPE_YARN || r->type == PJ_ROPE_LONGROPE)
        number(k, "rope.scaling.original_context_length", r->original_context);
    if (r->type == PJ_ROPE_YARN) {
        real(k, "rope.scaling.yarn_beta_fast", r->beta_fast);
        real(k, "rope.scaling.yarn_beta_slow", r->beta_slow);
        if (!isnan(r->attention_factor)) /* OLMo's is the whole factor, the others' multiplies */
            real(k, "rope.scaling.attn_factor",
                 r->attention_factor / (c->arch == PJ_ARCH_OLMO3 ? 1 : 0.1 * log(r->factor) + 1));
    }
    if (r->type != PJ_ROPE_LONGROPE) return;
    double own = sqrt(1 + log(r->factor) / log(r->original_context));
    real(k, "rope.scaling.attn_factor", isnan(r->attention_factor) ? own : r->attention_factor);
    factors(k, "rope_factors_long.weight", r->long_factor, r->factor_count);
    factors(k, "rope_factors_short.weight", r->short_factor, r->factor_count);
}

static void write_multipliers(const copy *k)
{
    const pj_model_config *c = k->c;
    if (pj_arch_is_granite(c->arch)) {
        real(k, "embedding_scale", c->embedding_scale);
        real(k, "residual_scale", c->residual_scale);
        real(k, "attention.scale", c->score_scale);
        real(k, "logit_scale", 1 / c->logit_scale);
    }
    if (c->arch != PJ_ARCH_GEMMA2 && c->arch != PJ_ARCH_GEMMA3) return;
    real(k, "attn_logit_softcapping", c->attention_softcap);
    real(k, "final_logit_softcapping", c->logit_softcap);
}

/* Names in `general.architecture`; NULL: not supported here. */
static const char *const archs[PJ_ARCH_COUNT] = {
    [PJ_ARCH_LLAMA] = "llama",
    [PJ_ARCH_MISTRAL] = "llama",
    [PJ_ARCH_MIXTRAL] = "llama",
    [PJ_ARCH_PHI] = "phi2",
    [PJ_ARCH_PHI3] = "phi3",
    [PJ_ARCH_QWEN2] = "qwen2",
    [PJ_ARCH_QWEN2_MOE] = "qwen2moe",
    [PJ_ARCH_QWEN3] = "qwen3",
    [PJ_ARCH_QWEN3_MOE] = "qwen3moe",
    [PJ_ARCH_SMOLLM3] = "smollm3",
    [PJ_ARCH_GRANITE] = "granite",
    [PJ_ARCH_OLMO2] = "olmo2",
    [PJ_ARCH_OLMO3] = "olmo2",
    [PJ_ARCH_GLM4] = "glm4",
    [PJ_ARCH_GEMMA2] = "gemma2",
    [PJ_ARCH_GEMMA3] = "gemma3",
    [PJ_ARCH_MINISTRAL3] = "mistral3",
    [PJ_ARCH_GPT_OSS] = "gpt-oss",
    [PJ_ARCH_QWEN3_5] = "qwen35",
    [PJ_ARCH_HUNYUAN_DENSE] = "hunyuan-dense",
    [PJ_ARCH_APERTUS] = "apertus",
    [PJ_ARCH_BITNET] = "bitnet",
    [PJ_ARCH_PHIMOE] = "phimoe",
    [PJ_ARCH_NEMOTRON_H] = "nemotron_h",
    [PJ_ARCH_MAMBA2] = "mamba2",
    [PJ_ARCH_FALCON_H1] = "falcon-h1",
    [PJ_ARCH_LLAMA4] = "llama4",
    [PJ_ARCH_GEMMA3N] = "gemma3n",
    [PJ_ARCH_GLM4_MOE] = "glm4moe",
    [PJ_ARCH_DEEPSEEK_V32] = "deepseek32",
    [PJ_ARCH_GLM_MOE_DSA] = "glm-dsa",
    [PJ_ARCH_GRANITE_MOE] = "granitemoe",
    [PJ_ARCH_HUNYUAN_MOE] = "hunyuan-moe",
    [PJ_ARCH_LFM2_MOE] = "lfm2moe",
};

/* What the keys of files with state-space layers cannot say. */
static bool scans_fit(const pj_model_config *c)
{
    double least = c->arch == PJ_ARCH_NEMOTRON_H ? 0.001 : 0;
    bool gate_first = c->linear.without_norm || !c->linear.norm_first;
    bool unbounded = c->linear.most_step == 0 || isinf(c->linear.most_step);
    return gate_first && unbounded && (!c->linear.kernel || c->linear.least_step == least);
}

/* Three layers with chunks that rotate to each without either, published scaling of queries; or
 * neither chunks nor scaling. */
static bool chunks_fit(const pj_model_config *c)
{
    bool any = false, all = true;
    for (uint32_t i = 0; i < c->layers; i++) {
        bool fits = c->layer_rotates[i] == ((i + 1) % 4 != 0);
        any |= c->window != 0 || !c->layer_rotates[i];
        all &= fits && pj_config_is_windowed(c, i) == c->layer_rotates[i];
    }
    if (!any) return c->query_beta == 0;
    return all && c->query_beta == 0.1 && c->query_period == 8192 && !c->without_qk_norm;
}

/* Parts that no converter writes. */
static bool has_folder_parts(const pj_model_config *c)
{
    return c->layer_chosen || (c->arch == PJ_ARCH_PHI && !c->without_qk_norm) ||
           (pj_arch_is_lfm2(c->arch) && c->linear.conv_bias) ||
           (c->arch == PJ_ARCH_NEMOTRON_H && c->experts && c->mlp_bias);
}

bool made_gguf_carries(const pj_model_config *c)
{
    bool gemma = c->arch == PJ_ARCH_GEMMA2 || c->arch == PJ_ARCH_GEMMA3;
    if (!archs[c->arch] || has_folder_parts(c)) return false;
    if (c->arch == PJ_ARCH_PHIMOE && c->router_reach != 0.02) return false;
    if (c->rope.long_attention_factor > 0 &&
        c->rope.long_attention_factor != c->rope.attention_factor)
        return false;
    if (gemma && fabs(c->score_scale * sqrt(c->head_dim) - 1) > 1e-6) return false;
    if (c->arch == PJ_ARCH_LLAMA4) return chunks_fit(c);
    if (c->arch == PJ_ARCH_FALCON_H1 || c->arch == PJ_ARCH_NEMOTRON_H || c->arch == PJ_ARCH_MAMBA2)
        return scans_fit(c);
    for (uint32_t i = 0; c->layer_rotates && i < c->layers; i++)
        if (c->layer_rotates[i] != ((i + 1) % 4 != 0)) return false;
    if (pj_arch_is_lfm2(c->arch)) return true;
    for (uint32_t i = 0; c->layer_is_linear && i < c->layers; i++)
        if (c->layer_is_linear[i] != ((i + 1) % 4 != 0)) return false;
    for (uint32_t i = 0; c->arch < PJ_ARCH_OLMO3 && c->window && i < c->layers; i++)
        if (c->layer_is_windowed && !c->layer_is_windowed[i]) return false;
    return c->arch != PJ_ARCH_GPT_OSS || !c->rope.truncate;
}

static void write_linear_sizes(const copy *k)
{
    const pj_model_config *c = k->c;
    number(k, "ssm.group_count", c->linear.key_heads);
    number(k, "ssm.time_step_rank", c->linear.value_heads);
    number(k, "ssm.state_size", c->linear.key_dim);
    number(k, "ssm.inner_size", c->linear.value_heads * c->linear.value_dim);
    number(k, "ssm.conv_kernel", c->linear.kernel ? c->linear.kernel : 4); /* 0: no such layer */
}

/* Sizes that are 0 in the layers without attention, or without a block. */
static void write_halves(const copy *k)
{
    const pj_model_config *c = k->c;
    uint32_t heads[PJ_MAX_LAYERS], widths[PJ_MAX_LAYERS];
    char key[96];
    for (uint32_t i = 0; i < c->layers; i++) {
        heads[i] = pj_config_attends(c, i) ? c->kv_heads : 0;
        bool dense = !c->layer_is_dense || c->layer_is_dense[i];
        widths[i] = pj_config_halves(c, i) == PJ_HALF_MLP
                        ? (dense ? c->intermediate : c->expert_intermediate)
                        : 0;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", k->arch);
    made_gguf_u32s(k->g, key, heads, c->layers);
    snprintf(key, sizeof key, "%s.feed_forward_length", k->arch);
    made_gguf_u32s(k->g, key, widths, c->layers);
}

/* Keys without the architecture's name. */
static void write_xielu(const copy *k)
{
    static const char *const parts[] = {"alpha_p", "alpha_n", "beta", "eps"};
    float list[PJ_MAX_LAYERS];
    char name[128];
    for (int p = 0; p < 4; p++) {
        for (uint32_t i = 0; i < k->c->layers; i++) {
            size_t count;
            snprintf(name, sizeof name, "model.layers.%u.mlp.act_fn.%s", i, parts[p]);
            float *values = values_of(pj_checkpoint_find(k->from, name), &count);
            list[i] = *values;
            free(values);
        }
        snprintf(name, sizeof name, "xielu.%s", parts[p]);
        made_gguf_f32s(k->g, name, list, k->c->layers);
    }
}

static void write_router(const copy *k)
{
    const pj_model_config *c = k->c;
    enum { SIGMOID = 2 };
    flag(k, "expert_weights_norm", c->norm_topk);
    number(k, "expert_gating_func", SIGMOID);
    real(k, "expert_weights_scale", c->routed_scale);
    if (c->shared_intermediate) number(k, "expert_shared_count", 1);
    number(k, "expert_group_count", c->expert_groups);
    number(k, "expert_group_used_count", c->expert_groups_kept);
}

/* The number of reading layers is a float in some files. */
static void write_streams(const copy *k)
{
    const pj_model_config *c = k->c;
    float cutoffs[PJ_MAX_LAYERS];
    uint32_t widths[PJ_MAX_LAYERS], readers = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        cutoffs[i] = (float)c->layer_cutoff[i];
        widths[i] = pj_config_mlp_width(c, i);
        readers += pj_config_kv_source(c, i) != i;
    }
    made_gguf_f32s(k->g, "gemma3n.activation_sparsity_scale", cutoffs, c->layers);
    made_gguf_u32s(k->g, "gemma3n.feed_forward_length", widths, c->layers);
    number(k, "altup.num_inputs", c->streams.count);
    number(k, "altup.active_idx", c->streams.active);
    number(k, "embedding_length_per_layer_input", c->token_vector);
    real(k, "attention.shared_kv_layers", readers);
    real(k, "final_logit_softcapping", c->logit_softcap);
}

/* Latent attention, and its indexer; of GLM-5, which layers have one. */
static void write_latent(const copy *k)
{
    const pj_model_config *c = k->c;
    bool full[PJ_MAX_LAYERS];
    number(k, "attention.key_length", c->head_dim);
    number(k, "attention.value_length", c->latent.rank);
    number(k, "attention.key_length_mla", c->latent.plain + c->latent.rotated);
    number(k, "attention.value_length_mla", c->latent.value);
    number(k, "attention.kv_lora_rank", c->latent.rank);
    number(k, "attention.q_lora_rank", c->latent.query_rank);
    number(k, "attention.indexer.head_count", c->indexer.heads);
    number(k, "attention.indexer.key_length", c->indexer.dim);
    number(k, "attention.indexer.top_k", c->indexer.kept);
    for (uint32_t i = 0; i < c->layers; i++) full[i] = pj_config_has_indexer(c, i);
    if (c->indexer.layer_shares) flags(k, "attention.indexer.types", full, c->layers);
}

static void write_sizes(const copy *k)
{
    const pj_model_config *c = k->c;
    bool phi = c->arch == PJ_ARCH_PHI, scans = c->arch == PJ_ARCH_MAMBA2;
    number(k, "block_count", c->layers + heads_of(k));
    if (heads_of(k)) number(k, "nextn_predict_layers", heads_of(k));
    number(k, "context_length", c->context);
    number(k, "embedding_length", c->hidden);
    number(k, "attention.head_count", scans ? 0 : c->heads);
    if (scans) {
        number(k, "feed_forward_length", 0);
    } else if (c->layer_halves) {
        write_halves(k);
    } else {
        if (!c->streams.count) number(k, "feed_forward_length", c->intermediate);
        number(k, "attention.head_count_kv", c->kv_heads);
    }
    if (c->streams.count) write_streams(k);
    if (c->xielu) write_xielu(k);
    if (c->arch == PJ_ARCH_BITNET) word(k, "hidden_activation", "relu2");
    if (c->arch == PJ_ARCH_LLAMA4) number(k, "interleave_moe_layer_step", c->experts ? 2 : 0);
    if (c->latent.rank) {
        write_latent(k);
    } else if (c->head_dim * c->heads != c->hidden && !scans) {
        number(k, "attention.key_length", c->head_dim);
        number(k, "attention.value_length", c->head_dim);
    }
    real(k, phi ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c->norm_eps);
    write_multipliers(k);
    if (c->window || c->arch == PJ_ARCH_LLAMA4) number(k, "attention.sliding_window", c->window);
    if (c->window && c->layer_is_windowed && c->arch >= PJ_ARCH_OLMO3 && c->arch != PJ_ARCH_LLAMA4)
        flags(k, "attention.sliding_window_pattern", c->layer_is_windowed, c->layers);
    if (c->linear.key_heads) write_linear_sizes(k);
    if (pj_arch_is_lfm2(c->arch)) number(k, "shortconv.l_cache", c->linear.kernel);
    if (!c->experts) return;
    number(k, "expert_count", c->experts);
    number(k, "expert_used_count", c->experts_per_token);
    if (c->expert_latent) number(k, "moe_latent_size", c->expert_latent);
    if (c->arch == PJ_ARCH_QWEN2_MOE || c->arch == PJ_ARCH_QWEN3_MOE)
        flag(k, "expert_weights_norm", c->norm_topk);
    if (c->router_sigmoid && c->arch != PJ_ARCH_LLAMA4) write_router(k);
    if (c->arch != PJ_ARCH_MIXTRAL && c->arch != PJ_ARCH_PHIMOE)
        number(k, "expert_feed_forward_length", c->expert_intermediate);
    if (c->shared_intermediate && c->arch != PJ_ARCH_LLAMA4)
        number(k, "expert_shared_feed_forward_length", c->shared_intermediate);
}

void made_gguf_copy(made_gguf *g, const pj_checkpoint *from, const made_gguf_options *options)
{
    const pj_model_config *c = pj_checkpoint_config(from);
    bool mixture = c->arch == PJ_ARCH_NEMOTRON_H && c->experts;
    copy k = {.g = g,
              .from = from,
              .c = c,
              .o = options,
              .arch = mixture ? "nemotron_h_moe" : archs[c->arch]};
    made_gguf_string(g, "general.architecture", k.arch);
    write_sizes(&k);
    if (c->arch != PJ_ARCH_MAMBA2) write_rope(&k);
    copy_weights(&k);
}
