/* The table of `perjoule bench attribution --model-error`. */
#ifndef PJ_BENCH_BENCH_MODEL_ERROR_H
#define PJ_BENCH_BENCH_MODEL_ERROR_H

#include "attribution/build.h"
#include "base/json.h"

typedef struct pj_model_error_options {
    int64_t runs, seed; /* simulated machines per row, the first one's seed */
    const char *only;   /* only rows whose name contains this; NULL: all */
    double seconds;     /* of the run; 0: each length of the table */
    pj_json *json;      /* rows as objects; NULL: a table on standard output */
} pj_model_error_options;

/* Lets simulated sensors, declared correctly or not, observe the spans of the recorded run,
 * stretched to each length. */
pj_status pj_bench_model_error(pj_spool_reader *reader, const pj_model_error_options *options,
                               pj_error *err);

#endif
