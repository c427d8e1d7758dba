/* Loads a layer's feed-forward block: dense, or experts in any of the layouts that files use. */
#include "engine/model/model_load.h"

#include "engine/model/delta.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- dense ---------------------------------------------------------------------------------- */

static void load_xielu_tensors(pj_loader *l, const char *prefix, float *values)
{
    static const char *const parts[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int i = 0; i < 4; i++) {
        char name[PJ_TENSOR_NAME_BYTES + 16];
        const float *stored = NULL;
        snprintf(name, sizeof name, "%s.act_fn.%s", prefix, parts[i]);
        pj_load_vector(l, name, 1, i < 2 ? 0 : i == 2 ? 0.5f : -1e-6f, &stored);
        if (l->status) return;
        values[i] = *stored;
    }
}

/* xIELU's parameters: slopes of the quadratic and the exponential part, which are stored before
 * softplus, the linear slope, and where the exponential is cut. */
static void load_xielu(pj_loader *l, const char *prefix, uint32_t layer, pj_mlp *mlp)
{
    const pj_model_config *c = &l->model->config;
    float *values = pj_load_alloc(l, 4, sizeof *values);
    mlp->xielu = values;
    if (values && c->layer_xielu)
        memcpy(values, c->layer_xielu[layer], 4 * sizeof *values);
    else if (values)
        load_xielu_tensors(l, prefix, values);
    if (l->status) return;
    values[0] = pj_softplus(values[0]);
    values[1] = values[2] + pj_softplus(values[1]);
}

/* Loads the parts by kind of block; parts of a named block are separate components. */
static void load_mlp(pj_loader *l, const char *prefix, uint32_t width, pj_mlp_kind kind,
                     pj_mlp *mlp)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    bool bias = pj_bias_wanted(b->mlp_bias, c);
    size_t f = mlp->width = width, d = c->hidden;
    pj_instrument_name gate = b->gate ? b->gate : PJ_N_GATE_PROJ;
    pj_instrument_name gate_up = b->gate_up ? b->gate_up : PJ_N_GATE_UP_PROJ;
    /* GGUF files of some architectures have the halves apart */
    if (kind == PJ_MLP_GATED_FUSED && pj_load_has(l, prefix, "gate_proj.weight"))
        kind = PJ_MLP_GATED;
    if (kind == PJ_MLP_GATED_FUSED)
        pj_load_component(l, prefix, gate_up, 2 * f, d, bias, &mlp->gate_up);
    if (kind == PJ_MLP_GATED) pj_load_component(l, prefix, gate, f, d, bias, &mlp->gate);
    if (kind != PJ_MLP_GATED_FUSED) pj_load_component(l, prefix, b->up, f, d, bias, &mlp->up);
    pj_load_component(l, prefix, b->down, d, f, bias, &mlp->down);
    mlp->down.out_factor = (float)c->multipliers.down;
    if (b->act_norm) pj_load_norm(l, prefix, b->act_norm, f, false, &mlp->act_norm);
}

/* A layer's dense block. */
static void load_dense(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    load_mlp(l, prefix, pj_config_mlp_width(c, layer->index), l->model->blueprint->mlp,
             &layer->mlp);
    double cutoff = c->layer_cutoff ? c->layer_cutoff[layer->index] : -INFINITY;
    layer->mlp.cuts = cutoff > -INFINITY;
    layer->mlp.cutoff = (float)cutoff;
    if (c->xielu) load_xielu(l, prefix, layer->index, &layer->mlp);
}

/* The block belongs to another component: its parts are operations of that one. */
static void unname(pj_mlp *mlp)
{
    mlp->gate.name = mlp->up.name = mlp->gate_up.name = mlp->down.name = PJ_N_NONE;
}

/* All experts in one tensor [experts, rows, cols]. */
static void find_stacked(pj_loader *l, const char *prefix, const char *part, size_t rows,
                         size_t cols, bool transposed, pj_matrix *out)
{
    char name[PJ_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    pj_load_stack(l, name, l->model->config.experts, rows, cols, transposed, out);
}

/* Biases of all experts, [experts][count]; takes the values first, first + step, ... of each. */
static void load_expert_biases(pj_loader *l, const char *prefix, const char *part, size_t count,
                               size_t first, size_t step, const float **biases)
{
    char name[PJ_TENSOR_NAME_BYTES];
    pj_matrix stored;
    size_t experts = l->model->config.experts;
    if (l->status) return;
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    l->status =
        pj_checkpoint_matrix(l->model->checkpoint, name, experts, count * step, &stored, l->err);
    float *values = pj_load_alloc(l, experts * count, sizeof *values);
    float *row = values ? pj_alloc(count * step, sizeof *row) : NULL;
    if (values && !row) l->status = pj_fail_memory(l->err, name);
    for (size_t e = 0; row && e < experts; e++) {
        l->kernels->dequantise(stored.type, (const char *)stored.data + e * stored.row_bytes, row,
                               count * step);
        for (size_t i = 0; i < count; i++) values[e * count + i] = row[first + i * step];
    }
    pj_free(row);
    *biases = values;
}

/* Layout of the experts' biases: names of three tensors, and how gate and up share one. */
typedef struct bias_parts {
    const char *gate, *up, *down;
    size_t up_first, step; /* gate: every step-th value from 0; up: from up_first */
} bias_parts;

static const bias_parts stacked_biases = {"gate_proj.bias", "up_proj.bias", "down_proj.bias", 0, 1};
/* gpt-oss: rows of gate and up alternate. */
static const bias_parts interleaved_biases = {"gate_up_proj_bias", "gate_up_proj_bias",
                                              "down_proj_bias", 1, 2};

static void load_biases(pj_loader *l, const char *prefix, const bias_parts *from, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const float *gates = NULL, *ups = NULL, *downs = NULL;
    size_t f = c->expert_intermediate, step = from->step;
    load_expert_biases(l, prefix, from->gate, f, 0, step, &gates);
    load_expert_biases(l, prefix, from->up, f, from->up_first, step, &ups);
    load_expert_biases(l, prefix, from->down, c->hidden, 0, 1, &downs);
    for (uint32_t e = 0; !l->status && e < c->experts; e++) {
        layer->experts[e].gate.bias = gates + e * f;
        layer->experts[e].up.bias = ups + e * f;
        layer->experts[e].down.bias = downs + (size_t)e * c->hidden;
    }
}

/* Row sources for gate, up and down of one expert. */
typedef struct expert_sources {
    pj_row_source gate, up, down;
} expert_sources;

static void adopt_expert(pj_loader *l, const char *name, const expert_sources *from, pj_mlp *mlp)
{
    size_t f = mlp->width = l->model->config.expert_intermediate;
    pj_load_adopt_rows(l, name, &from->gate, f, &mlp->gate.w);
    pj_load_adopt_rows(l, name, &from->up, f, &mlp->up.w);
    pj_load_adopt_rows(l, name, &from->down, pj_config_expert_hidden(&l->model->config),
                       &mlp->down.w);
}

/* Of unquantised gpt-oss and Llama 4: [experts, in, out]; columns of gate and up are interleaved or
 * follow each other. */
static void load_transposed_experts(pj_loader *l, const char *prefix, bool interleaved,
                                    pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate, hidden = c->hidden;
    size_t up_first = interleaved ? 1 : f, step = interleaved ? 2 : 1;
    pj_matrix in, out;
    int wanted = l->dtype;
    l->dtype = wanted == PJ_F32 ? PJ_F32 : -1; /* blocks are made after it has been transposed */
    find_stacked(l, prefix, "gate_up_proj", hidden, 2 * f, true, &in);
    find_stacked(l, prefix, "down_proj", f, hidden, true, &out);
    l->dtype = wanted;
    for (uint32_t e = 0; !l->status && e < c->experts; e++) {
        pj_matrix both = pj_matrix_rows(&in, e * hidden, hidden),
                  down = pj_matrix_rows(&out, e * f, f);
        expert_sources from = {
            pj_rows_transposed(both.data, both.type, hidden, both.row_bytes, 0, step),
            pj_rows_transposed(both.data, both.type, hidden, both.row_bytes, up_first, step),
            pj_rows_transposed(down.data, down.type, f, down.row_bytes, 0, 1)};
        adopt_expert(l, prefix, &from, &layer->experts[e]);
    }
    if (interleaved) load_biases(l, prefix, &interleaved_biases, layer);
}

/* A byte tensor [experts, rows, cols / 32], with a fourth dimension of 16 for blocks. */
static const unsigned char *find_mxfp4(pj_loader *l, const char *prefix, const char *part,
                                       size_t rows, size_t cols, bool blocks)
{
    char name[PJ_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    const pj_tensor *t = pj_checkpoint_find(l->model->checkpoint, name);
    uint64_t want[4] = {l->model->config.experts, rows, cols / 32, 16};
    uint32_t rank = blocks ? 4 : 3;
    bool right = t && cols % 32 == 0 && t->type == PJ_FILE_U8 && t->rank == rank &&
                 memcmp(t->shape, want, rank * sizeof *want) == 0;
    if (right) return t->data;
    if (!l->status && !t)
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s is missing", name);
    else if (!l->status)
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s must be bytes of shape [%zu, %zu, %zu%s]",
                            name, (size_t)want[0], rows, (size_t)want[2], blocks ? ", 16" : "");
    return NULL;
}

/* gpt-oss as published. */
static void load_mxfp4_experts(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate, d = c->hidden;
    const unsigned char *in = find_mxfp4(l, prefix, "gate_up_proj_blocks", 2 * f, d, true);
    const unsigned char *in_scales = find_mxfp4(l, prefix, "gate_up_proj_scales", 2 * f, d, false);
    const unsigned char *out = find_mxfp4(l, prefix, "down_proj_blocks", d, f, true);
    const unsigned char *out_scales = find_mxfp4(l, prefix, "down_proj_scales", d, f, false);
    for (size_t e = 0; !l->status && e < c->experts; e++) {
        expert_sources from = {pj_rows_mxfp4(in, in_scales, d, 2 * f * e, 2),
                               pj_rows_mxfp4(in, in_scales, d, 2 * f * e + 1, 2),
                               pj_rows_mxfp4(out, out_scales, f, d * e, 1)};
        adopt_expert(l, prefix, &from, &layer->experts[e]);
    }
    load_biases(l, prefix, &interleaved_biases, layer);
}

static void adopt_part(pj_loader *l, const char *name, const pj_matrix *whole, size_t first,
                       size_t rows, pj_matrix *out)
{
    pj_matrix part = pj_matrix_rows(whole, first, rows);
    pj_load_adopt(l, name, PJ_ROLE_LAYER, &part, out);
}

/* Tensors that each have a matrix of all experts. */
typedef struct stacked_parts {
    const char *gate, *up, *down; /* gate NULL: blocks without one */
} stacked_parts;

/* As in GGUF files; in newer folders gate and up are fused: the rows of gate, then those of up, of
 * each expert. */
static void load_stacked_experts(pj_loader *l, const char *prefix, const stacked_parts *parts,
                                 pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    bool fused = parts->gate == parts->up;
    size_t f = c->expert_intermediate, d = pj_config_expert_hidden(c), step = fused ? 2 * f : f;
    pj_matrix gates = {0}, ups, downs;
    if (parts->gate) find_stacked(l, prefix, parts->gate, step, d, false, &gates);
    find_stacked(l, prefix, parts->up, step, d, false, &ups);
    find_stacked(l, prefix, parts->down, d, f, false, &downs);
    for (uint32_t e = 0; !l->status && e < c->experts; e++) {
        pj_mlp *mlp = &layer->experts[e];
        mlp->width = c->expert_intermediate;
        if (parts->gate) adopt_part(l, prefix, &gates, step * e, f, &mlp->gate.w);
        adopt_part(l, prefix, &ups, step * e + step - f, f, &mlp->up.w);
        adopt_part(l, prefix, &downs, d * e, d, &mlp->down.w);
    }
    if (!fused && pj_expert_bias_wanted(l->model->blueprint, c))
        load_biases(l, prefix, &stacked_biases, layer);
}

/* One expert, in either of its two spellings. */
static void load_expert(pj_loader *l, const char *prefix, uint32_t expert, pj_mlp *mlp)
{
    static const char *const spellings[2][3] = {{"gate_proj", "up_proj", "down_proj"},
                                                {"w1", "w3", "w2"}};
    const pj_model_config *c = &l->model->config;
    char name[PJ_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", prefix, expert);
    const char *const *part = spellings[pj_load_has_linear(l, name, "w1")];
    size_t f = mlp->width = c->expert_intermediate, d = pj_config_expert_hidden(c);
    bool bias = pj_expert_bias_wanted(l->model->blueprint, c);
    if (l->model->blueprint->mlp != PJ_MLP_PLAIN)
        pj_load_linear(l, name, part[0], f, d, bias, &mlp->gate);
    pj_load_linear(l, name, part[1], f, d, bias, &mlp->up);
    pj_load_linear(l, name, part[2], d, f, bias, &mlp->down);
}

/* The router's product is unnamed: part of component `router`, which also selects the experts. */
static void load_router(pj_loader *l, const char *prefix, const char *part, pj_projection *out)
{
    const pj_model_config *c = &l->model->config;
    pj_load_linear(l, prefix, part, c->experts, c->hidden, l->model->blueprint->router_bias, out);
    pj_load_exact(l, prefix, out);
}

/* Spellings of tensors with the matrices of all experts. */
static const stacked_parts stackings[] = {
    {"gate_up_proj", "gate_up_proj", "down_proj"},
    {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
    {NULL, "up_proj", "down_proj"},
    {NULL, "up_proj.weight", "down_proj.weight"},
};

static bool is_stacked(const pj_loader *l, const char *prefix, const stacked_parts *parts)
{
    return pj_load_has(l, prefix, parts->up) &&
           (!parts->gate || pj_load_has(l, prefix, parts->gate));
}

/* Loads the experts in whichever form the file has. */
static void load_some_experts(pj_loader *l, const char *prefix, pj_layer *layer)
{
    uint32_t experts = l->model->config.experts;
    const size_t count = sizeof stackings / sizeof *stackings;
    size_t i = 0;
    layer->experts = pj_load_alloc(l, experts, sizeof *layer->experts);
    if (l->status) return;
    while (i < count && !is_stacked(l, prefix, &stackings[i])) i++;
    if (pj_load_has(l, prefix, "gate_up_proj_blocks"))
        load_mxfp4_experts(l, prefix, layer);
    else if (pj_load_has(l, prefix, "gate_up_proj_bias"))
        load_transposed_experts(l, prefix, true, layer);
    else if (i == 0 && l->model->blueprint->experts_transposed && !pj_load_is_gguf(l))
        load_transposed_experts(l, prefix, false, layer);
    else if (i < count)
        load_stacked_experts(l, prefix, &stackings[i], layer);
    else
        for (uint32_t e = 0; e < experts; e++) load_expert(l, prefix, e, &layer->experts[e]);
}

/* What is added to the scores of experts when they are chosen. */
static void load_correction(pj_loader *l, const char *block, pj_layer *layer)
{
    static const char *const parts[] = {"gate.e_score_correction.bias", /* of GGUF files */
                                        "gate.e_score_correction_bias", "e_score_correction_bias",
                                        "expert_bias", "moe_statics.e_score_correction_bias"};
    char name[PJ_TENSOR_NAME_BYTES + 64];
    size_t i = 0, count = sizeof parts / sizeof *parts;
    if (!l->model->config.router_correction) return;
    while (i + 1 < count && !pj_load_has(l, block, parts[i])) i++;
    snprintf(name, sizeof name, "%s.%s", block, parts[i]);
    pj_load_vector(l, name, l->model->config.experts, 0, &layer->expert_correction);
}

/* It is a part of the block, or beside it in the layer. */
static void load_shared(pj_loader *l, const char *prefix, const char *block, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    char name[PJ_TENSOR_NAME_BYTES + 16];
    if (!l->model->blueprint->shared_expert || c->shared_intermediate == 0) return;
    bool beside = pj_load_has_linear(l, prefix, "shared_mlp.input_linear");
    const char *own = pj_load_has_linear(l, block, "shared_experts.up_proj") ? "shared_experts"
                      : beside || pj_load_has_linear(l, block, "shared_mlp.up_proj")
                          ? "shared_mlp"
                          : "shared_expert";
    snprintf(name, sizeof name, "%s.%s", beside ? prefix : block, own);
    load_mlp(l, name, c->shared_intermediate, l->model->blueprint->mlp, &layer->shared);
    unname(&layer->shared);
    if (l->model->blueprint->shared_gate)
        pj_load_linear(l, block, "shared_expert_gate", 1, c->hidden, false, &layer->shared_gate);
}

/* Into and out of the space that the experts compute in. */
static void load_expert_latent(pj_loader *l, const char *block, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    bool bias = pj_bias_wanted(l->model->blueprint->mlp_bias, c);
    if (!c->expert_latent) return;
    pj_load_component(l, block, PJ_N_FC1_LATENT_PROJ, c->expert_latent, c->hidden, bias,
                      &layer->expert_in);
    pj_load_component(l, block, PJ_N_FC2_LATENT_PROJ, c->hidden, c->expert_latent, bias,
                      &layer->expert_out);
}

/* Granite: gate and up of all experts in one tensor, beside the router. */
static void load_linear_experts(pj_loader *l, const char *block, pj_layer *layer)
{
    static const stacked_parts parts = {"input_linear.weight", "input_linear.weight",
                                        "output_linear.weight"};
    layer->experts = pj_load_alloc(l, l->model->config.experts, sizeof *layer->experts);
    if (!l->status) load_stacked_experts(l, block, &parts, layer);
}

/* Routers under any of their names; the last where there is none. */
static const char *router_of(const pj_loader *l, const char *block)
{
    static const char *const names[] = {"router", "router.layer", "gate.wg", "gate"};
    size_t i = 0, last = sizeof names / sizeof *names - 1;
    while (i < last && !pj_load_has_linear(l, block, names[i])) i++;
    return names[i];
}

static void load_experts(pj_loader *l, const char *prefix, pj_layer *layer)
{
    char block[PJ_TENSOR_NAME_BYTES], name[PJ_TENSOR_NAME_BYTES + 16];
    const char *own = l->model->blueprint->block;
    bool sparse = pj_load_has(l, prefix, "block_sparse_moe.gate.weight") ||
                  pj_load_has(l, prefix, "block_sparse_moe.router.layer.weight");
    bool granite = pj_arch_is_granite(l->model->config.arch); /* its block is the shared one */
    snprintf(block, sizeof block, "%s.%s", prefix,
             sparse            ? "block_sparse_moe"
             : own && !granite ? own
                               : "mlp");
    load_router(l, block, router_of(l, block), &layer->router);
    load_correction(l, block, layer);
    load_expert_latent(l, block, layer);
    snprintf(name, sizeof name, "%s.experts", block);
    if (pj_load_has(l, block, "input_linear.weight"))
        load_linear_experts(l, block, layer);
    else
        load_some_experts(l, name, layer);
    load_shared(l, prefix, block, layer);
}

/* Gemma 4: a router with its own norm and scales, and norms around both branches. */
static void load_parallel_experts(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    char name[PJ_TENSOR_NAME_BYTES];
    size_t d = c->hidden;
    snprintf(name, sizeof name, "%s.router", prefix);
    load_router(l, name, "proj", &layer->router);
    snprintf(name, sizeof name, "%s.router.scale", prefix);
    pj_load_vector(l, name, d, 1, &layer->router_norm.w);
    for (size_t i = 0; !l->status && i < d; i++)
        ((float *)(uintptr_t)layer->router_norm.w)[i] *= 1.0f / sqrtf((float)d);
    layer->router_norm.name = PJ_N_ROUTER_NORM;
    snprintf(name, sizeof name, "%s.router.per_expert_scale", prefix);
    pj_load_vector(l, name, c->experts, 1, &layer->expert_scale);
    snprintf(name, sizeof name, "%s.experts", prefix);
    load_some_experts(l, name, layer);
    pj_load_norm(l, prefix, PJ_N_POST_FEEDFORWARD_LAYERNORM_1, d, false, &layer->dense_out_norm);
    pj_load_norm(l, prefix, PJ_N_PRE_FEEDFORWARD_LAYERNORM_2, d, false, &layer->experts_norm);
    pj_load_norm(l, prefix, PJ_N_POST_FEEDFORWARD_LAYERNORM_2, d, false, &layer->experts_out_norm);
}

void pj_load_feed_forward(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    bool dense = c->experts == 0 || (c->layer_is_dense && c->layer_is_dense[layer->index]);
    char mlp[PJ_TENSOR_NAME_BYTES];
    const char *block = l->model->blueprint->block;
    snprintf(mlp, sizeof mlp, "%s.%s", prefix, block ? block : "mlp");
    bool parallel = l->model->blueprint->parallel_experts;
    if (dense || parallel) load_dense(l, mlp, layer);
    if (!dense && parallel) load_parallel_experts(l, prefix, layer);
    if (!dense && !parallel) load_experts(l, prefix, layer);
}
