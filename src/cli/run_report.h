/* What `run` prints of a finished run: for people a table, for programs one JSON object. */
#ifndef PJ_CLI_RUN_REPORT_H
#define PJ_CLI_RUN_REPORT_H

#include "base/json.h"
#include "llm/engine.h"
#include "trace/run_data.h"

#include <stdio.h>

void pj_run_report_print(FILE *out, const pj_run_data *data);
/* Speed alone, for --depth off: tokens per second, ms per token, GB/s and their share of what plain
 * reading of the weights gives (bytes per second; NAN: not known), hash of the logits. */
void pj_run_report_speed(FILE *out, const pj_run_data *data, const pj_generate_result *generated,
                         const pj_engine_facts *facts, double read_speed);
/* Members text, token_ids, prompt_ids (and texts, ids of every sequence of a batch). */
void pj_run_report_write_text(pj_json *json, const pj_generate_result *generated);

/* ---- series of repeated runs ---- */

enum { PJ_SERIES_MAX = 1000 };

/* One figure over the runs of a series; NAN where fewer than two have it. */
typedef struct pj_series_figure {
    const char *name, *unit;
    double values[PJ_SERIES_MAX];
    uint32_t count;
    double mean, sd, low, high; /* 95 % interval of the mean */
} pj_series_figure;

enum { PJ_SERIES_FIGURES = 8 };

typedef struct pj_series {
    uint32_t runs;
    pj_series_figure figures[PJ_SERIES_FIGURES];
} pj_series;

void pj_series_add(pj_series *series, const pj_run_info *info);
void pj_series_finish(pj_series *series); /* works out means and intervals */
void pj_series_print(FILE *out, const pj_series *series);
void pj_series_write(pj_json *json, const pj_series *series);
/* Quantile 0.975 of Student's t with that many degrees of freedom. */
double pj_student_t975(uint32_t degrees);

#endif
