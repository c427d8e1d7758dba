/*
 * Running an experiment: the cells of a plan in randomised blocks on one session and one model
 * slot. The plan is stored before the first run, and every run carries its cell, block and round in
 * its settings, so that an interrupted experiment resumes where it stopped: stored runs are not
 * repeated.
 *
 * `run` runs all of it. The server proceeds in steps (open, step, close), so that single requests
 * can run between two cells.
 */
#ifndef PJ_EXPERIMENT_EXPERIMENT_H
#define PJ_EXPERIMENT_EXPERIMENT_H

#include "analysis/plan.h"
#include "experiment/experiment_view.h"
#include "generate/generate.h"

/* A cell run by another engine, named in the plan's `engines`. */
typedef struct pj_foreign_cell {
    const pj_plan *plan;
    pj_cell cell;
    pj_experiment_cell cell_id; /* for the run's settings */
    const _Atomic bool *cancel; /* or NULL */
} pj_foreign_cell;

typedef struct pj_experiment_options {
    pj_session *session; /* with a store */
    pj_model_slot *slot;
    const pj_plan *plan;
    uint32_t threads;           /* of cells that set none; 0: one per core */
    bool is_private;            /* as in pj_profile_options */
    const _Atomic bool *cancel; /* or NULL */
    /* Callbacks, each may be NULL. `find` resolves a model's name (NULL: pj_model_find); `begin` is
     * called just before a measured run, whose options it may complete (run_id, cancel), `end` just
     * after it. */
    pj_status (*find)(void *context, const char *name, const char *dtype, char *path, size_t bytes,
                      pj_error *err);
    void (*begin)(void *context, pj_profile_options *run);
    void (*end)(void *context, pj_status status, const pj_profile_result *result,
                const pj_error *err);
    void (*progress)(void *context, const pj_experiment_progress *progress);
    /* Measures and stores one run of another engine. NULL: such cells are rejected. */
    pj_status (*foreign)(void *context, const pj_foreign_cell *cell, double *joules_per_token,
                         pj_error *err);
    void *foreign_context;
    void *context;
} pj_experiment_options;

/* PJ_E_CANCELLED: stopped; completed runs are kept. */
pj_status pj_experiment_run(const pj_experiment_options *options, pj_error *err);

typedef struct pj_experiment pj_experiment;

/* Rejects impossible plans; uses only `plan` and `find`. */
pj_status pj_experiment_check(const pj_experiment_options *options, pj_error *err);
pj_status pj_experiment_store(pj_store *store, const pj_plan *plan, pj_error *err);
/* Checks and stores the plan, and loads its completed runs. The options are copied, the plan is
 * borrowed. */
pj_status pj_experiment_open(const pj_experiment_options *options, pj_experiment **experiment,
                             pj_error *err);
/* One measured run, with loading and warm-up before it. *more: further runs remain. */
pj_status pj_experiment_step(pj_experiment *experiment, bool *more, pj_error *err);
/* The model slot was used otherwise: the next step warms its model again. */
void pj_experiment_forget_warmth(pj_experiment *experiment);
void pj_experiment_close(pj_experiment *experiment); /* NULL is allowed */

#endif
