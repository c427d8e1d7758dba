/* Segments, the hidden Markov model over them, and its training. */
#include "analysis/phases.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PHASES = PJ_PHASE_COUNT, LEAST_READINGS = 15, STEPS = PJ_PHASE_STEPS };

typedef struct segment {
    size_t from, to;
    double level, share; /* as in pj_phase_model */
    double log_mw, noise;
    double p[PHASES]; /* posterior */
} segment;

/* ---- segments ------------------------------------------------------------------------------- */

static void measure(segment *s, const double *logs)
{
    double sum = 0, squares = 0, n = (double)(s->to - s->from);
    for (size_t i = s->from; i < s->to; i++) sum += logs[i];
    s->log_mw = sum / n;
    for (size_t i = s->from; i < s->to; i++)
        squares += (logs[i] - s->log_mw) * (logs[i] - s->log_mw);
    s->noise = sqrt(squares / n);
}

/* Levels relative to idle and to the trace's top; false: flatter than the noise. */
static bool place(const pj_phase_trace *t, segment *s, size_t n)
{
    double lo = INFINITY, hi = -INFINITY, noise = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, s[i].log_mw);
        hi = fmax(hi, s[i].log_mw);
        noise += s[i].noise * (double)(s[i].to - s[i].from);
        total += (double)(s[i].to - s[i].from);
    }
    if (t->idle_mw > 0) lo = fmin(log(t->idle_mw), lo);
    if (n < 2 || !(hi - lo > 2 * noise / total)) return false;
    for (size_t i = 0; i < n; i++) {
        s[i].level = (s[i].log_mw - lo) / (hi - lo);
        s[i].share = log((double)(s[i].to - s[i].from) / total);
    }
    return true;
}

/* NULL: unknown, or memory is out. */
static segment *cut(const pj_phase_trace *t, size_t *count)
{
    double *logs = pj_alloc(t->count + 1, sizeof *logs);
    size_t *begin = pj_alloc(t->count + 1, sizeof *begin);
    segment *s = NULL;
    *count = 0;
    for (size_t i = 0; logs && i < t->count; i++) logs[i] = log(fmax(t->mw[i], 1e-3));
    if (logs && begin && t->count >= LEAST_READINGS)
        *count = pj_change_points(logs, t->count, begin);
    if (*count) s = pj_alloc(*count, sizeof *s);
    for (size_t i = 0; s && i < *count; i++) {
        s[i].from = begin[i];
        s[i].to = i + 1 < *count ? begin[i + 1] : t->count;
        measure(&s[i], logs);
    }
    if (s && !place(t, s, *count)) {
        pj_free(s);
        s = NULL;
    }
    pj_free(logs);
    pj_free(begin);
    return s;
}

/* ---- the model ------------------------------------------------------------------------------ */

void pj_phase_model_prior(pj_phase_model *m)
{
    /* idle, pre, prefill, decode, post */
    static const double level[] = {0.05, 0.35, 0.95, 0.75, 0.35};
    static const double level_sd[] = {0.08, 0.2, 0.15, 0.2, 0.2};
    static const double share[] = {-1.5, -2.5, -2.2, -0.7, -3.5};
    static const double next[PHASES][PHASES] = {{0.05, 0.40, 0.45, 0.05, 0.05},
                                                {0.10, 0.10, 0.75, 0.04, 0.01},
                                                {0.03, 0.01, 0.06, 0.87, 0.03},
                                                {0.35, 0.01, 0.10, 0.24, 0.30},
                                                {0.80, 0.08, 0.08, 0.02, 0.02}};
    *m = (pj_phase_model){.start = {0.6, 0.2, 0.15, 0.03, 0.02}};
    memcpy(m->next, next, sizeof next);
    for (int p = 0; p < PHASES; p++) {
        m->level[p] = level[p];
        m->level_sd[p] = level_sd[p];
        m->share[p] = share[p];
        m->share_sd[p] = 1.5;
    }
    for (int i = 0; i < STEPS; i++) m->calibrated[i] = (i + 0.5) / STEPS;
}

static double log_normal(double x, double mean, double sd)
{
    double z = (x - mean) / sd;
    return -0.5 * z * z - log(sd);
}

/* A Gaussian with a floor, so that one outlying segment cannot determine the whole path. */
static double emission(const pj_phase_model *m, const segment *s, int p)
{
    double l = log_normal(s->level, m->level[p], m->level_sd[p]) +
               log_normal(s->share, m->share[p], m->share_sd[p]);
    return exp(fmax(l, -30));
}

static void normalise(double *p)
{
    double sum = 0;
    for (int i = 0; i < PHASES; i++) sum += p[i];
    for (int i = 0; i < PHASES; i++) p[i] = sum > 0 ? p[i] / sum : 1.0 / PHASES;
}

/* Forward and backward; the posterior of each segment. False: memory is out. */
static bool infer(const pj_phase_model *m, segment *s, size_t n)
{
    double after[PHASES], carried[PHASES];
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < PHASES; p++) {
            double prior = i ? 0 : m->start[p];
            for (int q = 0; q < PHASES && i; q++) prior += s[i - 1].p[q] * m->next[q][p];
            s[i].p[p] = prior * emission(m, &s[i], p);
        }
        normalise(s[i].p);
    }
    for (int p = 0; p < PHASES; p++) after[p] = 1;
    for (size_t i = n; i-- > 1;) {
        for (int q = 0; q < PHASES; q++) {
            carried[q] = 0;
            for (int p = 0; p < PHASES; p++)
                carried[q] += m->next[q][p] * emission(m, &s[i], p) * after[p];
        }
        normalise(carried);
        memcpy(after, carried, sizeof after);
        for (int q = 0; q < PHASES; q++) s[i - 1].p[q] *= after[q];
        normalise(s[i - 1].p);
    }
    return true;
}

static int best_of(const double *p)
{
    int best = 0;
    for (int i = 1; i < PHASES; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

/* Linear between the middles of the steps. */
static double calibrate(const pj_phase_model *m, double p)
{
    double at = fmin(fmax(p * STEPS - 0.5, 0), STEPS - 1);
    int i = (int)at < STEPS - 1 ? (int)at : STEPS - 2;
    return m->calibrated[i] + (at - i) * (m->calibrated[i + 1] - m->calibrated[i]);
}

size_t pj_phases_detect(const pj_phase_trace *t, const pj_phase_model *m, uint8_t *phase,
                        double *confidence)
{
    size_t n;
    segment *s = cut(t, &n);
    memset(phase, PJ_PHASE_UNKNOWN, t->count);
    for (size_t i = 0; i < t->count; i++) confidence[i] = 0;
    if (!s) return 0;
    infer(m, s, n);
    for (size_t k = 0; k < n; k++) {
        int best = best_of(s[k].p);
        for (size_t i = s[k].from; i < s[k].to; i++) {
            phase[i] = (uint8_t)best;
            confidence[i] = calibrate(m, s[k].p[best]);
        }
    }
    pj_free(s);
    return n;
}

/* ---- training ------------------------------------------------------------------------------- */

/* Sums over tagged stretches, with the prior as a few of them. */
typedef struct tally {
    double n[PHASES], level[PHASES], level_2[PHASES], share[PHASES], share_2[PHASES];
    double start[PHASES], next[PHASES][PHASES];
    uint32_t traces;
} tally;

/* The tag that most readings of a segment carry. */
static int tag_of(const pj_phase_trace *t, const segment *s)
{
    size_t votes[PHASES] = {0};
    int best = 0;
    for (size_t i = s->from; i < s->to; i++)
        if (t->phase[i] < PHASES) votes[t->phase[i]]++;
    for (int p = 1; p < PHASES; p++)
        if (votes[p] > votes[best]) best = p;
    return best;
}

static void count_trace(tally *c, const pj_phase_trace *t)
{
    size_t n;
    segment *s = cut(t, &n);
    int before = -1;
    if (!s) return;
    for (size_t i = 0; i < n; i++) {
        int p = tag_of(t, &s[i]);
        c->n[p]++;
        c->level[p] += s[i].level;
        c->level_2[p] += s[i].level * s[i].level;
        c->share[p] += s[i].share;
        c->share_2[p] += s[i].share * s[i].share;
        if (before < 0)
            c->start[p]++;
        else
            c->next[before][p]++;
        before = p;
    }
    c->traces++;
    pj_free(s);
}

static double spread_of(double n, double sum, double squares, double usual)
{
    double mean = sum / n, variance = squares / n - mean * mean;
    return sqrt(fmax(variance, 0) * n / (n + 2) + usual * usual * 2 / (n + 2));
}

static void estimate(const tally *c, pj_phase_model *m)
{
    pj_phase_model prior;
    pj_phase_model_prior(&prior);
    *m = prior;
    m->traces = c->traces;
    for (int p = 0; p < PHASES; p++) {
        double n = c->n[p];
        for (int q = 0; q < PHASES; q++) m->next[p][q] = c->next[p][q] + prior.next[p][q];
        normalise(m->next[p]);
        m->start[p] = c->start[p] + prior.start[p];
        if (!(n > 0)) continue;
        m->level[p] = c->level[p] / n;
        m->level_sd[p] = fmax(spread_of(n, c->level[p], c->level_2[p], 0.08), 0.02);
        m->share[p] = c->share[p] / n;
        m->share_sd[p] = fmax(spread_of(n, c->share[p], c->share_2[p], 1), 0.3);
    }
    normalise(m->start);
}

/* ---- calibration of the confidence ---------------------------------------------------------- */

typedef struct outcomes {
    double right[STEPS], all[STEPS];
} outcomes;

static void judge(const pj_phase_trace *t, const pj_phase_model *m, outcomes *o, uint8_t *phase,
                  double *confidence)
{
    if (!pj_phases_detect(t, m, phase, confidence)) return;
    for (size_t i = 0; i < t->count; i++) {
        int step = (int)(confidence[i] * STEPS);
        if (step >= STEPS) step = STEPS - 1;
        o->all[step] +=
            0.01; /* little weight per sample: those of a segment are right or wrong together */
        o->right[step] += phase[i] == t->phase[i] ? 0.01 : 0;
    }
}

/* Isotonic regression: pools neighbours until shares of right answers ascend. */
static void pool(const outcomes *o, double calibrated[STEPS])
{
    double right[STEPS], all[STEPS];
    int width[STEPS], n = 0;
    for (int i = 0; i < STEPS; i++) {
        double belief = (i + 0.5) / STEPS; /* a weak prior: the model's own posterior */
        right[n] = o->right[i] + 0.5 * belief;
        all[n] = o->all[i] + 0.5;
        width[n++] = 1;
        for (; n > 1 && right[n - 2] / all[n - 2] >= right[n - 1] / all[n - 1]; n--) {
            right[n - 2] += right[n - 1];
            all[n - 2] += all[n - 1];
            width[n - 2] += width[n - 1];
        }
    }
    for (int k = 0, i = 0; k < n; k++)
        for (int w = 0; w < width[k]; w++) calibrated[i++] = right[k] / all[k];
}

/* Tenfold cross-validation over traces. */
static bool calibrate_model(const pj_phase_trace *traces, size_t count, pj_phase_model *m)
{
    enum { FOLDS = 10 };
    outcomes o = {0};
    size_t longest = 1;
    for (size_t i = 0; i < count; i++)
        if (traces[i].count > longest) longest = traces[i].count;
    uint8_t *phase = pj_alloc(longest, 1);
    double *confidence = pj_alloc(longest, sizeof *confidence);
    bool ok = phase && confidence;
    for (size_t fold = 0; fold < FOLDS && ok; fold++) {
        tally others = {0};
        pj_phase_model without;
        for (size_t i = 0; i < count; i++)
            if (i % FOLDS != fold) count_trace(&others, &traces[i]);
        estimate(&others, &without);
        for (size_t i = fold; i < count; i += FOLDS)
            judge(&traces[i], &without, &o, phase, confidence);
    }
    if (ok) pool(&o, m->calibrated);
    pj_free(phase);
    pj_free(confidence);
    return ok;
}

bool pj_phase_model_train(const pj_phase_trace *traces, size_t count, pj_phase_model *m)
{
    tally c = {0};
    for (size_t i = 0; i < count; i++) count_trace(&c, &traces[i]);
    estimate(&c, m);
    return count < 3 || calibrate_model(traces, count, m);
}
