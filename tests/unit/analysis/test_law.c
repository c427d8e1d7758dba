/* Power laws: planted exponents are recovered, intervals cover them, and too little data is
 * refused. */
#include "../assertions.h"
#include "analysis/law.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void intervals_cover_planted_exponents(void **state)
{
    pj_random random = {4};
    uint32_t held = 0, of = 2000;
    for (uint32_t i = 0; i < of; i++) {
        uint32_t n = 3 + i % 6;
        double b = -1 + 2 * pj_random_unit(&random);
        pj_law_point points[8];
        pj_law law;
        for (uint32_t k = 0; k < n; k++) {
            points[k].x = 1e8 * pow(2, k);
            points[k].y = 3e-9 * pow(points[k].x, b) * exp(0.1 * pj_random_normal(&random));
        }
        pj_law_fit(points, n, &law);
        assert_null(law.refusal);
        held += law.exponent_lo <= b && b <= law.exponent_hi;
        assert_that(law.r2, >=, 0);
        assert_that(law.r2, <=, 1);
    }
    assert_in_range(held, of * 93 / 100, of * 97 / 100);
}

static void an_exact_law_is_exact(void **state)
{
    pj_law_point points[4] = {{1, 2}, {2, 4}, {NAN, 1}, {4, 8}};
    pj_law law;
    pj_law_fit(points, 4, &law);
    assert_near(law.exponent, 1, 1e-9);
    assert_near(law.factor, 2, 1e-9);
    assert_that(law.r2, >, 0.999999);
}

static void too_little_is_refused(void **state)
{
    pj_law law;
    pj_law_fit((pj_law_point[]){{1, 2}, {2, 3}, {2, 4}, {1, 2}}, 4, &law); /* two values */
    assert_non_null(law.refusal);
    assert_true(isnan(law.exponent) && isnan(law.r2));
    pj_law_fit((pj_law_point[]){{10, 2}, {11, 3}, {12, 4}}, 3, &law); /* a narrow range */
    assert_non_null(law.refusal);
    pj_law_fit((pj_law_point[]){{1, NAN}, {2, 0}, {4, -1}}, 3, &law);
    assert_non_null(law.refusal);
    pj_law_fit(NULL, 0, &law);
    assert_non_null(law.refusal);
}

static void kinds_explain_what_differs_between_them(void **state)
{
    const pj_law_point apart[] = {{1, 1}, {1, 1.01}, {1, 2}, {1, 2.02}};
    const pj_law_point mixed[] = {{1, 1}, {1, 2}, {1, 1.01}, {1, 2.02}};
    const uint32_t kinds[] = {0, 0, 1, 1}, one[] = {3, 3, 3, 3}, own[] = {0, 1, 2, 3};
    assert_that(pj_law_of_kinds(apart, kinds, 4), >, 0.99);
    assert_that(pj_law_of_kinds(mixed, kinds, 4), <, 0.01);
    assert_true(isnan(pj_law_of_kinds(apart, one, 4)));
    assert_true(isnan(pj_law_of_kinds(apart, own, 4)));
    assert_true(isnan(pj_law_of_kinds(apart, kinds, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(intervals_cover_planted_exponents),
                                       cmocka_unit_test(an_exact_law_is_exact),
                                       cmocka_unit_test(too_little_is_refused),
                                       cmocka_unit_test(kinds_explain_what_differs_between_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
