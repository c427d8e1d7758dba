#include "base/median.h"

#include "base/estimate.h"

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

/* The slope per value between the medians of the first and the last third, which a few outliers
 * do not bend: what a token takes grows with the context, and growth is not scatter. */
static double slope_of(const double *values, size_t count, double *work)
{
    size_t third = count / 3;
    if (third < 3) return 0;
    for (size_t i = 0; i < third; i++) work[i] = values[i];
    double first = pj_median(work, third);
    for (size_t i = 0; i < third; i++) work[i] = values[count - third + i];
    return (pj_median(work, third) - first) / (double)(count - third);
}

/* Neighbours that share a sensor window err together, so that values stay above or below the
 * median for long. Of `count` independent values, about half change sides from one to the next;
 * the share of changes seen says how many are independent. */
static double independent_of(const double *residuals, size_t count, double middle, size_t steps)
{
    size_t changes = 0, sided = 0;
    int last = 0;
    for (size_t i = 0; i < count; i++) {
        int side = (residuals[i] > middle) - (residuals[i] < middle);
        if (!side) continue;
        sided++;
        changes += last && side != last;
        last = side;
    }
    double most = (double)(steps < count ? steps : count);
    if (sided < 12) return most;
    double usual = ((double)sided - 1) / 2;
    /* Up to two deviations fewer changes are chance. */
    double seen = (double)changes + 2 * sqrt(usual / 2);
    return fmax(fmin(most, most * seen / usual), 4);
}

/* Of an ascending list, between two values where the rank is between them. */
static double value_at(const double *sorted, size_t count, double rank)
{
    double at = fmin(fmax(rank, 0), (double)(count - 1));
    size_t below = (size_t)at;
    if (below + 1 >= count) return sorted[count - 1];
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

double pj_median_sd(const double *values, size_t count, size_t steps, double *work)
{
    if (count < 2) return NAN;
    double slope = slope_of(values, count, work);
    double middle_index = (double)(count - 1) / 2;
    for (size_t i = 0; i < count; i++) work[i] = values[i] - slope * ((double)i - middle_index);
    double *sorted = work + count;
    for (size_t i = 0; i < count; i++) sorted[i] = work[i];
    double middle = pj_median(sorted, count);
    double n = independent_of(work, count, middle, steps);
    /* Ranks n / 2 -+ 0.98 sqrt(n), as shares of the list. */
    double reach = (PJ_Z95 / 2 * sqrt(n) + 0.5) / n * (double)count;
    double width = value_at(sorted, count, middle_index + reach) -
                   value_at(sorted, count, middle_index - reach);
    /* Below five values even the extremes do not hold the median with 95 %: 2 values hold it with
     * 50 %, 3 with 75 %, 4 with 88 %. */
    static const double widened[] = {0, 0, 9, 3.2, 1.8};
    double widen = n < 5 ? widened[(size_t)n] : 1;
    return width / 2 / PJ_Z95 * widen;
}
