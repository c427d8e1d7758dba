/* Assertions about numbers that print what they compared. Each argument is evaluated once. */
#ifndef PJ_TESTS_ASSERTIONS_H
#define PJ_TESTS_ASSERTIONS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* assert_that(energy, >, 0) */
#define assert_that(a, is, b)                                                                  \
    do {                                                                                       \
        const __typeof__((a) + 0) assert_a = (a);                                              \
        const __typeof__((b) + 0) assert_b = (b);                                              \
        if (!(assert_a is assert_b))                                                           \
            fail_msg("%s " #is " %s does not hold: %.17g and %.17g", #a, #b, (double)assert_a, \
                     (double)assert_b);                                                        \
    } while (0)

/* Both numbers are known and differ by no more than the tolerance. */
#define assert_near(got, want, tolerance)                                               \
    do {                                                                                \
        const double assert_got = (double)(got), assert_want = (double)(want);          \
        const double assert_most = (double)(tolerance);                                 \
        if (!(fabs(assert_got - assert_want) <= assert_most))                           \
            fail_msg("%s is %.17g, not %.17g within %g", #got, assert_got, assert_want, \
                     assert_most);                                                      \
    } while (0)

#endif
