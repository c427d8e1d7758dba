/* Two-sample tests: published values, false positives; and detection of outliers. */
#include "../assertions.h"
#include "analysis/anomalies.h"
#include "analysis/compare.h"
#include "analysis/cost.h"
#include "base/random.h"
#include "trace/summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void student_matches_tables(void **state)
{
    assert_near(pj_student_quantile(0.975, 1), 12.7062047, 1e-6);
    assert_near(pj_student_quantile(0.975, 10), 2.22813885, 1e-7);
    assert_near(pj_student_quantile(0.975, 1e6), 1.95996636, 1e-5);
    assert_near(pj_student_two_sided(2.0, 5), 0.10193948, 1e-7);
    assert_near(pj_student_two_sided(0, 5), 1, 1e-12);
    assert_that(pj_student_two_sided(40, 100), <, 1e-60);
}

/* By hand: means 3 and 5, variances 2.5 and 10, so t = 2 / sqrt(2.5). */
static void welch_follows_its_formula(void **state)
{
    const double a[] = {1, 2, 3, 4, 5}, b[] = {1, 3, 5, 7, 9, NAN};
    double work[11];
    pj_comparison c;
    pj_compare(a, 5, b, 6, work, &c);
    assert_int_equal(c.n_b, 5);
    assert_near(c.difference, 2, 1e-12);
    assert_near(c.welch_t, 2 / sqrt(2.5), 1e-12);
    assert_near(c.welch_df, 6.25 / (0.0625 + 1), 1e-12);
    assert_near(c.hedges_g, 2 / 2.5 * (1 - 3.0 / 31), 1e-12);
}

static void ranks_count_ties_and_order(void **state)
{
    const double low[] = {1, 2, 3, 4}, high[] = {5, 6, 7, 8};
    double work[8];
    pj_comparison c;
    pj_compare(low, 4, high, 4, work, &c);
    assert_near(c.mann_whitney_u, 0, 0);
    assert_near(c.rank_biserial, 1, 1e-12);
    assert_near(c.mann_whitney_p, 0.0303828, 1e-6); /* z = 7.5 / sqrt(12) */
    pj_compare(low, 4, low, 4, work, &c);
    assert_near(c.mann_whitney_u, 8, 0);
    assert_near(c.rank_biserial, 0, 1e-12);
}

static void too_few_values_say_nothing(void **state)
{
    const double one[] = {3}, same[] = {2, 2, 2};
    double work[8];
    pj_comparison c;
    pj_compare(one, 1, same, 3, work, &c);
    assert_true(isnan(c.welch_p));
    assert_true(isnan(c.mann_whitney_p));
    assert_that(c.difference, ==, -1);
    pj_compare(same, 3, same, 3, work, &c);
    assert_true(isnan(c.welch_p) && isnan(c.mann_whitney_p));
}

/* False positives: of 2000 pairs from one distribution, 3 to 7 % may be called different at the 5 %
 * level. */
static void alike_is_seldom_called_different(void **state)
{
    enum { PAIRS = 2000, N = 12 };
    pj_random random = {11};
    int welch = 0, ranks = 0;
    for (int i = 0; i < PAIRS; i++) {
        double a[N], b[N], work[2 * N];
        pj_comparison c;
        for (int k = 0; k < N; k++) {
            a[k] = pj_random_normal(&random);
            b[k] = pj_random_normal(&random);
        }
        pj_compare(a, N, b, N, work, &c);
        welch += c.welch_p < 0.05;
        ranks += c.mann_whitney_p < 0.05;
    }
    assert_in_range(welch, PAIRS * 3 / 100, PAIRS * 7 / 100);
    assert_in_range(ranks, PAIRS * 3 / 100, PAIRS * 7 / 100);
}

static void holm_steps_down(void **state)
{
    const double p[] = {0.04, 0.01, NAN, 0.03, 0.01};
    double q[5];
    pj_holm(p, 5, q);
    assert_near(q[1], 0.04, 1e-12);
    assert_near(q[4], 0.04, 1e-12);
    assert_near(q[3], 0.06, 1e-12);
    assert_near(q[0], 0.06, 1e-12); /* monotonic */
    assert_true(isnan(q[2]));
}

static void outliers_stand_out(void **state)
{
    double values[40], work[40];
    pj_anomaly found[3];
    pj_random random = {5};
    for (int i = 0; i < 40; i++) values[i] = 100 + pj_random_normal(&random);
    assert_int_equal(pj_anomalies_find(values, 40, 5, 0, work, found, 3), 0);
    values[7] = 150;
    values[9] = NAN;
    values[20] = 20;
    assert_int_equal(pj_anomalies_find(values, 40, 5, 0, work, found, 3), 2);
    assert_int_equal(found[0].index, 20);
    assert_that(found[0].score, <, -40);
    assert_int_equal(found[1].index, 7);
    assert_int_equal(pj_anomalies_find(values, 5, 5, 0, work, found, 3), 0);
    values[21] = values[22] = 500;
    assert_int_equal(pj_anomalies_find(values, 40, 5, 0, work, found, 3), 3);
    assert_that(fabs(found[0].score), >=, fabs(found[1].score));
}

/* Rounding noise on a flat rail is no anomaly; a real anomaly on it is still found. */
static void flat_lines_have_none(void **state)
{
    double values[200], work[200];
    pj_anomaly found[20];
    for (int i = 0; i < 200; i++) values[i] = 49200 + (i % 50 ? 0 : 1e-9);
    assert_int_equal(pj_anomalies_find(values, 200, 5, 0, work, found, 20), 0);
    values[60] = 49200 + 100;
    assert_int_equal(pj_anomalies_find(values, 200, 5, 0, work, found, 20), 0);
    values[61] = 16.5 / 1.24 * 49200;
    assert_int_equal(pj_anomalies_find(values, 200, 5, 0, work, found, 20), 1);
    assert_int_equal(found[0].index, 61);
    assert_int_equal(pj_anomalies_find(values, 200, 5, 1e6, work, found, 20), 0);
}

/* Recall and precision of planted outliers are at least 90 %. */
static void planted_outliers_are_found(void **state)
{
    enum { N = 1000, PLANTED = 12 };
    double values[N], work[N];
    pj_anomaly found[40];
    pj_random random = {15};
    int hits = 0, reported = 0;
    for (int run = 0; run < 20; run++) {
        for (int i = 0; i < N; i++) values[i] = 1240 * (1 + 0.03 * pj_random_normal(&random));
        for (int k = 0; k < PLANTED; k++) values[k * 80 + 7] *= k % 2 ? 1.5 : 0.6;
        size_t n = pj_anomalies_find(values, N, 5, 0, work, found, 40);
        reported += (int)n;
        for (size_t i = 0; i < n; i++) hits += found[i].index % 80 == 7 && found[i].index < 960;
    }
    assert_that(hits, >=, 0.9 * 20 * PLANTED);
    assert_that(hits, >=, 0.9 * reported);
}

static void prices_are_per_kilowatt_hour(void **state)
{
    const pj_cost_rates rates = PJ_COST_RATES_DEFAULT;
    assert_near(pj_cost_usd(3.6e9, &rates), 0.12, 1e-15);
    assert_near(pj_cost_usd(1e6, &rates), 3.3333333e-5, 1e-11);
    assert_near(pj_co2_grams(3.6e9, &rates), 400, 1e-10);
    assert_near(pj_cost_region_g_per_kwh("California"), 200, 0);
    assert_near(pj_cost_region_g_per_kwh("EU"), 300, 0);
    assert_near(pj_cost_region_g_per_kwh("fr"), 56, 0);
    assert_true(isnan(pj_cost_region_g_per_kwh("atlantis")));
}

/* Of three values from a skewed distribution Student's interval would begin below zero. */
static void intervals_of_positive_figures_are_positive(void **state)
{
    pj_moments m = {0};
    pj_mean none = pj_mean_of(&m, false);
    assert_true(isnan(none.value) && isnan(none.sd) && isnan(none.lo));
    pj_moments_add(&m, 2);
    pj_mean one = pj_mean_of(&m, false);
    assert_near(one.value, 2, 0);
    assert_true(one.n == 1 && isnan(one.sd) && isnan(one.lo) && isnan(one.hi));
    pj_moments_add(&m, 5);
    pj_moments_add(&m, 40);
    pj_mean mean = pj_mean_of(&m, false), net = pj_mean_of(&m, true);
    double half = pj_student_quantile(0.975, 2) * net.sd / sqrt(3);
    assert_near(net.lo, net.value - half, 1e-9);
    assert_that(net.lo, <, 0);
    assert_that(mean.lo, >, 0);
    assert_near(mean.lo * mean.hi, mean.value * mean.value, 1e-9);
    assert_near(sinh(log(mean.hi / mean.value)), half / mean.value, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(student_matches_tables),
        cmocka_unit_test(welch_follows_its_formula),
        cmocka_unit_test(ranks_count_ties_and_order),
        cmocka_unit_test(too_few_values_say_nothing),
        cmocka_unit_test(alike_is_seldom_called_different),
        cmocka_unit_test(holm_steps_down),
        cmocka_unit_test(outliers_stand_out),
        cmocka_unit_test(flat_lines_have_none),
        cmocka_unit_test(planted_outliers_are_found),
        cmocka_unit_test(prices_are_per_kilowatt_hour),
        cmocka_unit_test(intervals_of_positive_figures_are_positive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
