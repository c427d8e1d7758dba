/* Ratios, their decomposition and the verdict sentence, with planted differences and without. */
#include "../assertions.h"
#include "../sanitized.h"
#include "analysis/decompose.h"
#include "analysis/ratio.h"
#include "analysis/verdict.h"
#include "base/random.h"
#include "bench/planted_sides.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Joules per token of a run: a level, variation between runs, and occasional outliers. */
static double draw(pj_random *random, double level, double cv, double disturbed)
{
    double value = level * exp(cv * pj_random_normal(random));
    return pj_random_unit(random) < disturbed ? value * (1 + 2 * pj_random_unit(random)) : value;
}

static bool differ(pj_random *random, size_t n, double factor, double cv, double disturbed)
{
    double a[32], b[32];
    for (size_t i = 0; i < n; i++) {
        a[i] = draw(random, 0.2, cv, disturbed);
        b[i] = draw(random, 0.2 * factor, cv, disturbed);
    }
    return pj_verdict_is_different(a, b, n);
}

/* Type I error: of PAIRS without a difference, at most 5 % (plus sampling error) are called
 * different. */
static void alike_is_seldom_called_different(void **state)
{
    static const size_t sizes[] = {2, 3, 4, 5, 6, 10};
    enum { PAIRS = PJ_SANITIZED ? 100 : 1000, MOST = PJ_SANITIZED ? 11 : 65 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int disturbed = 0; disturbed < 2; disturbed++) {
            pj_random random = {40 + k};
            int different = 0;
            for (int i = 0; i < PAIRS; i++)
                different += differ(&random, sizes[k], 1, 0.02, disturbed ? 0.1 : 0);
            if (different > MOST) fail_msg("%d of %d at %zu a side", different, PAIRS, sizes[k]);
        }
}

/* A difference of 3 % with 10 repeats is detected as often as the stated statistical power. */
static void a_planted_difference_is_found(void **state)
{
    pj_random random = {7};
    double cv = 0.0223; /* 10 repeats per side detect 3 % with 80 % power */
    assert_near(pj_detectable(cv, 10, 10, 1), 0.03, 5e-4);
    assert_near(pj_repeats_for(cv, 0.0302, 1), 10, 1);
    int found = 0;
    for (int i = 0; i < 1000; i++) found += differ(&random, 10, 1.03, cv, 0);
    assert_in_range(found, 765, 840);
    found = 0;
    for (int i = 0; i < 1000; i++) found += differ(&random, 10, 1.03, 0.01, 0);
    assert_in_range(found, 990, 1000);
}

/* Comparisons of several sides of several runs, with a spread of 2 %: without a difference, with
 * one of 10 % and 50 % of the second side, and with the one that is stated to be found in 80 %. */
static void several_sides_are_judged_together(void **state)
{
    static const size_t sides[] = {2, 3, 4, 6, 7}, runs[] = {3, 4, 5, 8, 20};
    pj_random random = {26};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
            pj_planted_sides plan = {sides[i], runs[k], 1, 0.02};
            double alike = pj_planted_sides_try(&plan, 400, &random).any;
            plan.factor = 1.1;
            double tenth = pj_planted_sides_try(&plan, 100, &random).planted;
            plan.factor = 1.5;
            double half = pj_planted_sides_try(&plan, 100, &random).planted;
            size_t pairs = pj_planted_sides_pairs(plan.sides);
            plan.factor = 1 + pj_detectable(plan.spread, plan.runs, plan.runs, pairs);
            double stated = pj_planted_sides_try(&plan, 200, &random).planted;
            bool right = alike <= 0.08 && (runs[k] < 4 || tenth >= 0.75) && half >= 0.985 &&
                         stated >= 0.7 && stated <= 0.9;
            if (!right)
                fail_msg("%zu sides of %zu runs: %.3f alike, %.3f and %.3f found, %.3f for 0.8",
                         sides[i], runs[k], alike, tenth, half, stated);
        }
}

/* Six sides of four runs, one of which needs half more: found against each of the others. */
static void a_large_difference_is_found_among_many(void **state)
{
    double values[6][4];
    pj_contrast pairs[15];
    size_t n = 0;
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 4; k++) values[i][k] = (i == 2 ? 1.5 : 1) * (1 + 0.01 * (double)k);
    for (size_t a = 0; a < 6; a++)
        for (size_t b = a + 1; b < 6; b++)
            pairs[n++] = (pj_contrast){values[a], values[b], 4, 4, .refused = a == 4};
    pj_contrasts_judge(pairs, n);
    n = 0;
    for (size_t a = 0; a < 6; a++)
        for (size_t b = a + 1; b < 6; b++, n++) {
            assert_int_equal(pairs[n].different, a == 2 || b == 2);
            assert_int_equal(isnan(pairs[n].p), a == 4);
            assert_int_equal(pairs[n].ratio.pairs, 14);
            assert_string_equal(pairs[n].ratio.method, a == 4 ? "none" : "welch_log");
            assert_true(isnan(pairs[n].ratio.permutation_p));
        }
}

static void intervals_hold_the_truth(void **state)
{
    pj_random random = {9};
    int held = 0;
    for (int i = 0; i < 1000; i++) {
        double a[8], b[12];
        pj_ratio r;
        for (int k = 0; k < 8; k++) a[k] = draw(&random, 1, 0.05, 0);
        for (int k = 0; k < 12; k++) b[k] = draw(&random, 1.4, 0.08, 0);
        pj_ratio_compare(a, 8, b, 12, 0, &r);
        held += r.lo <= 1.4 && r.hi >= 1.4;
    }
    assert_in_range(held, 930, 970);
}

/* 1 + 1/20: of 20 ways to choose 3 of 6, two are as far as the observed one. */
/* Blocks that drift by 8 % and pairs that differ by 1 % within them: Type I error and power belong
 * to the latter. */
static void blocks_cancel_in_pairs(void **state)
{
    enum { N = 5, TRIES = 1000 };
    static const uint32_t numbers[N] = {0, 1, 2, 3, 4};
    pj_random random = {17};
    int held = 0, alike = 0, found = 0, unpaired = 0;
    for (int i = 0; i < 2 * TRIES; i++) {
        double a[N], b[N], factor = i < TRIES ? 1 : 1.04;
        pj_ratio paired, apart;
        for (size_t k = 0; k < N; k++) {
            double block = draw(&random, 0.2, 0.08, 0);
            a[k] = draw(&random, block, 0.01, 0);
            b[k] = draw(&random, block * factor, 0.01, 0);
        }
        pj_ratio_paired(&(pj_blocked){a, numbers, N}, &(pj_blocked){b, numbers, N}, &paired);
        pj_ratio_compare(a, N, b, N, 0, &apart);
        assert_near(paired.ratio, apart.ratio, 1e-12);
        held += paired.lo <= factor && factor <= paired.hi;
        *(i < TRIES ? &alike : &found) += paired.p < PJ_LEVEL;
        unpaired += i >= TRIES && apart.p < PJ_LEVEL;
        if (i == 0) assert_string_equal(paired.method, "paired_log");
    }
    assert_in_range(held, 2 * 935, 2 * 965);
    assert_in_range(alike, 35, 65);
    assert_in_range(found, 970, TRIES);
    assert_in_range(unpaired, 0, 200);
}

/* Blocks that only one side has, or in which an energy is missing, are left out. */
static void pairs_are_of_one_block(void **state)
{
    static const double a[] = {1, 3, NAN, 2, 7, 4}, b[] = {5, 2, 0, 3, 8, 9};
    static const uint32_t block_a[] = {0, 1, 2, 3, 4, 6};
    static const uint32_t block_b[] = {0, 2, 3, 5, 6, 7};
    pj_blocked x = {a, block_a, 6}, y = {b, block_b, 6};
    pj_ratio r;
    pj_ratio_paired(&x, &y, &r);
    assert_int_equal(r.n_a, 2); /* blocks 0 and 6 */
    assert_near(r.ratio, sqrt(5. / 1 * 8 / 4), 1e-12);
    x.count = y.count = 1;
    pj_ratio_paired(&x, &y, &r);
    assert_near(r.ratio, 5, 1e-12);
    assert_true(isnan(r.lo) && isnan(r.p));
    x.count = 0;
    pj_ratio_paired(&x, &y, &r);
    assert_true(isnan(r.ratio));
}

static void permutations_are_counted(void **state)
{
    const double low[] = {1, 2, 3}, high[] = {4, 5, 6}, four[] = {7, 8, 9, 10};
    assert_near(pj_permutation_p(low, 3, high, 3), 0.1, 1e-12);
    assert_near(pj_permutation_least(3, 3), 0.1, 1e-12);
    assert_near(pj_permutation_least(4, 4), 2.0 / 70, 1e-12);
    assert_near(pj_permutation_p(low, 3, four, 4), 1.0 / 35, 1e-12);
    assert_near(pj_permutation_p(low, 3, low, 3), 1, 1e-12);
    assert_true(isnan(pj_permutation_p(low, 0, high, 3)));
    double many_a[40], many_b[40];
    for (int i = 0; i < 40; i++) many_a[i] = i, many_b[i] = i + 30;
    double p = pj_permutation_p(many_a, 40, many_b, 40); /* random permutations */
    assert_that(p, >, 0);
    assert_that(p, <, 1e-3);
}

/* The permutation test decides for small groups where it can find something after correction. */
static void small_groups_are_permuted(void **state)
{
    const double a[] = {1, 1.01, 1.02, 1.03}, b[] = {1.1, 1.11, 1.12, 1.13};
    pj_contrast pairs[2] = {{a, b, 4, 4}, {a, b, 4, 4}};
    pj_ratio *r = &pairs[0].ratio;
    pj_contrasts_judge(pairs, 1);
    assert_string_equal(r->method, "permutation");
    assert_near(r->p, 2.0 / 70, 1e-12);
    assert_true(pairs[0].different);
    pj_contrasts_judge(pairs, 2); /* 4 / 70 is above the level */
    assert_string_equal(r->method, "welch_log");
    assert_true(isnan(r->permutation_p));
    assert_near(pairs[0].p, 2 * r->p, 1e-12);
    assert_true(pairs[0].different);
    pairs[0].n_a = pairs[0].n_b = 3;
    pj_contrasts_judge(pairs, 1);
    assert_string_equal(r->method, "welch_log");
    assert_that(r->p, <, 0.05);
    pairs[0] = (pj_contrast){a, b, 4, 4, .gain_sd = 0.01};
    pj_contrasts_judge(pairs, 1);
    assert_string_equal(r->method, "welch_log");
    pairs[0] = (pj_contrast){a, b, 1, 4};
    pj_contrasts_judge(pairs, 1);
    assert_string_equal(r->method, "none");
    assert_true(isnan(r->p) && isnan(pairs[0].p) && !pairs[0].different);
    assert_true(isnan(r->lo));
    assert_that(r->ratio, >, 1);
}

/* Two devices: the difference between two tight groups is within the sensors' calibration error. */
static void gain_counts_between_devices(void **state)
{
    const double a[] = {1, 1.001, 1.002, 0.999, 1, 1}, b[] = {1.05, 1.051, 1.049, 1.05, 1.05, 1.05};
    pj_ratio one, two;
    pj_ratio_compare(a, 6, b, 6, 0, &one);
    pj_ratio_compare(a, 6, b, 6, 0.08, &two);
    assert_that(one.p, <, 1e-6);
    assert_that(one.hi - one.lo, <, 0.01);
    assert_that(two.p, >, 0.3);
    assert_that(two.lo, <, 0.91);
    assert_that(two.hi, >, 1.2);
}

static void equal_values_differ_by_what_they_are(void **state)
{
    const double a[] = {2, 2, 2}, b[] = {3, 3, 3};
    pj_ratio r;
    pj_ratio_compare(a, 3, b, 3, 0, &r);
    assert_near(r.ratio, 1.5, 1e-12);
    assert_near(r.p, 0, 0);
    pj_ratio_compare(a, 3, a, 3, 0, &r);
    assert_near(r.p, 1, 0);
}

static void false_discoveries_are_bounded(void **state)
{
    const double p[] = {0.01, NAN, 0.02, 0.03, 0.5};
    double q[5];
    pj_benjamini_hochberg(p, 5, q);
    assert_near(q[0], 0.04, 1e-12);
    assert_near(q[2], 0.04, 1e-12);
    assert_near(q[3], 0.04, 1e-12);
    assert_near(q[4], 0.5, 1e-12);
    assert_true(isnan(q[1]));
}

/* ---- decomposition -------------------------------------------------------------------------- */

static void terms_add_up_to_the_difference(void **state)
{
    pj_random random = {3};
    pj_term terms[41];
    double difference = 0.7, sum = 0, first = INFINITY; /* 0.7: the residual */
    for (int i = 0; i < 40; i++) {
        terms[i] = (pj_term){.phase = "decode", .name = "x"};
        if (i % 7) terms[i].ms_a = pj_random_unit(&random), terms[i].mj_a = pj_random_unit(&random);
        if (i % 5) terms[i].ms_b = pj_random_unit(&random), terms[i].mj_b = pj_random_unit(&random);
        difference += terms[i].mj_b - terms[i].mj_a;
    }
    size_t n = pj_decompose(terms, 40, difference, 12);
    assert_int_equal(n, 13);
    for (size_t i = 0; i < n; i++) {
        sum += terms[i].difference;
        assert_near(terms[i].by_time + terms[i].by_power, terms[i].difference, 1e-12);
        if (i + 1 == n) break;
        assert_that(fabs(terms[i].difference), <=, first);
        first = fabs(terms[i].difference);
    }
    assert_near(sum, difference, 1e-12);
    assert_string_equal(terms[n - 1].name, "other");
}

/* Twice the time at the same power is time; the same time at twice the power is power. */
static void time_and_power_are_told_apart(void **state)
{
    pj_term terms[3] = {{"decode", "slow", 1, 2, 10, 20, 0, 0, 0, 0},
                        {"decode", "hot", 1, 1, 10, 25, 0, 0, 0, 0}};
    pj_decompose(terms, 2, 25, 8);
    assert_string_equal(terms[0].name, "hot");
    assert_near(terms[0].by_time, 0, 1e-12);
    assert_near(terms[0].by_power, 15, 1e-12);
    assert_near(terms[1].by_time, 10, 1e-12);
    assert_near(terms[1].by_power, 0, 1e-12);
    assert_near(terms[2].difference, 0, 1e-12);
}

/* ---- the sentence --------------------------------------------------------------------------- */

static void sentences_say_what_is_known(void **state)
{
    char text[600];
    pj_judgement j;
    pj_verdict_facts f = {
        .name_a = "bf16",
        .name_b = "q8_0",
        .mann_whitney_p = NAN,
        .speed_ratio = 1.5,
        .speed_differs = true,
        .pair = {
            .ratio =
                {.n_a = 8, .n_b = 8, .pairs = 1, .ratio = 0.7, .lo = 0.66, .hi = 0.74, .cv = 0.03},
            .different = true}};
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_int_equal(j.outcome, PJ_OUTCOME_DIFFERENT);
    assert_string_equal(text, "q8_0 needs 0.70 ± 0.04 times the energy of bf16 per token. "
                              "q8_0 is 1.5 times as fast as bf16.");
    f.pair.different = false;
    f.speed_differs = false;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_int_equal(j.outcome, PJ_OUTCOME_INDISTINGUISHABLE);
    assert_non_null(strstr(text, "differences above 4.6 % would have been detected; 30 more "
                                 "runs per side would detect 2 %."));
    f.pair.ratio.cv = 3;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_non_null(strstr(text, "per token: not even ten times as much would have been detected"));
    f.pair.ratio.cv = 0.03;
    f.pair.gain_sd = 0.02; /* of two devices: 5.8 % remain, whatever the number of runs */
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_near(j.detectable, expm1(hypot(log1p(0.0456), 0.056)), 1e-3);
    assert_true(isnan(j.more_runs));
    assert_non_null(strstr(text, "differences above 7.5 % would have been detected."));
    f.pair.gain_sd = 0;
    f.refusal = "one is measured and the other modelled.";
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_int_equal(j.outcome, PJ_OUTCOME_REFUSED);
    f.refusal = NULL;
    f.pair.ratio.n_a = f.pair.ratio.n_b = 1;
    f.single_lo = f.single_hi = NAN;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_int_equal(j.outcome, PJ_OUTCOME_SINGLE);
    f.single_lo = 0.69998; /* any width is shown */
    f.single_hi = 0.70002;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_non_null(strstr(text, "needs 0.70000 ± 0.00002 times the energy"));
    f.single_hi = 0.71;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_non_null(strstr(text, "needs 0.700 ± 0.005 times the energy"));
    f.single_lo = f.single_hi = NAN;
    assert_non_null(strstr(text, "says nothing about future ones"));
    f.pair.ratio.ratio = NAN;
    pj_verdict_write(&f, &j, text, sizeof text);
    assert_int_equal(j.outcome, PJ_OUTCOME_NONE);
    assert_string_equal(text, "");
}

static const char *ties_text(const pj_tied_pair *ties, size_t count)
{
    static const char *const names[] = {"A", "B", "C", "D", "E"};
    static char text[600];
    pj_verdict_write_ties(ties, count, names, 5, text, sizeof text);
    return text;
}

static void ties_are_one_sentence(void **state)
{
    const pj_judgement j = {PJ_OUTCOME_INDISTINGUISHABLE, 0.031, 0.02, 7};
    const pj_judgement worst = {PJ_OUTCOME_INDISTINGUISHABLE, 0.044, 0.02, 11};
    pj_tied_pair all[10], star[] = {{0, 1, j}, {1, 2, j}, {1, 4, j}};
    size_t n = 0;
    for (uint32_t a = 0; a < 5; a++)
        for (uint32_t b = a + 1; b < 5; b++, n++) all[n] = (pj_tied_pair){a, b, n == 3 ? worst : j};
    assert_string_equal(ties_text(all, n),
                        "A, B, C, D and E are not distinguishable in energy per token: differences "
                        "above 4.4 % would have been detected; 11 more runs per side would detect "
                        "2 %.");
    assert_string_equal(ties_text(star, 3),
                        "B is not distinguishable in energy per token from A, C and E: differences "
                        "above 3.1 % would have been detected; 7 more runs per side would detect "
                        "2 %.");
    star[0] = (pj_tied_pair){0, 3, j};
    assert_non_null(strstr(ties_text(star, 3), "per token are A and D, B and C, B and E: diff"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_is_seldom_called_different),
        cmocka_unit_test(a_planted_difference_is_found),
        cmocka_unit_test(several_sides_are_judged_together),
        cmocka_unit_test(a_large_difference_is_found_among_many),
        cmocka_unit_test(intervals_hold_the_truth),
        cmocka_unit_test(blocks_cancel_in_pairs),
        cmocka_unit_test(pairs_are_of_one_block),
        cmocka_unit_test(permutations_are_counted),
        cmocka_unit_test(small_groups_are_permuted),
        cmocka_unit_test(gain_counts_between_devices),
        cmocka_unit_test(equal_values_differ_by_what_they_are),
        cmocka_unit_test(false_discoveries_are_bounded),
        cmocka_unit_test(terms_add_up_to_the_difference),
        cmocka_unit_test(time_and_power_are_told_apart),
        cmocka_unit_test(sentences_say_what_is_known),
        cmocka_unit_test(ties_are_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
