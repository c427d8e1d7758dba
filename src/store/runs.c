/* Lists of runs, and operations on whole runs: resolving ids, deleting. */
#include "store/rows.h"
#include "store/sql.h"
#include "store/store_impl.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "trace/disturbance.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `without`: the figure without disturbances; the typical token has none. */
static const struct {
    const char *name, *column, *without;
} sorts[PJ_SORT_COUNT] = {
    [PJ_SORT_DATE] = {"date", "created_ns", NULL},
    [PJ_SORT_DURATION] = {"duration", "total_duration_ms",
                          "(total_duration_ms - coalesce(disturbed_duration_ms, 0))"},
    [PJ_SORT_ENERGY] = {"energy", "total_energy_mj",
                        "(total_energy_mj - coalesce(disturbed_energy_mj, 0))"},
    [PJ_SORT_TOKENS_PER_SECOND] = {"tokens_per_second", "tokens_per_second",
                                   "(tokens_per_second * decode_duration_ms / nullif("
                                   "decode_duration_ms -"
                                   " coalesce(decode_disturbed_duration_ms, 0), 0))"},
    [PJ_SORT_JOULES_PER_TOKEN] = {"joules_per_token", "joules_per_token",
                                  "((request_energy_mj - coalesce(request_disturbed_energy_mj,"
                                  " 0)) / 1e3 / nullif(output_tokens, 0))"},
    [PJ_SORT_TYPICAL] = {"joules_per_token_typical", "typical_token_energy_mj", NULL},
};

/* A figure of runs in SQL, as it is shown. */
static const char *figure_of(const pj_store *store, pj_run_sort sort)
{
    return store->leaves_out && sorts[sort].without ? sorts[sort].without : sorts[sort].column;
}

int pj_run_sort_parse(const char *name)
{
    for (int i = 0; i < PJ_SORT_COUNT; i++)
        if (strcmp(sorts[i].name, name) == 0) return i;
    return -1;
}

/* ---- the query ------------------------------------------------------------------------------ */

/* The query's conditions as SQL, and the values of their parameters in order. */
typedef struct conditions {
    pj_buffer text, pattern; /* pattern: of LIKE */
    pj_value *values;
    int count;
} conditions;

static void add_condition(conditions *c, const char *before, const char *after, pj_value value)
{
    if (value.type == PJ_VALUE_NULL) return;
    c->values[c->count++] = value;
    pj_buffer_printf(&c->text, "%s%s?%d%s", c->count == 1 ? " WHERE " : " AND ", before, c->count,
                     after);
}

static pj_status add_time(conditions *c, const char *before, const char *time, pj_error *err)
{
    int64_t ns;
    if (!time) return PJ_OK;
    if (!pj_clock_parse_iso(time, &ns))
        return pj_fail(err, PJ_E_INVALID,
                       "%s is neither a date nor a time (use 2026-01-31 or "
                       "2026-01-31T12:00:00)",
                       time);
    add_condition(c, before, "", pj_value_int(ns));
    return PJ_OK;
}

static void add_search(conditions *c, const char *words)
{
    if (!words) return;
    pj_buffer_char(&c->pattern, '%');
    for (; *words; words++) {
        if (strchr("%_\\", *words)) pj_buffer_char(&c->pattern, '\\');
        pj_buffer_char(&c->pattern, *words);
    }
    pj_buffer_char(&c->pattern, '%');
    /* Each in a form that an index of the database server fits. */
    char before[320], number[16];
    snprintf(number, sizeof number, "?%d", c->count + 1);
    snprintf(before, sizeof before,
             "((name IS NOT NULL OR note IS NOT NULL) AND (lower(name) LIKE lower(%s) ESCAPE '\\'"
             " OR lower(note) LIKE lower(%s) ESCAPE '\\') OR lower(prompt) LIKE lower(",
             number, number);
    add_condition(c, before, ") ESCAPE '\\')", pj_value_text(pj_buffer_get(&c->pattern)));
}

static void add_bounds(conditions *c, const char *figure, pj_run_bounds bounds)
{
    char before[320];
    snprintf(before, sizeof before, "%s >= ", figure);
    if (bounds.has_min) add_condition(c, before, "", pj_value_double(bounds.min));
    snprintf(before, sizeof before, "%s <= ", figure);
    if (bounds.has_max) add_condition(c, before, "", pj_value_double(bounds.max));
}

static void add_figures(conditions *c, const pj_store *store, const pj_run_query *q)
{
    char primary[256];
    const char *mean = figure_of(store, PJ_SORT_JOULES_PER_TOKEN);
    snprintf(primary, sizeof primary, "coalesce(typical_token_energy_mj / 1e3, %s)", mean);
    add_bounds(c, figure_of(store, PJ_SORT_ENERGY), q->energy_mj);
    add_bounds(c, mean, q->joules_per_token);
    add_bounds(c, primary, q->joules_per_token_typical);
}

/* Added as " AND id IN (?7, ?8)". */
static void add_ids(conditions *c, const char *id, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, id += strlen(id) + 1) {
        const char *before = i > 0 ? ", " : c->count ? " AND id IN (" : " WHERE id IN (";
        c->values[c->count++] = pj_value_text(id);
        pj_buffer_printf(&c->text, "%s?%d", before, c->count);
    }
    if (count) pj_buffer_char(&c->text, ')');
}

static pj_status add_conditions(conditions *c, const pj_store *store, const pj_run_query *q,
                                pj_error *err)
{
    add_search(c, q->search);
    add_condition(c, "model_name = ", "", pj_value_text(q->model));
    add_condition(c, "experiment_name = ", "", pj_value_text(q->experiment));
    add_condition(c, "repeat_group = ", "", pj_value_text(q->repeat_group));
    add_condition(c, "energy_source = ", "", pj_value_text(q->energy_source));
    add_condition(c, "status = ", "", pj_value_text(q->status));
    add_condition(c, "engine = ", "", pj_value_text(q->engine));
    add_condition(c, "dtype = ", "", pj_value_text(q->dtype));
    add_condition(c, "scope = ", "", pj_value_text(q->scope));
    add_condition(c, "level = ", "", pj_value_text(q->level));
    add_condition(c, "instr(machine, ", ") > 0", pj_value_text(q->machine));
    for (uint32_t i = 0; i < q->tag_count; i++)
        add_condition(c, "id IN (SELECT run_id FROM run_tags WHERE tag = ", ")",
                      pj_value_text(q->tags[i]));
    pj_status status = add_time(c, "created_ns >= ", q->from, err);
    if (status == PJ_OK) status = add_time(c, "created_ns < ", q->to, err);
    add_figures(c, store, q);
    if (q->ids) add_ids(c, q->ids, q->id_count);
    if (status == PJ_OK) status = pj_buffer_status(&c->pattern, "the search text", err);
    return status == PJ_OK ? pj_buffer_status(&c->text, "the query", err) : status;
}

/* Writes "FROM …" with the query's matches, of which only `columns` may be used. Where an index
 * holds what most conditions ask for, of all runs but those with very long names, the matches are
 * put together from both kinds, so that the engine reads the index instead of the runs. Searches
 * have an index of their own; figures without disturbances are in none. */
static void write_matches(pj_buffer *text, const pj_store *store, const pj_run_query *q,
                          const conditions *c, const char *columns)
{
    const char *listed = store->driver->listed_runs, *where = pj_buffer_get(&c->text);
    if (!listed || !c->count || q->search || q->repeat_group || store->leaves_out)
        pj_buffer_printf(text, "FROM profiling_runs%s", where);
    else
        pj_buffer_printf(text,
                         "FROM (SELECT %s FROM profiling_runs%s AND %s UNION ALL SELECT %s FROM"
                         " profiling_runs%s AND NOT %s) AS matches",
                         columns, where, listed, columns, where, listed);
}

static pj_sql *begin_query(pj_store *store, const pj_buffer *text, const conditions *c,
                           pj_error *err)
{
    if (pj_buffer_status(text, "the query", err) != PJ_OK) return NULL;
    pj_sql *sql = pj_sql_begin(store, pj_buffer_get(text), err);
    for (int i = 0; i < c->count; i++) pj_sql_value(sql, i + 1, &c->values[i]);
    return sql;
}

static pj_status count_matches(pj_store *store, const pj_run_query *q, const conditions *c,
                               uint64_t *total, pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    pj_buffer_text(&text, "SELECT count(*) ");
    write_matches(&text, store, q, c, "id");
    pj_sql *sql = begin_query(store, &text, c, err);
    if (pj_sql_step(sql)) *total = (uint64_t)pj_sql_get_int(sql, 0);
    pj_buffer_fini(&text);
    return pj_sql_end(sql, err);
}

/* Runs without the figure come last in either order; ties are ordered by date. Every run has a
 * date: without NULLS LAST PostgreSQL finds the order in its index. */
static void write_order(pj_buffer *text, const pj_run_query *q, const char *figure)
{
    const char *order = q->ascending ? "ASC" : "DESC";
    if (q->sort == PJ_SORT_DATE)
        pj_buffer_printf(text, " ORDER BY created_ns %s", order);
    else
        pj_buffer_printf(text, " ORDER BY %s %s NULLS LAST, created_ns DESC", figure, order);
}

/* The columns of a run as a list has them. One absurd text would take the memory of all others:
 * prompts are cut, and other texts are never that long. */
static void write_columns(pj_buffer *text, const pj_run_query *q)
{
    static const char json[] = "CASE WHEN length(%s) <= 1000000 THEN %s END";
    pj_buffer_text(text, "id, ");
    pj_buffer_printf(text, json, "tags", "tags");
    for (int c = 0; c < pj_run_table.column_count; c++) {
        const pj_column *column = &pj_run_table.columns[c];
        bool is_text = column->type == PJ_COLUMN_TEXT || column->type == PJ_COLUMN_LIST;
        pj_buffer_text(text, ", ");
        if (column->type == PJ_COLUMN_JSON)
            pj_buffer_printf(text, json, column->name, column->name);
        else if (is_text && !q->whole_prompts)
            pj_buffer_printf(text, "substr(%s, 1, %d)", column->name, PJ_LIST_PROMPT_MAX);
        else
            pj_buffer_text(text, column->name);
    }
}

/* The keys of the matches, ordered by what `columns` holds besides, are found and counted in one
 * pass; without conditions an index gives the page, and NULL stands for the count. Sorting keys
 * only does not move whole rows. A server has an index of the runs' ids; SQLite's own key is the
 * number of the row. */
static void write_select(pj_buffer *text, const pj_store *store, const pj_run_query *q,
                         const conditions *c)
{
    pj_buffer matches;
    char of_matches[320];
    const char *key = store->driver->is_remote ? "id" : "rowid",
               *figure = figure_of(store, q->sort);
    const bool by_date = q->sort == PJ_SORT_DATE;
    snprintf(of_matches, sizeof of_matches, "%s, created_ns%s%s", key, by_date ? "" : ", ",
             by_date ? "" : figure);
    pj_buffer_init(&matches, 1 << 16);
    int count = c->count;
    write_matches(&matches, store, q, c, of_matches);
    if (count)
        pj_buffer_printf(text, "WITH matches (found, created_ns%s) AS (SELECT %s %s) ",
                         by_date ? "" : ", figure", of_matches, pj_buffer_get(&matches));
    pj_buffer_text(text, "SELECT ");
    write_columns(text, q);
    pj_buffer_printf(text, ", %s FROM profiling_runs WHERE %s IN (SELECT %s FROM %s",
                     count ? "(SELECT count(*) FROM matches)" : "NULL", key, count ? "found" : key,
                     count ? "matches" : "profiling_runs");
    write_order(text, q, count ? "figure" : figure);
    pj_buffer_printf(text, " LIMIT ?%d OFFSET ?%d)", count + 1, count + 2);
    write_order(text, q, figure);
    text->failed = text->failed || matches.failed;
    pj_buffer_fini(&matches);
}

static pj_status runs_read_runs(const pj_store *store, pj_sql *sql, uint32_t limit,
                                pj_run_list *list, pj_error *err)
{
    while (list->count < limit && pj_sql_step(sql)) {
        list->runs = pj_arena_more(&list->arena, list->runs, list->count, sizeof *list->runs);
        if (!list->runs) return pj_fail_memory(err, "the list of runs");
        pj_status status = pj_info_read(sql, &list->runs[list->count], &list->arena, err);
        if (status != PJ_OK) return status;
        if (store->leaves_out) pj_run_info_leave_out_disturbances(&list->runs[list->count]);
        list->count++;
        list->total = (uint64_t)pj_sql_get_int(sql, 2 + pj_run_table.column_count);
    }
    return PJ_OK;
}

static uint32_t limit_of(const pj_run_query *q)
{
    uint32_t limit = q->limit ? q->limit : PJ_QUERY_LIMIT;
    return limit < PJ_QUERY_MAX ? limit : PJ_QUERY_MAX;
}

/* Binds limit and offset, after the conditions' values. */
static void bind_page(pj_sql *sql, const pj_run_query *q, const conditions *c)
{
    pj_sql_int(sql, c->count + 1, limit_of(q));
    pj_sql_int(sql, c->count + 2, q->offset > INT64_MAX ? INT64_MAX : (int64_t)q->offset);
}

static pj_status select_runs(pj_store *store, const pj_run_query *q, const conditions *c,
                             pj_run_list *list, pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    write_select(&text, store, q, c);
    pj_sql *sql = begin_query(store, &text, c, err);
    bind_page(sql, q, c);
    pj_buffer_fini(&text);
    return pj_sql_end_after(sql, runs_read_runs(store, sql, limit_of(q), list, err), err);
}

static pj_status conditions_of(conditions *c, const pj_store *store, const pj_run_query *query,
                               pj_error *err)
{
    enum { OTHER_CONDITIONS = 20 };
    *c = (conditions){0};
    pj_buffer_init(&c->text, 1 << 16);
    pj_buffer_init(&c->pattern, 1 << 20);
    if (query->sort < 0 || query->sort >= PJ_SORT_COUNT)
        return pj_fail(err, PJ_E_INVALID, "cannot sort runs by this field");
    c->values =
        pj_alloc((size_t)query->tag_count + query->id_count + OTHER_CONDITIONS, sizeof *c->values);
    if (!c->values) return pj_fail_memory(err, "the query");
    return add_conditions(c, store, query, err);
}

static void free_conditions(conditions *c)
{
    pj_buffer_fini(&c->pattern);
    pj_buffer_fini(&c->text);
    pj_free(c->values);
}

pj_status pj_store_list(pj_store *store, const pj_run_query *query, pj_run_list *list,
                        pj_error *err)
{
    conditions c;
    *list = (pj_run_list){0};
    pj_arena_init(&list->arena, 0);
    pj_status status = conditions_of(&c, store, query, err);
    if (status == PJ_OK) status = select_runs(store, query, &c, list, err);
    if (status == PJ_OK && list->total == 0 && (list->count || query->offset))
        status = count_matches(store, query, &c, &list->total, err);
    free_conditions(&c);
    if (status != PJ_OK) pj_run_list_fini(list);
    return status;
}

static pj_status select_ids(pj_store *store, const pj_run_query *q, const conditions *c,
                            pj_buffer *ids, pj_error *err)
{
    pj_buffer text;
    char columns[320];
    const char *figure = figure_of(store, q->sort);
    pj_buffer_init(&text, 1 << 16);
    snprintf(columns, sizeof columns, "id, created_ns%s%s", q->sort == PJ_SORT_DATE ? "" : ", ",
             q->sort == PJ_SORT_DATE ? "" : figure);
    pj_buffer_text(&text, "SELECT id ");
    write_matches(&text, store, q, c, columns);
    write_order(&text, q, figure);
    pj_buffer_printf(&text, " LIMIT ?%d OFFSET ?%d", c->count + 1, c->count + 2);
    pj_sql *sql = begin_query(store, &text, c, err);
    bind_page(sql, q, c);
    pj_buffer_fini(&text);
    return pj_sql_read_ids(sql, ids, err);
}

pj_status pj_store_list_ids(pj_store *store, const pj_run_query *query, pj_buffer *ids,
                            uint64_t *total, pj_error *err)
{
    conditions c;
    pj_status status = conditions_of(&c, store, query, err);
    if (status == PJ_OK) status = select_ids(store, query, &c, ids, err);
    *total = ids->length / PJ_UUID_BYTES;
    if (status == PJ_OK && (query->offset || *total >= limit_of(query)))
        status = count_matches(store, query, &c, total, err);
    free_conditions(&c);
    return status;
}

pj_status pj_store_info(pj_store *store, const char *id, pj_run_list *one, pj_error *err)
{
    *one = (pj_run_list){0};
    pj_arena_init(&one->arena, 0);
    one->runs = pj_arena_alloc(&one->arena, 1, sizeof *one->runs);
    if (!one->runs) return pj_fail_memory(err, "a run");
    pj_status status = pj_info_load(store, id, one->runs, &one->arena, err);
    if (status == PJ_OK && store->leaves_out) pj_run_info_leave_out_disturbances(one->runs);
    one->count = 1;
    one->total = 1;
    if (status != PJ_OK) pj_run_list_fini(one);
    return status;
}

void pj_run_list_fini(pj_run_list *list)
{
    pj_arena_fini(&list->arena);
    *list = (pj_run_list){0};
}

/* ---- one run as a whole ---------------------------------------------------------------------- */

/* The id in the first column; "" when there is none. *more: whether there is a second row. */
static pj_status first_id(pj_sql *sql, char id[PJ_UUID_BYTES], bool *more, pj_error *err)
{
    size_t bytes = 0;
    id[0] = 0;
    *more = false;
    if (pj_sql_step(sql)) {
        const char *text = pj_sql_get_text(sql, 0, &bytes);
        if (text && bytes == PJ_UUID_BYTES - 1) memcpy(id, text, PJ_UUID_BYTES);
        *more = pj_sql_step(sql);
    }
    return pj_sql_end(sql, err);
}

int64_t pj_store_parse_last(const char *text)
{
    enum { MAX_DIGITS = 9 };
    if (strncmp(text, "last", 4) != 0) return -1;
    if (!text[4]) return 0;
    size_t digits = strspn(text + 5, "0123456789");
    if (text[4] != '~' || !digits || digits > MAX_DIGITS || text[5 + digits]) return -1;
    return strtol(text + 5, NULL, 10);
}

static pj_status resolve_last(pj_store *store, int64_t back, char id[PJ_UUID_BYTES], pj_error *err)
{
    bool more;
    pj_sql *sql = pj_sql_begin(
        store, "SELECT id FROM profiling_runs ORDER BY created_ns DESC, id DESC LIMIT 1 OFFSET ?",
        err);
    pj_sql_int(sql, 1, back);
    pj_status status = first_id(sql, id, &more, err);
    if (status != PJ_OK || id[0]) return status;
    if (back)
        return pj_fail(err, PJ_E_NOT_FOUND,
                       "database %s has no last~%lld: fewer than %lld runs are in it (see: "
                       "perjoule ls)",
                       pj_store_path(store), (long long)back, (long long)back + 1);
    return pj_fail(err, PJ_E_NOT_FOUND,
                   "database %s contains no runs yet: record one with "
                   "perjoule run",
                   pj_store_path(store));
}

pj_status pj_store_count_newer(pj_store *store, int64_t created_wall_ns, int64_t *count,
                               pj_error *err)
{
    *count = 0;
    pj_sql *sql =
        pj_sql_begin(store, "SELECT count(*) FROM profiling_runs WHERE created_ns > ?", err);
    pj_sql_int(sql, 1, created_wall_ns);
    if (pj_sql_step(sql)) *count = pj_sql_get_int(sql, 0);
    return pj_sql_end(sql, err);
}

pj_status pj_store_resolve(pj_store *store, const char *text, char id[PJ_UUID_BYTES], pj_error *err)
{
    int64_t back = pj_store_parse_last(text);
    if (back >= 0) return resolve_last(store, back, id, err);
    size_t length = strlen(text);
    char low[PJ_UUID_BYTES] = {0}, high[PJ_UUID_BYTES + 1] = {0};
    bool good = length >= 4 && length < PJ_UUID_BYTES;
    for (size_t i = 0; i < length && good; i++) {
        good = isxdigit((unsigned char)text[i]) || text[i] == '-';
        low[i] = high[i] = (char)tolower((unsigned char)text[i]);
    }
    if (!good)
        return pj_fail(err, PJ_E_INVALID,
                       "%.40s is not a run id: give at least 4 characters "
                       "of one (see: perjoule ls), \"last\" or \"last~1\"",
                       text);
    high[length] = 'g'; /* sorts after every hexadecimal digit */
    bool more;
    pj_sql *sql =
        pj_sql_begin(store, "SELECT id FROM profiling_runs WHERE id >= ? AND id < ? LIMIT 2", err);
    pj_sql_text(sql, 1, low);
    pj_sql_text(sql, 2, high);
    pj_status status = first_id(sql, id, &more, err);
    if (status == PJ_OK && !id[0])
        return pj_fail(err, PJ_E_NOT_FOUND, "run %s is not in %s (see: perjoule ls)", text,
                       pj_store_path(store));
    if (status == PJ_OK && more)
        return pj_fail(err, PJ_E_INVALID, "the id %s is ambiguous: give more characters", text);
    return status;
}

/* A trigger deletes the rows by their ranges; foreign keys would search them one by one. */
pj_status pj_store_remove_run(pj_store *store, const char *id, pj_error *err)
{
    if (store->driver->remove_run) return store->driver->remove_run(store->db, id, err);
    return pj_sql_change(store, "DELETE FROM profiling_runs WHERE id = ?",
                         PJ_VALUES(pj_value_text(id)), err);
}

pj_status pj_store_expect_run(pj_store *store, const char *id, bool expected, pj_error *err)
{
    int64_t found = 0;
    pj_status status =
        pj_sql_get_one_int(store, "SELECT 1 FROM profiling_runs WHERE id = ?", id, 0, &found, err);
    if (status != PJ_OK || (found == 1) == expected) return status;
    return pj_fail(err, PJ_E_STATE,
                   "database %s did not %s run %s: something in it prevents that; move it away or "
                   "name another with --db",
                   store->address, expected ? "take" : "delete", id);
}

/* ---- deleting on a full disk ------------------------------------------------------------------
 */

/* The log of a transaction holds every page that it changes, so that deleting a large run needs
 * about its size. In parts it needs little; a run whose deletion is interrupted says so. */
static pj_status remove_part(pj_store *store, const char *table, int64_t first, int64_t count,
                             pj_error *err)
{
    char text[160];
    pj_status status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    snprintf(text, sizeof text, "DELETE FROM %s WHERE id BETWEEN ? AND ?", table);
    status = pj_sql_change(store, text,
                           PJ_VALUES(pj_value_int(first), pj_value_int(first + count - 1)), err);
    return pj_sql_finish(store, status, err);
}

static pj_status remove_in_parts(pj_store *store, const char *id, pj_error *err)
{
    enum { PART_ROWS = 4096 };
    pj_row_range ranges[PJ_TABLE_COUNT];
    pj_status status = pj_sql_change(
        store,
        "UPDATE profiling_runs SET status = 'failed', failure = 'its deletion was interrupted, and"
        " most of its rows are gone: delete it again' WHERE id = ?",
        PJ_VALUES(pj_value_text(id)), err);
    if (status == PJ_OK) status = pj_store_ranges(store, id, ranges, err);
    for (int t = PJ_TABLE_COUNT - 1; t >= 0; t--)
        for (uint32_t at = 0; at < ranges[t].count && status == PJ_OK; at += PART_ROWS) {
            uint32_t left = ranges[t].count - at;
            status = remove_part(store, pj_tables[t].name, ranges[t].first + at,
                                 left < PART_ROWS ? left : PART_ROWS, err);
        }
    return status;
}

pj_status pj_store_delete(pj_store *store, const char *id, pj_error *err)
{
    int64_t found = 0;
    pj_status status = store->is_frugal ? remove_in_parts(store, id, err) : PJ_OK;
    if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    status =
        pj_sql_get_one_int(store, "SELECT 1 FROM profiling_runs WHERE id = ?", id, 0, &found, err);
    if (status == PJ_OK && !found) status = pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    if (status == PJ_OK) status = pj_store_remove_run(store, id, err);
    if (status == PJ_OK) status = pj_store_expect_run(store, id, false, err);
    return pj_sql_finish(store, status, err);
}
