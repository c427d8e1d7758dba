/* Synthetic runs for the storage benchmarks: the rows of a deep run of a real engine (25 operations
 * a layer, per-head statistics) with random figures. */
#include "bench/store_run.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

typedef struct part_kind {
    const char *name;
    const char *operations[9]; /* NULL at the end */
} part_kind;

static const part_kind layer_parts[] = {
    {"input_layernorm", {"norm"}},
    {"q_proj", {"pack", "matmul"}},
    {"k_proj", {"matmul"}},
    {"v_proj", {"matmul"}},
    {"attention",
     {"rope", "kv_append", "qk_matmul", "scale", "mask_apply", "softmax", "attn_dropout",
      "value_matmul"}},
    {"o_proj", {"pack", "matmul", "residual_add"}},
    {"post_attention_layernorm", {"norm"}},
    {"gate_proj", {"pack", "matmul"}},
    {"up_proj", {"matmul"}},
    {"act", {"activation", "gate_mul"}},
    {"down_proj", {"pack", "matmul", "residual_add"}},
};
static const part_kind token_parts[] = {
    {"embed_tokens", {"dequantise"}}, {"norm", {"norm"}}, {"lm_head", {"pack", "matmul"}}};

enum {
    LAYER_PARTS = sizeof layer_parts / sizeof *layer_parts,
    TOKEN_PARTS = sizeof token_parts / sizeof *token_parts,
    OPERATIONS_A_LAYER = 25,
    OPERATIONS_A_TOKEN = 4, /* outside the layers */
    HEADS = 32,
    HEAD_FIGURES = 3
};

typedef struct maker {
    pj_run_data *data;
    pj_random random;
    double now_ms;
} maker;

static pj_stats some_stats(maker *m)
{
    float x = (float)pj_random_unit(&m->random);
    return (pj_stats){x, x / 9, x * 2, x * 30, x / 5, 0, 0};
}

static pj_energy some_energy(maker *m)
{
    int64_t nj = 1000 + (int64_t)(pj_random_unit(&m->random) * 1e5);
    float sd = (float)nj * 1e-7f;
    return (pj_energy){.gross_nj = nj,
                       .net_nj = nj / 2,
                       .self_nj = nj,
                       .planted_nj = PJ_NJ_UNKNOWN,
                       .sd_mj = sd,
                       .net_sd_mj = sd,
                       .sd = {sd * 0.8f, sd * 0.4f, sd * 0.2f},
                       .net_sd = {sd * 0.8f, sd * 0.5f, sd * 0.1f},
                       .upper_mj = NAN,
                       .method = PJ_METHOD_FIT};
}

static void store_run_add(pj_energy *whole, const pj_energy *part)
{
    whole->gross_nj += part->gross_nj;
    whole->net_nj += part->net_nj;
}

/* As the engine records them in a deep run: per-head figures of every attention. */
static void store_run_add_extras(maker *m, pj_operation_row *o)
{
    static const char *const names[] = {"attention_entropy_head", "attention_largest_head",
                                        "attention_sparsity_head"};
    pj_run_data *d = m->data;
    o->extra_begin = d->extra_count;
    d->extras[d->extra_count++] = (pj_extra_row){"attention_entropy", PJ_EXTRA_SCALAR,
                                                 (double)(float)pj_random_unit(&m->random)};
    for (uint32_t i = 0; i < HEADS * HEAD_FIGURES; i++)
        d->extras[d->extra_count++] = (pj_extra_row){names[i % HEAD_FIGURES], i / HEAD_FIGURES,
                                                     (double)(float)pj_random_unit(&m->random)};
    o->extra_count = d->extra_count - o->extra_begin;
}

static void add_operation(maker *m, uint32_t component, const char *name, bool extras)
{
    pj_run_data *d = m->data;
    pj_operation_row *o = &d->operations[d->operation_count++];
    *o = (pj_operation_row){.component = component,
                            .class_ = d->operation_count % d->class_count,
                            .name = name,
                            .start_ms = m->now_ms,
                            .duration_ms = (double)(int)(pj_random_unit(&m->random) * 90000) / 1e6,
                            .flops = 4.2e6,
                            .bytes = 2.1e6,
                            .energy = some_energy(m),
                            .has_stats = true,
                            .stats = some_stats(m)};
    m->now_ms += o->duration_ms;
    store_run_add(&d->components[component].energy, &o->energy);
    if (extras) store_run_add_extras(m, o);
}

/* Of a layer, or, with PJ_NO_PARENT, of the token alone. */
static void add_component(maker *m, uint32_t token, uint32_t layer, const part_kind *of)
{
    pj_run_data *d = m->data;
    uint32_t at = d->component_count++;
    d->components[at] = (pj_component_row){.layer = layer,
                                           .section = PJ_NO_PARENT,
                                           .token = token,
                                           .step = PJ_NO_PARENT,
                                           .class_ = at % LAYER_PARTS % d->class_count,
                                           .name = of->name,
                                           .start_ms = m->now_ms,
                                           .flops = 8.4e6,
                                           .bytes = 4.2e6,
                                           .energy = some_energy(m),
                                           .has_stats = true,
                                           .stats = some_stats(m)};
    for (int i = 0; of->operations[i]; i++)
        add_operation(m, at, of->operations[i], strcmp(of->operations[i], "softmax") == 0);
    d->components[at].duration_ms = m->now_ms - d->components[at].start_ms;
    store_run_add(layer == PJ_NO_PARENT ? &d->tokens[token].energy : &d->layers[layer].energy,
                  &d->components[at].energy);
}

static void store_run_add_token(maker *m, uint32_t phase, uint32_t position, uint32_t layers)
{
    pj_run_data *d = m->data;
    uint32_t token = d->token_count++;
    d->tokens[token] = (pj_token_row){.phase = phase,
                                      .step = PJ_NO_PARENT,
                                      .share = NAN,
                                      .context_share = NAN,
                                      .position = position,
                                      .token_id = 42,
                                      .text = " word",
                                      .start_ms = m->now_ms,
                                      .power_mw = 30000,
                                      .energy = some_energy(m)};
    for (uint32_t l = 0; l < layers; l++) {
        uint32_t at = d->layer_count++;
        d->layers[at] = (pj_layer_row){.token = token,
                                       .step = PJ_NO_PARENT,
                                       .layer_index = l,
                                       .start_ms = m->now_ms,
                                       .energy = some_energy(m),
                                       .has_stats = true,
                                       .stats = some_stats(m)};
        for (int c = 0; c < LAYER_PARTS; c++) add_component(m, token, at, &layer_parts[c]);
        d->layers[at].duration_ms = m->now_ms - d->layers[at].start_ms;
        d->layers[at].attention_ms = d->layers[at].duration_ms / 3;
        d->layers[at].mlp_ms = d->layers[at].duration_ms / 2;
        store_run_add(&d->tokens[token].energy, &d->layers[at].energy);
    }
    for (int c = 0; c < TOKEN_PARTS && layers; c++)
        add_component(m, token, PJ_NO_PARENT, &token_parts[c]);
    d->tokens[token].duration_ms = m->now_ms - d->tokens[token].start_ms;
    store_run_add(&d->phases[phase].energy, &d->tokens[token].energy);
}

static bool store_run_make_room(pj_run_data *d, uint32_t tokens, uint32_t layers, uint32_t samples)
{
    size_t all = (size_t)tokens * layers, outside = layers ? tokens : 0;
    d->phases = pj_arena_alloc(&d->arena, 2, sizeof *d->phases);
    d->tokens = pj_arena_alloc(&d->arena, tokens + 1, sizeof *d->tokens);
    d->layers = pj_arena_alloc(&d->arena, all + 1, sizeof *d->layers);
    d->components = pj_arena_alloc(&d->arena, all * LAYER_PARTS + outside * TOKEN_PARTS + 1,
                                   sizeof *d->components);
    d->operations =
        pj_arena_alloc(&d->arena, all * OPERATIONS_A_LAYER + outside * OPERATIONS_A_TOKEN + 1,
                       sizeof *d->operations);
    d->extras = pj_arena_alloc(&d->arena, all * (1 + HEADS * HEAD_FIGURES) + 1, sizeof *d->extras);
    d->classes = pj_arena_alloc(&d->arena, 16, sizeof *d->classes);
    d->samples.t_ms = pj_arena_alloc(&d->arena, samples + 1, sizeof(double));
    d->samples.phase = pj_arena_alloc(&d->arena, samples + 1, 1);
    d->samples.phase_confidence = pj_arena_alloc(&d->arena, samples + 1, sizeof(float));
    d->samples.mw[0] = pj_arena_alloc(&d->arena, samples + 1, sizeof(double));
    d->samples.columns[PJ_RAIL_CPU] = d->samples.columns[PJ_RAIL_TOTAL] = d->samples.mw[0];
    return d->phases && d->tokens && d->layers && d->components && d->operations && d->extras &&
           d->classes && d->samples.t_ms && d->samples.phase && d->samples.phase_confidence &&
           d->samples.mw[0];
}

bool pj_bench_make_run(pj_run_data *d, uint64_t seed, uint32_t tokens, uint32_t layers,
                       uint32_t samples)
{
    maker m = {.data = d, .random = {seed}};
    *d = (pj_run_data){0};
    pj_arena_init(&d->arena, 0);
    if (!store_run_make_room(d, tokens, layers, samples)) return false;
    for (int i = 0; i < 16; i++)
        d->classes[d->class_count++] = (pj_class_row){
            .name = layer_parts[i % LAYER_PARTS].name, .phase = PJ_PHASE_DECODE, .time_ms = i};
    for (uint32_t p = 0; p < 2; p++) {
        d->phases[d->phase_count++] =
            (pj_phase_row){.phase = p ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL,
                           .start_ms = m.now_ms,
                           .energy = some_energy(&m)};
        for (uint32_t t = p; t < (p ? tokens : 1); t++) store_run_add_token(&m, p, t, layers);
        d->phases[p].duration_ms = m.now_ms - d->phases[p].start_ms;
    }
    d->rail_count = 1;
    d->rails[0] = (pj_rail){.name = "cpu", .source = "sim", .quality = PJ_MODELLED, .parent = -1};
    d->baseline_mw[0] = d->baseline_sd_mw[0] = NAN;
    for (uint32_t i = 0; i < samples; i++) {
        d->samples.t_ms[i] = m.now_ms * i / samples;
        d->samples.phase[i] = PJ_PHASE_DECODE;
        d->samples.phase_confidence[i] = 1;
        d->samples.mw[0][i] = 30000 + 9000 * pj_random_unit(&m.random);
    }
    d->samples.count = samples;
    pj_uuid7(d->info.id);
    static const char *const models[] = {"llama-3.2-1b", "qwen3-0.6b", "phi-2", "demo"};
    static const char *const prompts[] = {"Once upon a time in a data centre", "What is a joule?",
                                          "Explain attention to a child", "Write a poem of heat"};
    d->info.status = PJ_RUN_COMPLETED;
    d->info.depth = PJ_DEPTH_DEEP;
    d->info.created_wall_ns = pj_clock_wall_ns() - (int64_t)(pj_random_unit(&m.random) * 1e16);
    d->info.prompt = prompts[seed % 4];
    d->info.model_name = models[seed / 3 % 4];
    d->info.engine = "synthetic (bench store)";
    d->info.dtype = seed % 3 ? "bf16" : "q8_0";
    d->info.machine = seed % 5 ? "machine" : "another machine";
    d->info.quality = PJ_MODELLED;
    d->info.method = PJ_METHOD_FIT;
    d->info.input_tokens = 9;
    d->info.output_tokens = tokens;
    d->info.total_ms = m.now_ms;
    d->info.prefill_ms = d->phases[0].duration_ms;
    d->info.decode_ms = d->phases[1].duration_ms;
    d->info.total_mj = pj_mj_of_nj(d->phases[0].energy.gross_nj + d->phases[1].energy.gross_nj);
    d->info.decode_mj = pj_mj_of_nj(d->phases[1].energy.gross_nj);
    return true;
}
