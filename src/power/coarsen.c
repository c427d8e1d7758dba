/* Thinning of counters and averaging of power readings. */
#include "power/coarsen.h"

#include "base/clock.h"

/* Sample interval for power readings of unknown update period. */
static const int64_t ASSUMED_NS = 20 * PJ_NS_PER_MS;
/* A counter unchanged for STANDS_NS counts as standing still; it is then reported this often. */
static const int64_t STANDS_NS = PJ_NS_PER_S, STANDS_EVERY_NS = 50 * PJ_NS_PER_MS;
enum { HOLE_PERIODS = 3 };

void pj_coarsen_init(pj_coarsen *c, const pj_rail *rail, bool declared, int64_t interval_ns)
{
    bool counter = rail->kind == PJ_RAIL_COUNTER, average = rail->kind == PJ_RAIL_AVERAGE;
    *c = (pj_coarsen){.kind = rail->kind,
                      .may_stand = !declared,
                      .interval_ns = interval_ns,
                      .period_ns = rail->period_ns,
                      .seen_share = 1};
    /* Windows of a long average overlap; one sample per window leaves no gap. */
    if (average && rail->window_ns > 0 && c->interval_ns > rail->window_ns)
        c->interval_ns = rail->window_ns;
    if (c->interval_ns <= rail->period_ns) c->interval_ns = 0;
    if (c->interval_ns == 0 && rail->period_ns == 0 && !counter) c->interval_ns = ASSUMED_NS;
    if (!average && rail->window_ns > 0 && rail->window_ns < rail->period_ns)
        c->seen_share = (double)rail->window_ns / (double)rail->period_ns;
    c->active = c->interval_ns > 0 || (counter && c->may_stand);
}

void pj_coarsen_rearm(pj_coarsen *c)
{
    c->armed = c->holds = false;
    c->mw_ns = 0;
}

void pj_coarsen_describe(const pj_coarsen *c, pj_rail *rail)
{
    if (c->interval_ns == 0) return;
    rail->period_ns = c->interval_ns;
    if (rail->kind != PJ_RAIL_AVERAGE && rail->window_ns > 0)
        rail->window_ns = (int64_t)((double)c->interval_ns * c->seen_share);
}

/* How early a sample may end, so as not to wait for the next poll, which would be later by more. */
static int64_t early_ns(const pj_coarsen *c)
{
    if (c->period_ns > 0) return c->period_ns / 2;
    return ASSUMED_NS / 4 < c->interval_ns / 4 ? ASSUMED_NS / 4 : c->interval_ns / 4;
}

/* ---- counters, and long averages ---- */

static int pass_held(pj_coarsen *c, pj_reading *out)
{
    if (!c->holds) return 0;
    c->holds = false;
    c->end_ns = c->held.fresh_ns;
    *out = c->held;
    return 1;
}

/* The counter still shows its value: no energy was counted up to `at_ns`. */
static int pass_standing(pj_coarsen *c, pj_reading r, int64_t at_ns, pj_reading *out)
{
    r.status = PJ_READING_OK;
    r.reason = 0;
    r.value = c->value;
    r.fresh_ns = c->end_ns = at_ns;
    r.fresh_error_ns = 0;
    *out = r;
    return 1;
}

static int take_update(pj_coarsen *c, const pj_reading *r, pj_reading *out)
{
    int count = 0;
    bool due = r->fresh_ns - c->end_ns >= c->interval_ns - early_ns(c);
    c->change_ns = r->fresh_ns;
    c->value = r->value;
    if (c->armed && !due && r->status == PJ_READING_OK) {
        c->held = *r;
        c->holds = true;
        return 0;
    }
    if (r->status != PJ_READING_OK) count = pass_held(c, out);
    c->holds = false;
    c->armed = true;
    c->end_ns = r->fresh_ns;
    out[count] = *r;
    return count + 1;
}

static int take_thinned(pj_coarsen *c, const pj_reading *r, pj_reading *out)
{
    if (r->status == PJ_READING_OK || r->status == PJ_READING_RESET) return take_update(c, r, out);
    int count = 0;
    if (r->status == PJ_READING_REPEAT && c->kind == PJ_RAIL_COUNTER && c->may_stand && c->armed) {
        int64_t stands =
            STANDS_NS > HOLE_PERIODS * c->period_ns ? STANDS_NS : HOLE_PERIODS * c->period_ns;
        if (r->before_ns - c->change_ns < stands || r->before_ns - c->end_ns < STANDS_EVERY_NS)
            return 0;
        count = pass_held(c, out);
        return count + pass_standing(c, *r, r->before_ns, out + count);
    }
    if (r->status == PJ_READING_LOST) count = pass_held(c, out);
    out[count] = *r;
    return count + 1;
}

/* ---- power ---- */

static int pass_mean(pj_coarsen *c, pj_reading r, pj_reading *out)
{
    int64_t length = c->end_ns - c->begin_ns;
    if (length <= 0) return 0;
    r.status = PJ_READING_OK;
    r.reason = 0;
    r.value = c->mw_ns / (double)length;
    r.fresh_ns = c->end_ns;
    r.window_ns = (int64_t)((double)length * c->seen_share);
    c->mw_ns = 0;
    c->begin_ns = c->end_ns;
    *out = r;
    return 1;
}

static void begin_stretch(pj_coarsen *c, int64_t begin_ns)
{
    c->armed = true;
    c->mw_ns = 0;
    c->begin_ns = c->end_ns = begin_ns;
}

/* Until when a repeated value is known: up to the last update that was due, or up to the poll where
 * the update period is unknown. */
static int64_t coarsen_known_until(const pj_coarsen *c, const pj_reading *r)
{
    if (r->status == PJ_READING_OK) return r->fresh_ns;
    if (c->period_ns <= 0) return r->before_ns;
    return c->end_ns + (r->before_ns - c->end_ns) / c->period_ns * c->period_ns;
}

static int coarsen_take_power(pj_coarsen *c, const pj_reading *r, pj_reading *out)
{
    bool repeat = r->status == PJ_READING_REPEAT;
    if (r->status != PJ_READING_OK && !repeat) {
        int count = r->status == PJ_READING_LOST && c->armed ? pass_mean(c, *r, out) : 0;
        out[count] = *r;
        return count + 1;
    }
    int64_t own = c->period_ns > 0 ? c->period_ns : ASSUMED_NS, count = 0;
    /* repeats: since polling was continuous */
    int64_t seen_from = repeat ? r->fresh_ns : r->fresh_ns - own;
    bool hole = c->armed && seen_from - c->end_ns > HOLE_PERIODS * own;
    if (hole) count = pass_mean(c, *r, out);
    if (!c->armed || hole) begin_stretch(c, seen_from);
    int64_t until = coarsen_known_until(c, r);
    if (until > c->end_ns) {
        c->mw_ns += r->value * (double)(until - c->end_ns);
        c->end_ns = until;
    }
    c->value = r->value;
    if (c->end_ns - c->begin_ns >= c->interval_ns - early_ns(c))
        count += pass_mean(c, *r, out + count);
    return (int)count;
}

/* ---- both ---- */

int pj_coarsen_take(pj_coarsen *c, const pj_reading *reading, pj_reading *out)
{
    if (c->active)
        return c->kind == PJ_RAIL_INSTANT ? coarsen_take_power(c, reading, out)
                                          : take_thinned(c, reading, out);
    out[0] = *reading;
    return 1;
}

int pj_coarsen_flush(pj_coarsen *c, int64_t seen_ns, pj_reading *out)
{
    if (!c->active || !c->armed) return 0;
    pj_reading last = {.before_ns = seen_ns, .after_ns = seen_ns, .rail = c->held.rail};
    if (c->kind == PJ_RAIL_INSTANT) return pass_mean(c, last, out);
    int count = pass_held(c, out);
    if (c->kind == PJ_RAIL_COUNTER && c->may_stand && seen_ns > c->end_ns)
        count += pass_standing(c, last, seen_ns, out + count);
    return count;
}
