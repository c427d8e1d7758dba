/* One run of a command that is measured again and again, for the files gate_*.c and tune_*.c only.
 */
#ifndef PJ_CLI_GATE_RUNS_IMPL_H
#define PJ_CLI_GATE_RUNS_IMPL_H

#include "cli/gate_runs.h"
#include "insight/sides.h"

#include <jansson.h>

typedef struct pj_gate_run {
    double joules[PJ_GATE_FIGURES];
    /* for sweeps; NAN: unavailable */
    double prefill_joules, decode_joules; /* per input token, per output token */
    double prefill_speed, decode_speed;   /* tokens per second */
    double request_ms, output_tokens, total_ms;
    bool disturbed;
    pj_gate_energy energy;
    char machine[128], id[PJ_UUID_BYTES];
    char absence[32]; /* why there is no energy (pj_absence_name) */
} pj_gate_run;

/* Runs the command once. `run` NULL: to warm up. */
pj_status pj_gate_run_once(const pj_gate_command *command, pj_gate_run *run, pj_error *err);
/* Refuses one that is not comparable with those before it. */
pj_status pj_gate_add(pj_gate_runs *runs, const pj_gate_run *run, pj_error *err);
pj_gate_run pj_gate_run_of(const pj_run_info *info);
/* Members of an object: NAN and "" where they are absent or of another type. */
double pj_gate_number(const json_t *object, const char *name);
void pj_gate_text(const json_t *object, const char *name, char *text, size_t bytes);

#endif
