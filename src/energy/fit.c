/*
 * The estimator (described in docs/measurement.md): posterior powers of classes given the windows,
 * under the linear model of regression.h.
 *
 * The prior's spread is fixed rather than estimated: an empirical spread collapses with poor
 * sensors and makes intervals too narrow. The classes' common mean gets a wide prior, since the
 * run's mean power is not the mean of its classes; conditioning on the measured total determines
 * it. Sensor noise, the drift of all work and the spread of power within a class are marginalised
 * over a grid, weighted by evidence: with few windows many values are plausible, and an interval
 * conditional on one of them would be too narrow.
 */
#include "energy/attribute.h"

#include "energy/linear.h"
#include "energy/regression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PRIOR_SPREAD 0.30 /* relative 1 sigma of a class's power without a calibration */
#define OPEN_MEAN    1.0  /* 1 sigma of the classes' common level, relative to the run's mean */
/* a calibration's powers may all be off by one factor: temperature, clocks */
#define CALIBRATION_COMMON 0.07

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
            return pj_fail(err, PJ_E_INVALID, "leaf %zu is out of order or has no class", i);
    return PJ_OK;
}

static void set_prior(pj_regression *r)
{
    for (size_t c = 0; c < r->classes; c++) {
        const pj_class_prior *prior = r->in->priors ? &r->in->priors[c] : NULL;
        r->m0[c] = 1;
        r->d0[c] = PRIOR_SPREAD * PRIOR_SPREAD;
        r->common[c] = OPEN_MEAN;
        if (!prior || !isfinite(prior->power_mw) || !isfinite(prior->sd_mw)) continue;
        r->m0[c] = prior->power_mw / r->scale;
        double sd = prior->sd_mw / r->scale;
        r->d0[c] = sd > 1e-6 ? sd * sd : 1e-12;
        r->common[c] = CALIBRATION_COMMON * r->m0[c];
        r->calibrated[c] = true;
    }
}

/* ---- noise and drift ---- */

/* Grids: noise from a perfect to a useless sensor; drift relative to the mean power. The absence of
 * drift can be seen to many more digits with a counter than with power readings. */
static const double drift_grid[] = {0.005, 0.02, 0.08}; /* besides "practically none" */
#define LEAST_NOISE      1e-6
#define LEAST_NOISE_EVER 1e-9
#define MOST_NOISE       0.5
#define FIRST_NOISE      1e-3 /* for the first centring */
#define COARSE_STEP      2.5
#define FINE_STEP        1.12
#define LARGEST_STEP     1.6  /* where the evidence is flat */
#define FLAT             0.1  /* a smaller change of the log evidence makes steps larger, */
#define STEEP            0.5  /* a larger change resets them */
#define LEAST_WEIGHT     1e-3 /* relative to the best: less likely levels are dropped */
enum { DRIFTS = 1 + sizeof drift_grid / sizeof *drift_grid, MAX_NOISES = 64 };
/* Of power within a class, relative to the usual one, and how probable each is beforehand. */
static const double spread_grid[] = {0, 0.35, 1, 2}, spread_prior[] = {0.15, 0.15, 0.5, 0.2};
enum { SPREADS = sizeof spread_grid / sizeof *spread_grid };
enum { MAX_LEVELS = DRIFTS * MAX_NOISES * SPREADS, MAX_KEPT_BYTES = 64 << 20 };

typedef struct level {
    double noise, drift, spread, evidence;
    double width;  /* width in log noise of its grid cell */
    double weight; /* normalised over all levels */
} level;

typedef struct levels {
    double least_noise, drifts[DRIFTS]; /* of the search */
    level items[MAX_LEVELS];
    size_t count;
    level best;
    double spreads[SPREADS], spread_log_prior[SPREADS];
    size_t spread_count;
    pj_regression_sums kept[MAX_NOISES]; /* of the noises with a weight, in their order */
} levels;

/* Noise and drift smaller than a counter's rounding could reveal over the whole run are not
 * tried. */
static void set_range(const pj_regression *r, levels *l)
{
    static const double seconds_a_drift = 4;
    double noise = pj_regression_least_noise(r), drift = 0.1 * sqrt(r->loose / 2) / seconds_a_drift;
    l->least_noise = noise > 0 ? fmin(fmax(noise, LEAST_NOISE_EVER), LEAST_NOISE) : LEAST_NOISE;
    l->drifts[0] = noise > 0 ? fmin(fmax(drift, LEAST_NOISE_EVER), LEAST_NOISE) : LEAST_NOISE;
    for (size_t k = 1; k < DRIFTS; k++) l->drifts[k] = drift_grid[k - 1];
    l->spread_count = r->in->usual_spread > 0 ? SPREADS : 1;
    for (size_t i = 0; i < l->spread_count; i++) {
        l->spreads[i] = spread_grid[i] * r->in->usual_spread;
        l->spread_log_prior[i] = l->spread_count > 1 ? log(spread_prior[i]) : 0;
    }
}

static void fit_start(levels *l, double noise)
{
    l->count = 0;
    l->best = (level){noise, l->drifts[0], 0, -INFINITY, 0, 1};
}

/* Log prior of the noise: with few windows the smallest noise explains them all, and no power
 * sensor is accurate to one part in a million. For a counter, zero noise is plausible: the rest of
 * its prior has as much mass as a flat one over the whole range. */
static double log_prior_noise(const pj_regression *r, double noise, double least)
{
    static const double log_factor = 1.6; /* ln 5 */
    double usual = r->in->usual_noise;
    if (!(usual > 0)) return 0;
    if (r->loose > 0 && noise <= least) return 0;
    double away = log(noise / usual) / log_factor;
    double height = r->loose > 0 ? log(log(MOST_NOISE / least) / (log_factor * sqrt(2 * M_PI))) : 0;
    return height - 0.5 * away * away;
}

/* Evaluates one noise and spread with every drift; returns the highest evidence. */
static double try_noise(pj_regression *r, double noise, size_t spread, double width, levels *l)
{
    double best = -INFINITY, prior = log_prior_noise(r, noise, l->least_noise);
    prior += l->spread_log_prior[spread];
    pj_regression_set_noise(r, noise, l->spreads[spread], false);
    for (size_t k = 0; k < (r->knots ? DRIFTS : 1); k++) {
        double evidence = prior + pj_regression_evidence(r, l->drifts[k]);
        if (k > 0) evidence -= log(DRIFTS - 1); /* equal prior odds for drift and no drift */
        level at = {noise, l->drifts[k], l->spreads[spread], evidence, width, 0};
        if (at.evidence > best) best = at.evidence;
        if (at.evidence > l->best.evidence) l->best = at;
        if (l->count < MAX_LEVELS) l->items[l->count++] = at;
    }
    return best;
}

/* Narrows the coarse grid's step around its best noise: with many windows smaller differences are
 * significant, and a spread evaluated at the wrong noise would seem not to explain the readings. */
static void fit_refine(pj_regression *r, size_t spread, double best, levels *l, double *likeliest)
{
    for (double step = sqrt(COARSE_STEP); step > FINE_STEP; step = sqrt(step)) {
        double middle = *likeliest;
        for (int up = 0; up < 2; up++) {
            double s = up ? middle * step : middle / step;
            if (s < l->least_noise || s > MOST_NOISE) continue;
            double evidence = try_noise(r, s, spread, 0, l);
            if (evidence > best) best = evidence, *likeliest = s;
        }
    }
}

/* Coarse grid over the whole range, to find where to refine: the likeliest noise without a spread,
 * then with each spread, which explains a part of that noise. */
static void find_noise(pj_regression *r, levels *l, double likeliest[SPREADS])
{
    double best = -INFINITY;
    set_range(r, l);
    fit_start(l, MOST_NOISE);
    for (double s = l->least_noise; s < MOST_NOISE; s *= COARSE_STEP) {
        double evidence = try_noise(r, s, 0, 0, l);
        if (evidence > best) best = evidence, likeliest[0] = s;
    }
    fit_refine(r, 0, best, l, &likeliest[0]);
    for (size_t i = 1; i < l->spread_count; i++) {
        double before = best = -INFINITY;
        for (double s = likeliest[0]; s >= l->least_noise; s /= COARSE_STEP) {
            double evidence = try_noise(r, s, i, 0, l);
            if (evidence > best) best = evidence, likeliest[i] = s;
            if (evidence < before + FLAT) break;
            before = evidence;
        }
        fit_refine(r, i, best, l, &likeliest[i]);
    }
}

/* Steps from `middle` down or up until the evidence is negligible, in larger steps where it is
 * flat. */
static void walk_noise(pj_regression *r, double middle, double middle_evidence, bool up,
                       size_t spread, levels *l)
{
    enum { MOST_STEPS = 30 };
    double s = middle, step = FINE_STEP, before = middle_evidence;
    for (int i = 0; i < MOST_STEPS; i++) {
        s = up ? s * step : s / step;
        if (s < l->least_noise || s > MOST_NOISE) break;
        double evidence = try_noise(r, s, spread, log(step), l);
        if (evidence < l->best.evidence + log(LEAST_WEIGHT)) break;
        double change = fabs(evidence - before);
        if (change < FLAT) step = fmin(step * FINE_STEP, LARGEST_STEP);
        if (change > STEEP) step = FINE_STEP;
        before = evidence;
    }
}

/* Posterior of the sensor's noise and of the spread. For a counter, "only rounding" and "some
 * noise" have equal prior odds. */
static void weigh_noise(pj_regression *r, const double likeliest[SPREADS], levels *l)
{
    double sum = 0;
    fit_start(l, likeliest[0]);
    for (size_t i = 0; i < l->spread_count; i++) {
        double middle = likeliest[i];
        if (r->loose > 0) try_noise(r, l->least_noise, i, log(MOST_NOISE / l->least_noise), l);
        double evidence = try_noise(r, middle, i, log(FINE_STEP), l);
        /* a spread that cannot explain the readings needs no width */
        if (evidence < l->best.evidence + log(LEAST_WEIGHT)) continue;
        walk_noise(r, middle, evidence, false, i, l);
        walk_noise(r, middle, evidence, true, i, l);
    }
    for (size_t i = 0; i < l->count; i++) {
        double weight = exp(l->items[i].evidence - l->best.evidence);
        sum += l->items[i].weight = weight < LEAST_WEIGHT ? 0 : weight * l->items[i].width;
    }
    for (size_t i = 0; i < l->count; i++) l->items[i].weight /= sum;
}

static double root_mean_spread(const levels *l)
{
    double sum = 0;
    for (size_t i = 0; i < l->count; i++)
        sum += l->items[i].weight * l->items[i].spread * l->items[i].spread;
    return sqrt(sum);
}

/* Relative to its prior's, which it keeps where there are too few windows to estimate it. */
static double root_mean_drift(const pj_regression *r, const levels *l)
{
    double sum = 0, prior = 0;
    for (size_t k = 1; k < DRIFTS; k++) prior += l->drifts[k] * l->drifts[k] / (DRIFTS - 1) / 2;
    for (size_t i = 0; i < l->count; i++)
        sum += l->items[i].weight * l->items[i].drift * l->items[i].drift;
    return r->knots ? sqrt(sum / prior) : 1;
}

/* 97.5 % quantile of Student's t relative to the normal distribution's (Cornish-Fisher). */
static double students_factor(double freedom)
{
    return 1 + 1.2103 / freedom + 1.4399 / (freedom * freedom);
}

/* The posterior mean, widened so that the normal distribution's 95 % interval covers what Student's
 * t does: n readings determine a noise to about 1 / sqrt(2 n) of itself, and intervals conditional
 * on its mean would cover less than they state. A counter's "no noise" is a separate hypothesis. */
static double mean_noise(const levels *l)
{
    enum { LEAST_FREEDOM = 5 };
    double all = 0, sum = 0, squares = 0, weight = 0, none = 0;
    for (size_t i = 0; i < l->count; i++) {
        const level *at = &l->items[i];
        all += at->weight;
        if (at->noise <= l->least_noise) {
            none += at->weight * at->noise;
            continue;
        }
        weight += at->weight;
        sum += at->weight * at->noise;
        squares += at->weight * at->noise * at->noise;
    }
    if (!(all > 0)) return l->best.noise;
    if (!(weight > 0)) return none / all;
    double variance = squares * weight / (sum * sum) - 1; /* relative */
    double freedom = fmax(1 / fmax(2 * variance, 1e-9), LEAST_FREEDOM);
    return (none + sum * students_factor(freedom)) / all;
}

/* Converted from units of the mean power to energies in mJ. */
static double log_evidence(const pj_regression *r, const levels *l)
{
    double sum = 0, used = 0;
    for (size_t i = 0; i < l->count; i++)
        sum += exp(l->items[i].evidence - l->best.evidence) * l->items[i].width;
    for (size_t w = 0; w < r->design.rows; w++)
        used += r->design.row_begin[w] < r->design.row_begin[w + 1];
    return l->best.evidence + log(sum) - used * log(r->scale);
}

/* ---- posterior ---- */

typedef struct estimate {
    double *mean, *cov;         /* [n], [n][n]: averaged over the levels */
    double *one_mean, *one_cov; /* of one level */
    bool *held;                 /* [classes] negative, therefore set to 0: the fit's `truncated` */
    /* [classes] variances before truncation, and those of the prior */
    double *free_variance, *prior_variance;
    unsigned solutions; /* computed so far */
} estimate;

/* Into one_mean and one_cov, for the noise of the regression's sums. */
static bool solve_level(pj_regression *r, double drift, estimate *e)
{
    e->solutions++;
    return pj_regression_posterior(r, drift, e->one_mean, e->one_cov);
}

/* Recalls the sums at that grid point of the noise: only the prior differs. */
static void come_back(pj_regression *r, levels *l, size_t index, const level *at)
{
    pj_regression_sums *kept = index < MAX_NOISES ? &l->kept[index] : NULL;
    if (kept && kept->normal) {
        pj_regression_recall(r, kept);
        return;
    }
    pj_regression_set_noise(r, at->noise, at->spread, true);
    if (kept && (index + 1) * (r->n + 1) * r->n * sizeof(double) <= MAX_KEPT_BYTES)
        pj_regression_keep(r, kept);
}

/* Mean and covariance of the mixture over levels: disagreement between levels widens it. */
static bool average(pj_regression *r, levels *l, estimate *e)
{
    size_t n = r->n, noises = 0;
    memset(e->mean, 0, n * sizeof(double));
    memset(e->cov, 0, n * n * sizeof(double));
    double noise = NAN, spread = NAN;
    for (size_t k = 0; k < l->count; k++) {
        const level *at = &l->items[k];
        if (at->weight == 0) continue;
        if (at->noise != noise || at->spread != spread) come_back(r, l, noises++, at);
        noise = at->noise, spread = at->spread;
        if (!solve_level(r, at->drift, e)) return false;
        for (size_t i = 0; i < n; i++) {
            e->mean[i] += at->weight * e->one_mean[i];
            for (size_t j = 0; j < n; j++)
                e->cov[i * n + j] +=
                    at->weight * (e->one_cov[i * n + j] + e->one_mean[i] * e->one_mean[j]);
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) e->cov[i * n + j] -= e->mean[i] * e->mean[j];
    return true;
}

/* Replaces the prior of the class with the most negative power by "it is 0"; false: none is. */
static bool hold_worst(pj_regression *r, const double *mean, estimate *e)
{
    size_t worst = r->classes;
    for (size_t c = 0; c < r->classes; c++)
        if (!e->held[c] && mean[c] < 0 && r->design.total_s[c] > 0 &&
            (worst == r->classes || mean[c] < mean[worst]))
            worst = c;
    if (worst == r->classes) return false;
    e->held[worst] = true;
    r->m0[worst] = r->common[worst] = 0;
    r->d0[worst] = 1e-12;
    return true;
}

/* Solves until no power is negative. Classes are held at 0 one after the other, since each changes
 * the others' powers; this is judged at the likeliest level alone, because the mixture has
 * hundreds. The mixture begins it and has the last word. */
static bool solve_truncated(pj_regression *r, levels *l, estimate *e)
{
    for (;;) {
        if (!average(r, l, e)) return false;
        for (size_t c = 0; c < r->classes; c++)
            if (!e->held[c]) e->free_variance[c] = e->cov[c * r->n + c];
        if (!hold_worst(r, e->mean, e)) return true;
        pj_regression_set_noise(r, l->best.noise, l->best.spread, true);
        do {
            if (!solve_level(r, l->best.drift, e)) return false;
        } while (hold_worst(r, e->one_mean, e));
    }
}

/* Takes the sums around the estimate for this noise. */
static bool centre(pj_regression *r, const level *at, estimate *e)
{
    pj_regression_set_noise(r, at->noise, at->spread, true);
    bool ok = solve_level(r, at->drift, e);
    if (ok) pj_regression_centre(r, e->one_mean);
    return ok;
}

/* Of the classes that matter, of a hundredth of the time at least: moments of a run's beginning and
 * end share a single window, and with them it is always infinite. */
static double condition_of(pj_regression *r)
{
    size_t n = r->classes, used = 0;
    double whole_s = 0;
    double *a = pj_arena_alloc(&r->arena, n * n, sizeof(double));
    size_t *index = pj_arena_alloc(&r->arena, n, sizeof(size_t));
    if (!a || !index) return NAN;
    for (size_t c = 0; c < n; c++) whole_s += r->design.total_s[c];
    for (size_t c = 0; c < n; c++)
        if (r->design.total_s[c] > 0.01 * whole_s && r->normal[c * r->n + c] > 0) index[used++] = c;
    for (size_t i = 0; i < used; i++)
        for (size_t k = 0; k < used; k++)
            a[i * used + k] =
                r->normal[index[i] * r->n + index[k]] /
                sqrt(r->normal[index[i] * r->n + index[i]] * r->normal[index[k] * r->n + index[k]]);
    return pj_condition_number(a, used);
}

static void fit_publish(const pj_regression *r, const estimate *e, pj_fit *fit)
{
    size_t classes = r->classes;
    for (size_t c = 0; c < classes; c++) {
        double variance = e->free_variance[c], prior = e->prior_variance[c];
        fit->power_mw[c] = e->held[c] || e->mean[c] < 0 ? 0 : e->mean[c] * r->scale;
        fit->time_ms[c] = r->design.total_s[c] * 1e3;
        fit->data_share[c] = variance < prior ? 1 - fmax(variance, 0) / prior : 0;
        for (size_t k = 0; k < classes; k++)
            fit->covariance[c * classes + k] = e->cov[c * r->n + k] * r->scale * r->scale;
        if (e->held[c]) fit->covariance[c * classes + c] = variance * r->scale * r->scale;
    }
}

/* What the fit keeps is its own; the rest belongs to the regression. */
static bool fit_alloc(pj_fit *fit, estimate *e, pj_regression *r)
{
    size_t classes = r->classes, n = r->n;
    const struct {
        double **array;
        size_t count;
        pj_arena *arena;
    } arrays[] = {{&fit->power_mw, classes, &fit->arena},
                  {&fit->covariance, classes * classes, &fit->arena},
                  {&fit->time_ms, classes, &fit->arena},
                  {&fit->data_share, classes, &fit->arena},
                  {&e->mean, n, &r->arena},
                  {&e->cov, n * n, &r->arena},
                  {&e->one_mean, n, &r->arena},
                  {&e->one_cov, n * n, &r->arena},
                  {&e->free_variance, classes, &r->arena},
                  {&e->prior_variance, classes, &r->arena}};
    fit->truncated = pj_arena_alloc(&fit->arena, classes, sizeof(bool));
    e->held = fit->truncated;
    bool ok = e->held;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ok &= (*arrays[i].array =
                   pj_arena_alloc(arrays[i].arena, arrays[i].count, sizeof(double))) != NULL;
    return ok;
}

static pj_status fit_solve(pj_regression *r, pj_fit *fit, pj_error *err)
{
    estimate e = {0};
    levels *l = pj_arena_alloc(&r->arena, 1, sizeof *l);
    if (!fit_alloc(fit, &e, r) || !l) return pj_fail_memory(err, "attribution");
    set_prior(r);
    pj_regression_centre(r, r->m0);
    /* the unconstrained mean is no information about a class */
    for (size_t c = 0; c < r->classes; c++)
        e.prior_variance[c] = r->d0[c] + (r->calibrated[c] ? r->common[c] * r->common[c] : 0);
    double likeliest[SPREADS] = {FIRST_NOISE};
    centre(r, &(level){.noise = FIRST_NOISE, .drift = LEAST_NOISE}, &e);
    find_noise(r, l, likeliest);
    if (centre(r, &l->best, &e)) pj_regression_relevel(r, e.one_mean);
    weigh_noise(r, likeliest, l);
    fit->noise = mean_noise(l);
    fit->spread = root_mean_spread(l);
    fit->log_evidence = log_evidence(r, l);
    if (r->in->evidence_only) return PJ_OK;
    if (!solve_truncated(r, l, &e))
        return pj_fail(err, PJ_E_INTERNAL, "the attribution's equations could not be solved");
    fit->solutions = e.solutions;
    fit->mean_mw = r->scale;
    fit->drift = root_mean_drift(r, l);
    pj_regression_set_apart(r);
    fit->condition_number = condition_of(r);
    fit_publish(r, &e, fit);
    return PJ_OK;
}

pj_status pj_fit_run(const pj_fit_input *input, pj_fit *fit, pj_error *err)
{
    pj_regression r = {0};
    pj_status status = check_input(input, err);
    *fit = (pj_fit){.class_count = input->class_count};
    if (status == PJ_OK) status = pj_regression_init(&r, input, err);
    if (status == PJ_OK) status = fit_solve(&r, fit, err);
    if (status != PJ_OK) pj_fit_fini(fit);
    pj_regression_fini(&r);
    return status;
}

void pj_fit_fini(pj_fit *fit)
{
    pj_arena_fini(&fit->arena);
    *fit = (pj_fit){0};
}

typedef struct weighted {
    double value, weight;
} weighted;

static int fit_by_value(const void *a, const void *b)
{
    double x = ((const weighted *)a)->value, y = ((const weighted *)b)->value;
    return (x > y) - (x < y);
}

double pj_fit_interval(const pj_fit *fit, const bool *counted)
{
    weighted *w = pj_alloc(fit->class_count, sizeof *w);
    size_t count = 0;
    double total = 0, median = NAN;
    for (size_t c = 0; w && c < fit->class_count; c++) {
        double energy = fit->power_mw[c] * fit->time_ms[c];
        if (!counted[c] || !(energy > 0)) continue;
        double sd = sqrt(fmax(fit->covariance[c * fit->class_count + c], 0));
        w[count++] = (weighted){1.96 * sd / fit->power_mw[c], energy};
        total += energy;
    }
    if (count) {
        double below = 0;
        qsort(w, count, sizeof *w, fit_by_value);
        for (size_t i = 0; i < count; i++) {
            median = w[i].value;
            if ((below += w[i].weight) >= total / 2) break;
        }
    }
    pj_free(w);
    return median;
}
