/*
 * The text of one sequence as it grows: finds stop strings, also across tokens, and gives out what
 * can no longer be part of one.
 */
#ifndef PJ_LLM_REPLY_H
#define PJ_LLM_REPLY_H

#include "base/buffer.h"

typedef struct pj_reply {
    pj_buffer text;          /* all of it; append here, then call pj_reply_check */
    size_t given;            /* bytes of it that pj_reply_take has given out */
    size_t checked;          /* bytes of it in which no stop string begins */
    const char *const *stop; /* NULL-terminated list, or NULL; borrowed */
    bool stopped;
} pj_reply;

void pj_reply_init(pj_reply *reply, const char *const *stop, size_t max_bytes);
void pj_reply_fini(pj_reply *reply); /* may run twice */
/* After text was appended: true when a stop string is in it; the text then ends before it. */
bool pj_reply_check(pj_reply *reply);
/* What is certain and was not given yet; with `all` (at the end) everything. Borrowed until the
 * next append. */
const char *pj_reply_take(pj_reply *reply, bool all, size_t *bytes);

#endif
