/* perjoule bench why: how often the cause of a planted difference between two runs is named. */
#include "base/json.h"
#include "bench/planted_why.h"
#include "cli/json_out.h"
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

typedef struct why_args {
    int64_t pairs, runs, tokens, seed;
    const char *only;
    bool busy, json;
} why_args;

static const char *const notes[PJ_COST_COUNT] = {"pairs that are alike: nothing is named",
                                                 "a norm is computed twice",
                                                 "a product's output is transposed into a copy",
                                                 "a product has F32 weights among BF16",
                                                 "every step waits",
                                                 "every step waits, shortly",
                                                 "the clock is capped",
                                                 "a kernel is slower",
                                                 "a kernel draws more power"};

static void say(const pj_planted_why_score *score, pj_planted_cost cost, pj_json *json)
{
    double found = 100 * score->found / score->pairs, alone = 100 * score->alone / score->pairs;
    if (!json) {
        printf("%-8s %6.1f %%  %6.1f %%  %s\n", pj_planted_cost_names[cost], found, alone,
               notes[cost]);
        fflush(stdout);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "planted", pj_planted_cost_names[cost]);
    pj_json_kv_double(json, "pairs", score->pairs);
    pj_json_kv_double(json, "named_percent", found);
    pj_json_kv_double(json, "alone_percent", alone);
    pj_json_object_end(json);
}

static pj_status try_all(const why_args *a, pj_json *json, pj_error *err)
{
    pj_status status = PJ_OK;
    if (!json) printf("%-8s %8s  %8s\n", "planted", "named", "alone");
    for (int cost = 0; cost < PJ_COST_COUNT && status == PJ_OK; cost++) {
        pj_planted_why_score score = {0};
        const pj_planted_why_plan plan = {(pj_planted_cost)cost, (uint32_t)a->runs,
                                          (uint32_t)a->tokens, a->busy};
        if (a->only && strcmp(a->only, pj_planted_cost_names[cost]) != 0) continue;
        for (int64_t i = 0; i < a->pairs && status == PJ_OK; i++)
            status = pj_planted_why_try(&plan, (uint64_t)(a->seed * 1000000 + i), &score, err);
        if (status == PJ_OK) say(&score, (pj_planted_cost)cost, json);
    }
    return status;
}

static int run_bench_why(const pj_command *command, int argc, char **argv)
{
    why_args a = {.pairs = 200, .runs = 1, .tokens = PJ_PLANTED_WHY_TOKENS, .seed = 1};
    const pj_option options[] = {
        {"pairs", 0, PJ_OPTION_INT, &a.pairs, "N", "of runs for each cause (200)", 1, 1e6},
        {"runs", 0, PJ_OPTION_INT, &a.runs, "N", "of each side (1)", 1, 60},
        {"tokens", 0, PJ_OPTION_INT, &a.tokens, "N", "that each run decodes (24)", 2, 2000},
        {"seed", 0, PJ_OPTION_INT, &a.seed, "N", "of the planted runs (1)", 0, 1e9},
        {"only", 0, PJ_OPTION_CHOICE, &a.only, "CAUSE",
         "plant this cause alone: none, norm, copy, type, gap, pause, clock, kernel or power",
         .choices = "none norm copy type gap pause clock kernel power"},
        {"busy", 0, PJ_OPTION_FLAG, &a.busy, NULL,
         "other programs interrupt and slow the runs of both sides"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "one array"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_json_out out;
    pj_error err = {0};
    pj_json *json = a.json ? pj_json_out_begin(&out) : NULL;
    if (json) pj_json_array_begin(json);
    pj_status status = try_all(&a, json, &err);
    if (json) pj_json_array_end(json);
    if (json) status = pj_json_out_end(&out, status, &err);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_why = {
    .name = "bench why",
    .summary = "how often the cause of a planted difference of two runs is named",
    .run = run_bench_why,
    .usage = "[options]",
    .text =
        "Makes pairs of runs of a small transformer on simulated sensors, of which the second does "
        "something more, and explains each as `perjoule compare --why` does. Machine, model, "
        "sensor, noise, size and names are drawn; what is planted costs about 2 to 8 % of the "
        "energy. `named`: the planted cause is named at its part; `alone`: and nothing else is. "
        "The same seed gives the same figures.",
    .examples = "perjoule bench why\nperjoule bench why --runs 3 --pairs 50 --json\n",
};
