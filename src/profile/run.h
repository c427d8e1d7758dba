/* A run as profile sees it: the public calls on it, and what the public header does not offer. */
#ifndef PJ_PROFILE_RUN_H
#define PJ_PROFILE_RUN_H

#include "profile/session.h"

/* The run leaves a model in memory: idle power with it can be measured once the run is over. */
void pj_run_keeps_model(pj_run *run);
/* Makes a run private whose prompt was left out: what is kept of prompt and output, as JSON objects
 * (trace/private_text.h). The output is NULL until it is known. */
pj_status pj_run_set_private(pj_run *run, const char *prompt, const char *output, pj_error *err);
/* A warning that is stored with the run and shown live. Any thread. */
void pj_run_warn(pj_run *run, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As pj_run_end, and gives the finished run to the caller, who calls pj_run_data_fini. `data` is
 * empty (count 0, no arena) when the run could not even be built. The status is that of storing:
 * `data` may be whole when the status is a failure. `failure` (may be NULL) says why a run
 * FAILED. */
pj_status pj_run_finish(pj_run *run, pj_run_status status, const char *failure, pj_run_data *data,
                        pj_error *err);

#endif
