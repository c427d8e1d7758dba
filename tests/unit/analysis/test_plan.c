/* Plans of experiments: refusals, cells, order, and the stopping rule of a cell. */
#include "analysis/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static pj_status parse(const char *text, pj_arena *arena, pj_plan *plan)
{
    pj_arena_init(arena, 0);
    return pj_plan_parse(text, arena, plan, NULL);
}

static void plans_come_back_equal(void **state)
{
    static const char text[] =
        "{\"name\":\"n\",\"models\":[\"a\",\"b/c\"],\"dtypes\":[\"bf16\",\"q8_0\"],"
        "\"batches\":[1,2,4],\"inputs\":[16],\"outputs\":[8],\"threads\":[0],\"repeat\":3,"
        "\"precision\":0.01,\"cool_down_s\":0,\"max_latency_ms\":50,\"seed\":7,\"eval\":\"t.txt\","
        "\"depth\":\"module\",\"round\":1}";
    pj_arena arena;
    pj_plan plan;
    pj_buffer out;
    pj_json json;
    assert_int_equal(parse(text, &arena, &plan), PJ_OK);
    assert_int_equal(pj_plan_cells(&plan), 12);
    pj_buffer_init(&out, 1 << 16);
    pj_json_init(&json, &out);
    pj_plan_write(&plan, &json);
    assert_string_equal(pj_buffer_get(&out), text);
    pj_buffer_fini(&out);
    pj_arena_fini(&arena);
}

static void mistakes_are_refused(void **state)
{
    static const char *const wrong[] = {"[]",
                                        "{",
                                        "{\"batchs\":[1]}",
                                        "{\"batches\":[0]}",
                                        "{\"batches\":[1.5]}",
                                        "{\"batches\":1}",
                                        "{\"models\":[1]}",
                                        "{\"models\":\"a\"}",
                                        "{\"repeat\":0}",
                                        "{\"repeat\":2.5}",
                                        "{\"repeat\":\"x\"}",
                                        "{\"precision\":\"abc\"}",
                                        "{\"cool_down_s\":-1}",
                                        "{\"max_latency_ms\":-3}",
                                        "{\"seed\":true}",
                                        "{\"eval\":5}",
                                        "{\"name\":[]}",
                                        "{\"precision\":2}",
                                        "{\"inputs\":[1e9]}",
                                        "{\"threads\":[-1]}",
                                        "{\"batches\":[]}",
                                        "{\"dtypes\":[]}",
                                        "{\"name\":\"\"}",
                                        "{\"round\":-1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pj_arena arena;
        pj_plan plan;
        if (parse(wrong[i], &arena, &plan) != PJ_E_INVALID) fail_msg("%s is taken", wrong[i]);
        pj_arena_fini(&arena);
    }
}

static void every_cell_is_another(void **state)
{
    pj_arena arena;
    pj_plan plan;
    char names[12][64];
    assert_int_equal(parse("{\"dtypes\":[\"bf16\",\"q8_0\"],\"batches\":[1,2],\"inputs\":[4,5,6]}",
                           &arena, &plan),
                     PJ_OK);
    assert_int_equal(pj_plan_cells(&plan), 12);
    for (uint32_t i = 0; i < 12; i++) {
        pj_plan_cell_name(&plan, i, names[i], sizeof names[i]);
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(names[i], names[k]);
    }
    assert_string_equal(names[0], "bf16, batch 1, in 4");
    pj_arena_fini(&arena);
    assert_int_equal(parse("{\"threads\":[0,1,2]}", &arena, &plan), PJ_OK);
    for (uint32_t i = 0; i < 3; i++) pj_plan_cell_name(&plan, i, names[i], sizeof names[i]);
    assert_string_equal(names[0], "all threads");
    assert_string_equal(names[1], "1 thread");
    assert_string_equal(names[2], "2 threads");
    pj_arena_fini(&arena);
    assert_int_equal(parse("{\"ablate\":[\"mlp\"]}", &arena, &plan), PJ_OK);
    pj_plan_cell_name(&plan, 0, names[0], sizeof names[0]);
    pj_plan_cell_name(&plan, 1, names[1], sizeof names[1]);
    assert_string_equal(names[0], "the whole model");
    assert_string_equal(names[1], "without mlp");
    pj_arena_fini(&arena);
}

/* Randomised blocks: each has every cell once; the order is determined by the seed and differs
 * between blocks. */
static void blocks_are_complete_and_shuffled(void **state)
{
    pj_arena arena;
    pj_plan plan;
    uint32_t order[32], again[32], first_at[32] = {0};
    assert_int_equal(parse("{\"batches\":[1,2,3,4,5,6,7,8],\"inputs\":[4,5,6,7]}", &arena, &plan),
                     PJ_OK);
    for (uint32_t block = 0; block < 400; block++) {
        bool seen[32] = {false};
        pj_plan_order(&plan, block, order);
        pj_plan_order(&plan, block, again);
        assert_memory_equal(order, again, sizeof order);
        for (int i = 0; i < 32; i++) {
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
        }
        first_at[order[0]]++;
    }
    for (int i = 0; i < 32; i++) assert_in_range(first_at[i], 1, 35); /* 12.5 expected */
    plan.round = 1;
    pj_plan_order(&plan, 0, again);
    plan.round = 0;
    pj_plan_order(&plan, 0, order);
    assert_memory_not_equal(order, again, sizeof order);
    pj_arena_fini(&arena);
}

static void cells_stop_when_precise(void **state)
{
    pj_arena arena;
    pj_plan plan;
    const double tight[] = {1, 1.001, 0.999, 1}, wide[] = {1, 1.5, 0.7, 1.2};
    assert_int_equal(parse("{\"precision\":0.01,\"repeat\":4}", &arena, &plan), PJ_OK);
    assert_false(pj_plan_is_enough(&plan, tight, 2)); /* at least three */
    assert_true(pj_plan_is_enough(&plan, tight, 3));
    assert_false(pj_plan_is_enough(&plan, wide, 3));
    assert_true(pj_plan_is_enough(&plan, wide, 4)); /* the limit */
    pj_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_come_back_equal),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(every_cell_is_another),
        cmocka_unit_test(blocks_are_complete_and_shuffled),
        cmocka_unit_test(cells_stop_when_precise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
