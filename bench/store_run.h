/* Synthetic runs for the storage benchmarks. */
#ifndef PJ_BENCH_BENCH_STORE_RUN_H
#define PJ_BENCH_BENCH_STORE_RUN_H

#include "trace/run_data.h"

/* Fills `data` with a run of `tokens` tokens, `layers` layers each, and `samples` power samples;
 * the same seed gives the same figures. False: out of memory. Free it with pj_run_data_fini. */
bool pj_bench_make_run(pj_run_data *data, uint64_t seed, uint32_t tokens, uint32_t layers,
                       uint32_t samples);

/* CPU time of plain inserts of `rows` rows of 20 columns, in a database with the store's settings
 * next to the given path. */
pj_status pj_store_measure_inserts(const char *beside, uint64_t rows, double *seconds,
                                   pj_error *err);

#endif
