/* Predictions for simulated machines: error and coverage on held-out runs, and refusals. */
#include "../assertions.h"
#include "analysis/predict.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RUNS = 48 };

/* A machine whose time is the smooth maximum of compute and memory time, with noise: deliberately
 * not exactly the fitted model. Six shapes, two weight types, lengths of 16 to 2048, batches of 1
 * to 8. */
static void make_run_of(pj_random *random, pj_known_run *run)
{
    static const double parameters[] = {0.14e9, 0.36e9, 0.5e9, 1.1e9, 1.7e9, 3e9};
    double p = parameters[(int)(pj_random_unit(random) * 6)];
    double bytes = pj_random_unit(random) < 0.5 ? 2 : 1.0625;
    double batch = pow(2, floor(pj_random_unit(random) * 4));
    double input = floor(16 * pow(128, pj_random_unit(random)));
    double output = floor(16 * pow(32, pj_random_unit(random)));
    run->work = (pj_request_work){p * bytes, 2 * p,  {.flops = {p / 1e4}, .bytes = {p / 2e4}},
                                  input,     output, batch};
    double prefill_f = batch * input * 2 * p + batch * p / 1e4 * input * input / 2;
    double steps = output - 1, context = input + output / 2;
    double f = batch * (2 * p + p / 1e4 * context), b = p * bytes + batch * p / 2e4 * context;
    double step = pow(pow(f / 2e12, 6) + pow(b / 4e10, 6), 1.0 / 6) + 2e-5;
    run->seconds = prefill_f / 1.5e12 + steps * step;
    run->joules = 20 * run->seconds + 8e-12 * (prefill_f + steps * f) + 3e-10 * steps * b + 0.02;
    run->joules *= exp(0.02 * pj_random_normal(random));
    run->seconds *= exp(0.02 * pj_random_normal(random));
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void runs_left_out_are_predicted(void **state)
{
    enum { MACHINES = 12 };
    static pj_known_run runs[RUNS], others[RUNS];
    double errors[MACHINES * RUNS];
    int held = 0, predicted = 0, refused = 0;
    pj_random random = {77};
    for (int m = 0; m < MACHINES; m++) {
        for (int i = 0; i < RUNS; i++) make_run_of(&random, &runs[i]);
        for (int i = 0; i < RUNS; i++) {
            pj_prediction p;
            for (int k = 0; k + 1 < RUNS; k++) others[k] = runs[k < i ? k : k + 1];
            pj_predict(others, RUNS - 1, &runs[i].work, &p);
            refused += p.refusal != NULL;
            if (p.refusal) continue;
            errors[predicted++] = fabs(p.joules / runs[i].joules - 1);
            held += p.joules_lo <= runs[i].joules && runs[i].joules <= p.joules_hi;
        }
    }
    qsort(errors, (size_t)predicted, sizeof *errors, ascending);
    double median = errors[predicted / 2], coverage = (double)held / predicted;
    print_message("median error %.2f %%, coverage %.1f %%, refused %d of %d\n", 100 * median,
                  100 * coverage, refused, MACHINES * RUNS);
    assert_that(median, <=, 0.05);
    assert_that(coverage, >=, 0.90);
    assert_that(coverage, <=, 0.98);
    assert_that(refused, <, MACHINES * RUNS / 10);
}

/* Runs whose energy is a twentieth or twenty times that of their likes (another sensor, a disturbed
 * machine): the prediction of the others stays where it was. */
static void some_wrong_runs_change_little(void **state)
{
    static const double factors[] = {0.05, 20};
    static pj_known_run runs[RUNS], spoilt[RUNS];
    pj_random random = {11};
    for (size_t f = 0; f < 2; f++)
        for (int repeat = 0; repeat < 20; repeat++) {
            double errors[RUNS];
            int predicted = 0;
            for (int i = 0; i < RUNS; i++) make_run_of(&random, &runs[i]);
            memcpy(spoilt, runs, sizeof spoilt);
            for (int wrong = 0; wrong < 3; wrong++)
                spoilt[(int)(pj_random_unit(&random) * RUNS)].joules *= factors[f];
            for (int i = 0; i < RUNS; i++) {
                pj_prediction p;
                pj_predict(spoilt, RUNS, &runs[i].work, &p);
                if (!p.refusal) errors[predicted++] = fabs(log(p.joules / runs[i].joules));
            }
            qsort(errors, (size_t)predicted, sizeof *errors, ascending);
            assert_that(errors[predicted / 2], <, 0.08);
            assert_that(errors[predicted * 9 / 10], <, 0.4);
        }
}

static void nothing_is_said_outside_of_what_was_seen(void **state)
{
    static pj_known_run runs[RUNS];
    pj_random random = {5};
    pj_prediction p;
    for (int i = 0; i < RUNS; i++) make_run_of(&random, &runs[i]);
    pj_request_work far = runs[0].work;
    far.weight_bytes = 1e11;
    far.flops_per_token = 1e11;
    pj_predict(runs, RUNS, &far, &p);
    assert_non_null(p.refusal);
    assert_true(isnan(p.joules) && isnan(p.seconds));
    far = runs[0].work;
    far.output = 1e6;
    pj_predict(runs, RUNS, &far, &p);
    assert_non_null(p.refusal);
    /* The nearest runs are listed in order, with or without a prediction. */
    far = runs[9].work;
    far.input *= 1.0001;
    pj_predict(runs, RUNS, &far, &p);
    assert_int_equal(p.nearest_count, PJ_PREDICT_NEAREST);
    assert_int_equal(p.nearest[0], 9);
    assert_that(p.nearest[1], !=, p.nearest[0]);
    assert_that(p.nearest[2], !=, p.nearest[1]);
    pj_predict(runs, 7, &runs[0].work, &p);
    assert_non_null(p.refusal);
    pj_predict(runs, RUNS, &runs[0].work, &p);
    assert_null(p.refusal);
    assert_that(p.joules_lo, <=, p.joules);
    assert_that(p.joules, <=, p.joules_hi);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_left_out_are_predicted),
        cmocka_unit_test(some_wrong_runs_change_little),
        cmocka_unit_test(nothing_is_said_outside_of_what_was_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
