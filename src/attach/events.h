/* Splits the payload of an answer into events: server-sent events (text/event-stream, as the HTML
 * standard defines them), one JSON text per line (NDJSON), or one JSON text as a whole. Input may
 * be split at any byte. An event that is too long is dropped and counted; memory stays bounded. */
#ifndef PJ_ATTACH_EVENTS_H
#define PJ_ATTACH_EVENTS_H

#include "base/buffer.h"

enum { PJ_EVENT_MAX_BYTES = 1 << 20, PJ_WHOLE_MAX_BYTES = 16 << 20 };

typedef enum pj_events_mode { PJ_EVENTS_SSE = 0, PJ_EVENTS_LINES, PJ_EVENTS_WHOLE } pj_events_mode;

/* By the Content-Type; one that is unknown is taken as a whole. */
pj_events_mode pj_events_mode_of(const char *content_type, size_t length);

/* One event. `name` is that of an "event:" line, "" without one; "error" for a line "error: ...",
 * which older llama-servers send. The text is terminated by a NUL that is not counted. */
typedef void pj_event_fn(void *context, const char *name, const char *data, size_t bytes);

typedef struct pj_events {
    pj_events_mode mode;
    pj_event_fn *take;
    void *context;
    pj_buffer line, data; /* the line so far; the event's data lines so far */
    char name[32];
    bool has_data, after_cr, begun;
    bool line_too_long, data_too_long;
    uint64_t dropped; /* events that were too long */
} pj_events;

void pj_events_init(pj_events *events, pj_events_mode mode, pj_event_fn *take, void *context);
void pj_events_fini(pj_events *events);
void pj_events_feed(pj_events *events, const char *bytes, size_t count);
/* The payload is complete: an event without its empty line is taken as well, because servers that
 * just close the connection mean it. */
void pj_events_end(pj_events *events);

#endif
