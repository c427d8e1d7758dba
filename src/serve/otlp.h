/* Sends telemetry to an OpenTelemetry collector over OTLP/HTTP: the figures of /metrics every 15
 * seconds (OTEL_METRIC_EXPORT_INTERVAL, in milliseconds), and a span for every run that ends. An
 * unreachable collector is retried with exponential backoff. Counters are cumulative, so no energy
 * is lost meanwhile; the last PJ_OTLP_RUNS spans are kept. */
#ifndef PJ_SERVE_OTLP_H
#define PJ_SERVE_OTLP_H

#include "serve/otlp_json.h"
#include "serve/power_log.h"
#include "trace/live.h"

enum { PJ_OTLP_RUNS = 256 };

typedef struct pj_otlp pj_otlp;

typedef struct pj_otlp_options {
    const char *url;            /* of the collector: "http://localhost:4318" */
    const char *host;           /* the machine's name */
    const char *const *renames; /* as in otlp_json.h */
    const pj_service *service;  /* provides metrics and views of runs */
    pj_power_log *log;          /* NULL: no meter */
    void (*say)(
        const char *text); /* gets a message when sending first fails and when it works again */
} pj_otlp_options;

pj_status pj_otlp_check_url(const char *url, pj_error *err);
/* Everything is borrowed. Fails without libcurl or for an invalid URL. Sends nothing yet. */
pj_status pj_otlp_open(const pj_otlp_options *options, pj_otlp **otlp, pj_error *err);
/* Starts sending; the service may be called from now on. */
pj_status pj_otlp_start(pj_otlp *otlp, pj_error *err);
/* Sends what is pending, within a second, and stops. NULL is allowed. */
void pj_otlp_close(pj_otlp *otlp);
/* The sink to add to a session: receives the ends of runs. Borrowed. */
const pj_live_sink *pj_otlp_sink(const pj_otlp *otlp);

#endif
