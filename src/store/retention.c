/* Retention: finds the runs that a retention rule selects and deletes them, or their operations,
 * one by one, each in a transaction of its own, so that a server that is storing a run waits for
 * one deletion and not for all.
 *
 * Operations are most of the rows of a deep run. Their sums by component, layer and phase are in
 * the run's charts; a component whose operations are gone holds their energy itself. */
#include "store/rows.h"
#include "store/schema.h"
#include "store/store_impl.h"

#include <stdio.h>

enum { MAX_ID_BYTES = 1 << 30 };

/* Runs in progress are not in the table, except one that a killed server left in its queue. */
static const char find_rows[] =
    "SELECT id FROM profiling_runs WHERE created_ns < ?1 AND status <> 'running'"
    " AND (?2 = 1 OR id NOT IN (SELECT run_id FROM run_tags))"
    " AND id NOT IN (SELECT id FROM run_queue)"
    " AND id NOT IN (SELECT id FROM profiling_runs ORDER BY created_ns DESC, id DESC LIMIT ?3)"
    " AND (?4 = 0 OR (id IN (SELECT run_id FROM run_rows WHERE row_count > 0"
    "  AND table_name = 'deep_operation_metrics')"
    "  AND id IN (SELECT run_id FROM run_charts WHERE chart = 'nodes')))"
    " ORDER BY created_ns, id";

static pj_status retention_find(pj_store *store, const pj_prune *rule, pj_buffer *ids,
                                pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, find_rows, err);
    pj_sql_int(sql, 1, rule->before_ns);
    pj_sql_int(sql, 2, rule->tagged);
    pj_sql_int(sql, 3, rule->keep);
    pj_sql_int(sql, 4, rule->operations);
    return pj_sql_read_ids(sql, ids, err);
}

static pj_status change_rows(pj_store *store, const char *text, const char *id,
                             const pj_row_range *rows, pj_error *err)
{
    return pj_sql_change(store, text,
                         PJ_VALUES(pj_value_text(id), pj_value_int(rows->first),
                                   pj_value_int(rows->first + rows->count - 1)),
                         err);
}

/* A component whose operations are gone holds their energy itself, so that the run is whole after
 * every part. */
static pj_status forget_of_components(pj_store *store, const char *id, const pj_row_range *part,
                                      const pj_row_range *operations, pj_error *err)
{
    const pj_dialect *dialect = store->driver->dialect;
    const char *components = pj_schema_stored_table(dialect, "component_metrics");
    const char *suffix = dialect->packs_since ? PJ_CODE_SUFFIX : ""; /* of one kind of code */
    char of_components[300], rows[200];
    snprintf(of_components, sizeof of_components,
             "UPDATE %s SET self_energy_mj%s = energy_mj%s, first_operation_id = NULL,"
             " operation_count = 0 WHERE id BETWEEN ?2 AND ?3 AND operation_count > 0/*RUN %s=?1*/",
             components, suffix, suffix, components);
    snprintf(rows, sizeof rows,
             "DELETE FROM %s WHERE id BETWEEN ?2 AND ?3/*RUN deep_operation_metrics=?1*/",
             pj_schema_stored_table(dialect, "deep_operation_metrics"));
    pj_status status = change_rows(store, of_components, id, part, err);
    return status == PJ_OK ? change_rows(store, rows, id, operations, err) : status;
}

/* The operations of components [first, first + count), which follow each other. */
static pj_status operations_of(pj_store *store, const pj_row_range *components,
                               pj_row_range *operations, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT min(first_operation_id), sum(operation_count)"
                               " FROM component_metrics WHERE id BETWEEN ? AND ?"
                               " AND operation_count > 0",
                               err);
    *operations = (pj_row_range){0};
    pj_sql_int(sql, 1, components->first);
    pj_sql_int(sql, 2, components->first + components->count - 1);
    if (pj_sql_step(sql))
        *operations = (pj_row_range){pj_sql_get_int(sql, 0), (uint32_t)pj_sql_get_int(sql, 1)};
    return pj_sql_end(sql, err);
}

/* On a full disk, where the log of one transaction has no room. */
static pj_status forget_first_parts(pj_store *store, const char *id, const pj_row_range *ranges,
                                    pj_error *err)
{
    enum { PART_ROWS = 512 };
    pj_row_range part = ranges[PJ_TABLE_COMPONENTS], of_part;
    pj_status status = PJ_OK;
    for (uint32_t left = part.count; left > PART_ROWS && status == PJ_OK; left -= PART_ROWS) {
        part.count = PART_ROWS;
        status = operations_of(store, &part, &of_part, err);
        if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
        if (status != PJ_OK) return status;
        status = pj_sql_finish(store, forget_of_components(store, id, &part, &of_part, err), err);
        part.first += PART_ROWS;
    }
    return status;
}

static pj_status forget_operations(pj_store *store, const char *id, const pj_row_range *ranges,
                                   pj_error *err)
{
    static const char count[] = "UPDATE run_rows SET row_count = 0 WHERE run_id = ?1"
                                " AND table_name = 'deep_operation_metrics'";
    pj_status status = forget_of_components(store, id, &ranges[PJ_TABLE_COMPONENTS],
                                            &ranges[PJ_TABLE_OPERATIONS], err);
    if (status != PJ_OK) return status;
    return pj_sql_change(store, count, PJ_VALUES(pj_value_text(id)), err);
}

static pj_status retention_compact(pj_store *store, const char *id, pj_error *err)
{
    pj_row_range ranges[PJ_TABLE_COUNT];
    pj_status status = pj_store_ranges(store, id, ranges, err);
    if (status == PJ_OK && store->is_frugal) status = forget_first_parts(store, id, ranges, err);
    if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    return pj_sql_finish(store, forget_operations(store, id, ranges, err), err);
}

pj_status pj_store_prune(pj_store *store, const pj_prune *rule, pj_pruned_fn *take, void *context,
                         pj_error *err)
{
    pj_buffer ids;
    pj_buffer_init(&ids, MAX_ID_BYTES);
    pj_status status = retention_find(store, rule, &ids, err);
    for (size_t at = 0; at < ids.length && status == PJ_OK; at += PJ_UUID_BYTES) {
        const char *id = ids.data + at;
        if (!rule->dry_run)
            status = rule->operations ? retention_compact(store, id, err)
                                      : pj_store_delete(store, id, err);
        if (status == PJ_OK) take(context, id);
        if (status == PJ_E_NOT_FOUND) status = PJ_OK; /* another process deleted it first */
    }
    pj_buffer_fini(&ids);
    return status;
}
