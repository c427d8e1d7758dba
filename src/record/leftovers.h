/* What dead processes left: their spools, and the runs in those that are not recovered yet, as
 * lists show them: by the facts that a spool begins with, of status `interrupted`, every figure
 * unknown. Nothing is attributed for that, so that no list waits for it. */
#ifndef PJ_RECORD_LEFTOVERS_H
#define PJ_RECORD_LEFTOVERS_H

#include "record/spool_dir.h"

typedef enum pj_spool_state {
    PJ_SPOOL_RUNNING = 0, /* a live process holds it */
    PJ_SPOOL_LEFT,        /* to be recovered */
    PJ_SPOOL_UNREADABLE,
    PJ_SPOOL_DAMAGED, /* its readable part is stored */
    PJ_SPOOL_FOREIGN  /* owned by another user: ignored */
} pj_spool_state;

typedef struct pj_spool_entry {
    char path[PJ_SPOOL_DIR_BYTES];
    pj_spool_state state;
    uint64_t bytes;
    pj_error reason; /* why it is unreadable or ignored; else empty */
} pj_spool_entry;

const char *pj_spool_state_name(pj_spool_state state);
/* Calls `take` for each spool of the database, and for each ignored folder. Opens and locks spools
 * briefly, so do not call it during a recovery. */
void pj_spools_list(const char *database, void (*take)(void *context, const pj_spool_entry *entry),
                    void *context);

/* ---- their runs ---- */

/* Whether `query` is for the first page of all runs, or of all interrupted ones, newest first: the
 * lists that begin with leftovers. Others cannot be answered from facts alone. */
bool pj_leftovers_wanted(const pj_run_query *query);
/* The runs, newest first. Locks spools as pj_spools_list does. */
void pj_leftovers_read(const char *database, pj_run_list *list);
/* As pj_store_resolve, over the runs of the database and `waiting` together; *found is the one of
 * those that was named, NULL: a stored run. */
pj_status pj_leftovers_resolve(const pj_run_list *waiting, pj_store *store, const char *text,
                               char id[PJ_UUID_BYTES], const pj_run_info **found, pj_error *err);
/* Those that `store` does not have by now; pj_free. */
const pj_run_info **pj_leftovers_unstored(const pj_run_list *list, pj_store *store,
                                          uint32_t *count);

#endif
