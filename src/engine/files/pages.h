/* Large blocks directly from the system: zeroed, not touched until written, on huge pages if
 * available. For weights created in memory and for the KV cache; small objects use pj_alloc. */
#ifndef PJ_FILES_PAGES_H
#define PJ_FILES_PAGES_H

#include <stdbool.h>
#include <stddef.h>

enum { PJ_PAGES_PART_BYTES = 2 << 20 }; /* a huge page */

void *pj_pages_alloc(size_t bytes);            /* NULL when out of memory or bytes is 0 */
void pj_pages_free(void *block, size_t bytes); /* NULL is allowed */
/* Makes the kernel map this part of a file that is in the page cache, by reading a byte here and
 * there, for a later reader. (madvise would check each page individually and hold the lock on the
 * address space.) */
void pj_pages_touch(const void *data, size_t bytes);
/* Asks for huge pages under a mapped file, before it is read: fewer misses of the TLB. Has an
 * effect where the file system caches files in large folios. */
void pj_pages_prefer_huge(const void *mapping, size_t bytes);
/* A mapped file in parts, which are aligned to PJ_PAGES_PART_BYTES. */
size_t pj_pages_parts(const void *mapping, size_t bytes);
/* Replaces a part of a private mapping, at its address, by memory with the same contents.
 * `scratch`: PJ_PAGES_PART_BYTES. Parts may be copied by several threads. False: out of memory. */
bool pj_pages_copy_part(const void *mapping, size_t bytes, size_t part, void *scratch);

#endif
