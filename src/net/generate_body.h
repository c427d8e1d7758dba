/* The body of POST /api/profiling/generate: hostile JSON in, a checked request out. */
#ifndef PJ_NET_GENERATE_BODY_H
#define PJ_NET_GENERATE_BODY_H

#include "net/service.h"

enum { PJ_MAX_NEW_TOKENS = 1 << 20, PJ_MAX_BATCH = 256, PJ_MAX_TAGS = 64, PJ_MAX_TEXT_BYTES = 256 };

/* Texts go into the arena. PJ_E_INVALID with *syntax true: it is not JSON (400); false: it is, and
 * says something wrong (422). The sentence names the field. */
pj_status pj_generate_body_parse(const char *text, size_t bytes, pj_generate_ask *ask,
                                 pj_arena *arena, bool *syntax, pj_error *err);

#endif
