/* Structs of the public interface that begin with their size: the caller may have been compiled
 * against an older or a newer header. */
#ifndef PJ_BASE_SIZED_H
#define PJ_BASE_SIZED_H

#include "base/error.h"

/* Copies a caller's struct, whose first member is its size (0: first_size), over ours; members
 * unknown to the caller become zero. PJ_E_INVALID: NULL or an impossible size. PJ_E_UNSUPPORTED:
 * members unknown to us are set. */
pj_status pj_sized_read(void *ours, size_t our_size, size_t first_size, const void *theirs,
                        const char *name, pj_error *err);
#define PJ_SIZED_READ(type, ours, theirs, first_size, err) \
    pj_sized_read(ours, sizeof(type), first_size, theirs, #type, err)

#endif
