/* Features of a text that is not stored, counted in one pass over its characters. */
#include "trace/private_text.h"

#include "base/ids.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct features {
    size_t characters, words, lines, digits, punctuation, non_ascii;
    size_t text_lines, code_lines;
    bool in_word, in_line;
    uint32_t last[2]; /* of the line, white space left out; 0: none */
} features;

static bool private_text_is_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A line of code ends in a bracket, `;`, `=` or `):`. */
static void end_line(features *f)
{
    uint32_t last = f->last[0] == ':' ? f->last[1] : f->last[0];
    f->text_lines += f->last[0] != 0;
    f->code_lines += last && last < 0x80 && strchr(f->last[0] == ':' ? ")" : "()[]{};=", (int)last);
    f->last[0] = f->last[1] = 0;
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
    if (!f->in_line) {
        end_line(f);
    } else if (!private_text_is_space(c)) {
        f->last[1] = f->last[0];
        f->last[0] = c;
    }
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
    end_line(&f);
    return f;
}

static int private_text_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Distinct words, by their hashes, as a share of all; NAN: none, or memory is out. */
static double distinct_share(const char *text, size_t bytes, size_t words)
{
    uint64_t *hashes = words ? pj_alloc(words, sizeof *hashes) : NULL;
    size_t n = 0, distinct = 0;
    for (size_t at = 0, end; hashes && at < bytes; at = end) {
        for (end = at; end < bytes && !private_text_is_space((unsigned char)text[end]);) end++;
        if (end > at && n < words) hashes[n++] = pj_hash64(0, text + at, end - at);
        end += end == at;
    }
    if (n) qsort(hashes, n, sizeof *hashes, private_text_compare);
    for (size_t i = 0; i < n; i++) distinct += i == 0 || hashes[i] != hashes[i - 1];
    pj_free(hashes);
    return n ? (double)distinct / (double)n : NAN;
}

/* Bits per byte of the distribution of its bytes. */
static double private_text_entropy(const char *text, size_t bytes)
{
    size_t counts[256] = {0};
    double sum = 0;
    for (size_t i = 0; i < bytes; i++) counts[(unsigned char)text[i]]++;
    for (int i = 0; i < 256; i++)
        if (counts[i]) sum += (double)counts[i] * log2((double)bytes / (double)counts[i]);
    return bytes ? sum / (double)bytes : NAN;
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
    pj_json_kv_double(json, "distinct_word_share", distinct_share(text, bytes, f.words));
    pj_json_kv_double(json, "code_line_share", private_text_share(f.code_lines, f.text_lines));
    pj_json_kv_double(json, "byte_entropy", private_text_entropy(text, bytes));
    pj_json_object_end(json);
}
