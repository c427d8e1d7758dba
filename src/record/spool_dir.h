/* Folders for the spools of a database's runs. Each database has its own, NAME.db-spool/ next to
 * it, readable only by its owner. If that cannot be used (it belongs to another user, or is not
 * writable), a folder in the user's data folder is used. */
#ifndef PJ_RECORD_SPOOL_DIR_H
#define PJ_RECORD_SPOOL_DIR_H

#include "store/store.h"

enum { PJ_SPOOL_DIRS = 3, PJ_SPOOL_DIR_BYTES = 4096 };

/* Folders that may hold spools of one database, the preferred one first; "": none. The third is the
 * folder `spool/`, which earlier versions shared between all databases in a folder; it is listed
 * only if this is the only database there, so that its spools belong to this one. */
typedef struct pj_spool_dirs {
    char path[PJ_SPOOL_DIRS][PJ_SPOOL_DIR_BYTES];
} pj_spool_dirs;

void pj_spool_dirs_of(const char *database, pj_spool_dirs *dirs);
/* Creates the first of the two folders that is writable and belongs to this user. False: neither;
 * `why` is the reason. */
bool pj_spool_dir_make(const pj_spool_dirs *dirs, const char **dir, pj_error *why);
/* Checks that a folder exists, is not a link and belongs to this user. A missing folder gives
 * PJ_E_NOT_FOUND. */
pj_status pj_spool_dir_check(const char *dir, pj_error *err);

#endif
