/* Intervals of windows of any length, for each kind of sensor, over loads that step and loads that
 * switch faster than the sensor publishes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "bench/sim_windows.h"

static pj_window_score judge(const char *sensor, pj_sim_load load, double shortest_ms,
                             double longest_ms)
{
    pj_window_score score;
    pj_error err;
    const double length_ms[2] = {shortest_ms, longest_ms};
    if (pj_sim_windows_judge(sensor, load, length_ms, 4711, &score, &err) != PJ_OK)
        fail_msg("%s", err.text);
    print_message("%s, %s, %.0f to %.0f ms: p95 %.2g %%, +-%.2g %%, covered %.1f %%, needed %.2f\n",
                  sensor, load == PJ_LOAD_STEPS ? "steps" : "bursts", shortest_ms, longest_ms,
                  100 * score.p95, 100 * score.half_width, 100 * score.covered, score.needed);
    assert_that(score.unavailable, <, 0.01);
    assert_that(score.covered, >=, 0.92);
    return score;
}

/* Above the sensor's period, this much of the interval is needed: three times too wide is too much.
 */
static void check(const char *sensor)
{
    for (pj_sim_load load = PJ_LOAD_STEPS; load < PJ_LOAD_COUNT; load++) {
        judge(sensor, load, 30, 100);
        assert_that(judge(sensor, load, 300, 10000).needed, >, 0.3);
    }
}

static void power_of_all_the_time(void **state)
{
    (void)state;
    check("kind=power,period_ms=100,noise=0.0005");
}

static void power_of_a_part_of_the_time(void **state)
{
    (void)state;
    check("kind=power,period_ms=100,window_ms=25,noise=0.001");
}

static void counters(void **state)
{
    (void)state;
    check("kind=counter,period_ms=100,resolution_mj=1");
}

/* What happens within a second is hidden by an average over it, so its interval allows for bursts
 * that are not there; where they are, more of it is needed. */
static void long_averages(void **state)
{
    static const char sensor[] = "kind=power,period_ms=100,window_ms=1000,noise=0.0005";
    (void)state;
    judge(sensor, PJ_LOAD_STEPS, 300, 10000);
    judge(sensor, PJ_LOAD_BURSTS, 30, 100);
    assert_that(judge(sensor, PJ_LOAD_BURSTS, 300, 10000).needed, >, 0.2);
}

/* A steady load leaves a sensor that would see it switch hardly uncertain. */
static void steady_load_has_narrow_intervals(void **state)
{
    const char *sensor = "kind=power,period_ms=100,noise=0.0005";
    (void)state;
    double steady = judge(sensor, PJ_LOAD_STEPS, 50, 100).half_width;
    assert_that(steady, <, 0.03);
    assert_that(judge(sensor, PJ_LOAD_BURSTS, 50, 100).half_width, >, steady);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_of_all_the_time),
        cmocka_unit_test(power_of_a_part_of_the_time),
        cmocka_unit_test(counters),
        cmocka_unit_test(long_averages),
        cmocka_unit_test(steady_load_has_narrow_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
