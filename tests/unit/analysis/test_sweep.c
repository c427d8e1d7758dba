/* Sweeps: the order of settings, planted optima, false savings, missing figures. */
#include "../assertions.h"
#include "../sanitized.h"
#include "analysis/sweep.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SWEEPS = PJ_SANITIZED ? 40 : 400, SETTINGS = 5 };
static const double spread = 0.01;

/* Runs under settings of these costs and speeds; all drift together from block to block. */
static pj_sweep planted(const double *cost, const double *speed, uint32_t blocks, pj_random *random)
{
    pj_sweep s = {.settings = SETTINGS, .blocks = blocks};
    for (uint32_t b = 0; b < blocks; b++) {
        double drift = 0.1 * pj_random_normal(random);
        for (uint32_t i = 0; i < SETTINGS; i++) {
            s.setting[i] = 100 + 50 * i;
            s.joules[i][b] = cost[i] * exp(drift + spread * pj_random_normal(random));
            s.speed[i][b] = speed[i] * exp(drift + spread * 0.1 * pj_random_normal(random));
        }
    }
    return s;
}

static void an_optimum_is_found(void **state)
{
    /* as cards behave: at first power is saved, then speed is lost */
    static const double cost[] = {0.9, 0.8, 0.82, 0.95, 1}, speed[] = {0.6, 0.9, 0.99, 1, 1};
    pj_random random = {7};
    uint32_t found = 0, covered = 0, pace = 0;
    for (int n = 0; n < SWEEPS; n++) {
        pj_sweep s = planted(cost, speed, 4, &random);
        pj_sweep_result r;
        pj_sweep_judge(&s, 0.02, &r);
        assert_true(r.known);
        found += r.best == 2 && r.saves && r.chosen_share > 0.99 && r.lo == 200 && r.hi == 200;
        covered += r.points[2].cost.lo <= 0.82 && 0.82 <= r.points[2].cost.hi;
        pace += !r.points[1].fast_enough && r.points[3].fast_enough;
    }
    assert_true(found >= 0.99 * SWEEPS);
    assert_true(covered >= 0.91 * SWEEPS && covered < SWEEPS);
    assert_int_equal(pace, SWEEPS);
    /* who allows more loss gets the cheaper one */
    pj_sweep s = planted(cost, speed, 4, &random);
    pj_sweep_result r;
    pj_sweep_judge(&s, 0.15, &r);
    assert_int_equal(r.best, 1);
}

static void no_difference_is_no_saving(void **state)
{
    static const double same[] = {1, 1, 1, 1, 1};
    pj_random random = {11};
    uint32_t savings = 0, unsure = 0;
    for (int n = 0; n < SWEEPS; n++) {
        pj_sweep s = planted(same, same, 4, &random);
        pj_sweep_result r;
        pj_sweep_judge(&s, 0.02, &r);
        savings += r.saves;
        unsure += r.lo < r.hi;
    }
    assert_true(savings <= 0.07 * SWEEPS);
    assert_true(unsure >= 0.5 * SWEEPS);
}

static void what_is_missing_is_not_judged(void **state)
{
    static const double same[] = {1, 1, 1, 1, 1};
    pj_random random = {3};
    pj_sweep_result r;
    pj_sweep s = planted(same, same, 4, &random);
    s.joules[2][1] = NAN;
    pj_sweep_judge(&s, 0.02, &r);
    assert_false(r.known || r.saves);
    s = planted(same, same, 2, &random);
    pj_sweep_judge(&s, 0.02, &r);
    assert_false(r.known || r.saves);
}

static void high_and_low_take_turns(void **state)
{
    static const uint32_t forward[] = {4, 0, 3, 1, 2}, backward[] = {2, 1, 3, 0, 4};
    uint32_t order[SETTINGS];
    pj_sweep_order(SETTINGS, 0, order);
    assert_memory_equal(order, forward, sizeof order);
    pj_sweep_order(SETTINGS, 1, order);
    assert_memory_equal(order, backward, sizeof order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_optimum_is_found),
        cmocka_unit_test(no_difference_is_no_saving),
        cmocka_unit_test(what_is_missing_is_not_judged),
        cmocka_unit_test(high_and_low_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
