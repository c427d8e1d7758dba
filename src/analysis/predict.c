/* The fit, its leave-one-out errors, and the range of requests that it covers. */
#include "analysis/predict.h"

#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { TERMS = PJ_PREDICT_TERMS, SWEEPS = 400, BOUNDS = 5, ROUNDS = 20 };

/* Errors up to this count by their square, larger ones by their size: runs differ by some percent
 * for many reasons, by factors only if something else was measured. */
static const double usual_error = 0.1;

/* How far beyond the runs a prediction may lie, as a factor. */
static const double reach = 1.3;

/* Regressors: FLOPs of prefill, FLOPs and bytes of decode, steps, and a constant per request. */
static void terms_of(const pj_request_work *w, double x[TERMS])
{
    double steps = fmax(w->output - 1, 0);
    double end = w->input + steps; /* decode's queries follow the prompt's */
    x[0] =
        w->batch * (w->input * w->flops_per_token + pj_attention_flops(&w->attention, 0, w->input));
    x[1] =
        w->batch * (steps * w->flops_per_token + pj_attention_flops(&w->attention, w->input, end));
    x[2] = steps * w->weight_bytes + w->batch * pj_attention_bytes(&w->attention, w->input, end);
    x[3] = steps + 1;
    x[4] = 1;
}

/* ---- the fit ---- */

typedef struct fit {
    double normal[TERMS][TERMS], right[TERMS]; /* of terms divided by the value: relative errors */
} fit;

static void predict_add(fit *f, const double x[TERMS], double y, double weight)
{
    for (int i = 0; i < TERMS; i++) {
        f->right[i] += weight * x[i] / y;
        for (int k = 0; k < TERMS; k++) f->normal[i][k] += weight * x[i] * x[k] / (y * y);
    }
}

/* Non-negative least squares by coordinate descent: coefficients are costs. */
static void predict_solve(const fit *f, double c[TERMS])
{
    bool moved = true;
    for (int s = 0; s < SWEEPS && moved; s++) {
        moved = false;
        for (int i = 0; i < TERMS; i++) {
            double rest = f->right[i], old = c[i];
            if (!(f->normal[i][i] > 0)) continue;
            for (int k = 0; k < TERMS; k++)
                if (k != i) rest -= f->normal[i][k] * c[k];
            c[i] = fmax(rest / f->normal[i][i], 0);
            moved |= fabs(c[i] - old) > 1e-12 * fabs(c[i]);
        }
    }
}

static double predict_value_of(const double c[TERMS], const double x[TERMS])
{
    double sum = 0;
    for (int i = 0; i < TERMS; i++) sum += c[i] * x[i];
    return sum;
}

/* The conformal quantile: covers `share` of n + 1 values, conservative for small n. */
static double predict_quantile(const double *sorted, size_t n, double share)
{
    double at = share * (double)(n + 1) - 1;
    if (at <= 0) return sorted[0];
    if (at >= (double)(n - 1)) return sorted[n - 1];
    size_t i = (size_t)at;
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

/* Weight of a relative error with which least squares do the next step of a fit to the errors'
 * logarithms (Huber's loss). With relative errors themselves, a single run of a tenth of the energy
 * would outweigh eighty others: its prediction is wrong by 900 %, theirs by 90 % at most. */
static double predict_weight_of(double y, double predicted)
{
    double error = log(predicted / y), off = predicted / y - 1;
    if (!isfinite(error)) return 1; /* nothing is predicted yet */
    double slope = fabs(off) > 1e-6 ? error / off : 1;
    return slope * y / predicted / fmax(fabs(error) / usual_error, 1);
}

/* Reweighted until the weights agree with the coefficients; returns the sums that gave them. */
static fit fit_robustly(const double (*x)[TERMS], const double *y, size_t n, double *weights,
                        double c[TERMS])
{
    fit all = {0};
    for (size_t i = 0; i < n; i++) weights[i] = 1;
    for (int round = 0; round < ROUNDS; round++) {
        all = (fit){0};
        for (size_t i = 0; i < n; i++) predict_add(&all, x[i], y[i], weights[i]);
        predict_solve(&all, c);
        if (round + 1 == ROUNDS) break;
        for (size_t i = 0; i < n; i++)
            weights[i] = predict_weight_of(y[i], predict_value_of(c, x[i]));
    }
    return all;
}

/* Predicts `at` from all, and the errors of each run from the others; `work` holds 3 n doubles. */
static void predict_one(const double (*x)[TERMS], const double *y, size_t n, const double *at,
                        double *work, double out[3], double *median_error)
{
    double *lo = work, *errors = work + n, *weights = work + 2 * n, c[TERMS] = {0}, left[TERMS];
    fit all = fit_robustly(x, y, n, weights, c);
    out[0] = predict_value_of(c, at);
    for (size_t i = 0; i < n; i++) {
        fit without = all;
        predict_add(&without, x[i], y[i], -weights[i]);
        memcpy(left, c, sizeof left);
        predict_solve(&without, left);
        double error = log(y[i] / predict_value_of(left, x[i]));
        errors[i] = fabs(error);
        lo[i] = predict_value_of(left, at) *
                exp(error); /* jackknife+: their prediction, with their error */
    }
    pj_sort_doubles(lo, n);
    pj_sort_doubles(errors, n);
    out[1] = fmin(predict_quantile(lo, n, 0.025), out[0]);
    out[2] = fmax(predict_quantile(lo, n, 0.975), out[0]);
    *median_error = expm1(predict_quantile(errors, n, 0.5));
}

/* ---- what was seen ---- */

static void sizes_of(const pj_request_work *w, double sizes[BOUNDS])
{
    sizes[0] = w->weight_bytes, sizes[1] = w->flops_per_token, sizes[2] = w->input;
    sizes[3] = w->output, sizes[4] = w->batch;
}

/* Sum of squares of the ratios' logarithms. */
static double predict_distance(const pj_request_work *a, const pj_request_work *b)
{
    double x[BOUNDS], y[BOUNDS], sum = 0;
    sizes_of(a, x);
    sizes_of(b, y);
    for (int i = 0; i < BOUNDS; i++) sum += pow(log(x[i] / y[i]), 2);
    return isfinite(sum) ? sum : INFINITY;
}

static void find_nearest(const pj_known_run *runs, size_t count, const pj_request_work *w,
                         pj_prediction *p)
{
    for (size_t i = 0; i < count; i++) {
        double own = predict_distance(&runs[i].work, w);
        size_t at = p->nearest_count;
        while (at > 0 && own < predict_distance(&runs[p->nearest[at - 1]].work, w)) at--;
        if (at == PJ_PREDICT_NEAREST) continue;
        if (p->nearest_count < PJ_PREDICT_NEAREST) p->nearest_count++;
        memmove(p->nearest + at + 1, p->nearest + at,
                (p->nearest_count - 1 - at) * sizeof *p->nearest);
        p->nearest[at] = i;
    }
}

static const char *outside(const pj_known_run *runs, size_t count, const pj_request_work *w)
{
    static const char *const names[BOUNDS] = {
        "no run of this machine has weights of about this size",
        "no run of this machine has as much to compute per token",
        "no run of this machine has a prompt of about this length",
        "no run of this machine has an output of about this length",
        "no run of this machine has a batch of about this size"};
    double own[BOUNDS], theirs[BOUNDS];
    sizes_of(w, own);
    for (int b = 0; b < BOUNDS; b++) {
        double least = INFINITY, most = 0;
        for (size_t i = 0; i < count; i++) {
            sizes_of(&runs[i].work, theirs);
            least = fmin(least, theirs[b]);
            most = fmax(most, theirs[b]);
        }
        if (!(own[b] * reach >= least && own[b] <= most * reach)) return names[b];
    }
    return NULL;
}

void pj_predict(const pj_known_run *runs, size_t count, const pj_request_work *work,
                pj_prediction *p)
{
    double at[TERMS], joules[3], seconds[3], ignored;
    *p = (pj_prediction){.joules = NAN,
                         .joules_lo = NAN,
                         .joules_hi = NAN,
                         .seconds = NAN,
                         .seconds_lo = NAN,
                         .seconds_hi = NAN,
                         .median_error = NAN,
                         .runs = count};
    find_nearest(runs, count, work, p);
    if (count < PJ_PREDICT_LEAST) {
        p->refusal = "fewer than eight runs of this machine";
        return;
    }
    p->refusal = outside(runs, count, work);
    if (p->refusal) return;
    double(*x)[TERMS] = pj_alloc(count, sizeof *x), *y = pj_alloc(4 * count, sizeof *y);
    p->refusal = x && y ? NULL : "memory is out";
    terms_of(work, at);
    for (size_t i = 0; i < count && !p->refusal; i++) {
        terms_of(&runs[i].work, x[i]);
        y[i] = runs[i].joules;
    }
    if (!p->refusal) {
        const double(*terms)[TERMS] = (const double(*)[TERMS])x;
        predict_one(terms, y, count, at, y + count, joules, &p->median_error);
        for (size_t i = 0; i < count; i++) y[i] = runs[i].seconds;
        predict_one(terms, y, count, at, y + count, seconds, &ignored);
        p->joules = joules[0], p->joules_lo = joules[1], p->joules_hi = joules[2];
        p->seconds = seconds[0], p->seconds_lo = seconds[1], p->seconds_hi = seconds[2];
    }
    pj_free(x);
    pj_free(y);
}
