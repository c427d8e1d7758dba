/* Infers the delay and window length of power sensors. A driver's declaration is a prior, not a
 * certainty: an undeclared delay or a wrong window length shifts energy between phases while every
 * figure looks exact. The run's own edges (idle to work, prefill to decode, work to idle) reveal
 * them. For every candidate delay and window the evidence of the readings is computed by the
 * regression of the fit, with one class per phase to keep it cheap; the candidates that remain
 * plausible are kept as several timings with weights. */
#include "attribution/energies.h"

#include "base/median.h"
#include "base/memory.h"
#include "power/source.h"

#include <math.h>
#include <string.h>

enum { MOST_WINDOWS = 600, MOST_DELAYS = 96, MOST_LENGTHS = 5, STEPS_A_PERIOD = 16 };
enum { FIRST_DELAYS = 9, MOST_ROUNDS = 10, MOST_REFINED = 100 };
/* Margin before and after the run, larger than any delay. */
#define AROUND_NS (1000 * 1000000000LL)
/* prior probability that a declared delay, or window, is right */
#define SURE_OF_DELAY  0.85
#define SURE_OF_WINDOW 0.8
/* that a counter has counted all the time: what it counted is not scaled by a guess */
#define SURE_OF_COUNT 0.95
#define LEAST_EDGE    0.05 /* relative to the power: smallest change of readings that counts */
/* prior probability of the usual values if undeclared: no delay, window = period */
#define UNSURE      0.5
#define LIGHTEST    0.005 /* less likely timings are dropped */
#define SURE        0.97  /* weight above which the declared timing is the only one */
#define AGREED      0.9   /* weight above which one window length is accepted as the only one */
#define STANDS_OUT  2.5   /* weight of all delays relative to the likeliest one's: split it below */
#define FINEST      100   /* of a step: closest delays */
#define HALF_A_STEP 1.4   /* between window lengths that are tried at first */
#define CLEAR       7     /* range of readings, in standard deviations of their noise */

/* How late a value may be, however short its period: what a driver takes to publish it. */
static const int64_t LATE_NS = 4000000;

/* of windows, in periods; 0: as declared */
static const double lengths[MOST_LENGTHS] = {0, 0.25, 0.5, 1, 10};

typedef struct candidate {
    pj_timing at; /* without a weight */
    double log_prior, log_weight;
    double width; /* of the delays that it represents, in ns; 0: only itself */
} candidate;

/* Evidence of the delay for one window length. */
typedef struct spread_of_delays {
    int64_t window_ns;
    double weight, mean, sd;
    double least, most; /* of the delays that were tried */
} spread_of_delays;

typedef struct search {
    const pj_energies *j;
    const pj_rail_result *result;
    pj_arena arena;
    size_t count;       /* of the result's windows that are used */
    pj_window *windows; /* moved */
    pj_leaf *leaves;
    size_t leaf_count;
    double idle_mw;
    pj_class_prior *priors; /* [class_count] */
    uint32_t class_count;
    candidate items[MOST_LENGTHS * MOST_DELAYS];
    size_t item_count;
} search;

static pj_class_prior idle_prior(const search *s)
{
    double sd = fmax(s->result->idle_sd_mw, 0.01 * s->idle_mw);
    return isfinite(s->idle_mw) ? (pj_class_prior){0, fmax(sd, 1e-3)} : (pj_class_prior){NAN, NAN};
}

/* Only idle time has a prior. */
static void set_priors(search *s, uint32_t classes, uint32_t idle)
{
    s->class_count = classes;
    for (uint32_t c = 0; c < classes; c++) s->priors[c] = (pj_class_prior){NAN, NAN};
    s->priors[idle] = idle_prior(s);
}

/* The leaves for the fit, with more time around the run. */
static void copy_leaves(search *s)
{
    const pj_tree *tree = s->j->tree;
    s->leaf_count = (size_t)tree->leaf_count + 2;
    memcpy(s->leaves, s->j->leaves, s->leaf_count * sizeof *s->leaves);
    s->leaves[0].begin_ns = tree->begin_ns - AROUND_NS;
    s->leaves[0].end_ns = tree->begin_ns;
    s->leaves[s->leaf_count - 1].begin_ns = tree->end_ns;
    s->leaves[s->leaf_count - 1].end_ns = tree->end_ns + AROUND_NS;
}

/* The same, consecutive ones of a phase merged; class: the phase. */
static void merge_leaves(search *s)
{
    copy_leaves(s);
    size_t count = s->leaf_count, used = 0;
    for (size_t i = 0; i < count; i++) {
        pj_leaf leaf = s->leaves[i];
        pj_leaf *last = used ? &s->leaves[used - 1] : NULL;
        leaf.class_ = s->j->pool_phase[leaf.class_];
        if (leaf.end_ns <= leaf.begin_ns) continue;
        if (!last || last->class_ != leaf.class_ || last->end_ns < leaf.begin_ns)
            s->leaves[used++] = leaf;
        else if (leaf.end_ns > last->end_ns)
            last->end_ns = leaf.end_ns;
    }
    s->leaf_count = used;
}

void pj_energy_shift_windows(const pj_window *given, size_t count, const pj_timing *timing,
                             pj_window *windows)
{
    for (size_t i = 0; i < count; i++) {
        pj_window *w = &windows[i];
        *w = given[i];
        w->begin_ns -= timing->shift_ns;
        w->end_ns -= timing->shift_ns;
        if (timing->window_ns <= 0) continue;
        double longer = (double)timing->window_ns / (double)(w->end_ns - w->begin_ns);
        w->begin_ns = w->end_ns - timing->window_ns;
        w->energy_mj *= longer;
        w->sd_mj *= longer;
    }
}

/* Log evidence of the readings as powers, so that windows of different lengths are comparable. */
static double evidence(const search *s, const candidate *c)
{
    pj_fit fit;
    double total_mj = 0, log_lengths = 0;
    int64_t begin = INT64_MAX, end = INT64_MIN;
    pj_energy_shift_windows(s->result->windows, s->count, &c->at, s->windows);
    for (size_t i = 0; i < s->count; i++) {
        const pj_window *w = &s->windows[i];
        if (w->begin_ns < begin) begin = w->begin_ns;
        if (w->end_ns > end) end = w->end_ns;
        total_mj += w->energy_mj;
        log_lengths += log((double)(w->end_ns - w->begin_ns) * 1e-9);
    }
    pj_fit_input input = {.windows = s->windows,
                          .window_count = s->count,
                          .leaves = s->leaves,
                          .leaf_count = s->leaf_count,
                          .class_count = s->class_count,
                          .idle_mw = s->idle_mw,
                          .total_mj = total_mj,
                          .total_sd_mj = 1e3 * fabs(total_mj) + 1,
                          .begin_ns = begin,
                          .end_ns = end,
                          .priors = s->priors,
                          .usual_noise = PJ_USUAL_POWER_NOISE,
                          .evidence_only = true};
    if (pj_fit_run(&input, &fit, NULL) != PJ_OK) return -INFINITY;
    double found = fit.log_evidence + log_lengths;
    pj_fit_fini(&fit);
    return isfinite(found) ? found : -INFINITY; /* absurd readings are no evidence */
}

/* Length of a window; 0: as declared. */
static int64_t length_of(const pj_rail *rail, int64_t period, int64_t window)
{
    return window > 0 ? window : rail->window_ns > 0 ? rail->window_ns : period;
}

/* The candidate delays for a window length: the longest, and the step between them. */
static int64_t longest_delay(const pj_rail *rail, int64_t period, int64_t window)
{
    int64_t length = length_of(rail, period, window), least = 7 * period / 2;
    return (least > LATE_NS ? least : LATE_NS) + (length > period ? length : 0);
}
static int64_t delay_step(const pj_rail *rail, int64_t period, int64_t window)
{
    int64_t step = length_of(rail, period, window) > period ? period / 4 : period / STEPS_A_PERIOD;
    int64_t least = longest_delay(rail, period, window) / (MOST_DELAYS - 1);
    return step > least ? step : least + 1;
}

/* Prior probability that the delay, or a window length, is as declared. */
static double sure_of_delay(const pj_rail *rail)
{
    return rail->delay_ns > 0 ? SURE_OF_DELAY : UNSURE;
}
static double prior_of_window(const pj_rail *rail, int64_t window)
{
    double declared = rail->kind == PJ_RAIL_COUNTER ? SURE_OF_COUNT : SURE_OF_WINDOW;
    double sure = rail->window_ns > 0 ? declared : UNSURE;
    return window == 0 ? sure : (1 - sure) / 3;
}

static void add_candidates(search *s, int64_t period, int64_t window)
{
    const pj_rail *rail = &s->j->d->rails[s->result->rail];
    int64_t longest = longest_delay(rail, period, window);
    int64_t step = delay_step(rail, period, window);
    int64_t steps = longest / step;
    if (steps > MOST_DELAYS - 1) steps = MOST_DELAYS - 1;
    int64_t earliest = -(rail->delay_ns / step) * step; /* a delay cannot be negative */
    if (earliest < -(steps / 2) * step) earliest = -(steps / 2) * step;
    double sure = sure_of_delay(rail);
    for (int64_t i = 0; i <= steps; i++) {
        int64_t shift = earliest + i * step;
        double prior = shift == 0 ? sure : (1 - sure) / (double)steps;
        s->items[s->item_count++] =
            (candidate){{shift, window, 0}, log(prior * prior_of_window(rail, window)), 0, 0};
    }
}

static void list_candidates(search *s)
{
    int64_t period = s->result->period_ns;
    const pj_rail *rail = &s->j->d->rails[s->result->rail];
    double declared = rail->window_ns > 0 ? (double)rail->window_ns / (double)period : 1;
    /* each step of a counter is a period's */
    int count = rail->kind == PJ_RAIL_COUNTER ? MOST_LENGTHS - 1 : MOST_LENGTHS;
    add_candidates(s, period, 0);
    for (int i = 1; i < count; i++)
        if (fabs(log(lengths[i] / declared)) > 0.2)
            add_candidates(s, period, (int64_t)(lengths[i] * (double)period));
}

/* Scales the weights to a sum of 1, unless no timing has any evidence. */
static void energy_timing_normalise(search *s)
{
    double best = -INFINITY, sum = 0;
    for (size_t i = 0; i < s->item_count; i++) best = fmax(best, s->items[i].log_weight);
    if (best == -INFINITY) return;
    for (size_t i = 0; i < s->item_count; i++) sum += exp(s->items[i].log_weight - best);
    for (size_t i = 0; i < s->item_count; i++) s->items[i].log_weight -= best + log(sum);
}

static void energy_timing_weigh(search *s)
{
    for (size_t i = 0; i < s->item_count; i++) {
        candidate *c = &s->items[i];
        c->log_weight = c->log_prior + evidence(s, c);
    }
    energy_timing_normalise(s);
}

/* Mean and standard deviation of the delay given the k-th window length, and the total weight. */
static spread_of_delays energy_timing_sum_up(const search *s, int k)
{
    double square = 0;
    spread_of_delays d = {.window_ns = (int64_t)(lengths[k] * (double)s->result->period_ns)};
    for (size_t i = 0; i < s->item_count; i++) {
        const candidate *c = &s->items[i];
        if (c->at.window_ns != d.window_ns) continue;
        double w = exp(c->log_weight), x = (double)c->at.shift_ns;
        d.weight += w;
        d.mean += w * x;
        square += w * x * x;
    }
    if (!(d.weight > 0)) return d;
    d.mean /= d.weight;
    d.sd = sqrt(fmax(square / d.weight - d.mean * d.mean, 0));
    return d;
}

static void add_timing(pj_timings *t, double shift, int64_t window, double weight)
{
    if (weight >= LIGHTEST && t->count < PJ_MAX_TIMINGS)
        t->all[t->count++] = (pj_timing){(int64_t)shift, window, weight};
}

/* The declared timing alone if it is practically certain, or no timing has any evidence; else the
 * mean delay of every likely window length, and for the likeliest one a standard deviation to both
 * sides. */
static void energy_timing_choose(const search *s, pj_timings *t)
{
    spread_of_delays found[MOST_LENGTHS], *best = found;
    double declared = 0;
    for (size_t i = 0; i < s->item_count; i++)
        if (s->items[i].at.shift_ns == 0 && s->items[i].at.window_ns == 0)
            declared = exp(s->items[i].log_weight);
    for (int k = 0; k < MOST_LENGTHS; k++) {
        found[k] = energy_timing_sum_up(s, k);
        if (found[k].weight > best->weight) best = &found[k];
    }
    t->count = 0;
    if (declared > SURE || !(best->weight > 0)) {
        add_timing(t, 0, 0, 1);
        return;
    }
    double sd = fmax(best->sd, (double)s->result->period_ns / STEPS_A_PERIOD / 8);
    bool keep = best == found && declared > 0.5; /* as declared, unless unlikely */
    double middle = keep ? 0 : best->mean;
    add_timing(t, middle, best->window_ns, fmax(best->weight, LIGHTEST));
    if (keep) sd = hypot(sd, best->mean);
    add_timing(t, middle + 1.22 * sd, best->window_ns, best->weight / 3);
    add_timing(t, middle - 1.22 * sd, best->window_ns, best->weight / 3);
    for (int k = 0; k < MOST_LENGTHS; k++)
        if (&found[k] != best) add_timing(t, found[k].mean, found[k].window_ns, found[k].weight);
}

/* Window lengths are tried in steps of a factor of two or more. Where one that was not declared is
 * the likeliest, the true one may be up to half a step shorter or longer, with the same middle. */
static void add_lengths_between(search *s, pj_timings *t)
{
    enum { BETWEEN = 5 };
    const pj_timing best = t->all[0];
    candidate tried[BETWEEN];
    int likeliest = BETWEEN / 2;
    if (best.window_ns == 0) return;
    for (int i = 0; i < BETWEEN; i++) {
        double window = (double)best.window_ns * pow(HALF_A_STEP, 0.5 * i - 1);
        double shift = (double)best.shift_ns + ((double)best.window_ns - window) / 2;
        tried[i] = (candidate){.at = {(int64_t)shift, (int64_t)window, 0}};
        tried[i].log_weight = evidence(s, &tried[i]);
        if (tried[i].log_weight > tried[likeliest].log_weight) likeliest = i;
    }
    const candidate *first = &tried[likeliest];
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->all[i].window_ns != best.window_ns) continue;
        t->all[i].shift_ns += first->at.shift_ns - best.shift_ns;
        t->all[i].window_ns = first->at.window_ns;
    }
    for (int i = 0; i < BETWEEN; i++)
        if (i != likeliest)
            add_timing(t, (double)tried[i].at.shift_ns, tried[i].at.window_ns,
                       best.weight * exp(tried[i].log_weight - first->log_weight));
}

/* ---- refinement with all classes ---- */

/* Evaluates a delay that represents all those within `width`, or only itself if that is 0. */
static void try_shift(search *s, double shift, double width, int64_t window, double density)
{
    candidate *c = &s->items[s->item_count++];
    *c = (candidate){{(int64_t)shift, window, 0}, density, 0, width};
    c->log_weight = density + (width > 0 ? log(width) : 0) + evidence(s, c);
}

/* The likeliest of the delays from `from` on, by density; whether none is shorter, none longer. */
static candidate *likeliest(search *s, size_t from, bool *lowest, bool *highest)
{
    candidate *best = NULL;
    *lowest = *highest = true;
    for (size_t i = from; i < s->item_count; i++) {
        candidate *c = &s->items[i];
        if (!best || c->log_weight - log(c->width) > best->log_weight - log(best->width)) best = c;
    }
    for (size_t i = from; i < s->item_count; i++) {
        if (s->items[i].at.shift_ns < best->at.shift_ns) *lowest = false;
        if (s->items[i].at.shift_ns > best->at.shift_ns) *highest = false;
    }
    return best;
}

/* Replaces a delay by three that represent a third of its width each. */
static void energy_timing_split(search *s, candidate *c, double density)
{
    double width = c->width / 3, middle = (double)c->at.shift_ns;
    c->log_weight += log(width / c->width);
    c->width = width;
    try_shift(s, middle - width, width, c->at.window_ns, density);
    try_shift(s, middle + width, width, c->at.window_ns, density);
}

/* Weighs the delays that the phases leave possible for one window length: evenly spaced ones, so
 * that a delay that the readings hardly determine stays as uncertain as it is, then closer ones
 * around the likeliest while it stands out. */
static void weigh_delays(search *s, const spread_of_delays *given, double step, double log_prior)
{
    double reach = fmax(2 * given->sd, step), density = log_prior - log(given->most - given->least);
    double low = fmax(given->mean - reach, given->least),
           high = fmin(given->mean + reach, given->most);
    double width = (high - low) / FIRST_DELAYS;
    size_t from = s->item_count;
    for (int i = 0; i < FIRST_DELAYS; i++)
        try_shift(s, low + (i + 0.5) * width, width, given->window_ns, density);
    for (int round = 0; round < MOST_ROUNDS; round++) {
        bool lowest, highest;
        candidate *best = likeliest(s, from, &lowest, &highest);
        double at = (double)best->at.shift_ns, sum = 0;
        for (size_t i = from; i < s->item_count; i++)
            sum += exp(s->items[i].log_weight - best->log_weight);
        double beyond = lowest ? at - width : highest ? at + width : NAN;
        if (best->width >= width && beyond > given->least && beyond < given->most)
            try_shift(s, beyond, width, given->window_ns, density);
        else if (sum < STANDS_OUT && best->width > step / FINEST)
            energy_timing_split(s, best, density);
        else
            return;
    }
}

/* Where phases leave several timings possible, classes may decide: a component of many milliseconds
 * has edges too. */
static void energy_timing_refine(search *s, pj_timings *timings)
{
    const pj_energies *j = s->j;
    const pj_rail *rail = &j->d->rails[s->result->rail];
    int64_t period = s->result->period_ns;
    spread_of_delays given[MOST_LENGTHS];
    int lengths_left = 0;
    if (j->pool_count > MOST_REFINED) return;
    set_priors(s, j->pool_count, j->pool_of[j->tree->idle_class]);
    copy_leaves(s);
    for (int k = 0; k < MOST_LENGTHS; k++) {
        spread_of_delays *d = &given[lengths_left];
        *d = energy_timing_sum_up(s, k);
        d->least = -(double)rail->delay_ns;
        d->most = d->least + (double)longest_delay(rail, period, d->window_ns);
        /* phases alone may speak against what is declared where power varies within them */
        if (d->weight >= LIGHTEST || d->window_ns == 0) lengths_left++;
    }
    s->item_count = 0;
    double sure = sure_of_delay(rail);
    for (int k = 0; k < lengths_left; k++) {
        double log_window = log(prior_of_window(rail, given[k].window_ns));
        try_shift(s, 0, 0, given[k].window_ns, log_window + log(sure));
        weigh_delays(s, &given[k], (double)delay_step(rail, period, given[k].window_ns),
                     log_window + log(1 - sure));
    }
    energy_timing_normalise(s);
    energy_timing_choose(s, timings);
    add_lengths_between(s, timings);
}

/* Readings that hardly change have no edges to locate. Without this check, a machine with equal
 * power inside and outside the run would be explained by windows that miss the run. */
static bool has_edges(const pj_window *windows, size_t count)
{
    double least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double seconds = (double)(windows[i].end_ns - windows[i].begin_ns) * 1e-9;
        least = fmin(least, windows[i].energy_mj / seconds);
        most = fmax(most, windows[i].energy_mj / seconds);
    }
    return most - least > LEAST_EDGE * fmax(fabs(most), fabs(least));
}

/* Whether some readings differ from the others by more than their noise, taken from the median
 * difference of neighbours. Meant for a run shorter than a window, which changes few of them. */
static bool stands_out(const pj_window *windows, size_t count)
{
    double *steps = pj_alloc(count, sizeof *steps), least = INFINITY, most = -INFINITY, before = 0;
    if (!steps) return false;
    for (size_t i = 0; i < count; i++) {
        double mw =
            windows[i].energy_mj / ((double)(windows[i].end_ns - windows[i].begin_ns) * 1e-9);
        if (i > 0) steps[i - 1] = fabs(mw - before);
        least = fmin(least, mw);
        most = fmax(most, mw);
        before = mw;
    }
    pj_sort_doubles(steps, count - 1);
    double noise = steps[(count - 1) / 2] / (0.6745 * M_SQRT2);
    pj_free(steps);
    return most - least > CLEAR * noise;
}

/* Clamps timings to the range of delays that were tried. */
static void keep_within(const pj_rail *rail, int64_t period, pj_timings *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        int64_t longest = longest_delay(rail, period, t->all[i].window_ns);
        if (t->all[i].shift_ns > longest) t->all[i].shift_ns = longest;
        if (t->all[i].shift_ns < -longest) t->all[i].shift_ns = -longest;
    }
}

/* Whether two lengths are the same, or one that was tried and one between; 0: as declared. */
static bool is_near(int64_t a, int64_t b)
{
    if (a == 0 || b == 0) return a == b;
    double ratio = (double)a / (double)b;
    return ratio < 1.5 && ratio > 1 / 1.5;
}

/* Whether the readings agree on one window length. */
static bool agree_on_window(const pj_timings *t)
{
    double alike = 0, sum = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        sum += t->all[i].weight;
        if (is_near(t->all[i].window_ns, t->all[0].window_ns)) alike += t->all[i].weight;
    }
    return alike >= AGREED * sum;
}

static void end_search(search *s)
{
    if (!s) return;
    pj_arena_fini(&s->arena);
    pj_free(s);
}

/* Weighs every delay and window by phases; NULL: the readings do not determine it, or no memory. */
static search *begin_search(const pj_energies *j, const pj_rail_result *result)
{
    size_t count = result->window_count;
    uint32_t classes = j->pool_count > PJ_PHASE_COUNT ? j->pool_count : PJ_PHASE_COUNT;
    if (count < 2 || result->period_ns <= 0 || !has_edges(result->windows, count)) return NULL;
    search *s = pj_alloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (search){.j = j,
                  .result = result,
                  .count = count < MOST_WINDOWS ? count : MOST_WINDOWS,
                  .idle_mw = j->d->baseline_mw[result->rail]};
    pj_arena_init(&s->arena, 0);
    s->windows = pj_arena_alloc(&s->arena, s->count, sizeof *s->windows);
    s->priors = pj_arena_alloc(&s->arena, classes, sizeof *s->priors);
    s->leaves = pj_arena_alloc(&s->arena, (size_t)j->tree->leaf_count + 2, sizeof *s->leaves);
    if (!s->windows || !s->priors || !s->leaves) {
        end_search(s);
        return NULL;
    }
    merge_leaves(s);
    set_priors(s, PJ_PHASE_COUNT, PJ_PHASE_IDLE);
    list_candidates(s);
    energy_timing_weigh(s);
    return s;
}

/* Log of how much likelier the readings are at the likeliest timing than as declared. */
static double energy_timing_doubt(const search *s)
{
    double declared = -INFINITY, best = -INFINITY;
    for (size_t i = 0; i < s->item_count; i++) {
        const candidate *c = &s->items[i];
        double likelihood = c->log_weight - c->log_prior;
        if (c->at.shift_ns == 0 && c->at.window_ns == 0) declared = likelihood;
        best = fmax(best, likelihood);
    }
    return best > declared ? best - declared : 0;
}

void pj_energy_timings(pj_energies *j, const pj_rail_result *result, pj_timings *t)
{
    const pj_rail *rail = &j->d->rails[result->rail];
    *t = (pj_timings){.all = {{0, 0, 1}}, .count = 1};
    t->settled =
        pj_rail_is_model(rail) || result->counter || rail->lag_ns > 0 || j->options->trusted;
    t->certain = t->settled;
    search *s = t->settled ? NULL : begin_search(j, result);
    if (!s) return;
    energy_timing_choose(s, t);
    if (t->count > 1 || t->all[0].shift_ns || t->all[0].window_ns) energy_timing_refine(s, t);
    t->log_against = energy_timing_doubt(s);
    keep_within(rail, result->period_ns, t);
    t->settled = (rail->window_ns > 0 || agree_on_window(t)) &&
                 stands_out(result->windows, result->window_count);
    end_search(s);
}
