/* Ablated cells of an experiment: the energy of the ablated part as a difference between runs, next
 * to what attribution assigns to it. */
#ifndef PJ_EXPERIMENT_EXPERIMENT_PARTS_H
#define PJ_EXPERIMENT_EXPERIMENT_PARTS_H

#include "experiment/experiment_view.h"

/* Fills in the ablations of a result. */
pj_status pj_experiment_ablations(pj_experiment_result *result, pj_error *err);

#endif
