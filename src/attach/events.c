#include "attach/events.h"

#include <string.h>
#include <strings.h>

pj_events_mode pj_events_mode_of(const char *content_type, size_t length)
{
    static const struct {
        const char *type;
        pj_events_mode mode;
    } known[] = {{"text/event-stream", PJ_EVENTS_SSE},
                 {"application/x-ndjson", PJ_EVENTS_LINES},
                 {"application/ndjson", PJ_EVENTS_LINES},
                 {"application/jsonl", PJ_EVENTS_LINES}};
    for (size_t i = 0; content_type && i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].type);
        if (length >= n && strncasecmp(content_type, known[i].type, n) == 0 &&
            (length == n || content_type[n] == ';' || content_type[n] == ' '))
            return known[i].mode;
    }
    return PJ_EVENTS_WHOLE;
}

void pj_events_init(pj_events *e, pj_events_mode mode, pj_event_fn *take, void *context)
{
    *e = (pj_events){.mode = mode, .take = take, .context = context};
    pj_buffer_init(&e->line, mode == PJ_EVENTS_WHOLE ? PJ_WHOLE_MAX_BYTES : PJ_EVENT_MAX_BYTES);
    pj_buffer_init(&e->data, PJ_EVENT_MAX_BYTES);
}

void pj_events_fini(pj_events *e)
{
    pj_buffer_fini(&e->line);
    pj_buffer_fini(&e->data);
}

static void events_dispatch(pj_events *e)
{
    if (e->data_too_long)
        e->dropped++;
    else if (e->has_data)
        e->take(e->context, e->name, pj_buffer_get(&e->data), e->data.length);
    pj_buffer_clear(&e->data);
    e->name[0] = 0;
    e->has_data = e->data_too_long = false;
}

static void take_data_line(pj_events *e, const char *text, size_t length)
{
    bool fits = (!e->has_data || pj_buffer_char(&e->data, '\n')) &&
                pj_buffer_append(&e->data, text, length);
    e->has_data = true;
    if (!fits) e->data_too_long = true;
}

static void set_name(pj_events *e, const char *text, size_t length)
{
    size_t n = length < sizeof e->name - 1 ? length : sizeof e->name - 1;
    memcpy(e->name, text, n);
    e->name[n] = 0;
}

static bool field_is(const char *line, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(line, name, length) == 0;
}

static void take_sse_line(pj_events *e, const char *line, size_t length)
{
    if (length == 0) {
        events_dispatch(e);
        return;
    }
    const char *colon = memchr(line, ':', length);
    if (colon == line) return; /* a comment */
    size_t name = colon ? (size_t)(colon - line) : length;
    const char *value = colon ? colon + 1 : line + length;
    size_t value_bytes = length - name - (colon ? 1 : 0);
    if (value_bytes && *value == ' ') value++, value_bytes--;
    if (field_is(line, name, "data")) {
        take_data_line(e, value, value_bytes);
    } else if (field_is(line, name, "event")) {
        set_name(e, value, value_bytes);
    } else if (field_is(line, name, "error")) {
        set_name(e, "error", 5);
        take_data_line(e, value, value_bytes);
    }
}

static void end_line(pj_events *e)
{
    const char *line = pj_buffer_get(&e->line);
    size_t length = e->line.length;
    if (!e->begun && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) line += 3, length -= 3;
    e->begun = true;
    if (e->line_too_long) {
        if (e->mode == PJ_EVENTS_SSE)
            e->data_too_long = true;
        else
            e->dropped++;
    } else if (e->mode == PJ_EVENTS_SSE) {
        take_sse_line(e, line, length);
    } else if (length) {
        e->take(e->context, "", line, length);
    }
    pj_buffer_clear(&e->line);
    e->line_too_long = false;
}

/* The first line end in the bytes; in NDJSON a CR alone is white space of JSON. */
static size_t find_line_end(const pj_events *e, const char *bytes, size_t count)
{
    const char *lf = memchr(bytes, '\n', count);
    size_t at = lf ? (size_t)(lf - bytes) : count;
    const char *cr = e->mode == PJ_EVENTS_SSE ? memchr(bytes, '\r', at) : NULL;
    return cr ? (size_t)(cr - bytes) : at;
}

void pj_events_feed(pj_events *e, const char *bytes, size_t count)
{
    while (count) {
        if (e->after_cr && *bytes == '\n') {
            e->after_cr = false;
            bytes++, count--;
            continue;
        }
        e->after_cr = false;
        size_t n = e->mode == PJ_EVENTS_WHOLE ? count : find_line_end(e, bytes, count);
        if (n && !pj_buffer_append(&e->line, bytes, n)) e->line_too_long = true;
        if (n == count) return;
        e->after_cr = bytes[n] == '\r';
        end_line(e);
        bytes += n + 1;
        count -= n + 1;
    }
}

void pj_events_end(pj_events *e)
{
    if (e->line.length || e->line_too_long) end_line(e);
    if (e->mode == PJ_EVENTS_SSE) events_dispatch(e);
}
