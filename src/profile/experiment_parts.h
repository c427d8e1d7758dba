/* Ablated cells of an experiment: what the missing part takes by the difference of runs, beside
 * what attribution assigns to it. */
#ifndef PJ_PROFILE_EXPERIMENT_PARTS_H
#define PJ_PROFILE_EXPERIMENT_PARTS_H

#include "base/json.h"
#include "profile/experiment_done.h"

/* Writes the array "ablations", empty without such cells. */
pj_status pj_experiment_write_parts(pj_store *store, const pj_plan *plan,
                                    const pj_experiment_runs *runs, pj_json *json, pj_error *err);

#endif
