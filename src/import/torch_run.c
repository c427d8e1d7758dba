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

typedef struct open_span {
    const pj_kineto_event *event;
    int64_t end_ns;
    uint32_t serial;
    pj_span_kind kind;
} open_span;

typedef struct torch_run {
    const pj_kineto *trace;
    const pj_trace *power;
    pj_spool_writer w;
    int64_t begin_ns, end_ns;
    const pj_kineto_event **events; /* those used */
    size_t count, left_out, without_kernels;
    uint32_t lane, serial;
    open_span open[MOST_OPEN];
    uint32_t depth;
} torch_run;

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
    if (!t->events) return pj_fail_memory(t->w.err, "a trace");
    t->begin_ns = INT64_MAX;
    for (size_t i = 0; i < t->trace->count; i++) {
        const pj_kineto_event *e = &t->trace->events[i];
        if (!is_used(t, e->kind)) {
            t->without_kernels++;
            continue;
        }
        t->events[t->count++] = e;
        if (e->begin_ns < t->begin_ns) t->begin_ns = e->begin_ns;
        if (e->end_ns > t->end_ns) t->end_ns = e->end_ns;
    }
    if (t->count == 0) return pj_fail(t->w.err, PJ_E_INVALID, "the trace has no ranges to measure");
    if (t->end_ns - t->begin_ns > MOST_DAYS * INT64_C(86400) * PJ_NS_PER_S)
        return pj_fail(t->w.err, PJ_E_INVALID, "the trace's times span more than %d days",
                       MOST_DAYS);
    return PJ_OK;
}

/* By thread and begin; enclosing events before enclosed ones. */
static int torch_run_compare(const void *a, const void *b)
{
    const pj_kineto_event *x = *(const pj_kineto_event *const *)a,
                          *y = *(const pj_kineto_event *const *)b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* ---- spans --------------------------------------------------------------------------------- */

static uint16_t enclosing(const torch_run *t, pj_span_kind kind)
{
    for (uint32_t i = t->depth; i-- > 0;)
        if (t->open[i].kind == kind) return (uint16_t)(t->open[i].event->name + 1);
    return 0;
}

/* Events of a device name it where those of the host name a process. 0: the host. */
static uint8_t device_of(const torch_run *t, const pj_kineto_event *e)
{
    if (!t->trace->of_kind[PJ_KINETO_KERNEL]) return PJ_HOST;
    return e->process + 1 < PJ_MAX_DEVICES ? (uint8_t)(e->process + 1) : 1;
}

static void torch_run_close_span(torch_run *t)
{
    const open_span *o = &t->open[--t->depth];
    pj_span span = pj_span_make(o->serial, o->kind, o->event->name + 1, PJ_PHASE_PRE_INFERENCE,
                                o->event->begin_ns, o->end_ns);
    span.lane = (uint16_t)t->lane;
    span.device = device_of(t, o->event);
    if (span.device) span.flags |= PJ_SPAN_DEVICE;
    span.section = enclosing(t, PJ_SPAN_SECTION);
    span.component = enclosing(t, PJ_SPAN_COMPONENT);
    pj_spool_put_span(&t->w, &span);
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
static size_t put_lane(torch_run *t, const pj_kineto_event **events, size_t count)
{
    size_t stay = 0;
    begin_lane(t);
    for (size_t i = 0; i < count; i++) {
        const pj_kineto_event *e = events[i];
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
            if (t->events[next]->thread != t->events[first]->thread) break;
        size_t stay = next - first;
        while (stay && t->lane < MOST_LANES) stay = put_lane(t, t->events + first, stay);
        t->left_out += stay;
    }
    pj_span phase = pj_span_make(0, PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE, PJ_PHASE_PRE_INFERENCE,
                                 t->begin_ns, t->end_ns);
    pj_spool_put_span(&t->w, &phase);
}

/* ---- devices ------------------------------------------------------------------------------- */

/* The devices whose events are used; recordings of power name the rail of the third one "gpu2". */
static void put_devices(torch_run *t)
{
    bool used[PJ_MAX_DEVICES] = {false};
    for (size_t i = 0; i < t->count; i++) used[device_of(t, t->events[i])] = true;
    for (uint32_t d = 1; d < PJ_MAX_DEVICES; d++) {
        char name[32], rail[32];
        pj_device_row device = pj_device_row_make(d);
        if (!used[d]) continue;
        snprintf(name, sizeof name, "GPU %u", d - 1);
        snprintf(rail, sizeof rail, "gpu%u", d - 1);
        device.name = name;
        device.kind = "gpu";
        for (uint32_t r = 0; r < t->power->rail_count; r++)
            if (strcmp(t->power->rails[r].name, rail) == 0) device.rail = rail;
        pj_spool_put_device(&t->w, &device);
    }
}

/* ---- power --------------------------------------------------------------------------------- */

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
    pj_spool_put_reading(&t->w, &reading);
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
    pj_json settings;
    pj_run_info info;
    pj_run_info_init(&info);
    info.depth = PJ_DEPTH_DEEP;
    info.batch_size = 1;
    info.created_wall_ns = t->begin_ns;
    info.engine = "torch";
    info.scope = "machine";
    info.level = "coarse";
    info.power_sources = "replay";
    info.quality = pj_trace_quality(t->power);
    pj_uuid7(info.id);
    pj_json_open(&settings, 1 << 12);
    pj_json_object_begin(&settings);
    pj_json_kv_int(&settings, "trace_events", (int64_t)t->trace->count);
    pj_json_kv_int(&settings, "trace_kernels", (int64_t)t->trace->of_kind[PJ_KINETO_KERNEL]);
    pj_json_kv_int(&settings, "power_rows", (int64_t)t->power->row_count);
    pj_json_object_end(&settings);
    info.settings_json = pj_json_whole(&settings);
    pj_spool_put_info(&t->w, &info, t->begin_ns);
    pj_json_close(&settings);
}

static void put_warnings(torch_run *t)
{
    char text[300];
    uint64_t lost = t->trace->skipped + t->left_out;
    if (!torch_run_is_covered(t))
        pj_spool_put_warning(&t->w, t->begin_ns, "power_partial",
                             "The power recording does not cover the whole trace: the rest has no "
                             "energy");
    if (t->without_kernels) {
        snprintf(text, sizeof text,
                 "%zu host ranges are left out: they cover the launch of kernels, not "
                 "their work",
                 t->without_kernels);
        pj_spool_put_warning(&t->w, t->begin_ns, "host_ranges_left_out", text);
    }
    if (!lost) return;
    snprintf(text, sizeof text, "%llu events of the trace were malformed or nested too deep",
             (unsigned long long)lost);
    pj_spool_put_warning(&t->w, t->begin_ns, "trace_events_skipped", text);
}

static void torch_run_write_all(torch_run *t)
{
    const pj_trace *p = t->power;
    put_info(t);
    for (uint32_t r = 0; r < p->rail_count; r++)
        pj_spool_put_rail(&t->w, r, &p->rails[r], NAN, NAN);
    for (uint32_t i = 0; i < t->trace->name_count; i++)
        pj_spool_put_name(&t->w, i + 1, t->trace->names[i]);
    for (size_t row = 0; row < p->row_count; row++)
        for (uint32_t r = 0; r < p->rail_count; r++) put_reading(t, row, r);
    put_devices(t);
    put_spans(t);
    put_warnings(t);
    pj_spool_put_end(&t->w, t->end_ns, PJ_RUN_COMPLETED);
}

pj_status pj_torch_run(const pj_kineto *trace, const pj_trace *power, pj_run_data *data,
                       pj_error *err)
{
    pj_spool spool;
    torch_run t = {.trace = trace, .power = power, .w = {.spool = &spool, .err = err}};
    *data = (pj_run_data){0};
    pj_status status = choose_events(&t);
    if (status == PJ_OK)
        status = pj_spool_create(NULL, "torch", t.begin_ns, t.begin_ns, &spool, err);
    if (status == PJ_OK) {
        torch_run_write_all(&t);
        status = pj_build_written(&t.w, data);
    }
    pj_free(t.events);
    return status;
}
