/* A sweep of one limit: measuring a command under each of its settings, and what comes out. */
#ifndef PJ_CLI_TUNE_H
#define PJ_CLI_TUNE_H

#include "analysis/sweep.h"
#include "cli/gate_runs.h"
#include "cli/terminal.h"
#include "power/limits.h"

#include <stdio.h>

typedef enum pj_tune_part {
    PJ_TUNE_PREFILL = 0, /* per input token */
    PJ_TUNE_DECODE,      /* per output token */
    PJ_TUNE_REQUEST,     /* per output token; without tokens: the run */
    PJ_TUNE_PARTS
} pj_tune_part;

typedef struct pj_tune {
    const pj_limits *limits;
    const pj_limit *limit;
    double most_loss;                   /* of speed, a fraction */
    double settings[PJ_SWEEP_SETTINGS]; /* ascending */
    uint32_t setting_count, block_count;
    pj_sweep parts[PJ_TUNE_PARTS];
    pj_sweep_result results[PJ_TUNE_PARTS];
    pj_gate_runs runs; /* all, for what their energy is of */
    bool tokens;       /* the command reports them */
} pj_tune;

/* Settings from 40 % (or the device's least) to the largest of what is in force and the default. */
void pj_tune_settings(pj_tune *tune, uint32_t count);
/* Measures and judges. The limit is left at whatever was set last. */
pj_status pj_tune_sweep(pj_tune *tune, const pj_gate_command *command, bool warm_up, pj_error *err);

pj_text pj_tune_setting_text(const pj_limit *limit, double value); /* "220 W" */
pj_text pj_tune_bounds_text(const pj_limit *limit);                /* "100 to 400 W" */
const char *pj_limit_what_name(pj_limit_what what);                /* "power", "clock" */
/* What can be set, and what a sweep would do; nothing is changed. */
void pj_tune_survey_print(const pj_limits *limits, FILE *out);
void pj_tune_survey_write(const pj_limits *limits, pj_json *json);
void pj_tune_print(const pj_tune *tune, FILE *out);
void pj_tune_write(const pj_tune *tune, pj_json *json);

#endif
