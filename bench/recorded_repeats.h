/*
 * Comparison of recorded runs that are alike: joules per token of 126 configurations on an A100,
 * each measured four times. Deviations from the mean of their configuration, as they were recorded,
 * make pairs of groups without a difference, and pairs that differ by a planted share.
 */
#ifndef PJ_BENCH_RECORDED_REPEATS_H
#define PJ_BENCH_RECORDED_REPEATS_H

#include "base/error.h"

#include <stddef.h>

enum { PJ_RECORDED_RUNS = 1024 };

typedef struct pj_recorded_repeats {
    double deviations[PJ_RECORDED_RUNS]; /* of the logarithm of joules per token */
    size_t count;
    double spread; /* their standard deviation */
} pj_recorded_repeats;

/* A CSV with the columns power_draw_watts_mean and tokens_per_second_mean, in which everything
 * before the column learning_rate is the configuration. */
pj_status pj_recorded_repeats_read(const char *path, pj_recorded_repeats *repeats, pj_error *err);

/* The share of pairs with `n` (at most 10) runs a side that are called different, when one side is
 * `factor` times the other. */
double pj_recorded_repeats_different(const pj_recorded_repeats *repeats, size_t n, double factor);
/* The smallest difference that ten runs a side detect with the stated power. */
double pj_recorded_repeats_detectable(const pj_recorded_repeats *repeats);

#endif
