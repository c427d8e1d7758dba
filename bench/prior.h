/* A simulated calibration for the benchmarks of attribution: the truth plus an error with its own
 * standard deviation. */
#ifndef PJ_BENCH_BENCH_PRIOR_H
#define PJ_BENCH_BENCH_PRIOR_H

#include "attribution/build.h"

typedef struct pj_bench_prior {
    const pj_sim_spec *spec;
    double sd; /* relative */
    uint64_t seed;
} pj_bench_prior;

/* For pj_build_options.prior, with a pj_bench_prior as context. */
bool pj_bench_prior_of(void *context, const pj_rail *rail, const char *name, pj_phase phase,
                       double *power_mw, double *sd_mw);

#endif
