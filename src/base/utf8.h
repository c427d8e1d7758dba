/* UTF-8, one sequence at a time. */
#ifndef PJ_BASE_UTF8_H
#define PJ_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1 to 4) of the valid sequence at `text`, with its code point; 0 when it is invalid or
 * cut off. Surrogates, overlong forms and values above U+10FFFF are invalid. */
static inline size_t pj_utf8_next(const char *text, size_t bytes, uint32_t *code_point)
{
    const unsigned char *p = (const unsigned char *)text;
    if (bytes == 0) return 0;
    if (p[0] < 0x80) {
        *code_point = p[0];
        return 1;
    }
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0xc2 || p[0] > 0xf4 || bytes < n) return 0;
    uint32_t c = p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    *code_point = c;
    return n;
}

/* The same, where an invalid byte counts as the character U+FFFD; 0 at the end only. */
static inline size_t pj_utf8_step(const char *text, size_t bytes, uint32_t *code_point)
{
    *code_point = 0xfffd;
    size_t used = pj_utf8_next(text, bytes, code_point);
    return used || bytes == 0 ? used : 1;
}

/* Writes 1 to 4 bytes, returns how many. */
static inline size_t pj_utf8_put(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* How much of the text is kept if at most `most` bytes are: no character is cut. */
static inline size_t pj_utf8_cut(const char *text, size_t bytes, size_t most)
{
    size_t n = bytes < most ? bytes : most;
    while (n && n < bytes && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    return n;
}

/* Whether a terminal may act on the character instead of showing it: control characters but line
 * feed and tab, and those that change the direction of what follows. */
static inline bool pj_utf8_is_control(uint32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || c == 0x61c ||
           c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Copies a text from elsewhere so that a terminal can only show it: control characters and invalid
 * bytes become U+FFFD. Cut between characters where it is too long for `room`, which includes the
 * final NUL. Returns the length. */
static inline size_t pj_utf8_safe(const char *text, size_t bytes, char *out, size_t room)
{
    size_t length = 0;
    uint32_t c;
    for (size_t i = 0, n; i < bytes && length + 4 < room; i += n) {
        n = pj_utf8_step(text + i, bytes - i, &c);
        length += pj_utf8_put(pj_utf8_is_control(c) ? 0xfffd : c, out + length);
    }
    if (room) out[length] = 0;
    return length;
}

static inline bool pj_utf8_valid(const char *text, size_t bytes)
{
    uint32_t c;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = pj_utf8_next(text + i, bytes - i, &c);
        if (n == 0) return false;
    }
    return true;
}

#endif
