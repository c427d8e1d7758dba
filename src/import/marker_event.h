/* One event of the markers (import/markers.h): parsing of a line, in its plain or its JSON form. */
#ifndef PJ_IMPORT_MARKER_EVENT_H
#define PJ_IMPORT_MARKER_EVENT_H

#include "import/markers.h"

#include <jansson.h>

typedef enum pj_marker_verb {
    PJ_MARKER_BEGIN,
    PJ_MARKER_END,
    PJ_MARKER_SPAN,
    PJ_MARKER_TOKENS,
    PJ_MARKER_FACT,
    PJ_MARKER_LOST
} pj_marker_verb;

typedef struct pj_marker_event {
    pj_marker_verb verb;
    pj_span_kind kind;
    int64_t begin_ns, end_ns; /* -1: now */
    uint64_t lane;
    uint64_t number, output; /* position, index; tokens: input and output */
    const char *text;        /* name, text of a token, value of a fact; not terminated */
    size_t bytes;
    int fact; /* which */
} pj_marker_event;

bool pj_marker_parse(const char *line, size_t bytes, pj_marker_event *event);
/* The same of a line that is a JSON object; the event's text lies in it. */
bool pj_marker_read(const json_t *object, pj_marker_event *event);
/* False: the value is not possible. */
bool pj_marker_keep_fact(pj_markers_facts *facts, const pj_marker_event *event);

#endif
