/*
 * Energy and time of a request before it runs, from what this machine's runs showed: FLOPs and
 * bytes of prefill and decode in closed form, one non-negative coefficient for each, fitted to
 * relative errors. The interval is the spread of the errors for runs left out one at a time
 * (jackknife+), so that its coverage is checked by construction. There is no
 * extrapolation beyond the range of those runs. Pure.
 */
#ifndef PJ_ANALYSIS_PREDICT_H
#define PJ_ANALYSIS_PREDICT_H

#include "base/ids.h"
#include "trace/attention_work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_PREDICT_TERMS = 5, PJ_PREDICT_LEAST = 8, PJ_PREDICT_NEAREST = 3 };

/* The work of a request, from architecture and lengths. */
typedef struct pj_request_work {
    double weight_bytes; /* read by one decode step of one sequence */
    double flops_per_token;
    pj_attention_work attention;
    double input, output, batch; /* tokens of each sequence */
} pj_request_work;

typedef struct pj_known_run {
    pj_request_work work;
    double joules, seconds; /* of the request */
    char id[PJ_UUID_BYTES]; /* "": unknown */
} pj_known_run;

typedef struct pj_prediction {
    double joules, joules_lo, joules_hi; /* 95 % */
    double seconds, seconds_lo, seconds_hi;
    double median_error; /* relative, leave-one-out */
    size_t runs;
    const char *refusal; /* NULL: predicted */
    /* Indices of the runs whose work is most like the request, nearest first. */
    size_t nearest[PJ_PREDICT_NEAREST], nearest_count;
} pj_prediction;

void pj_predict(const pj_known_run *runs, size_t count, const pj_request_work *work,
                pj_prediction *result);

#endif
