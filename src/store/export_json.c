/* The JSON export: one object; each table is an array of row objects, ordered by id. */
#include "store/exports.h"

#include "base/clock.h"
#include "base/json_document.h"

#include <stdio.h>
#include <string.h>

static void export_json_write_run(pj_json *json, const pj_run_info *info)
{
    char created[32];
    pj_clock_format_iso(info->created_wall_ns, created);
    pj_json_kv_object_begin(json, "profiling_run");
    pj_json_kv_string(json, "id", info->id);
    pj_json_kv_string(json, "created_at", created);
    for (int c = 0; c < pj_run_table.column_count; c++) {
        pj_value value = {0};
        pj_column_get(&pj_run_table, &pj_run_table.columns[c], info, &value);
        pj_json_key(json, pj_run_table.columns[c].name);
        pj_column_write(json, &pj_run_table.columns[c], &value);
    }
    pj_json_key(json, "tags");
    pj_tags_write(json, info->tags, info->tag_count);
    pj_json_kv_string(json, "output_text", info->output_text);
    pj_json_key(json, "machine_info");
    const char *machine = info->machine_json;
    pj_json_document(json, machine, machine ? strlen(machine) : 0);
    pj_json_object_end(json);
}

/* A rail's own readings: an array parallel to power_samples. */
static void write_series(pj_json *json, pj_sql *sql, int column)
{
    size_t bytes;
    const char *blob = pj_sql_get_blob(sql, column, &bytes);
    pj_json_key(json, "power_mw");
    if (!blob) {
        pj_json_null(json);
        return;
    }
    pj_json_array_begin(json);
    for (size_t at = 0; at + sizeof(double) <= bytes; at += sizeof(double)) {
        double value;
        memcpy(&value, blob + at, sizeof value);
        pj_json_double(json, value);
    }
    pj_json_array_end(json);
}

static pj_status export_json_write_table(pj_run_view *view, pj_table_id id, pj_error *err)
{
    const pj_row_table *table = &pj_tables[id];
    char columns[2048];
    size_t n = pj_table_list_columns(table, "id", columns, sizeof columns);
    if (id == PJ_TABLE_RAILS) snprintf(columns + n, sizeof columns - n, ", power_mw");
    pj_sql *sql = pj_view_select(view, id, columns, "ORDER BY id", err);
    pj_json_kv_array_begin(view->json, table->name);
    while (!view->json->failed && pj_sql_step(sql)) {
        pj_json_object_begin(view->json);
        pj_row_write_members(view->json, sql, id, view->ranges);
        if (id == PJ_TABLE_RAILS) write_series(view->json, sql, table->column_count + 1);
        pj_json_object_end(view->json);
    }
    pj_json_array_end(view->json);
    return pj_sql_end(sql, err);
}

pj_status pj_export_json(pj_run_view *view, pj_error *err)
{
    pj_status status = PJ_OK;
    pj_json_object_begin(view->json);
    pj_json_kv_string(view->json, "format", "perjoule-run");
    pj_json_kv_int(view->json, "version", 1);
    pj_json_kv_string(view->json, "generator", "perjoule " PJ_VERSION_TEXT);
    export_json_write_run(view->json, view->info);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++)
        status = export_json_write_table(view, t, err);
    pj_json_object_end(view->json);
    return status;
}
