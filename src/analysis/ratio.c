/* Ratios of geometric means and tests whether they are 1. */
#include "analysis/ratio.h"

#include "analysis/compare.h"

#include <math.h>

static pj_moments log_moments(const double *x, size_t count)
{
    pj_moments m = {0};
    for (size_t i = 0; i < count; i++)
        if (x[i] > 0 && isfinite(x[i])) pj_moments_add(&m, log(x[i]));
    return m;
}

static double variance_of(const pj_moments *m) /* from 2 values on */
{
    return m->squares / (double)(m->n - 1);
}

static void welch_on_logs(const pj_moments *a, const pj_moments *b, double gain_sd, pj_ratio *r)
{
    double va = variance_of(a) / (double)a->n, vb = variance_of(b) / (double)b->n;
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

static double pooled_cv(const pj_moments *a, const pj_moments *b)
{
    double df = (double)(a->n + b->n - 2);
    return sqrt((a->squares + b->squares) / df);
}

/* Logarithms of the usable values, of which there are fewer than PJ_PERMUTE_BELOW. */
static size_t logs_of(const double *x, size_t count, double *out)
{
    size_t n = 0;
    for (size_t i = 0; i < count && n < PJ_PERMUTE_BELOW; i++)
        if (x[i] > 0 && isfinite(x[i])) out[n++] = log(x[i]);
    return n;
}

bool pj_permutation_decides(size_t n_a, size_t n_b, size_t pairs)
{
    return n_a < PJ_PERMUTE_BELOW && n_b < PJ_PERMUTE_BELOW &&
           pj_permutation_least(n_a, n_b) * (double)(pairs ? pairs : 1) < PJ_LEVEL;
}

void pj_ratio_permute(const double *a, size_t n_a, const double *b, size_t n_b, pj_ratio *r)
{
    double x[PJ_PERMUTE_BELOW], y[PJ_PERMUTE_BELOW];
    if (!pj_permutation_decides(r->n_a, r->n_b, r->pairs)) return;
    r->permutation_p = pj_permutation_p(x, logs_of(a, n_a, x), y, logs_of(b, n_b, y));
    r->p = r->permutation_p;
    r->method = "permutation";
}

static pj_ratio ratio_of_means(const pj_moments *a, const pj_moments *b)
{
    return (pj_ratio){.n_a = a->n,
                      .n_b = b->n,
                      .pairs = 1,
                      .mean_a = a->n ? exp(a->mean) : NAN,
                      .mean_b = b->n ? exp(b->mean) : NAN,
                      .ratio = a->n && b->n ? exp(b->mean - a->mean) : NAN,
                      .lo = NAN,
                      .hi = NAN,
                      .p = NAN,
                      .welch_p = NAN,
                      .permutation_p = NAN,
                      .cv = NAN,
                      .method = "none"};
}

void pj_ratio_compare(const double *a, size_t n_a, const double *b, size_t n_b, double gain_sd,
                      pj_ratio *r)
{
    pj_moments ma = log_moments(a, n_a), mb = log_moments(b, n_b);
    *r = ratio_of_means(&ma, &mb);
    if (ma.n < 2 || mb.n < 2) return;
    welch_on_logs(&ma, &mb, gain_sd, r);
    r->p = r->welch_p;
    r->method = "welch_log";
    r->cv = pooled_cv(&ma, &mb);
}

void pj_ratio_paired(const pj_blocked *a, const pj_blocked *b, pj_ratio *r)
{
    pj_moments ma = {0}, mb = {0}, difference = {0};
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        double x = a->values[i], y = b->values[k];
        uint32_t block = a->blocks[i], other = b->blocks[k];
        if (block <= other) i++;
        if (other <= block) k++;
        if (block != other || !(x > 0 && y > 0 && isfinite(x) && isfinite(y))) continue;
        pj_moments_add(&ma, log(x));
        pj_moments_add(&mb, log(y));
        pj_moments_add(&difference, log(y / x));
    }
    *r = ratio_of_means(&ma, &mb);
    if (ma.n < 2) return;
    double n = (double)ma.n, freedom = n - 1, spread = sqrt(variance_of(&difference));
    double error = spread / sqrt(n), reach = pj_student_quantile(1 - PJ_LEVEL / 2, freedom) * error;
    r->lo = exp(difference.mean - reach);
    r->hi = exp(difference.mean + reach);
    r->p = error > 0 ? pj_student_two_sided(difference.mean / error, freedom)
                     : fabs(difference.mean) < 1e-12;
    r->method = "paired_log";
    r->cv = spread / sqrt(2);
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
