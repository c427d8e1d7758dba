/*
 * Running an experiment: the cells of a plan in randomised blocks on one session and one model
 * slot. The plan is stored before the first run, and every run carries its cell, block and round in
 * its settings, so that an experiment that was killed goes on where it stopped: what is stored is
 * done.
 */
#ifndef PJ_PROFILE_EXPERIMENT_H
#define PJ_PROFILE_EXPERIMENT_H

#include "analysis/plan.h"
#include "profile/generate.h"

typedef struct pj_experiment_progress {
    uint32_t done, total; /* runs; total: as many as there can be */
    uint32_t block, cell;
    char name[96];           /* of the cell */
    double joules_per_token; /* of the run that ended; NAN: unknown, or none has */
    double left_s;           /* at the pace so far; NAN: unknown */
} pj_experiment_progress;

typedef struct pj_experiment_options {
    pj_session *session; /* with a store */
    pj_model_slot *slot;
    const pj_plan *plan;
    const char *models;    /* folder of models, NULL: as pj_model_find */
    const char *eval_text; /* whose loss is measured; NULL: none */
    size_t eval_bytes;
    const _Atomic bool *cancel;                                              /* or NULL */
    void (*progress)(void *context, const pj_experiment_progress *progress); /* or NULL */
    void *context;
} pj_experiment_options;

/* PJ_E_CANCELLED: stopped; what is done is kept. */
pj_status pj_experiment_run(const pj_experiment_options *options, pj_error *err);

#endif
