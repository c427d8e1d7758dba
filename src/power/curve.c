/*
 * Energy curves: how readings become pieces. Queries are in curve_query.c.
 *
 * Each piece stores prefix sums (energy, known time, variance of unseen time), so that a query is
 * two binary searches. Energies never decrease: a lag correction that would make a piece negative
 * is carried over to the next ones. What a counter counted between two ticks is never changed: a
 * log only distributes it among several pieces, and a sensor that sees part of the time only makes
 * it less certain.
 */
#include "power/curve_impl.h"

#include "base/clock.h"
#include "base/interval.h"
#include "base/memory.h"
#include "power/deconvolve.h"
#include "power/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILL_PERIODS = 3 };       /* longer gaps are unknown time */
enum { MAX_BRIDGED_PERIODS = 4096 }; /* of a counter's steps that were not polled */
/* Share of the time that a sensor of unknown window is assumed to see. */
static const double UNKNOWN_SEEN = 0.25;
/* Of the time between two ticks a log has to cover this much to distribute its energy. */
static const double LOG_COVERS = 0.8;
/* Up to this share of a step may be taken away from where the power changed. */
static const double LOG_REST = 0.05;
/* A log agrees with its counter to this share of a step, and of what its values change by. */
static const double LOG_AGREES = 0.03, LOG_EDGES = 0.5;
/* That they agree counts as much as so many steps that were seen. */
static const double LOG_PRIOR = 10;
/* Relative 1 sigma of energy that only the log has seen where the counter stands still; and of the
 * log's ratio to its counter, once that is known. */
static const double STANDING_SD = 0.05, LOG_LEAST_SD = 0.01;
/* Of its steps a counter would have counted this many, had it not stood still. */
static const double STANDS_STEPS = 4;
/* A step that counted less than this share of what its log shows may be one in which the counter
 * stopped: the next tick tells. */
static const double SHORT_FAR = 0.85;
/* The next step exceeds its log by at least this share of what the short step lacks. */
static const double CAUGHT_UP = 0.5;
/* A first step beyond its log by this factor and so many periods was counted over a pause. */
static const double CAUGHT_UP_FAR = 1.5, CAUGHT_UP_PERIODS = 3;
/* Of a period: a tick is vague whose time is known to no more than this on either side. */
static const double VAGUE = 0.25;
/* The log tells ticks apart where one is nearer than this share of the energy between them, and all
 * others are farther than this. */
static const double DATES_NEAR = 0.3, DATES_FAR = 0.7;
/* Half width of the uncertainty of where the part of a value begins and ends. */
static const float LOG_EDGE_NS = PJ_NS_PER_MS;
/* Half of what single ticks of a grid deviate from it. */
static const double GRID_JITTER_NS = 0.5 * PJ_NS_PER_MS;

static pj_curve *new_curve(const pj_rail *rail, bool of_steps)
{
    pj_curve *curve = pj_alloc(1, sizeof *curve);
    if (!curve) return NULL;
    curve->rail = *rail;
    curve->period_ns = rail->period_ns;
    curve->gain = rail->gain > 0 ? rail->gain : 1;
    curve->last_mw = NAN;
    curve->least_mw = INFINITY;
    curve->of_steps = of_steps;
    if (of_steps) {
        curve->rail.kind = PJ_RAIL_INSTANT;
        curve->rail.resolution = rail->resolution * 1e-3 / ((double)rail->period_ns * 1e-9);
    }
    return curve;
}

pj_curve *pj_curve_new(const pj_rail *rail)
{
    return new_curve(rail, false);
}

pj_curve *pj_curve_new_of_steps(const pj_rail *rail)
{
    return new_curve(rail, true);
}

void pj_curve_free(pj_curve *curve)
{
    if (!curve) return;
    pj_free(curve->pieces);
    pj_free(curve->windows);
    pj_free(curve);
}

const pj_rail *pj_curve_rail(const pj_curve *curve)
{
    return &curve->rail;
}

bool pj_curve_reports_windows(const pj_curve *curve)
{
    return curve->window_count > 0 && curve->unreported == 0;
}

void pj_curve_follow(pj_curve *curve, const pj_curve *log)
{
    curve->log = log;
}

void pj_curves_link(pj_curve *const *curves, const pj_rail *rails, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int log = pj_rail_log_of(rails, count, i);
        if (log >= 0 && curves[i] && curves[log]) pj_curve_follow(curves[i], curves[log]);
    }
}

void pj_curve_doubt_gain(pj_curve *curve, double excess)
{
    if (excess > curve_gain_sd(curve)) curve->rail.gain_sd = excess;
}

/* The energies that its ticks would move, at the powers around them. */
static void curve_set_tick_sd(const pj_curve *c, piece *p, double begin_mw, double end_mw)
{
    double edge_ns = fmin((double)p->begin_edge_ns, (double)p->edge_ns);
    if (c->rail.grid_ns > 0 && edge_ns > GRID_JITTER_NS)
        p->common = (float)(1 - GRID_JITTER_NS * GRID_JITTER_NS / (edge_ns * edge_ns));
    p->begin_sd = begin_mw * (double)p->begin_edge_ns * 1e-9 / sqrt(3);
    p->end_sd = end_mw * (double)p->edge_ns * 1e-9 / sqrt(3);
}

static pj_status curve_grow(void **block, size_t *capacity, size_t element_bytes, pj_error *err)
{
    size_t wanted = *capacity ? *capacity * 2 : 256;
    void *bigger = pj_resize(*block, wanted, element_bytes);
    if (!bigger) return pj_fail_memory(err, "an energy curve");
    *block = bigger;
    *capacity = wanted;
    return PJ_OK;
}

/* Adds `given`, of which prefix sums are computed here. */
static pj_status curve_add_part(pj_curve *c, const piece *given, pj_error *err)
{
    if (given->end_ns <= given->begin_ns) return PJ_OK;
    if (c->count == c->capacity) {
        pj_status status = curve_grow((void **)&c->pieces, &c->capacity, sizeof *c->pieces, err);
        if (status != PJ_OK) return status;
    }
    double wanted = given->energy_mj - c->debt_mj;
    c->debt_mj = wanted < 0 ? -wanted : 0;
    piece *p = &c->pieces[c->count];
    *p = *given;
    p->energy_mj = wanted > 0 ? wanted : 0;
    if (c->count > 0) {
        const piece *before = p - 1;
        double length = (double)(before->end_ns - before->begin_ns);
        p->energy_before = before->energy_before + before->energy_mj;
        p->fill_var_before =
            before->fill_var_before + (double)before->fill_sd * (double)before->fill_sd;
        p->doubt_var_before =
            before->doubt_var_before + (double)before->doubt_sd * (double)before->doubt_sd;
        p->fill_sd_sum_before = before->fill_sd_sum_before + (double)before->fill_sd;
        p->known_before_ns = before->known_before_ns + (double)before->seen * length;
        p->covered_before_ns = before->covered_before_ns + before->end_ns - before->begin_ns;
    }
    c->count++;
    return PJ_OK;
}

/* A piece of its own between two ticks. `fill_sd`: nothing observed it. */
static pj_status curve_add_piece(pj_curve *c, int64_t begin_ns, int64_t end_ns, double energy_mj,
                                 double edge_ns, double fill_sd, pj_error *err)
{
    const piece *last = c->count ? &c->pieces[c->count - 1] : NULL;
    bool follows = last && last->end_ns == begin_ns;
    piece p = {.begin_ns = begin_ns,
               .end_ns = end_ns,
               .energy_mj = energy_mj,
               .begin_edge_ns = follows ? last->edge_ns : (float)edge_ns,
               .edge_ns = (float)edge_ns,
               .fill_sd = (float)fill_sd,
               .seen = fill_sd > 0 ? 0 : 1,
               .swing_mj = (float)energy_mj,
               .tick = ++c->ticks,
               .until = 1};
    curve_set_tick_sd(c, &p, piece_mw(&p), piece_mw(&p));
    return curve_add_part(c, &p, err);
}

static int64_t tick_of(const pj_curve *c, const pj_reading *r)
{
    int64_t at = r->fresh_ns ? r->fresh_ns : r->before_ns + (r->after_ns - r->before_ns) / 2;
    return at - c->rail.delay_ns;
}

double pj_counter_step(const pj_rail *rail, double old_uj, double new_uj)
{
    double step = new_uj - old_uj;
    if (step >= 0) return step;
    step += rail->modulus_uj;
    return rail->modulus_uj > 0 && step >= 0 ? step : NAN;
}

static void curve_note_mw(pj_curve *c, double mw)
{
    c->least_mw = fmin(c->least_mw, mw);
    c->most_mw = fmax(c->most_mw, mw);
}

/* Where a counter's sensor sees part of the time, what it did not see is as uncertain as power
 * varies from step to step. */
static void curve_see_part(pj_curve *c, piece *p)
{
    const pj_rail *rail = &c->rail;
    double mw = piece_mw(p), difference = mw - c->last_mw;
    curve_note_mw(c, mw);
    if (!isnan(difference))
        c->spread_mw2 +=
            (difference * difference / 2 - c->spread_mw2) / (c->spread_mw2 > 0 ? 8 : 1);
    c->last_mw = mw;
    if (!pj_rail_steps_are_power(rail)) return;
    p->seen =
        rail->window_ns > 0 ? (float)rail->window_ns / (float)rail->period_ns : (float)UNKNOWN_SEEN;
    double length = (double)(p->end_ns - p->begin_ns);
    double periods = fmax(length / (double)rail->period_ns, 1);
    double unseen_s = (1 - (double)p->seen) * length * 1e-9;
    p->fill_sd = (float)(sqrt((c->spread_mw2 + 1e-4 * mw * mw) / periods) * unseen_s);
}

/* Middle of a window of the log, to which its value belongs. */
static int64_t log_middle(const pj_curve *log, size_t i)
{
    const pj_curve_point *w = &log->windows[i];
    return w->begin_ns + (w->end_ns - w->begin_ns) / 2;
}

/* Where the part of value i ends: halfway to the next one's middle, or with the piece. */
static int64_t log_part_end(const pj_curve *log, size_t i, int64_t end_ns)
{
    if (i + 1 >= log->window_count) return end_ns;
    int64_t a = log_middle(log, i), b = log_middle(log, i + 1), end = a + (b - a) / 2;
    return end < end_ns ? end : end_ns;
}

/* The first value whose part ends after `at_ns`. */
static size_t log_at(const pj_curve *log, int64_t at_ns)
{
    size_t low = 0, high = log->window_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log_part_end(log, middle, INT64_MAX) > at_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Largest difference between a value and its neighbours. */
static double log_swing_mw(const pj_curve *log, size_t i)
{
    double mw = log->windows[i].power_mw, swing = LOG_NOISE * mw;
    if (i > 0) swing = fmax(swing, fabs(mw - log->windows[i - 1].power_mw));
    if (i + 1 == log->window_count)
        return fmax(swing, mw / 2); /* nothing is known of what follows */
    return fmax(swing, fabs(mw - log->windows[i + 1].power_mw));
}

/* What a log says about the time between two ticks. */
typedef struct log_view {
    size_t first, last; /* values */
    double energy_mj;
    double swing_sum; /* of squared swings, mJ^2 */
} log_view;

/* False where the log does not cover the piece. */
static bool log_look(const pj_curve *log, const piece *p, log_view *v)
{
    int64_t from = p->begin_ns, covered = 0;
    *v = (log_view){.first = log_at(log, from)};
    for (size_t i = v->first; i < log->window_count && from < p->end_ns; i++) {
        const pj_curve_point *w = &log->windows[i];
        int64_t to = log_part_end(log, i, p->end_ns), near = w->end_ns - w->begin_ns;
        int64_t first = from > w->begin_ns - near ? from : w->begin_ns - near;
        int64_t last = to < w->end_ns + near ? to : w->end_ns + near;
        double seconds = (double)(to - from) * 1e-9, swing = log_swing_mw(log, i) * seconds;
        if (last > first) covered += last - first;
        v->energy_mj += w->power_mw * seconds;
        v->swing_sum += swing * swing;
        v->last = i;
        from = to;
    }
    return (double)covered >= LOG_COVERS * (double)(p->end_ns - p->begin_ns);
}

/* What a tick that may be of another one's time moves between two steps; a seen one's is little. */
static double curve_vague_mj2(const pj_curve *c, double edge_ns, double mw)
{
    bool is_vague = edge_ns > VAGUE * (double)c->period_ns;
    return is_vague ? pow(mw * edge_ns * 1e-9, 2) : 0;
}

/* A log shows what a counter counts, apart from where the power changes and from ticks that are
 * vague: the rest is what one of both does not see, as a counter whose sensor sees a part of the
 * time. */
static double curve_doubt_mj(const pj_curve *c, const piece *p, const log_view *v)
{
    double usual = LOG_PRIOR * v->energy_mj;
    double gain = (c->log_counted_mj + usual) / (c->log_seen_mj + usual);
    const pj_curve_point *log = c->log->windows;
    double off = p->energy_mj - gain * v->energy_mj, edges = LOG_EDGES * sqrt(v->swing_sum);
    double square = off * off - edges * edges - pow(LOG_AGREES * p->energy_mj, 2) -
                    curve_vague_mj2(c, p->begin_edge_ns, gain * log[v->first].power_mw) -
                    curve_vague_mj2(c, p->edge_ns, gain * log[v->last].power_mw);
    return square > 0 ? sqrt(square) : 0;
}

/* A few steps with uncertain ends do not show that the two disagree. */
double pj_curve_log_ratio(const pj_curve *c, double mj_per_ns, double *relative_sd)
{
    double usual = LOG_PRIOR * (double)c->period_ns * mj_per_ns;
    double unknown = usual > 0 ? usual / (c->log_seen_mj + usual) : 1;
    *relative_sd = LOG_LEAST_SD + (LOG_AGREES - LOG_LEAST_SD) * unknown;
    return usual > 0 ? (c->log_counted_mj + usual) / (c->log_seen_mj + usual) : 1;
}

/* What the counter would count in a piece by what the log shows. */
static double curve_would_count_mj(const pj_curve *c, const piece *p, const log_view *v)
{
    double relative_sd, ns = (double)(p->end_ns - p->begin_ns);
    return pj_curve_log_ratio(c, v->energy_mj / ns, &relative_sd) * v->energy_mj;
}

/* The ratio of the counter to the log so far. */
static double curve_log_gain(pj_curve *c, double counted_mj, double logged_mj)
{
    c->log_counted_mj += counted_mj;
    c->log_seen_mj += logged_mj;
    return c->log_counted_mj / c->log_seen_mj;
}

/* Distributes the energy between two ticks as the log has it. What is left to distribute after that
 * belongs to where the power changed, since windows of the log reach across the borders of their
 * parts. Where that would be negative the whole is scaled. */
static pj_status curve_add_logged(pj_curve *c, const piece *whole, const log_view *v, pj_error *err)
{
    const pj_curve *log = c->log;
    double gain = curve_log_gain(c, whole->energy_mj, v->energy_mj);
    double rest_mj = whole->energy_mj - gain * v->energy_mj, done_mj = 0, swings = 0;
    if (rest_mj < -LOG_REST * whole->energy_mj) {
        gain = whole->energy_mj / v->energy_mj;
        rest_mj = 0;
    }
    piece ends = *whole;
    curve_set_tick_sd(c, &ends, gain * log->windows[v->first].power_mw,
                      gain * log->windows[v->last].power_mw);
    pj_status status = PJ_OK;
    int64_t from = whole->begin_ns;
    for (size_t i = v->first; i <= v->last && status == PJ_OK; i++) {
        bool is_last = i == v->last;
        int64_t to = is_last ? whole->end_ns : log_part_end(log, i, whole->end_ns);
        double seconds = (double)(to - from) * 1e-9, swing_mj = log_swing_mw(log, i) * seconds;
        double mj = gain * log->windows[i].power_mw * seconds +
                    rest_mj * swing_mj * swing_mj / v->swing_sum;
        piece p = ends;
        p.begin_ns = from;
        p.end_ns = to;
        /* the last part takes what is left, so that the sum is what was counted */
        p.energy_mj =
            is_last ? whole->energy_mj - done_mj : fmin(fmax(mj, 0), whole->energy_mj - done_mj);
        p.swing_mj = (float)(gain * swing_mj);
        float part = (float)sqrt((double)(to - from) / (double)(whole->end_ns - whole->begin_ns));
        p.fill_sd = whole->fill_sd * part;
        p.doubt_sd = whole->doubt_sd * part;
        p.begin_edge_ns = from == whole->begin_ns ? whole->begin_edge_ns : LOG_EDGE_NS;
        p.edge_ns = is_last ? whole->edge_ns : LOG_EDGE_NS;
        p.before = (float)(done_mj / whole->energy_mj);
        p.swings_before = (float)swings;
        p.swings = (float)(swing_mj * swing_mj);
        p.swings_all = (float)v->swing_sum;
        swings += swing_mj * swing_mj;
        done_mj += p.energy_mj;
        p.until = (float)(done_mj / whole->energy_mj);
        status = curve_add_part(c, &p, err);
        from = to;
    }
    return status;
}

/* What was counted between two ticks. */
static pj_status curve_add_counted(pj_curve *c, const piece *given, pj_error *err)
{
    piece p = *given;
    p.seen = 1;
    p.until = 1;
    p.tick = ++c->ticks;
    p.swing_mj = (float)p.energy_mj;
    curve_see_part(c, &p);
    curve_set_tick_sd(c, &p, piece_mw(&p), piece_mw(&p));
    log_view v;
    bool is_logged = c->log && p.energy_mj > 0 && log_look(c->log, &p, &v) && v.energy_mj > 0;
    if (is_logged) p.doubt_sd = (float)curve_doubt_mj(c, &p, &v);
    c->last_step = p;
    c->last_step_logged_mj = is_logged ? v.energy_mj : 0;
    return is_logged ? curve_add_logged(c, &p, &v, err) : curve_add_part(c, &p, err);
}

/* The first value after arming is as old as the last tick. Where ticks are on a grid and the first
 * one that was seen is better known, that tick is a whole number of periods before it, unless the
 * first read was so slow that it may have been of either of two ticks. */
static void curve_date_arming(pj_curve *c, const pj_reading *r, int64_t tick)
{
    int64_t period = c->rail.grid_ns;
    if (period <= 0 || (double)r->fresh_error_ns >= c->last_edge_ns) return;
    int64_t periods = (tick - c->last_tick_ns + period / 2) / period;
    if (periods < 1) periods = 1;
    int64_t found = tick - periods * period;
    double other = (double)(period - llabs(found - c->last_tick_ns)); /* how far the next best is */
    if (other < c->last_edge_ns + (double)r->fresh_error_ns && periods > 1) return;
    c->last_tick_ns = found;
    c->last_edge_ns = (double)r->fresh_error_ns;
}

/* A read that was slow may have been of either of two ticks of the grid. Of those that are whole
 * periods from a tick that is better known, it is the one up to which the log shows what was
 * counted. Returns the vague tick where the log does not tell. */
static int64_t curve_date_vague(const pj_curve *c, int64_t known, int64_t vague, double error_ns,
                                double counted_mj)
{
    int64_t period = c->rail.grid_ns, found = vague;
    int64_t first = (int64_t)ceil(((double)(vague - known) - error_ns) / (double)period);
    int64_t last = (int64_t)floor(((double)(vague - known) + error_ns) / (double)period);
    double best = INFINITY, second = INFINITY, before_mj = NAN, period_mj = INFINITY;
    for (int64_t k = first; k <= last; k++) {
        int64_t at = known + k * period;
        piece p = {.begin_ns = at < known ? at : known, .end_ns = at < known ? known : at};
        log_view v;
        if (k == 0) continue;
        if (!log_look(c->log, &p, &v)) return vague;
        double mj = curve_would_count_mj(c, &p, &v), off = fabs(mj - counted_mj);
        double one_mj = isnan(before_mj) ? mj / (double)llabs(k) : fabs(mj - before_mj);
        period_mj = fmin(period_mj, one_mj);
        before_mj = mj;
        second = fmin(second, fmax(off, best));
        best = fmin(best, off);
        if (off == best) found = at;
    }
    bool is_clear = best < DATES_NEAR * period_mj && second > DATES_FAR * period_mj;
    return is_clear ? found : vague;
}

/* Dates one of the two ticks of a step, where the other is well known. */
static void curve_date_step(pj_curve *c, double step_uj, int64_t *tick, double *error_ns)
{
    double least = VAGUE * (double)c->rail.grid_ns, mj = step_uj * 1e-3 / c->gain;
    bool knows_begin = c->last_edge_ns < least, knows_end = *error_ns < least;
    if (c->rail.grid_ns <= 0 || !c->log || c->lent_mj > 0 || knows_begin == knows_end ||
        pj_rail_sees_part(&c->rail))
        return;
    if (knows_end && !c->just_armed) return; /* the step before has ended there */
    int64_t known = knows_end ? *tick : c->last_tick_ns;
    int64_t vague = knows_end ? c->last_tick_ns : *tick;
    int64_t found = curve_date_vague(c, known, vague, knows_end ? c->last_edge_ns : *error_ns, mj);
    if (found == vague) return;
    if (knows_end) {
        c->last_tick_ns = found;
        c->last_edge_ns = *error_ns;
    } else {
        *tick = found;
        *error_ns = c->last_edge_ns;
    }
}

/* What the log has of the time since the counter's last tick. */
static bool curve_look_since(const pj_curve *c, int64_t until_ns, piece *p, log_view *v)
{
    *p = (piece){.begin_ns = c->last_tick_ns,
                 .end_ns = until_ns,
                 .begin_edge_ns = (float)c->last_edge_ns,
                 .edge_ns = LOG_EDGE_NS,
                 .seen = 1,
                 .until = 1};
    return c->log && c->log->window_count > 0 && until_ns > p->begin_ns && log_look(c->log, p, v);
}

/* Whether the log shows more than the last step counted. */
static bool curve_is_short(const pj_curve *c)
{
    return c->last_step_logged_mj > 0 && c->last_step.doubt_sd > 0 &&
           c->last_step.energy_mj < c->last_step_logged_mj;
}

static bool curve_is_far_short(const pj_curve *c)
{
    return curve_is_short(c) && c->last_step.energy_mj < SHORT_FAR * c->last_step_logged_mj;
}

int64_t pj_curve_sure_ns(const pj_curve *curve)
{
    return curve_is_far_short(curve) ? curve->last_step.begin_ns : INT64_MAX;
}

/* Removes the last step, if nothing was added since. */
static bool curve_take_back(pj_curve *c)
{
    uint32_t tick = c->last_step.tick;
    if (c->count == 0 || c->pieces[c->count - 1].tick != tick) return false;
    while (c->count > 0 && c->pieces[c->count - 1].tick == tick) c->count--;
    c->log_counted_mj -= c->last_step.energy_mj;
    c->log_seen_mj -= c->last_step_logged_mj;
    c->last_step_logged_mj = 0;
    return true;
}

/* A counter that paused counts later what a short step lacks: the two are one step, within which
 * only the log knows where the energy was. */
static void curve_join_short(pj_curve *c, piece *p)
{
    log_view v;
    double missing_mj = c->last_step_logged_mj - c->last_step.energy_mj;
    /* one that sees a part of the time counts too little and too much by itself */
    if (pj_rail_sees_part(&c->rail) || !curve_is_far_short(c) || !log_look(c->log, p, &v)) return;
    if (p->energy_mj - v.energy_mj < CAUGHT_UP * missing_mj || !curve_take_back(c)) return;
    p->energy_mj += c->last_step.energy_mj;
    p->begin_ns = c->last_step.begin_ns;
    p->begin_edge_ns = c->last_step.begin_edge_ns;
}

/* The step before a counter stands still may be of a time in which it stopped: far below what the
 * log shows, it is the log's as well. */
static pj_status curve_recount(pj_curve *c, pj_error *err)
{
    piece p = c->last_step;
    log_view v;
    double counted_mj = p.energy_mj;
    bool is_short = curve_is_short(c) && log_look(c->log, &p, &v) && curve_take_back(c);
    c->last_step_logged_mj = 0;
    if (!is_short) return PJ_OK;
    p.energy_mj = curve_would_count_mj(c, &p, &v);
    p.doubt_sd = 0;
    p.fill_sd = (float)(STANDING_SD * p.energy_mj);
    curve_set_tick_sd(c, &p, piece_mw(&p), piece_mw(&p));
    c->lent_from_ns = p.begin_ns;
    c->lent_mj += p.energy_mj - counted_mj;
    return curve_add_logged(c, &p, &v, err);
}

/* Lends the energy of the log for a time in which the counter stood still: it is taken off what
 * the counter counts when it moves again. */
static pj_status curve_lend(pj_curve *c, piece *p, const log_view *v, pj_error *err)
{
    bool was_moving = c->lent_mj <= 0;
    if (was_moving) c->lent_from_ns = p->begin_ns;
    pj_status status = was_moving ? curve_recount(c, err) : PJ_OK;
    if (status != PJ_OK) return status;
    p->tick = ++c->ticks;
    p->energy_mj = curve_would_count_mj(c, p, v);
    p->swing_mj = (float)p->energy_mj;
    p->fill_sd = (float)(STANDING_SD * p->energy_mj);
    curve_set_tick_sd(c, p, piece_mw(p), piece_mw(p));
    c->lent_mj += p->energy_mj;
    c->last_tick_ns = p->end_ns;
    c->last_edge_ns = (double)p->edge_ns;
    c->just_armed = false;
    return v->energy_mj > 0 ? curve_add_logged(c, p, v, err) : curve_add_part(c, p, err);
}

/* A counter that has not moved for several periods: up to the read the log has the energy. */
static pj_status add_standing(pj_curve *c, const pj_reading *r, pj_error *err)
{
    if (!c->log || c->log->window_count == 0 || !c->armed) return PJ_OK;
    int64_t until = r->before_ns - c->rail.delay_ns - c->period_ns;
    int64_t logged = c->log->windows[c->log->window_count - 1].end_ns;
    piece p;
    log_view v;
    if (until > logged) until = logged;
    if (until - c->last_tick_ns < MAX_FILL_PERIODS * c->period_ns ||
        !curve_look_since(c, until, &p, &v))
        return PJ_OK;
    return curve_lend(c, &p, &v, err);
}

/* Whether a tick at which nothing was counted contradicts the log: a counter that stands still. */
static bool curve_stands(const pj_curve *c, double step_uj, int64_t tick, piece *p, log_view *v)
{
    return step_uj == 0 && curve_look_since(c, tick, p, v) &&
           v->energy_mj > STANDS_STEPS * c->rail.resolution * 1e-3;
}

/* A counter may have paused before it was first read: it counts then what is of before that. Where
 * its first step far exceeds its log, it is of as much time as the log needs to show it, as far as
 * nothing is known of that, and of no more than it shows. */
static bool curve_date_pause(pj_curve *c, double *counted_mj, int64_t tick)
{
    piece p;
    log_view v;
    if (!c->is_unmoved || pj_rail_sees_part(&c->rail) || !curve_look_since(c, tick, &p, &v))
        return false;
    double shown = curve_would_count_mj(c, &p, &v), ratio = shown / v.energy_mj;
    double period_mj = shown * (double)c->period_ns / (double)(p.end_ns - p.begin_ns);
    bool is_far = *counted_mj > CAUGHT_UP_FAR * shown + CAUGHT_UP_PERIODS * period_mj;
    const pj_curve *log = c->log;
    bool lacks_begin = log->windows[v.first].begin_ns > p.begin_ns + log->period_ns;
    if (!(shown > 0) || !is_far || lacks_begin) return false;
    size_t i = c->just_armed ? log_at(log, p.begin_ns) : 0;
    for (; i > 0 && shown < *counted_mj; i--) {
        int64_t from = log_part_end(log, i - 1, INT64_MAX);
        if (from >= p.begin_ns) continue;
        shown += ratio * log->windows[i].power_mw * (double)(p.begin_ns - from) * 1e-9;
        p.begin_ns = from;
    }
    c->last_tick_ns = p.begin_ns;
    c->last_edge_ns = fmax(c->last_edge_ns, (double)log->period_ns);
    *counted_mj = fmin(*counted_mj, shown);
    return true;
}

static pj_status add_counter(pj_curve *c, const pj_reading *r, pj_error *err)
{
    int64_t tick = tick_of(c, r);
    double step = NAN, error_ns = (double)r->fresh_error_ns;
    if (c->armed && r->status == PJ_READING_OK)
        step = pj_counter_step(&c->rail, c->last_value, r->value);
    if (c->armed && tick <= c->last_tick_ns) {         /* the next reading brings the energy */
        bool is_lent = c->lent_mj > 0 && !isnan(step); /* of a time that has the log's */
        if (is_lent) c->lent_mj -= step * 1e-3 / c->gain;
        if (is_lent) c->last_value = r->value;
        return PJ_OK;
    }
    if (!isnan(step) && c->just_armed) curve_date_arming(c, r, tick);
    if (!isnan(step)) curve_date_step(c, step, &tick, &error_ns);
    piece p;
    log_view v;
    if (curve_stands(c, step, tick, &p, &v)) return curve_lend(c, &p, &v, err);
    pj_status status = PJ_OK;
    double left_mj = step * 1e-3 / c->gain - c->lent_mj;
    c->lent_mj = 0;
    bool had_paused = left_mj > 0 && curve_date_pause(c, &left_mj, tick);
    if (left_mj < 0) c->debt_mj -= left_mj;
    if (!isnan(step)) {
        p = (piece){.begin_ns = c->last_tick_ns,
                    .end_ns = tick,
                    .energy_mj = fmax(left_mj, 0),
                    .begin_edge_ns = (float)c->last_edge_ns,
                    .edge_ns = (float)error_ns};
        if (had_paused) p.fill_sd = (float)(STANDING_SD * p.energy_mj);
        curve_join_short(c, &p);
        status = curve_add_counted(c, &p, err);
    }
    c->just_armed = c->is_unmoved = isnan(step);
    c->armed = true;
    c->last_value = r->value;
    c->last_tick_ns = tick;
    c->last_edge_ns = error_ns;
    return status;
}

int64_t pj_curve_stands_ns(const pj_curve *curve, int64_t begin_ns, int64_t end_ns)
{
    if (!(curve->lent_mj > 0)) return 0;
    if (begin_ns < curve->lent_from_ns) begin_ns = curve->lent_from_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

static void learn_spread(pj_curve *c, double mw)
{
    double difference = mw - c->last_value;
    double square = difference * difference / 2;
    c->spread_mw2 = c->armed ? c->spread_mw2 + (square - c->spread_mw2) / 8 : 0;
}

/* Fills a short gap between the last piece and `begin_ns` with the mean power of both
 * neighbours. */
static pj_status fill_hole(pj_curve *c, int64_t begin_ns, double mw, pj_error *err)
{
    if (c->count == 0 || !c->armed) return PJ_OK;
    int64_t from = c->pieces[c->count - 1].end_ns;
    int64_t limit = MAX_FILL_PERIODS * c->period_ns;
    if (begin_ns <= from || (limit > 0 && begin_ns - from > limit)) return PJ_OK;
    double seconds = (double)(begin_ns - from) * 1e-9, middle = (c->last_value + mw) / 2;
    /* a step somewhere in it; how a sensor that sees little wanders is added to long
     * intervals */
    double step = mw - c->last_value;
    double spread_mw2 = pj_rail_sees_part(&c->rail) ? step * step / 7 : c->spread_mw2;
    double sd = sqrt(spread_mw2 + 1e-4 * middle * middle) * seconds;
    return curve_add_piece(c, from, begin_ns, middle * seconds, c->last_edge_ns, sd > 0 ? sd : 1e-9,
                           err);
}

static int64_t curve_window_of(pj_curve *c, const pj_reading *r, int64_t tick)
{
    if (r->window_ns > 0) return r->window_ns;
    c->unreported++;
    if (c->rail.window_ns > 0) return c->rail.window_ns;
    if (c->period_ns > 0) return c->period_ns;
    return c->armed ? tick - c->last_tick_ns : 0;
}

static pj_status curve_add_window(pj_curve *c, int64_t begin_ns, int64_t end_ns, double mw,
                                  double edge, pj_error *err)
{
    if (end_ns <= begin_ns) return PJ_OK;
    if (c->window_count == c->window_capacity) {
        pj_status status =
            curve_grow((void **)&c->windows, &c->window_capacity, sizeof *c->windows, err);
        if (status != PJ_OK) return status;
    }
    c->windows[c->window_count++] = (pj_curve_point){begin_ns, end_ns, mw, (float)edge};
    curve_note_mw(c, mw);
    return PJ_OK;
}

/* Instantaneous samples of a sensor with a first-order lag. */
static pj_status add_lagged(pj_curve *c, const pj_reading *r, int64_t tick, pj_error *err)
{
    if (!c->armed || (c->period_ns > 0 && tick - c->last_tick_ns > MAX_FILL_PERIODS * c->period_ns))
        return PJ_OK;
    double seconds = (double)(tick - c->last_tick_ns) * 1e-9;
    double left = exp(-seconds / ((double)c->rail.lag_ns * 1e-9));
    double mj = (r->value - left * c->last_value) / (1 - left) * seconds;
    return curve_add_piece(c, c->last_tick_ns, tick, mj, (double)r->fresh_error_ns, 0, err);
}

/* The piece of a reading whose window does not overlap the previous reading's. */
static pj_status add_tile(pj_curve *c, int64_t begin, int64_t end, const pj_reading *r,
                          pj_error *err)
{
    int64_t last = c->count ? c->pieces[c->count - 1].end_ns : begin;
    int64_t hole = begin - last;
    if (hole < 0 || hole < (end - begin) / 10) begin = last;
    pj_status status = fill_hole(c, begin, r->value, err);
    if (status != PJ_OK) return status;
    return curve_add_piece(c, begin, end, r->value * (double)(end - begin) * 1e-9,
                           (double)r->fresh_error_ns, 0, err);
}

/* Overlapping windows: the reading represents the time around the middle of its window. The first
 * one of a contiguous series also covers the half before its middle; finish adds the other half of
 * the last one. */
static pj_status add_centred(pj_curve *c, int64_t begin, int64_t end, const pj_reading *r,
                             int64_t since_last, pj_error *err)
{
    int64_t middle = begin + (end - begin) / 2, to = middle + since_last / 2;
    int64_t last = c->count ? c->pieces[c->count - 1].end_ns : begin;
    bool continues = c->count && last > begin && last < to;
    int64_t from = continues ? last : begin > last ? begin : last;
    return curve_add_piece(c, from, to, r->value * (double)(to - from) * 1e-9,
                           (double)r->fresh_error_ns, 0, err);
}

/* The energy of a reading of power. */
static pj_status add_power_piece(pj_curve *c, const pj_reading *r, int64_t tick, pj_error *err)
{
    int64_t since_last = c->armed ? tick - c->last_tick_ns : c->period_ns;
    int64_t window = curve_window_of(c, r, tick), begin = tick - window;
    pj_status status;
    if (c->rail.lag_ns > 0)
        status = add_lagged(c, r, tick, err);
    else if (window * 2 > since_last * 3 && c->period_ns > 0 && window * 2 > c->period_ns * 3)
        status = add_centred(c, begin, tick, r, c->period_ns, err);
    else
        status = add_tile(c, begin, tick, r, err);
    c->armed = true;
    c->last_value = r->value;
    c->last_tick_ns = tick;
    c->last_edge_ns = (double)r->fresh_error_ns;
    return status;
}

static pj_status curve_add_power(pj_curve *c, const pj_reading *r, pj_error *err)
{
    int64_t tick = tick_of(c, r), since_last = tick - c->last_tick_ns;
    if (c->armed && since_last <= 0) return PJ_OK;
    if (c->rail.period_ns == 0 && c->armed && (c->period_ns == 0 || since_last < c->period_ns))
        c->period_ns = since_last;
    pj_status status = curve_add_window(c, tick - curve_window_of(c, r, tick), tick, r->value,
                                        (double)r->fresh_error_ns, err);
    if (status != PJ_OK) return status;
    if (c->armed) learn_spread(c, r->value);
    return add_power_piece(c, r, tick, err);
}

/* The sensor must have published again but still shows the same value: it published the same value.
 * Time is therefore known up to the last update due before the poll; if polling had paused, only
 * since it resumed. */
static pj_status add_power_repeat(pj_curve *c, const pj_reading *r, pj_error *err)
{
    int64_t period = c->period_ns, delay = c->rail.delay_ns;
    if (!c->armed || period <= 0) return PJ_OK;
    if (r->fresh_ns - delay > c->last_tick_ns + MAX_FILL_PERIODS * period)
        c->last_tick_ns = r->fresh_ns - delay;
    int64_t steps = (r->before_ns - delay - c->last_tick_ns) / period, from = c->last_tick_ns;
    if (steps <= 0) return PJ_OK;
    if (c->rail.kind != PJ_RAIL_AVERAGE) {
        for (int64_t i = 0; i < steps; i++) { /* each represents a reading of the same value */
            int64_t end = from + (i + 1) * period, window = curve_window_of(c, r, end);
            pj_status added =
                curve_add_window(c, end - window, end, c->last_value, (double)period / 2, err);
            if (added != PJ_OK) return added;
        }
        c->last_tick_ns += steps * period;
        c->last_edge_ns = (double)period / 2;
        double mj = c->last_value * (double)(c->last_tick_ns - from) * 1e-9;
        return curve_add_piece(c, from, c->last_tick_ns, mj, c->last_edge_ns, 0, err);
    }
    pj_reading again = {.value = c->last_value, .fresh_error_ns = period / 2};
    pj_status status = PJ_OK;
    for (; steps > 0 && status == PJ_OK; steps--) {
        again.fresh_ns = c->last_tick_ns + period + delay;
        status = curve_add_power(c, &again, err);
    }
    return status;
}

/* A step is the mean power of its periods. Over several of them only that mean was read: the curve
 * has a reading for each, and the fit has a single window. */
static pj_status add_power_of_step(pj_curve *c, const pj_reading *r, double step_uj, int64_t tick,
                                   pj_error *err)
{
    int64_t from = c->last_count_ns, since = tick - from;
    int64_t count = (since + c->period_ns / 2) / c->period_ns;
    pj_reading power = *r;
    power.value = step_uj * 1e-3 / ((double)since * 1e-9) / c->gain;
    power.fresh_ns = tick + c->rail.delay_ns;
    /* periods may be irregular: a sensor of all of the time saw each of them, and none saw more */
    int64_t each = count > 1 ? since / count : since;
    if (!pj_rail_sees_part(&c->rail) || each < c->rail.window_ns) power.window_ns = each;
    if (count <= 1) return curve_add_power(c, &power, err);
    if (count > MAX_BRIDGED_PERIODS) return PJ_OK; /* a gap */
    pj_status status = curve_add_window(c, from, tick, power.value, (double)r->fresh_error_ns, err);
    if (c->armed) learn_spread(c, power.value);
    for (int64_t i = 1; i <= count && status == PJ_OK; i++)
        status = add_power_piece(c, &power, from + since * i / count, err);
    return status;
}

static pj_status curve_add_step(pj_curve *c, const pj_reading *r, pj_error *err)
{
    int64_t tick = tick_of(c, r);
    double step = NAN;
    if (c->has_count && tick <= c->last_count_ns) return PJ_OK;
    if (c->has_count && r->status == PJ_READING_OK)
        step = pj_counter_step(&c->rail, c->last_count_uj, r->value);
    pj_status status = isnan(step) ? PJ_OK : add_power_of_step(c, r, step, tick, err);
    c->has_count = true;
    c->last_count_uj = r->value;
    c->last_count_ns = tick;
    return status;
}

pj_status pj_curve_add(pj_curve *curve, const pj_reading *reading, pj_error *err)
{
    bool counter = curve->rail.kind == PJ_RAIL_COUNTER;
    pj_reading calibrated = *reading;
    calibrated.value /= curve->gain;
    switch ((pj_reading_status)reading->status) {
    case PJ_READING_RESET:
        if (counter && isfinite(reading->value)) curve->armed = false, curve->lent_mj = 0;
        __attribute__((fallthrough));
    case PJ_READING_OK:
        if (!isfinite(reading->value)) return PJ_OK;
        if (curve->of_steps) return curve_add_step(curve, reading, err);
        return counter ? add_counter(curve, reading, err)
                       : curve_add_power(curve, &calibrated, err);
    case PJ_READING_REPEAT:
        if (curve->of_steps) return PJ_OK;
        return counter ? add_standing(curve, reading, err) : add_power_repeat(curve, reading, err);
    case PJ_READING_GAP:
        return counter && !curve->of_steps && reading->reason == PJ_REASON_FROZEN
                   ? add_standing(curve, reading, err)
                   : PJ_OK;
    case PJ_READING_LOST: curve->armed = curve->has_count = false; return PJ_OK;
    default: return PJ_OK;
    }
}

/* ---- overlapping windows, at the end ---- */

/* Most windows, and the first one, begin well before the one before them ends. A single long one is
 * a late reading. */
static bool windows_overlap(const pj_curve *c)
{
    size_t overlapping = 0;
    if (c->rail.kind == PJ_RAIL_COUNTER || c->rail.lag_ns != 0 || c->window_count < 2 ||
        c->period_ns <= 0 ||
        (c->windows[0].end_ns - c->windows[0].begin_ns) * 2 <= c->period_ns * 3)
        return false;
    for (size_t i = 1; i < c->window_count; i++)
        overlapping += (c->windows[i - 1].end_ns - c->windows[i].begin_ns) * 2 > c->period_ns;
    return overlapping * 2 >= c->window_count - 1;
}

static pj_status curve_rebuild(pj_curve *c, const pj_block *blocks, size_t count, pj_error *err)
{
    c->count = 0;
    c->debt_mj = 0;
    c->resolved = true;
    for (size_t i = 0; i < count; i++) {
        double seconds = (double)(blocks[i].end_ns - blocks[i].begin_ns) * 1e-9;
        pj_status status = curve_add_piece(c, blocks[i].begin_ns, blocks[i].end_ns,
                                           blocks[i].mw * seconds, 0, 0, err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

pj_status pj_curve_finish(pj_curve *curve, pj_error *err)
{
    if (!windows_overlap(curve)) return PJ_OK;
    pj_block *blocks = NULL;
    size_t count = 0;
    pj_status status =
        pj_deconvolve(curve->windows, curve->window_count, curve->period_ns, &blocks, &count, err);
    if (status == PJ_OK && count > 0) status = curve_rebuild(curve, blocks, count, err);
    pj_free(blocks);
    return status;
}

bool pj_rail_overlaps(const pj_rail *rail)
{
    return rail->kind != PJ_RAIL_COUNTER && rail->lag_ns == 0 && rail->period_ns > 0 &&
           rail->window_ns * 2 > rail->period_ns * 3 &&
           rail->window_ns / rail->period_ns <= PJ_MOST_BLOCKS_PER_WINDOW;
}

/* Drops the pieces that begin at or after a time. One around it stays whole: a query inside it has
 * to know how long it is. */
static void curve_cut(pj_curve *c, int64_t at_ns)
{
    while (c->count && c->pieces[c->count - 1].begin_ns >= at_ns) c->count--;
}

/* Appends what another curve says of the time after the last piece, or from `from_ns` on. */
static pj_status curve_append(pj_curve *c, const pj_curve *other, int64_t from_ns, pj_error *err)
{
    if (c->count) from_ns = c->pieces[c->count - 1].end_ns;
    pj_status status = PJ_OK;
    for (size_t i = 0; i < other->count && status == PJ_OK; i++) {
        const piece *p = &other->pieces[i];
        if (p->end_ns <= from_ns) continue;
        int64_t begin_ns = p->begin_ns > from_ns ? p->begin_ns : from_ns;
        double part = (double)(p->end_ns - begin_ns) / (double)(p->end_ns - p->begin_ns);
        status = curve_add_piece(c, begin_ns, p->end_ns, part * p->energy_mj, 0, 0, err);
    }
    return status;
}

pj_status pj_curve_resolve(const pj_curve *curve, int64_t since_ns, int64_t from_ns,
                           pj_curve *resolved, pj_error *err)
{
    size_t first =
        pj_first_after(curve->windows, curve->window_count, sizeof *curve->windows, since_ns);
    pj_block *blocks = NULL;
    size_t count = 0;
    pj_curve *whole = pj_curve_new(&curve->rail);
    if (!whole) return pj_fail_memory(err, "an energy curve");
    pj_status status = pj_deconvolve(curve->windows + first, curve->window_count - first,
                                     curve->period_ns, &blocks, &count, err);
    /* blocks below zero are made up for by the next ones, before a part of them is taken */
    if (status == PJ_OK) status = curve_rebuild(whole, blocks, count, err);
    resolved->resolved = true;
    resolved->read_from = curve;
    if (status == PJ_OK) curve_cut(resolved, from_ns);
    if (status == PJ_OK) status = curve_append(resolved, whole, from_ns, err);
    pj_free(blocks);
    pj_curve_free(whole);
    return status;
}
