/*
 * Leaves the bulk out of a JSON text: long strings of requests (images) and long lists of fractions
 * (embeddings), so that parsing megabytes of them does not delay what else passes through the
 * proxy. Everything else is copied as it is, valid or not. Pure.
 */
#ifndef PJ_ATTACH_SKIM_H
#define PJ_ATTACH_SKIM_H

#include "base/buffer.h"

#include <jansson.h>

enum {
    PJ_SKIM_LEAST_BYTES = 16 << 10,  /* shorter texts are parsed as they are */
    PJ_SKIM_TEXT_BYTES = 1 << 20,    /* of a string are kept */
    PJ_SKIM_ENCODED_BYTES = 4 << 10, /* of one that looks like base64; longer lists are empty */
};

/* `strings`: long ones are cut, too. False: out of memory. */
bool pj_skim_json(const char *json, size_t bytes, bool strings, pj_buffer *to);
/* The JSON of a text, skimmed if it is long. NULL: invalid, or out of memory. */
json_t *pj_skim_load(const char *json, size_t bytes, bool strings);

#endif
