/*
 * One rail: the fit of class powers over its windows, and its energy shared among the leaves.
 *
 * A sensor's windows extend beyond the run. The machine is assumed idle there: two extra leaves of
 * class `idle` cover that time, so that fit and shares use whole windows and nothing is
 * interpolated at the edges of a short run. Power sensors keep a few extra windows on either side:
 * an undeclared delay shifts the run's energy into them.
 */
#include "attribution/energies.h"

#include "base/interval.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* int64 nanojoules hold nine gigajoules; larger values in a foreign spool count as unknown. */
#define MOST_MJ    4e12
#define LONGEST_NS (100000 * 1000000000LL)

/* At an edge an update may be missing (up to three periods) and a delay is tried (up to 3.5, or
 * 4 ms). */
enum { MARGIN_PERIODS = 4, EDGE_PERIODS = 6, MARGIN_NS = 5000000 };
#define SEES_ROWS 6.0 /* max. leaves per window of a sensor that resolves how they vary */
/* Values of a log: to judge their noise; up to which an edge of a run may be anywhere in one; from
 * which on a run's edges hardly blur what a log says of the time beside it; that tell whether the
 * device was idle beside a run. */
enum { LEAST_LOGGED = 4, FEW_VALUES = 3, RESOLVED_VALUES = 10, BESIDE = 3 };
enum { LEAST_CLOCK_PART = 1000 }; /* a clock error below this part of a period is not propagated */
#define LOG_CUT_S    3e-3         /* 1 sigma of where a log puts an edge of the run */
#define LEAST_SPREAD 1e-4         /* of power within a class */
#define MOST_SPREAD  0.5
/* Log of how much likelier another timing makes the readings of a counter, for it to be considered:
 * where the declared one holds after all, the figures are the same. */
#define REFUTED 1.0

void pj_energy_rail_fini(pj_rail_result *result)
{
    if (result->has_fit) pj_fit_fini(&result->fit);
    pj_free(result->windows);
    pj_design_fini(&result->design);
    pj_blocks_fini(&result->blocks);
    result->has_fit = false;
}

/* ---- windows ---- */

static const pj_rail *rail_of(const pj_energies *j, const pj_rail_result *result)
{
    return &j->d->rails[result->rail];
}

static pj_window energy_rail_window_of(const pj_curve_window *seen, const pj_rail *rail,
                                       bool counter)
{
    double step_sd = isnan(seen->resolution_mj) ? 0 : seen->resolution_mj / sqrt(12);
    return (pj_window){.begin_ns = seen->begin_ns,
                       .end_ns = seen->end_ns,
                       .energy_mj = seen->energy_mj,
                       .sd_mj = counter ? 0 : step_sd,
                       .shift_s = seen->shift_s,
                       .reading_mj = counter ? step_sd : 0,
                       /* a counter's steps are energies, whatever the sensor behind it */
                       .lag_s = rail->kind == PJ_RAIL_COUNTER ? 0 : (double)rail->lag_ns * 1e-9,
                       .begin_s = seen->begin_s,
                       .end_s = seen->end_s};
}

/* Typical time between the ends of consecutive windows. */
static int64_t period_of(const pj_energies *j, const pj_rail_result *result)
{
    int64_t least = 0;
    if (rail_of(j, result)->period_ns > 0) return rail_of(j, result)->period_ns;
    for (size_t i = 1; i < result->window_count; i++) {
        int64_t step = result->windows[i].end_ns - result->windows[i - 1].end_ns;
        if (step > 0 && (least == 0 || step < least)) least = step;
    }
    if (least > 0) return least;
    return result->window_count ? result->windows[0].end_ns - result->windows[0].begin_ns : 1;
}

/* Joins the parts between two ticks: their sum is what was counted, and the log that divided it is
 * observed by itself. Returns how many windows are left. */
static size_t join_ticks(pj_curve_window *seen, size_t count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        pj_curve_window *last = used ? &seen[used - 1] : NULL;
        if (last && seen[i].tick && seen[i].tick == last->tick) {
            last->end_ns = seen[i].end_ns;
            last->end_s = seen[i].end_s;
            last->energy_mj += seen[i].energy_mj;
        } else {
            seen[used++] = seen[i];
        }
    }
    return used;
}

/* The log that shows how the energy of this counter's steps was distributed; NULL: none. */
static const pj_curve *log_of(const pj_energies *j, const pj_rail_result *result)
{
    int log = pj_rail_log_of(j->d->rails, j->d->rail_count, result->rail);
    return log >= 0 && result->counter ? j->curves[log] : NULL;
}

static bool overlaps_run(const pj_energies *j, const pj_curve_window *w)
{
    return w->end_ns > j->tree->begin_ns && w->begin_ns < j->tree->end_ns;
}

/* The mean power that the log shows in a range; NAN: nothing. */
static double logged_mw(const pj_curve *curve, int64_t from_ns, int64_t to_ns)
{
    return pj_curve_energy_mj(curve, from_ns, to_ns) / ((double)(to_ns - from_ns) * 1e-9);
}

/* Whether the device was idle beside the run, as far as its log tells: then the whole step is the
 * run's energy and idle time, without an edge that the log blurs. Only values that contain nothing
 * of the run tell: those from the step's end at `tick_ns`, or a few at least, to a period before
 * the run's begin or after its end. */
static bool was_idle(const pj_energies *j, const pj_rail_result *result, int64_t period_ns,
                     int64_t edge_ns, int64_t tick_ns)
{
    const pj_curve *curve = j->curves[result->rail];
    double idle_mw = j->d->baseline_mw[result->rail], beside_mw;
    if (tick_ns < edge_ns) {
        int64_t few_ns = edge_ns - BESIDE * period_ns;
        beside_mw = logged_mw(curve, tick_ns < few_ns ? tick_ns : few_ns, edge_ns - period_ns);
    } else {
        int64_t few_ns = edge_ns + BESIDE * period_ns;
        beside_mw = logged_mw(curve, edge_ns + period_ns, tick_ns > few_ns ? tick_ns : few_ns);
    }
    double run_mw = logged_mw(curve, j->tree->begin_ns, j->tree->end_ns);
    double likeness_mw = fmax(0.25 * (run_mw - idle_mw), 0.02 * idle_mw);
    return isnan(beside_mw) || fabs(beside_mw - idle_mw) < likeness_mw;
}

/* Whether the run's work is told from an idle device: not that of a program that records nothing.
 */
static bool is_told_from_idle(const pj_tree *tree)
{
    for (size_t i = 0; i < (size_t)tree->leaf_count; i++)
        if (tree->leaves[i].class_ != tree->idle_class) return true;
    return false;
}

/* Whether the part of a step outside the run is, by the log, what an idle device draws. The value
 * next to the edge is left out: it contains part of the run. */
static bool draws_idle(const pj_energies *j, const pj_rail_result *result, int64_t edge_ns,
                       int64_t tick_ns, int64_t period_ns)
{
    pj_curve_energy e;
    bool before = tick_ns < edge_ns;
    int64_t begin_ns = before ? tick_ns : edge_ns + period_ns;
    int64_t end_ns = before ? edge_ns - period_ns : tick_ns;
    if (begin_ns >= end_ns) return true;
    double seconds = (double)(end_ns - begin_ns) * 1e-9;
    pj_curve_query(j->curves[result->rail], begin_ns, end_ns, &e);
    double off_mj = e.energy_mj - j->d->baseline_mw[result->rail] * seconds;
    double idle_sd_mj = j->d->baseline_sd_mw[result->rail] * seconds;
    return isnan(off_mj) || fabs(off_mj) <= 3 * hypot(e.random_sd_mj, idle_sd_mj);
}

/* Whether a step, which reaches from the run's edge at `edge_ns` to `tick_ns`, is the run's energy
 * and idle time. `resolved`: the log shows more of the run than its edges. */
static bool is_idle_beside(const pj_energies *j, const pj_rail_result *result, int64_t edge_ns,
                           int64_t tick_ns, int64_t period_ns, bool resolved)
{
    if (!was_idle(j, result, period_ns, edge_ns, tick_ns)) return false;
    return !resolved ||
           (is_told_from_idle(j->tree) && draws_idle(j, result, edge_ns, tick_ns, period_ns));
}

/* Standard deviation of the place of a run's edge in a step that was cut there. Of a run that the
 * log resolves, its curve is as sure as it says; an edge of a run of a few values may be anywhere
 * in one. */
static double cut_sd_s(const pj_energies *j, const pj_rail_result *result,
                       const pj_curve_window *cut, int64_t period_ns, bool resolved)
{
    const pj_tree *tree = j->tree;
    pj_curve_energy run;
    pj_curve_query(j->curves[result->rail], tree->begin_ns, tree->end_ns, &run);
    if (resolved && cut->energy_mj > 0 && !isnan(run.energy_mj))
        return run.random_sd_mj / M_SQRT2 / cut->energy_mj *
               ((double)(cut->end_ns - cut->begin_ns) * 1e-9);
    bool is_short = tree->end_ns - tree->begin_ns <= FEW_VALUES * period_ns;
    return is_short ? (double)period_ns * 1e-9 / sqrt(12) : LOG_CUT_S;
}

/* Where a log shows how a step's energy was distributed, the part of a step that lies outside the
 * run is not the run's, unless the device was idle there. */
static void cut_to_run(const pj_energies *j, const pj_rail_result *result, pj_curve_window *w)
{
    const pj_tree *tree = j->tree;
    int log = pj_rail_log_of(j->d->rails, j->d->rail_count, result->rail);
    int64_t period_ns = j->d->rails[log].period_ns;
    bool resolved = tree->end_ns - tree->begin_ns > RESOLVED_VALUES * period_ns;
    pj_curve_window cut = *w;
    if (period_ns <= 0) return;
    bool at_begin = w->begin_ns < tree->begin_ns &&
                    !is_idle_beside(j, result, tree->begin_ns, w->begin_ns, period_ns, resolved);
    bool at_end = w->end_ns > tree->end_ns &&
                  !is_idle_beside(j, result, tree->end_ns, w->end_ns, period_ns, resolved);
    if (!at_begin && !at_end) return;
    if (at_begin) cut.begin_ns = tree->begin_ns;
    if (at_end) cut.end_ns = tree->end_ns;
    cut.energy_mj = pj_curve_energy_mj(j->curves[result->rail], cut.begin_ns, cut.end_ns);
    if (isnan(cut.energy_mj)) return;
    double sd_s = cut_sd_s(j, result, &cut, period_ns, resolved);
    if (at_begin) cut.begin_s = sd_s;
    if (at_end) cut.end_s = sd_s;
    *w = cut;
}

static pj_status get_windows(const pj_energies *j, pj_rail_result *result, pj_error *err)
{
    const pj_curve *curve = j->curves[result->rail];
    const pj_rail *rail = rail_of(j, result);
    const pj_curve *log = log_of(j, result);
    /* of a counter with a log: room for the other parts of a step at the run's edges */
    int64_t late_ns = MARGIN_PERIODS * rail->period_ns;
    if (late_ns < MARGIN_NS) late_ns = MARGIN_NS;
    int64_t margin = result->counter && !log ? 0 : late_ns + 2 * rail->window_ns;
    int64_t begin = j->tree->begin_ns - margin, end = j->tree->end_ns + margin;
    size_t n = pj_curve_windows(curve, begin, end, NULL, 0);
    pj_curve_window *seen = pj_alloc(n, sizeof *seen);
    result->windows = pj_alloc(n, sizeof *result->windows);
    if (!seen || !result->windows) {
        pj_free(seen);
        return pj_fail_memory(err, "the windows of a sensor");
    }
    pj_curve_windows(curve, begin, end, seen, n);
    n = join_ticks(seen, n);
    for (size_t i = 0; log && i < n; i++)
        if (overlaps_run(j, &seen[i])) cut_to_run(j, result, &seen[i]);
    for (size_t i = 0; i < n; i++)
        if (!isnan(seen[i].energy_mj) && (!log || overlaps_run(j, &seen[i])))
            result->windows[result->window_count++] =
                energy_rail_window_of(&seen[i], rail, result->counter);
    pj_free(seen);
    return PJ_OK;
}

static double net_mw(const pj_window *w, double idle_mw)
{
    return w->energy_mj / ((double)(w->end_ns - w->begin_ns) * 1e-9) - idle_mw;
}

static int64_t longest_window(const pj_rail_result *result)
{
    int64_t longest = 0;
    for (size_t i = 0; i < result->window_count; i++) {
        int64_t length = result->windows[i].end_ns - result->windows[i].begin_ns;
        if (length > longest) longest = length;
    }
    return longest;
}

/* Whether the readings are those of a long average, each of which overlaps the next. */
static bool overlaps(const pj_energies *j, const pj_rail_result *result)
{
    int64_t period = result->period_ns, longest = longest_window(result);
    return !result->counter && rail_of(j, result)->lag_ns == 0 && period > 0 &&
           longest * 2 > period * 3 && longest / period < 100 && result->window_count > 1 &&
           result->windows[1].begin_ns < result->windows[0].end_ns;
}

/* Drops windows wholly outside the run in which other work kept the machine busy, and those beyond
 * them: they carry no information about this run. */
static void drop_busy_margins(const pj_energies *j, pj_rail_result *result)
{
    double idle_mw = j->d->baseline_mw[result->rail], most = 0;
    size_t from = 0, to = result->window_count;
    if (isnan(idle_mw)) return;
    for (size_t i = 0; i < to; i++) most = fmax(most, net_mw(&result->windows[i], idle_mw));
    int64_t reach =
        MARGIN_PERIODS * result->period_ns + rail_of(j, result)->window_ns; /* of a delay */
    double busy = fmax(0.2 * most, 0.1 * idle_mw);
    for (size_t i = 0; i < result->window_count; i++) {
        const pj_window *w = &result->windows[i];
        if (net_mw(w, idle_mw) < busy) continue;
        if (w->end_ns <= j->tree->begin_ns) from = i + 1;
        if (w->begin_ns >= j->tree->end_ns + reach && i < to) to = i;
    }
    if (from >= to) return;
    result->window_count = to - from;
    memmove(result->windows, result->windows + from, (to - from) * sizeof *result->windows);
}

/* The interval that windows cover, at least the run; the time around the run becomes leaves. */
static void set_reach(pj_energies *j, pj_rail_result *result)
{
    const pj_tree *tree = j->tree;
    uint32_t idle = j->pool_of[tree->idle_class];
    result->begin_ns = tree->begin_ns;
    result->end_ns = tree->end_ns;
    for (size_t i = 0; i < result->window_count; i++) {
        const pj_window *w = &result->windows[i];
        int64_t begin = w->begin_ns;
        if (i == 0 && !result->counter && w->end_ns - result->period_ns < begin)
            begin = w->end_ns - result->period_ns;
        if (begin < result->begin_ns) result->begin_ns = begin;
        if (w->end_ns > result->end_ns) result->end_ns = w->end_ns;
    }
    j->leaves[0] = (pj_leaf){result->begin_ns, tree->begin_ns, idle, 0};
    j->leaves[tree->leaf_count + 1] = (pj_leaf){tree->end_ns, result->end_ns, idle, 0};
}

/* ---- the fit ---- */

/* Relative 1 sigma of idle power. A device that waits for the host between two kernels keeps its
 * clocks up. */
static double idle_spread(const pj_tree_class *class_)
{
    return class_->phase == PJ_PHASE_IDLE ? 0.01 : 0.1;
}

/* Of a class: from a calibration; for idle time the baseline and nothing above it. */
static pj_class_prior prior_of(pj_energies *j, uint32_t rail, uint32_t pool)
{
    pj_class_prior prior = {NAN, NAN};
    uint32_t class_ = j->pool_class[pool];
    double spread = j->d->baseline_sd_mw[rail];
    if (class_ == PJ_NO_PARENT) return prior;
    const pj_tree_class *c = &j->tree->classes[class_];
    if (j->options->prior &&
        j->options->prior(j->options->context, &j->d->rails[rail], j->class_names[class_],
                          (pj_phase)c->phase, &prior.power_mw, &prior.sd_mw))
        j->replayed = true;
    else if (pj_tree_class_is_idle(c) && !isnan(j->d->baseline_mw[rail]))
        prior = (pj_class_prior){
            0, fmax(isnan(spread) ? 0 : spread, idle_spread(c) * j->d->baseline_mw[rail])};
    return prior;
}

/* Whether the curve was observed over the interval, but for a twentieth of it at the edges. */
static bool curve_reaches(const pj_curve *curve, int64_t begin_ns, int64_t end_ns)
{
    int64_t from_ns, to_ns;
    if (!pj_curve_span(curve, &from_ns, &to_ns)) return false;
    int64_t missing =
        (from_ns > begin_ns ? from_ns - begin_ns : 0) + (end_ns > to_ns ? end_ns - to_ns : 0);
    return missing <= (end_ns - begin_ns) / 20;
}

/* Energy of the time that windows cover, and its uncertainty beyond the windows' own noise: none
 * where they tile it. For overlapping windows the curve is not a second observation: it was
 * deconvolved from the same noisy readings. */
static void measure_total(const pj_energies *j, const pj_rail_result *result, bool as_declared,
                          int64_t begin_ns, int64_t end_ns, pj_curve_energy *total)
{
    double seen_mj = 0, seen_s = 0;
    const pj_curve *curve = j->curves[result->rail];
    pj_curve_query(curve, begin_ns, end_ns, total);
    bool has_curve = as_declared && !overlaps(j, result) && curve_reaches(curve, begin_ns, end_ns);
    if (has_curve && !isnan(total->energy_mj)) return;
    for (size_t i = 0; i < result->window_count; i++) {
        const pj_window *w = &result->windows[i];
        seen_mj += w->energy_mj;
        seen_s += (double)(w->end_ns - w->begin_ns) * 1e-9;
    }
    if (!(seen_s > 0)) return;
    double mj = seen_mj / seen_s * (double)(end_ns - begin_ns) * 1e-9;
    *total = (pj_curve_energy){.energy_mj = mj, .bias_sd_mj = 1e3 * fabs(mj) + 1};
}

/* Of a measured total, without what the times of the spans explain. A counter's steps are exact. */
static double total_sd_mj(const pj_rail_result *result, const pj_curve_energy *total)
{
    double random = total->random_sd_mj, unseen = total->unseen_sd_mj;
    double explained = result->counter ? 0 : sqrt(fmax(random * random - unseen * unseen, 0));
    return hypot(explained, total->bias_sd_mj);
}

static void observe(const pj_energies *j, const pj_rail_result *result)
{
    const pj_build_options *o = j->options;
    for (uint32_t c = 0; o->observe && c < j->tree->class_count; c++) {
        uint32_t pool = j->pool_of[c];
        size_t diagonal = (size_t)pool * result->fit.class_count + pool;
        if (j->pool_class[pool] != c || !pj_rail_sees(result, j->tree->classes[c].device)) continue;
        o->observe(o->observe_context, rail_of(j, result), j->class_names[c],
                   (pj_phase)j->tree->classes[c].phase, result->fit.power_mw[pool],
                   sqrt(fmax(result->fit.covariance[diagonal], 0)));
    }
}

static double usual_spread(const pj_energies *j)
{
    if (j->options->trusted) return 0;
    return j->options->class_spread > 0 ? j->options->class_spread : PJ_USUAL_CLASS_SPREAD;
}

/* What a counter counted by what its log says of the same time, as far as both reach; 0: unknown.
 */
static double log_ratio(const pj_curve *counter, const pj_curve *log)
{
    int64_t begin, end, log_begin, log_end;
    if (!pj_curve_span(counter, &begin, &end) || !pj_curve_span(log, &log_begin, &log_end))
        return 0;
    if (log_begin > begin) begin = log_begin;
    if (log_end < end) end = log_end;
    double ratio = pj_curve_energy_mj(counter, begin, end) / pj_curve_energy_mj(log, begin, end);
    return isfinite(ratio) && ratio > 0 ? ratio : 0;
}

/* The windows of a log that lie within the counter's, at the counter's scale. */
static size_t get_logged(const pj_fit_input *in, const pj_curve *counter, const pj_curve *log,
                         pj_window *windows, size_t max)
{
    double ratio = log_ratio(counter, log);
    size_t n = pj_curve_windows(log, in->begin_ns, in->end_ns, NULL, 0), used = 0;
    pj_curve_window *seen = ratio > 0 ? pj_alloc(n, sizeof *seen) : NULL;
    if (!seen) return 0;
    pj_curve_windows(log, in->begin_ns, in->end_ns, seen, n);
    for (size_t i = 0; i < n && used < max; i++) {
        if (seen[i].begin_ns < in->begin_ns || seen[i].end_ns > in->end_ns) continue;
        pj_window w = energy_rail_window_of(&seen[i], pj_curve_rail(log), false);
        w.energy_mj *= ratio;
        windows[used++] = w;
    }
    pj_free(seen);
    return used;
}

static int energy_rail_by_begin(const void *a, const void *b)
{
    const pj_window *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

/* What a fit says the run used, by what was counted; not far from 1. */
static double fitted_share(const pj_fit *fit, const pj_fit_input *in)
{
    double mj =
        (isfinite(in->idle_mw) ? in->idle_mw : 0) * (double)(in->end_ns - in->begin_ns) * 1e-9;
    for (uint32_t c = 0; c < fit->class_count; c++) mj += fit->power_mw[c] * fit->time_ms[c] * 1e-3;
    double share = mj / in->total_mj;
    return share > 0.8 && share < 1.25 ? share : 1;
}

/* Adds to a counter's windows those of its log. The steps are as exact as before. How noisy the log
 * is, and its scale, come from a fit of its values alone: a fit of both knows a single noise, and a
 * sum of values is uncertain where their windows overlap or leave time out. */
static pj_status add_log(const pj_curve *counter, const pj_curve *log, pj_fit_input *in,
                         pj_window *windows, size_t room, pj_error *err)
{
    pj_fit alone = {0};
    pj_fit_input logged = *in;
    pj_window *added = windows + in->window_count;
    size_t count = get_logged(in, counter, log, added, room - in->window_count);
    logged.windows = added;
    logged.window_count = pj_windows_merge(added, count, in->leaves, in->leaf_count);
    logged.total_sd_mj = fabs(in->total_mj);
    if (logged.window_count < LEAST_LOGGED) return PJ_OK;
    pj_status status = pj_fit_run(&logged, &alone, err);
    double share = status == PJ_OK ? fitted_share(&alone, in) : 1;
    for (size_t i = 0; status == PJ_OK && i < logged.window_count; i++) {
        double parts = added[i].parts > 0 ? added[i].parts : 1;
        added[i].energy_mj /= share;
        added[i].sd_mj = hypot(added[i].sd_mj, alone.noise * added[i].energy_mj / sqrt(parts));
    }
    if (status == PJ_OK) {
        in->window_count += logged.window_count;
        qsort(windows, in->window_count, sizeof *windows, energy_rail_by_begin);
    }
    pj_fit_fini(&alone);
    return status == PJ_E_NO_MEMORY ? status : PJ_OK; /* a log that tells nothing is not used */
}

static pj_status fit_rail(pj_energies *j, pj_rail_result *result, bool as_declared, pj_error *err)
{
    pj_curve_energy total;
    int64_t begin_ns = j->tree->begin_ns, end_ns = j->tree->end_ns;
    for (size_t i = 0; i < result->window_count; i++) {
        if (result->windows[i].begin_ns < begin_ns) begin_ns = result->windows[i].begin_ns;
        if (result->windows[i].end_ns > end_ns) end_ns = result->windows[i].end_ns;
    }
    measure_total(j, result, as_declared, begin_ns, end_ns, &total);
    if (isnan(total.energy_mj) || !(fabs(total.energy_mj) < MOST_MJ)) return PJ_OK;
    pj_class_prior *priors = pj_alloc(j->pool_count, sizeof *priors);
    const pj_curve *log = log_of(j, result);
    size_t room =
        result->window_count + (log ? pj_curve_windows(log, begin_ns, end_ns, NULL, 0) : 0);
    pj_window *windows = pj_alloc(room, sizeof *windows);
    if (!priors || !windows) {
        pj_free(priors);
        pj_free(windows);
        return pj_fail_memory(err, "the windows of a fit");
    }
    memcpy(windows, result->windows, result->window_count * sizeof *windows);
    for (uint32_t c = 0; c < j->pool_count; c++) priors[c] = prior_of(j, result->rail, c);
    pj_fit_input input = {.windows = windows,
                          .window_count = pj_windows_merge(windows, result->window_count, j->leaves,
                                                           (size_t)j->tree->leaf_count + 2),
                          .leaves = j->leaves,
                          .leaf_count = (size_t)j->tree->leaf_count + 2,
                          .class_count = j->pool_count,
                          .idle_mw = j->d->baseline_mw[result->rail],
                          .total_mj = total.energy_mj,
                          .total_sd_mj = total_sd_mj(result, &total),
                          .begin_ns = begin_ns,
                          .end_ns = end_ns,
                          .priors = priors,
                          .usual_noise = PJ_USUAL_POWER_NOISE,
                          .usual_spread = usual_spread(j)};
    pj_status status = PJ_OK;
    if (log) status = add_log(j->curves[result->rail], log, &input, windows, room, err);
    if (status == PJ_OK) status = pj_fit_run(&input, &result->fit, err);
    result->has_fit = status == PJ_OK;
    if (result->has_fit && as_declared) observe(j, result);
    input.windows = result->windows;
    input.window_count = result->window_count;
    if (result->has_fit) status = pj_design_init(&result->design, &input, 0, err);
    pj_free(priors);
    pj_free(windows);
    /* Without a fit, energy is shared by time (equal power), and `method` records that. */
    return status == PJ_E_INVALID || status == PJ_E_UNAVAILABLE || status == PJ_E_INTERNAL ? PJ_OK
                                                                                           : status;
}

/* ---- blocks ---- */

static pj_status make_blocks(pj_energies *j, pj_rail_result *result, pj_error *err)
{
    for (uint32_t c = 0; c < j->pool_count; c++)
        j->pool_mw[c] = result->has_fit ? result->fit.power_mw[c] : 0;
    int64_t longest = longest_window(result);
    double noise = result->has_fit ? result->fit.noise : 0;
    pj_blocks_input input = {.windows = result->windows,
                             .count = result->window_count,
                             .period_ns = result->period_ns,
                             .overlapping = overlaps(j, result),
                             .counted = result->counter,
                             .logged = log_of(j, result) != NULL,
                             .begin_ns = j->tree->begin_ns,
                             .end_ns = j->tree->end_ns,
                             .edge_ns = EDGE_PERIODS * result->period_ns + longest,
                             .leaves = j->leaves,
                             .leaf_count = (size_t)j->tree->leaf_count + 2,
                             .power_mw = j->pool_mw,
                             .idle_mw = j->d->baseline_mw[result->rail],
                             .noise = noise,
                             .spread = result->has_fit ? result->fit.spread : 0,
                             .usual_noise = PJ_USUAL_POWER_NOISE};
    return pj_blocks_init(&input, &result->blocks, err);
}

/* Number of leaves of similar length per class: a class with a single leaf fits any power and gives
 * no information about how power varies. NULL: out of memory. */
static double *count_leaves(const pj_energies *j)
{
    double *sums = pj_alloc(2 * (size_t)j->pool_count, sizeof *sums);
    double *squares = sums ? sums + j->pool_count : NULL;
    for (uint32_t i = 1; sums && i <= j->tree->leaf_count; i++) {
        double s = (double)(j->leaves[i].end_ns - j->leaves[i].begin_ns) * 1e-9;
        sums[j->leaves[i].class_] += s;
        squares[j->leaves[i].class_] += s * s;
    }
    for (uint32_t c = 0; sums && c < j->pool_count; c++)
        sums[c] = squares[c] > 0 ? sums[c] * sums[c] / squares[c] : 1;
    return sums;
}

typedef struct spread_sums {
    /* of energies of leaves within blocks, where the class extends beyond the block */
    double squares;
    double energies; /* squared energies of such leaves, block by block */
} spread_sums;

static spread_sums sum_leaves(const pj_energies *j, const pj_rail_result *result,
                              const double *count)
{
    const pj_blocks *b = &result->blocks;
    spread_sums sums = {0, 0};
    double block_mj = 0;
    size_t block = SIZE_MAX;
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) {
        const pj_leaf *leaf = &j->leaves[i + 1];
        double free = 1 - 1 / fmax(count[leaf->class_], 1);
        for (size_t k = result->first_block[i];
             k < b->count && b->segments[k].begin_ns < leaf->end_ns; k++) {
            const pj_segment *s = &b->segments[k];
            double part_s = PJ_OVERLAP_S(leaf, s);
            if (part_s == 0 || isnan(s->energy_mj)) continue;
            double mj = result->fit.power_mw[leaf->class_] * part_s;
            if (k != block) sums.energies += block_mj * block_mj, block_mj = 0, block = k;
            block_mj += free * mj;
            sums.squares += free * mj * mj;
        }
    }
    sums.energies += block_mj * block_mj;
    return sums;
}

/* Squared residuals of the blocks beyond what class powers predict. */
static double sum_residuals(const pj_energies *j, const pj_rail_result *result)
{
    const pj_blocks *b = &result->blocks;
    double idle_mw = j->d->baseline_mw[result->rail], squares = 0;
    for (size_t k = 0; k < b->count; k++) {
        const pj_segment *s = &b->segments[k];
        double idle_mj = isnan(idle_mw) ? 0 : idle_mw * (double)(s->end_ns - s->begin_ns) * 1e-9;
        double away = s->energy_mj - idle_mj - b->expected_mj[k];
        if (isfinite(away) && b->expected_mj[k] > 0.1 * fabs(s->energy_mj - idle_mj))
            squares += away * away;
    }
    return squares;
}

/* Estimates the relative variation of power within a class from the blocks' residuals, which must
 * contain it. Where a block holds single leaves this is a measurement; where it holds many they
 * average out, and the residuals only bound the assumed value. Those of overlapping windows are
 * shrunk by what the fit found. */
static double estimate_spread(const pj_energies *j, const pj_rail_result *result)
{
    double *count = count_leaves(j);
    if (!count || !result->has_fit || j->options->trusted) {
        pj_free(count);
        return 0;
    }
    spread_sums sums = sum_leaves(j, result, count);
    pj_free(count);
    if (result->blocks.factor) return fmax(result->fit.spread, LEAST_SPREAD);
    if (!(sums.squares > 0)) return usual_spread(j);
    double bound = sqrt(sum_residuals(j, result) / sums.squares);
    double leaves = sums.energies / sums.squares;
    double seen = leaves < SEES_ROWS ? fmin(bound, MOST_SPREAD) : fmin(bound, usual_spread(j));
    return fmax(fmax(seen, result->fit.spread), LEAST_SPREAD);
}

/* ---- energies of leaves ---- */

/* Blocks of a curve without power windows: the pieces between two counter ticks are the blocks
 * already; this only removes implausible values of a foreign spool. */
static void keep_sane(pj_blocks *b)
{
    double whole_mj = 0;
    for (size_t k = 0; k < b->count; k++) {
        pj_segment *s = &b->segments[k];
        if (isnan(s->energy_mj)) continue;
        whole_mj += fabs(s->energy_mj);
        if (!(whole_mj < MOST_MJ) || s->end_ns - s->begin_ns >= LONGEST_NS) s->energy_mj = NAN;
    }
}

static void energy_rail_share(pj_energies *j, const pj_rail_result *result)
{
    for (uint32_t c = 0; c < j->pool_count; c++)
        j->pool_mw[c] = result->has_fit ? result->fit.power_mw[c] : 1;
    pj_share_result shared = {.gross_nj = j->rail_gross, .net_nj = j->rail_net};
    pj_share_run(result->blocks.segments, result->blocks.count, j->leaves,
                 (size_t)j->tree->leaf_count + 2, j->pool_mw, j->d->baseline_mw[result->rail],
                 &shared);
}

/* Energy of the blocks over an interval; a block at its edge counts in part. NAN: unknown. */
static double blocks_mj(const pj_blocks *b, int64_t begin_ns, int64_t end_ns)
{
    double mj = 0;
    for (size_t k = 0; k < b->count; k++) {
        const pj_segment *s = &b->segments[k];
        int64_t from = s->begin_ns > begin_ns ? s->begin_ns : begin_ns;
        int64_t to = s->end_ns < end_ns ? s->end_ns : end_ns;
        if (to > from) mj += s->energy_mj * (double)(to - from) / (double)(s->end_ns - s->begin_ns);
    }
    return mj;
}

/* The first and the last tick of a counter within an interval; false: there are not two. */
static bool find_ticks(const pj_curve *counted, int64_t *begin_ns, int64_t *end_ns)
{
    size_t n = pj_curve_windows(counted, *begin_ns, *end_ns, NULL, 0);
    pj_curve_window *w = pj_alloc(n, sizeof *w);
    if (!w) return false;
    pj_curve_windows(counted, *begin_ns, *end_ns, w, n);
    size_t first = 0, last = n;
    while (first < n && w[first].begin_ns < *begin_ns) first++;
    while (last > first && w[last - 1].end_ns > *end_ns) last--;
    bool found = first < last;
    if (found) *begin_ns = w[first].begin_ns, *end_ns = w[last - 1].end_ns;
    pj_free(w);
    return found;
}

/* A counter whose steps were taken as powers has nevertheless counted: the blocks add up to that,
 * within the run if it contains two ticks. How far the powers were off says how much of it the
 * sensor did not see, or saw at another time; this is common to all blocks. `late_ns`: how much
 * later than declared the ticks came. */
static void keep_counted(pj_energies *j, pj_rail_result *result, int64_t late_ns)
{
    const pj_curve *counted = j->steps[result->rail]; /* swapped */
    pj_blocks *b = &result->blocks;
    pj_curve_energy e;
    if (!counted || pj_curve_rail(counted)->kind != PJ_RAIL_COUNTER || b->count == 0) return;
    int64_t begin_ns = j->tree->begin_ns + late_ns, end_ns = j->tree->end_ns + late_ns;
    if (!find_ticks(counted, &begin_ns, &end_ns)) {
        begin_ns = b->segments[0].begin_ns + late_ns;
        end_ns = b->segments[b->count - 1].end_ns + late_ns;
        if (!find_ticks(counted, &begin_ns, &end_ns)) return;
    }
    pj_curve_query(counted, begin_ns, end_ns, &e);
    double factor = e.energy_mj / blocks_mj(b, begin_ns - late_ns, end_ns - late_ns);
    if (!isfinite(factor) || !(factor > 0)) return;
    for (size_t k = 0; k < b->count; k++) b->segments[k].energy_mj *= factor;
    result->unseen_sd = fabs(1 - 1 / factor);
}

static bool energy_rail_find_blocks(pj_energies *j, pj_rail_result *result)
{
    const pj_blocks *b = &result->blocks;
    size_t k = 0;
    result->first_block =
        pj_arena_alloc(&j->arena, j->tree->leaf_count, sizeof *result->first_block);
    result->leaf_mj = pj_arena_alloc(&j->arena, j->tree->leaf_count, sizeof *result->leaf_mj);
    if (!result->first_block || !result->leaf_mj) return false;
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) {
        const pj_leaf *leaf = &j->leaves[i + 1]; /* in order of begin */
        while (k < b->count && b->segments[k].end_ns <= leaf->begin_ns) k++;
        bool touches = k < b->count && b->segments[k].begin_ns < leaf->end_ns;
        result->first_block[i] = touches ? k : SIZE_MAX;
        result->leaf_mj[i] = (float)pj_mj_of_nj(j->rail_gross[i + 1]);
    }
    return true;
}

static bool find_bridges(pj_energies *j, pj_rail_result *result)
{
    const pj_blocks *b = &result->blocks;
    size_t count = 0, block = 0;
    result->bridges = pj_arena_alloc(&j->arena, j->tree->leaf_count, sizeof *result->bridges);
    result->bridge_begin = pj_arena_alloc(&j->arena, b->count + 2, sizeof *result->bridge_begin);
    if (!result->bridges || !result->bridge_begin) return false;
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) {
        size_t k = result->first_block[i];
        if (k == SIZE_MAX || j->leaves[i + 1].end_ns <= b->segments[k].end_ns) continue;
        while (block <= k) result->bridge_begin[block++] = count;
        result->bridges[count++] = i;
    }
    while (block <= b->count) result->bridge_begin[block++] = count;
    return true;
}

/* Share of the run covered by windows. */
static double observed_share(const pj_energies *j, const pj_rail_result *result)
{
    const pj_tree *tree = j->tree;
    int64_t seen = 0, until = tree->begin_ns;
    for (size_t i = 0; i < result->window_count; i++) {
        int64_t begin = result->windows[i].begin_ns, end = result->windows[i].end_ns;
        if (begin < until) begin = until;
        if (end > tree->end_ns) end = tree->end_ns;
        if (end > begin) seen += end - begin, until = end;
    }
    return tree->end_ns > tree->begin_ns ? (double)seen / (double)(tree->end_ns - tree->begin_ns)
                                         : 1;
}

static void energy_rail_add_leaves(pj_energies *j, pj_rail_result *result)
{
    const pj_tree *tree = j->tree;
    bool baseline = !isnan(j->d->baseline_mw[result->rail]);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        if (!pj_rail_sees_leaf(j, result, i)) continue;
        double mj = pj_mj_of_nj(j->rail_gross[i + 1]);
        double net_mj = baseline ? pj_mj_of_nj(j->rail_net[i + 1]) : NAN;
        uint8_t phase = tree->classes[tree->leaves[i].class_].phase;
        result->phase_mj[phase] += mj;
        result->whole_mj += mj;
        result->phase_net_mj[phase] += net_mj;
        result->whole_net_mj += net_mj;
        pj_nj_add(&j->gross[i], j->rail_gross[i + 1]);
        pj_nj_add(&j->net[i], baseline ? j->rail_net[i + 1] : PJ_NJ_UNKNOWN);
    }
}

/* ---- timings ---- */

static pj_status energy_rail_attribute(pj_energies *j, pj_rail_result *result, bool as_declared,
                                       int64_t late_ns, pj_error *err)
{
    set_reach(j, result);
    pj_status status = fit_rail(j, result, as_declared, err);
    if (status == PJ_OK) status = make_blocks(j, result, err);
    if (status != PJ_OK) return status;
    keep_counted(j, result, late_ns);
    keep_sane(&result->blocks);
    energy_rail_share(j, result);
    return PJ_OK;
}

/* The energy of every leaf under an alternative timing. */
static pj_status try_timing(pj_energies *j, pj_rail_result *result, const pj_timing *timing,
                            pj_error *err)
{
    uint32_t leaves = j->tree->leaf_count;
    pj_rail_result other = {.rail = result->rail,
                            .devices = result->devices,
                            .leaves = result->leaves,
                            .counter = result->counter,
                            .period_ns = result->period_ns,
                            .idle_sd_mw = result->idle_sd_mw,
                            .window_count = result->window_count};
    float *mj = pj_arena_alloc(&j->arena, leaves, sizeof *mj);
    other.windows = pj_alloc(other.window_count, sizeof *other.windows);
    pj_status status = PJ_OK;
    if (!mj || !other.windows) status = pj_fail_memory(err, "the windows of a sensor");
    if (status == PJ_OK) {
        pj_energy_shift_windows(result->windows, other.window_count, timing, other.windows);
        status = energy_rail_attribute(j, &other, false, timing->shift_ns, err);
    }
    for (uint32_t i = 0; status == PJ_OK && i < leaves; i++)
        mj[i] = (float)pj_mj_of_nj(j->rail_gross[i + 1]);
    pj_energy_rail_fini(&other);
    if (status != PJ_OK) return status;
    result->alternative_mj[result->alternative_count] = mj;
    result->alternative_weight[result->alternative_count++] = timing->weight;
    return PJ_OK;
}

/* By how much the spans of the rail's devices may be early or late: 1 sigma, and alike for all of
 * them. 0: too little to matter to the rail's windows. */
static int64_t clock_error(const pj_energies *j, const pj_rail_result *result)
{
    int64_t error_ns = 0;
    for (uint32_t d = 1; d < j->tree->device_count; d++)
        if (pj_rail_sees(result, (uint8_t)d) && j->tree->clock_error_ns[d] > error_ns)
            error_ns = j->tree->clock_error_ns[d];
    return error_ns * LEAST_CLOCK_PART < result->period_ns ? 0 : error_ns;
}

static pj_status try_timings(pj_energies *j, pj_rail_result *result, pj_error *err)
{
    pj_timings t;
    set_reach(j, result);
    pj_energy_timings(j, result, &t);
    result->settled = t.settled;
    result->certain = t.certain || rail_of(j, result)->kind == PJ_RAIL_COUNTER ||
                      pj_curve_reports_windows(j->curves[result->rail]);
    for (uint32_t i = 1; i < t.count; i++) {
        pj_status status = try_timing(j, result, &t.all[i], err);
        if (status != PJ_OK) return status;
    }
    pj_timing late = t.all[0];
    late.weight = 1;
    late.shift_ns += clock_error(j, result);
    if (late.shift_ns != t.all[0].shift_ns) {
        pj_status status = try_timing(j, result, &late, err);
        if (status != PJ_OK) return status;
    }
    bool as_declared = !t.all[0].shift_ns && !t.all[0].window_ns;
    pj_energy_shift_windows(result->windows, result->window_count, &t.all[0], result->windows);
    return energy_rail_attribute(j, result, as_declared, t.all[0].shift_ns, err);
}

/* Rails of one kind share their gain error: CPU sockets, or cards with one driver. */
static uint32_t gain_group(const pj_energies *j, uint32_t rail)
{
    const pj_rail *own = &j->d->rails[rail];
    uint32_t group = 0;
    while (group + 1 < j->result_count) { /* the last result is the rail's own */
        const pj_rail *other = &j->d->rails[j->results[group].rail];
        if (other->rail_class == own->rail_class && strcmp(other->source, own->source) == 0) break;
        group++;
    }
    return group;
}

static void swap_curves(pj_energies *j, uint32_t rail)
{
    pj_curve *curve = j->curves[rail];
    j->curves[rail] = j->steps[rail];
    j->steps[rail] = curve;
}

/* Whether most steps of a counter are of several periods, as where a read is dear: what its sensor
 * sees of each period does not show in them. */
static bool is_read_rarely(const pj_energies *j, uint32_t rail)
{
    const pj_curve *counted = j->curves[rail];
    int64_t begin_ns, end_ns;
    if (!pj_curve_span(counted, &begin_ns, &end_ns)) return false;
    size_t steps = pj_curve_windows(counted, begin_ns, end_ns, NULL, 0);
    return (double)(end_ns - begin_ns) >
           2.0 * (double)(steps * (uint64_t)j->d->rails[rail].period_ns);
}

/* A slow counter's steps are the energies of its periods, as declared, unless the readings refute
 * that: then they are readings of power, whose delay and window are inferred. So are those of a
 * counter whose sensor sees a part of the time. */
static pj_status choose_curve(pj_energies *j, uint32_t rail, pj_error *err)
{
    if (!j->steps[rail] || is_read_rarely(j, rail)) return PJ_OK;
    if (pj_rail_steps_are_power(&j->d->rails[rail])) {
        swap_curves(j, rail);
        return PJ_OK;
    }
    pj_rail_result probe = {
        .rail = rail, .devices = j->rail_devices[rail], .idle_sd_mw = j->d->baseline_sd_mw[rail]};
    swap_curves(j, rail);
    j->leaves = probe.leaves = pj_energy_leaves_of(j, &probe);
    if (!j->leaves) return pj_fail_memory(err, "the energies of a run");
    pj_status status = get_windows(j, &probe, err);
    if (status == PJ_OK) {
        pj_timings timings;
        probe.period_ns = period_of(j, &probe);
        drop_busy_margins(j, &probe);
        set_reach(j, &probe);
        pj_energy_timings(j, &probe, &timings);
        if (timings.log_against < REFUTED)
            swap_curves(j, rail);
        else /* what the checks of the rails found holds for the steps, too */
            pj_curve_doubt_gain(j->curves[rail], pj_curve_rail(j->steps[rail])->gain_sd);
    }
    pj_energy_rail_fini(&probe);
    return status;
}

pj_status pj_energy_rail(pj_energies *j, uint32_t rail, pj_error *err)
{
    pj_status chosen = choose_curve(j, rail, err);
    if (chosen != PJ_OK) return chosen;
    pj_rail_result *result = &j->results[j->result_count++];
    const pj_rail *r = &j->d->rails[rail];
    double idle_sd = j->d->baseline_sd_mw[rail];
    /* a counter of a sensor that sees a part of the time is treated as its power */
    pj_rail_kind curve_kind = pj_curve_rail(j->curves[rail])->kind;
    *result = (pj_rail_result){.rail = rail,
                               .devices = j->rail_devices[rail],
                               .counter = curve_kind == PJ_RAIL_COUNTER || r->lag_ns > 0,
                               .idle_sd_mw = isnan(idle_sd) ? 0 : idle_sd,
                               .gain_sd = r->gain_sd > 0 ? r->gain_sd : PJ_USUAL_GAIN_SD,
                               .offset_sd_mw = pj_rail_offset_sd_mw(r),
                               .gain_group = gain_group(j, rail)};
    j->leaves = result->leaves = pj_energy_leaves_of(j, result);
    if (!j->leaves) return pj_fail_memory(err, "the energies of a run");
    pj_status status = get_windows(j, result, err);
    if (status != PJ_OK) return status;
    result->period_ns = period_of(j, result);
    if (!result->counter) drop_busy_margins(j, result);
    status = try_timings(j, result, err);
    if (status != PJ_OK) return status;
    j->by_time |= !result->has_fit;
    result->observed = observed_share(j, result);
    if (!energy_rail_find_blocks(j, result) || !find_bridges(j, result))
        return pj_fail_memory(err, "the energies of a run");
    result->class_spread = estimate_spread(j, result);
    status = pj_energy_scale(j, result, err);
    if (status != PJ_OK) return status;
    energy_rail_add_leaves(j, result);
    result->weight_mj = isnan(result->whole_mj) ? 0 : result->whole_mj;
    return PJ_OK;
}
