/* perjoule bench analysis: phases of traces whose tags were removed, made, simulated, recorded. */
#include "analysis/phases.h"
#include "base/memory.h"
#include "bench/recorded_phases.h"
#include "bench/recorded_repeats.h"
#include "bench/sim_phases.h"
#include "bench/truth.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { READINGS = 2000 };

/* ---- made traces ---- */

typedef struct trace {
    double t_ms[READINGS], mw[READINGS];
    uint8_t phase[READINGS];
    size_t count;
} trace;

static void stretch(pj_bench_truth *b, trace *t, pj_phase phase, double readings, double mw,
                    double noise)
{
    for (int i = 0; i < (int)readings && t->count < READINGS; i++) {
        t->t_ms[t->count] = (double)t->count * 10;
        t->mw[t->count] = pj_bench_truth_noisy(b, mw, noise);
        t->phase[t->count++] = (uint8_t)phase;
    }
}

/* `o` 0: phases differ by more than twice the noise; 1: they overlap (decode may draw as much as
 * prefill, prompts are cached, preparation is busy). */
static void make_request(pj_bench_truth *b, trace *t, double idle, double top, double noise,
                         double o)
{
    double pre = pj_bench_truth_between(b, 0.25 - 0.15 * o, 0.25 + 0.65 * o);
    double decode = pj_bench_truth_between(b, 0.5 - 0.1 * o, 0.7 + 0.3 * o),
           post = pj_bench_truth_between(b, 0.15 - 0.15 * o, 0.15 + 0.35 * o);
    if (pj_bench_truth_between(b, 0, 1) < 0.7 - 0.1 * o)
        stretch(b, t, PJ_PHASE_PRE_INFERENCE, pj_bench_truth_between(b, 8, 40 + 40 * o),
                idle + pre * (top - idle), noise);
    if (pj_bench_truth_between(b, 0, 1) > 0.3 * o)
        stretch(b, t, PJ_PHASE_PREFILL, pj_bench_truth_between(b, 10 - 4 * o, 60 + 90 * o),
                top * pj_bench_truth_between(b, 0.95 - 0.25 * o, 1.05), noise);
    stretch(b, t, PJ_PHASE_DECODE, pj_bench_truth_between(b, 60 - 40 * o, 300 - 100 * o),
            idle + decode * (top - idle), noise);
    if (pj_bench_truth_between(b, 0, 1) < 0.5)
        stretch(b, t, PJ_PHASE_POST_INFERENCE, pj_bench_truth_between(b, 8, 20 + 20 * o),
                idle + post * (top - idle), noise);
    if (pj_bench_truth_between(b, 0, 1) > 0.3 * o)
        stretch(b, t, PJ_PHASE_IDLE, pj_bench_truth_between(b, 20 - 10 * o, 80 + 40 * o), idle,
                noise);
}

static void make_trace(pj_bench_truth *b, trace *t, double overlap)
{
    double idle = pj_bench_truth_between(b, 3e3, 60e3),
           top = idle * pj_bench_truth_between(b, 3 - overlap, 8 - 2 * overlap);
    double noise = pj_bench_truth_between(b, 0.01 + 0.01 * overlap, 0.05 + 0.03 * overlap);
    t->count = 0;
    stretch(b, t, PJ_PHASE_IDLE, pj_bench_truth_between(b, 20, 80), idle, noise);
    for (int requests = 1 + (int)pj_bench_truth_between(b, 0, 3); requests > 0; requests--)
        make_request(b, t, idle, top, noise, overlap);
}

typedef struct phase_score {
    double all, right, near_90, near_90_right;
} phase_score;

static void score_trace(const trace *t, const pj_phase_model *model, phase_score *s)
{
    uint8_t phase[READINGS];
    double confidence[READINGS];
    pj_phase_trace untagged = {t->t_ms, t->mw, t->count, NAN, NULL};
    pj_phases_detect(&untagged, model, phase, confidence);
    for (size_t i = 0; i < t->count; i++) {
        bool right = phase[i] == t->phase[i], near = confidence[i] >= 0.85 && confidence[i] < 0.95;
        s->all++, s->right += right;
        s->near_90 += near, s->near_90_right += near && right;
    }
}

static bool score_phases(pj_bench_truth *b, double overlap, phase_score *s)
{
    enum { TRAIN = 200, TEST = 200 };
    trace *train = pj_alloc(TRAIN + 1, sizeof *train);
    pj_phase_trace *tagged = pj_alloc(TRAIN, sizeof *tagged);
    pj_phase_model model;
    bool ok = train && tagged;
    *s = (phase_score){0};
    for (int i = 0; i < TRAIN && ok; i++) {
        make_trace(b, &train[i], overlap);
        tagged[i] =
            (pj_phase_trace){train[i].t_ms, train[i].mw, train[i].count, NAN, train[i].phase};
    }
    ok = ok && pj_phase_model_train(tagged, TRAIN, &model);
    for (int i = 0; i < TEST && ok; i++) {
        make_trace(b, &train[TRAIN], overlap);
        score_trace(&train[TRAIN], &model, s);
    }
    pj_free(train);
    pj_free(tagged);
    return ok;
}

/* Sensors of 1, 20 and 100 ms. The samples of a segment are right or wrong together, so that many
 * requests are needed to measure calibration of the confidence. */
static pj_status bench_simulated_phases(pj_bench_truth *b, pj_error *err)
{
    static const struct {
        const char *preset;
        double stretch;
    } sensors[] = {{"rapl", 1}, {"nvml-volta", 1}, {"apple", 4}, {"nvml-ampere-average", 4}};
    enum { MACHINES = 30 };
    for (size_t i = 0; i < sizeof sensors / sizeof *sensors; i++) {
        pj_sim_phase_score s = {0};
        char key[64];
        for (int k = 0; k < MACHINES; k++) {
            uint64_t seed = pj_random_u64(&b->random) % 100000;
            pj_status status =
                pj_sim_phases_judge(sensors[i].preset, seed, sensors[i].stretch, &s, err);
            if (status != PJ_OK) return status;
        }
        snprintf(key, sizeof key, "phases_right_sim_%s", sensors[i].preset);
        pj_bench_truth_say(b, key, 100 * s.clear_right / s.clear, "%",
                           "of a simulated sensor's samples, as phases_right; at least 95");
        snprintf(key, sizeof key, "at_90_percent_sim_%s", sensors[i].preset);
        pj_bench_truth_say(b, key, 100 * s.near_90_right / s.near_90, "%",
                           "of its samples with a confidence of 85 to 95 %; 85 to 95");
    }
    return PJ_OK;
}

pj_status pj_bench_truth_phases(pj_bench_truth *b, pj_error *err)
{
    phase_score clear, overlapping;
    if (!score_phases(b, 0, &clear) || !score_phases(b, 1, &overlapping))
        return pj_fail_memory(err, "the benchmark");
    pj_bench_truth_say(b, "phases_right", 100 * clear.right / clear.all, "%",
                       "of samples, where phases differ by twice the noise; at least 95");
    pj_bench_truth_say(b, "phases_right_overlapping", 100 * overlapping.right / overlapping.all,
                       "%", "where decode may be as hot as prefill");
    pj_bench_truth_say(b, "phases_at_90_percent_right",
                       100 * overlapping.near_90_right / overlapping.near_90, "%",
                       "of samples with a confidence of 85 to 95 %; 85 to 95");
    return bench_simulated_phases(b, err);
}

/* ---- recordings ---- */

static pj_status bench_recorded_phases(pj_bench_truth *b, const char *fixtures, pj_error *err)
{
    char folder[PATH_MAX];
    pj_recorded_score s[PJ_RECORDED_TRACES];
    double all = 0, near = 0, near_right = 0;
    snprintf(folder, sizeof folder, "%s/nvml/traces", fixtures);
    pj_status status = pj_recorded_phases_judge(folder, s, err);
    for (int i = 0; i < PJ_RECORDED_TRACES && status == PJ_OK; i++) {
        char key[64];
        snprintf(key, sizeof key, "phases_right_recorded_%d", i + 1);
        pj_bench_truth_say(b, key, 100 * s[i].right / s[i].all, "%", s[i].name);
        all += s[i].all;
        near += s[i].near_90;
        near_right += s[i].near_90_right;
    }
    if (status != PJ_OK) return status;
    pj_bench_truth_say(b, "near_90_percent_recorded", 100 * near / all, "%",
                       "of all these samples have a confidence of 85 to 95 %");
    pj_bench_truth_say(b, "at_90_percent_recorded", 100 * near_right / near, "%",
                       "of those are right: few, and beside switches of the load");
    return status;
}

static pj_status bench_recorded_repeats(pj_bench_truth *b, const char *fixtures, pj_error *err)
{
    char path[PATH_MAX];
    pj_recorded_repeats *r = pj_alloc(1, sizeof *r);
    if (!r) return pj_fail_memory(err, "the benchmark");
    snprintf(path, sizeof path, "%s/llm-energy/dos-group/mfu_aggregated_per_config_A100.csv",
             fixtures);
    pj_status status = pj_recorded_repeats_read(path, r, err);
    if (status == PJ_OK) {
        double difference = pj_recorded_repeats_detectable(r);
        pj_bench_truth_say(b, "recorded_runs", (double)r->count, "", "of an A100, in fours");
        pj_bench_truth_say(b, "recorded_alike_called_different_3",
                           100 * pj_recorded_repeats_different(r, 3, 1), "%",
                           "of 2,000 pairs of them that are alike; at most 5");
        pj_bench_truth_say(b, "recorded_alike_called_different_10",
                           100 * pj_recorded_repeats_different(r, 10, 1), "%",
                           "the same, 10 runs per side");
        pj_bench_truth_say(b, "recorded_difference_planted", 100 * difference, "%",
                           "that 10 repeats find with the stated power");
        pj_bench_truth_say(b, "recorded_difference_found",
                           100 * pj_recorded_repeats_different(r, 10, 1 + difference), "%",
                           "of pairs with that difference");
    }
    pj_free(r);
    return status;
}

pj_status pj_bench_truth_recorded(pj_bench_truth *b, const char *fixtures, pj_error *err)
{
    pj_status status = bench_recorded_phases(b, fixtures, err);
    return status == PJ_OK ? bench_recorded_repeats(b, fixtures, err) : status;
}
