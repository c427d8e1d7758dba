/*
 * What one request cost: a run's energy without loading the model and without idle time between its
 * phases, what a typical token cost, and which decode steps the machine disturbed. All of it follows
 * from the rows of a run and can be computed again from them.
 */
#ifndef PJ_TRACE_REQUEST_H
#define PJ_TRACE_REQUEST_H

#include "base/error.h"
#include "trace/run_data.h"

/* The section that loading a model is recorded as. */
#define PJ_SECTION_MODEL_LOAD "model_load"

/* A decode step counts as disturbed when it took more than this many times the running median of
 * the steps around it (PJ_DISTURBED_WINDOW of them, itself included), after what its own work
 * explains. Runs of fewer than PJ_DISTURBED_LEAST_STEPS steps are not judged. */
#define PJ_DISTURBED_RATIO 3.0
enum { PJ_DISTURBED_WINDOW = 31, PJ_DISTURBED_LEAST_STEPS = 5 };

/* Clears every figure that pj_request_figures sets: unavailable. */
void pj_request_clear(pj_run_info *info);
/* Computes them from the run's totals, phases, sections, tokens and components, and marks disturbed
 * tokens. request_sd_mj becomes the total's relative standard deviation times the request's energy;
 * whoever knows the energy curve sets a better one afterwards. */
pj_status pj_request_figures(pj_run_data *data, pj_error *err);

/* The end of the step that begins with token row `first`: rows of one phase and position are one
 * step of a batch, and consecutive. */
uint32_t pj_step_end(const pj_run_data *data, uint32_t first);

#endif
