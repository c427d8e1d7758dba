/*
 * Parses JSON without building a tree: for texts of megabytes (a tokenizer's vocabulary, a
 * safetensors header) up to gigabytes (traces, exported runs) that are read once. They are scanned
 * in place, with no allocation except for strings with escapes; parts that are easier to handle as
 * trees are given to jansson one at a time. Strict: UTF-8 is validated, depth is bounded, no
 * recursion.
 *
 * A scanner is a cursor. Errors are sticky: after the first one every call returns false, and
 * pj_json_scan_failed distinguishes a failure from the end of a container.
 */
#ifndef PJ_BASE_JSON_SCAN_H
#define PJ_BASE_JSON_SCAN_H

#include "base/buffer.h"

#include <jansson.h>

enum { PJ_JSON_SCAN_DEPTH = 256 };

typedef struct pj_json_scan {
    const char *start, *at, *end;
    const char *problem; /* NULL: none so far */
    bool fresh;          /* the innermost container has had no item yet */
    pj_buffer unescaped; /* the last string that had escapes */
} pj_json_scan;

typedef struct pj_json_text {
    const char *text; /* not terminated; valid until the next string with escapes */
    size_t bytes;
} pj_json_text;

void pj_json_scan_init(pj_json_scan *scan, const char *text, size_t bytes);
void pj_json_scan_fini(pj_json_scan *scan);

/* The first character of the next value ('{', '[', '"', 't', 'f', 'n', '-' or a digit); 0 at the
 * end. */
char pj_json_scan_peek(pj_json_scan *scan);
/* Enters '{' or '['; then `while (pj_json_scan_next(...))` once before every item, which must be
 * read completely before the next call. `next` leaves at the closing bracket. */
bool pj_json_scan_enter(pj_json_scan *scan, char bracket);
bool pj_json_scan_next(pj_json_scan *scan, char bracket);
/* `next` of an object, together with the member's key. */
bool pj_json_scan_member(pj_json_scan *scan, pj_json_text *key);
bool pj_json_scan_string(pj_json_scan *scan, pj_json_text *text);
bool pj_json_scan_uint(pj_json_scan *scan, uint64_t *value); /* no sign, fraction or exponent */
/* Read any value; one of another type is skipped and yields a NULL text, or NAN. */
bool pj_json_scan_text(pj_json_scan *scan, pj_json_text *text);
bool pj_json_scan_number(pj_json_scan *scan, double *value);
/* Reads any value as a tree, which the caller frees (json_decref); `flags` are jansson's. NULL:
 * failed. */
json_t *pj_json_scan_tree(pj_json_scan *scan, size_t flags);
/* Skips any value, checking its syntax; `span` (may be NULL) receives its text. */
bool pj_json_scan_skip(pj_json_scan *scan, pj_json_text *span);
/* Bytes left to read: an upper bound for memory derived from them. */
static inline size_t pj_json_scan_left(const pj_json_scan *scan)
{
    return (size_t)(scan->end - scan->at);
}
/* True when nothing but white space is left. */
bool pj_json_scan_end(pj_json_scan *scan);
bool pj_json_scan_fail(pj_json_scan *scan, const char *problem); /* always false */
static inline bool pj_json_scan_failed(const pj_json_scan *scan)
{
    return scan->problem != NULL;
}
/* "NAME is not valid JSON: PROBLEM at byte N" as PJ_E_INVALID. */
pj_status pj_json_scan_error(const pj_json_scan *scan, const char *name, pj_error *err);

static inline bool pj_json_text_is(pj_json_text text, const char *word)
{
    size_t i = 0;
    for (; i < text.bytes; i++)
        if (word[i] == 0 || word[i] != text.text[i]) return false;
    return word[i] == 0;
}

#endif
