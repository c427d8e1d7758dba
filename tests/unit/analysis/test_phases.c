/* Phase detection in untagged traces: accuracy per sample, calibration of the confidence, and
 * traces without information. */
#include "../assertions.h"
#include "analysis/phases.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 2000, TRAIN = 30, TEST = 100 };

typedef struct made {
    double t_ms[MOST], mw[MOST];
    uint8_t phase[MOST];
    size_t count;
} made;

static void stretch(made *m, pj_random *r, pj_phase phase, double readings, double mw, double noise)
{
    for (int i = 0; i < (int)readings && m->count < MOST; i++) {
        m->t_ms[m->count] = (double)m->count * 10;
        m->mw[m->count] = mw * exp(noise * pj_random_normal(r));
        m->phase[m->count++] = (uint8_t)phase;
    }
}

static double between(pj_random *r, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(r);
}

/* One to three requests on a machine with a random power scale; phases differ by more than twice
 * the noise.
 */
static void make(made *m, pj_random *r)
{
    double idle = between(r, 3e3, 60e3), top = idle * between(r, 3, 8),
           noise = between(r, 0.01, 0.05);
    m->count = 0;
    stretch(m, r, PJ_PHASE_IDLE, between(r, 20, 80), idle, noise);
    for (int requests = 1 + (int)(pj_random_unit(r) * 3); requests > 0; requests--) {
        if (pj_random_unit(r) < 0.7)
            stretch(m, r, PJ_PHASE_PRE_INFERENCE, between(r, 8, 40), idle + 0.25 * (top - idle),
                    noise);
        stretch(m, r, PJ_PHASE_PREFILL, between(r, 10, 60), top * between(r, 0.95, 1.05), noise);
        stretch(m, r, PJ_PHASE_DECODE, between(r, 60, 300),
                idle + (top - idle) * between(r, 0.5, 0.7), noise);
        if (pj_random_unit(r) < 0.5)
            stretch(m, r, PJ_PHASE_POST_INFERENCE, between(r, 8, 20), idle + 0.15 * (top - idle),
                    noise);
        stretch(m, r, PJ_PHASE_IDLE, between(r, 20, 80), idle, noise);
    }
}

/* Machines whose phases overlap: cached prompts, decode as hot as prefill, busy preparation. */
static void make_hard(made *m, pj_random *r)
{
    double idle = between(r, 3e3, 60e3), top = idle * between(r, 2, 6),
           noise = between(r, 0.02, 0.08);
    m->count = 0;
    stretch(m, r, PJ_PHASE_IDLE, between(r, 10, 120), idle, noise);
    for (int requests = 1 + (int)(pj_random_unit(r) * 3); requests > 0; requests--) {
        double hot = idle + (top - idle) * between(r, 0.4, 1);
        if (pj_random_unit(r) < 0.6)
            stretch(m, r, PJ_PHASE_PRE_INFERENCE, between(r, 8, 80),
                    idle + between(r, 0.1, 0.9) * (top - idle), noise);
        if (pj_random_unit(r) < 0.7)
            stretch(m, r, PJ_PHASE_PREFILL, between(r, 6, 150), top * between(r, 0.7, 1.1), noise);
        stretch(m, r, PJ_PHASE_DECODE, between(r, 20, 200), hot, noise);
        if (pj_random_unit(r) < 0.5)
            stretch(m, r, PJ_PHASE_POST_INFERENCE, between(r, 8, 40),
                    idle + between(r, 0, 0.5) * (top - idle), noise);
        if (pj_random_unit(r) < 0.7) stretch(m, r, PJ_PHASE_IDLE, between(r, 10, 120), idle, noise);
    }
}

static pj_phase_trace trace_of(const made *m, bool tagged)
{
    return (pj_phase_trace){m->t_ms, m->mw, m->count, NAN, tagged ? m->phase : NULL};
}

typedef void maker(made *m, pj_random *r);

typedef struct score {
    double right, all, told, sure, sure_right;
} score;

static void try(maker *make_one, int training, int tests, uint64_t seed, score *s)
{
    made *train = malloc((size_t)training * sizeof *train), *m = malloc(sizeof *m);
    pj_phase_trace *traces = malloc((size_t)training * sizeof *traces);
    static uint8_t phase[MOST];
    static double confidence[MOST];
    pj_phase_model model;
    pj_random r = {seed};
    *s = (score){0};
    for (int i = 0; i < training; i++) {
        make_one(&train[i], &r);
        traces[i] = trace_of(&train[i], true);
    }
    assert_true(pj_phase_model_train(traces, (size_t)training, &model));
    assert_int_equal(model.traces, training);
    for (int i = 0; i < tests; i++) {
        make_one(m, &r);
        pj_phase_trace t = trace_of(m, false);
        if (!pj_phases_detect(&t, &model, phase, confidence)) continue;
        for (size_t k = 0; k < m->count; k++) {
            bool is = phase[k] == m->phase[k];
            s->all++, s->right += is, s->told += confidence[k];
            if (confidence[k] >= 0.85 && confidence[k] < 0.95) s->sure++, s->sure_right += is;
        }
    }
    free(train);
    free(traces);
    free(m);
}

static void tags_that_were_removed_are_found(void **state)
{
    score s;
    try(make, TRAIN, TEST, 2024, &s);
    print_message("%.2f %% of samples right; told %.2f %%\n", 100 * s.right / s.all,
                  100 * s.told / s.all);
    assert_that(s.right / s.all, >=, 0.95);
    assert_near(s.told, s.right, 0.05 * s.all);
}

static void confidence_is_calibrated(void **state)
{
    score s;
    try(make_hard, 300, 400, 77, &s);
    print_message("where phases overlap: %.1f %% right, told %.1f %%; of %.0f samples at 90 %%, "
                  "%.1f %% right\n",
                  100 * s.right / s.all, 100 * s.told / s.all, s.sure, 100 * s.sure_right / s.sure);
    assert_that(s.sure, >, 1000);
    assert_that(s.sure_right, >=, 0.85 * s.sure);
    assert_that(s.sure_right, <=, 0.95 * s.sure);
    assert_near(s.told, s.right, 0.03 * s.all);
}

/* One trace, or two, say little about the next: the prior still counts, so that what is named is
 * right more often than it is said to be. */
static void few_traces_are_not_overrated(void **state)
{
    enum { DRAWS = 30 };
    static maker *const makers[] = {make, make_hard};
    for (int training = 1; training <= 2; training++)
        for (int i = 0; i < 2; i++) {
            double right = 0, told = 0, all = 0;
            for (uint64_t seed = 1; seed <= DRAWS; seed++) {
                score s;
                try(makers[i], training, 4, 9000 + seed, &s);
                right += s.right, told += s.told, all += s.all;
            }
            print_message("%d of training: %.1f %% right, told %.1f %%\n", training,
                          100 * right / all, 100 * told / all);
            assert_that(right, >=, (i ? 0.75 : 0.95) * all);
            assert_that(told, <=, right);
        }
}

/* A reading of 20 ms that holds the end of idle time and the beginning of prefill belongs to the
 * one that fills more of it, and is less certain than those around it. */
static void mixed_readings_belong_to_the_longer_phase(void **state)
{
    static const double idle_shares[] = {0.3, 0.45, 0.55, 0.7};
    static uint8_t phase[MOST];
    static double confidence[MOST];
    made *m = malloc(sizeof *m);
    pj_phase_model model;
    pj_phase_model_prior(&model);
    for (size_t k = 0; k < sizeof idle_shares / sizeof *idle_shares; k++) {
        pj_random r = {11 + k};
        double of_idle = idle_shares[k];
        m->count = 0;
        stretch(m, &r, PJ_PHASE_IDLE, 50, 10e3, 0.01);
        stretch(m, &r, of_idle > 0.5 ? PJ_PHASE_IDLE : PJ_PHASE_PREFILL, 1,
                of_idle * 10e3 + (1 - of_idle) * 60e3, 0.01);
        stretch(m, &r, PJ_PHASE_PREFILL, 40, 60e3, 0.01);
        stretch(m, &r, PJ_PHASE_DECODE, 200, 40e3, 0.01);
        for (size_t i = 0; i < m->count; i++) m->t_ms[i] = 20 * (double)i;
        pj_phase_trace t = trace_of(m, false);
        assert_int_equal(pj_phases_detect(&t, &model, phase, confidence), 3);
        for (size_t i = 0; i < m->count; i++) assert_int_equal(phase[i], m->phase[i]);
        size_t first = of_idle > 0.5 ? 51 : 50; /* of prefill */
        assert_that(confidence[first], <, confidence[first + 1]);
        assert_that(confidence[first - 1], <, confidence[first - 2]);
        assert_that(confidence[first + 3], <, confidence[first + 10]);
    }
    free(m);
}

static void the_prior_finds_the_shape_of_a_request(void **state)
{
    made *m = malloc(sizeof *m);
    static uint8_t phase[MOST];
    static double confidence[MOST];
    pj_phase_model model;
    pj_random r = {7};
    m->count = 0;
    stretch(m, &r, PJ_PHASE_IDLE, 50, 10e3, 0.02);
    stretch(m, &r, PJ_PHASE_PREFILL, 30, 60e3, 0.02);
    stretch(m, &r, PJ_PHASE_DECODE, 200, 40e3, 0.02);
    stretch(m, &r, PJ_PHASE_IDLE, 50, 10e3, 0.02);
    pj_phase_trace t = trace_of(m, false);
    pj_phase_model_prior(&model);
    assert_int_equal(pj_phases_detect(&t, &model, phase, confidence), 4);
    for (size_t i = 0; i < m->count; i++) assert_int_equal(phase[i], m->phase[i]);
    free(m);
}

static void flat_and_short_traces_are_unknown(void **state)
{
    made *m = malloc(sizeof *m);
    static uint8_t phase[MOST];
    static double confidence[MOST];
    pj_phase_model model;
    pj_random r = {9};
    pj_phase_model_prior(&model);
    m->count = 0;
    stretch(m, &r, PJ_PHASE_IDLE, 300, 10e3, 0.03);
    pj_phase_trace t = trace_of(m, false);
    assert_int_equal(pj_phases_detect(&t, &model, phase, confidence), 0);
    for (size_t i = 0; i < m->count; i++) {
        assert_that(phase[i], ==, PJ_PHASE_UNKNOWN);
        assert_that(confidence[i], ==, 0);
    }
    t.count = 10;
    assert_int_equal(pj_phases_detect(&t, &model, phase, confidence), 0);
    free(m);
}

static void change_points_are_where_the_level_changes(void **state)
{
    double values[90];
    size_t begin[90];
    pj_random r = {1};
    for (int i = 0; i < 90; i++)
        values[i] = (i < 30 ? 0 : i < 33 ? 2 : 1) + 0.05 * pj_random_normal(&r);
    assert_int_equal(pj_change_points(values, 90, begin), 3);
    assert_int_equal(begin[1], 30);
    assert_int_equal(begin[2], 33);
}

/* A trace too long for the full search, which is binned first: changes are still located to the
 * sample. */
static void change_points_of_long_traces_are_exact(void **state)
{
    enum { LONG = 20011 };
    static const size_t at[] = {0, 3333, 3401, 11007, 16001};
    static double values[LONG];
    static size_t begin[LONG];
    pj_random r = {3};
    (void)state;
    for (size_t i = 0; i < LONG; i++) {
        size_t k = 0;
        while (k + 1 < sizeof at / sizeof *at && at[k + 1] <= i) k++;
        values[i] = (k % 2 ? 1.5 : 0.2 * (double)k) + 0.02 * pj_random_normal(&r);
    }
    assert_int_equal(pj_change_points(values, LONG, begin), sizeof at / sizeof *at);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) assert_int_equal(begin[k], at[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_that_were_removed_are_found),
        cmocka_unit_test(confidence_is_calibrated),
        cmocka_unit_test(few_traces_are_not_overrated),
        cmocka_unit_test(mixed_readings_belong_to_the_longer_phase),
        cmocka_unit_test(the_prior_finds_the_shape_of_a_request),
        cmocka_unit_test(flat_and_short_traces_are_unknown),
        cmocka_unit_test(change_points_are_where_the_level_changes),
        cmocka_unit_test(change_points_of_long_traces_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
