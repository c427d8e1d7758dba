/* Finds the known word closest to a mistyped one. */
#ifndef PJ_BASE_NEAREST_H
#define PJ_BASE_NEAREST_H

#include <stddef.h>

typedef struct pj_nearest {
    const char *wanted;
    const char *word; /* closest so far, NULL: none is close */
    size_t length;    /* of `word`, which need not be terminated */
    size_t distance;
} pj_nearest;

void pj_nearest_begin(pj_nearest *nearest, const char *wanted);
void pj_nearest_offer(pj_nearest *nearest, const char *word, size_t length);
/* Considers each word of a blank-separated list. */
void pj_nearest_offer_list(pj_nearest *nearest, const char *words);
/* Writes "; did you mean PREFIXword?", or "" when nothing is close. */
void pj_nearest_write(const pj_nearest *nearest, const char *prefix, char *text, size_t bytes);
/* All of it for one blank-separated list of known words. */
void pj_nearest_hint(const char *wanted, const char *words, char *text, size_t bytes);

#endif
