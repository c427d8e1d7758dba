/* Few tokens with weights in blocks of 256, on any kernel set: rows are read in K_STREAMS
 * interleaved streams, which the prefetchers follow, and the remainder one by one. Included by
 * k_avx2.h and k_vnni.h after their k_dot_group, which does S rows `apart` from each other with all
 * tokens. */
#ifndef PJ_KERNELS_K_DOT_H
#define PJ_KERNELS_K_DOT_H

INLINE void k_dot_type(const pj_dot *d, pj_dtype type)
{
    size_t apart = (d->end - d->begin) / K_STREAMS;
    for (size_t r = 0; r < apart; r++) k_dot_group(d, type, d->begin + r, apart, K_STREAMS);
    for (size_t row = d->begin + apart * K_STREAMS; row < d->end; row++)
        k_dot_group(d, type, row, 1, 1);
}

static void dot_q2_k(const pj_dot *d)
{
    k_dot_type(d, PJ_Q2_K);
}

static void dot_q3_k(const pj_dot *d)
{
    k_dot_type(d, PJ_Q3_K);
}

static void dot_q4_k(const pj_dot *d)
{
    k_dot_type(d, PJ_Q4_K);
}

static void dot_q5_k(const pj_dot *d)
{
    k_dot_type(d, PJ_Q5_K);
}

static void dot_q6_k(const pj_dot *d)
{
    k_dot_type(d, PJ_Q6_K);
}

#endif
