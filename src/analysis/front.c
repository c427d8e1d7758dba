/* Pareto front by quadratic search (an experiment has at most thousands of cells), and its knee. */
#include "analysis/front.h"

#include <math.h>
#include <stdbool.h>

static const double least_bend = 0.02; /* distance from the line below which there is no knee */
static const double wide_range = 30;   /* ratio of extremes from which an axis is logarithmic */

/* Whether point i makes point k pointless; of identical points, the first does. */
static bool beats(const double *x, const double *y, size_t i, size_t k)
{
    if (isnan(x[i]) || isnan(y[i]) || x[i] > x[k] || y[i] > y[k]) return false;
    return x[i] < x[k] || y[i] < y[k] || i < k;
}

size_t pj_pareto_front(const double *x, const double *y, size_t count, uint32_t *front)
{
    size_t n = 0;
    for (size_t k = 0; k < count; k++) {
        bool beaten = isnan(x[k]) || isnan(y[k]);
        for (size_t i = 0; i < count && !beaten; i++) beaten = i != k && beats(x, y, i, k);
        if (beaten) continue;
        size_t at = n++;
        for (; at > 0 && x[front[at - 1]] > x[k]; at--) front[at] = front[at - 1];
        front[at] = (uint32_t)k;
    }
    return n;
}

typedef struct axis {
    double lo, hi;
    bool is_log;
} axis;

static axis axis_of(const double *values, const uint32_t *front, size_t count)
{
    axis a = {INFINITY, -INFINITY, false};
    for (size_t i = 0; i < count; i++) {
        a.lo = fmin(a.lo, values[front[i]]);
        a.hi = fmax(a.hi, values[front[i]]);
    }
    a.is_log = a.lo > 0 && a.hi > wide_range * a.lo;
    return a;
}

static double front_position(const axis *a, double value)
{
    if (!(a->hi > a->lo)) return 0;
    if (a->is_log) return log(value / a->lo) / log(a->hi / a->lo);
    return (value - a->lo) / (a->hi - a->lo);
}

size_t pj_pareto_knee(const double *x, const double *y, const uint32_t *front, size_t count)
{
    size_t best = SIZE_MAX;
    double most = least_bend;
    if (count < 3) return SIZE_MAX;
    axis across = axis_of(x, front, count), up = axis_of(y, front, count);
    for (size_t i = 0; i < count; i++) {
        /* The ends lie at (0, 1) and (1, 0), on the line x + y = 1. */
        double below = 1 - front_position(&across, x[front[i]]) - front_position(&up, y[front[i]]);
        if (below > most) {
            most = below;
            best = i;
        }
    }
    return best;
}
