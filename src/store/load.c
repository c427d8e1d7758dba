/* Loads a saved run. The database is untrusted input: rows are counted while reading, references
 * must be inside the run, names must be known. */
#include "store/rows.h"
#include "store/sql.h"
#include "store/store_impl.h"
#include "trace/disturbance.h"

#include <stdio.h>
#include <string.h>

enum { SQL_BYTES = 8192 };

/* ---- the run's own row --------------------------------------------------------------------- */

static pj_status damaged(const char *table, const char *column, pj_error *err)
{
    return pj_fail(err, PJ_E_INVALID, "the database is damaged: a value of %s.%s is invalid", table,
                   column);
}

static pj_status run_damaged(const char *id, const char *column, pj_error *err)
{
    return pj_fail(
        err, PJ_E_INVALID,
        "the database is damaged: profiling_runs.%s of run %s is invalid; perjoule rm %s "
        "deletes the run",
        column, id, id);
}

pj_status pj_info_read(pj_sql *sql, pj_run_info *info, pj_arena *arena, pj_error *err)
{
    size_t bytes;
    const char *id = pj_sql_get_text(sql, 0, &bytes);
    if (!id || bytes != PJ_UUID_BYTES - 1) return damaged("profiling_runs", "id", err);
    memcpy(info->id, id, PJ_UUID_BYTES);
    for (int c = 0; c < pj_run_table.column_count; c++) {
        const pj_column *column = &pj_run_table.columns[c];
        pj_value value;
        pj_sql_get_value(sql, c + 2, &value);
        if (!pj_column_set(&pj_run_table, column, info, &value, arena, NULL))
            return run_damaged(info->id, column->name, err);
    }
    const char *tags = pj_sql_get_text(sql, 1, &bytes);
    return pj_tags_read(tags, bytes, arena, &info->tags, &info->tag_count, err);
}

static char *load_copy_text(pj_sql *sql, int column, pj_arena *arena)
{
    size_t bytes;
    const char *text = pj_sql_get_text(sql, column, &bytes);
    return text ? pj_arena_strndup(arena, text, bytes) : NULL;
}

pj_status pj_info_load(pj_store *store, const char *id, pj_run_info *info, pj_arena *arena,
                       pj_error *err)
{
    char columns[SQL_BYTES - 100], text[SQL_BYTES];
    pj_table_list_columns(&pj_run_table, "id, tags", columns, sizeof columns);
    snprintf(text, sizeof text,
             "SELECT %s, output_text, machine_info FROM profiling_runs LEFT JOIN run_texts"
             " ON run_id = id WHERE id = ?",
             columns);
    pj_status status = PJ_OK;
    pj_sql *sql = pj_sql_begin(store, text, err);
    pj_sql_text(sql, 1, id);
    bool found = pj_sql_step(sql);
    if (found) {
        status = pj_info_read(sql, info, arena, err);
        info->output_text = load_copy_text(sql, pj_run_table.column_count + 2, arena);
        info->machine_json = load_copy_text(sql, pj_run_table.column_count + 3, arena);
    }
    status = pj_sql_end_after(sql, status, err);
    if (status == PJ_OK && !found) return pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    return status;
}

/* ---- tables -------------------------------------------------------------------------------- */

typedef struct loading {
    pj_store *store;
    pj_run_data *data;
    uint32_t limit; /* rows of a table */
    pj_row_range ranges[PJ_TABLE_COUNT];
    pj_extra_list extras;
} loading;

/* Converts a row id to its index; false when it is outside the run. */
static bool localise(const loading *l, const pj_column *column, pj_value *value)
{
    if (column->type != PJ_COLUMN_REFERENCE || value->type == PJ_VALUE_NULL) return true;
    const pj_row_range *range = &l->ranges[column->kind];
    if (value->type != PJ_VALUE_INT || value->integer < range->first ||
        value->integer - range->first >= range->count)
        return false;
    value->integer -= range->first;
    return true;
}

static pj_status load_read_row(loading *l, const pj_row_table *table, pj_sql *sql, void *row,
                               pj_error *err)
{
    for (int c = 0; c < table->column_count; c++) {
        const pj_column *column = &table->columns[c];
        pj_value value;
        pj_sql_get_value(sql, c + 1, &value);
        if (!localise(l, column, &value) ||
            !pj_column_set(table, column, row, &value, &l->data->arena, &l->extras))
            return damaged(table->name, column->name, err);
    }
    return PJ_OK;
}

static pj_status load_table(loading *l, pj_table_id id, pj_error *err)
{
    const pj_row_table *table = &pj_tables[id];
    pj_row_range range = l->ranges[id];
    if (range.count > l->limit) range.count = l->limit;
    char columns[SQL_BYTES - 100], scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    const char *run_id = l->data->info.id;
    uint32_t i = 0;
    if (range.count == 0) return PJ_OK;
    /* Before allocating: are there as many rows as run_rows states? */
    pj_sql *sql = pj_select_rows(l->store, run_id, id, range, "count(*)", "", err);
    bool right = pj_sql_step(sql) && pj_sql_get_int(sql, 0) == range.count;
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK) return status;
    if (!right)
        return pj_fail(err, PJ_E_INVALID, "the database is damaged: rows of %s are missing",
                       table->name);
    if (!pj_rows_make_room(l->data, id, range.count)) return pj_fail_memory(err, "a stored run");
    pj_table_list_columns(table, "id", columns, sizeof columns);
    sql = pj_select_rows(l->store, run_id, id, range, columns, "ORDER BY id", err);
    while (status == PJ_OK && i < range.count && pj_sql_step(sql)) {
        memset(scratch, 0, table->row_bytes);
        status = load_read_row(l, table, sql, scratch, err);
        if (status == PJ_OK && !pj_rows_put(l->data, id, i++, scratch))
            status = damaged(table->name, "id", err);
    }
    return pj_sql_end_after(sql, status, err);
}

static pj_status load_rail_series(loading *l, pj_error *err)
{
    pj_run_data *data = l->data;
    uint32_t count = data->samples.count;
    pj_sql *sql =
        pj_sql_begin(l->store, "SELECT power_mw FROM run_rails WHERE run_id = ?2 AND id = ?1", err);
    pj_sql_text(sql, 2, data->info.id);
    for (uint32_t r = 0; r < data->rail_count && count && sql; r++) {
        pj_sql_int(sql, 1, l->ranges[PJ_TABLE_RAILS].first + r);
        size_t bytes = 0;
        const void *blob = pj_sql_step(sql) ? pj_sql_get_blob(sql, 0, &bytes) : NULL;
        if (blob && bytes == count * sizeof(double)) {
            data->samples.mw[r] = pj_arena_alloc(&data->arena, count, sizeof(double));
            if (data->samples.mw[r]) memcpy(data->samples.mw[r], blob, bytes);
        }
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

static pj_status load_chosen(loading *l, const char *id, uint32_t tables, pj_error *err)
{
    pj_status status = pj_info_load(l->store, id, &l->data->info, &l->data->arena, err);
    if (status == PJ_OK && l->store->leaves_out) pj_run_info_leave_out_disturbances(&l->data->info);
    if (status == PJ_OK) status = pj_store_ranges(l->store, id, l->ranges, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++)
        if (tables >> t & 1) status = load_table(l, t, err);
    return status;
}

static pj_status load_complete(loading *l, pj_error *err)
{
    pj_status status = load_rail_series(l, err);
    if (status == PJ_OK) status = pj_extras_take(&l->extras, l->data, err);
    if (status == PJ_OK) pj_rows_complete(l->data);
    if (status == PJ_OK) status = pj_rows_check(l->data, err);
    return status;
}

pj_status pj_store_load_tables(pj_store *store, const char *id, uint32_t tables, uint32_t limit,
                               pj_run_data *data, pj_error *err)
{
    pj_run_data_fini(data);
    pj_arena_init(&data->arena, 0);
    loading l = {.store = store, .data = data, .limit = limit};
    pj_status status = pj_sql_transaction(store, PJ_READ, err);
    if (status == PJ_OK) {
        status = load_chosen(&l, id, tables, err);
        if (status == PJ_OK && tables == UINT32_MAX) status = load_complete(&l, err);
        pj_sql_rollback(store);
    }
    pj_free(l.extras.rows);
    if (status != PJ_OK) pj_run_data_fini(data);
    return status;
}

pj_status pj_store_load(pj_store *store, const char *id, pj_run_data *data, pj_error *err)
{
    return pj_store_load_tables(store, id, UINT32_MAX, UINT32_MAX, data, err);
}
