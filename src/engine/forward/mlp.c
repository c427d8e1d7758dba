/* Feed-forward blocks as steps: dense ones, mixtures of experts, and the blocks that read per-layer
 * token vectors. */
#include "engine/forward/steps.h"

/* The kind of activation of the model's blocks. */
static pj_activation mlp_activation(const pj_model_config *c)
{
    return (pj_activation){.kind = c->swiglu_limit > 0 ? PJ_ACT_CLAMPED
                                   : c->gelu           ? PJ_ACT_GELU
                                   : c->relu2          ? PJ_ACT_RELU2
                                   : c->xielu          ? PJ_ACT_XIELU
                                                       : PJ_ACT_SILU,
                           .alpha = (float)c->swiglu_alpha,
                           .limit = (float)c->swiglu_limit};
}

/* An activation of factor * gate, as a component unless it is part of one. */
static void activate(const pj_steps *s, const pj_activation *a, double factor,
                     pj_instrument_name component)
{
    pj_done done = pj_activation_work(a);
    double scaled = factor != 1 ? (double)a->gate.rows * a->gate.cols : 0;
    done.flops += scaled;
    done.bytes += 8 * scaled;
    if (!a->inner && !pj_steps_want(s, component)) return;
    if (!a->inner) pj_steps_component(s, component);
    if (factor != 1) s->ops->scale(s->state, a->gate, (float)factor);
    s->ops->activate(s->state, a);
    if (!a->inner) pj_steps_end(s, &done);
}

void pj_steps_mlp(const pj_steps *s, const pj_mlp *mlp, pj_slice x, pj_slice y, pj_slice residual)
{
    pj_activation like = mlp_activation(&s->model->config);
    like.xielu = mlp->xielu;
    like.cuts = mlp->cuts;
    like.cutoff = mlp->cutoff;
    pj_mlp_block b = pj_mlp_block_of(mlp, &like, y, residual);
    pj_steps_products(s, x, b.inputs, b.input_count);
    activate(s, &b.activation, s->model->config.multipliers.gate, PJ_N_ACT);
    pj_slice act = b.activation.act;
    pj_norm_step step = {.norm = &mlp->act_norm, .heads = 1, .x = act, .y = act};
    pj_steps_norm(s, &step);
    pj_steps_products(s, b.activation.act, &b.output, 1);
}

/* The layer's part of each token vector, gated by the residual stream. */
void pj_steps_token_input(const pj_steps *s, const pj_layer *l, pj_slice y)
{
    const pj_model_config *c = &s->model->config;
    uint32_t n = c->token_vector;
    pj_slice vectors = pj_steps_slice(s, PJ_BUFFER_TOKEN_VECTORS, c->layers * n);
    pj_activation a = {.kind = c->gelu ? PJ_ACT_GELU : PJ_ACT_SILU,
                       .gate = pj_steps_slice(s, PJ_BUFFER_GATE_UP, n),
                       .up = pj_slice_cols(vectors, l->index * n, n),
                       .act = pj_steps_slice(s, PJ_BUFFER_ACT, n)};
    pj_steps_product(s, pj_steps_hidden(s, PJ_BUFFER_X), &l->token_gate, a.gate, (pj_slice){0});
    activate(s, &a, 1, PJ_N_PER_LAYER_ACT);
    pj_steps_product(s, a.act, &l->token_projection, y, (pj_slice){0});
}

/* ---- experts ------------------------------------------------------------------------------ */

static void route(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const pj_model_config *c = &s->model->config;
    bool renormalise =
        s->model->blueprint->router == PJ_ROUTER_SOFTMAX_RENORMALISED || c->norm_topk;
    pj_slice logits = pj_steps_slice(s, PJ_BUFFER_ROUTING, c->experts);
    pj_done done = {.flops =
                        pj_product_flops(&l->router, s->rows) + 5 * ((double)s->rows * c->experts),
                    .bytes = pj_product_bytes(&l->router, s->rows),
                    .out = logits};
    pj_steps_component(s, PJ_N_ROUTER);
    pj_steps_product(s, x, &l->router, logits, (pj_slice){0});
    s->ops->route(s->state, l, logits, renormalise);
    pj_steps_end(s, &done);
}

/* The shared expert: applied to every token, perhaps weighted by a sigmoid. */
static void run_shared(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice y,
                       pj_slice residual)
{
    pj_slice own = pj_steps_hidden(s, PJ_BUFFER_Y2);
    pj_slice gate = pj_steps_slice(s, PJ_BUFFER_ROUTING, 1);
    pj_done done = {.flops = pj_mlp_flops(&l->shared, s->rows),
                    .bytes = pj_mlp_bytes(&l->shared, s->rows),
                    .out = own};
    pj_steps_component(s, PJ_N_SHARED_EXPERT);
    bool gated = l->shared_gate.w.data != NULL;
    pj_steps_mlp(s, &l->shared, x, own, gated ? pj_no_slice : residual);
    if (gated) {
        pj_steps_product(s, x, &l->shared_gate, gate, (pj_slice){0});
        s->ops->add_gated(s->state, y, own, gate);
        if (residual.buffer) s->ops->add(s->state, residual, y);
    } else if (!residual.buffer) {
        s->ops->add(s->state, y, own);
    }
    pj_steps_end(s, &done);
}

/* The chosen experts' sum, in y; between two projections if they compute in a space of their own.
 */
static void run_experts(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice y,
                        pj_slice residual)
{
    pj_activation like = mlp_activation(&s->model->config);
    bool apart = l->expert_in.w.data != NULL;
    uint32_t width = pj_config_expert_hidden(&s->model->config);
    pj_slice in = apart ? pj_steps_slice(s, PJ_BUFFER_ROUTED, width) : x;
    pj_slice out = apart ? pj_steps_slice(s, PJ_BUFFER_BRANCH, width) : y;
    pj_steps_product(s, x, &l->expert_in, in, pj_no_slice);
    if (pj_steps_want(s, PJ_N_EXPERTS))
        s->ops->experts(s->state, l, &like, in, out, apart ? pj_no_slice : residual);
    pj_steps_product(s, out, &l->expert_out, y, residual);
}

void pj_steps_experts(const pj_steps *s, const pj_layer *l, pj_slice routed, pj_slice x,
                      pj_slice residual)
{
    pj_slice y = pj_steps_hidden(s, PJ_BUFFER_Y);
    bool shared = l->shared.width > 0;
    if (pj_steps_want(s, PJ_N_ROUTER)) route(s, l, routed);
    run_experts(s, l, x, y, l->shared_gate.w.data ? pj_no_slice : residual);
    if (shared && pj_steps_want(s, PJ_N_SHARED_EXPERT)) run_shared(s, l, x, y, residual);
}
