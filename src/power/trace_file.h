/* Recorded power traces: the CSV that `perjoule top --record` writes (timestamp_ms, one NAME_mw
 * column per rail, phase, unix_ms and monotonic_ms), our exported power_samples.csv, logs of
 * `nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv` and of `nvidia-smi dmon -o DT`,
 * Zeus's logs of power and of windows, and the output of powermetrics. Files are untrusted: a cell
 * that is not a number is a gap, a truncated or ragged line is skipped, memory is bounded by the
 * file's size. */
#ifndef PJ_POWER_TRACE_FILE_H
#define PJ_POWER_TRACE_FILE_H

#include "base/error.h"
#include "trace/rail.h"

enum { PJ_TRACE_MAX_BYTES = 512 << 20 };

typedef struct pj_trace {
    uint32_t rail_count;
    pj_rail rails[PJ_MAX_RAILS];
    size_t row_count;
    double origin_unix_ms; /* wall time of the first row, since 1970; NAN: not recorded */
    double *t_ms;          /* from the first row, ascending */
    float *window_ms;      /* true averaging time of the row, 0: unknown; NULL: unknown for all */
    float *mw;             /* row_count x rail_count; NAN where the cell holds no number */
    /* same shape: the cell states that there was no value (it is not merely empty) */
    bool *gap;
    bool polled;    /* rows are polls that may repeat a reading, not updates */
    size_t skipped; /* lines that could not be parsed */
} pj_trace;

/* `text` need not end in NUL. On failure the trace is empty. */
pj_status pj_trace_read_csv(const char *text, size_t bytes, const char *name, pj_trace *trace,
                            pj_error *err);
/* As above from a stream of powermetrics' property lists, separated by NUL bytes. */
pj_status pj_trace_read_plist(const char *text, size_t bytes, const char *name, pj_trace *trace,
                              pj_error *err);
/* As above from what powermetrics prints without `--format plist`. */
pj_status pj_trace_read_powermetrics(const char *text, size_t bytes, const char *name,
                                     pj_trace *trace, pj_error *err);
/* Any of these, by how the file begins. */
pj_status pj_trace_read(const char *text, size_t bytes, const char *name, pj_trace *trace,
                        pj_error *err);
void pj_trace_fini(pj_trace *trace); /* may run twice */

/* PJ_MODELLED if any rail is. */
static inline pj_source_quality pj_trace_quality(const pj_trace *trace)
{
    for (uint32_t r = 0; r < trace->rail_count; r++)
        if (trace->rails[r].quality == PJ_MODELLED) return PJ_MODELLED;
    return PJ_MEASURED;
}

#endif
