/* One machine, its runs with the waste and without it, and the advice about the last of them. */
#include "bench/planted_savings.h"

#include "insight/advice.h"
#include "trace/disturbance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEPT_RUNS = 16, REPEATS = 3, REQUESTS = 11, PROMPT_BYTES = 1000 };

static const double minute_ms = 60e3;

/* A machine, the request that wastes, and the same without. */
typedef struct planted {
    pj_sim_machine machine;
    pj_sim_work with, without;
    pj_random random;
    pj_store *store;
    char ids[KEPT_RUNS][PJ_UUID_BYTES];
    uint32_t count;
    char prompt[PROMPT_BYTES + 1], other_prompt[PROMPT_BYTES + 1];
    char prompts[REQUESTS][24]; /* of a server's requests */
    double truth;               /* the planted saving, as a share */
} planted;

static double planted_between(planted *p, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(&p->random);
}

/* 4-bit weights, and arithmetic that takes longer than reading them: nothing to improve. */
static void plant_nothing(planted *p, uint64_t seed)
{
    static const char *const sensors[] = {"period_ms=1,resolution_mj=0.061",
                                          "period_ms=10,resolution_mj=0.5",
                                          "kind=power,period_ms=10,noise=0.002"};
    *p = (planted){.random = {seed * 0x9e3779b97f4a7c15u}};
    double bytes_per_s = planted_between(p, 15e9, 60e9);
    p->machine = (pj_sim_machine){.bytes_per_s = bytes_per_s,
                                  .flops_per_s = 1.5 * bytes_per_s,
                                  .idle_mw = planted_between(p, 5e3, 15e3),
                                  .low_mw = 20e3,
                                  .high_mw = 60e3,
                                  .seed = 1 + seed,
                                  .sensor = sensors[seed % 3],
                                  .cache_bytes = 8e6,
                                  .memory_bytes = 16e9,
                                  .hidden = 1024,
                                  .intermediate = 4096,
                                  .vocabulary = 8000,
                                  .layers = 3};
    p->with = (pj_sim_work){.dtype = "q4_0",
                            .kv_type = "f16",
                            .prompt = "planted",
                            .weight_bytes = 0.5625,
                            .head_bytes = 0.5625,
                            .kv_bytes = 2,
                            .input = 64,
                            .output = 24,
                            .batch = 1,
                            .threads = 8,
                            .slower = 1,
                            .hotter = 1};
    p->without = p->with;
}

/* A machine that computes faster than it reads; its memory has no room for a larger batch. */
static void plant_fast(planted *p)
{
    p->machine.flops_per_s = p->machine.bytes_per_s * planted_between(p, 30, 60);
    p->machine.memory_bytes = 1e6;
}

static void planted_weights(pj_sim_work *w, const char *dtype, double bytes)
{
    w->dtype = dtype;
    w->weight_bytes = w->head_bytes = bytes;
}

static void plant_batch_up(planted *p)
{
    plant_fast(p);
    p->machine.memory_bytes = 16e9;
    p->without.batch = 2;
}

static void plant_dtype(planted *p)
{
    plant_fast(p);
    planted_weights(&p->with, "bf16", 2);
    planted_weights(&p->without, "q8_0", 1.0625);
}

static void plant_head(planted *p)
{
    plant_fast(p);
    p->machine.vocabulary = planted_between(p, 60e3, 120e3);
    planted_weights(&p->with, "bf16", 2);
    p->without = p->with;
    p->without.head_bytes = 1.0625;
}

static void plant_kv_precision(planted *p)
{
    plant_fast(p);
    p->with.input = (uint32_t)planted_between(p, 6000, 12000);
    p->with.cached = p->with.input - 16; /* a conversation goes on */
    p->with.kv_type = "f32";
    p->with.kv_bytes = 4;
    p->without = p->with;
    p->without.kv_type = "f16";
    p->without.kv_bytes = 2;
}

static void plant_keep_resident(planted *p)
{
    p->without.age_ms = minute_ms;
    p->with.load_bytes = planted_between(p, 0.5e9, 3e9);
}

static void plant_threads(planted *p)
{
    p->without.threads = 4;
    p->with.hotter = planted_between(p, 1.2, 1.6);
    p->without.slower = planted_between(p, 1.0, 1.05);
}

static void plant_batch_down(planted *p)
{
    p->with.batch = 8;
    p->without.batch = 4;
    p->with.slower = planted_between(p, 1.3, 1.8);
}

static void plant_prompt(planted *p)
{
    double shared = planted_between(p, 0.5, 0.9);
    p->with.input = p->without.input = (uint32_t)planted_between(p, 400, 800);
    p->with.output = p->without.output = 8;
    p->without.cached = (uint32_t)(shared * p->with.input);
    for (int i = 0; i < PROMPT_BYTES; i++) {
        p->prompt[i] = (char)('a' + i % 26);
        p->other_prompt[i] = i < shared * PROMPT_BYTES ? p->prompt[i] : 'A';
    }
    p->with.prompt = p->prompt;
    p->without.prompt = p->other_prompt;
    p->without.age_ms = minute_ms;
}

static void plant_idle(planted *p)
{
    for (int i = 0; i < REQUESTS; i++)
        snprintf(p->prompts[i], sizeof p->prompts[i], "%d is asked", i);
}

static void plant_disturbed(planted *p)
{
    p->with.stalled = 1 + (uint32_t)planted_between(p, 3, 20);
    p->with.stall_ms = planted_between(p, 100, 800);
}

static const struct waste {
    const char *rule;
    void (*plant)(planted *p);
    bool is_observed; /* the advice needs runs of both kinds in the store */
    const char *also; /* another rule that rightly speaks of it */
} wastes[] = {
    {"batch-up", plant_batch_up, false, "calibrate"},
    {"batch-down", plant_batch_down, true, NULL},
    {"dtype", plant_dtype, false, NULL},
    {"head", plant_head, false, "dtype"},
    {"kv-precision", plant_kv_precision, false, NULL},
    {"keep-resident", plant_keep_resident, true, NULL},
    {"threads", plant_threads, true, NULL},
    {"prompt", plant_prompt, true, NULL},
    {"idle", plant_idle, false, NULL},
    {"disturbed", plant_disturbed, false, NULL},
};

const char *const pj_planted_savings[] = {"batch-up",     "batch-down",    "dtype",   "head",
                                          "kv-precision", "keep-resident", "threads", "prompt",
                                          "idle",         "disturbed",     NULL};

/* ---- runs ---- */

static pj_status planted_run(planted *p, const pj_sim_work *work, bool keep, pj_run_data *data,
                             pj_sim_truth *truth, pj_error *err)
{
    char id[PJ_UUID_BYTES];
    if (keep && p->count == KEPT_RUNS) return pj_fail(err, PJ_E_INVALID, "too many runs");
    pj_status status = pj_sim_machine_run(&p->machine, work, &p->random, keep ? p->store : NULL, id,
                                          truth, data, err);
    if (status == PJ_OK && keep) memcpy(p->ids[p->count++], id, sizeof id);
    return status;
}

static pj_status planted_run_some(planted *p, const pj_sim_work *work, int runs, bool keep,
                                  pj_sim_truth *mean, pj_error *err)
{
    pj_status status = PJ_OK;
    *mean = (pj_sim_truth){0};
    for (int i = 0; i < runs && status == PJ_OK; i++) {
        pj_run_data data = {0};
        pj_sim_truth one;
        status = planted_run(p, work, keep, &data, &one, err);
        pj_run_data_fini(&data);
        if (status != PJ_OK) break;
        mean->request_mj += one.request_mj / runs;
        mean->tokens = one.tokens;
    }
    return status;
}

/* A server's requests, with pauses that are longer than they are, and the share of idle time in the
 * energy from the first to the end of the last. */
static pj_status run_requests(planted *p, pj_run_data *last, pj_sim_truth *truth, pj_error *err)
{
    double pause_ms = planted_between(p, 10e3, 60e3), busy_ms = 0, busy_mj = 0;
    pj_status status = PJ_OK;
    for (int i = 0; i < REQUESTS && status == PJ_OK; i++) {
        pj_sim_work work = p->with;
        work.prompt = p->prompts[i];
        work.age_ms = (REQUESTS - 1 - i) * pause_ms;
        pj_run_data_fini(last);
        status = planted_run(p, &work, true, last, truth, err);
        busy_ms += last->info.total_ms;
        busy_mj += truth->total_mj;
    }
    double all_ms = (REQUESTS - 1) * pause_ms + last->info.total_ms;
    double idle_mj = p->machine.idle_mw * (all_ms - busy_ms) / 1000;
    p->truth = idle_mj / (idle_mj + busy_mj);
    return status;
}

/* Runs without the waste and with it; if the advice rests on other runs, some of each are kept.
 * Otherwise both draw the same durations, so that they differ in nothing else. */
static pj_status run_both(planted *p, bool is_observed, pj_run_data *last, pj_sim_truth *truth,
                          pj_error *err)
{
    pj_sim_truth without, before = {0};
    pj_random same = p->random;
    int repeats = is_observed ? REPEATS : 1;
    pj_status status = planted_run_some(p, &p->without, repeats, is_observed, &without, err);
    if (!is_observed) p->random = same;
    if (status == PJ_OK) status = planted_run_some(p, &p->with, repeats - 1, true, &before, err);
    if (status == PJ_OK) status = planted_run(p, &p->with, true, last, truth, err);
    double mean = ((repeats - 1) * before.request_mj + truth->request_mj) / repeats;
    p->truth = 1 - without.request_mj / without.tokens / (mean / truth->tokens);
    if (truth->load_mj > 0) p->truth = truth->load_mj / truth->total_mj;
    return status;
}

static pj_status run_all(planted *p, const struct waste *waste, pj_run_data *last,
                         pj_sim_truth *truth, pj_error *err)
{
    if (!waste) return planted_run(p, &p->with, true, last, truth, err);
    if (p->prompts[0][0]) return run_requests(p, last, truth, err);
    return run_both(p, waste->is_observed, last, truth, err);
}

/* ---- the advice ---- */

/* That of a measured run: what is simulated gets none, so that nobody acts on it. */
static pj_status advise_on_last(planted *p, pj_advice *all, size_t *speaking, pj_arena *arena,
                                pj_error *err)
{
    pj_run_list list = {0};
    pj_advice_facts *facts = pj_arena_alloc(arena, 1, sizeof *facts);
    if (!facts) return pj_fail_memory(err, "the facts of a run");
    pj_status status = pj_store_info(p->store, p->ids[p->count - 1], &list, err);
    if (status == PJ_OK) status = pj_advice_facts_get(p->store, list.runs, arena, facts, err);
    if (status == PJ_OK) {
        facts->refusal = NULL;
        pj_advise(facts, all, speaking);
    }
    pj_run_list_fini(&list);
    return status;
}

/* What the list of disturbances says of the one that was planted. */
static pj_status judge_disturbance(const pj_run_data *data, double planted_mj, pj_arena *arena,
                                   pj_saving_score *score, pj_error *err)
{
    pj_disturbances list;
    pj_status status = pj_disturbances_read(data->info.disturbances_json, arena, &list, err);
    if (status != PJ_OK || list.count != 1) return status;
    double off = fabs(list.items[0].extra_mj - planted_mj);
    score->held += off <= 1.96 * list.items[0].extra_sd_mj;
    score->stated += list.items[0].extra_mj / data->info.request_mj;
    score->planted += planted_mj / data->info.request_mj;
    return PJ_OK;
}

static void judge_saving(const planted *p, const pj_advice *a, pj_saving_score *score)
{
    score->held += a->lo <= p->truth && p->truth <= a->hi;
    score->stated += a->share;
    score->planted += p->truth;
}

static const struct waste *waste_of(const char *rule)
{
    for (size_t i = 0; rule && i < sizeof wastes / sizeof *wastes; i++)
        if (strcmp(wastes[i].rule, rule) == 0) return &wastes[i];
    return NULL;
}

pj_status pj_planted_saving_judge(const char *rule, uint64_t seed, pj_store *store,
                                  pj_saving_score *score, pj_error *err)
{
    planted p;
    pj_run_data last = {0};
    pj_sim_truth truth;
    pj_arena arena;
    pj_advice all[64];
    size_t speaking = 0;
    const struct waste *waste = waste_of(rule);
    pj_arena_init(&arena, 0);
    plant_nothing(&p, seed);
    p.store = store;
    if (waste) waste->plant(&p);
    pj_status status = run_all(&p, waste, &last, &truth, err);
    if (status == PJ_OK) status = advise_on_last(&p, all, &speaking, &arena, err);
    for (size_t i = 0; i < speaking && status == PJ_OK; i++) {
        bool is_planted = waste && strcmp(all[i].rule, rule) == 0;
        score->found += is_planted;
        score->other +=
            !is_planted && !(waste && waste->also && strcmp(all[i].rule, waste->also) == 0);
        if (is_planted && isnan(all[i].share))
            status = judge_disturbance(&last, truth.stall_mj, &arena, score, err);
        else if (is_planted)
            judge_saving(&p, &all[i], score);
    }
    score->machines++;
    for (uint32_t i = 0; i < p.count && status == PJ_OK; i++)
        status = pj_store_delete(store, p.ids[i], err);
    pj_run_data_fini(&last);
    pj_arena_fini(&arena);
    return status;
}
