/* Heap functions that let tests fail the Nth allocation and count the allocations of paths that
 * must make none. Arenas hold objects of one lifetime. */
#ifndef PJ_BASE_MEMORY_H
#define PJ_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when out of memory or when count * size overflows. Zeroed. Freed by pj_free. */
void *pj_alloc(size_t count, size_t size);
/* Grows or shrinks; the old block stays valid on failure. New bytes are not zeroed. */
void *pj_resize(void *block, size_t count, size_t size);
/* Zeroed, at a multiple of `alignment` (a power of two, at least sizeof(void *)). */
void *pj_alloc_aligned(size_t alignment, size_t count, size_t size);
/* Room for item number `count` of an array that grows by doubling, at least 16 items: the array,
 * which may have moved; NULL when out of memory, the old one then stays valid. */
void *pj_grow(void *items, size_t count, size_t *capacity, size_t size);
void pj_free(void *block); /* NULL is allowed; frees blocks of all three */
char *pj_strdup(const char *text);
char *pj_strndup(const char *text, size_t bytes);

/* Tests: the next `after` allocations succeed, the one after them fails once; negative: never. */
void pj_memory_fail_after(int64_t after);
/* Tests: allocations made so far by this process through this interface. */
uint64_t pj_memory_count(void);

/* True when a * b (or a + b) does not fit; *result is written only when it fits. */
static inline bool pj_mul_overflows(size_t a, size_t b, size_t *result)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return true;
    *result = r;
    return false;
}
static inline bool pj_add_overflows(size_t a, size_t b, size_t *result)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return true;
    *result = r;
    return false;
}

/* Bump allocator in chunks; everything is freed at once. Not thread-safe. */
typedef struct pj_arena {
    struct pj_arena_chunk *chunks;
    size_t used_bytes;  /* allocated in total */
    size_t limit_bytes; /* pj_arena_alloc returns NULL beyond it; 0: no limit */
} pj_arena;

void pj_arena_init(pj_arena *arena, size_t limit_bytes);          /* allocates nothing yet */
void *pj_arena_alloc(pj_arena *arena, size_t count, size_t size); /* zeroed, aligned to 16 */
/* An array in the arena with `count` elements and room for one more: copies it where it is full,
 * to twice its size, so that only such arrays as this has made may be given. */
void *pj_arena_more(pj_arena *arena, void *array, uint32_t count, size_t size);
char *pj_arena_strndup(pj_arena *arena, const char *text, size_t bytes);
void pj_arena_fini(pj_arena *arena); /* may run twice */

#endif
