/* Runs a program as one run of a session: its markers become spans, its processor time and exit
 * code settings. For `perjoule exec` and for cells of experiments that run a program. */
#ifndef PJ_CLI_EXEC_RUN_H
#define PJ_CLI_EXEC_RUN_H

#include "cli/exec_child.h"
#include "profile/markers.h"
#include "profile/place.h"
#include "profile/run.h"

typedef struct pj_exec_ask {
    const char *engine, *model, *experiment; /* NULL: "exec", unknown, none */
    const char *const *tags;                 /* NULL-terminated, or NULL */
    pj_depth depth;
    bool llama;                    /* load the llama.cpp library whatever the program is */
    const pj_profile_place *place; /* in an experiment, which needs tokens; or NULL */
} pj_exec_ask;

typedef struct pj_exec_run {
    pj_exec_ask ask;
    pj_session *session; /* the caller's */
    pj_child child;      /* with `words` set, reserved and found */
    pj_run *run;
    pj_markers *markers;
    pj_busy busy_before, busy_after; /* of the machine */
    char store_problem[PJ_ERROR_TEXT_BYTES];
    pj_run_data data;
} pj_exec_run;

/* The run has begun; the program has not been started. */
pj_status pj_exec_begin(pj_exec_run *e, pj_error *err);
/* Runs the program and ends the run. A program that fails is no error: see child.exit_code. */
pj_status pj_exec_measure(pj_exec_run *e, pj_error *err);
/* "command", "exit_code"; processor time and its share. */
void pj_exec_command_json(const pj_exec_run *e, pj_json *json);
void pj_exec_cpu_json(const pj_exec_run *e, pj_json *json);
/* The program's part of the processors' time while it ran; NAN: unknown. It is what a model of its
 * part of the energy rests on: no sensor tells processes apart. */
double pj_exec_cpu_share(const pj_exec_run *e);
void pj_exec_close(pj_exec_run *e);

#endif
