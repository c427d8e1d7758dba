/* Loads layers with a recurrent state other than the delta rule's: Mamba-2 and short convolutions.
 */
#include "engine/model/model_load.h"

#include "engine/model/delta.h"

#include <math.h>
#include <stdio.h>

static void load_in_proj(pj_loader *l, const char *mamba, struct pj_delta *d)
{
    size_t values = pj_delta_values(d), channels = pj_delta_channels(d);
    pj_projection all = {0};
    pj_load_linear(l, mamba, "in_proj", values + channels + d->value_heads, l->model->config.hidden,
                   l->model->config.linear.in_bias, &all);
    if (l->status) return;
    d->z = pj_projection_rows(&all, 0, values, PJ_N_IN_PROJ_Z);
    d->qkv = pj_projection_rows(&all, values, channels, PJ_N_IN_PROJ_XBC);
    d->a = pj_projection_rows(&all, values + channels, d->value_heads, PJ_N_IN_PROJ_DT);
}

void pj_load_scan(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    struct pj_delta *d = layer->delta = pj_load_alloc(l, 1, sizeof *d);
    char mamba[PJ_TENSOR_NAME_BYTES], name[PJ_TENSOR_NAME_BYTES + 16];
    const char *suffix = pj_load_is_gguf(l) ? ".weight" : "";
    if (!d) return;
    *d = (struct pj_delta){.kind = PJ_SCAN,
                           .key_heads = c->linear.key_heads,
                           .value_heads = c->linear.value_heads,
                           .key_dim = c->linear.key_dim,
                           .value_dim = c->linear.value_dim,
                           .kernel = c->linear.kernel,
                           .norm_groups = c->linear.key_heads,
                           .norm_first = c->linear.norm_first,
                           .least_step = (float)c->linear.least_step,
                           .most_step =
                               c->linear.most_step > 0 ? (float)c->linear.most_step : INFINITY};
    const char *mixer = l->model->blueprint->mixer;
    snprintf(mamba, sizeof mamba, "%s.%s", prefix, mixer ? mixer : "mamba");
    load_in_proj(l, mamba, d);
    pj_load_component(l, mamba, PJ_N_OUT_PROJ, c->hidden, pj_delta_values(d), c->linear.out_bias,
                      &d->out);
    d->out.out_factor = (float)c->multipliers.ssm_out;
    pj_load_convolution(l, mamba, "conv1d", d);
    snprintf(name, sizeof name, "%s.conv1d.bias", mamba);
    if (c->linear.conv_bias) pj_load_vector(l, name, pj_delta_channels(d), 0, &d->conv_bias);
    pj_load_rates(l, mamba, d);
    snprintf(name, sizeof name, "%s.D%s", mamba, suffix);
    pj_load_vector(l, name, d->value_heads, 1, &d->skip);
    snprintf(name, sizeof name, "%s.norm.weight", mamba);
    if (!c->linear.without_norm) pj_load_vector(l, name, pj_delta_values(d), 1, &d->norm);
}

void pj_load_short_convolution(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    struct pj_delta *d = layer->delta = pj_load_alloc(l, 1, sizeof *d);
    char conv[PJ_TENSOR_NAME_BYTES], name[PJ_TENSOR_NAME_BYTES + 16];
    if (!d) return;
    *d = (struct pj_delta){.kind = PJ_SHORT_CONVOLUTION,
                           .value_heads = 1,
                           .value_dim = c->hidden,
                           .kernel = c->linear.kernel};
    snprintf(conv, sizeof conv, "%s.conv", prefix);
    pj_load_component(l, conv, PJ_N_IN_PROJ, 3 * (size_t)c->hidden, c->hidden, c->linear.in_bias,
                      &d->qkv);
    pj_load_component(l, conv, PJ_N_OUT_PROJ, c->hidden, c->hidden, c->linear.out_bias, &d->out);
    pj_load_convolution(l, conv, "conv", d);
    snprintf(name, sizeof name, "%s.conv.bias", conv);
    if (c->linear.conv_bias) pj_load_vector(l, name, c->hidden, 0, &d->conv_bias);
}
