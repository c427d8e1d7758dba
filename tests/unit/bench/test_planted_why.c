/* Planted reasons for a difference of two runs are named, and runs that are alike name none. Seeds
 * are fixed; the whole table is `perjoule bench why`. */
#include "../assertions.h"
#include "bench/planted_why.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static double found_of(const pj_planted_why_plan *plan, uint64_t first, uint64_t pairs)
{
    pj_planted_why_score score = {0};
    pj_error err = {0};
    for (uint64_t i = 0; i < pairs; i++)
        if (pj_planted_why_try(plan, first + i, &score, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_that(score.pairs, ==, (double)pairs);
    return score.found;
}

static void planted_causes_are_named(void **state)
{
    (void)state;
    for (int cost = PJ_COST_NORM; cost <= PJ_COST_KERNEL; cost++) {
        const pj_planted_why_plan plan = {(pj_planted_cost)cost, 1, PJ_PLANTED_WHY_TOKENS, false};
        assert_that(found_of(&plan, 1, 1), ==, 1.0);
    }
}

static void runs_that_are_alike_name_nothing(void **state)
{
    (void)state;
    const pj_planted_why_plan plan = {PJ_COST_NONE, 1, PJ_PLANTED_WHY_TOKENS, false};
    assert_that(found_of(&plan, 1, 3), ==, 3.0);
}

/* Pairs whose mean times differ by what other programs took. */
static void a_busy_machine_names_nothing(void **state)
{
    (void)state;
    const pj_planted_why_plan plan = {PJ_COST_NONE, 1, PJ_PLANTED_WHY_TOKENS, true};
    static const uint64_t seeds[] = {114000000, 121000000, 128000000};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        assert_that(found_of(&plan, seeds[i], 1), ==, 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_causes_are_named),
        cmocka_unit_test(runs_that_are_alike_name_nothing),
        cmocka_unit_test(a_busy_machine_names_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
