/*
 * Store and forward of runs to a server. A run for a server is first saved in a local database, the
 * outbox, and deleted there after the server has committed it. It is therefore always in at least
 * one of the two, and never twice on the server, because saving replaces a run of the same id.
 *
 * Runs are transferred oldest first, by one process at a time. An outbox is an ordinary database in
 * the user's data folder, or at the path in PERJOULE_FALLBACK.
 */
#ifndef PJ_STORE_OUTBOX_H
#define PJ_STORE_OUTBOX_H

#include "store/store.h"

/* The path of a server's outbox. */
pj_status pj_outbox_path(const char *server, char *out, size_t bytes, pj_error *err);
/* Number of runs not yet transferred; 0 if the store is a file. */
uint64_t pj_outbox_count(const char *address);

typedef struct pj_outbox_result {
    uint64_t handed_over, left;
    pj_error reason; /* why runs are left; status PJ_OK: none are */
} pj_outbox_result;

typedef void pj_handed_over_fn(void *context, const char *run_id);

/* Transfers all runs. `take` may be NULL. Fails only if the outbox cannot be read; the server's
 * failures are in the result. */
pj_status pj_outbox_push(const char *server, pj_handed_over_fn *take, void *context,
                         pj_outbox_result *result, pj_error *err);

/* Transfers in a background thread, with exponential backoff while the server is unreachable. NULL
 * for a file, or when the thread could not be started. */
typedef struct pj_pusher pj_pusher;
pj_pusher *pj_pusher_start(const char *server);
void pj_pusher_stop(pj_pusher *pusher); /* NULL is allowed */

#endif
