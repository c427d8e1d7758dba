/* The stored runs of an experiment. */
#ifndef PJ_EXPERIMENT_EXPERIMENT_DONE_H
#define PJ_EXPERIMENT_EXPERIMENT_DONE_H

#include "analysis/plan.h"
#include "store/store.h"

/* Completed runs of one cell in one round. */
typedef struct pj_cell_runs {
    const pj_run_info **runs;
    uint32_t *blocks; /* by run */
    uint32_t count, capacity;
} pj_cell_runs;

typedef struct pj_experiment_runs {
    pj_arena arena;
    pj_run_list list;
    pj_cell_runs *cells; /* of the plan's cells */
} pj_experiment_runs;

pj_status pj_experiment_runs_load(pj_store *store, const pj_plan *plan, uint32_t round,
                                  pj_experiment_runs *runs, pj_error *err);
void pj_experiment_runs_fini(pj_experiment_runs *runs); /* may run twice */

#endif
