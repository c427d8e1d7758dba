/* Pareto fronts against the definition on random points, ties, missing values, and knees at known
 * positions. */
#include "../assertions.h"
#include "analysis/front.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { POINTS = 60 };

static int dominates(const double *x, const double *y, size_t i, size_t k)
{
    return x[i] <= x[k] && y[i] <= y[k] && (x[i] < x[k] || y[i] < y[k]);
}

static void a_front_is_what_nothing_dominates(void **state)
{
    pj_random random = {5};
    (void)state;
    for (int round = 0; round < 200; round++) {
        double x[POINTS], y[POINTS];
        uint32_t front[POINTS];
        size_t expected = 0;
        for (int i = 0; i < POINTS; i++) {
            x[i] = pj_random_unit(&random);
            y[i] = i % 13 == 5 ? NAN : pj_random_unit(&random);
        }
        for (size_t k = 0; k < POINTS; k++) {
            int beaten = isnan(y[k]);
            for (size_t i = 0; i < POINTS; i++) beaten |= dominates(x, y, i, k);
            expected += !beaten;
        }
        size_t count = pj_pareto_front(x, y, POINTS, front);
        assert_int_equal(count, expected);
        for (size_t f = 0; f < count; f++) {
            assert_false(isnan(y[front[f]]));
            for (size_t i = 0; i < POINTS; i++) assert_false(dominates(x, y, i, front[f]));
            if (f) {
                assert_that(x[front[f]], >, x[front[f - 1]]);
                assert_that(y[front[f]], <, y[front[f - 1]]);
            }
        }
    }
}

static void of_equal_points_the_first_is_kept(void **state)
{
    const double x[] = {2, 1, 1, 2}, y[] = {1, 3, 3, 1};
    uint32_t front[4];
    (void)state;
    assert_int_equal(pj_pareto_front(x, y, 4, front), 2);
    assert_int_equal(front[0], 1);
    assert_int_equal(front[1], 0);
    assert_int_equal(pj_pareto_front(x, y, 0, front), 0);
}

static size_t knee_of(const double *x, const double *y, size_t count)
{
    uint32_t front[8];
    assert_int_equal(pj_pareto_front(x, y, count, front), count);
    return pj_pareto_knee(x, y, front, count);
}

static void a_knee_is_where_the_front_bends(void **state)
{
    /* losses of three types of weights and their energies: the second costs little quality */
    const double loss[] = {3.10, 3.11, 3.60}, joules[] = {0.40, 0.22, 0.15};
    const double straight_x[] = {1, 2, 3}, straight_y[] = {3, 2, 1};
    const double hollow_y[] = {3, 2.9, 1};      /* concave: no knee */
    const double wide_x[] = {1, 10, 100, 1000}; /* logarithmic on both axes: straight */
    const double wide_y[] = {1000, 100, 10, 1};
    (void)state;
    assert_int_equal(knee_of(loss, joules, 3), 1);
    assert_that(knee_of(straight_x, straight_y, 3), ==, SIZE_MAX);
    assert_that(knee_of(straight_x, hollow_y, 3), ==, SIZE_MAX);
    assert_that(knee_of(wide_x, wide_y, 4), ==, SIZE_MAX);
    assert_that(knee_of(loss, joules, 2), ==, SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_front_is_what_nothing_dominates),
        cmocka_unit_test(of_equal_points_the_first_is_kept),
        cmocka_unit_test(a_knee_is_where_the_front_bends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
