/* Sums of each class of work over whole runs: the small table from which runs are compared.
 */
#ifndef PJ_STORE_CLASS_SUMS_H
#define PJ_STORE_CLASS_SUMS_H

#include "store/store.h"

/* A class's row of one run. The classes of a run cover all of its time and energy. */
typedef struct pj_class_sum {
    uint32_t run;     /* index into the given ids */
    uint8_t phase;    /* pj_phase, PJ_PHASE_COUNT: unknown */
    const char *name; /* of the component: "attention" for "attention/softmax" */
    double time_ms, energy_mj, energy_sd_mj, flops, bytes; /* NAN: unavailable */
} pj_class_sum;

/* Rows of all runs, in the order of the ids. */
pj_status pj_store_class_sums(pj_store *store, const char *const *ids, uint32_t count,
                              pj_arena *arena, pj_class_sum **sums, uint32_t *sum_count,
                              pj_error *err);

#endif
