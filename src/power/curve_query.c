/*
 * The energy of an interval from the pieces of a curve, and its uncertainty (docs/measurement.md).
 *
 * How energy is distributed inside a piece is unknown. For a load that is on during a share x of
 * the piece and off otherwise, the part f of it has a standard deviation of up to
 * e sqrt(f (1 - f) / 3), at worst p tau / sqrt(12); this is assumed at both edges of an interval.
 * Where a log shows the power before and after, e is their difference. The time of a tick moves a
 * part of the energy between its neighbours. Ticks of a grid are mostly early or late together,
 * which matters only where the power at both ends of an interval differs.
 */
#include "power/curve_impl.h"

#include "base/interval.h"

#include <math.h>
#include <string.h>

static const double MAX_MISSING = 0.05; /* with more of an interval uncovered its energy is NAN */
/* part of filled energy's error that does not average out */
static const double FILL_BIAS = 0.1;
/* Windows of a log overlap: at the border of two values a part of each is the other's. */
static const double LOG_SMEAR = 0.02;
/* Relative variance of what a value contributes to the sum of a log. */
static const double LOG_WALK = 0.01;
/* Deconvolution shows a step of power over this many pieces on both sides, and puts up to this part
 * of its height, over one piece, on the wrong side of it. */
enum { BLURRED_PIECES = 2 };
static const double BLUR = 0.3;

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

/* Prefix sums of the curve at one instant. */
typedef struct sums {
    double energy_mj, fill_var, fill_sd_sum;
    double covered_ns; /* by pieces, observed or filled */
    double known_ns;   /* seen by readings */
    double mw;         /* of the piece */
    double part;       /* fraction of the piece before the instant */
    size_t index;      /* of the piece; of the nearest one outside the curve */
    double beyond_mj;  /* taken to have been used between the curve and an instant outside it */
} sums;

/* Up to a period before the first piece and after the last one the power is taken to be theirs. */
static double beyond_ns(const pj_curve *c, int64_t ns)
{
    int64_t most = c->period_ns > 0 ? c->period_ns : 0;
    return (double)(ns < most ? ns : most);
}

static sums sums_until(const pj_curve *c, int64_t at_ns)
{
    sums s = {.index = piece_at(c, at_ns)};
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
    s.fill_sd_sum = p->fill_sd_sum_before + s.part * (double)p->fill_sd;
    s.known_ns = p->known_before_ns + (double)p->seen * s.part * length;
    s.covered_ns = (double)p->covered_before_ns + s.part * length + beyond;
    return s;
}

/* Deconvolution blurs a step of power over the pieces around it: the variance that this means at an
 * instant in piece i, from the largest step between neighbours there. */
static double blur_variance(const pj_curve *c, size_t i)
{
    size_t first = i > BLURRED_PIECES ? i - BLURRED_PIECES : 0;
    size_t last = i + BLURRED_PIECES < c->count ? i + BLURRED_PIECES : c->count - 1;
    double low_mw = piece_mw(&c->pieces[i]), high_mw = low_mw;
    for (size_t k = first; k <= last; k++) {
        low_mw = fmin(low_mw, piece_mw(&c->pieces[k]));
        high_mw = fmax(high_mw, piece_mw(&c->pieces[k]));
    }
    double mj =
        BLUR * (high_mw - low_mw) * (double)(c->pieces[i].end_ns - c->pieces[i].begin_ns) * 1e-9;
    return mj * mj;
}

/* Variance of the energy in a part of piece i, because its distribution inside the piece is
 * unknown. */
static double spread_variance(const pj_curve *c, size_t i, double part)
{
    const piece *p = &c->pieces[i];
    double length = (double)(p->end_ns - p->begin_ns), smear_ns = (double)c->rail.window_ns;
    double energy = (double)p->swing_mj;
    if (!c->resolved && c->rail.kind == PJ_RAIL_AVERAGE && smear_ns > length)
        energy *= smear_ns / length;
    double mixed = part * (1 - part);
    if (p->before > 0 || p->until < 1) { /* a step of power somewhere inside the part */
        double noise = LOG_NOISE * p->energy_mj;
        return energy * energy * (mixed * mixed + LOG_SMEAR) / 3 + noise * noise;
    }
    double blur = c->resolved ? blur_variance(c, i) : 0;
    return energy * energy * mixed / 3 + blur;
}

/* Fraction of the energy between two ticks that was used before the instant. */
static double tick_part(const pj_curve *c, const sums *s)
{
    const piece *p = &c->pieces[s->index];
    return (double)p->before + s->part * (double)(p->until - p->before);
}

/* Variance due to the times of the ticks around an instant, each of which moves the given part of
 * the energy next to it. */
static double tick_variance(const pj_curve *c, const sums *s, double begin_part, double end_part)
{
    const piece *p = &c->pieces[s->index];
    double begin = begin_part * p->begin_sd, end = end_part * p->end_sd;
    return (1 - (double)p->common) * (begin * begin + end * end);
}

/* What a shift of all ticks of a grid by one standard deviation adds to the energy up to an
 * instant. */
static double tick_shift(const pj_curve *c, const sums *s, double begin_part, double end_part)
{
    const piece *p = &c->pieces[s->index];
    return sqrt((double)p->common) * (begin_part * p->begin_sd + end_part * p->end_sd);
}

/* Errors of a log's values add up from tick to tick, where they end at what was counted. `swings`:
 * of the parts between. */
static double log_variance(const pj_curve *c, size_t i, double swings)
{
    double all = (double)c->pieces[i].swings_all;
    return all > 0 ? LOG_WALK * swings * (1 - swings / all) : 0;
}

static double swings_until(const pj_curve *c, const sums *s)
{
    const piece *p = &c->pieces[s->index];
    return (double)p->swings_before + s->part * (double)p->swings;
}

static double beyond_variance(const sums *s)
{
    return s->beyond_mj * s->beyond_mj / 3;
}

/* Variance from both edges of the interval: distribution inside the pieces, and tick times. */
static double curve_edge_variance(const pj_curve *c, const sums *a, const sums *b)
{
    double until_a = tick_part(c, a), until_b = tick_part(c, b);
    double variance = beyond_variance(a) + beyond_variance(b);
    if (a->index == b->index)
        variance += spread_variance(c, a->index, b->part - a->part);
    else
        variance += spread_variance(c, a->index, a->part) + spread_variance(c, b->index, b->part);
    if (c->pieces[a->index].tick == c->pieces[b->index].tick) {
        double part = until_b - until_a; /* tick errors change the length of the whole */
        double shift = tick_shift(c, a, -part, part);
        return variance + tick_variance(c, a, part, part) + shift * shift +
               log_variance(c, a->index, swings_until(c, b) - swings_until(c, a));
    }
    double shift = tick_shift(c, b, 1 - until_b, until_b) - tick_shift(c, a, 1 - until_a, until_a);
    return variance + shift * shift + log_variance(c, a->index, swings_until(c, a)) +
           log_variance(c, b->index, swings_until(c, b)) +
           tick_variance(c, a, 1 - until_a, until_a) + tick_variance(c, b, 1 - until_b, until_b);
}

/* Step of a figure in mJ: of a counter once, of a power reading over its window. */
static double resolution_mj(const pj_curve *c, double length_ns)
{
    if (c->rail.kind == PJ_RAIL_COUNTER) return c->rail.resolution * 1e-3;
    return c->rail.resolution * length_ns * 1e-9;
}

/* Uncertainty of a delay: a tenth of it, and a tenth of a period. */
static double delay_sd_s(const pj_curve *c)
{
    double period = c->rail.kind == PJ_RAIL_COUNTER ? 0 : (double)c->period_ns;
    return ((double)c->rail.delay_ns + period) * 0.1e-9;
}

void pj_curve_query(const pj_curve *curve, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy)
{
    *energy = (pj_curve_energy){NAN, NAN, NAN, NAN, NAN, 0};
    if (end_ns <= begin_ns || curve->count == 0) return;
    sums a = sums_until(curve, begin_ns), b = sums_until(curve, end_ns);
    double length = (double)(end_ns - begin_ns), covered = b.covered_ns - a.covered_ns;
    energy->known_share = (b.known_ns - a.known_ns) / length;
    double missing = 1 - covered / length;
    if (missing > MAX_MISSING) return;
    double seen_mj = b.energy_mj - a.energy_mj;
    double mj = missing > 0 ? seen_mj / (1 - missing) : seen_mj;
    double step = resolution_mj(curve, length);
    double random =
        curve_edge_variance(curve, &a, &b) + (b.fill_var - a.fill_var) + step * step / 6;
    double bias = fabs(b.mw - a.mw) * delay_sd_s(curve) + (mj - seen_mj) +
                  FILL_BIAS * (b.fill_sd_sum - a.fill_sd_sum);
    energy->energy_mj = mj;
    energy->random_sd_mj = sqrt(random);
    energy->bias_sd_mj = bias;
    energy->gain_sd_mj = hypot(curve_gain_sd(curve) * mj, pj_rail_offset_sd_mw(&curve->rail) *
                                                              (double)(end_ns - begin_ns) * 1e-9);
    energy->sd_mj = sqrt(random + bias * bias + energy->gain_sd_mj * energy->gain_sd_mj);
}

double pj_curve_energy_mj(const pj_curve *curve, int64_t begin_ns, int64_t end_ns)
{
    pj_curve_energy energy;
    pj_curve_query(curve, begin_ns, end_ns, &energy);
    return energy.energy_mj;
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
    double shift_s =
        edge_s / sqrt(3) + (edge_s > 0 ? delay_sd_s(c) : 0.1e-9 * (double)c->rail.delay_ns);
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
