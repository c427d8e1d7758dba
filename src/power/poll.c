/* Due times of costly reads. */
#include "power/poll.h"

#include "base/clock.h"

static const int64_t COSTLY_NS = PJ_NS_PER_MS / 2;
/* Of a core, for each costly rail: a counter and a log together stay well below one percent. */
static const double BUDGET = 0.0022;
static const double ALONE = 1.2; /* times that, for a counter without a log */
static const int64_t HOLD_FIRST_NS = 2 * PJ_NS_PER_S, HOLD_MOST_NS = 32 * PJ_NS_PER_S;
static const int64_t MARGIN_NS = PJ_NS_PER_MS;
/* A cheap counter is read no more often than its log, which it has to wait for. */
static const int64_t WITH_LOG_NS = 300 * PJ_NS_PER_MS;
/* However dear, a counter is read this often: who divides its energy does not wait much longer. */
static const int64_t COUNTER_MOST_NS = 3 * PJ_NS_PER_S;
/* Tries of who waits, where it is not known when the next value is published. */
enum { TRIES_A_PERIOD = 16 };
enum { LOOK_PERIODS = 3, VAGUE_MOST = 3, LOST_MOST = 3 };
/* Looks for a grid in vain: that there is none is more likely each time. */
static const int64_t LEARN_FIRST_NS = 16 * PJ_NS_PER_S, LEARN_MOST_NS = 256 * PJ_NS_PER_S;
enum { LEARN_PERIODS = 16 }; /* as many as a grid needs, and a few that are missed */

void pj_poll_init(pj_poll *p, const pj_rail *rail, bool has_log, int64_t cost_ns)
{
    *p = (pj_poll){.rail = rail,
                   .has_log = has_log,
                   .cost_ns = cost_ns,
                   .hold_step_ns = HOLD_FIRST_NS,
                   .learn_step_ns = LEARN_FIRST_NS};
    p->grid.period_ns = rail->grid_ns;
}

bool pj_cost_is_high(const pj_rail *rail, int64_t cost_ns)
{
    return rail->log_ns > 0 || cost_ns >= COSTLY_NS;
}

bool pj_poll_is_costly(const pj_poll *p)
{
    return p->has_log || pj_cost_is_high(p->rail, p->cost_ns);
}

/* Whether there may be a grid that is not known. */
static bool poll_may_learn(const pj_poll *p)
{
    return p->rail->kind == PJ_RAIL_COUNTER && p->grid.period_ns == 0 && !p->is_refuted &&
           p->rail->period_ns >= PJ_GRID_LEAST_NS && pj_poll_is_costly(p);
}

static void poll_look(pj_poll *p, int64_t from_ns)
{
    bool learns = p->grid.period_ns == 0;
    p->looking = true;
    p->look_missed = false;
    p->next_tick_ns = 0;
    p->look_from_ns = from_ns;
    p->look_end_ns =
        from_ns + (learns ? LEARN_PERIODS * p->rail->period_ns : LOOK_PERIODS * p->grid.period_ns);
    p->due_ns = from_ns;
}

/* `at_ns`, or where a read at that time might straddle a tick, the time after that tick. */
static int64_t poll_clear_of_tick(const pj_poll *p, int64_t at_ns)
{
    if (!pj_grid_known(&p->grid, at_ns)) return at_ns;
    int64_t error = pj_grid_error(&p->grid, at_ns) + MARGIN_NS / 2;
    int64_t clear = pj_grid_last(&p->grid, at_ns + p->cost_ns + error) + error;
    return clear > at_ns ? clear : at_ns;
}

void pj_poll_resume(pj_poll *p, int64_t now_ns)
{
    if (p->looking || p->due_ns < now_ns) p->due_ns = poll_clear_of_tick(p, now_ns);
    p->wanted_ns = p->old_ns = 0;
    p->looking = p->is_vague = false;
    p->vague_count = 0;
}

void pj_poll_start(pj_poll *p, int64_t now_ns)
{
    p->due_ns = 0;
    pj_poll_resume(p, now_ns);
    bool is_rare = p->stands && now_ns < p->hold_ns; /* it did not move during the last look */
    if (p->grid.period_ns > 0 && !pj_grid_known(&p->grid, now_ns) && !is_rare) poll_look(p, now_ns);
}

int64_t pj_poll_due(const pj_poll *p)
{
    return p->wanted_ns > 0 && p->wanted_ns < p->due_ns ? p->wanted_ns : p->due_ns;
}

/* Between two ticks, so that a read does not straddle one, and a while after the first, so that a
 * log has reached it. */
static int64_t poll_between_ticks(const pj_poll *p, int64_t at_ns)
{
    if (!pj_grid_known(&p->grid, at_ns)) return at_ns;
    return pj_grid_last(&p->grid, at_ns) + p->grid.period_ns * 2 / 5;
}

/* The next try of who waits: the last read was too early. */
static int64_t poll_try_again(const pj_poll *p)
{
    int64_t period = p->rail->period_ns,
            step = p->rail->log_ns > 0 || p->stands ? period : period / TRIES_A_PERIOD;
    if (pj_grid_known(&p->grid, p->read_ns))
        return poll_between_ticks(p, p->read_ns + p->grid.period_ns);
    return p->read_ns + (step > 2 * p->cost_ns ? step : 2 * p->cost_ns);
}

void pj_poll_want(pj_poll *p, int64_t at_ns)
{
    int64_t at = at_ns + p->rail->delay_ns;
    if (p->looking && p->grid.period_ns == 0) { /* a look for a grid takes longer than that */
        p->looking = false;
        p->due_ns = at_ns;
    }
    if (p->covered_ns >= at_ns || p->wanted_ns > 0) return;
    if (pj_grid_known(&p->grid, at))
        p->wanted_ns = poll_between_ticks(p, at + p->grid.period_ns);
    else
        p->wanted_ns = at + (p->rail->log_ns > 0 ? 2 : 1) * p->rail->period_ns + MARGIN_NS;
    if (p->wanted_ns <= p->read_ns) p->wanted_ns = poll_try_again(p);
}

/* On a busy machine most calls are interrupted: the shortest of the last ones bounds what a call is
 * taken to cost. */
static void poll_learn_cost(pj_poll *p, int64_t took_ns)
{
    p->took_ns[p->took_count++ % PJ_POLL_TOOK] = took_ns;
    int64_t least = took_ns;
    for (uint32_t i = 0; i < PJ_POLL_TOOK && i < p->took_count; i++)
        if (p->took_ns[i] < least) least = p->took_ns[i];
    if (took_ns > least + least / 2) took_ns = least + least / 2;
    p->cost_ns = p->cost_ns == 0 ? took_ns : p->cost_ns + (took_ns - p->cost_ns) / 4;
}

static int64_t poll_interval_ns(const pj_poll *p, int64_t pace_ns)
{
    bool is_alone = p->rail->kind == PJ_RAIL_COUNTER && !p->has_log; /* no log shows the shape */
    int64_t interval = (int64_t)((double)p->cost_ns / (is_alone ? ALONE * BUDGET : BUDGET));
    if (p->rail->log_ns > 0 && interval > p->rail->log_ns / 2) interval = p->rail->log_ns / 2;
    if (p->rail->log_ns > 0 && interval < p->rail->log_ns / 8) interval = p->rail->log_ns / 8;
    if (p->has_log && interval < WITH_LOG_NS) interval = WITH_LOG_NS;
    if (p->rail->kind == PJ_RAIL_COUNTER && interval > COUNTER_MOST_NS) interval = COUNTER_MOST_NS;
    /* a reading of power that is not read is lost, a counter's is not */
    if (p->rail->kind != PJ_RAIL_COUNTER && p->rail->log_ns == 0 && p->rail->period_ns > 0 &&
        interval > p->rail->period_ns / 2)
        interval = p->rail->period_ns / 2;
    return interval > pace_ns ? interval : pace_ns;
}

/* The tick that was looked for: the phase is confirmed again after a while, less and less often. */
static void poll_found(pj_poll *p, int64_t at_ns)
{
    p->looking = false;
    p->hold_ns = at_ns + p->hold_step_ns;
    if (p->hold_step_ns < HOLD_MOST_NS) p->hold_step_ns *= 2;
}

/* By how much a tick that a look for a grid expects may be off: the tick before it was seen as well
 * as this, and the period is known about. */
static int64_t poll_learn_error(const pj_poll *p)
{
    uint32_t last = p->tick_count > 0 ? p->tick_count - 1 : 0;
    return (p->tick_to_ns[last] - p->tick_from_ns[last]) / 2 + p->rail->period_ns / 32;
}

/* Half the time in which it reads. */
static int64_t poll_learn_around(const pj_poll *p)
{
    return poll_learn_error(p) + p->cost_ns + MARGIN_NS;
}

/* A tick of a counter without a grid. Where enough of them were seen well, they may show one. */
static void poll_learn(pj_poll *p, const pj_reading *r)
{
    int64_t from_ns = p->old_ns, to_ns = r->after_ns, period = p->rail->period_ns;
    bool changed = r->status == PJ_READING_OK;
    if (!changed || from_ns == 0 || to_ns - from_ns > period / 4) {
        bool is_slow = to_ns - r->before_ns > period / 8;
        bool is_late = changed && to_ns > p->next_tick_ns - poll_learn_error(p);
        p->look_blurred = p->look_blurred || is_slow || is_late;
        bool is_early = changed && from_ns > 0 && !p->look_blurred;
        if (is_early) p->look_end_ns = to_ns;
        return;
    }
    p->look_blurred = false;
    if (p->tick_count == PJ_POLL_TICKS) p->tick_count = 0;
    p->tick_from_ns[p->tick_count] = from_ns;
    p->tick_to_ns[p->tick_count++] = to_ns;
    p->next_tick_ns = from_ns + (to_ns - from_ns) / 2 + period;
    if (p->tick_count < PJ_GRID_ENOUGH) return;
    int64_t found = pj_grid_find(p->tick_from_ns, p->tick_to_ns, p->tick_count);
    if (found == 0) p->look_end_ns = to_ns;
    if (found <= 0) return;
    p->grid.period_ns = found;
    p->saw_tick = pj_grid_observe(&p->grid, from_ns, to_ns);
    p->hold_step_ns = HOLD_FIRST_NS;
    poll_found(p, to_ns);
}

/* A tick that is not where the kept grid has it. True: too often to believe in that grid. */
static bool poll_doubt(pj_poll *p)
{
    p->is_refuted = p->is_refuted || (p->rail->grid_ns > 0 && ++p->lost_count >= LOST_MOST);
    return p->is_refuted;
}

/* A look in vain. Where the counter moved meanwhile, its ticks are elsewhere than expected: the
 * next look is at all times. Where it stands still, or has no grid any more, looks become rare. */
static void poll_give_up(pj_poll *p, int64_t at_ns)
{
    bool is_elsewhere = p->look_missed && pj_grid_known(&p->grid, at_ns);
    p->looking = false;
    if (p->grid.period_ns == 0) {
        p->tick_count = 0;
        p->hold_ns = at_ns + p->learn_step_ns;
        if (p->learn_step_ns < LEARN_MOST_NS) p->learn_step_ns *= 4;
        return;
    }
    if (is_elsewhere && poll_doubt(p)) {
        p->grid = (pj_grid){0};
        return;
    }
    if (is_elsewhere) {
        p->hold_step_ns = HOLD_FIRST_NS;
        p->grid.slack_ns = 0;
        poll_look(p, at_ns);
        return;
    }
    p->stands = !p->look_missed;
    poll_found(p, at_ns);
}

/* A tick elsewhere than expected. A grid that was learnt and whose phase is lost may be none. */
static void poll_lost(pj_poll *p)
{
    p->hold_step_ns = HOLD_FIRST_NS;
    p->hold_ns = 0;
    if (!poll_doubt(p) && (p->grid.slack_ns > 0 || p->rail->grid_ns > 0)) return;
    p->looking = p->looking && !p->is_refuted;
    p->grid.period_ns = 0;
    p->tick_count = 0;
}

static void poll_take_counter(pj_poll *p, const pj_reading *r)
{
    bool changed = r->status == PJ_READING_OK;
    bool close = p->old_ns > 0 && r->after_ns - p->old_ns < p->grid.period_ns / 2;
    bool was_known = pj_grid_known(&p->grid, r->after_ns);
    p->saw_tick = changed && close && pj_grid_observe(&p->grid, p->old_ns, r->after_ns);
    if (p->saw_tick && was_known) p->lost_count = 0;
    if (p->grid.period_ns == 0) {
        poll_learn(p, r);
    } else if (p->saw_tick && p->looking && pj_grid_known(&p->grid, r->after_ns))
        poll_found(p, r->after_ns);
    else if (changed && ((close && !p->saw_tick) || p->stands))
        poll_lost(p);
    if (changed) p->stands = false;
    p->look_missed = p->look_missed || (p->looking && changed && p->old_ns > 0);
    bool is_value = changed || r->status == PJ_READING_RESET || r->status == PJ_READING_REPEAT;
    p->look_blurred = p->look_blurred || !is_value;
    p->old_ns = is_value ? r->before_ns : 0;
}

bool pj_poll_is_early(const pj_poll *p)
{
    return p->has_log && (p->saw_tick || p->looking);
}

/* A read that straddles a tick, or may, has published either of two values. */
static void poll_date(const pj_poll *p, pj_reading *r)
{
    const pj_grid *g = &p->grid;
    if (!pj_grid_known(g, r->after_ns)) return;
    int64_t error = pj_grid_error(g, r->after_ns);
    int64_t last = pj_grid_last(g, r->after_ns + error);
    int64_t first = p->saw_tick ? last : pj_grid_last(g, r->before_ns - error);
    r->fresh_ns = p->saw_tick ? g->tick_ns : last - (last - first) / 2;
    r->fresh_error_ns = error + (last - first) / 2;
}

void pj_poll_date_early(const pj_poll *p, const pj_reading *again, pj_reading *early)
{
    int64_t widest = p->grid.period_ns / 4;
    pj_reading dated = *again;
    dated.fresh_error_ns = INT64_MAX;
    poll_date(p, &dated);
    if (early->fresh_error_ns <= widest || dated.fresh_error_ns > widest) return;
    early->fresh_ns = dated.fresh_ns;
    early->fresh_error_ns = dated.fresh_error_ns;
}

bool pj_poll_is_vague(const pj_poll *p)
{
    return p->is_vague;
}

/* The first value is worth a second read if it may be of either side of a tick: a window that
 * begins now would be uncertain by a period. */
static void poll_judge_first(pj_poll *p, const pj_reading *r)
{
    bool is_wide = r->fresh_error_ns > p->grid.period_ns / 4;
    p->is_vague = r->status == PJ_READING_RESET && is_wide && p->vague_count < VAGUE_MOST &&
                  pj_grid_known(&p->grid, r->after_ns);
    p->vague_count = p->is_vague ? p->vague_count + 1 : 0;
}

/* A tick must have passed since the one that the last value was of, and the counter shows the same:
 * nothing was counted. False: that is not certain. */
static bool poll_take_repeat(const pj_poll *p, pj_reading *r)
{
    const pj_grid *g = &p->grid;
    if (r->status != PJ_READING_REPEAT || p->looking || p->covered_ns == 0) return false;
    if (!pj_grid_known(g, r->before_ns)) return false;
    int64_t error = pj_grid_error(g, r->before_ns);
    int64_t last = pj_grid_last(g, r->before_ns - error - MARGIN_NS);
    if (last - p->rail->delay_ns - p->covered_ns < g->period_ns / 2) return false;
    r->status = PJ_READING_OK;
    r->fresh_ns = last;
    r->fresh_error_ns = error;
    return true;
}

void pj_poll_see(pj_poll *p, pj_reading *r)
{
    bool is_new = r->status == PJ_READING_OK || r->status == PJ_READING_RESET;
    if (p->rail->log_ns == 0) poll_learn_cost(p, r->after_ns - r->before_ns);
    if (p->grid.period_ns > 0 || poll_may_learn(p)) poll_take_counter(p, r);
    p->is_vague = false;
    if (!is_new && !poll_take_repeat(p, r)) return;
    if (is_new) poll_date(p, r);
    poll_judge_first(p, r);
    if (p->is_vague) return;
    /* an early value is passed on soon, before any other read could be made for who waits */
    if (r->fresh_ns > 0) p->covered_ns = r->fresh_ns - p->rail->delay_ns;
}

/* While a tick is looked for: at once, or, where it is known about when it comes, from just before
 * the tick until just after it. */
static int64_t poll_next_look(const pj_poll *p, int64_t now_ns)
{
    const pj_grid *g = &p->grid;
    if (g->period_ns == 0) {
        int64_t from = p->next_tick_ns - poll_learn_around(p);
        return p->next_tick_ns > 0 && from > now_ns ? from : now_ns;
    }
    if (!pj_grid_known(g, now_ns)) return now_ns;
    int64_t around = pj_grid_error(g, now_ns) + p->cost_ns + MARGIN_NS;
    int64_t tick = pj_grid_last(g, now_ns + g->period_ns / 2);
    if (now_ns > tick + around) tick += g->period_ns;
    return now_ns < tick - around ? tick - around : now_ns;
}

/* A look for a grid ends with the first tick that does not come when it is expected. */
static bool poll_look_is_over(pj_poll *p, int64_t now_ns)
{
    bool is_late = p->grid.period_ns == 0 && p->next_tick_ns > 0 &&
                   now_ns > p->next_tick_ns + poll_learn_around(p);
    if (now_ns > p->look_end_ns || (is_late && !p->look_blurred)) return true;
    if (!is_late) return false;
    p->next_tick_ns += p->rail->period_ns;
    p->old_ns = 0;
    p->look_blurred = false;
    return false;
}

void pj_poll_done(pj_poll *p, int64_t before_ns, int64_t after_ns, int64_t pace_ns)
{
    const pj_grid *g = &p->grid;
    int64_t next = after_ns + poll_interval_ns(p, pace_ns);
    p->read_ns = before_ns;
    if (p->rail->log_ns > 0) poll_learn_cost(p, after_ns - before_ns);
    if (p->wanted_ns > 0 && before_ns >= p->wanted_ns) p->wanted_ns = 0;
    if (p->is_vague) {
        p->due_ns = poll_clear_of_tick(p, after_ns);
        return;
    }
    if (p->looking && g->period_ns > 0 &&
        before_ns < p->look_from_ns) { /* a caller waits: it began now */
        p->look_end_ns -= p->look_from_ns - before_ns;
        p->look_from_ns = before_ns;
    }
    if (p->looking && poll_look_is_over(p, after_ns)) poll_give_up(p, after_ns);
    if (p->looking) {
        p->due_ns = poll_next_look(p, after_ns);
        return;
    }
    if (pj_poll_is_early(p)) next = after_ns;
    p->due_ns = poll_between_ticks(p, next);
    if (p->due_ns <= after_ns) p->due_ns = next;
    if (pj_poll_is_early(p)) {
        p->saw_tick = false;
        return;
    }
    /* reads so slow that two of them do not locate a tick to an eighth of a period */
    int64_t period = g->period_ns > 0 ? g->period_ns : poll_may_learn(p) ? p->rail->period_ns : 0;
    if (period == 0 || p->hold_ns > next || p->cost_ns > period / 8) return;
    p->old_ns = 0; /* what changes before the look does not tell where ticks are */
    poll_look(p, next);
    p->due_ns = poll_next_look(p, next);
}
