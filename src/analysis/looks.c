/* The standardised sum of the data is a Brownian motion over the share of information. Its density
 * among the paths that have not crossed a bound is carried from look to look by numerical
 * integration, and each bound is set so that the paths that cross it are those to be spent there.
 */
#include "analysis/looks.h"

#include <math.h>

enum { KNOTS = 401 }; /* odd, for Simpson's rule */
static const double root_2_pi = 2.5066282746310002, farthest = 6, far_away = 40;

static double upper_tail(double z)
{
    return erfc(z / sqrt(2)) / 2;
}

static double quantile_of(double tail)
{
    double low = 0, high = far_away;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        *(upper_tail(middle) > tail ? &low : &high) = middle;
    }
    return high;
}

typedef struct density {
    double low, step;
    double weighted[KNOTS]; /* with Simpson's weights */
} density;

static double looks_knot(const density *d, int i)
{
    return d->low + i * d->step;
}

/* At time `t`, for paths below `bound`. */
static void place_knots(density *d, double t, double bound)
{
    d->low = -farthest * sqrt(t);
    d->step = (fmin(bound, farthest * sqrt(t)) - d->low) / (KNOTS - 1);
}

static double simpson_weight(const density *d, int i)
{
    return d->step / 3 * (i == 0 || i == KNOTS - 1 ? 1 : i % 2 ? 4 : 2);
}

static void density_at_first(density *d, double t, double bound)
{
    place_knots(d, t, bound);
    for (int i = 0; i < KNOTS; i++) {
        double x = looks_knot(d, i);
        d->weighted[i] = simpson_weight(d, i) * exp(-x * x / (2 * t)) / (root_2_pi * sqrt(t));
    }
}

static void density_after(const density *before, double elapsed, double t, double bound, density *d)
{
    double sd = sqrt(elapsed);
    place_knots(d, t, bound);
    for (int i = 0; i < KNOTS; i++) {
        double x = looks_knot(d, i), sum = 0;
        for (int k = 0; k < KNOTS; k++) {
            double z = (x - looks_knot(before, k)) / sd;
            if (fabs(z) < farthest + 2) sum += before->weighted[k] * exp(-z * z / 2);
        }
        d->weighted[i] = simpson_weight(d, i) * sum / (root_2_pi * sd);
    }
}

static double share_above(const density *before, double elapsed, double bound)
{
    double sum = 0;
    for (int k = 0; k < KNOTS; k++)
        sum += before->weighted[k] * upper_tail((bound - looks_knot(before, k)) / sqrt(elapsed));
    return sum;
}

static double bound_for(const density *before, double elapsed, double share)
{
    double low = 0, high = far_away;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(share_above(before, elapsed, middle) > share ? &low : &high) = middle;
    }
    return high;
}

void pj_looks_plan(const double *information, uint32_t count, double level, double *p)
{
    density densities[2];
    double half = quantile_of(level / 2), spent = 0, before = 0;
    for (uint32_t k = 0; k < count; k++) {
        double t = information[k] / information[count - 1];
        double spend = 2 * upper_tail(half / sqrt(t));
        density *now = &densities[k % 2], *last = &densities[(k + 1) % 2];
        double bound =
            k ? bound_for(last, t - before, spend - spent) : quantile_of(spend) * sqrt(t);
        p[k] = upper_tail(bound / sqrt(t));
        if (k)
            density_after(last, t - before, t, bound, now);
        else
            density_at_first(now, t, bound);
        spent = spend;
        before = t;
    }
}
