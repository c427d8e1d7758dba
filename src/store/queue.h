/* Rows of the queue of waiting runs: one JSON request each, oldest first. Several processes share
 * it: a row belongs to the process whose id it holds (store/owner.h), or to none. */
#ifndef PJ_STORE_QUEUE_H
#define PJ_STORE_QUEUE_H

#include "store/store.h"

typedef struct pj_queue_row {
    const char *id, *request, *owner; /* owner NULL: none */
    int64_t queued_ns;
    size_t request_bytes;
    bool is_cancelled; /* by another process than its owner */
} pj_queue_row;

typedef void pj_queue_row_fn(void *context, const pj_queue_row *row);

pj_status pj_store_queue_put(pj_store *store, const pj_queue_row *row, pj_error *err);
/* Removing a run that is not queued succeeds. */
pj_status pj_store_queue_remove(pj_store *store, const char *id, pj_error *err);
pj_status pj_store_queue_list(pj_store *store, pj_queue_row_fn *take, void *context, pj_error *err);
/* Gives the row to `owner` if it still belongs to `from`. Of several processes that try, one
 * succeeds; which one, the row says. */
pj_status pj_store_queue_claim(pj_store *store, const char *id, const char *from, const char *owner,
                               pj_error *err);
/* The row's owner; "": it has none, or there is no such row. */
pj_status pj_store_queue_owner(pj_store *store, const char *id, char owner[PJ_UUID_BYTES],
                               pj_error *err);
/* Tells the owner to end it. */
pj_status pj_store_queue_cancel(pj_store *store, const char *id, pj_error *err);

#endif
