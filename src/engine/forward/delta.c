/* Gated delta rule layers as steps: projections, convolution, rule, gated norm. */
#include "engine/model/delta.h"

#include "engine/forward/steps.h"

void pj_steps_convolution(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice y)
{
    double values = (double)y.rows * y.cols, kernel = l->delta->kernel;
    pj_done done = {
        .flops = (2 * kernel + 4) * values, .bytes = 8 * values + 4 * kernel * y.cols, .out = y};
    if (!pj_steps_want(s, PJ_N_CONV1D)) return;
    pj_steps_component(s, PJ_N_CONV1D);
    s->ops->convolve(s->state, l, x, y);
    pj_steps_end(s, &done);
}

static void run_rule(const pj_steps *s, const pj_layer *l, pj_slice qkv, pj_slice strength,
                     pj_slice y)
{
    const struct pj_delta *d = l->delta;
    double rows = y.rows, cells = (double)y.cols * d->key_dim;
    pj_done done = {.flops = rows * (7 * cells + 6 * (double)d->value_heads * d->key_dim),
                    .bytes = rows * (8 * cells + 4 * ((double)qkv.cols + y.cols)),
                    .out = y};
    if (!pj_steps_want(s, PJ_N_DELTA_RULE)) return;
    pj_steps_component(s, PJ_N_DELTA_RULE);
    s->ops->delta_rule(s->state, l, qkv, strength, y);
    pj_steps_end(s, &done);
}

void pj_steps_gated_norm(const pj_steps *s, const pj_layer *l, pj_slice y, pj_slice gate)
{
    double values = (double)y.rows * y.cols;
    bool normed = l->delta->norm != NULL;
    pj_done done = {.flops = (normed ? 9 : 5) * values, .bytes = 12 * values, .out = y};
    pj_instrument_name name = !normed                     ? PJ_N_OUTPUT_GATE
                              : l->delta->kind == PJ_SCAN ? PJ_N_MAMBA_NORM
                                                          : PJ_N_LINEAR_ATTN_NORM;
    if (!pj_steps_want(s, name)) return;
    pj_steps_component(s, name);
    s->ops->gated_norm(s->state, l, y, gate);
    pj_steps_end(s, &done);
}

void pj_steps_delta(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const struct pj_delta *d = l->delta;
    uint32_t channels = (uint32_t)pj_delta_channels(d), values = (uint32_t)pj_delta_values(d);
    pj_slice mixed = pj_steps_slice(s, PJ_BUFFER_MIXED, channels);
    pj_slice qkv = pj_steps_slice(s, PJ_BUFFER_QKV, channels);
    pj_slice gate = pj_steps_slice(s, PJ_BUFFER_GATE, values);
    pj_slice strength = pj_steps_slice(s, PJ_BUFFER_STRENGTH, 2 * d->value_heads);
    pj_slice y = pj_steps_slice(s, PJ_BUFFER_ATTENDED, values);
    const pj_product products[] = {
        {.projection = &d->qkv, .y = mixed},
        {.projection = &d->z, .y = gate},
        {.projection = &d->b, .y = pj_slice_cols(strength, 0, d->value_heads)},
        {.projection = &d->a, .y = pj_slice_cols(strength, d->value_heads, d->value_heads)},
    };
    pj_steps_products(s, x, products, 4);
    pj_steps_convolution(s, l, mixed, qkv);
    run_rule(s, l, qkv, strength, y);
    pj_steps_gated_norm(s, l, y, gate);
    pj_steps_product(s, y, &d->out, pj_steps_hidden(s, PJ_BUFFER_Y),
                     pj_steps_hidden(s, PJ_BUFFER_X));
}
