/* Weights in codes of up to 8 bits with Arm's products of signed bytes; compiled twice. With the
 * dot product extension four columns of one weight row meet four tokens; with I8MM two rows meet
 * two tokens over eight columns, twice the products per instruction. */
#include "engine/kernels/codes.h"
#include "engine/kernels/lane_blocks.h"
#include "engine/kernels/vector.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
enum { GROUP = 8 };
#else
enum { GROUP = 4 };
#endif
enum { STREAMS = 4, ROWS = 4, VECTORS = 3 };

/* ---- activations ------------------------------------------------------------------------ */

static void pack_block(const float *x, int8_t *codes, float *scale, int32_t *sum)
{
    vec v[8], most = vec_of(0);
    UNROLL for (size_t i = 0; i < 8; i++)
    {
        v[i] = vec_load(x + i * 4);
        most = vec_max_magnitude(most, v[i]);
    }
    float largest = vec_largest_magnitude(most);
    float inverse = largest > PJ_LEAST_SCALED ? 127 / largest : 0;
    int32x4_t all = vdupq_n_s32(0);
    UNROLL for (size_t i = 0; i < 8; i += 2)
    {
        int32x4_t low = vcvtnq_s32_f32((float32x4_t)(v[i] * inverse));
        int32x4_t high = vcvtnq_s32_f32((float32x4_t)(v[i + 1] * inverse));
        all = vaddq_s32(all, vaddq_s32(low, high));
        vst1_s8(codes + i * 4, vqmovn_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high))));
    }
    *scale = largest / 127;
    *sum = -PJ_Q8_OFFSET * vaddvq_s32(all);
}

static void pack_row(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    int8_t *to = values;
    for (size_t b = 0; b < n / PJ_Q8_BLOCK; b++)
        pack_block(x + b * PJ_Q8_BLOCK, to + b * PJ_Q8_BLOCK, scales + b, sums + b);
}

static void pack_panel(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                       void *values, float *scales, int32_t *sums)
{
    int8_t *to = values;
    for (size_t b = 0; b < cols / PJ_Q8_BLOCK; b++) {
        for (size_t t = 0; t < width; t++) {
            int8_t codes[PJ_Q8_BLOCK] = {0};
            scales[t] = 0;
            sums[t] = 0;
            if (t < tokens)
                pack_block(x + t * x_stride + b * PJ_Q8_BLOCK, codes, &scales[t], &sums[t]);
            for (size_t g = 0; g < PJ_Q8_BLOCK / GROUP; g++)
                memcpy(to + (g * width + t) * GROUP, codes + g * GROUP, GROUP);
        }
        to += PJ_Q8_BLOCK * width;
        scales += width;
        sums += width;
    }
}

/* ---- few tokens ------------------------------------------------------------------------- */

typedef struct block_codes {
    int8x16_t low, high;
} block_codes;

/* Adds 16 to the nibbles whose fifth bit is set in two bytes. */
INLINE uint8x16_t add_fifth(uint8x16_t nibbles, const char *bits)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    uint8x16_t spread = vcombine_u8(vdup_n_u8((uint8_t)bits[0]), vdup_n_u8((uint8_t)bits[1]));
    return vorrq_u8(nibbles, vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(16)));
}

/* A block's codes as signed bytes, without an offset. */
INLINE block_codes load_block(pj_dtype type, const char *at)
{
    if (type == PJ_Q8_0)
        return (block_codes){vld1q_s8((const int8_t *)at + 2), vld1q_s8((const int8_t *)at + 18)};
    const lane_layout l = lane_layout_of(type);
    uint8x16_t bytes = vld1q_u8((const uint8_t *)at + l.nibbles);
    uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15)), high = vshrq_n_u8(bytes, 4);
    if (l.levels) {
        int8x16_t levels = vld1q_s8(l.levels);
        return (block_codes){vqtbl1q_s8(levels, low), vqtbl1q_s8(levels, high)};
    }
    if (l.fifth) low = add_fifth(low, at + l.fifth), high = add_fifth(high, at + l.fifth + 2);
    int8x16_t offset = vdupq_n_s8((int8_t)l.offset);
    return (block_codes){vsubq_s8(vreinterpretq_s8_u8(low), offset),
                         vsubq_s8(vreinterpretq_s8_u8(high), offset)};
}

INLINE float load_scale(pj_dtype type, const char *at)
{
    return type == PJ_MXFP4 ? pj_blocks_mxfp4_scale((uint8_t)at[0])
                            : pj_float_of_f16(pj_load_u16(at));
}

INLINE bool has_minima(pj_dtype type)
{
    return type != PJ_Q8_0 && lane_layout_of(type).minima;
}

INLINE float32x4_t multiply_block(block_codes w, const int8_t *x)
{
    int32x4_t sum = vdotq_s32(vdupq_n_s32(0), w.low, vld1q_s8(x));
    return vcvtq_f32_s32(vdotq_s32(sum, w.high, vld1q_s8(x + 16)));
}

/* S weight rows times all tokens. */
INLINE void dot_group(const pj_dot *d, pj_dtype type, size_t row, size_t apart, const size_t S)
{
    const pj_matrix *w = d->weights;
    size_t blocks = w->cols / PJ_Q8_BLOCK, ahead = d->ahead;
    const size_t bytes = type == PJ_Q8_0 ? 34 : lane_layout_of(type).bytes;
    const char *rows[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] =
        (const char *)w->data + (row + s * apart) * w->row_bytes;
    for (size_t t = 0; t < d->x->tokens; t++) {
        const int8_t *codes = (const int8_t *)d->x->values + t * w->cols;
        const float *scales = d->x->scales + t * blocks;
        const int32_t *x_sums = d->x->sums + t * blocks;
        float32x4_t acc[STREAMS];
        float low[STREAMS] = {0};
        UNROLL for (size_t s = 0; s < S; s++) acc[s] = vdupq_n_f32(0);
        for (size_t b = 0; b < blocks; b++) UNROLL for (size_t s = 0; s < S; s++)
            {
                const char *at = rows[s] + b * bytes;
                __builtin_prefetch(at + ahead);
                float scale = scales[b] * load_scale(type, at);
                if (has_minima(type))
                    low[s] += pj_float_of_f16(pj_load_u16(at + 2)) * scales[b] * (float)x_sums[b];
                acc[s] = vfmaq_n_f32(acc[s], multiply_block(load_block(type, at), codes + b * 32),
                                     scale);
            }
        for (size_t s = 0; s < S; s++)
            d->y[t * d->y_stride + row + s * apart] = vaddvq_f32(acc[s]) - low[s] / PJ_Q8_OFFSET +
                                                      (d->bias ? d->bias[row + s * apart] : 0);
    }
}

#include "engine/kernels/dot_streams.h"

#define STREAMS_DOT(name, type)             \
    static void dot_##name(const pj_dot *d) \
    {                                       \
        dot_type(d, PJ_##type);             \
    }
STREAMS_DOT(q8_0, Q8_0)
STREAMS_DOT(q4_0, Q4_0)
STREAMS_DOT(q4_1, Q4_1)
STREAMS_DOT(q5_0, Q5_0)
STREAMS_DOT(q5_1, Q5_1)
STREAMS_DOT(iq4_nl, IQ4_NL)
STREAMS_DOT(mxfp4, MXFP4)

static void unpack(pj_dtype type, const void *row, size_t cols, void *values, float *scales,
                   float *minima)
{
    uint8_t *codes = values;
    pj_codes_row(type, row, cols, codes, scales, minima);
    for (size_t i = 0; i < cols; i++) codes[i] ^= 128; /* signed */
}

/* Types with blocks of 256: unpacks a row to bytes in L1, then multiplies. */
static void dot_unpacked(const pj_dot *d)
{
    const pj_matrix *w = d->weights;
    const pj_dtype_info *info = pj_dtype_get(w->type);
    enum { CHUNK = 16384 };
    int8_t *codes = d->scratch;
    float *scales = (float *)(void *)(codes + CHUNK), *minima = scales + CHUNK / 32;
    for (size_t row = d->begin; row < d->end; row++)
        for (size_t at = 0; at < w->cols; at += CHUNK) {
            size_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
            const char *from = (const char *)w->data + row * w->row_bytes;
            memset(minima, 0, n / 32 * sizeof *minima);
            unpack(w->type, from + at / info->block_values * info->block_bytes, n, codes, scales,
                   minima);
            for (size_t t = 0; t < d->x->tokens; t++) {
                size_t first = (t * w->cols + at) / 32;
                const int8_t *x = (const int8_t *)d->x->values + t * w->cols + at;
                float32x4_t acc = vdupq_n_f32(0);
                float low = 0;
                for (size_t b = 0; b < n / 32; b++) {
                    block_codes c = {vld1q_s8(codes + b * 32), vld1q_s8(codes + b * 32 + 16)};
                    float scale = d->x->scales[first + b];
                    acc = vfmaq_n_f32(acc, multiply_block(c, x + b * 32), scale * scales[b]);
                    low += minima[b] * scale * (float)d->x->sums[first + b];
                }
                float *y = &d->y[t * d->y_stride + row], before = at > 0 ? *y : 0;
                *y = before + vaddvq_f32(acc) + low / PJ_Q8_OFFSET;
                if (d->bias && at + n == w->cols) *y += d->bias[row];
            }
        }
}

/* ---- many tokens ------------------------------------------------------------------------ */

/* Sums of one block: four rows, V vectors of four tokens. */
#ifdef __ARM_FEATURE_MATMUL_INT8
INLINE void block_sums(const int8_t *const *rows, const int8_t *x, const size_t V,
                       int32x4_t whole[ROWS][VECTORS])
{
    /* [pair of rows][pair of tokens]: row 0 token 0, row 0 token 1, row 1 token 0, row 1 token 1 */
    int32x4_t pairs[ROWS / 2][2 * VECTORS];
    UNROLL for (size_t r = 0; r < ROWS / 2; r++) UNROLL for (size_t v = 0; v < 2 * V; v++)
        pairs[r][v] = vdupq_n_s32(0);
    UNROLL for (size_t g = 0; g < 4; g++)
    {
        int8x16_t w[ROWS / 2];
        UNROLL for (size_t r = 0; r < ROWS / 2; r++) w[r] =
            vcombine_s8(vld1_s8(rows[2 * r] + g * 8), vld1_s8(rows[2 * r + 1] + g * 8));
        UNROLL for (size_t v = 0; v < 2 * V; v++)
        {
            int8x16_t two = vld1q_s8(x + (g * 2 * V + v) * 16);
            UNROLL for (size_t r = 0; r < ROWS / 2; r++) pairs[r][v] =
                vmmlaq_s32(pairs[r][v], w[r], two);
        }
    }
    UNROLL for (size_t r = 0; r < ROWS / 2; r++) UNROLL for (size_t v = 0; v < V; v++)
    {
        int32x4_t a = pairs[r][2 * v], b = pairs[r][2 * v + 1];
        whole[2 * r][v] = vcombine_s32(vget_low_s32(a), vget_low_s32(b));
        whole[2 * r + 1][v] = vcombine_s32(vget_high_s32(a), vget_high_s32(b));
    }
}
#else
INLINE void block_sums(const int8_t *const *rows, const int8_t *x, const size_t V,
                       int32x4_t whole[ROWS][VECTORS])
{
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++) whole[r][v] =
        vdupq_n_s32(0);
    UNROLL for (size_t half = 0; half < 2; half++, x += 4 * V * 16)
    {
        int8x16_t w[ROWS];
        UNROLL for (size_t r = 0; r < ROWS; r++) w[r] = vld1q_s8(rows[r] + half * 16);
        UNROLL for (size_t v = 0; v < V; v++)
        {
            const int8_t *at = x + v * 16;
            int8x16_t x0 = vld1q_s8(at), x1 = vld1q_s8(at + V * 16);
            int8x16_t x2 = vld1q_s8(at + V * 32), x3 = vld1q_s8(at + V * 48);
            UNROLL for (size_t r = 0; r < ROWS; r++)
            {
                int32x4_t sum = vdotq_laneq_s32(whole[r][v], x0, w[r], 0);
                sum = vdotq_laneq_s32(sum, x1, w[r], 1);
                sum = vdotq_laneq_s32(sum, x2, w[r], 2);
                whole[r][v] = vdotq_laneq_s32(sum, x3, w[r], 3);
            }
        }
    }
}
#endif

INLINE void tile_of(const pj_tile *t, const bool minima, const size_t V)
{
    float32x4_t sums[ROWS][VECTORS];
    const int8_t *x = t->x;
    const float *x_scales = t->x_scales;
    const int32_t *x_sums = t->x_sums;
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
        t->add ? vld1q_f32(t->c + r * PJ_TILE_MAX_TOKENS + v * 4) : vdupq_n_f32(0);
    for (size_t b = 0; b < t->cols / PJ_Q8_BLOCK; b++) {
        const int8_t *rows[ROWS];
        int32x4_t whole[ROWS][VECTORS];
        UNROLL for (size_t r = 0; r < ROWS; r++) rows[r] = (const int8_t *)t->weights[r] + b * 32;
        block_sums(rows, x, V, whole);
        UNROLL for (size_t v = 0; v < V; v++)
        {
            float32x4_t scale = vld1q_f32(x_scales + v * 4);
            UNROLL for (size_t r = 0; r < ROWS; r++) sums[r][v] = vfmaq_f32(
                sums[r][v], vcvtq_f32_s32(whole[r][v]), vmulq_n_f32(scale, t->scales[r][b]));
            if (!minima) continue;
            float32x4_t sum = vcvtq_f32_s32(vld1q_s32(x_sums + v * 4));
            sum = vmulq_n_f32(vmulq_f32(sum, scale), 1.0f / PJ_Q8_OFFSET);
            UNROLL for (size_t r = 0; r < ROWS; r++) sums[r][v] =
                vfmaq_n_f32(sums[r][v], sum, t->minima[r][b]);
        }
        x += V * 4 * PJ_Q8_BLOCK;
        x_scales += V * 4;
        x_sums += V * 4;
    }
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++)
        vst1q_f32(t->c + r * PJ_TILE_MAX_TOKENS + v * 4, sums[r][v]);
}

static double peak(size_t rounds)
{
    enum { SUMS = 2 * ROWS * VECTORS };
    volatile int8_t outside = 0;
    int32x4_t sums[SUMS];
    int8x16_t w = vdupq_n_s8(outside);
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = vdupq_n_s32(outside);
    for (size_t i = 0; i < rounds; i++)
        UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] =
#ifdef __ARM_FEATURE_MATMUL_INT8
            vmmlaq_s32(sums[s], w, w);
#else
            vdotq_s32(sums[s], w, w);
#endif
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = (int8_t)vaddvq_s32(sums[s]);
    return 2.0 * SUMS * (GROUP == 8 ? 32 : 16) * (double)rounds;
}

#define TILE(name, minima)             \
    static void name(const pj_tile *t) \
    {                                  \
        if (t->vectors == 3)           \
            tile_of(t, minima, 3);     \
        else if (t->vectors == 2)      \
            tile_of(t, minima, 2);     \
        else                           \
            tile_of(t, minima, 1);     \
    }
TILE(tile, false)
TILE(tile_minima, true)

#define TYPE(type, TYPE_, dot_, tile_)                                                   \
    static void unpack_##type(const void *row, size_t cols, void *values, float *scales, \
                              float *minima)                                             \
    {                                                                                    \
        unpack(TYPE_, row, cols, values, scales, minima);                                \
    }                                                                                    \
    static const pj_tile_kernels by_##type = {.form = PJ_FORM_Q8,                        \
                                              .dot = dot_,                               \
                                              .tile = tile_,                             \
                                              .rows = ROWS,                              \
                                              .stretch = 2048, /* 24 KiB of the panel */ \
                                              .unpack = unpack_##type,                   \
                                              .unpacked_bytes = 1};
TYPE(q8_0, PJ_Q8_0, dot_q8_0, tile)
TYPE(q4_0, PJ_Q4_0, dot_q4_0, tile)
TYPE(q4_k, PJ_Q4_K, dot_unpacked, tile_minima)
TYPE(q5_k, PJ_Q5_K, dot_unpacked, tile_minima)
TYPE(q6_k, PJ_Q6_K, dot_unpacked, tile)
TYPE(q4_1, PJ_Q4_1, dot_q4_1, tile_minima)
TYPE(q5_0, PJ_Q5_0, dot_q5_0, tile)
TYPE(q5_1, PJ_Q5_1, dot_q5_1, tile_minima)
TYPE(iq4_nl, PJ_IQ4_NL, dot_iq4_nl, tile)
TYPE(mxfp4, PJ_MXFP4, dot_mxfp4, tile)
TYPE(q2_k, PJ_Q2_K, dot_unpacked, tile)
TYPE(q3_k, PJ_Q3_K, dot_unpacked, tile)
TYPE(iq4_xs, PJ_IQ4_XS, dot_unpacked, tile)
TYPE(iq1_s, PJ_IQ1_S, dot_unpacked, tile)
TYPE(iq1_m, PJ_IQ1_M, dot_unpacked, tile)
TYPE(iq2_xxs, PJ_IQ2_XXS, dot_unpacked, tile)
TYPE(iq2_xs, PJ_IQ2_XS, dot_unpacked, tile)
TYPE(iq2_s, PJ_IQ2_S, dot_unpacked, tile)
TYPE(iq3_xxs, PJ_IQ3_XXS, dot_unpacked, tile)
TYPE(iq3_s, PJ_IQ3_S, dot_unpacked, tile)
TYPE(tq1_0, PJ_TQ1_0, dot_unpacked, tile)
TYPE(tq2_0, PJ_TQ2_0, dot_unpacked, tile)
TYPE(nvfp4, PJ_NVFP4, dot_unpacked, tile)
TYPE(q1_0, PJ_Q1_0, dot_unpacked, tile)

static const pj_form_kernels form_q8 = {.dot_tokens = 4,
                                        .lanes = 4,
                                        .vectors = VECTORS,
                                        .group = GROUP,
                                        .pack_row = pack_row,
                                        .pack_panel = pack_panel};

#include "engine/kernels/codes_table.h"

void PJ_SET_SYMBOL(codes)(pj_kernels *kernels)
{
    enter_codes(kernels);
    kernels->forms[PJ_FORM_Q8] = &form_q8;
    kernels->peak[PJ_FORM_Q8] = peak;
}
