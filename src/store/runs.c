/* Lists of runs, and operations on whole runs: resolving ids, deleting. */
#include "store/rows.h"
#include "store/sql.h"
#include "store/store_impl.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "trace/summary.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *column;
} sorts[PJ_SORT_COUNT] = {
    [PJ_SORT_DATE] = {"date", "created_ns"},
    [PJ_SORT_DURATION] = {"duration", "total_duration_ms"},
    [PJ_SORT_ENERGY] = {"energy", "total_energy_mj"},
    [PJ_SORT_TOKENS_PER_SECOND] = {"tokens_per_second", "tokens_per_second"},
    [PJ_SORT_JOULES_PER_TOKEN] = {"joules_per_token", "joules_per_token"},
};

int pj_run_sort_parse(const char *name)
{
    for (int i = 0; i < PJ_SORT_COUNT; i++)
        if (strcmp(sorts[i].name, name) == 0) return i;
    return -1;
}

/* ---- the query ------------------------------------------------------------------------------ */

/* Writes conditions as SQL with numbered parameters, which bind_conditions binds in the same order.
 * Returns how many there are. */
static int runs_write_conditions(pj_buffer *sql, const pj_run_query *q)
{
    const char *word = " WHERE ";
    int count = 0;
#define CONDITION(wanted, before, after)                               \
    if (wanted) {                                                      \
        pj_buffer_printf(sql, "%s" before "?%d" after, word, ++count); \
        word = " AND ";                                                \
    }
    CONDITION(q->search, "lower(prompt) LIKE lower(", ") ESCAPE '\\'")
    CONDITION(q->model, "model_name = ", "")
    CONDITION(q->experiment, "experiment_name = ", "")
    CONDITION(q->repeat_group, "repeat_group = ", "")
    CONDITION(q->energy_source, "energy_source = ", "")
    CONDITION(q->status, "status = ", "")
    CONDITION(q->engine, "engine = ", "")
    CONDITION(q->dtype, "dtype = ", "")
    CONDITION(q->scope, "scope = ", "")
    CONDITION(q->level, "level = ", "")
    CONDITION(q->machine, "instr(machine, ", ") > 0")
    for (uint32_t i = 0; i < q->tag_count; i++)
        CONDITION(true, "id IN (SELECT run_id FROM run_tags WHERE tag = ", ")")
    CONDITION(q->from, "created_ns >= ", "")
    CONDITION(q->to, "created_ns < ", "")
    CONDITION(q->has_min_energy, "total_energy_mj >= ", "")
    CONDITION(q->has_max_energy, "total_energy_mj <= ", "")
    CONDITION(q->has_min_joules_per_token, "joules_per_token >= ", "")
    CONDITION(q->has_max_joules_per_token, "joules_per_token <= ", "")
#undef CONDITION
    return count;
}

/* Writes "FROM …" with the query's matches, of which only `columns` may be used, and returns the
 * number of its parameters. Where an index holds what most conditions ask for, of all runs but
 * those with very long names, the matches are put together from both kinds, so that the engine
 * reads the index instead of the runs. Searches have an index of their own. */
static int write_matches(pj_buffer *text, const pj_store *store, const pj_run_query *q,
                         const char *columns)
{
    const char *listed = store->driver->listed_runs;
    size_t begin = text->length;
    pj_buffer_printf(text, "FROM profiling_runs");
    int count = runs_write_conditions(text, q);
    if (!listed || !count || q->search || q->repeat_group) return count;
    text->length = begin;
    pj_buffer_printf(text, "FROM (SELECT %s FROM profiling_runs", columns);
    runs_write_conditions(text, q);
    pj_buffer_printf(text, " AND %s UNION ALL SELECT %s FROM profiling_runs", listed, columns);
    runs_write_conditions(text, q);
    pj_buffer_printf(text, " AND NOT %s) AS matches", listed);
    return count;
}

typedef struct bounds {
    int64_t from_ns, to_ns;
    pj_buffer pattern; /* of LIKE */
} bounds;

static int bind_conditions(pj_sql *sql, const pj_run_query *q, const bounds *b)
{
    int index = 1;
    if (q->search) pj_sql_text(sql, index++, pj_buffer_get(&b->pattern));
    if (q->model) pj_sql_text(sql, index++, q->model);
    if (q->experiment) pj_sql_text(sql, index++, q->experiment);
    if (q->repeat_group) pj_sql_text(sql, index++, q->repeat_group);
    if (q->energy_source) pj_sql_text(sql, index++, q->energy_source);
    if (q->status) pj_sql_text(sql, index++, q->status);
    if (q->engine) pj_sql_text(sql, index++, q->engine);
    if (q->dtype) pj_sql_text(sql, index++, q->dtype);
    if (q->scope) pj_sql_text(sql, index++, q->scope);
    if (q->level) pj_sql_text(sql, index++, q->level);
    if (q->machine) pj_sql_text(sql, index++, q->machine);
    for (uint32_t i = 0; i < q->tag_count; i++) pj_sql_text(sql, index++, q->tags[i]);
    if (q->from) pj_sql_int(sql, index++, b->from_ns);
    if (q->to) pj_sql_int(sql, index++, b->to_ns);
    if (q->has_min_energy) pj_sql_double(sql, index++, q->min_energy_mj);
    if (q->has_max_energy) pj_sql_double(sql, index++, q->max_energy_mj);
    if (q->has_min_joules_per_token) pj_sql_double(sql, index++, q->min_joules_per_token);
    if (q->has_max_joules_per_token) pj_sql_double(sql, index++, q->max_joules_per_token);
    return index;
}

static pj_status prepare_bounds(const pj_run_query *q, bounds *b, pj_error *err)
{
    if (q->from && !pj_clock_parse_iso(q->from, &b->from_ns))
        return pj_fail(err, PJ_E_INVALID,
                       "%s is neither a date nor a time (use 2026-01-31 or "
                       "2026-01-31T12:00:00)",
                       q->from);
    if (q->to && !pj_clock_parse_iso(q->to, &b->to_ns))
        return pj_fail(err, PJ_E_INVALID,
                       "%s is neither a date nor a time (use 2026-01-31 or "
                       "2026-01-31T12:00:00)",
                       q->to);
    if (!q->search) return PJ_OK;
    pj_buffer_char(&b->pattern, '%');
    for (const char *c = q->search; *c; c++) {
        if (*c == '%' || *c == '_' || *c == '\\') pj_buffer_char(&b->pattern, '\\');
        pj_buffer_char(&b->pattern, *c);
    }
    pj_buffer_char(&b->pattern, '%');
    return pj_buffer_status(&b->pattern, "the search text", err);
}

static pj_status count_matches(pj_store *store, const pj_run_query *q, const bounds *b,
                               uint64_t *total, pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    pj_buffer_text(&text, "SELECT count(*) ");
    write_matches(&text, store, q, "id");
    pj_status status = pj_buffer_status(&text, "the query", err);
    if (status == PJ_OK) {
        pj_sql *sql = pj_sql_begin(store, pj_buffer_get(&text), err);
        bind_conditions(sql, q, b);
        if (pj_sql_step(sql)) *total = (uint64_t)pj_sql_get_int(sql, 0);
        status = pj_sql_end(sql, err);
    }
    pj_buffer_fini(&text);
    return status;
}

/* Runs without the figure come last in either order; ties are ordered by date. Every run has a
 * date: without NULLS LAST PostgreSQL finds the order in its index. */
static void write_order(pj_buffer *text, const pj_run_query *q)
{
    const char *order = q->ascending ? "ASC" : "DESC";
    if (q->sort == PJ_SORT_DATE)
        pj_buffer_printf(text, " ORDER BY created_ns %s", order);
    else
        pj_buffer_printf(text, " ORDER BY %s %s NULLS LAST, created_ns DESC", sorts[q->sort].column,
                         order);
}

/* The keys of the matches, ordered by what `columns` holds besides, are found and counted in one
 * pass; without conditions an index gives the page, and NULL stands for the count. Sorting keys
 * only does not move whole rows. A server has an index of the runs' ids; SQLite's own key is the
 * number of the row. */
static void write_select(pj_buffer *text, const pj_store *store, const pj_run_query *q)
{
    pj_buffer matches;
    char columns[4096], of_matches[96], sort[64] = "";
    const char *key = store->driver->is_remote ? "id" : "rowid";
    pj_info_columns(columns, sizeof columns);
    if (q->sort != PJ_SORT_DATE) snprintf(sort, sizeof sort, ", %s", sorts[q->sort].column);
    snprintf(of_matches, sizeof of_matches, "%s, created_ns%s", key, sort);
    pj_buffer_init(&matches, 1 << 16);
    int count = write_matches(&matches, store, q, of_matches);
    if (count)
        pj_buffer_printf(text, "WITH matches (found, created_ns%s) AS (SELECT %s %s) ", sort,
                         of_matches, pj_buffer_get(&matches));
    pj_buffer_printf(text, "SELECT %s, %s FROM profiling_runs WHERE %s IN (SELECT %s FROM %s",
                     columns, count ? "(SELECT count(*) FROM matches)" : "NULL", key,
                     count ? "found" : key, count ? "matches" : "profiling_runs");
    write_order(text, q);
    pj_buffer_printf(text, " LIMIT ?%d OFFSET ?%d)", count + 1, count + 2);
    write_order(text, q);
    text->failed = text->failed || matches.failed;
    pj_buffer_fini(&matches);
}

static pj_status runs_read_runs(pj_sql *sql, uint32_t limit, pj_run_list *list, pj_error *err)
{
    uint32_t capacity = 0;
    while (list->count < limit && pj_sql_step(sql)) {
        if (list->count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            pj_run_info *runs = pj_arena_alloc(&list->arena, capacity, sizeof *runs);
            if (!runs) return pj_fail_memory(err, "the list of runs");
            if (list->count) memcpy(runs, list->runs, list->count * sizeof *runs);
            list->runs = runs;
        }
        pj_status status = pj_info_read(sql, &list->runs[list->count], &list->arena, err);
        if (status != PJ_OK) return status;
        list->count++;
        list->total = (uint64_t)pj_sql_get_int(sql, 2 + pj_run_table.column_count);
    }
    return PJ_OK;
}

static pj_status select_runs(pj_store *store, const pj_run_query *q, const bounds *b,
                             pj_run_list *list, pj_error *err)
{
    uint32_t limit = q->limit ? q->limit : PJ_QUERY_LIMIT;
    if (limit > PJ_QUERY_MAX) limit = PJ_QUERY_MAX;
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    write_select(&text, store, q);
    pj_status status = pj_buffer_status(&text, "the query", err);
    if (status == PJ_OK) {
        pj_sql *sql = pj_sql_begin(store, pj_buffer_get(&text), err);
        int index = bind_conditions(sql, q, b);
        pj_sql_int(sql, index, limit);
        pj_sql_int(sql, index + 1, q->offset > INT64_MAX ? INT64_MAX : (int64_t)q->offset);
        status = pj_sql_end_after(sql, runs_read_runs(sql, limit, list, err), err);
    }
    pj_buffer_fini(&text);
    return status;
}

pj_status pj_store_list(pj_store *store, const pj_run_query *query, pj_run_list *list,
                        pj_error *err)
{
    *list = (pj_run_list){0};
    pj_arena_init(&list->arena, 0);
    bounds b = {0};
    pj_buffer_init(&b.pattern, 1 << 20);
    if (query->sort < 0 || query->sort >= PJ_SORT_COUNT)
        return pj_fail(err, PJ_E_INVALID, "cannot sort runs by this field");
    pj_status status = prepare_bounds(query, &b, err);
    if (status == PJ_OK) status = select_runs(store, query, &b, list, err);
    if (status == PJ_OK && list->total == 0 && (list->count || query->offset))
        status = count_matches(store, query, &b, &list->total, err);
    pj_buffer_fini(&b.pattern);
    if (status != PJ_OK) pj_run_list_fini(list);
    return status;
}

pj_status pj_store_info(pj_store *store, const char *id, pj_run_list *one, pj_error *err)
{
    *one = (pj_run_list){0};
    pj_arena_init(&one->arena, 0);
    one->runs = pj_arena_alloc(&one->arena, 1, sizeof *one->runs);
    if (!one->runs) return pj_fail_memory(err, "a run");
    pj_status status = pj_info_load(store, id, one->runs, &one->arena, err);
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

/* The N in "last~N", 0 for "last" itself, -1 for anything else. */
static int64_t parse_last(const char *text)
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
                       "database %s contains only %lld runs, so there is "
                       "no last~%lld (see: perjoule ls)",
                       pj_store_path(store), (long long)back, (long long)back);
    return pj_fail(err, PJ_E_NOT_FOUND,
                   "database %s contains no runs yet: record one with "
                   "perjoule run",
                   pj_store_path(store));
}

pj_status pj_store_resolve(pj_store *store, const char *text, char id[PJ_UUID_BYTES], pj_error *err)
{
    int64_t back = parse_last(text);
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

pj_status pj_store_delete(pj_store *store, const char *id, pj_error *err)
{
    int64_t found = 0;
    pj_status status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    status =
        pj_sql_get_one_int(store, "SELECT 1 FROM profiling_runs WHERE id = ?", id, 0, &found, err);
    if (status == PJ_OK && !found) status = pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    if (status == PJ_OK) status = pj_store_remove_run(store, id, err);
    return pj_sql_finish(store, status, err);
}
