/* Stop strings. The earliest occurrence ends the text; of several at one offset any will
 * do, because the text before them is the same. */
#include "engine/generation/reply.h"

#include <string.h>

void pj_reply_init(pj_reply *reply, const char *const *stop, size_t max_bytes)
{
    *reply = (pj_reply){.stop = stop};
    pj_buffer_init(&reply->text, max_bytes);
}

void pj_reply_fini(pj_reply *reply)
{
    pj_buffer_fini(&reply->text);
}

/* Match of a stop string at `rest`: complete, or a prefix cut off by the end of the text. */
typedef enum match { MATCH_NONE, MATCH_BEGUN, MATCH_WHOLE } match;

static match reply_match_at(const pj_reply *reply, const char *rest, size_t left)
{
    match best = MATCH_NONE;
    for (const char *const *s = reply->stop; s && *s; s++) {
        size_t length = strlen(*s), n = length < left ? length : left;
        if (length == 0 || memcmp(rest, *s, n) != 0) continue;
        if (n == length) return MATCH_WHOLE;
        best = MATCH_BEGUN;
    }
    return best;
}

bool pj_reply_check(pj_reply *reply)
{
    while (!reply->stopped && reply->checked < reply->text.length) {
        size_t left = reply->text.length - reply->checked;
        match found = reply_match_at(reply, reply->text.data + reply->checked, left);
        if (found == MATCH_BEGUN) break;
        if (found == MATCH_WHOLE) {
            reply->stopped = true;
            reply->text.length = reply->checked;
            reply->text.data[reply->checked] = 0;
        } else {
            reply->checked++;
        }
    }
    return reply->stopped;
}

const char *pj_reply_take(pj_reply *reply, bool all, size_t *bytes)
{
    size_t end = all ? reply->text.length : reply->checked, begin = reply->given;
    *bytes = end - begin;
    reply->given = end;
    return pj_buffer_get(&reply->text) + begin;
}
