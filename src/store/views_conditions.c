/* Conditions of a run over time: temperature, clocks, utilisation, power limit and throttling of
 * each device, in columns. A device that never reported a figure has null in place of its column.
 */
#include "store/rows.h"
#include "store/views.h"

#include <string.h>

/* The device's next row from `row` on; NULL: there is none. */
static const pj_condition_row *next_row(const pj_run_data *run, const pj_condition_row *row,
                                        const char *device)
{
    const pj_condition_row *end = run->conditions + run->condition_count;
    while (row < end && (!row->device || strcmp(row->device, device) != 0)) row++;
    return row < end ? row : NULL;
}

/* A column of the device's rows; null where it is NULL in all of them. */
static void views_conditions_write_column(const pj_run_data *run, const char *device,
                                          const pj_column *column, pj_json *json)
{
    const pj_row_table *table = &pj_tables[PJ_TABLE_CONDITIONS];
    const pj_condition_row *row;
    pj_value value = {.type = PJ_VALUE_NULL};
    for (row = run->conditions; value.type == PJ_VALUE_NULL && (row = next_row(run, row, device));
         row++)
        pj_column_get(table, column, row, &value);
    if (value.type == PJ_VALUE_NULL && column->type == PJ_COLUMN_DOUBLE) {
        pj_json_kv_null(json, column->name);
        return;
    }
    pj_json_kv_array_begin(json, column->name);
    for (row = run->conditions; (row = next_row(run, row, device)); row++) {
        pj_column_get(table, column, row, &value);
        pj_column_write(json, column, &value);
    }
    pj_json_array_end(json);
}

static void views_conditions_write_device(const pj_run_data *run, const char *device, pj_json *json)
{
    const pj_row_table *table = &pj_tables[PJ_TABLE_CONDITIONS];
    pj_json_object_begin(json);
    pj_json_kv_string(json, "device", device);
    for (int c = 0; c < table->column_count; c++)
        if (strcmp(table->columns[c].name, "device") != 0)
            views_conditions_write_column(run, device, &table->columns[c], json);
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
