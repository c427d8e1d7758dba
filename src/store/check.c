/* Integrity, orphans and conservation of a database, by the engine's own checks and the views of
 * the schema. */
#include "store/check.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "store/aggregate.h"
#include "store/rows.h"
#include "store/store_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Energies are integer nanojoules stored as millijoules: sums differ only by rounding. */
static const double relative_tolerance = 1e-6, absolute_tolerance_mj = 1e-5;

static void check_find(pj_store_check_result *result, int kind, uint64_t *count, const char *text)
{
    if (++*count == 1) snprintf(result->first[kind], sizeof result->first[kind], "%s", text);
}

static void note_defect(void *context, pj_defect defect, const char *text)
{
    pj_store_check_result *result = context;
    if (defect == PJ_DEFECT_FILE)
        check_find(result, PJ_FINDING_DAMAGE, &result->damaged, text);
    else
        check_find(result, PJ_FINDING_ORPHAN, &result->orphans, text);
}

/* Compares the number of rows per table with run_rows: other rows belong to no run. */
static pj_status check_counts(pj_store *store, const char *table, int64_t expected,
                              pj_store_check_result *result, pj_error *err)
{
    char text[200];
    int64_t present = 0;
    snprintf(text, sizeof text, "SELECT count(*) FROM \"%.60s\"", table);
    pj_status status = pj_sql_get_one_int(store, text, NULL, 0, &present, err);
    if (status != PJ_OK || present == expected) return status;
    snprintf(text, sizeof text, "%.60s has %lld row%s, but the runs account for %lld", table,
             (long long)present, present == 1 ? "" : "s", (long long)expected);
    check_find(result, PJ_FINDING_ORPHAN, &result->orphans, text);
    return PJ_OK;
}

static pj_status check_tables(pj_store *store, pj_store_check_result *result, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++) {
        int64_t expected = 0;
        status = pj_sql_get_one_int(store,
                                    "SELECT coalesce(sum(row_count), 0) FROM run_rows"
                                    " WHERE table_name = ?",
                                    pj_tables[t].name, 0, &expected, err);
        if (status == PJ_OK) status = check_counts(store, pj_tables[t].name, expected, result, err);
    }
    return status;
}

static void check_weigh(pj_sql *sql, pj_store_check_result *result)
{
    char text[200];
    size_t bytes;
    const char *level = pj_sql_get_text(sql, 0, &bytes);
    double whole = pj_sql_get_double(sql, 2), parts = pj_sql_get_double(sql, 3);
    double apart = fabs(whole - parts), relative = whole != 0 ? apart / fabs(whole) : 0;
    if (isnan(apart)) return; /* one of them is unknown */
    if (relative > result->worst_relative && apart > absolute_tolerance_mj)
        result->worst_relative = relative;
    if (apart <= absolute_tolerance_mj + relative_tolerance * fabs(whole)) return;
    snprintf(text, sizeof text, "%.20s %lld has %.6g mJ, but its parts sum to %.6g mJ",
             level ? level : "?", (long long)pj_sql_get_int(sql, 1), whole, parts);
    check_find(result, PJ_FINDING_BALANCE, &result->unbalanced, text);
}

static pj_status check_sums(pj_store *store, const char *id, pj_store_check_result *result,
                            pj_error *err)
{
    static const char all[] = "SELECT level, row_id, whole_mj, parts_mj FROM conservation";
    static const char one[] =
        "SELECT c.level, c.row_id, c.whole_mj, c.parts_mj FROM conservation c"
        " LEFT JOIN run_rows r ON r.run_id = ?1 AND r.table_name = CASE c.level"
        "  WHEN 'component' THEN 'component_metrics' WHEN 'layer' THEN 'layer_metrics'"
        "  WHEN 'token' THEN 'tokens' WHEN 'phase' THEN 'run_phases' END"
        " WHERE (c.row_id BETWEEN r.first_id AND r.first_id + r.row_count - 1 OR (c.level = 'run'"
        "  AND c.row_id = (SELECT rowid FROM profiling_runs WHERE id = ?1)))/*RUN c=?1*/";
    pj_sql *sql = pj_sql_begin(store, id ? one : all, err);
    if (id) pj_sql_text(sql, 1, id);
    while (pj_sql_step(sql)) check_weigh(sql, result);
    return pj_sql_end(sql, err);
}

/* The sums that are stored for charts: a run whose sums are damaged cannot be shown. */
static pj_status check_charts(pj_store *store, const char *id, pj_store_check_result *result,
                              pj_error *err)
{
    static const char all[] = "SELECT run_id, data FROM run_charts WHERE chart = 'nodes'";
    static const char one[] =
        "SELECT run_id, data FROM run_charts WHERE chart = 'nodes' AND run_id = ?";
    pj_sql *sql = pj_sql_begin(store, id ? one : all, err);
    if (id) pj_sql_text(sql, 1, id);
    while (pj_sql_step(sql)) {
        char text[200];
        size_t bytes, id_bytes;
        pj_sum_nodes nodes;
        pj_arena arena;
        const char *run = pj_sql_get_text(sql, 0, &id_bytes);
        const void *data = pj_sql_get_blob(sql, 1, &bytes);
        pj_arena_init(&arena, 0);
        if (pj_nodes_read(data, bytes, &arena, &nodes, NULL) == PJ_E_INVALID) {
            snprintf(text, sizeof text, "the stored sums of run %.40s are damaged",
                     run ? run : "?");
            check_find(result, PJ_FINDING_DAMAGE, &result->damaged, text);
        }
        pj_arena_fini(&arena);
    }
    return pj_sql_end(sql, err);
}

static pj_status check_run(pj_store *store, const char *id, pj_store_check_result *result,
                           pj_error *err)
{
    pj_run_data data = {0};
    pj_status status = pj_store_load(store, id, &data, err);
    pj_run_data_fini(&data);
    if (status != PJ_E_INVALID)
        return status == PJ_E_NOT_FOUND ? PJ_OK : status; /* deleted since */
    char text[PJ_ERROR_TEXT_BYTES];
    bool named = strstr(err->text, id) != NULL;
    snprintf(text, sizeof text, "%s%s%s%s", named ? "" : "run ", named ? "" : id, named ? "" : ": ",
             err->text);
    check_find(result, PJ_FINDING_DAMAGE, &result->damaged, text);
    *err = (pj_error){0};
    return PJ_OK;
}

/* Reads everything: a value that is not valid hides its run, and lists that would show it. */
static pj_status check_values(pj_store *store, const char *id, pj_store_check_result *result,
                              pj_error *err)
{
    size_t bytes;
    pj_buffer ids;
    if (id) return check_run(store, id, result, err);
    pj_buffer_init(&ids, SIZE_MAX);
    pj_sql *sql = pj_sql_begin(store, "SELECT id FROM profiling_runs ORDER BY id", err);
    while (pj_sql_step(sql)) {
        const char *text = pj_sql_get_text(sql, 0, &bytes);
        if (text) pj_buffer_append(&ids, text, strlen(text) + 1);
    }
    pj_status status = pj_sql_end(sql, err);
    if (status == PJ_OK) status = pj_buffer_status(&ids, "a list of runs", err);
    for (size_t at = 0; status == PJ_OK && at < ids.length; at += strlen(ids.data + at) + 1)
        status = check_run(store, ids.data + at, result, err);
    pj_buffer_fini(&ids);
    return status;
}

pj_status pj_store_check(pj_store *store, const char *id, pj_store_check_result *result,
                         pj_error *err)
{
    *result = (pj_store_check_result){.runs = 1};
    int64_t runs = 1;
    pj_status status = pj_store_connect(store, err);
    if (status == PJ_OK && store->driver->check)
        status = store->driver->check(store->db, note_defect, result, err);
    if (status == PJ_OK && !id)
        status =
            pj_sql_get_one_int(store, "SELECT count(*) FROM profiling_runs", NULL, 0, &runs, err);
    result->runs = (uint64_t)runs;
    if (status == PJ_OK) status = check_tables(store, result, err);
    if (status == PJ_OK) status = check_sums(store, id, result, err);
    if (status == PJ_OK) status = check_charts(store, id, result, err);
    if (status == PJ_OK) status = check_values(store, id, result, err);
    return status;
}
