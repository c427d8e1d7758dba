/* The CSV export: a zip with one file per table, with the tables' own columns and RFC 4180
 * quoting. */
#include "store/exports.h"
#include "store/store_impl.h"
#include "store/zip.h"

#include "base/csv.h"
#include "base/decimal.h"

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

static void export_csv_put_value(csv *c, pj_sql *sql, int column, bool is_float)
{
    char text[PJ_DECIMAL_BYTES];
    pj_value v;
    size_t bytes = 0;
    pj_sql_get_value(sql, column, &v);
    if (v.type == PJ_VALUE_TEXT) pj_csv_put_text(&c->line, v.text, v.bytes);
    if (v.type == PJ_VALUE_INT) bytes = pj_decimal_int(v.integer, text);
    if (v.type == PJ_VALUE_DOUBLE)
        bytes =
            is_float ? pj_decimal_float((float)v.number, text) : pj_decimal_double(v.number, text);
    pj_buffer_append(&c->line, text, bytes);
}

/* Writes the rows of a SELECT; `table` defines which columns are floats (offset by `skip`), or is
 * NULL. */
static pj_status put_lines(csv *c, pj_sql *sql, int columns, const pj_row_table *table, int skip,
                           pj_error *err)
{
    while (!c->failed && pj_sql_step(sql)) {
        for (int i = 0; i < columns; i++) {
            int type = table && i >= skip ? table->columns[i - skip].type : PJ_COLUMN_TEXT;
            if (i) pj_buffer_char(&c->line, ',');
            export_csv_put_value(c, sql, i,
                                 type == PJ_COLUMN_FLOAT || type == PJ_COLUMN_STAT_FLOAT);
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

/* Figures of the run, and what is subtracted from them where disturbances are left out. */
static const char *const disturbed_figures[][2] = {
    {"total_energy_mj", "disturbed_energy_mj"},
    {"net_energy_mj", "disturbed_net_energy_mj"},
    {"total_duration_ms", "disturbed_duration_ms"},
    {"request_energy_mj", "request_disturbed_energy_mj"},
    {"request_energy_net_mj", "request_disturbed_net_energy_mj"},
    {"request_duration_ms", "request_disturbed_duration_ms"},
    {"prefill_energy_mj", "prefill_disturbed_energy_mj"},
    {"prefill_energy_net_mj", "prefill_disturbed_net_energy_mj"},
    {"prefill_duration_ms", "prefill_disturbed_duration_ms"},
    {"decode_energy_mj", "decode_disturbed_energy_mj"},
    {"decode_energy_net_mj", "decode_disturbed_net_energy_mj"},
    {"decode_duration_ms", "decode_disturbed_duration_ms"},
    {"model_load_energy_mj", "model_load_disturbed_energy_mj"},
};

/* The select list of the run's row: its columns, less what is left out. */
static void write_run_columns(pj_buffer *out, const pj_store *store)
{
    pj_buffer_text(out, "id, tags");
    for (int c = 0; c < pj_run_table.column_count; c++) {
        const char *name = pj_run_table.columns[c].name, *less = NULL;
        for (size_t i = 0; i < sizeof disturbed_figures / sizeof *disturbed_figures; i++)
            if (store->leaves_out && strcmp(disturbed_figures[i][0], name) == 0)
                less = disturbed_figures[i][1];
        if (less)
            pj_buffer_printf(out, ", %s - coalesce(%s, 0)", name, less);
        else
            pj_buffer_printf(out, ", %s", name);
    }
    pj_buffer_text(out, store->leaves_out
                            ? ", created_at, tokens_per_second * decode_duration_ms /"
                              " nullif(decode_duration_ms - coalesce(decode_disturbed_duration_ms,"
                              " 0), 0), (request_energy_mj - coalesce(request_disturbed_energy_mj,"
                              " 0)) / 1e3 / nullif(output_tokens, 0), joules_per_token_sd"
                            : ", created_at, tokens_per_second, joules_per_token,"
                              " joules_per_token_sd");
}

static pj_status export_csv_write_run(csv *c, pj_run_view *view, pj_error *err)
{
    char columns[8192];
    pj_buffer text;
    size_t n = pj_table_list_columns(&pj_run_table, "id, tags", columns, sizeof columns);
    snprintf(columns + n, sizeof columns - n,
             ", created_at, tokens_per_second, joules_per_token, joules_per_token_sd");
    pj_status status = begin_file(c, "profiling_runs", columns, err);
    if (status != PJ_OK) return status;
    pj_buffer_init(&text, 1 << 16);
    pj_buffer_text(&text, "SELECT ");
    write_run_columns(&text, view->store);
    pj_buffer_text(&text, " FROM profiling_runs WHERE id = ?");
    status = pj_buffer_status(&text, "the columns of a run", err);
    pj_sql *sql = status == PJ_OK ? pj_sql_begin(view->store, pj_buffer_get(&text), err) : NULL;
    pj_buffer_fini(&text);
    if (!sql) return status == PJ_OK ? PJ_E_IO : status;
    pj_sql_text(sql, 1, view->info->id);
    return put_lines(c, sql, pj_run_table.column_count + 6, NULL, 0, err);
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
