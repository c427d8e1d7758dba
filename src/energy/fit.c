/*
 * The estimator (docs/measurement.md has it in words).
 *
 *   y = A p + B d + e      y: net energy of each window; A: seconds of each class in it; p: powers
 *   p ~ N(m0, P0)          prior: every class at the run's mean power, or a calibration's means
 *   d ~ N(0, sd^2)         drift of the baseline: hats a few seconds wide, only where it helps
 *   e ~ N(0, V)            V[w] = (s E[w])^2 + what is known of the window beforehand
 *
 * s and sd are chosen by the marginal likelihood over a grid. The prior's spread is fixed, never
 * estimated: one taken from the data collapses with poor sensors, and the intervals then lie. Last,
 * the posterior is conditioned on the total, because that was measured: an interval of a part then
 * knows that the sum is known. All in one scale: powers in units of the run's mean power.
 */
#include "energy/attribute.h"

#include "base/memory.h"
#include "energy/design.h"
#include "energy/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SPREAD 0.30
#define CALIBRATION_COMMON \
    0.05 /* a calibration's powers may all be off by one factor: heat, clocks */
#define DRIFT_KNOT_NS 4000000000LL
enum { DRIFT_MAX_KNOTS = 96, DRIFT_WINDOWS_A_KNOT = 12 };

typedef struct problem {
    const pj_fit_input *in;
    pj_design design;
    size_t classes, knots, n; /* n = classes + knots */
    double scale;             /* mW of one unit */
    double *y;                /* [rows] net energy, units x s */
    double *gross;            /* [rows] |gross| energy, units x s, for the relative noise */
    double *sd;               /* [rows] known noise, units x s */
    double *m0;               /* [n] prior means */
    double *d0;               /* [n] prior variances (diagonal part) */
    double *common;           /* [n] direction of the common factor of a calibration, or zeros */
    double *total;            /* [n] seconds of each column in the whole run */
    double total_y;           /* net energy of the run */
    /* per noise level */
    double *normal, *rhs; /* A'V^-1 A [n][n], A'V^-1 r [n] */
    double residual, log_v;
    double *factor; /* [n][n] */
} problem;

/* ---- columns ------------------------------------------------------------------------------ */

/* Integral over [begin, end) of the hat around knot k, in seconds. Knots are evenly spaced over the
 * run. The piecewise linear hat is integrated at the window's middle: windows are short beside it.
 */
static double hat_seconds(const problem *p, size_t k, int64_t begin, int64_t end)
{
    double span = (double)(p->in->end_ns - p->in->begin_ns);
    double position = ((double)(begin - p->in->begin_ns) + (double)(end - begin) / 2) / span *
                      (double)(p->knots - 1);
    double height = 1 - fabs(position - (double)k);
    return height > 0 ? height * (double)(end - begin) * 1e-9 : 0;
}

typedef struct row {
    uint32_t column[4096];
    double seconds[4096];
    size_t count;
} row;

static void get_row(const problem *p, size_t w, row *r)
{
    const pj_design *d = &p->design;
    const pj_window *window = &p->in->windows[w];
    r->count = 0;
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1] && r->count < 4000; i++) {
        r->column[r->count] = d->column[i];
        r->seconds[r->count++] = d->time_ms[i] * 1e-3;
    }
    for (size_t k = 0; k < p->knots; k++) {
        double s = hat_seconds(p, k, window->begin_ns, window->end_ns);
        if (s == 0) continue;
        r->column[r->count] = (uint32_t)(p->classes + k);
        r->seconds[r->count++] = s;
    }
}

static size_t choose_knots(const pj_fit_input *in)
{
    int64_t span = in->end_ns - in->begin_ns;
    size_t knots = (size_t)(span / DRIFT_KNOT_NS) + 1;
    size_t afford = in->window_count / DRIFT_WINDOWS_A_KNOT;
    if (knots > DRIFT_MAX_KNOTS) knots = DRIFT_MAX_KNOTS;
    if (knots > afford) knots = afford;
    return knots >= 3 ? knots : 0;
}

/* ---- set-up ------------------------------------------------------------------------------- */

static void problem_fini(problem *p)
{
    pj_design_fini(&p->design);
    pj_free(p->y);
    pj_free(p->gross);
    pj_free(p->sd);
    pj_free(p->m0);
    pj_free(p->d0);
    pj_free(p->common);
    pj_free(p->total);
    pj_free(p->normal);
    pj_free(p->rhs);
    pj_free(p->factor);
}

static pj_status check_input(const pj_fit_input *in, pj_error *err)
{
    if (in->class_count == 0 || in->class_count > 4000)
        return pj_fail(err, PJ_E_INVALID, "attribution takes 1 to 4000 classes, not %u",
                       in->class_count);
    if (in->end_ns <= in->begin_ns || !isfinite(in->total_mj))
        return pj_fail(err, PJ_E_INVALID,
                       "attribution needs a measured total over a positive time");
    for (size_t i = 0; i < in->leaf_count; i++)
        if (in->leaves[i].class_ >= in->class_count ||
            (i > 0 && in->leaves[i].begin_ns < in->leaves[i - 1].begin_ns))
            return pj_fail(err, PJ_E_INVALID, "leaf %zu is out of order or of no class", i);
    return PJ_OK;
}

static void set_prior(problem *p)
{
    double spread = p->in->prior_spread > 0 ? p->in->prior_spread : DEFAULT_SPREAD;
    for (size_t c = 0; c < p->classes; c++) {
        const pj_class_prior *prior = p->in->priors ? &p->in->priors[c] : NULL;
        p->m0[c] = 1;
        p->d0[c] = spread * spread;
        if (!prior || !isfinite(prior->power_mw) || !isfinite(prior->sd_mw)) continue;
        p->m0[c] = prior->power_mw / p->scale;
        double sd = prior->sd_mw / p->scale;
        p->d0[c] = sd > 1e-6 ? sd * sd : 1e-12;
        p->common[c] = CALIBRATION_COMMON * p->m0[c];
    }
}

static pj_status problem_init(problem *p, const pj_fit_input *in, pj_error *err)
{
    *p = (problem){.in = in, .classes = in->class_count, .knots = choose_knots(in)};
    p->n = p->classes + p->knots;
    if (pj_design_init(&p->design, in, err) != PJ_OK) return err ? err->status : PJ_E_NO_MEMORY;
    size_t rows = in->window_count, n = p->n;
    p->y = pj_alloc(rows, sizeof(double));
    p->gross = pj_alloc(rows, sizeof(double));
    p->sd = pj_alloc(rows, sizeof(double));
    p->m0 = pj_alloc(n, sizeof(double));
    p->d0 = pj_alloc(n, sizeof(double));
    p->common = pj_alloc(n, sizeof(double));
    p->total = pj_alloc(n, sizeof(double));
    p->normal = pj_alloc(n * n, sizeof(double));
    p->rhs = pj_alloc(n, sizeof(double));
    p->factor = pj_alloc(n * n, sizeof(double));
    if (!p->y || !p->gross || !p->sd || !p->m0 || !p->d0 || !p->common || !p->total || !p->normal ||
        !p->rhs || !p->factor)
        return pj_fail_memory(err, "attribution");
    double idle = isfinite(in->idle_mw) ? in->idle_mw : 0;
    double seconds = (double)(in->end_ns - in->begin_ns) * 1e-9;
    double busy = 0;
    for (size_t c = 0; c < p->classes; c++) busy += p->design.total_ms[c] * 1e-3;
    double net = in->total_mj - idle * seconds;
    p->scale = busy > 0 && net > 0 ? net / busy : fabs(in->total_mj) / seconds;
    if (!(p->scale > 0)) p->scale = 1;
    p->total_y = net / p->scale;
    for (size_t w = 0; w < rows; w++) {
        const pj_window *window = &in->windows[w];
        double s = (double)(window->end_ns - window->begin_ns) * 1e-9;
        p->y[w] = (window->energy_mj - idle * s) / p->scale;
        p->gross[w] = fabs(window->energy_mj) / p->scale;
        p->sd[w] = window->sd_mj / p->scale;
    }
    for (size_t c = 0; c < p->classes; c++) p->total[c] = p->design.total_ms[c] * 1e-3;
    for (size_t k = 0; k < p->knots; k++) /* a hat's area; half of it at the ends of the run */
        p->total[p->classes + k] =
            seconds / (double)(p->knots - 1) * (k == 0 || k + 1 == p->knots ? .5 : 1);
    set_prior(p);
    return PJ_OK;
}

/* ---- likelihood ---------------------------------------------------------------------------- */

/* Normal equations for the relative noise s. */
static void accumulate(problem *p, double s)
{
    size_t n = p->n;
    row r;
    memset(p->normal, 0, n * n * sizeof(double));
    memset(p->rhs, 0, n * sizeof(double));
    p->residual = p->log_v = 0;
    for (size_t w = 0; w < p->design.rows; w++) {
        get_row(p, w, &r);
        if (r.count == 0) continue;
        double sd = s * p->gross[w], v = sd * sd + p->sd[w] * p->sd[w], expected = 0;
        if (!(v > 0)) v = 1e-24;
        for (size_t i = 0; i < r.count; i++) expected += r.seconds[i] * p->m0[r.column[i]];
        double rest = p->y[w] - expected;
        p->residual += rest * rest / v;
        p->log_v += log(v);
        for (size_t i = 0; i < r.count; i++) {
            double weighted = r.seconds[i] / v;
            p->rhs[r.column[i]] += weighted * rest;
            double *line = p->normal + r.column[i] * n;
            for (size_t k = 0; k < r.count; k++) line[r.column[k]] += weighted * r.seconds[k];
        }
    }
}

/* factor := Cholesky of P0^-1 + normal; *log_prior := log |P0|. P0 = D + u u' (u: the common factor
 * of a calibration), so P0^-1 = D^-1 - (D^-1 u)(D^-1 u)' / (1 + u' D^-1 u). */
static bool factorise(problem *p, double drift_sd, double *log_prior, double *log_det)
{
    size_t n = p->n;
    double uu = 1;
    *log_prior = 0;
    for (size_t c = 0; c < n; c++) {
        if (c >= p->classes) p->d0[c] = drift_sd * drift_sd;
        uu += p->common[c] * p->common[c] / p->d0[c];
        *log_prior += log(p->d0[c]);
    }
    *log_prior += log(uu);
    for (size_t i = 0; i < n; i++) {
        double ui = p->common[i] / p->d0[i];
        for (size_t k = 0; k <= i; k++) {
            double prior = (i == k ? 1 / p->d0[i] : 0) - ui * p->common[k] / p->d0[k] / uu;
            p->factor[i * n + k] = p->normal[i * n + k] + prior;
        }
    }
    return pj_cholesky(p->factor, n, log_det);
}

/* Log marginal likelihood up to a constant, of the noise accumulated last. */
static double log_evidence(problem *p, double drift_sd, double *delta)
{
    double log_prior, log_det, gain = 0;
    if (!factorise(p, drift_sd, &log_prior, &log_det)) return -INFINITY;
    memcpy(delta, p->rhs, p->n * sizeof(double));
    pj_cholesky_solve(p->factor, p->n, delta);
    for (size_t i = 0; i < p->n; i++) gain += delta[i] * p->rhs[i];
    return -0.5 * (p->log_v + log_det + log_prior + p->residual - gain);
}

/* Grids: the noise from "a perfect counter" to "useless", the drift relative to the mean power. */
static const double drift_grid[] = {1e-6, 0.005, 0.02, 0.08};

/* Tries one noise level with every drift; keeps what is best. */
static void try_noise(problem *p, double s, double *delta, double *best, double *noise,
                      double *drift)
{
    accumulate(p, s);
    for (size_t k = 0; k < (p->knots ? sizeof drift_grid / sizeof *drift_grid : 1); k++) {
        double evidence = log_evidence(p, drift_grid[k], delta);
        if (evidence <= *best) continue;
        *best = evidence;
        *noise = s;
        *drift = drift_grid[k];
    }
}

/* Coarse steps over the whole range, then finer ones around the best: a noise that is off by a
 * fifth would make every interval off by as much. */
static void choose_noise(problem *p, double *delta, double *noise, double *drift)
{
    double best = -INFINITY;
    *noise = 0.3;
    *drift = drift_grid[0];
    for (double s = 1e-6; s < 0.5; s *= 1.6) try_noise(p, s, delta, &best, noise, drift);
    for (double step = sqrt(1.6); step > 1.02; step = sqrt(step)) {
        double middle = *noise;
        try_noise(p, middle / step, delta, &best, noise, drift);
        try_noise(p, middle * step, delta, &best, noise, drift);
    }
}

/* ---- posterior ----------------------------------------------------------------------------- */

/* Mean and covariance given the windows, for the noise accumulated last. */
static bool posterior(problem *p, double drift, double *mean, double *cov)
{
    double log_prior, log_det;
    if (!factorise(p, drift, &log_prior, &log_det)) return false;
    memcpy(mean, p->rhs, p->n * sizeof(double));
    pj_cholesky_solve(p->factor, p->n, mean);
    pj_cholesky_inverse(p->factor, p->n, cov);
    for (size_t c = 0; c < p->n; c++) mean[c] += p->m0[c];
    return true;
}

/* Conditions N(mean, cov) on total' x = total_y, within what the total is known to. */
static void condition_on_total(const problem *p, double *mean, double *cov)
{
    size_t n = p->n;
    double *st = pj_alloc(n, sizeof(double));
    if (!st) return;
    double tst = 0, expected = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) st[i] += cov[i * n + k] * p->total[k];
        tst += st[i] * p->total[i];
        expected += p->total[i] * mean[i];
    }
    if (tst > 0) {
        double sd = isfinite(p->in->total_sd_mj) ? p->in->total_sd_mj / p->scale : 0;
        double variance = tst + sd * sd;
        double factor = (p->total_y - expected) / variance;
        for (size_t i = 0; i < n; i++) mean[i] += st[i] * factor;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n; k++) cov[i * n + k] -= st[i] * st[k] / variance;
    }
    pj_free(st);
}

/* Solves, and as long as some class comes out negative, makes "it is 0" the prior of the most
 * negative one. `free_variance` keeps what each class's variance was before it was held. */
static bool solve_truncated(problem *p, double noise, double drift, double *mean, double *cov,
                            bool *held, double *free_variance)
{
    for (size_t round = 0; round <= p->classes; round++) {
        accumulate(p, noise);
        if (!posterior(p, drift, mean, cov)) return false;
        condition_on_total(p, mean, cov);
        size_t worst = p->classes;
        for (size_t c = 0; c < p->classes; c++) {
            if (held[c]) continue;
            free_variance[c] = cov[c * p->n + c];
            if (mean[c] < 0 && p->total[c] > 0 && (worst == p->classes || mean[c] < mean[worst]))
                worst = c;
        }
        if (worst == p->classes) return true;
        held[worst] = true;
        p->m0[worst] = p->common[worst] = 0;
        p->d0[worst] = 1e-12;
    }
    return true;
}

static double condition_of(const problem *p)
{
    size_t n = p->classes, used = 0;
    double *a = pj_alloc(n * n, sizeof(double));
    size_t *index = pj_alloc(n, sizeof(size_t));
    double condition = NAN;
    if (a && index) {
        for (size_t c = 0; c < n; c++)
            if (p->total[c] > 0 && p->normal[c * p->n + c] > 0) index[used++] = c;
        for (size_t i = 0; i < used; i++)
            for (size_t k = 0; k < used; k++)
                a[i * used + k] = p->normal[index[i] * p->n + index[k]] /
                                  sqrt(p->normal[index[i] * p->n + index[i]] *
                                       p->normal[index[k] * p->n + index[k]]);
        condition = pj_condition_number(a, used);
    }
    pj_free(a);
    pj_free(index);
    return condition;
}

static void predict_total(const problem *p, pj_fit *fit)
{
    double mean = 0, variance = 0, common = 0;
    for (size_t c = 0; c < p->classes; c++) {
        mean += p->total[c] * p->m0[c];
        variance += p->total[c] * p->total[c] * p->d0[c];
        common += p->total[c] * p->common[c];
    }
    double idle = isfinite(p->in->idle_mw) ? p->in->idle_mw : 0;
    fit->predicted_mj = mean * p->scale + idle * (double)(p->in->end_ns - p->in->begin_ns) * 1e-9;
    fit->predicted_sd_mj = sqrt(variance + common * common) * p->scale;
}

/* `prior` has the variances from before any class was held at 0. */
static void publish(const problem *p, const double *prior, const double *mean, const double *cov,
                    const double *free_variance, pj_fit *fit)
{
    size_t classes = p->classes;
    for (size_t c = 0; c < classes; c++) {
        fit->power_mw[c] = fit->truncated[c] || mean[c] < 0 ? 0 : mean[c] * p->scale;
        fit->time_ms[c] = p->design.total_ms[c];
        fit->data_share[c] =
            free_variance[c] < prior[c] ? 1 - fmax(free_variance[c], 0) / prior[c] : 0;
        for (size_t k = 0; k < classes; k++)
            fit->covariance[c * classes + k] = cov[c * p->n + k] * p->scale * p->scale;
        if (fit->truncated[c])
            fit->covariance[c * classes + c] = free_variance[c] * p->scale * p->scale;
    }
}

pj_status pj_fit_run(const pj_fit_input *input, pj_fit *fit, pj_error *err)
{
    problem p = {0};
    double *mean = NULL, *cov = NULL, *prior = NULL, *free_variance = NULL, drift;
    pj_status status = check_input(input, err);
    *fit = (pj_fit){.class_count = input->class_count};
    if (status == PJ_OK) status = problem_init(&p, input, err);
    if (status != PJ_OK) goto done;
    size_t classes = input->class_count;
    fit->power_mw = pj_alloc(classes, sizeof(double));
    fit->covariance = pj_alloc(classes * classes, sizeof(double));
    fit->time_ms = pj_alloc(classes, sizeof(double));
    fit->data_share = pj_alloc(classes, sizeof(double));
    fit->truncated = pj_alloc(classes, sizeof(bool));
    mean = pj_alloc(p.n, sizeof(double));
    cov = pj_alloc(p.n * p.n, sizeof(double));
    prior = pj_alloc(classes, sizeof(double));
    free_variance = pj_alloc(classes, sizeof(double));
    if (!fit->power_mw || !fit->covariance || !fit->time_ms || !fit->data_share ||
        !fit->truncated || !mean || !cov || !prior || !free_variance) {
        status = pj_fail_memory(err, "attribution");
        goto done;
    }
    choose_noise(&p, mean, &fit->noise, &drift);
    for (size_t c = 0; c < classes; c++) prior[c] = p.d0[c] + p.common[c] * p.common[c];
    predict_total(&p, fit);
    if (!solve_truncated(&p, fit->noise, drift, mean, cov, fit->truncated, free_variance)) {
        status = pj_fail(err, PJ_E_INTERNAL, "the attribution's equations could not be solved");
        goto done;
    }
    fit->mean_mw = p.scale;
    fit->drift_mw = p.knots ? drift * p.scale : 0;
    fit->condition_number = condition_of(&p);
    publish(&p, prior, mean, cov, free_variance, fit);
done:
    if (status != PJ_OK) pj_fit_fini(fit);
    problem_fini(&p);
    pj_free(mean);
    pj_free(cov);
    pj_free(prior);
    pj_free(free_variance);
    return status;
}

void pj_fit_fini(pj_fit *fit)
{
    pj_free(fit->power_mw);
    pj_free(fit->covariance);
    pj_free(fit->time_ms);
    pj_free(fit->data_share);
    pj_free(fit->truncated);
    *fit = (pj_fit){0};
}

typedef struct weighted {
    double value, weight;
} weighted;

static int by_value(const void *a, const void *b)
{
    double x = ((const weighted *)a)->value, y = ((const weighted *)b)->value;
    return (x > y) - (x < y);
}

double pj_fit_interval(const pj_fit *fit)
{
    weighted *w = pj_alloc(fit->class_count, sizeof *w);
    size_t count = 0;
    double total = 0, median = NAN;
    for (size_t c = 0; w && c < fit->class_count; c++) {
        double energy = fit->power_mw[c] * fit->time_ms[c];
        if (!(energy > 0)) continue;
        double sd = sqrt(fmax(fit->covariance[c * fit->class_count + c], 0));
        w[count++] = (weighted){1.96 * sd / fit->power_mw[c], energy};
        total += energy;
    }
    if (count) {
        double below = 0;
        qsort(w, count, sizeof *w, by_value);
        for (size_t i = 0; i < count; i++) {
            median = w[i].value;
            if ((below += w[i].weight) >= total / 2) break;
        }
    }
    pj_free(w);
    return median;
}
