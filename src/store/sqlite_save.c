/*
 * Saving a run: all its rows in one transaction, bulk first. Ids are given here, consecutive in
 * every table, so that a reference is an addition and run_rows can name the rows of a run by two
 * numbers. Foreign keys are declared for everybody else; during our own insert they are not
 * checked, because references are made of the very ids that are being given out.
 */
#include "store/aggregate.h"
#include "store/extras.h"
#include "store/rows.h"
#include "store/sqlite.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "trace/summary.h"

#include <stdio.h>
#include <string.h>

enum { SQL_BYTES = 4096, LARGE_RUN_ROWS = 20000 };

#define MAX_LOG_BYTES (1LL << 30)

/* Bytes as generated need not be valid UTF-8 (a character cut in two); such go in as a blob, so
 * that every reader of the database finds valid text where it is told text. */
static void bind_text(pj_sql *sql, int index, const char *text, size_t bytes)
{
    if (text && !pj_utf8_valid(text, bytes))
        pj_sql_blob(sql, index, text, bytes);
    else
        pj_sql_text_n(sql, index, text, bytes);
}

static void bind_value(pj_sql *sql, int index, const pj_value *v)
{
    switch (v->type) {
    case PJ_VALUE_NULL: pj_sql_null(sql, index); break;
    case PJ_VALUE_INT: pj_sql_int(sql, index, v->integer); break;
    case PJ_VALUE_DOUBLE: pj_sql_double(sql, index, v->number); break;
    case PJ_VALUE_TEXT:
    case PJ_VALUE_BLOB: bind_text(sql, index, v->text, v->bytes); break;
    }
}

/* ---- the run's own row --------------------------------------------------------------------- */

static void write_tags(pj_json *json, const pj_run_info *info)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < info->tag_count; i++) pj_json_string(json, info->tags[i]);
    pj_json_array_end(json);
}

static void bind_run(pj_sql *sql, const pj_run_info *info, const char *created, const char *tags)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    int index = 1;
    pj_sql_text(sql, index++, info->id);
    pj_sql_text(sql, index++, created);
    pj_sql_text(sql, index++, tags);
    pj_sql_double(sql, index++, ratios.tokens_per_second);
    pj_sql_double(sql, index++, ratios.joules_per_token);
    for (int c = 0; c < pj_run_table.column_count; c++) {
        pj_value value = {0};
        pj_column_get(&pj_run_table, &pj_run_table.columns[c], info, &value);
        bind_value(sql, index++, &value);
    }
}

static pj_status save_run_row(pj_store *store, const pj_run_info *info, pj_error *err)
{
    char created[32], text[SQL_BYTES];
    int n = snprintf(text, sizeof text,
                     "INSERT INTO profiling_runs (id, created_at, tags, "
                     "tokens_per_second, joules_per_token");
    for (int c = 0; c < pj_run_table.column_count; c++)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %s", pj_run_table.columns[c].name);
    n += snprintf(text + n, sizeof text - (size_t)n, ") VALUES (?,?,?,?,?");
    for (int c = 0; c < pj_run_table.column_count; c++)
        n += snprintf(text + n, sizeof text - (size_t)n, ",?");
    snprintf(text + n, sizeof text - (size_t)n, ")");
    pj_clock_format_iso(info->created_wall_ns, created);
    pj_buffer tags;
    pj_json json;
    pj_buffer_init(&tags, 1 << 20);
    pj_json_init(&json, &tags);
    write_tags(&json, info);
    pj_status status = pj_buffer_status(&tags, "the run's tags", err);
    if (status == PJ_OK) {
        pj_sql *sql = pj_sql_begin(store, text, err);
        if (sql) bind_run(sql, info, created, pj_buffer_get(&tags));
        pj_sql_step(sql);
        status = pj_sql_end(sql, err);
    }
    pj_buffer_fini(&tags);
    return status;
}

static pj_status save_texts(pj_store *store, const pj_run_info *info, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "INSERT INTO run_texts VALUES (?, ?, ?)", err);
    pj_sql_text(sql, 1, info->id);
    if (sql)
        bind_text(sql, 2, info->output_text, info->output_text ? strlen(info->output_text) : 0);
    pj_sql_text(sql, 3, info->machine_json);
    pj_sql_step(sql);
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK || info->tag_count == 0) return status;
    sql = pj_sql_begin(store, "INSERT OR IGNORE INTO run_tags (tag, run_id) VALUES (?, ?)", err);
    for (uint32_t i = 0; i < info->tag_count; i++) {
        pj_sql_text(sql, 1, info->tags[i]);
        pj_sql_text(sql, 2, info->id);
        pj_sql_step(sql);
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

/* ---- tables -------------------------------------------------------------------------------- */

typedef struct saving {
    pj_store *store;
    const pj_run_data *data;
    int64_t first[PJ_TABLE_COUNT];
    pj_buffer extras;
    bool no_memory; /* for extras */
    /* Operations of component c are begins[c] to begins[c + 1] in the order in which they are
     * stored; order[i] is the index in memory of the i-th, NULL where it is i. */
    uint32_t *begins, *order;
} saving;

/* A counting sort by component. Recorded operations lie in that order already. */
static pj_status sort_operations(saving *s, pj_error *err)
{
    const pj_run_data *d = s->data;
    uint32_t components = d->component_count, previous = 0;
    bool sorted = true;
    if (d->operation_count == 0) return PJ_OK;
    s->begins = pj_alloc((size_t)components + 3, sizeof *s->begins);
    if (!s->begins) return pj_fail_memory(err, "a run to be stored");
    for (uint32_t i = 0; i < d->operation_count; i++) {
        uint32_t c = d->operations[i].component;
        if (c > components) c = components; /* of no component: last */
        s->begins[c + 2]++;
        sorted = sorted && c >= previous;
        previous = c;
    }
    for (uint32_t c = 2; c < components + 3; c++) s->begins[c] += s->begins[c - 1];
    if (!sorted) s->order = pj_alloc(d->operation_count, sizeof *s->order);
    if (!sorted && !s->order) return pj_fail_memory(err, "a run to be stored");
    for (uint32_t i = 0; i < d->operation_count && s->order; i++) {
        uint32_t c = d->operations[i].component;
        s->order[s->begins[(c < components ? c : components) + 1]++] = i;
    }
    if (sorted) memmove(s->begins, s->begins + 1, ((size_t)components + 2) * sizeof *s->begins);
    return PJ_OK;
}

/* One table as a feed: column 0 is the id, then run_id where the table has it, then its columns,
 * then those that only the database has. */
typedef struct table_feed {
    saving *saving;
    const pj_table *table;
    pj_table_id id;
    int begin; /* feed column of the table's first column */
    uint32_t at;
    const void *row;                    /* number `at` */
    const char *known[PJ_FEED_COLUMNS]; /* the column's last text that was UTF-8 */
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
} table_feed;

static void get_extras(saving *s, const pj_table *table, const unsigned char *row, pj_value *value)
{
    uint32_t range[2]; /* begin, count */
    memcpy(range, row + table->extras, sizeof range);
    if (range[1] == 0 || range[0] > s->data->extra_count ||
        range[1] > s->data->extra_count - range[0])
        return;
    pj_buffer_clear(&s->extras);
    if (!pj_extras_write(&s->extras, s->data->extras + range[0], range[1])) {
        s->no_memory = true;
        return;
    }
    value->type = PJ_VALUE_TEXT;
    value->text = pj_buffer_get(&s->extras);
    value->bytes = s->extras.length;
}

/* Names are interned, so that most texts are the very ones of the row before. */
static void check_text(table_feed *f, int c, pj_value *value)
{
    if (value->text == f->known[c]) return;
    if (pj_utf8_valid(value->text, value->bytes))
        f->known[c] = value->text;
    else
        value->type = PJ_VALUE_BLOB;
}

static void get_table_value(table_feed *f, int c, pj_value *value)
{
    saving *s = f->saving;
    const pj_column *column = &f->table->columns[c];
    if (column->type == PJ_COLUMN_EXTRAS) {
        get_extras(s, f->table, f->row, value);
        return;
    }
    pj_column_get(f->table, column, f->row, value);
    if (column->type == PJ_COLUMN_REFERENCE && value->type == PJ_VALUE_INT)
        value->integer += s->first[column->kind];
    else if (value->type == PJ_VALUE_TEXT)
        check_text(f, c, value);
}

/* Of a component: id of its first operation, and how many it has. */
static void get_operation_range(const table_feed *f, bool count, pj_value *value)
{
    const saving *s = f->saving;
    uint32_t operations = s->begins ? s->begins[f->at + 1] - s->begins[f->at] : 0;
    if (!count && operations == 0) return;
    value->type = PJ_VALUE_INT;
    value->integer = count ? operations : s->first[PJ_TABLE_OPERATIONS] + s->begins[f->at];
}

static void get_value(void *context, uint32_t row, int column, pj_value *value)
{
    table_feed *f = context;
    saving *s = f->saving;
    if (column == 0) {
        uint32_t at = f->id == PJ_TABLE_OPERATIONS && s->order ? s->order[row] : row;
        f->at = row;
        f->row = pj_table_row(s->data, f->id, at, f->scratch);
        value->type = PJ_VALUE_INT;
        value->integer = s->first[f->id] + row;
    } else if (column < f->begin) {
        value->type = PJ_VALUE_TEXT;
        value->text = s->data->info.id;
        value->bytes = PJ_UUID_BYTES - 1;
    } else if (column < f->begin + f->table->column_count) {
        get_table_value(f, column - f->begin, value);
    } else {
        get_operation_range(f, column > f->begin + f->table->column_count, value);
    }
}

static void insert_text(const pj_table *table, bool has_range, char *text)
{
    int columns = 1 + table->has_run_id + table->column_count + (has_range ? 2 : 0);
    int n = snprintf(text, SQL_BYTES, "INSERT INTO %s (id%s", table->name,
                     table->has_run_id ? ", run_id" : "");
    for (int c = 0; c < table->column_count; c++)
        n += snprintf(text + n, SQL_BYTES - (size_t)n, ", %s", table->columns[c].name);
    n += snprintf(text + n, SQL_BYTES - (size_t)n, "%s) SELECT c0",
                  has_range ? ", first_operation_id, operation_count" : "");
    for (int c = 1; c < columns; c++) n += snprintf(text + n, SQL_BYTES - (size_t)n, ", c%d", c);
    snprintf(text + n, SQL_BYTES - (size_t)n, " FROM pj_feed");
}

static pj_status save_range(saving *s, const pj_table *table, int64_t first, uint32_t count,
                            pj_error *err)
{
    pj_sql *sql = pj_sql_begin(s->store, "INSERT INTO run_rows VALUES (?, ?, ?, ?)", err);
    pj_sql_text(sql, 1, s->data->info.id);
    pj_sql_text(sql, 2, table->name);
    pj_sql_int(sql, 3, first);
    pj_sql_int(sql, 4, count);
    pj_sql_step(sql);
    return pj_sql_end(sql, err);
}

/* The id that the run's first row of each table gets. */
static pj_status find_first_ids(saving *s, pj_error *err)
{
    char text[96];
    pj_status status = PJ_OK;
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) {
        snprintf(text, sizeof text, "SELECT max(id) FROM %s", pj_tables[t].name);
        status = pj_sql_get_one_int(s->store, text, NULL, 0, &s->first[t], err);
        s->first[t]++;
    }
    return status;
}

static pj_status save_table(saving *s, pj_table_id id, pj_error *err)
{
    const pj_table *table = &pj_tables[id];
    table_feed rows = {.saving = s, .table = table, .id = id, .begin = 1 + table->has_run_id};
    pj_sql_feed feed = {&rows, pj_table_rows(s->data, id), get_value};
    char text[SQL_BYTES];
    if (feed.rows == 0) return PJ_OK;
    insert_text(table, id == PJ_TABLE_COMPONENTS, text);
    pj_status status = pj_sql_insert_all(s->store, text, &feed, err);
    if (status == PJ_OK && s->no_memory) status = pj_fail_memory(err, "a run to be stored");
    return status == PJ_OK ? save_range(s, table, s->first[id], feed.rows, err) : status;
}

/* Readings of each rail beside the summed columns: float64, one a sample. */
static pj_status save_rail_series(saving *s, pj_error *err)
{
    const pj_run_data *data = s->data;
    pj_sql *sql = pj_sql_begin(s->store, "UPDATE run_rails SET power_mw = ? WHERE id = ?", err);
    for (uint32_t r = 0; r < data->rail_count && data->samples.count; r++) {
        if (!data->samples.mw[r]) continue;
        pj_sql_blob(sql, 1, data->samples.mw[r], data->samples.count * sizeof(double));
        pj_sql_int(sql, 2, s->first[PJ_TABLE_RAILS] + r);
        pj_sql_step(sql);
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

static pj_status save_chart(void *context, const char *chart, const void *bytes, size_t count,
                            pj_error *err)
{
    saving *s = context;
    pj_sql *sql = pj_sql_begin(
        s->store, "INSERT INTO run_charts (run_id, chart, data) VALUES (?, ?, ?)", err);
    pj_sql_text(sql, 1, s->data->info.id);
    pj_sql_text(sql, 2, chart);
    pj_sql_blob(sql, 3, bytes, count);
    pj_sql_step(sql);
    return pj_sql_end(sql, err);
}

static pj_status save_all(saving *s, pj_error *err)
{
    const pj_run_info *info = &s->data->info;
    pj_status status = pj_store_remove_run(s->store, info->id, err);
    if (status == PJ_OK) status = save_run_row(s->store, info, err);
    if (status == PJ_OK) status = save_texts(s->store, info, err);
    if (status == PJ_OK) status = find_first_ids(s, err);
    if (status == PJ_OK) status = sort_operations(s, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) status = save_table(s, t, err);
    if (status == PJ_OK) status = save_rail_series(s, err);
    if (status == PJ_OK) status = pj_aggregate_each_chart(s->data, save_chart, s, err);
    return status;
}

static bool is_large(const pj_run_data *data)
{
    return (uint64_t)data->component_count + data->operation_count + data->samples.count >=
           LARGE_RUN_ROWS;
}

/* A large run's commit would carry the whole log over into the database at once, on the caller's
 * time. It stays in the log instead, until the database is closed, a small write comes by, or the
 * log has grown too long. */
static void hold_checkpoints(pj_store *store, const pj_run_data *data)
{
    if (!is_large(data)) return;
    if (pj_store_log_bytes(store) > MAX_LOG_BYTES)
        pj_sql_run(store, "PRAGMA wal_checkpoint(PASSIVE)", NULL);
    pj_sql_hold_checkpoints(store, true);
}

pj_status pj_store_save(pj_store *store, const pj_run_data *data, pj_error *err)
{
    saving s = {.store = store, .data = data};
    pj_buffer_init(&s.extras, 64u << 20);
    hold_checkpoints(store, data);
    pj_status status = pj_sql_run(store, "PRAGMA foreign_keys=OFF", err);
    if (status == PJ_OK) status = pj_sql_transaction(store, true, err);
    if (status == PJ_OK) {
        if (is_large(data)) pj_sql_log_begin(store);
        status = save_all(&s, err);
        if (status == PJ_OK)
            status = pj_sql_commit(store, err);
        else
            pj_sql_rollback(store);
        pj_sql_log_end(store);
    }
    pj_sql_run(store, "PRAGMA foreign_keys=ON", NULL);
    pj_sql_hold_checkpoints(store, false);
    pj_buffer_fini(&s.extras);
    pj_free(s.begins);
    pj_free(s.order);
    return status;
}
