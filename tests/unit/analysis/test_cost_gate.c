/* The gate's rule: bounds against published ones, false alarms, planted changes and their price. */
#include "../assertions.h"
#include "../sanitized.h"
#include "analysis/cost_gate.h"
#include "analysis/ratio.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { GATES = PJ_SANITIZED ? 200 : 3000, TOLD = 100, MOST = 40 };
static const double spread = 0.02;
static double baseline_spread = 0.02;

/* Bounds of five equal looks at a one-sided level of 2.5 %, as in tables of the method. */
static void bounds_are_the_published_ones(void **state)
{
    static const double times[] = {1, 2, 3, 4, 5};
    static const double bounds[] = {4.8769, 3.3569, 2.6803, 2.2898, 2.0310};
    double p[5];
    pj_looks_plan(times, 5, 0.025, p);
    for (int i = 0; i < 5; i++) assert_near(p[i] / (erfc(bounds[i] / sqrt(2)) / 2), 1, 2e-3);
}

typedef struct tally {
    int over, within, undecided, late; /* late: decided after `stated` runs, or not at all */
} tally;

/* Gates whose true ratio is `factor`, each looked at after every run until it decides. */
static tally hold_gates(const pj_cost_gate *gate, double factor, uint32_t stated, pj_random *random)
{
    tally t = {0};
    for (int i = 0; i < GATES; i++) {
        double a[MOST], b[MOST], drift = 0;
        pj_gate_outcome outcome = PJ_GATE_UNDECIDED;
        uint32_t n = 0;
        for (uint32_t k = 0; k < gate->stored; k++)
            a[k] = exp(baseline_spread * pj_random_normal(random));
        while (outcome == PJ_GATE_UNDECIDED && n < gate->most) {
            if (gate->kind == PJ_GATE_PAIRS) { /* both drift, which cancels */
                drift += 0.05 * pj_random_normal(random);
                a[n] = exp(drift + spread * pj_random_normal(random));
            }
            b[n] = factor * exp(drift + spread * pj_random_normal(random));
            outcome = pj_cost_gate_judge(gate, a, b, ++n);
        }
        t.over += outcome == PJ_GATE_OVER;
        t.within += outcome == PJ_GATE_WITHIN;
        t.undecided += outcome == PJ_GATE_UNDECIDED;
        t.late += outcome == PJ_GATE_UNDECIDED || n > stated;
    }
    return t;
}

static pj_cost_gate planned(pj_gate_kind kind, double limit)
{
    pj_cost_gate gate = {.kind = kind, .limit = limit, .most = MOST};
    if (kind == PJ_GATE_STORED) gate.stored = MOST;
    pj_cost_gate_plan(&gate, PJ_LEVEL);
    return gate;
}

/* Exactly at the limit errors are most frequent: with a limit of 1, between equal programs. */
static void looking_often_keeps_the_error(void **state)
{
    for (int kind = PJ_GATE_PAIRS; kind <= PJ_GATE_FIXED; kind++) {
        pj_random random = {(uint64_t)(11 + kind)};
        pj_cost_gate gate = planned((pj_gate_kind)kind, 1);
        tally t = hold_gates(&gate, 1, MOST, &random);
        double most = GATES * PJ_LEVEL * (PJ_SANITIZED ? 2 : 1);
        if (t.over > most || t.within > most)
            fail_msg("kind %d: over %d, within %d of %d", kind, t.over, t.within, GATES);
        assert_true(t.undecided > GATES * 4 / 5);
    }
}

/* A stored baseline of few runs and little spread. */
static void a_quieter_baseline_keeps_the_error(void **state)
{
    pj_random random = {17};
    pj_cost_gate gate = {.kind = PJ_GATE_STORED, .limit = 1, .most = MOST, .stored = 4};
    pj_cost_gate_plan(&gate, PJ_LEVEL);
    baseline_spread = 0.005;
    tally t = hold_gates(&gate, 1, MOST, &random);
    baseline_spread = spread;
    double most = GATES * PJ_LEVEL * (PJ_SANITIZED ? 2 : 1);
    if (t.over > most || t.within > most)
        fail_msg("over %d, within %d of %d", t.over, t.within, GATES);
}

/* With the usual limit, equal programs are never called costlier, and 5 % more is found within the
 * number of runs that is stated beforehand. */
static void a_planted_change_is_found_in_time(void **state)
{
    for (int kind = PJ_GATE_PAIRS; kind <= PJ_GATE_FIXED; kind++) {
        pj_random random = {(uint64_t)(31 + kind)};
        pj_cost_gate gate = planned((pj_gate_kind)kind, 1.03);
        uint32_t worse = pj_cost_gate_needed(&gate, spread, 1.05 / 1.03);
        uint32_t equal = pj_cost_gate_needed(&gate, spread, 1 / 1.03);
        assert_in_range(worse, PJ_GATE_FIRST + 1, MOST);
        assert_in_range(equal, PJ_GATE_FIRST + 1, worse - 1);
        tally t = hold_gates(&gate, 1.05, worse, &random);
        if (t.late > GATES / 20 || t.within > GATES / 200)
            fail_msg("kind %d: %d of %d late after %u, %d wrong", kind, t.late, GATES, worse,
                     t.within);
        t = hold_gates(&gate, 1, equal, &random);
        if (t.late > GATES / 20 || t.over > GATES / 200)
            fail_msg("kind %d: %d of %d late after %u, %d wrong", kind, t.late, GATES, equal,
                     t.over);
    }
}

/* What a gate says itself, of a spread that it has seen in a few runs only: 5 % more is found
 * within the number that was said last. Where the spread is small enough for one, most are told. */
static void the_number_that_is_said_suffices(void **state)
{
    pj_random random = {51};
    pj_cost_gate gate = planned(PJ_GATE_PAIRS, 1.03);
    int told = 0, late = 0;
    for (int i = 0; i < TOLD; i++) {
        double a[MOST], b[MOST];
        pj_gate_outcome outcome = PJ_GATE_UNDECIDED;
        uint32_t n = 0, said = 0;
        while (outcome == PJ_GATE_UNDECIDED && n < gate.most) {
            a[n] = exp(0.01 * pj_random_normal(&random));
            b[n] = 1.05 * exp(0.01 * pj_random_normal(&random));
            outcome = pj_cost_gate_judge(&gate, a, b, ++n);
            if (outcome != PJ_GATE_UNDECIDED || n < PJ_GATE_FIRST || (n & (n - 1))) continue;
            double seen = pj_cost_gate_look(&gate, a, b, n).spread;
            said = pj_cost_gate_needed(&gate, pj_cost_spread_at_most(seen, n - 1.0), 1.05 / 1.03);
        }
        told += said > 0;
        late += said && (outcome != PJ_GATE_OVER || n > said);
    }
    if (told < TOLD * 3 / 4 || late > TOLD / 20)
        fail_msg("%d of %d told, %d late", told, TOLD, late);
}

static void spreads_are_bounded_as_in_tables(void **state)
{
    /* 5 % quantiles of chi-square with 3, 10 and 40 degrees of freedom */
    static const double freedom[] = {3, 10, 40}, quantile[] = {0.3518, 3.940, 26.509};
    for (int i = 0; i < 3; i++)
        assert_near(pj_cost_spread_at_most(1, freedom[i]) / sqrt(freedom[i] / quantile[i]), 1,
                    0.04);
}

static void figures_agree_with_the_outcome(void **state)
{
    static const double a[] = {1, 1.01, 0.99, 1.02, 1, 0.98},
                        b[] = {1.5, 1.52, 1.49, 1.5, 1.51, 1.48};
    static const double same[] = {2, 2, 2, 2, 2, 2};
    pj_cost_gate gate = {.kind = PJ_GATE_PAIRS, .limit = 1.03, .most = 6};
    pj_cost_gate_plan(&gate, PJ_LEVEL);
    pj_cost_look look = pj_cost_gate_look(&gate, a, b, 6);
    assert_int_equal(look.outcome, PJ_GATE_OVER);
    assert_true(look.lo > 1.03 && look.lo < look.ratio && look.ratio < look.hi);
    look = pj_cost_gate_look(&gate, a, b, 2); /* too few */
    assert_int_equal(look.outcome, PJ_GATE_UNDECIDED);
    assert_true(isnan(look.lo));
    look = pj_cost_gate_look(&gate, same, same, 4); /* no spread at all: exact */
    assert_int_equal(look.outcome, PJ_GATE_WITHIN);
    assert_true(look.lo == 1 && look.hi == 1);
    assert_int_equal(pj_cost_gate_needed(&gate, 0.02, 1), 0); /* nothing to tell apart */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_the_published_ones),
        cmocka_unit_test(looking_often_keeps_the_error),
        cmocka_unit_test(a_quieter_baseline_keeps_the_error),
        cmocka_unit_test(a_planted_change_is_found_in_time),
        cmocka_unit_test(the_number_that_is_said_suffices),
        cmocka_unit_test(spreads_are_bounded_as_in_tables),
        cmocka_unit_test(figures_agree_with_the_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
