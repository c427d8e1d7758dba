/* Shared by the parts of perjoule bench analysis. */
#ifndef PJ_BENCH_BENCH_TRUTH_H
#define PJ_BENCH_BENCH_TRUTH_H

#include "base/json.h"
#include "base/random.h"

typedef struct pj_bench_truth {
    pj_json *json; /* NULL: a table */
    pj_random random;
    int64_t rounds;
} pj_bench_truth;

void pj_bench_truth_say(pj_bench_truth *b, const char *key, double value, const char *unit,
                        const char *note);
double pj_bench_truth_between(pj_bench_truth *b, double lo, double hi);
double pj_bench_truth_noisy(pj_bench_truth *b, double value, double share);

/* Phases of traces whose tags were removed. */
pj_status pj_bench_truth_phases(pj_bench_truth *b, pj_error *err);
/* Recorded traces and runs of a folder of fixtures. */
pj_status pj_bench_truth_recorded(pj_bench_truth *b, const char *fixtures, pj_error *err);
/* The time of each analysis over a database of so many runs. */
pj_status pj_bench_truth_times(pj_bench_truth *b, uint32_t runs, pj_error *err);

#endif
