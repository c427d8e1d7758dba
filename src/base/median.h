/* Order statistics of doubles. */
#ifndef PJ_BASE_MEDIAN_H
#define PJ_BASE_MEDIAN_H

#include <stddef.h>

/* Ascending. No value may be NAN, which is unordered. */
void pj_sort_doubles(double *values, size_t count);

/* Sorts the values. The mean of the middle two if the count is even; NAN if it is 0. */
double pj_median(double *values, size_t count);

#endif
