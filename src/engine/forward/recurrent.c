/* Layers with a recurrent state other than the delta rule's, as steps: state-space scans (Mamba-2)
 * and gated short convolutions (LFM2). */
#include "engine/model/delta.h"

#include "engine/forward/steps.h"

static void run_scan(const pj_steps *s, const pj_layer *l, pj_slice mixed, pj_slice strength,
                     pj_slice y)
{
    const struct pj_delta *d = l->delta;
    double rows = y.rows, cells = (double)y.cols * d->key_dim;
    pj_done done = {.flops = rows * (5 * cells + 2.0 * y.cols + 8.0 * d->value_heads),
                    .bytes = rows * (8 * cells + 4 * ((double)mixed.cols + y.cols)),
                    .out = y};
    if (!pj_steps_want(s, PJ_N_SCAN)) return;
    pj_steps_component(s, PJ_N_SCAN);
    s->ops->delta_rule(s->state, l, mixed, strength, y);
    pj_steps_end(s, &done);
}

/* Multiplies the parts of in_proj's output: gate, x, B, C and step. */
static void scale_parts(const pj_steps *s, const pj_layer *l, pj_slice gate, pj_slice mixed,
                        pj_slice step)
{
    const double *factors = s->model->config.multipliers.ssm;
    uint32_t values = gate.cols, keys = l->delta->key_heads * l->delta->key_dim;
    const pj_slice parts[] = {gate, pj_slice_cols(mixed, 0, values),
                              pj_slice_cols(mixed, values, keys),
                              pj_slice_cols(mixed, values + keys, keys), step};
    pj_done done = {.out = mixed};
    for (int i = 0; i < 5; i++) {
        double scaled = factors[i] != 1 ? (double)parts[i].rows * parts[i].cols : 0;
        done.flops += scaled;
        done.bytes += 8 * scaled;
    }
    if (done.flops == 0 || !pj_steps_want(s, PJ_N_SSM_MULTIPLIERS)) return;
    pj_steps_component(s, PJ_N_SSM_MULTIPLIERS);
    for (int i = 0; i < 5; i++)
        if (factors[i] != 1) s->ops->scale(s->state, parts[i], (float)factors[i]);
    pj_steps_end(s, &done);
}

void pj_steps_scan(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const struct pj_delta *d = l->delta;
    uint32_t channels = (uint32_t)pj_delta_channels(d), values = (uint32_t)pj_delta_values(d);
    pj_slice mixed = pj_steps_slice(s, PJ_BUFFER_MIXED, channels);
    pj_slice convolved = pj_steps_slice(s, PJ_BUFFER_QKV, channels);
    pj_slice gate = pj_steps_slice(s, PJ_BUFFER_GATE, values);
    pj_slice strength = pj_steps_slice(s, PJ_BUFFER_STRENGTH, 2 * d->value_heads);
    pj_slice y = pj_steps_slice(s, PJ_BUFFER_ATTENDED, values);
    const pj_product products[] = {
        {.projection = &d->z, .y = gate},
        {.projection = &d->qkv, .y = mixed},
        {.projection = &d->a, .y = pj_slice_cols(strength, d->value_heads, d->value_heads)},
    };
    pj_steps_products(s, x, products, 3);
    scale_parts(s, l, gate, mixed, pj_slice_cols(strength, d->value_heads, d->value_heads));
    pj_steps_convolution(s, l, mixed, convolved);
    run_scan(s, l, convolved, strength, y);
    pj_steps_gated_norm(s, l, y, gate);
    pj_steps_product(s, y, &d->out, pj_steps_hidden(s, PJ_BUFFER_Y),
                     pj_steps_hidden(s, PJ_BUFFER_X));
}

/* In a row of three gates' widths: the input's gate, the output's, and the input. */
void pj_steps_short_convolution(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const struct pj_delta *d = l->delta;
    uint32_t n = (uint32_t)pj_delta_values(d);
    pj_slice all = pj_steps_slice(s, PJ_BUFFER_MIXED, 3 * n), in = pj_slice_cols(all, 0, n);
    pj_slice out = pj_slice_cols(all, n, n), convolved = pj_steps_slice(s, PJ_BUFFER_QKV, n);
    pj_slice y = pj_steps_slice(s, PJ_BUFFER_ATTENDED, n);
    pj_activation gate_in = {.kind = PJ_ACT_NONE,
                             .gate = in,
                             .up = pj_slice_cols(all, 2 * n, n),
                             .act = in,
                             .inner = true};
    pj_activation gate_out = {
        .kind = PJ_ACT_NONE, .gate = out, .up = convolved, .act = y, .inner = true};
    double values = (double)s->rows * n;
    pj_done done = {.flops = (2.0 * d->kernel + 2) * values,
                    .bytes = 20 * values + 4.0 * d->kernel * n,
                    .out = y};
    pj_steps_product(s, x, &d->qkv, all, (pj_slice){0});
    if (pj_steps_want(s, PJ_N_CONV)) {
        pj_steps_component(s, PJ_N_CONV);
        s->ops->activate(s->state, &gate_in);
        s->ops->convolve(s->state, l, in, convolved);
        s->ops->activate(s->state, &gate_out);
        pj_steps_end(s, &done);
    }
    pj_steps_product(s, y, &d->out, pj_steps_hidden(s, PJ_BUFFER_Y),
                     pj_steps_hidden(s, PJ_BUFFER_X));
}
