/*
 * Figures of a pass besides statistics of outputs: of gates, norms, attention weights and the
 * choice of experts. The device reduces them to a few numbers for each span, which the host reads
 * when the pass is done and turns into the extras that docs/measurement.md defines, over the same
 * rows as on the CPU. They are computed before their span begins or after it has ended, never
 * within it.
 */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <stdlib.h>

enum {
    FIGURES_THREADS = 64,
    FIGURES_MOST_PARTS = 32,  /* of the rows of a pass */
    FIGURES_FEW_ENTRIES = 128 /* up to so many choices are recorded one by one */
};

static uint32_t figures_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rows that are described of so many. */
static uint32_t figures_sampled(const pj_gpu *s, uint32_t rows, uint32_t *step)
{
    *step = (uint32_t)pj_instrument_extras_step(s->instrument, rows);
    return pj_gpu_groups(rows, *step);
}

static bool figures_wanted(const pj_gpu *s)
{
    return s->instrument->deep && s->instrument->statistics && s->record.device;
}

uint64_t pj_gpu_results(pj_gpu *s, uint64_t bytes)
{
    pj_gpu_record *r = &s->record;
    if (bytes > r->results.bytes - r->results_used) return PJ_GPU_NO_RESULTS;
    uint64_t at = r->results_used;
    r->results_used += bytes;
    return at;
}

/* 1 + index, 0: there is no room. */
static uint32_t figures_add(pj_gpu *s, pj_gpu_figures figures, uint64_t bytes)
{
    pj_gpu_record *r = &s->record;
    if (r->figure_count == PJ_GPU_SPANS) return 0;
    figures.at = pj_gpu_results(s, bytes);
    if (figures.at == PJ_GPU_NO_RESULTS) return 0;
    r->figures[r->figure_count++] = figures;
    return r->figure_count;
}

/* Where the device writes them. */
static uint64_t figures_address(const pj_gpu *s, uint32_t figures)
{
    return s->record.results.address + s->record.figures[figures - 1].at;
}

void pj_gpu_attach(pj_gpu *s, uint32_t figures)
{
    pj_gpu_record *r = &s->record;
    if (r->ended && figures) r->spans[r->ended - 1].figures = figures;
}

/* ---- on the device ------------------------------------------------------------------------ */

static pj_vk_norm_figures_constants figures_norm_constants(pj_norm_kind kind, float eps)
{
    return (pj_vk_norm_figures_constants){
        FIGURES_THREADS, kind == PJ_NORM_LAYER ? PJ_VK_NORM_LAYER : PJ_VK_NORM_RMS, eps};
}

static pj_vk_attention_figures_constants figures_attention_constants(const pj_gpu *s,
                                                                     const pj_layer *layer)
{
    return (pj_vk_attention_figures_constants){FIGURES_THREADS, s->options.kv_type,
                                               layer->head_dim};
}

static pj_vk_route_figures_constants figures_route_constants(const pj_gpu *s)
{
    return (pj_vk_route_figures_constants){FIGURES_THREADS, s->model->config.experts};
}

void pj_gpu_gate_figures(pj_gpu *s, pj_vk_gate_figures_args args)
{
    pj_vk_threads_constants constants = {FIGURES_THREADS};
    pj_gpu_figures f = {
        .kind = PJ_GPU_OF_GATES, .rows = args.rows, .count = args.n, .more = args.up != 0};
    if (!figures_wanted(s) || args.rows == 0) return;
    f.parts = f.sampled = figures_sampled(s, args.rows, &args.step);
    uint32_t figures = figures_add(s, f, 12ull * f.parts);
    if (!figures) return;
    args.counts = figures_address(s, figures);
    args.tau = PJ_SPARSITY_TAU;
    PJ_GPU_RUN(s, PJ_VK_GATE_FIGURES, &constants, &args, f.parts, 1, 12ull * f.parts * args.n);
    pj_gpu_attach(s, figures);
}

uint32_t pj_gpu_norm_figures(pj_gpu *s, const pj_norm_step *step)
{
    enum { MOST_GROUPS = 65535 };
    bool layer = step->kind == PJ_NORM_LAYER;
    uint32_t every, sampled = figures_sampled(s, step->y.rows, &every);
    pj_gpu_figures f = {.kind = PJ_GPU_OF_A_NORM,
                        .rows = step->y.rows,
                        .sampled = sampled,
                        .parts = sampled * step->heads,
                        .more = !layer};
    if (!figures_wanted(s) || f.parts == 0) return 0;
    uint32_t figures = figures_add(s, f, 8ull * f.parts);
    if (!figures) return 0;
    pj_vk_norm_figures_constants constants =
        figures_norm_constants(step->kind, pj_norm_eps(step->norm, &s->model->config));
    pj_vk_norm_figures_args args = {.x = pj_gpu_at(s, step->x),
                                    .weight = pj_gpu_weight(&s->on->weights, step->norm->w),
                                    .bias =
                                        layer ? pj_gpu_weight(&s->on->weights, step->norm->b) : 0,
                                    .ratios = figures_address(s, figures),
                                    .tokens = step->y.rows,
                                    .n = step->y.cols / step->heads,
                                    .per_token = step->heads,
                                    .x_stride = step->x.stride,
                                    .step = every,
                                    .measured = f.parts};
    pj_gpu_touch(s, pj_gpu_bit(step->x), 0);
    PJ_GPU_RUN(s, PJ_VK_NORM_FIGURES, &constants, &args, figures_least(f.parts, MOST_GROUPS), 1,
               8ull * f.parts * args.n);
    return figures;
}

/* The rows of the pass whose attention is described: the same in every layer. */
static uint32_t figures_list_rows(pj_gpu *s)
{
    enum { MOST = 4096 };
    pj_gpu_record *r = &s->record;
    const pj_pass *pass = s->rows.pass;
    uint32_t rows[MOST], count = 0, step;
    if (r->sampled_rows) return r->sampled_rows;
    for (uint32_t i = 0; i < pass->segment_count; i++) {
        const pj_pass_segment *g = &pass->segments[i];
        figures_sampled(s, g->count, &step);
        for (uint32_t row = 0; row < g->count && count < MOST; row++)
            if (pj_sample_has_row(row, g->count, step)) rows[count++] = g->row + row;
    }
    r->sampled_list = pj_gpu_list(s, rows, count);
    r->sampled_rows = count;
    return count;
}

void pj_gpu_attention_figures(pj_gpu *s, const pj_layer *layer, const pj_vk_attention_args *of)
{
    if (!figures_wanted(s)) return;
    uint32_t sampled = figures_list_rows(s);
    pj_gpu_figures f = {.kind = PJ_GPU_OF_ATTENTION,
                        .rows = s->rows.pass->tokens,
                        .sampled = sampled,
                        .parts = figures_least(sampled, FIGURES_MOST_PARTS),
                        .count = layer->heads};
    uint64_t bytes = (uint64_t)f.parts * f.count * sizeof(pj_vk_head_figures);
    uint32_t figures = figures_add(s, f, bytes);
    if (!figures) return;
    pj_vk_attention_figures_constants constants = figures_attention_constants(s, layer);
    pj_vk_attention_figures_args args = {.qkv = of->qkv,
                                         .rows = of->rows,
                                         .keys = of->keys,
                                         .sinks = of->sinks,
                                         .list = s->record.sampled_list,
                                         .figures = figures_address(s, figures),
                                         .sequence_bytes = of->sequence_bytes,
                                         .head_bytes = of->head_bytes,
                                         .row_bytes = of->row_bytes,
                                         .sampled = sampled,
                                         .heads = of->heads,
                                         .kv_heads = of->kv_heads,
                                         .qkv_stride = of->qkv_stride,
                                         .window = of->window,
                                         .windowed = of->windowed,
                                         .scale = of->scale,
                                         .cap = of->cap,
                                         .tau = PJ_SPARSITY_TAU,
                                         .kept = of->seen ? of->kept : 0,
                                         .seen = of->seen};
    PJ_GPU_RUN(s, PJ_VK_ATTENTION_FIGURES, &constants, &args, f.count, f.parts,
               3ull * sampled * of->row_bytes * of->kv_heads);
    pj_gpu_attach(s, figures);
}

void pj_gpu_route_figures(pj_gpu *s)
{
    const pj_model_config *c = &s->model->config;
    pj_gpu_record *r = &s->record;
    uint32_t rows = s->routing.rows;
    pj_gpu_figures f = {.kind = PJ_GPU_OF_ROUTING,
                        .rows = rows,
                        .sampled = rows,
                        .parts = figures_least(rows, FIGURES_MOST_PARTS),
                        .count = c->experts,
                        .slots = s->routing.slots};
    bool few = rows * f.slots <= FIGURES_FEW_ENTRIES;
    uint64_t bytes = f.parts * 4ull * (2 + 2 * f.count);
    r->routing = 0;
    s->routing.rows = 0;
    if (!r->device || rows == 0) return;
    uint32_t figures = figures_add(s, f, bytes + (few ? 8ull * rows * f.slots : 0));
    if (!figures) return;
    uint64_t at = figures_address(s, figures);
    if (few) r->figures[figures - 1].list = r->figures[figures - 1].at + bytes;
    pj_vk_route_figures_constants constants = figures_route_constants(s);
    pj_vk_route_figures_args args = {.probability = s->routing.probability,
                                     .chosen = s->routing.chosen,
                                     .weights = s->routing.weights,
                                     .figures = at,
                                     .list = few ? at + bytes : 0,
                                     .rows = rows,
                                     .slots = f.slots};
    pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_ROUTES), 0);
    PJ_GPU_RUN(s, PJ_VK_ROUTE_FIGURES, &constants, &args, f.parts, 1, 4ull * rows * f.count);
    pj_gpu_attach(s, figures);
    r->routing = figures;
}

void pj_gpu_experts_figures(pj_gpu *s, double weights, double each, bool choices)
{
    pj_gpu_record *r = &s->record;
    if (!r->routing || r->figure_count == PJ_GPU_SPANS) return;
    pj_gpu_figures f = r->figures[r->routing - 1];
    f.kind = PJ_GPU_OF_EXPERTS;
    f.weights = weights;
    f.each = each;
    f.more = choices;
    r->figures[r->figure_count++] = f;
    pj_gpu_attach(s, r->figure_count);
}

static void figures_prepare_norm(pj_gpu *s, pj_norm_kind kind, float eps)
{
    pj_vk_norm_figures_constants norms = figures_norm_constants(kind, eps);
    PJ_GPU_RUN(s, PJ_VK_NORM_FIGURES, &norms, &(pj_vk_norm_figures_args){0}, 0, 0, 0);
}

/* Pipelines of kernels that a dry pass, which has no spans, does not come to. */
static void figures_prepare_deep(pj_gpu *s)
{
    float eps = (float)s->model->config.norm_eps;
    pj_vk_threads_constants gates = {FIGURES_THREADS};
    PJ_GPU_RUN(s, PJ_VK_GATE_FIGURES, &gates, &(pj_vk_gate_figures_args){0}, 0, 0, 0);
    figures_prepare_norm(s, PJ_NORM_RMS, eps);
    figures_prepare_norm(s, PJ_NORM_LAYER, eps);
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *layer = &s->model->layers[i];
        pj_vk_attention_figures_constants heads = figures_attention_constants(s, layer);
        if (layer->indexer)
            figures_prepare_norm(s, PJ_NORM_LAYER,
                                 pj_norm_eps(&layer->indexer->k_norm, &s->model->config));
        if (pj_layer_attends(layer))
            PJ_GPU_RUN(s, PJ_VK_ATTENTION_FIGURES, &heads, &(pj_vk_attention_figures_args){0}, 0, 0,
                       0);
    }
}

void pj_gpu_figures_prepare(pj_gpu *s)
{
    pj_vk_route_figures_constants routes = figures_route_constants(s);
    if (s->instrument->module && routes.experts)
        PJ_GPU_RUN(s, PJ_VK_ROUTE_FIGURES, &routes, &(pj_vk_route_figures_args){0}, 0, 0, 0);
    if (s->instrument->deep && s->instrument->statistics) figures_prepare_deep(s);
}

/* ---- on the host -------------------------------------------------------------------------- */

void pj_gpu_extra(const pj_gpu *s, pj_work *work, pj_instrument_name name, uint32_t index,
                  double value)
{
    const pj_gpu_record *r = &s->record;
    size_t at = r->extra_count + work->extra_count;
    if (isnan(value) || at == PJ_GPU_EXTRAS) return;
    r->extras[at] = (pj_extra){s->instrument->names[name], index, value};
    work->extra_count++;
}

static void figures_scalar(const pj_gpu *s, pj_work *work, pj_instrument_name name, double value)
{
    pj_gpu_extra(s, work, name, PJ_EXTRA_SCALAR, value);
}

static void figures_read_gates(const pj_gpu *s, const pj_gpu_figures *f, const uint32_t *counts,
                               pj_work *work)
{
    double killed = 0, dead = 0, gated = 0, n = (double)f->parts * f->count;
    for (uint32_t i = 0; i < f->parts; i++) {
        killed += counts[3 * i];
        dead += counts[3 * i + 1];
        gated += counts[3 * i + 2];
    }
    figures_scalar(s, work, PJ_N_X_KILL_RATIO, killed / n);
    figures_scalar(s, work, PJ_N_X_DEAD_RATIO, dead / n);
    figures_scalar(s, work, PJ_N_X_GATED_SPARSITY, f->more ? gated / n : NAN);
}

static int figures_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Mean over the rows with a defined ratio, which are moved to the front. */
static double figures_mean_ratio(float *ratios, uint32_t rows, uint32_t *count)
{
    double sum = 0;
    *count = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (!(ratios[i] >= 0)) continue;
        sum += (double)ratios[i];
        ratios[(*count)++] = ratios[i];
    }
    return *count ? sum / *count : NAN;
}

static void figures_read_norm(const pj_gpu *s, const pj_gpu_figures *f, float *ratios,
                              pj_work *work)
{
    uint32_t n;
    figures_scalar(s, work, PJ_N_X_VARIANCE_RATIO, figures_mean_ratio(ratios, f->parts, &n));
    qsort(ratios, n, sizeof *ratios, figures_compare);
    uint64_t rank = ((uint64_t)n * 95 + 99) / 100;
    figures_scalar(s, work, PJ_N_X_VARIANCE_RATIO_P95, n ? (double)ratios[rank - 1] : NAN);
    if (f->more)
        figures_scalar(s, work, PJ_N_X_MEAN_SQUARE_RATIO,
                       figures_mean_ratio(ratios + f->parts, f->parts, &n));
}

typedef struct figures_head {
    double rows, entropy, entropy_normalised, largest, largest_of_all;
    double visible, below, below_relative;
} figures_head;

static void figures_add_head(figures_head *to, const pj_vk_head_figures *part)
{
    to->rows += part->rows;
    to->entropy += (double)part->entropy;
    to->entropy_normalised += (double)part->entropy_normalised;
    to->largest += (double)part->largest;
    to->largest_of_all = fmax(to->largest_of_all, (double)part->largest_of_all);
    to->visible += (double)part->visible;
    to->below += (double)part->below;
    to->below_relative += (double)part->below_relative;
}

static void figures_read_attention(const pj_gpu *s, const pj_gpu_figures *f,
                                   const pj_vk_head_figures *parts, pj_work *work)
{
    figures_head all = {0};
    for (uint32_t i = 0; i < f->parts * f->count; i++) figures_add_head(&all, &parts[i]);
    figures_scalar(s, work, PJ_N_X_ENTROPY, all.entropy / all.rows);
    figures_scalar(s, work, PJ_N_X_ENTROPY_NORMALISED, all.entropy_normalised / all.rows);
    figures_scalar(s, work, PJ_N_X_LARGEST, all.largest / all.rows);
    figures_scalar(s, work, PJ_N_X_LARGEST_OF_ALL, all.largest_of_all);
    figures_scalar(s, work, PJ_N_X_ATTENTION_SPARSITY, all.below / all.visible);
    figures_scalar(s, work, PJ_N_X_ATTENTION_SPARSITY_RELATIVE, all.below_relative / all.visible);
    figures_scalar(s, work, PJ_N_X_ATTENTION_ROWS, f->sampled);
    for (uint32_t h = 0; h < f->count; h++) {
        figures_head head = {0};
        for (uint32_t i = 0; i < f->parts; i++) figures_add_head(&head, &parts[i * f->count + h]);
        pj_gpu_extra(s, work, PJ_N_X_ENTROPY_HEAD, h, head.entropy / head.rows);
        pj_gpu_extra(s, work, PJ_N_X_LARGEST_HEAD, h, head.largest / head.rows);
        pj_gpu_extra(s, work, PJ_N_X_ATTENTION_SPARSITY_HEAD, h, head.below / head.visible);
    }
}

/* How often an expert was chosen, and the sum of its probability. */
static double figures_of_expert(const pj_gpu_figures *f, const float *records, uint32_t expert,
                                double *probability)
{
    double chosen = 0;
    *probability = 0;
    for (uint32_t i = 0; i < f->parts; i++) {
        const float *record = records + i * (2 + 2 * (size_t)f->count) + 2;
        chosen += ((const uint32_t *)(const void *)record)[expert];
        *probability += (double)record[f->count + expert];
    }
    return chosen;
}

static void figures_read_choices(const pj_gpu *s, const pj_gpu_figures *f, pj_work *work)
{
    const char *results = s->record.results.mapped;
    const uint32_t *chosen = (const void *)(results + f->list);
    uint32_t entries = f->rows * f->slots;
    const float *weights = (const float *)(const void *)(chosen + entries);
    for (uint32_t i = 0; f->list && i < entries; i++) {
        pj_gpu_extra(s, work, PJ_N_X_EXPERT, i, chosen[i]);
        if (f->kind == PJ_GPU_OF_ROUTING)
            pj_gpu_extra(s, work, PJ_N_X_EXPERT_WEIGHT, i, (double)weights[i]);
    }
}

/* Load of the experts; returns how many were chosen at all. */
static uint32_t figures_read_load(const pj_gpu *s, const pj_gpu_figures *f, const float *records,
                                  pj_work *work)
{
    double entries = (double)f->rows * f->slots, mean = 1.0 / f->count, square = 0, balance = 0;
    uint32_t unique = 0;
    for (uint32_t e = 0; e < f->count; e++) {
        double probability, chosen = figures_of_expert(f, records, e, &probability);
        double load = chosen / entries;
        unique += chosen > 0;
        square += (load - mean) * (load - mean);
        balance += load * probability / f->rows;
        if (!f->list && f->kind == PJ_GPU_OF_ROUTING)
            pj_gpu_extra(s, work, PJ_N_X_EXPERT_LOAD, e, load);
    }
    if (f->kind != PJ_GPU_OF_ROUTING) return unique;
    figures_scalar(s, work, PJ_N_X_UNIQUE_EXPERTS, unique);
    figures_scalar(s, work, PJ_N_X_EXPERT_LOAD_VARIATION, sqrt(square * mean) / mean);
    figures_scalar(s, work, PJ_N_X_LOAD_BALANCE, balance * f->count);
    return unique;
}

static void figures_read_routing(const pj_gpu *s, const pj_gpu_figures *f, const float *records,
                                 pj_work *work)
{
    double entropy = 0, margin = 0, rows = f->rows;
    for (uint32_t i = 0; i < f->parts; i++) {
        entropy += (double)records[i * (2 + 2 * (size_t)f->count)];
        margin += (double)records[i * (2 + 2 * (size_t)f->count) + 1];
    }
    figures_scalar(s, work, PJ_N_X_ROUTING_ENTROPY, entropy / rows);
    figures_scalar(s, work, PJ_N_X_ROUTING_ENTROPY_NORMALISED,
                   f->count > 1 ? entropy / rows / log(f->count) : 0);
    figures_scalar(s, work, PJ_N_X_ROUTING_MARGIN, margin / rows);
    figures_read_load(s, f, records, work);
    figures_read_choices(s, f, work);
}

/* Every chosen expert's weights are read once, whatever the number of its rows. */
static void figures_read_experts(const pj_gpu *s, const pj_gpu_figures *f, const float *records,
                                 pj_work *work)
{
    uint32_t unique = figures_read_load(s, f, records, work);
    work->bytes = unique * f->weights + (double)f->rows * f->slots * f->each;
    if (f->more) figures_read_choices(s, f, work);
}

void pj_gpu_figures_read(const pj_gpu *s, const pj_gpu_figures *f, pj_work *work)
{
    void *at = (char *)s->record.results.mapped + f->at;
    bool counted = f->kind == PJ_GPU_OF_GATES || f->kind == PJ_GPU_OF_A_NORM;
    if (counted && f->sampled != f->rows) figures_scalar(s, work, PJ_N_X_ROWS, f->sampled);
    switch (f->kind) {
    case PJ_GPU_OF_GATES: figures_read_gates(s, f, at, work); break;
    case PJ_GPU_OF_A_NORM: figures_read_norm(s, f, at, work); break;
    case PJ_GPU_OF_ATTENTION: figures_read_attention(s, f, at, work); break;
    case PJ_GPU_OF_ROUTING: figures_read_routing(s, f, at, work); break;
    case PJ_GPU_OF_EXPERTS: figures_read_experts(s, f, at, work); break;
    }
}
