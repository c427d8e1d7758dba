#include "bench/window_score.h"

#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>

enum { DRAWS = 2000 };

typedef struct draws {
    double errors[DRAWS], others[DRAWS], widths[DRAWS], needed[DRAWS];
    size_t count;
} draws;

static double quantile(double *values, size_t count, double q)
{
    if (count == 0) return NAN;
    pj_sort_doubles(values, count);
    return values[(size_t)(q * (double)(count - 1))];
}

bool pj_window_score_judge(const pj_curve *curve, const pj_window_load *load,
                           const double length_ms[2], uint64_t seed, pj_window_score *score)
{
    pj_random random = {seed};
    size_t covered = 0;
    draws *d = pj_alloc(1, sizeof *d);
    bool fits = (double)(load->end_ns - load->begin_ns) > length_ms[1] * 1e6;
    for (int i = 0; d && fits && i < DRAWS; i++) {
        double ms = length_ms[0] * pow(length_ms[1] / length_ms[0], pj_random_unit(&random));
        int64_t length = (int64_t)(ms * 1e6);
        double room = (double)(load->end_ns - load->begin_ns - length);
        int64_t from = load->begin_ns + (int64_t)(pj_random_unit(&random) * room);
        pj_curve_energy e;
        pj_curve_query(curve, from, from + length, &e);
        if (isnan(e.energy_mj)) continue;
        double true_mj = load->truth(load->context, from, from + length);
        double off = fabs(e.energy_mj - true_mj), half_width = 1.96 * e.sd_mj;
        double other = load->other ? load->other(load->context, from, from + length) : true_mj;
        d->errors[d->count] = off / true_mj;
        d->others[d->count] = fabs(other - true_mj) / true_mj;
        d->widths[d->count] = half_width / true_mj;
        d->needed[d->count++] = off / half_width;
        covered += off <= half_width;
    }
    if (d && fits)
        *score = (pj_window_score){.median = quantile(d->errors, d->count, 0.5),
                                   .p95 = quantile(d->errors, d->count, 0.95),
                                   .other_median = quantile(d->others, d->count, 0.5),
                                   .other_p95 = quantile(d->others, d->count, 0.95),
                                   .half_width = quantile(d->widths, d->count, 0.5),
                                   .covered = (double)covered / (double)d->count,
                                   .needed = quantile(d->needed, d->count, 0.95),
                                   .unavailable = 1 - (double)d->count / DRAWS};
    pj_free(d);
    return d && fits;
}
