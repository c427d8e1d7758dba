#include "serve/otlp.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/thread.h"
#include "serve/curl.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PERIOD_MS = 15000,
    MIN_PERIOD_MS = 100,
    MAX_PERIOD_MS = 120000,
    TIMEOUT_MS = 10000,
    LAST_TIMEOUT_MS = 400, /* when the server stops */
    BODY_MAX = 16 << 20,
    HEADERS_MAX = 16,
    URL_BYTES = 1024
};

struct pj_otlp {
    pj_otlp_options options;
    pj_otlp_resource resource;
    pj_live_sink sink;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_bool is_stopping;
    bool is_started, has_failed;
    int64_t period_ms, start_ns;
    char *ended[PJ_OTLP_RUNS]; /* documents of runs whose spans are not sent yet */
    uint32_t ended_count;
    uint64_t dropped;
    char instance[PJ_UUID_BYTES], header_text[URL_BYTES];
    const char *headers[HEADERS_MAX + 2];
};

/* ---- sending --------------------------------------------------------------------------------- */

static pj_status post(pj_otlp *o, const char *path, const char *body, pj_error *err)
{
    char url[URL_BYTES + 32];
    long answer;
    size_t length = strlen(o->options.url);
    while (length && o->options.url[length - 1] == '/') length--;
    snprintf(url, sizeof url, "%.*s%s", (int)length, o->options.url, path);
    pj_curl_request request = {.url = url,
                               .headers = o->headers,
                               .body = body,
                               .body_bytes = strlen(body),
                               .timeout_ms = o->is_stopping ? LAST_TIMEOUT_MS : TIMEOUT_MS};
    return pj_curl_post(&request, &answer, err);
}

static pj_status send_metrics(pj_otlp *o, pj_error *err)
{
    pj_metrics metrics = {0};
    pj_otlp_moment moment = {.start_ns = o->start_ns, .now_ns = pj_clock_wall_ns()};
    pj_buffer body;
    pj_json json;
    o->options.service->metrics(o->options.service->context, &metrics);
    pj_power_log_machine(o->options.log, pj_clock_ns(), &moment.host_mj, &moment.host_mw);
    pj_buffer_init(&body, BODY_MAX);
    pj_json_init(&json, &body);
    pj_otlp_write_metrics(&o->resource, &metrics, &moment, &json);
    pj_status status = pj_json_finish(&json) ? post(o, "/v1/metrics", body.data, err)
                                             : pj_fail_memory(err, "telemetry");
    pj_buffer_fini(&body);
    return status;
}

/* Puts a document back to the head of the queue, or at its end; the oldest is dropped when it is
 * full. */
static void queue(pj_otlp *o, char *document, bool first)
{
    pthread_mutex_lock(&o->mutex);
    if (o->ended_count == PJ_OTLP_RUNS) {
        o->dropped++;
        if (first) {
            pthread_mutex_unlock(&o->mutex);
            pj_free(document);
            return;
        }
        pj_free(o->ended[0]);
        memmove(o->ended, o->ended + 1, --o->ended_count * sizeof *o->ended);
    }
    if (first) memmove(o->ended + 1, o->ended, o->ended_count * sizeof *o->ended);
    o->ended[first ? 0 : o->ended_count] = document;
    o->ended_count++;
    pthread_mutex_unlock(&o->mutex);
}

static char *otlp_take_first(pj_otlp *o)
{
    pthread_mutex_lock(&o->mutex);
    char *document = o->ended_count ? o->ended[0] : NULL;
    if (document) memmove(o->ended, o->ended + 1, --o->ended_count * sizeof *o->ended);
    pthread_mutex_unlock(&o->mutex);
    return document;
}

/* Sends spans, oldest first, until one fails; that one stays. */
static pj_status send_runs(pj_otlp *o, pj_error *err)
{
    pj_status status = PJ_OK;
    char *document;
    while (status == PJ_OK && (document = otlp_take_first(o))) {
        status = post(o, "/v1/traces", document, err);
        if (status == PJ_OK)
            pj_free(document);
        else
            queue(o, document, true);
    }
    return status;
}

static void otlp_report(pj_otlp *o, pj_status status, const pj_error *err)
{
    char text[PJ_ERROR_TEXT_BYTES + 100];
    bool failed = status != PJ_OK;
    if (failed == o->has_failed || !o->options.say) return;
    o->has_failed = failed;
    if (failed)
        snprintf(text, sizeof text, "telemetry could not be sent and will be retried: %s",
                 err->text);
    else
        snprintf(text, sizeof text, "telemetry resumed; %llu spans were lost",
                 (unsigned long long)o->dropped);
    o->options.say(text);
}

static pj_status otlp_send_all(pj_otlp *o)
{
    pj_error err = {0};
    pj_status status = send_metrics(o, &err);
    if (status == PJ_OK) status = send_runs(o, &err);
    if (!o->is_stopping) otlp_report(o, status, &err);
    return status;
}

static void *send_always(void *context)
{
    pj_otlp *o = context;
    int64_t pause_ms = o->period_ms;
    pthread_mutex_lock(&o->mutex);
    while (!o->is_stopping) {
        pthread_mutex_unlock(&o->mutex);
        bool sent = otlp_send_all(o) == PJ_OK;
        pause_ms = sent ? o->period_ms : 2 * pause_ms;
        if (pause_ms > MAX_PERIOD_MS) pause_ms = MAX_PERIOD_MS;
        int64_t until_ns = pj_clock_ns() + pause_ms * PJ_NS_PER_MS, left_ns;
        pthread_mutex_lock(&o->mutex);
        while (!o->is_stopping && (left_ns = until_ns - pj_clock_ns()) > 0)
            pj_cond_wait_for(&o->changed, &o->mutex, left_ns);
    }
    pthread_mutex_unlock(&o->mutex);
    if (!o->has_failed) otlp_send_all(o);
    return NULL;
}

/* ---- ended runs ------------------------------------------------------------------------------ */

static void run_end(void *context, const char *run_id, const pj_live_end *end)
{
    pj_otlp *o = context;
    pj_buffer body;
    pj_json json;
    if (!end->data) return;
    pj_buffer_init(&body, BODY_MAX);
    pj_json_init(&json, &body);
    bool written = pj_otlp_write_run(&o->resource, end->data, &json) && pj_json_finish(&json);
    char *document = written ? pj_buffer_take(&body) : NULL;
    if (document) queue(o, document, false);
    pj_buffer_fini(&body);
}

const pj_live_sink *pj_otlp_sink(const pj_otlp *otlp)
{
    return &otlp->sink;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* OTEL_EXPORTER_OTLP_HEADERS, as OpenTelemetry defines it: "name=value,name=value". Says which
 * entry is none, without a value, which may be secret. */
static pj_status read_headers(pj_otlp *o, pj_error *err)
{
    const char *given = getenv("OTEL_EXPORTER_OTLP_HEADERS");
    int count = 0;
    size_t used = 0;
    o->headers[count++] = "Content-Type: application/json";
    for (const char *p = given; p && *p;) {
        size_t length = strcspn(p, ","), name = strcspn(p, "=");
        if (name == 0 || name >= length)
            return pj_fail(err, PJ_E_INVALID,
                           "the environment's OTEL_EXPORTER_OTLP_HEADERS: entry %d is not "
                           "NAME=VALUE",
                           count);
        if (count > HEADERS_MAX || used + length + 2 >= sizeof o->header_text)
            return pj_fail(err, PJ_E_INVALID,
                           "the environment's OTEL_EXPORTER_OTLP_HEADERS: more than %d headers, "
                           "or %zu bytes",
                           HEADERS_MAX, sizeof o->header_text);
        char *line = o->header_text + used;
        used += (size_t)snprintf(line, sizeof o->header_text - used, "%.*s: %.*s", (int)name, p,
                                 (int)(length - name - 1), p + name + 1) +
                1;
        o->headers[count++] = line;
        p += length + (p[length] == ',');
    }
    o->headers[count] = NULL;
    return PJ_OK;
}

static pj_status read_period(pj_otlp *o, pj_error *err)
{
    const char *given = getenv("OTEL_METRIC_EXPORT_INTERVAL");
    char *end = NULL;
    o->period_ms = given && *given ? strtoll(given, &end, 10) : PERIOD_MS;
    if (!(end && *end) && o->period_ms >= MIN_PERIOD_MS && o->period_ms <= MAX_PERIOD_MS)
        return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "the environment's OTEL_METRIC_EXPORT_INTERVAL=%.40s: must be %d to %d "
                   "milliseconds",
                   given, MIN_PERIOD_MS, MAX_PERIOD_MS);
}

pj_status pj_otlp_check_url(const char *url, pj_error *err)
{
    const char *host = strncmp(url, "http://", 7) == 0    ? url + 7
                       : strncmp(url, "https://", 8) == 0 ? url + 8
                                                          : "";
    if (*host && *host != '/' && !url[strcspn(url, "?#")] && strlen(url) < URL_BYTES) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "must be the address of a collector without a query, such as "
                   "http://localhost:4318");
}

pj_status pj_otlp_open(const pj_otlp_options *options, pj_otlp **otlp, pj_error *err)
{
    pj_status status = pj_otlp_check_url(options->url, err);
    if (status != PJ_OK) pj_error_prefix(err, "--otlp");
    if (status == PJ_OK) status = pj_curl_load(err);
    if (status != PJ_OK) return status;
    pj_otlp *o = pj_alloc(1, sizeof *o);
    if (!o) return pj_fail_memory(err, "telemetry");
    o->options = *options;
    status = read_period(o, err);
    if (status == PJ_OK) status = read_headers(o, err);
    if (status != PJ_OK) {
        pj_free(o);
        return status;
    }
    o->start_ns = pj_clock_wall_ns();
    o->sink = (pj_live_sink){.version = PJ_LIVE_SINK_VERSION, .context = o, .run_end = run_end};
    pj_uuid7(o->instance);
    o->resource = (pj_otlp_resource){options->host, o->instance, options->renames};
    pthread_mutex_init(&o->mutex, NULL);
    pj_cond_init(&o->changed);
    *otlp = o;
    return PJ_OK;
}

pj_status pj_otlp_start(pj_otlp *o, pj_error *err)
{
    pj_status status = pj_thread_start(&o->thread, "pj-otlp", send_always, o, err);
    o->is_started = status == PJ_OK;
    return status;
}

static void report_unsent(const pj_otlp *o)
{
    char text[100];
    snprintf(text, sizeof text, "telemetry of %u run%s was not sent", o->ended_count,
             o->ended_count == 1 ? "" : "s");
    if (o->ended_count && o->options.say) o->options.say(text);
}

void pj_otlp_close(pj_otlp *o)
{
    if (!o) return;
    pthread_mutex_lock(&o->mutex);
    o->is_stopping = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
    if (o->is_started) pthread_join(o->thread, NULL);
    report_unsent(o);
    for (uint32_t i = 0; i < o->ended_count; i++) pj_free(o->ended[i]);
    pthread_mutex_destroy(&o->mutex);
    pthread_cond_destroy(&o->changed);
    pj_free(o);
}
