/* Features of a text that is not stored, counted in one pass over its characters. */
#include "trace/private_text.h"

#include "base/sha256.h"
#include "base/utf8.h"

#include <ctype.h>
#include <math.h>

typedef struct features {
    size_t characters, words, lines, digits, punctuation, non_ascii;
    bool in_word, in_line;
} features;

static bool private_text_is_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void count_character(features *f, uint32_t c)
{
    f->characters++;
    f->digits += c >= '0' && c <= '9';
    f->punctuation += c < 0x80 && ispunct((int)c);
    f->non_ascii += c >= 0x80;
    if (!private_text_is_space(c) && !f->in_word) f->words++;
    f->in_word = !private_text_is_space(c);
    if (!f->in_line) f->lines++;
    f->in_line = c != '\n';
}

/* A byte that is not UTF-8 counts as one character outside of ASCII. */
static features private_text_count(const char *text, size_t bytes)
{
    features f = {0};
    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0xfffd;
        size_t n = pj_utf8_next(text + at, bytes - at, &c);
        count_character(&f, n ? c : 0xfffd);
        at += n ? n : 1;
    }
    return f;
}

static double private_text_share(size_t part, size_t whole)
{
    return whole ? (double)part / (double)whole : NAN;
}

void pj_private_text_write(pj_json *json, const char *text, size_t bytes)
{
    char hash[PJ_SHA256_TEXT_BYTES];
    features f = private_text_count(text, bytes);
    pj_sha256_text(text, bytes, hash);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "sha256", hash);
    pj_json_kv_uint(json, "bytes", bytes);
    pj_json_kv_uint(json, "characters", f.characters);
    pj_json_kv_uint(json, "words", f.words);
    pj_json_kv_uint(json, "lines", f.lines);
    pj_json_kv_double(json, "digit_share", private_text_share(f.digits, f.characters));
    pj_json_kv_double(json, "punctuation_share", private_text_share(f.punctuation, f.characters));
    pj_json_kv_double(json, "non_ascii_share", private_text_share(f.non_ascii, f.characters));
    pj_json_object_end(json);
}
