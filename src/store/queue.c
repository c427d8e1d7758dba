/* The table run_queue. */
#include "store/queue.h"

#include "store/sql.h"

pj_status pj_store_queue_put(pj_store *store, const char *id, int64_t queued_ns,
                             const char *request, size_t bytes, pj_error *err)
{
    const pj_value text = pj_value_bytes(PJ_VALUE_TEXT, request, bytes);
    return pj_sql_change(store,
                         "INSERT INTO run_queue (id, queued_ns, request) VALUES (?, ?, ?)"
                         " ON CONFLICT (id) DO UPDATE SET queued_ns = excluded.queued_ns,"
                         " request = excluded.request",
                         PJ_VALUES(pj_value_text(id), pj_value_int(queued_ns), text), err);
}

pj_status pj_store_queue_remove(pj_store *store, const char *id, pj_error *err)
{
    return pj_sql_change(store, "DELETE FROM run_queue WHERE id = ?", PJ_VALUES(pj_value_text(id)),
                         err);
}

pj_status pj_store_queue_list(pj_store *store, pj_queued_fn *take, void *context, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(
        store, "SELECT id, queued_ns, request FROM run_queue ORDER BY queued_ns, id", err);
    while (pj_sql_step(sql)) {
        size_t id_bytes, bytes;
        const char *id = pj_sql_get_text(sql, 0, &id_bytes);
        const char *request = pj_sql_get_text(sql, 2, &bytes);
        if (id && request) take(context, id, pj_sql_get_int(sql, 1), request, bytes);
    }
    return pj_sql_end(sql, err);
}
