/* The CSV export: a zip with one file per table, with the tables' own columns and RFC 4180
 * quoting. */
#include "store/exports.h"
#include "store/zip.h"

#include "base/clock.h"
#include "base/csv.h"
#include "base/decimal.h"
#include "trace/summary.h"

#include <stdio.h>
#include <string.h>

enum { FLUSH_BYTES = 64 * 1024 };

typedef struct csv {
    pj_zip *zip;
    pj_buffer line;
    bool failed;
} csv;

static void export_csv_flush(csv *c, size_t above)
{
    if (c->line.length <= above) return;
    if (c->line.failed || !pj_zip_write(c->zip, c->line.data, c->line.length)) c->failed = true;
    pj_buffer_clear(&c->line);
}

static void export_csv_put_value(csv *c, pj_value v, bool is_float)
{
    char text[PJ_DECIMAL_BYTES];
    size_t bytes = 0;
    if (v.type == PJ_VALUE_TEXT) pj_csv_put_text(&c->line, v.text, v.bytes);
    if (v.type == PJ_VALUE_INT) bytes = pj_decimal_int(v.integer, text);
    if (v.type == PJ_VALUE_DOUBLE)
        bytes =
            is_float ? pj_decimal_float((float)v.number, text) : pj_decimal_double(v.number, text);
    pj_buffer_append(&c->line, text, bytes);
}

/* A value after others. */
static void put_next(csv *c, pj_value v)
{
    pj_buffer_char(&c->line, ',');
    export_csv_put_value(c, v, false);
}

/* Writes the rows of a SELECT; `table` defines which columns are floats (offset by `skip`), or is
 * NULL. */
static pj_status put_lines(csv *c, pj_sql *sql, int columns, const pj_row_table *table, int skip,
                           pj_error *err)
{
    pj_value value;
    while (!c->failed && pj_sql_step(sql)) {
        for (int i = 0; i < columns; i++) {
            int type = table && i >= skip ? table->columns[i - skip].type : PJ_COLUMN_TEXT;
            if (i) pj_buffer_char(&c->line, ',');
            pj_sql_get_value(sql, i, &value);
            export_csv_put_value(c, value, type == PJ_COLUMN_FLOAT || type == PJ_COLUMN_STAT_FLOAT);
        }
        pj_buffer_append(&c->line, "\r\n", 2);
        export_csv_flush(c, FLUSH_BYTES);
    }
    export_csv_flush(c, 0);
    return pj_sql_end(sql, err);
}

static pj_status begin_file(csv *c, const char *table, const char *columns, pj_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s.csv", table);
    for (const char *at = columns; *at; at++)
        if (*at != ' ') pj_buffer_char(&c->line, *at);
    pj_buffer_append(&c->line, "\r\n", 2);
    return pj_zip_entry(c->zip, name, err);
}

static pj_status export_csv_write_table(csv *c, pj_run_view *view, pj_table_id id, pj_error *err)
{
    const pj_row_table *table = &pj_tables[id];
    char columns[2048];
    pj_table_list_columns(table, table->has_run_id ? "id, run_id" : "id", columns, sizeof columns);
    pj_status status = begin_file(c, table->name, columns, err);
    int skip = table->has_run_id ? 2 : 1;
    if (status != PJ_OK) return status;
    pj_sql *sql = pj_view_select(view, id, columns, "ORDER BY id", err);
    return put_lines(c, sql, table->column_count + skip, table, skip, err);
}

/* The run as it is shown: without disturbances if they are left out. */
static pj_status export_csv_write_run(csv *c, const pj_run_view *view, pj_error *err)
{
    const pj_run_info *info = view->info;
    char columns[8192], created[32];
    pj_run_ratios ratios;
    pj_buffer tags;
    pj_json json;
    size_t n = pj_table_list_columns(&pj_run_table, "id, tags", columns, sizeof columns);
    snprintf(columns + n, sizeof columns - n,
             ", created_at, tokens_per_second, joules_per_token, joules_per_token_sd");
    pj_status status = begin_file(c, "profiling_runs", columns, err);
    pj_buffer_init(&tags, 1u << 24);
    pj_json_init(&json, &tags);
    pj_tags_write(&json, info->tags, info->tag_count);
    pj_clock_format_iso(info->created_wall_ns, created);
    pj_run_ratios_get(info, &ratios);
    export_csv_put_value(c, pj_value_text(info->id), false);
    put_next(c, pj_value_bytes(PJ_VALUE_TEXT, tags.data, tags.length));
    for (int i = 0; i < pj_run_table.column_count; i++) {
        pj_value value;
        pj_column_get(&pj_run_table, &pj_run_table.columns[i], info, &value);
        put_next(c, value);
    }
    put_next(c, pj_value_text(created));
    put_next(c, pj_value_double(ratios.tokens_per_second));
    put_next(c, pj_value_double(ratios.joules_per_token));
    put_next(c, pj_value_double(ratios.joules_per_token_sd));
    pj_buffer_append(&c->line, "\r\n", 2);
    export_csv_flush(c, 0);
    pj_buffer_fini(&tags);
    return status;
}

pj_status pj_export_csv(pj_run_view *view, const pj_output *out, pj_error *err)
{
    csv c = {0};
    pj_buffer_init(&c.line, 1u << 28);
    pj_status status = pj_zip_new(out->write, out->context, &c.zip, err);
    if (status == PJ_OK) status = export_csv_write_run(&c, view, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++)
        status = export_csv_write_table(&c, view, t, err);
    if (status == PJ_OK && c.failed)
        status = pj_fail(err, PJ_E_IO, "the CSV files could not be written completely");
    if (status == PJ_OK) status = pj_zip_finish(c.zip, err);
    pj_zip_free(c.zip);
    pj_buffer_fini(&c.line);
    return status;
}
