/*
 * Jinja templates, in the subset used by chat templates, with the whitespace rules of the reference
 * implementation (trim_blocks and lstrip_blocks on, one trailing newline dropped).
 *
 * A template comes from a model file and is untrusted: steps, memory, nesting and output length are
 * bounded, and anything outside the subset (include, import, unknown filters, tests and methods) is
 * rejected by name. Nothing is approximated.
 *
 * Taint tracking: every output byte is marked by whether it came from data (the text of a message;
 * `marks` is 1) or from the template. Callers use this so that control tokens spelled in a message
 * do not become control tokens.
 */
#ifndef PJ_TEXT_JINJA_JINJA_H
#define PJ_TEXT_JINJA_JINJA_H

#include "base/buffer.h"
#include "base/memory.h"

typedef struct pj_jinja pj_jinja;

/* Parses the template. `name` is used in errors. */
pj_status pj_jinja_open(const char *text, size_t bytes, const char *name, pj_jinja **jinja,
                        pj_error *err);
void pj_jinja_close(pj_jinja *jinja); /* NULL is allowed */

/* A template's input: one JSON object whose members are its variables. Its strings are data, except
 * those named in `trusted` (NULL-terminated; e.g. special tokens), which count as template text. */
typedef struct pj_jinja_input {
    const char *json;
    size_t bytes;
    const char *const *trusted;
    int64_t now; /* seconds since 1970, for strftime_now */
} pj_jinja_input;

typedef struct pj_jinja_output {
    char *text;     /* pj_free */
    uint8_t *marks; /* 1 for data bytes; pj_free */
    size_t bytes;
} pj_jinja_output;

pj_status pj_jinja_render(const pj_jinja *jinja, const pj_jinja_input *input,
                          pj_jinja_output *output, pj_error *err);
void pj_jinja_output_fini(pj_jinja_output *output);

#endif
