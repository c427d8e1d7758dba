/* The JSON cursor. One loop over strings finds the end, rejects control characters and validates
 * UTF-8. */
#include "base/json_scan.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pj_json_scan_init(pj_json_scan *scan, const char *text, size_t bytes)
{
    *scan = (pj_json_scan){.start = text, .at = text, .end = text + bytes};
    pj_buffer_init(&scan->unescaped, SIZE_MAX / 2);
}

void pj_json_scan_fini(pj_json_scan *scan)
{
    pj_buffer_fini(&scan->unescaped);
}

bool pj_json_scan_fail(pj_json_scan *scan, const char *problem)
{
    if (!scan->problem) scan->problem = problem;
    return false;
}

pj_status pj_json_scan_error(const pj_json_scan *scan, const char *name, pj_error *err)
{
    return pj_fail(err, PJ_E_INVALID, "%s is not valid: %s at byte %zu", name,
                   scan->problem ? scan->problem : "unknown problem",
                   (size_t)(scan->at - scan->start));
}

static void skip_space(pj_json_scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
}

char pj_json_scan_peek(pj_json_scan *scan)
{
    if (scan->problem) return 0;
    skip_space(scan);
    return scan->at < scan->end ? *scan->at : 0;
}

static bool json_scan_expect(pj_json_scan *scan, char c, const char *problem)
{
    if (scan->problem) return false;
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != c) return pj_json_scan_fail(scan, problem);
    scan->at++;
    return true;
}

bool pj_json_scan_end(pj_json_scan *scan)
{
    if (scan->problem) return false;
    skip_space(scan);
    if (scan->at < scan->end) return pj_json_scan_fail(scan, "text after the value");
    return true;
}

bool pj_json_scan_enter(pj_json_scan *scan, char bracket)
{
    scan->fresh = true;
    return json_scan_expect(scan, bracket,
                            bracket == '{' ? "an object is missing" : "an array is missing");
}

bool pj_json_scan_next(pj_json_scan *scan, char bracket)
{
    if (scan->problem) return false;
    skip_space(scan);
    if (scan->at == scan->end) return pj_json_scan_fail(scan, "the text ends in a container");
    bool fresh = scan->fresh;
    scan->fresh = false;
    if (*scan->at == (bracket == '{' ? '}' : ']')) {
        scan->at++;
        return false;
    }
    return fresh || json_scan_expect(scan, ',', "a comma is missing");
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hexadecimal digits at `at`; -1 if invalid. */
static int32_t json_scan_hex4(const pj_json_scan *scan, const char *at)
{
    if (scan->end - at < 4) return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Decodes the escape whose backslash is at scan->at - 1, and appends the result. */
static bool read_escape(pj_json_scan *scan)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (scan->at == scan->end) return pj_json_scan_fail(scan, "the text ends in a string");
    char c = *scan->at++;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) return pj_buffer_char(&scan->unescaped, to[simple - from]);
    int32_t code = c == 'u' ? json_scan_hex4(scan, scan->at) : -1;
    if (code < 0) return pj_json_scan_fail(scan, "an unknown escape in a string");
    scan->at += 4;
    if (code >= 0xd800 && code < 0xdc00) {
        int32_t low = scan->end - scan->at >= 6 && scan->at[0] == '\\' && scan->at[1] == 'u'
                          ? json_scan_hex4(scan, scan->at + 2)
                          : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return pj_json_scan_fail(scan, "half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        scan->at += 6;
    } else if (code >= 0xdc00 && code < 0xe000) {
        return pj_json_scan_fail(scan, "half a surrogate pair in a string");
    }
    char bytes[4];
    return pj_buffer_append(&scan->unescaped, bytes, pj_utf8_put((uint32_t)code, bytes));
}

/* SWAR: how many of the eight bytes at `p` precede the first that is not printable ASCII, or is a
 * quote or backslash. Per byte: the high bit of x - n is set when x < n, that of ~x when x is
 * ASCII; a borrow affects only bytes after the first hit. */
static unsigned plain_run(const char *p)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    uint64_t x, quote, backslash;
    memcpy(&x, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    quote = x ^ '"' * ones;
    backslash = x ^ '\\' * ones;
    uint64_t control = (x - 0x20 * ones) & ~x;
    uint64_t escape = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
    uint64_t stop = (x | control | escape) & high;
    return stop ? (unsigned)__builtin_ctzll(stop) / 8 : 8;
}

/* Skips bytes that need no unescaping, up to a quote, a backslash or an error. */
static bool skip_plain(pj_json_scan *scan)
{
    const char *p = scan->at, *end = scan->end;
    while (p < end) {
        if (end - p >= 8) {
            unsigned run = plain_run(p);
            p += run;
            if (run == 8) continue;
        }
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') break;
        if (c >= 0x20 && c < 0x80) {
            p++;
            continue;
        }
        uint32_t code_point;
        size_t n = c < 0x20 ? 0 : pj_utf8_next(p, (size_t)(end - p), &code_point);
        if (n == 0) {
            scan->at = p;
            return pj_json_scan_fail(scan, c < 0x20 ? "a control character in a string"
                                                    : "a string that is not UTF-8");
        }
        p += n;
    }
    scan->at = p;
    return p < end || pj_json_scan_fail(scan, "the text ends in a string");
}

bool pj_json_scan_string(pj_json_scan *scan, pj_json_text *text)
{
    *text = (pj_json_text){"", 0};
    if (!json_scan_expect(scan, '"', "a string is missing")) return false;
    const char *plain = scan->at;
    if (!skip_plain(scan)) return false;
    if (*scan->at == '"') {
        *text = (pj_json_text){plain, (size_t)(scan->at - plain)};
        scan->at++;
        return true;
    }
    pj_buffer_clear(&scan->unescaped);
    for (;;) {
        pj_buffer_append(&scan->unescaped, plain, (size_t)(scan->at - plain));
        if (*scan->at++ == '"') break;
        if (!read_escape(scan)) return pj_json_scan_fail(scan, "out of memory for a string");
        plain = scan->at;
        if (!skip_plain(scan)) return false;
    }
    if (scan->unescaped.failed) return pj_json_scan_fail(scan, "out of memory for a string");
    *text = (pj_json_text){pj_buffer_get(&scan->unescaped), scan->unescaped.length};
    return true;
}

static bool scan_read_key(pj_json_scan *scan, pj_json_text *key)
{
    return pj_json_scan_string(scan, key) && json_scan_expect(scan, ':', "a colon is missing");
}

bool pj_json_scan_member(pj_json_scan *scan, pj_json_text *key)
{
    return pj_json_scan_next(scan, '{') && scan_read_key(scan, key);
}

static bool is_digit(const pj_json_scan *scan, const char *at)
{
    return at < scan->end && *at >= '0' && *at <= '9';
}

bool pj_json_scan_uint(pj_json_scan *scan, uint64_t *value)
{
    *value = 0;
    pj_json_scan_peek(scan);
    if (scan->problem || !is_digit(scan, scan->at))
        return pj_json_scan_fail(scan, "a non-negative integer is missing");
    const char *first = scan->at;
    for (; is_digit(scan, scan->at); scan->at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*scan->at - '0'), value))
            return pj_json_scan_fail(scan, "a number beyond 64 bits");
    bool padded = *first == '0' && scan->at - first > 1;
    bool real = scan->at < scan->end && (*scan->at == '.' || (*scan->at | 0x20) == 'e');
    if (padded || real) return pj_json_scan_fail(scan, "a number that is not an integer");
    return true;
}

static bool skip_number(pj_json_scan *scan)
{
    const char *p = scan->at;
    if (p < scan->end && *p == '-') p++;
    if (!is_digit(scan, p)) return pj_json_scan_fail(scan, "an unknown word");
    if (*p == '0' && is_digit(scan, p + 1)) return pj_json_scan_fail(scan, "a padded number");
    while (is_digit(scan, p)) p++;
    if (p < scan->end && *p == '.') {
        if (!is_digit(scan, ++p)) return pj_json_scan_fail(scan, "a number without digits");
        while (is_digit(scan, p)) p++;
    }
    if (p < scan->end && (*p | 0x20) == 'e') {
        p++;
        if (p < scan->end && (*p == '+' || *p == '-')) p++;
        if (!is_digit(scan, p)) return pj_json_scan_fail(scan, "a number without digits");
        while (is_digit(scan, p)) p++;
    }
    scan->at = p;
    return true;
}

static bool skip_word(pj_json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(scan->end - scan->at) >= length && !memcmp(scan->at, words[i], length)) {
            scan->at += length;
            return true;
        }
    }
    return skip_number(scan);
}

bool pj_json_scan_skip(pj_json_scan *scan, pj_json_text *span)
{
    char open[PJ_JSON_SCAN_DEPTH];
    int depth = 0;
    pj_json_text text;
    pj_json_scan_peek(scan);
    const char *begin = scan->at;
    do {
        char c = pj_json_scan_peek(scan);
        if (c == '{' || c == '[') {
            if (depth == PJ_JSON_SCAN_DEPTH)
                return pj_json_scan_fail(scan, "containers nested too deep");
            open[depth++] = c;
            pj_json_scan_enter(scan, c);
        } else if (c == '"') {
            pj_json_scan_string(scan, &text);
        } else if (c == 0) {
            return pj_json_scan_fail(scan, "a value is missing");
        } else {
            skip_word(scan);
        }
        /* Advance to the next item of the innermost container that has one. */
        while (depth > 0 && !pj_json_scan_next(scan, open[depth - 1])) {
            if (scan->problem) return false;
            depth--;
        }
        if (depth > 0 && open[depth - 1] == '{') scan_read_key(scan, &text);
        if (scan->problem) return false;
    } while (depth > 0);
    if (span) *span = (pj_json_text){begin, (size_t)(scan->at - begin)};
    return true;
}

bool pj_json_scan_text(pj_json_scan *scan, pj_json_text *text)
{
    if (pj_json_scan_peek(scan) == '"') return pj_json_scan_string(scan, text);
    *text = (pj_json_text){NULL, 0};
    return pj_json_scan_skip(scan, NULL);
}

bool pj_json_scan_number(pj_json_scan *scan, double *value)
{
    char first = pj_json_scan_peek(scan), copy[64];
    pj_json_text text;
    *value = NAN;
    if (!pj_json_scan_skip(scan, &text)) return false;
    if (first != '-' && (first < '0' || first > '9')) return true;
    if (text.bytes < sizeof copy) { /* strtod needs an end */
        memcpy(copy, text.text, text.bytes);
        copy[text.bytes] = 0;
        *value = strtod(copy, NULL);
        return true;
    }
    pj_buffer_clear(&scan->unescaped);
    if (!pj_buffer_append(&scan->unescaped, text.text, text.bytes))
        return pj_json_scan_fail(scan, "out of memory for a number");
    *value = strtod(pj_buffer_get(&scan->unescaped), NULL);
    return true;
}

json_t *pj_json_scan_tree(pj_json_scan *scan, size_t flags)
{
    pj_json_text text;
    json_error_t where;
    if (!pj_json_scan_skip(scan, &text)) return NULL;
    json_t *value = json_loadb(text.text, text.bytes, flags | JSON_DECODE_ANY, &where);
    if (!value) pj_json_scan_fail(scan, "a member that comes twice or a number that is too large");
    return value;
}
