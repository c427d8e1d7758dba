/* The secrets of one request, and their removal from what the server answers: some servers repeat a
 * rejected key in their error. */
#ifndef PJ_ATTACH_HIDDEN_H
#define PJ_ATTACH_HIDDEN_H

#include "base/buffer.h"

enum { PJ_HIDDEN_MAX_BYTES = 64 << 10 }; /* as a whole head: nothing in front of a key hides it */

typedef struct pj_hidden {
    pj_buffer values; /* each with its NUL */
} pj_hidden;

void pj_hidden_init(pj_hidden *hidden);
void pj_hidden_fini(pj_hidden *hidden);
/* Takes, from a request line and complete header lines, the values of Authorization, X-Api-Key and
 * whatever else is named a key, a token or the like, the values of cookies, and such parameters of
 * the query. */
void pj_hidden_take(pj_hidden *hidden, const char *lines, size_t bytes);
/* Overwrites each occurrence with asterisks, as many as it has bytes, also one that is abbreviated
 * to half or more, in other case, or cut off by the end of the text. Values shorter than `least`
 * bytes stay: they would be found in any text. */
void pj_hidden_mask(const pj_hidden *hidden, char *text, size_t bytes, size_t least);

#endif
