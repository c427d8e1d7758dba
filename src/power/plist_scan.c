/* A recursive descent over the elements of a property list. */
#include "power/plist_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NUMBER_BYTES = 64 };

typedef struct scanner {
    const char *at, *end;
    pj_plist_number_fn *take;
    void *context;
} scanner;

typedef struct tag {
    pj_plist_text name;
    bool closes, empty; /* </name>, <name/> */
} tag;

static const pj_plist_text nothing = {"", 0};

static bool plist_scan_starts_with(const scanner *s, const char *word)
{
    size_t bytes = strlen(word);
    return (size_t)(s->end - s->at) >= bytes && memcmp(s->at, word, bytes) == 0;
}

/* Moves past the next `word`. */
static bool skip_past(scanner *s, const char *word)
{
    const char *found = memmem(s->at, (size_t)(s->end - s->at), word, strlen(word));
    if (found) s->at = found + strlen(word);
    return found != NULL;
}

static bool plist_scan_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* White space, comments, processing instructions and the document type. */
static bool skip_between(scanner *s)
{
    for (bool ok = true; ok;) {
        while (s->at < s->end && plist_scan_is_space(*s->at)) s->at++;
        if (plist_scan_starts_with(s, "<!--"))
            ok = skip_past(s, "-->");
        else if (plist_scan_starts_with(s, "<?"))
            ok = skip_past(s, "?>");
        else if (plist_scan_starts_with(s, "<!DOCTYPE"))
            ok = skip_past(s, ">");
        else
            return true;
    }
    return false;
}

static bool next_tag(scanner *s, tag *t)
{
    if (!skip_between(s) || !plist_scan_starts_with(s, "<")) return false;
    t->closes = ++s->at < s->end && *s->at == '/';
    if (t->closes) s->at++;
    const char *close = memchr(s->at, '>', (size_t)(s->end - s->at)), *name = s->at;
    if (!close) return false;
    t->empty = close > name && close[-1] == '/';
    while (s->at < close && !plist_scan_is_space(*s->at) && *s->at != '/') s->at++;
    t->name = (pj_plist_text){name, (size_t)(s->at - name)};
    s->at = close + 1;
    return t->name.bytes > 0;
}

static bool plist_scan_same(pj_plist_text a, pj_plist_text b)
{
    return a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0;
}

/* Everything up to the closing tag of the element that was just opened. */
static bool plist_scan_read_text(scanner *s, const tag *open, pj_plist_text *text)
{
    *text = (pj_plist_text){s->at, 0};
    if (open->empty) return true;
    while (s->at < s->end) {
        if (*s->at != '<') {
            s->at++;
        } else if (plist_scan_starts_with(s, "<![CDATA[")) {
            if (!skip_past(s, "]]>")) return false;
        } else if (plist_scan_starts_with(s, "<!--")) {
            if (!skip_past(s, "-->")) return false;
        } else {
            tag close;
            text->bytes = (size_t)(s->at - text->at);
            return next_tag(s, &close) && close.closes && plist_scan_same(close.name, open->name);
        }
    }
    return false;
}

/* NAN if it is not a number. Integers may be hexadecimal. */
static double plist_scan_number_of(pj_plist_text text)
{
    char digits[MAX_NUMBER_BYTES], *end;
    while (text.bytes && plist_scan_is_space(*text.at)) text.at++, text.bytes--;
    while (text.bytes && plist_scan_is_space(text.at[text.bytes - 1])) text.bytes--;
    if (text.bytes == 0 || text.bytes >= sizeof digits) return NAN;
    memcpy(digits, text.at, text.bytes);
    digits[text.bytes] = 0;
    double value = strtod(digits, &end);
    return *end ? NAN : value;
}

static bool scan_value(scanner *s, const tag *open, pj_plist_text section, pj_plist_text key,
                       int depth);

static bool scan_array(scanner *s, int depth)
{
    for (tag t;;) {
        if (!next_tag(s, &t)) return false;
        if (t.closes) return pj_plist_is(t.name, "array");
        if (!scan_value(s, &t, nothing, nothing, depth + 1)) return false;
    }
}

/* The root is dictionary level 1; numbers below level 2 are not reported. */
static bool scan_dict(scanner *s, pj_plist_text section, int depth)
{
    for (tag t, value;;) {
        pj_plist_text key;
        if (!next_tag(s, &t)) return false;
        if (t.closes) return pj_plist_is(t.name, "dict");
        if (!pj_plist_is(t.name, "key") || !plist_scan_read_text(s, &t, &key)) return false;
        if (!next_tag(s, &value) || value.closes) return false;
        if (!scan_value(s, &value, section, key, depth)) return false;
    }
}

static bool scan_value(scanner *s, const tag *open, pj_plist_text section, pj_plist_text key,
                       int depth)
{
    pj_plist_text text;
    if (open->closes || depth > MAX_DEPTH) return false;
    if (pj_plist_is(open->name, "dict"))
        return open->empty || scan_dict(s, depth == 1 ? key : nothing, depth + 1);
    if (pj_plist_is(open->name, "array")) return open->empty || scan_array(s, depth);
    bool number = pj_plist_is(open->name, "integer") || pj_plist_is(open->name, "real");
    if (!plist_scan_read_text(s, open, &text)) return false;
    if (number && key.bytes && (depth == 1 || (depth == 2 && section.bytes)))
        s->take(s->context, section, key, plist_scan_number_of(text));
    return true;
}

bool pj_plist_scan(const char *text, size_t bytes, pj_plist_number_fn *take, void *context)
{
    scanner s = {text, text + bytes, take, context};
    tag t;
    if (!next_tag(&s, &t) || t.closes) return false;
    if (!pj_plist_is(t.name, "plist") || t.empty || !next_tag(&s, &t)) return false;
    if (!pj_plist_is(t.name, "dict") || t.closes) return false;
    if (!t.empty && !scan_dict(&s, nothing, 1)) return false;
    return next_tag(&s, &t) && t.closes && pj_plist_is(t.name, "plist");
}
