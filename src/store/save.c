/* Saves a run: all rows in one transaction. Ids are assigned here, consecutively in every table, so
 * that a reference is an addition and run_rows describes a run's rows by two numbers. Foreign keys
 * are declared for other writers; our inserts do not check them, because references are computed
 * from the assigned ids. */
#include "store/aggregate.h"
#include "store/row_encoder.h"
#include "store/store_impl.h"

#include "base/memory.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>

enum { SQL_BYTES = 1024 };

/* ---- rows ----------------------------------------------------------------------------------- */

static void insert_text(const pj_row_encoder *encoder, char *text)
{
    int n = snprintf(text, SQL_BYTES, "INSERT INTO %s VALUES (?", encoder->stored_as);
    for (uint32_t c = 1; c < encoder->column_count; c++)
        n += snprintf(text + n, SQL_BYTES - (size_t)n, ",?");
    snprintf(text + n, SQL_BYTES - (size_t)n, ")");
}

static pj_status insert_by_statement(pj_store *store, pj_row_encoder *encoder, uint32_t rows,
                                     pj_error *err)
{
    char text[SQL_BYTES];
    bool failed = false;
    insert_text(encoder, text);
    pj_sql *sql = pj_sql_begin(store, text, err);
    for (uint32_t i = 0; i < rows && sql && !failed; i++) {
        const pj_value *values = pj_row_encode(encoder, i);
        failed = !values;
        if (values) pj_sql_execute(sql, values, (int)encoder->column_count);
    }
    pj_status status = pj_sql_end(sql, err);
    if (status != PJ_OK || !failed) return status;
    const pj_error *failure = &store->texts.failure;
    if (failure->status == PJ_OK) return pj_fail_memory(err, "a run to be stored");
    if (err) *err = *failure;
    return failure->status;
}

static pj_status insert_rows(pj_saving *s, pj_table_id id, uint32_t rows, pj_error *err)
{
    pj_store *store = s->store;
    pj_row_encoder encoder;
    pj_status status = pj_row_encoder_init(&encoder, s, id, err);
    const pj_bulk_rows bulk = {encoder.stored_as, rows, pj_row_encode, &encoder};
    if (status == PJ_OK)
        status = store->driver->insert_rows ? store->driver->insert_rows(store->db, &bulk, err)
                                            : insert_by_statement(store, &encoder, rows, err);
    pj_row_encoder_fini(&encoder);
    return status;
}

/* ---- the run's own row --------------------------------------------------------------------- */

static pj_status save_texts(pj_store *store, const pj_run_info *info, pj_error *err)
{
    pj_value output = pj_value_text(info->output_text);
    pj_value_check_utf8(&output);
    pj_status status = pj_sql_change(
        store, "INSERT INTO run_texts VALUES (?, ?, ?)",
        PJ_VALUES(pj_value_text(info->id), output, pj_value_text(info->machine_json)), err);
    return status == PJ_OK ? pj_tags_insert(store, info->id, info->tags, info->tag_count, err)
                           : status;
}

/* ---- tables -------------------------------------------------------------------------------- */

/* Counting sort by component. Recorded operations are usually in that order already. */
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
        if (c > components) c = components; /* without a component: last */
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

static pj_status reserve_ids(pj_saving *s, pj_error *err)
{
    const char *tables[PJ_TABLE_COUNT + 1];
    int64_t counts[PJ_TABLE_COUNT + 1], first[PJ_TABLE_COUNT + 1];
    for (int t = 0; t < PJ_TABLE_COUNT; t++) {
        tables[t] = pj_tables[t].name;
        counts[t] = pj_table_rows(s->data, t);
    }
    tables[PJ_TABLE_COUNT] = pj_run_table.name;
    counts[PJ_TABLE_COUNT] = 1;
    pj_status status =
        s->store->driver->reserve_ids(s->store->db, tables, counts, PJ_TABLE_COUNT + 1, first, err);
    if (status != PJ_OK) return status;
    memcpy(s->first, first, sizeof s->first);
    s->run_number = first[PJ_TABLE_COUNT];
    return PJ_OK;
}

/* The id of the run's first row in each table. */
static pj_status find_first_ids(pj_saving *s, pj_error *err)
{
    char text[96];
    pj_status status = PJ_OK;
    if (s->store->driver->reserve_ids) return reserve_ids(s, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) {
        snprintf(text, sizeof text, "SELECT max(id) FROM %s", pj_tables[t].name);
        status = pj_sql_get_one_int(s->store, text, NULL, 0, &s->first[t], err);
        s->first[t]++;
    }
    return status;
}

/* Before any table: a page that changes again after it was evicted to SQLite's write-ahead log
 * makes the commit read the log from that page on and compute all its checksums anew. */
static pj_status save_ranges(const pj_saving *s, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(s->store, "INSERT INTO run_rows VALUES (?, ?, ?, ?)", err);
    for (int t = 0; t < PJ_TABLE_COUNT; t++) {
        uint32_t rows = pj_table_rows(s->data, (pj_table_id)t);
        if (rows == 0) continue;
        pj_sql_execute(sql,
                       PJ_VALUES(pj_value_text(s->data->info.id), pj_value_text(pj_tables[t].name),
                                 pj_value_int(s->first[t]), pj_value_int(rows)));
    }
    return pj_sql_end(sql, err);
}

/* Readings of each rail besides the summed columns: one float64 per sample. */
static pj_status save_rail_series(pj_saving *s, pj_error *err)
{
    const pj_run_data *data = s->data;
    pj_sql *sql = pj_sql_begin(
        s->store, "UPDATE run_rails SET power_mw = ?1 WHERE run_id = ?3 AND id = ?2", err);
    for (uint32_t r = 0; r < data->rail_count && data->samples.count; r++) {
        if (!data->samples.mw[r]) continue;
        const pj_value series = pj_value_bytes(PJ_VALUE_BLOB, data->samples.mw[r],
                                               data->samples.count * sizeof(double));
        pj_sql_execute(sql, PJ_VALUES(series, pj_value_int(s->first[PJ_TABLE_RAILS] + r),
                                      pj_value_text(data->info.id)));
    }
    return pj_sql_end(sql, err);
}

/* ---- charts -------------------------------------------------------------------------------- */

typedef struct chart {
    const char *name, *data;
    size_t bytes;
} chart;

/* Sums for charts, computed on a separate thread while rows are inserted. */
typedef struct charts {
    const pj_run_data *data;
    pj_arena arena;
    chart *kept;
    uint32_t count;
    pj_status status;
    pj_error err;
    bool has_thread;
    pthread_t thread;
} charts;

static pj_status keep_chart(void *context, const char *name, const void *bytes, size_t count,
                            pj_error *err)
{
    charts *c = context;
    const char *copy = pj_arena_strndup(&c->arena, bytes, count);
    c->kept = pj_arena_more(&c->arena, c->kept, c->count, sizeof *c->kept);
    if (!copy || !c->kept) return pj_fail_memory(err, "the charts of a run");
    name = pj_arena_strndup(&c->arena, name, strlen(name));
    if (!name) return pj_fail_memory(err, "the charts of a run");
    c->kept[c->count++] = (chart){name, copy, count};
    return PJ_OK;
}

static void *make_charts(void *context)
{
    charts *c = context;
    c->status = pj_aggregate_each_chart(c->data, keep_chart, c, &c->err);
    return NULL;
}

static void charts_begin(charts *c, const pj_run_data *data)
{
    *c = (charts){.data = data};
    pj_arena_init(&c->arena, 0);
    c->has_thread = pj_thread_start(&c->thread, "pj-charts", make_charts, c, NULL) == PJ_OK;
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
    pj_arena_fini(&c->arena);
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
    for (const chart *kept = c->kept, *end = kept + c->count; kept < end; kept++) {
        const pj_value bytes = pj_value_bytes(PJ_VALUE_BLOB, kept->data, kept->bytes);
        pj_sql_execute(
            sql, PJ_VALUES(pj_value_text(s->data->info.id), pj_value_text(kept->name), bytes));
    }
    return pj_sql_end(sql, err);
}

/* ---- the whole run -------------------------------------------------------------------------- */

static pj_status save_all(pj_saving *s, pj_error *err)
{
    const pj_run_info *info = &s->data->info;
    charts sums;
    charts_begin(&sums, s->data);
    pj_status status = pj_store_remove_run(s->store, info->id, err);
    if (status == PJ_OK) status = find_first_ids(s, err);
    if (status == PJ_OK) status = insert_rows(s, PJ_TABLE_COUNT, 1, err);
    if (status == PJ_OK) status = pj_store_expect_run(s->store, info->id, true, err);
    if (status == PJ_OK) status = save_texts(s->store, info, err);
    if (status == PJ_OK) status = sort_operations(s, err);
    if (status == PJ_OK) status = save_ranges(s, err);
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) {
        uint32_t rows = pj_table_rows(s->data, t);
        if (rows) status = insert_rows(s, t, rows, err);
        if (status == PJ_OK && t == PJ_TABLE_RAILS) status = save_rail_series(s, err);
    }
    if (status == PJ_OK) status = save_charts(s, &sums, err);
    charts_fini(&sums);
    return status;
}

pj_status pj_store_save_here(pj_store *store, const pj_run_data *data, pj_error *err)
{
    pj_saving s = {.store = store, .data = data};
    int64_t machine_id = pj_machine_id(data->info.machine);
    pj_status status = pj_store_enter_run(store, data->info.id, &machine_id, err);
    if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    pj_packed_texts_forget(&store->texts);
    status = pj_sql_finish(store, save_all(&s, err), err);
    if (status != PJ_OK) pj_packed_texts_forget(&store->texts);
    pj_free(s.begins);
    pj_free(s.order);
    return status;
}
