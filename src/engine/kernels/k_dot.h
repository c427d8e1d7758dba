/* Few tokens with weights in blocks of 256, on any kernel set: rows are read in K_STREAMS
 * interleaved streams, which the prefetchers follow, and the remainder one by one. Included by
 * k_avx2.h and k_vnni.h after their k_dot_group, which does S rows `apart` from each other with all
 * tokens. */
#ifndef PJ_KERNELS_K_DOT_H
#define PJ_KERNELS_K_DOT_H

/* Codebooks and levels are bound by decoding: two streams feed it, and make half the code. */
INLINE void k_dot_type(const pj_dot *d, pj_dtype type)
{
    const size_t streams = is_book(type) || type == PJ_IQ4_XS ? 2 : K_STREAMS;
    size_t apart = (d->end - d->begin) / streams;
    for (size_t r = 0; r < apart; r++) k_dot_group(d, type, d->begin + r, apart, streams);
    for (size_t row = d->begin + apart * streams; row < d->end; row++)
        k_dot_group(d, type, row, 1, 1);
}

#define K_DOT(name, type)                   \
    static void dot_##name(const pj_dot *d) \
    {                                       \
        k_dot_type(d, PJ_##type);           \
    }
K_DOT(q2_k, Q2_K)
K_DOT(q3_k, Q3_K)
K_DOT(q4_k, Q4_K)
K_DOT(q5_k, Q5_K)
K_DOT(q6_k, Q6_K)
K_DOT(iq1_s, IQ1_S)
K_DOT(iq1_m, IQ1_M)
K_DOT(iq2_xxs, IQ2_XXS)
K_DOT(iq2_xs, IQ2_XS)
K_DOT(iq2_s, IQ2_S)
K_DOT(iq3_xxs, IQ3_XXS)
K_DOT(iq3_s, IQ3_S)
K_DOT(tq1_0, TQ1_0)
K_DOT(tq2_0, TQ2_0)

#endif
