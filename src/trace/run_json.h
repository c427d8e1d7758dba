/* The JSON objects in a spool: facts of the run, rails with their baselines, warnings, the end.
 * They are read back by this process or, after a crash, by another. */
#ifndef PJ_TRACE_RUN_JSON_H
#define PJ_TRACE_RUN_JSON_H

#include "base/json.h"
#include "trace/run_data.h"
#include "trace/spool.h"

/* Facts known during the run; figures are computed when the run is built. `start_ns` is when
 * recording began, 0 before that. */
void pj_run_info_write(pj_json *json, const pj_run_info *info, int64_t start_ns);
bool pj_run_is_json_object(const char *text); /* valid JSON that can be embedded as it is */
/* Members present in the text replace those in `info`; strings go to the arena. Lenient: a member
 * of the wrong type is ignored. */
pj_status pj_run_info_read(const char *text, size_t bytes, pj_arena *arena, pj_run_info *info,
                           int64_t *start_ns, pj_error *err);

void pj_rail_write(pj_json *json, uint32_t index, const pj_rail *rail, double baseline_mw,
                   double baseline_sd_mw);
pj_status pj_rail_read(const char *text, size_t bytes, uint32_t *index, pj_rail *rail,
                       double *baseline_mw, double *baseline_sd_mw, pj_error *err);

pj_status pj_warning_read(const char *text, size_t bytes, pj_arena *arena, int64_t *t_ns,
                          const char **code, const char **sentence, pj_error *err);

void pj_run_end_write(pj_json *json, int64_t t_ns, pj_run_status status);
pj_status pj_run_end_read(const char *text, size_t bytes, int64_t *t_ns, pj_run_status *status,
                          pj_error *err);

/* ---- as records of a spool ------------------------------------------------------------------ */

/* Appends records; the first error is kept, and nothing is appended after it. */
typedef struct pj_spool_writer {
    pj_spool *spool;
    pj_error *err;
    pj_status status;
} pj_spool_writer;

void pj_spool_put(pj_spool_writer *w, pj_record_type type, const void *payload, size_t bytes);
void pj_spool_put_info(pj_spool_writer *w, const pj_run_info *info, int64_t start_ns);
void pj_spool_put_rail(pj_spool_writer *w, uint32_t index, const pj_rail *rail, double baseline_mw,
                       double baseline_sd_mw);
void pj_spool_put_device(pj_spool_writer *w, const pj_device_row *device);
void pj_spool_put_warning(pj_spool_writer *w, int64_t t_ns, const char *code, const char *sentence);
void pj_spool_put_end(pj_spool_writer *w, int64_t t_ns, pj_run_status status);
void pj_spool_put_name(pj_spool_writer *w, uint32_t id, const char *name);
void pj_spool_put_span(pj_spool_writer *w, const pj_span *span);
void pj_spool_put_reading(pj_spool_writer *w, const pj_reading *reading);

#endif
