/* Comparing events with the last one that only gave text. */
#include "attach/answer_template.h"

#include "base/utf8.h"

#include <string.h>

enum { EVENT_MAX_BYTES = 4096 };

void pj_answer_template_init(pj_answer_template *t)
{
    *t = (pj_answer_template){0};
    pj_buffer_init(&t->event, EVENT_MAX_BYTES);
}

void pj_answer_template_fini(pj_answer_template *t)
{
    pj_buffer_fini(&t->event);
}

void pj_answer_template_forget(pj_answer_template *t)
{
    pj_buffer_clear(&t->event);
}

/* The offset of the text between quotes; 0: it is not there exactly once. */
static size_t find_once(const char *event, size_t bytes, const char *text, size_t text_bytes)
{
    size_t found = 0;
    for (size_t at = 1; at + text_bytes < bytes; at++) {
        const char *quote = memchr(event + at - 1, '"', bytes - text_bytes - at);
        if (!quote) break;
        at = (size_t)(quote - event) + 1;
        if (event[at + text_bytes] != '"' || memcmp(event + at, text, text_bytes) != 0) continue;
        if (found) return 0;
        found = at;
    }
    return found;
}

void pj_answer_template_learn(pj_answer_template *t, const char *event, size_t bytes,
                              const char *text, size_t text_bytes, uint32_t choice, bool reasoning)
{
    /* Without escapes every string of the event stands in it as it is. */
    if (bytes >= EVENT_MAX_BYTES || text_bytes + 2 >= bytes || memchr(event, '\\', bytes)) return;
    size_t begin = find_once(event, bytes, text, text_bytes);
    if (!begin) return;
    pj_buffer_clear(&t->event);
    if (!pj_buffer_append(&t->event, event, bytes)) return;
    t->begin = begin;
    t->end = begin + text_bytes;
    t->choice = choice;
    t->reasoning = reasoning;
}

/* Whether these bytes within quotes are a JSON string that means itself. */
static bool answer_template_is_plain(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        uint32_t c = 0;
        size_t n = pj_utf8_next(text + i, bytes - i, &c);
        if (!n || c < ' ' || c == '"' || c == '\\') return false;
        i += n;
    }
    return true;
}

bool pj_answer_template_match(const pj_answer_template *t, const char *event, size_t bytes,
                              const char **text, size_t *text_bytes)
{
    size_t after = t->event.length - t->end;
    if (!t->event.length || bytes < t->begin + after) return false;
    if (memcmp(event, t->event.data, t->begin) != 0) return false;
    if (memcmp(event + bytes - after, t->event.data + t->end, after) != 0) return false;
    *text = event + t->begin;
    *text_bytes = bytes - after - t->begin;
    return answer_template_is_plain(*text, *text_bytes);
}
