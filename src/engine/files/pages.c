/* Anonymous mappings. */
#include "engine/files/pages.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

static void *pages_map(void *at, size_t bytes, int flags)
{
    /* Allocate through pj_alloc too, so that tests can inject failures. */
    void *probe = pj_alloc(1, 1);
    if (!probe) return NULL;
    pj_free(probe);
    void *block =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (block == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= PJ_PAGES_PART_BYTES) madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

void *pj_pages_alloc(size_t bytes)
{
    return bytes ? pages_map(NULL, bytes, 0) : NULL;
}

void pj_pages_prefer_huge(const void *mapping, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (bytes >= PJ_PAGES_PART_BYTES) madvise((void *)(uintptr_t)mapping, bytes, MADV_HUGEPAGE);
#else
    (void)mapping, (void)bytes;
#endif
}

size_t pj_pages_parts(const void *mapping, size_t bytes)
{
    size_t before = (uintptr_t)mapping % PJ_PAGES_PART_BYTES;
    return bytes ? (before + bytes + PJ_PAGES_PART_BYTES - 1) / PJ_PAGES_PART_BYTES : 0;
}

bool pj_pages_copy_part(const void *mapping, size_t bytes, size_t part, void *scratch)
{
    size_t before = (uintptr_t)mapping % PJ_PAGES_PART_BYTES;
    size_t from = part ? part * PJ_PAGES_PART_BYTES - before : 0;
    size_t to = (part + 1) * PJ_PAGES_PART_BYTES - before;
    char *at = (char *)(uintptr_t)mapping + from;
    if (to > bytes) to = bytes;
    memcpy(scratch, at, to - from);
    if (!pages_map(at, to - from, MAP_FIXED)) return false;
    memcpy(at, scratch, to - from);
    mprotect(at, to - from, PROT_READ);
    return true;
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
