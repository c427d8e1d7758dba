/* A device's clock on ours: pure functions over made points. */
#include "base/clock.h"
#include "engine/vulkan/api.h"

#include "../../assertions.h"

#include <stdlib.h>

/* A device whose clock has ticks of 32 ns, runs 7 ppm fast, and whose counter has 36 bits. */
enum { TICK_NS = 32, BITS = 36 };
static const uint64_t mask = (1ull << BITS) - 1;
static const double rate = 1 / (TICK_NS * (1 - 7e-6));
static const uint64_t first_ticks = (1ull << BITS) - 50000000; /* wraps after 1.6 s */

static uint64_t ticks_at(int64_t ns)
{
    return (first_ticks + (uint64_t)(int64_t)((double)ns * rate)) & mask;
}

static pj_vk_clock started(void)
{
    return (pj_vk_clock){.mask = mask, .tick_ns = TICK_NS};
}

static void add_point(pj_vk_clock *c, int64_t ns, double noise_ns)
{
    pj_vk_clock_add(c, (pj_vk_clock_point){ticks_at(ns), ns + (int64_t)noise_ns, 2500});
}

/* From the nearest point, which is at most 20 ms old: within the stated error. */
static void test_before_there_is_a_line(void **state)
{
    pj_vk_clock c = started();
    add_point(&c, 0, 0);
    for (int64_t ns = -20 * PJ_NS_PER_MS; ns <= 20 * PJ_NS_PER_MS; ns += PJ_NS_PER_MS)
        assert_near(pj_vk_clock_map(&c, ticks_at(ns)), ns, pj_vk_clock_error(&c));
    add_point(&c, 500 * PJ_NS_PER_MS, 0);
    assert_near(pj_vk_clock_map(&c, ticks_at(499 * PJ_NS_PER_MS)), 499 * PJ_NS_PER_MS, 100);
    assert_near(pj_vk_clock_map(&c, ticks_at(PJ_NS_PER_MS)), PJ_NS_PER_MS, 100);
}

/* Over a minute and the counter's wrap-around, points that are off by up to 2 us. */
static void test_a_line_through_points(void **state)
{
    pj_vk_clock c = started();
    srand(3);
    for (int64_t s = 0; s < 60; s++) {
        add_point(&c, s * PJ_NS_PER_S, (double)(rand() % 4000 - 2000));
        if (s < 3) continue;
        assert_true(c.has_line);
        assert_near(c.slope * rate, 1, 3e-6);
        assert_that(pj_vk_clock_error(&c), <, 6000);
        for (int64_t ns = (s - 2) * PJ_NS_PER_S; ns < (s + 1) * PJ_NS_PER_S; ns += PJ_NS_PER_S / 7)
            assert_near(pj_vk_clock_map(&c, ticks_at(ns)), ns, pj_vk_clock_error(&c));
    }
}

/* A point that is wrong widens the error by as much. */
static void test_a_jump_is_in_the_error(void **state)
{
    pj_vk_clock c = started();
    for (int64_t s = 0; s < 10; s++) add_point(&c, s * PJ_NS_PER_S, s == 9 ? 1e6 : 0);
    assert_that(pj_vk_clock_error(&c), >, 4e5);
}

/* A server that had nothing to do for longer than the counter takes to wrap. */
static void test_after_a_long_pause(void **state)
{
    pj_vk_clock c = started();
    for (int64_t s = 0; s < 20; s++) add_point(&c, s * PJ_NS_PER_S, 0);
    for (int64_t s = 4000; s < 4003; s++) {
        add_point(&c, s * PJ_NS_PER_S, 0);
        assert_that(pj_vk_clock_error(&c), <, 20000);
        int64_t ns = s * PJ_NS_PER_S - 5 * PJ_NS_PER_MS;
        assert_near(pj_vk_clock_map(&c, ticks_at(ns)), ns, pj_vk_clock_error(&c));
    }
    assert_true(c.has_line);
}

/* Only where a barrier stops the commands may a time be taken before the kernels are done. */
static void test_where_a_time_is_taken(void **state)
{
    const uint32_t others[] = {0x8086, 0x1002, 0x106b, 0x10005, 0};
    assert_int_equal(pj_vk_stamp_stage(&(pj_vk_info){.vendor_id = 0x10de}),
                     VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(pj_vk_stamp_stage(&(pj_vk_info){.vendor_id = others[i]}),
                         VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_there_is_a_line), cmocka_unit_test(test_a_line_through_points),
        cmocka_unit_test(test_a_jump_is_in_the_error), cmocka_unit_test(test_after_a_long_pause),
        cmocka_unit_test(test_where_a_time_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
