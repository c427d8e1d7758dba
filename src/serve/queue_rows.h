/*
 * The queue in the database: a requested run is written there before its id is returned, and
 * removed when it has ended. Each row belongs to one server, which alone runs it; when that server
 * has died or was stopped, another one that uses the database, or the next to start, takes it over.
 *
 * Threads: every call from any thread; one connection with its own lock.
 */
#ifndef PJ_SERVE_QUEUE_ROWS_H
#define PJ_SERVE_QUEUE_ROWS_H

#include "serve/queue.h"

typedef struct pj_queue_rows pj_queue_rows;

/* `rows` becomes NULL when the session stores nothing, or has no folder for spools: all calls then
 * do nothing. */
pj_status pj_queue_rows_open(pj_session *session, pj_queue_rows **rows, pj_error *err);
void pj_queue_rows_close(pj_queue_rows *rows);
pj_status pj_queue_rows_put(pj_queue_rows *rows, const char *id, int64_t queued_ns,
                            const pj_generation_request *request, pj_error *err);
void pj_queue_rows_remove(pj_queue_rows *rows, const char *id);
void pj_queue_rows_write_back(pj_queue_rows *rows); /* pj_store_write_back */

typedef struct pj_queue_rows_hooks {
    /* A run that this server is to run, oldest first; `request` is valid during the call. */
    void (*take)(void *context, const char *id, int64_t queued_ns,
                 const pj_generation_request *request);
    /* A run of this server that another one was asked to cancel. */
    void (*cancel)(void *context, const char *id);
    void *context;
} pj_queue_rows_hooks;

/* Takes over the rows that belong to no living server, and reports cancellations. Removes rows of
 * runs that began before their server died (those are recovered from their spools), and invalid
 * ones. */
pj_status pj_queue_rows_sync(pj_queue_rows *rows, const pj_queue_rows_hooks *hooks, pj_error *err);

/* Runs of other servers: the only one whose id begins with `text`; telling its owner to end it. */
bool pj_queue_rows_find(pj_queue_rows *rows, const char *text, char id[PJ_UUID_BYTES]);
pj_status pj_queue_rows_cancel(pj_queue_rows *rows, const char *id, pj_error *err);

#endif
