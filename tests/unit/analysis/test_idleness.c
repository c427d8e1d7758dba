/* Keeping a model loaded or loading it again: break-evens, and what a history would have saved. */
#include "../assertions.h"
#include "analysis/idleness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static pj_idleness judged(const double *load_mj, size_t loads, const double *keep_mw, size_t keeps)
{
    pj_moments load = {0}, keep = {0};
    pj_idleness r;
    for (size_t i = 0; i < loads; i++) pj_moments_add(&load, load_mj[i]);
    for (size_t i = 0; i < keeps; i++) pj_moments_add(&keep, keep_mw[i]);
    pj_idleness_judge(&load, &keep, &r);
    return r;
}

static void the_break_even_is_the_ratio(void **state)
{
    static const double load[] = {590e3, 600e3, 610e3}, keep[] = {9.9e3, 10e3, 10.1e3};
    pj_idleness r = judged(load, 3, keep, 3);
    assert_near(r.breakeven_s, 60, 1e-9);
    assert_true(r.keep_is_certain);
    assert_true(r.breakeven.lo < 59 && r.breakeven.lo > 50);
    assert_true(r.breakeven.hi > 61 && r.breakeven.hi < 70);
    r = judged(load, 1, keep, 1); /* a value without an interval */
    assert_near(r.breakeven_s, 59.6, 0.1);
    assert_true(isnan(r.breakeven.lo) && isnan(r.breakeven.hi));
}

static void what_is_not_certain_gives_none(void **state)
{
    static const double load[] = {600e3, 610e3}, noise[] = {-3e3, 4e3, 1e3}, less[] = {-5e3};
    assert_true(isnan(judged(load, 2, noise, 3).breakeven_s));
    assert_true(isnan(judged(load, 2, less, 1).breakeven_s));
    assert_true(isnan(judged(load, 2, NULL, 0).breakeven_s));
    assert_true(isnan(judged(NULL, 0, less, 1).breakeven_s));
}

static void a_history_is_added_up(void **state)
{
    static const double load[] = {600e3}, keep[] = {10e3}; /* 60 s */
    /* two overlap; gaps of 30 s, 160 s, 60 s */
    static const pj_use_span spans[] = {
        {0, 10e3}, {5e3, 20e3}, {50e3, 60e3}, {220e3, 230e3}, {290e3, 300e3}};
    pj_idleness r = judged(load, 1, keep, 1), unknown = judged(load, 1, NULL, 0);
    pj_idle_history h;
    pj_idle_history_of(spans, 5, &r, &h);
    assert_near(h.whole_ms, 300e3, 1e-9);
    assert_near(h.idle_ms, 250e3, 1e-9);
    assert_int_equal(h.unloads, 1);
    assert_near(h.saved_mj, 10e3 * 100 - 600e3, 1e-6);
    pj_idle_history_of(spans, 5, &unknown, &h);
    assert_true(isnan(h.saved_mj) && h.unloads == 0);
    assert_near(h.idle_ms, 250e3, 1e-9);
    pj_idle_history_of(spans, 0, &r, &h);
    assert_true(h.whole_ms == 0 && h.idle_ms == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_break_even_is_the_ratio),
        cmocka_unit_test(what_is_not_certain_gives_none),
        cmocka_unit_test(a_history_is_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
