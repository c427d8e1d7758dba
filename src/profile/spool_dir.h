/*
 * Where the spools of a database's runs are. Each database has a folder of its own beside it,
 * NAME.db-spool/, readable by its owner alone. Where that folder cannot be used (it belongs to
 * another user, or the place cannot be written) the user's data folder has one for this database.
 */
#ifndef PJ_PROFILE_SPOOL_DIR_H
#define PJ_PROFILE_SPOOL_DIR_H

#include "store/store.h"

enum { PJ_SPOOL_DIRS = 3, PJ_SPOOL_DIR_BYTES = 4096 };

/* Folders that may hold spools of one database, the preferred one first; "": none. The third is the
 * folder `spool/` that earlier versions shared between all databases of a folder; it is listed only
 * where this database is the only one there, so that it is clear whose spools they are. */
typedef struct pj_spool_dirs {
    char path[PJ_SPOOL_DIRS][PJ_SPOOL_DIR_BYTES];
} pj_spool_dirs;

void pj_spool_dirs_of(const char *database, pj_spool_dirs *dirs);
/* Creates the first of the two folders that can be written and belongs to this user. False: there
 * is none; `why` then says so. */
bool pj_spool_dir_make(const pj_spool_dirs *dirs, const char **dir, pj_error *why);
/* Whether a folder exists, is not a link and belongs to this user; else why not. A folder that does
 * not exist gives PJ_E_NOT_FOUND. */
pj_status pj_spool_dir_check(const char *dir, pj_error *err);

#endif
