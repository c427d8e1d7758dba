/* The energy of a component by ablation (difference of runs) and by attribution: pairing, refusals,
 * and intervals that cover the planted truth. */
#include "../assertions.h"
#include "analysis/part_cost.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 6 };

typedef struct world {
    double part, drift, noise, sensor_sd, share_error;
} world;

/* Runs of 1 J with a drift from block to block; a run without the component takes `part` less. */
static void measure(const world *w, pj_random *random, pj_part_cost *cost)
{
    pj_part_run whole[BLOCKS], without[BLOCKS];
    pj_part_share shares[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) {
        double level = 1 + w->drift * i;
        whole[i] = (pj_part_run){level + w->noise * pj_random_normal(random), i, w->sensor_sd};
        /* in another order than the runs above */
        without[BLOCKS - 1 - i] =
            (pj_part_run){level - w->part + w->noise * pj_random_normal(random), i, w->sensor_sd};
        shares[i] = (pj_part_share){w->part + w->share_error, 0.01 * w->part};
    }
    pj_part_cost_get(&(pj_part_query){whole, without, shares, BLOCKS, BLOCKS, BLOCKS}, cost);
}

static bool holds(const pj_estimate *e, double truth)
{
    return e->lo <= truth && truth <= e->hi;
}

static void intervals_hold_what_was_planted(void **state)
{
    pj_random random = {1};
    uint32_t held = 0, agree = 0, of = 1000;
    for (uint32_t i = 0; i < of; i++) {
        pj_part_cost cost;
        /* the drift is ten times the noise: without pairing, the interval would be as wide */
        measure(&(world){.part = 0.3, .drift = 0.1, .noise = 0.01}, &random, &cost);
        held += holds(&cost.difference, 0.3);
        agree += cost.outcome == PJ_PART_AGREE;
        assert_that(cost.difference.hi - cost.difference.lo, <, 0.1);
        assert_int_equal(cost.pairs, BLOCKS);
    }
    assert_in_range(held, 930, 970);
    assert_that(agree, >, 930);
}

static void a_wrong_attribution_is_seen(void **state)
{
    pj_random random = {2};
    pj_part_cost cost;
    measure(&(world){.part = 0.3, .noise = 0.01, .share_error = 0.1}, &random, &cost);
    assert_int_equal(cost.outcome, PJ_PART_DISAGREE);
}

static void below_the_resolution_is_refused(void **state)
{
    pj_random random = {3};
    pj_part_cost cost;
    measure(&(world){.part = 0.03, .noise = 0.0001, .sensor_sd = 0.05}, &random, &cost);
    assert_int_equal(cost.outcome, PJ_PART_TOO_SHORT);
    assert_true(isnan(cost.difference.value) && isfinite(cost.attributed.value));
    assert_that(cost.resolution, >, 0.1);
    assert_that(cost.resolution, <, 0.2);
    measure(&(world){.part = 0.3, .noise = 0.0001, .sensor_sd = 0.05}, &random, &cost);
    assert_int_equal(cost.outcome, PJ_PART_AGREE);
}

/* A difference that may as well be none agrees with everything. */
static void a_difference_of_chance_confirms_nothing(void **state)
{
    (void)state;
    pj_random random = {4};
    pj_part_cost cost;
    uint32_t unclear = 0, of = 200;
    for (uint32_t i = 0; i < of; i++) {
        measure(&(world){.part = 0.03, .noise = 0.3}, &random, &cost);
        bool has_zero = cost.difference.lo <= 0 && cost.difference.hi >= 0;
        assert_int_equal(cost.outcome == PJ_PART_UNCLEAR, has_zero);
        unclear += has_zero;
    }
    assert_that(unclear, >, 0.9 * of);
}

static void one_block_or_no_energy_stays_open(void **state)
{
    pj_part_cost cost;
    pj_part_run whole[] = {{1, 0, 0}, {NAN, 1, 0}, {1.1, 2, 0}};
    pj_part_run without[] = {{0.5, 0, 0}, {0.5, 1, 0}};
    pj_part_share shares[] = {{0.5, 0.01}, {NAN, NAN}};
    pj_part_cost_get(&(pj_part_query){whole, without, shares, 3, 2, 2}, &cost);
    assert_int_equal(cost.pairs, 1);
    assert_int_equal(cost.outcome, PJ_PART_OPEN);
    assert_true(isnan(cost.difference.lo));
    assert_near(cost.difference.value, 0.5, 1e-12);
    pj_part_cost_get(&(pj_part_query){0}, &cost);
    assert_int_equal(cost.outcome, PJ_PART_OPEN);
    assert_true(isnan(cost.difference.value) && isnan(cost.attributed.value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(intervals_hold_what_was_planted),
                                       cmocka_unit_test(a_wrong_attribution_is_seen),
                                       cmocka_unit_test(below_the_resolution_is_refused),
                                       cmocka_unit_test(a_difference_of_chance_confirms_nothing),
                                       cmocka_unit_test(one_block_or_no_energy_stays_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
