/* Half-open intervals of time, [begin, end). */
#ifndef PJ_BASE_INTERVAL_H
#define PJ_BASE_INTERVAL_H

#include <stdint.h>

/* Overlap of two intervals; 0 if they are disjoint. */
static inline int64_t pj_overlap_ns(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
{
    int64_t begin = a_begin > b_begin ? a_begin : b_begin;
    int64_t end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

/* The same for any two structs with `begin_ns` and `end_ns`, in seconds. */
#define PJ_OVERLAP_S(a, b) \
    ((double)pj_overlap_ns((a)->begin_ns, (a)->end_ns, (b)->begin_ns, (b)->end_ns) * 1e-9)

#endif
