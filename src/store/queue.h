/* Rows of a server's queue of waiting runs: one JSON request each, oldest first. */
#ifndef PJ_STORE_QUEUE_H
#define PJ_STORE_QUEUE_H

#include "store/store.h"

typedef void pj_queued_fn(void *context, const char *id, int64_t queued_ns, const char *request,
                          size_t bytes);

pj_status pj_store_queue_put(pj_store *store, const char *id, int64_t queued_ns,
                             const char *request, size_t bytes, pj_error *err);
/* Removing a run that is not queued succeeds. */
pj_status pj_store_queue_remove(pj_store *store, const char *id, pj_error *err);
pj_status pj_store_queue_list(pj_store *store, pj_queued_fn *take, void *context, pj_error *err);

#endif
