/*
 * Steps that share a dispatch with the one that follows: the norm before a product of few rows,
 * gate and up with their activation, and the norms of queries and keys before their rotation. Such
 * a step is held back when it is called, and computed with the next one, with the same bits as
 * apart; any other operation that comes first makes it run by itself. At depth deep nothing is
 * held, so that every operation has a span of its own. At depth module the steps of a dispatch are
 * one component, which is called by all their names.
 */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <stdio.h>

static bool fuse_is_on(const pj_gpu *s, uint32_t rows)
{
    return !s->instrument->deep && rows <= PJ_GPU_FEW;
}

/* ---- norms ---- */

/* The layer that a norm is part of; NULL: none. */
static const pj_layer *fuse_layer_of(const pj_gpu *s, const pj_norm *norm)
{
    const char *first = (const char *)s->model->layers, *at = (const char *)norm;
    size_t layers = s->model->config.layers;
    if (at < first || at >= first + layers * sizeof(pj_layer)) return NULL;
    return &s->model->layers[(size_t)(at - first) / sizeof(pj_layer)];
}

/* Whether the norm's output is read by one group of products and by nothing else. */
static bool fuse_has_one_reader(const pj_gpu *s, const pj_norm *norm)
{
    const pj_layer *l = fuse_layer_of(s, norm);
    if (!l) return false;
    if (norm == &l->attention_norm)
        return !l->delta && !l->latent && !l->streams && !s->model->blueprint->parallel_block;
    return norm == &l->mlp_norm && !l->experts;
}

/* A kernel finds the bias behind the weights. */
static bool fuse_reaches_bias(const pj_gpu *s, const pj_norm_step *step)
{
    const pj_gpu_weights *weights = &s->on->weights;
    if (step->kind != PJ_NORM_LAYER || !step->norm->b) return true;
    uint64_t w = pj_gpu_weight(weights, step->norm->w), b = pj_gpu_weight(weights, step->norm->b);
    return b > w && (b - w) / 4 <= UINT32_MAX;
}

bool pj_gpu_hold_norm(pj_gpu *s, const pj_norm_step *step)
{
    pj_gpu_held *held = &s->held;
    if (!fuse_is_on(s, step->y.rows) || step->heads != 1 || step->residual.buffer ||
        step->x.buffer == step->y.buffer)
        return false;
    if (!fuse_has_one_reader(s, step->norm) || !fuse_reaches_bias(s, step)) return false;
    s->settle(s);
    *held = (pj_gpu_held){.normed = true, .norm = *step, .joins = s->instrument->module};
    return true;
}

bool pj_gpu_hold_head_norm(pj_gpu *s, const pj_norm_step *step)
{
    pj_gpu_held *held = &s->held;
    const pj_layer *l = fuse_layer_of(s, step->norm);
    bool ours = l && (step->norm == &l->q_norm || step->norm == &l->k_norm);
    if (!ours || s->instrument->deep || step->kind != PJ_NORM_RMS || l->v_norm.w ||
        s->model->blueprint->qk_norm == PJ_QK_NORM_FULL)
        return false;
    if (held->head_norm_count != 1 || step->norm == &l->q_norm) {
        s->settle(s);
        *held = (pj_gpu_held){0};
    }
    held->head_norms[held->head_norm_count++] = *step;
    held->joins = s->instrument->module;
    return true;
}

/* Weights of the held norm of queries, or of keys. */
static const float *fuse_head_norm(const pj_gpu *s, bool queries)
{
    for (uint32_t i = 0; i < s->held.head_norm_count; i++) {
        const pj_norm *norm = s->held.head_norms[i].norm;
        if ((norm == &fuse_layer_of(s, norm)->q_norm) == queries) return norm->w;
    }
    return NULL;
}

pj_gpu_head_norms pj_gpu_take_head_norms(pj_gpu *s)
{
    pj_gpu_held held = s->held;
    if (!held.head_norm_count) return (pj_gpu_head_norms){0};
    pj_instrument_name first = held.head_norms[0].norm->name;
    bool both = held.head_norm_count == 2;
    pj_gpu_head_norms norms = {
        .q = fuse_head_norm(s, true),
        .k = fuse_head_norm(s, false),
        .name = pj_gpu_group_name(s, both ? first : PJ_N_NONE,
                                  both ? held.head_norms[1].norm->name : first, PJ_N_ATTENTION),
        .flops = held.flops,
        .bytes = held.bytes};
    s->held = (pj_gpu_held){0};
    return norms;
}

pj_gpu_input pj_gpu_take_input(pj_gpu *s, pj_slice x)
{
    pj_gpu_held *held = &s->held;
    pj_gpu_input in = {.x = x};
    if (!held->normed || x.buffer != held->norm.y.buffer || x.rows > PJ_GPU_FEW) return in;
    held->normed = false;
    in.x = held->norm.x;
    in.norm = held->norm.norm;
    in.norm_kind = held->norm.kind;
    in.flops = held->flops;
    in.bytes = held->bytes;
    return in;
}

/* ---- gate and up ---- */

/* Two matrices, or one that has the rows of both. */
static bool fuse_are_gate_and_up(const pj_product *products, uint32_t count)
{
    const pj_projection *first = products[0].projection;
    if (products[0].y.buffer != PJ_BUFFER_GATE_UP || products[0].residual.buffer) return false;
    if (count == 1) return first->name == PJ_N_GATE_UP_PROJ;
    return count == 2 && products[1].y.buffer == PJ_BUFFER_GATE_UP &&
           products[1].y.cols == products[0].y.cols &&
           products[1].projection->w.type == first->w.type;
}

bool pj_gpu_hold_products(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                          uint32_t count)
{
    pj_gpu_held *held = &s->held;
    if (!fuse_is_on(s, in->x.rows) || !fuse_are_gate_and_up(products, count)) return false;
    if (s->model->config.multipliers.gate != 1) return false; /* in between */
    for (uint32_t i = 0; i < count; i++) held->products[i] = products[i];
    held->product_count = count;
    held->input = *in;
    return true;
}

bool pj_gpu_take_products(pj_gpu *s, const pj_activation *a, pj_gpu_held *taken)
{
    const pj_gpu_held *held = &s->held;
    const pj_slice *y = &held->products[0].y;
    if (!held->product_count || a->cuts || a->up.buffer != y->buffer ||
        a->gate.buffer != y->buffer || a->gate.first != y->first || a->act.rows != y->rows)
        return false;
    *taken = *held;
    s->held = (pj_gpu_held){0};
    return true;
}

/* ---- components of several steps ---- */

static uint32_t fuse_find(const pj_gpu *s, pj_instrument_name norm, pj_instrument_name products,
                          pj_instrument_name act)
{
    for (uint32_t i = 0; i < s->group_count; i++) {
        const pj_gpu_group *g = &s->groups[i];
        if (g->norm == norm && g->products == products && g->act == act) return i;
    }
    return UINT32_MAX;
}

static void fuse_declare(pj_gpu *s, pj_instrument_name norm, pj_instrument_name products,
                         pj_instrument_name act)
{
    char text[160];
    if (products == PJ_N_NONE || (norm == PJ_N_NONE && act == PJ_N_NONE)) return;
    if (s->group_count == PJ_GPU_GROUPS || fuse_find(s, norm, products, act) != UINT32_MAX) return;
    snprintf(text, sizeof text, "%s%s%s%s%s", norm ? pj_instrument_text(norm) : "", norm ? "+" : "",
             pj_instrument_text(products), act ? "+" : "", act ? pj_instrument_text(act) : "");
    s->groups[s->group_count++] =
        (pj_gpu_group){norm, products, act, pj_run_name(s->instrument->run, text)};
}

/* Interned before the first pass, as all names are. */
void pj_gpu_declare_groups(pj_gpu *s)
{
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        const pj_mlp *mlp = &l->mlp;
        pj_instrument_name reader = l->qkv.w.data          ? l->qkv.name
                                    : pj_layer_has_keys(l) ? PJ_N_QKV_PROJ
                                                           : l->q.name;
        pj_instrument_name up = mlp->gate_up.w.data ? mlp->gate_up.name
                                : mlp->gate.w.data  ? PJ_N_GATE_UP_PROJ
                                                    : mlp->up.name;
        fuse_declare(s, l->attention_norm.name, reader, PJ_N_NONE);
        fuse_declare(s, l->mlp_norm.name, up, PJ_N_NONE);
        fuse_declare(s, l->mlp_norm.name, up, PJ_N_ACT);
        fuse_declare(s, PJ_N_NONE, up, PJ_N_ACT);
        if (l->q_norm.b) continue; /* not held: pj_gpu_hold_head_norm */
        if (l->q_norm.w && l->k_norm.w)
            fuse_declare(s, l->q_norm.name, l->k_norm.name, PJ_N_ATTENTION);
        else if (l->q_norm.w)
            fuse_declare(s, PJ_N_NONE, l->q_norm.name, PJ_N_ATTENTION);
    }
}

uint32_t pj_gpu_group_name(const pj_gpu *s, pj_instrument_name norm, pj_instrument_name products,
                           pj_instrument_name act)
{
    uint32_t found = fuse_find(s, norm, products, act);
    return found == UINT32_MAX ? s->instrument->names[products] : s->groups[found].id;
}
