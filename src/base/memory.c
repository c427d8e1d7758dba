/* Heap wrapper with fault injection, and arenas. The injection counter is one relaxed atomic,
 * whose cost is negligible next to malloc's. */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_llong allocations;
static atomic_llong fail_at = -1; /* value of `allocations` at which one allocation fails */

static bool injected_failure(void)
{
    long long number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return number == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void pj_memory_fail_after(int64_t after)
{
    atomic_store(&fail_at, after < 0 ? -1 : atomic_load(&allocations) + after);
}

uint64_t pj_memory_count(void)
{
    return (uint64_t)atomic_load(&allocations);
}

/* Requests transparent huge pages (2 MB) before a large block is touched: a page fault costs more
 * than clearing its 4 kB. Best effort; Linux defaults to "madvise". */
static void *use_huge_pages(void *block, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 2u << 20;
    uintptr_t begin = ((uintptr_t)block + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)block + bytes) & ~(page - 1);
    if (block && bytes >= 2 * page && begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* NOLINT(performance-no-int-to-ptr) */
#else
    (void)bytes;
#endif
    return block;
}

void *pj_alloc(size_t count, size_t size)
{
    if (injected_failure()) return NULL;
    void *block = calloc(count ? count : 1, size ? size : 1);
    return use_huge_pages(block, count * size); /* count * size: overflow leaves block NULL */
}

void *pj_resize(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (pj_mul_overflows(count, size, &bytes) || injected_failure()) return NULL;
    return use_huge_pages(realloc(block, bytes ? bytes : 1), bytes);
}

void *pj_grow(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) return items;
    size_t more = *capacity ? 2 * *capacity : 16;
    void *grown = pj_resize(items, more, size);
    if (grown) *capacity = more;
    return grown;
}

void *pj_alloc_aligned(size_t alignment, size_t count, size_t size)
{
    size_t bytes;
    void *block = NULL;
    if (pj_mul_overflows(count, size, &bytes) || injected_failure()) return NULL;
    if (bytes == 0) bytes = 1;
    if (posix_memalign(&block, alignment, bytes) != 0) return NULL;
    return memset(use_huge_pages(block, bytes), 0, bytes);
}

void pj_free(void *block)
{
    free(block);
}

char *pj_strdup(const char *text)
{
    return text ? pj_strndup(text, strlen(text)) : NULL;
}

char *pj_strndup(const char *text, size_t bytes)
{
    size_t size;
    if (pj_add_overflows(bytes, 1, &size)) return NULL;
    char *copy = pj_alloc(size, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

struct pj_arena_chunk {
    struct pj_arena_chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

/* Chunks double in size: clearing 64 KiB would cost a small arena more than all of its use. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* a sanitizer sees more */
enum { FIRST_CHUNK_BYTES = 512, LAST_CHUNK_BYTES = 512 };
#else
enum { FIRST_CHUNK_BYTES = 2048, LAST_CHUNK_BYTES = 64 * 1024 };
#endif

void pj_arena_init(pj_arena *arena, size_t limit_bytes)
{
    *arena = (pj_arena){.limit_bytes = limit_bytes};
}

static struct pj_arena_chunk *add_chunk(pj_arena *arena, size_t bytes)
{
    size_t size = arena->chunks ? 2 * arena->chunks->size : FIRST_CHUNK_BYTES, total;
    if (size > LAST_CHUNK_BYTES) size = LAST_CHUNK_BYTES;
    if (size < bytes) size = bytes;
    if (pj_add_overflows(sizeof(struct pj_arena_chunk), size, &total)) return NULL;
    struct pj_arena_chunk *chunk = pj_alloc(total, 1);
    if (!chunk) return NULL;
    chunk->size = size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *pj_arena_alloc(pj_arena *arena, size_t count, size_t size)
{
    size_t bytes, rounded;
    if (pj_mul_overflows(count, size, &bytes) || pj_add_overflows(bytes, 15, &rounded)) return NULL;
    rounded &= ~(size_t)15;
    if (arena->limit_bytes && rounded > arena->limit_bytes - arena->used_bytes) return NULL;
    struct pj_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < rounded) chunk = add_chunk(arena, rounded);
    if (!chunk) return NULL;
    void *block = chunk->bytes + chunk->used;
    chunk->used += rounded;
    arena->used_bytes += rounded;
    return block;
}

void *pj_arena_more(pj_arena *arena, void *array, uint32_t count, size_t size)
{
    enum { FIRST = 64 };
    bool is_full = count == 0 || (count >= FIRST && (count & (count - 1)) == 0);
    if (!is_full) return array;
    void *more = pj_arena_alloc(arena, count ? 2 * (size_t)count : FIRST, size);
    if (more && count) memcpy(more, array, count * size);
    return more;
}

char *pj_arena_strndup(pj_arena *arena, const char *text, size_t bytes)
{
    size_t size;
    if (pj_add_overflows(bytes, 1, &size)) return NULL;
    char *copy = pj_arena_alloc(arena, size, 1);
    if (copy && bytes) memcpy(copy, text, bytes);
    return copy;
}

void pj_arena_fini(pj_arena *arena)
{
    while (arena->chunks) {
        struct pj_arena_chunk *next = arena->chunks->next;
        pj_free(arena->chunks);
        arena->chunks = next;
    }
    arena->used_bytes = 0;
}
