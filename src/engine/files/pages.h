/* Large blocks directly from the system: zeroed, not touched until written, on huge pages if
 * available. For weights created in memory and for the KV cache; small objects use pj_alloc. */
#ifndef PJ_FILES_PAGES_H
#define PJ_FILES_PAGES_H

#include <stddef.h>

void *pj_pages_alloc(size_t bytes);            /* NULL when out of memory or bytes is 0 */
void pj_pages_free(void *block, size_t bytes); /* NULL is allowed */
/* Makes the kernel map this part of a file that is in the page cache, by reading a byte here and
 * there, for a later reader. (madvise would check each page individually and hold the lock on the
 * address space.) */
void pj_pages_touch(const void *data, size_t bytes);

#endif
