/* Anonymous mappings. */
#include "engine/files/pages.h"

#include "base/memory.h"

#include <stdint.h>
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

enum { HUGE_PAGE_BYTES = 2 << 20 };

void *pj_pages_alloc(size_t bytes)
{
    if (bytes == 0) return NULL;
    /* Allocate through pj_alloc too, so that tests can inject failures. */
    void *probe = pj_alloc(1, 1);
    if (!probe) return NULL;
    pj_free(probe);
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE_BYTES) madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

void pj_pages_free(void *block, size_t bytes)
{
    if (block) munmap(block, bytes);
}

void pj_pages_touch(const void *data, size_t bytes)
{
    /* Linux "fault-around": maps the 16 pages around a faulting one if they are in the page
     * cache. */
    enum { AROUND_BYTES = 64 << 10 };
    const volatile unsigned char *p = data;
    for (size_t i = 0; i < bytes; i += AROUND_BYTES) (void)p[i];
}
