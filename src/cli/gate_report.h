/* What a gate says: a sentence, JSON, annotations of a workflow on GitHub, JUnit, Markdown. */
#ifndef PJ_CLI_GATE_REPORT_H
#define PJ_CLI_GATE_REPORT_H

#include "analysis/cost_gate.h"
#include "cli/gate_runs.h"

#include <stdio.h>

enum { PJ_GATE_CRITERIA = 2 };

/* One thing that the command must not cost more than. */
typedef struct pj_gate_criterion {
    const char *name; /* "baseline" or "limit" */
    pj_cost_gate gate;
    pj_cost_look look;
    char text[1024]; /* the sentence */
} pj_gate_criterion;

typedef struct pj_gate_report {
    const char *command, *baseline; /* as given; NULL: there is none */
    const pj_gate_runs *a, *b;      /* of the baseline, of the command */
    pj_gate_figure figure;
    pj_gate_criterion criteria[PJ_GATE_CRITERIA];
    uint32_t count;
    pj_gate_outcome outcome;
} pj_gate_report;

/* Writes the criteria's sentences. */
void pj_gate_describe(pj_gate_report *report);
void pj_gate_print(const pj_gate_report *report, FILE *out);
void pj_gate_annotate(const pj_gate_report *report, FILE *out);
void pj_gate_write(const pj_gate_report *report, pj_json *json);
pj_status pj_gate_junit(const pj_gate_report *report, const char *path, pj_error *err);
pj_status pj_gate_markdown(const pj_gate_report *report, const char *path, pj_error *err);
/* The same files of a gate that could not judge: no file of an earlier gate must stand for it. */
pj_status pj_gate_junit_failed(const pj_gate_report *report, const char *why, const char *path,
                               pj_error *err);
void pj_gate_annotate_failed(const char *why, FILE *out);
pj_status pj_gate_markdown_failed(const pj_gate_report *report, const char *why, const char *path,
                                  pj_error *err);

#endif
