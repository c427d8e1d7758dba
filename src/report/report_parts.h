/* The parts of reports, private to report*.c. All write to the document from the API's JSON. */
#ifndef PJ_REPORT_REPORT_PARTS_H
#define PJ_REPORT_REPORT_PARTS_H

#include "report/document.h"
#include "store/store.h"

#include <jansson.h>

/* The documents below their titles. `advice`: findings about the run. */
pj_status pj_report_run(pj_document *d, pj_store *store, const json_t *run, const json_t *advice,
                        pj_error *err);
void pj_report_comparison(pj_document *d, const json_t *view);
void pj_report_experiment(pj_document *d, pj_store *store, const json_t *view);

/* Four digits, and all of a number of thousands. */
void pj_report_four_digits(char *out, size_t bytes, double value);
/* A value with as many digits as its interval deserves: down to the second digit of the reach. */
void pj_report_rounded(char *out, size_t bytes, double value, double reach);
/* "0.2431 ± 0.0021 J", "unavailable" */
void pj_report_figure(char *out, size_t bytes, double value, double reach, const char *unit);
void pj_report_number_cell(pj_document *d, double value);
/* Where the energy comes from. `of`: "A: " in a comparison, "" for a run by itself. */
void pj_report_trust(pj_document *d, const json_t *run, const char *of);
/* `comparison`: how the document's ratios were tested, or "" if it has none. */
void pj_report_method(pj_document *d, const char *comparison);

#endif
