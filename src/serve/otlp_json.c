#include "serve/otlp_json.h"

#include "base/ids.h"
#include "trace/summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CUMULATIVE = 2, KIND_INTERNAL = 1, STATUS_ERROR = 2, NANOS_BYTES = 24 };

/* ---- names ----------------------------------------------------------------------------------- */

static const char *const known[] = {"hw.energy",
                                    "hw.power",
                                    "hw.host.energy",
                                    "hw.host.power",
                                    "perjoule.run.energy",
                                    "perjoule.tokens",
                                    "perjoule.runs",
                                    "gen_ai.infrastructure.energy",
                                    NULL};

pj_status pj_otlp_check_rename(const char *rename, pj_error *err)
{
    size_t length = strcspn(rename, "=");
    bool found = false;
    for (int i = 0; known[i]; i++)
        found |= strlen(known[i]) == length && strncmp(known[i], rename, length) == 0;
    if (found && rename[length] && rename[length + 1]) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "must be OLD=NEW, where OLD is one of hw.energy, hw.power, hw.host.energy, "
                   "hw.host.power, perjoule.run.energy, perjoule.tokens, perjoule.runs, "
                   "gen_ai.infrastructure.energy");
}

static const char *otlp_json_name_of(const pj_otlp_resource *r, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *rename = r->renames; rename && *rename; rename++)
        if (strncmp(*rename, name, length) == 0 && (*rename)[length] == '=')
            return *rename + length + 1;
    return name;
}

/* ---- parts of documents ---------------------------------------------------------------------- */

/* 64-bit integers are strings in OTLP's JSON. */
static void kv_int64(pj_json *out, const char *key, int64_t value)
{
    char text[NANOS_BYTES];
    snprintf(text, sizeof text, "%" PRId64, value);
    pj_json_kv_string(out, key, text);
}

/* Opens {"key": KEY, "value": {. */
static void open_attribute(pj_json *out, const char *key)
{
    pj_json_object_begin(out);
    pj_json_kv_string(out, "key", key);
    pj_json_kv_object_begin(out, "value");
}

static void close_attribute(pj_json *out)
{
    pj_json_object_end(out);
    pj_json_object_end(out);
}

static void attribute_text(pj_json *out, const char *key, const char *value)
{
    if (!value) return;
    open_attribute(out, key);
    pj_json_kv_string(out, "stringValue", value);
    close_attribute(out);
}

static void attribute_double(pj_json *out, const char *key, double value)
{
    if (isnan(value)) return;
    open_attribute(out, key);
    pj_json_kv_double(out, "doubleValue", value);
    close_attribute(out);
}

static void attribute_int(pj_json *out, const char *key, int64_t value)
{
    open_attribute(out, key);
    kv_int64(out, "intValue", value);
    close_attribute(out);
}

static void begin_attributes(pj_json *out)
{
    pj_json_kv_array_begin(out, "attributes");
}

/* Opens {"resource...": [{"resource": ..., "scope...": [{"scope": ..., LIST: [. */
static void open_document(const pj_otlp_resource *r, const char *resources, const char *scopes,
                          const char *list, pj_json *out)
{
    pj_json_object_begin(out);
    pj_json_kv_array_begin(out, resources);
    pj_json_object_begin(out);
    pj_json_kv_object_begin(out, "resource");
    begin_attributes(out);
    attribute_text(out, "service.name", "perjoule");
    attribute_text(out, "service.version", pj_version());
    attribute_text(out, "service.instance.id", r->instance);
    attribute_text(out, "host.name", r->host);
    pj_json_array_end(out);
    pj_json_object_end(out);
    pj_json_kv_array_begin(out, scopes);
    pj_json_object_begin(out);
    pj_json_kv_object_begin(out, "scope");
    pj_json_kv_string(out, "name", "perjoule");
    pj_json_kv_string(out, "version", pj_version());
    pj_json_object_end(out);
    pj_json_kv_array_begin(out, list);
}

static void close_document(pj_json *out)
{
    pj_json_array_end(out);
    pj_json_object_end(out);
    pj_json_array_end(out);
    pj_json_object_end(out);
    pj_json_array_end(out);
    pj_json_object_end(out);
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* What a metric's points have in common. */
typedef struct metric {
    const pj_otlp_resource *resource;
    const pj_otlp_moment *moment;
    pj_json *out;
    bool is_counter; /* else a gauge */
} metric;

static void begin_metric(const metric *m, const char *name, const char *unit, const char *text)
{
    pj_json_object_begin(m->out);
    pj_json_kv_string(m->out, "name", otlp_json_name_of(m->resource, name));
    pj_json_kv_string(m->out, "unit", unit);
    pj_json_kv_string(m->out, "description", text);
    pj_json_kv_object_begin(m->out, m->is_counter ? "sum" : "gauge");
    if (m->is_counter) {
        pj_json_kv_int(m->out, "aggregationTemporality", CUMULATIVE);
        pj_json_kv_bool(m->out, "isMonotonic", true);
    }
    pj_json_kv_array_begin(m->out, "dataPoints");
}

static void end_metric(const metric *m)
{
    pj_json_array_end(m->out);
    pj_json_object_end(m->out);
    pj_json_object_end(m->out);
}

/* The caller continues inside "attributes" and ends with end_point. */
static void begin_point(const metric *m, double value)
{
    pj_json_object_begin(m->out);
    if (m->is_counter) kv_int64(m->out, "startTimeUnixNano", m->moment->start_ns);
    kv_int64(m->out, "timeUnixNano", m->moment->now_ns);
    pj_json_kv_double(m->out, "asDouble", value);
    begin_attributes(m->out);
}

static void end_point(const metric *m)
{
    pj_json_array_end(m->out);
    pj_json_object_end(m->out);
}

/* A point with one attribute of its own. */
static void write_point(const metric *m, double value, const char *key, const char *text)
{
    begin_point(m, value);
    attribute_text(m->out, key, text);
    end_point(m);
}

/* OpenTelemetry's words for kinds of hardware. */
static const char *hardware_type(const char *class_name)
{
    if (strcmp(class_name, "dram") == 0) return "memory";
    if (strcmp(class_name, "cpu") == 0 || strcmp(class_name, "gpu") == 0) return class_name;
    return strcmp(class_name, "ane") == 0 ? "gpu" : "enclosure";
}

static void rail_attributes(const pj_metric_rail *rail, pj_json *out)
{
    char id[64];
    snprintf(id, sizeof id, "%s/%s", rail->source, rail->rail);
    attribute_text(out, "hw.id", id);
    attribute_text(out, "hw.name", rail->rail);
    attribute_text(out, "hw.type", hardware_type(rail->class_name));
    attribute_text(out, "perjoule.rail.source", rail->source);
    attribute_text(out, "perjoule.rail.class", rail->class_name);
    attribute_text(out, "perjoule.energy.source", rail->modelled ? "modelled" : "measured");
}

static void write_rail_point(const metric *m, const pj_metric_rail *rail, double value,
                             const char *phase)
{
    if (isnan(value)) return;
    begin_point(m, value);
    rail_attributes(rail, m->out);
    attribute_text(m->out, "perjoule.phase", phase);
    end_point(m);
}

static void otlp_json_write_rails(const metric *counter, const metric *gauge,
                                  const pj_metrics *metrics)
{
    begin_metric(counter, "hw.energy", "J", "Energy that a rail has drawn, with or without a run");
    for (uint32_t i = 0; i < metrics->rail_count; i++)
        write_rail_point(counter, &metrics->rails[i], metrics->rails[i].drawn_mj / 1e3, NULL);
    end_metric(counter);
    begin_metric(gauge, "hw.power", "W", "Mean power of a rail over the last seconds");
    for (uint32_t i = 0; i < metrics->rail_count; i++)
        write_rail_point(gauge, &metrics->rails[i], metrics->rails[i].power_mw / 1e3, NULL);
    end_metric(gauge);
    begin_metric(counter, "perjoule.run.energy", "J", "Energy of runs by rail and phase");
    for (uint32_t i = 0; i < metrics->rail_count; i++)
        for (int p = 0; p < PJ_PHASE_COUNT; p++)
            write_rail_point(counter, &metrics->rails[i], metrics->rails[i].energy_mj[p] / 1e3,
                             pj_phase_name((pj_phase)p));
    end_metric(counter);
}

static void write_host(const metric *m, const char *name, const char *unit, const char *text,
                       double value)
{
    if (isnan(value)) return;
    begin_metric(m, name, unit, text);
    write_point(m, value, "hw.id", m->resource->host);
    end_metric(m);
}

static void write_work(const metric *counter, const pj_metrics *metrics)
{
    begin_metric(counter, "perjoule.tokens", "{token}", "Tokens of runs");
    write_point(counter, (double)metrics->input_tokens, "gen_ai.token.type", "input");
    write_point(counter, (double)metrics->output_tokens, "gen_ai.token.type", "output");
    end_metric(counter);
    begin_metric(counter, "perjoule.runs", "{run}", "Runs that have ended");
    for (int i = 1; i < PJ_METRIC_STATUSES; i++)
        write_point(counter, (double)metrics->runs[i], "perjoule.status",
                    pj_run_status_name((pj_run_status)i));
    end_metric(counter);
}

void pj_otlp_write_metrics(const pj_otlp_resource *r, const pj_metrics *metrics,
                           const pj_otlp_moment *m, pj_json *out)
{
    const metric counter = {r, m, out, true}, gauge = {r, m, out, false};
    open_document(r, "resourceMetrics", "scopeMetrics", "metrics", out);
    if (metrics->rail_count) otlp_json_write_rails(&counter, &gauge, metrics);
    write_host(&counter, "hw.host.energy", "J",
               "Energy of the machine, as far as its rails cover it", m->host_mj / 1e3);
    write_host(&gauge, "hw.host.power", "W", "Power of the machine, as far as its rails cover it",
               m->host_mw / 1e3);
    write_work(&counter, metrics);
    close_document(out);
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* The trace is the run: its UUID without hyphens. */
static bool trace_id(const char *run_id, char out[33])
{
    size_t n = 0;
    for (; *run_id && n < 32; run_id++)
        if (*run_id != '-') out[n++] = *run_id;
    out[n] = 0;
    return n == 32 && strspn(out, "0123456789abcdef") == 32;
}

static void span_id(const char *run_id, uint64_t number_in_run, char out[17])
{
    uint64_t hash = pj_hash64(number_in_run + 1, run_id, strlen(run_id));
    snprintf(out, 17, "%016" PRIx64, hash ? hash : 1);
}

typedef struct span {
    const char *name, *trace, *id, *parent;
    int64_t begin_ns;
    double duration_ms;
} span;

/* The caller continues inside "attributes" and ends with end_span. */
static void begin_span(const span *s, pj_json *out)
{
    pj_json_object_begin(out);
    pj_json_kv_string(out, "traceId", s->trace);
    pj_json_kv_string(out, "spanId", s->id);
    if (s->parent) pj_json_kv_string(out, "parentSpanId", s->parent);
    pj_json_kv_string(out, "name", s->name);
    pj_json_kv_int(out, "kind", KIND_INTERNAL);
    kv_int64(out, "startTimeUnixNano", s->begin_ns);
    kv_int64(out, "endTimeUnixNano",
             s->begin_ns + (int64_t)(isnan(s->duration_ms) ? 0 : s->duration_ms * 1e6));
    begin_attributes(out);
}

static void otlp_json_end_span(const char *failure, pj_json *out)
{
    pj_json_array_end(out);
    pj_json_kv_object_begin(out, "status");
    if (failure) {
        pj_json_kv_int(out, "code", STATUS_ERROR);
        pj_json_kv_string(out, "message", failure);
    }
    pj_json_object_end(out);
    pj_json_object_end(out);
}

static const char *tag_value(const pj_run_info *info, const char *begin)
{
    for (uint32_t i = 0; i < info->tag_count; i++)
        if (strncmp(info->tags[i], begin, strlen(begin)) == 0) return info->tags[i] + strlen(begin);
    return NULL;
}

static void write_run_attributes(const pj_otlp_resource *r, const pj_run_info *info, pj_json *out)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    attribute_text(out, "gen_ai.operation.name", "text_completion");
    attribute_text(out, "gen_ai.provider.name", info->engine);
    attribute_text(out, "gen_ai.request.model", info->model_name);
    if (info->input_tokens)
        attribute_int(out, "gen_ai.usage.input_tokens", (int64_t)info->input_tokens);
    if (info->output_tokens)
        attribute_int(out, "gen_ai.usage.output_tokens", (int64_t)info->output_tokens);
    attribute_double(out, otlp_json_name_of(r, "gen_ai.infrastructure.energy"),
                     info->total_mj / 1e3);
    attribute_double(out, "perjoule.energy.sd", info->total_sd_mj / 1e3);
    attribute_double(out, "perjoule.request.energy", info->request_mj / 1e3);
    attribute_double(out, "perjoule.joules_per_token", ratios.joules_per_token);
    attribute_double(out, "perjoule.joules_per_token_typical", ratios.joules_per_token_typical);
    attribute_text(out, "perjoule.energy.source", pj_quality_name(info->quality));
    attribute_text(out, "perjoule.run.id", info->id);
    attribute_text(out, "perjoule.run.status", pj_run_status_name(info->status));
    attribute_text(out, "perjoule.client", tag_value(info, PJ_TAG_CLIENT));
    attribute_text(out, "perjoule.session", tag_value(info, PJ_TAG_SESSION));
    attribute_text(out, "perjoule.dtype", info->dtype);
    attribute_text(out, "perjoule.experiment", info->experiment_name);
}

static void otlp_json_write_phase(const pj_otlp_resource *r, const pj_phase_row *phase,
                                  const span *whole, uint64_t index, pj_json *out)
{
    char id[17];
    span_id(whole->trace, index, id);
    span s = {.name = pj_phase_name(phase->phase),
              .trace = whole->trace,
              .id = id,
              .parent = whole->id,
              .begin_ns = whole->begin_ns + (int64_t)(phase->start_ms * 1e6),
              .duration_ms = phase->duration_ms};
    begin_span(&s, out);
    attribute_text(out, "perjoule.phase", s.name);
    attribute_double(out, otlp_json_name_of(r, "gen_ai.infrastructure.energy"),
                     pj_mj_of_nj(phase->energy.gross_nj) / 1e3);
    attribute_double(out, "perjoule.energy.sd", (double)phase->energy.sd_mj / 1e3);
    attribute_text(out, "perjoule.method", pj_method_name(phase->energy.method));
    otlp_json_end_span(NULL, out);
}

bool pj_otlp_write_run(const pj_otlp_resource *r, const pj_run_data *run, pj_json *out)
{
    const pj_run_info *info = &run->info;
    char trace[33], id[17], name[160];
    if (!trace_id(info->id, trace)) return false;
    snprintf(name, sizeof name, "text_completion%s%s", info->model_name ? " " : "",
             info->model_name ? info->model_name : "");
    span_id(trace, 0, id);
    span whole = {.name = name,
                  .trace = trace,
                  .id = id,
                  .begin_ns = info->created_wall_ns,
                  .duration_ms = info->total_ms};
    open_document(r, "resourceSpans", "scopeSpans", "spans", out);
    begin_span(&whole, out);
    write_run_attributes(r, info, out);
    otlp_json_end_span(info->failure, out);
    for (uint32_t i = 0; i < run->phase_count; i++)
        otlp_json_write_phase(r, &run->phases[i], &whole, i + 1, out);
    close_document(out);
    return true;
}
