/* Who works on a row of a queue: a process, known by an id that it writes into the row, and alive
 * as long as it holds the lock on a file of that name. The kernel drops the lock with the process,
 * however that ends. */
#ifndef PJ_STORE_OWNER_H
#define PJ_STORE_OWNER_H

#include "base/error.h"
#include "base/ids.h"

#include <stdbool.h>

typedef struct pj_owner {
    char id[PJ_UUID_BYTES]; /* "": not open */
    char *path;             /* NULL: not open */
    int fd;
} pj_owner;

/* `folder` is that of the database's spools, on a local file system. */
pj_status pj_owner_open(pj_owner *owner, const char *folder, pj_error *err);
void pj_owner_close(pj_owner *owner); /* a zeroed one is allowed */
/* Whether another process with this id lives; the file of a dead one is removed. */
bool pj_owner_is_alive(const char *folder, const char *id);

#endif
