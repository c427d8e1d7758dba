/* Runs a program as one run of a session: its markers become spans, its CPU time and exit code
 * become settings. For `perjoule exec` and for experiment cells that run a program. */
#ifndef PJ_CLI_EXEC_RUN_H
#define PJ_CLI_EXEC_RUN_H

#include "cli/exec_child.h"
#include "cli/exec_cuda.h"
#include "cli/exec_nvtx.h"
#include "import/markers.h"
#include "power/busy.h"
#include "record/experiment_cell.h"
#include "record/run.h"

typedef struct pj_exec_request {
    const char *engine, *model, *experiment; /* NULL: "exec", unknown, none */
    const char *const *tags;                 /* NULL-terminated, or NULL */
    pj_depth depth;
    bool llama;                        /* inject the llama.cpp library whatever the program is */
    const pj_experiment_cell *cell_id; /* in an experiment, which needs tokens; or NULL */
} pj_exec_request;

typedef struct pj_exec_run {
    pj_exec_request request;
    pj_session *session; /* the caller's */
    pj_child child;      /* with `words` set, the descriptor reserved and the program found */
    pj_nvtx_memory nvtx;
    pj_exec_cuda *cuda; /* NULL: not available */
    pj_run *run;
    pj_markers *markers;
    pj_busy busy_before, busy_after; /* of the machine */
    char store_problem[PJ_ERROR_TEXT_BYTES];
    pj_run_data data;
} pj_exec_run;

/* The run has begun; the program has not been started. */
pj_status pj_exec_begin(pj_exec_run *e, pj_error *err);
/* Runs the program and ends the run. Failure of the program is not an error: see
 * child.exit_code. */
pj_status pj_exec_measure(pj_exec_run *e, pj_error *err);
/* "command", "exit_code"; processor time and its share. */
void pj_exec_command_json(const pj_exec_run *e, pj_json *json);
void pj_exec_cpu_json(const pj_exec_run *e, pj_json *json);
/* The program's share of CPU time while it ran; NAN: unknown. The model of its share of energy is
 * based on it, since no sensor separates processes. */
double pj_exec_cpu_share(const pj_exec_run *e);
void pj_exec_close(pj_exec_run *e);

#endif
