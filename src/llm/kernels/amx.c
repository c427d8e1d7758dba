/*
 * Matrix products for many tokens with AMX. Weights are the first operand, sixteen rows at a time,
 * in place; activations the second, in the panels packed by the BF16 and VNNI sets. What tiles
 * cannot handle (a partial step of columns) goes to the set below, as do small numbers of tokens.
 *
 * BF16: two tiles of rows times up to three of tokens stay in tile registers over a stretch of
 * columns. 8-bit codes: each block of 32 columns has its own scales, so every product leaves the
 * tiles at once, is scaled, and accumulates in sixteen vector registers.
 */
#include "llm/kernels/amx.h"

#include "llm/kernels/codes.h"
#include "llm/kernels/sets.h"
#include "llm/kernels/vector.h"

enum { ROWS = 32, TILE = 16, STEP = 32 /* columns */, LOWER_ROWS = 8 };

/* This thread's current tile configuration; reconfiguring costs as much as some products. */
typedef enum tile_mode { MODE_NONE, MODE_BF16, MODE_BYTES } tile_mode;
static _Thread_local tile_mode mode;

static void configure(tile_mode wanted)
{
    if (mode == wanted) return;
    tile_config config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.rows[t] = TILE, config.row_bytes[t] = 64;
    if (wanted == MODE_BYTES) {
        config.row_bytes[6] = STEP; /* weights: 16 rows of one block */
        config.rows[7] = STEP / 4;  /* activations: 8 groups of four columns */
    }
    TILE_CONFIGURE(&config);
    mode = wanted;
}

/* ---- BF16 ------------------------------------------------------------------------------- */

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

INLINE void bf16_tiles(const pj_tile *t, const char *upper, const char *lower, size_t stride,
                       const size_t V)
{
    const char *x = t->x;
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

/* The remaining columns, fewer than a step. */
static void bf16_rest(const pj_tile *t)
{
    size_t whole = t->cols / STEP * STEP;
    for (size_t r = 0; r < ROWS; r += LOWER_ROWS) {
        pj_tile rest = *t;
        for (size_t i = 0; i < LOWER_ROWS; i++)
            rest.weights[i] = (const char *)t->weights[r + i] + whole * 2;
        rest.x = (const char *)t->x + whole * t->vectors * 32;
        rest.cols = t->cols - whole;
        rest.c = t->c + r * PJ_TILE_MAX_TOKENS;
        rest.add = t->add || whole > 0;
        lower_bf16(&rest);
    }
}

enum { STRETCH = 1024 };

/* Rows at a constant stride: in place if they are, else a copy. */
static const char *even_rows(const pj_tile *t, size_t bytes, char *copy, size_t *stride)
{
    *stride = t->stride ? t->stride : bytes;
    if (t->stride) return t->weights[0];
    for (size_t r = 0; r < ROWS; r++) memcpy(copy + r * bytes, t->weights[r], bytes);
    return copy;
}

static void tile_bf16(const pj_tile *t)
{
    char copy[ROWS * STRETCH * 2];
    size_t stride;
    if (t->cols >= STEP) {
        const char *upper = even_rows(t, t->cols * 2, copy, &stride);
        const char *lower = upper + TILE * stride;
        configure(MODE_BF16);
        if (t->vectors == 3)
            bf16_tiles(t, upper, lower, stride, 3);
        else if (t->vectors == 2)
            bf16_tiles(t, upper, lower, stride, 2);
        else
            bf16_tiles(t, upper, lower, stride, 1);
    }
    if (t->cols % STEP) bf16_rest(t);
}

/* ---- bytes ------------------------------------------------------------------------------ */

/* Sixteen rows times one vector of tokens. */
INLINE void byte_tile(const pj_tile *t, const char *rows, size_t stride, size_t first, size_t v,
                      const bool minima)
{
    size_t width = t->vectors * 16;
    const char *x = (const char *)t->x + v * 64;
    const float *x_scales = t->x_scales + v * 16;
    const int32_t *x_sums = t->x_sums + v * 16;
    float *c = t->c + first * PJ_TILE_MAX_TOKENS + v * 16;
    __m512 sums[TILE];
    int32_t whole[TILE][16];
    UNROLL for (size_t r = 0; r < TILE; r++) sums[r] =
        t->add ? _mm512_loadu_ps(c + r * PJ_TILE_MAX_TOKENS) : _mm512_setzero_ps();
    for (size_t b = 0; b < t->cols / PJ_Q8_BLOCK; b++) {
        TILE_ZERO(0);
        TILE_LOAD(6, rows + b * PJ_Q8_BLOCK, stride);
        TILE_LOAD(7, x + b * PJ_Q8_BLOCK * width, width * 4);
        TILE_S8(0, 6, 7);
        TILE_STORE(0, whole, 64);
        __m512 scale = _mm512_loadu_ps(x_scales + b * width), sum = scale;
        if (minima) {
            sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(x_sums + b * width));
            sum = _mm512_mul_ps(_mm512_mul_ps(sum, scale), _mm512_set1_ps(1.0f / PJ_Q8_OFFSET));
        }
        UNROLL for (size_t r = 0; r < TILE; r++)
        {
            __m512 product = _mm512_cvtepi32_ps(_mm512_loadu_si512(whole[r]));
            __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(t->scales[first + r][b]));
            sums[r] = _mm512_fmadd_ps(product, both, sums[r]);
            if (minima)
                sums[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(t->minima[first + r][b]), sums[r]);
        }
    }
    UNROLL for (size_t r = 0; r < TILE; r++) _mm512_storeu_ps(c + r * PJ_TILE_MAX_TOKENS, sums[r]);
}

INLINE void byte_tiles(const pj_tile *t, const bool minima)
{
    char copy[ROWS * STRETCH];
    size_t stride;
    const char *rows = even_rows(t, t->cols, copy, &stride);
    configure(MODE_BYTES);
    for (size_t first = 0; first < ROWS; first += TILE)
        for (size_t v = 0; v < t->vectors; v++)
            byte_tile(t, rows + first * stride, stride, first, v, minima);
}

static void tile_bytes(const pj_tile *t)
{
    byte_tiles(t, false);
}

static void tile_bytes_minima(const pj_tile *t)
{
    byte_tiles(t, true);
}

/* Signed codes need no offset correction. */
INLINE void unpack(pj_dtype type, const void *row, size_t cols, void *values, float *scales,
                   float *minima)
{
    uint8_t *codes = values;
    pj_codes_row(type, row, cols, codes, scales, minima);
    for (size_t i = 0; i < cols; i++) codes[i] ^= 128;
}

#define UNPACK(name, type)                                                                     \
    static void name(const void *row, size_t cols, void *values, float *scales, float *minima) \
    {                                                                                          \
        unpack(type, row, cols, values, scales, minima);                                       \
    }
UNPACK(unpack_q8_0, PJ_Q8_0)
UNPACK(unpack_q4_0, PJ_Q4_0)
UNPACK(unpack_q4_k, PJ_Q4_K)
UNPACK(unpack_q5_k, PJ_Q5_K)
UNPACK(unpack_q6_k, PJ_Q6_K)
UNPACK(unpack_q4_1, PJ_Q4_1)
UNPACK(unpack_q5_0, PJ_Q5_0)
UNPACK(unpack_q5_1, PJ_Q5_1)
UNPACK(unpack_iq4_nl, PJ_IQ4_NL)
UNPACK(unpack_mxfp4, PJ_MXFP4)
UNPACK(unpack_q2_k, PJ_Q2_K)
UNPACK(unpack_q3_k, PJ_Q3_K)
UNPACK(unpack_iq4_xs, PJ_IQ4_XS)

/* ---- peaks ------------------------------------------------------------------------------ */

/* Six accumulating tile products of zeros: the latency does not depend on values. */
static double peak_bf16(size_t rounds)
{
    configure(MODE_BF16);
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

static double peak_bytes(size_t rounds)
{
    configure(MODE_BF16); /* whole tiles: 64 columns */
    zero_c(3);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (size_t i = 0; i < rounds; i++) {
        TILE_S8(0, 6, 7);
        TILE_S8(1, 6, 7);
        TILE_S8(2, 6, 7);
        TILE_S8(3, 6, 7);
        TILE_S8(4, 6, 7);
        TILE_S8(5, 6, 7);
    }
    return 2.0 * 6 * TILE * TILE * 64 * (double)rounds;
}

/* ----------------------------------------------------------------------------------------- */

/* The lower sets' entries with the products of many tokens replaced; initialised by the first
 * apply, which runs once (select.c). */
static pj_tile_kernels entries[PJ_DTYPE_COUNT];

static void replace(pj_kernels *kernels, pj_dtype type, void (*tile)(const pj_tile *),
                    void (*unpack_row)(const void *, size_t, void *, float *, float *))
{
    entries[type] = *kernels->linear[type];
    entries[type].tile = tile;
    entries[type].rows = ROWS;
    entries[type].stretch = STRETCH;
    if (unpack_row) entries[type].unpack = unpack_row;
    kernels->linear[type] = &entries[type];
}

/* The sets whose packing this depends on may be masked out. */
static bool packs_like(const pj_kernels *kernels, pj_form form, size_t group)
{
    return kernels->forms[form]->lanes == 16 && kernels->forms[form]->group == group;
}

void PJ_SET_SYMBOL(apply)(pj_kernels *kernels)
{
    if (packs_like(kernels, PJ_FORM_BF16, 2)) {
        if (kernels->linear[PJ_BF16]->tile != tile_bf16)
            lower_bf16 = kernels->linear[PJ_BF16]->tile;
        replace(kernels, PJ_BF16, tile_bf16, NULL);
        kernels->peak[PJ_FORM_BF16] = peak_bf16;
    }
    if (packs_like(kernels, PJ_FORM_Q8, 4)) {
        kernels->peak[PJ_FORM_Q8] = peak_bytes;
        replace(kernels, PJ_Q8_0, tile_bytes, unpack_q8_0);
        replace(kernels, PJ_Q4_0, tile_bytes, unpack_q4_0);
        replace(kernels, PJ_Q4_K, tile_bytes_minima, unpack_q4_k);
        replace(kernels, PJ_Q5_K, tile_bytes_minima, unpack_q5_k);
        replace(kernels, PJ_Q6_K, tile_bytes, unpack_q6_k);
        replace(kernels, PJ_Q4_1, tile_bytes_minima, unpack_q4_1);
        replace(kernels, PJ_Q5_0, tile_bytes, unpack_q5_0);
        replace(kernels, PJ_Q5_1, tile_bytes_minima, unpack_q5_1);
        replace(kernels, PJ_IQ4_NL, tile_bytes, unpack_iq4_nl);
        replace(kernels, PJ_MXFP4, tile_bytes, unpack_mxfp4);
        replace(kernels, PJ_Q2_K, tile_bytes, unpack_q2_k);
        replace(kernels, PJ_Q3_K, tile_bytes, unpack_q3_k);
        replace(kernels, PJ_IQ4_XS, tile_bytes, unpack_iq4_xs);
    }
}
