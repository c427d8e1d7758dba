/*
 * Numbers of an XML property list, without building a tree: those directly in the root dictionary
 * and those in dictionaries directly below it, which is all that powermetrics' samples need. The
 * text is untrusted: reads are bounds-checked, nesting is limited to 64 levels, entities are not
 * expanded.
 */
#ifndef PJ_POWER_PLIST_SCAN_H
#define PJ_POWER_PLIST_SCAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pj_plist_text {
    const char *at; /* into the document, not terminated */
    size_t bytes;
} pj_plist_text;

/* A number of the root dictionary (`section` is empty) or of the dictionary `section` in it. */
typedef void pj_plist_number_fn(void *context, pj_plist_text section, pj_plist_text key,
                                double value);

static inline bool pj_plist_is(pj_plist_text text, const char *word)
{
    size_t bytes = __builtin_strlen(word);
    return text.bytes == bytes && __builtin_memcmp(text.at, word, bytes) == 0;
}

/* False when the document is cut, malformed, nested too deep, or its root is not a dictionary; some
 * numbers may have been reported by then. */
bool pj_plist_scan(const char *text, size_t bytes, pj_plist_number_fn *take, void *context);

#endif
