/* Stored weight types to float and back, in plain C; every set starts from these. */
#ifndef PJ_LLM_BLOCKS_H
#define PJ_LLM_BLOCKS_H

#include "llm/dtype.h"

#include <stdint.h>

void pj_blocks_dequantise(pj_dtype type, const void *row, float *y, size_t n);
void pj_blocks_quantise(pj_dtype type, const float *x, void *row, size_t n);

/* Scale and minimum of sub-block j (of 8) out of the 12 bytes of a Q4_K or Q5_K block. */
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
