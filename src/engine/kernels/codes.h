/* Stored weights as one unsigned byte per value with float scales, the form that all quantised
 * kernels multiply: value = scale (code - 128) - minimum, with one scale per block of 32 (and one
 * minimum, for types that have one). A header, so that every instruction set compiles it with its
 * own flags. Types with table-based codes are in codes_lookup.h. */
#ifndef PJ_KERNELS_CODES_H
#define PJ_KERNELS_CODES_H

#include "engine/kernels/blocks.h"
#include "engine/kernels/codebook.h"
#include "engine/kernels/codes_lookup.h"
#include "engine/kernels/half.h"

#include <math.h>

static inline bool pj_codes_have_minima(pj_dtype type)
{
    return type == PJ_Q4_K || type == PJ_Q5_K || type == PJ_Q4_1 || type == PJ_Q5_1;
}

static inline void pj_codes_q8_0(const uint8_t *block, uint8_t *codes, float *scale)
{
    *scale = pj_float_of_f16(pj_load_u16(block));
    for (int i = 0; i < 32; i++) codes[i] = block[2 + i] ^ 128;
}

static inline void pj_codes_q4_0(const uint8_t *block, uint8_t *codes, float *scale)
{
    *scale = pj_float_of_f16(pj_load_u16(block));
    uint8_t table[16];
    for (int i = 0; i < 16; i++) table[i] = (uint8_t)(120 + i);
    pj_codes_nibbles(block + 2, table, codes);
}

/* Q4_K (high NULL) and Q5_K. */
static inline void pj_codes_k(const uint8_t *block, const uint8_t *high, const uint8_t *nibbles,
                              uint8_t *codes, float *scales, float *minima)
{
    float d = pj_float_of_f16(pj_load_u16(block));
    float dmin = pj_float_of_f16(pj_load_u16(block + 2));
    for (int j = 0; j < 8; j++, codes += 32) {
        const uint8_t *from = nibbles + j / 2 * 32;
        int shift = j % 2 * 4;
        uint8_t scale, minimum;
        pj_blocks_k_scale(block + 4, j, &scale, &minimum);
        scales[j] = d * scale;
        minima[j] = dmin * minimum;
        for (int i = 0; i < 32; i++) codes[i] = (uint8_t)((from[i] >> shift & 15) + 128);
        if (!high) continue;
        for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(codes[i] + (high[i] >> j & 1) * 16);
    }
}

typedef uint16_t pj_u16x8 __attribute__((vector_size(16)));
typedef uint8_t pj_u8x8 __attribute__((vector_size(8)));
typedef int16_t pj_i16x8 __attribute__((vector_size(16)));

/* Sixteen six-bit codes, less 32, times ratio / 256, plus 128. Compilers do not vectorise byte
 * shifts, so bytes are shifted as pairs and masked. */
static inline void pj_codes_q6_k_half(const uint8_t *low, const uint8_t *high, int low_shift,
                                      int high_shift, int16_t ratio, uint8_t *codes)
{
    pj_u16x8 nibbles, pairs;
    memcpy(&nibbles, low, sizeof nibbles);
    memcpy(&pairs, high, sizeof pairs);
    nibbles = (nibbles >> (uint16_t)low_shift & 0x0f0f) | (pairs >> (uint16_t)high_shift & 0x0303)
                                                              << 4;
    for (int i = 0; i < 2; i++) {
        pj_u8x8 bytes;
        memcpy(&bytes, (const uint8_t *)&nibbles + 8 * i, sizeof bytes);
        pj_i16x8 words = (__builtin_convertvector(bytes, pj_i16x8) - 32) * ratio + 128;
        bytes = __builtin_convertvector((words >> 8) + 128, pj_u8x8);
        memcpy(codes + 8 * i, &bytes, sizeof bytes);
    }
}

/*
 * Q6_K has one scale per 16 values. A quarter of the larger of two neighbouring scales (in
 * magnitude) becomes the block's, so that its codes are multiplied by four, without an error, and
 * fill the range of a byte; those with the smaller scale are also multiplied by the ratio of the
 * two, at a rounding error below half of a 128th of the block's largest value. If the scales are
 * opposite and nearly equal, 127 stands for 128.
 */
static inline void pj_codes_q6_k(const uint8_t *block, uint8_t *codes, float *scales)
{
    float d = pj_float_of_f16(pj_load_u16(block + 208));
    for (int j = 0; j < 8; j++, codes += 32) {
        const uint8_t *low = block + j / 4 * 64 + j % 2 * 32, *high = block + 128 + j / 4 * 32;
        int low_shift = j % 4 / 2 * 4, high_shift = j % 4 * 2;
        float a = (float)(int8_t)block[192 + 2 * j], b = (float)(int8_t)block[193 + 2 * j];
        float larger = fabsf(a) >= fabsf(b) ? a : b, inverse = larger != 0 ? 4 * 256 / larger : 0;
        scales[j] = d * larger / 4;
        for (int i = 0; i < 2; i++) {
            float ratio = fmaxf((i ? b : a) * inverse, -4 * 254);
            pj_codes_q6_k_half(low + 16 * i, high + 16 * i, low_shift, high_shift,
                               (int16_t)lrintf(ratio), codes + 16 * i);
        }
    }
}

typedef int8_t pj_i8x8 __attribute__((vector_size(8)));

/* Eight values times ratio / 256, plus 128. */
static inline void pj_codes_times(const int8_t *from, int16_t ratio, uint8_t *to)
{
    pj_i8x8 values;
    memcpy(&values, from, sizeof values);
    pj_i16x8 words = __builtin_convertvector(values, pj_i16x8) * ratio + 128;
    pj_u8x8 bytes = __builtin_convertvector((words >> 8) + 128, pj_u8x8);
    memcpy(to, &bytes, sizeof bytes);
}

/* The scale that two neighbouring ones become, and what their codes are multiplied by, in 256ths:
 * the larger one's by a whole factor. */
static inline float pj_codes_ratios(float a, float b, float factor, int16_t ratios[2])
{
    float larger = fabsf(a) > fabsf(b) ? a : b, inverse = larger != 0 ? 256 / larger : 0;
    float both[2] = {a * inverse, b * inverse}; /* at most 256; not NaN in the conversion */
    for (int i = 0; i < 2; i++)
        ratios[i] = (int16_t)lrintf(both[i] >= 0 && both[i] <= 256 ? both[i] * factor : 0);
    return larger / factor + 0 * (a + b); /* a NaN scale makes the block's values NaN */
}

/*
 * Types of codebook.h. Where neighbouring scales are equal, values are the codes. Else those with
 * the larger scale are multiplied by a whole factor, without an error, so that they fill the range
 * of a byte, and the others by that times the ratio of the two.
 */
static inline void pj_codes_book(pj_dtype type, const uint8_t *block, size_t count, uint8_t *codes,
                                 float *scales)
{
    int8_t values[PJ_BOOK_VALUES];
    float each[PJ_BOOK_SCALES];
    float factor = type == PJ_IQ1_M ? 14 : 2; /* of at most 9 and 43 */
    pj_codebook_decode(type, block, values, each);
    for (size_t j = 0; j < count / 32; j++) {
        float a = each[2 * j], b = each[2 * j + 1];
        const int8_t *from = values + 32 * j;
        uint8_t *to = codes + 32 * j;
        scales[j] = a;
        if (a == b) {
            for (int i = 0; i < 32; i++) to[i] = (uint8_t)(from[i] ^ -128);
            continue;
        }
        int16_t ratios[2];
        scales[j] = pj_codes_ratios(a, b, factor, ratios);
        for (int i = 0; i < 32; i += 8) pj_codes_times(from + i, ratios[i / 16], to + i);
    }
}

typedef int8_t pj_i8x16 __attribute__((vector_size(16)));
typedef uint8_t pj_u8x16 __attribute__((vector_size(16)));
typedef uint64_t pj_u64x2 __attribute__((vector_size(16)));
typedef int16_t pj_i16x16 __attribute__((vector_size(32)));

/* The same of NVFP4, whose nibbles have sixteen levels: eight bytes are sixteen values. Table and
 * indices are whole vectors: loads from several stores would wait for them. */
static inline void pj_codes_nvfp4(const uint8_t *block, uint8_t *codes, float *scales)
{
    const uint64_t nibble = 0x0f0f0f0f0f0f0f0f;
    pj_i8x16 levels;
    memcpy(&levels, pj_mxfp4_levels, sizeof levels);
    for (int j = 0; j < 4; j++, codes += 16) {
        int16_t ratios[2];
        float a = pj_codebook_nvfp4_scale(block[j & 2]), b = pj_codebook_nvfp4_scale(block[j | 1]);
        scales[j / 2] = pj_codes_ratios(a, b, 10, ratios); /* levels are at most 12 */
        pj_i16x16 words = __builtin_convertvector(levels, pj_i16x16) * ratios[j % 2] + 128;
        pj_u8x16 table = __builtin_convertvector((words >> 8) + 128, pj_u8x16);
        uint64_t both;
        memcpy(&both, block + 4 + 8 * j, sizeof both);
        pj_u64x2 index = {both & nibble, both >> 4 & nibble};
        pj_codes_lookup((const uint8_t *)&table, (const uint8_t *)&index, codes);
    }
}

/* `n` values, in whole blocks; minima only for types that have them. */
static inline void pj_codes_row(pj_dtype type, const void *row, size_t n, uint8_t *codes,
                                float *scales, float *minima)
{
    const uint8_t *bytes = row;
    const pj_dtype_info *info = pj_dtype_get(type);
    for (size_t i = 0; i < n; i += info->block_values, bytes += info->block_bytes) {
        float *scale = scales + i / 32, *minimum = minima + i / 32;
        switch (type) {
        case PJ_Q8_0: pj_codes_q8_0(bytes, codes + i, scale); break;
        case PJ_Q4_0: pj_codes_q4_0(bytes, codes + i, scale); break;
        case PJ_Q4_K: pj_codes_k(bytes, NULL, bytes + 16, codes + i, scale, minimum); break;
        case PJ_Q5_K: pj_codes_k(bytes, bytes + 16, bytes + 48, codes + i, scale, minimum); break;
        case PJ_Q6_K: pj_codes_q6_k(bytes, codes + i, scale); break;
        case PJ_Q4_1: pj_codes_q4_1(bytes, codes + i, scale, minimum); break;
        case PJ_Q5_0: pj_codes_q5_0(bytes, codes + i, scale); break;
        case PJ_Q5_1: pj_codes_q5_1(bytes, codes + i, scale, minimum); break;
        case PJ_IQ4_NL: pj_codes_iq4_nl(bytes, codes + i, scale); break;
        case PJ_MXFP4: pj_codes_mxfp4(bytes, codes + i, scale); break;
        case PJ_Q2_K: pj_codes_q2_k(bytes, codes + i, scale); break;
        case PJ_Q3_K: pj_codes_q3_k(bytes, codes + i, scale); break;
        case PJ_IQ4_XS: pj_codes_iq4_xs(bytes, codes + i, scale); break;
        case PJ_NVFP4: pj_codes_nvfp4(bytes, codes + i, scale); break;
        default: pj_codes_book(type, bytes, info->block_values, codes + i, scale); break;
        }
    }
}

#endif
