/* Output of `run` for a finished run: everything for people (--verbose; run_answer.h has what is
 * printed otherwise), one JSON object for programs. */
#ifndef PJ_CLI_RUN_REPORT_H
#define PJ_CLI_RUN_REPORT_H

#include "analysis/compare.h"
#include "base/json.h"
#include "base/process.h"
#include "engine/generation/engine.h"
#include "trace/run_data.h"

#include <stdio.h>

void pj_run_report_print(FILE *out, const pj_run_data *data);
/* For --depth off: ms per step, GB/s and their share of the plain read bandwidth of the weights
 * (bytes per second; NAN: unknown), hash of the logits. */
void pj_run_report_speed(FILE *out, const pj_generate_result *generated,
                         const pj_engine_facts *facts, double read_speed);
/* Acceptance rate and cost of speculative decoding's draft model; false: there was none. */
bool pj_run_report_draft_text(const pj_run_data *data, char *text, size_t bytes);
/* Breakdown of the time to the first token, for a run that opened its model. */
typedef struct pj_run_start {
    /* start of the program, arrival of the first token; monotonic */
    int64_t began_ns, first_token_ns;
    int64_t model_ns, tokenizer_ns, prefill_ns; /* durations */
} pj_run_start;

/* Prints a line; as JSON the member "start" (null without `start`). */
void pj_run_report_start(FILE *out, const pj_run_start *start);
void pj_run_report_write_start(pj_json *json, const pj_run_start *start);
/* The process's memory use: prints a line, or nothing where unknown; as JSON the member "resident"
 * (then null). */
void pj_run_report_resident(FILE *out, const pj_process_memory *memory, uint64_t weight_bytes);
void pj_run_report_write_resident(pj_json *json, const pj_process_memory *memory);
/* The member "draft": duration_ms and energy_mj (null where unknown) of the draft model's passes,
 * target_energy_mj, of the rest of prefill and decode, and energy_per_accepted_mj, the draft's for
 * each of its tokens that was accepted (null: none); null without a draft. */
void pj_run_report_write_draft(pj_json *json, const pj_run_data *data);
/* Members model_name, dtype, isa and threads. */
void pj_run_report_write_engine(pj_json *json, const pj_engine_facts *facts);
/* Members text, token_ids, prompt_ids (and texts, ids of every sequence of a batch). */
void pj_run_report_write_text(pj_json *json, const pj_generate_result *generated);

/* ---- series of repeated runs ---- */

enum { PJ_SERIES_MAX = 1000, PJ_SERIES_FIGURES = 256 };

typedef enum pj_series_group {
    PJ_SERIES_RUN,
    PJ_SERIES_PHASE,
    PJ_SERIES_COMPONENT
} pj_series_group;

/* One figure of the run, a phase or a component, over the runs of a series that have it. */
typedef struct pj_series_figure {
    pj_series_group group;
    char part[64]; /* the phase or component */
    const char *name, *unit;
    pj_moments moments; /* of the runs so far */
    pj_mean mean;       /* when the series is finished */
} pj_series_figure;

typedef struct pj_series {
    uint32_t runs, count;
    double gain_sd; /* pj_run_gain_sd, the largest: intervals of the spread leave it out */
    pj_series_figure figures[PJ_SERIES_FIGURES];
} pj_series;

void pj_series_add(pj_series *series, const pj_run_data *run);
void pj_series_finish(pj_series *series); /* computes the intervals */
void pj_series_print(FILE *out, const pj_series *series);
void pj_series_write(pj_json *json, const pj_series *series);

#endif
