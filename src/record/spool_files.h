/* Files of spools: finding, opening and locking them, and where attempts to recover them are
 * counted. */
#ifndef PJ_RECORD_SPOOL_FILES_H
#define PJ_RECORD_SPOOL_FILES_H

#include "record/spool_dir.h"
#include "trace/spool.h"

#include <dirent.h>

enum { PJ_SPOOL_MOST_TRIES = 5 };

/* Attempts are counted in a file next to the spool, because an attempt may crash the process: a
 * spool that crashes its reader must not be retried for ever. */
bool pj_spool_tries_path(const char *spool, char *path, size_t bytes);
/* Opens and locks a spool of this user; files of other users are ignored, whatever they contain.
 * PJ_E_AGAIN: a live process has it, or may be about to. */
pj_status pj_spool_file_open(const char *path, pj_spool_reader *reader, uint64_t *bytes,
                             pj_error *err);
/* Whether a run of a dead process wrote records to its spool. One without any, because the process
 * died as soon as it had created the file, is deleted: that run has not begun. */
bool pj_spool_file_has_records(const char *path);
/* The path of the next spool in a folder, or with `damaged` also of files set aside; false at the
 * end, or if there is no folder. Closes the folder then. */
bool pj_spool_next_file(DIR *spools, const char *dir, bool damaged, char path[PJ_SPOOL_DIR_BYTES]);

#endif
