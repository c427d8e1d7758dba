/* Quantises activations on AVX2: blocks of a token that share a scale, to signed bytes or words.
 * Included by codes_avx2.c and its headers. */
#ifndef PJ_KERNELS_PACK_AVX2_H
#define PJ_KERNELS_PACK_AVX2_H

#include "engine/kernels/tile.h"
#include "engine/kernels/vector.h"

/* The largest magnitude of some blocks; NaN if there is one. */
INLINE float largest_of(const float *x, size_t blocks)
{
    vec most = vec_of(0);
    for (size_t i = 0; i < blocks * PJ_Q8_BLOCK; i += 8)
        most = vec_max_magnitude(most, vec_load(x + i));
    return vec_largest_magnitude(most);
}

/* Codes in column order; returns their scale. */
INLINE float quantise_group(const float *x, size_t blocks, __m256i *codes)
{
    float largest = largest_of(x, blocks);
    float inverse = largest > PJ_LEAST_SCALED ? 127 / largest : 0;
    for (size_t b = 0; b < blocks; b++, x += PJ_Q8_BLOCK) {
        __m256i part[4];
        UNROLL for (size_t i = 0; i < 4; i++) part[i] =
            _mm256_cvtps_epi32((__m256)(vec_load(x + i * 8) * inverse));
        /* Pack instructions work within 128-bit halves: restore the order of the groups of four. */
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(part[0], part[1]),
                                           _mm256_packs_epi32(part[2], part[3]));
        codes[b] = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    return largest / 127;
}

#endif
