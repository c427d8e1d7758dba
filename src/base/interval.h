/* Half-open intervals of time, [begin, end). */
#ifndef PJ_BASE_INTERVAL_H
#define PJ_BASE_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

/* Overlap of two intervals; 0 if they are disjoint. */
static inline int64_t pj_overlap_ns(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
{
    int64_t begin = a_begin > b_begin ? a_begin : b_begin;
    int64_t end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

/* Index of the first interval that ends after `at_ns`; `count` if none does. They are in order, in
 * structs of `bytes` bytes that begin with begin_ns and end_ns. */
static inline size_t pj_first_after(const void *intervals, size_t count, size_t bytes,
                                    int64_t at_ns)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const int64_t *interval = (const int64_t *)((const char *)intervals + middle * bytes);
        if (interval[1] > at_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The overlap of any two structs with `begin_ns` and `end_ns`, in seconds. */
#define PJ_OVERLAP_S(a, b) \
    ((double)pj_overlap_ns((a)->begin_ns, (a)->end_ns, (b)->begin_ns, (b)->end_ns) * 1e-9)

#endif
