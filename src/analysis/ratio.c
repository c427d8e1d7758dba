/* Ratios of geometric means and what it takes to tell them from 1. */
#include "analysis/ratio.h"

#include "analysis/compare.h"

#include <math.h>

typedef struct moments {
    size_t n;
    double mean, variance; /* of the logarithms; variance NAN below 2 values */
} moments;

static moments log_moments(const double *x, size_t count)
{
    moments m = {0, 0, NAN};
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(x[i] > 0) || !isfinite(x[i])) continue;
        double away = log(x[i]) - m.mean;
        m.mean += away / (double)++m.n;
        squares += away * (log(x[i]) - m.mean);
    }
    if (m.n > 1) m.variance = squares / (double)(m.n - 1);
    return m;
}

/* Standard errors between no difference and one that is detected with PJ_POWER at PJ_LEVEL, with n
 * values a side: the spread is estimated from them, so that the quantiles are Student's. */
static double reach(double n)
{
    double freedom = 2 * (fmax(n, 2) - 1);
    return pj_student_quantile(1 - PJ_LEVEL / 2, freedom) + pj_student_quantile(PJ_POWER, freedom);
}

double pj_repeats_for(double cv, double difference)
{
    double step = log1p(difference), n = 30;
    if (!(cv > 0) || !(step > 0)) return NAN;
    for (int i = 0; i < 50; i++) n = (n + 2 * pow(reach(n) * cv / step, 2)) / 2;
    return n;
}

double pj_detectable(double cv, double n)
{
    if (!(cv >= 0) || !(n > 0)) return NAN;
    return expm1(sqrt(2 / n) * reach(n) * cv);
}

/* Values a side that would give the same standard error. */
static double balanced(size_t n_a, size_t n_b)
{
    return 2 / (1 / (double)n_a + 1 / (double)n_b);
}

static void welch_on_logs(const moments *a, const moments *b, double gain_sd, pj_ratio *r)
{
    double va = a->variance / (double)a->n, vb = b->variance / (double)b->n;
    double df =
        (va + vb) * (va + vb) / (va * va / (double)(a->n - 1) + vb * vb / (double)(b->n - 1));
    double difference = b->mean - a->mean, error = sqrt(va + vb);
    if (!(error > 0)) { /* no spread on either side: the difference is exact */
        r->lo = exp(difference - 1.96 * gain_sd);
        r->hi = exp(difference + 1.96 * gain_sd);
        r->welch_p = fabs(difference) > 1.96 * gain_sd + 1e-12 ? 0 : 1;
        return;
    }
    double quantile = pj_student_quantile(0.975, df);
    double reach = hypot(quantile * error, 1.96 * gain_sd);
    r->lo = exp(difference - reach);
    r->hi = exp(difference + reach);
    r->welch_p = pj_student_two_sided(difference / (reach / quantile), df);
}

static double pooled_cv(const moments *a, const moments *b)
{
    double df = (double)(a->n + b->n - 2);
    return sqrt(((double)(a->n - 1) * a->variance + (double)(b->n - 1) * b->variance) / df);
}

/* Logarithms of the usable values. */
static size_t logs_of(const double *x, size_t count, double *out)
{
    size_t n = 0;
    for (size_t i = 0; i < count && n < PJ_PERMUTE_BELOW * 4; i++)
        if (x[i] > 0 && isfinite(x[i])) out[n++] = log(x[i]);
    return n;
}

static void permute_small(const double *a, size_t n_a, const double *b, size_t n_b, pj_ratio *r)
{
    double x[PJ_PERMUTE_BELOW * 4], y[PJ_PERMUTE_BELOW * 4];
    size_t n_x = logs_of(a, n_a, x), n_y = logs_of(b, n_b, y);
    if (n_x != r->n_a || n_y != r->n_b) return; /* one side is large: Welch alone */
    r->permutation_p = pj_permutation_p(x, n_x, y, n_y);
    if (pj_permutation_least(n_x, n_y) > PJ_LEVEL) return;
    r->p = r->permutation_p;
    r->method = "permutation";
}

void pj_ratio_compare(const double *a, size_t n_a, const double *b, size_t n_b, double gain_sd,
                      pj_ratio *r)
{
    moments ma = log_moments(a, n_a), mb = log_moments(b, n_b);
    *r = (pj_ratio){.n_a = ma.n,
                    .n_b = mb.n,
                    .mean_a = ma.n ? exp(ma.mean) : NAN,
                    .mean_b = mb.n ? exp(mb.mean) : NAN,
                    .ratio = ma.n && mb.n ? exp(mb.mean - ma.mean) : NAN,
                    .lo = NAN,
                    .hi = NAN,
                    .p = NAN,
                    .welch_p = NAN,
                    .permutation_p = NAN,
                    .cv = NAN,
                    .detectable = NAN,
                    .method = "none"};
    if (ma.n < 2 || mb.n < 2) return;
    welch_on_logs(&ma, &mb, gain_sd, r);
    r->p = r->welch_p;
    r->method = "welch_log";
    r->cv = pooled_cv(&ma, &mb);
    r->detectable = pj_detectable(r->cv, balanced(ma.n, mb.n));
    if ((ma.n < PJ_PERMUTE_BELOW || mb.n < PJ_PERMUTE_BELOW) && !(gain_sd > 0))
        permute_small(a, n_a, b, n_b, r);
}

void pj_benjamini_hochberg(const double *p, size_t count, double *adjusted)
{
    size_t tests = 0;
    for (size_t i = 0; i < count; i++) tests += !isnan(p[i]);
    for (size_t i = 0; i < count; i++) {
        adjusted[i] = NAN;
        if (isnan(p[i])) continue;
        double least = 1; /* minimum over all p at or above this one */
        for (size_t k = 0; k < count; k++) {
            if (isnan(p[k]) || p[k] < p[i]) continue;
            size_t rank = 0;
            for (size_t j = 0; j < count; j++) rank += p[j] <= p[k]; /* false for NAN */
            least = fmin(least, p[k] * (double)tests / (double)rank);
        }
        adjusted[i] = least;
    }
}
