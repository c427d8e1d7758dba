/* Ratios of paired measurements, round by round, for benchmarks that interleave two variants. */
#ifndef PJ_BENCH_BENCH_RATIO_H
#define PJ_BENCH_BENCH_RATIO_H

#include "base/json.h"

#include <stdint.h>

enum { PJ_BENCH_ROUNDS_MAX = 1000 };

typedef struct pj_bench_ratio {
    double median, low, high; /* 95 % interval of the median */
} pj_bench_ratio;

double pj_bench_median(const double *values, int64_t count); /* at most PJ_BENCH_ROUNDS_MAX */
/* Ratios with[i] / without[i]. The interval is based on order statistics, so that outliers of a
 * busy machine do not widen it. */
pj_bench_ratio pj_bench_compare(const double *with, const double *without, int64_t rounds);
/* Writes an object with its three figures. */
void pj_bench_write_ratio(pj_json *json, const char *key, pj_bench_ratio ratio);

#endif
