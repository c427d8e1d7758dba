/* One function per format, for export.c only. Each writes to view->json or to `out`. */
#ifndef PJ_STORE_EXPORTS_H
#define PJ_STORE_EXPORTS_H

#include "store/export.h"
#include "store/view.h"

typedef struct pj_output {
    pj_json_write_fn *write;
    void *context;
} pj_output;

pj_status pj_export_json(pj_run_view *view, pj_error *err);
pj_status pj_export_trace(pj_run_view *view, pj_error *err);
pj_status pj_export_speedscope(pj_run_view *view, pj_error *err);
pj_status pj_export_folded(pj_run_view *view, const pj_output *out, pj_error *err);
pj_status pj_export_csv(pj_run_view *view, const pj_output *out, pj_error *err);

#endif
