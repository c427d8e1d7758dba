/* Activations as 8-bit codes for the byte products of AVX2 and VNNI: a block has its own scale, or
 * WIDE blocks of one token share one. Included after the set's pack_group, which quantises blocks
 * that share one. */
#ifndef PJ_KERNELS_PACK_CODES_H
#define PJ_KERNELS_PACK_CODES_H

enum { WIDE = 4 }; /* blocks */

INLINE void pack_row_of(const float *x, size_t n, void *values, float *scales, int32_t *sums,
                        const size_t shared)
{
    char *to = values;
    size_t blocks = n / PJ_Q8_BLOCK;
    for (size_t b = 0; b < blocks; b += shared) {
        __m256i codes[WIDE];
        size_t some = blocks - b < shared ? blocks - b : shared;
        pack_group(x + b * PJ_Q8_BLOCK, some, codes, scales + b, sums + b, 1);
        memcpy(to + b * PJ_Q8_BLOCK, codes, some * PJ_Q8_BLOCK);
    }
}

INLINE void pack_panel_of(const float *x, size_t x_stride, size_t tokens, size_t width, size_t cols,
                          void *values, float *scales, int32_t *sums, const size_t shared)
{
    int32_t *to = values; /* four codes of one token */
    size_t blocks = cols / PJ_Q8_BLOCK;
    for (size_t b = 0; b < blocks; b += shared) {
        size_t some = blocks - b < shared ? blocks - b : shared;
        for (size_t t = 0; t < width; t++) {
            _Alignas(__m256i) int32_t codes[WIDE * 8] = {0};
            if (t < tokens)
                pack_group(x + t * x_stride + b * PJ_Q8_BLOCK, some, (__m256i *)(void *)codes,
                           scales + b * width + t, sums + b * width + t, width);
            else
                for (size_t i = b; i < b + some; i++)
                    scales[i * width + t] = 0, sums[i * width + t] = 0;
            int32_t *column = to + b * 8 * width + t;
            for (size_t g = 0; g < some * 8; g++) column[g * width] = codes[g];
        }
    }
}

#define PACK(suffix, shared)                                                                     \
    static void pack_row##suffix(const float *x, size_t n, void *values, float *scales,          \
                                 int32_t *sums)                                                  \
    {                                                                                            \
        pack_row_of(x, n, values, scales, sums, shared);                                         \
    }                                                                                            \
    static void pack_panel##suffix(const float *x, size_t x_stride, size_t tokens, size_t width, \
                                   size_t cols, void *values, float *scales, int32_t *sums)      \
    {                                                                                            \
        pack_panel_of(x, x_stride, tokens, width, cols, values, scales, sums, shared);           \
    }
PACK(, 1)
PACK(_wide, WIDE)

#endif
