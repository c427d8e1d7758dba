/*
 * The sampler thread. Its schedule is absolute (tick n is due at start + n x interval), so that a
 * late tick does not shift later ones; ticks overrun by an earlier one are skipped and counted. A
 * timer slack of 1 ns makes the kernel wake it within a few microseconds instead of fifty.
 *
 * Single failures are gaps. When every rail is lost, or the source reports that it is gone, it is
 * closed and reopened once; the second time it is lost for good and the thread ends. Suspend shows
 * as a jump of the boot clock relative to the monotonic clock: counters are then re-armed, because
 * what they counted meanwhile is unknown.
 */
#include "power/sampler.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { READINGS_RING = 1 << 14, EVENTS_RING = 256, ACCOUNT_EVERY = 32 };
static const int64_t LONGEST_SLEEP_NS = 50 * PJ_NS_PER_MS; /* bounds the delay of stop */
static const int64_t SUSPEND_NS = 200 * PJ_NS_PER_MS;
static const int64_t LIMITS_EVERY_NS = PJ_NS_PER_S;
static const double LIMIT_STEP = 0.001; /* a larger relative difference is a change */
/* a stall is reported from this and ten intervals on */
static const int64_t STALL_NS = PJ_NS_PER_S;
/* Maximum wait for a source's first read: a second or more. Checks are counted instead of time: on
 * a loaded machine the sampler and the waiting thread are delayed alike. */
static const int64_t LOOK_NS = PJ_NS_PER_MS / 20;
enum { LOOKS = 10000 };

pj_status pj_power_sampler_init(pj_power_sampler *sampler, pj_error *err)
{
    pj_status status = pj_ring_init(&sampler->readings, READINGS_RING, sizeof(pj_reading), err);
    if (status != PJ_OK) return status;
    return pj_ring_init(&sampler->events, EVENTS_RING, sizeof(pj_meter_event), err);
}

static void sampler_close(pj_power_sampler *s)
{
    if (s->open && s->source->close) s->source->close(s->state);
    s->open = false;
}

void pj_power_sampler_fini(pj_power_sampler *sampler)
{
    pj_power_sampler_stop(sampler);
    sampler_close(sampler);
    pj_free(sampler->state);
    sampler->state = NULL;
    pj_ring_fini(&sampler->readings);
    pj_ring_fini(&sampler->events);
}

/* Current poll interval: longer between runs. */
static int64_t step_ns(const pj_power_sampler *s)
{
    return s->pace_ns > s->interval_ns ? s->pace_ns : s->interval_ns;
}

static void note_event(pj_power_sampler *s, int kind, int rail, int64_t at_ns, double value)
{
    pj_meter_event event = {.at_ns = at_ns,
                            .value = value,
                            .kind = (pj_meter_event_kind)kind,
                            .source = s->index,
                            .rail = rail < 0 ? UINT16_MAX : (uint16_t)s->kept[rail]};
    pj_ring_write(&s->events, &event);
}

/* ---- readings ---- */

/* What a start soon after needs (sampler_resume). */
static void sampler_remember(pj_power_sampler *s, uint32_t rail, const pj_reading *r)
{
    bool is_value = r->status == PJ_READING_OK || r->status == PJ_READING_RESET;
    if (s->rails[rail].log_ns > 0) s->logged[s->logged_count++ % PJ_LOGGED] = *r;
    if (s->rails[rail].kind == PJ_RAIL_COUNTER && is_value) s->last[rail] = *r;
}

static void sampler_pass_on(pj_power_sampler *s, uint32_t rail, pj_reading *readings, int count)
{
    for (int i = 0; i < count; i++) {
        readings[i].rail = (uint16_t)s->kept[rail];
        readings[i].sequence = s->sequence;
        sampler_remember(s, rail, &readings[i]);
        pj_ring_write(&s->readings, &readings[i]);
        atomic_fetch_add_explicit(&s->passed, 1, memory_order_relaxed);
    }
}

/* For a rail whose driver states no update period: the period measured by the filter is used, and
 * an unchanged value does not mean a frozen sensor. */
static void forgive(pj_power_sampler *s, uint32_t rail, pj_reading *r)
{
    pj_filter *filter = &s->filters[rail];
    int64_t known = s->rails[rail].period_ns;
    if (step_ns(s) > known) { /* also where it is 0 */
        if (filter->note == PJ_METER_PERIOD_CHANGED) filter->note = PJ_NOTE_NONE;
        filter->period_ns = known;
    }
    if (!s->unstated[rail]) return;
    if (r->status == PJ_READING_GAP && r->reason == PJ_REASON_FROZEN) {
        r->status = PJ_READING_REPEAT;
        r->reason = PJ_REASON_NONE;
        filter->frozen = false;
    }
    if (filter->note == PJ_METER_FROZEN) filter->note = PJ_NOTE_NONE;
}

/* Passes on a value that was kept for its log. */
static void pass_kept(pj_power_sampler *s, uint32_t rail)
{
    pj_reading out[PJ_COARSEN_MOST];
    s->early_rails &= ~(1ull << rail);
    sampler_pass_on(s, rail, out, pj_coarsen_take(&s->coarsen[rail], &s->early[rail], out));
}

/* Counters on a grid are resumed, or know when their last tick was. */
static bool is_recalled(const pj_power_sampler *s, uint32_t rail)
{
    return s->polls[rail].has_log && s->polls[rail].grid.period_ns == 0 &&
           s->last[rail].after_ns > 0;
}

/* A counter that shows the value of its last tick when sampling stopped has not ticked since. */
static void recall_tick(const pj_power_sampler *s, pj_reading *r)
{
    const pj_reading *last = &s->last[r->rail];
    bool is_recent = r->before_ns - last->fresh_ns < 2 * s->rails[r->rail].period_ns;
    if (last->value != r->value || !is_recent || last->fresh_error_ns >= r->fresh_error_ns) return;
    r->fresh_ns = last->fresh_ns;
    r->fresh_error_ns = last->fresh_error_ns;
}

static void sampler_pass(pj_power_sampler *s, pj_reading *r)
{
    uint32_t rail = r->rail;
    if (rail >= s->rail_count || s->kept[rail] < 0) return;
    pj_reading out[PJ_COARSEN_MOST];
    pj_filter *filter = &s->filters[rail];
    bool worth = pj_filter_take(filter, r);
    forgive(s, rail, r);
    bool was_repeat = r->status == PJ_READING_REPEAT;
    pj_poll_see(&s->polls[rail], r);
    worth |= was_repeat && r->status == PJ_READING_OK; /* a tick at which nothing was counted */
    if (pj_poll_is_vague(&s->polls[rail])) {
        pj_filter_rearm(filter);
        return;
    }
    if (filter->note != PJ_NOTE_NONE)
        note_event(s, filter->note, (int)rail, r->after_ns, filter->note_value);
    if (r->status == PJ_READING_RESET && is_recalled(s, rail)) recall_tick(s, r);
    bool is_kept = s->early_rails >> rail & 1;
    /* not passed on: it repeats a value that is not known yet, not the one before */
    if (is_kept && r->status == PJ_READING_REPEAT) {
        pj_poll_date_early(&s->polls[rail], r, &s->early[rail]);
        return;
    }
    if (r->status == PJ_READING_OK && pj_poll_is_early(&s->polls[rail])) {
        s->early[rail] = *r;
        s->early_rails |= 1ull << rail;
        return;
    }
    if (is_kept && r->status != PJ_READING_OK) pass_kept(s, rail);
    s->early_rails &= ~(1ull << rail); /* a later value includes it */
    /* Averages need every poll of a value, also repeats. */
    bool averaged = s->coarsen[rail].active && s->rails[rail].kind == PJ_RAIL_INSTANT;
    if (worth || (averaged && r->status == PJ_READING_REPEAT))
        sampler_pass_on(s, rail, out, pj_coarsen_take(&s->coarsen[rail], r, out));
}

/* Passes on readings held back for coarser samples, when sampling stops. */
static void sampler_flush(pj_power_sampler *s)
{
    pj_reading out[PJ_COARSEN_MOST];
    for (uint32_t rail = 0; rail < s->rail_count; rail++)
        if (s->kept[rail] >= 0)
            sampler_pass_on(s, rail, out,
                            pj_coarsen_flush(&s->coarsen[rail], s->filters[rail].seen_ns, out));
}

/* All rails but these. */
static void rearm_but(pj_power_sampler *s, uint64_t rails)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        if (rails >> i & 1) continue;
        pj_filter_rearm(&s->filters[i]);
        pj_coarsen_rearm(&s->coarsen[i]);
    }
}

static void rearm(pj_power_sampler *s)
{
    rearm_but(s, 0);
}

/* A read of the whole source failed: every rail gets a gap, or is lost. */
static void pass_failure(pj_power_sampler *s, pj_status status, int64_t before_ns, int64_t after_ns)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        pj_reading gap = {.before_ns = before_ns, .after_ns = after_ns, .rail = (uint16_t)i};
        pj_source_fail_reading(&gap, status);
        sampler_pass(s, &gap);
    }
}

/* True when every used rail is lost; a source without used rails is never lost. */
static bool all_lost(const pj_power_sampler *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->rail_count; i++) {
        if (s->kept[i] < 0) continue;
        if (!s->filters[i].lost) return false;
        any = true;
    }
    return any;
}

/* ---- restart ---- */

static bool same_rails(pj_power_sampler *s)
{
    pj_rail again[PJ_MAX_RAILS];
    uint32_t count = s->source->rails(s->state, again);
    if (count != s->rail_count) return false;
    for (uint32_t i = 0; i < count; i++) {
        bool is_renamed = s->renamed >> i & 1;
        if (again[i].kind != s->rails[i].kind ||
            (!is_renamed && strcmp(again[i].name, s->rails[i].name) != 0))
            return false;
    }
    return true;
}

/* Opens the source again, as it was. */
static bool open_again(pj_power_sampler *s)
{
    pj_source_report report = {0};
    sampler_close(s);
    memset(s->last, 0, sizeof s->last);
    memset(s->state, 0, s->source->state_bytes);
    s->open = s->source->open(s->state, s->env, s->argument, &report) == PJ_OK;
    if (s->open && !same_rails(s)) sampler_close(s);
    return s->open;
}

static bool restart(pj_power_sampler *s)
{
    int64_t now = pj_clock_ns();
    bool once = s->restarted || (s->source->flags & PJ_SOURCE_ONCE);
    s->restarted = true;
    if (!once && open_again(s)) {
        rearm(s);
        note_event(s, PJ_METER_SOURCE_RESTARTED, -1, now, NAN);
        return true;
    }
    sampler_close(s);
    note_event(s, PJ_METER_SOURCE_LOST, -1, now, NAN);
    return false;
}

/* ---- time ---- */

/* Boot clock minus monotonic clock: grows while the machine sleeps. */
static int64_t sleep_offset(int64_t previous)
{
#ifdef CLOCK_BOOTTIME
    struct timespec boot;
    int64_t before = pj_clock_ns();
    bool known = clock_gettime(CLOCK_BOOTTIME, &boot) == 0;
    /* A thread preempted between the two clocks would see sleep where there was none. */
    if (known && pj_clock_ns() - before < PJ_NS_PER_MS)
        return (int64_t)boot.tv_sec * PJ_NS_PER_S + boot.tv_nsec - before;
#endif
    return previous;
}

static void watch_for_sleep(pj_power_sampler *s, int64_t now)
{
    int64_t offset = sleep_offset(s->sleep_offset_ns), slept = offset - s->sleep_offset_ns;
    int64_t still = s->last_tick_ns ? now - s->last_tick_ns - step_ns(s) : 0;
    s->sleep_offset_ns = offset;
    s->last_tick_ns = now;
    if (slept > SUSPEND_NS) {
        rearm(s);
        note_event(s, PJ_METER_SUSPENDED, -1, now, (double)slept);
    } else if (still > STALL_NS && still > 10 * step_ns(s)) {
        note_event(s, PJ_METER_SUSPENDED, -1, now, (double)still);
    }
}

static void count_lateness(pj_power_sampler *s, int64_t late_ns)
{
    double octaves = late_ns > 100 ? log2((double)late_ns / 100) : 0;
    int bucket = (int)(octaves * 4);
    if (bucket >= PJ_LATENESS_BUCKETS) bucket = PJ_LATENESS_BUCKETS - 1;
    atomic_fetch_add_explicit(&s->lateness[bucket], 1, memory_order_relaxed);
}

double pj_lateness_quantile(const uint64_t counts[PJ_LATENESS_BUCKETS], double quantile)
{
    uint64_t total = 0, sum = 0;
    for (int i = 0; i < PJ_LATENESS_BUCKETS; i++) total += counts[i];
    if (total == 0) return NAN;
    for (int i = 0; i < PJ_LATENESS_BUCKETS; i++) {
        sum += counts[i];
        if ((double)sum >= quantile * (double)total) return 100 * exp2((i + 0.5) / 4);
    }
    return NAN;
}

/* ---- power limits ---- */

static void watch_limits(pj_power_sampler *s, int64_t now)
{
    double limits[PJ_MAX_RAILS];
    if (!s->source->limits || now < s->limits_due_ns) return;
    s->limits_due_ns = now + LIMITS_EVERY_NS;
    uint32_t count = s->source->limits(s->state, limits);
    for (uint32_t i = 0; i < count && i < s->limit_count; i++) {
        bool changed = fabs(limits[i] - s->limits_mw[i]) > LIMIT_STEP * s->limits_mw[i];
        if (changed && s->kept[i] >= 0)
            note_event(s, PJ_METER_LIMIT_CHANGED, (int)i, now, limits[i]);
    }
    memcpy(s->limits_mw, limits, count * sizeof *limits);
    s->limit_count = count;
}

/* ---- resuming ---- */

/* A counter whose ticks are on a grid had an exact pair of a time and an energy when sampling
 * stopped. If that was just now, as between windows that follow each other, it is where sampling
 * goes on; a log shows what has happened since, without one the last tick must be that one. */
static bool counter_may_resume(const pj_power_sampler *s, uint32_t rail, int64_t now)
{
    const pj_filter *f = &s->filters[rail];
    const pj_poll *p = &s->polls[rail];
    const pj_reading *last = &s->last[rail];
    bool is_sound = f->armed && !f->frozen && !f->lost && f->errors == 0;
    if (!s->source->select || !is_sound || s->kept[rail] < 0 || last->after_ns == 0 ||
        !pj_poll_is_costly(p) || !pj_grid_known(&p->grid, now) || (s->early_rails >> rail & 1))
        return false;
    return now - last->fresh_ns < (p->has_log ? 2 : 1) * p->grid.period_ns;
}

static uint64_t rails_to_resume(pj_power_sampler *s)
{
    uint64_t rails = 0;
    int64_t now = pj_clock_ns(), slept = sleep_offset(s->sleep_offset_ns) - s->sleep_offset_ns;
    for (uint32_t i = 0; i < s->rail_count && slept < SUSPEND_NS; i++) {
        if (!counter_may_resume(s, i, now)) continue;
        int log = pj_rail_log_of(s->rails, s->rail_count, i);
        rails |= 1ull << i;
        if (log >= 0) rails |= 1ull << log;
    }
    return rails;
}

static void resume_log(pj_power_sampler *s, uint32_t log, int64_t from_ns)
{
    uint32_t kept = s->logged_count < PJ_LOGGED ? s->logged_count : PJ_LOGGED;
    for (uint32_t i = s->logged_count - kept; i < s->logged_count; i++) {
        const pj_reading *r = &s->logged[i % PJ_LOGGED];
        if (r->rail == s->kept[log] && r->fresh_ns > from_ns) pj_ring_write(&s->readings, r);
    }
}

static void sampler_resume(pj_power_sampler *s, int64_t now)
{
    for (uint32_t i = 0; i < s->rail_count; i++) {
        bool is_resumed = s->resumed >> i & 1;
        pj_reading last = s->last[i];
        if (is_resumed) pj_poll_resume(&s->polls[i], now);
        if (s->rails[i].kind != PJ_RAIL_COUNTER || !(is_resumed || is_recalled(s, i))) continue;
        int log = pj_rail_log_of(s->rails, s->rail_count, i);
        int64_t from_ns = last.fresh_ns - s->rails[i].period_ns;
        if (log >= 0) resume_log(s, (uint32_t)log, from_ns);
        last.status = PJ_READING_RESET;
        if (is_resumed) pj_ring_write(&s->readings, &last);
    }
}

/* ---- the thread ---- */

/* Reads the given rails, all where the source cannot choose. False: it is lost for good. */
static bool sampler_read(pj_power_sampler *s, uint64_t rails)
{
    uint32_t count = 0;
    int64_t before = pj_clock_ns();
    if (s->source->select) s->source->select(s->state, rails);
    pj_status status = s->source->read(s->state, s->scratch, PJ_SOURCE_READ_MAX, &count);
    int64_t after = pj_clock_ns();
    atomic_fetch_add_explicit(&s->call_ns, after - before, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->ticks, 1, memory_order_relaxed);
    s->sequence++;
    for (uint32_t i = 0; i < count && i < PJ_SOURCE_READ_MAX; i++) sampler_pass(s, &s->scratch[i]);
    if (status != PJ_OK) pass_failure(s, status, before, after);
    if (status == PJ_E_LOST || all_lost(s)) return restart(s);
    return true;
}

/* Rails whose reads are dear and made at times of their own. */
static uint64_t costly_rails(const pj_power_sampler *s)
{
    uint64_t rails = 0;
    for (uint32_t i = 0; s->source->select && i < s->rail_count; i++)
        if (s->kept[i] >= 0 && pj_poll_is_costly(&s->polls[i])) rails |= 1ull << i;
    return rails;
}

static uint64_t kept_rails(const pj_power_sampler *s)
{
    uint64_t rails = 0;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (s->kept[i] >= 0) rails |= 1ull << i;
    return rails;
}

bool pj_power_sampler_tick(pj_power_sampler *s)
{
    int64_t now = pj_clock_ns();
    uint64_t rails = kept_rails(s) & ~costly_rails(s);
    watch_for_sleep(s, now);
    watch_limits(s, now);
    return rails == 0 || sampler_read(s, rails);
}

static bool read_one(pj_power_sampler *s, uint32_t rail)
{
    int64_t before = pj_clock_ns();
    if (!sampler_read(s, 1ull << rail)) return false;
    pj_poll_done(&s->polls[rail], before, pj_clock_ns(), s->pace_ns);
    return true;
}

/* A value that was read while a tick was looked for, now that the log has reached it. */
static void pass_early(pj_power_sampler *s, uint32_t rail)
{
    int64_t now = pj_clock_ns();
    pass_kept(s, rail);
    pj_poll_done(&s->polls[rail], now, now, s->pace_ns);
}

/* Whether a value that was kept while a tick was looked for needs only its log now. */
static bool has_kept(const pj_power_sampler *s, uint32_t rail)
{
    return (s->early_rails >> rail & 1) && !s->polls[rail].looking;
}

static int64_t costly_due_ns(const pj_power_sampler *s, uint32_t rail)
{
    return has_kept(s, rail) ? 0 : pj_poll_due(&s->polls[rail]);
}

/* Whether the rail is the log of a counter, which is read before each read of that. */
static bool is_read_along(const pj_power_sampler *s, uint32_t rail)
{
    int counter = s->rails[rail].log_ns > 0 ? s->rails[rail].parent : -1;
    return counter >= 0 && s->kept[counter] >= 0 && s->polls[counter].has_log;
}

/* The next tick of a counter; of one that goes on from before, what the log has until then. */
static void sampler_want_from(pj_power_sampler *s, uint32_t rail, int64_t from_ns)
{
    bool goes_on = s->resumed >> rail & 1, is_along = is_read_along(s, rail);
    if (goes_on && is_along)
        pj_poll_want(&s->polls[rail], from_ns + s->rails[s->rails[rail].parent].period_ns);
    else if (!is_along && !(goes_on && s->polls[rail].has_log))
        pj_poll_want(&s->polls[rail], from_ns);
}

/* Reads costly rails that are due, and before a counter its log, which shows how the energy up to
 * the counter's value was distributed. While a tick is looked for, there is no time for that,
 * unless someone waits. */
static bool read_costly(pj_power_sampler *s)
{
    int64_t wanted = atomic_exchange(&s->wanted_ns, 0), from = atomic_exchange(&s->from_ns, 0);
    uint64_t costly = costly_rails(s);
    for (uint32_t i = 0; i < s->rail_count; i++) {
        pj_poll *poll = &s->polls[i];
        if (!(costly >> i & 1)) continue;
        if (wanted && !is_read_along(s, i)) pj_poll_want(poll, wanted);
        if (from) sampler_want_from(s, i, from);
        if (costly_due_ns(s, i) > pj_clock_ns()) continue;
        int log = pj_rail_log_of(s->rails, s->rail_count, i);
        bool with_log = poll->has_log && (!poll->looking || poll->wanted_ns > 0);
        if (with_log && !read_one(s, (uint32_t)log)) return false;
        if (has_kept(s, i))
            pass_early(s, i);
        else if (!read_one(s, i))
            return false;
    }
    return true;
}

static int64_t next_costly(const pj_power_sampler *s)
{
    uint64_t costly = costly_rails(s);
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if ((costly >> i & 1) && costly_due_ns(s, i) < next) next = costly_due_ns(s, i);
    return next;
}

void pj_power_sampler_want(pj_power_sampler *s, int64_t at_ns)
{
    atomic_store(&s->wanted_ns, at_ns);
}

void pj_power_sampler_want_from(pj_power_sampler *s, int64_t at_ns)
{
    atomic_store(&s->from_ns, at_ns);
}

/* Until the next tick, in steps that bound the delay of a stop; costly rails are read meanwhile. */
static bool sampler_pass_time(pj_power_sampler *s, int64_t due)
{
    for (;;) {
        if (!read_costly(s)) return false;
        int64_t now = pj_clock_ns(), until = now + LONGEST_SLEEP_NS, costly = next_costly(s);
        if (now >= due || atomic_load(&s->stop)) return true;
        if (due < until) until = due;
        if (costly < until) until = costly;
        pj_clock_sleep_until(until);
    }
}

/* Reading the CPU clock is a system call, slower than reading a sensor's file. */
static void keep_account(pj_power_sampler *s, int64_t now)
{
    atomic_store_explicit(&s->cpu_ns, pj_clock_thread_cpu_ns(), memory_order_relaxed);
    atomic_store_explicit(&s->elapsed_ns, now - s->started_ns, memory_order_relaxed);
}

static void *sampler_main(void *context)
{
    pj_power_sampler *s = context;
    bool paced = step_ns(s) > s->interval_ns; /* between runs lateness does not matter */
    if (!paced) pj_thread_timer_slack(1);
    int64_t due = s->started_ns = s->last_tick_ns = pj_clock_ns();
    s->sleep_offset_ns = sleep_offset(s->sleep_offset_ns);
    s->early_rails = 0;
    for (uint32_t i = 0; i < s->rail_count; i++)
        if (!(s->resumed >> i & 1)) pj_poll_start(&s->polls[i], due);
    sampler_resume(s, due);
    for (uint32_t tick = 0; !atomic_load(&s->stop); tick++) {
        int64_t late = pj_clock_ns() - due;
        if (!paced) count_lateness(s, late);
        bool alive = pj_power_sampler_tick(s) && read_costly(s);
        atomic_store(&s->begun, true);
        if (!alive) break;
        int64_t now = pj_clock_ns();
        for (due += step_ns(s); due < now; due += step_ns(s))
            if (!paced) atomic_fetch_add_explicit(&s->missed, 1, memory_order_relaxed);
        /* Slow ticks are accounted for one by one, except the first, which has no elapsed time to
         * relate to. */
        if (paced ? tick > 0 : tick % ACCOUNT_EVERY == 0) keep_account(s, now);
        if (!sampler_pass_time(s, due)) break;
    }
    sampler_flush(s);
    if (!paced) keep_account(s, pj_clock_ns());
    return NULL;
}

/* A source lost in an earlier run is retried; a recording restarts from its beginning. */
static void reopen(pj_power_sampler *s)
{
    bool played = (s->source->flags & PJ_SOURCE_ONCE) && atomic_load(&s->ticks) > 0;
    if ((!s->open || played) && !open_again(s))
        note_event(s, PJ_METER_SOURCE_LOST, -1, pj_clock_ns(), NAN);
}

pj_status pj_power_sampler_start(pj_power_sampler *sampler, pj_error *err)
{
    if (sampler->running) return PJ_OK;
    reopen(sampler);
    if (!sampler->open) return PJ_OK; /* the other sources continue */
    sampler->restarted = false;
    sampler->limit_count = 0; /* changes between runs are not events */
    sampler->limits_due_ns = 0;
    sampler->resumed = rails_to_resume(sampler);
    rearm_but(sampler, sampler->resumed);
    atomic_store(&sampler->stop, false);
    atomic_store(&sampler->begun, false);
    char name[16] = "pj-";
    strncat(name, sampler->source->name, sizeof name - 4);
    pj_status status = pj_thread_start(&sampler->thread, name, sampler_main, sampler, err);
    sampler->running = status == PJ_OK;
    return status;
}

void pj_power_sampler_await_first(const pj_power_sampler *sampler)
{
    for (int look = 0; look < LOOKS && sampler->running && !atomic_load(&sampler->begun); look++)
        pj_clock_sleep_until(pj_clock_ns() + LOOK_NS);
}

void pj_power_sampler_stop(pj_power_sampler *sampler)
{
    if (!sampler->running) return;
    atomic_store(&sampler->stop, true);
    pthread_join(sampler->thread, NULL);
    sampler->running = false;
}
