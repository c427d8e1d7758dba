/* The stated cost of statistics: neither the clock's own cost nor other programs count as looks. */
#include "../assertions.h"
#include "base/memory.h"
#include "engine/kernels/stats_timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 10000, BLOCK = 64 << 10 };

static uint64_t touch(uint64_t *values)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < BLOCK; i += 4) sum += values[i]++;
    return sum;
}

typedef enum where { OUTSIDE, INSIDE } where;

/* The share of the thread's CPU time that the clock attributes to statistics, when all work is
 * outside or inside of them. The memory block evicts the clock's code and data from the L1 cache in
 * between, as a model's weights do. */
static double stated_share(where work)
{
    uint64_t sum = 0;
    uint64_t *values = pj_alloc(BLOCK, sizeof *values);
    assert_non_null(values);
    memset(values, 0, BLOCK * sizeof *values);
    sum += touch(values);
    int64_t begun = pj_clock_thread_cpu_ns();
    pj_stats_timer_start();
    for (int i = 0; i < ROUNDS; i++) {
        if (work == OUTSIDE) sum += touch(values);
        int64_t look = pj_stats_timer_begin();
        for (int again = 0; work == INSIDE && again < 4; again++) sum += touch(values);
        pj_stats_timer_end(look);
    }
    int64_t stated = pj_stats_timer_stop(), total = pj_clock_thread_cpu_ns() - begun;
    pj_free(values);
    print_message("sum %llu: ", (unsigned long long)sum); /* keeps the compiler from removing it */
    return (double)stated / (double)total;
}

static void test_empty_looks_cost_next_to_nothing(void **state)
{
    double share = stated_share(OUTSIDE);
    print_message("empty looks: %.2f %% of the time\n", 100 * share);
    assert_that(share, <, 0.05);
}

/* A lower bound far below 1: time stolen by a hypervisor counts as CPU time, and a sample may miss
 * it. */
static void test_what_lies_inside_is_counted(void **state)
{
    double share = stated_share(INSIDE);
    print_message("only looks: %.2f %% of the time\n", 100 * share);
    assert_that(share, >, 0.2);
    assert_that(share, <, 1.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_looks_cost_next_to_nothing),
        cmocka_unit_test(test_what_lies_inside_is_counted),
    };
    return cmocka_run_group_tests_name("look", tests, NULL, NULL);
}
