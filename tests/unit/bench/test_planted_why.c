/* Planted reasons for a difference of two runs are named, and runs that are alike name none. Seeds
 * are fixed; the whole table is `perjoule bench why`. */
#include "../assertions.h"
#include "bench/planted_why.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static double found_of(pj_planted_cost cost, uint64_t pairs)
{
    pj_planted_why_score score = {0};
    pj_error err = {0};
    for (uint64_t seed = 1; seed <= pairs; seed++)
        if (pj_planted_why_try(cost, 1, PJ_PLANTED_WHY_TOKENS, seed, &score, &err) != PJ_OK)
            fail_msg("%s", err.text);
    assert_that(score.pairs, ==, (double)pairs);
    return score.found;
}

static void planted_causes_are_named(void **state)
{
    (void)state;
    for (int cost = PJ_COST_NORM; cost <= PJ_COST_KERNEL; cost++)
        assert_that(found_of((pj_planted_cost)cost, 3), ==, 3.0);
}

static void runs_that_are_alike_name_nothing(void **state)
{
    (void)state;
    assert_that(found_of(PJ_COST_NONE, 8), ==, 8.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_causes_are_named),
        cmocka_unit_test(runs_that_are_alike_name_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
