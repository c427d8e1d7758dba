/* The linear model: rows of the design with the drift's hats beside them, normal equations, and
 * Gaussian conditioning. Memory is taken at init; nothing else fails. */
#include "energy/regression.h"

#include "base/memory.h"
#include "energy/linear.h"

#include <math.h>
#include <string.h>

#define DRIFT_KNOT_NS 4000000000LL
enum { DRIFT_MAX_KNOTS = 96, DRIFT_WINDOWS_A_KNOT = 12 };

/* ---- columns ------------------------------------------------------------------------------ */

/* Integral over [begin, end) of the hat around knot k, in seconds. Knots are evenly spaced over the
 * run. The piecewise linear hat is integrated at the window's middle: windows are short beside it.
 */
static double hat_seconds(const pj_regression *r, size_t k, int64_t begin, int64_t end)
{
    double span = (double)(r->in->end_ns - r->in->begin_ns);
    double position = ((double)(begin - r->in->begin_ns) + (double)(end - begin) / 2) / span *
                      (double)(r->knots - 1);
    double height = 1 - fabs(position - (double)k);
    return height > 0 ? height * (double)(end - begin) * 1e-9 : 0;
}

typedef struct row {
    uint32_t column[4096];
    double seconds[4096];
    size_t count;
} row;

static void get_row(const pj_regression *r, size_t w, row *out)
{
    const pj_design *d = &r->design;
    const pj_window *window = &r->in->windows[w];
    out->count = 0;
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1] && out->count < 4000; i++) {
        out->column[out->count] = d->column[i];
        out->seconds[out->count++] = d->time_ms[i] * 1e-3;
    }
    for (size_t k = 0; k < r->knots; k++) {
        double s = hat_seconds(r, k, window->begin_ns, window->end_ns);
        if (s == 0) continue;
        out->column[out->count] = (uint32_t)(r->classes + k);
        out->seconds[out->count++] = s;
    }
}

static double expect(const row *w, const double *powers)
{
    double sum = 0;
    for (size_t i = 0; i < w->count; i++) sum += w->seconds[i] * powers[w->column[i]];
    return sum;
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

void pj_regression_fini(pj_regression *r)
{
    double *const arrays[] = {r->y,     r->level,  r->sd,  r->m0,     r->d0,    r->common,
                              r->total, r->normal, r->rhs, r->factor, r->vector};
    pj_design_fini(&r->design);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) pj_free(arrays[i]);
    pj_free(r->calibrated);
    *r = (pj_regression){0};
}

static bool allocate(pj_regression *r)
{
    size_t rows = r->in->window_count, n = r->n;
    const struct {
        double **array;
        size_t count;
    } arrays[] = {{&r->y, rows},   {&r->level, rows},   {&r->sd, rows},     {&r->m0, n},
                  {&r->d0, n},     {&r->common, n},     {&r->total, n},     {&r->rhs, n},
                  {&r->vector, n}, {&r->normal, n * n}, {&r->factor, n * n}};
    r->calibrated = pj_alloc(n, sizeof *r->calibrated);
    bool ok = r->calibrated != NULL;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ok &= (*arrays[i].array = pj_alloc(arrays[i].count, sizeof(double))) != NULL;
    return ok;
}

static double idle_mw(const pj_fit_input *in)
{
    return isfinite(in->idle_mw) ? in->idle_mw : 0;
}

static bool has_prior(const pj_fit_input *in, size_t class_)
{
    return in->priors && isfinite(in->priors[class_].power_mw) &&
           isfinite(in->priors[class_].sd_mw);
}

/* Mean net power of the classes of which nothing is known beforehand, or of all where that says
 * nothing: idle time before and after the work must not thin it. */
static double mean_power(const pj_regression *r, double net_mj)
{
    const pj_fit_input *in = r->in;
    double busy_s = 0, rest_s = 0, rest_mj = net_mj;
    for (size_t c = 0; c < r->classes; c++) {
        double s = r->design.total_ms[c] * 1e-3;
        busy_s += s;
        if (has_prior(in, c))
            rest_mj -= in->priors[c].power_mw * s;
        else
            rest_s += s;
    }
    if (rest_s > 0.01 * busy_s && rest_mj > 0) return rest_mj / rest_s;
    if (busy_s > 0 && net_mj > 0) return net_mj / busy_s;
    double gross = fabs(in->total_mj) / ((double)(in->end_ns - in->begin_ns) * 1e-9);
    return gross > 0 ? gross : 1;
}

/* What is known of a window's noise, when power differs so much from the window before. */
static double known_sd(const pj_window *window, double difference_mw)
{
    return hypot(window->sd_mj, difference_mw * window->shift_s);
}

static void fill(pj_regression *r)
{
    const pj_fit_input *in = r->in;
    double seconds = (double)(in->end_ns - in->begin_ns) * 1e-9;
    double net_mj = in->total_mj - idle_mw(in) * seconds;
    r->scale = mean_power(r, net_mj);
    r->total_y = net_mj / r->scale;
    double before_mw = 0;
    for (size_t w = 0; w < in->window_count; w++) {
        const pj_window *window = &in->windows[w];
        double s = (double)(window->end_ns - window->begin_ns) * 1e-9;
        r->y[w] = (window->energy_mj - idle_mw(in) * s) / r->scale;
        r->level[w] = fabs(window->energy_mj) / r->scale;
        double mw = fabs(window->energy_mj) / s;
        r->sd[w] = known_sd(window, w > 0 ? mw - before_mw : 0) / r->scale;
        before_mw = mw;
    }
    for (size_t c = 0; c < r->classes; c++) r->total[c] = r->design.total_ms[c] * 1e-3;
    for (size_t k = 0; k < r->knots; k++) /* a hat's area; half of it at the ends of the run */
        r->total[r->classes + k] =
            seconds / (double)(r->knots - 1) * (k == 0 || k + 1 == r->knots ? .5 : 1);
}

pj_status pj_regression_init(pj_regression *r, const pj_fit_input *in, pj_error *err)
{
    *r = (pj_regression){.in = in, .classes = in->class_count, .knots = choose_knots(in)};
    r->n = r->classes + r->knots;
    pj_status status = pj_design_init(&r->design, in, err);
    if (status != PJ_OK) return status;
    if (!allocate(r)) return pj_fail_memory(err, "attribution");
    fill(r);
    return PJ_OK;
}

/* ---- likelihood ---------------------------------------------------------------------------- */

void pj_regression_set_noise(pj_regression *r, double noise)
{
    size_t n = r->n;
    row w;
    r->noise = noise;
    memset(r->normal, 0, n * n * sizeof(double));
    memset(r->rhs, 0, n * sizeof(double));
    r->residual = r->log_v = 0;
    for (size_t i = 0; i < r->design.rows; i++) {
        get_row(r, i, &w);
        if (w.count == 0) continue;
        double sd = noise * r->level[i], v = sd * sd + r->sd[i] * r->sd[i];
        if (!(v > 0)) v = 1e-24;
        double rest = r->y[i] - expect(&w, r->m0);
        r->residual += rest * rest / v;
        r->log_v += log(v);
        for (size_t a = 0; a < w.count; a++) {
            double weighted = w.seconds[a] / v;
            r->rhs[w.column[a]] += weighted * rest;
            double *line = r->normal + w.column[a] * n;
            for (size_t b = 0; b < w.count; b++) line[w.column[b]] += weighted * w.seconds[b];
        }
    }
}

void pj_regression_relevel(pj_regression *r, const double *mean)
{
    row w;
    double before_mw = 0;
    for (size_t i = 0; i < r->design.rows; i++) {
        const pj_window *window = &r->in->windows[i];
        double s = (double)(window->end_ns - window->begin_ns) * 1e-9;
        double read = fabs(window->energy_mj) / r->scale;
        get_row(r, i, &w);
        double predicted = expect(&w, mean) + idle_mw(r->in) * s / r->scale;
        double mw = predicted * r->scale / s;
        r->level[i] = fmin(fmax(predicted, read / 2), 2 * read);
        r->sd[i] = known_sd(window, i > 0 ? mw - before_mw : 0) / r->scale;
        before_mw = mw;
    }
}

/* factor := Cholesky of P0^-1 + normal; *log_prior := log |P0|. P0 is a diagonal D with a direction
 * u added in each group: P0^-1 = D^-1 - (D^-1 u)(D^-1 u)' / (1 + u' D^-1 u), group by group. */
static bool factorise(pj_regression *r, double drift_sd, double *log_prior, double *log_det)
{
    size_t n = r->n;
    double along[2] = {1, 1};
    *log_prior = 0;
    for (size_t c = 0; c < n; c++) {
        if (c >= r->classes) r->d0[c] = drift_sd * drift_sd;
        along[r->calibrated[c]] += r->common[c] * r->common[c] / r->d0[c];
        *log_prior += log(r->d0[c]);
    }
    *log_prior += log(along[0]) + log(along[1]);
    for (size_t i = 0; i < n; i++) {
        double ui = r->common[i] / r->d0[i] / along[r->calibrated[i]];
        for (size_t k = 0; k <= i; k++) {
            double prior = i == k ? 1 / r->d0[i] : 0;
            if (r->calibrated[i] == r->calibrated[k]) prior -= ui * r->common[k] / r->d0[k];
            r->factor[i * n + k] = r->normal[i * n + k] + prior;
        }
    }
    return pj_cholesky(r->factor, n, log_det);
}

double pj_regression_evidence(pj_regression *r, double drift_sd)
{
    double log_prior, log_det, gain = 0, *delta = r->vector;
    if (!factorise(r, drift_sd, &log_prior, &log_det)) return -INFINITY;
    memcpy(delta, r->rhs, r->n * sizeof(double));
    pj_cholesky_solve(r->factor, r->n, delta);
    for (size_t i = 0; i < r->n; i++) gain += delta[i] * r->rhs[i];
    return -0.5 * (r->log_v + log_det + log_prior + r->residual - gain);
}

/* ---- posterior ----------------------------------------------------------------------------- */

/* Variance of the run's measured total by the noise of the windows it is made of; windows that
 * overlap or leave time unseen count for the time there is to each. */
static double total_variance(const pj_regression *r)
{
    double squares = 0, seen_ns = 0;
    for (size_t w = 0; w < r->design.rows; w++) {
        const pj_window *window = &r->in->windows[w];
        squares += r->level[w] * r->level[w];
        seen_ns += (double)(window->end_ns - window->begin_ns);
    }
    if (!(seen_ns > 0)) return 0;
    double each = (double)(r->in->end_ns - r->in->begin_ns) / seen_ns;
    return r->noise * r->noise * squares * each * each;
}

/* Conditions N(mean, cov) on total' x = total_y: parts add up to what was measured. The total is a
 * sum over the same noisy windows, so its noise stays in the intervals: moved by k per unit of
 * total, the powers are as uncertain along k as the total is. What the curve itself does not know
 * of the total (time that nobody saw) weakens the condition. */
static void condition_on_total(const pj_regression *r, double *mean, double *cov)
{
    size_t n = r->n;
    double *st = r->vector, tst = 0, expected = 0;
    for (size_t i = 0; i < n; i++) {
        st[i] = 0;
        for (size_t k = 0; k < n; k++) st[i] += cov[i * n + k] * r->total[k];
        tst += st[i] * r->total[i];
        expected += r->total[i] * mean[i];
    }
    if (!(tst > 0)) return;
    double sd = isfinite(r->in->total_sd_mj) ? r->in->total_sd_mj / r->scale : 0;
    double variance = tst + sd * sd, noise = total_variance(r);
    for (size_t i = 0; i < n; i++) mean[i] += st[i] / variance * (r->total_y - expected);
    double kept = 1 / variance - noise / (variance * variance);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) cov[i * n + k] -= st[i] * st[k] * kept;
}

bool pj_regression_posterior(pj_regression *r, double drift_sd, double *mean, double *cov)
{
    double log_prior, log_det;
    if (!factorise(r, drift_sd, &log_prior, &log_det)) return false;
    memcpy(mean, r->rhs, r->n * sizeof(double));
    pj_cholesky_solve(r->factor, r->n, mean);
    pj_cholesky_inverse(r->factor, r->n, cov);
    for (size_t c = 0; c < r->n; c++) mean[c] += r->m0[c];
    condition_on_total(r, mean, cov);
    return true;
}
