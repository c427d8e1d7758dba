/* Few tokens: weight rows are read in STREAMS interleaved streams, which the prefetchers follow,
 * and the remainder one by one. Included after the set's dot_group, which multiplies S rows `apart`
 * from each other with all tokens. */
#ifndef PJ_KERNELS_DOT_STREAMS_H
#define PJ_KERNELS_DOT_STREAMS_H

INLINE void dot_type(const pj_dot *d, pj_dtype type)
{
    size_t apart = (d->end - d->begin) / STREAMS;
    for (size_t r = 0; r < apart; r++) dot_group(d, type, d->begin + r, apart, STREAMS);
    for (size_t row = d->begin + apart * STREAMS; row < d->end; row++)
        dot_group(d, type, row, 1, 1);
}

#endif
