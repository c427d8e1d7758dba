/*
 * The less common quantised types as codes and scales (codes.h). Each value has an index
 * of at most four bits (five for Q5_0 and Q5_1), so each run of sixteen values with one scale is a
 * table of up to sixteen codes, looked up with a byte shuffle where available.
 *
 * All are exact except Q2_K and (in its scale's last bit) IQ4_XS. Q3_K has a six-bit scale per 16
 * values and values of -4 to 3: their product fits a signed byte if its sign is flipped, so the
 * block's scale is -d. Q2_K has a minimum per 16 values, which codes cannot represent: its four
 * values become codes of a common scale with the block's largest at 127, so that the rounding error
 * is at most 1/254 of it, well below the type's own step.
 */
#ifndef PJ_KERNELS_CODES_LOOKUP_H
#define PJ_KERNELS_CODES_LOOKUP_H

#include "engine/kernels/blocks.h"

#include <math.h>

#if defined(__SSSE3__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* to[i] = table[index[i]], sixteen times; an index is below 16. */
static inline void pj_codes_lookup(const uint8_t table[16], const uint8_t index[16], uint8_t *to)
{
#if defined(__SSSE3__)
    __m128i lanes = _mm_loadu_si128((const __m128i *)(const void *)index);
    __m128i codes = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)table), lanes);
    _mm_storeu_si128((__m128i *)(void *)to, codes);
#elif defined(__ARM_NEON)
    vst1q_u8(to, vqtbl1q_u8(vld1q_u8(table), vld1q_u8(index)));
#else
    for (int i = 0; i < 16; i++) to[i] = table[index[i]];
#endif
}

/* Sixteen bytes, each shifted right and masked. */
static inline void pj_codes_bits(const uint8_t *from, int shift, uint8_t mask, uint8_t to[16])
{
    for (int i = 0; i < 16; i++) to[i] = (uint8_t)(from[i] >> shift & mask);
}

/* Levels as codes: offset by 128. */
static inline void pj_codes_levels(const int8_t levels[16], uint8_t table[16])
{
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(levels[i] + 128);
}

static inline void pj_codes_nibbles(const uint8_t *nibbles, const uint8_t table[16], uint8_t *codes)
{
#if defined(__SSSE3__)
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)nibbles);
    __m128i levels = _mm_loadu_si128((const __m128i *)(const void *)table);
    __m128i mask = _mm_set1_epi8(15), high = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
    _mm_storeu_si128((__m128i *)(void *)codes, _mm_shuffle_epi8(levels, _mm_and_si128(both, mask)));
    _mm_storeu_si128((__m128i *)(void *)(codes + 16), _mm_shuffle_epi8(levels, high));
#else
    uint8_t low[16], high[16];
    pj_codes_bits(nibbles, 0, 15, low);
    pj_codes_bits(nibbles, 4, 15, high);
    pj_codes_lookup(table, low, codes);
    pj_codes_lookup(table, high, codes + 16);
#endif
}

#if defined(__SSSE3__)
/* 16 in byte i where bit i of two bytes is set, else 0; `lane`: which byte holds the bit. */
static inline __m128i pj_codes_fifth(uint32_t fifth, __m128i lane)
{
    __m128i bit = _mm_set1_epi64x((long long)0x8040201008040201ull);
    __m128i spread = _mm_shuffle_epi8(_mm_set1_epi32((int)fifth), lane);
    __m128i is_set = _mm_cmpeq_epi8(_mm_and_si128(spread, bit), bit);
    return _mm_and_si128(is_set, _mm_set1_epi8(16));
}
#endif

/* Nibbles with their fifth bits, plus `offset`. */
static inline void pj_codes_five(const uint8_t *nibbles, uint32_t fifth, int offset, uint8_t *codes)
{
#if defined(__SSSE3__)
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)nibbles);
    __m128i mask = _mm_set1_epi8(15), add = _mm_set1_epi8((char)offset);
    __m128i first = _mm_set_epi64x(0x0101010101010101, 0),
            second = _mm_add_epi8(first, _mm_set1_epi8(2));
    __m128i low = _mm_or_si128(_mm_and_si128(both, mask), pj_codes_fifth(fifth, first));
    __m128i high =
        _mm_or_si128(_mm_and_si128(_mm_srli_epi16(both, 4), mask), pj_codes_fifth(fifth, second));
    _mm_storeu_si128((__m128i *)(void *)codes, _mm_add_epi8(low, add));
    _mm_storeu_si128((__m128i *)(void *)(codes + 16), _mm_add_epi8(high, add));
#else
    for (int i = 0; i < 16; i++) {
        codes[i] = (uint8_t)((nibbles[i] & 15) + (fifth >> i & 1) * 16 + (unsigned)offset);
        codes[i + 16] =
            (uint8_t)((nibbles[i] >> 4) + (fifth >> (i + 16) & 1) * 16 + (unsigned)offset);
    }
#endif
}

static inline void pj_codes_q4_1(const uint8_t *block, uint8_t *codes, float *scale, float *minimum)
{
    *scale = pj_float_of_f16(pj_load_u16(block));
    uint8_t table[16];
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(128 + i);
    *minimum = -pj_float_of_f16(pj_load_u16(block + 2));
    pj_codes_nibbles(block + 4, table, codes);
}

static inline void pj_codes_q5_0(const uint8_t *block, uint8_t *codes, float *scale)
{
    *scale = pj_float_of_f16(pj_load_u16(block));
    pj_codes_five(block + 6, pj_blocks_u32(block + 2), 112, codes);
}

static inline void pj_codes_q5_1(const uint8_t *block, uint8_t *codes, float *scale, float *minimum)
{
    *scale = pj_float_of_f16(pj_load_u16(block));
    *minimum = -pj_float_of_f16(pj_load_u16(block + 2));
    pj_codes_five(block + 8, pj_blocks_u32(block + 4), 128, codes);
}

static inline void pj_codes_iq4_nl(const uint8_t *block, uint8_t *codes, float *scale)
{
    uint8_t table[16];
    pj_codes_levels(pj_iq4_levels, table);
    *scale = pj_float_of_f16(pj_load_u16(block));
    pj_codes_nibbles(block + 2, table, codes);
}

static inline void pj_codes_mxfp4(const uint8_t *block, uint8_t *codes, float *scale)
{
    uint8_t table[16];
    pj_codes_levels(pj_mxfp4_levels, table);
    *scale = pj_blocks_mxfp4_scale(block[0]);
    pj_codes_nibbles(block + 1, table, codes);
}

static inline void pj_codes_iq4_xs(const uint8_t *block, uint8_t *codes, float *scales)
{
    uint8_t table[16];
    pj_codes_levels(pj_iq4_levels, table);
    float d = pj_float_of_f16(pj_load_u16(block));
    for (int j = 0; j < 8; j++) {
        scales[j] = d * (float)pj_blocks_iq4_xs_scale(block, j);
        pj_codes_nibbles(block + 8 + 16 * j, table, codes + 32 * j);
    }
}

static inline void pj_codes_q3_k(const uint8_t *block, uint8_t *codes, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block + 108));
    for (int j = 0; j < 16; j++, codes += 16) {
        const uint8_t *pairs = block + 32 + j / 8 * 32 + j % 2 * 16, *third = block + j % 2 * 16;
        int scale = pj_blocks_q3_k_scale(block + 96, j), shift = j % 8 / 2 * 2;
        uint8_t table[16] = {0}, index[16];
        for (int q = 0; q < 8; q++) table[q] = (uint8_t)(128 - scale * (q - 4));
        for (int i = 0; i < 16; i++)
            index[i] = (uint8_t)((pairs[i] >> shift & 3) | (third[i] >> (j / 2) & 1) << 2);
        pj_codes_lookup(table, index, codes);
        scales[j / 2] = -d;
    }
}

static inline void pj_codes_q2_k(const uint8_t *block, uint8_t *codes, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block + 80));
    float dmin = pj_float_of_f16(pj_load_u16(block + 82));
    for (int j = 0; j < 8; j++, codes += 32) {
        float values[2][4], largest = 0;
        for (int half = 0; half < 2; half++)
            for (int q = 0; q < 4; q++) {
                uint8_t both = block[2 * j + half];
                values[half][q] = d * (float)((both & 15) * q) - dmin * (float)(both >> 4);
                if (fabsf(values[half][q]) > largest) largest = fabsf(values[half][q]);
            }
        /* a NaN scale makes the block's values NaN */
        float inverse = largest > 0 ? 127 / largest : 0;
        scales[j] = largest / 127 + 0 * (d + dmin);
        for (int half = 0; half < 2; half++) {
            uint8_t table[16] = {0}, index[16];
            for (int q = 0; q < 4; q++) {
                float code = values[half][q] * inverse; /* keeps NaN out of the conversion */
                table[q] =
                    (uint8_t)(128 + (code >= -127.5f && code <= 127.5f ? (int)rintf(code) : 0));
            }
            pj_codes_bits(block + 16 + j / 4 * 32 + half * 16, j % 4 * 2, 3, index);
            pj_codes_lookup(table, index, codes + 16 * half);
        }
    }
}

#endif
