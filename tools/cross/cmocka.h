/*
 * The subset of cmocka that the kernel tests use, so that they can be linked for targets without a
 * cmocka library. A failed check ends the program.
 */
#ifndef PJ_CROSS_CMOCKA_H
#define PJ_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(f) \
    {                       \
#f, f               \
    }
#define cmocka_run_group_tests(tests, setup, teardown) \
    cross_run(tests, sizeof tests / sizeof *tests, teardown)

#define fail_msg(...)                                                              \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), \
     fputc('\n', stderr), exit(1))
#define assert_true(c)                \
    do {                              \
        if (!(c)) fail_msg("%s", #c); \
    } while (0)
#define assert_null(p)               assert_true((p) == NULL)
#define assert_int_equal(a, b)       assert_true((long long)(a) == (long long)(b))
#define assert_in_range(a, from, to) assert_true((a) >= (from) && (a) <= (to))
#define assert_string_equal(a, b)    assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define test_malloc(n)               malloc(n)
#define test_free(p)                 free(p)

static inline int cross_run(const struct CMUnitTest *tests, size_t count, int (*end)(void **state))
{
    for (size_t i = 0; i < count; i++) {
        void *state = NULL;
        tests[i].run(&state);
        printf("ok %s\n", tests[i].name);
        fflush(stdout);
    }
    return end ? end(&(void *){NULL}) : 0;
}

#endif
