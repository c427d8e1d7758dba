/* The two forms of a report, private to report*.c. Both are made from responses of the API, so that
 * all figures agree. */
#ifndef PJ_REPORT_REPORT_FORMS_H
#define PJ_REPORT_REPORT_FORMS_H

#include "report/report.h"

#include <jansson.h>

/* The subject of a report. */
typedef struct pj_report_subject {
    const char *const *ids; /* full ones */
    uint32_t count;         /* 0: an experiment */
    const char *experiment;
    const json_t *view;   /* the summary, the comparison or the experiment */
    const json_t *advice; /* of a single run */
    const json_t *why;    /* of two, for Markdown */
    bool without;         /* disturbances are left out */
} pj_report_subject;

#define PJ_REPORT_WITHOUT "All figures are without disturbances."

void pj_report_markdown(const pj_report_subject *subject, pj_buffer *out);
/* The dashboard's view with its data inlined; PJ_E_UNSUPPORTED in a build without it. */
pj_status pj_report_page(pj_store *store, const pj_report_subject *subject, pj_buffer *out,
                         pj_error *err);

#endif
