/* perjoule bench analysis: accuracy of the analysis on planted truth. Every figure is computed from
 * seeded random data with known answers, by the functions that are applied to stored runs. */
#include "analysis/predict.h"
#include "analysis/ratio.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "bench/folder.h"
#include "bench/planted_advice.h"
#include "bench/planted_savings.h"
#include "bench/planted_sides.h"
#include "bench/planted_tokens.h"
#include "bench/sim_experiment.h"
#include "bench/truth.h"
#include "cli/json_out.h"
#include "cli/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN = 48 };

void pj_bench_truth_say(pj_bench_truth *b, const char *key, double value, const char *unit,
                        const char *note)
{
    if (b->json)
        pj_json_kv_double(b->json, key, value);
    else
        printf("%-38s %9.4g %-2s %s\n", key, value, unit, note);
    fflush(stdout);
}

double pj_bench_truth_between(pj_bench_truth *b, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(&b->random);
}

double pj_bench_truth_noisy(pj_bench_truth *b, double value, double share)
{
    return value * exp(share * pj_random_normal(&b->random));
}

/* ---- comparison ---- */

static void say_planted(pj_bench_truth *b, const pj_planted_sides *plan, const char *of,
                        double share, const char *note)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%zu_sides_%zu_runs", of, plan->sides, plan->runs);
    pj_bench_truth_say(b, key, 100 * share, "%", note);
}

/* Sides without a difference, with a large one, and with the one that is called detectable. */
static void bench_planted_sides(pj_bench_truth *b, size_t sides, size_t runs)
{
    uint64_t rounds = (uint64_t)b->rounds;
    pj_planted_sides plan = {sides, runs, 1, 0.02};
    pj_planted_found found = pj_planted_sides_try(&plan, rounds, &b->random);
    say_planted(b, &plan, "alike_called_different", found.any, "of comparisons; at most 5");
    plan.factor = 1.1;
    found = pj_planted_sides_try(&plan, rounds, &b->random);
    say_planted(b, &plan, "ten_percent_found", found.planted, "at a spread of 2 %");
    plan.factor = 1.5;
    found = pj_planted_sides_try(&plan, rounds, &b->random);
    say_planted(b, &plan, "half_more_found", found.planted, "at a spread of 2 %");
    plan.factor = 1 + pj_detectable(plan.spread, runs, runs, pj_planted_sides_pairs(sides));
    found = pj_planted_sides_try(&plan, rounds, &b->random);
    say_planted(b, &plan, "stated_80_found", found.planted, "of differences called detectable");
}

static void bench_comparison(pj_bench_truth *b)
{
    static const size_t sides[] = {2, 3, 4, 6, 7}, runs[] = {3, 4, 5, 8, 20};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (size_t k = 0; k < sizeof runs / sizeof *runs; k++)
            bench_planted_sides(b, sides[i], runs[k]);
}

/* ---- anomalies ---- */

static void bench_anomalies(pj_bench_truth *b, pj_planted_tokens *t)
{
    enum { RUNS = 40 };
    pj_planted_score planted = {0}, ordinary = {0}, flat = {0};
    for (int run = 0; run < RUNS; run++) {
        pj_planted_tokens_make(t, &b->random, true);
        pj_planted_tokens_judge(t, &planted);
        pj_planted_tokens_make(t, &b->random, false);
        pj_planted_tokens_judge(t, &ordinary);
        pj_planted_tokens_flat(t, &b->random, 0);
        pj_planted_tokens_judge(t, &flat);
    }
    pj_bench_truth_say(b, "anomalies_recall", 100 * planted.right / (RUNS * PJ_PLANTED_ANOMALIES),
                       "%", "of planted anomalies; at least 90");
    pj_bench_truth_say(b, "anomalies_precision", 100 * planted.right / planted.reported, "%",
                       "of what is reported; at least 90");
    pj_bench_truth_say(b, "anomalies_cause_right", 100 * planted.caused / planted.right, "%",
                       "of those found");
    pj_bench_truth_say(b, "anomalies_without_any", ordinary.reported / RUNS, "",
                       "reported per run of 400 ordinary tokens");
    pj_bench_truth_say(b, "anomalies_on_flat_rails", flat.reported, "",
                       "reported in 40 runs whose power never changes; none");
}

/* ---- advice ---- */

static bool has_rule(const pj_advice *all, size_t speaking, const char *rule)
{
    for (size_t i = 0; i < speaking; i++)
        if (strcmp(all[i].rule, rule) == 0) return true;
    return false;
}

/* Every figure of the planted runs varies by 2 %. */
static void bench_advice(pj_bench_truth *b)
{
    enum { RUNS = 200, MOST_RULES = 64 };
    double runs = 0, found = 0, alone = 0, silent = 0, cases = 0;
    pj_advice all[MOST_RULES];
    pj_advice_facts f;
    size_t speaking;
    for (const pj_planted_advice *p = pj_planted_advices; p->rule; p++, cases++)
        for (int i = 0; i < RUNS; i++, runs++) {
            pj_planted_advice_none(&f);
            p->plant(&f);
            pj_planted_advice_vary(&f, &b->random, 0.02);
            pj_advise(&f, all, &speaking);
            found += has_rule(all, speaking, p->rule);
            alone += has_rule(all, speaking, p->rule) && speaking == 1;
            pj_planted_advice_none(&f);
            pj_planted_advice_vary(&f, &b->random, 0.02);
            pj_advise(&f, all, &speaking);
            silent += speaking == 0;
        }
    pj_bench_truth_say(b, "advice_rules", cases, "", "with a planted case each");
    pj_bench_truth_say(b, "advice_found", 100 * found / runs, "%", "of planted cases");
    pj_bench_truth_say(b, "advice_alone", 100 * alone / runs, "%", "of them without other advice");
    pj_bench_truth_say(b, "advice_silent", 100 * silent / runs, "%",
                       "of runs without anything to recommend");
}

/* Runs of simulated machines with a planted waste, and what the same machines take without it. */
static pj_status bench_savings(pj_bench_truth *b, pj_error *err)
{
    enum { MACHINES = 40 };
    char path[300], key[64];
    pj_store *store = NULL;
    pj_saving_score all = {0}, none = {0};
    uint64_t seed = pj_random_u64(&b->random) % 100000;
    pj_bench_folder_database("savings.db", path, sizeof path);
    pj_status status = pj_store_open(&(pj_store_options){.path = path}, &store, err);
    for (const char *const *rule = pj_planted_savings; *rule && status == PJ_OK; rule++) {
        pj_saving_score s = {0};
        for (uint64_t i = 0; i < MACHINES && status == PJ_OK; i++)
            status = pj_planted_saving_judge(*rule, seed + i, store, &s, err);
        snprintf(key, sizeof key, "saving_of_%s", *rule);
        pj_bench_truth_say(b, key, 100 * s.stated / s.found, "%", "stated, mean");
        snprintf(key, sizeof key, "planted_%s", *rule);
        pj_bench_truth_say(b, key, 100 * s.planted / s.found, "%", "planted, mean");
        snprintf(key, sizeof key, "held_%s", *rule);
        pj_bench_truth_say(b, key, 100 * s.held / s.found, "%",
                           "of stated intervals contain the planted saving");
        all.machines += s.machines, all.found += s.found, all.held += s.held;
        all.other += s.other;
    }
    for (uint64_t i = 0; i < MACHINES && status == PJ_OK; i++)
        status = pj_planted_saving_judge(NULL, seed + i, store, &none, err);
    pj_store_close(store);
    if (status != PJ_OK) return status;
    pj_bench_truth_say(b, "waste_named", 100 * all.found / all.machines, "%",
                       "of machines with a planted waste");
    pj_bench_truth_say(b, "saving_held", 100 * all.held / all.found, "%",
                       "of stated intervals contain the planted saving");
    pj_bench_truth_say(b, "waste_not_planted", 100 * all.other / all.machines, "%",
                       "of these machines get other advice too");
    pj_bench_truth_say(b, "advice_without_waste", none.other, "",
                       "recommendations for 40 machines without any");
    return PJ_OK;
}

/* ---- ablation ---- */

/* Real runs of a small model on simulated sensors; each seed draws other powers. */
static pj_status bench_ablation(pj_bench_truth *b, pj_error *err)
{
    enum { EXPERIMENTS = 3 };
    pj_sim_parts_score s = {0};
    pj_status status = PJ_OK;
    for (int i = 0; i < EXPERIMENTS && status == PJ_OK; i++) {
        char name[32], path[300];
        pj_experiment_result *result;
        snprintf(name, sizeof name, "ablation-%d.db", i);
        pj_bench_folder_database(name, path, sizeof path);
        status = pj_sim_experiment_run(pj_sim_parts_plan, path, pj_random_u64(&b->random) % 100000,
                                       NULL, NULL, &result, err);
        if (status == PJ_OK) pj_sim_parts_judge(result, &s);
        pj_experiment_result_free(result);
    }
    if (status != PJ_OK) return status;
    pj_bench_truth_say(b, "ablation_difference_held", 100 * s.difference_held / s.difference, "%",
                       "of intervals of differences of runs hold the planted energy");
    pj_bench_truth_say(b, "ablation_attributed_held", 100 * s.attributed_held / s.attributed, "%",
                       "of intervals of attribution hold it");
    pj_bench_truth_say(b, "ablation_intervals", s.difference + s.attributed, "",
                       "of 12 parts; the others are below what the sensor resolves");
    return PJ_OK;
}

/* ---- prediction ---- */

/* A machine whose time is a smooth maximum of compute and memory time, which differs slightly from
 * the fitted model. */
static void analysis_make_known(pj_bench_truth *b, pj_known_run *run)
{
    static const double parameters[] = {0.14e9, 0.36e9, 0.5e9, 1.1e9, 1.7e9, 3e9};
    double p = parameters[(int)pj_bench_truth_between(b, 0, 6)],
           bytes = pj_bench_truth_between(b, 0, 1) < 0.5 ? 2 : 1.0625;
    double batch = exp2(floor(pj_bench_truth_between(b, 0, 4))),
           input = floor(16 * pow(128, pj_bench_truth_between(b, 0, 1)));
    double output = floor(16 * pow(32, pj_bench_truth_between(b, 0, 1))),
           context = input + output / 2;
    run->work = (pj_request_work){p * bytes, 2 * p,  {.flops = {p / 1e4}, .bytes = {p / 2e4}},
                                  input,     output, batch};
    double prefill = batch * input * 2 * p + batch * p / 1e4 * input * input / 2;
    double flops = batch * (2 * p + p / 1e4 * context),
           read = p * bytes + batch * p / 2e4 * context;
    double step = pow(pow(flops / 2e12, 6) + pow(read / 4e10, 6), 1.0 / 6) + 2e-5;
    double seconds = prefill / 1.5e12 + (output - 1) * step;
    run->joules = pj_bench_truth_noisy(b,
                                       20 * seconds + 8e-12 * (prefill + (output - 1) * flops) +
                                           3e-10 * (output - 1) * read + 0.02,
                                       0.02);
    run->seconds = pj_bench_truth_noisy(b, seconds, 0.02);
}

static void bench_prediction(pj_bench_truth *b)
{
    enum { MACHINES = 8 };
    pj_known_run runs[KNOWN], others[KNOWN];
    double errors[MACHINES * KNOWN], held = 0, refused = 0;
    int n = 0;
    for (int m = 0; m < MACHINES; m++) {
        for (int i = 0; i < KNOWN; i++) analysis_make_known(b, &runs[i]);
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
    pj_bench_truth_say(b, "prediction_median_error", 100 * errors[n / 2], "%",
                       "of runs left out, 6 shapes, two types; at most 5");
    pj_bench_truth_say(b, "prediction_coverage", 100 * held / n, "%",
                       "of 95 % intervals; 90 to 98");
    pj_bench_truth_say(b, "prediction_refused", 100 * refused / (MACHINES * KNOWN), "%",
                       "as outside the range of the runs");
}

/* ---- the command ---- */

typedef struct analysis_args {
    int64_t seed, runs;
    const char *fixtures, *folder;
} analysis_args;

static pj_status analysis_run_all(pj_bench_truth *b, const analysis_args *a, pj_error *err)
{
    pj_planted_tokens *t = pj_alloc(1, sizeof *t);
    if (!t) return pj_fail_memory(err, "the benchmark");
    int64_t begin_ns = pj_clock_ns();
    bench_comparison(b);
    bench_anomalies(b, t);
    bench_advice(b);
    bench_prediction(b);
    pj_free(t);
    pj_status status = bench_savings(b, err);
    if (status == PJ_OK) status = bench_ablation(b, err);
    if (status == PJ_OK) status = pj_bench_truth_phases(b, err);
    if (status == PJ_OK && a->fixtures) status = pj_bench_truth_recorded(b, a->fixtures, err);
    if (status == PJ_OK && a->runs) status = pj_bench_truth_times(b, (uint32_t)a->runs, err);
    pj_bench_truth_say(b, "seconds", (double)(pj_clock_ns() - begin_ns) / 1e9, "s",
                       "for all of this");
    return status;
}

static int run_bench_analysis(const pj_command *command, int argc, char **argv)
{
    pj_bench_truth b = {.rounds = 1000};
    analysis_args a = {.seed = 1, .runs = 10000};
    bool as_json = false;
    const pj_option options[] = {
        {"rounds", 0, PJ_OPTION_INT, &b.rounds, "N", "repetitions of each comparison (1000)", 10,
         1e6},
        {"seed", 0, PJ_OPTION_INT, &a.seed, "N", "of the planted data (1)", 0, 9e15},
        {"runs", 0, PJ_OPTION_INT, &a.runs, "N",
         "runs of the database over which each analysis is timed (10,000); 0: none", 0, 1e6},
        {"fixtures", 0, PJ_OPTION_TEXT, &a.fixtures, "DIR",
         "also evaluate the recordings nvml/traces and llm-energy/dos-group in this folder",
         .rule = pj_rule_folder},
        {"folder", 0, PJ_OPTION_TEXT, &a.folder, "DIR",
         "where databases are made (default $TMPDIR or /tmp)", .rule = pj_rule_folder},
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "one object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_json_out out;
    pj_error err = {0};
    b.json = as_json ? pj_json_out_begin(&out) : NULL;
    b.random.state = (uint64_t)a.seed;
    if (as_json) pj_json_object_begin(b.json);
    pj_status status = pj_bench_folder_open(a.folder, &err);
    if (status == PJ_OK) status = analysis_run_all(&b, &a, &err);
    pj_bench_folder_remove();
    if (as_json) {
        pj_json_object_end(b.json);
        status = pj_json_out_end(&out, status, &err);
    }
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_analysis = {
    .name = "bench analysis",
    .summary = "the analysis of stored runs on planted truth, and its speed",
    .run = run_bench_analysis,
    .usage = "[options]",
    .text =
        "Generates random data with known answers and prints how often the analysis is right: "
        "comparisons of 2 to 7 sides of 3 to 20 runs without a difference or with one of 10 %, "
        "50 % and the one that is called detectable, tokens with planted anomalies, runs "
        "with a planted reason for advice, runs of machines with a planted waste, requests on machines with planted costs, parts left "
        "out of real runs on simulated sensors, and power traces whose phases were removed. "
        "With --fixtures, recorded traces and runs, too. Then the time of each analysis over a "
        "database of 10,000 runs. The same seed gives the same figures, except for the real runs "
        "and the times.",
    .examples = "perjoule bench analysis\nperjoule bench analysis --rounds 10000 --seed 2 --json\n"
                "perjoule bench analysis --runs 0\n",
};
