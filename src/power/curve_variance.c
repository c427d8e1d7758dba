/*
 * The uncertainty of an interval's energy (docs/measurement.md, "Uncertainty").
 *
 * How energy is distributed inside a piece is unknown. A load that is on during a share x of the
 * piece and off otherwise gives the part f of it a standard deviation of up to e sqrt(f (1 - f) /
 * 3), with e the energy above what is drawn without it; a single step of height h somewhere inside,
 * one of h t f (1 - f) / sqrt(3), or more where it is the edge of the interval. Whether the load
 * switches follows from how the readings around it fluctuate (curve_spread.c). The same is assumed
 * at both edges of an interval. The time of a tick moves a part of the energy between its
 * neighbours. Ticks of a grid are mostly early or late together, which matters only where the power
 * at both ends of an interval differs.
 */
#include "power/curve_impl.h"

#include <math.h>

/* part of filled energy's error that does not average out */
static const double FILL_BIAS = 0.1;
/* Windows of a log overlap: at the border of two values a part of each is the other's. */
static const double LOG_SMEAR = 0.02;
/* Relative variance of what a value contributes to the sum of a log. */
static const double LOG_WALK = 0.01;
/* Deconvolution shows a step of power over this many pieces on both sides (so does a sensor that
 * sees a part of each period, with the pieces in between), and puts up to this part of its height,
 * over one piece, on the wrong side of it. */
enum { BLURRED_PIECES = 2 };
static const double BLUR = 0.4;
/* Part of the energy that a burst of fewer pieces may have lost to its neighbours, as one standard
 * deviation: simulated bursts of 60 to 900 ms are within two of them. */
enum { SHORT_PIECES = 4 };
static const double SPILL = 0.7;
/* A step anywhere inside would make it 1/3. But intervals like to begin and end with the load,
 * which is the worst place for one, and off to the same side at both ends. */
static const double AT_A_STEP = 0.55;
/* Instants at which a long interval's fluctuation is looked up. */
enum { LOOKS = 8 };

/* An edge of an interval. */
typedef struct edge {
    const curve_sums *at;
    const piece *p;
    curve_spread spread;
    double step_mw; /* difference of power around it */
} edge;

static double step_around(const pj_curve *c, size_t i)
{
    size_t reach = c->resolved || pj_rail_sees_part(&c->rail) ? BLURRED_PIECES : 1;
    size_t first = i > reach ? i - reach : 0,
           last = i + reach < c->count ? i + reach : c->count - 1;
    double low_mw = piece_mw(&c->pieces[i]), high_mw = low_mw;
    for (size_t k = first; k <= last; k++) {
        low_mw = fmin(low_mw, piece_mw(&c->pieces[k]));
        high_mw = fmax(high_mw, piece_mw(&c->pieces[k]));
    }
    return high_mw - low_mw;
}

static edge edge_at(const pj_curve *c, const curve_sums *at)
{
    return (edge){.at = at,
                  .p = &c->pieces[at->index],
                  .spread = pj_curve_spread_at(c, at->at_ns),
                  .step_mw = step_around(c, at->index)};
}

static double piece_s(const piece *p)
{
    return (double)(p->end_ns - p->begin_ns) * 1e-9;
}

/* ---- inside a piece ---- */

/* A part of a value of a log, between two ticks. */
static double logged_variance(const pj_curve *c, const edge *e, double mixed)
{
    const piece *p = e->p;
    double noise = LOG_NOISE * p->energy_mj, swing = (double)p->swing_mj;
    /* a load that switches within the value, of which that has seen more or less than its part */
    double hidden = pj_curve_log_swing_mw(c->log, e->at->at_ns, piece_mw(p)) * piece_s(p);
    return swing * swing * (mixed * mixed + LOG_SMEAR) / 3 + noise * noise +
           hidden * hidden * (mixed / 2 + LOG_SMEAR);
}

/* Of the energy in a part of the piece, because its distribution inside is unknown. */
static double spread_variance(const pj_curve *c, const edge *e, double part)
{
    const piece *p = e->p;
    double seconds = piece_s(p), mixed = part * (1 - part), switching = e->spread.switching;
    if (p->before > 0 || p->until < 1) return logged_variance(c, e, mixed);
    /* nothing tells what happened in several periods that were counted as one */
    if (c->rail.kind == PJ_RAIL_COUNTER && seconds * 2e9 > 3 * (double)c->period_ns) switching = 1;
    double swing_mj = pj_curve_swing_mw(&e->spread, piece_mw(p)) * seconds;
    if (!c->resolved && c->rail.kind == PJ_RAIL_AVERAGE &&
        (double)c->rail.window_ns > seconds * 1e9)
        return pow(swing_mj * (double)c->rail.window_ns * 1e-9 / seconds, 2) * mixed / 3;
    double step_mj = e->step_mw * seconds, noise_mj = e->spread.near_mw * seconds, off = mixed;
    if (pj_rail_sees_part(&c->rail) && c->rail.kind != PJ_RAIL_COUNTER) {
        step_mj = e->step_mw * (double)c->period_ns * 1e-9; /* anywhere in a period */
        off = 0.25;
    }
    double step = AT_A_STEP * step_mj * step_mj * off * off;
    double noise = switching < 1 ? (1 - switching) * noise_mj * noise_mj * mixed : 0;
    double blur = c->resolved ? BLUR * step_mj : e->step_mw * pj_curve_delay_sd_s(c);
    return switching * swing_mj * swing_mj * mixed / 3 + step + noise + blur * blur;
}

/* ---- ticks ---- */

/* Fraction of the energy between two ticks that was used before the instant. */
static double tick_part(const edge *e)
{
    return (double)e->p->before + e->at->part * (double)(e->p->until - e->p->before);
}

/* The energies that the ticks around an instant move. What two readings of power say of the time
 * between them differs by the step alone. */
static double moved(const pj_curve *c, const edge *e, double sd_mj)
{
    double mw = piece_mw(e->p);
    bool counter = c->rail.kind == PJ_RAIL_COUNTER;
    return counter || !(mw > 0) ? sd_mj : sd_mj * fmin(e->step_mw / mw, 1);
}

/* Variance due to the times of the ticks around an instant, each of which moves the given part of
 * the energy next to it. */
static double tick_variance(const pj_curve *c, const edge *e, double begin_part, double end_part)
{
    double begin = begin_part * moved(c, e, e->p->begin_sd);
    double end = end_part * moved(c, e, e->p->end_sd);
    return (1 - (double)e->p->common) * (begin * begin + end * end);
}

/* What a shift of all ticks of a grid by one standard deviation adds to the energy up to an
 * instant. */
static double tick_shift(const edge *e, double begin_part, double end_part)
{
    const piece *p = e->p;
    return sqrt((double)p->common) * (begin_part * p->begin_sd + end_part * p->end_sd);
}

/* Errors of a log's values add up from tick to tick, where they end at what was counted. `swings`:
 * of the parts between. */
static double log_variance(const piece *p, double swings)
{
    double all = (double)p->swings_all;
    return all > 0 ? LOG_WALK * swings * (1 - swings / all) : 0;
}

static double swings_until(const edge *e)
{
    return (double)e->p->swings_before + e->at->part * (double)e->p->swings;
}

/* Both edges of the interval: distribution inside the pieces, and tick times. */
static double edges_variance(const pj_curve *c, const edge *a, const edge *b)
{
    double until_a = tick_part(a), until_b = tick_part(b), variance;
    if (a->p == b->p)
        variance = spread_variance(c, a, b->at->part - a->at->part);
    else
        variance = spread_variance(c, a, a->at->part) + spread_variance(c, b, b->at->part);
    if (a->p->tick == b->p->tick) {
        double part = until_b - until_a; /* tick errors change the length of the whole */
        double shift = tick_shift(a, -part, part);
        return variance + tick_variance(c, a, part, part) + shift * shift +
               log_variance(a->p, swings_until(b) - swings_until(a));
    }
    double shift = tick_shift(b, 1 - until_b, until_b) - tick_shift(a, 1 - until_a, until_a);
    return variance + shift * shift + log_variance(a->p, swings_until(a)) +
           log_variance(b->p, swings_until(b)) + tick_variance(c, a, 1 - until_a, until_a) +
           tick_variance(c, b, 1 - until_b, until_b);
}

/* ---- time that no reading saw ---- */

/* A sensor that sees a part of each period takes its sample at the same phase of a load that
 * switches nearly as often: readings then wander slowly, and what is not seen is off to the same
 * side for as long. */
double pj_curve_unseen_variance(const pj_curve *c, const curve_sums *a, const curve_sums *b)
{
    double unseen_s = ((b->covered_ns - b->known_ns) - (a->covered_ns - a->known_ns)) * 1e-9;
    double periods = (double)(b->at_ns - a->at_ns) / (double)c->period_ns, near = 0, far = 0;
    if (!(pj_rail_sees_part(&c->rail) || pj_rail_steps_are_power(&c->rail)) || c->period_ns <= 0)
        return 0;
    for (int i = 0; i < LOOKS; i++) {
        int64_t at_ns = a->at_ns + (b->at_ns - a->at_ns) * (2 * i + 1) / (2 * LOOKS);
        curve_spread s = pj_curve_spread_at(c, at_ns);
        if (isnan(s.far_mw)) continue;
        near += s.near_mw * s.near_mw / LOOKS;
        far += s.far_mw * s.far_mw / LOOKS;
    }
    if (!(near > 0)) near = far = c->spread_mw2;
    if (!(near > 0)) return 0;
    double alike = 2 * sqrt(far / near); /* periods that are off to the same side */
    return far * unseen_s * unseen_s * fmin(alike / periods, 1);
}

/* ---- all of it ---- */

double pj_curve_delay_sd_s(const pj_curve *c)
{
    double period = c->rail.kind == PJ_RAIL_COUNTER ? 0 : (double)c->period_ns;
    return ((double)c->rail.delay_ns + period) * 0.1e-9; /* a tenth of it, and of a period */
}

/* Deconvolution spreads a burst of less than about four pieces over more of them, at less power,
 * and more so the longer all was quiet. What the pieces around an interval as short have above the
 * least power there may be its own. */
static double spilled_mj(const pj_curve *c, const curve_sums *a, const curve_sums *b)
{
    double seconds = (double)(b->at_ns - a->at_ns) * 1e-9, least_mw = INFINITY, mj = 0;
    if (!c->resolved || seconds >= SHORT_PIECES * piece_s(&c->pieces[a->index])) return 0;
    size_t first = a->index > SHORT_PIECES ? a->index - SHORT_PIECES : 0;
    size_t last = b->index + SHORT_PIECES < c->count ? b->index + SHORT_PIECES : c->count - 1;
    for (size_t k = first; k <= last; k++) least_mw = fmin(least_mw, piece_mw(&c->pieces[k]));
    for (size_t k = first; k <= last; k++)
        mj += (piece_mw(&c->pieces[k]) - least_mw) * piece_s(&c->pieces[k]);
    return fmax(mj - (b->energy_mj - a->energy_mj - least_mw * seconds), 0);
}

double pj_curve_variance(const pj_curve *c, const curve_sums *a, const curve_sums *b)
{
    edge begin = edge_at(c, a), end = edge_at(c, b);
    double beyond = (a->beyond_mj * a->beyond_mj + b->beyond_mj * b->beyond_mj) / 3;
    double spilled = SPILL * spilled_mj(c, a, b);
    return edges_variance(c, &begin, &end) + beyond + (b->fill_var - a->fill_var) +
           spilled * spilled;
}

double pj_curve_bias_mj(const pj_curve *c, const curve_sums *a, const curve_sums *b)
{
    /* what a sensor never sees has a variance of its own, which does not average out either */
    double filled = pj_rail_sees_part(&c->rail) ? 0 : b->fill_sd_sum - a->fill_sd_sum;
    return fabs(b->mw - a->mw) * pj_curve_delay_sd_s(c) + FILL_BIAS * filled;
}
