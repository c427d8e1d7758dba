/* Anomalous tokens: planted ones are found with their cause, flat rails have none, and the sensor's
 * resolution is a lower bound of the threshold. */
#include "../assertions.h"
#include "analysis/forest.h"
#include "base/random.h"
#include "bench/planted_tokens.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RUNS = 40 };

static void planted_anomalies_are_found(void **state)
{
    static pj_planted_tokens tokens;
    pj_random r = {11};
    pj_planted_score score = {0};
    for (int run = 0; run < RUNS; run++) {
        pj_planted_tokens_make(&tokens, &r, true);
        pj_planted_tokens_judge(&tokens, &score);
    }
    double recall = score.right / (RUNS * PJ_PLANTED_ANOMALIES);
    double precision = score.right / score.reported, caused = score.caused / score.right;
    print_message("recall %.3f, precision %.3f, cause right %.3f\n", recall, precision, caused);
    assert_that(recall, >=, 0.9);
    assert_that(precision, >=, 0.9);
    assert_that(caused, >=, 0.9);
}

static void flat_rails_have_none(void **state)
{
    static pj_planted_tokens tokens;
    pj_random r = {5};
    pj_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    pj_token_figures f;
    pj_planted_tokens_flat(&tokens, &r, 0);
    f = pj_planted_tokens_figures(&tokens);
    assert_int_equal(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX), 0);
    /* Quantisation steps of the sensor count as noise. */
    pj_planted_tokens_flat(&tokens, &r, 90);
    assert_that(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX), >, 0);
    f.resolution_mj = 90;
    assert_int_equal(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX), 0);
}

static void ordinary_runs_have_few(void **state)
{
    static pj_planted_tokens tokens;
    pj_random r = {17};
    pj_planted_score score = {0};
    for (int run = 0; run < RUNS; run++) {
        pj_planted_tokens_make(&tokens, &r, false);
        pj_planted_tokens_judge(&tokens, &score);
    }
    print_message("%.0f in %d tokens without anomalies\n", score.reported,
                  RUNS * PJ_PLANTED_TOKENS);
    assert_that(score.reported, <=, RUNS * PJ_PLANTED_TOKENS / 2000);
}

/* A token of an otherwise exact run: 100 mJ each within 0.1 %. Returns how many are told. */
static size_t told_of_one(size_t at, double mj, double sd_mj)
{
    enum { COUNT = 60 };
    double energy[COUNT], sd[COUNT];
    pj_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    pj_random r = {23};
    for (size_t i = 0; i < COUNT; i++) {
        energy[i] = 100 + 0.1 * pj_random_normal(&r);
        sd[i] = sd_mj;
    }
    energy[at] = mj;
    pj_token_figures f = {.count = COUNT, .energy_mj = energy, .energy_sd_mj = sd};
    return pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX);
}

/* However many robust deviations away it is. */
static void small_uncertain_and_outer_deviations_are_none(void **state)
{
    (void)state;
    assert_int_equal(told_of_one(30, 125, 1), 1);
    assert_int_equal(told_of_one(30, 118, 1), 0);  /* below a fifth */
    assert_int_equal(told_of_one(30, 75, 1), 1);   /* of energy that was not used, too */
    assert_int_equal(told_of_one(30, 125, 20), 0); /* within the token's own interval */
    assert_int_equal(told_of_one(0, 125, 1), 0);   /* the first and the last of a phase */
    assert_int_equal(told_of_one(59, 125, 1), 0);
}

/* A multivariate outlier: each value is ordinary, their combination is not. */
static void the_forest_sees_combinations(void **state)
{
    enum { ROWS = 300 };
    static double rows[2 * ROWS];
    pj_random r = {3};
    for (int i = 0; i < ROWS; i++) {
        double x = pj_random_normal(&r);
        rows[2 * i] = x;
        rows[2 * i + 1] = x + 0.05 * pj_random_normal(&r);
    }
    rows[2 * 150] = 2.2;
    rows[2 * 150 + 1] = -2.2;
    pj_forest *forest = pj_forest_grow(rows, ROWS, 2, 42),
              *same = pj_forest_grow(rows, ROWS, 2, 42);
    double usual[2] = {0, 0}, score = pj_forest_score(forest, rows + 300);
    assert_that(pj_forest_score(forest, usual), <, 0.5);
    assert_that(score, >, 0.6);
    assert_float_equal(score, pj_forest_score(same, rows + 300), 0);
    assert_null(pj_forest_grow(rows, 7, 2, 1));
    pj_forest_free(forest);
    pj_forest_free(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_anomalies_are_found),
        cmocka_unit_test(flat_rails_have_none),
        cmocka_unit_test(ordinary_runs_have_few),
        cmocka_unit_test(small_uncertain_and_outer_deviations_are_none),
        cmocka_unit_test(the_forest_sees_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
