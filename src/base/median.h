/* Order statistics of doubles. */
#ifndef PJ_BASE_MEDIAN_H
#define PJ_BASE_MEDIAN_H

#include <stddef.h>

/* Ascending. No value may be NAN, which has no place in an order. */
void pj_sort_doubles(double *values, size_t count);

/* Sorts the values. The mean of the two in the middle of an even count; NAN when there are none. */
double pj_median(double *values, size_t count);

#endif
