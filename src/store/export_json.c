/* The JSON export: one object; each table is an array of row objects, ordered by id, or of blocks
 * of rows, where it is long. */
#include "store/exports.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/json_document.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LONG_ROWS = 16384, BLOCK_ROWS = 4096, BLOCK_BYTES = 1 << 27 };

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

/* ---- blocks -------------------------------------------------------------------------------- */

/* The values of a column in a block: floats as they are in memory, others as an array of JSON. */
typedef struct block_column {
    pj_json json;
    pj_buffer values;
    size_t first_bytes; /* of the first value */
    bool is_varied;
} block_column;

typedef struct block {
    const pj_row_table *table;
    const pj_row_range *ranges;
    pj_arena arena;
    block_column *columns;
    uint32_t rows;
} block;

static bool block_begin(block *b, pj_table_id id, const pj_row_range *ranges)
{
    *b = (block){.table = &pj_tables[id], .ranges = ranges};
    pj_arena_init(&b->arena, 0);
    b->columns = pj_arena_alloc(&b->arena, b->table->column_count, sizeof *b->columns);
    for (int c = 0; b->columns && c < b->table->column_count; c++)
        pj_buffer_init(&b->columns[c].values, BLOCK_BYTES);
    return b->columns != NULL;
}

static void block_end(block *b)
{
    for (int c = 0; b->columns && c < b->table->column_count; c++)
        pj_buffer_fini(&b->columns[c].values);
    pj_arena_fini(&b->arena);
}

static void block_add_value(block *b, pj_sql *sql, int number)
{
    const pj_column *what = &b->table->columns[number];
    block_column *column = &b->columns[number];
    pj_buffer *values = &column->values;
    if (b->rows == 0) {
        column->is_varied = number == 0; /* so that some column tells the number of rows */
        pj_buffer_clear(values);
        pj_json_init(&column->json, values);
        if (!pj_column_is_float(what)) pj_json_array_begin(&column->json);
    }
    size_t before = values->length;
    if (pj_column_is_float(what)) {
        float value = (float)pj_sql_get_double(sql, number + 1);
        pj_buffer_append(values, isfinite(value) ? &value : &(float){NAN}, sizeof value);
    } else {
        pj_row_write_value(&column->json, sql, number + 1, what, b->ranges);
    }
    if (values->failed || column->json.failed) return;
    size_t begin = before + (b->rows && !pj_column_is_float(what)); /* after the comma */
    size_t bytes = values->length - begin, first = pj_column_is_float(what) ? 0 : 1;
    if (b->rows == 0) column->first_bytes = bytes;
    column->is_varied |= bytes != column->first_bytes ||
                         memcmp(values->data + begin, values->data + first, bytes) != 0;
}

static void block_write_floats(pj_json *json, const block_column *column)
{
    pj_buffer text;
    float first;
    memcpy(&first, column->values.data, sizeof first);
    if (!column->is_varied) {
        pj_json_float(json, first);
        return;
    }
    pj_buffer_init(&text, BLOCK_BYTES);
    pj_base64_write(&text, column->values.data, column->values.length);
    pj_json_object_begin(json);
    pj_json_key(json, "float32");
    pj_json_string_n(json, pj_buffer_get(&text), text.length);
    pj_json_object_end(json);
    json->failed |= text.failed;
    pj_buffer_fini(&text);
}

/* An earlier column with the same values (self energy without children, say); NULL: none. */
static const char *block_twin_of(const block *b, int number)
{
    const block_column *column = &b->columns[number];
    for (int c = 0; c < number && column->is_varied; c++) {
        const block_column *other = &b->columns[c];
        if (other->is_varied && other->values.length == column->values.length &&
            pj_column_is_float(&b->table->columns[c]) ==
                pj_column_is_float(&b->table->columns[number]) &&
            memcmp(other->values.data, column->values.data, column->values.length) == 0)
            return b->table->columns[c].name;
    }
    return NULL;
}

static void block_write(block *b, pj_json *json)
{
    for (int c = 0; c < b->table->column_count; c++)
        if (!pj_column_is_float(&b->table->columns[c])) pj_json_array_end(&b->columns[c].json);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "rows", b->rows);
    for (int c = 0; c < b->table->column_count && !json->failed; c++) {
        block_column *column = &b->columns[c];
        json->failed |= column->values.failed || column->json.failed;
        const char *twin = json->failed ? NULL : block_twin_of(b, c);
        pj_json_key(json, b->table->columns[c].name);
        if (json->failed) break;
        if (twin) {
            pj_json_object_begin(json);
            pj_json_kv_string(json, "as", twin);
            pj_json_object_end(json);
        } else if (pj_column_is_float(&b->table->columns[c])) {
            block_write_floats(json, column);
        } else if (column->is_varied) {
            pj_json_raw(json, column->values.data, column->values.length);
        } else {
            pj_json_raw(json, column->values.data + 1, column->first_bytes);
        }
    }
    pj_json_object_end(json);
    b->rows = 0;
}

static pj_status write_blocks(pj_json *json, pj_sql *sql, pj_table_id id,
                              const pj_row_range *ranges, pj_error *err)
{
    block b;
    if (!block_begin(&b, id, ranges)) return pj_fail_memory(err, "an export");
    while (!json->failed && pj_sql_step(sql)) {
        for (int c = 0; c < b.table->column_count; c++) block_add_value(&b, sql, c);
        if (++b.rows == BLOCK_ROWS) block_write(&b, json);
    }
    if (b.rows && !json->failed) block_write(&b, json);
    block_end(&b);
    return PJ_OK;
}

/* ---- the run ------------------------------------------------------------------------------- */

/* One with a table of more rows has blocks, which is version 2. */
static bool is_long(const pj_run_view *view)
{
    for (int t = 0; t < PJ_TABLE_COUNT; t++)
        if (view->ranges[t].count > LONG_ROWS) return true;
    return false;
}

static void write_rows(pj_run_view *view, pj_sql *sql, pj_table_id id)
{
    while (!view->json->failed && pj_sql_step(sql)) {
        pj_json_object_begin(view->json);
        pj_row_write_members(view->json, sql, id, view->ranges);
        if (id == PJ_TABLE_RAILS) write_series(view->json, sql, pj_tables[id].column_count + 1);
        pj_json_object_end(view->json);
    }
}

static pj_status export_json_write_table(pj_run_view *view, pj_table_id id, pj_error *err)
{
    const pj_row_table *table = &pj_tables[id];
    char columns[2048];
    pj_status status = PJ_OK;
    size_t n = pj_table_list_columns(table, "id", columns, sizeof columns);
    if (id == PJ_TABLE_RAILS) snprintf(columns + n, sizeof columns - n, ", power_mw");
    pj_sql *sql = pj_view_select(view, id, columns, "ORDER BY id", err);
    pj_json_kv_array_begin(view->json, table->name);
    if (pj_table_is_exported_in_blocks(id) && is_long(view))
        status = write_blocks(view->json, sql, id, view->ranges, err);
    else
        write_rows(view, sql, id);
    pj_json_array_end(view->json);
    return pj_sql_end_after(sql, status, err);
}

pj_status pj_export_json(pj_run_view *view, pj_error *err)
{
    pj_status status = PJ_OK;
    pj_json_object_begin(view->json);
    pj_json_kv_string(view->json, "format", "perjoule-run");
    pj_json_kv_int(view->json, "version", is_long(view) ? 2 : 1);
    pj_json_kv_string(view->json, "generator", "perjoule " PJ_VERSION_TEXT);
    export_json_write_run(view->json, view->info);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++)
        status = export_json_write_table(view, t, err);
    pj_json_object_end(view->json);
    return status;
}
