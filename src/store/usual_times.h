/* What runs comparable to one took: newest runs of the same model, type, engine, machine, kernels
 * (or device), threads, batch, depth and way of loading. */
#ifndef PJ_STORE_USUAL_TIMES_H
#define PJ_STORE_USUAL_TIMES_H

#include "store/store.h"
#include "trace/disturbance.h"

/* Medians without disturbances, of at least PJ_DISTURBED_LEAST_RUNS runs each; prompts of half to
 * twice the length count by their length. */
pj_status pj_store_usual_times(pj_store *store, const pj_run_info *info, pj_usual_times *usual,
                               pj_error *err);

#endif
