/* Few tokens in groups of four, two and one, and of six where the set has registers for them, so
 * that a weight that was loaded is used as often.
 * Included after the set's dot_rows, which multiplies S weight rows with T tokens from token t. */
#ifndef PJ_KERNELS_DOT_GROUPS_H
#define PJ_KERNELS_DOT_GROUPS_H

/* S rows, `apart` rows from each other, times all tokens. */
INLINE void dot_group(const pj_dot *d, pj_dtype type, size_t row, size_t apart, const size_t S)
{
    const pj_matrix *w = d->weights;
    const char *rows[STREAMS];
    UNROLL for (size_t s = 0; s < S; s++) rows[s] =
        (const char *)w->data + (row + s * apart) * w->row_bytes;
    for (size_t t = 0; t < d->x->tokens;) {
        size_t left = d->x->tokens - t, done = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        if (DOT_TOKENS == 6 && left >= 6 && left != 8) done = 6; /* eight: twice four */
        float sums[STREAMS][DOT_TOKENS];
        if (done == 6)
            dot_rows(type, d, t, rows, sums, S, DOT_TOKENS);
        else if (done == 4)
            dot_rows(type, d, t, rows, sums, S, 4);
        else if (done == 2)
            dot_rows(type, d, t, rows, sums, S, 2);
        else
            dot_rows(type, d, t, rows, sums, S, 1);
        for (size_t s = 0; s < S; s++)
            for (size_t i = 0; i < done; i++)
                d->y[(t + i) * d->y_stride + row + s * apart] =
                    sums[s][i] + (d->bias ? d->bias[row + s * apart] : 0);
        t += done;
    }
}

#include "engine/kernels/dot_streams.h"

#endif
