/* Few tokens with weights of types that are rare or costly to decode: a row is unpacked to codes in
 * L1, then multiplied with every token. Included by sets after their multiply_codes. */
#ifndef PJ_KERNELS_DOT_UNPACKED_H
#define PJ_KERNELS_DOT_UNPACKED_H

INLINE float dot_codes(const uint8_t *codes, const float *scales, const int8_t *x,
                       const float *x_scales, size_t blocks)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t b = 0; b < blocks; b++) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(codes + b * 32));
        __m256i product =
            multiply_codes(w, _mm256_loadu_si256((const __m256i *)(const void *)(x + b * 32)));
        __m256 scale = _mm256_set1_ps(scales[b] * x_scales[b]);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), scale, sum);
    }
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

static void dot_unpacked(const pj_dot *d)
{
    enum { CHUNK = 8192 };
    const pj_matrix *w = d->weights;
    const pj_dtype_info *info = pj_dtype_get(w->type);
    size_t blocks = w->cols / PJ_Q8_BLOCK;
    uint8_t *codes = d->scratch;
    float *scales = (float *)(void *)(codes + CHUNK);
    for (size_t row = d->begin; row < d->end; row++)
        for (size_t at = 0; at < w->cols; at += CHUNK) {
            size_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
            const char *from = (const char *)w->data + row * w->row_bytes;
            pj_codes_row(w->type, from + at / info->block_values * info->block_bytes, n, codes,
                         scales, scales);
            for (size_t t = 0; t < d->x->tokens; t++) {
                float *y = &d->y[t * d->y_stride + row];
                float before = at > 0 ? *y : d->bias ? d->bias[row] : 0;
                *y = before +
                     dot_codes(codes, scales, (const int8_t *)d->x->values + t * w->cols + at,
                               d->x->scales + t * blocks + at / PJ_Q8_BLOCK, n / PJ_Q8_BLOCK);
            }
        }
}

#endif
