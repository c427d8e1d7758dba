/* The growing text of one sequence: finds stop strings, also across tokens, and releases text that
 * can no longer be part of one. */
#ifndef PJ_GENERATION_REPLY_H
#define PJ_GENERATION_REPLY_H

#include "base/buffer.h"

typedef struct pj_reply {
    pj_buffer text;          /* all of it; append here, then call pj_reply_check */
    size_t given;            /* bytes already returned by pj_reply_take */
    size_t checked;          /* bytes in which no stop string begins */
    const char *const *stop; /* NULL-terminated list, or NULL; borrowed */
    bool stopped;
} pj_reply;

void pj_reply_init(pj_reply *reply, const char *const *stop, size_t max_bytes);
void pj_reply_fini(pj_reply *reply); /* may run twice */
/* Call after appending: true when the text contains a stop string; the text then ends before it. */
bool pj_reply_check(pj_reply *reply);
/* The text that is final and not returned yet; with `all` (at the end) everything. Borrowed until
 * the next append. */
const char *pj_reply_take(pj_reply *reply, bool all, size_t *bytes);

#endif
