/* The trace export: Chrome's trace event JSON, which Perfetto also reads. Times are microseconds
 * since baseTimeNanoseconds (wall time, as in PyTorch's traces) and since otherData.monotonic_ms,
 * so that traces can be joined. Viewers stack the values of a counter, so that the total has one of
 * its own.
 * Events of one thread id may nest but not overlap, so each level gets its own lane, and more lanes
 * where spans of several threads overlap; a batch gets one token lane per sequence. The host is one
 * process, and each device that computed is another, with lanes of its own. */
#include "store/exports.h"
#include "trace/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LANES = 64, LANES_A_LEVEL = 100 };

typedef enum level { PHASES = 1, SECTIONS, TOKENS, LAYERS, COMPONENTS, OPERATIONS } level;

static const char *const level_names[] = {"",       "phases",     "sections",  "tokens",
                                          "layers", "components", "operations"};

typedef struct lanes {
    double end_ms[MAX_LANES];
    int count;
} lanes;

/* The first lane free at `start`; the last one takes any overflow. */
static int lane_for(lanes *l, double start, double end)
{
    int i = 0;
    while (i < l->count && l->end_ms[i] > start + 1e-6 && i < MAX_LANES - 1) i++;
    if (i == l->count) l->count++;
    l->end_ms[i] = end;
    return i;
}

/* The host's is 1. */
static int process_of(uint32_t device)
{
    return 1 + (int)device;
}

static void write_meta(pj_json *json, const char *what, int pid, int tid, const char *name,
                       int sort)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "ph", "M");
    pj_json_kv_string(json, "name", what);
    pj_json_kv_int(json, "pid", pid);
    pj_json_kv_int(json, "tid", tid);
    pj_json_kv_object_begin(json, "args");
    if (name)
        pj_json_kv_string(json, "name", name);
    else
        pj_json_kv_int(json, "sort_index", sort);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

static void write_lanes(pj_json *json, level which, int pid, const lanes *l)
{
    for (int i = 0; i < l->count; i++) {
        char name[48];
        int tid = which * LANES_A_LEVEL + i;
        snprintf(name, sizeof name, i ? "%s %d" : "%s", level_names[which], i + 1);
        write_meta(json, "thread_name", pid, tid, name, 0);
        write_meta(json, "thread_sort_index", pid, tid, NULL, tid);
    }
}

static const struct level_query {
    level which;
    pj_table_id table;
    const char *columns; /* name, start, duration, energy, device, then what `extra` names */
    const char *extra;
} queries[] = {
    {PHASES, PJ_TABLE_PHASES, "phase, start_ms, duration_ms, energy_mj, 0, NULL", NULL},
    {SECTIONS, PJ_TABLE_SECTIONS, "section_name, start_ms, duration_ms, energy_mj, device, NULL",
     NULL},
    {TOKENS, PJ_TABLE_TOKENS, "text, start_ms, duration_ms, energy_mj, 0, position", "position"},
    {LAYERS, PJ_TABLE_LAYERS,
     "'layer ' || layer_index, start_ms, total_time_ms, energy_mj, device, layer_index", "layer"},
    {COMPONENTS, PJ_TABLE_COMPONENTS, "component_name, start_ms, time_ms, energy_mj, device, NULL",
     NULL},
    {OPERATIONS, PJ_TABLE_OPERATIONS, "operation_name, start_ms, time_ms, energy_mj, device, NULL",
     NULL},
};

static void write_event(pj_json *json, pj_sql *sql, const struct level_query *q, int pid, int lane)
{
    size_t bytes;
    double start = pj_sql_get_double(sql, 1), ms = pj_sql_get_double(sql, 2);
    double mj = pj_sql_get_double(sql, 3);
    const char *name = pj_sql_get_text(sql, 0, &bytes);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "ph", "X");
    pj_json_key(json, "name");
    pj_json_string_n(json, name ? name : "", name ? bytes : 0);
    pj_json_kv_string(json, "cat", level_names[q->which]);
    pj_json_kv_int(json, "pid", pid);
    pj_json_kv_int(json, "tid", q->which * LANES_A_LEVEL + lane);
    pj_json_kv_double(json, "ts", start * 1e3);
    pj_json_kv_double(json, "dur", ms * 1e3);
    pj_json_kv_object_begin(json, "args");
    pj_json_kv_double(json, "energy_mj", mj);
    pj_json_kv_double(json, "power_w", ms > 0 ? mj / ms : NAN);
    if (q->extra) pj_json_kv_int(json, q->extra, pj_sql_get_int(sql, 5));
    pj_json_object_end(json);
    pj_json_object_end(json);
}

static pj_status write_level(pj_run_view *view, const struct level_query *q, pj_error *err)
{
    lanes l[PJ_MAX_DEVICES] = {0};
    pj_sql *sql = pj_view_select(view, q->table, q->columns, "ORDER BY id", err);
    while (!view->json->failed && pj_sql_step(sql)) {
        double start = pj_sql_get_double(sql, 1), ms = pj_sql_get_double(sql, 2);
        int64_t device = pj_sql_get_int(sql, 4);
        if (isnan(start) || isnan(ms) || device < 0 || device >= PJ_MAX_DEVICES) continue;
        write_event(view->json, sql, q, process_of((uint32_t)device),
                    lane_for(&l[device], start, start + ms));
    }
    for (uint32_t i = 0; i < PJ_MAX_DEVICES; i++)
        write_lanes(view->json, q->which, process_of(i), &l[i]);
    return pj_sql_end(sql, err);
}

typedef struct counter {
    const char *name;
    int first, count; /* columns of the query */
    const char *members[4];
} counter;

/* One sample of a counter; nothing where none of its rails has a value. */
static void write_counter(pj_json *json, pj_sql *sql, const counter *c)
{
    bool any = false;
    for (int i = 0; i < c->count; i++) any |= !isnan(pj_sql_get_double(sql, c->first + i));
    if (!any) return;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "ph", "C");
    pj_json_kv_string(json, "name", c->name);
    pj_json_kv_int(json, "pid", 1);
    pj_json_kv_double(json, "ts", pj_sql_get_double(sql, 0) * 1e3);
    pj_json_kv_object_begin(json, "args");
    for (int i = 0; i < c->count; i++) {
        double mw = pj_sql_get_double(sql, c->first + i);
        if (!isnan(mw)) pj_json_kv_double(json, c->members[i], mw / 1e3);
    }
    pj_json_object_end(json);
    pj_json_object_end(json);
}

static pj_status write_counters(pj_run_view *view, pj_error *err)
{
    static const counter rails = {"power", 1, 4, {"cpu_w", "gpu_w", "ane_w", "dram_w"}};
    static const counter total = {"total power", 5, 1, {"total_w"}};
    pj_sql *sql = pj_view_select(view, PJ_TABLE_SAMPLES,
                                 "timestamp_ms, cpu_power_mw, gpu_power_mw, ane_power_mw,"
                                 " dram_power_mw, total_power_mw",
                                 "ORDER BY id", err);
    while (!view->json->failed && pj_sql_step(sql)) {
        write_counter(view->json, sql, &rails);
        write_counter(view->json, sql, &total);
    }
    return pj_sql_end(sql, err);
}

static pj_status export_trace_write_warnings(pj_run_view *view, pj_error *err)
{
    pj_json *json = view->json;
    pj_sql *sql = pj_view_select(view, PJ_TABLE_WARNINGS, "t_ms, code, text", "ORDER BY id", err);
    while (pj_sql_step(sql)) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "ph", "i");
        pj_json_kv_string(json, "s", "g");
        pj_json_kv_string(json, "name", pj_sql_get_text(sql, 1, NULL));
        pj_json_kv_int(json, "pid", 1);
        pj_json_kv_int(json, "tid", PHASES * LANES_A_LEVEL);
        double t = pj_sql_get_double(sql, 0);
        pj_json_kv_double(json, "ts", isnan(t) ? 0 : t * 1e3);
        pj_json_kv_object_begin(json, "args");
        pj_json_kv_string(json, "text", pj_sql_get_text(sql, 2, NULL));
        pj_json_object_end(json);
        pj_json_object_end(json);
    }
    return pj_sql_end(sql, err);
}

/* The run is the host's process; devices besides it have their own. */
static void export_trace_write_processes(pj_run_view *view)
{
    char name[256];
    pj_arena arena;
    pj_device_row devices[PJ_MAX_DEVICES];
    const pj_run_info *info = view->info;
    pj_arena_init(&arena, 0);
    uint32_t count = pj_devices_read(info->devices_json, &arena, devices);
    snprintf(name, sizeof name, "perjoule: %s", info->model_name ? info->model_name : "run");
    write_meta(view->json, "process_name", process_of(PJ_HOST), 0, name, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (devices[i].number == PJ_HOST) continue;
        int pid = process_of(devices[i].number);
        write_meta(view->json, "process_name", pid, 0, devices[i].name ? devices[i].name : "device",
                   0);
        write_meta(view->json, "process_sort_index", pid, 0, NULL, pid);
    }
    pj_arena_fini(&arena);
}

pj_status pj_export_trace(pj_run_view *view, pj_error *err)
{
    pj_json *json = view->json;
    pj_status status = PJ_OK;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "displayTimeUnit", "ms");
    pj_json_kv_int(json, "baseTimeNanoseconds", view->info->created_wall_ns);
    pj_json_kv_object_begin(json, "otherData");
    pj_json_kv_string(json, "run_id", view->info->id);
    pj_json_kv_double(json, "monotonic_ms", view->info->monotonic_ms);
    pj_json_kv_string(json, "energy_source", pj_quality_name(view->info->quality));
    pj_json_kv_string(json, "method", pj_method_name(view->info->method));
    pj_json_object_end(json);
    pj_json_kv_array_begin(json, "traceEvents");
    export_trace_write_processes(view);
    for (size_t i = 0; i < sizeof queries / sizeof *queries && status == PJ_OK; i++)
        status = write_level(view, &queries[i], err);
    if (status == PJ_OK) status = write_counters(view, err);
    if (status == PJ_OK) status = export_trace_write_warnings(view, err);
    pj_json_array_end(json);
    pj_json_object_end(json);
    return status;
}
