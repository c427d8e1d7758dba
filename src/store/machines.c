/* The table machine_states, and machines as a view over it and the runs. */
#include "store/machines.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/run_summary.h"
#include "store/sql.h"
#include "store/store_impl.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ISO_BYTES = 40, DAY_BYTES = 11, MAX_MACHINES = 10000 };

/* "2026-01-31" of a wall clock time, UTC. */
static void day_of(int64_t wall_ns, char day[ISO_BYTES])
{
    pj_clock_format_iso(wall_ns, day);
    day[DAY_BYTES - 1] = 0;
}

/* ---- beats ---------------------------------------------------------------------------------- */

/* This machine's clock minus the server's, from one round trip, half of which is the uncertainty.
 * NAN without a server. */
static void compare_clocks(pj_store *store, double *offset_ms, double *uncertainty_ms)
{
    int64_t server_ns;
    *offset_ms = *uncertainty_ms = NAN;
    if (!store->driver->clock) return;
    int64_t before = pj_clock_wall_ns();
    if (store->driver->clock(store->db, &server_ns, NULL) != PJ_OK) return;
    int64_t after = pj_clock_wall_ns();
    *uncertainty_ms = (double)(after - before) / 2e6;
    *offset_ms = (double)(before - server_ns) / 1e6 + *uncertainty_ms;
}

pj_status pj_store_machine_beat(pj_store *store, const pj_machine_beat *beat, pj_error *err)
{
    static const char put[] =
        "INSERT INTO machine_states (name, seen_ns, version, sensors, energy_source, day,"
        " energy_mj, throttle, clock_offset_ms, clock_uncertainty_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " seen_ns = excluded.seen_ns, version = excluded.version, sensors = excluded.sensors,"
        " energy_source = excluded.energy_source, throttle = excluded.throttle,"
        " clock_offset_ms = excluded.clock_offset_ms,"
        " clock_uncertainty_ms = excluded.clock_uncertainty_ms,"
        " energy_mj = CASE WHEN machine_states.day = excluded.day AND machine_states.energy_mj IS"
        "  NOT NULL THEN machine_states.energy_mj + coalesce(excluded.energy_mj, 0)"
        "  ELSE excluded.energy_mj END, day = excluded.day";
    char day[ISO_BYTES];
    double offset_ms, uncertainty_ms;
    pj_status status = pj_store_connect(store, err);
    if (status != PJ_OK) return status;
    compare_clocks(store, &offset_ms, &uncertainty_ms);
    int64_t now = pj_clock_wall_ns();
    day_of(now, day);
    return pj_sql_change(store, put,
                         PJ_VALUES(pj_value_text(beat->name), pj_value_int(now),
                                   pj_value_text(beat->version), pj_value_text(beat->sensors),
                                   pj_value_text(pj_quality_name(beat->quality)),
                                   pj_value_text(day), pj_value_double(beat->drawn_mj),
                                   pj_value_text(beat->throttle), pj_value_double(offset_ms),
                                   pj_value_double(uncertainty_ms)),
                         err);
}

/* ---- the view ------------------------------------------------------------------------------- */

typedef struct machines {
    pj_arena *arena;
    pj_machine_row *items;
    uint32_t count;
    char today[ISO_BYTES];
    int64_t today_ns;
} machines;

static char *machines_keep(machines *all, const char *text)
{
    return text ? pj_arena_strndup(all->arena, text, strlen(text)) : NULL;
}

static pj_machine_row *machines_find_or_add(machines *all, const char *name)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0) return &all->items[i];
    if (all->count == MAX_MACHINES) return NULL;
    pj_machine_row *m = &all->items[all->count];
    *m = (pj_machine_row){.name = machines_keep(all, name),
                          .today_runs_mj = NAN,
                          .today_meter_mj = NAN,
                          .offset_ms = NAN,
                          .uncertainty_ms = NAN};
    if (!m->name) return NULL;
    all->count++;
    return m;
}

static pj_status machines_read_runs(pj_store *store, machines *all, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT machine, count(*), max(created_ns) FROM profiling_runs"
                               " WHERE machine IS NOT NULL GROUP BY machine ORDER BY 3 DESC",
                               err);
    while (pj_sql_step(sql)) {
        pj_machine_row *m = machines_find_or_add(all, pj_sql_get_text(sql, 0, NULL));
        if (!m) break;
        m->runs = pj_sql_get_int(sql, 1);
        m->run_ns = pj_sql_get_int(sql, 2);
    }
    return pj_sql_end(sql, err);
}

/* Energy of runs since a time, by machine. Where runs overlap whose sensors saw the whole machine,
 * the time that they share counts once, as in sessions (insight/task_session.c). */
#define ENERGY_SINCE(condition)                                                                  \
    "SELECT machine, sum(total_energy_mj * CASE WHEN whole = 0 OR ends <= created_ns OR reached" \
    " IS NULL OR reached <= created_ns THEN 1.0 WHEN reached >= ends THEN 0.0 ELSE (ends -"      \
    " reached) / (ends - created_ns) END), max(CASE WHEN energy_source = 'modelled' THEN 1 ELSE" \
    " 0 END) FROM (SELECT of_runs.*, max(ends) OVER (PARTITION BY machine, whole ORDER BY"       \
    " created_ns, ends DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM"   \
    " (SELECT machine, created_ns, total_energy_mj, energy_source, created_ns +"                 \
    " coalesce(total_duration_ms, 0) * 1e6 AS ends, CASE WHEN total_energy_mj IS NULL OR"        \
    " scope = 'process' OR scope = 'request' AND allocation IS NOT NULL OR method = 'allocated'" \
    " THEN 0 ELSE 1 END AS whole FROM profiling_runs WHERE created_ns >= ?" condition            \
    ") AS of_runs) AS in_order GROUP BY machine"

static pj_status read_runs_of_today(pj_store *store, machines *all, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, ENERGY_SINCE(" AND machine IS NOT NULL"), err);
    pj_sql_int(sql, 1, all->today_ns);
    while (pj_sql_step(sql)) {
        pj_machine_row *m = machines_find_or_add(all, pj_sql_get_text(sql, 0, NULL));
        if (!m) break;
        m->today_runs_mj = pj_sql_get_double(sql, 1);
        m->any_modelled_today = pj_sql_get_int(sql, 2) != 0;
    }
    return pj_sql_end(sql, err);
}

static pj_status read_last_run(pj_store *store, machines *all, pj_machine_row *m, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT id, power_sources, energy_source FROM profiling_runs"
                               " WHERE machine = ? AND created_ns = ? LIMIT 1",
                               err);
    pj_sql_text(sql, 1, m->name);
    pj_sql_int(sql, 2, m->run_ns);
    if (pj_sql_step(sql)) {
        const char *id = pj_sql_get_text(sql, 0, NULL);
        if (id) snprintf(m->last_run, sizeof m->last_run, "%s", id);
        m->sensors = machines_keep(all, pj_sql_get_text(sql, 1, NULL));
        m->source = machines_keep(all, pj_sql_get_text(sql, 2, NULL));
    }
    return pj_sql_end(sql, err);
}

static pj_status read_beats(pj_store *store, machines *all, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT name, seen_ns, version, sensors, energy_source, throttle,"
                               " CASE WHEN day = ? THEN energy_mj END, clock_offset_ms,"
                               " clock_uncertainty_ms FROM machine_states ORDER BY seen_ns DESC",
                               err);
    pj_sql_text(sql, 1, all->today);
    while (pj_sql_step(sql)) {
        pj_machine_row *m = machines_find_or_add(all, pj_sql_get_text(sql, 0, NULL));
        if (!m) break;
        m->beat_ns = pj_sql_get_int(sql, 1);
        m->version = machines_keep(all, pj_sql_get_text(sql, 2, NULL));
        m->sensors = machines_keep(all, pj_sql_get_text(sql, 3, NULL));
        m->source = machines_keep(all, pj_sql_get_text(sql, 4, NULL));
        m->throttle = machines_keep(all, pj_sql_get_text(sql, 5, NULL));
        m->today_meter_mj = pj_sql_get_double(sql, 6);
        m->offset_ms = pj_sql_get_double(sql, 7);
        m->uncertainty_ms = pj_sql_get_double(sql, 8);
    }
    return pj_sql_end(sql, err);
}

/* Names as an array; NULL: null. */
static void machines_write_names(pj_json *json, const char *key, const char *names)
{
    pj_json_key(json, key);
    if (names)
        pj_json_names(json, names);
    else
        pj_json_null(json);
}

const char *pj_machine_source(const pj_machine_row *m)
{
    if (!isnan(m->today_meter_mj) || isnan(m->today_runs_mj)) return m->source;
    return pj_quality_name(m->any_modelled_today ? PJ_MODELLED : PJ_MEASURED);
}

static void write_machine(const pj_machine_row *m, bool is_live, pj_json *json)
{
    char seen[ISO_BYTES];
    bool by_meter = m->beat_ns >= m->run_ns, has_meter = !isnan(m->today_meter_mj);
    double today_mj = pj_machine_today_mj(m);
    pj_clock_format_iso(by_meter ? m->beat_ns : m->run_ns, seen);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", m->name);
    pj_json_kv_string(json, "last_seen", seen);
    pj_json_kv_string(json, "last_seen_by", by_meter ? "server" : "run");
    pj_json_kv_int(json, "runs", m->runs);
    pj_json_kv_string(json, "last_run", m->last_run[0] ? m->last_run : NULL);
    pj_json_kv_string(json, "version", m->version);
    machines_write_names(json, "sensors", m->sensors);
    pj_json_kv_string(json, "energy_source", pj_machine_source(m));
    pj_json_kv_double(json, "energy_today_mj", today_mj);
    pj_json_kv_string(json, "energy_today_of",
                      isnan(today_mj) ? NULL
                      : has_meter     ? "meter"
                                      : "runs");
    machines_write_names(json, "throttle", m->throttle);
    pj_json_kv_double(json, "clock_offset_ms", m->offset_ms);
    pj_json_kv_double(json, "clock_uncertainty_ms", m->uncertainty_ms);
    pj_json_kv_bool(json, "live", is_live);
    pj_json_object_end(json);
}

pj_status pj_store_machines(pj_store *store, pj_arena *arena, pj_machine_row **rows,
                            uint32_t *count, pj_error *err)
{
    machines all = {.arena = arena};
    day_of(pj_clock_wall_ns(), all.today);
    pj_clock_parse_iso(all.today, &all.today_ns);
    all.items = pj_arena_alloc(arena, MAX_MACHINES, sizeof *all.items);
    pj_status status = all.items ? PJ_OK : pj_fail_memory(err, "the list of machines");
    if (status == PJ_OK) status = pj_store_connect(store, err);
    if (status == PJ_OK) status = machines_read_runs(store, &all, err);
    if (status == PJ_OK) status = read_runs_of_today(store, &all, err);
    for (uint32_t i = 0; i < all.count && status == PJ_OK; i++)
        status = read_last_run(store, &all, &all.items[i], err);
    if (status == PJ_OK) status = read_beats(store, &all, err);
    *rows = all.items;
    *count = all.count;
    return status;
}

static pj_status metered_today(pj_store *store, const char *machine, const char *day,
                               pj_energy_today *today, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(
        store, "SELECT energy_mj, energy_source FROM machine_states WHERE name = ? AND day = ?",
        err);
    pj_sql_text(sql, 1, machine);
    pj_sql_text(sql, 2, day);
    if (pj_sql_step(sql)) {
        const char *source = pj_sql_get_text(sql, 1, NULL);
        today->mj = pj_sql_get_double(sql, 0);
        today->metered = !isnan(today->mj);
        today->modelled = source && strcmp(source, pj_quality_name(PJ_MODELLED)) == 0;
    }
    return pj_sql_end(sql, err);
}

static pj_status run_energy_today(pj_store *store, const char *machine, int64_t since_ns,
                                  pj_energy_today *today, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, ENERGY_SINCE(" AND machine = ?"), err);
    pj_sql_int(sql, 1, since_ns);
    pj_sql_text(sql, 2, machine);
    if (pj_sql_step(sql)) {
        today->mj = pj_sql_get_double(sql, 1);
        today->modelled = pj_sql_get_int(sql, 2) != 0;
    }
    return pj_sql_end(sql, err);
}

pj_status pj_store_energy_today(pj_store *store, const char *machine, pj_energy_today *today,
                                pj_error *err)
{
    char day[ISO_BYTES];
    int64_t since_ns;
    *today = (pj_energy_today){.mj = NAN};
    day_of(pj_clock_wall_ns(), day);
    pj_clock_parse_iso(day, &since_ns);
    pj_status status = pj_store_connect(store, err);
    if (status == PJ_OK) status = metered_today(store, machine, day, today, err);
    if (status == PJ_OK && !today->metered)
        status = run_energy_today(store, machine, since_ns, today, err);
    return status;
}

pj_status pj_view_machines(pj_store *store, pj_machine_is_live *is_live, void *context,
                           pj_json *json, pj_error *err)
{
    pj_arena arena;
    pj_machine_row *rows;
    uint32_t count;
    pj_arena_init(&arena, 0);
    pj_status status = pj_store_machines(store, &arena, &rows, &count, err);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count && status == PJ_OK; i++)
        write_machine(&rows[i], is_live && is_live(context, rows[i].name), json);
    pj_json_array_end(json);
    pj_arena_fini(&arena);
    return status;
}
