/* Activations as signed bytes on AVX2: up to 128 columns of a token by one scale, for the tiles
 * then apply it once, and the codes round little more coarsely than with 32. Included by
 * codes_avx2.c and what that includes. */
#ifndef PJ_LLM_PACK_AVX2_H
#define PJ_LLM_PACK_AVX2_H

#include "llm/kernels/tile.h"
#include "llm/kernels/vector.h"

enum { SHARED = 4 }; /* blocks */

/* Codes in the order of the columns; gives their scale. */
INLINE float quantise_group(const float *x, size_t blocks, __m256i codes[SHARED])
{
    vec most = vec_of(0);
    for (size_t i = 0; i < blocks * PJ_Q8_BLOCK; i += 8)
        most = vec_max(most, vec_abs(vec_load(x + i)));
    float largest = vec_largest(most);
    float inverse = largest > 0 ? 127 / largest : 0;
    for (size_t b = 0; b < blocks; b++, x += PJ_Q8_BLOCK) {
        __m256i part[4];
        UNROLL for (size_t i = 0; i < 4; i++) part[i] =
            _mm256_cvtps_epi32((__m256)(vec_load(x + i * 8) * inverse));
        /* Packing works within halves: put the groups of four back in order. */
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(part[0], part[1]),
                                           _mm256_packs_epi32(part[2], part[3]));
        codes[b] = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    return largest / 127;
}

#endif
