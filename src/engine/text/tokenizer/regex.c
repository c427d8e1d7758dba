/* Regular expressions of tokenizer files, on PCRE2. The files are written for Oniguruma's Ruby
 * syntax, so patterns are translated where the two differ: the meaning of \s \w \d \h and property
 * names, {,n}, {n,m}+ (greedy there, possessive in PCRE2), (?m), nested classes. Untranslatable
 * constructs (negated nested classes, intersections) are rejected. Matching has limits, because
 * patterns come from files. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/text/tokenizer/parts.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATTERN_BYTES = 1 << 20, MATCH_LIMIT = 20 * 1000 * 1000, MAX_GROUPS = 64 };

struct pj_regex {
    pcre2_code *code;
    pcre2_match_data *found;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool fast; /* compiled to machine code */
};

/* ---- translation ---- */

#define SPACE "\\x09-\\x0d\\x20\\x{85}\\p{Z}"
/* Letters, marks, digits, connectors, and circled and squared letters, which are symbols. A \w
 * outside of a class also matches the fractions and superscripts of Latin-1. */
#define WORD                                                                    \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define LONE_WORD WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define HEX       "0-9a-fA-F"
#define GRAPH     "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"

typedef struct translation {
    const char *at, *end;
    pj_buffer out;
    size_t atom; /* begin of the last atom in `out` */
    size_t groups[MAX_GROUPS];
    int depth;
    bool in_class;
    const char *negated; /* the negated set in the class, \S or \W; NULL: none */
    const char *problem;
} translation;

static void regex_put(translation *t, const char *text)
{
    pj_buffer_text(&t->out, text);
}

/* \s and the like: the set inside a class, the class outside. A negated set inside a class is
 * deferred to the end of the class. */
static void put_set(translation *t, const char *set, bool negated)
{
    if (t->in_class && negated) {
        if (t->negated && t->negated != set) t->problem = "two negated sets in a class";
        t->negated = set;
        return;
    }
    if (!t->in_class) regex_put(t, negated ? "[^" : "[");
    regex_put(t, set);
    if (!t->in_class) regex_put(t, "]");
}

static bool is_script(const char *name, size_t bytes)
{
    char probe[64];
    int length = snprintf(probe, sizeof probe, "\\p{sc:%.*s}", (int)bytes, name);
    int code;
    PCRE2_SIZE at;
    if (bytes < 3 || length >= (int)sizeof probe) return false;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)probe, (PCRE2_SIZE)length,
                                         PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

/* \p{Letter}, \p{^Lu}, \p{Han}: PCRE2 knows categories only by their short names, and would take a
 * script name to include its extensions. */
static void put_property(translation *t, bool negated)
{
    static const char *const names[][2] = {
        {"Letter", "L"},
        {"Mark", "M"},
        {"Number", "N"},
        {"Punctuation", "P"},
        {"Symbol", "S"},
        {"Separator", "Z"},
        {"Other", "C"},
        {"Uppercase_Letter", "Lu"},
        {"Lowercase_Letter", "Ll"},
        {"Decimal_Number", "Nd"},
        {"Alpha", "Alphabetic"},
        {"Space", "White_Space"},
    };
    const char *name = t->at + 1;
    const char *close = memchr(name, '}', (size_t)(t->end - name));
    if (!close) {
        t->problem = "a property without its bracket";
        return;
    }
    t->at = close + 1;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    size_t bytes = (size_t)(close - name);
    pj_buffer_printf(&t->out, negated ? "\\P{" : "\\p{");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == bytes && memcmp(names[i][0], name, bytes) == 0) {
            regex_put(t, names[i][1]);
            regex_put(t, "}");
            return;
        }
    if (is_script(name, bytes)) regex_put(t, "sc:");
    pj_buffer_append(&t->out, name, bytes);
    regex_put(t, "}");
}

static void put_escape(translation *t)
{
    if (t->at == t->end) {
        t->problem = "a backslash at the end";
        return;
    }
    char c = *t->at++;
    switch (c) {
    case 's': put_set(t, SPACE, false); return;
    case 'S': put_set(t, SPACE, true); return;
    case 'w': put_set(t, t->in_class ? WORD : LONE_WORD, false); return;
    case 'W': put_set(t, t->in_class ? WORD : LONE_WORD, true); return;
    case 'h': put_set(t, HEX, false); return;
    case 'H': put_set(t, HEX, true); return;
    case 'd': regex_put(t, "\\p{Nd}"); return;
    case 'D': regex_put(t, "\\P{Nd}"); return;
    case 'u':
        if (t->end - t->at < 4)
            t->problem = "a cut-off \\u";
        else {
            pj_buffer_printf(&t->out, "\\x{%.4s}", t->at);
            t->at += 4;
        }
        return;
    case 'b': /* as defined by \w here; inside a class it is a backspace */
        regex_put(t, t->in_class ? "\\x08"
                                 : "(?:(?<=[" LONE_WORD "])(?![" LONE_WORD "])|(?<![" LONE_WORD
                                   "])(?=[" LONE_WORD "]))");
        return;
    case 'B':
        regex_put(t, "(?:(?<=[" LONE_WORD "])(?=[" LONE_WORD "])|(?<![" LONE_WORD "])(?![" LONE_WORD
                     "]))");
        return;
    case 'p':
    case 'P':
        if (t->at < t->end && *t->at == '{') {
            put_property(t, c == 'P');
            return;
        }
        break;
    default: break;
    }
    pj_buffer_char(&t->out, '\\');
    pj_buffer_char(&t->out, c);
}

/* [:name:] and [:^name:] inside a class, with their full Unicode meaning. */
static void put_posix(translation *t)
{
    static const char *const sets[][2] = {
        {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"alpha", "\\p{Alphabetic}"},
        {"blank", "\\x09\\p{Zs}"},           {"graph", GRAPH},
        {"lower", "\\p{Lowercase}"},         {"print", GRAPH "\\p{Zs}"},
        {"punct", "\\p{P}\\p{S}"},           {"space", SPACE},
        {"upper", "\\p{Uppercase}"},         {"word", WORD},
    };
    const char *name = t->at + 1, *close = memchr(name, ']', (size_t)(t->end - name));
    bool negated = name < t->end && *name == '^';
    size_t bytes = close ? (size_t)(close - name) : 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        size_t length = strlen(sets[i][0]);
        if (bytes != length + negated + 1 || name[bytes - 1] != ':' ||
            memcmp(name + negated, sets[i][0], length) != 0)
            continue;
        put_set(t, sets[i][1], negated);
        t->at = close + 1;
        return;
    }
    pj_buffer_char(&t->out, '[');
    pj_buffer_append(&t->out, t->at, bytes + (close ? 2 : 0));
    t->at = close ? close + 1 : t->at;
}

static void put_class_body(translation *t);

/* A nested class is added to the outer one; a negated one cannot be. */
static void put_inner_class(translation *t)
{
    bool first = true;
    if (t->at < t->end && *t->at == '^') t->problem = "a negated class inside a class";
    if (t->at[-2] == '-') t->problem = "a class inside a class after a hyphen";
    /* Escape what would be special in the middle of a class but not at its ends. */
    while (t->at < t->end && (*t->at == '-' || (first && *t->at == ']'))) {
        pj_buffer_printf(&t->out, "\\%c", *t->at++);
        first = false;
    }
    put_class_body(t);
    if (t->problem) return;
    if (t->at == t->end)
        t->problem = "a class without its bracket";
    else if (t->at++ [-1] == '-')
        t->problem = "a class inside a class that ends in a hyphen";
}

/* The content of a class, without a leading ^. */
static void put_class_body(translation *t)
{
    while (!t->problem && t->at < t->end && *t->at != ']') {
        char c = *t->at++;
        if (c == '\\')
            put_escape(t);
        else if (c == '[' && t->at < t->end && *t->at == ':')
            put_posix(t);
        else if (c == '[')
            put_inner_class(t);
        else if (c == '&' && t->at < t->end && *t->at == '&')
            t->problem = "an intersection of classes";
        else
            pj_buffer_char(&t->out, c);
    }
}

/* A class of a negated set and `body`: PCRE2 can negate only whole classes, so it is split into
 * two. */
static void put_two_classes(translation *t, size_t begin, bool inverted)
{
    const char *set = t->negated;
    size_t bytes = t->out.length - begin;
    char *body = pj_strndup(pj_buffer_get(&t->out) + begin, bytes);
    if (!body) {
        t->out.failed = true;
        return;
    }
    t->out.length = begin;
    if (bytes == 0)
        pj_buffer_printf(&t->out, inverted ? "[%s]" : "[^%s]", set);
    else if (inverted)
        pj_buffer_printf(&t->out, "(?:(?![%s])[%s])", body, set);
    else
        pj_buffer_printf(&t->out, "(?:[%s]|[^%s])", body, set);
    pj_free(body);
}

static void put_class(translation *t)
{
    size_t begin = t->out.length;
    t->at++;
    bool inverted = t->at < t->end && *t->at == '^';
    t->at += inverted;
    t->in_class = true;
    t->negated = NULL;
    if (t->at < t->end && *t->at == ']') pj_buffer_char(&t->out, *t->at++);
    put_class_body(t);
    t->in_class = false;
    if (t->negated) {
        put_two_classes(t, begin, inverted);
        t->at += t->at < t->end;
        return;
    }
    pj_buffer_char(&t->out, '[');
    if (inverted) pj_buffer_char(&t->out, '^');
    if (t->out.failed) return;
    size_t head = inverted ? 2 : 1, bytes = t->out.length - head - begin;
    memmove(t->out.data + begin + head, t->out.data + begin, bytes);
    memcpy(t->out.data + begin, "[^", head);
    if (t->at < t->end) pj_buffer_char(&t->out, *t->at++);
}

/* The length of a repetition {n}, {n,}, {,m} or {n,m} at `at`; 0 if there is none. */
static size_t repetition(const translation *t)
{
    const char *p = t->at + 1;
    int digits = 0, commas = 0;
    for (; p < t->end && *p != '}'; p++) {
        if (*p >= '0' && *p <= '9')
            digits++;
        else if (*p != ',' || commas++ > 0)
            return 0;
    }
    return p < t->end && digits > 0 ? (size_t)(p + 1 - t->at) : 0;
}

static void wrap_atom(translation *t)
{
    size_t bytes = t->out.length - t->atom;
    if (!pj_buffer_append(&t->out, "(?:)", 4)) return;
    char *atom = t->out.data + t->atom;
    memmove(atom + 3, atom, bytes);
    memcpy(atom, "(?:", 3);
    t->out.data[t->out.length - 1] = ')';
}

static void put_repetition(translation *t, size_t bytes)
{
    bool open = t->at[1] == ',';
    regex_put(t, open ? "{0" : "{");
    pj_buffer_append(&t->out, t->at + 1, bytes - 1);
    t->at += bytes;
    if (t->at < t->end && *t->at == '+') wrap_atom(t);
}

/* "(" and its options up to the content; m means "dot matches newline" in Ruby. */
static void put_group(translation *t)
{
    if (t->depth < MAX_GROUPS) t->groups[t->depth] = t->out.length;
    t->depth++;
    pj_buffer_char(&t->out, *t->at++);
    if (t->at == t->end || *t->at != '?') return;
    pj_buffer_char(&t->out, *t->at++);
    while (t->at < t->end && strchr("imx-", *t->at)) {
        pj_buffer_char(&t->out, *t->at == 'm' ? 's' : *t->at);
        t->at++;
    }
    if (t->at < t->end && strchr(":=!>", *t->at)) pj_buffer_char(&t->out, *t->at++);
}

static void put_next(translation *t)
{
    char c = *t->at;
    size_t bytes;
    if (c == '{' && (bytes = repetition(t)) > 0) {
        put_repetition(t, bytes);
        return;
    }
    bool quantifier = c == '*' || c == '+' || c == '?';
    if (!quantifier && c != ')' && ((unsigned char)c & 0xc0) != 0x80) t->atom = t->out.length;
    if (c == '\\') {
        t->at++;
        put_escape(t);
    } else if (c == '[') {
        put_class(t);
    } else if (c == '(') {
        put_group(t);
    } else {
        if (c == ')' && t->depth > 0) {
            t->depth--;
            if (t->depth < MAX_GROUPS) t->atom = t->groups[t->depth];
        }
        pj_buffer_char(&t->out, *t->at++);
    }
}

/* ---- compiling ---- */

static pj_status compile(pj_regex *regex, const pj_buffer *pattern, pj_error *err)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return pj_fail_memory(err, "a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, MAX_GROUPS);
    regex->code = pcre2_compile((PCRE2_SPTR)pj_buffer_get(pattern), pattern->length,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(code, text, sizeof text);
        return pj_fail(err, PJ_E_INVALID, "the regular expression %.100s is invalid: %s",
                       pj_buffer_get(pattern), (const char *)text);
    }
    regex->fast = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    regex->found = pcre2_match_data_create(1, NULL);
    regex->context = pcre2_match_context_create(NULL);
    if (!regex->found || !regex->context) return pj_fail_memory(err, "a regular expression");
    pcre2_set_match_limit(regex->context, MATCH_LIMIT);
    pcre2_set_heap_limit(regex->context, 64 * 1024); /* KiB */
    if (regex->fast) {
        regex->stack = pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, NULL);
        if (regex->stack) pcre2_jit_stack_assign(regex->context, NULL, regex->stack);
    }
    return PJ_OK;
}

pj_status pj_regex_new(const char *pattern, size_t bytes, pj_regex **regex, pj_error *err)
{
    translation t = {.at = pattern, .end = pattern + bytes};
    *regex = NULL;
    pj_buffer_init(&t.out, MAX_PATTERN_BYTES);
    while (t.at < t.end && !t.problem) put_next(&t);
    pj_status status = pj_buffer_status(&t.out, "a regular expression", err);
    if (t.problem)
        status = pj_fail(err, PJ_E_UNSUPPORTED,
                         "the regular expression %.*s uses %s, which is not supported",
                         (int)(bytes < 100 ? bytes : 100), pattern, t.problem);
    pj_regex *made = status == PJ_OK ? pj_alloc(1, sizeof *made) : NULL;
    if (status == PJ_OK && !made) status = pj_fail_memory(err, "a regular expression");
    if (status == PJ_OK) status = compile(made, &t.out, err);
    pj_buffer_fini(&t.out);
    if (status == PJ_OK)
        *regex = made;
    else
        pj_regex_free(made);
    return status;
}

void pj_regex_free(pj_regex *regex)
{
    if (!regex) return;
    pcre2_jit_stack_free(regex->stack);
    pcre2_match_context_free(regex->context);
    pcre2_match_data_free(regex->found);
    pcre2_code_free(regex->code);
    pj_free(regex);
}

/* ---- matching ---- */

static int regex_match_at(const pj_regex *regex, const char *text, size_t bytes, size_t from)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (regex->fast)
        return pcre2_jit_match(regex->code, subject, bytes, from, 0, regex->found, regex->context);
    return pcre2_match(regex->code, subject, bytes, from, PCRE2_NO_UTF_CHECK, regex->found,
                       regex->context);
}

static size_t sequence_bytes(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static int regex_next(const pj_regex *regex, const char *text, size_t bytes,
                      pj_regex_cursor *cursor, size_t *begin, size_t *end)
{
    while (cursor->from <= bytes) {
        int count = regex_match_at(regex, text, bytes, cursor->from);
        if (count == PCRE2_ERROR_NOMATCH) return 0;
        if (count < 0) return -1;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(regex->found);
        *begin = at[0] < at[1] ? at[0] : at[1]; /* \K may reverse them */
        *end = at[1];
        if (*begin < cursor->from) *begin = cursor->from;
        if (*end < *begin) *end = *begin;
        if (*begin == *end && *end == cursor->last) {
            cursor->from +=
                cursor->from < bytes ? sequence_bytes((unsigned char)text[cursor->from]) : 1;
            continue;
        }
        cursor->from = cursor->last = *end;
        return 1;
    }
    return 0;
}

int pj_pattern_next(const pj_pattern *pattern, const char *text, size_t bytes,
                    pj_regex_cursor *cursor, size_t *begin, size_t *end)
{
    if (pattern->regex) return regex_next(pattern->regex, text, bytes, cursor, begin, end);
    if (pattern->plain_bytes == 0 || cursor->from >= bytes) return 0;
    const char *found =
        memmem(text + cursor->from, bytes - cursor->from, pattern->plain, pattern->plain_bytes);
    if (!found) return 0;
    *begin = (size_t)(found - text);
    *end = cursor->from = cursor->last = *begin + pattern->plain_bytes;
    return 1;
}

bool pj_pattern_replace(const pj_pattern *pattern, const char *text, size_t bytes,
                        const char *content, size_t content_bytes, pj_buffer *out)
{
    pj_regex_cursor cursor = {0, SIZE_MAX};
    size_t begin, end, plain = 0;
    int found;
    while ((found = pj_pattern_next(pattern, text, bytes, &cursor, &begin, &end)) > 0) {
        pj_buffer_append(out, text + plain, begin - plain);
        pj_buffer_append(out, content, content_bytes);
        plain = end;
    }
    return pj_buffer_append(out, text + plain, bytes - plain) && found == 0;
}
