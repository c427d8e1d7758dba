/* Few tokens with weights of four or five bits in blocks of 32: one weight row per lane. The
 * products of a block are added within a row's lanes as integers, and those sums of all rows are
 * gathered in one vector, so that the conversion to float, the scales and the accumulation are
 * shared by LANE_ROWS rows. A row's result depends on that row alone: however a matrix is divided
 * among threads, it is the same to the last bit.
 *
 * Included by the sets after LANE_ROWS, LANE_TOKENS and lane_rows, which multiplies LANE_ROWS rows
 * with T tokens from `token` on. */
#ifndef PJ_KERNELS_LANES_H
#define PJ_KERNELS_LANES_H

/* LANE_ROWS rows that are `apart` from each other, or the one row `first` where `count` is one,
 * times all tokens. */
INLINE void lane_group(const pj_dot *d, pj_dtype type, size_t first, size_t apart, size_t count)
{
    const pj_matrix *w = d->weights;
    lane_matrix rows = {(const char *)w->data + first * w->row_bytes,
                        count > 1 ? apart * w->row_bytes : 0};
    for (size_t t = 0; t < d->x->tokens;) {
        float sums[LANE_TOKENS][LANE_ROWS];
        size_t left = d->x->tokens - t, done = 1;
        if (LANE_TOKENS >= 4 && left >= 4)
            lane_rows(type, d, t, rows, sums, done = 4);
        else if (LANE_TOKENS >= 2 && left >= 2)
            lane_rows(type, d, t, rows, sums, done = 2);
        else
            lane_rows(type, d, t, rows, sums, 1);
        for (size_t i = 0; i < done; i++)
            for (size_t r = 0; r < count; r++)
                d->y[(t + i) * d->y_stride + first + r * apart] =
                    sums[i][r] + (d->bias ? d->bias[first + r * apart] : 0);
        t += done;
    }
}

/* Rows that remain are computed together with their predecessors, again and with the same result.
 */
INLINE void dot_lanes(const pj_dot *d, pj_dtype type)
{
    size_t rows = d->end - d->begin, apart = rows / LANE_ROWS;
    for (size_t r = 0; r < apart; r++) lane_group(d, type, d->begin + r, apart, LANE_ROWS);
    if (apart > 0 && rows % LANE_ROWS) lane_group(d, type, d->end - LANE_ROWS, 1, LANE_ROWS);
    for (size_t row = d->begin; apart == 0 && row < d->end; row++) lane_group(d, type, row, 1, 1);
}

#define LANES_DOT(name, type)               \
    static void dot_##name(const pj_dot *d) \
    {                                       \
        dot_lanes(d, PJ_##type);            \
    }
LANES_DOT(q4_0, Q4_0)
LANES_DOT(q4_1, Q4_1)
LANES_DOT(q5_0, Q5_0)
LANES_DOT(q5_1, Q5_1)
LANES_DOT(iq4_nl, IQ4_NL)
LANES_DOT(mxfp4, MXFP4)

#endif
