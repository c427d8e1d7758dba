/* Simulated sensors: exact where the specification says exact, repeatable, and as faulty as asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "power/curve.h"
#include "power/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MS PJ_NS_PER_MS

enum { SEGMENTS = 400 };
static pj_sim_segment segments[SEGMENTS]; /* 4 s of random work */
static const int64_t BEGIN = 1000 * MS, END = 5000 * MS;

static void make_truth(uint64_t seed)
{
    pj_random random = {seed};
    for (int i = 0; i < SEGMENTS; i++) {
        int64_t from = BEGIN + i * 10 * MS;
        int64_t length = (int64_t)(pj_random_unit(&random) * 10e6);
        segments[i] = (pj_sim_segment){from, from + length, pj_random_unit(&random) * 80e3};
    }
}

static pj_sim_spec parse(const char *text)
{
    pj_sim_spec spec;
    pj_error err;
    if (pj_sim_parse(text, &spec, &err) != PJ_OK) fail_msg("%s: %s", text, err.text);
    return spec;
}

static pj_curve *curve_of(const pj_sim_spec *spec, uint32_t rail)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    pj_reading *readings;
    size_t count;
    assert_that(rail, <, pj_sim_rails(spec, rails, PJ_SIM_MAX_RAILS));
    assert_int_equal(rails[rail].quality, PJ_MODELLED);
    assert_int_equal(
        pj_sim_read(spec, rail, segments, SEGMENTS, BEGIN, END, &readings, &count, NULL), PJ_OK);
    pj_curve *curve = pj_curve_new(&rails[rail]);
    for (size_t i = 0; i < count; i++) pj_curve_add(curve, &readings[i], NULL);
    assert_int_equal(pj_curve_finish(curve, NULL), PJ_OK);
    pj_free(readings);
    return curve;
}

static double relative_error(const char *text)
{
    pj_sim_spec spec = parse(text);
    pj_curve *curve = curve_of(&spec, 0);
    double truth = pj_sim_truth_mj(&spec, 0, segments, SEGMENTS, BEGIN, END);
    double mj = pj_curve_energy_mj(curve, BEGIN, END);
    pj_curve_free(curve);
    return fabs(mj / truth - 1);
}

/* Noise 0, window = period, no delay: every tick's energy is the truth to one step. */
static void exact_to_quantisation(void **state)
{
    (void)state;
    make_truth(1);
    for (int kind = 0; kind < 2; kind++) {
        pj_sim_spec spec = parse(kind ? "kind=power,period_ms=10,resolution_mj=0"
                                      : "kind=counter,period_ms=10,resolution_mj=0.061");
        double step = kind ? 1e-9 : 0.061;
        pj_curve *curve = curve_of(&spec, 0);
        pj_curve_window windows[600];
        size_t count = pj_curve_windows(curve, BEGIN, END, windows, 600);
        assert_in_range(count, 400, 402);
        for (size_t i = 0; i < count; i++) {
            double truth = pj_sim_truth_mj(&spec, 0, segments, SEGMENTS, windows[i].begin_ns,
                                           windows[i].end_ns);
            assert_near(windows[i].energy_mj, truth, step * 1.000001 + 1e-6);
        }
        pj_curve_free(curve);
    }
}

static void every_preset_sees_the_energy(void **state)
{
    static const char *const presets[] = {"counter",
                                          "rapl",
                                          "nvml-fermi",
                                          "nvml-kepler",
                                          "nvml-kepler2",
                                          "nvml-maxwell",
                                          "nvml-turing",
                                          "nvml-ampere",
                                          "nvml-ada",
                                          "nvml-ampere-average",
                                          "nvml-counter",
                                          "apple",
                                          "nvml-hopper-average",
                                          "xe",
                                          "nvml-h200",
                                          "nvml-h200-average"};
    (void)state;
    make_truth(2);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        char text[64];
        snprintf(text, sizeof text, "preset=%s", presets[i]);
        if (relative_error(text) > 0.02) fail_msg("%s is off by %g", text, relative_error(text));
    }
    /* sensors that see a part of the time know less, not nothing */
    assert_that(relative_error("preset=nvml-a100"), <, 0.2);
    assert_that(relative_error("preset=nvml-h200-instant"), <, 0.2);
    assert_that(relative_error("preset=nvml-volta"), <, 0.1);
}

enum { MOST_COUNTED = 2000 };
typedef struct tick_sums {
    int64_t at_ns[MOST_COUNTED]; /* of ticks, and what was counted up to them */
    double uj[MOST_COUNTED], value, sum_uj;
    size_t count;
} tick_sums;

static void counted_add(tick_sums *c, const pj_rail *rail, const pj_reading *r)
{
    if (c->count == MOST_COUNTED) return;
    if (c->count > 0) c->sum_uj += pj_counter_step(rail, c->value, r->value);
    c->value = r->value;
    c->at_ns[c->count] = r->fresh_ns - rail->delay_ns;
    c->uj[c->count++] = c->sum_uj;
}

/* Some reads of a counter are lost, and slow ones leave its ticks' dates vague. */
static void read_badly(const pj_sim_spec *spec, uint32_t rail, const pj_rail *r, pj_curve *curve,
                       pj_random *random, tick_sums *c)
{
    pj_reading *readings;
    size_t count;
    assert_int_equal(
        pj_sim_read(spec, rail, segments, SEGMENTS, BEGIN, END, &readings, &count, NULL), PJ_OK);
    for (size_t k = 0; k < count; k++) {
        pj_reading *x = &readings[k];
        bool is_new = x->status == PJ_READING_OK || x->status == PJ_READING_RESET;
        if (rail == 0 && c->count > 0 && pj_random_unit(random) < 0.2) continue;
        if (rail == 0 && x->status == PJ_READING_OK)
            x->fresh_error_ns += (int64_t)(0.5 * (double)r->period_ns * pj_random_unit(random));
        assert_int_equal(pj_curve_add(curve, x, NULL), PJ_OK);
        if (rail == 0 && is_new) counted_add(c, r, x);
    }
    assert_int_equal(pj_curve_finish(curve, NULL), PJ_OK);
    pj_free(readings);
}

static void check_counted(const char *text, const tick_sums *c, double gain, const pj_curve *curve)
{
    assert_that(c->count, >, 10);
    for (size_t k = 1; k < c->count; k++) /* the first is as old as its tick, which is not known */
        for (size_t m = k + 1; m < c->count; m += 1 + m / 16) {
            double counted_mj = (c->uj[m] - c->uj[k]) * 1e-3 / (gain > 0 ? gain : 1);
            double mj = pj_curve_energy_mj(curve, c->at_ns[k], c->at_ns[m]);
            if (!(fabs(mj - counted_mj) <= 1e-9 * counted_mj))
                fail_msg("%s: %.9f mJ, not %.9f mJ", text, mj, counted_mj);
        }
}

/* From any tick to any other there is what the counter counted, whatever its sensor is like. */
static void every_preset_keeps_what_was_counted(void **state)
{
    static const char *const presets[] = {
        "counter",     "rapl",      "xe",       "apple",       "nvml-counter", "nvml-h200",
        "nvml-hopper", "nvml-a100", "nvml-ada", "nvml-ampere", "nvml-turing",  "nvml-volta"};
    (void)state;
    make_truth(12);
    for (size_t i = 0; i < 2 * sizeof presets / sizeof *presets; i++) {
        char text[160];
        const char *name = presets[i / 2];
        bool has_grid = strcmp(name, "nvml-h200") == 0, is_blind = i & 1;
        pj_random random = {i + 1};
        pj_rail rails[PJ_SIM_MAX_RAILS];
        pj_curve *curves[PJ_SIM_MAX_RAILS];
        tick_sums c = {.count = 0};
        snprintf(text, sizeof text, "preset=%s,kind=counter,dropout=0.1,duplicate=0.1%s%s", name,
                 has_grid ? "" : ",jitter=0.2", is_blind ? ",coverage=0.25,sees=window" : "");
        pj_sim_spec spec = parse(text);
        uint32_t rail_count = pj_sim_rails(&spec, rails, PJ_SIM_MAX_RAILS);
        for (uint32_t r = 0; r < rail_count; r++) curves[r] = pj_curve_new(&rails[r]);
        pj_curves_link(curves, rails, rail_count);
        for (uint32_t r = rail_count; r-- > 0;) /* a log comes before its counter */
            read_badly(&spec, r, &rails[r], curves[r], &random, &c);
        check_counted(text, &c, rails[0].gain, curves[0]);
        for (uint32_t r = 0; r < rail_count; r++) pj_curve_free(curves[r]);
    }
}

static void same_seed_same_bytes(void **state)
{
    (void)state;
    make_truth(3);
    pj_sim_spec spec = parse("noise=0.02,jitter=0.2,dropout=0.05,duplicate=0.1,seed=9");
    pj_reading *a, *b;
    size_t count_a, count_b;
    pj_sim_read(&spec, 0, segments, SEGMENTS, BEGIN, END, &a, &count_a, NULL);
    pj_sim_read(&spec, 0, segments, SEGMENTS, BEGIN, END, &b, &count_b, NULL);
    assert_int_equal(count_a, count_b);
    for (size_t i = 0; i < count_a; i++) {
        assert_int_equal(a[i].fresh_ns, b[i].fresh_ns);
        assert_int_equal(a[i].status, b[i].status);
        assert_true(a[i].value == b[i].value || (isnan(a[i].value) && isnan(b[i].value)));
    }
    pj_free(a);
    pj_free(b);
}

static void class_powers(void **state)
{
    (void)state;
    pj_sim_spec spec = parse("q_proj=45000,decode/q_proj=41000,seed=4,low_mw=1000,high_mw=2000");
    assert_that(pj_sim_class_mw(&spec, "q_proj", PJ_PHASE_PREFILL), ==, 45000);
    assert_that(pj_sim_class_mw(&spec, "q_proj", PJ_PHASE_DECODE), ==, 41000);
    double drawn = pj_sim_class_mw(&spec, "down_proj", PJ_PHASE_DECODE);
    assert_that(drawn, >=, 1000);
    assert_that(drawn, <=, 2000);
    assert_that(drawn, ==, pj_sim_class_mw(&spec, "down_proj", PJ_PHASE_PREFILL));
    pj_sim_spec other = parse("seed=5,low_mw=1000,high_mw=2000");
    assert_that(drawn, !=, pj_sim_class_mw(&other, "down_proj", PJ_PHASE_DECODE));
}

static void faults_are_survived(void **state)
{
    (void)state;
    make_truth(6);
    assert_that(relative_error("dropout=0.1,seed=2"), <, 0.01);
    assert_that(relative_error("duplicate=0.3"), <, 0.01);
    assert_that(relative_error("freeze_ms=1000-1500"), <, 0.01);
    assert_that(relative_error("jump_ms=1000,jump_mw=1e9"), <, 0.01);
    assert_that(relative_error("modulus_mj=20000,start_mj=19990"), <, 0.01);
    assert_that(relative_error("gain=1.1"), <, 0.01); /* it is told */
    assert_that(relative_error("gain=1.1,declare_gain=1"), >, 0.09);
    assert_that(relative_error("gain=1.1,declare_gain=1.1+-0.01"), <, 0.01);
    assert_that(relative_error("period_ms=100,jitter=0.2"), <, 0.01);
    assert_true(isnan(relative_error("start_mj=1e6,reset_ms=2000")) ||
                relative_error("start_mj=1e6,reset_ms=2000") < 0.01);
}

static void rails_share_the_truth(void **state)
{
    (void)state;
    make_truth(7);
    pj_sim_spec spec = parse("rails=cpu+gpu+dram,share=0.5+0.3+0.2,total=1,core=0.6");
    pj_rail rails[PJ_SIM_MAX_RAILS];
    assert_int_equal(pj_sim_rails(&spec, rails, PJ_SIM_MAX_RAILS), 5);
    assert_int_equal(rails[0].rail_class, PJ_RAIL_CPU);
    assert_int_equal(rails[0].parent, 3);
    assert_int_equal(rails[3].rail_class, PJ_RAIL_TOTAL);
    assert_int_equal(rails[4].parent, 0);
    double sum = 0;
    for (uint32_t i = 0; i < 3; i++)
        sum += pj_sim_truth_mj(&spec, i, segments, SEGMENTS, BEGIN, END);
    assert_near(sum / pj_sim_truth_mj(&spec, 3, segments, SEGMENTS, BEGIN, END), 1, 1e-12);
}

/* The counter's ticks are on a grid; each value of its log is the mean over the window it states.
 */
static void a_log_is_of_the_same_truth(void **state)
{
    (void)state;
    make_truth(8);
    pj_sim_spec spec = parse("preset=nvml-h200,rails=gpu0+cpu,share=0.75+0.25,seed=11");
    pj_rail rails[PJ_SIM_MAX_RAILS];
    pj_reading *counted, *logged;
    size_t count, log_count;
    assert_int_equal(pj_sim_rails(&spec, rails, PJ_SIM_MAX_RAILS), 4);
    assert_string_equal(rails[2].name, "gpu0-log");
    assert_int_equal(rails[2].rail_class, PJ_RAIL_PLATFORM);
    assert_int_equal(pj_rail_log_of(rails, 4, 0), 2);
    assert_int_equal(pj_rail_log_of(rails, 4, 1), 3);
    assert_int_equal(rails[0].grid_ns, 100 * MS);
    assert_int_equal(pj_sim_read(&spec, 0, segments, SEGMENTS, BEGIN, END, &counted, &count, NULL),
                     PJ_OK);
    assert_int_equal(
        pj_sim_read(&spec, 2, segments, SEGMENTS, BEGIN, END, &logged, &log_count, NULL), PJ_OK);
    for (size_t i = 1; i < count; i++)
        assert_int_equal(counted[i].fresh_ns - counted[i - 1].fresh_ns, 100 * MS);
    assert_that(log_count, >, 200);
    for (size_t i = 1; i < log_count; i++) {
        int64_t step = logged[i].fresh_ns - logged[i - 1].fresh_ns;
        int64_t end = logged[i].fresh_ns - rails[2].delay_ns, begin = end - rails[2].window_ns;
        assert_in_range(step, 8 * MS, 33 * MS);
        double mj = pj_sim_truth_mj(&spec, 2, segments, SEGMENTS, begin, end);
        assert_near(logged[i].value, mj / ((double)rails[2].window_ns * 1e-9), 0.51);
    }
    /* all of the counter's steps lie within the time that the log explains */
    assert_that(logged[0].fresh_ns, <, counted[0].fresh_ns + 33 * MS);
    assert_that(logged[log_count - 1].fresh_ns, >, counted[count - 1].fresh_ns - 33 * MS);
    pj_free(counted);
    pj_free(logged);
}

static void nonsense_is_refused(void **state)
{
    static const char *const bad[] = {"period_ms=0",
                                      "period_ms=x",
                                      "kind=what",
                                      "noise=-1",
                                      "noise=nan",
                                      "seed=-1",
                                      "bogus",
                                      "=5",
                                      "preset=unknown",
                                      "rails=",
                                      "rails=a+b,share=1",
                                      "freeze_ms=5",
                                      "freeze_ms=9-1",
                                      "q_proj=-4",
                                      "q_proj=1e99",
                                      "low_mw=10,high_mw=5",
                                      "sees=nothing",
                                      "kind=power,log_ms=20",
                                      "kind=power,grid=1",
                                      "grid=1,jitter=0.1",
                                      "log_jitter=0.5",
                                      "gain=0"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_sim_spec spec;
        pj_error err = {0};
        assert_int_equal(pj_sim_parse(bad[i], &spec, &err), PJ_E_INVALID);
        assert_that(strlen(err.text), >, 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_to_quantisation),
        cmocka_unit_test(every_preset_sees_the_energy),
        cmocka_unit_test(every_preset_keeps_what_was_counted),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(class_powers),
        cmocka_unit_test(faults_are_survived),
        cmocka_unit_test(rails_share_the_truth),
        cmocka_unit_test(a_log_is_of_the_same_truth),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
