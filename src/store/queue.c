/* The table run_queue. */
#include "store/queue.h"

#include "store/sql.h"

#include <stdio.h>

pj_status pj_store_queue_put(pj_store *store, const pj_queue_row *row, pj_error *err)
{
    const pj_value text = pj_value_bytes(PJ_VALUE_TEXT, row->request, row->request_bytes);
    return pj_sql_change(store,
                         "INSERT INTO run_queue (id, queued_ns, request, owner) VALUES (?, ?, ?, ?)"
                         " ON CONFLICT (id) DO UPDATE SET queued_ns = excluded.queued_ns,"
                         " request = excluded.request, owner = excluded.owner",
                         PJ_VALUES(pj_value_text(row->id), pj_value_int(row->queued_ns), text,
                                   pj_value_text(row->owner)),
                         err);
}

pj_status pj_store_queue_remove(pj_store *store, const char *id, pj_error *err)
{
    return pj_sql_change(store, "DELETE FROM run_queue WHERE id = ?", PJ_VALUES(pj_value_text(id)),
                         err);
}

pj_status pj_store_queue_list(pj_store *store, pj_queue_row_fn *take, void *context, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               "SELECT id, queued_ns, request, owner, cancelled FROM run_queue"
                               " ORDER BY queued_ns, id",
                               err);
    while (pj_sql_step(sql)) {
        pj_queue_row row = {.id = pj_sql_get_text(sql, 0, NULL),
                            .queued_ns = pj_sql_get_int(sql, 1),
                            .owner = pj_sql_get_text(sql, 3, NULL),
                            .is_cancelled = pj_sql_get_int(sql, 4) != 0};
        row.request = pj_sql_get_text(sql, 2, &row.request_bytes);
        if (row.id && row.request) take(context, &row);
    }
    return pj_sql_end(sql, err);
}

pj_status pj_store_queue_claim(pj_store *store, const char *id, const char *from, const char *owner,
                               pj_error *err)
{
    return pj_sql_change(
        store,
        "UPDATE run_queue SET owner = ?1 WHERE id = ?2"
        " AND coalesce(owner, '') = ?3",
        PJ_VALUES(pj_value_text(owner), pj_value_text(id), pj_value_text(from ? from : "")), err);
}

pj_status pj_store_queue_owner(pj_store *store, const char *id, char owner[PJ_UUID_BYTES],
                               pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT owner FROM run_queue WHERE id = ?", err);
    pj_sql_text(sql, 1, id);
    const char *text = pj_sql_step(sql) ? pj_sql_get_text(sql, 0, NULL) : NULL;
    snprintf(owner, PJ_UUID_BYTES, "%s", text ? text : "");
    return pj_sql_end(sql, err);
}

pj_status pj_store_queue_cancel(pj_store *store, const char *id, pj_error *err)
{
    return pj_sql_change(store, "UPDATE run_queue SET cancelled = 1 WHERE id = ?",
                         PJ_VALUES(pj_value_text(id)), err);
}
