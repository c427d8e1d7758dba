/* The exact decomposition of a difference. */
#include "analysis/decompose.h"

#include <math.h>
#include <stdlib.h>

static void decompose_split(pj_term *t)
{
    t->difference = t->mj_b - t->mj_a;
    t->by_time = t->difference; /* a part that only one side has counts as a difference in time */
    if (t->ms_a > 0 && t->ms_b > 0) t->by_time = t->mj_a / t->ms_a * (t->ms_b - t->ms_a);
    t->by_power = t->difference - t->by_time;
}

static int decompose_by_size(const void *x, const void *y)
{
    double a = fabs(((const pj_term *)x)->difference), b = fabs(((const pj_term *)y)->difference);
    return (a < b) - (a > b);
}

static void fold(pj_term *other, const pj_term *t)
{
    other->ms_a += t->ms_a;
    other->ms_b += t->ms_b;
    other->mj_a += t->mj_a;
    other->mj_b += t->mj_b;
    other->sd_mj = hypot(other->sd_mj, isnan(t->sd_mj) ? 0 : t->sd_mj);
    other->by_time += t->by_time;
    other->by_power += t->by_power;
}

size_t pj_decompose(pj_term *terms, size_t count, double difference_mj, size_t keep)
{
    pj_term other = {.phase = "", .name = "other"};
    double kept = 0;
    for (size_t i = 0; i < count; i++) decompose_split(&terms[i]);
    qsort(terms, count, sizeof *terms, decompose_by_size);
    for (size_t i = keep; i < count; i++) fold(&other, &terms[i]);
    if (count > keep) count = keep;
    for (size_t i = 0; i < count; i++) kept += terms[i].difference;
    other.difference = difference_mj - kept;
    /* What no part explains is counted as time. */
    other.by_time = other.difference - other.by_power;
    terms[count] = other;
    return count + 1;
}
