/*
 * Shortens the long strings of a JSON text, so that parsing a request with an image of megabytes
 * does not delay what else passes through the proxy. Everything else is copied as it is, valid or
 * not. Pure.
 */
#ifndef PJ_ATTACH_SKIM_H
#define PJ_ATTACH_SKIM_H

#include "base/buffer.h"

enum {
    PJ_SKIM_TEXT_BYTES = 1 << 20,    /* of a string are kept */
    PJ_SKIM_ENCODED_BYTES = 4 << 10, /* of one that looks like base64 */
};

/* False: out of memory. */
bool pj_skim_json(const char *json, size_t bytes, pj_buffer *to);

#endif
