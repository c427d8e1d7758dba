/* The server's log of power: joules of counters and of power readings, gaps, and seconds. */
#include "../assertions.h"
#include "serve/power_log.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static const int64_t MS = PJ_NS_PER_MS, S = PJ_NS_PER_S;
static const int64_t BASE = 1000 * PJ_NS_PER_S;

static const pj_rail rails[] = {
    {.name = "cpu", .kind = PJ_RAIL_COUNTER, .modulus_uj = 1e9, .max_mw = 100000},
    {.name = "gpu0", .rail_class = PJ_RAIL_GPU, .kind = PJ_RAIL_INSTANT, .period_ns = 100000000},
};

static void give(pj_power_log *log, uint16_t rail, int64_t at_ns, pj_reading_status status,
                 double value)
{
    pj_reading r = {.before_ns = BASE + at_ns - 1000,
                    .after_ns = BASE + at_ns + 1000,
                    .rail = rail,
                    .status = (uint8_t)status,
                    .value = value};
    pj_power_log_take(log, &r, 1);
}

static void counters_add_their_steps(void **state)
{
    pj_power_log *log = pj_power_log_new(rails, 2);
    give(log, 0, 0, PJ_READING_RESET, 999e6); /* its value before does not count */
    assert_that(pj_power_log_energy_mj(log, 0), ==, 0);
    give(log, 0, 500 * MS, PJ_READING_OK, 999e6 + 250000);
    give(log, 0, 1500 * MS, PJ_READING_OK, 250000); /* wraps: 1 J more */
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1250, 1e-6);
    give(log, 0, 1500 * MS, PJ_READING_OK, 900e6); /* not later than the last */
    give(log, 0, 1600 * MS, PJ_READING_REJECTED, 5);
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1250, 1e-6);
    assert_that(pj_power_log_energy_mj(log, 1), ==, 0);
    pj_power_log_free(log);
}

/* Sampling stops and starts between a run and the idle server; the counter itself kept counting. */
static void a_restart_of_sampling_loses_nothing(void **state)
{
    pj_power_log *log = pj_power_log_new(rails, 2);
    give(log, 0, 0, PJ_READING_RESET, 5e6);
    give(log, 0, 1000 * MS, PJ_READING_OK, 6e6);
    give(log, 0, 1100 * MS, PJ_READING_RESET, 6.5e6);
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1500, 1e-6);
    give(log, 0, 1200 * MS, PJ_READING_RESET, 1000); /* restarted: unknown */
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1500, 1e-6);
    give(log, 0, 1300 * MS, PJ_READING_OK, 101000);
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1600, 1e-6);
    give(log, 0, 1400 * MS, PJ_READING_RESET, 900e6); /* 9 kW: another counter's value */
    assert_float_equal(pj_power_log_energy_mj(log, 0), 1600, 1e-6);
    pj_power_log_free(log);
}

static void power_is_integrated_by_trapezoids(void **state)
{
    pj_power_log *log = pj_power_log_new(rails, 2);
    give(log, 1, 0, PJ_READING_OK, 10000);
    give(log, 1, 2 * S, PJ_READING_OK, 30000);
    assert_float_equal(pj_power_log_energy_mj(log, 1), 40000, 1e-6);
    pj_power_log_free(log);
}

static void gaps_add_nothing_and_have_no_power(void **state)
{
    double power[4];
    pj_power_log *log = pj_power_log_new(rails, 2);
    give(log, 1, 0, PJ_READING_OK, 10000);
    give(log, 1, 1 * S, PJ_READING_OK, 10000);
    give(log, 1, 2 * S, PJ_READING_GAP, NAN);
    give(log, 1, 3 * S, PJ_READING_OK, 10000); /* 1 to 3 s: unknown */
    give(log, 1, 4 * S, PJ_READING_OK, 10000);
    assert_float_equal(pj_power_log_energy_mj(log, 1), 20000, 1e-6);
    assert_that(pj_power_log_history(log, 1, BASE + 4 * S + 5, power, 4), ==, BASE + 4 * S);
    assert_float_equal(power[0], 10000, 1e-6);
    assert_true(isnan(power[1]) && isnan(power[2]));
    assert_float_equal(power[3], 10000, 1e-6);
    give(log, 1, 60 * S, PJ_READING_OK, 10000); /* too long ago to interpolate */
    assert_float_equal(pj_power_log_energy_mj(log, 1), 20000, 1e-6);
    pj_power_log_free(log);
}

/* An idle card repeats its power for minutes, an idle counter does not move: both are still polled,
 * which is no gap. */
static void readings_that_repeat_are_no_gap(void **state)
{
    double power[3];
    pj_power_log *log = pj_power_log_new(rails, 2);
    give(log, 1, 0, PJ_READING_REPEAT, 10000); /* of an unknown reading */
    assert_that(pj_power_log_energy_mj(log, 1), ==, 0);
    give(log, 0, 0, PJ_READING_RESET, 0);
    give(log, 1, 0, PJ_READING_OK, 10000);
    for (int64_t s = 1; s <= 30; s++) {
        give(log, 0, s * S, PJ_READING_REPEAT, 0);
        give(log, 1, s * S, PJ_READING_REPEAT, 10000);
    }
    assert_float_equal(pj_power_log_energy_mj(log, 1), 300000, 1e-6);
    pj_power_log_history(log, 1, BASE + 30 * S + 1, power, 3);
    for (int i = 0; i < 3; i++) assert_float_equal(power[i], 10000, 1e-6);
    give(log, 0, 31 * S, PJ_READING_OK, 62e6); /* 2 W in all that time */
    assert_float_equal(pj_power_log_energy_mj(log, 0), 62000, 1e-6);
    give(log, 0, 90 * S, PJ_READING_OK, 70e6); /* no reading for a minute */
    assert_float_equal(pj_power_log_energy_mj(log, 0), 62000, 1e-6);
    pj_power_log_free(log);
}

static void seconds_share_what_crosses_them_and_are_forgotten(void **state)
{
    double power[PJ_POWER_LOG_SECONDS];
    pj_power_log *log = pj_power_log_new(rails, 2);
    assert_true(isnan(pj_power_log_now_mw(log, 0, BASE)));
    give(log, 0, 500 * MS, PJ_READING_RESET, 0);
    give(log, 0, 2500 * MS, PJ_READING_OK, 4e6); /* 2 W */
    pj_power_log_history(log, 0, BASE + 3 * S, power, 3);
    for (int i = 0; i < 3; i++) assert_float_equal(power[i], 2000, 1e-6);
    assert_float_equal(pj_power_log_now_mw(log, 0, BASE + 2500 * MS), 2000, 1e-6);
    assert_true(isnan(pj_power_log_now_mw(log, 0, BASE + 10 * S)));
    for (int64_t s = 3; s <= 400; s++) /* 1 W, and round the ring */
        give(log, 0, s * S, PJ_READING_OK, 4e6 + (double)(s - 2) * 1e6);
    pj_power_log_history(log, 0, BASE + 400 * S + 1, power, PJ_POWER_LOG_SECONDS);
    for (int i = 0; i < PJ_POWER_LOG_SECONDS; i++) assert_float_equal(power[i], 1000, 1e-6);
    pj_power_log_history(log, 0, BASE + 900 * S, power, PJ_POWER_LOG_SECONDS);
    for (int i = 0; i < PJ_POWER_LOG_SECONDS; i++) assert_true(isnan(power[i]));
    pj_power_log_free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_add_their_steps),
        cmocka_unit_test(a_restart_of_sampling_loses_nothing),
        cmocka_unit_test(power_is_integrated_by_trapezoids),
        cmocka_unit_test(gaps_add_nothing_and_have_no_power),
        cmocka_unit_test(readings_that_repeat_are_no_gap),
        cmocka_unit_test(seconds_share_what_crosses_them_and_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
