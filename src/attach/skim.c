/* Finding the ends of JSON strings, and offsets at which they can be cut. */
#include "attach/skim.h"

#include <ctype.h>
#include <string.h>

/* The closing quote of the string whose text begins here; NULL: there is none. */
static const char *find_quote(const char *text, const char *end)
{
    for (const char *at = text; at < end;) {
        const char *quote = memchr(at, '"', (size_t)(end - at)), *before = quote;
        if (!quote) return NULL;
        while (before > text && before[-1] == '\\') before--;
        if ((quote - before) % 2 == 0) return quote;
        at = quote + 1;
    }
    return NULL;
}

/* Images and sounds: base64, possibly after "data:image/png;base64,". */
static bool is_encoded(const char *text, size_t bytes)
{
    size_t at = 0;
    if (bytes <= PJ_SKIM_ENCODED_BYTES) return false;
    if (memcmp(text, "data:", 5) == 0) {
        const char *comma = memchr(text, ',', 128);
        at = comma ? (size_t)(comma - text) + 1 : 5;
    }
    for (; at < PJ_SKIM_ENCODED_BYTES; at++) {
        unsigned char c = (unsigned char)text[at];
        if (!isalnum(c) && !strchr("+/=-_", c)) return false;
    }
    return true;
}

/* The length of the character or escape at the beginning; surrogates are kept together. */
static size_t unit(const char *text, size_t bytes)
{
    size_t n = 1;
    if (*text == '\\') {
        bool is_high = bytes > 3 && text[1] == 'u' && (text[2] | 32) == 'd' &&
                       memchr("89abAB", text[3], 6) != NULL;
        n = bytes > 1 && text[1] == 'u' ? (is_high ? 12 : 6) : 2;
    }
    while (n < bytes && ((unsigned char)text[n] & 0xc0) == 0x80) n++;
    return n < bytes ? n : bytes;
}

/* How much of a string is kept: at most `most`, between characters. */
static size_t skim_cut(const char *text, size_t bytes, size_t most)
{
    size_t at = 0;
    if (bytes <= most) return bytes;
    for (size_t n; at + (n = unit(text + at, bytes - at)) <= most;) at += n;
    return at;
}

/* Whether a list begins with numbers of which some have fractions: of an embedding, not of token
 * ids. */
static bool is_fractions(const char *text, size_t bytes)
{
    bool has_point = false;
    if (bytes <= PJ_SKIM_ENCODED_BYTES) return false;
    for (size_t at = 0; at < PJ_SKIM_ENCODED_BYTES; at++) {
        char c = text[at];
        if (!c || !strchr("0123456789.,+-eE \t\r\n", c)) return false;
        has_point |= c == '.';
    }
    return has_point;
}

/* What lies between two strings. */
static void copy_between(const char *from, const char *end, pj_buffer *to)
{
    const char *open, *close = from;
    while ((open = memchr(from, '[', (size_t)(end - from)))) {
        if (close <= open) close = memchr(open, ']', (size_t)(end - open));
        if (!close) break;
        bool drops = is_fractions(open + 1, (size_t)(close - open - 1));
        pj_buffer_append(to, from, (size_t)(open + 1 - from));
        from = drops ? close : open + 1;
    }
    pj_buffer_append(to, from, (size_t)(end - from));
}

bool pj_skim_json(const char *json, size_t bytes, bool strings, pj_buffer *to)
{
    const char *end = json + bytes, *from = json;
    for (const char *quote; (quote = memchr(from, '"', (size_t)(end - from)));) {
        const char *text = quote + 1, *close = find_quote(text, end);
        if (!close) break;
        size_t length = (size_t)(close - text);
        size_t most = !strings                   ? length
                      : is_encoded(text, length) ? PJ_SKIM_ENCODED_BYTES
                                                 : PJ_SKIM_TEXT_BYTES;
        copy_between(from, text, to);
        pj_buffer_append(to, text, skim_cut(text, length, most));
        pj_buffer_append(to, close, 1);
        from = close + 1;
    }
    copy_between(from, end, to);
    return !to->failed;
}

json_t *pj_skim_load(const char *json, size_t bytes, bool strings)
{
    pj_buffer skimmed;
    if (bytes <= PJ_SKIM_LEAST_BYTES) return json_loadb(json, bytes, JSON_ALLOW_NUL, NULL);
    pj_buffer_init(&skimmed, bytes + 1);
    bool ok = pj_skim_json(json, bytes, strings, &skimmed);
    json_t *loaded =
        ok ? json_loadb(pj_buffer_get(&skimmed), skimmed.length, JSON_ALLOW_NUL, NULL) : NULL;
    pj_buffer_fini(&skimmed);
    return loaded;
}
