/*
 * The rules, in order: failures, impossible numbers, steps of counters, then whether the value is
 * new at all. A rejected value keeps its raw figure and the reason.
 *
 * A counter rejected twice with mutually consistent values has restarted elsewhere: the second
 * value arms it again, and the energy in between is unknown rather than guessed.
 */
#include "power/filter.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

static const double PLAUSIBLE = 1.5;   /* times the rail's power limit */
static const double RESET_BELOW = 0.9; /* of the old value: a smaller step back is a glitch */
enum { PAUSE_PERIODS = 3 };
/* a sensor that has stood still before and moved again may do so */
enum { USUAL_STILLS = 4 };
/* resolution / value: with a coarse step equal values are expected */
static const double COARSE = 0.01;
static const double UNBOUNDED_MW = 20e6;                    /* no rail of one machine draws 20 kW */
static const int64_t STILL_COUNTER_NS = 100 * PJ_NS_PER_MS; /* frozen: at least this long as well */
static const int64_t STILL_POWER_NS = 2 * PJ_NS_PER_S;
static const int64_t REPEAT_EVERY_NS = 10 * PJ_NS_PER_MS; /* where no period is known */

void pj_filter_init(pj_filter *filter, const pj_rail *rail)
{
    *filter = (pj_filter){.rail = rail, .suspect = NAN, .period_ns = rail->period_ns};
}

void pj_filter_rearm(pj_filter *filter)
{
    filter->armed = false;
    filter->suspect = NAN;
    filter->errors = 0;
    filter->lost = false;
    filter->frozen = false;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Values that happen to repeat make intervals of several periods, so the median is taken over those
 * near the short end. */
int64_t pj_filter_period(const pj_filter *filter)
{
    uint32_t n =
        filter->interval_count < PJ_FILTER_INTERVALS ? filter->interval_count : PJ_FILTER_INTERVALS;
    if (n < 5) return 0;
    int64_t sorted[PJ_FILTER_INTERVALS];
    for (uint32_t i = 0; i < n; i++) sorted[i] = filter->intervals[i];
    qsort(sorted, n, sizeof *sorted, compare_ns);
    uint32_t near = 0;
    while (near < n && sorted[near] <= sorted[n / 4] * 3 / 2) near++;
    return sorted[near / 2];
}

static double filter_bound_mw(const pj_rail *rail)
{
    return rail->max_mw > 0 ? rail->max_mw * PLAUSIBLE : UNBOUNDED_MW;
}

static bool filter_reject(pj_filter *f, pj_reading *r, pj_reading_reason reason)
{
    r->status = PJ_READING_REJECTED;
    r->reason = (uint8_t)reason;
    if (!f->rejected_reported) {
        f->rejected_reported = true;
        f->note = PJ_METER_REJECTED;
        f->note_value = r->value;
    }
    return true;
}

/* A failed read: a gap, and after ten in a row a lost rail. */
static bool take_failure(pj_filter *f, pj_reading *r)
{
    f->errors++;
    f->watched_ns = 0;
    r->value = NAN;
    if (r->status != PJ_READING_LOST && f->errors < PJ_FILTER_ERRORS_LOST) {
        r->status = PJ_READING_GAP;
        return true;
    }
    if (f->lost) return false;
    f->lost = true;
    f->armed = false;
    r->status = PJ_READING_LOST;
    if (r->reason == PJ_REASON_NONE) r->reason = PJ_REASON_GONE;
    f->note = PJ_METER_RAIL_LOST;
    return true;
}

static int64_t middle_of(const pj_reading *r)
{
    return r->before_ns + (r->after_ns - r->before_ns) / 2;
}

/* When an update was published: the device's own timestamp if it lies between the polls, else
 * between the begin of the last poll, which saw the old value, and the end of this one, at most one
 * period before this one began. */
static void filter_date_update(const pj_filter *f, pj_reading *r)
{
    if (r->fresh_ns != 0 && r->fresh_ns <= r->after_ns) return;
    int64_t from = r->before_ns, to = r->after_ns;
    bool is_first = !f->armed || f->seen_ns <= 0;
    /* The first value of a counter is as old as its last tick; a first power begins the series. */
    bool has_age = !is_first || (f->rail->kind == PJ_RAIL_COUNTER && f->period_ns > 0);
    if (has_age && f->period_ns > 0) from -= f->period_ns;
    if (!is_first && (f->period_ns <= 0 || f->seen_begin_ns > from)) from = f->seen_begin_ns;
    if (from > to) from = to;
    r->fresh_ns = from + (to - from) / 2;
    r->fresh_error_ns = (to - from) / 2;
}

/* Whether the poll was in time to see every update; a later one may have missed some, and is no
 * evidence of their interval. Values with the device's own timestamp are never missed. */
static bool in_time(const pj_filter *f, const pj_reading *r)
{
    return f->period_ns == 0 || r->fresh_error_ns == 0 ||
           middle_of(r) - f->seen_ns <= f->period_ns * 3 / 2;
}

static void note_interval(pj_filter *f, const pj_reading *r)
{
    if (!f->armed || r->fresh_ns <= f->fresh_ns || !in_time(f, r)) return;
    /* a vague date before or after an exact one says little */
    if (llabs(r->fresh_error_ns - f->fresh_error_ns) > (r->fresh_ns - f->fresh_ns) / 4) return;
    f->intervals[f->interval_count++ % PJ_FILTER_INTERVALS] = r->fresh_ns - f->fresh_ns;
    if (f->interval_count % PJ_FILTER_INTERVALS != 0) return;
    int64_t period = pj_filter_period(f);
    bool known = f->period_ns > 0;
    bool changed = period > f->period_ns * 3 / 2 || period < f->period_ns / 2;
    if (known && !changed) return;
    f->period_ns = period;
    if (known) {
        f->note = PJ_METER_PERIOD_CHANGED;
        f->note_value = (double)period;
    }
}

static bool accept(pj_filter *f, pj_reading *r)
{
    filter_date_update(f, r);
    if (r->status == PJ_READING_OK) note_interval(f, r);
    if (f->frozen && f->note == PJ_NOTE_NONE) f->note = PJ_METER_THAWED;
    int64_t still = middle_of(r) - f->change_ns;
    if (f->armed && still > f->longest_still_ns) f->longest_still_ns = still;
    f->frozen = false;
    f->armed = true;
    f->suspect = NAN;
    f->value = r->value;
    f->change_ns = middle_of(r);
    f->fresh_ns = r->fresh_ns;
    f->fresh_error_ns = r->fresh_error_ns;
    f->seen_begin_ns = r->before_ns;
    f->seen_ns = r->after_ns;
    f->watched_ns = r->before_ns;
    f->passed_ns = r->after_ns;
    return true;
}

static bool arm(pj_filter *f, pj_reading *r, bool was_reset)
{
    r->status = PJ_READING_RESET;
    f->armed = false;
    if (was_reset && f->note == PJ_NOTE_NONE) f->note = PJ_METER_RESET;
    return accept(f, r);
}

/* Whether an unchanged value means that the sensor has stopped. A part that can be switched off
 * stays at zero watts, one that counts in no total may as well be steady; a coarse resolution hides
 * small changes. */
static bool may_freeze(const pj_filter *f)
{
    const pj_rail *rail = f->rail;
    bool may_rest =
        rail->kind == PJ_RAIL_COUNTER || rail->rail_class == PJ_RAIL_PLATFORM || f->value == 0;
    if (rail->scope == PJ_SCOPE_DOMAIN && may_rest) return false;
    return rail->kind == PJ_RAIL_COUNTER || rail->resolution < COARSE * fabs(f->value);
}

static bool take_repeat(pj_filter *f, pj_reading *r)
{
    int64_t now = middle_of(r), still_ns = now - f->change_ns;
    int64_t every = f->period_ns > 0 ? f->period_ns : REPEAT_EVERY_NS;
    if (f->watched_ns == 0 || now - f->seen_ns > PAUSE_PERIODS * every)
        f->watched_ns = r->before_ns;
    f->seen_begin_ns = r->before_ns;
    f->seen_ns = r->after_ns;
    r->fresh_ns = f->watched_ns;
    r->status = PJ_READING_REPEAT;
    int64_t least = f->rail->kind == PJ_RAIL_COUNTER ? STILL_COUNTER_NS : STILL_POWER_NS;
    if (least < USUAL_STILLS * f->longest_still_ns) least = USUAL_STILLS * f->longest_still_ns;
    if (f->period_ns > 0 && still_ns > PJ_FILTER_FROZEN_PERIODS * f->period_ns &&
        still_ns > least && may_freeze(f)) {
        r->status = PJ_READING_GAP;
        r->reason = PJ_REASON_FROZEN;
        if (!f->frozen) {
            f->frozen = true;
            f->note = PJ_METER_FROZEN;
            f->note_value = (double)still_ns;
        }
    }
    if (r->after_ns - f->passed_ns < every) return false;
    f->passed_ns = r->after_ns;
    return true;
}

/* Whether this energy in that time is within the rail's power limit. */
static bool step_plausible(const pj_filter *f, double step_uj, int64_t elapsed_ns)
{
    /* a tick may have been due just before the first poll: allow one period more */
    double ns = (double)(elapsed_ns + (f->period_ns > 0 ? f->period_ns : PJ_NS_PER_MS));
    return step_uj <= filter_bound_mw(f->rail) * ns * 1e-6 + f->rail->resolution;
}

static bool suspect_confirmed(const pj_filter *f, const pj_reading *r)
{
    if (isnan(f->suspect)) return false;
    double step = r->value - f->suspect;
    return step >= 0 && step_plausible(f, step, middle_of(r) - f->suspect_ns);
}

static bool filter_doubt(pj_filter *f, pj_reading *r, pj_reading_reason reason)
{
    if (suspect_confirmed(f, r)) return arm(f, r, true);
    f->suspect = r->value;
    f->suspect_ns = middle_of(r);
    return filter_reject(f, r, reason);
}

static bool take_counter(pj_filter *f, pj_reading *r)
{
    const pj_rail *rail = f->rail;
    int64_t elapsed = middle_of(r) - f->change_ns;
    bool down = r->value < f->value;
    double step = down ? r->value - f->value + rail->modulus_uj : r->value - f->value;
    bool wrapped = down && rail->modulus_uj > 0 && r->value < rail->modulus_uj &&
                   step_plausible(f, step, elapsed) && step < rail->modulus_uj / 2;
    if (down && !wrapped) {
        if (r->value < RESET_BELOW * f->value) return arm(f, r, true);
        return filter_doubt(f, r, PJ_REASON_BACKWARDS);
    }
    if (!step_plausible(f, step, elapsed)) return filter_doubt(f, r, PJ_REASON_TOO_HIGH);
    if (rail->modulus_uj > 0 && rail->max_mw > 0 &&
        step_plausible(f, step + rail->modulus_uj, elapsed)) { /* may have wrapped twice */
        r->reason = PJ_REASON_AMBIGUOUS;
        return arm(f, r, true);
    }
    return accept(f, r);
}

bool pj_filter_take(pj_filter *f, pj_reading *r)
{
    f->note = PJ_NOTE_NONE;
    f->note_value = NAN;
    if (f->lost) return false;
    if (r->status == PJ_READING_GAP || r->status == PJ_READING_LOST) return take_failure(f, r);
    f->errors = 0;
    if (r->reason == PJ_REASON_NOT_A_NUMBER) { /* reported by the source itself: no warning */
        r->status = PJ_READING_REJECTED;
        return true;
    }
    if (!isfinite(r->value)) return filter_reject(f, r, PJ_REASON_NOT_A_NUMBER);
    if (r->value < 0) return filter_reject(f, r, PJ_REASON_NEGATIVE);
    bool counter = f->rail->kind == PJ_RAIL_COUNTER;
    if (!counter && r->value > filter_bound_mw(f->rail))
        return filter_reject(f, r, PJ_REASON_TOO_HIGH);
    /* a driver's log says when it measured: a zero there is no reading that failed */
    if (!counter && r->value == 0 && f->rail->scope != PJ_SCOPE_DOMAIN && f->rail->log_ns == 0)
        return filter_reject(f, r, PJ_REASON_ZERO);
    if (!f->armed) return counter ? arm(f, r, false) : accept(f, r);
    bool newer = r->fresh_ns > f->fresh_ns; /* by the device's own timestamp */
    if (r->value == f->value && !newer) return take_repeat(f, r);
    return counter ? take_counter(f, r) : accept(f, r);
}
