/* Scanner, with the reference's whitespace rules: a block or comment tag preceded only by blanks on
 * its line removes them (lstrip_blocks), the first newline after a block or comment tag is dropped
 * (trim_blocks), "-" at a tag's edge strips all whitespace on that side and "+" keeps it. */
#include "engine/text/jinja/syntax.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 20 };

typedef struct scanner {
    const char *text;
    size_t bytes, at;
    int line;
    const char *name;
    pj_arena *arena;
    ji_token *tokens;
    size_t count, capacity;
    bool line_starts; /* the last token ended a line (or there was none) */
    pj_error *err;
    pj_status status;
} scanner;

static bool scan_fail(scanner *s, const char *what)
{
    if (s->status == PJ_OK)
        s->status = pj_fail(s->err, PJ_E_INVALID, "%s, line %d: %s", s->name, s->line, what);
    return false;
}

static bool scan_add(scanner *s, ji_token token)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        ji_token *tokens =
            capacity <= MAX_TOKENS ? pj_arena_alloc(s->arena, capacity, sizeof *tokens) : NULL;
        if (!tokens) return scan_fail(s, "the template is too large");
        if (s->count) memcpy(tokens, s->tokens, s->count * sizeof *tokens);
        s->tokens = tokens;
        s->capacity = capacity;
    }
    s->tokens[s->count++] = token;
    return true;
}

static bool scan_put(scanner *s, ji_token_kind kind, const char *text, size_t bytes)
{
    return scan_add(s, (ji_token){.kind = kind, .line = s->line, .text = text, .bytes = bytes});
}

static void count_lines(scanner *s, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) s->line += s->text[i] == '\n';
}

static bool scan_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool scan_is_name(char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!first && c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
}

static char peek(const scanner *s, size_t ahead)
{
    return s->at + ahead < s->bytes ? s->text[s->at + ahead] : 0;
}

static bool looking_at(const scanner *s, const char *text)
{
    size_t n = strlen(text);
    return s->bytes - s->at >= n && memcmp(s->text + s->at, text, n) == 0;
}

/* ---- data between tags ---- */

/* Data up to `end`, where a tag with this sign after its opening begins. */
static bool add_data(scanner *s, size_t begin, size_t end, char sign, bool print)
{
    size_t stop = end;
    if (sign == '-') {
        while (stop > begin && scan_is_space(s->text[stop - 1])) stop--;
    } else if (sign != '+' && !print) {
        size_t line = end;
        while (line > begin && s->text[line - 1] != '\n') line--;
        if (line > begin || s->line_starts) {
            size_t blank = line;
            while (blank < end && scan_is_space(s->text[blank])) blank++;
            if (blank == end) stop = line;
        }
    }
    if (stop > begin && !scan_put(s, JI_T_DATA, s->text + begin, stop - begin)) return false;
    count_lines(s, begin, end);
    return true;
}

/* After a tag: skips whitespace according to its closing. */
static void after_tag(scanner *s, char sign, bool print)
{
    size_t begin = s->at;
    if (sign == '-') {
        while (s->at < s->bytes && scan_is_space(s->text[s->at])) s->at++;
    } else if (sign != '+' && !print && peek(s, 0) == '\n')
        s->at++;
    count_lines(s, begin, s->at);
    s->line_starts = s->at > begin && s->text[s->at - 1] == '\n';
}

static bool skip_comment(scanner *s)
{
    const char *end = memmem(s->text + s->at, s->bytes - s->at, "#}", 2);
    if (!end) return scan_fail(s, "a comment is not closed");
    size_t stop = (size_t)(end - s->text);
    char sign = stop > s->at ? s->text[stop - 1] : 0;
    count_lines(s, s->at, stop);
    s->at = stop + 2;
    after_tag(s, sign, false);
    return true;
}

/* ---- tokens inside tags ---- */

static unsigned hex_digits(scanner *s, size_t *at, size_t end, int digits)
{
    unsigned code = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        char c = *at < end ? s->text[*at] : 0;
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (value < 0) {
            scan_fail(s, "a string has an invalid escape");
            return 0;
        }
        code = code << 4 | (unsigned)value;
    }
    return code;
}

/* Python's escapes; unknown ones stay as they are. */
static size_t unescape(scanner *s, size_t *at, size_t end, char out[4])
{
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char c = s->text[(*at)++];
    const char *found = strchr(letters, c);
    if (c && found) {
        out[0] = values[found - letters];
        return 1;
    }
    if (c == '\n') return 0;
    if (c == 'x' || c == 'u' || c == 'U')
        return pj_utf8_put(hex_digits(s, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8), out);
    if (c >= '0' && c <= '7') {
        unsigned code = (unsigned)(c - '0');
        for (int i = 1; i < 3 && *at < end && s->text[*at] >= '0' && s->text[*at] <= '7'; i++)
            code = code << 3 | (unsigned)(s->text[(*at)++] - '0');
        return pj_utf8_put(code, out);
    }
    out[0] = '\\';
    out[1] = c;
    return 2;
}

static bool scan_text(scanner *s)
{
    char quote = peek(s, 0);
    size_t begin = s->at + 1, end = begin;
    while (end < s->bytes && s->text[end] != quote) end += s->text[end] == '\\' ? 2 : 1;
    if (end >= s->bytes) return scan_fail(s, "a string is not closed");
    char *out = pj_arena_alloc(s->arena, end - begin + 5, 1);
    if (!out) return scan_fail(s, "the template is too large");
    size_t used = 0;
    for (size_t at = begin; at < end && s->status == PJ_OK;) {
        if (s->text[at] == '\\') {
            at++;
            used += unescape(s, &at, end, out + used);
        } else
            out[used++] = s->text[at++];
    }
    ji_token token = {JI_T_TEXT, s->line, out, used, 0, 0};
    count_lines(s, s->at, end);
    s->at = end + 1;
    return s->status == PJ_OK && scan_add(s, token);
}

static bool scan_number(scanner *s)
{
    char text[64];
    size_t used = 0;
    /* "x.1.0": two subscripts, no fraction */
    bool after_point = s->at && s->text[s->at - 1] == '.';
    bool whole = true, hex = peek(s, 0) == '0' && (peek(s, 1) == 'x' || peek(s, 1) == 'X');
    for (char c; (c = peek(s, 0)) && used < sizeof text - 1; s->at++) {
        bool exponent =
            !hex && (c == 'e' || c == 'E') &&
            ((peek(s, 1) >= '0' && peek(s, 1) <= '9') || peek(s, 1) == '-' || peek(s, 1) == '+');
        bool point = c == '.' && whole && !after_point && peek(s, 1) >= '0' && peek(s, 1) <= '9';
        bool sign = (c == '-' || c == '+') && used && (text[used - 1] | 32) == 'e' && !hex;
        bool digit = (c >= '0' && c <= '9') ||
                     (hex && ((c | 32) == 'x' || ((c | 32) >= 'a' && (c | 32) <= 'f')));
        if (exponent || point) whole = false;
        if (c == '_') continue;
        if (!digit && !exponent && !point && !sign) break;
        text[used++] = c;
    }
    text[used] = 0;
    ji_token token = {whole ? JI_T_INTEGER : JI_T_FLOAT, s->line, NULL, 0, 0, 0};
    errno = 0;
    if (whole)
        token.integer = strtoll(text, NULL, hex ? 16 : 10);
    else
        token.number = strtod(text, NULL);
    if (errno == ERANGE) return scan_fail(s, "a number is too large");
    return scan_add(s, token);
}

static bool scan_name(scanner *s)
{
    size_t begin = s->at;
    while (s->at < s->bytes && scan_is_name(s->text[s->at], s->at == begin)) s->at++;
    const char *text = pj_arena_strndup(s->arena, s->text + begin, s->at - begin);
    if (!text) return scan_fail(s, "the template is too large");
    return scan_put(s, JI_T_NAME, text, s->at - begin);
}

static bool scan_operator(scanner *s)
{
    static const char *const operators[] = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "(",
        ")",  "[",  "]",  "{",  "}",  ",",  ":", ".", "|", "<", ">", "=",
    };
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (looking_at(s, operators[i])) {
            s->at += strlen(operators[i]);
            return scan_put(s, JI_T_OPERATOR, operators[i], strlen(operators[i]));
        }
    return scan_fail(s, "an unexpected character inside a tag");
}

/* Whether the tag ends here, with or without a sign before its closing. */
static bool tag_ends(scanner *s, const char *closing, char *sign)
{
    *sign = 0;
    if (looking_at(s, closing)) return true;
    bool signs = peek(s, 0) == '-' || (peek(s, 0) == '+' && closing[0] == '%');
    if (!signs || s->bytes - s->at < 3 || memcmp(s->text + s->at + 1, closing, 2) != 0)
        return false;
    *sign = s->text[s->at++];
    return true;
}

static bool scan_inside(scanner *s, bool print)
{
    const char *closing = print ? "}}" : "%}";
    int braces = 0; /* "}}" may close two dictionaries */
    for (char sign;;) {
        while (s->at < s->bytes && scan_is_space(s->text[s->at]))
            s->line += s->text[s->at++] == '\n';
        if (s->at >= s->bytes) return scan_fail(s, "a tag is not closed");
        char c = peek(s, 0);
        if (braces == 0 && tag_ends(s, closing, &sign)) {
            s->at += 2;
            if (!scan_put(s, print ? JI_T_PRINT_END : JI_T_BLOCK_END, "", 0)) return false;
            after_tag(s, sign, print);
            return true;
        }
        if (c == '{' || c == '[' || c == '(') braces++;
        if ((c == '}' || c == ']' || c == ')') && braces > 0) braces--;
        bool good = c == '"' || c == '\''   ? scan_text(s)
                    : c >= '0' && c <= '9'  ? scan_number(s)
                    : scan_is_name(c, true) ? scan_name(s)
                                            : scan_operator(s);
        if (!good) return false;
    }
}

/* The sign at `at`, which is then skipped; 0: none. */
static char take_sign(const scanner *s, size_t *at)
{
    bool sign = *at < s->bytes && (s->text[*at] == '-' || s->text[*at] == '+');
    return sign ? s->text[(*at)++] : 0;
}

/* {% raw %} or {% endraw %}. */
typedef struct raw_tag {
    size_t begin, end;
    char open, close; /* the signs at its edges */
} raw_tag;

/* Whether the tag at `at` consists of this word. */
static bool is_raw(const scanner *s, size_t at, const char *word, raw_tag *tag)
{
    size_t bytes = strlen(word);
    tag->begin = at;
    if (s->bytes - at < 2 || memcmp(s->text + at, "{%", 2) != 0) return false;
    at += 2;
    tag->open = take_sign(s, &at);
    while (at < s->bytes && scan_is_space(s->text[at])) at++;
    if (s->bytes - at < bytes || memcmp(s->text + at, word, bytes) != 0) return false;
    at += bytes;
    while (at < s->bytes && scan_is_space(s->text[at])) at++;
    tag->close = take_sign(s, &at);
    tag->end = at + 2;
    return s->bytes - at >= 2 && memcmp(s->text + at, "%}", 2) == 0;
}

static bool scan_raw(scanner *s, const raw_tag *tag)
{
    raw_tag end;
    count_lines(s, s->at, tag->end);
    s->at = tag->end;
    after_tag(s, tag->close, false);
    size_t at = s->at;
    for (; !is_raw(s, at, "endraw", &end); at++)
        if (at == s->bytes) return scan_fail(s, "a raw block is not closed");
    if (!add_data(s, s->at, at, end.open, false)) return false;
    count_lines(s, at, end.end);
    s->at = end.end;
    after_tag(s, end.close, false);
    return true;
}

/* Scans the tag at `at`; its second character is its kind. */
static bool scan_tag(scanner *s, size_t begin)
{
    char kind = s->text[s->at + 1];
    size_t tag = s->at, after = tag + 2;
    char sign = take_sign(s, &after);
    raw_tag raw;
    if (!add_data(s, begin, tag, sign, kind == '{')) return false;
    s->at = after;
    if (kind == '#') return skip_comment(s);
    if (is_raw(s, tag, "raw", &raw)) return scan_raw(s, &raw);
    return scan_put(s, kind == '{' ? JI_T_PRINT_BEGIN : JI_T_BLOCK_BEGIN, "", 0) &&
           scan_inside(s, kind == '{');
}

static bool scan_all(scanner *s)
{
    while (s->at < s->bytes) {
        size_t begin = s->at;
        while (s->at < s->bytes && !(peek(s, 0) == '{' &&
                                     (peek(s, 1) == '{' || peek(s, 1) == '%' || peek(s, 1) == '#')))
            s->at++;
        bool good = s->at < s->bytes ? scan_tag(s, begin)
                                     : scan_put(s, JI_T_DATA, s->text + begin, s->at - begin);
        if (!good) return false;
    }
    return scan_put(s, JI_T_END, "", 0);
}

/* Normalises newlines to "\n" and drops the last one. */
static char *normalised(const char *text, size_t bytes, pj_arena *arena, size_t *out_bytes)
{
    char *out = pj_arena_alloc(arena, bytes + 1, 1);
    size_t used = 0;
    for (size_t i = 0; out && i < bytes; i++) {
        bool pair = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
        out[used++] = text[i] == '\r' ? '\n' : text[i];
        i += pair;
    }
    if (used && out[used - 1] == '\n') used--;
    *out_bytes = used;
    return out;
}

pj_status ji_scan(const char *text, size_t bytes, const char *name, pj_arena *arena,
                  ji_token **tokens, size_t *count, pj_error *err)
{
    scanner s = {.name = name, .arena = arena, .line = 1, .line_starts = true, .err = err};
    s.text = normalised(text, bytes, arena, &s.bytes);
    if (!s.text) return pj_fail_memory(err, "a chat template");
    scan_all(&s);
    *tokens = s.tokens;
    *count = s.count;
    return s.status;
}
