/* Lines are untrusted: what is not exactly of a form is refused. */
#include "import/marker_event.h"

#include <stddef.h>
#include <string.h>

/* ---- words --------------------------------------------------------------------------------- */

typedef struct words {
    const char *at, *end;
} words;

static void skip_blanks(words *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\t')) w->at++;
}

static bool marker_take_word(words *w, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(w->end - w->at) < bytes || memcmp(w->at, word, bytes) != 0) return false;
    if (w->at + bytes < w->end && w->at[bytes] != ' ' && w->at[bytes] != '\t') return false;
    w->at += bytes;
    skip_blanks(w);
    return true;
}

static bool marker_take_number(words *w, uint64_t *number)
{
    const char *first = w->at;
    *number = 0;
    while (w->at < w->end && *w->at >= '0' && *w->at <= '9') {
        if (*number > (uint64_t)INT64_MAX / 10 - 1) return false;
        *number = *number * 10 + (uint64_t)(*w->at++ - '0');
    }
    return w->at > first;
}

static bool ends_word(words *w)
{
    bool ends = w->at == w->end || *w->at == ' ' || *w->at == '\t';
    skip_blanks(w);
    return ends;
}

static const char *const kind_names[PJ_SPAN_KIND_COUNT] = {"phase", "section",   "token",
                                                           "layer", "component", "operation"};

static bool find_phase(const char *text, size_t bytes, uint64_t *phase)
{
    for (int p = PJ_PHASE_PRE_INFERENCE; p < PJ_PHASE_COUNT; p++)
        if (strlen(pj_phase_name((pj_phase)p)) == bytes &&
            memcmp(pj_phase_name((pj_phase)p), text, bytes) == 0) {
            *phase = (uint64_t)p;
            return true;
        }
    return false;
}

/* The destination of a fact's value: a text of `bytes`, or a number if that is 0. */
static const struct fact_row {
    const char *name;
    size_t at, bytes;
} fact_rows[] = {
#define TEXT(name)                                                                   \
    {                                                                                \
#name, offsetof(pj_markers_facts, name), sizeof((pj_markers_facts *)0)->name \
    }
    TEXT(engine),
    TEXT(level),
    TEXT(model),
    TEXT(architecture),
#undef TEXT
    {"layers", offsetof(pj_markers_facts, layers), 0},
    {"parameters", offsetof(pj_markers_facts, parameters), 0},
};
enum { FACTS = sizeof fact_rows / sizeof *fact_rows };

/* ---- the plain form ------------------------------------------------------------------------ */

static bool parse_prefix(words *w, pj_marker_event *e)
{
    uint64_t number;
    if (w->at < w->end && *w->at == '@') {
        w->at++;
        if (!marker_take_number(w, &number)) return false;
        e->begin_ns = e->end_ns = (int64_t)number;
        if (w->at < w->end && *w->at == '-') {
            w->at++;
            if (!marker_take_number(w, &number)) return false;
            e->end_ns = (int64_t)number;
        }
        if (!ends_word(w)) return false;
    }
    if (w->at < w->end && *w->at == '#') {
        w->at++;
        if (!marker_take_number(w, &e->lane) || !ends_word(w)) return false;
    }
    return true;
}

/* "section NAME", "token 3 TEXT", "layer 3", "phase prefill". */
static bool parse_what(words *w, pj_marker_event *e)
{
    int kind = 0;
    while (kind < PJ_SPAN_KIND_COUNT && !marker_take_word(w, kind_names[kind])) kind++;
    if (kind == PJ_SPAN_KIND_COUNT) return false;
    e->kind = (pj_span_kind)kind;
    if (e->kind == PJ_SPAN_TOKEN || e->kind == PJ_SPAN_LAYER) {
        if (!marker_take_number(w, &e->number)) return false;
        if (w->at < w->end && *w->at != ' ') return false;
        if (w->at < w->end) w->at++; /* one space: further ones belong to the token's text */
    }
    e->text = w->at;
    e->bytes = (size_t)(w->end - w->at);
    if (e->kind == PJ_SPAN_PHASE) return find_phase(e->text, e->bytes, &e->number);
    return e->kind == PJ_SPAN_TOKEN || (e->kind == PJ_SPAN_LAYER ? e->bytes == 0 : e->bytes > 0);
}

/* "fact NAME VALUE" */
static bool parse_fact(words *w, pj_marker_event *e)
{
    e->verb = PJ_MARKER_FACT;
    while (e->fact < FACTS && !marker_take_word(w, fact_rows[e->fact].name)) e->fact++;
    if (e->fact == FACTS || w->at == w->end) return false;
    e->text = w->at;
    e->bytes = (size_t)(w->end - w->at);
    return fact_rows[e->fact].bytes || (marker_take_number(w, &e->number) && w->at == w->end);
}

bool pj_marker_parse(const char *line, size_t bytes, pj_marker_event *e)
{
    words w = {line, line + bytes};
    skip_blanks(&w);
    if (!parse_prefix(&w, e)) return false;
    if (marker_take_word(&w, "begin")) return e->verb = PJ_MARKER_BEGIN, parse_what(&w, e);
    if (marker_take_word(&w, "span"))
        return e->verb = PJ_MARKER_SPAN, parse_what(&w, e) && e->begin_ns >= 0;
    if (marker_take_word(&w, "end")) return e->verb = PJ_MARKER_END, w.at == w.end;
    if (marker_take_word(&w, "fact")) return parse_fact(&w, e);
    if (marker_take_word(&w, "lost")) {
        e->verb = PJ_MARKER_LOST;
        return marker_take_number(&w, &e->number) && w.at == w.end;
    }
    if (!marker_take_word(&w, "tokens")) return false;
    e->verb = PJ_MARKER_TOKENS;
    return marker_take_number(&w, &e->number) && ends_word(&w) &&
           marker_take_number(&w, &e->output) && ends_word(&w) && w.at == w.end;
}

/* ---- the JSON form ------------------------------------------------------------------------- */

static bool json_count(const json_t *object, const char *name, uint64_t *number)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

static const char *json_word(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static bool read_what(const json_t *o, pj_marker_event *e)
{
    const char *kind = json_word(o, "kind");
    int k = 0;
    while (k < PJ_SPAN_KIND_COUNT && strcmp(kind, kind_names[k]) != 0) k++;
    if (k == PJ_SPAN_KIND_COUNT) return false;
    e->kind = (pj_span_kind)k;
    const json_t *text = json_object_get(o, e->kind == PJ_SPAN_TOKEN ? "text" : "name");
    e->text = json_is_string(text) ? json_string_value(text) : "";
    e->bytes = json_is_string(text) ? json_string_length(text) : 0;
    if (e->kind == PJ_SPAN_TOKEN || e->kind == PJ_SPAN_LAYER)
        return json_count(o, "position", &e->number);
    if (e->kind == PJ_SPAN_PHASE) return find_phase(e->text, e->bytes, &e->number);
    return e->bytes > 0;
}

static bool read_fact(const json_t *o, pj_marker_event *e)
{
    const json_t *value = json_object_get(o, "value");
    const char *name = json_word(o, "name");
    e->verb = PJ_MARKER_FACT;
    while (e->fact < FACTS && strcmp(name, fact_rows[e->fact].name) != 0) e->fact++;
    if (e->fact == FACTS) return false;
    if (fact_rows[e->fact].bytes == 0) return json_count(o, "value", &e->number);
    if (!json_is_string(value)) return false;
    e->text = json_string_value(value);
    e->bytes = json_string_length(value);
    return true;
}

bool pj_marker_read(const json_t *o, pj_marker_event *e)
{
    const char *name = json_word(o, "event");
    uint64_t t;
    if (json_count(o, "t_ns", &t)) e->begin_ns = e->end_ns = (int64_t)t;
    if (json_count(o, "end_ns", &t)) e->end_ns = (int64_t)t;
    json_count(o, "lane", &e->lane);
    if (!strcmp(name, "begin")) return e->verb = PJ_MARKER_BEGIN, read_what(o, e);
    if (!strcmp(name, "span")) return e->verb = PJ_MARKER_SPAN, read_what(o, e) && e->begin_ns >= 0;
    if (!strcmp(name, "end")) return e->verb = PJ_MARKER_END, true;
    if (!strcmp(name, "fact")) return read_fact(o, e);
    if (!strcmp(name, "lost")) return e->verb = PJ_MARKER_LOST, json_count(o, "count", &e->number);
    if (strcmp(name, "tokens") != 0) return false;
    e->verb = PJ_MARKER_TOKENS;
    return json_count(o, "input", &e->number) && json_count(o, "output", &e->output);
}

/* ---- facts --------------------------------------------------------------------------------- */

bool pj_marker_keep_fact(pj_markers_facts *facts, const pj_marker_event *e)
{
    const struct fact_row *row = &fact_rows[e->fact];
    char *at = (char *)facts + row->at;
    if (row->bytes == 0) {
        memcpy(at, &e->number, sizeof e->number);
        return true;
    }
    words value = {e->text, e->text + e->bytes};
    if (e->bytes >= row->bytes) return false;
    if (!strcmp(row->name, "level") &&
        !(marker_take_word(&value, "coarse") && value.at == value.end) &&
        !(marker_take_word(&value, "fine") && value.at == value.end))
        return false;
    memcpy(at, e->text, e->bytes);
    at[e->bytes] = 0;
    return true;
}
