/* Whether the files that a model was opened from are still what they were. */
#ifndef PJ_FILES_WATCH_H
#define PJ_FILES_WATCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_watched_file pj_watched_file;

/* Must be zeroed first. */
typedef struct pj_watch {
    pj_watched_file *files;
    uint32_t count;
} pj_watch;

/* Notes the state of a file, before it is read; one that is absent may come later. */
pj_status pj_watch_add(pj_watch *watch, const char *path, pj_error *err);
/* Every path names the same file as before, and it has not been written to. */
bool pj_watch_is_current(const pj_watch *watch);
/* The path of a file that has been written to, whose mappings may have changed; not of one that was
 * replaced by another, whose mappings have not. NULL: none. */
const char *pj_watch_written(const pj_watch *watch);
/* What tells the files, as they were when they were added, from others. */
uint64_t pj_watch_stamp(const pj_watch *watch);
void pj_watch_fini(pj_watch *watch);

#endif
