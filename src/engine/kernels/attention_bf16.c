/*
 * The two products of attention with AVX-512 BF16's pairwise dot product: queries, keys, weights
 * and values are rounded to bfloat16, sums are in float32. For F16 keys and values of models whose
 * products round their activations more. What is rounded does not depend on the number
 * of rows, so that a batch gives the same results as single tokens, up to the order of summation.
 *
 * Scores: a lane has a key, a step of the tile a pair of columns. Values: a lane has a column, a
 * step of the tile a pair of positions.
 */
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

enum {
    ROWS = 8,
    VECTORS = 3,
    PANEL = 16 * VECTORS, /* keys */
    POSITIONS = 128,      /* of values converted at a time */
    MAX_ROWS = 64,        /* of queries converted at a time */
    MAX_DIM = 512
};

_Static_assert(2 * (MAX_ROWS + PANEL) * MAX_DIM + 2 * POSITIONS * MAX_DIM +
                       2 * MAX_ROWS * POSITIONS <=
                   PJ_ATTENTION_SCRATCH_BYTES,
               "what is converted must fit the scratch");

INLINE __m512bh load_pairs(const void *at)
{
    return (__m512bh)_mm512_loadu_si512(at);
}

INLINE __m512bh pair_of(const char *at)
{
    int32_t pair;
    memcpy(&pair, at, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

INLINE __m512 load_halves(const char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

static const char *kv_row(const pj_kv_rows *rows, size_t position)
{
    return (const char *)rows->data + position * rows->row_bytes;
}

/* Rows of floats to rows of bfloat16 with `padded` columns, a multiple of 32. */
static void round_rows(char *to, const float *from, size_t stride, size_t rows, size_t n,
                       size_t padded)
{
    for (size_t r = 0; r < rows; r++, from += stride)
        for (size_t i = 0; i < padded; i += 32, to += 64) {
            size_t left = i < n ? n - i : 0;
            __mmask16 low = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
            __mmask16 high = left >= 32   ? 0xffff
                             : left <= 16 ? 0
                                          : (__mmask16)((1u << (left - 16)) - 1);
            _mm512_storeu_si512(
                to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, from + i + 16),
                                                 _mm512_maskz_loadu_ps(low, from + i)));
        }
}

/* ---- the tile --------------------------------------------------------------------------- */

/* c[R][V vectors] (+)= pairs of a[R] times those of b, whose steps are b_bytes apart. */
INLINE void tile_of(float *c, size_t c_stride, const char *const *a, const char *b, size_t b_bytes,
                    size_t pairs, bool add, const size_t R, const size_t V)
{
    __m512 sums[ROWS][VECTORS];
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
        add ? _mm512_loadu_ps(c + r * c_stride + v * 16) : _mm512_setzero_ps();
    for (size_t i = 0; i < pairs; i++, b += b_bytes) {
        __m512bh step[VECTORS];
        UNROLL for (size_t v = 0; v < V; v++) step[v] = load_pairs(b + v * 64);
        UNROLL for (size_t r = 0; r < R; r++)
        {
            __m512bh value = pair_of(a[r] + 4 * i);
            UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
                _mm512_dpbf16_ps(sums[r][v], value, step[v]);
        }
    }
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++)
        _mm512_storeu_ps(c + r * c_stride + v * 16, sums[r][v]);
}

/* ROWS rows, or one, and up to VECTORS vectors. */
static __attribute__((noinline)) void tile_any(float *c, size_t c_stride, const char *const *a,
                                               const char *b, size_t b_bytes, size_t pairs,
                                               bool add, size_t rows, size_t vectors)
{
    if (rows == ROWS && vectors == 3)
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, ROWS, 3);
    else if (rows == ROWS && vectors == 2)
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, ROWS, 2);
    else if (rows == ROWS)
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, ROWS, 1);
    else if (vectors == 3)
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, 1, 3);
    else if (vectors == 2)
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, 1, 2);
    else
        tile_of(c, c_stride, a, b, b_bytes, pairs, add, 1, 1);
}

/* `a`: rows of bfloat16, a_bytes apart. Two to seven rows are computed as eight, whose last ones
 * repeat; results of those and columns beyond `cols` go to a buffer. */
static void tile_rows(float *c, size_t c_stride, const char *a, size_t a_bytes, size_t rows,
                      const char *b, size_t b_bytes, size_t pairs, bool add, size_t cols)
{
    float buffer[ROWS * PANEL];
    size_t vectors = (cols + 15) / 16, count = rows > 1 ? ROWS : 1;
    const char *at[ROWS];
    for (size_t r = 0; r < ROWS; r++) at[r] = a + (r < rows ? r : rows - 1) * a_bytes;
    if (rows == count && cols == vectors * 16) {
        tile_any(c, c_stride, at, b, b_bytes, pairs, add, count, vectors);
        return;
    }
    for (size_t r = 0; add && r < count; r++)
        memcpy(buffer + r * PANEL, c + (r < rows ? r : rows - 1) * c_stride, cols * sizeof *c);
    tile_any(buffer, PANEL, at, b, b_bytes, pairs, add, count, vectors);
    for (size_t r = 0; r < rows; r++)
        memcpy(c + r * c_stride, buffer + r * PANEL, cols * sizeof *c);
}

/* ---- scores ----------------------------------------------------------------------------- */

/* n keys as pairs of columns, [dim / 2][PANEL], zero beyond n; dim is a multiple of 32. */
static void pack_keys(char *to, const pj_kv_rows *keys, size_t first, size_t n, size_t dim)
{
    for (size_t key = 0; key < n; key += 16)
        for (size_t i = 0; i < dim; i += 32) {
            vec rows[16];
            UNROLL for (size_t j = 0; j < 16; j++)
            {
                const char *from = kv_row(keys, first + (key + j < n ? key + j : n - 1)) + 2 * i;
                rows[j] = (vec)_mm512_cvtne2ps_pbh(load_halves(from + 32), load_halves(from));
            }
            vec_transpose(rows);
            UNROLL for (size_t p = 0; p < 16; p++)
                _mm512_storeu_ps(to + ((i / 2 + p) * PANEL + key) * 4, (__m512)rows[p]);
        }
}

/* Sixteen keys, each read once for all rows. */
INLINE void few_scores(float *scores, size_t score_stride, const char *q, const pj_kv_rows *keys,
                       size_t first, size_t n, size_t dim, const size_t R)
{
    vec sums[4][16];
    for (size_t j = 0; j < 16; j++) {
        const char *key = kv_row(keys, first + (j < n ? j : n - 1));
        __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                         _mm512_setzero_ps()};
        for (size_t i = 0; i < dim; i += 32, key += 64) {
            __m512bh k = _mm512_cvtne2ps_pbh(load_halves(key + 32), load_halves(key));
            UNROLL for (size_t r = 0; r < R; r++) sum[r] =
                _mm512_dpbf16_ps(sum[r], k, load_pairs(q + (r * dim + i) * 2));
        }
        UNROLL for (size_t r = 0; r < R; r++) sums[r][j] = (vec)sum[r];
    }
    UNROLL for (size_t r = 0; r < R; r++)
        vec_store_some(scores + r * score_stride + first, vec_sum_each(sums[r]), n);
}

static void scores_of_few(float *scores, size_t score_stride, const char *q, size_t rows,
                          const pj_kv_rows *keys, size_t n, size_t dim)
{
    for (size_t first = 0; first < n; first += 16) {
        size_t part = n - first < 16 ? n - first : 16, r = 0;
        for (; r + 4 <= rows; r += 4)
            few_scores(scores + r * score_stride, score_stride, q + r * dim * 2, keys, first, part,
                       dim, 4);
        for (; r < rows; r++)
            few_scores(scores + r * score_stride, score_stride, q + r * dim * 2, keys, first, part,
                       dim, 1);
    }
}

static void attention_scores(float *scores, size_t score_stride, const float *q, size_t q_stride,
                             size_t rows, const pj_kv_rows *keys, size_t n, size_t head_dim,
                             void *scratch)
{
    char *rounded = scratch, *panel = rounded + 2 * MAX_ROWS * MAX_DIM;
    for (size_t begin = 0; begin < rows; begin += MAX_ROWS) {
        size_t count = rows - begin < MAX_ROWS ? rows - begin : MAX_ROWS;
        float *to = scores + begin * score_stride;
        round_rows(rounded, q + begin * q_stride, q_stride, count, head_dim, head_dim);
        if (count < ROWS) {
            scores_of_few(to, score_stride, rounded, count, keys, n, head_dim);
            continue;
        }
        for (size_t first = 0; first < n; first += PANEL) {
            size_t part = n - first < PANEL ? n - first : PANEL;
            pack_keys(panel, keys, first, part, head_dim);
            for (size_t r = 0; r < count; r += ROWS)
                tile_rows(to + r * score_stride + first, score_stride, rounded + 2 * r * head_dim,
                          2 * head_dim, count - r < ROWS ? count - r : ROWS, panel, 4 * PANEL,
                          head_dim / 2, false, part);
        }
    }
}

/* ---- values ----------------------------------------------------------------------------- */

/* n positions as pairs, [(n + 1) / 2][dim]: a word of one, a word of the next. */
static void pack_values(char *to, const pj_kv_rows *values, size_t first, size_t n, size_t dim)
{
    const __m512i neighbours =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (size_t j = 0; j < n; j += 2) {
        const char *one = kv_row(values, first + j);
        const char *next = j + 1 < n ? kv_row(values, first + j + 1) : NULL;
        for (size_t i = 0; i < dim; i += 16, to += 64) {
            __m512 second = next ? load_halves(next + 2 * i) : _mm512_setzero_ps();
            __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, load_halves(one + 2 * i));
            _mm512_storeu_si512(to, _mm512_permutexvar_epi16(neighbours, both));
        }
    }
}

static void attention_values(float *y, size_t y_stride, const float *weights, size_t weight_stride,
                             size_t rows, const pj_kv_rows *values, size_t n, size_t head_dim,
                             bool add, void *scratch)
{
    char *rounded = scratch, *pairs = rounded + 2 * MAX_ROWS * POSITIONS;
    if (n == 0 && !add)
        for (size_t r = 0; r < rows; r++) memset(y + r * y_stride, 0, head_dim * sizeof *y);
    for (size_t first = 0; first < n; first += POSITIONS) {
        size_t part = n - first < POSITIONS ? n - first : POSITIONS;
        pack_values(pairs, values, first, part, head_dim);
        for (size_t begin = 0; begin < rows; begin += MAX_ROWS) {
            size_t count = rows - begin < MAX_ROWS ? rows - begin : MAX_ROWS;
            round_rows(rounded, weights + begin * weight_stride + first, weight_stride, count, part,
                       POSITIONS);
            for (size_t r = 0; r < count; r += ROWS)
                for (size_t col = 0, cols; col < head_dim; col += cols) {
                    cols = head_dim - col;
                    if (cols > PANEL) cols = cols == 64 ? 32 : PANEL;
                    tile_rows(y + (begin + r) * y_stride + col, y_stride,
                              rounded + 2 * r * POSITIONS, 2 * POSITIONS,
                              count - r < ROWS ? count - r : ROWS, pairs + 4 * col, 4 * head_dim,
                              (part + 1) / 2, add || first > 0, cols);
                }
        }
    }
}

/* ----------------------------------------------------------------------------------------- */

static const pj_rounded_attention rounded_attention = {
    .dim_multiple = 32, .max_dim = MAX_DIM, .scores = attention_scores, .values = attention_values};

void pj_kernels_bf16_attention(pj_kernels *kernels)
{
    kernels->rounded_attention = &rounded_attention;
}
