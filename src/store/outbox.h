/*
 * Runs on their way to a server. A run for a server is first saved in a database on this machine,
 * its outbox, and deleted there after the server has committed it: whatever happens on the way, it
 * is in one of the two, and the server has it once, because a run replaces one of the same id.
 *
 * Runs are handed over oldest first, by one process at a time. The outbox of a server is a database
 * like any other, in the user's data folder or where PERJOULE_FALLBACK says.
 */
#ifndef PJ_STORE_OUTBOX_H
#define PJ_STORE_OUTBOX_H

#include "store/store.h"

/* The file that keeps the runs for a server. */
pj_status pj_outbox_path(const char *server, char *out, size_t bytes, pj_error *err);
/* Runs that are still to be handed over; 0 for a file. */
uint64_t pj_outbox_count(const char *place);

typedef struct pj_outbox_result {
    uint64_t handed_over, left;
    pj_error reason; /* why some are left; status PJ_OK: none are */
} pj_outbox_result;

typedef void pj_handed_over_fn(void *context, const char *run_id);

/* Hands over what is there. `take` may be NULL. Fails only if the outbox itself cannot be read;
 * what the server says is in the result. */
pj_status pj_outbox_push(const char *server, pj_handed_over_fn *take, void *context,
                         pj_outbox_result *result, pj_error *err);

/* Keeps handing over in the background, with growing pauses while the server is away. NULL for a
 * file, and when there is no thread. */
typedef struct pj_pusher pj_pusher;
pj_pusher *pj_pusher_start(const char *server);
void pj_pusher_stop(pj_pusher *pusher); /* NULL is allowed */

#endif
