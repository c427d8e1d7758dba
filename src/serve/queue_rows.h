/*
 * The queue in the database: a requested run is written there before its id is returned, and
 * removed when it has ended. A restarted server continues with what is there.
 *
 * Threads: every call from any thread; one connection with its own lock.
 */
#ifndef PJ_SERVE_QUEUE_ROWS_H
#define PJ_SERVE_QUEUE_ROWS_H

#include "serve/queue.h"

typedef struct pj_queue_rows pj_queue_rows;

/* `rows` becomes NULL when the session stores nothing: all calls then do nothing. */
pj_status pj_queue_rows_open(const pj_session *session, pj_queue_rows **rows, pj_error *err);
void pj_queue_rows_close(pj_queue_rows *rows);
pj_status pj_queue_rows_put(pj_queue_rows *rows, const char *id, int64_t queued_ns,
                            const pj_generation_request *request, pj_error *err);
void pj_queue_rows_remove(pj_queue_rows *rows, const char *id);
/* Calls `take` for each queued run, oldest first; `request` is valid during the call. Removes rows
 * of runs that began before the server died (those are recovered from their spools) and
 * invalid rows. */
pj_status pj_queue_rows_load(pj_queue_rows *rows,
                             void (*take)(void *context, const char *id, int64_t queued_ns,
                                          const pj_generation_request *request),
                             void *context, pj_error *err);

#endif
