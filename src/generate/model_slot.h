/* Keeps a model open, so that the next run of the same model does not reload it. */
#ifndef PJ_GENERATE_MODEL_SLOT_H
#define PJ_GENERATE_MODEL_SLOT_H

#include "engine/generation/engine.h"

/* One open model. Must be zeroed first; one thread at a time. */
typedef struct pj_model_slot {
    pj_engine *engine;
    char *key;      /* model, dtype, threads, ... of the open model */
    bool is_series; /* files that changed are an error, not a reason to open the model again */
} pj_model_slot;

/* Opens the model unless it is already open, from files that have not changed since. */
pj_status pj_model_slot_open(pj_model_slot *slot, const pj_engine_options *options, pj_error *err);
bool pj_model_slot_holds(const pj_model_slot *slot, const pj_engine_options *options);
/* After work that ended so: a model on a lost device is closed, so that the next run opens it anew.
 */
void pj_model_slot_check(pj_model_slot *slot, pj_status status);
void pj_model_slot_close(pj_model_slot *slot); /* may run twice */

#endif
