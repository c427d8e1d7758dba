/*
 * A request to generate, shared by the command line, the HTTP API, the queue and the experiments.
 * One table lists its fields with their names, defaults and bounds; the parser and the writer of
 * JSON, the copy and the options of `perjoule run` are made from it. A new field is a member here,
 * a line in the table (generation_request.c), and what it does in generate/generate_options.c;
 * tests compare the table with openapi.json, docs/api.md and the dashboard's types.
 */
#ifndef PJ_TRACE_GENERATION_REQUEST_H
#define PJ_TRACE_GENERATION_REQUEST_H

#include "base/json.h"
#include "base/memory.h"
#include "base/text_list.h"

/* Values of `dtype` and `kv`. */
#define PJ_REQUEST_DTYPES   "q8_0 q4_0 bf16 f16 f32"
#define PJ_REQUEST_KV_TYPES "f32 f16"

/* Texts are borrowed. Texts that were not given are NULL, integers negative (batch: 0) and numbers
 * NAN, unless the table has a default. */
typedef struct pj_generation_request {
    const char *model;  /* NULL: the default model; in the queue: as pj_engine_options.model */
    const char *prompt; /* NULL when there are ids */
    size_t prompt_bytes;
    const int32_t *prompt_ids;
    uint32_t prompt_id_count;
    const char *depth, *experiment, *dtype, *kv, *system, *batch_rule, *statistics, *draft, *device;
    int64_t max_tokens, batch, top_k, seed, draft_tokens;
    double temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty,
        presence_penalty;
    pj_text_list tags, stop;
    pj_text_list logit_bias; /* "ID=BIAS" */
    bool chat, ignore_eos, no_mmap;
    bool wait; /* the client blocks until the result is there */
} pj_generation_request;

typedef enum pj_request_kind {
    PJ_REQUEST_TEXT,   /* const char * */
    PJ_REQUEST_CHOICE, /* const char *, one of `choices` */
    PJ_REQUEST_INT,    /* int64_t */
    PJ_REQUEST_NUMBER, /* double */
    PJ_REQUEST_FLAG,   /* bool */
    PJ_REQUEST_LIST,   /* pj_text_list */
    PJ_REQUEST_MAP,    /* pj_text_list of "KEY=NUMBER"; in JSON an object of numbers */
    PJ_REQUEST_PROMPT, /* prompt and prompt_bytes */
    PJ_REQUEST_IDS     /* prompt_ids and prompt_id_count */
} pj_request_kind;

typedef struct pj_request_field {
    const char *name; /* in JSON */
    pj_request_kind kind;
    size_t offset;             /* in pj_generation_request */
    double least, most;        /* of numbers; most of texts: bytes */
    double standard;           /* the default of a number or flag; NAN or negative: none */
    const char *standard_text; /* the default of a choice */
    const char *choices;       /* separated by blanks */
    /* The option of `perjoule run`; NULL: the command declares it itself, or has none. */
    const char *option;
    char letter;
    const char *value_name, *help;
} pj_request_field;

extern const pj_request_field pj_request_fields[]; /* ends with a field without a name */
const pj_request_field *pj_request_field_find(const char *name); /* NULL: none */

void pj_generation_request_init(pj_generation_request *request); /* sets every default */
/* Untrusted JSON in, a checked request out; texts go into the arena. PJ_E_INVALID with *syntax
 * true: not JSON; false: JSON with invalid content. The error names the field. */
pj_status pj_generation_request_parse(const char *text, size_t bytes,
                                      pj_generation_request *request, pj_arena *arena, bool *syntax,
                                      pj_error *err);
/* The inverse of pj_generation_request_parse. */
void pj_generation_request_write(const pj_generation_request *request, pj_json *json);
/* With all texts copied into the arena; false: out of memory. */
bool pj_generation_request_copy(pj_generation_request *copy, const pj_generation_request *request,
                                pj_arena *arena);

#endif
