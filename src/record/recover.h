/*
 * Recovery: spools left by dead processes become runs with status `interrupted` (or with their own
 * status, if they had ended but could not be stored).
 *
 * It runs in its own thread with its own connection, so that opening a database never waits for it.
 * Spools are processed one at a time; each is deleted only after its run is stored, and only if it
 * was read completely. Otherwise files stay:
 *
 *   ID.spool      not processed yet, in use by a live process, or unreadable
 *   ID.damaged    stored, except for bytes with a wrong checksum
 *   ID.tries      one byte per attempt that crashed; after five of them the spool is
 *                 no longer retried automatically
 */
#ifndef PJ_RECORD_RECOVER_H
#define PJ_RECORD_RECOVER_H

#include "record/leftovers.h"

typedef struct pj_recovery pj_recovery;

/* Receives one sentence for the user; called by the recovery's thread or the caller's. */
typedef void pj_recovery_message_fn(void *context, const char *text);

typedef struct pj_recovery_state {
    uint32_t recovered; /* runs stored so far */
    bool done;          /* nothing recoverable is left */
} pj_recovery_state;

/* NULL when there is nothing to recover (no thread or connection is then created), or when the
 * thread could not be started. */
pj_recovery *pj_recovery_start(const char *database);
/* For a program that stays: from now on also takes what other processes leave when they die, within
 * seconds. `started`: of pj_recovery_start, or NULL; the result replaces it. */
pj_recovery *pj_recovery_stay(pj_recovery *started, const char *database);
/* Sets the message callback; earlier messages are delivered too. */
void pj_recovery_on_message(pj_recovery *recovery, pj_recovery_message_fn *on_message,
                            void *context);
/* During a measurement: work in progress is abandoned (its spool stays) and restarts after
 * pj_recovery_resume. All functions accept NULL. */
void pj_recovery_pause(pj_recovery *recovery);
void pj_recovery_resume(pj_recovery *recovery);
/* Waits until it is done, at most `ns`. */
pj_recovery_state pj_recovery_wait(pj_recovery *recovery, int64_t ns);
/* The runs that waited when it started; pj_leftovers_unstored tells which still do. */
const pj_run_list *pj_recovery_waiting(pj_recovery *recovery);
/* Abandons work in progress. Returns within a fraction of a second even if a large spool cannot be
 * interrupted at once; the thread then ends on its own. */
void pj_recovery_close(pj_recovery *recovery);

/* For handlers of signals that end the process: an attempt in progress did not crash and is not
 * counted. Safe in a handler. */
void pj_recovery_interrupted(void);
/* After `path` was imported: removes it with its count of attempts, if it is a spool of this
 * database. Copies elsewhere stay. */
void pj_recovery_imported(const char *database, const char *path);

#endif
