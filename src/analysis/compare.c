/* Two-sample tests. */
#include "analysis/compare.h"

#include "base/estimate.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* ---- Student's t ---- */

/* Continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m <= 500; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int half = 0; half < 2; half++) {
            double term = half ? odd : even;
            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            if (fabs(c) < tiny) c = tiny;
            f *= c * d;
        }
        if (fabs(c * d - 1) < 1e-15) break;
    }
    return f;
}

#ifdef __APPLE__
double lgamma_r(double, int *); /* declared by its header only under _REENTRANT */
#endif

/* lgamma() writes a global variable, and threads compare at once. */
static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* Regularised incomplete beta function I_x(a, b). */
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    double front = exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double pj_student_two_sided(double t, double degrees)
{
    if (isnan(t) || !(degrees > 0)) return NAN;
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double pj_student_quantile(double probability, double degrees)
{
    if (!(degrees > 0) || !(probability > 0.5 && probability < 1)) return NAN;
    double low = 0, high = 1, tail = 2 * (1 - probability);
    while (pj_student_two_sided(high, degrees) > tail && high < 1e12) high *= 2;
    for (int i = 0; i < 200 && high - low > 1e-13 * high; i++) {
        double middle = (low + high) / 2;
        *(pj_student_two_sided(middle, degrees) > tail ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

/* ---- moments ---- */

void pj_moments_add(pj_moments *m, double value)
{
    double away = value - m->mean;
    m->mean += away / ++m->n;
    m->squares += away * (value - m->mean);
}

double pj_half_width(double n, double squares)
{
    return n < 2 ? NAN : pj_student_quantile(0.975, n - 1) * sqrt(squares / (n - 1) / n);
}

pj_mean pj_mean_of(const pj_moments *m, bool may_be_negative)
{
    pj_mean mean = {m->n, m->n ? m->mean : NAN, NAN, NAN, NAN};
    if (m->n < 2) return mean;
    double half = pj_half_width(m->n, m->squares);
    bool positive = !may_be_negative && mean.value > 0;
    mean.sd = sqrt(m->squares / (m->n - 1));
    pj_bounds bounds = positive ? pj_bounds_of(mean.value, half)
                                : (pj_bounds){mean.value - half, mean.value + half};
    mean.lo = bounds.lo;
    mean.hi = bounds.hi;
    return mean;
}

void pj_sample_add(pj_sample *s, double value)
{
    pj_moments_add(&s->plain, value);
    if (value > 0) pj_moments_add(&s->logs, log(value));
}

pj_mean pj_sample_mean(const pj_sample *s, bool may_be_negative)
{
    pj_mean mean = pj_mean_of(&s->plain, may_be_negative);
    if (may_be_negative || !s->plain.n || s->logs.n < s->plain.n) return mean;
    double half = pj_half_width(s->logs.n, s->logs.squares);
    mean.value = exp(s->logs.mean);
    mean.lo = mean.value * exp(-half);
    mean.hi = mean.value * exp(half);
    return mean;
}

static size_t without_nans(const double *from, size_t count, double *to)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(from[i])) to[n++] = from[i];
    return n;
}

static void moments(const double *x, size_t n, double *mean, double *sd)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    *mean = n ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *sd = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

static void welch(pj_comparison *c)
{
    double va = c->sd_a * c->sd_a / (double)c->n_a, vb = c->sd_b * c->sd_b / (double)c->n_b;
    double error = sqrt(va + vb);
    c->difference = c->mean_b - c->mean_a;
    c->welch_t = error > 0 ? c->difference / error : NAN;
    c->welch_df =
        (va + vb) * (va + vb) / (va * va / (double)(c->n_a - 1) + vb * vb / (double)(c->n_b - 1));
    c->welch_p = pj_student_two_sided(c->welch_t, c->welch_df);
    double df = (double)(c->n_a + c->n_b - 2);
    double pooled = sqrt(
        ((double)(c->n_a - 1) * c->sd_a * c->sd_a + (double)(c->n_b - 1) * c->sd_b * c->sd_b) / df);
    c->hedges_g = pooled > 0 ? c->difference / pooled * (1 - 3 / (4 * df - 1)) : NAN;
}

/* ---- ranks ---- */

typedef struct ranked {
    double value;
    double from_a; /* 1 or 0 */
} ranked;

static int compare_by_value(const void *x, const void *y)
{
    double a = ((const ranked *)x)->value, b = ((const ranked *)y)->value;
    return (a > b) - (a < b);
}

static void mann_whitney(const double *a, const double *b, ranked *all, pj_comparison *c)
{
    size_t n = c->n_a + c->n_b;
    double na = (double)c->n_a, nb = (double)c->n_b, total = (double)n, ranks = 0, ties = 0;
    for (size_t i = 0; i < c->n_a; i++) all[i] = (ranked){a[i], 1};
    for (size_t i = 0; i < c->n_b; i++) all[c->n_a + i] = (ranked){b[i], 0};
    qsort(all, n, sizeof *all, compare_by_value);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i; next < n && all[next].value == all[i].value; next++) {
        }
        double group = (double)(next - i), rank = ((double)(i + 1) + (double)next) / 2;
        for (size_t k = i; k < next; k++) ranks += all[k].from_a * rank;
        ties += group * group * group - group;
    }
    double u = ranks - na * (na + 1) / 2, middle = na * nb / 2;
    double spread = sqrt(na * nb / 12 * (total + 1 - ties / (total * (total - 1))));
    double away = fabs(u - middle) - 0.5; /* continuity correction */
    c->mann_whitney_u = u;
    c->mann_whitney_p = spread > 0 ? erfc(fmax(away, 0) / spread / sqrt(2)) : NAN;
    c->rank_biserial = 1 - 2 * u / (na * nb);
}

void pj_compare(const double *a, size_t n_a, const double *b, size_t n_b, double *work,
                pj_comparison *c)
{
    double *x = work, *y = work + n_a;
    *c = (pj_comparison){.difference = NAN,
                         .welch_t = NAN,
                         .welch_df = NAN,
                         .welch_p = NAN,
                         .mann_whitney_u = NAN,
                         .mann_whitney_p = NAN,
                         .hedges_g = NAN,
                         .rank_biserial = NAN};
    c->n_a = without_nans(a, n_a, x);
    c->n_b = without_nans(b, n_b, y);
    moments(x, c->n_a, &c->mean_a, &c->sd_a);
    moments(y, c->n_b, &c->mean_b, &c->sd_b);
    c->difference = c->mean_b - c->mean_a;
    if (c->n_a < 2 || c->n_b < 2) return;
    welch(c);
    ranked *all = pj_alloc(c->n_a + c->n_b, sizeof *all);
    if (!all) return; /* the rank test is then not available */
    mann_whitney(x, y, all, c);
    pj_free(all);
}

void pj_holm(const double *p, size_t count, double *adjusted)
{
    size_t tests = 0, done = 0;
    double floor_p = 0, last = -1;
    for (size_t i = 0; i < count; i++) {
        adjusted[i] = NAN;
        tests += !isnan(p[i]);
    }
    while (done < tests) { /* in ascending order; each at least its predecessor */
        double least = INFINITY;
        for (size_t i = 0; i < count; i++)
            if (!isnan(p[i]) && p[i] > last && p[i] < least) least = p[i];
        if (isinf(least)) break;
        floor_p = fmax(floor_p, fmin(1, least * (double)(tests - done)));
        for (size_t i = 0; i < count; i++)
            if (p[i] == least) {
                adjusted[i] = floor_p;
                done++;
            }
        last = least;
    }
}
