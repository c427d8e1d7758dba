/* The interval of the typical token over simulated runs whose steps scatter and stall, read by
 * sensors whose calibration is off by as much as they declare. The truth is the energy of a step of
 * median length, which the run's own steps only sample. */
#include "../assertions.h"
#include "attribution/build.h"
#include "base/random.h"
#include "made_spool.h"
#include "trace/summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double scatter = 0.08, stall = 8;

typedef struct plan {
    const char *sensor;
    int64_t step_ns; /* median */
    int steps;
    double stalled; /* share of the steps */
    double gain_sd;
} plan;

/* A step of two layers; all parts scale with its length. */
static void put_step(writer *w, pj_phase phase, int step, int64_t begin, int64_t each)
{
    int64_t t = begin + each / 10, part = each / 10;
    uint32_t serial = w->serial++;
    put_begin(w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, 0), serial);
    for (int layer = 0; layer < 2; layer++, t += 4 * part) {
        uint32_t of_layer = w->serial++;
        put_span(w, make(PJ_SPAN_COMPONENT, Q_PROJ, phase, step, layer, t, t + part), w->serial++);
        put_span(w, make(PJ_SPAN_COMPONENT, ATTENTION, phase, step, layer, t + part, t + 3 * part),
                 w->serial++);
        put_span(w,
                 make(PJ_SPAN_COMPONENT, DOWN_PROJ, phase, step, layer, t + 3 * part, t + 4 * part),
                 w->serial++);
        put_span(w, make(PJ_SPAN_LAYER, (uint32_t)layer, phase, step, -1, t, t + 4 * part),
                 of_layer);
    }
    put_text(w, serial, 0, 100 + step, "a");
    put_span(w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, begin + each), serial);
}

static void put_scattered(writer *w, const plan *p, pj_random *random)
{
    int64_t at = 1000, each = 3 * p->step_ns;
    uint32_t phase = w->serial++;
    put_begin(w, make(PJ_SPAN_PHASE, PJ_PHASE_PREFILL, PJ_PHASE_IDLE, -1, -1, at, 0), phase);
    put_step(w, PJ_PHASE_PREFILL, 0, at, each);
    put_span(w, make(PJ_SPAN_PHASE, PJ_PHASE_PREFILL, PJ_PHASE_PREFILL, -1, -1, at, at + each),
             phase);
    int64_t begin = at += each;
    phase = w->serial++;
    put_begin(w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_IDLE, -1, -1, at, 0), phase);
    for (int step = 1; step <= p->steps; step++, at += each) {
        double length = exp(scatter * pj_random_normal(random));
        if (pj_random_unit(random) < p->stalled) length *= stall;
        each = (int64_t)(length * (double)p->step_ns);
        put_step(w, PJ_PHASE_DECODE, step, at, each);
    }
    put_span(w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_DECODE, -1, -1, begin, at), phase);
    put_end(w, at + 1000);
}

static void run_of(const plan *p, pj_random *random, pj_run_data *data)
{
    char text[400];
    writer w;
    pj_sim_spec sim;
    double gain = 1 + p->gain_sd * pj_random_normal(random);
    snprintf(text, sizeof text, "%s,seed=%d,gain=%.6f,declare_gain=1+-%.3f", p->sensor,
             1 + (int)(pj_random_unit(random) * 1e6), gain, p->gain_sd);
    begin_run(&w, &sim, text);
    put_scattered(&w, p, random);
    assert_int_equal(build(&w, &sim, data), PJ_OK);
    pj_spool_close(&w.spool, true);
}

/* Energy of a step of median length: power is the same in all steps. */
static double truth_of(const pj_run_data *d, const plan *p)
{
    for (uint32_t i = 0; i < d->token_count; i++)
        if (d->phases[d->tokens[i].phase].phase == PJ_PHASE_DECODE)
            return pj_mj_of_nj(d->tokens[i].energy.planted_nj) / d->tokens[i].duration_ms *
                   (double)p->step_ns * 1e-6;
    return NAN;
}

typedef struct score {
    int runs, known, covered, by_scatter; /* by_scatter: covered by the scatter alone */
    double widths, errors;                /* sums of relative half widths and absolute errors */
} score;

static void judge(const plan *p, pj_random *random, score *s)
{
    pj_run_data d = {0};
    pj_run_ratios r;
    run_of(p, random, &d);
    pj_run_ratios_get(&d.info, &r);
    double truth = truth_of(&d, p) / 1e3, value = r.joules_per_token_typical;
    s->runs++;
    if (!isnan(value)) {
        double random_sd = (double)d.info.typical_sd.random_mj / 1e3;
        s->known++;
        s->covered += truth >= r.typical_bounds.lo && truth <= r.typical_bounds.hi;
        s->by_scatter += fabs(value - truth) < PJ_Z95 * random_sd;
        s->widths += log(r.typical_bounds.hi / value);
        s->errors += fabs(log(value / truth));
    }
    pj_run_data_fini(&d);
}

static score judge_many(const plan *p, uint64_t seed, int runs)
{
    pj_random random = {seed};
    score s = {0};
    for (int i = 0; i < runs; i++) judge(p, &random, &s);
    print_message("%s: %d of %d known, covered %.1f %%, by the scatter alone %.1f %%, half width "
                  "%.1f %%, error %.1f %%\n",
                  p->sensor, s.known, s.runs, 100.0 * s.covered / s.known,
                  100.0 * s.by_scatter / s.known, 100 * s.widths / s.known,
                  100 * s.errors / s.known);
    return s;
}

static void intervals_hold_sensor_and_scatter(void **state)
{
    static const plan plans[] = {
        {"period_ms=1,resolution_mj=0.1", 4000000, 60, 0, 0.05},
        {"period_ms=1,resolution_mj=0.1", 4000000, 60, 0.05, 0.05},
        {"period_ms=1,resolution_mj=0.1", 4000000, 40, 0.05, 0.002},
        {"period_ms=10,resolution_mj=1", 5000000, 120, 0.05, 0.03},
        {"kind=power,period_ms=100,noise=0.01", 20000000, 60, 0.05, 0.05},
        {"kind=power,period_ms=100,noise=0.01", 20000000, 60, 0.05, 0.002},
        {"kind=power,period_ms=25,window_ms=25,noise=0.02,delay_ms=10", 8000000, 80, 0.03, 0.05},
    };
    int covered = 0, known = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        score s = judge_many(&plans[i], 0x51b0 + i, 80);
        assert_that(s.known, >=, 72);
        assert_that(s.covered, >=, 0.85 * s.known);
        covered += s.covered;
        known += s.known;
        if (plans[i].gain_sd > 0.02) assert_that(s.by_scatter, <, 0.8 * s.known);
        assert_that(s.widths / s.known, <, 5 * s.errors / s.known);
    }
    assert_that(covered, >=, 0.92 * known);
}

/* Between runs the median hardly moves, whatever stalls do to the mean. */
static void stalls_hardly_move_it(void **state)
{
    plan calm = {"period_ms=1,resolution_mj=0.1", 4000000, 80, 0, 0.01}, busy = calm;
    busy.stalled = 0.1;
    double typical[2] = {0}, mean[2] = {0};
    for (int k = 0; k < 2; k++) {
        pj_random random = {0x77c1};
        for (int i = 0; i < 12; i++) {
            pj_run_data d = {0};
            run_of(k ? &busy : &calm, &random, &d);
            double truth = truth_of(&d, &calm);
            typical[k] += d.info.typical_token_mj / truth / 12;
            mean[k] += d.info.decode_mj / calm.steps / truth / 12;
            pj_run_data_fini(&d);
        }
    }
    assert_near(typical[1] / typical[0], 1, 0.05);
    assert_that(mean[1] / mean[0], >, 1.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_sensor_and_scatter),
        cmocka_unit_test(stalls_hardly_move_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
