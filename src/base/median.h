/* Order statistics of doubles. */
#ifndef PJ_BASE_MEDIAN_H
#define PJ_BASE_MEDIAN_H

#include <stddef.h>

/* Ascending. No value may be NAN, which is unordered. */
void pj_sort_doubles(double *values, size_t count);

/* Sorts the values. The mean of the middle two if the count is even; NAN if it is 0. */
double pj_median(double *values, size_t count);

/* The standard deviation of a median from how values scatter around their trend: half the interval
 * between the order statistics that hold it with 95 %, over 1.96. `values` in the order in which
 * they were taken, `steps` of them independent at most (rows of a batch share a step); `work` has
 * room for twice as many. NAN for fewer than two. */
double pj_median_sd(const double *values, size_t count, size_t steps, double *work);

#endif
