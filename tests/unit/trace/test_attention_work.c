/* Pairs of queries and keys in closed form against counting them, and the figures as JSON. */
#include "../assertions.h"
#include "trace/attention_work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static double seen(const pj_attention_work *w, pj_attention_reach kind, int position)
{
    double all = position + 1;
    if (kind == PJ_ATTENTION_WINDOW && w->chunks) return position % (int)w->window + 1;
    if (kind == PJ_ATTENTION_WINDOW) return all < w->window ? all : w->window;
    if (kind == PJ_ATTENTION_CHOSEN) return all < w->kept ? all : w->kept;
    if (kind == PJ_ATTENTION_INDEX) return all > w->kept ? all : 0;
    return all;
}

static void pairs_are_those_counted_one_by_one(void **state)
{
    static const int ranges[][2] = {{0, 0}, {0, 1}, {0, 9}, {0, 40}, {3, 5}, {6, 30}, {20, 21}};
    for (int chunks = 0; chunks < 2; chunks++) {
        pj_attention_work w = {.window = 7, .kept = 5, .chunks = chunks};
        for (int k = 0; k < PJ_ATTENTION_KINDS; k++)
            for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
                double sum = 0;
                for (int p = ranges[r][0]; p < ranges[r][1]; p++)
                    sum += seen(&w, (pj_attention_reach)k, p);
                assert_that(
                    pj_attention_pairs(&w, (pj_attention_reach)k, ranges[r][0], ranges[r][1]), ==,
                    sum);
            }
    }
    /* beyond what is kept, a query costs the same choice and a longer list of scores */
    pj_attention_work w = {.flops = {[PJ_ATTENTION_CHOSEN] = 100, [PJ_ATTENTION_INDEX] = 3},
                           .bytes = {[PJ_ATTENTION_CHOSEN] = 10, [PJ_ATTENTION_INDEX] = 2},
                           .kept = 4};
    assert_that(pj_attention_flops(&w, 3, 4), ==, 400);
    assert_that(pj_attention_flops(&w, 99, 100), ==, 400 + 3 * 100);
    assert_that(pj_attention_bytes(&w, 99, 100), ==, 40 + 2 * 100);
}

static void figures_survive_as_json(void **state)
{
    pj_attention_work given = {
        .flops = {1, 2, 3, 4}, .bytes = {5, 6, 7, 8}, .window = 9, .kept = 10, .chunks = true};
    pj_attention_work got, none = {0};
    pj_json json;
    pj_json_open(&json, 1 << 12);
    pj_json_object_begin(&json);
    pj_attention_work_json(&given, &json);
    pj_json_object_end(&json);
    json_t *object = json_loads(pj_json_whole(&json), 0, NULL);
    assert_true(pj_attention_work_read(object, &got));
    assert_memory_equal(got.flops, given.flops, sizeof got.flops);
    assert_memory_equal(got.bytes, given.bytes, sizeof got.bytes);
    assert_that(got.window, ==, given.window);
    assert_that(got.kept, ==, given.kept);
    assert_true(got.chunks);
    json_decref(object);
    object = json_loads("{}", 0, NULL);
    assert_false(pj_attention_work_read(object, &got));
    assert_memory_equal(&got, &none, sizeof got.flops);
    json_decref(object);
    pj_json_close(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_counted_one_by_one),
        cmocka_unit_test(figures_survive_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
