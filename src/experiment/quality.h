/* What the cells of an experiment cost in quality: the loss on a text, the answers to tasks. Both
 * belong to a model and a type of weights; cells that share them share the values. */
#ifndef PJ_EXPERIMENT_QUALITY_H
#define PJ_EXPERIMENT_QUALITY_H

#include "analysis/plan.h"
#include "analysis/tasks.h"
#include "engine/generation/engine.h"
#include "store/store.h"

#include <jansson.h>

typedef struct pj_quality {
    const pj_plan *plan;
    pj_store *store;
    json_t *known; /* as stored: losses by cell, and `scores` */
    char *text;    /* whose loss is measured; NULL: none */
    size_t bytes;
    pj_arena arena;
    pj_tasks tasks; /* without any: nothing is scored */
    char tasks_hash[65];
} pj_quality;

/* Reads the text and the tasks that the plan names. Close it in every case. */
pj_status pj_quality_open(pj_quality *quality, const pj_plan *plan, pj_error *err);
/* Reads what is known of a stored plan. PJ_E_INVALID: other tasks were scored before. */
pj_status pj_quality_load(pj_quality *quality, pj_store *store, pj_error *err);
void pj_quality_close(pj_quality *quality); /* may run twice */

/* Whether something is to be measured for the cell. */
bool pj_quality_is_open(const pj_quality *quality, uint32_t cell);
/* Measures and stores it with the cell's model. */
pj_status pj_quality_measure(pj_quality *quality, pj_engine *engine, uint32_t cell,
                             const _Atomic bool *cancel, pj_error *err);

/* In what is stored, by pj_store_experiment_get; NULL: unknown. */
const json_t *pj_quality_loss(const json_t *known, uint32_t cell);
const char *pj_quality_outcomes(const json_t *known, uint32_t cell); /* analysis/score.h */

#endif
