/* The register tile of float products: C[R][V vectors] (+)= A[R][k] B[k][V vectors]. One value of A
 * is broadcast against V vectors of B; R x V sums stay in registers, as many as fit: TILE_ROWS x
 * TILE_VECTORS sums, one row of B and one value of A. */
#ifndef PJ_KERNELS_VECTOR_TILE_H
#define PJ_KERNELS_VECTOR_TILE_H

#include "engine/kernels/vector.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
enum { TILE_ROWS = 4, TILE_VECTORS = 3 }; /* 16 registers */
#else
enum { TILE_ROWS = 8, TILE_VECTORS = 3 }; /* 32 registers */
#endif

/* Weights in a file need not be aligned. */
INLINE float float_at(const float *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Prefetch for later products: `step` bytes further with every row of B. */
typedef struct tile_ahead {
    const char *at;
    size_t step;
} tile_ahead;

/* R and V must be compile-time constants at the call. b_stride in floats. */
INLINE void tile_multiply(float *c, size_t c_stride, const float *const *a, const float *b,
                          size_t b_stride, size_t k, bool add, tile_ahead ahead, const size_t R,
                          const size_t V)
{
    vec sums[TILE_ROWS][TILE_VECTORS];
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++) sums[r][v] =
        add ? vec_load(c + r * c_stride + v * LANES) : vec_of(0);
    for (size_t i = 0; i < k; i++, b += b_stride, ahead.at += ahead.step) {
        vec row[TILE_VECTORS];
        __builtin_prefetch(ahead.at, 0, 2);
        UNROLL for (size_t v = 0; v < V; v++) row[v] = vec_load(b + v * LANES);
        UNROLL for (size_t r = 0; r < R; r++)
        {
            vec value = vec_of(float_at(a[r] + i));
            UNROLL for (size_t v = 0; v < V; v++) sums[r][v] += value * row[v];
        }
    }
    UNROLL for (size_t r = 0; r < R; r++) UNROLL for (size_t v = 0; v < V; v++)
        vec_store(c + r * c_stride + v * LANES, sums[r][v]);
}

/* The same for any number of rows and vectors up to TILE_ROWS and TILE_VECTORS. */
static __attribute__((noinline)) void tile_any(float *c, size_t c_stride, const float *const *a,
                                               const float *b, size_t b_stride, size_t k, bool add,
                                               tile_ahead ahead, size_t rows, size_t vectors)
{
    if (rows == TILE_ROWS && vectors == 3) {
        tile_multiply(c, c_stride, a, b, b_stride, k, add, ahead, TILE_ROWS, 3);
    } else if (rows == TILE_ROWS && vectors == 2) {
        tile_multiply(c, c_stride, a, b, b_stride, k, add, ahead, TILE_ROWS, 2);
    } else if (rows == TILE_ROWS) {
        tile_multiply(c, c_stride, a, b, b_stride, k, add, ahead, TILE_ROWS, 1);
    } else {
        for (size_t v = 0; v < vectors; v++) {
            float *to = c + v * LANES;
            const float *from = b + v * LANES;
            size_t r = 0;
            for (; r + 4 <= rows; r += 4)
                tile_multiply(to + r * c_stride, c_stride, a + r, from, b_stride, k, add, ahead, 4,
                              1);
            for (; r < rows; r++)
                tile_multiply(to + r * c_stride, c_stride, a + r, from, b_stride, k, add, ahead, 1,
                              1);
        }
    }
}

/* Transposes `tokens` (<= width) rows of x to out[n][width], zero beyond the tokens. */
static inline void transpose_panel(const float *x, size_t x_stride, size_t tokens, size_t width,
                                   size_t n, float *out)
{
    for (size_t first = 0; first < width; first += LANES)
        for (size_t i = 0; i < n; i += LANES) {
            vec rows[LANES];
            size_t have = n - i < LANES ? n - i : LANES;
            UNROLL for (size_t t = 0; t < LANES; t++)
            {
                const float *from = x + (first + t) * x_stride + i;
                rows[t] = first + t >= tokens ? vec_of(0)
                          : have == LANES     ? vec_load(from)
                                              : vec_load_some(from, have);
            }
            vec_transpose(rows);
            if (have == LANES) {
                UNROLL for (size_t k = 0; k < LANES; k++)
                    vec_store(out + (i + k) * width + first, rows[k]);
            } else {
                for (size_t k = 0; k < have; k++) vec_store(out + (i + k) * width + first, rows[k]);
            }
        }
}

#endif
