#include "base/median.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void pj_sort_doubles(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
}

double pj_median(double *values, size_t count)
{
    if (count == 0) return NAN;
    pj_sort_doubles(values, count);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}
