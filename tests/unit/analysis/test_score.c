/* Intervals of shares and the sign test, against published values, enumeration, and simulation. */
#include "../assertions.h"
#include "analysis/score.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 200 };

static const char *outcomes_of(char *text, uint32_t right, uint32_t tasks)
{
    for (uint32_t i = 0; i < tasks; i++) text[i] = i < right ? '1' : '0';
    text[tasks] = 0;
    return text;
}

static void intervals_are_wilsons(void **state)
{
    static const struct {
        uint32_t right, tasks;
        double lo, hi;
    } known[] = {{0, 10, 0, 0.2775},
                 {5, 10, 0.2366, 0.7634},
                 {10, 10, 0.7225, 1},
                 {81, 263, 0.2553, 0.3662},
                 {15, 148, 0.0624, 0.1605}};
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        pj_score s = pj_score_of(outcomes_of(text, known[i].right, known[i].tasks));
        assert_int_equal(s.right, known[i].right);
        assert_int_equal(s.tasks, known[i].tasks);
        assert_near(s.lo, known[i].lo, 1e-4);
        assert_near(s.hi, known[i].hi, 1e-4);
    }
    assert_true(isnan(pj_score_of("").share));
    assert_true(isnan(pj_score_of(NULL).lo));
}

static void intervals_cover(void **state)
{
    pj_random random = {3};
    char text[MOST + 1];
    (void)state;
    for (int tasks = 20; tasks <= MOST; tasks += 60)
        for (double truth = 0.1; truth < 1; truth += 0.2) {
            int covered = 0;
            enum { ROUNDS = 4000 };
            for (int round = 0; round < ROUNDS; round++) {
                uint32_t right = 0;
                for (int i = 0; i < tasks; i++) right += pj_random_unit(&random) < truth;
                pj_score s = pj_score_of(outcomes_of(text, right, (uint32_t)tasks));
                covered += s.lo <= truth && truth <= s.hi;
            }
            assert_that(covered, >=, 0.92 * ROUNDS);
            assert_that(covered, <=, 0.985 * ROUNDS);
        }
}

/* The p of the sign test by enumerating all ways in which a coin can fall. */
static double enumerated(uint32_t n, uint32_t fewest)
{
    uint32_t as_extreme = 0;
    for (uint32_t way = 0; way < 1u << n; way++) {
        uint32_t heads = (uint32_t)__builtin_popcount(way);
        as_extreme += heads <= fewest || heads >= n - fewest;
    }
    return fmin(1, as_extreme / ldexp(1, (int)n));
}

static void the_sign_test_is_exact(void **state)
{
    (void)state;
    for (uint32_t n = 0; n <= 16; n++)
        for (uint32_t k = 0; k <= n; k++) {
            char a[64] = "", b[64] = "";
            for (uint32_t i = 0; i < n; i++) {
                a[2 * i] = i < k ? '1' : '0';
                b[2 * i] = i < k ? '0' : '1';
                a[2 * i + 1] = b[2 * i + 1] = i % 3 ? '1' : '0'; /* both, or neither */
            }
            pj_score_contrast c = pj_score_compare(a, b);
            assert_int_equal(c.only_a, k);
            assert_int_equal(c.only_b, n - k);
            if (n < PJ_SCORE_LEAST_DIFFERENT)
                assert_true(isnan(c.p));
            else
                assert_near(c.p, enumerated(n, k < n - k ? k : n - k), 1e-9);
        }
    assert_true(isnan(pj_score_compare("111111", "0000000").p)); /* other tasks */
    assert_true(isnan(pj_score_compare(NULL, "1").p));
}

/* Models that are equally good differ for certain in at most 5 of 100 sets of tasks. */
static void alike_models_seldom_differ(void **state)
{
    enum { ROUNDS = 4000, TASKS = 100 };
    pj_random random = {11};
    int different = 0, found = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char a[TASKS + 1] = "", b[TASKS + 1] = "", worse[TASKS + 1] = "";
        for (int i = 0; i < TASKS; i++) {
            double difficulty = pj_random_unit(&random);
            a[i] = pj_random_unit(&random) > difficulty ? '1' : '0';
            b[i] = pj_random_unit(&random) > difficulty ? '1' : '0';
            worse[i] = pj_random_unit(&random) > difficulty + 0.4 ? '1' : '0';
        }
        different += pj_score_compare(a, b).p < 0.05;
        found += pj_score_compare(a, worse).p < 0.05;
    }
    assert_that(different, <=, 0.055 * ROUNDS);
    assert_that(found, >=, 0.95 * ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_are_wilsons), cmocka_unit_test(intervals_cover),
        cmocka_unit_test(the_sign_test_is_exact), cmocka_unit_test(alike_models_seldom_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
