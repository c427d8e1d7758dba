/* The body of POST /api/profiling/generate: untrusted JSON in, a checked request out. */
#ifndef PJ_NET_GENERATE_BODY_H
#define PJ_NET_GENERATE_BODY_H

#include "net/service.h"

enum { PJ_MAX_NEW_TOKENS = 1 << 20, PJ_MAX_BATCH = 256, PJ_MAX_TAGS = 64, PJ_MAX_TEXT_BYTES = 256 };

/* Texts go into the arena. PJ_E_INVALID with *syntax true: not JSON (400); false: JSON with invalid
 * content (422). The error names the field. */
pj_status pj_generate_body_parse(const char *text, size_t bytes, pj_generate_ask *ask,
                                 pj_arena *arena, bool *syntax, pj_error *err);

#endif
