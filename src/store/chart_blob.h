/* Planes, the largest charts, as an engine that packs stores them: deflated where that makes them
 * smaller. */
#ifndef PJ_STORE_CHART_BLOB_H
#define PJ_STORE_CHART_BLOB_H

#include "base/memory.h"
#include "store/value.h"

#include <stdbool.h>

bool pj_chart_is_plane(const char *chart);
/* The blob to be stored, in the arena or the bytes themselves. NULL: out of memory. */
const void *pj_chart_deflate(pj_arena *arena, const void *bytes, size_t *count);
/* The bytes of a stored blob, likewise. NULL: it is damaged, or out of memory. */
const void *pj_chart_inflate(pj_arena *arena, const void *blob, size_t *count);

#endif
