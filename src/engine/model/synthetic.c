/* Models of public shapes with random weights, for measuring speed and energy at real sizes without
 * downloads. Sizes are those of the published config.json files. Every matrix row has its own
 * random stream, so weights do not depend on the number of threads. */
#include "engine/model/model.h"

#include "base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name;
    pj_arch arch;
    uint32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, context;
    double theta, llama3_factor; /* factor 0: plain rope */
    bool tied;
    uint32_t experts, chosen, expert_intermediate, shared_intermediate;
} shape;

static const shape shapes[] = {
    {"llama-3.2-1b", PJ_ARCH_LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, 32, true},
    {"llama-3.2-3b", PJ_ARCH_LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5, 32, true},
    {"llama-3.1-8b", PJ_ARCH_LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5, 8, false},
    {"llama-3.3-70b", PJ_ARCH_LLAMA, 80, 8192, 64, 8, 128, 28672, 128256, 131072, 5e5, 8, false},
    {"llama-2-7b", PJ_ARCH_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e4, 0, false},
    {"mistral-7b", PJ_ARCH_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1e6, 0, false},
    {"mixtral-8x7b", PJ_ARCH_MIXTRAL, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6, 0, false, 8,
     2, 14336, 0},
    {"phi-2", PJ_ARCH_PHI, 32, 2560, 32, 32, 80, 10240, 51200, 2048, 1e4, 0, false},
    {"phi-3-mini", PJ_ARCH_PHI3, 32, 3072, 32, 32, 96, 8192, 32064, 4096, 1e4, 0, false},
    {"qwen2.5-0.5b", PJ_ARCH_QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, 0, true},
    {"qwen2.5-1.5b", PJ_ARCH_QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, 0, true},
    {"qwen2.5-3b", PJ_ARCH_QWEN2, 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1e6, 0, true},
    {"qwen2.5-7b", PJ_ARCH_QWEN2, 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e6, 0, false},
    {"qwen3-0.6b", PJ_ARCH_QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, 0, true},
    {"qwen3-1.7b", PJ_ARCH_QWEN3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6, 0, true},
    {"qwen3-4b", PJ_ARCH_QWEN3, 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e6, 0, true},
    {"qwen3-8b", PJ_ARCH_QWEN3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6, 0, false},
    {"qwen3-30b-a3b", PJ_ARCH_QWEN3_MOE, 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1e6, 0, false,
     128, 8, 768, 0},
    {"tinyllama-1.1b", PJ_ARCH_LLAMA, 22, 2048, 32, 4, 64, 5632, 32000, 2048, 1e4, 0, false},
    {"smollm2-135m", PJ_ARCH_LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, 0, true},
    {"smollm2-360m", PJ_ARCH_LLAMA, 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5, 0, true},
    {"smollm2-1.7b", PJ_ARCH_LLAMA, 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1.3e5, 0, true},
};

enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

/* Newer shapes: the fields of their config.json that differ from the architecture's defaults. */
static const struct {
    const char *name, *config;
} described[] = {
    {"smollm3-3b", "{\"model_type\":\"smollm3\",\"rope_theta\":5e6,"
                   "\"max_position_embeddings\":65536}"},
    {"granite-3.3-2b",
     "{\"model_type\":\"granite\",\"hidden_size\":2048,\"num_hidden_layers\":40,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":8192,"
     "\"vocab_size\":49159,\"max_position_embeddings\":131072,\"rope_theta\":1e7,"
     "\"tie_word_embeddings\":true,\"embedding_multiplier\":12,\"residual_multiplier\":0.22,"
     "\"attention_multiplier\":0.015625,\"logits_scaling\":8}"},
    {"olmo-2-7b", "{\"model_type\":\"olmo2\",\"vocab_size\":100352,\"rope_theta\":5e5,"
                  "\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-6}"},
    {"olmo-3-7b", "{\"model_type\":\"olmo3\",\"vocab_size\":100278,"
                  "\"max_position_embeddings\":65536,\"rms_norm_eps\":1e-6}"},
    {"glm-4-9b", "{\"model_type\":\"glm4\",\"max_position_embeddings\":32768}"},
    {"ministral-3-8b", "{\"model_type\":\"ministral3\"}"},
    {"gemma-2-2b", "{\"model_type\":\"gemma2\"}"},
    {"gemma-3-4b", "{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,\"num_hidden_layers\":34,"
                   "\"intermediate_size\":10240,\"sliding_window\":1024,"
                   "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}"},
    {"gemma-3n-e2b", "{\"model_type\":\"gemma3n_text\",\"num_hidden_layers\":30,"
                     "\"intermediate_size\":8192,\"num_kv_shared_layers\":10}"},
    {"gemma-3n-e4b", "{\"model_type\":\"gemma3n_text\"}"},
    {"gemma-4-e4b",
     "{\"model_type\":\"gemma4_text\",\"hidden_size\":2560,\"num_hidden_layers\":42,"
     "\"num_key_value_heads\":2,\"intermediate_size\":10240,\"num_kv_shared_layers\":18,"
     "\"final_logit_softcapping\":30}"},
    {"gpt-oss-20b", "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":24,"
                    "\"num_local_experts\":32}"},
    {"mamba2-2.7b",
     "{\"model_type\":\"mamba2\",\"hidden_size\":2560,\"num_heads\":80,\"n_groups\":1,"
     "\"vocab_size\":50288,\"tie_word_embeddings\":true}"},
    {"mamba-codestral-7b", "{\"model_type\":\"mamba2\"}"},
    {"qwen3.5-9b", "{\"model_type\":\"qwen3_5_text\",\"max_position_embeddings\":262144,"
                   "\"rope_theta\":1e7}"},
    {"qwen3.5-35b-a3b", "{\"model_type\":\"qwen3_5_moe_text\","
                        "\"max_position_embeddings\":262144,\"rope_theta\":1e7}"},
};

enum { DESCRIBED_COUNT = sizeof described / sizeof *described };

static void config_of_shape(const shape *s, pj_model_config *c)
{
    bool phi = s->arch == PJ_ARCH_PHI, qwen = s->arch == PJ_ARCH_QWEN2;
    *c = (pj_model_config){
        .arch = s->arch,
        .layers = s->layers,
        .hidden = s->hidden,
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .intermediate = s->intermediate,
        .vocab = s->vocab,
        .context = s->context,
        .norm_eps = qwen || s->arch == PJ_ARCH_QWEN3 ? 1e-6 : 1e-5,
        .embedding_scale = 1,
        .residual_scale = 1,
        .logit_scale = 1,
        .multipliers = PJ_MULTIPLIERS_NONE,
        .rope = {.type = s->llama3_factor > 0 ? PJ_ROPE_LLAMA3 : PJ_ROPE_DEFAULT,
                 .dims = phi ? 32 : s->head_dim,
                 .theta = s->theta,
                 .factor = s->llama3_factor,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .attention_factor = NAN,
                 .mscale = NAN,
                 .mscale_all_dim = NAN,
                 .original_context = s->llama3_factor > 0 ? 8192 : 0},
        .tied_head = s->tied,
        .attention_bias = phi,
        .mlp_bias = phi,
        .qkv_bias = phi || qwen,
        .gelu = phi,
        .experts = s->experts,
        .experts_per_token = s->chosen,
        .expert_intermediate = s->expert_intermediate,
        .shared_intermediate = s->shared_intermediate,
        .norm_topk = s->experts > 0,
        .bos = -1,
        .dtype_hint = "bfloat16",
    };
    snprintf(c->arch_name, sizeof c->arch_name, "%s", pj_arch_name(s->arch));
}

static pj_status unknown_shape(const char *name, size_t length, pj_error *err)
{
    char list[1024], wanted[41], hint[80];
    size_t used = 0;
    pj_nearest nearest;
    snprintf(wanted, sizeof wanted, "%.*s", (int)(length < 40 ? length : 40), name);
    pj_nearest_begin(&nearest, wanted);
    for (int i = 0; i < SHAPE_COUNT; i++)
        pj_nearest_offer(&nearest, shapes[i].name, strlen(shapes[i].name));
    for (int i = 0; i < DESCRIBED_COUNT; i++)
        pj_nearest_offer(&nearest, described[i].name, strlen(described[i].name));
    pj_nearest_write(&nearest, "synthetic:", hint, sizeof hint);
    if (nearest.word) /* keep room for the message after the list */
        return pj_fail(err, PJ_E_NOT_FOUND, "unknown synthetic shape \"%s\"%s", wanted, hint);
    for (int i = 0; i < SHAPE_COUNT; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 shapes[i].name);
    for (int i = 0; i < DESCRIBED_COUNT; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, ", %s", described[i].name);
    return pj_fail(err, PJ_E_NOT_FOUND, "unknown synthetic shape \"%s\"; known: %s", wanted, list);
}

static pj_status synthetic_read_layers(const char *text, size_t length, const char *shape_name,
                                       uint32_t *layers, pj_error *err)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (end != text + length || length == 0 || n < 1 || n > *layers)
        return pj_fail(err, PJ_E_INVALID, "layers=%.*s must be 1 to %u for %s",
                       (int)(length < 20 ? length : 20), text, *layers, shape_name);
    *layers = (uint32_t)n;
    return PJ_OK;
}

static bool synthetic_is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncmp(name, text, length) == 0;
}

static pj_status find_shape(const char *name, size_t length, pj_arena *arena,
                            pj_model_config *config, const char **found, pj_error *err)
{
    for (int i = 0; i < SHAPE_COUNT; i++) {
        if (!synthetic_is_name(shapes[i].name, name, length)) continue;
        *found = shapes[i].name;
        config_of_shape(&shapes[i], config);
        return PJ_OK;
    }
    for (int i = 0; i < DESCRIBED_COUNT; i++) {
        const char *text = described[i].config;
        if (!synthetic_is_name(described[i].name, name, length)) continue;
        *found = described[i].name;
        return pj_config_parse(text, strlen(text), *found, arena, config, err);
    }
    return unknown_shape(name, length, err);
}

pj_status pj_synthetic_config(const char *name, pj_arena *arena, pj_model_config *config,
                              pj_dtype *dtype, uint32_t *full_layers, pj_error *err)
{
    size_t length = strcspn(name, ",");
    const char *shape_name = name;
    pj_status found = find_shape(name, length, arena, config, &shape_name, err);
    if (found) return found;
    *dtype = PJ_BF16;
    *full_layers = config->layers;
    for (const char *word = name + length; *word == ',';) {
        size_t n = strcspn(++word, ",");
        char text[16] = "";
        if (n < sizeof text) memcpy(text, word, n);
        int type = pj_dtype_parse(text);
        if (strncmp(word, "layers=", 7) == 0) {
            pj_status status =
                synthetic_read_layers(word + 7, n - 7, shape_name, &config->layers, err);
            if (status) return status;
        } else if (type >= 0 && type <= PJ_Q4_0) {
            *dtype = (pj_dtype)type;
        } else {
            return pj_fail(
                err, PJ_E_INVALID,
                "\"%.*s\" in a synthetic model's name is neither a type (f32, f16, bf16, "
                "q8_0, q4_0) nor layers=N",
                (int)(n < 40 ? n : 40), word);
        }
        word += n;
    }
    return PJ_OK;
}

/* Parallel xorshift streams, which the compiler can vectorise for any instruction set. */
enum { STREAMS = 32 };

static uint32_t synthetic_mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

void pj_synthetic_row(uint32_t matrix, uint64_t row, float *values, size_t count, float scale)
{
    uint32_t state[STREAMS];
    float unit = scale * 0x1p-31f;
    uint32_t seed =
        synthetic_mix((uint32_t)row ^ synthetic_mix(matrix * 0x9e3779b9u ^ (uint32_t)(row >> 32)));
    for (uint32_t i = 0; i < STREAMS; i++) state[i] = synthetic_mix(seed + i * 0x85ebca6bu) | 1;
    for (size_t begin = 0; begin < count; begin += STREAMS) {
        float block[STREAMS];
        for (uint32_t i = 0; i < STREAMS; i++) {
            uint32_t x = state[i];
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            state[i] = x;
            block[i] = (float)(int32_t)x * unit;
        }
        size_t n = count - begin < STREAMS ? count - begin : STREAMS;
        memcpy(values + begin, block, n * sizeof *values);
    }
}
