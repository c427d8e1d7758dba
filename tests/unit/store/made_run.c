/* Makes runs; see made_run.h. */
#include "made_run.h"

#include "trace/request.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const components[] = {
    "input_layernorm",          "q_proj",    "k_proj",  "v_proj", "attention", "o_proj",
    "post_attention_layernorm", "gate_proj", "up_proj", "act",    "down_proj"};
static const char *const of_attention[] = {"rope",    "qk_matmul",    "scale",       "mask_apply",
                                           "softmax", "attn_dropout", "value_matmul"};
static const char *const of_others[] = {"matmul", "residual_add"};
enum { COMPONENTS = sizeof components / sizeof *components, HEADS = 8 };

typedef struct maker {
    const made_run *like;
    pj_run_data *data;
    pj_random random;
    double now_ms;
} maker;

static void *room(maker *m, size_t count, size_t size)
{
    void *block = pj_arena_alloc(&m->data->arena, count ? count : 1, size);
    assert_non_null(block);
    return block;
}

static double unit(maker *m)
{
    return pj_random_unit(&m->random);
}

/* Times are whole nanoseconds, as a recorder has them. */
static double some_ms(maker *m, double scale)
{
    return (double)(int64_t)((0.5 + unit(m)) * scale * 1e6) / 1e6;
}

static int64_t some_nj(maker *m, double scale)
{
    double factor = m->like->energy_factor > 0 ? m->like->energy_factor : 1;
    return 1 + (int64_t)(unit(m) * scale * factor);
}

static pj_energy own_energy(maker *m, double scale)
{
    if (m->like->no_energy) return PJ_ENERGY_UNKNOWN;
    int64_t nj = some_nj(m, scale);
    float sd = (float)((double)nj * 1e-7);
    return (pj_energy){.gross_nj = nj,
                       .net_nj = nj - nj / 3,
                       .self_nj = nj,
                       .planted_nj = nj + 5,
                       .sd_mj = sd,
                       .net_sd_mj = sd / 2,
                       .sd = {sd / 3, sd / 4, sd / 5},
                       .net_sd = {sd / 3, sd / 6, sd / 7},
                       .upper_mj = NAN,
                       .method = PJ_METHOD_FIT};
}

/* Adds a part to the whole. */
static void add_energy(pj_energy *whole, const pj_energy *part)
{
    if (part->gross_nj == PJ_NJ_UNKNOWN) return;
    whole->gross_nj += part->gross_nj;
    whole->net_nj += part->net_nj;
    whole->planted_nj += part->planted_nj;
    whole->sd_mj += part->sd_mj;
}

static pj_stats some_stats(maker *m)
{
    return (pj_stats){(float)unit(m),        (float)(unit(m) - 0.5), (float)unit(m),
                      (float)(unit(m) * 10), (float)unit(m),         0,
                      unit(m) < 0.001};
}

static void add_extra(maker *m, const char *name, uint32_t index)
{
    m->data->extras[m->data->extra_count++] = (pj_extra_row){name, index, (double)(float)unit(m)};
}

static void add_head_extras(maker *m, uint32_t *begin, uint32_t *count)
{
    *begin = m->data->extra_count;
    add_extra(m, "attention_entropy", PJ_EXTRA_SCALAR);
    add_extra(m, "attention_max", PJ_EXTRA_SCALAR);
    for (uint32_t h = 0; h < HEADS; h++) add_extra(m, "attention_entropy_head", h);
    *count = m->data->extra_count - *begin;
}

static void add_operations(maker *m, uint32_t component, double share_ms)
{
    pj_component_row *c = &m->data->components[component];
    bool attention = strcmp(c->name, "attention") == 0;
    uint32_t count = attention ? 7 : strcmp(c->name, "o_proj") == 0 ? 2 : 1;
    for (uint32_t i = 0; i < count; i++) {
        pj_operation_row *o = &m->data->operations[m->data->operation_count++];
        *o = (pj_operation_row){.component = component,
                                .class_ = i % m->data->class_count,
                                .name = attention ? of_attention[i] : of_others[i],
                                .start_ms = m->now_ms,
                                .duration_ms = share_ms / count,
                                .flops = floor(unit(m) * 1e6),
                                .bytes = floor(unit(m) * 1e5),
                                .energy = own_energy(m, 3e5),
                                .has_stats = true,
                                .stats = some_stats(m)};
        if (attention && i == 4 && !m->like->no_extras)
            add_head_extras(m, &o->extra_begin, &o->extra_count);
        add_energy(&c->energy, &o->energy);
    }
}

static pj_energy add_component(maker *m, const char *name, uint32_t layer, uint32_t token,
                               double ms)
{
    uint32_t at = m->data->component_count++;
    pj_component_row *c = &m->data->components[at];
    *c = (pj_component_row){.layer = layer,
                            .section = PJ_NO_PARENT,
                            .token = token,
                            .step = PJ_NO_PARENT,
                            .class_ = at % m->data->class_count,
                            .name = name,
                            .start_ms = m->now_ms,
                            .duration_ms = ms,
                            .flops = floor(unit(m) * 1e7),
                            .bytes = NAN,
                            .energy = own_energy(m, 1e4),
                            .has_stats = unit(m) < 0.95,
                            .stats = {0}};
    if (c->has_stats) c->stats = some_stats(m);
    bool attention = strcmp(name, "attention") == 0;
    if (attention && m->like->depth < PJ_DEPTH_DEEP && !m->like->no_extras)
        add_head_extras(m, &c->extra_begin, &c->extra_count);
    if (m->like->depth == PJ_DEPTH_DEEP && layer != PJ_NO_PARENT) add_operations(m, at, ms);
    m->now_ms += ms;
    return m->data->components[at].energy;
}

static pj_energy add_layer(maker *m, uint32_t token, uint32_t index)
{
    uint32_t at = m->data->layer_count++;
    pj_layer_row *l = &m->data->layers[at];
    *l = (pj_layer_row){.token = token,
                        .step = PJ_NO_PARENT,
                        .layer_index = index,
                        .start_ms = m->now_ms,
                        .energy = own_energy(m, 1e3),
                        .has_stats = true,
                        .stats = some_stats(m)};
    for (int c = 0; c < COMPONENTS; c++) {
        double ms = some_ms(m, 0.01);
        pj_energy part = add_component(m, components[c], at, token, ms);
        l->duration_ms += ms;
        *(c < 6 ? &l->attention_ms : &l->mlp_ms) += ms;
        add_energy(&l->energy, &part);
    }
    return l->energy;
}

static pj_energy add_token(maker *m, uint32_t phase, uint32_t position)
{
    static const char *const texts[] = {" the", " watt", "\xe2\x82", " \"x\"\n", "\xf0\x9f\x98\x80",
                                        ","};
    uint32_t at = m->data->token_count++;
    pj_token_row *t = &m->data->tokens[at];
    *t = (pj_token_row){.phase = phase,
                        .step = PJ_NO_PARENT,
                        .share = NAN,
                        .context_share = NAN,
                        .position = position,
                        .token_id = (int32_t)(position * 7),
                        .text = texts[position % 6],
                        .start_ms = m->now_ms,
                        .power_mw = m->like->no_energy ? NAN : 20000 + 5000 * unit(m),
                        .energy = own_energy(m, 1e5)};
    t->energy.method = m->like->no_energy ? PJ_METHOD_NONE : PJ_METHOD_INTEGRATE;
    for (uint32_t l = 0; l < m->like->layers && m->like->depth > PJ_DEPTH_OFF; l++) {
        pj_energy part = add_layer(m, at, l);
        add_energy(&t->energy, &part);
    }
    if (m->like->depth > PJ_DEPTH_OFF) {
        pj_energy part = add_component(m, "lm_head", PJ_NO_PARENT, at, some_ms(m, 0.05));
        add_energy(&t->energy, &part);
    }
    if (m->like->depth == PJ_DEPTH_OFF) m->now_ms += some_ms(m, 1);
    t->duration_ms = m->now_ms - t->start_ms;
    return t->energy;
}

static void add_section(maker *m, uint32_t phase, uint32_t token, const char *name, double start,
                        double ms, pj_energy energy)
{
    m->data->sections[m->data->section_count++] =
        (pj_section_row){phase, token, PJ_NO_PARENT, name, start, ms, energy};
}

/* A phase over tokens first .. first + count - 1; none of them: a section of its own. */
static void add_phase(maker *m, pj_phase which, uint32_t first, uint32_t count)
{
    uint32_t at = m->data->phase_count++;
    pj_phase_row *p = &m->data->phases[at];
    *p = (pj_phase_row){
        .phase = (uint8_t)which, .start_ms = m->now_ms, .energy = own_energy(m, 2e5)};
    p->energy.method = m->like->no_energy ? PJ_METHOD_NONE : PJ_METHOD_INTEGRATE;
    for (uint32_t t = first; t < first + count; t++) {
        double start = m->now_ms;
        pj_energy part = add_token(m, at, t);
        add_section(m, at, t, "layers", start, m->now_ms - start, PJ_ENERGY_UNKNOWN);
        add_energy(&p->energy, &part);
    }
    if (count == 0) {
        double ms = some_ms(m, 1);
        pj_energy part = own_energy(m, 1e6);
        add_section(m, at, PJ_NO_PARENT,
                    which == PJ_PHASE_PRE_INFERENCE ? "tokenization" : "cleanup", m->now_ms, ms,
                    part);
        add_energy(&p->energy, &part);
        m->now_ms += ms;
    }
    p->duration_ms = m->now_ms - p->start_ms;
}

static void add_samples(maker *m)
{
    pj_run_data *data = m->data;
    pj_sample_table *s = &data->samples;
    uint32_t n = s->count = m->like->samples;
    if (n == 0 || m->like->no_energy) {
        s->count = 0;
        return;
    }
    static const int fed[] = {PJ_RAIL_CPU, PJ_RAIL_DRAM, PJ_RAIL_TOTAL};
    s->t_ms = room(m, n, sizeof(double));
    s->phase = room(m, n, 1);
    s->phase_confidence = room(m, n, sizeof(float));
    for (int c = 0; c < 3; c++) s->columns[fed[c]] = room(m, n, sizeof(double));
    for (int r = 0; r < 2; r++) s->mw[r] = room(m, n, sizeof(double));
    for (uint32_t i = 0; i < n; i++) {
        s->t_ms[i] = m->now_ms * i / n;
        uint32_t p = 0;
        while (p + 1 < data->phase_count && data->phases[p + 1].start_ms <= s->t_ms[i]) p++;
        s->phase[i] = data->phases[p].phase;
        s->phase_confidence[i] = (float)unit(m);
        s->mw[0][i] = s->columns[PJ_RAIL_CPU][i] = 20000 + 9000 * unit(m);
        s->mw[1][i] = s->columns[PJ_RAIL_DRAM][i] = i % 100 == 3 ? NAN : 3000 + 900 * unit(m);
        s->columns[PJ_RAIL_TOTAL][i] = s->mw[0][i] + (i % 100 == 3 ? 0 : s->mw[1][i]);
    }
}

static void add_rails(maker *m)
{
    pj_run_data *data = m->data;
    if (m->like->no_energy) return;
    data->rail_count = 2;
    for (int r = 0; r < 2; r++) {
        data->rails[r] = (pj_rail){.rail_class = r ? PJ_RAIL_DRAM : PJ_RAIL_CPU,
                                   .kind = PJ_RAIL_COUNTER,
                                   .scope = PJ_SCOPE_PACKAGE,
                                   .quality = PJ_MEASURED,
                                   .parent = -1,
                                   .period_ns = 1000000,
                                   .resolution = 61.035,
                                   .modulus_uj = 262143328850.0};
        snprintf(data->rails[r].name, sizeof data->rails[r].name, "%s", r ? "dram" : "cpu");
        snprintf(data->rails[r].source, sizeof data->rails[r].source, "rapl");
        data->baseline_mw[r] = r ? 900 : 11000.5;
        data->baseline_sd_mw[r] = r ? NAN : 80;
    }
    data->rail_energy = room(m, 12, sizeof *data->rail_energy);
    for (int p = 1; p <= PJ_PHASE_COUNT; p++)
        for (int r = 0; r < 2; r++)
            data->rail_energy[data->rail_energy_count++] =
                (pj_rail_energy){(uint8_t)p, (uint16_t)r, 100 * unit(m), 30 * unit(m), 60 * unit(m),
                                 NAN,        7.5,         {1, 2, 3},     {4, 5, 6}};
}

static void add_classes(maker *m)
{
    m->data->classes = room(m, 4, sizeof *m->data->classes);
    for (int i = 0; i < 4; i++)
        m->data->classes[m->data->class_count++] = (pj_class_row){.name = components[i],
                                                                  .phase = PJ_PHASE_DECODE,
                                                                  .time_ms = unit(m),
                                                                  .flops = 1e9,
                                                                  .bytes = NAN,
                                                                  .power_mw = 1e4 * unit(m),
                                                                  .power_sd_mw = 100,
                                                                  .energy_mj = unit(m),
                                                                  .energy_sd_mj = 0.1,
                                                                  .net_energy_mj = unit(m),
                                                                  .net_energy_sd_mj = 0.2,
                                                                  .energy_sd = {1, 2, 3},
                                                                  .net_energy_sd = {4, 5, 6},
                                                                  .data_share = 0.5,
                                                                  .truncated = i == 3};
}

static void fill_info(maker *m)
{
    const made_run *like = m->like;
    pj_run_info *i = &m->data->info;
    double total = 0;
    for (uint32_t p = 0; p < m->data->phase_count; p++)
        total += pj_mj_of_nj(m->data->phases[p].energy.gross_nj);
    pj_uuid7(i->id);
    i->status = like->status ? like->status : PJ_RUN_COMPLETED;
    i->depth = like->depth;
    i->created_wall_ns = like->created_wall_ns ? like->created_wall_ns : pj_clock_wall_ns();
    i->monotonic_ms = 123456.789012;
    i->prompt = like->prompt ? like->prompt : "Once upon a \"time\"";
    i->output_text = " the watt";
    i->model_name = like->model_name ? like->model_name : "made";
    i->model_path = "/models/made";
    i->engine = "perjoule";
    i->experiment_name = like->experiment_name;
    i->repeat_group = like->repeat_group;
    const char **tags = room(m, 2, sizeof *tags);
    tags[0] = "made";
    tags[1] = like->tag;
    i->tags = tags;
    i->tag_count = like->tag ? 2 : 1;
    i->batch_size = 1;
    i->dtype = "bf16";
    i->threads = 2;
    i->machine = "CPU, host";
    i->machine_json = "{\"cpu\":\"CPU\"}";
    i->model_json = "{\"parameters\":1200000,\"layers\":4}";
    i->parameters = 1200000;
    i->active_parameters = NAN;
    i->input_tokens = 9;
    i->output_tokens = like->tokens;
    i->total_ms = m->now_ms;
    i->prefill_ms = m->data->phases[1].duration_ms;
    i->decode_ms = m->data->phases[2].duration_ms;
    i->quality = like->no_energy ? PJ_UNAVAILABLE : PJ_MEASURED;
    i->power_sources = like->no_energy ? NULL : "rapl";
    i->method = like->no_energy ? PJ_METHOD_NONE : PJ_METHOD_FIT;
    i->total_mj = total;
    i->idle_mj = total / 4;
    i->net_mj = total - total / 4;
    i->total_sd_mj = total / 50;
    i->net_sd_mj = total / 60;
    i->total_sd = like->no_energy ? PJ_SD_UNKNOWN : (pj_sd){1, 2, 3};
    i->net_sd = like->no_energy ? PJ_SD_UNKNOWN : (pj_sd){4, 5, 6};
    i->upper_mj = i->process_mj = NAN;
    i->absence = like->no_energy ? PJ_ABSENT_NO_SENSOR : PJ_ABSENT_NOT;
    i->prefill_mj = pj_mj_of_nj(m->data->phases[1].energy.gross_nj);
    i->decode_mj = pj_mj_of_nj(m->data->phases[2].energy.gross_nj);
    i->prefill_net_mj = i->prefill_mj / 2;
    i->decode_net_mj = i->decode_mj / 2;
    i->condition_number = 12;
    i->pj_per_flop = i->pj_per_flop_sd = i->pj_per_byte = i->pj_per_byte_sd = 1.5;
    i->attribution_interval = 0.2;
    i->attribution_interval_calibrated = i->calibration_gap = NAN;
    i->overhead_ms = i->statistics_ms = i->overhead_share = i->sampler_cpu_share =
        i->sampler_jitter_us = 0.01;
    i->samples_missed = 3;
    i->baseline_cold_mw = i->baseline_resident_mw = NAN;
}

void make_run(const made_run *like, pj_run_data *data)
{
    *data = (pj_run_data){0};
    pj_arena_init(&data->arena, 0);
    maker m = {.like = like, .data = data, .random = {like->seed}};
    size_t layers = (size_t)like->tokens * like->layers;
    data->phases = room(&m, 4, sizeof *data->phases);
    data->sections = room(&m, like->tokens + 8, sizeof *data->sections);
    data->tokens = room(&m, like->tokens, sizeof *data->tokens);
    data->layers = room(&m, layers, sizeof *data->layers);
    data->components = room(&m, layers * COMPONENTS + like->tokens, sizeof *data->components);
    if (like->depth == PJ_DEPTH_DEEP)
        data->operations = room(&m, layers * (COMPONENTS + 7), sizeof *data->operations);
    data->extras = room(&m, layers * (HEADS + 2), sizeof *data->extras);
    data->warnings = room(&m, 1, sizeof *data->warnings);
    data->warnings[data->warning_count++] = (pj_warning_row){0.5, "made", "This run was made up."};
    add_classes(&m);
    add_phase(&m, PJ_PHASE_PRE_INFERENCE, 0, 0);
    add_phase(&m, PJ_PHASE_PREFILL, 0, like->tokens ? 1 : 0);
    add_phase(&m, PJ_PHASE_DECODE, 1, like->tokens > 1 ? like->tokens - 1 : 0);
    add_phase(&m, PJ_PHASE_POST_INFERENCE, 0, 0);
    add_rails(&m);
    add_samples(&m);
    fill_info(&m);
    if (pj_request_figures(data, NULL, NULL) != PJ_OK) abort();
}
