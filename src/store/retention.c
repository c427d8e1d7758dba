/* Retention: finds the runs that a retention rule selects and deletes them one by one, each in a
 * transaction of its own, so that a server that is storing a run waits for one deletion and not for
 * all. */
#include "store/sql.h"
#include "store/store.h"

enum { MAX_ID_BYTES = 1 << 30 };

/* Runs in progress are not in the table; one that a killed server left in its queue may be. */
static const char find_rows[] =
    "SELECT id FROM profiling_runs WHERE created_ns < ?1 AND status <> 'running'"
    " AND (?2 = 1 OR id NOT IN (SELECT run_id FROM run_tags))"
    " AND id NOT IN (SELECT id FROM run_queue)"
    " AND id NOT IN (SELECT id FROM profiling_runs ORDER BY created_ns DESC, id DESC LIMIT ?3)"
    " ORDER BY created_ns, id";

static pj_status find(pj_store *store, const pj_prune *rule, pj_buffer *ids, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, find_rows, err);
    pj_sql_int(sql, 1, rule->before_ns);
    pj_sql_int(sql, 2, rule->tagged);
    pj_sql_int(sql, 3, rule->keep);
    while (pj_sql_step(sql)) {
        size_t bytes;
        const char *id = pj_sql_get_text(sql, 0, &bytes);
        if (id && bytes == PJ_UUID_BYTES - 1) pj_buffer_append(ids, id, PJ_UUID_BYTES);
    }
    pj_status status = pj_sql_end(sql, err);
    return status == PJ_OK ? pj_buffer_status(ids, "the runs to delete", err) : status;
}

pj_status pj_store_prune(pj_store *store, const pj_prune *rule, pj_pruned_fn *take, void *context,
                         pj_error *err)
{
    pj_buffer ids;
    pj_buffer_init(&ids, MAX_ID_BYTES);
    pj_status status = find(store, rule, &ids, err);
    for (size_t at = 0; at < ids.length && status == PJ_OK; at += PJ_UUID_BYTES) {
        const char *id = ids.data + at;
        if (!rule->dry_run) status = pj_store_delete(store, id, err);
        if (status == PJ_OK) take(context, id);
        if (status == PJ_E_NOT_FOUND) status = PJ_OK; /* another process deleted it first */
    }
    pj_buffer_fini(&ids);
    return status;
}
