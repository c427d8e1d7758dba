/* The estimator against known truth: its accuracy with each kind of sensor, the coverage of its
 * intervals, and that shared energy adds up exactly. */
#include "../assertions.h"
#include "../sanitized.h"
#include "truth.h"

#include "base/banded.h"
#include "base/memory.h"
#include "base/random.h"
#include "energy/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct score {
    double errors[20000];
    size_t count;
    unsigned covered, judged;
} score;

/* Runs per sensor; under sanitizers too few to judge errors by. */
enum { USUAL_RUNS = PJ_SANITIZED ? 2 : 6 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p95(score *s)
{
    qsort(s->errors, s->count, sizeof(double), by_size);
    return s->errors[(size_t)((double)(s->count - 1) * 0.95)];
}

/* Fits one synthetic run and adds the errors of classes with at least 1 % of the energy. */
static void judge(score *s, uint64_t seed, const sensor *kind, double token_ms,
                  double calibrated_sd, double equal_power)
{
    truth t;
    size_t count;
    pj_fit fit;
    pj_error err;
    pj_class_prior prior[64];
    pj_random r = {seed + 99};
    truth_init(&t, seed, 200, token_ms);
    pj_window *windows = truth_windows(&t, kind, seed, &count);
    for (uint32_t c = 0; c < t.class_count; c++) {
        double sd = t.power_mw[c] * calibrated_sd;
        prior[c] = (pj_class_prior){t.power_mw[c] + sd * pj_random_normal(&r), sd};
    }
    pj_fit_input input = {.windows = windows,
                          .window_count = count,
                          .leaves = t.leaves,
                          .leaf_count = t.leaf_count,
                          .class_count = t.class_count,
                          .idle_mw = t.idle_mw,
                          .total_mj = truth_energy_mj(&t, t.begin_ns, t.end_ns),
                          .begin_ns = t.begin_ns,
                          .end_ns = t.end_ns,
                          .priors = calibrated_sd > 0 ? prior : NULL};
    assert_int_equal(pj_fit_run(&input, &fit, &err), PJ_OK);
    double net = 0, given = 0;
    for (uint32_t c = 0; c < t.class_count; c++) net += t.power_mw[c] * fit.time_ms[c];
    for (uint32_t c = 0; c < t.class_count; c++) {
        double true_energy = t.power_mw[c] * fit.time_ms[c];
        double power = equal_power > 0 ? fit.mean_mw : fit.power_mw[c];
        given += fit.power_mw[c] * fit.time_ms[c];
        if (true_energy < 0.01 * net) continue;
        double error = fabs(power - t.power_mw[c]);
        double sd = sqrt(fmax(fit.covariance[c * t.class_count + c], 0));
        s->errors[s->count++] = error / t.power_mw[c];
        s->judged++;
        s->covered += error <= 1.96 * sd + 1e-9 * t.power_mw[c];
    }
    assert_true(fabs(given / net - 1) < 1e-6 || fit.drift > 0);
    pj_fit_fini(&fit);
    pj_free(windows);
    truth_fini(&t);
}

typedef struct row {
    sensor sensor;
    double token_ms, calibrated_sd, limit; /* 95th percentile of the relative error */
} row;

static void errors_stay_below_the_table(void **state)
{
    static const row rows[] = {
        {{"counter 1 ms 61 uJ", 1, 0, 0, 0.061, true}, 50, 0, 0.0013},
        {{"counter 1 ms 61 uJ", 1, 0, 0, 0.061, true}, 10, 0, 0.015},
        {{"counter 1 ms, 1 % noise", 1, 0, 0.01, 0.061, true}, 50, 0, 0.021},
        {{"counter 1 ms, 1 % noise", 1, 0, 0.01, 0.061, true}, 10, 0, 0.128},
        {{"10 ms, 0.2 % noise", 10, 0, 0.002, 0, false}, 50, 0, 0.065},
        {{"10 ms, 0.2 % noise", 10, 0, 0.002, 0, false}, 10, 0, 0.25},
        {{"counter 100 ms 61 uJ", 100, 0, 0, 0.061, true}, 50, 0, 0.004},
        {{"counter 100 ms 61 uJ", 100, 0, 0, 0.061, true}, 10, 0, 0.033},
        {{"power 100 ms 0.1 %", 100, 0, 0.001, 0, false}, 50, 0, 0.32},
        {{"power 100 ms 1 %", 100, 0, 0.01, 0, false}, 50, 0, 0.66},
        {{"calibrated, 1 ms 1 %", 1, 0, 0.01, 0, false}, 50, 0.0022, 0.005},
        {{"calibrated, 100 ms 1 %", 100, 0, 0.01, 0, false}, 50, 0.0022, 0.006},
        {{"calibrated, 100 ms 1 %", 100, 0, 0.01, 0, false}, 10, 0.0022, 0.006},
        {{"moving average of 1 s", 100, 1000, 0.001, 0, false}, 50, 0, 0.66},
    };
    static score s;
    const char *more = getenv("PJ_RUNS");
    unsigned runs = more ? (unsigned)atoi(more) : USUAL_RUNS;
    unsigned covered = 0, judged = 0;
    printf("%-26s %8s %8s %9s %9s\n", "sensor", "token ms", "p95", "limit", "coverage");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s = (score){0};
        for (unsigned k = 0; k < runs; k++)
            judge(&s, 1000 * i + k, &rows[i].sensor, rows[i].token_ms, rows[i].calibrated_sd, 0);
        double error = p95(&s);
        printf("%-26s %8.0f %7.2f%% %8.2f%% %8.1f%%\n", rows[i].sensor.name, rows[i].token_ms,
               100 * error, 100 * rows[i].limit, 100.0 * s.covered / s.judged);
        covered += s.covered;
        judged += s.judged;
        if (!more && !PJ_SANITIZED) assert_that(error, <=, rows[i].limit);
    }
    printf("coverage over all: %.1f %% of %u\n", 100.0 * covered / judged, judged);
    if (!PJ_SANITIZED) {
        assert_that(covered, >=, 0.92 * judged);
        assert_that(covered, <=, 0.98 * judged);
    }
}

/* Cumulative readings: rounding or a late read moves energy from one window to the next, so that
 * errors of neighbouring windows are negatively correlated. An estimator that assumes independence
 * has two to three times the error, and a coverage of 85 to 98 %. Counters with steps of 15.3 and
 * 61 uJ, some read up to
 * 0.5 ms late or early. */
static void errors_of_a_counters_readings_cancel(void **state)
{
    (void)state;
    static const row rows[] = {
        {{"61 uJ, 1 ms", 1, 0, 0, 0.061, true, 0}, 50, 0, 0.00012},
        {{"15.3 uJ, 1 ms", 1, 0, 0, 0.0153, true, 0}, 10, 0, 0.00028},
        {{"61 uJ, 1 ms, 1 % noise", 1, 0, 0.01, 0.061, true, 0}, 10, 0, 0.03},
        {{"61 uJ, 1 ms, 0.4 ms late", 1, 0, 0, 0.061, true, 0.4}, 10, 0, 0.35},
        {{"61 uJ, 100 ms", 100, 0, 0, 0.061, true, 0}, 50, 0, 0.0015},
        {{"61 uJ, 100 ms, 0.5 ms late", 100, 0, 0, 0.061, true, 0.5}, 50, 0, 0.4},
    };
    static score s;
    const char *more = getenv("PJ_RUNS");
    unsigned runs = more ? (unsigned)atoi(more) : USUAL_RUNS, covered = 0, judged = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s = (score){0};
        for (unsigned k = 0; k < runs; k++)
            judge(&s, 1000 * i + k + 7, &rows[i].sensor, rows[i].token_ms, 0, 0);
        double error = p95(&s);
        printf("%-26s %8.0f %7.3f%% %8.3f%% %8.1f%%\n", rows[i].sensor.name, rows[i].token_ms,
               100 * error, 100 * rows[i].limit, 100.0 * s.covered / s.judged);
        covered += s.covered;
        judged += s.judged;
        if (!more && !PJ_SANITIZED) assert_that(error, <=, rows[i].limit);
    }
    printf("coverage over all: %.1f %% of %u\n", 100.0 * covered / judged, judged);
    if (!PJ_SANITIZED) {
        assert_that(covered, >=, 0.92 * judged);
        assert_that(covered, <=, 0.98 * judged);
    }
}

static void the_common_factor_of_a_wrong_calibration_is_found(void **state)
{
    truth t;
    size_t count;
    pj_fit fit;
    pj_class_prior prior[64];
    sensor power = {"power", 100, 0, 0.01, 0, false};
    truth_init(&t, 5, 100, 50);
    pj_window *windows = truth_windows(&t, &power, 5, &count);
    for (uint32_t c = 0; c < t.class_count; c++)
        prior[c] = (pj_class_prior){t.power_mw[c] * 0.8, t.power_mw[c] * 0.005};
    double total = truth_energy_mj(&t, t.begin_ns, t.end_ns);
    pj_fit_input input = {windows, count, t.leaves,   t.leaf_count, t.class_count, t.idle_mw,
                          total,   0,     t.begin_ns, t.end_ns,     prior,         0};
    assert_int_equal(pj_fit_run(&input, &fit, NULL), PJ_OK);
    for (uint32_t c = 0; c < t.class_count; c++)
        assert_near(fit.power_mw[c] / t.power_mw[c], 1, 0.05);
    pj_fit_fini(&fit);
    pj_free(windows);
    truth_fini(&t);
}

/* Two classes of which one draws less than idle: its net power would be negative. */
static void negative_powers_are_truncated_and_said(void **state)
{
    pj_leaf leaves[200];
    pj_window windows[100];
    pj_fit fit;
    int64_t now = 0;
    for (int i = 0; i < 100; i++) {
        int64_t ms = 5 + i % 7;
        leaves[2 * i] = (pj_leaf){now, now + ms * 1000000, 0};
        leaves[2 * i + 1] = (pj_leaf){now + ms * 1000000, now + 20000000, 1};
        windows[i] = (pj_window){now, now + 20000000,
                                 30 * (double)ms - 8 * (double)(20 - ms) + 10 * 20, 0.01};
        now += 20000000;
    }
    double total = 0;
    for (int i = 0; i < 100; i++) total += windows[i].energy_mj;
    pj_fit_input input = {windows, 100, leaves, 200, 2, 10000, total, 0, 0, now, NULL, 0};
    assert_int_equal(pj_fit_run(&input, &fit, NULL), PJ_OK);
    assert_true(fit.truncated[1]);
    assert_false(fit.truncated[0]);
    assert_that(fit.power_mw[1], ==, 0);
    assert_that(fit.power_mw[0], >, 0);
    pj_fit_fini(&fit);
}

/* A short run of many classes, every second of negative power if `negative`; returns how many were
 * held at zero. */
static unsigned fit_classes(bool negative, pj_fit *fit)
{
    enum { CLASSES = 24, TURNS = 20, LEAVES = 5 /* of a window */ };
    pj_leaf leaves[CLASSES * TURNS];
    pj_window windows[CLASSES * TURNS / LEAVES];
    pj_random r = {7};
    int64_t now = 0;
    double mj = 0, total = 0;
    for (unsigned i = 0; i < CLASSES * TURNS; i++) {
        int64_t begin = now;
        double mw = (i % CLASSES) % 2 && negative ? -300 : 6000;
        now += (int64_t)(1e6 * (2 + 6 * pj_random_unit(&r)));
        leaves[i] = (pj_leaf){begin, now, i % CLASSES};
        mj += (mw + 4000) * 1e-9 * (double)(now - begin);
        if (i % LEAVES < LEAVES - 1) continue;
        windows[i / LEAVES] = (pj_window){leaves[i - LEAVES + 1].begin_ns, now,
                                          mj * (1 + 0.001 * pj_random_normal(&r))};
        total += windows[i / LEAVES].energy_mj;
        mj = 0;
    }
    pj_fit_input input = {.windows = windows,
                          .window_count = CLASSES * TURNS / LEAVES,
                          .leaves = leaves,
                          .leaf_count = CLASSES * TURNS,
                          .class_count = CLASSES,
                          .idle_mw = 4000,
                          .total_mj = total,
                          .end_ns = now,
                          .usual_noise = PJ_USUAL_POWER_NOISE};
    assert_int_equal(pj_fit_run(&input, fit, NULL), PJ_OK);
    unsigned held = 0;
    for (unsigned c = 0; c < CLASSES; c++) held += fit->truncated[c];
    return held;
}

/* The mixture over noise and drift is solved a few times, not once for each class held at zero. */
static void holding_many_classes_costs_little(void **state)
{
    pj_fit plain, fit;
    assert_int_equal(fit_classes(false, &plain), 0);
    unsigned held = fit_classes(true, &fit);
    printf("%u solutions, %u with %u classes held at 0\n", plain.solutions, fit.solutions, held);
    assert_that(held, >=, 8);
    assert_that(fit.solutions, <=, 4 * plain.solutions + held);
    pj_fit_fini(&fit);
    pj_fit_fini(&plain);
}

/* Steps of a moment that occur once, within one window, as a run's beginning and end have them, are
 * not told apart, and say nothing about the classes that matter. */
static void moments_do_not_spoil_the_condition(void **state)
{
    static const sensor kind = {"counter, 1 ms", 1, 0, 0, 0.061, true, 0};
    truth t;
    size_t count;
    pj_fit plain, fit;
    pj_error err;
    (void)state;
    truth_init(&t, 5, 40, 10);
    pj_window *windows = truth_windows(&t, &kind, 5, &count);
    pj_leaf *leaves = pj_alloc(t.leaf_count + 3, sizeof *leaves);
    memcpy(leaves, t.leaves, t.leaf_count * sizeof *leaves);
    pj_fit_input input = {.windows = windows,
                          .window_count = count,
                          .leaves = leaves,
                          .leaf_count = t.leaf_count,
                          .class_count = t.class_count,
                          .idle_mw = t.idle_mw,
                          .total_mj = truth_energy_mj(&t, t.begin_ns, t.end_ns),
                          .begin_ns = t.begin_ns,
                          .end_ns = t.end_ns};
    assert_int_equal(pj_fit_run(&input, &plain, &err), PJ_OK);
    /* two of 10 us in the middle of a window, which divide a leaf */
    int64_t at_ns = (windows[count / 2].begin_ns + windows[count / 2].end_ns) / 2;
    size_t k = 0;
    while (leaves[k].end_ns < at_ns + 10000) k++;
    assert_that(leaves[k].begin_ns, <=, at_ns - 10000);
    memmove(&leaves[k + 3], &leaves[k], (t.leaf_count - k) * sizeof *leaves);
    for (uint32_t i = 0; i < 2; i++)
        leaves[k + 1 + i] = (pj_leaf){at_ns + ((int64_t)i - 1) * 10000, at_ns + i * 10000,
                                      t.class_count + i, leaves[k].node};
    leaves[k].end_ns = at_ns - 10000;
    leaves[k + 3].begin_ns = at_ns + 10000;
    input.leaf_count += 3;
    input.class_count += 2;
    assert_int_equal(pj_fit_run(&input, &fit, &err), PJ_OK);
    printf("condition number %.3g, with the moments %.3g\n", plain.condition_number,
           fit.condition_number);
    assert_that(plain.condition_number, >, 1);
    assert_near(fit.condition_number / plain.condition_number, 1, 0.05);
    pj_fit_fini(&plain);
    pj_fit_fini(&fit);
    pj_free(leaves);
    pj_free(windows);
    truth_fini(&t);
}

static void bad_input_is_refused(void **state)
{
    pj_fit fit;
    pj_error err;
    pj_leaf leaf = {0, 10, 3};
    pj_fit_input input = {.class_count = 2, .leaves = &leaf, .leaf_count = 1, .end_ns = 10};
    assert_int_equal(pj_fit_run(&input, &fit, &err), PJ_E_INVALID);
    input.class_count = 0;
    assert_int_equal(pj_fit_run(&input, &fit, &err), PJ_E_INVALID);
    leaf.class_ = 0;
    input = (pj_fit_input){.class_count = 1, .leaves = &leaf, .leaf_count = 1, .end_ns = 10};
    input.total_mj = NAN;
    assert_int_equal(pj_fit_run(&input, &fit, &err), PJ_E_INVALID);
}

static void memory_failures_leave_nothing_behind(void **state)
{
    truth t;
    size_t count;
    pj_fit fit;
    sensor power = {"power", 100, 0, 0.01, 0, false};
    truth_init(&t, 5, 20, 50);
    pj_window *windows = truth_windows(&t, &power, 5, &count);
    pj_fit_input input = {windows, count, t.leaves,   t.leaf_count, t.class_count, t.idle_mw,
                          1e5,     0,     t.begin_ns, t.end_ns,     NULL,          0};
    for (int nth = 0; nth < 24; nth++) {
        pj_memory_fail_after(nth);
        pj_status status = pj_fit_run(&input, &fit, NULL);
        pj_memory_fail_after(-1);
        if (status != PJ_OK) assert_null(fit.power_mw);
        pj_fit_fini(&fit);
    }
    pj_free(windows);
    truth_fini(&t);
}

/* ---- sharing ------------------------------------------------------------------------------- */

static void shares_add_up_to_the_nanojoule(void **state)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        truth t;
        pj_random r = {seed};
        pj_share_result result = {0};
        truth_init(&t, seed, 50, 10);
        size_t n = (size_t)((t.end_ns - t.begin_ns) / 7000000) + 1;
        pj_segment *segments = pj_alloc(n, sizeof *segments);
        int64_t expected_nj = 0;
        double cumulative = 0;
        for (size_t i = 0; i < n; i++) {
            int64_t begin = t.begin_ns + (int64_t)i * 7000000;
            int64_t end = begin + 7000000 < t.end_ns ? begin + 7000000 : t.end_ns;
            double mj = truth_energy_mj(&t, begin, end) * (0.9 + 0.2 * pj_random_unit(&r));
            segments[i] = (pj_segment){begin, end, i == 3 ? 0.001 : mj}; /* one with net < 0 */
            cumulative += segments[i].energy_mj;
        }
        expected_nj = llround(cumulative * 1e6);
        result.gross_nj = pj_alloc(t.leaf_count, sizeof(int64_t));
        result.net_nj = pj_alloc(t.leaf_count, sizeof(int64_t));
        pj_share_run(segments, n, t.leaves, t.leaf_count, t.power_mw, 15000, &result);
        int64_t sum = 0;
        for (size_t i = 0; i < t.leaf_count; i++) {
            assert_that(result.gross_nj[i], !=, INT64_MIN);
            sum += result.gross_nj[i];
        }
        assert_that(result.total_nj, ==, expected_nj);
        assert_that(sum + result.unshared_nj, ==, result.total_nj);
        assert_that(llabs(result.unshared_nj), <, 10);
        assert_int_equal(result.by_time, 1);
        pj_free(result.gross_nj);
        pj_free(result.net_nj);
        pj_free(segments);
        truth_fini(&t);
    }
}

static void dark_time_makes_leaves_unknown_not_zero(void **state)
{
    const pj_leaf leaves[] = {
        {0, 100, 0}, {100, 200, 0}, {200, 300, 0}, {300, 300, 0}, {350, 500, 0}};
    const pj_segment segments[] = {{0, 150, 1}, {150, 180, NAN}, {180, 400, 2}};
    const double power[] = {1000};
    int64_t gross[5], net[5];
    pj_share_result r = {.gross_nj = gross, .net_nj = net};
    pj_share_run(segments, 3, leaves, 5, power, 0, &r);
    assert_that(gross[0], >, 0);
    assert_that(gross[2], >, 0);
    assert_that(gross[1], ==, INT64_MIN);
    assert_that(net[1], ==, INT64_MIN);
    assert_that(gross[3], ==, 0); /* zero duration: known to be zero */
    assert_that(gross[4], ==, INT64_MIN);
    assert_that(r.total_nj, ==, 3000000);
    assert_that(gross[0] + gross[2] + r.unshared_nj, ==, r.total_nj);
}

static void parallel_leaves_share_their_time(void **state)
{
    const pj_leaf leaves[] = {{0, 1000000, 0}, {0, 1000000, 1}, {500000, 1000000, 1}};
    const pj_segment segments[] = {{0, 1000000, 0.1}};
    const double power[] = {30000, 10000};
    int64_t gross[3], net[3];
    pj_share_result r = {.gross_nj = gross, .net_nj = net};
    pj_share_run(segments, 1, leaves, 3, power, 10, &r);
    assert_that(gross[0] + gross[1] + gross[2], ==, 100000);
    assert_that(net[0] + net[1] + net[2], ==, 90000);
    assert_that(net[0], >, 2 * net[1]);
    assert_that(net[1], >, net[2]);
}

/* ---- power that varies within a class ------------------------------------------------------- */

static void windows_inside_one_leaf_are_merged(void **state)
{
    (void)state;
    /* time before the run, a long leaf, a short one, two parallel ones, time after the run */
    const pj_leaf leaves[] = {{-30, 5, 0}, {5, 45, 1},  {45, 52, 2},
                              {52, 90, 1}, {60, 90, 2}, {90, 130, 0}};
    pj_window windows[16];
    for (int i = 0; i < 16; i++)
        windows[i] = (pj_window){10 * i - 30,  10 * i - 20,  .energy_mj = i,
                                 .sd_mj = 0.5, .begin_s = i, .end_s = i + 1};
    assert_int_equal(pj_windows_merge(windows, 16, leaves, 6), 14);
    assert_that(windows[3].begin_ns, ==, 0);
    assert_that(windows[3].end_ns, ==, 10); /* an edge */
    assert_that(windows[4].begin_ns, ==, 10);
    assert_that(windows[4].end_ns, ==, 40);
    assert_that(windows[4].parts, ==, 3);
    assert_that(windows[4].energy_mj, ==, 4 + 5 + 6);
    assert_that(windows[4].begin_s, ==, 4);
    assert_that(windows[4].end_s, ==, 7);
    assert_that(windows[4].sd_mj, ==, 1.5);
    assert_that(windows[5].begin_ns, ==, 40);
    assert_that(windows[5].parts, ==, 0);
    assert_that(windows[7].begin_ns, ==, 60);
    assert_that(windows[7].parts, ==, 0); /* parallel */
    windows[0] = (pj_window){0, 4, .energy_mj = 1}, windows[1] = (pj_window){5, 9, .energy_mj = 1};
    const pj_leaf one[] = {{-9, 0, 0}, {0, 20, 1}, {20, 30, 0}};
    assert_int_equal(pj_windows_merge(windows, 2, one, 3), 1); /* a gap between them */
    assert_that(windows[0].end_ns, ==, 8);
    assert_that(windows[0].energy_mj, ==, 2);
    assert_that(windows[0].parts, ==, 2);
    windows[0] = (pj_window){0, 6, .energy_mj = 1}, windows[1] = (pj_window){4, 9, .energy_mj = 1};
    assert_int_equal(pj_windows_merge(windows, 2, one, 3), 2); /* they overlap */
}

/* A window's value from a lagging sensor's readings equals the sum of its leaves with the window's
 * weights, wherever power changes. */
static void a_lagging_window_weighs_its_leaves(void **state)
{
    static const double lags_s[] = {1e-9, 20e-9, 1e-6};
    const pj_leaf leaves[] = {{0, 13, 0}, {13, 14, 1}, {14, 70, 2}, {70, 100, 3}};
    const double mw[] = {40, 900, 5, 60};
    (void)state;
    for (int k = 0; k < 3; k++) {
        pj_window w = {30, 90, .lag_s = lags_s[k]};
        double answer = 17, first = NAN, energy = 0, whole = 0;
        for (int t = 0; t < 90; t++) { /* exact for power that is constant over each step */
            int leaf = t < 13 ? 0 : t < 14 ? 1 : t < 70 ? 2 : 3;
            if (t == 30) first = answer;
            answer = mw[leaf] + (answer - mw[leaf]) * exp(-1e-9 / lags_s[k]);
        }
        double left = pj_lag_decay(&w);
        for (int i = 0; i < 4; i++) {
            energy += mw[i] * pj_window_part_s(&w, &leaves[i]);
            whole += pj_window_part_s(&w, &leaves[i]);
        }
        assert_near(whole, 60e-9, 1e-18);
        assert_near((answer - left * first) / (1 - left) * 60e-9, energy, 1e-9 * energy);
        w.lag_s = 0;
        assert_near(pj_window_part_s(&w, &leaves[2]), 40e-9, 1e-18);
    }
}

enum { VARIED = 3, ROUNDS = 60, VARIED_LEAVES = VARIED * ROUNDS + 2 };

typedef struct varied {
    pj_leaf leaves[VARIED_LEAVES];
    double mw[VARIED_LEAVES], class_mw[VARIED], mean_mw[VARIED];
    pj_window windows[4000];
    size_t count;
    double unseen; /* all time relative to the time in windows */
} varied;

/* Three classes in turn, 0.4 to 1.3 ms each, whose leaves draw up to +-20 % more or less than their
 * class; one leaf of each class was interrupted and lasts 200 ms. Every millisecond a sensor tells
 * the energy of the next `seen_ns`. */
static void make_varied(varied *v, uint64_t seed, int64_t seen_ns)
{
    pj_random r = {seed};
    int64_t now = 0;
    size_t n = 0;
    v->leaves[n++] = (pj_leaf){-5000000, 0, VARIED};
    for (int c = 0; c < VARIED; c++) v->class_mw[c] = 20000 + 40000 * pj_random_unit(&r);
    for (int i = 0; i < ROUNDS; i++)
        for (int c = 0; c < VARIED; c++) {
            int64_t ns = 400000 + 200000 * c + (int64_t)(100000 * pj_random_unit(&r));
            if (i == 7 + 11 * c) ns = 200000000;
            v->leaves[n] = (pj_leaf){now, now + ns, (uint32_t)c};
            v->mw[n++] = v->class_mw[c] * (0.8 + 0.4 * pj_random_unit(&r));
            now += ns;
        }
    v->leaves[n] = (pj_leaf){now, now + 5000000, VARIED};
    v->count = 0;
    v->unseen = 1e6 / (double)seen_ns;
    size_t from = 0;
    for (int64_t at = -3000000; at < now + 3000000; at += 1000000) {
        pj_window *w = &v->windows[v->count++];
        *w = (pj_window){at, at + seen_ns, .reading_mj = 0.061 / sqrt(12)};
        while (v->leaves[from].end_ns <= at) from++;
        for (size_t i = from; i <= n && v->leaves[i].begin_ns < w->end_ns; i++) {
            int64_t a = v->leaves[i].begin_ns > at ? v->leaves[i].begin_ns : at;
            int64_t z = v->leaves[i].end_ns < w->end_ns ? v->leaves[i].end_ns : w->end_ns;
            w->energy_mj += v->mw[i] * (double)(z - a) * 1e-9;
        }
    }
}

/* Returns how many classes' powers the interval contained. */
static unsigned fit_varied(const varied *v, double usual_spread, double *spread)
{
    static pj_window windows[4000];
    pj_class_prior priors[VARIED + 1] = {{NAN, NAN}, {NAN, NAN}, {NAN, NAN}, {0, 10}};
    double total = 0;
    unsigned covered = 0;
    pj_fit fit;
    for (size_t i = 0; i < v->count; i++) total += (windows[i] = v->windows[i]).energy_mj;
    pj_fit_input input = {.windows = windows,
                          .window_count =
                              pj_windows_merge(windows, v->count, v->leaves, VARIED_LEAVES),
                          .leaves = v->leaves,
                          .leaf_count = VARIED_LEAVES,
                          .class_count = VARIED + 1,
                          .total_mj = total * v->unseen,
                          .total_sd_mj = v->unseen > 1 ? 1e3 * total : 0,
                          .begin_ns = v->windows[0].begin_ns,
                          .end_ns = v->windows[v->count - 1].end_ns,
                          .priors = priors,
                          .usual_noise = PJ_USUAL_POWER_NOISE,
                          .usual_spread = usual_spread};
    assert_int_equal(pj_fit_run(&input, &fit, NULL), PJ_OK);
    for (int c = 0; c < VARIED; c++) {
        double sd = sqrt(fit.covariance[c * (VARIED + 1) + c]);
        covered += fabs(fit.power_mw[c] - v->class_mw[c]) <= 1.96 * sd;
    }
    *spread = fit.spread;
    pj_fit_fini(&fit);
    return covered;
}

static void assert_varied_covered(int64_t seen_ns)
{
    static varied v;
    unsigned covered = 0, without = 0, judged = 0;
    double sum = 0, spread;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        make_varied(&v, seed, seen_ns);
        covered += fit_varied(&v, 0.115, &spread);
        sum += spread;
        without += fit_varied(&v, 0, &spread);
        assert_that(spread, ==, 0);
        judged += VARIED;
    }
    printf("covered %u of %u, without a spread %u; spread %.3f\n", covered, judged, without,
           sum / 40);
    assert_that(covered, >=, 0.9 * judged);
    assert_that(without, <, 0.8 * judged); /* otherwise this would test nothing */
    assert_near(sum / 40, 0.115, 0.02);
}

static void powers_that_vary_within_a_class_are_covered(void **state)
{
    (void)state;
    assert_varied_covered(1000000);
    assert_varied_covered(250000);
}

/* ---- linear algebra and unit costs ----------------------------------------------------------- */

/* A class that is not counted has weight zero, whatever its energy. */
static void the_interval_is_that_of_the_classes_counted(void **state)
{
    (void)state;
    double power[] = {100, 10, 10, 10}, time[] = {1000, 10, 10, 10};
    double sd[] = {0.1, 1, 2, 3}, covariance[16] = {0};
    for (int c = 0; c < 4; c++) covariance[5 * c] = sd[c] * sd[c];
    pj_fit fit = {.class_count = 4, .power_mw = power, .time_ms = time, .covariance = covariance};
    const bool all[] = {true, true, true, true}, some[] = {false, true, true, true};
    const bool none[4] = {false};
    assert_float_equal((float)pj_fit_interval(&fit, all), (float)(1.96 * 0.001), 1e-7);
    assert_float_equal((float)pj_fit_interval(&fit, some), (float)(1.96 * 0.2), 1e-7);
    assert_true(isnan(pj_fit_interval(&fit, none)));
}

static void linear_algebra_inverts(void **state)
{
    pj_random r = {3};
    double a[36], factor[36], inverse[36];
    for (int i = 0; i < 6; i++)
        for (int k = 0; k <= i; k++)
            a[i * 6 + k] = a[k * 6 + i] = pj_random_normal(&r) + (i == k ? 8 : 0);
    for (int i = 0; i < 36; i++) factor[i] = a[i];
    assert_true(pj_cholesky(factor, 6, NULL));
    pj_cholesky_inverse(factor, 6, inverse);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 6; k++) {
            double s = 0;
            for (int j = 0; j < 6; j++) s += a[i * 6 + j] * inverse[j * 6 + k];
            assert_near(s, (i == k), 1e-12);
        }
    double diagonal[4] = {4, 0, 0, 0.5}, singular[4] = {1, 1, 1, 1};
    assert_near(pj_condition_number(diagonal, 2), 8, 1e-9);
    assert_that(pj_condition_number(singular, 2), >, 1e12);
    double not_positive[4] = {1, 2, 2, 1};
    assert_false(pj_cholesky(not_positive, 2, NULL));
}

/* Against the dense inverse; rows 3 and 6 start new blocks. */
static void a_tridiagonal_matrix_is_inverted(void **state)
{
    (void)state;
    enum { N = 8 };
    double diagonal[N], below[N], dense[N * N] = {0}, inverse[N * N], log_dense, log_det;
    pj_random r = {4};
    for (int i = 0; i < N; i++) {
        diagonal[i] = dense[i * N + i] = 2.01 + pj_random_unit(&r);
        below[i] = i % 3 == 0 ? 0 : -1;
        if (i > 0) dense[i * N + i - 1] = dense[(i - 1) * N + i] = below[i];
    }
    assert_true(pj_tridiagonal_invert(diagonal, below, N, &log_det));
    assert_true(pj_cholesky(dense, N, &log_dense));
    pj_cholesky_inverse(dense, N, inverse);
    assert_near(log_det, log_dense, 1e-12);
    for (int j = 0; j < N; j++) {
        double value = diagonal[j];
        for (int k = j; k >= 0; k--) {
            assert_near(value, inverse[j * N + k], 1e-12);
            value *= below[k];
        }
    }
    double not_positive[2] = {1, 1}, link[2] = {0, -1.5};
    assert_false(pj_tridiagonal_invert(not_positive, link, 2, &log_det));
}

static void a_banded_matrix_is_factored(void **state)
{
    enum { N = 7, BANDS = 2 };
    double band[N * (BANDS + 1)] = {0}, dense[N * N] = {0}, log_det, same;
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j <= BANDS && j <= i; j++) {
            double value = j ? 1.0 / (double)(i + j) : 3 + (double)(i % 3);
            band[i * (BANDS + 1) + j] = value;
            dense[i * N + i - j] = value;
        }
    assert_true(pj_banded_cholesky(band, N, BANDS, &log_det));
    assert_true(pj_cholesky(dense, N, &same));
    assert_near(log_det, same, 1e-12);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j <= BANDS && j <= i; j++)
            assert_near(band[i * (BANDS + 1) + j], dense[i * N + i - j], 1e-12);
    double not_positive[] = {1, 0, 1, 2};
    assert_false(pj_banded_cholesky(not_positive, 2, 1, &log_det));
}

static void unit_costs_recover_planted_ones(void **state)
{
    enum { N = 8 };
    double power[N], time[N], cov[N * N] = {0}, flops[N], bytes[N];
    for (int c = 0; c < N; c++) {
        flops[c] = 1e9 * (1 + c * c);
        bytes[c] = 1e8 * (9 - c);
        time[c] = 100;
        power[c] = (5 * flops[c] + 60 * bytes[c]) * 1e-9 / 0.1; /* pJ -> mJ -> mW */
    }
    pj_fit fit = {.class_count = N, .power_mw = power, .covariance = cov, .time_ms = time};
    pj_unit_costs costs;
    pj_unit_costs_fit(&fit, flops, bytes, &costs);
    assert_near(costs.pj_per_flop, 5, 1e-6);
    assert_near(costs.pj_per_byte, 60, 1e-6);
    assert_that(costs.pj_per_flop_sd, >, 0);
    assert_that(costs.pj_per_byte_sd, >, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_inside_one_leaf_are_merged),
        cmocka_unit_test(a_lagging_window_weighs_its_leaves),
        cmocka_unit_test(powers_that_vary_within_a_class_are_covered),
        cmocka_unit_test(errors_stay_below_the_table),
        cmocka_unit_test(errors_of_a_counters_readings_cancel),
        cmocka_unit_test(the_common_factor_of_a_wrong_calibration_is_found),
        cmocka_unit_test(negative_powers_are_truncated_and_said),
        cmocka_unit_test(holding_many_classes_costs_little),
        cmocka_unit_test(moments_do_not_spoil_the_condition),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(memory_failures_leave_nothing_behind),
        cmocka_unit_test(shares_add_up_to_the_nanojoule),
        cmocka_unit_test(dark_time_makes_leaves_unknown_not_zero),
        cmocka_unit_test(parallel_leaves_share_their_time),
        cmocka_unit_test(the_interval_is_that_of_the_classes_counted),
        cmocka_unit_test(linear_algebra_inverts),
        cmocka_unit_test(a_tridiagonal_matrix_is_inverted),
        cmocka_unit_test(a_banded_matrix_is_factored),
        cmocka_unit_test(unit_costs_recover_planted_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
