/* Sends telemetry to an OpenTelemetry collector over OTLP/HTTP: the figures of /metrics every 15
 * seconds (OTEL_METRIC_EXPORT_INTERVAL, in milliseconds), and a span for every run that ends. A
 * collector that is away is tried again with growing pauses. Counters are cumulative, so that
 * nothing is lost by that; of spans the last PJ_OTLP_RUNS are kept meanwhile. */
#ifndef PJ_SERVE_OTLP_H
#define PJ_SERVE_OTLP_H

#include "serve/otlp_json.h"
#include "serve/power_log.h"
#include "trace/live.h"

enum { PJ_OTLP_RUNS = 256 };

typedef struct pj_otlp pj_otlp;

typedef struct pj_otlp_options {
    const char *url;  /* of the collector: "http://localhost:4318" */
    const char *host; /* the machine's name */
    pj_otlp_names names;
    const pj_service *service;     /* figures, and views of runs */
    pj_power_log *log;             /* NULL: no meter */
    void (*say)(const char *text); /* told when sending fails for the first time, and works again */
} pj_otlp_options;

/* Everything is borrowed. Fails when there is no libcurl or the URL is not one. Sends nothing yet.
 */
pj_status pj_otlp_open(const pj_otlp_options *options, pj_otlp **otlp, pj_error *err);
/* Begins to send; from now on the service is called. */
pj_status pj_otlp_start(pj_otlp *otlp, pj_error *err);
/* Sends what is there, within a second. NULL is allowed. */
void pj_otlp_close(pj_otlp *otlp);
/* For a session: learns of ended runs. Borrowed. */
const pj_live_sink *pj_otlp_sink(const pj_otlp *otlp);

#endif
