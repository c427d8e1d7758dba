/* Dequantisation and quantisation of stored weight types in plain C, the basis of every set. */
#ifndef PJ_KERNELS_BLOCKS_H
#define PJ_KERNELS_BLOCKS_H

#include "engine/files/dtype.h"

#include "engine/kernels/half.h"

#include <stdbool.h>
#include <stdint.h>

void pj_blocks_dequantise(pj_dtype type, const void *row, float *y, size_t n);
void pj_blocks_quantise(pj_dtype type, const float *x, void *row, size_t n);

/* Bytes of a block of 256, as a constant for a constant type. */
static inline size_t pj_blocks_k_bytes(pj_dtype type)
{
    switch (type) {
    case PJ_Q2_K: return 84;
    case PJ_Q3_K:
    case PJ_IQ3_S: return 110;
    case PJ_Q4_K: return 144;
    case PJ_Q5_K: return 176;
    case PJ_IQ4_XS: return 136;
    case PJ_IQ1_S: return 50;
    case PJ_IQ1_M: return 56;
    case PJ_IQ2_XXS:
    case PJ_TQ2_0: return 66;
    case PJ_IQ2_XS: return 74;
    case PJ_IQ2_S: return 82;
    case PJ_IQ3_XXS: return 98;
    case PJ_TQ1_0: return 54;
    default: return 210; /* Q6_K */
    }
}

/* Eight nibbles, one per byte. */
static inline uint64_t pj_blocks_nibbles(uint64_t x)
{
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* The levels of the sixteen codes of IQ4_NL and IQ4_XS, and of MXFP4, before scaling. */
extern const int8_t pj_iq4_levels[16], pj_mxfp4_levels[16];

static inline uint32_t pj_blocks_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* 2^(e - 128): half the encoded power of two, because the levels are twice the 4-bit floats. The
 * lowest two are subnormal. */
static inline float pj_blocks_mxfp4_scale(uint8_t e)
{
    return pj_float_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Six-bit scale (less 32) of sub-block j (of 8) of an IQ4_XS block. */
static inline int pj_blocks_iq4_xs_scale(const uint8_t *block, int j)
{
    int low = block[4 + j / 2] >> (j % 2 * 4) & 15, high = pj_load_u16(block + 2) >> (2 * j) & 3;
    return (low | high << 4) - 32;
}

/* Six-bit scale (less 32) of sub-block j (of 16) from the 12 bytes of a Q3_K block. */
static inline int pj_blocks_q3_k_scale(const uint8_t *packed, int j)
{
    int low = packed[j % 8] >> (j / 8 * 4) & 15, high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* All sixteen at once, one per byte and still 32 too large. */
static inline void pj_blocks_q3_k_scales(const uint8_t *packed, uint64_t scales[2])
{
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, pairs = 0x03030303;
    uint64_t low, high = pj_blocks_u32(packed + 8);
    memcpy(&low, packed, sizeof low);
    scales[0] = (low & nibbles) | (high & pairs) << 4 | (high >> 2 & pairs) << 36;
    scales[1] = (low >> 4 & nibbles) | (high >> 4 & pairs) << 4 | (high >> 6 & pairs) << 36;
}

/* Scale and minimum of sub-block j (of 8) from the 12 bytes of a Q4_K or Q5_K block. */
static inline void pj_blocks_k_scale(const uint8_t *packed, int j, uint8_t *scale, uint8_t *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
    } else {
        *scale = (uint8_t)((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4));
        *minimum = (uint8_t)((packed[j + 4] >> 4) | (packed[j] >> 6 << 4));
    }
}

#endif
