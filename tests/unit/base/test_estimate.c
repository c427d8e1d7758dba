/* Intervals of positive figures, and the digits that they support. */
#include "../assertions.h"
#include "base/estimate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void bounds_are_positive_and_symmetric_in_logarithms(void **state)
{
    for (double half = 1e-4; half < 1e6; half *= 3) {
        pj_bounds b = pj_bounds_of(5, half);
        assert_that(b.lo, >, 0);
        assert_near(b.lo * b.hi, 25, 1e-9);
        assert_that(b.hi, >=, 5 + half);
        assert_that(b.hi, <=, 5 + 2 * half + half * half / 5);
    }
    assert_near(pj_bounds_of(100, 1).lo, 99, 0.01);
    assert_near(pj_bounds_of(-1, 3).lo, -4, 0);
    assert_true(isnan(pj_bounds_of(NAN, 1).lo) && isnan(pj_bounds_of(1, NAN).hi));
}

static const char *estimate(double value, double lo, double hi)
{
    static char text[96];
    size_t length = pj_estimate_write(value, (pj_bounds){lo, hi}, text, sizeof text);
    assert_int_equal(length, strlen(text));
    return text;
}

static void no_digit_is_beyond_the_interval(void **state)
{
    assert_string_equal(estimate(12.345, 12.0, 12.7), "12.3 ± 0.3");
    assert_string_equal(estimate(12.345, 12.2, 12.46), "12.35 ± 0.13");
    assert_string_equal(estimate(4507, 3900, 5100), "4500 ± 600");
    assert_string_equal(estimate(480.3, 180, 1280), "500 (180 to 1300)");
    assert_string_equal(estimate(1.42, 1.37, 1.47), "1.42 ± 0.05");
    assert_string_equal(estimate(3.76, 1.2, 11.8), "4 (1.2 to 12)");
    assert_string_equal(estimate(0.0157, 0.0103, 0.0245), "0.016 (0.010 to 0.025)");
    assert_string_equal(estimate(-28.3, -33.1, -23.5), "-28 ± 5");
    assert_string_equal(estimate(-1, -6, 4), "-1 ± 5");
    assert_string_equal(estimate(12.345, NAN, NAN), "12.3");
    assert_string_equal(estimate(7, 7, 7), "7.00");
    assert_string_equal(estimate(1000, 1000 - 1e-9, 1000 + 1e-9), "1000.000000 ± <0.000001");
}

/* A printed value read back differs from the value by no more than half of the interval, and is
 * never finer than a twentieth of it. */
static void any_value_keeps_what_its_interval_supports(void **state)
{
    uint64_t seed = 0x7a3f;
    for (int i = 0; i < 2000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double value = exp((double)(seed >> 40) / (1 << 24) * 14 - 4);
        double half = value * exp((double)(seed >> 16 & 0xffffff) / (1 << 24) * 8 - 7);
        pj_bounds b = pj_bounds_of(value, half);
        char text[64];
        double read = 0, least = fmin(value - b.lo, b.hi - value);
        int place = pj_place_of(least);
        pj_value_write(value, b, text, sizeof text);
        assert_int_equal(sscanf(text, "%lf", &read), 1);
        assert_that(fabs(read - value), <=, 0.5 * fmax(least, value * 0.01));
        if (place < 6) assert_that(pow(10, -place), >=, 0.05 * least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_positive_and_symmetric_in_logarithms),
        cmocka_unit_test(no_digit_is_beyond_the_interval),
        cmocka_unit_test(any_value_keeps_what_its_interval_supports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
