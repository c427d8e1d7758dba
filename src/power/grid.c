/* The phase of a grid as an interval: intersections, and the search for a period. */
#include "power/grid.h"

#include "base/clock.h"
#include "base/median.h"

#include <math.h>
#include <stdlib.h>

/* Relative drift allowed between the device's clock and ours: seven times that measured on a card.
 */
static const double DRIFT = 50e-6;
/* Ticks are published by software: each may be this late. */
static const int64_t TICK_JITTER_NS = PJ_NS_PER_MS / 2;
enum { MISSES_MOST = 2, TICKS_LEAST = 8, TICKS_MOST = 64, ROUND_MS = 10 };
/* Timers of drivers have periods of whole milliseconds; a period this close to one may be one. */
static const double SNAP = 0.025;

int64_t pj_grid_error(const pj_grid *g, int64_t at_ns)
{
    if (g->period_ns == 0 || g->slack_ns == 0) return INT64_MAX;
    return g->slack_ns + (int64_t)(DRIFT * (double)llabs(at_ns - g->seen_ns));
}

bool pj_grid_known(const pj_grid *g, int64_t at_ns)
{
    return pj_grid_error(g, at_ns) < g->period_ns / 8;
}

int64_t pj_grid_last(const pj_grid *g, int64_t at_ns)
{
    int64_t since = at_ns - g->tick_ns, steps = since / g->period_ns;
    if (since % g->period_ns < 0) steps--;
    return g->tick_ns + steps * g->period_ns;
}

/* The tick of the grid that is nearest to `at_ns`. */
static int64_t grid_nearest(const pj_grid *g, int64_t at_ns)
{
    return pj_grid_last(g, at_ns + g->period_ns / 2);
}

static void grid_set(pj_grid *g, int64_t from_ns, int64_t to_ns, int64_t seen_ns)
{
    g->tick_ns = from_ns + (to_ns - from_ns) / 2;
    g->slack_ns = (to_ns - from_ns) / 2 > 0 ? (to_ns - from_ns) / 2 : 1;
    g->seen_ns = seen_ns;
    g->misses = 0;
}

bool pj_grid_observe(pj_grid *g, int64_t from_ns, int64_t to_ns)
{
    if (g->period_ns == 0 || to_ns - from_ns >= g->period_ns / 2) return true;
    from_ns -= TICK_JITTER_NS;
    to_ns += TICK_JITTER_NS;
    /* a vague phase is narrowed by other vague ones */
    if (pj_grid_error(g, to_ns) >= g->period_ns / 4) {
        grid_set(g, from_ns, to_ns, to_ns);
        return true;
    }
    int64_t expected = grid_nearest(g, from_ns + (to_ns - from_ns) / 2);
    int64_t error = pj_grid_error(g, to_ns);
    if (expected - error > from_ns) from_ns = expected - error;
    if (expected + error < to_ns) to_ns = expected + error;
    if (to_ns >= from_ns) {
        grid_set(g, from_ns, to_ns, to_ns);
        return true;
    }
    if (++g->misses >= MISSES_MOST) g->slack_ns = 0;
    return false;
}

static double tick_middle(const int64_t *from_ns, const int64_t *to_ns, uint32_t i)
{
    return ((double)(from_ns[i] - from_ns[0]) + (double)(to_ns[i] - from_ns[0])) / 2;
}

/* The span of all ticks over their number of periods. That follows from the usual step, and better
 * and better from the span of the ticks before: several of them may have been missed in a row. */
static double grid_mean_period(const int64_t *from_ns, const int64_t *to_ns, uint32_t count)
{
    double steps[TICKS_MOST], first = tick_middle(from_ns, to_ns, 0);
    if (count > TICKS_MOST) count = TICKS_MOST;
    for (uint32_t i = 1; i < count; i++)
        steps[i - 1] = tick_middle(from_ns, to_ns, i) - tick_middle(from_ns, to_ns, i - 1);
    double usual = pj_median(steps, count - 1), least = steps[0]; /* sorted by the median */
    double period = usual < 1.5 * least ? usual : least;
    for (uint32_t i = 1; i < count && period > 0; i++) {
        double span = tick_middle(from_ns, to_ns, i) - first, periods = floor(span / period + 0.5);
        if (periods >= 1) period = span / periods;
    }
    return period;
}

static bool grid_fits(int64_t period_ns, const int64_t *from_ns, const int64_t *to_ns,
                      uint32_t count)
{
    pj_grid g = {.period_ns = period_ns};
    for (uint32_t i = 0; i < count; i++)
        if (!pj_grid_observe(&g, from_ns[i], to_ns[i])) return false;
    return true;
}

/* The mean of a few ticks is not exact to half a millisecond where reads are slow, and on a busy
 * machine several whole milliseconds around it may fit: timers of drivers have round periods. */
int64_t pj_grid_find(const int64_t *from_ns, const int64_t *to_ns, uint32_t count)
{
    if (count < TICKS_LEAST) return 0;
    double mean_ms = grid_mean_period(from_ns, to_ns, count) / PJ_NS_PER_MS;
    int64_t found = 0, round = 0, fitting = 0;
    for (int64_t ms = (int64_t)ceil(mean_ms / (1 + SNAP)); (double)ms <= mean_ms * (1 + SNAP);
         ms++) {
        if (ms <= 0 || !grid_fits(ms * PJ_NS_PER_MS, from_ns, to_ns, count)) continue;
        found = ms * PJ_NS_PER_MS;
        fitting++;
        if (ms % ROUND_MS == 0) round = found;
    }
    if (fitting <= 1) return found;
    return round > 0 ? round : -1;
}
