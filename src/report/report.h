/* Reports: a run, a comparison or an experiment as one self-contained HTML page or as Markdown. */
#ifndef PJ_REPORT_REPORT_H
#define PJ_REPORT_REPORT_H

#include "base/buffer.h"
#include "store/store.h"

typedef struct pj_report_request {
    const char *const *ids; /* 1: a run, 2 to 4: a comparison */
    uint32_t count;
    const char *experiment; /* instead of ids */
    bool html;
} pj_report_request;

enum { PJ_REPORT_MAX_BYTES = 256 << 20 };

/* Appends the document to `out`. PJ_E_UNSUPPORTED: HTML, in a build without the dashboard. */
pj_status pj_report_make(pj_store *store, const pj_report_request *request, pj_buffer *out,
                         pj_error *err);

#endif
