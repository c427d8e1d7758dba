/* Statistical power of the test that would be used. The spread of single values is taken as known;
 * what varies from comparison to comparison is the difference of the means, the spreads that the
 * test estimates, and with them its degrees of freedom. They are drawn from a fixed seed. */
#include "analysis/ratio.h"

#include "analysis/compare.h"
#include "base/median.h"
#include "base/random.h"

#include <math.h>

enum { DRAWS = 400, KNOTS = 9, HALVINGS = 10, MOST_RUNS = 100000 };
static const double farthest = 10; /* standard deviations that a permutation test may need */

/* ---- Welch's test ---- */

/* A variance estimated with some degrees of freedom, as a multiple of the true one; above a few by
 * the approximation of Wilson and Hilferty. */
static double power_draw_variance(pj_random *random, size_t freedom)
{
    double squares = 0, f = (double)freedom;
    if (freedom > 8) return pow(1 - 2 / (9 * f) + sqrt(2 / (9 * f)) * pj_random_normal(random), 3);
    for (size_t i = 0; i < freedom; i++) squares += pow(pj_random_normal(random), 2);
    return squares / f;
}

/* Student's quantile between the least and the most degrees of freedom of a Welch test: its
 * logarithm at equal steps of their reciprocal. */
typedef struct power_quantiles {
    double least, step; /* of 1 / degrees of freedom */
    double logs[KNOTS];
} power_quantiles;

static power_quantiles power_tabulate(size_t n_a, size_t n_b, double level)
{
    double most = 1 / ((double)(n_a < n_b ? n_a : n_b) - 1), least = 1 / (double)(n_a + n_b - 2);
    power_quantiles q = {least, (most - least) / (KNOTS - 1), {0}};
    for (int i = 0; i < KNOTS; i++)
        q.logs[i] = log(pj_student_quantile(1 - level / 2, 1 / (least + i * q.step)));
    return q;
}

static double power_quantile(const power_quantiles *q, double freedom)
{
    double at = fmin(fmax((1 / freedom - q->least) / q->step, 0), KNOTS - 1);
    int i = at < KNOTS - 2 ? (int)at : KNOTS - 2;
    return exp(q->logs[i] + (at - i) * (q->logs[i + 1] - q->logs[i]));
}

/* How far apart the observed means have to be, in true standard deviations of a value. */
static double power_draw_limit(pj_random *random, const power_quantiles *q, size_t n_a, size_t n_b)
{
    double a = (double)n_a, b = (double)n_b;
    double va = power_draw_variance(random, n_a - 1) / a;
    double vb = power_draw_variance(random, n_b - 1) / b;
    double freedom = (va + vb) * (va + vb) / (va * va / (a - 1) + vb * vb / (b - 1));
    return power_quantile(q, freedom) * sqrt(va + vb);
}

/* The true difference, in standard deviations, that exceeds such limits with PJ_POWER. */
static double power_of_welch(size_t n_a, size_t n_b, double level)
{
    pj_random random = {20261126};
    power_quantiles q = power_tabulate(n_a, n_b, level);
    double limits[DRAWS], error = sqrt(1 / (double)n_a + 1 / (double)n_b), low = 0, high = 0;
    for (int i = 0; i < DRAWS; i++) {
        limits[i] = power_draw_limit(&random, &q, n_a, n_b);
        high = fmax(high, limits[i] + 5 * error);
    }
    for (int k = 0; k < 50; k++) {
        double middle = (low + high) / 2, found = 0;
        for (int i = 0; i < DRAWS; i++) found += erfc((limits[i] - middle) / error / sqrt(2)) / 2;
        *(found < PJ_POWER * DRAWS ? &low : &high) = middle;
    }
    return high;
}

/* ---- the permutation test ---- */

static double power_least_shift(const double *a, size_t n_a, const double *b, size_t n_b,
                                double level)
{
    double low = 0, high = farthest, shifted[PJ_PERMUTE_BELOW];
    for (int k = 0; k < HALVINGS; k++) {
        double middle = (low + high) / 2;
        for (size_t i = 0; i < n_b; i++) shifted[i] = b[i] + middle;
        *(pj_permutation_p(a, n_a, shifted, n_b) < level ? &high : &low) = middle;
    }
    return high;
}

static double power_of_permutation(size_t n_a, size_t n_b, double level)
{
    pj_random random = {20261126};
    double shifts[DRAWS], a[PJ_PERMUTE_BELOW], b[PJ_PERMUTE_BELOW];
    for (int i = 0; i < DRAWS; i++) {
        for (size_t k = 0; k < n_a; k++) a[k] = pj_random_normal(&random);
        for (size_t k = 0; k < n_b; k++) b[k] = pj_random_normal(&random);
        shifts[i] = power_least_shift(a, n_a, b, n_b, level);
    }
    pj_sort_doubles(shifts, DRAWS);
    return shifts[(int)(PJ_POWER * DRAWS)];
}

/* ---- differences and numbers of runs ---- */

double pj_detectable(double cv, size_t n_a, size_t n_b, size_t pairs)
{
    if (!(cv >= 0) || n_a < 2 || n_b < 2) return NAN;
    double level = PJ_LEVEL / (double)(pairs ? pairs : 1);
    double shift = pj_permutation_decides(n_a, n_b, pairs) ? power_of_permutation(n_a, n_b, level)
                                                           : power_of_welch(n_a, n_b, level);
    return expm1(shift * cv);
}

/* As many as a normal distribution of known spread would need: a little too few. */
static size_t power_first_guess(double cv, double step, double level)
{
    double reach = pj_student_quantile(1 - level / 2, 1e6) + pj_student_quantile(PJ_POWER, 1e6);
    double n = ceil(2 * pow(reach * cv / step, 2));
    return n < 2 ? 2 : n > MOST_RUNS ? MOST_RUNS : (size_t)n;
}

double pj_repeats_for(double cv, double difference, size_t pairs)
{
    if (!(cv > 0) || !(difference > 0)) return NAN;
    size_t n = power_first_guess(cv, log1p(difference), PJ_LEVEL / (double)(pairs ? pairs : 1));
    while (n < MOST_RUNS && pj_detectable(cv, n, n, pairs) > difference) n += 1 + n / 64;
    return (double)n;
}
