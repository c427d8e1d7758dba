/* Large blocks straight from the system: zero, untouched until written, on huge pages where the
 * system gives them. For weights made in memory and for the KV cache; small things use pj_alloc. */
#ifndef PJ_LLM_PAGES_H
#define PJ_LLM_PAGES_H

#include <stddef.h>

void *pj_pages_alloc(size_t bytes);            /* NULL when memory is out or bytes is 0 */
void pj_pages_free(void *block, size_t bytes); /* NULL is allowed */
/* Has the kernel map this part of a file that lies in memory: reads a byte here and there. For a
 * reader who comes later; asking with madvise instead looks at each page by itself and keeps every
 * other thread from changing its mappings. */
void pj_pages_touch(const void *data, size_t bytes);

#endif
