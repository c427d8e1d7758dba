/*
 * Recovery: spools that dead processes left behind become runs of status `interrupted` (or of the
 * status they had, when they ended and only could not be stored).
 *
 * It is done by a thread of its own with its own connection, so that opening a database never
 * waits for it. Spools are tried one after another; each is deleted only after its run is stored
 * and only if all of it could be read. Everything else stays where it is:
 *
 *   ID.spool      not tried yet, in use by a live process, or unreadable
 *   ID.damaged    stored, except for bytes whose checksum is wrong
 *   ID.tries      one byte per attempt that did not come to an orderly end; after five of those
 *                 the spool is no longer tried by itself
 */
#ifndef PJ_PROFILE_RECOVER_H
#define PJ_PROFILE_RECOVER_H

#include "profile/spool_dir.h"

typedef struct pj_recovery pj_recovery;

/* Hears one sentence at a time, for people; from the recovery's thread or the caller's. */
typedef void pj_recovery_say_fn(void *context, const char *text);

typedef struct pj_recovery_state {
    uint32_t recovered; /* runs stored so far */
    bool done;          /* nothing is left that could be recovered */
} pj_recovery_state;

/* NULL when there is nothing to recover (then no thread and no connection is made), or when no
 * thread could be started. */
pj_recovery *pj_recovery_start(const char *database);
/* Sentences go there from now on, those of the past included. */
void pj_recovery_set_say(pj_recovery *recovery, pj_recovery_say_fn *say, void *context);
/* While something is being measured: work in progress is abandoned (its spool stays as it is) and
 * starts again after pj_recovery_resume. All functions accept NULL. */
void pj_recovery_pause(pj_recovery *recovery);
void pj_recovery_resume(pj_recovery *recovery);
/* Waits until it is done, `ns` at most. */
pj_recovery_state pj_recovery_wait(pj_recovery *recovery, int64_t ns);
/* Abandons what is in progress. Returns within a fraction of a second even when a spool is so large
 * that its processing cannot be interrupted at once; the thread then ends by itself. */
void pj_recovery_close(pj_recovery *recovery);

/* ---- for `perjoule check` ------------------------------------------------------------------- */

typedef enum pj_spool_state {
    PJ_SPOOL_RUNNING = 0, /* a live process holds it */
    PJ_SPOOL_LEFT,        /* to be recovered */
    PJ_SPOOL_UNREADABLE,
    PJ_SPOOL_DAMAGED, /* stored as far as it could be read */
    PJ_SPOOL_FOREIGN  /* of another user: ignored */
} pj_spool_state;

typedef struct pj_spool_entry {
    char path[PJ_SPOOL_DIR_BYTES];
    pj_spool_state state;
    uint64_t bytes;
    pj_error reason; /* why it is unreadable or ignored; else empty */
} pj_spool_entry;

const char *pj_spool_state_name(pj_spool_state state);
/* Calls `take` for each spool of the database, and for each folder that is ignored. Opens and locks
 * spools for a moment, so not while a recovery runs. */
void pj_spools_list(const char *database, void (*take)(void *context, const pj_spool_entry *entry),
                    void *context);

#endif
