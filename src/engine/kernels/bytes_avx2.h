/* Few tokens with weights of Q8_0, NVFP4 and Q1_0 on AVX2: bytes of 32 columns times those of
 * activations, and floats for each of those blocks. The scales of all rows are multiplied with the
 * activations' at once, and then spread. Included only by codes_avx2.c. */
#ifndef PJ_KERNELS_BYTES_AVX2_H
#define PJ_KERNELS_BYTES_AVX2_H

#include "engine/kernels/book_avx2.h"
#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"
#include "engine/kernels/words_avx2.h"

enum { STREAMS = 4, DOT_TOKENS = 4 };

/* Blocks of 32 columns per step: as many as have scales in the same four bytes. */
INLINE size_t byte_blocks(pj_dtype type)
{
    return type == PJ_Q8_0 ? 1 : 2;
}

/* Where block `b` begins; Q1_0: its block of 128. */
INLINE size_t byte_place(pj_dtype type, size_t b)
{
    return type == PJ_NVFP4  ? b / 2 * NVFP4_BYTES
           : type == PJ_Q1_0 ? b / 4 * Q1_0_BYTES
                             : b * Q8_BYTES;
}

/* What codes are above the values. */
INLINE int byte_offset(pj_dtype type)
{
    return type == PJ_NVFP4 ? 16 : type == PJ_Q1_0 ? 1 : 0;
}

/* ---- scales ----------------------------------------------------------------------------- */

/* Of up to four rows: Q8_0, one lane each; else four lanes each, of sixteen columns. */
INLINE void byte_scales(pj_dtype type, const char *const *at, __m256 scales[2], const size_t S)
{
    if (type == PJ_Q8_0) {
        __m128i halves = _mm_cvtsi32_si128(pj_load_u16(at[0]));
        if (S > 1) halves = _mm_insert_epi16(halves, pj_load_u16(at[1 % S]), 1);
        if (S > 2) halves = _mm_insert_epi16(halves, pj_load_u16(at[2 % S]), 2);
        if (S > 3) halves = _mm_insert_epi16(halves, pj_load_u16(at[3 % S]), 3);
        scales[0] = scales[1] = _mm256_cvtph_ps(halves);
        return;
    }
    __m128i heads = _mm_cvtsi32_si128((int)pj_blocks_u32((const uint8_t *)at[0]));
    if (S > 1) heads = _mm_insert_epi32(heads, (int)pj_blocks_u32((const uint8_t *)at[1 % S]), 1);
    if (S > 2) heads = _mm_insert_epi32(heads, (int)pj_blocks_u32((const uint8_t *)at[2 % S]), 2);
    if (S > 3) heads = _mm_insert_epi32(heads, (int)pj_blocks_u32((const uint8_t *)at[3 % S]), 3);
    if (type == PJ_NVFP4) {
        scales[0] = book_nvfp4_scales(heads);
        scales[1] = book_nvfp4_scales(_mm_unpackhi_epi64(heads, heads));
        return;
    }
    const __m128i spread = _mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 4, 5, 4, 5, 4, 5, 4, 5);
    scales[0] = _mm256_cvtph_ps(_mm_shuffle_epi8(heads, spread));
    scales[1] = _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_unpackhi_epi64(heads, heads), spread));
}

/* The activations' scales of a step, for the scales of two rows. */
INLINE __m256 byte_x_scales(pj_dtype type, const float *x_scales)
{
    if (type == PJ_Q8_0) return _mm256_set1_ps(*x_scales);
    __m256 both = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)x_scales));
    if (type == PJ_NVFP4) both = _mm256_mul_ps(both, _mm256_set1_ps(NVFP4_UNIT));
    return _mm256_unpacklo_ps(both, both);
}

/* The scales of row s and block h of a step in the lanes of its sums. */
INLINE __m256 byte_spread(pj_dtype type, const __m256 scales[2], size_t s, size_t h)
{
    if (type == PJ_Q8_0) return _mm256_permutevar8x32_ps(scales[0], _mm256_set1_epi32((int)s));
    int first = (int)(s % 2 * 4 + 2 * h), second = first + 1;
    return _mm256_permutevar8x32_ps(
        scales[s / 2],
        _mm256_setr_epi32(first, first, first, first, second, second, second, second));
}

/* ---- products --------------------------------------------------------------------------- */

/* Codes of block b + h of a row whose step begins at `at`; Q8_0: signed. */
INLINE __m256i byte_codes(pj_dtype type, const char *at, size_t b, size_t h)
{
    if (type == PJ_Q8_0) return k_load(at + 2);
    if (type == PJ_Q1_0) return book_q1_0(at + 2 + (b % 4 + h) * 4);
    __m128i offset = _mm_set1_epi8((char)byte_offset(type));
    return book_nvfp4(at + 4 + 16 * h, _mm_add_epi8(book_nvfp4_levels(), offset));
}

/* Four products summed per lane: |w| times x with w's sign, which cannot overflow. */
INLINE __m256i multiply_signed(__m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* The same of codes whose offset times x, in pairs, is `offset`. */
INLINE __m256i byte_multiply(pj_dtype type, __m256i w, __m256i x, __m256i offset)
{
    if (type == PJ_Q8_0) return multiply_signed(w, x);
    __m256i pairs = _mm256_sub_epi16(_mm256_maddubs_epi16(w, x), offset);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* S weight rows times T tokens, which start at `token`. */
INLINE void dot_rows(pj_dtype type, const pj_dot *d, size_t token, const char *const *rows,
                     float sums[STREAMS][DOT_TOKENS], const size_t S, const size_t T)
{
    const pj_packed *p = d->x;
    const size_t step = byte_blocks(type);
    size_t ahead = d->ahead, blocks = p->cols / PJ_Q8_BLOCK;
    const int8_t *codes = (const int8_t *)p->values + token * p->cols;
    const float *x_scales = p->scales + token * blocks;
    __m256 acc[STREAMS][DOT_TOKENS];
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) acc[s][t] =
        _mm256_setzero_ps();
    for (size_t b = 0; b < blocks; b += step) {
        const char *at[STREAMS];
        __m256 w_scales[2], scales[DOT_TOKENS][2];
        __m256i offsets[DOT_TOKENS][2];
        UNROLL for (size_t s = 0; s < S; s++) at[s] = rows[s] + byte_place(type, b);
        byte_scales(type, at, w_scales, S);
        UNROLL for (size_t t = 0; t < T; t++)
        {
            __m256 x_scale = byte_x_scales(type, x_scales + t * blocks + b);
            UNROLL for (size_t i = 0; i < 2; i++) scales[t][i] =
                _mm256_mul_ps(w_scales[i], x_scale);
            UNROLL for (size_t h = 0; h < step; h++) offsets[t][h] =
                _mm256_maddubs_epi16(_mm256_set1_epi8((char)byte_offset(type)),
                                     k_load(codes + t * p->cols + (b + h) * 32));
        }
        UNROLL for (size_t s = 0; s < S; s++)
        {
            __builtin_prefetch(at[s] + ahead);
            UNROLL for (size_t h = 0; h < step; h++)
            {
                __m256i w = byte_codes(type, at[s], b, h);
                UNROLL for (size_t t = 0; t < T; t++)
                {
                    __m256i x = k_load(codes + t * p->cols + (b + h) * 32);
                    __m256i product = byte_multiply(type, w, x, offsets[t][h]);
                    acc[s][t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product),
                                                byte_spread(type, scales[t], s, h), acc[s][t]);
                }
            }
        }
    }
    UNROLL for (size_t s = 0; s < S; s++) UNROLL for (size_t t = 0; t < T; t++) sums[s][t] =
        vec_sum((vec)acc[s][t]);
}

#include "engine/kernels/dot_groups.h"

static void dot_q8_0(const pj_dot *d)
{
    dot_type(d, PJ_Q8_0);
}

static void dot_nvfp4(const pj_dot *d)
{
    dot_type(d, PJ_NVFP4);
}

static void dot_q1_0(const pj_dot *d)
{
    dot_type(d, PJ_Q1_0);
}

#endif
