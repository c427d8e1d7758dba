/*
 * Matrix products for many tokens with AMX: tiles of bfloat16, whatever the weights' type. Sixteen
 * rows of weights are the first operand, packed activations the second; sums stay in tile registers
 * over all columns of a chunk, because storing and reloading them costs as much as some products.
 *
 * BF16 weights are read in place. Quantised ones are unpacked to bfloat16 once per pass of tokens
 * (linear.c): unlike products of codes, whose blocks of 32 columns have scales of their own, the
 * sums then never leave the tiles. F16 weights are split into two bfloat16 parts, w = high + low
 * (exact: 11 significant bits in 8 + 3), and so are activations (within 2^-18); of the four
 * products, low times low is left out.
 *
 * Few tokens go to the sets below.
 */
#include "engine/kernels/amx.h"

#include "engine/kernels/bf16_weights.h"
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

enum {
    ROWS = 32,
    TILE = 16,
    STEP = 32, /* columns of a product */
    LOWER_ROWS = 8,
    CHUNK = PJ_BF16_WEIGHTS_MAX, /* columns in one call of a tile, at most */
    SPLIT_VECTORS = 2,
    /* Activations of a pass, which stay in the L2 cache (2 MiB) with a block of weights. */
    PASS_BYTES = 1280 << 10
};

#ifdef PJ_AMX_MODEL
_Thread_local pj_amx_counts pj_amx_model_counts;
#endif

/* Whether this thread's tiles are configured: whole ones, all eight. */
static _Thread_local bool configured;

static void configure(void)
{
    if (configured) return;
    tile_config config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.rows[t] = TILE, config.row_bytes[t] = 64;
    TILE_CONFIGURE(&config);
    configured = true;
}

/* ---- bfloat16 --------------------------------------------------------------------------- */

static void (*lower_bf16)(const pj_tile *tile); /* the BF16 set's, eight rows */

/* C tiles: 0 .. 2 upper rows, 3 .. 5 lower rows, one for each vector of tokens. */
INLINE void each_c(float *c, const size_t V, const bool store)
{
    const size_t stride = PJ_TILE_MAX_TOKENS * 4, half = TILE * PJ_TILE_MAX_TOKENS;
    if (store) {
        TILE_STORE(0, c, stride);
        TILE_STORE(3, c + half, stride);
        if (V > 1) TILE_STORE(1, c + 16, stride);
        if (V > 1) TILE_STORE(4, c + half + 16, stride);
        if (V > 2) TILE_STORE(2, c + 32, stride);
        if (V > 2) TILE_STORE(5, c + half + 32, stride);
    } else {
        TILE_LOAD(0, c, stride);
        TILE_LOAD(3, c + half, stride);
        if (V > 1) TILE_LOAD(1, c + 16, stride);
        if (V > 1) TILE_LOAD(4, c + half + 16, stride);
        if (V > 2) TILE_LOAD(2, c + 32, stride);
        if (V > 2) TILE_LOAD(5, c + half + 32, stride);
    }
}

INLINE void zero_c(const size_t V)
{
    TILE_ZERO(0);
    TILE_ZERO(3);
    if (V > 1) TILE_ZERO(1);
    if (V > 1) TILE_ZERO(4);
    if (V > 2) TILE_ZERO(2);
    if (V > 2) TILE_ZERO(5);
}

/* Two rows of tiles times up to three of tokens: seven loads for six products. */
INLINE void bf16_tiles(const pj_tile *t, const size_t V)
{
    const size_t stride = t->stride;
    const char *upper = t->weights[0], *lower = upper + TILE * stride, *x = t->x;
    if (t->add)
        each_c(t->c, V, false);
    else
        zero_c(V);
    for (size_t i = 0; i + STEP <= t->cols; i += STEP, x += STEP * V * 32) {
        TILE_LOAD(6, upper + i * 2, stride);
        TILE_LOAD(7, x, V * 64);
        TILE_BF16(0, 6, 7);
        if (V > 1) TILE_LOAD(7, x + 64, V * 64);
        if (V > 1) TILE_BF16(1, 6, 7);
        if (V > 2) TILE_LOAD(7, x + 128, V * 64);
        if (V > 2) TILE_BF16(2, 6, 7);
        TILE_LOAD(6, lower + i * 2, stride);
        if (V > 2) TILE_BF16(5, 6, 7);
        if (V > 2) TILE_LOAD(7, x + 64, V * 64);
        if (V > 1) TILE_BF16(4, 6, 7);
        if (V > 1) TILE_LOAD(7, x, V * 64);
        TILE_BF16(3, 6, 7);
    }
    each_c(t->c, V, true);
}

/* Columns from `begin` with the BF16 set: fewer than a step, or of a last block of fewer rows. */
static void bf16_lower(const pj_tile *t, size_t begin)
{
    for (size_t r = 0; r < ROWS; r += LOWER_ROWS) {
        pj_tile rest = *t;
        for (size_t i = 0; i < LOWER_ROWS; i++)
            rest.weights[i] = (const char *)t->weights[r + i] + begin * 2;
        rest.x = (const char *)t->x + begin * t->vectors * 32;
        rest.cols = t->cols - begin;
        rest.c = t->c + r * PJ_TILE_MAX_TOKENS;
        rest.add = t->add || begin > 0;
        lower_bf16(&rest);
    }
}

static void tile_bf16(const pj_tile *t)
{
    size_t whole = t->stride ? t->cols / STEP * STEP : 0;
    if (whole > 0) {
        configure();
        if (t->vectors == 3)
            bf16_tiles(t, 3);
        else if (t->vectors == 2)
            bf16_tiles(t, 2);
        else
            bf16_tiles(t, 1);
    }
    if (whole < t->cols) bf16_lower(t, whole);
}

/* ---- float16, split --------------------------------------------------------------------- */

/*
 * Weights: the high parts of 32 columns, then the low parts. A panel has for each pair of columns
 * the high parts of all tokens, then the low parts. Two rows of tiles times two of tokens: every
 * operand is loaded once, eight loads for twelve products. Sums, tiles 0 to 3: of upper rows, then
 * of lower rows. Small products come first.
 */
INLINE void split_tiles(const pj_tile *t, const size_t V)
{
    const char *upper = t->weights[0], *lower = upper + TILE * t->stride, *x = t->x;
    const size_t stride = t->stride, part = V * 64, x_stride = 2 * part;
    const size_t c_stride = PJ_TILE_MAX_TOKENS * 4;
    float *c = t->c, *c_lower = c + TILE * PJ_TILE_MAX_TOKENS;
    if (t->add) {
        TILE_LOAD(0, c, c_stride);
        TILE_LOAD(2, c_lower, c_stride);
        if (V > 1) TILE_LOAD(1, c + 16, c_stride);
        if (V > 1) TILE_LOAD(3, c_lower + 16, c_stride);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(2);
        if (V > 1) TILE_ZERO(1);
        if (V > 1) TILE_ZERO(3);
    }
    for (size_t i = 0; i < t->cols; i += STEP, x += STEP / 2 * x_stride) {
        const char *high = upper + i * 4, *lower_high = lower + i * 4;
        TILE_LOAD(6, x, x_stride);
        TILE_LOAD(4, high + 64, stride);
        TILE_BF16(0, 4, 6);
        TILE_LOAD(5, lower_high + 64, stride);
        TILE_BF16(2, 5, 6);
        if (V > 1) TILE_LOAD(7, x + 64, x_stride);
        if (V > 1) TILE_BF16(1, 4, 7);
        if (V > 1) TILE_BF16(3, 5, 7);
        TILE_LOAD(4, high, stride);
        TILE_BF16(0, 4, 6);
        TILE_LOAD(5, lower_high, stride);
        TILE_BF16(2, 5, 6);
        if (V > 1) TILE_BF16(1, 4, 7);
        if (V > 1) TILE_BF16(3, 5, 7);
        TILE_LOAD(6, x + part, x_stride);
        TILE_BF16(0, 4, 6);
        TILE_BF16(2, 5, 6);
        if (V > 1) TILE_LOAD(7, x + part + 64, x_stride);
        if (V > 1) TILE_BF16(1, 4, 7);
        if (V > 1) TILE_BF16(3, 5, 7);
    }
    TILE_STORE(0, c, c_stride);
    TILE_STORE(2, c_lower, c_stride);
    if (V > 1) TILE_STORE(1, c + 16, c_stride);
    if (V > 1) TILE_STORE(3, c_lower + 16, c_stride);
}

static void tile_split(const pj_tile *t)
{
    configure();
    if (t->vectors == 2)
        split_tiles(t, 2);
    else
        split_tiles(t, 1);
}

INLINE __mmask16 first_lanes(size_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

static void pack_split(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                       void *values, float *scales, int32_t *sums)
{
    enum { PAIRS = STEP / 2 };
    float *to = values; /* a pair of bfloat16 is moved as one float */
    for (size_t first = 0; first < width; first += 16)
        for (size_t i = 0; i < cols; i += STEP) {
            vec high[16], low[16];
            __mmask16 some = first_lanes(cols - i),
                      more = cols - i > 16 ? first_lanes(cols - i - 16) : 0;
            for (size_t t = 0; t < 16; t++) {
                bool real = first + t < tokens;
                const float *from = x + (real ? (first + t) * x_stride + i : 0);
                __m512 a = _mm512_maskz_loadu_ps(real ? some : 0, from);
                __m512 b = _mm512_maskz_loadu_ps(real ? more : 0, from + 16);
                __m512 a_high = high_part(a), b_high = high_part(b);
                high[t] = (vec)both_bf16(a_high, b_high);
                low[t] = (vec)both_bf16(low_part(a, a_high), low_part(b, b_high));
            }
            vec_transpose(high);
            vec_transpose(low);
            float *pair = to + i * width + first;
            for (size_t p = 0; p < PAIRS; p++, pair += 2 * width) {
                vec_store(pair, high[p]);
                vec_store(pair + width, low[p]);
            }
        }
}

/* ---- the table -------------------------------------------------------------------------- */

/* Six accumulating tile products of zeros: the latency does not depend on values. */
static double peak_bf16(size_t rounds)
{
    configure();
    zero_c(3);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (size_t i = 0; i < rounds; i++) {
        TILE_BF16(0, 6, 7);
        TILE_BF16(1, 6, 7);
        TILE_BF16(2, 6, 7);
        TILE_BF16(3, 6, 7);
        TILE_BF16(4, 6, 7);
        TILE_BF16(5, 6, 7);
    }
    return 2.0 * 6 * TILE * TILE * STEP * (double)rounds;
}

/* Three products are one of float16. */
static double peak_split(size_t rounds)
{
    return peak_bf16(rounds) / 3;
}

static pj_form_kernels form_bf16; /* the BF16 set's, in passes */
static pj_form_kernels few_forms[PJ_FORM_COUNT];
static const pj_form_kernels form_split = {.dot_tokens = 8,
                                           .lanes = 16,
                                           .vectors = SPLIT_VECTORS,
                                           .group = STEP,
                                           .pass_bytes = PASS_BYTES,
                                           .pack_panel = pack_split};

/* For many tokens, by type. */
static pj_tile_kernels many_bf16 = {.form = PJ_FORM_BF16,
                                    .tile = tile_bf16,
                                    .rows = ROWS,
                                    .stretch = CHUNK,
                                    .unpacked_bytes = 2,
                                    .direct = true};
static const pj_tile_kernels many_f16 = {.form = PJ_FORM_SPLIT,
                                         .tile = tile_split,
                                         .rows = ROWS,
                                         .stretch = CHUNK,
                                         .unpack = bf16_weights_f16,
                                         .unpacked_bytes = 4};

#define QUANTISED(name)                                                        \
    static const pj_tile_kernels many_##name = {.form = PJ_FORM_BF16,          \
                                                .tile = tile_bf16,             \
                                                .rows = ROWS,                  \
                                                .stretch = CHUNK,              \
                                                .unpack = bf16_weights_##name, \
                                                .unpacked_bytes = 2};
QUANTISED(q8_0)
QUANTISED(q4_0)
QUANTISED(q4_k)
QUANTISED(q5_k)
QUANTISED(q6_k)
QUANTISED(q4_1)
QUANTISED(q5_0)
QUANTISED(q5_1)
QUANTISED(iq4_nl)
QUANTISED(mxfp4)
QUANTISED(q2_k)
QUANTISED(q3_k)
QUANTISED(iq4_xs)

static const pj_tile_kernels *const many[PJ_DTYPE_COUNT] = {
    [PJ_BF16] = &many_bf16, [PJ_F16] = &many_f16,     [PJ_Q8_0] = &many_q8_0,
    [PJ_Q4_0] = &many_q4_0, [PJ_Q4_K] = &many_q4_k,   [PJ_Q5_K] = &many_q5_k,
    [PJ_Q6_K] = &many_q6_k, [PJ_Q4_1] = &many_q4_1,   [PJ_Q5_0] = &many_q5_0,
    [PJ_Q5_1] = &many_q5_1, [PJ_MXFP4] = &many_mxfp4, [PJ_IQ4_NL] = &many_iq4_nl,
    [PJ_Q2_K] = &many_q2_k, [PJ_Q3_K] = &many_q3_k,   [PJ_IQ4_XS] = &many_iq4_xs};

/* The lower sets' entries with their `many`; every apply that reaches them writes the same. */
static pj_tile_kernels few[PJ_DTYPE_COUNT];

void PJ_SET_SYMBOL(apply)(pj_kernels *kernels)
{
    /* the sets whose packing this depends on may be masked out */
    const pj_form_kernels *bf16 = kernels->forms[PJ_FORM_BF16];
    if (bf16->lanes != 16 || bf16->group != 2) return;
    form_bf16 = *bf16;
    form_bf16.pass_bytes = PASS_BYTES;
    lower_bf16 = kernels->linear[PJ_BF16]->tile;
    many_bf16.unpack = kernels->linear[PJ_BF16]->unpack;
    kernels->forms[PJ_FORM_BF16] = &form_bf16;
    kernels->forms[PJ_FORM_SPLIT] = &form_split;
    kernels->peak[PJ_FORM_BF16] = peak_bf16;
    kernels->peak[PJ_FORM_SPLIT] = peak_split;
    /* types that share a packed form must change to it at the same number of tokens */
    for (int form = PJ_FORM_Q8; form <= PJ_FORM_Q8_WIDE; form++) {
        if (!kernels->forms[form] || kernels->forms[form]->lanes != 16) continue;
        few_forms[form] = *kernels->forms[form];
        few_forms[form].dot_tokens = form_bf16.dot_tokens;
        kernels->forms[form] = &few_forms[form];
    }
    for (int type = 0; type < PJ_DTYPE_COUNT; type++) {
        const pj_form_kernels *form = kernels->forms[kernels->linear[type]->form];
        if (!many[type] || form->lanes != 16 || form->dot_tokens != form_bf16.dot_tokens) continue;
        few[type] = *kernels->linear[type];
        few[type].dot_tokens = 0;
        few[type].many = many[type];
        few[type].stream = NULL;
        kernels->linear[type] = &few[type];
    }
}
