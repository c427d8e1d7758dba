/* Finds the ends of the `usage` objects in an answer, so that a figure can be inserted while the
 * bytes pass through: the payload is scanned as it arrives, split at any byte, and never stored.
 * Finds an object under the key "usage" at the top of an event's JSON, and one level down in
 * "response" (the responses API). */
#ifndef PJ_ATTACH_USAGE_SPOT_H
#define PJ_ATTACH_USAGE_SPOT_H

#include "attach/events.h"

typedef struct pj_usage_spot {
    pj_events_mode mode;
    uint32_t depth;       /* open objects and arrays */
    uint32_t usage_depth; /* depth inside the usage object; 0: not in one */
    uint32_t response_depth;
    uint8_t key_bytes;
    char key[12]; /* the last string, up to the length of a key of interest */
    bool in_string, escaped, has_key;
    bool is_empty; /* the usage object is empty so far */
    bool at_line_start, in_data;
    uint8_t prefix; /* matched characters of "data:" at the start of a line */
} pj_usage_spot;

void pj_usage_spot_init(pj_usage_spot *spot, pj_events_mode mode);
/* The offset of the next brace that closes a usage object, -1: there is none in these bytes. Bytes
 * up to and including the brace have been scanned; pass the following bytes to the next call.
 * `is_empty`: a member inserted before the brace needs no comma. */
long pj_usage_spot_find(pj_usage_spot *spot, const char *bytes, size_t count);

#endif
