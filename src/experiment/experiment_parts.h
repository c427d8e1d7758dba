/* Ablated cells of an experiment: the energy of the ablated part as a difference between runs, next
 * to what attribution assigns to it. */
#ifndef PJ_EXPERIMENT_EXPERIMENT_PARTS_H
#define PJ_EXPERIMENT_EXPERIMENT_PARTS_H

#include "base/json.h"
#include "experiment/experiment_done.h"

/* Writes the array "ablations", empty if there are no such cells. */
pj_status pj_experiment_write_parts(pj_store *store, const pj_plan *plan,
                                    const pj_experiment_runs *runs, pj_json *json, pj_error *err);

#endif
