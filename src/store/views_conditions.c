/* Conditions of a run over time: temperature, clocks, utilisation, power limit and throttling of
 * each device, in columns. A device that never reported a figure has null in place of its column.
 */
#include "store/rows.h"
#include "store/views.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} figures[] = {{"t_ms", offsetof(pj_condition_row, t_ms)},
               {"temperature_c", offsetof(pj_condition_row, temperature_c)},
               {"clock_mhz", offsetof(pj_condition_row, clock_mhz)},
               {"memory_clock_mhz", offsetof(pj_condition_row, memory_clock_mhz)},
               {"utilisation", offsetof(pj_condition_row, utilisation)},
               {"power_limit_mw", offsetof(pj_condition_row, power_limit_mw)}};

/* The device's next row from `row` on; NULL: there is none. */
static const pj_condition_row *next_row(const pj_run_data *run, const pj_condition_row *row,
                                        const char *device)
{
    const pj_condition_row *end = run->conditions + run->condition_count;
    while (row < end && (!row->device || strcmp(row->device, device) != 0)) row++;
    return row < end ? row : NULL;
}

static double figure_of(const pj_condition_row *row, size_t offset)
{
    double value;
    memcpy(&value, (const char *)row + offset, sizeof value);
    return value;
}

static void views_conditions_write_column(const pj_run_data *run, const char *device, int figure,
                                          pj_json *json)
{
    size_t offset = figures[figure].offset;
    bool any = false;
    const pj_condition_row *row;
    for (row = run->conditions; (row = next_row(run, row, device)); row++)
        any |= !isnan(figure_of(row, offset));
    if (!any) {
        pj_json_kv_null(json, figures[figure].name);
        return;
    }
    pj_json_kv_array_begin(json, figures[figure].name);
    for (row = run->conditions; (row = next_row(run, row, device)); row++)
        pj_json_double(json, figure_of(row, offset));
    pj_json_array_end(json);
}

static void views_conditions_write_device(const pj_run_data *run, const char *device, pj_json *json)
{
    const pj_condition_row *row;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "device", device);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        views_conditions_write_column(run, device, (int)i, json);
    pj_json_kv_array_begin(json, "throttle");
    for (row = run->conditions; (row = next_row(run, row, device)); row++)
        pj_json_string(json, row->throttle);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

pj_status pj_view_conditions(pj_store *store, const char *id, pj_json *json, pj_error *err)
{
    char full[PJ_UUID_BYTES];
    pj_run_data run = {0};
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK)
        status = pj_store_load_tables(store, full, 1 << PJ_TABLE_CONDITIONS, UINT32_MAX, &run, err);
    if (status != PJ_OK) return status;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "run_id", full);
    pj_json_kv_array_begin(json, "devices");
    for (uint32_t i = 0; i < run.condition_count; i++) {
        const char *device = run.conditions[i].device;
        if (device && next_row(&run, run.conditions, device) == &run.conditions[i])
            views_conditions_write_device(&run, device, json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_run_data_fini(&run);
    return PJ_OK;
}
