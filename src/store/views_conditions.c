/* Conditions of a run over time: temperature, clocks, utilisation, power limit and throttling of
 * each device, in columns. A device that never reported a figure has null in place of its column.
 */
#include "store/view.h"
#include "trace/conditions.h"

#include <math.h>
#include <string.h>

enum { FIGURES = 5 };

static const char *const names[FIGURES] = {"temperature_c", "clock_mhz", "memory_clock_mhz",
                                           "utilisation", "power_limit_mw"};
static const char columns[] =
    "t_ms, temperature_c, clock_mhz, memory_clock_mhz, utilisation, power_limit_mw, throttle";

static pj_sql *select_device(pj_run_view *view, const char *device, pj_error *err)
{
    pj_sql *sql = pj_view_select(view, PJ_TABLE_CONDITIONS, columns,
                                 "AND device = ?3 ORDER BY t_ms, id", err);
    pj_sql_text(sql, 3, device);
    return sql;
}

/* One column; false: nothing but NULL in it, nothing was written. */
static pj_status views_conditions_write_column(pj_run_view *view, const char *device, int column,
                                               const char *name, pj_error *err)
{
    bool any = column == 0;
    pj_sql *sql = select_device(view, device, err);
    while (!any && pj_sql_step(sql)) any = pj_sql_get_type(sql, column) != PJ_VALUE_NULL;
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK) return status;
    pj_json_key(view->json, name);
    if (!any) {
        pj_json_null(view->json);
        return PJ_OK;
    }
    sql = select_device(view, device, err);
    pj_json_array_begin(view->json);
    while (pj_sql_step(sql)) pj_json_double(view->json, pj_sql_get_double(sql, column));
    pj_json_array_end(view->json);
    return pj_sql_end(sql, err);
}

static pj_status write_throttle(pj_run_view *view, const char *device, pj_error *err)
{
    pj_sql *sql = select_device(view, device, err);
    pj_json_kv_array_begin(view->json, "throttle");
    while (pj_sql_step(sql)) pj_json_string(view->json, pj_sql_get_text(sql, 6, NULL));
    pj_json_array_end(view->json);
    return pj_sql_end(sql, err);
}

static pj_status write_device(pj_run_view *view, const char *device, pj_error *err)
{
    pj_json_object_begin(view->json);
    pj_json_kv_string(view->json, "device", device);
    pj_status status = views_conditions_write_column(view, device, 0, "t_ms", err);
    for (int i = 0; i < FIGURES && status == PJ_OK; i++)
        status = views_conditions_write_column(view, device, i + 1, names[i], err);
    if (status == PJ_OK) status = write_throttle(view, device, err);
    pj_json_object_end(view->json);
    return status;
}

static pj_status read_devices(pj_run_view *view, pj_arena *arena, const char **devices,
                              uint32_t *count, pj_error *err)
{
    pj_sql *sql = pj_view_select(view, PJ_TABLE_CONDITIONS, "device",
                                 "GROUP BY device ORDER BY min(id)", err);
    *count = 0;
    while (*count < PJ_CONDITION_DEVICES && pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        if (name && !(devices[*count] = pj_arena_strndup(arena, name, strlen(name)))) {
            pj_sql_end(sql, err);
            return pj_fail_memory(err, "the devices of a run");
        }
        *count += name != NULL;
    }
    return pj_sql_end(sql, err);
}

static pj_status views_conditions_write_conditions(pj_run_view *view, pj_arena *arena,
                                                   pj_error *err)
{
    const char *devices[PJ_CONDITION_DEVICES];
    uint32_t count;
    pj_status status = read_devices(view, arena, devices, &count, err);
    pj_json_object_begin(view->json);
    pj_json_kv_string(view->json, "run_id", view->info->id);
    pj_json_kv_array_begin(view->json, "devices");
    for (uint32_t i = 0; i < count && status == PJ_OK; i++)
        status = write_device(view, devices[i], err);
    pj_json_array_end(view->json);
    pj_json_object_end(view->json);
    return status;
}

pj_status pj_view_conditions(pj_store *store, const char *id, pj_json *json, pj_error *err)
{
    pj_run_view view;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status = pj_view_open(&view, store, id, json, err);
    if (status == PJ_OK) status = views_conditions_write_conditions(&view, &arena, err);
    pj_view_close(&view);
    pj_arena_fini(&arena);
    return status;
}
