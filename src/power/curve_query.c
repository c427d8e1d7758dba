/* The energy of an interval from the pieces of a curve; its uncertainty is in curve_variance.c. */
#include "power/curve_impl.h"

#include "base/interval.h"

#include <math.h>
#include <string.h>

/* A log that is so many squared standard deviations off says something else. */
static const double LOG_CONTRADICTS = 9;

static const double MAX_MISSING = 0.05; /* with more of an interval uncovered its energy is NAN */

bool pj_curve_span(const pj_curve *curve, int64_t *begin_ns, int64_t *end_ns)
{
    if (curve->count == 0) return false;
    *begin_ns = curve->pieces[0].begin_ns;
    *end_ns = curve->pieces[curve->count - 1].end_ns;
    return true;
}

static size_t piece_at(const pj_curve *c, int64_t at_ns)
{
    return pj_first_after(c->pieces, c->count, sizeof *c->pieces, at_ns);
}

/* Up to a period before the first piece and after the last one the power is taken to be theirs. */
static double beyond_ns(const pj_curve *c, int64_t ns)
{
    int64_t most = c->period_ns > 0 ? c->period_ns : 0;
    return (double)(ns < most ? ns : most);
}

static curve_sums sums_until(const pj_curve *c, int64_t at_ns)
{
    curve_sums s = {.at_ns = at_ns, .index = piece_at(c, at_ns)};
    if (c->count == 0) return s;
    bool behind = s.index == c->count;
    if (behind) s.index--;
    const piece *p = &c->pieces[s.index];
    double length = (double)(p->end_ns - p->begin_ns), beyond = 0;
    s.part = behind ? 1 : at_ns > p->begin_ns ? (double)(at_ns - p->begin_ns) / length : 0;
    if (behind) beyond = beyond_ns(c, at_ns - p->end_ns);
    if (s.index == 0 && at_ns < p->begin_ns) beyond = -beyond_ns(c, p->begin_ns - at_ns);
    s.mw = piece_mw(p);
    s.beyond_mj = s.mw * beyond * 1e-9;
    s.energy_mj = p->energy_before + s.part * p->energy_mj + s.beyond_mj;
    s.fill_var = p->fill_var_before + s.part * (double)p->fill_sd * (double)p->fill_sd;
    s.doubt_var = p->doubt_var_before + s.part * (double)p->doubt_sd * (double)p->doubt_sd;
    s.fill_sd_sum = p->fill_sd_sum_before + s.part * (double)p->fill_sd;
    s.known_ns = p->known_before_ns + (double)p->seen * s.part * length;
    s.covered_ns = (double)p->covered_before_ns + s.part * length + beyond;
    return s;
}

/* Step of a figure in mJ: of a counter once, of a power reading over its window. */
static double resolution_mj(const pj_curve *c, double length_ns)
{
    if (c->rail.kind == PJ_RAIL_COUNTER) return c->rail.resolution * 1e-3;
    return c->rail.resolution * length_ns * 1e-9;
}

/* NAN: too much of the interval is not covered. */
static double energy_between(const curve_sums *a, const curve_sums *b, double length_ns)
{
    double missing = 1 - (b->covered_ns - a->covered_ns) / length_ns;
    double seen_mj = b->energy_mj - a->energy_mj;
    if (missing > MAX_MISSING) return NAN;
    return missing > 0 ? seen_mj / (1 - missing) : seen_mj;
}

void pj_curve_query(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy)
{
    *energy = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0, NAN, NAN};
    if (end_ns <= begin_ns || curve->count == 0) return;
    curve_sums a = sums_until(curve, begin_ns), b = sums_until(curve, end_ns);
    double length = (double)(end_ns - begin_ns);
    energy->known_share = (b.known_ns - a.known_ns) / length;
    double mj = energy_between(&a, &b, length);
    if (isnan(mj)) return;
    double step = resolution_mj(curve, length), filled_mj = mj - (b.energy_mj - a.energy_mj);
    double unseen = pj_curve_unseen_variance(curve, &a, &b);
    double doubt = b.doubt_var - a.doubt_var;
    double random = pj_curve_variance(curve, &a, &b) + unseen + doubt + step * step / 6;
    double bias = pj_curve_bias_mj(curve, &a, &b) + filled_mj;
    energy->energy_mj = mj;
    energy->random_sd_mj = sqrt(random);
    energy->unseen_sd_mj = sqrt(unseen);
    energy->doubt_sd_mj = sqrt(doubt);
    energy->bias_sd_mj = bias;
    energy->gain_sd_mj =
        hypot(curve_gain_sd(curve) * mj, pj_rail_offset_sd_mw(&curve->rail) * length * 1e-9);
    energy->sd_mj = sqrt(random + bias * bias + energy->gain_sd_mj * energy->gain_sd_mj);
}

double pj_curve_energy_mj(const pj_curve *curve, int64_t begin_ns, int64_t end_ns)
{
    if (end_ns <= begin_ns || curve->count == 0) return NAN;
    curve_sums a = sums_until(curve, begin_ns), b = sums_until(curve, end_ns);
    return energy_between(&a, &b, (double)(end_ns - begin_ns));
}

void pj_curve_join_log(const pj_curve *counter, double ns, const pj_curve_energy *log,
                       pj_curve_energy *energy)
{
    double relative_sd;
    double ratio = pj_curve_log_ratio(counter, log->energy_mj / ns, &relative_sd);
    double mj = ratio * log->energy_mj, off = mj - energy->energy_mj;
    double var = pow(ratio * log->random_sd_mj, 2) + pow(ratio * log->bias_sd_mj, 2) +
                 pow(relative_sd * mj, 2);
    double doubt = energy->doubt_sd_mj * energy->doubt_sd_mj;
    double own = energy->random_sd_mj * energy->random_sd_mj - doubt +
                 energy->bias_sd_mj * energy->bias_sd_mj;
    double weight = own / (own + var); /* of the log */
    if (isnan(mj)) return;
    if (isnan(energy->energy_mj)) {
        *energy = *log;
        off = mj - log->energy_mj;
        doubt = 0;
        weight = 1;
    } else if (var > own || off * off > LOG_CONTRADICTS * (var + own) ||
               pj_rail_sees_part(&counter->rail)) {
        return; /* of a load that is too fast for one, the other is no better judge */
    }
    double gain = energy->energy_mj > 0 ? energy->gain_sd_mj / energy->energy_mj : 0;
    energy->energy_mj += weight * off;
    energy->gain_sd_mj = gain * energy->energy_mj;
    energy->random_sd_mj = sqrt(weight * var + doubt);
    energy->bias_sd_mj = 0;
    energy->sd_mj = hypot(energy->random_sd_mj, energy->gain_sd_mj);
}

double pj_curve_power_mw(const pj_curve *curve, int64_t at_ns)
{
    size_t i = piece_at(curve, at_ns);
    if (i == curve->count || curve->pieces[i].begin_ns > at_ns) return NAN;
    return piece_mw(&curve->pieces[i]);
}

static size_t window_at(const pj_curve *c, int64_t at_ns)
{
    return pj_first_after(c->windows, c->window_count, sizeof *c->windows, at_ns);
}

static pj_curve_window window_of_piece(const pj_curve *c, size_t i)
{
    const piece *p = &c->pieces[i];
    bool counter = c->rail.kind == PJ_RAIL_COUNTER;
    return (pj_curve_window){.begin_ns = p->begin_ns,
                             .end_ns = p->end_ns,
                             .energy_mj = p->energy_mj,
                             .resolution_mj =
                                 resolution_mj(c, counter ? 0 : (double)(p->end_ns - p->begin_ns)),
                             .begin_s = (double)p->begin_edge_ns * 1e-9 / sqrt(3),
                             .end_s = (double)p->edge_ns * 1e-9 / sqrt(3),
                             .tick = p->tick};
}

/* A reading with its own timestamp is placed there, less the delay. */
static pj_curve_window window_of_power(const pj_curve *c, size_t i)
{
    const pj_curve_point *w = &c->windows[i];
    double length = (double)(w->end_ns - w->begin_ns);
    double edge_s = (double)w->edge_ns * 1e-9;
    double shift_s = edge_s / sqrt(3) +
                     (edge_s > 0 ? pj_curve_delay_sd_s(c) : 0.1e-9 * (double)c->rail.delay_ns);
    return (pj_curve_window){.begin_ns = w->begin_ns,
                             .end_ns = w->end_ns,
                             .energy_mj = w->power_mw * length * 1e-9,
                             .resolution_mj = resolution_mj(c, length),
                             .shift_s = shift_s};
}

size_t pj_curve_windows(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                        pj_curve_window *windows, size_t max)
{
    size_t found = 0;
    bool counter = curve->rail.kind == PJ_RAIL_COUNTER || curve->rail.lag_ns > 0;
    size_t from = counter ? piece_at(curve, begin_ns) : window_at(curve, begin_ns);
    size_t count = counter ? curve->count : curve->window_count;
    for (size_t i = from; i < count; i++) {
        int64_t begin = counter ? curve->pieces[i].begin_ns : curve->windows[i].begin_ns;
        if (counter && begin >= end_ns) break;
        if (begin >= end_ns) continue;
        if (found < max)
            windows[found] = counter ? window_of_piece(curve, i) : window_of_power(curve, i);
        found++;
    }
    return found;
}

size_t pj_curve_points(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                       pj_curve_point *points, size_t max)
{
    size_t found = 0;
    bool counter = curve->rail.kind == PJ_RAIL_COUNTER;
    size_t from = counter ? piece_at(curve, begin_ns) : window_at(curve, begin_ns);
    size_t count = counter ? curve->count : curve->window_count;
    for (size_t i = from; i < count; i++) {
        const piece *p = counter ? &curve->pieces[i] : NULL;
        int64_t end = counter ? p->end_ns : curve->windows[i].end_ns;
        if (end >= end_ns) break;
        if (found < max)
            points[found] = counter ? (pj_curve_point){p->begin_ns, end, piece_mw(p), p->edge_ns}
                                    : curve->windows[i];
        found++;
    }
    return found;
}

/* Prefix sums stay valid: only their differences are used. */
void pj_curve_forget(pj_curve *curve, int64_t at_ns)
{
    size_t pieces = piece_at(curve, at_ns), windows = window_at(curve, at_ns);
    if (pieces * 2 > curve->count) { /* amortised: moves less than it drops */
        curve->count -= pieces;
        memmove(curve->pieces, curve->pieces + pieces, curve->count * sizeof *curve->pieces);
    }
    if (windows * 2 > curve->window_count) {
        curve->window_count -= windows;
        memmove(curve->windows, curve->windows + windows,
                curve->window_count * sizeof *curve->windows);
    }
}
