/* Functions on runs that are not in the public header. */
#ifndef PJ_RECORD_RUN_H
#define PJ_RECORD_RUN_H

#include "base/progress.h"
#include "record/session.h"

/* The run leaves a model in memory, so that idle power with it can be measured afterwards. */
void pj_run_keeps_model(pj_run *run);
/* Receives the progress of loading the run's model, for live sinks. */
pj_progress *pj_run_load_progress(pj_run *run);
/* Another lane, for a second stack of spans on one thread; NULL when memory is out. */
pj_lane *pj_run_new_lane(pj_run *run);
/* Makes a run without prompt text private: sets the JSON objects stored instead of prompt and
 * output (trace/private_text.h). The output is NULL until it is known. */
pj_status pj_run_set_private(pj_run *run, const char *prompt, const char *output, pj_error *err);
/* A warning that is stored with the run and shown live. Any thread. */
void pj_run_warn(pj_run *run, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the engine's name if it was unknown at the start. */
void pj_run_set_engine(pj_run *run, const char *engine);
/* CPU time of an observed program, in addition to that of this process. */
void pj_run_add_cpu(pj_run *run, double seconds);
/* Energy of the process that ran the model, where that is not this one; NAN: unknown. */
void pj_run_set_process_energy(pj_run *run, double mj);
/* Called at the end of the run with its figures, before they are stored. */
typedef void pj_run_built_fn(void *context, const pj_run_data *data);
void pj_run_on_built(pj_run *run, pj_run_built_fn *built, void *context);
/* Like pj_run_end, but returns the finished run; the caller calls pj_run_data_fini. `data` is
 * empty (count 0, no arena) when the run could not be built. The status is that of storing: `data`
 * may be complete even on failure. `failure` (may be NULL) is the reason of a FAILED run. */
pj_status pj_run_finish(pj_run *run, pj_run_status status, const char *failure, pj_run_data *data,
                        pj_error *err);

#endif
