/* Experiments as JSON, from the store alone. Forms: docs/api.md, "Experiments". */
#ifndef PJ_PROFILE_EXPERIMENT_VIEW_H
#define PJ_PROFILE_EXPERIMENT_VIEW_H

#include "base/json.h"
#include "store/store.h"

pj_status pj_view_experiments(pj_store *store, pj_json *json, pj_error *err);
pj_status pj_view_experiment(pj_store *store, const char *name, pj_json *json, pj_error *err);

#endif
