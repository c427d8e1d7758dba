/* Anomalous tokens: planted ones are found with their cause, flat rails have none, and the sensor's
 * resolution is a lower bound of the threshold. */
#include "analysis/forest.h"
#include "analysis/token_anomalies.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 400, PLANTED = 8, RUNS = 40 };

typedef struct made {
    double duration[TOKENS], energy[TOKENS], attention[TOKENS], spread[TOKENS], processor[TOKENS],
        faults[TOKENS], clock[TOKENS];
    pj_anomaly_cause planted[TOKENS];
} made;

/* Work growing with the position, 1 % noise, and every 50 tokens an anomaly of a given cause. */
static void make(made *m, pj_random *r, double noise)
{
    static const pj_anomaly_cause kinds[] = {PJ_CAUSE_DISTURBED, PJ_CAUSE_THROTTLED,
                                             PJ_CAUSE_FAULTS, PJ_CAUSE_REAL};
    memset(m, 0, sizeof *m);
    for (int i = 0; i < TOKENS; i++) {
        double grown = 1 + 0.3 * i / TOKENS, power = 30 * (1 + noise * pj_random_normal(r));
        m->duration[i] = 10 * grown * (1 + noise * pj_random_normal(r));
        m->attention[i] = 0.3 + 0.01 * pj_random_normal(r);
        m->spread[i] = 1 + 0.02 * pj_random_normal(r);
        m->processor[i] = 0.98;
        m->clock[i] = 1;
        if (i % 50 == 25) {
            double size = 1.5 + pj_random_unit(r);
            m->planted[i] = kinds[i / 50 % 4];
            m->duration[i] *= size;
            if (m->planted[i] == PJ_CAUSE_DISTURBED) m->processor[i] = 0.98 / size, power *= 0.8;
            if (m->planted[i] == PJ_CAUSE_THROTTLED) m->clock[i] = 0.7, power *= 0.8;
            if (m->planted[i] == PJ_CAUSE_FAULTS) m->faults[i] = 300;
            if (m->planted[i] == PJ_CAUSE_REAL) m->spread[i] *= 1.5, m->attention[i] += 0.2;
        }
        m->energy[i] = m->duration[i] * power;
    }
}

static pj_token_figures figures_of(const made *m)
{
    return (pj_token_figures){.count = TOKENS,
                              .duration_ms = m->duration,
                              .energy_mj = m->energy,
                              .attention_share = m->attention,
                              .spread = m->spread,
                              .processor_share = m->processor,
                              .faults = m->faults,
                              .clock_share = m->clock};
}

static void planted_anomalies_are_found(void **state)
{
    static made m;
    pj_random r = {11};
    int right = 0, reported = 0, caused = 0;
    for (int run = 0; run < RUNS; run++) {
        pj_token_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
        make(&m, &r, 0.01);
        pj_token_figures f = figures_of(&m);
        size_t n = pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX);
        reported += (int)n;
        for (size_t i = 0; i < n; i++) {
            right += m.planted[found[i].index] != PJ_CAUSE_UNKNOWN;
            caused += m.planted[found[i].index] != PJ_CAUSE_UNKNOWN &&
                      found[i].cause == m.planted[found[i].index];
        }
    }
    double recall = (double)right / (RUNS * PLANTED), precision = (double)right / reported;
    print_message("recall %.3f, precision %.3f, cause right %.3f\n", recall, precision,
                  (double)caused / right);
    assert_true(recall >= 0.9 && precision >= 0.9);
    assert_true(caused >= 0.9 * right);
}

static void flat_rails_have_none(void **state)
{
    static made m;
    pj_random r = {5};
    pj_token_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    for (int i = 0; i < TOKENS; i++) {
        m.duration[i] = 10;
        m.energy[i] = 300 * (1 + 1e-12 * pj_random_normal(&r));
    }
    pj_token_figures f = {.count = TOKENS, .duration_ms = m.duration, .energy_mj = m.energy};
    assert_int_equal(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX), 0);
    /* Quantisation steps of the sensor count as noise. */
    for (int i = 0; i < TOKENS; i++) m.energy[i] = 300 + (i % 97 == 50 ? 20 : 0);
    assert_true(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX) > 0);
    f.resolution_mj = 20;
    assert_int_equal(pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX), 0);
}

static void ordinary_runs_have_few(void **state)
{
    static made m;
    pj_random r = {17};
    int false_ones = 0;
    for (int run = 0; run < RUNS; run++) {
        pj_token_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
        make(&m, &r, 0.01);
        for (int i = 25; i < TOKENS; i += 50) {
            m.duration[i] = m.duration[i - 1], m.energy[i] = m.energy[i - 1];
            m.spread[i] = 1, m.attention[i] = 0.3;
        }
        pj_token_figures f = figures_of(&m);
        false_ones += (int)pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX);
    }
    print_message("%d in %d tokens without anomalies\n", false_ones, RUNS * TOKENS);
    assert_true(false_ones <= RUNS * TOKENS / 2000);
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
    assert_true(pj_forest_score(forest, usual) < 0.5);
    assert_true(score > 0.6);
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
        cmocka_unit_test(the_forest_sees_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
