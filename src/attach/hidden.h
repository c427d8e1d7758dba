/* The secrets of one request, and their removal from what the server answers: some servers repeat a
 * rejected key in their error. */
#ifndef PJ_ATTACH_HIDDEN_H
#define PJ_ATTACH_HIDDEN_H

#include "base/buffer.h"

enum { PJ_HIDDEN_MAX_BYTES = 16 << 10 };

typedef struct pj_hidden {
    pj_buffer values; /* each with its NUL */
} pj_hidden;

void pj_hidden_init(pj_hidden *hidden);
void pj_hidden_fini(pj_hidden *hidden);
/* Takes the values of Authorization, x-api-key, api-key and the like from complete header lines. */
void pj_hidden_take(pj_hidden *hidden, const char *lines, size_t bytes);
/* Overwrites each occurrence with asterisks, as many as it has bytes, and also the beginning of a
 * secret at the end of a text that was cut off. Values shorter than `least` bytes stay: they would
 * be found in any text. */
void pj_hidden_mask(const pj_hidden *hidden, char *text, size_t bytes, size_t least);

#endif
