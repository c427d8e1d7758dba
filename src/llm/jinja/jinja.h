/*
 * Jinja templates, the subset that chat templates are written in, with the whitespace rules of the
 * reference implementation (trim_blocks and lstrip_blocks on, one trailing newline dropped).
 *
 * A template comes from a model file and is hostile until it has been run: steps, memory, nesting
 * and the length of the output are bounded, and what is outside the subset (include, import,
 * unknown filters, tests and methods) is refused by name. Nothing is approximated.
 *
 * Every byte of the output knows whether it came from data (the text of a message) or from the
 * template: `marks` is 1 for data. A caller uses this to keep control tokens that are spelled in a
 * message from becoming control tokens.
 */
#ifndef PJ_LLM_JINJA_JINJA_H
#define PJ_LLM_JINJA_JINJA_H

#include "base/buffer.h"
#include "base/memory.h"

typedef struct pj_jinja pj_jinja;

/* Parses the template. `name` is what errors call it. */
pj_status pj_jinja_open(const char *text, size_t bytes, const char *name, pj_jinja **jinja,
                        pj_error *err);
void pj_jinja_close(pj_jinja *jinja); /* NULL is allowed */

/* What a template sees: one JSON object whose members are its variables. The strings in it are
 * data, except those named in `trusted` (NULL-terminated; special tokens, for example), which count
 * as the template's own. */
typedef struct pj_jinja_input {
    const char *json;
    size_t bytes;
    const char *const *trusted;
    int64_t now; /* seconds since 1970, for strftime_now */
} pj_jinja_input;

typedef struct pj_jinja_output {
    char *text; /* pj_free */
    uint8_t *marks; /* 1 for bytes that are data; pj_free */
    size_t bytes;
} pj_jinja_output;

pj_status pj_jinja_render(const pj_jinja *jinja, const pj_jinja_input *input,
                          pj_jinja_output *output, pj_error *err);
void pj_jinja_output_fini(pj_jinja_output *output);

#endif
