/* perjoule bench analysis: accuracy of the analysis on planted truth. Every figure is computed from
 * seeded random data with known answers, by the functions that are applied to stored runs. */
#include "analysis/phases.h"
#include "analysis/predict.h"
#include "analysis/ratio.h"
#include "analysis/token_anomalies.h"
#include "analysis/verdict.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "cli/options.h"
#include "profile/sim_phases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 400, PLANTED_EVERY = 50, READINGS = 2000, KNOWN = 48 };

typedef struct bench {
    pj_json *json; /* NULL: a table */
    pj_random random;
    int64_t rounds;
} bench;

static void report(bench *b, const char *key, double value, const char *unit, const char *note)
{
    if (b->json)
        pj_json_kv_double(b->json, key, value);
    else
        printf("%-38s %9.4g %-2s %s\n", key, value, unit, note);
}

static double between(bench *b, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(&b->random);
}

static double noisy(bench *b, double value, double share)
{
    return value * exp(share * pj_random_normal(&b->random));
}

/* ---- comparison ----------------------------------------------------------------------------- */

static bool is_different(bench *b, size_t n, double factor, double spread)
{
    double x[32], y[32];
    char text[600];
    pj_judgement judgement;
    pj_verdict_facts f = {.name_a = "A", .name_b = "B", .mann_whitney_p = NAN, .speed_ratio = NAN};
    for (size_t i = 0; i < n; i++) {
        x[i] = noisy(b, 0.2, spread);
        y[i] = noisy(b, 0.2 * factor, spread);
    }
    pj_ratio_compare(x, n, y, n, 0, &f.ratio);
    f.p = f.ratio.p;
    pj_verdict_write(&f, &judgement, text, sizeof text);
    return judgement.outcome == PJ_OUTCOME_DIFFERENT;
}

static double share_different(bench *b, size_t n, double factor, double spread)
{
    int64_t different = 0;
    for (int64_t i = 0; i < b->rounds; i++) different += is_different(b, n, factor, spread);
    return 100.0 * (double)different / (double)b->rounds;
}

/* The spread at which ten repeats detect 3 % with the stated power. */
static double spread_for(double difference, double repeats)
{
    double lo = 1e-4, hi = 0.5;
    for (int i = 0; i < 60; i++) {
        double mid = (lo + hi) / 2;
        if (pj_repeats_for(mid, difference) < repeats)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void bench_comparison(bench *b)
{
    report(b, "alike_called_different_3", share_different(b, 3, 1, 0.02), "%",
           "of pairs that are alike, 3 runs a side; at most 5");
    report(b, "alike_called_different_10", share_different(b, 10, 1, 0.02), "%",
           "the same, 10 runs a side");
    double spread = spread_for(0.03, 10);
    report(b, "stated_power", 100 * PJ_POWER, "%", "for 3 % with 10 repeats a side");
    report(b, "difference_of_3_percent_found", share_different(b, 10, 1.03, spread), "%",
           "of pairs with that difference");
}

/* ---- anomalies ------------------------------------------------------------------------------ */

typedef struct tokens {
    double duration[TOKENS], energy[TOKENS], processor[TOKENS], clock[TOKENS], spread[TOKENS];
    pj_anomaly_cause planted[TOKENS];
} tokens;

static void plant(bench *b, tokens *t, int i, double *power)
{
    static const pj_anomaly_cause causes[] = {PJ_CAUSE_DISTURBED, PJ_CAUSE_THROTTLED,
                                              PJ_CAUSE_REAL};
    double size = between(b, 1.3, 2.5);
    t->planted[i] = causes[i / PLANTED_EVERY % 3];
    t->duration[i] *= size;
    if (t->planted[i] == PJ_CAUSE_DISTURBED) t->processor[i] /= size, *power *= 0.85;
    if (t->planted[i] == PJ_CAUSE_THROTTLED) t->clock[i] = 0.7, *power *= 0.8;
    if (t->planted[i] == PJ_CAUSE_REAL) t->spread[i] *= 1.5;
}

static void make_tokens(bench *b, tokens *t, bool with_anomalies)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TOKENS; i++) {
        double power = noisy(b, 30, 0.01);
        t->duration[i] = noisy(b, 10 * (1 + 0.3 * i / TOKENS), 0.01);
        t->processor[i] = 0.98;
        t->clock[i] = 1;
        t->spread[i] = noisy(b, 1, 0.02);
        if (with_anomalies && i % PLANTED_EVERY == PLANTED_EVERY / 2) plant(b, t, i, &power);
        t->energy[i] = t->duration[i] * power;
    }
}

static size_t find(const tokens *t, pj_token_anomaly found[PJ_TOKEN_ANOMALIES_MAX])
{
    pj_token_figures f = {.count = TOKENS,
                          .duration_ms = t->duration,
                          .energy_mj = t->energy,
                          .spread = t->spread,
                          .processor_share = t->processor,
                          .clock_share = t->clock};
    return pj_token_anomalies_find(&f, 1, found, PJ_TOKEN_ANOMALIES_MAX);
}

static void bench_anomalies(bench *b, tokens *t)
{
    enum { RUNS = 40 };
    double reported = 0, right = 0, caused = 0, idle = 0;
    pj_token_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    for (int run = 0; run < RUNS; run++) {
        make_tokens(b, t, true);
        size_t n = find(t, found);
        reported += (double)n;
        for (size_t i = 0; i < n; i++) {
            pj_anomaly_cause planted = t->planted[found[i].index];
            right += planted != PJ_CAUSE_UNKNOWN;
            caused += planted != PJ_CAUSE_UNKNOWN && planted == found[i].cause;
        }
        make_tokens(b, t, false);
        idle += (double)find(t, found);
    }
    report(b, "anomalies_recall", 100 * right / (RUNS * (double)TOKENS / PLANTED_EVERY), "%",
           "of planted anomalies; at least 90");
    report(b, "anomalies_precision", 100 * right / reported, "%", "of what is reported");
    report(b, "anomalies_cause_right", 100 * caused / right, "%", "of those found");
    report(b, "anomalies_without_any", idle / RUNS, "", "reported per run of 400 ordinary tokens");
}

/* ---- phases --------------------------------------------------------------------------------- */

typedef struct trace {
    double t_ms[READINGS], mw[READINGS];
    uint8_t phase[READINGS];
    size_t count;
} trace;

static void stretch(bench *b, trace *t, pj_phase phase, double readings, double mw, double noise)
{
    for (int i = 0; i < (int)readings && t->count < READINGS; i++) {
        t->t_ms[t->count] = (double)t->count * 10;
        t->mw[t->count] = noisy(b, mw, noise);
        t->phase[t->count++] = (uint8_t)phase;
    }
}

/* `o` 0: phases differ by more than twice the noise; 1: they overlap (decode may draw as much as
 * prefill, prompts are cached, preparation is busy). */
static void make_request(bench *b, trace *t, double idle, double top, double noise, double o)
{
    double pre = between(b, 0.25 - 0.15 * o, 0.25 + 0.65 * o);
    double decode = between(b, 0.5 - 0.1 * o, 0.7 + 0.3 * o),
           post = between(b, 0.15 - 0.15 * o, 0.15 + 0.35 * o);
    if (between(b, 0, 1) < 0.7 - 0.1 * o)
        stretch(b, t, PJ_PHASE_PRE_INFERENCE, between(b, 8, 40 + 40 * o), idle + pre * (top - idle),
                noise);
    if (between(b, 0, 1) > 0.3 * o)
        stretch(b, t, PJ_PHASE_PREFILL, between(b, 10 - 4 * o, 60 + 90 * o),
                top * between(b, 0.95 - 0.25 * o, 1.05), noise);
    stretch(b, t, PJ_PHASE_DECODE, between(b, 60 - 40 * o, 300 - 100 * o),
            idle + decode * (top - idle), noise);
    if (between(b, 0, 1) < 0.5)
        stretch(b, t, PJ_PHASE_POST_INFERENCE, between(b, 8, 20 + 20 * o),
                idle + post * (top - idle), noise);
    if (between(b, 0, 1) > 0.3 * o)
        stretch(b, t, PJ_PHASE_IDLE, between(b, 20 - 10 * o, 80 + 40 * o), idle, noise);
}

static void make_trace(bench *b, trace *t, double overlap)
{
    double idle = between(b, 3e3, 60e3), top = idle * between(b, 3 - overlap, 8 - 2 * overlap);
    double noise = between(b, 0.01 + 0.01 * overlap, 0.05 + 0.03 * overlap);
    t->count = 0;
    stretch(b, t, PJ_PHASE_IDLE, between(b, 20, 80), idle, noise);
    for (int requests = 1 + (int)between(b, 0, 3); requests > 0; requests--)
        make_request(b, t, idle, top, noise, overlap);
}

typedef struct phase_score {
    double all, right, near_90, near_90_right;
} phase_score;

static void judge_trace(const trace *t, const pj_phase_model *model, phase_score *s)
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

static bool score_phases(bench *b, double overlap, phase_score *s)
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
        judge_trace(&train[TRAIN], &model, s);
    }
    pj_free(train);
    pj_free(tagged);
    return ok;
}

/* Sensors of 1, 20 and 100 ms. A sensor of 1 ms takes most of the time and has samples enough, but
 * the samples of a segment are right or wrong together, so that only many requests tell how well
 * the confidence is calibrated. */
static bool bench_simulated_phases(bench *b)
{
    enum { MACHINES = 30 };
    static const struct {
        const char *preset;
        double stretch;
        int machines;
    } sensors[] = {{"rapl", 1, 1},
                   {"nvml-volta", 1, MACHINES},
                   {"apple", 4, MACHINES},
                   {"nvml-ampere-average", 4, MACHINES}};
    pj_error err;
    for (size_t i = 0; i < sizeof sensors / sizeof *sensors; i++) {
        pj_sim_phase_score s = {0};
        char key[64];
        for (int k = 0; k < sensors[i].machines; k++) {
            uint64_t seed = pj_random_u64(&b->random) % 100000;
            if (pj_sim_phases_judge(sensors[i].preset, seed, sensors[i].stretch, &s, &err) != PJ_OK)
                return false;
        }
        snprintf(key, sizeof key, "phases_right_sim_%s", sensors[i].preset);
        report(b, key, 100 * s.clear_right / s.clear, "%",
               "of a simulated sensor's samples, as phases_right; at least 95");
        if (sensors[i].machines < MACHINES) continue;
        snprintf(key, sizeof key, "at_90_percent_sim_%s", sensors[i].preset);
        report(b, key, 100 * s.near_90_right / s.near_90, "%",
               "of its samples with a confidence of 85 to 95 %");
    }
    return true;
}

static bool bench_phases(bench *b)
{
    phase_score clear, overlapping;
    if (!score_phases(b, 0, &clear) || !score_phases(b, 1, &overlapping)) return false;
    report(b, "phases_right", 100 * clear.right / clear.all, "%",
           "of samples, where phases differ by twice the noise; at least 95");
    report(b, "phases_right_overlapping", 100 * overlapping.right / overlapping.all, "%",
           "where decode may be as hot as prefill");
    report(b, "phases_at_90_percent_right", 100 * overlapping.near_90_right / overlapping.near_90,
           "%", "of samples with a confidence of 85 to 95 %");
    return bench_simulated_phases(b);
}

/* ---- prediction ----------------------------------------------------------------------------- */

/* A machine whose time is a smooth maximum of compute and memory time, which differs slightly from
 * the fitted model. */
static void make_known(bench *b, pj_known_run *run)
{
    static const double parameters[] = {0.14e9, 0.36e9, 0.5e9, 1.1e9, 1.7e9, 3e9};
    double p = parameters[(int)between(b, 0, 6)], bytes = between(b, 0, 1) < 0.5 ? 2 : 1.0625;
    double batch = exp2(floor(between(b, 0, 4))), input = floor(16 * pow(128, between(b, 0, 1)));
    double output = floor(16 * pow(32, between(b, 0, 1))), context = input + output / 2;
    run->work = (pj_request_work){p * bytes, 2 * p, p / 2e4, p / 1e4, input, output, batch};
    double prefill = batch * input * 2 * p + batch * p / 1e4 * input * input / 2;
    double flops = batch * (2 * p + p / 1e4 * context),
           read = p * bytes + batch * p / 2e4 * context;
    double step = pow(pow(flops / 2e12, 6) + pow(read / 4e10, 6), 1.0 / 6) + 2e-5;
    double seconds = prefill / 1.5e12 + (output - 1) * step;
    run->joules = noisy(b,
                        20 * seconds + 8e-12 * (prefill + (output - 1) * flops) +
                            3e-10 * (output - 1) * read + 0.02,
                        0.02);
    run->seconds = noisy(b, seconds, 0.02);
}

static void bench_prediction(bench *b)
{
    enum { MACHINES = 8 };
    pj_known_run runs[KNOWN], others[KNOWN];
    double errors[MACHINES * KNOWN], held = 0, refused = 0;
    int n = 0;
    for (int m = 0; m < MACHINES; m++) {
        for (int i = 0; i < KNOWN; i++) make_known(b, &runs[i]);
        for (int i = 0; i < KNOWN; i++) {
            pj_prediction p;
            for (int k = 0; k + 1 < KNOWN; k++) others[k] = runs[k < i ? k : k + 1];
            pj_predict(others, KNOWN - 1, &runs[i].work, &p);
            refused += p.refusal != NULL;
            if (p.refusal) continue;
            errors[n++] = fabs(p.joules / runs[i].joules - 1);
            held += p.joules_lo <= runs[i].joules && runs[i].joules <= p.joules_hi;
        }
    }
    pj_sort_doubles(errors, (size_t)n);
    report(b, "prediction_median_error", 100 * errors[n / 2], "%",
           "of runs left out, 6 shapes, two types; at most 5");
    report(b, "prediction_coverage", 100 * held / n, "%", "of 95 % intervals; 90 to 98");
    report(b, "prediction_refused", 100 * refused / (MACHINES * KNOWN), "%",
           "as outside of what was seen");
}

/* ---- the command ---------------------------------------------------------------------------- */

static bool run_all(bench *b)
{
    tokens *t = pj_alloc(1, sizeof *t);
    if (!t) return false;
    int64_t begin_ns = pj_clock_ns();
    bench_comparison(b);
    bench_anomalies(b, t);
    bool ok = bench_phases(b);
    bench_prediction(b);
    report(b, "seconds", (double)(pj_clock_ns() - begin_ns) / 1e9, "s", "for all of this");
    pj_free(t);
    return ok;
}

static int run_bench_analysis(const pj_command *command, int argc, char **argv)
{
    bench b = {.rounds = 1000};
    int64_t seed = 1;
    bool as_json = false;
    const pj_option options[] = {
        {"rounds", 0, PJ_OPTION_INT, &b.rounds, "N", "pairs of each comparison (1000)", 10, 1e6},
        {"seed", 0, PJ_OPTION_INT, &seed, "N", "of the planted data (1)", 0, 9e15},
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "one object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_buffer out;
    pj_json json;
    pj_error err = {0};
    pj_buffer_init(&out, 1 << 16);
    pj_json_init(&json, &out);
    b.json = as_json ? &json : NULL;
    b.random.state = (uint64_t)seed;
    if (as_json) pj_json_object_begin(&json);
    bool ok = run_all(&b);
    if (as_json) {
        pj_json_object_end(&json);
        if (ok) printf("%s\n", pj_buffer_get(&out));
    }
    pj_buffer_fini(&out);
    if (ok) return PJ_EXIT_OK;
    pj_fail_memory(&err, "the benchmark");
    return pj_command_failed(command, &err);
}

const pj_command pj_bench_analysis = {
    .name = "bench analysis",
    .summary = "comparison, anomalies, phases and prediction on planted truth",
    .run = run_bench_analysis,
    .usage = "[options]",
    .text = "Makes random data whose answer is known and prints how often the analysis is right: "
            "pairs of runs that are alike or differ by 3 %, tokens with planted anomalies, power "
            "traces whose phases were removed, and requests on machines with planted costs. The "
            "same seed gives the same figures.",
    .examples = "perjoule bench analysis\nperjoule bench analysis --rounds 10000 --seed 2 --json\n",
};
