/* Dequantisation and quantisation of stored weight types in plain C, the basis of every set. */
#ifndef PJ_LLM_BLOCKS_H
#define PJ_LLM_BLOCKS_H

#include "llm/dtype.h"

#include "llm/kernels/half.h"

#include <stdbool.h>
#include <stdint.h>

void pj_blocks_dequantise(pj_dtype type, const void *row, float *y, size_t n);
void pj_blocks_quantise(pj_dtype type, const float *x, void *row, size_t n);

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
