/* What one request cost: a run's energy without model loading and without idle time between phases,
 * the cost of a typical token, and its disturbances (trace/disturbance.h). All of it is computed
 * from the rows of a run and can be recomputed from them. */
#ifndef PJ_TRACE_REQUEST_H
#define PJ_TRACE_REQUEST_H

#include "base/error.h"
#include "trace/disturbance.h"

/* The section that records loading a model. */
#define PJ_SECTION_MODEL_LOAD "model_load"

/* Sets every figure of pj_request_figures to unavailable. */
void pj_request_clear(pj_run_info *info);
/* Computes them from the run's totals, phases, sections, tokens and components, and finds
 * disturbances; `usual` NULL: no comparable runs are known. Standard deviations become the total's
 * relative ones times the energy; callers with the energy curve replace them by better ones. */
pj_status pj_request_figures(pj_run_data *data, const pj_usual_times *usual, pj_error *err);
/* Of these the typical token (trace/typical.h), after the disturbed ones are marked. */
pj_status pj_request_typical(pj_run_data *data, pj_error *err);

#endif
