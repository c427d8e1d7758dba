/*
 * Planted loads of concurrent requests, seen by every kind of simulated sensor: shares sum to the
 * machine's energy, which is the planted one within its interval; what an answer carries agrees
 * with what is stored; equal requests get equal energy, whether they are streamed or not.
 * PJ_TABLE=1 prints the errors.
 */
#include "../assertions.h"
#include "../sanitized.h"
#include "attribution/ledger.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "power/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS PJ_NS_PER_MS
enum { MOST = 40, WAVES = 5, TICK_MS = 20, WAVE_MS = 4000, FIRST_MS = 3000, LATE_MS = 6000 };
/* Readings begin at 0, or shortly before the first wave. */
static int64_t readings_begin_ns;

static const char *const presets[] = {"counter",
                                      "rapl",
                                      "nvml-fermi",
                                      "nvml-kepler",
                                      "nvml-kepler2",
                                      "nvml-maxwell",
                                      "nvml-pascal",
                                      "nvml-volta",
                                      "nvml-turing",
                                      "nvml-ampere",
                                      "nvml-ampere-average",
                                      "nvml-a100",
                                      "nvml-ada",
                                      "nvml-ada-average",
                                      "nvml-hopper",
                                      "nvml-hopper-average",
                                      "nvml-counter",
                                      "apple",
                                      "xe"};
enum { PRESETS = sizeof presets / sizeof *presets };

typedef enum kind { STREAMED, WHOLE, TIMED, MIXED, KINDS } kind;
static const char *const kinds[] = {"streamed", "whole", "timed", "mixed"};

/* A request as planted, and what is said about it. */
typedef struct planted {
    kind how;
    int64_t begin_ns, first_ns, end_ns, next_ns;
    double prompt, output, given;
    double last; /* of a token's time, between the last token and the end of the answer */
    double true_mj;
    pj_ledger_entry *entry;
    pj_ledger_figure answer, stored;
    bool has_left, is_stored;
} planted;

typedef struct load {
    planted requests[MOST];
    uint32_t count;
    pj_sim_segment segments[WAVES * 2];
    uint32_t segment_count;
    int64_t end_ns;
} load;

/* Waves of `together` requests with pauses between; `equal` or of varied length and rate. */
static void plant(load *l, uint32_t together, kind how, bool equal, int usual_ms, uint64_t seed)
{
    pj_random random = {.state = seed};
    *l = (load){0};
    for (uint32_t w = 0; w < WAVES; w++) {
        int64_t wave_ns = (FIRST_MS + w * WAVE_MS) * MS, end_ns = 0;
        for (uint32_t i = 0; i < together; i++) {
            planted *p = &l->requests[l->count++];
            double longer = equal ? 1 : 0.3 + 1.4 * pj_random_unit(&random);
            double faster = equal ? 1 : 0.5 + pj_random_unit(&random);
            p->how = how == MIXED ? (kind)(i % 3) : how;
            p->begin_ns = wave_ns + (int64_t)i * 2 * MS + (int64_t)(w * 137) * MS / 10;
            p->first_ns = p->begin_ns + (int64_t)(usual_ms * longer / 8) * MS;
            p->end_ns = p->begin_ns + (int64_t)(usual_ms * longer) * MS;
            p->prompt = 60 * longer;
            p->output = floor(100 * longer * faster) + 2;
            p->last = !equal && how == STREAMED ? (double)(i % 2) : 0;
            if (p->end_ns > end_ns) end_ns = p->end_ns;
        }
        l->segments[l->segment_count++] =
            (pj_sim_segment){wave_ns + (int64_t)(w * 137) * MS / 10, end_ns, 30000};
        l->end_ns = end_ns;
    }
}

static double rate_of(const planted *p, int64_t t_ns)
{
    if (t_ns < p->begin_ns || t_ns >= p->end_ns) return 0;
    if (t_ns < p->first_ns) return (p->prompt + 1) / (double)(p->first_ns - p->begin_ns);
    return (p->output - 1) / (double)(p->end_ns - p->first_ns);
}

/* What the documented rule gives where everything is known. */
static void plant_truth(load *l, double idle_mw)
{
    for (int64_t t = FIRST_MS * MS; t < l->end_ns; t += MS / 2) {
        double sum = 0;
        for (uint32_t i = 0; i < l->count; i++) sum += rate_of(&l->requests[i], t);
        for (uint32_t i = 0; sum > 0 && i < l->count; i++)
            l->requests[i].true_mj +=
                rate_of(&l->requests[i], t) / sum * (idle_mw + 30000) * 0.5e-3;
    }
}

/* ---- what the proxy does ---- */

static void progress(planted *p, pj_ledger *ledger, int64_t now_ns)
{
    if (p->has_left) return;
    if (!p->entry && p->begin_ns <= now_ns)
        p->entry = pj_ledger_enter(ledger, p->begin_ns, p->prompt);
    if (!p->entry) return;
    double each_ns = (double)(p->end_ns - p->first_ns) / (p->output - 1 + p->last);
    while (p->how == STREAMED && p->given < p->output) {
        int64_t at_ns = p->first_ns + (int64_t)(each_ns * p->given);
        if (at_ns > now_ns) break;
        if (p->given == 0) pj_ledger_prompt(p->entry, p->prompt, 0);
        pj_ledger_tokens(p->entry, at_ns, 1);
        p->given++;
    }
}

static void leave(planted *p, pj_ledger *ledger)
{
    p->answer = pj_ledger_now(ledger, p->entry, p->end_ns);
    if (p->how != STREAMED) pj_ledger_prompt(p->entry, p->prompt, 0);
    if (p->how == TIMED) {
        pj_ledger_tokens(p->entry, p->first_ns, 1);
        pj_ledger_tokens(p->entry, p->end_ns, p->output - 1);
    }
    if (p->how == WHOLE) pj_ledger_whole(p->entry, p->output);
    pj_ledger_leave(p->entry, p->end_ns);
    p->has_left = true;
}

static void settle(load *l, pj_ledger *ledger, int64_t now_ns)
{
    if (pj_ledger_certain_ns(ledger) != INT64_MIN)
        pj_ledger_settle(ledger, pj_ledger_certain_ns(ledger), NULL);
    pj_ledger_estimate(ledger, now_ns);
    for (uint32_t i = 0; i < l->count; i++) {
        planted *p = &l->requests[i];
        if (!p->has_left || p->is_stored) continue;
        p->stored = pj_ledger_of(ledger, p->entry);
        p->is_stored = !p->stored.provisional;
    }
}

static void follow(load *l, pj_ledger *ledger, const pj_reading *readings, size_t count)
{
    size_t read = 0;
    for (int64_t now_ns = 0; now_ns < l->end_ns + LATE_MS * MS; now_ns += TICK_MS * MS) {
        for (;;) { /* ends between two ticks, in order */
            planted *next = NULL;
            for (uint32_t i = 0; i < l->count; i++) {
                planted *p = &l->requests[i];
                if (!p->has_left && p->end_ns <= now_ns && (!next || p->end_ns < next->end_ns))
                    next = p;
            }
            for (uint32_t i = 0; i < l->count; i++)
                progress(&l->requests[i], ledger, next ? next->end_ns : now_ns);
            if (!next) break;
            leave(next, ledger);
        }
        for (; read < count && readings[read].after_ns <= now_ns; read++)
            if (readings[read].after_ns >= readings_begin_ns)
                pj_ledger_read(ledger, &readings[read], NULL);
        settle(l, ledger, now_ns);
    }
}

/* ---- judging ---- */

typedef struct score {
    uint32_t count, told, within; /* of these: answers with a figure, that contain what is stored */
    double worst_ratio, worst_error, mean_error; /* stored against planted; relative */
    double sum_mj, divided_mj, true_mj, curve_mj, worst_z;
    uint32_t waves, waves_within;
    double wave_low, wave_high; /* within a wave of equal requests */
    double width;
} score;

static void judge(const load *l, const pj_sim_spec *spec, pj_ledger *ledger, uint32_t together,
                  score *s)
{
    int64_t unknown_ns;
    for (uint32_t i = 0; i < l->count; i++) {
        const planted *p = &l->requests[i];
        assert_true(p->is_stored);
        double mj = p->stored.total_mj, error = fabs(mj / p->true_mj - 1);
        s->count++;
        s->sum_mj += mj;
        s->true_mj += p->true_mj;
        s->mean_error += error;
        if (error > s->worst_error) s->worst_error = error;
        double mean = 0;
        for (uint32_t k = 0; k < together; k++)
            mean += l->requests[i / together * together + k].stored.total_mj / together;
        if (fabs(mj / mean - 1) > s->worst_ratio) s->worst_ratio = fabs(mj / mean - 1);
        if (isnan(p->answer.total_mj)) continue;
        s->told++;
        s->width += 1.96 * p->answer.sd_mj / p->answer.total_mj;
        s->within += fabs(mj - p->answer.total_mj) <= 1.96 * p->answer.sd_mj + 1e-9 * mj;
        if (getenv("PJ_EACH"))
            printf("%2u %s answer %.0f +- %.0f stored %.0f +- %.0f true %.0f\n", i, kinds[p->how],
                   p->answer.total_mj, 1.96 * p->answer.sd_mj, mj, 1.96 * p->stored.sd_mj,
                   p->true_mj);
    }
    s->divided_mj += pj_ledger_divided_mj(ledger, &unknown_ns);
    for (uint32_t w = 0; w < l->segment_count; w++) {
        pj_curve_energy e;
        pj_ledger_machine(ledger, l->segments[w].begin_ns, l->segments[w].end_ns, &e);
        double true_mj = pj_sim_truth_mj(spec, 0, l->segments, l->segment_count,
                                         l->segments[w].begin_ns, l->segments[w].end_ns);
        double z = fabs(e.energy_mj - true_mj) / e.sd_mj;
        s->curve_mj += e.energy_mj;
        s->waves++;
        s->waves_within += z <= 1.96;
        s->worst_z = fmax(s->worst_z, z);
    }
}

static void simulate(const char *preset, uint32_t together, kind how, bool equal, int usual_ms,
                     uint64_t seed, score *s)
{
    char text[80];
    pj_sim_spec spec;
    pj_rail rails[PJ_MAX_RAILS];
    pj_reading *readings;
    size_t count;
    static load l;
    snprintf(text, sizeof text, "preset=%s,seed=%llu", preset, (unsigned long long)seed);
    assert_int_equal(pj_sim_parse(text, &spec, NULL), PJ_OK);
    uint32_t rail_count = pj_sim_rails(&spec, rails, PJ_MAX_RAILS);
    assert_int_equal(rail_count, 1);
    plant(&l, together, how, equal, usual_ms, seed);
    plant_truth(&l, spec.idle_mw);
    assert_int_equal(pj_sim_read(&spec, 0, l.segments, l.segment_count, 0, l.end_ns + LATE_MS * MS,
                                 &readings, &count, NULL),
                     PJ_OK);
    pj_ledger *ledger = pj_ledger_new(&(pj_ledger_options){
        .rails = rails, .rail_count = 1, .rule = PJ_BATCH_TOKENS, .keeps_all = true});
    follow(&l, ledger, readings, count);
    judge(&l, &spec, ledger, together, s);
    pj_ledger_free(ledger);
    pj_free(readings);
}

static void print_row(const char *name, const char *what, const score *s)
{
    printf(
        "%-20s %-9s stored/true: mean %5.1f %% worst %6.1f %%; apart %6.1f %%; sum/planted %.3f, %3.0f %% of waves hold, z %.1f; answers %3u of %3u, %5.1f %% hold, +-%3.0f %%\n",
        name, what, 100 * s->mean_error / s->count, 100 * s->worst_error, 100 * s->worst_ratio,
        s->sum_mj / s->true_mj, 100.0 * s->waves_within / s->waves, s->worst_z, s->told, s->count,
        100.0 * s->within / (s->told ? s->told : 1), 100 * s->width / (s->told ? s->told : 1));
}

static void sums_are_the_machines(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PRESETS; i += PJ_SANITIZED ? 3 : 1)
        for (kind how = PJ_SANITIZED ? i % KINDS : 0; how < KINDS;
             how += PJ_SANITIZED ? KINDS : 1) {
            score s = {0};
            for (uint32_t n = 1; n <= 5; n += n < 2 ? 1 : 3)
                simulate(presets[i], n, how, false, 1200, 5 * n + i, &s);
            if (getenv("PJ_TABLE")) print_row(presets[i], kinds[how], &s);
            if (!getenv("PJ_TABLE")) {
                assert_near(s.sum_mj, s.divided_mj, 1e-9 * s.sum_mj);
                assert_near(s.sum_mj, s.curve_mj, 1e-9 * s.sum_mj);
                assert_that(s.waves_within, >=, 0.95 * s.waves);
                assert_that(s.within, >=, 0.95 * s.told);
                assert_that(s.told, >=, 0.8 * s.count);
            }
        }
}

/* Shorter than the window of the sensor: what its later readings tell is used, and what they leave
 * open is in the interval. */
static void short_requests_are_as_sure_as_their_sensor(void **state)
{
    (void)state;
    for (int ms = 250; ms <= 500; ms += 250) {
        score s = {0};
        for (uint64_t seed = 1; seed <= 3; seed++)
            simulate("nvml-ampere-average", 8, STREAMED, true, ms, seed, &s);
        if (getenv("PJ_TABLE")) print_row("short", kinds[STREAMED], &s);
        assert_that(s.waves_within, >=, 0.92 * s.waves);
        assert_that(s.within, >=, 0.95 * s.told);
        assert_that(s.sum_mj, >=, (ms < 500 ? 0.75 : 0.9) * s.true_mj);
    }
}

/* As of a proxy that has just been started. */
static void the_first_requests_are_as_sure(void **state)
{
    (void)state;
    score s = {0};
    for (int before_ms = 50; before_ms <= 950; before_ms += 100) {
        readings_begin_ns = (FIRST_MS - before_ms) * MS;
        simulate("nvml-ampere-average", 8, WHOLE, true, 460, (uint64_t)before_ms, &s);
        readings_begin_ns = 0;
        uint32_t outside = s.waves - s.waves_within;
        if (getenv("PJ_TABLE")) print_row("just begun", kinds[WHOLE], &s);
        if (outside > 0) fail_msg("%d ms before: %u of %u waves", before_ms, outside, s.waves);
    }
}

static void equal_requests_get_equal_energy(void **state)
{
    (void)state;
    for (kind how = 0; how < KINDS; how++) {
        score s = {0};
        simulate("rapl", 7, how, true, 1200, 3, &s);
        simulate("nvml-ampere-average", 8, how, true, 1200, 4, &s);
        if (getenv("PJ_TABLE")) print_row("equal", kinds[how], &s);
        assert_that(s.worst_ratio, <, 0.04); /* they begin 2 ms apart */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_the_machines),
                                       cmocka_unit_test(short_requests_are_as_sure_as_their_sensor),
                                       cmocka_unit_test(the_first_requests_are_as_sure),
                                       cmocka_unit_test(equal_requests_get_equal_energy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
