/* Spools that dead processes left behind become runs of status `interrupted`. */
#ifndef PJ_PROFILE_RECOVER_H
#define PJ_PROFILE_RECOVER_H

#include "store/store.h"

/* Where the spools of a database's runs lie: beside it, or with the user when it is a server. */
pj_status pj_spool_dir_of(const pj_store *store, char *dir, size_t bytes, pj_error *err);
/* Saves each spool of `dir` that no living process holds and removes its file; gives how many runs
 * that made. What cannot be read stays where it is and is named in `warning`, which is left alone
 * otherwise. A folder that is not there holds none. */
uint32_t pj_spools_recover(pj_store *store, const char *dir, char *warning, size_t bytes);

#endif
