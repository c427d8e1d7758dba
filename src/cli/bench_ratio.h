/* Times of one work beside another's, round by round: what the benches that interleave print. */
#ifndef PJ_CLI_BENCH_RATIO_H
#define PJ_CLI_BENCH_RATIO_H

#include "base/json.h"

#include <stdint.h>

enum { PJ_BENCH_ROUNDS_MAX = 1000 };

typedef struct pj_bench_ratio {
    double median, low, high; /* 95 % interval of the median */
} pj_bench_ratio;

double pj_bench_median(const double *values, int64_t count); /* at most PJ_BENCH_ROUNDS_MAX */
/* Of with[i] / without[i]. The interval comes from order statistics: no outlier of a busy machine
 * widens it. */
pj_bench_ratio pj_bench_compare(const double *with, const double *without, int64_t rounds);
/* As an object of its three figures. */
void pj_bench_write_ratio(pj_json *json, const char *key, pj_bench_ratio ratio);

#endif
