/* Energy curves against exact expectations: counters, tiles, overlaps, lag, holes, intervals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "power/coarsen.h"
#include "power/deconvolve.h"

#include <math.h>

#define MS PJ_NS_PER_MS

static const pj_rail counter = {.name = "package-0",
                                .kind = PJ_RAIL_COUNTER,
                                .parent = -1,
                                .scope = PJ_SCOPE_PACKAGE,
                                .quality = PJ_MEASURED,
                                .period_ns = 10 * MS,
                                .resolution = 61,
                                .modulus_uj = 1e6};
static const pj_rail power = {.name = "gpu0",
                              .kind = PJ_RAIL_INSTANT,
                              .parent = -1,
                              .scope = PJ_SCOPE_BOARD,
                              .quality = PJ_MEASURED,
                              .period_ns = 100 * MS};

static pj_reading reading(int64_t at_ms, double value)
{
    return (pj_reading){
        .before_ns = at_ms * MS, .after_ns = at_ms * MS, .fresh_ns = at_ms * MS, .value = value};
}

static void add(pj_curve *curve, int64_t at_ms, double value, pj_reading_status status)
{
    pj_reading r = reading(at_ms, value);
    r.status = (uint8_t)status;
    assert_int_equal(pj_curve_add(curve, &r, NULL), PJ_OK);
}

static double energy(const pj_curve *curve, int64_t from_ms, int64_t to_ms)
{
    return pj_curve_energy_mj(curve, from_ms * MS, to_ms * MS);
}

#define NEAR(a, b, relative) assert_near(a, b, (relative)*fabs((double)(b)) + 1e-12)

/* ---- units --------------------------------------------------------------------------------------
 */

static void units(void **state)
{
    (void)state;
    /* 1 W for 1000 s is 1 kJ is 1,000,000 mJ; 1 kW for an hour is 3.6e9 mJ, one kWh */
    pj_rail rail = power;
    rail.period_ns = 1000 * PJ_NS_PER_S;
    pj_curve *curve = pj_curve_new(&rail);
    add(curve, 1000 * 1000, 1000, PJ_READING_OK);
    NEAR(energy(curve, 0, 1000 * 1000), 1e6, 1e-12);
    pj_curve_free(curve);
    rail.period_ns = 3600 * PJ_NS_PER_S;
    curve = pj_curve_new(&rail);
    add(curve, 3600 * 1000, 1e6, PJ_READING_OK);
    NEAR(energy(curve, 0, 3600 * 1000), 3.6e9, 1e-12);
    NEAR(energy(curve, 0, 1), 1000, 1e-9); /* 1 kW x 1 ms = 1 J */
    pj_curve_free(curve);
}

/* ---- counters -----------------------------------------------------------------------------------
 */

static void counter_is_linear_between_ticks(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&counter);
    add(curve, 0, 500, PJ_READING_RESET);
    add(curve, 10, 1500, PJ_READING_OK);
    add(curve, 20, 4500, PJ_READING_OK);
    NEAR(energy(curve, 0, 10), 1, 1e-12);
    NEAR(energy(curve, 5, 15), 0.5 + 1.5, 1e-12);
    NEAR(energy(curve, 12, 13), 0.3, 1e-12);
    NEAR(pj_curve_power_mw(curve, 15 * MS), 300, 1e-12);
    /* a period beyond its ticks the power is taken to be the same, and no further */
    NEAR(energy(curve, 15, 30), 1.5 + 3, 1e-12);
    NEAR(energy(curve, -10, 0), 1, 1e-12);
    assert_true(isnan(energy(curve, 15, 35)));
    assert_true(isnan(energy(curve, -20, -10)));
    assert_true(isnan(pj_curve_power_mw(curve, 25 * MS)));
    pj_curve_free(curve);
}

static void counter_wraps(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&counter);
    add(curve, 0, 999000, PJ_READING_RESET);
    add(curve, 10, 2000, PJ_READING_OK);
    NEAR(energy(curve, 0, 10), 3, 1e-12);
    pj_curve_free(curve);
    NEAR(pj_counter_step(&counter, 999999, 0), 1, 1e-12);
    pj_rail plain = counter;
    plain.modulus_uj = 0;
    assert_true(isnan(pj_counter_step(&plain, 10, 5)));
}

static void reset_leaves_a_hole(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&counter);
    add(curve, 0, 1000, PJ_READING_RESET);
    add(curve, 10, 2000, PJ_READING_OK);
    add(curve, 20, 100, PJ_READING_RESET);
    add(curve, 30, 1100, PJ_READING_OK);
    NEAR(energy(curve, 0, 10), 1, 1e-12);
    NEAR(energy(curve, 20, 30), 1, 1e-12);
    assert_true(isnan(energy(curve, 10, 20)));
    assert_true(isnan(energy(curve, 0, 30)));
    pj_curve_free(curve);
}

/* Fractions of edge ticks: a steady load over 1 s with a 100 ms counter comes within 1 %. */
static pj_curve_energy query(const pj_curve *curve, int64_t from_ms, int64_t to_ms)
{
    pj_curve_energy e;
    pj_curve_query(curve, from_ms * MS, to_ms * MS, &e);
    return e;
}

/* A counter that adds up what a sensor sees in 25 of 100 ms has counted what it has counted, but
 * the energy of the rest is no surer than by that sensor's power. */
static void blind_counter_counts_and_is_unsure(void **state)
{
    static const double mw[] = {20e3, 60e3, 35e3, 80e3, 80e3, 10e3};
    (void)state;
    pj_rail seen = power, counted = power;
    seen.window_ns = counted.window_ns = 25 * MS;
    counted.kind = PJ_RAIL_COUNTER;
    counted.resolution = 1000; /* 1 mJ, which is 10 mW over 100 ms */
    seen.resolution = 10;
    pj_curve *a = pj_curve_new(&seen), *b = pj_curve_new(&counted);
    double uj = 5e9;
    add(b, 0, uj, PJ_READING_OK);
    for (int i = 0; i < 6; i++) {
        add(a, 100 * (i + 1), mw[i], PJ_READING_OK);
        uj += mw[i] * 100;
        if (i == 3) continue; /* not polled */
        add(b, 100 * (i + 1), uj, PJ_READING_OK);
    }
    pj_curve_energy x = query(a, 100, 500), y = query(b, 100, 500);
    NEAR(y.energy_mj, (60 + 35 + 80 + 80) * 100, 1e-12);
    NEAR(y.known_share, 0.25, 1e-6);
    assert_that(y.random_sd_mj, >, 0.05 * y.energy_mj);
    assert_that(y.random_sd_mj, >=, 0.7 * x.random_sd_mj);
    assert_that(y.random_sd_mj, <, 2.5 * x.random_sd_mj);
    /* after a restart the energy in between is unknown */
    add(b, 900, 1e6, PJ_READING_RESET);
    add(b, 1000, 1e6 + 3e6, PJ_READING_OK);
    NEAR(energy(b, 900, 1000), 3000, 1e-12);
    assert_true(isnan(energy(b, 600, 900)));
    pj_curve_free(a);
    pj_curve_free(b);
    /* a counter whose sensor sees nine tenths or more is as sure as its ticks */
    counted.window_ns = 95 * MS;
    b = pj_curve_new(&counted);
    add(b, 0, 0, PJ_READING_RESET);
    add(b, 100, 2e6, PJ_READING_OK);
    add(b, 200, 8e6, PJ_READING_OK);
    y = query(b, 0, 200);
    NEAR(y.random_sd_mj, counted.resolution * 1e-3 / sqrt(6), 1e-9);
    pj_curve_free(b);
}

/* A counter goes on counting while nobody polls it: the energy of a pause is known as a whole. */
static void a_pause_of_a_blind_counter_is_bridged(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.kind = PJ_RAIL_COUNTER;
    rail.window_ns = 25 * MS;
    pj_curve *curve = pj_curve_new(&rail);
    double uj = 0;
    for (int i = 0; i <= 8; i++) {
        if (i) uj += i % 2 ? 18e3 * 100 : 22e3 * 100; /* 18 and 22 W in turn */
        add(curve, 100 * i, uj, PJ_READING_OK);
    }
    uj += 30e3 * 2000; /* 30 W until 2800 ms */
    add(curve, 2800, uj, PJ_READING_OK);
    pj_curve_energy whole = query(curve, 800, 2800), part = query(curve, 800, 1800);
    NEAR(whole.energy_mj, 60e3, 1e-12);
    NEAR(whole.known_share, 0.25, 1e-6);
    assert_that(whole.random_sd_mj, >, 0);
    assert_that(whole.random_sd_mj, <, 0.1 * whole.energy_mj);
    assert_that(part.random_sd_mj, >, 0.25 * part.energy_mj); /* where it went is not known */
    pj_curve_free(curve);
}

/* What was counted between any two ticks is their difference, whatever the rail declares, however
 * irregularly it ticks and is read, and with a log or without. */
static void ticks_enclose_what_was_counted(void **state)
{
    enum { TICKS = 400 };
    static const struct {
        int period_ms;
        int64_t window_ns;
        double gain;
        bool has_log;
    } rails[] = {{1, 0, 0, false},         {10, 10 * MS, 0, false},
                 {100, 25 * MS, 0, false}, {100, PJ_WINDOW_UNKNOWN, 1.02, false},
                 {100, 100 * MS, 0, true}, {100, PJ_WINDOW_UNKNOWN, 0.97, true},
                 {20, 10 * MS, 0, false},  {1000, 1000 * MS, 0, true}};
    (void)state;
    for (size_t k = 0; k < sizeof rails / sizeof *rails; k++) {
        pj_random random = {k + 1};
        pj_rail rail = counter, log = power;
        int64_t period = rails[k].period_ms * MS, at[TICKS], log_at = 0;
        double uj[TICKS], value = 123456;
        int count = 0;
        rail.period_ns = period;
        rail.window_ns = rails[k].window_ns;
        rail.gain = rails[k].gain;
        rail.modulus_uj = 0;
        rail.delay_ns = 2 * MS;
        log.period_ns = 20 * MS;
        log.window_ns = 25 * MS;
        log.log_ns = 2000 * MS;
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        if (rails[k].has_log) pj_curve_follow(c, l);
        for (int i = 0; i < TICKS; i++) {
            int64_t tick =
                (i + 1) * period + (int64_t)(0.3 * (double)period * pj_random_unit(&random));
            while (rails[k].has_log && log_at < tick) {
                log_at += 10 * MS + (int64_t)(23e6 * pj_random_unit(&random));
                if (pj_random_unit(&random) < 0.02) continue; /* a value is missing */
                pj_reading w = {.fresh_ns = log_at, .value = 1e5 * pj_random_unit(&random)};
                assert_int_equal(pj_curve_add(l, &w, NULL), PJ_OK);
            }
            value += 1e6 * pj_random_unit(&random);
            if (i > 0 && pj_random_unit(&random) < 0.2) continue; /* not read */
            pj_reading r = {.fresh_ns = tick,
                            .fresh_error_ns =
                                (int64_t)(0.1 * (double)period * pj_random_unit(&random)),
                            .value = value,
                            .status = i ? PJ_READING_OK : PJ_READING_RESET};
            assert_int_equal(pj_curve_add(c, &r, NULL), PJ_OK);
            at[count] = tick - rail.delay_ns;
            uj[count++] = value;
        }
        assert_int_equal(pj_curve_finish(c, NULL), PJ_OK);
        double gain = rail.gain > 0 ? rail.gain : 1;
        for (int i = 0; i < count; i++)
            for (int m = i + 1; m < count; m += 7) {
                double counted = (uj[m] - uj[i]) * 1e-3 / gain;
                NEAR(pj_curve_energy_mj(c, at[i], at[m]), counted, 1e-9);
            }
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* The first value after arming is as old as the last tick: the next step does not belong to the
 * time since it was read. */
static void arming_does_not_squeeze_the_first_step(void **state)
{
    (void)state;
    pj_rail rail = counter;
    rail.period_ns = rail.grid_ns = 100 * MS;
    for (int is_grid = 0; is_grid < 2; is_grid++) {
        rail.grid_ns = is_grid ? 100 * MS : 0;
        pj_curve *curve = pj_curve_new(&rail);
        /* 250 W, ticks at 0, 100, 200 ms ...; read at 70 ms for the first time */
        pj_reading first = {
            .fresh_ns = 20 * MS, .fresh_error_ns = 50 * MS, .status = PJ_READING_RESET};
        pj_curve_add(curve, &first, NULL);
        for (int i = 1; i <= 4; i++) {
            pj_reading r = {.fresh_ns = i * 100 * MS, .fresh_error_ns = MS, .value = i * 25e6};
            pj_curve_add(curve, &r, NULL);
        }
        pj_curve_energy e = query(curve, 70, 370);
        if (is_grid)
            NEAR(e.energy_mj, 75e3, 0.005);
        else
            assert_near(e.energy_mj, 75e3, 1.96 * e.random_sd_mj);
        assert_that(e.random_sd_mj, <, is_grid ? 12e3 : 20e3);
        pj_curve_free(curve);
    }
}

/* A first read during which a tick passes is of that tick or of the one before. */
static void a_slow_first_read_is_of_either_tick(void **state)
{
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = rail.grid_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = log.window_ns = 20 * MS;
    log.log_ns = 2000 * MS;
    for (int is_later = 0; is_later < 2; is_later++) {
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        pj_curve_follow(c, l);
        for (int t = -100; t <= 640; t += 20) {
            pj_reading w = {.fresh_ns = t * MS, .value = 250e3};
            pj_curve_add(l, &w, NULL);
        }
        /* 250 W, ticks at -70, 30, 130 ms ...; read from 0 to 40 ms for the first time */
        pj_reading first = {.fresh_ns = -30 * MS,
                            .fresh_error_ns = 70 * MS,
                            .status = PJ_READING_RESET,
                            .value = is_later ? 25e6 : 0};
        pj_reading last = {.fresh_ns = 530 * MS, .fresh_error_ns = MS, .value = 150e6};
        pj_curve_add(c, &first, NULL);
        pj_curve_add(c, &last, NULL);
        pj_curve_energy e = query(c, 40, 340);
        print_message("%.1f +- %.1f J\n", e.energy_mj * 1e-3, e.random_sd_mj * 1e-3);
        assert_near(e.energy_mj, 75e3, 1.96 * e.random_sd_mj);
        assert_that(e.random_sd_mj, <, 15e3);
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* A square wave of 125 and 705 W, on for 310 of 730 ms, as a counter of 100 ms and a log of 20 ms
 * see it: any window from 0.3 s on comes within 3 % and 5 ms of the step at each end. */
static double square_mj(double ms)
{
    double whole = floor(ms / 730), rest = ms - whole * 730;
    return 125 * ms + 580 * (whole * 310 + fmin(rest, 310));
}

static void a_log_shows_the_shape_between_ticks(void **state)
{
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = rail.grid_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = 20 * MS;
    log.window_ns = 25 * MS;
    log.log_ns = 2000 * MS;
    pj_random random = {7};
    for (int every = 1; every <= 10;
         every += 9) { /* the counter is read at every tick, or once a second */
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        pj_curve_follow(c, l);
        double t = 0;
        for (int i = 0; i <= 200; i++) {
            for (; t < 100 * i + 35; t += 10 + 23 * pj_random_unit(&random)) {
                pj_reading w = {.fresh_ns = (int64_t)(t * 1e6),
                                .value = (square_mj(t) - square_mj(t - 25)) / 25e-3};
                if (t > 25) pj_curve_add(l, &w, NULL);
            }
            if (i % every) continue;
            pj_reading r = {.fresh_ns = i * 100 * MS,
                            .value = square_mj(100 * i) * 1e3,
                            .status = i ? PJ_READING_OK : PJ_READING_RESET};
            pj_curve_add(c, &r, NULL);
        }
        int inside = 0, windows = 0;
        double errors = 0, sds = 0;
        for (double from = 100; from < 15000; from += 37.3, windows++) {
            double until = from + 300 + 1000 * pj_random_unit(&random);
            pj_curve_energy e;
            pj_curve_query(c, (int64_t)(from * 1e6), (int64_t)(until * 1e6), &e);
            double truth = square_mj(until) - square_mj(from), off = fabs(e.energy_mj - truth);
            assert_near(e.energy_mj, truth, 0.03 * truth + 2 * 5 * 580);
            inside += off <= 1.96 * e.random_sd_mj;
            errors += off * off;
            sds += e.random_sd_mj * e.random_sd_mj;
        }
        if (inside < 0.92 * windows) fail_msg("every %d: %d of %d", every, inside, windows);
        assert_that(sqrt(sds), <, 2 * sqrt(errors));
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* A counter that paused from 100 to 2000 ms and counted all of it then: within the two steps the
 * log knows where the energy was. One that only counted less has no such successor. */
static void a_pause_between_two_reads_is_the_logs(void **state)
{
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = rail.grid_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = log.window_ns = 20 * MS;
    log.log_ns = 4000 * MS;
    for (int catches_up = 0; catches_up < 2; catches_up++) {
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        pj_curve_follow(c, l);
        for (int t = -1000; t <= 3000; t += 20) {
            pj_reading w = {.fresh_ns = t * MS, .value = 250e3};
            pj_curve_add(l, &w, NULL);
        }
        static const int ticks[] = {-800, 0, 1400, 2200, 2600};
        for (int i = 0; i < 5; i++) {
            double counted = 0.25 * (ticks[i] + 800);
            if (ticks[i] >= 1400) counted -= ticks[i] < 2000 || !catches_up ? 0.25 * 1300 : 0;
            pj_reading r = {.fresh_ns = ticks[i] * MS,
                            .fresh_error_ns = MS,
                            .value = counted * 1e6,
                            .status = i ? PJ_READING_OK : PJ_READING_RESET};
            pj_curve_add(c, &r, NULL);
            if (i == 2) assert_int_equal(pj_curve_sure_ns(c), 0);
        }
        pj_curve_energy e = query(c, 0, 1800), all = query(c, -800, 2600);
        assert_near(all.energy_mj, catches_up ? 850e3 : 850e3 - 325e3, 1);
        assert_near(e.energy_mj, catches_up ? 450e3 : 125e3, 2e3);
        if (catches_up)
            assert_that(e.random_sd_mj, <, 20e3);
        else
            assert_that(e.random_sd_mj, >, 20e3);
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* Ticks at 0, 400 and 800 ms of 250 W, of which the later ones may be 50 ms off where they were
 * missed, and the last one is. On a grid the log tells which tick it was; else a window up to 700
 * ms has the energy of the log, unless that shows something else. */
static void missed_ticks_leave_the_log_to_know(void **state)
{
    enum { SEEN, ON_GRID, MISSED, CONTRADICTED, KINDS };
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = log.window_ns = 20 * MS;
    log.log_ns = 4000 * MS;
    for (int kind = 0; kind < KINDS; kind++) {
        rail.grid_ns = kind == ON_GRID ? 100 * MS : 0;
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        pj_curve_follow(c, l);
        for (int t = -1000; t <= 1200; t += 20) {
            pj_reading w = {.fresh_ns = t * MS, .value = kind == CONTRADICTED ? 150e3 : 250e3};
            pj_curve_add(l, &w, NULL);
        }
        for (int i = 0; i <= 2; i++) {
            bool is_missed = kind != SEEN && i == 2;
            pj_reading r = {.fresh_ns = (i * 400 + (is_missed ? 50 : 0)) * MS,
                            .fresh_error_ns = is_missed ? 53 * MS : MS,
                            .value = i * 100e6,
                            .status = i ? PJ_READING_OK : PJ_READING_RESET};
            pj_curve_add(c, &r, NULL);
        }
        pj_curve_energy e = query(c, 300, 700), own = e, logged = query(l, 300, 700);
        pj_curve_join_log(c, 400 * MS, &logged, &e);
        if (kind == MISSED) {
            assert_that(fabs(own.energy_mj - 100e3), >, 7e3);
            assert_near(e.energy_mj, 100e3, 4e3);
            assert_near(e.energy_mj, 100e3, 1.96 * e.sd_mj);
        } else {
            assert_memory_equal(&e, &own, sizeof e);
            assert_near(e.energy_mj, 100e3, kind == CONTRADICTED ? 10e3 : 500);
        }
        pj_curve_energy unknown = {NAN, NAN, NAN, NAN, NAN, 0};
        pj_curve_join_log(c, 400 * MS, &logged, &unknown);
        if (kind != CONTRADICTED) assert_near(unknown.energy_mj, 100e3, 1.96 * unknown.sd_mj);
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* A counter that paused before it was first read, 800 ms ago or longer than its log reaches back,
 * catches up at the first tick: a window has the energy of its time. */
static void a_pause_before_the_first_read_is_of_before(void **state)
{
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = rail.grid_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = log.window_ns = 20 * MS;
    log.log_ns = 2000 * MS;
    static const int pauses[] = {0, 800, 9000};
    for (int i = 0; i < 3; i++) {
        pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
        pj_curve_follow(c, l);
        for (int t = -2000; t <= 900; t += 20) {
            pj_reading w = {.fresh_ns = t * MS, .value = 250e3};
            pj_curve_add(l, &w, NULL);
        }
        pj_reading first = {
            .fresh_ns = -50 * MS, .fresh_error_ns = 50 * MS, .status = PJ_READING_RESET};
        pj_curve_add(c, &first, NULL);
        for (int t = 300; t <= 800; t += 500) {
            pj_reading r = {.fresh_ns = t * MS,
                            .fresh_error_ns = MS,
                            .value = 250e3 * (pauses[i] ? pauses[i] + t : t + 100)};
            pj_curve_add(c, &r, NULL);
        }
        pj_curve_energy e = query(c, 50, 650);
        assert_near(e.energy_mj, 150e3, 3e3);
        assert_near(e.energy_mj, 150e3, 1.96 * e.random_sd_mj + 1);
        assert_that(e.random_sd_mj, <, 15e3);
        pj_curve_free(c);
        pj_curve_free(l);
    }
}

/* A log that begins after the counter's first tick has not shown what was counted before that, 2 kW
 * for 160 ms, then 125 W: it is no pause. */
static void a_log_that_begins_late_shows_no_pause(void **state)
{
    (void)state;
    pj_rail rail = counter, log = power;
    rail.period_ns = rail.grid_ns = 100 * MS;
    rail.modulus_uj = 0;
    log.period_ns = log.window_ns = 20 * MS;
    log.log_ns = 2000 * MS;
    pj_curve *c = pj_curve_new(&rail), *l = pj_curve_new(&log);
    pj_curve_follow(c, l);
    for (int t = 180; t <= 1000; t += 20) {
        pj_reading w = {.fresh_ns = t * MS, .value = 125e3};
        pj_curve_add(l, &w, NULL);
    }
    pj_reading first = {.fresh_error_ns = MS, .status = PJ_READING_RESET};
    pj_reading next = {
        .fresh_ns = 900 * MS, .fresh_error_ns = MS, .value = 160 * 2000e3 + 740 * 125e3};
    pj_curve_add(c, &first, NULL);
    pj_curve_add(c, &next, NULL);
    assert_near(query(c, 0, 900).energy_mj, next.value * 1e-3, 1);
    pj_curve_free(c);
    pj_curve_free(l);
}

/* A sample every second says as little of each period as the sensor did. */
static void a_thinned_blind_counter_stays_blind(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.kind = PJ_RAIL_COUNTER;
    rail.window_ns = 25 * MS;
    pj_coarsen coarsen;
    pj_coarsen_init(&coarsen, &rail, true, 1000 * MS);
    pj_coarsen_describe(&coarsen, &rail);
    assert_int_equal(rail.period_ns, 1000 * MS);
    assert_int_equal(rail.window_ns, 250 * MS);
    pj_curve *curve = pj_curve_new(&rail);
    for (int i = 0; i <= 60; i++) { /* 20 W for three seconds, 40 W for the next three */
        pj_reading r = reading(100 * i, 1e3 * (i <= 30 ? 2e3 * i : 6e4 + 4e3 * (i - 30))), out[2];
        int count = pj_coarsen_take(&coarsen, &r, out);
        for (int k = 0; k < count; k++) assert_int_equal(pj_curve_add(curve, &out[k], NULL), PJ_OK);
    }
    pj_curve_energy e = query(curve, 1000, 6000);
    assert_near(e.energy_mj, 160e3, 2 * e.random_sd_mj + 2 * e.bias_sd_mj);
    assert_that(e.random_sd_mj, >, 0.01 * e.energy_mj);
    NEAR(e.known_share, 0.25, 0.1);
    pj_curve_free(curve);
}

static void slow_counter_under_steady_load(void **state)
{
    (void)state;
    pj_rail rail = counter;
    rail.period_ns = 100 * MS;
    rail.modulus_uj = 0;
    pj_curve *curve = pj_curve_new(&rail);
    for (int i = 0; i <= 30; i++)
        add(curve, i * 100, i * 5e6, i ? PJ_READING_OK : PJ_READING_RESET);
    for (int from = 100; from < 1900; from += 37) {
        NEAR(energy(curve, from, from + 1000), 50e3, 0.01);
        NEAR(energy(curve, from, from + 10), 500, 0.01);
    }
    pj_curve_free(curve);
}

/* ---- power --------------------------------------------------------------------------------------
 */

static void tiles_are_placed_before_their_reading(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.delay_ns = 30 * MS;
    pj_curve *curve = pj_curve_new(&rail);
    add(curve, 130, 1000, PJ_READING_OK); /* (0, 100] */
    add(curve, 230, 3000, PJ_READING_OK); /* (100, 200] */
    NEAR(energy(curve, 0, 100), 100, 1e-12);
    NEAR(energy(curve, 50, 150), 50 + 150, 1e-12);
    pj_curve_free(curve);
}

static void unseen_time_is_filled_and_widens(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.window_ns = 25 * MS;
    pj_curve *curve = pj_curve_new(&rail);
    pj_curve_energy e;
    for (int i = 1; i <= 20; i++) add(curve, i * 100, i % 2 ? 1000 : 3000, PJ_READING_OK);
    pj_curve_query(curve, 200 * MS, 1800 * MS, &e);
    NEAR(e.energy_mj, 2000 * 1.6, 0.01);
    NEAR(e.known_share, 0.25, 0.01);
    assert_that(e.random_sd_mj, >, 0.05 * e.energy_mj);
    pj_curve_free(curve);
}

static void long_hole_is_unknown(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&power);
    for (int i = 1; i <= 5; i++) add(curve, i * 100, 1000, PJ_READING_OK);
    for (int i = 15; i <= 20; i++) add(curve, i * 100, 1000, PJ_READING_OK);
    NEAR(energy(curve, 0, 500), 500, 1e-12);
    assert_true(isnan(energy(curve, 400, 1500)));
    NEAR(energy(curve, 1400, 2000), 600, 1e-12);
    pj_curve_free(curve);
}

static void repeats_extend_what_is_known(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&power);
    add(curve, 100, 1000, PJ_READING_OK);
    for (int i = 4; i <= 20; i++) { /* two polls a period */
        pj_reading r = reading(i * 50 + 10, 1000);
        r.status = PJ_READING_REPEAT;
        r.fresh_ns = 100 * MS;
        pj_curve_add(curve, &r, NULL);
    }
    NEAR(energy(curve, 0, 1000), 1000, 1e-12);
    /* the period is known, so the sensor published the same value once a period; polls in between
     * add nothing */
    pj_curve_window windows[16];
    assert_int_equal(pj_curve_windows(curve, 0, 2000 * MS, windows, 16), 10);
    pj_curve_free(curve);
}

static void lag_is_undone(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.period_ns = 15 * MS;
    rail.lag_ns = 60 * MS;
    pj_curve *curve = pj_curve_new(&rail);
    for (int t = 0; t <= 1500; t += 15) { /* 10 W, 100 W from 300 ms on */
        double since = t - 300, charge = since > 0 ? 100 - 90 * exp(-since / 60) : 10;
        add(curve, t, charge * 1e3, PJ_READING_OK);
    }
    NEAR(energy(curve, 300, 400), 10e3, 0.01); /* the sensor itself shows 5.6 J */
    NEAR(energy(curve, 100, 1000), 2e3 + 70e3, 0.01);
    pj_curve_free(curve);
}

/* A steady 10 W, ticks every 10 ms, each known to half a millisecond: what is between two ticks is
 * uncertain by both, what ends half way between two by the mean of them. */
static void ticks_seen_late_widen_the_interval(void **state)
{
    (void)state;
    pj_curve *curve = pj_curve_new(&counter);
    for (int t = 0; t <= 200; t += 10) {
        pj_reading r = reading(t, t * 1e4);
        r.status = t ? PJ_READING_OK : PJ_READING_RESET;
        r.fresh_error_ns = MS / 2;
        assert_int_equal(pj_curve_add(curve, &r, NULL), PJ_OK);
    }
    double tick = 10e3 * 0.5e-3 / sqrt(3), rounding = 0.061 / sqrt(6);
    pj_curve_energy whole, part;
    pj_curve_query(curve, 50 * MS, 150 * MS, &whole);
    pj_curve_query(curve, 50 * MS, 145 * MS, &part);
    NEAR(whole.random_sd_mj, sqrt(2 * tick * tick + rounding * rounding), 1e-9);
    NEAR(part.random_sd_mj, sqrt(1.5 * tick * tick + rounding * rounding), 1e-6);
    pj_curve_window windows[2];
    assert_int_equal(pj_curve_windows(curve, 50 * MS, 60 * MS, windows, 2), 1);
    NEAR(windows[0].begin_s, 0.5e-3 / sqrt(3), 1e-6);
    NEAR(windows[0].end_s, 0.5e-3 / sqrt(3), 1e-6);
    pj_curve_free(curve);
}

/* On a busy machine readings are late, windows then longer than others, also the first one after a
 * gap, and begin before the window before them. Whatever their lengths, a constant stays one. */
static void windows_of_any_length_are_resolved(void **state)
{
    enum { COUNT = 400 };
    pj_curve_point windows[COUNT];
    for (uint64_t seed = 1; seed <= 50; seed++) {
        pj_random random = {.state = seed};
        int64_t end = 100 * MS;
        for (size_t i = 0; i < COUNT; i++) {
            double late = pj_random_unit(&random), length = pj_random_unit(&random);
            end += (int64_t)((0.5 + late) * MS) + (late > 0.98 ? 50 * MS : 0);
            int64_t window = (int64_t)((1 + 10 * length) * MS);
            if (late > 0.97) window = (int64_t)(200 * length * MS);
            windows[i] = (pj_curve_point){
                .begin_ns = end - (i ? window : 3 * MS), .end_ns = end, .power_mw = 10000};
        }
        pj_error err = {0};
        pj_block *blocks;
        size_t count;
        assert_int_equal(pj_deconvolve(windows, COUNT, MS, &blocks, &count, &err), PJ_OK);
        assert_that(count, >=, COUNT);
        for (size_t i = 0; i < count; i++) {
            assert_that(blocks[i].end_ns, >, blocks[i].begin_ns);
            NEAR(blocks[i].mw, 10000, 1);
        }
        pj_free(blocks);
    }
}

static void long_averages_are_resolved(void **state)
{
    (void)state;
    pj_rail rail = power;
    rail.kind = PJ_RAIL_AVERAGE;
    rail.window_ns = 1000 * MS;
    pj_curve *curve = pj_curve_new(&rail);
    for (int t = 100; t <= 6000; t += 100) { /* 20 W, 80 W from 2 s to 4 s */
        double on = fmin(t, 4000) - fmax(t - 1000, 2000);
        add(curve, t, 20e3 + 60e3 * fmax(on, 0) / 1000, PJ_READING_OK);
    }
    assert_int_equal(pj_curve_finish(curve, NULL), PJ_OK);
    NEAR(energy(curve, 2000, 4000), 160e3, 0.02);
    NEAR(energy(curve, 1000, 2000), 20e3, 0.05);
    NEAR(energy(curve, 2200, 2500), 24e3, 0.05);
    pj_curve_window windows[100];
    size_t count = pj_curve_windows(curve, 2000 * MS, 3000 * MS, windows, 100);
    assert_int_equal(count, 19); /* all that overlap, with their true extent */
    assert_int_equal(windows[0].end_ns - windows[0].begin_ns, 1000 * MS);
    pj_curve_free(curve);
}

/* Bursts of 60 W above 20 W, shorter than the sensor's window, after quiet time. */
static void short_bursts_of_long_averages_are_covered(void **state)
{
    (void)state;
    static const int lengths[] = {60, 150, 250, 350, 500, 900};
    pj_rail rail = power;
    rail.kind = PJ_RAIL_AVERAGE;
    rail.window_ns = 1000 * MS;
    for (int quiet = 2000; quiet <= 20000; quiet += 9000)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int phase = 7; phase < 100; phase += 31) {
                pj_curve *curve = pj_curve_new(&rail);
                int begin = quiet + phase, end = begin + lengths[i];
                for (int t = 100; t <= quiet + 4000; t += 100) {
                    double on = fmin(t, end) - fmax(t - 1000, begin);
                    add(curve, t, 20e3 + 60 * fmax(on, 0), PJ_READING_OK);
                }
                assert_int_equal(pj_curve_finish(curve, NULL), PJ_OK);
                pj_curve_energy e;
                pj_curve_query(curve, begin * MS, end * MS, &e);
                assert_that(fabs(e.energy_mj - 80.0 * lengths[i]), <=, 1.96 * e.random_sd_mj);
                assert_that(e.random_sd_mj, <, 0.6 * 80.0 * lengths[i]);
                pj_curve_free(curve);
            }
}

static void long_curves_forget_their_beginning(void **state)
{
    (void)state;
    pj_rail rail = counter;
    rail.period_ns = MS;
    rail.modulus_uj = 0;
    pj_curve *curve = pj_curve_new(&rail);
    for (int t = 0; t <= 200000; t++)
        add(curve, t, t * 1000.0, t ? PJ_READING_OK : PJ_READING_RESET);
    NEAR(energy(curve, 50, 199950), 199900, 1e-9);
    pj_curve_forget(curve, 199000 * MS);
    NEAR(energy(curve, 199500, 200000), 500, 1e-9);
    assert_true(isnan(energy(curve, 0, 200000)));
    pj_curve_free(curve);
}

/* E(t) never falls and is additive, whatever comes in. */
static void energy_is_monotone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        pj_random random = {seed};
        pj_rail rail = seed % 2 ? counter : power;
        rail.lag_ns = seed % 5 == 0 ? 50 * MS : 0;
        pj_curve *curve = pj_curve_new(&rail);
        int64_t at = 0;
        for (int i = 0; i < 300; i++) {
            at += (int64_t)(pj_random_unit(&random) * 200);
            add(curve, at, pj_random_unit(&random) * 1e6,
                (pj_reading_status)(pj_random_u64(&random) % 6));
        }
        pj_curve_finish(curve, NULL);
        for (int64_t t = 0; t < at; t += 13) {
            double whole = energy(curve, t, t + 13), first = energy(curve, t, t + 6);
            double rest = energy(curve, t + 6, t + 13);
            assert_false(whole < 0);
            if (!isnan(whole) && !isnan(first) && !isnan(rest))
                assert_near(first + rest, whole, 0.11 * whole + 1e-9);
        }
        pj_curve_free(curve);
    }
}

static void intervals_hold_the_truth(void **state)
{
    (void)state;
    pj_random random = {7};
    int inside = 0, asked = 0;
    for (int run = 0; run < 40; run++) { /* a load that switches at random, a 100 ms counter */
        pj_rail rail = counter;
        rail.period_ns = 100 * MS;
        rail.modulus_uj = 0;
        rail.gain_sd = 1e-6;
        double truth[4001] = {0}, on = 1; /* mJ up to each ms */
        for (int t = 0; t < 4000; t++) {
            if (pj_random_unit(&random) < 0.03) on = 1 - on;
            truth[t + 1] = truth[t] + (on ? 80 : 20);
        }
        pj_curve *curve = pj_curve_new(&rail);
        for (int t = 0; t <= 4000; t += 100)
            add(curve, t, floor(truth[t] * 1e3 / 61) * 61, t ? PJ_READING_OK : PJ_READING_RESET);
        for (int i = 0; i < 50; i++, asked++) {
            int from = (int)(pj_random_unit(&random) * 3000);
            int length = 20 + (int)(pj_random_unit(&random) * 900);
            pj_curve_energy e;
            pj_curve_query(curve, from * MS, (from + length) * MS, &e);
            inside += fabs(e.energy_mj - (truth[from + length] - truth[from])) <= 1.96 * e.sd_mj;
        }
        pj_curve_free(curve);
    }
    assert_that(inside, >=, asked * 0.92);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units),
        cmocka_unit_test(counter_is_linear_between_ticks),
        cmocka_unit_test(counter_wraps),
        cmocka_unit_test(reset_leaves_a_hole),
        cmocka_unit_test(blind_counter_counts_and_is_unsure),
        cmocka_unit_test(a_pause_of_a_blind_counter_is_bridged),
        cmocka_unit_test(ticks_enclose_what_was_counted),
        cmocka_unit_test(arming_does_not_squeeze_the_first_step),
        cmocka_unit_test(a_slow_first_read_is_of_either_tick),
        cmocka_unit_test(a_log_shows_the_shape_between_ticks),
        cmocka_unit_test(a_pause_between_two_reads_is_the_logs),
        cmocka_unit_test(missed_ticks_leave_the_log_to_know),
        cmocka_unit_test(a_pause_before_the_first_read_is_of_before),
        cmocka_unit_test(a_log_that_begins_late_shows_no_pause),
        cmocka_unit_test(a_thinned_blind_counter_stays_blind),
        cmocka_unit_test(slow_counter_under_steady_load),
        cmocka_unit_test(tiles_are_placed_before_their_reading),
        cmocka_unit_test(unseen_time_is_filled_and_widens),
        cmocka_unit_test(long_hole_is_unknown),
        cmocka_unit_test(repeats_extend_what_is_known),
        cmocka_unit_test(lag_is_undone),
        cmocka_unit_test(ticks_seen_late_widen_the_interval),
        cmocka_unit_test(windows_of_any_length_are_resolved),
        cmocka_unit_test(long_averages_are_resolved),
        cmocka_unit_test(short_bursts_of_long_averages_are_covered),
        cmocka_unit_test(long_curves_forget_their_beginning),
        cmocka_unit_test(energy_is_monotone),
        cmocka_unit_test(intervals_hold_the_truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
