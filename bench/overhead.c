/* perjoule bench overhead: the cost of profiling. The same generation runs unrecorded, at depth
 * module and at depth deep, in random order within each round, in one process with one open model;
 * each round gives ratios to its own unrecorded run, so that other load affects all three alike.
 * Besides wall time it reports the CPU time of the whole process, collector and samplers included:
 * the better figure if other programs use the CPUs. Much of the collector's work may follow decode,
 * so what runs report of themselves is compared with the CPU time of whole runs. The logits must be
 * bit-identical, where they come to the host: greedy tokens are chosen on a device. */
#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "bench/ratio.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "generate/find_model.h"
#include "generate/generate.h"

#include <stdio.h>

enum { WAYS = 3 };

typedef enum figure { DECODE, PREFILL, DECODE_CPU, PREFILL_CPU, RUN_CPU, FIGURES } figure;

static const char *const figure_names[FIGURES] = {"decode", "prefill", "decode_cpu", "prefill_cpu",
                                                  "run_cpu"};

static const char *const way_names[WAYS] = {"off", "module", "deep"};

typedef struct overhead {
    const char *model, *dtype, *power, *device;
    int64_t rounds, tokens, prompt, threads;
    bool json;
    pj_session *session;
    pj_model_slot slot;
    pj_profile_options options;
    char path[4096];
    double ms[FIGURES][WAYS][PJ_BENCH_ROUNDS_MAX];
    uint64_t hash[WAYS];
    /* Overhead as the runs reported it: mean shares of their time. */
    double own_share[WAYS], own_statistics[WAYS];
    bool same;
} overhead;

static pj_status run_way(overhead *o, int way, int64_t round, pj_error *err)
{
    pj_profile_result result = {0};
    pj_status status;
    double run_cpu_ms;
    if (way == 0) {
        int64_t begun_ns = pj_clock_process_cpu_ns();
        status = pj_profile_bare(&o->slot, &o->options, &result.generated, err);
        run_cpu_ms = (double)(pj_clock_process_cpu_ns() - begun_ns) * 1e-6;
    } else {
        o->options.depth = way == 1 ? PJ_DEPTH_MODULE : PJ_DEPTH_DEEP;
        status = pj_profile_generate(o->session, &o->slot, &o->options, &result, err);
        const pj_run_info *info = &result.data.info;
        run_cpu_ms = info->overhead_ms / info->overhead_share;
        if (status == PJ_OK && round >= 0) {
            o->own_share[way] += info->overhead_share;
            /* like the whole, a share of the process's CPU time */
            o->own_statistics[way] +=
                info->overhead_share * info->statistics_ms / info->overhead_ms;
        }
    }
    if (status == PJ_OK && round >= 0) {
        const pj_generate_result *g = &result.generated;
        o->ms[DECODE][way][round] = (double)g->decode_ns * 1e-6;
        o->ms[PREFILL][way][round] = (double)g->prefill_ns * 1e-6;
        o->ms[DECODE_CPU][way][round] = (double)g->decode_cpu_ns * 1e-6;
        o->ms[PREFILL_CPU][way][round] = (double)g->prefill_cpu_ns * 1e-6;
        o->ms[RUN_CPU][way][round] = run_cpu_ms;
    }
    if (status == PJ_OK) {
        if (o->hash[way] && o->hash[way] != result.generated.logits_hash) o->same = false;
        o->hash[way] = result.generated.logits_hash;
    }
    pj_profile_result_fini(&result);
    return status;
}

static pj_status overhead_measure(overhead *o, pj_error *err)
{
    pj_random random = {1};
    pj_status status = PJ_OK;
    bool live = pj_terminal_is(stderr);
    for (int way = 0; way < WAYS && status == PJ_OK; way++)
        status = run_way(o, way, -1, err); /* warm-up: caches and pages */
    for (int64_t round = 0; round < o->rounds && status == PJ_OK; round++) {
        int first = (int)(pj_random_u64(&random) % WAYS);
        int step = pj_random_u64(&random) % 2 ? 1 : WAYS - 1;
        for (int k = 0; k < WAYS && status == PJ_OK; k++)
            status = run_way(o, (first + k * step) % WAYS, round, err);
        if (live)
            fprintf(stderr, "\rround %lld of %lld ", (long long)round + 1, (long long)o->rounds);
    }
    if (live) fprintf(stderr, "\r%40s\r", "");
    return status;
}

/* ---- printing ---- */

static void overhead_print_json(const overhead *o, const pj_engine_facts *facts)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_run_report_write_engine(json, facts);
    pj_json_kv_int(json, "rounds", o->rounds);
    pj_json_kv_int(json, "tokens", o->tokens);
    pj_json_kv_int(json, "prompt_tokens", o->prompt);
    if (o->hash[0])
        pj_json_kv_bool(json, "logits_equal", o->same);
    else
        pj_json_kv_null(json, "logits_equal");
    pj_json_kv_int(json, "span_cost_ns", o->session->span_cost_ns);
    for (int way = 0; way < WAYS; way++) {
        pj_json_kv_object_begin(json, way_names[way]);
        for (int f = 0; f < FIGURES; f++) {
            char key[32];
            snprintf(key, sizeof key, "%s_ms", figure_names[f]);
            pj_json_kv_double(json, key, pj_bench_median(o->ms[f][way], o->rounds));
            snprintf(key, sizeof key, "%s_ratio", figure_names[f]);
            if (way)
                pj_bench_write_ratio(json, key,
                                     pj_bench_compare(o->ms[f][way], o->ms[f][0], o->rounds));
        }
        if (way) {
            pj_json_kv_double(json, "own_share", o->own_share[way] / (double)o->rounds);
            pj_json_kv_double(json, "own_statistics_share",
                              o->own_statistics[way] / (double)o->rounds);
        }
        pj_json_object_end(json);
    }
    pj_json_object_end(json);
    pj_json_out_end(&out, PJ_OK, NULL);
}

/* In percent of a recorded run, like the share that runs report. */
static double added_share(const overhead *o, int way)
{
    const double *run = o->ms[RUN_CPU][way], *off = o->ms[RUN_CPU][0];
    return 100 * (1 - 1 / pj_bench_compare(run, off, o->rounds).median);
}

static void overhead_print_table(const overhead *o, const pj_engine_facts *facts)
{
    printf("%s %s %s, %u threads; %lld rounds, prompt of %lld, %lld new tokens\n\n",
           facts->model_name, facts->dtype, facts->isa, facts->threads, (long long)o->rounds,
           (long long)o->prompt, (long long)o->tokens);
    for (int part = DECODE; part <= PREFILL; part++) {
        printf("  %-10s%12s%30s%18s%28s\n", figure_names[part], "time", "ratio (95 %)",
               "processor time", "ratio (95 %)");
        for (int way = 0; way < WAYS; way++) {
            printf("  %-10s", way_names[way]);
            for (int f = part; f <= PREFILL_CPU; f += DECODE_CPU) {
                pj_bench_ratio r = pj_bench_compare(o->ms[f][way], o->ms[f][0], o->rounds);
                printf("%*.2f ms", f == part ? 9 : 15, pj_bench_median(o->ms[f][way], o->rounds));
                if (way)
                    printf("%10.4f (%.4f to %.4f)", r.median, r.low, r.high);
                else if (f == part)
                    printf("%28s", "");
            }
            putchar('\n');
        }
    }
    printf(
        "\n  as reported by the runs: module %.3f %% (statistics %.3f %%), deep %.3f %% (%.3f "
        "%%)\n",
        100 * o->own_share[1] / (double)o->rounds, 100 * o->own_statistics[1] / (double)o->rounds,
        100 * o->own_share[2] / (double)o->rounds, 100 * o->own_statistics[2] / (double)o->rounds);
    printf("  measured, of the processor time of whole runs: module %.3f %%, deep %.3f %%\n",
           added_share(o, 1), added_share(o, 2));
    printf("  a span without statistics costs %lld ns\n", (long long)o->session->span_cost_ns);
    if (o->hash[0])
        printf("  logits %s (%016llx)\n",
               o->same ? "equal at every depth" : "DIFFER between depths",
               (unsigned long long)o->hash[0]);
    else
        printf("  logits stay on the device and are not compared\n");
}

/* ---- the command ---- */

static pj_status overhead_prepare(overhead *o, int32_t **ids, pj_prompt *prompt, pj_error *err)
{
    pj_status status = pj_model_find(o->model, NULL, o->path, sizeof o->path, err);
    if (status != PJ_OK) return status;
    *ids = pj_alloc((size_t)o->prompt, sizeof **ids);
    if (!*ids) return pj_fail_memory(err, "the prompt");
    for (int64_t i = 0; i < o->prompt; i++) (*ids)[i] = (int32_t)(1 + i * 7 % 200);
    *prompt = (pj_prompt){.ids = *ids, .id_count = (uint32_t)o->prompt};
    o->options = (pj_profile_options){.engine = {.model = o->path,
                                                 .dtype = o->dtype,
                                                 .device = o->device,
                                                 .threads = (uint32_t)o->threads,
                                                 .no_tokenizer = true},
                                      .request.prompts = prompt,
                                      .request.prompt_count = 1,
                                      .request.max_tokens = (uint32_t)o->tokens,
                                      .request.ignore_eos = true,
                                      .request.sampling = PJ_SAMPLING_GREEDY};
    pj_session_options session = {.power = o->power, .database = "none", .baseline_seconds = -1};
    return pj_session_open(&session, &o->session, err);
}

static int run_overhead(const pj_command *command, int argc, char **argv)
{
    static overhead o; /* large; a process runs one command */
    o = (overhead){.model = "synthetic:llama-3.2-1b", .rounds = 15, .tokens = 16, .prompt = 64};
    o.same = true;
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &o.model, "MODEL", "model (synthetic:llama-3.2-1b)"},
        {"dtype", 0, PJ_OPTION_TEXT, &o.dtype, "TYPE", "convert the weights"},
        PJ_OPTION_DEVICE(&o.device),
        {"rounds", 0, PJ_OPTION_INT, &o.rounds, "N", "rounds (15)", 3, PJ_BENCH_ROUNDS_MAX,
         .old_letter = 'r'},
        {"tokens", 'n', PJ_OPTION_INT, &o.tokens, "N", "new tokens per run (16)", 2, 100000},
        {"prompt", 'p', PJ_OPTION_INT, &o.prompt, "N", "prompt tokens (64)", 1, 100000},
        {"threads", 't', PJ_OPTION_INT, &o.threads, "N", "threads (one per core)", 1, 256},
        {"power", 0, PJ_OPTION_TEXT, &o.power, "LIST", "power sources to sample meanwhile (auto)",
         .rule = pj_rule_power},
        {"json", 0, PJ_OPTION_FLAG, &o.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    pj_error err = {0};
    int32_t *ids = NULL;
    pj_prompt prompt;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "takes no arguments");
    pj_status status = overhead_prepare(&o, &ids, &prompt, &err);
    if (status == PJ_OK) status = overhead_measure(&o, &err);
    o.same &= o.hash[0] == o.hash[1] && o.hash[0] == o.hash[2];
    if (status == PJ_OK)
        (o.json ? overhead_print_json : overhead_print_table)(&o,
                                                              pj_engine_get_facts(o.slot.engine));
    pj_session_close(o.session);
    pj_model_slot_close(&o.slot);
    pj_free(ids);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_bench_overhead = {
    .name = "bench overhead",
    .summary = "what profiling costs: off against module against deep",
    .run = run_overhead,
    .usage = "[options]",
    .text = "Runs the same generation unrecorded, at depth module and at depth deep, interleaved, "
            "and prints the ratio of times with its 95 % interval. The logits of all three are "
            "compared to the bit, unless they stay on a device.",
    .examples = "perjoule bench overhead --dtype q8_0\n",
};
