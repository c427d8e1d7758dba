/* Events of each thread are sorted into nested spans; an event that partially overlaps another goes
 * to another lane. The spans are written to a spool in memory, from which the run is built like
 * any other. */
#include "import/torch_run.h"

#include "attribution/build.h"
#include "base/clock.h"
#include "base/ids.h"
#include "trace/run_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPEN = 14, MOST_LANES = 4000, MOST_DAYS = 7 };

typedef struct lane_event {
    const pj_kineto_event *event;
    uint32_t lane;
} lane_event;

typedef struct open_span {
    const pj_kineto_event *event;
    int64_t end_ns;
    uint32_t serial;
    pj_span_kind kind;
} open_span;

typedef struct torch_run {
    const pj_kineto *trace;
    const pj_trace *power;
    pj_spool spool;
    pj_error *err;
    pj_status status;
    int64_t begin_ns, end_ns;
    lane_event *events;
    size_t count, left_out, without_kernels;
    uint32_t lane, serial;
    open_span open[MOST_OPEN];
    uint32_t depth;
} torch_run;

static void torch_run_put(torch_run *t, pj_record_type type, const void *payload, size_t bytes)
{
    if (t->status == PJ_OK) t->status = pj_spool_append(&t->spool, type, payload, bytes, t->err);
}

static void torch_run_put_json(torch_run *t, pj_record_type type, pj_json *json, pj_buffer *buffer)
{
    if (!pj_json_finish(json) && t->status == PJ_OK)
        t->status = pj_fail_memory(t->err, "a record of a run");
    torch_run_put(t, type, buffer->data, buffer->length);
    pj_buffer_fini(buffer);
}

/* ---- which events -------------------------------------------------------------------------- */

/* Host ranges cover the launch of kernels rather than their execution: if the trace has kernels,
 * only device ranges are used. */
static bool is_used(const torch_run *t, pj_kineto_kind kind)
{
    bool has_kernels = t->trace->of_kind[PJ_KINETO_KERNEL] > 0;
    return has_kernels ? kind == PJ_KINETO_KERNEL || kind == PJ_KINETO_GPU_RANGE
                       : kind == PJ_KINETO_RANGE || kind == PJ_KINETO_OPERATION;
}

static pj_status choose_events(torch_run *t)
{
    t->events = pj_alloc(t->trace->count, sizeof *t->events);
    if (!t->events) return pj_fail_memory(t->err, "a trace");
    t->begin_ns = INT64_MAX;
    for (size_t i = 0; i < t->trace->count; i++) {
        const pj_kineto_event *e = &t->trace->events[i];
        if (!is_used(t, e->kind)) {
            t->without_kernels++;
            continue;
        }
        t->events[t->count++].event = e;
        if (e->begin_ns < t->begin_ns) t->begin_ns = e->begin_ns;
        if (e->end_ns > t->end_ns) t->end_ns = e->end_ns;
    }
    if (t->count == 0) return pj_fail(t->err, PJ_E_INVALID, "the trace has no ranges to measure");
    if (t->end_ns - t->begin_ns > MOST_DAYS * INT64_C(86400) * PJ_NS_PER_S)
        return pj_fail(t->err, PJ_E_INVALID, "the trace's times span more than %d days", MOST_DAYS);
    return PJ_OK;
}

/* By thread and begin; enclosing events before enclosed ones. */
static int torch_run_compare(const void *a, const void *b)
{
    const lane_event *x = a, *y = b;
    if (x->event->thread != y->event->thread) return x->event->thread < y->event->thread ? -1 : 1;
    if (x->event->begin_ns != y->event->begin_ns)
        return x->event->begin_ns < y->event->begin_ns ? -1 : 1;
    if (x->event->end_ns != y->event->end_ns) return x->event->end_ns > y->event->end_ns ? -1 : 1;
    return (int)x->event->kind - (int)y->event->kind;
}

/* ---- spans --------------------------------------------------------------------------------- */

static uint16_t enclosing(const torch_run *t, pj_span_kind kind)
{
    for (uint32_t i = t->depth; i-- > 0;)
        if (t->open[i].kind == kind) return (uint16_t)(t->open[i].event->name + 1);
    return 0;
}

static void torch_run_close_span(torch_run *t)
{
    const open_span *o = &t->open[--t->depth];
    pj_span span = {.begin_ns = o->event->begin_ns,
                    .end_ns = o->end_ns,
                    .flops = NAN,
                    .bytes = NAN,
                    .serial = o->serial,
                    .id = o->event->name + 1,
                    .token = -1,
                    .layer = -1,
                    .lane = (uint16_t)t->lane,
                    .section = enclosing(t, PJ_SPAN_SECTION),
                    .component = enclosing(t, PJ_SPAN_COMPONENT),
                    .kind = (uint8_t)o->kind,
                    .phase = PJ_PHASE_PRE_INFERENCE};
    torch_run_put(t, PJ_RECORD_SPAN, &span, sizeof span);
}

static void close_until(torch_run *t, int64_t at_ns)
{
    while (t->depth && t->open[t->depth - 1].end_ns <= at_ns) torch_run_close_span(t);
}

/* Ranges become sections, the outermost events in them components, and the events those call
 * operations. Deeper events are part of their operation. */
static void open_span_of(torch_run *t, const pj_kineto_event *e)
{
    bool is_range = e->kind == PJ_KINETO_RANGE || e->kind == PJ_KINETO_GPU_RANGE;
    pj_span_kind outer = t->depth ? t->open[t->depth - 1].kind : PJ_SPAN_SECTION;
    pj_span_kind kind = outer == PJ_SPAN_COMPONENT ? PJ_SPAN_OPERATION
                        : is_range                 ? PJ_SPAN_SECTION
                                                   : PJ_SPAN_COMPONENT;
    if (outer == PJ_SPAN_OPERATION) return;
    t->open[t->depth++] =
        (open_span){.event = e, .end_ns = e->end_ns, .serial = t->serial++, .kind = kind};
}

static void begin_lane(torch_run *t)
{
    close_until(t, INT64_MAX);
    if (t->lane < MOST_LANES) t->lane++;
    t->serial = 0;
}

/* Takes the events that nest; overlapping ones are left for the next lane. Returns how many are
 * left. */
static size_t put_lane(torch_run *t, lane_event *events, size_t count)
{
    size_t stay = 0;
    begin_lane(t);
    for (size_t i = 0; i < count; i++) {
        const pj_kineto_event *e = events[i].event;
        close_until(t, e->begin_ns);
        bool overlaps = t->depth && e->end_ns > t->open[t->depth - 1].end_ns;
        if (overlaps)
            events[stay++] = events[i];
        else if (t->depth == MOST_OPEN)
            t->left_out++;
        else
            open_span_of(t, e);
    }
    close_until(t, INT64_MAX);
    return stay;
}

static void put_spans(torch_run *t)
{
    qsort(t->events, t->count, sizeof *t->events, torch_run_compare);
    for (size_t first = 0, next; first < t->count; first = next) {
        for (next = first + 1; next < t->count; next++)
            if (t->events[next].event->thread != t->events[first].event->thread) break;
        size_t stay = next - first;
        while (stay && t->lane < MOST_LANES) stay = put_lane(t, t->events + first, stay);
        t->left_out += stay;
    }
    pj_span phase = {.begin_ns = t->begin_ns,
                     .end_ns = t->end_ns,
                     .flops = NAN,
                     .bytes = NAN,
                     .id = PJ_PHASE_PRE_INFERENCE,
                     .token = -1,
                     .layer = -1,
                     .kind = PJ_SPAN_PHASE,
                     .phase = PJ_PHASE_PRE_INFERENCE};
    torch_run_put(t, PJ_RECORD_SPAN, &phase, sizeof phase);
}

static void torch_run_put_names(torch_run *t)
{
    for (uint32_t i = 0; i < t->trace->name_count; i++) {
        char record[4 + 256];
        uint32_t id = i + 1;
        size_t bytes = strnlen(t->trace->names[i], sizeof record - 4);
        memcpy(record, &id, sizeof id);
        memcpy(record + sizeof id, t->trace->names[i], bytes);
        torch_run_put(t, PJ_RECORD_NAME, record, sizeof id + bytes);
    }
}

/* ---- power --------------------------------------------------------------------------------- */

static void put_rails(torch_run *t)
{
    for (uint32_t r = 0; r < t->power->rail_count; r++) {
        pj_buffer buffer;
        pj_json json;
        pj_buffer_init(&buffer, 1 << 16);
        pj_json_init(&json, &buffer);
        pj_rail_write(&json, r, &t->power->rails[r], NAN, NAN);
        torch_run_put_json(t, PJ_RECORD_RAIL, &json, &buffer);
    }
}

static void put_reading(torch_run *t, size_t row, uint32_t rail)
{
    const pj_trace *p = t->power;
    size_t cell = row * p->rail_count + rail;
    if (isnan(p->mw[cell]) && !p->gap[cell]) return;
    int64_t at_ns = (int64_t)(p->origin_unix_ms * 1e6) + (int64_t)(p->t_ms[row] * 1e6);
    double window_ms = p->window_ms            ? (double)p->window_ms[row]
                       : p->polled || row == 0 ? 0
                                               : p->t_ms[row] - p->t_ms[row - 1];
    pj_reading reading = {.before_ns = at_ns,
                          .after_ns = at_ns,
                          .fresh_ns = p->polled ? 0 : at_ns,
                          .window_ns = (int64_t)(window_ms * 1e6),
                          .value = (double)p->mw[cell],
                          .rail = (uint16_t)rail,
                          .status = p->gap[cell] ? PJ_READING_GAP : PJ_READING_OK,
                          .sequence = (uint32_t)row};
    torch_run_put(t, PJ_RECORD_READINGS, &reading, sizeof reading);
}

/* Whether the recording covers all of the trace. */
static bool torch_run_is_covered(const torch_run *t)
{
    double origin_ns = t->power->origin_unix_ms * 1e6;
    size_t rows = t->power->row_count;
    return rows > 1 && (double)t->begin_ns >= origin_ns &&
           (double)t->end_ns <= origin_ns + t->power->t_ms[rows - 1] * 1e6;
}

/* ---- the run ------------------------------------------------------------------------------- */

static void put_info(torch_run *t)
{
    pj_buffer buffer, settings;
    pj_json json;
    pj_run_info info = {.depth = PJ_DEPTH_DEEP,
                        .batch_size = 1,
                        .created_wall_ns = t->begin_ns,
                        .engine = "torch",
                        .scope = "machine",
                        .level = "coarse",
                        .power_sources = "replay",
                        .quality = PJ_MEASURED};
    info.overhead_ms = info.overhead_share = info.statistics_ms = info.cached_tokens = NAN;
    info.monotonic_ms = NAN;
    info.sampler_cpu_share = info.sampler_jitter_us = NAN;
    info.baseline_cold_mw = info.baseline_resident_mw = NAN;
    for (uint32_t r = 0; r < t->power->rail_count; r++)
        if (t->power->rails[r].quality == PJ_MODELLED) info.quality = PJ_MODELLED;
    pj_uuid7(info.id);
    pj_buffer_init(&settings, 1 << 12);
    pj_json_init(&json, &settings);
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "trace_events", (int64_t)t->trace->count);
    pj_json_kv_int(&json, "trace_kernels", (int64_t)t->trace->of_kind[PJ_KINETO_KERNEL]);
    pj_json_kv_int(&json, "power_rows", (int64_t)t->power->row_count);
    pj_json_object_end(&json);
    info.settings_json = pj_json_finish(&json) ? pj_buffer_get(&settings) : NULL;
    pj_buffer_init(&buffer, 1 << 16);
    pj_json_init(&json, &buffer);
    pj_run_info_write(&json, &info, t->begin_ns);
    torch_run_put_json(t, PJ_RECORD_INFO, &json, &buffer);
    pj_buffer_fini(&settings);
}

static void torch_run_warn(torch_run *t, const char *code, const char *text)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 12);
    pj_json_init(&json, &buffer);
    pj_warning_write(&json, t->begin_ns, code, text);
    torch_run_put_json(t, PJ_RECORD_WARNING, &json, &buffer);
}

static void put_warnings(torch_run *t)
{
    char text[300];
    uint64_t lost = t->trace->skipped + t->left_out;
    if (!torch_run_is_covered(t))
        torch_run_warn(t, "power_partial",
                       "The power recording does not cover the whole trace: the rest has no "
                       "energy");
    if (t->without_kernels) {
        snprintf(text, sizeof text,
                 "%zu host ranges are left out: they cover the launch of kernels, not "
                 "their work",
                 t->without_kernels);
        torch_run_warn(t, "host_ranges_left_out", text);
    }
    if (!lost) return;
    snprintf(text, sizeof text, "%llu events of the trace were malformed or nested too deep",
             (unsigned long long)lost);
    torch_run_warn(t, "trace_events_skipped", text);
}

static void put_end(torch_run *t)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 12);
    pj_json_init(&json, &buffer);
    pj_run_end_write(&json, t->end_ns, PJ_RUN_COMPLETED);
    torch_run_put_json(t, PJ_RECORD_END, &json, &buffer);
}

static void torch_run_write_all(torch_run *t)
{
    put_info(t);
    put_rails(t);
    torch_run_put_names(t);
    for (size_t row = 0; row < t->power->row_count; row++)
        for (uint32_t r = 0; r < t->power->rail_count; r++) put_reading(t, row, r);
    put_spans(t);
    put_warnings(t);
    put_end(t);
    if (t->status == PJ_OK) t->status = pj_spool_flush(&t->spool, t->err);
}

static pj_status torch_run_build(torch_run *t, pj_run_data *data)
{
    pj_spool_reader reader;
    pj_status status = pj_spool_reader_of(&t->spool, &reader, t->err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, &(pj_build_options){0}, data, t->err);
    pj_spool_reader_close(&reader);
    return status;
}

pj_status pj_torch_run(const pj_kineto *trace, const pj_trace *power, pj_run_data *data,
                       pj_error *err)
{
    torch_run t = {.trace = trace, .power = power, .err = err};
    *data = (pj_run_data){0};
    pj_status status = choose_events(&t);
    if (status == PJ_OK)
        status = pj_spool_create(NULL, "torch", t.begin_ns, t.begin_ns, &t.spool, err);
    if (status == PJ_OK) {
        torch_run_write_all(&t);
        status = t.status == PJ_OK ? torch_run_build(&t, data) : t.status;
        pj_spool_close(&t.spool, true);
    }
    pj_free(t.events);
    return status;
}
