/* How honest the intervals of an energy curve are: windows of random length at random places,
 * compared with a known truth. */
#ifndef PJ_BENCH_WINDOW_SCORE_H
#define PJ_BENCH_WINDOW_SCORE_H

#include "power/curve.h"

/* Energy of [begin, end) in mJ. */
typedef double (*pj_window_energy)(const void *context, int64_t begin_ns, int64_t end_ns);

typedef struct pj_window_load {
    pj_window_energy truth; /* as this sensor should state it */
    pj_window_energy other; /* another estimate, whose errors are stated beside; NULL: none */
    const void *context;
    int64_t begin_ns, end_ns; /* where both are known */
} pj_window_load;

typedef struct pj_window_score {
    double median, p95; /* |error| / truth */
    double other_median, other_p95;
    double half_width; /* median of the 95 % interval's, relative to the truth */
    double covered;    /* share of windows; of a nominal 95 % */
    double needed; /* 95th percentile of |error| / half width: 1 is right, 0.5 twice as wide as need
                      be */
    double unavailable; /* share of all windows */
} pj_window_score;

/* Lengths are drawn between the two on a logarithmic scale, places evenly. Fails if the load is
 * shorter than the longest window, or when out of memory. */
bool pj_window_score_judge(const pj_curve *curve, const pj_window_load *load,
                           const double length_ms[2], uint64_t seed, pj_window_score *score);

#endif
