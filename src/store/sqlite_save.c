/*
 * Saving a run: all its rows in one transaction, bulk first. Ids are given here, consecutive in
 * every table, so that a reference is an addition and run_rows can name the rows of a run by two
 * numbers. Foreign keys are declared for everybody else; during our own insert they are not
 * checked, because references are made of the very ids that are being given out.
 */
#include "store/aggregate.h"
#include "store/extras.h"
#include "store/saving.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
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

/* A counting sort by component. Recorded operations lie in that order already. */
static pj_status sort_operations(pj_saving *s, pj_error *err)
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
    pj_saving *saving;
    const pj_table *table;
    pj_table_id id;
    const char *known[PJ_FEED_COLUMNS]; /* the column's last text that was UTF-8 */
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
} table_feed;

/* What was appended to `texts` from `begin` on. */
static void set_made_text(pj_value *value, pj_value_type type, size_t begin, const pj_buffer *texts)
{
    *value = (pj_value){.type = type, .integer = (int64_t)begin, .bytes = texts->length - begin};
}

static void get_extras(const pj_saving *s, const pj_table *table, const unsigned char *row,
                       pj_value *value, pj_buffer *texts)
{
    uint32_t range[2]; /* begin, count */
    size_t begin = texts->length;
    memcpy(range, row + table->extras, sizeof range);
    if (range[1] == 0 || range[0] > s->data->extra_count ||
        range[1] > s->data->extra_count - range[0])
        return;
    if (pj_extras_write(texts, s->data->extras + range[0], range[1]))
        set_made_text(value, PJ_VALUE_TEXT, begin, texts);
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

/* The text lies in the row, which may be in the scratch: the next row is put there too. */
static void copy_text(pj_value *value, pj_buffer *texts)
{
    size_t begin = texts->length;
    bool valid = pj_utf8_valid(value->text, value->bytes);
    if (pj_buffer_append(texts, value->text, value->bytes))
        set_made_text(value, valid ? PJ_VALUE_TEXT : PJ_VALUE_BLOB, begin, texts);
}

static void get_table_value(table_feed *f, int c, const void *row, pj_value *value,
                            pj_buffer *texts)
{
    const pj_column *column = &f->table->columns[c];
    if (column->type == PJ_COLUMN_EXTRAS) {
        get_extras(f->saving, f->table, row, value, texts);
        return;
    }
    pj_column_get(f->table, column, row, value);
    if (column->type == PJ_COLUMN_ARRAY_NAME)
        copy_text(value, texts);
    else if (value->type == PJ_VALUE_TEXT)
        check_text(f, c, value);
    else if (column->type == PJ_COLUMN_REFERENCE && value->type == PJ_VALUE_INT)
        value->integer += f->saving->first[column->kind];
}

/* Of a component: id of its first operation, and how many it has. */
static void get_operation_range(const pj_saving *s, uint32_t component, pj_value values[2])
{
    uint32_t count = s->begins ? s->begins[component + 1] - s->begins[component] : 0;
    if (count)
        values[0] = (pj_value){.type = PJ_VALUE_INT,
                               .integer = s->first[PJ_TABLE_OPERATIONS] + s->begins[component]};
    values[1] = (pj_value){.type = PJ_VALUE_INT, .integer = count};
}

static void get_row(void *context, uint32_t index, pj_value *value, pj_buffer *texts)
{
    table_feed *f = context;
    const pj_saving *s = f->saving;
    uint32_t at = f->id == PJ_TABLE_OPERATIONS && s->order ? s->order[index] : index;
    const void *row = pj_table_row(s->data, f->id, at, f->scratch);
    *value++ = (pj_value){.type = PJ_VALUE_INT, .integer = s->first[f->id] + index};
    if (f->table->has_run_id)
        *value++ =
            (pj_value){.type = PJ_VALUE_TEXT, .text = s->data->info.id, .bytes = PJ_UUID_BYTES - 1};
    for (int c = 0; c < f->table->column_count; c++) get_table_value(f, c, row, value++, texts);
    if (f->id == PJ_TABLE_COMPONENTS) get_operation_range(s, index, value);
}

static int feed_columns(const pj_table *table, bool has_range)
{
    return 1 + table->has_run_id + table->column_count + (has_range ? 2 : 0);
}

static void insert_text(const pj_table *table, bool has_range, char *text)
{
    int columns = feed_columns(table, has_range);
    int n = snprintf(text, SQL_BYTES, "INSERT INTO %s (id%s", table->name,
                     table->has_run_id ? ", run_id" : "");
    for (int c = 0; c < table->column_count; c++)
        n += snprintf(text + n, SQL_BYTES - (size_t)n, ", %s", table->columns[c].name);
    n += snprintf(text + n, SQL_BYTES - (size_t)n, "%s) SELECT c0",
                  has_range ? ", first_operation_id, operation_count" : "");
    for (int c = 1; c < columns; c++) n += snprintf(text + n, SQL_BYTES - (size_t)n, ", c%d", c);
    snprintf(text + n, SQL_BYTES - (size_t)n, " FROM pj_feed");
}

static pj_status save_range(pj_saving *s, const pj_table *table, int64_t first, uint32_t count,
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
static pj_status find_first_ids(pj_saving *s, pj_error *err)
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

static pj_status save_table(pj_saving *s, pj_table_id id, pj_error *err)
{
    const pj_table *table = &pj_tables[id];
    bool has_range = id == PJ_TABLE_COMPONENTS;
    table_feed rows = {.saving = s, .table = table, .id = id};
    pj_sql_feed feed = {&rows, pj_table_rows(s->data, id), (uint32_t)feed_columns(table, has_range),
                        get_row};
    char text[SQL_BYTES];
    bool done;
    if (feed.rows == 0) return PJ_OK;
    pj_status status = pj_saving_bulk(s, id, &done, err);
    if (status == PJ_OK && !done) {
        insert_text(table, has_range, text);
        status = pj_sql_insert_all(s->store, text, &feed, err);
    }
    return status == PJ_OK ? save_range(s, table, s->first[id], feed.rows, err) : status;
}

/* Readings of each rail beside the summed columns: float64, one a sample. */
static pj_status save_rail_series(pj_saving *s, pj_error *err)
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

/* ---- charts -------------------------------------------------------------------------------- */

typedef struct chart {
    struct chart *next;
    char name[40];
    size_t bytes;
    unsigned char data[];
} chart;

/* Sums for charts, made on a thread of their own while the rows of a large run go in. */
typedef struct charts {
    const pj_run_data *data;
    chart *first, **last;
    pj_status status;
    pj_error err;
    bool has_thread;
    pthread_t thread;
} charts;

static pj_status keep_chart(void *context, const char *name, const void *bytes, size_t count,
                            pj_error *err)
{
    charts *c = context;
    chart *kept = pj_alloc(sizeof *kept + count, 1);
    if (!kept) return pj_fail_memory(err, "the charts of a run");
    snprintf(kept->name, sizeof kept->name, "%s", name);
    kept->bytes = count;
    memcpy(kept->data, bytes, count);
    *c->last = kept;
    c->last = &kept->next;
    return PJ_OK;
}

static void *make_charts(void *context)
{
    charts *c = context;
    c->status = pj_aggregate_each_chart(c->data, keep_chart, c, &c->err);
    return NULL;
}

static void charts_begin(charts *c, const pj_run_data *data, bool beside)
{
    *c = (charts){.data = data};
    c->last = &c->first;
    c->has_thread =
        beside && pj_thread_start(&c->thread, "pj-charts", make_charts, c, NULL) == PJ_OK;
    if (!c->has_thread) make_charts(c);
}

static void charts_wait(charts *c)
{
    if (c->has_thread) pthread_join(c->thread, NULL);
    c->has_thread = false;
}

static void charts_fini(charts *c)
{
    charts_wait(c);
    for (chart *kept = c->first, *next; kept; kept = next) {
        next = kept->next;
        pj_free(kept);
    }
}

static pj_status save_charts(const pj_saving *s, charts *c, pj_error *err)
{
    charts_wait(c);
    if (c->status != PJ_OK) {
        if (err) *err = c->err;
        return c->status;
    }
    pj_sql *sql = pj_sql_begin(
        s->store, "INSERT INTO run_charts (run_id, chart, data) VALUES (?, ?, ?)", err);
    for (const chart *kept = c->first; kept; kept = kept->next) {
        pj_sql_text(sql, 1, s->data->info.id);
        pj_sql_text(sql, 2, kept->name);
        pj_sql_blob(sql, 3, kept->data, kept->bytes);
        pj_sql_step(sql);
        pj_sql_reset(sql);
    }
    return pj_sql_end(sql, err);
}

/* ---- all together -------------------------------------------------------------------------- */

static bool is_large(const pj_run_data *data)
{
    return (uint64_t)data->component_count + data->operation_count + data->samples.count >=
           LARGE_RUN_ROWS;
}

static pj_status save_all(pj_saving *s, pj_error *err)
{
    const pj_run_info *info = &s->data->info;
    charts sums;
    charts_begin(&sums, s->data, is_large(s->data));
    pj_status status = pj_store_remove_run(s->store, info->id, err);
    if (status == PJ_OK) status = save_run_row(s->store, info, err);
    if (status == PJ_OK) status = save_texts(s->store, info, err);
    if (status == PJ_OK) status = find_first_ids(s, err);
    if (status == PJ_OK) status = sort_operations(s, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) status = save_table(s, t, err);
    if (status == PJ_OK) status = save_rail_series(s, err);
    if (status == PJ_OK) status = save_charts(s, &sums, err);
    charts_fini(&sums);
    return status;
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

static pj_status save_in_transaction(pj_saving *s, pj_error *err)
{
    pj_store *store = s->store;
    pj_status status = pj_sql_transaction(store, true, err);
    if (status != PJ_OK) return status;
    if (is_large(s->data)) pj_sql_log_begin(store);
    status = save_all(s, err);
    if (status == PJ_OK)
        status = pj_sql_commit(store, err);
    else
        pj_sql_rollback(store);
    pj_sql_log_end(store);
    pj_saving_bulk_end(s);
    pj_free(s->begins);
    pj_free(s->order);
    s->begins = s->order = NULL;
    return status;
}

pj_status pj_store_save(pj_store *store, const pj_run_data *data, pj_error *err)
{
    pj_saving s = {.store = store, .data = data};
    hold_checkpoints(store, data);
    pj_status status = pj_sql_run(store, "PRAGMA foreign_keys=OFF", err);
    if (status == PJ_OK) status = save_in_transaction(&s, err);
    if (status == PJ_E_UNSUPPORTED) {
        s.one_by_one = true;
        status = save_in_transaction(&s, err);
    }
    pj_sql_run(store, "PRAGMA foreign_keys=ON", NULL);
    pj_sql_hold_checkpoints(store, false);
    return status;
}
