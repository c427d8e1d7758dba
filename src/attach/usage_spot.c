/* Scanning JSON for the ends of usage objects, byte by byte; whole events that do not contain the
 * key are skipped. */
#include "attach/usage_spot.h"

#include <string.h>

void pj_usage_spot_init(pj_usage_spot *s, pj_events_mode mode)
{
    *s = (pj_usage_spot){.mode = mode, .at_line_start = true, .in_data = mode != PJ_EVENTS_SSE};
}

static void forget_event(pj_usage_spot *s)
{
    s->depth = s->usage_depth = s->response_depth = 0;
    s->in_string = s->escaped = s->has_key = false;
}

static bool key_is(const pj_usage_spot *s, const char *key)
{
    return s->has_key && s->key_bytes == strlen(key) && memcmp(s->key, key, s->key_bytes) == 0;
}

static void open_value(pj_usage_spot *s, char c)
{
    bool outer = s->depth == 1 || (s->response_depth && s->depth == s->response_depth);
    bool is_usage = c == '{' && outer && key_is(s, "usage");
    bool is_response = c == '{' && s->depth == 1 && key_is(s, "response");
    s->has_key = false;
    if (s->depth < UINT32_MAX) s->depth++;
    if (is_usage && !s->usage_depth) {
        s->usage_depth = s->depth;
        s->is_empty = true;
    }
    if (is_response) s->response_depth = s->depth;
}

/* True when this closes the usage object. */
static bool close_value(pj_usage_spot *s, char c)
{
    bool found = c == '}' && s->usage_depth && s->depth == s->usage_depth;
    if (s->depth <= s->usage_depth) s->usage_depth = 0;
    if (s->depth <= s->response_depth) s->response_depth = 0;
    if (s->depth) s->depth--;
    s->has_key = false;
    return found;
}

static void take_string_byte(pj_usage_spot *s, char c)
{
    if (s->escaped) {
        s->escaped = false;
    } else if (c == '\\') {
        s->escaped = true;
        s->key_bytes = sizeof s->key; /* keys with escapes are never ours */
    } else if (c == '"') {
        s->in_string = false;
        s->has_key = true;
    } else if (s->key_bytes < sizeof s->key) {
        s->key[s->key_bytes++] = c;
    }
}

static bool take_json_byte(pj_usage_spot *s, char c)
{
    if (s->in_string) {
        take_string_byte(s, c);
        return false;
    }
    switch (c) {
    case ' ':
    case '\t':
    case ':': return false;
    case '{':
    case '[':
        if (s->usage_depth) s->is_empty = false;
        open_value(s, c);
        return false;
    case '}':
    case ']': return close_value(s, c);
    case '"':
        s->in_string = true;
        s->key_bytes = 0;
        s->is_empty = false;
        return false;
    default:
        s->has_key = false;
        s->is_empty = false;
        return false;
    }
}

static void take_line_end(pj_usage_spot *s)
{
    bool blank = s->at_line_start;
    s->at_line_start = true;
    s->prefix = 0;
    if (s->mode == PJ_EVENTS_SSE) s->in_data = false;
    if (s->mode == PJ_EVENTS_LINES || (s->mode == PJ_EVENTS_SSE && blank)) forget_event(s);
}

/* The start of a line of server-sent events: only "data:" holds JSON. */
static void take_prefix(pj_usage_spot *s, char c)
{
    static const char data[] = "data:";
    s->at_line_start = false;
    if (s->prefix < 5 && c == data[s->prefix]) {
        s->in_data = ++s->prefix == 5;
        return;
    }
    s->prefix = UINT8_MAX;
}

/* Whether nothing can be found and the state stays as it is: whole events, beginning where one
 * begins, without the key. (An escaped key is never ours.) */
static bool usage_spot_is_without(const pj_usage_spot *s, const char *bytes, size_t count)
{
    static const char key[] = "\"usage\"";
    const size_t n = sizeof key - 1;
    bool sse = s->mode == PJ_EVENTS_SSE;
    bool begins = s->at_line_start && !s->depth && !s->in_string && !s->has_key;
    if (s->mode == PJ_EVENTS_WHOLE || !begins || count < 2) return false;
    if (bytes[count - 1] != '\n' || (sse && bytes[count - 2] != '\n')) return false;
    const char *end = bytes + count;
    for (const char *at = bytes; (at = memchr(at, '"', (size_t)(end - at))) != NULL; at++)
        if ((size_t)(end - at) >= n && memcmp(at, key, n) == 0) return false;
    return true;
}

long pj_usage_spot_find(pj_usage_spot *s, const char *bytes, size_t count)
{
    if (usage_spot_is_without(s, bytes, count)) return -1;
    for (size_t i = 0; i < count; i++) {
        char c = bytes[i];
        if (c == '\n' || c == '\r') {
            if (s->mode != PJ_EVENTS_WHOLE && !(c == '\n' && i > 0 && bytes[i - 1] == '\r'))
                take_line_end(s);
        } else if (!s->in_data) {
            take_prefix(s, c);
        } else {
            s->at_line_start = false;
            if (take_json_byte(s, c)) return (long)i;
        }
    }
    return -1;
}
