/*
 * Stored weights as bfloat16, for products on a matrix unit: rounded once from scale x code -
 * minimum, or, F16, as two parts. A header for sets with AVX-512 BF16.
 *
 * Types with a scale per 32 values go through codes.h, those with one per 16 do not: their codes
 * there are of a common scale, which costs time and exactness.
 */
#ifndef PJ_KERNELS_BF16_WEIGHTS_H
#define PJ_KERNELS_BF16_WEIGHTS_H

#include "engine/kernels/codes.h"
#include "engine/kernels/vector.h"

enum { PJ_BF16_WEIGHTS_MAX = 4096 /* columns per call */ };

/* Rounded to bfloat16, still as a float. */
INLINE __m512 high_part(__m512 x)
{
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

/* What is left; 0 for infinities. */
INLINE __m512 low_part(__m512 x, __m512 high)
{
    return _mm512_maskz_sub_ps(_mm512_cmp_ps_mask(x, high, _CMP_NEQ_UQ), x, high);
}

INLINE __m512i both_bf16(__m512 first, __m512 second)
{
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

/* ---- F16 -------------------------------------------------------------------------------- */

/* For every 32 columns the high parts, then the low parts, zero-filled. */
static void bf16_weights_f16(const void *row, size_t cols, void *values, float *scales,
                             float *minima)
{
    const uint16_t *from = row;
    char *to = values;
    for (size_t i = 0; i < cols; i += 32, to += 128) {
        uint16_t last[32] = {0};
        const void *at = from + i;
        if (cols - i < 32) at = memcpy(last, at, (cols - i) * 2);
        __m512 a = _mm512_cvtph_ps(_mm256_loadu_si256(at));
        __m512 b = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at + 1));
        __m512 a_high = high_part(a), b_high = high_part(b);
        _mm512_storeu_si512(to, both_bf16(a_high, b_high));
        _mm512_storeu_si512(to + 64, both_bf16(low_part(a, a_high), low_part(b, b_high)));
    }
}

/* ---- a scale per 32 values -------------------------------------------------------------- */

/* Sixteen codes, less their offset. */
INLINE __m512 floats_of(__m128i codes, int offset)
{
    __m512i words = _mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(offset));
    return _mm512_cvtepi32_ps(words);
}

INLINE void bf16_weights(pj_dtype type, const void *row, size_t cols, void *values)
{
    uint8_t codes[PJ_BF16_WEIGHTS_MAX];
    float scales[PJ_BF16_WEIGHTS_MAX / 32], minima[PJ_BF16_WEIGHTS_MAX / 32];
    char *to = values;
    pj_codes_row(type, row, cols, codes, scales, minima);
    for (size_t i = 0; i < cols; i += 32, to += 64) {
        __m512 scale = _mm512_set1_ps(scales[i / 32]);
        __m512 a = floats_of(_mm_loadu_si128((const void *)(codes + i)), 128);
        __m512 b = floats_of(_mm_loadu_si128((const void *)(codes + i + 16)), 128);
        if (pj_codes_have_minima(type)) {
            __m512 minimum = _mm512_set1_ps(minima[i / 32]);
            a = _mm512_fmsub_ps(a, scale, minimum);
            b = _mm512_fmsub_ps(b, scale, minimum);
        } else {
            a = _mm512_mul_ps(a, scale);
            b = _mm512_mul_ps(b, scale);
        }
        _mm512_storeu_si512(to, both_bf16(a, b));
    }
}

/* ---- a scale per 16 values -------------------------------------------------------------- */

/* 32 bytes, each shifted right and masked. */
INLINE __m256i bits_of(const uint8_t *from, int shift, uint8_t mask)
{
    __m256i bytes = _mm256_loadu_si256((const void *)from);
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8((char)mask));
}

/* The same masks, moved to the left. */
INLINE __m256i or_left(__m256i low, __m256i high, int by)
{
    return _mm256_or_si256(low, _mm256_slli_epi16(high, by));
}

typedef struct group_scale {
    float scale, minimum;
} group_scale;

INLINE void store_groups(char *to, __m256i codes, int offset, group_scale first, group_scale second)
{
    __m512 a = floats_of(_mm256_castsi256_si128(codes), offset);
    __m512 b = floats_of(_mm256_extracti128_si256(codes, 1), offset);
    a = _mm512_fmsub_ps(a, _mm512_set1_ps(first.scale), _mm512_set1_ps(first.minimum));
    b = _mm512_fmsub_ps(b, _mm512_set1_ps(second.scale), _mm512_set1_ps(second.minimum));
    _mm512_storeu_si512(to, both_bf16(a, b));
}

INLINE void bf16_block_q2_k(const uint8_t *block, char *to)
{
    float d = pj_float_of_f16(pj_load_u16(block + 80));
    float dmin = pj_float_of_f16(pj_load_u16(block + 82));
    group_scale g[16];
    for (int j = 0; j < 16; j++)
        g[j] = (group_scale){d * (float)(block[j] & 15), dmin * (float)(block[j] >> 4)};
    for (int j = 0; j < 8; j++)
        store_groups(to + 64 * j, bits_of(block + 16 + j / 4 * 32, j % 4 * 2, 3), 0, g[2 * j],
                     g[2 * j + 1]);
}

INLINE void bf16_block_q3_k(const uint8_t *block, char *to)
{
    float d = pj_float_of_f16(pj_load_u16(block + 108));
    group_scale g[16];
    for (int j = 0; j < 16; j++)
        g[j] = (group_scale){d * (float)pj_blocks_q3_k_scale(block + 96, j), 0};
    for (int j = 0; j < 8; j++) {
        __m256i pairs = bits_of(block + 32 + j / 4 * 32, j % 4 * 2, 3);
        __m256i codes = or_left(pairs, bits_of(block, j, 1), 2);
        store_groups(to + 64 * j, codes, 4, g[2 * j], g[2 * j + 1]);
    }
}

INLINE void bf16_block_q6_k(const uint8_t *block, char *to)
{
    float d = pj_float_of_f16(pj_load_u16(block + 208));
    group_scale g[16];
    for (int j = 0; j < 16; j++) g[j] = (group_scale){d * (float)(int8_t)block[192 + j], 0};
    for (int j = 0; j < 8; j++) {
        __m256i low = bits_of(block + j / 4 * 64 + j % 2 * 32, j % 4 / 2 * 4, 15);
        __m256i codes = or_left(low, bits_of(block + 128 + j / 4 * 32, j % 4 * 2, 3), 4);
        store_groups(to + 64 * j, codes, 32, g[2 * j], g[2 * j + 1]);
    }
}

/* ---- by type: what pj_tile_kernels has as unpack ----------------------------------------- */

#define PJ_BF16_WEIGHTS(name, type)                                                            \
    static void bf16_weights_##name(const void *row, size_t cols, void *values, float *scales, \
                                    float *minima)                                             \
    {                                                                                          \
        bf16_weights(type, row, cols, values);                                                 \
    }
#define PJ_BF16_WEIGHTS_K(name, bytes)                                                         \
    static void bf16_weights_##name(const void *row, size_t cols, void *values, float *scales, \
                                    float *minima)                                             \
    {                                                                                          \
        for (size_t i = 0; i < cols / 256; i++)                                                \
            bf16_block_##name((const uint8_t *)row + i * bytes, (char *)values + i * 512);     \
    }
PJ_BF16_WEIGHTS(q8_0, PJ_Q8_0)
PJ_BF16_WEIGHTS(q4_0, PJ_Q4_0)
PJ_BF16_WEIGHTS(q4_k, PJ_Q4_K)
PJ_BF16_WEIGHTS(q5_k, PJ_Q5_K)
PJ_BF16_WEIGHTS(q4_1, PJ_Q4_1)
PJ_BF16_WEIGHTS(q5_0, PJ_Q5_0)
PJ_BF16_WEIGHTS(q5_1, PJ_Q5_1)
PJ_BF16_WEIGHTS(iq4_nl, PJ_IQ4_NL)
PJ_BF16_WEIGHTS(iq4_xs, PJ_IQ4_XS)
PJ_BF16_WEIGHTS(mxfp4, PJ_MXFP4)
PJ_BF16_WEIGHTS_K(q2_k, 84)
PJ_BF16_WEIGHTS_K(q3_k, 110)
PJ_BF16_WEIGHTS_K(q6_k, 210)

#endif
