/*
 * The server's metrics and its runs as OpenTelemetry Protocol documents (OTLP/HTTP, JSON encoding).
 *
 * Metrics have the names of OpenTelemetry's hardware conventions: hw.energy and hw.power for each
 * rail, hw.host.energy and hw.host.power for the machine. The machine's figures contain those of
 * the rails: never add the two. A run is a span with the GenAI attributes, its phases are children.
 * A figure that is unavailable is left out, never sent as 0.
 */
#ifndef PJ_SERVE_OTLP_JSON_H
#define PJ_SERVE_OTLP_JSON_H

#include "base/json.h"
#include "net/service.h"
#include "trace/run_data.h"

/* Another name for a metric or attribute, "hw.energy=acme.energy": fails unless it is OLD=NEW with
 * an OLD that is sent. */
pj_status pj_otlp_check_rename(const char *rename, pj_error *err);

typedef struct pj_otlp_resource {
    const char *host, *instance; /* the machine's name; changes with every start of the server */
    const char *const *renames;
} pj_otlp_resource;

typedef struct pj_otlp_moment {
    int64_t start_ns, now_ns; /* wall clock; counters count from `start_ns` */
    double host_mj, host_mw;  /* of the machine; NAN: unavailable */
} pj_otlp_moment;

void pj_otlp_write_metrics(const pj_otlp_resource *resource, const pj_metrics *metrics,
                           const pj_otlp_moment *moment, pj_json *out);
/* Spans of one run and its phases. False: its id is no UUID. */
bool pj_otlp_write_run(const pj_otlp_resource *resource, const pj_run_data *run, pj_json *out);

#endif
