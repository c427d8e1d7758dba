/* Sensor faults, injected where they occur: a scripted source gives raw values as a failing
 * driver would, the real sampler and filter check them, and a real curve integrates them. For
 * every script: no silent zero, no negative joule, no power above the rail's maximum, and the
 * run ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../virtual_clock.h"
#include "base/clock.h"
#include "base/memory.h"
#include "power/meter_impl.h"

#include <math.h>
#include <string.h>

#define MS PJ_NS_PER_MS

/* ---- a source that follows a script -----------------------------------------------------------
 */

typedef struct step {
    int64_t at_ms;
    double value;
    pj_reading_status status; /* OK, GAP or LOST */
    pj_status call;           /* what read() returns */
} step;

typedef struct script {
    pj_rail rail;
    step steps[4096];
    size_t count, next;
    int opened, opens_that_work; /* 0: all */
    int64_t read_takes_ns;
    double limit_mw; /* 0: none is known */
} script;

static script *playing;
static pj_power_env plain_env = {.sysfs_root = "", .procfs_root = ""};

static pj_status scripted_open(void *state, const pj_power_env *env, const char *argument,
                               pj_source_report *report)
{
    (void)state, (void)env, (void)argument;
    playing->opened++;
    if (playing->opens_that_work && playing->opened > playing->opens_that_work)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, "", "gone");
    return PJ_OK;
}

static uint32_t scripted_rails(const void *state, pj_rail *rails)
{
    (void)state;
    rails[0] = playing->rail;
    return 1;
}

static pj_status scripted_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    (void)state, (void)max;
    *count = 0;
    if (playing->read_takes_ns) pj_clock_sleep_until(pj_clock_ns() + playing->read_takes_ns);
    if (playing->next >= playing->count) return PJ_OK;
    const step *s = &playing->steps[playing->next++];
    if (s->call != PJ_OK) return s->call;
    readings[0] = (pj_reading){.before_ns = s->at_ms * MS,
                               .after_ns = s->at_ms * MS + 1000,
                               .value = s->value,
                               .status = (uint8_t)s->status};
    *count = 1;
    return PJ_OK;
}

static uint32_t scripted_limits(const void *state, double *limits_mw)
{
    (void)state;
    limits_mw[0] = playing->limit_mw > 0 ? playing->limit_mw : NAN;
    return 1;
}

static void scripted_close(void *state)
{
    (void)state;
}

static const pj_power_source scripted = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "scripted",
    .state_bytes = 8,
    .open = scripted_open,
    .rails = scripted_rails,
    .read = scripted_read,
    .close = scripted_close,
    .limits = scripted_limits,
};

static pj_power_sampler *new_sampler(script *what)
{
    pj_power_sampler *s = pj_alloc(1, sizeof *s);
    assert_non_null(s);
    playing = what;
    s->source = &scripted;
    s->env = &plain_env;
    s->argument = "";
    s->state = pj_alloc(1, 8);
    s->interval_ns = MS;
    assert_int_equal(pj_power_sampler_init(s, NULL), PJ_OK);
    assert_int_equal(scripted.open(s->state, s->env, "", &(pj_source_report){0}), PJ_OK);
    s->open = true;
    s->rail_count = scripted.rails(s->state, s->rails);
    pj_filter_init(&s->filters[0], &s->rails[0]);
    pj_poll_init(&s->polls[0], &s->rails[0], false, 0);
    return s;
}

/* ---- playing a script ------------------------------------------------------------------- */

static const double MAX_MW = 400e3;

static const pj_rail counter_rail = {.name = "package-0",
                                     .kind = PJ_RAIL_COUNTER,
                                     .parent = -1,
                                     .scope = PJ_SCOPE_PACKAGE,
                                     .period_ns = 10 * MS,
                                     .resolution = 61,
                                     .modulus_uj = 100e6,
                                     .max_mw = 400e3};
static const pj_rail power_rail = {.name = "gpu0",
                                   .kind = PJ_RAIL_INSTANT,
                                   .parent = -1,
                                   .scope = PJ_SCOPE_BOARD,
                                   .period_ns = 100 * MS,
                                   .resolution = 1,
                                   .max_mw = 400e3};

typedef struct outcome {
    pj_curve *curve;
    int statuses[PJ_READING_LOST + 1], reasons[PJ_REASON_COUNT], events[PJ_METER_EVENT_COUNT];
    bool alive; /* the source was not lost for good */
} outcome;

static void collect(pj_power_sampler *s, outcome *o)
{
    pj_reading r;
    pj_meter_event e;
    while (pj_ring_read(&s->readings, &r, 1) == 1) {
        o->statuses[r.status]++;
        o->reasons[r.reason]++;
        assert_false(r.status == PJ_READING_OK && r.value < 0);
        assert_int_equal(pj_curve_add(o->curve, &r, NULL), PJ_OK);
    }
    while (pj_ring_read(&s->events, &e, 1) == 1) o->events[e.kind]++;
}

static void invariants(const outcome *o)
{
    int64_t begin, end;
    if (!pj_curve_span(o->curve, &begin, &end)) return;
    for (int64_t t = begin; t + 20 * MS <= end; t += 7 * MS) {
        double mj = pj_curve_energy_mj(o->curve, t, t + 20 * MS);
        assert_false(mj <= 0);                            /* no negative joule, no silent zero */
        assert_false(mj > 1.5 * MAX_MW * 0.020 * 1.0001); /* no implausible watt */
    }
}

static outcome play(script *what)
{
    outcome o = {.curve = pj_curve_new(&what->rail), .alive = true};
    pj_power_sampler *s = new_sampler(what);
    while (o.alive && what->next < what->count) {
        o.alive = pj_power_sampler_tick(s);
        collect(s, &o);
    }
    pj_power_sampler_fini(s);
    pj_free(s);
    invariants(&o);
    return o;
}

static script *new_script(const pj_rail *rail)
{
    script *s = pj_alloc(1, sizeof *s);
    assert_non_null(s);
    s->rail = *rail;
    return s;
}

static void put(script *s, int64_t at_ms, double value)
{
    assert_that(s->count, <, sizeof s->steps / sizeof *s->steps);
    s->steps[s->count++] = (step){.at_ms = at_ms, .value = value};
}

static void finish(script *s, outcome *o)
{
    pj_curve_free(o->curve);
    pj_free(s);
}

/* 100 W on a counter that wraps every second; a poll and an update every 10 ms. */
static double counted(int64_t at_ms)
{
    return fmod(1000 + (double)at_ms * 1e5, 100e6);
}

static script *steady_counter(int64_t to_ms)
{
    script *s = new_script(&counter_rail);
    for (int64_t t = 0; t <= to_ms; t += 10) put(s, t, counted(t));
    return s;
}

/* The same on one that does not wrap, as NVML's. */
static script *endless_counter(int64_t to_ms)
{
    script *s = new_script(&counter_rail);
    s->rail.modulus_uj = 0;
    for (int64_t t = 0; t <= to_ms; t += 10) put(s, t, 5e9 + (double)t * 1e5);
    return s;
}

/* About 100 W, published every 100 ms, never the same twice. */
static double shown(int64_t at_ms)
{
    return 100e3 + (double)(at_ms / 100 % 7) * 10;
}

static script *steady_power(int64_t to_ms)
{
    script *s = new_script(&power_rail);
    for (int64_t t = 0; t <= to_ms; t += 20) put(s, t, shown(t));
    return s;
}

static double energy(const outcome *o, int64_t from_ms, int64_t to_ms)
{
    return pj_curve_energy_mj(o->curve, from_ms * MS, to_ms * MS);
}

static void assert_near_relative(double got, double wanted, double relative)
{
    if (!(fabs(got - wanted) <= relative * fabs(wanted))) fail_msg("%g is not %g", got, wanted);
}

/* ---- the faults ------------------------------------------------------------------------- */

static void no_fault(void **state)
{
    (void)state;
    script *s = steady_counter(2000);
    outcome o = play(s);
    assert_near_relative(energy(&o, 100, 1900), 180e3, 1e-3);
    assert_int_equal(o.statuses[PJ_READING_REJECTED], 0);
    finish(s, &o);
    s = steady_power(2000);
    o = play(s);
    assert_near_relative(energy(&o, 100, 1800), 170e3, 1e-3);
    finish(s, &o);
}

static void io_error_mid_run(void **state)
{
    (void)state;
    script *s = steady_counter(2000);
    s->steps[50].call = PJ_E_IO;
    outcome o = play(s);
    assert_int_equal(o.statuses[PJ_READING_GAP], 1);
    assert_near_relative(energy(&o, 100, 1900), 180e3, 1e-3); /* a counter bridges it */
    finish(s, &o);
}

static void unsupported_once(void **state)
{
    (void)state;
    script *s = steady_power(2000);
    s->steps[30].status = PJ_READING_GAP;
    outcome o = play(s);
    assert_int_equal(o.statuses[PJ_READING_GAP], 1);
    assert_int_equal(o.statuses[PJ_READING_LOST], 0);
    assert_near_relative(energy(&o, 100, 1800), 170e3, 1e-2);
    finish(s, &o);
}

static void unsupported_ten_times(void **state)
{
    (void)state;
    script *s = steady_power(4000);
    for (int i = 50; i < 60; i++) s->steps[i].status = PJ_READING_GAP;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_RAIL_LOST], 1);
    assert_int_equal(o.events[PJ_METER_SOURCE_RESTARTED], 1);
    assert_true(o.alive);
    assert_near_relative(energy(&o, 2000, 3500), 150e3, 1e-2); /* after the restart */
    finish(s, &o);
}

static void gpu_is_lost(void **state)
{
    (void)state;
    script *s = steady_power(4000);
    s->opens_that_work = 1;
    s->steps[50].status = PJ_READING_LOST;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_SOURCE_LOST], 1);
    assert_false(o.alive);
    assert_near_relative(energy(&o, 100, 800), 70e3, 1e-2);
    assert_true(isnan(energy(&o, 500, 2000)));
    finish(s, &o);
}

static void source_dies_twice(void **state)
{
    (void)state;
    script *s = steady_power(6000);
    s->steps[50].call = s->steps[150].call = PJ_E_LOST;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_SOURCE_RESTARTED], 1);
    assert_int_equal(o.events[PJ_METER_SOURCE_LOST], 1);
    assert_int_equal(s->opened, 2);
    assert_near_relative(energy(&o, 1500, 2500), 100e3, 1e-2);
    finish(s, &o);
}

static void counter_wraps_exactly(void **state)
{
    (void)state;
    script *s = steady_counter(5000);
    outcome o = play(s);
    assert_near_relative(energy(&o, 10, 4990), 498e3, 1e-6);
    assert_int_equal(o.statuses[PJ_READING_RESET], 1);
    finish(s, &o);
}

static void counter_wraps_at_an_unusual_modulus(void **state)
{
    (void)state;
    script *s = new_script(&counter_rail);
    s->rail.modulus_uj = 65712999.613;
    for (int64_t t = 0; t <= 2000; t += 10) put(s, t, fmod(65e6 + (double)t * 1e5, 65712999.613));
    outcome o = play(s);
    assert_near_relative(energy(&o, 10, 1990), 198e3, 1e-6);
    finish(s, &o);
}

static void two_wraps_in_one_gap(void **state)
{
    (void)state;
    script *s = steady_counter(100);
    for (int64_t t = 3150; t <= 3400; t += 10) put(s, t, counted(t)); /* 305 J passed, 100 fit */
    outcome o = play(s);
    assert_int_equal(o.reasons[PJ_REASON_AMBIGUOUS], 1);
    assert_true(isnan(energy(&o, 50, 3200)));
    assert_near_relative(energy(&o, 3170, 3380), 21e3, 1e-3);
    finish(s, &o);
}

static void counter_reset_to_zero(void **state)
{
    (void)state;
    script *s = endless_counter(1000);
    for (int64_t t = 1010; t <= 2000; t += 10) put(s, t, (double)(t - 1010) * 1e5);
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_RESET], 1);
    assert_near_relative(energy(&o, 10, 990), 98e3, 1e-3);
    assert_near_relative(energy(&o, 1020, 1980), 96e3, 1e-3);
    assert_true(isnan(energy(&o, 995, 1015)));
    finish(s, &o);
}

static void small_step_backwards(void **state)
{
    (void)state;
    script *s = endless_counter(1000);
    s->steps[50].value -= 2e6;
    outcome o = play(s);
    assert_int_equal(o.reasons[PJ_REASON_BACKWARDS], 1);
    assert_near_relative(energy(&o, 10, 990), 98e3, 1e-3); /* one glitch costs nothing */
    finish(s, &o);
}

static void counter_freezes_and_catches_up(void **state)
{
    (void)state;
    script *s = endless_counter(3000);
    for (int i = 101; i < 200; i++) s->steps[i].value = s->steps[100].value;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_FROZEN], 1);
    assert_int_equal(o.events[PJ_METER_THAWED], 1);
    assert_that(o.reasons[PJ_REASON_FROZEN], >, 10);
    assert_near_relative(energy(&o, 500, 2500), 200e3, 1e-2); /* the whole is right */
    pj_curve_energy e;
    pj_curve_query(o.curve, 1400 * MS, 1500 * MS, &e); /* inside, the interval is wide */
    assert_near_relative(e.energy_mj, 10e3, 5e-2);
    assert_that(e.random_sd_mj, >, 0.8 * e.energy_mj);
    finish(s, &o);
}

static void counter_freezes_for_good(void **state)
{
    (void)state;
    script *s = endless_counter(3000);
    for (size_t i = 101; i < s->count; i++) s->steps[i].value = s->steps[100].value;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_FROZEN], 1);
    assert_near_relative(energy(&o, 10, 990), 98e3, 1e-3);
    assert_true(isnan(energy(&o, 1500, 2500)));
    finish(s, &o);
}

static void power_freezes(void **state)
{
    (void)state;
    script *s = new_script(&power_rail);
    for (int64_t t = 0; t <= 6000; t += 20) put(s, t, shown(t > 1000 ? 1000 : t));
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_FROZEN], 1);
    assert_near_relative(energy(&o, 100, 1000), 90e3, 1e-2);
    assert_true(isnan(energy(&o, 4000, 5000)));
    finish(s, &o);
}

static void jump_above_the_limit(void **state)
{
    (void)state;
    script *s = endless_counter(1000);
    s->steps[50].value += 5e9; /* 500 kW for one poll */
    outcome o = play(s);
    assert_int_equal(o.reasons[PJ_REASON_TOO_HIGH], 1);
    assert_int_equal(o.events[PJ_METER_REJECTED], 1);
    assert_near_relative(energy(&o, 10, 990), 98e3, 1e-3);
    finish(s, &o);
    s = steady_power(2000);
    s->steps[40].value = 4e9;
    o = play(s);
    assert_int_equal(o.reasons[PJ_REASON_TOO_HIGH], 1);
    assert_near_relative(energy(&o, 100, 1800), 170e3, 1e-2);
    finish(s, &o);
}

static void counter_jumps_and_stays(void **state)
{
    (void)state;
    script *s = endless_counter(1000);
    for (size_t i = 50; i < s->count; i++) s->steps[i].value += 5e12;
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_RESET], 1);
    assert_near_relative(energy(&o, 10, 480), 47e3, 1e-3);
    assert_near_relative(energy(&o, 520, 980), 46e3, 1e-3);
    finish(s, &o);
}

static void negative_and_not_a_number(void **state)
{
    (void)state;
    script *s = steady_power(3000);
    s->steps[30].value = -5;
    s->steps[60].value = NAN;
    s->steps[90].value = INFINITY;
    outcome o = play(s);
    assert_int_equal(o.reasons[PJ_REASON_NEGATIVE], 1);
    assert_int_equal(o.reasons[PJ_REASON_NOT_A_NUMBER], 2);
    assert_near_relative(energy(&o, 100, 2800), 270e3, 1e-2);
    finish(s, &o);
}

static void text_and_overflowing_digits(void **state)
{
    (void)state;
    uint64_t value;
    static const char *const bad[] = {"",
                                      "\n",
                                      "N/A",
                                      "-1",
                                      "12x",
                                      "0x10",
                                      " 1",
                                      "18446744073709551616",
                                      "99999999999999999999999999",
                                      "[Unknown Error]"};
    assert_true(pj_power_parse_u64("12345\n", 6, &value));
    assert_int_equal(value, 12345);
    assert_true(pj_power_parse_u64("18446744073709551615", 20, &value));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(pj_power_parse_u64(bad[i], strlen(bad[i]), &value));
}

static void slow_sensor_gives_no_extra_samples(void **state)
{
    (void)state;
    script *s = steady_power(2000);
    outcome o = play(s);
    assert_that(o.statuses[PJ_READING_OK], <=, 21);
    assert_that(o.statuses[PJ_READING_REPEAT], <=, 21);
    finish(s, &o);
}

static void zero_every_seventh(void **state)
{
    (void)state;
    script *s = steady_power(3000);
    for (size_t i = 7; i < s->count; i += 7) s->steps[i].value = 0;
    outcome o = play(s);
    assert_that(o.reasons[PJ_REASON_ZERO], >, 15);
    assert_near_relative(energy(&o, 100, 2800), 270e3, 2e-2);
    finish(s, &o);
}

static void zero_from_the_start(void **state)
{
    (void)state;
    script *s = new_script(&power_rail);
    for (int64_t t = 0; t <= 2000; t += 20) put(s, t, 0);
    outcome o = play(s);
    assert_true(isnan(energy(&o, 0, 1000))); /* a field that is not there reads 0: unknown */
    finish(s, &o);
}

static void period_changes(void **state)
{
    (void)state;
    script *s = new_script(&power_rail);
    for (int64_t t = 0; t <= 4000; t += 10) put(s, t, shown(t));
    for (int64_t t = 4010; t <= 9000; t += 10) put(s, t, shown(t / 2)); /* every 200 ms */
    outcome o = play(s);
    assert_that(o.events[PJ_METER_PERIOD_CHANGED], >=, 1);
    assert_near_relative(energy(&o, 100, 3900), 380e3, 1e-2);
    assert_near_relative(energy(&o, 5000, 8000), 300e3, 2e-2);
    finish(s, &o);
}

/* Polls that come late on a busy machine see some updates as one: the sensor is as fast as before.
 */
static void late_polls_change_no_period(void **state)
{
    (void)state;
    script *s = steady_counter(1000);
    for (int64_t t = 1030; t <= 4000; t += 30) put(s, t, counted(t));
    outcome o = play(s);
    assert_int_equal(o.events[PJ_METER_PERIOD_CHANGED], 0);
    assert_near_relative(energy(&o, 100, 3900), 380e3, 1e-2);
    finish(s, &o);
}

static void process_was_stopped(void **state)
{
    (void)state;
    script *s = steady_power(1000);
    for (int64_t t = 8000; t <= 10000; t += 20) put(s, t, shown(t)); /* nobody looked for 7 s */
    outcome o = play(s);
    assert_near_relative(energy(&o, 100, 900), 80e3, 1e-2);
    assert_true(isnan(energy(&o, 900, 8100)));
    assert_near_relative(energy(&o, 8100, 9800), 170e3, 1e-2);
    finish(s, &o);
}

static void expect_still(pj_power_sampler *p, double ns)
{
    pj_meter_event event;
    pj_power_sampler_tick(p);
    assert_int_equal(pj_ring_read(&p->events, &event, 1), 1);
    assert_int_equal(event.kind, PJ_METER_SUSPENDED);
    assert_near_relative(event.value, ns, 0.1);
}

/* A tick long after the one before is an event; after a suspend, counters are armed again. */
static void time_stood_still(void **state)
{
    (void)state;
    script *s = steady_counter(1000);
    pj_power_sampler *p = new_sampler(s);
    pj_meter_event event;
    for (int i = 0; i < 5; i++) pj_power_sampler_tick(p);
    while (pj_ring_read(&p->events, &event, 1) == 1) { /* the first tick met the boot clock */
    }
    p->last_tick_ns -= 5 * PJ_NS_PER_S;
    expect_still(p, 5e9);
    pj_reading reading;
    while (pj_ring_read(&p->readings, &reading, 1) == 1) {
    }
    p->sleep_offset_ns -= 60 * PJ_NS_PER_S;
    expect_still(p, 60e9);
    assert_int_equal(pj_ring_read(&p->readings, &reading, 1), 1);
    assert_int_equal(reading.status, PJ_READING_RESET);
    pj_power_sampler_fini(p);
    pj_free(p);
    pj_free(s);
}

/* Reads that take longer than the interval: ticks are skipped and counted, not piled up. */
static void late_ticks_are_counted(void **state)
{
    (void)state;
    script *s = steady_power(100);
    pj_power_sampler *p = new_sampler(s);
    s->read_takes_ns = 5 * MS;
    assert_int_equal(pj_power_sampler_start(p, NULL), PJ_OK);
    while (atomic_load(&p->ticks) < 10) pj_clock_sleep_until(pj_clock_ns() + MS);
    pj_power_sampler_stop(p);
    assert_that(atomic_load(&p->missed), >=, 30);
    pj_power_sampler_fini(p);
    pj_free(p);
    pj_free(s);
}

/* Only a change from one known limit to another is reported, once, and changes no joule. */
static void power_limit_changes(void **state)
{
    static const struct {
        double limit_mw;
        int changes; /* seen so far */
    } seconds[] = {{0, 0}, {300e3, 0}, {300e3, 0}, {250e3, 1}, {250e3, 1}, {0, 1}, {300e3, 1}};
    script *what = steady_counter(600);
    outcome o = {.curve = pj_curve_new(&what->rail), .alive = true};
    pj_power_sampler *s = new_sampler(what);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        what->limit_mw = seconds[i].limit_mw;
        s->limits_due_ns = 0; /* a second later */
        for (int k = 0; k < 5; k++) assert_true(pj_power_sampler_tick(s));
        collect(s, &o);
        assert_int_equal(o.events[PJ_METER_LIMIT_CHANGED], seconds[i].changes);
    }
    pj_power_sampler_fini(s);
    pj_free(s);
    invariants(&o);
    assert_near_relative(energy(&o, 50, 250), 20e3, 1e-3);
    finish(what, &o);
}

int main(void)
{
    virtual_clock_use();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fault),
        cmocka_unit_test(io_error_mid_run),
        cmocka_unit_test(unsupported_once),
        cmocka_unit_test(unsupported_ten_times),
        cmocka_unit_test(gpu_is_lost),
        cmocka_unit_test(source_dies_twice),
        cmocka_unit_test(counter_wraps_exactly),
        cmocka_unit_test(counter_wraps_at_an_unusual_modulus),
        cmocka_unit_test(two_wraps_in_one_gap),
        cmocka_unit_test(counter_reset_to_zero),
        cmocka_unit_test(small_step_backwards),
        cmocka_unit_test(counter_freezes_and_catches_up),
        cmocka_unit_test(counter_freezes_for_good),
        cmocka_unit_test(power_freezes),
        cmocka_unit_test(jump_above_the_limit),
        cmocka_unit_test(counter_jumps_and_stays),
        cmocka_unit_test(negative_and_not_a_number),
        cmocka_unit_test(text_and_overflowing_digits),
        cmocka_unit_test(slow_sensor_gives_no_extra_samples),
        cmocka_unit_test(zero_every_seventh),
        cmocka_unit_test(zero_from_the_start),
        cmocka_unit_test(period_changes),
        cmocka_unit_test(late_polls_change_no_period),
        cmocka_unit_test(process_was_stopped),
        cmocka_unit_test(time_stood_still),
        cmocka_unit_test(late_ticks_are_counted),
        cmocka_unit_test(power_limit_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
