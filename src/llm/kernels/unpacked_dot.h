/* Few tokens with types that have no kernel of their own (codes_lookup.h), on any set: a weight row
 * is unpacked to codes in L1, then multiplied with every token. Included by the sets after their
 * unpacked_row, which returns the product of one unpacked row with one token: codes as produced by
 * pj_codes_row, `minima` NULL for types without minima. */
#ifndef PJ_LLM_UNPACKED_DOT_H
#define PJ_LLM_UNPACKED_DOT_H

INLINE void dot_unpacked(const pj_dot *d, pj_dtype type, const bool minima)
{
    enum { CHUNK = 16384 }; /* columns: codes, scales and minima take 20 KiB */
    const pj_matrix *w = d->weights;
    const pj_dtype_info *info = pj_dtype_get(type);
    uint8_t *codes = d->scratch;
    float *scales = (float *)(void *)(codes + CHUNK), *lows = scales + CHUNK / PJ_Q8_BLOCK;
    for (size_t row = d->begin; row < d->end; row++)
        for (size_t at = 0; at < w->cols; at += CHUNK) {
            size_t n = w->cols - at < CHUNK ? w->cols - at : CHUNK;
            const char *from = (const char *)w->data + row * w->row_bytes;
            pj_codes_row(type, from + at / info->block_values * info->block_bytes, n, codes, scales,
                         lows);
            for (size_t t = 0; t < d->x->tokens; t++) {
                size_t block = (t * w->cols + at) / PJ_Q8_BLOCK;
                float *y = &d->y[t * d->y_stride + row];
                float before = at > 0 ? *y : d->bias ? d->bias[row] : 0;
                *y = before + unpacked_row(codes, scales, minima ? lows : NULL,
                                           (const int8_t *)d->x->values + t * w->cols + at,
                                           d->x->scales + block, d->x->sums + block,
                                           n / PJ_Q8_BLOCK);
            }
        }
}

#define UNPACKED_DOT(name, type, minima)    \
    static void dot_##name(const pj_dot *d) \
    {                                       \
        dot_unpacked(d, PJ_##type, minima); \
    }
UNPACKED_DOT(q4_1, Q4_1, true)
UNPACKED_DOT(q5_0, Q5_0, false)
UNPACKED_DOT(q5_1, Q5_1, true)
UNPACKED_DOT(iq4_nl, IQ4_NL, false)
UNPACKED_DOT(mxfp4, MXFP4, false)
UNPACKED_DOT(q2_k, Q2_K, false)
UNPACKED_DOT(q3_k, Q3_K, false)
UNPACKED_DOT(iq4_xs, IQ4_XS, false)

#endif
