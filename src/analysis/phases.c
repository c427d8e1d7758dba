/* Segments, the hidden Markov model over them, and its training. */
#include "analysis/phases.h"

#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { FEW_TRACES = 3 }; /* fewer cannot test what a model learned from them */
enum { WORK_TIMES_IDLE = 2 };
enum { PHASES = PJ_PHASE_COUNT, LEAST_READINGS = 15, STEPS = PJ_PHASE_STEPS, EDGE = PJ_PHASE_EDGE };

typedef struct segment {
    size_t from, to;
    double level, share; /* as in pj_phase_model */
    double log_mw, noise;
    double p[PHASES]; /* posterior */
} segment;

/* ---- segments ---- */

static void phases_measure(segment *s, const double *logs)
{
    double sum = 0, squares = 0, n = (double)(s->to - s->from);
    for (size_t i = s->from; i < s->to; i++) sum += logs[i];
    s->log_mw = sum / n;
    for (size_t i = s->from; i < s->to; i++)
        squares += (logs[i] - s->log_mw) * (logs[i] - s->log_mw);
    s->noise = sqrt(squares / n);
}

/* Share of the trace's time: readings may be sparse where a sensor repeats its value. */
static double time_share(const pj_phase_trace *t, const segment *s)
{
    double begin = t->t_ms[0], whole = t->t_ms[t->count - 1] - begin;
    double end = s->to < t->count ? t->t_ms[s->to] : t->t_ms[t->count - 1];
    double share = (end - t->t_ms[s->from]) / whole;
    return share > 0 ? share : (double)(s->to - s->from) / (double)t->count;
}

/* Levels between idle, at most `lowest`, and the trace's top; false: flatter than the noise. With
 * `few` traces to learn from, work is taken to draw at least WORK_TIMES_IDLE as much as idle time:
 * where a trace varies by less, its lowest level is work, too. */
static bool phases_set_levels(const pj_phase_trace *t, segment *s, size_t n, double lowest,
                              bool few)
{
    double lo = lowest, hi = -INFINITY, noise = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, s[i].log_mw);
        hi = fmax(hi, s[i].log_mw);
        noise += s[i].noise * (double)(s[i].to - s[i].from);
        total += (double)(s[i].to - s[i].from);
    }
    if (t->idle_mw > 0) lo = fmin(log(t->idle_mw), lo);
    if (n < 2 || !(hi - lo > 2 * noise / total)) return false;
    if (few) lo = fmin(lo, hi - log(WORK_TIMES_IDLE));
    for (size_t i = 0; i < n; i++) {
        s[i].level = (s[i].log_mw - lo) / (hi - lo);
        s[i].share = log(time_share(t, &s[i]));
    }
    return true;
}

/* The smallest significant difference between neighbours. NAN: out of memory. */
static double least_rise(const double *v, size_t n)
{
    double lo = INFINITY, hi = -INFINITY, *sorted = pj_alloc(n, sizeof *sorted);
    for (size_t i = 0; sorted && i < n; i++) {
        lo = fmin(lo, v[i]);
        hi = fmax(hi, v[i]);
        sorted[i] = i ? fabs(v[i] - v[i - 1]) : 0;
    }
    if (!sorted) return NAN;
    pj_sort_doubles(sorted, n);
    double noise = 1.48 * sorted[n / 2];
    pj_free(sorted);
    return fmax(3 * noise, 0.01 * (hi - lo));
}

/* The last index of the ramp that begins at `from`: of large differences in one direction. */
static size_t ramp_end(const double *v, size_t n, size_t from, double least)
{
    double direction = v[from + 1] - v[from];
    size_t end = from;
    while (end + 1 < n && fabs(v[end + 1] - v[end]) > least &&
           (v[end + 1] - v[end]) * direction > 0)
        end++;
    return end;
}

/* Whether a reading between two levels is an average of both: below that period it may as well be
 * the power itself, which rises and falls within a millisecond or two. */
static bool mixes_phases(const pj_phase_trace *t)
{
    enum { LEAST_PERIOD_MS = 5 };
    return t->count > 1 && t->t_ms[t->count - 1] - t->t_ms[0] >= LEAST_PERIOD_MS * (double)t->count;
}

/* Of logarithms, in watts. */
static bool is_nearer(double log_mw, double a, double b)
{
    double mw = exp(log_mw);
    return fabs(mw - exp(a)) < fabs(mw - exp(b));
}

/* A sensor that averages shows a step as a ramp, which is not a phase of its own: its first half
 * takes the power before it, its second half the power after it, a single reading the nearer one,
 * and at either end of the trace all of it takes the power that is known. Returns the lowest power
 * of a ramp at an end, INFINITY for none: idle power is at most that. */
static double undo_ramps(double *v, size_t n, bool mixes)
{
    double least = least_rise(v, n), lowest = INFINITY;
    for (size_t from = 0, end; from + 1 < n; from = end > from ? end : from + 1) {
        end = ramp_end(v, n, from, least);
        if (end < from + 2) continue; /* a step */
        double before = v[from], after = v[end];
        size_t middle = from == 0 ? 0 : end == n - 1 ? n : (from + end + 1) / 2;
        if (from == 0 || end == n - 1)
            lowest = fmin(lowest, fmin(before, after));
        else if (mixes && end == from + 2)
            middle += is_nearer(v[from + 1], before, after);
        for (size_t i = from; i <= end; i++) v[i] = i < middle ? before : after;
    }
    return lowest;
}

static double phases_mean_power(const double *logs, size_t from, size_t to)
{
    double sum = 0;
    size_t inner = to - from > 4 ? 1 : 0; /* without the readings at its ends, which may be mixed */
    for (size_t i = from + inner; i < to - inner; i++) sum += exp(logs[i]);
    return log(sum / (double)(to - from - 2 * inner));
}

/* A reading whose window holds the end of one phase and the beginning of the next belongs to the
 * one that fills more of it, which is determined from power in watts, not from its logarithm. */
static void assign_mixed(const double *logs, size_t n, size_t *begin, size_t count)
{
    for (size_t k = 1; k < count; k++) {
        size_t from = begin[k - 1], at = begin[k], to = k + 1 < count ? begin[k + 1] : n;
        double before = phases_mean_power(logs, from, at), after = phases_mean_power(logs, at, to);
        if (at + 2 < to && is_nearer(logs[at], before, after))
            begin[k]++;
        else if (from + 2 < at && is_nearer(logs[at - 1], after, before))
            begin[k]--;
    }
}

/* NULL: unknown, or memory is out. */
static segment *phases_cut(const pj_phase_trace *t, bool few, size_t *count)
{
    double *logs = pj_alloc(t->count + 1, sizeof *logs);
    size_t *begin = pj_alloc(t->count + 1, sizeof *begin);
    segment *s = NULL;
    *count = 0;
    for (size_t i = 0; logs && i < t->count; i++) logs[i] = log(fmax(t->mw[i], 1e-3));
    double lowest = INFINITY;
    bool mixes = mixes_phases(t);
    if (logs && begin && t->count >= LEAST_READINGS) {
        lowest = undo_ramps(logs, t->count, mixes);
        *count = pj_change_points(logs, t->count, begin);
    }
    if (*count && mixes) assign_mixed(logs, t->count, begin, *count);
    if (*count) s = pj_alloc(*count, sizeof *s);
    for (size_t i = 0; s && i < *count; i++) {
        s[i].from = begin[i];
        s[i].to = i + 1 < *count ? begin[i + 1] : t->count;
        phases_measure(&s[i], logs);
    }
    if (s && !phases_set_levels(t, s, *count, lowest, few)) {
        pj_free(s);
        s = NULL;
    }
    pj_free(logs);
    pj_free(begin);
    return s;
}

/* ---- the model ---- */

enum { PRIOR_TRACES = 3 };    /* recordings of real cards that the prior was tested on */
enum { TRACE_SUCCESSES = 3 }; /* phases of one trace of a cross-validation, which are alike */

/* No confidence exceeds what as many successes support (the rule of succession): a model that few
 * traces have tested may be wrong on the next one, however sure it is. */
static void limit_confidence(pj_phase_model *m, double tested)
{
    double most = (tested + 1) / (tested + 2);
    for (int i = 0; i < STEPS; i++) m->calibrated[i] = fmin(m->calibrated[i], most);
}

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
    static const double edge[2][EDGE] = {{0.78, 0.89, 0.93, 0.95}, {0.88, 0.96, 0.97, 0.98}};
    *m = (pj_phase_model){.start = {0.6, 0.2, 0.15, 0.03, 0.02}};
    memcpy(m->next, next, sizeof next);
    for (int p = 0; p < PHASES; p++) {
        m->level[p] = level[p];
        m->level_sd[p] = level_sd[p];
        m->share[p] = share[p];
        m->share_sd[p] = 1.5;
        m->log_mw[p] = m->log_mw_sd[p] = NAN;
    }
    /* On simulated machines that it does not know (bench/sim_phases.h), 40 % of its names are right
     * below a posterior of 0.8, and more above it. */
    for (int i = 0; i < STEPS; i++)
        m->calibrated[i] = 0.4 + 0.4 * fmax((i + 0.5) / STEPS - 0.8, 0) / 0.18;
    memcpy(m->edge, edge, sizeof edge);
    limit_confidence(m, PRIOR_TRACES);
}

static double log_normal(double x, double mean, double sd)
{
    double z = (x - mean) / sd;
    return -0.5 * z * z - log(sd);
}

/* Student's t with 3 degrees of freedom: lengths vary by more than any collection shows. */
static double log_heavy(double x, double mean, double sd)
{
    double z = (x - mean) / sd;
    return -2 * log1p(z * z / 3) - log(sd);
}

/* With a floor, so that one outlying segment cannot determine the whole path. */
static double emission(const pj_phase_model *m, const segment *s, int p)
{
    bool absolute =
        m->log_mw_sd[p] > 0; /* more informative than the level, which depends on the trace */
    double power = absolute ? log_heavy(s->log_mw, m->log_mw[p], m->log_mw_sd[p])
                            : log_normal(s->level, m->level[p], m->level_sd[p]);
    double l = power + log_heavy(s->share, m->share[p], m->share_sd[p]);
    return exp(fmax(l, -30));
}

static void phases_normalise(double *p)
{
    double sum = 0;
    for (int i = 0; i < PHASES; i++) sum += p[i];
    for (int i = 0; i < PHASES; i++) p[i] = sum > 0 ? p[i] / sum : 1.0 / PHASES;
}

/* Forward and backward; the posterior of each segment. */
static void infer(const pj_phase_model *m, segment *s, size_t n)
{
    double after[PHASES], carried[PHASES];
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < PHASES; p++) {
            double prior = i ? 0 : m->start[p];
            for (int q = 0; q < PHASES && i; q++) prior += s[i - 1].p[q] * m->next[q][p];
            s[i].p[p] = prior * emission(m, &s[i], p);
        }
        phases_normalise(s[i].p);
    }
    for (int p = 0; p < PHASES; p++) after[p] = 1;
    for (size_t i = n; i-- > 1;) {
        for (int q = 0; q < PHASES; q++) {
            carried[q] = 0;
            for (int p = 0; p < PHASES; p++)
                carried[q] += m->next[q][p] * emission(m, &s[i], p) * after[p];
        }
        phases_normalise(carried);
        memcpy(after, carried, sizeof after);
        for (int q = 0; q < PHASES; q++) s[i - 1].p[q] *= after[q];
        phases_normalise(s[i - 1].p);
    }
}

static int best_of(const double *p)
{
    int best = 0;
    for (int i = 1; i < PHASES; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

/* Linear between the middles of the steps. */
static double phases_calibrate(const pj_phase_model *m, double p)
{
    double at = fmin(fmax(p * STEPS - 0.5, 0), STEPS - 1);
    int i = (int)at < STEPS - 1 ? (int)at : STEPS - 2;
    return m->calibrated[i] + (at - i) * (m->calibrated[i + 1] - m->calibrated[i]);
}

static bool is_near_a_phase(const pj_phase_model *m, const segment *s)
{
    for (int p = 0; p < PHASES; p++)
        if (fabs(s->log_mw - m->log_mw[p]) < 4 * m->log_mw_sd[p]) return true;
    return false;
}

/* A trace of a machine outside the training set is classified without its absolute power. */
static bool is_known_machine(const pj_phase_model *m, const segment *s, size_t n)
{
    size_t near = 0, all = 0;
    if (!(m->log_mw_sd[PJ_PHASE_DECODE] > 0)) return false;
    for (size_t k = 0; k < n; k++) {
        all += s[k].to - s[k].from;
        if (is_near_a_phase(m, &s[k])) near += s[k].to - s[k].from;
    }
    return 10 * near >= 9 * all;
}

/* Levels that differ by less than a tenth are told apart by their absolute power, if at all: which
 * is idle, and which of two is prefill, depends on the machine. */
static bool are_alike(const pj_phase_model *m, const segment *s, size_t n)
{
    double lowest = s[0].log_mw, highest = s[0].log_mw;
    for (size_t k = 1; k < n; k++) {
        lowest = fmin(lowest, s[k].log_mw);
        highest = fmax(highest, s[k].log_mw);
    }
    return highest - lowest < log(1.1) && !is_known_machine(m, s, n);
}

/* The samples [*from, *to) of the segments around segment `k` that have the same phase. */
static void stretch_of(const segment *s, size_t n, size_t k, size_t *from, size_t *to)
{
    int best = best_of(s[k].p);
    size_t first = k, last = k;
    while (first > 0 && best_of(s[first - 1].p) == best) first--;
    while (last + 1 < n && best_of(s[last + 1].p) == best) last++;
    *from = s[first].from;
    *to = s[last].to;
}

/* How far a sample is from the change of phase before it, at `from`, and from the one after it, at
 * `to`; EDGE: so far that it does not matter, or none, since the trace begins or ends there. */
static void edges_of(size_t i, size_t from, size_t to, size_t count, size_t distance[2])
{
    distance[0] = from > 0 && i - from < EDGE ? i - from : EDGE;
    distance[1] = to < count && to - 1 - i < EDGE ? to - 1 - i : EDGE;
}

/* Names every sample of the segments. */
static void name_samples(const pj_phase_model *m, segment *s, size_t n, uint8_t *phase,
                         double *confidence)
{
    pj_phase_model relative;
    size_t count = s[n - 1].to, from, to, distance[2];
    if (!is_known_machine(m, s, n)) {
        relative = *m;
        for (int p = 0; p < PHASES; p++) relative.log_mw_sd[p] = NAN;
        m = &relative;
    }
    infer(m, s, n);
    for (size_t k = 0; k < n; k++) {
        int best = best_of(s[k].p);
        double all = phases_calibrate(m, s[k].p[best]);
        stretch_of(s, n, k, &from, &to);
        for (size_t i = s[k].from; i < s[k].to; i++) {
            edges_of(i, from, to, count, distance);
            phase[i] = (uint8_t)best;
            confidence[i] = all;
            for (int side = 0; side < 2; side++)
                if (distance[side] < EDGE) confidence[i] *= m->edge[side][distance[side]];
        }
    }
}

size_t pj_phases_detect(const pj_phase_trace *t, const pj_phase_model *m, uint8_t *phase,
                        double *confidence)
{
    size_t n;
    segment *s = phases_cut(t, m->traces < FEW_TRACES, &n);
    memset(phase, PJ_PHASE_UNKNOWN, t->count);
    for (size_t i = 0; i < t->count; i++) confidence[i] = 0;
    if (!s) return 0;
    if (are_alike(m, s, n))
        n = 0;
    else
        name_samples(m, s, n, phase, confidence);
    pj_free(s);
    return n;
}

/* ---- training ---- */

/* Sums over tagged segments, weighted so that all segments of one phase in one trace count as one:
 * they are alike, and a trace of a hundred short requests is no more informative about other
 * machines than one of a single request. Transitions are counted as they are. */
typedef struct weighted {
    double n, sum, squares;
} weighted;

typedef struct tally {
    weighted level[PHASES], share[PHASES], log_mw[PHASES];
    weighted decode; /* mean log power of decode, once per trace */
    double start[PHASES], next[PHASES][PHASES];
    uint32_t traces;
} tally;

static void weigh(weighted *w, double value, double weight)
{
    w->n += weight;
    w->sum += weight * value;
    w->squares += weight * value * value;
}

/* The tag that most readings of a segment carry. */
static int tag_of(const pj_phase_trace *t, const segment *s)
{
    double votes[PHASES] = {0};
    for (size_t i = s->from; i < s->to; i++)
        if (t->phase[i] < PHASES) votes[t->phase[i]]++;
    return best_of(votes);
}

/* A trace with its segments; they take much longer to find than to use. */
typedef struct pieces {
    const pj_phase_trace *trace;
    segment *segments; /* NULL: too short or too flat */
    size_t count;
} pieces;

static void count_machine(tally *c, const pj_phase_trace *t)
{
    double n = 0, sum = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (t->phase[i] != PJ_PHASE_DECODE) continue;
        sum += log(fmax(t->mw[i], 1e-3));
        n++;
    }
    if (!(n > 0)) return;
    weigh(&c->decode, sum / n, 1);
}

static void count_trace(tally *c, const pieces *of)
{
    const segment *s = of->segments;
    double alike[PHASES] = {0}, samples[PHASES] = {0};
    int before = -1;
    if (!s) return;
    for (size_t i = 0; i < of->count; i++) {
        int p = tag_of(of->trace, &s[i]);
        alike[p]++;
        samples[p] += (double)(s[i].to - s[i].from);
    }
    for (size_t i = 0; i < of->count; i++) {
        int p = tag_of(of->trace, &s[i]);
        /* powers count by length: the ramp of a slow sensor is a segment but no level */
        double length = (double)(s[i].to - s[i].from) / samples[p];
        weigh(&c->share[p], s[i].share, 1 / alike[p]);
        weigh(&c->level[p], s[i].level, length);
        weigh(&c->log_mw[p], s[i].log_mw, length);
        if (before < 0)
            c->start[p]++;
        else
            c->next[before][p]++;
        before = p;
    }
    count_machine(c, of->trace);
    if (of->trace->idle_mw > 0 && !(alike[PJ_PHASE_IDLE] > 0))
        weigh(&c->log_mw[PJ_PHASE_IDLE], log(of->trace->idle_mw), 1);
    c->traces++;
}

static double spread_of(double n, const weighted *w, double usual)
{
    double mean = w->sum / n, variance = w->squares / n - mean * mean;
    return sqrt(fmax(variance, 0) * n / (n + 2) + usual * usual * 2 / (n + 2));
}

/* How plausible a phase is that no trace of the training had: less with every trace. Idle time is
 * plausible always, since recorded runs rarely contain any. */
static double plausible(const tally *c, int p)
{
    return c->share[p].n > 0 || p == PJ_PHASE_IDLE ? 1 : 1.0 / (1 + c->traces);
}

/* Whether the traces are of one machine, or of alike ones: decode draws about the same in each. */
static bool one_machine(const weighted *decode)
{
    enum { LEAST_TRACES = 3 };
    double mean = decode->sum / decode->n, variance = decode->squares / decode->n - mean * mean;
    return decode->n >= LEAST_TRACES && variance < 0.2 * 0.2;
}

/* For all phases or for none: one without it would win wherever the others are unlikely. */
static void estimate_powers(const tally *c, pj_phase_model *m)
{
    weighted all = {0};
    for (int p = 0; p < PHASES; p++) {
        all.n += c->log_mw[p].n;
        all.sum += c->log_mw[p].sum;
        all.squares += c->log_mw[p].squares;
    }
    for (int p = 0; p < PHASES && one_machine(&c->decode); p++) {
        const weighted *own = &c->log_mw[p];
        bool known = own->n > 0;
        m->log_mw[p] = known ? own->sum / own->n : all.sum / all.n;
        m->log_mw_sd[p] =
            known ? fmax(spread_of(own->n, own, 0.2), 0.03) : fmax(spread_of(all.n, &all, 1), 1);
    }
}

/* Mean and deviation of `n` traces and of the prior, which counts as one more: a single trace says
 * little about the next one. */
static void join_prior(const weighted *w, double n, double *mean, double *sd)
{
    double squares = (w->squares + *mean * *mean + *sd * *sd) / (n + 1);
    *mean = (w->sum + *mean) / (n + 1);
    *sd = sqrt(fmax(squares - *mean * *mean, 0));
}

static void estimate(const tally *c, pj_phase_model *m)
{
    pj_phase_model prior;
    pj_phase_model_prior(&prior);
    *m = prior;
    m->traces = c->traces;
    for (int p = 0; p < PHASES; p++) {
        double n = c->share[p].n;
        for (int q = 0; q < PHASES; q++)
            m->next[p][q] = (c->next[p][q] + prior.next[p][q]) * plausible(c, q);
        phases_normalise(m->next[p]);
        m->start[p] = (c->start[p] + prior.start[p]) * plausible(c, p);
        join_prior(&c->level[p], n, &m->level[p], &m->level_sd[p]);
        join_prior(&c->share[p], n, &m->share[p], &m->share_sd[p]);
    }
    phases_normalise(m->start);
    estimate_powers(c, m);
}

/* ---- calibration of the confidence ---- */

/* Samples away from changes of the phase, by step of their posterior; those near to one, by side
 * and distance, too. Each trace counts the same: its samples are right or wrong by segments. */
typedef struct outcomes {
    double right[STEPS], all[STEPS];
    double edge_right[2][EDGE], edge_all[2][EDGE][STEPS];
} outcomes;

static int step_of(double p)
{
    int step = (int)(p * STEPS);
    return step < STEPS ? step : STEPS - 1;
}

static void score_segment(const pieces *of, size_t k, const uint8_t *phase, outcomes *o)
{
    enum { TRACE = 3 }; /* what a trace weighs against the prior, the posterior itself */
    const segment *s = &of->segments[k];
    const pj_phase_trace *t = of->trace;
    int step = step_of(s->p[best_of(s->p)]);
    size_t from, to, distance[2];
    double weight = (double)TRACE / (double)t->count;
    stretch_of(of->segments, of->count, k, &from, &to);
    for (size_t i = s->from; i < s->to; i++) {
        bool right = phase[i] == t->phase[i];
        edges_of(i, from, to, t->count, distance);
        int side = distance[1] < distance[0];
        if (distance[side] < EDGE) {
            o->edge_all[side][distance[side]][step]++;
            o->edge_right[side][distance[side]] += right;
            continue;
        }
        o->all[step] += weight;
        o->right[step] += right ? weight : 0;
    }
}

static void phases_judge(const pieces *of, const pj_phase_model *m, outcomes *o, uint8_t *phase,
                         double *confidence)
{
    if (!of->segments) return;
    name_samples(m, of->segments, of->count, phase, confidence);
    for (size_t k = 0; k < of->count; k++) score_segment(of, k, phase, o);
}

/* How often samples near a change are right, relative to the others of their segments. */
static void measure_edges(const outcomes *o, pj_phase_model *m)
{
    enum { PRIOR = 10 };
    for (int side = 0; side < 2; side++)
        for (int d = 0; d < EDGE; d++) {
            double predicted = 0;
            for (int i = 0; i < STEPS; i++) predicted += o->edge_all[side][d][i] * m->calibrated[i];
            m->edge[side][d] =
                fmin((o->edge_right[side][d] + PRIOR * m->edge[side][d]) / (predicted + PRIOR), 1);
        }
}

/* Isotonic regression: pools neighbours until shares of right answers ascend. */
static void pool(const outcomes *o, double calibrated[STEPS])
{
    double right[STEPS], all[STEPS];
    int width[STEPS], n = 0;
    for (int i = 0; i < STEPS; i++) {
        double belief = calibrated[i]; /* a weak prior: that of a model without training */
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
static bool calibrate_model(const pieces *all, size_t count, pj_phase_model *m)
{
    enum { FOLDS = 10 };
    outcomes o = {0};
    size_t longest = 1;
    for (size_t i = 0; i < count; i++)
        if (all[i].trace->count > longest) longest = all[i].trace->count;
    uint8_t *phase = pj_alloc(longest, 1);
    double *confidence = pj_alloc(longest, sizeof *confidence);
    bool ok = phase && confidence;
    for (size_t fold = 0; fold < FOLDS && ok; fold++) {
        tally others = {0};
        pj_phase_model without;
        for (size_t i = 0; i < count; i++)
            if (i % FOLDS != fold) count_trace(&others, &all[i]);
        estimate(&others, &without);
        for (size_t i = fold; i < count; i += FOLDS)
            phases_judge(&all[i], &without, &o, phase, confidence);
    }
    if (ok) {
        pool(&o, m->calibrated);
        measure_edges(&o, m);
    }
    pj_free(phase);
    pj_free(confidence);
    return ok;
}

bool pj_phase_model_train(const pj_phase_trace *traces, size_t count, pj_phase_model *m)
{
    tally c = {0};
    pieces *all = pj_alloc(count + 1, sizeof *all);
    if (!all) return false;
    for (size_t i = 0; i < count; i++) {
        all[i].trace = &traces[i];
        all[i].segments = phases_cut(&traces[i], count < FEW_TRACES, &all[i].count);
        count_trace(&c, &all[i]);
    }
    estimate(&c, m);
    bool ok = count < FEW_TRACES || calibrate_model(all, count, m);
    limit_confidence(m, count < FEW_TRACES ? c.traces : TRACE_SUCCESSES * c.traces);
    for (size_t i = 0; i < count; i++) pj_free(all[i].segments);
    pj_free(all);
    return ok;
}
