/* BF16 weights with AVX-512 BF16's pairwise dot product, activations rounded to bfloat16. Weights
 * are read in place: a lane takes a pair of neighbouring columns. */
#include "engine/kernels/sets.h"
#include "engine/kernels/vector.h"

enum { STREAMS = 4, DOT_TOKENS = 4, ROWS = 8, VECTORS = 3, PAIRS = 16 };

INLINE __m512bh load_pairs(const void *at)
{
    return (__m512bh)_mm512_loadu_si512(at);
}

/* 32 values, or the first n of them padded with zeros. */
INLINE __m512bh round_32(const float *x, size_t n)
{
    __mmask16 low = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
    __mmask16 high = n >= 32 ? 0xffff : n > 16 ? (__mmask16)((1u << (n - 16)) - 1) : 0;
    return _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + 16), _mm512_maskz_loadu_ps(low, x));
}

/* ---- few tokens ------------------------------------------------------------------------- */

static void pack_row(const float *x, size_t n, void *values, float *scales, int32_t *sums)
{
    char *to = values;
    for (size_t i = 0; i < n; i += 32, to += 64)
        _mm512_storeu_si512(to, (__m512i)round_32(x + i, n - i));
}

INLINE void dot_rows(const char *const *rows, size_t ahead, const char *x, size_t x_bytes,
                     size_t cols, float sums[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    __m512 acc[STREAMS][DOT_TOKENS];
    size_t whole = cols / 32 * 64, rest = cols % 32; /* bytes; columns */
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm512_setzero_ps();
    for (size_t i = 0; i < whole; i += 64) {
        __m512bh w[STREAMS];
        UNROLL for (size_t s = 0; s < S; s++)
        {
            __builtin_prefetch(rows[s] + i + ahead);
            w[s] = load_pairs(rows[s] + i);
        }
        UNROLL for (size_t t = 0; t < T; t++)
        {
            __m512bh v = load_pairs(x + t * x_bytes + i);
            UNROLL for (size_t s = 0; s < S; s++) acc[s][t] = _mm512_dpbf16_ps(acc[s][t], w[s], v);
        }
    }
    if (rest > 0) UNROLL for (size_t s = 0; s < S; s++)
        {
            __mmask32 mask = (1u << rest) - 1;
            __m512bh w = (__m512bh)_mm512_maskz_loadu_epi16(mask, rows[s] + whole);
            UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
                _mm512_dpbf16_ps(acc[s][t], w, load_pairs(x + t * x_bytes + whole));
        }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) sums[s][t] =
        _mm512_reduce_add_ps(acc[s][t]);
}

INLINE void dot_group(const pj_dot *d, size_t row, size_t apart, const size_t S)
{
    const pj_matrix *w = d->weights;
    size_t x_bytes = (w->cols + 31) / 32 * 64;
    const char *rows[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] =
        (const char *)w->data + (row + s * apart) * w->row_bytes;
    for (size_t t = 0; t < d->x->tokens;) {
        const char *x = (const char *)d->x->values + t * x_bytes;
        size_t left = d->x->tokens - t, done = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        float sums[STREAMS][DOT_TOKENS];
        if (done == 4)
            dot_rows(rows, d->ahead, x, x_bytes, w->cols, sums, S, 4);
        else if (done == 2)
            dot_rows(rows, d->ahead, x, x_bytes, w->cols, sums, S, 2);
        else
            dot_rows(rows, d->ahead, x, x_bytes, w->cols, sums, S, 1);
        for (size_t s = 0; s < S; s++)
            for (size_t i = 0; i < done; i++)
                d->y[(t + i) * d->y_stride + row + s * apart] =
                    sums[s][i] + (d->bias ? d->bias[row + s * apart] : 0);
        t += done;
    }
}

static void dot(const pj_dot *d)
{
    size_t apart = (d->end - d->begin) / STREAMS;
    for (size_t r = 0; r < apart; r++) dot_group(d, d->begin + r, apart, STREAMS);
    for (size_t row = d->begin + apart * STREAMS; row < d->end; row++) dot_group(d, row, 1, 1);
}

/* ---- many tokens ------------------------------------------------------------------------ */

static void pack_panel(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                       void *values, float *scales, int32_t *sums)
{
    float *to = values; /* a pair of bfloat16 is moved as one float */
    size_t pairs = (cols + 1) / 2;
    for (size_t first = 0; first < width; first += 16)
        for (size_t i = 0; i < pairs; i += PAIRS) {
            vec rows[16];
            UNROLL for (size_t t = 0; t < 16; t++) rows[t] =
                first + t < tokens ? (vec)round_32(x + (first + t) * x_stride + 2 * i, cols - 2 * i)
                                   : vec_of(0);
            vec_transpose(rows);
            size_t have = pairs - i < PAIRS ? pairs - i : PAIRS;
            if (have == PAIRS) {
                UNROLL for (size_t p = 0; p < PAIRS; p++)
                    vec_store(to + (i + p) * width + first, rows[p]);
            } else {
                for (size_t p = 0; p < have; p++) vec_store(to + (i + p) * width + first, rows[p]);
            }
        }
}

INLINE __m512bh pair_of(const char *at)
{
    int32_t pair;
    memcpy(&pair, at, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

INLINE void tile_of(const pj_tile *t, const size_t V)
{
    __m512 sums[ROWS][VECTORS];
    const char *rows[ROWS], *x = t->x;
    UNROLL for (size_t r = 0; r < ROWS; r++) rows[r] = t->weights[r];
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
        t->add ? _mm512_loadu_ps(t->c + r * PJ_TILE_MAX_TOKENS + v * 16) : _mm512_setzero_ps();
    const char *ahead = t->ahead;
    for (size_t i = 0; i < t->cols * 2; i += 4, x += V * 64, ahead += t->ahead_step) {
        __m512bh panel[VECTORS];
        __builtin_prefetch(ahead, 0, 2);
        UNROLL for (size_t v = 0; v < V; v++) panel[v] = load_pairs(x + v * 64);
        UNROLL for (size_t r = 0; r < ROWS; r++)
        {
            __m512bh w = pair_of(rows[r] + i);
            UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
                _mm512_dpbf16_ps(sums[r][v], w, panel[v]);
        }
    }
    UNROLL for (size_t r = 0; r < ROWS; r++) UNROLL for (size_t v = 0; v < V; v++)
        _mm512_storeu_ps(t->c + r * PJ_TILE_MAX_TOKENS + v * 16, sums[r][v]);
}

static void tile(const pj_tile *t)
{
    if (t->vectors == 3)
        tile_of(t, 3);
    else if (t->vectors == 2)
        tile_of(t, 2);
    else
        tile_of(t, 1);
}

static void unpack(const void *row, size_t cols, void *values, float *scales, float *minima)
{
    memcpy(values, row, cols * 2);
    if (cols % 2) memset((char *)values + cols * 2, 0, 2);
}

static double peak(size_t rounds)
{
    enum { SUMS = ROWS * VECTORS };
    volatile float outside = 0;
    __m512 sums[SUMS];
    __m512bh w = _mm512_cvtne2ps_pbh(_mm512_set1_ps(outside), _mm512_set1_ps(outside));
    UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm512_set1_ps(outside);
    for (size_t i = 0; i < rounds; i++)
        UNROLL for (size_t s = 0; s < SUMS; s++) sums[s] = _mm512_dpbf16_ps(sums[s], w, w);
    UNROLL for (size_t s = 0; s < SUMS; s++) outside = _mm512_reduce_add_ps(sums[s]);
    return 2.0 * SUMS * 32 * (double)rounds;
}

/* ----------------------------------------------------------------------------------------- */

static const pj_tile_kernels by_bf16 = {.form = PJ_FORM_BF16,
                                        .dot = dot,
                                        .tile = tile,
                                        .rows = ROWS,
                                        .stretch = 2048, /* 192 KiB of the panel */
                                        .unpack = unpack,
                                        .unpacked_bytes = 2,
                                        .direct = true};
static const pj_form_kernels form_bf16 = {.dot_tokens = 8,
                                          .lanes = 16,
                                          .vectors = VECTORS,
                                          .group = 2,
                                          .pack_row = pack_row,
                                          .pack_panel = pack_panel};

void pj_kernels_bf16_apply(pj_kernels *kernels)
{
    kernels->linear[PJ_BF16] = &by_bf16;
    kernels->forms[PJ_FORM_BF16] = &form_bf16;
    kernels->peak[PJ_FORM_BF16] = peak;
    pj_kernels_bf16_attention(kernels);
}
