/* Parameters and bytes of a model: total, and used by one token. */
#include "engine/model/model_load.h"

#include "engine/model/delta.h"
#include "engine/model/latent.h"
#include "engine/model/streams.h"

/* ---- counts ------------------------------------------------------------------------------- */

/* `active`: a token uses it. */
static void count_linear(const pj_projection *linear, bool active, pj_model_counts *counts)
{
    if (!linear->w.data) return;
    uint64_t weights = (uint64_t)linear->w.rows * linear->w.cols;
    uint64_t biases = linear->bias ? linear->w.rows : 0;
    uint64_t bytes = (uint64_t)linear->w.rows * linear->w.row_bytes + biases * sizeof(float);
    counts->parameters += weights + biases;
    counts->weight_bytes += bytes;
    if (!active) return;
    counts->active_parameters += weights + biases;
    counts->decode_weight_bytes += bytes;
    counts->flops_per_token += 2 * (double)weights;
}

static void count_mlp(const pj_mlp *mlp, bool active, pj_model_counts *counts)
{
    count_linear(&mlp->gate, active, counts);
    count_linear(&mlp->up, active, counts);
    count_linear(&mlp->gate_up, active, counts);
    count_linear(&mlp->down, active, counts);
}

static void count_vector(const float *values, size_t count, pj_model_counts *counts)
{
    if (!values) return;
    counts->parameters += count;
    counts->active_parameters += count;
    counts->weight_bytes += count * sizeof *values;
    counts->decode_weight_bytes += count * sizeof *values;
}

static void count_delta(const struct pj_delta *d, pj_model_counts *counts)
{
    const pj_projection linears[] = {d->qkv, d->z, d->b, d->a, d->out};
    for (size_t n = 0; n < sizeof linears / sizeof *linears; n++)
        count_linear(&linears[n], true, counts);
    count_vector(d->conv, d->kernel * pj_delta_channels(d), counts);
    count_vector(d->rate, d->value_heads, counts);
    count_vector(d->bias, d->value_heads, counts);
    count_vector(d->norm, d->kind == PJ_SCAN ? pj_delta_values(d) : d->value_dim, counts);
    count_vector(d->conv_bias, pj_delta_channels(d), counts);
    count_vector(d->skip, d->value_heads, counts);
}

static void count_latent(const pj_layer *layer, pj_model_counts *counts)
{
    const struct pj_latent *m = layer->latent;
    count_linear(&m->q_a, true, counts);
    count_linear(&m->q, true, counts);
    count_linear(&m->kv_a, true, counts);
    for (uint32_t h = 0; h < layer->heads; h++) {
        count_linear(&m->keys[h], true, counts);
        count_linear(&m->values[h], true, counts);
    }
    if (pj_layer_has_indexer(layer)) {
        const struct pj_indexer *i = layer->indexer;
        count_linear(&i->q, true, counts);
        count_linear(&i->k, true, counts);
        count_linear(&i->weights, true, counts);
        count_vector(i->k_norm.w, i->dim, counts);
        count_vector(i->k_norm.b, i->dim, counts);
    }
    count_vector(m->q_a_norm.w, m->q_a.w.rows, counts);
    count_vector(m->kv_a_norm.w, layer->value_dim, counts);
}

static void count_streams(const struct pj_streams *s, uint32_t hidden, pj_model_counts *counts)
{
    const pj_projection linears[] = {s->router, s->predict, s->correct, s->left, s->right};
    for (size_t n = 0; n < sizeof linears / sizeof *linears; n++)
        count_linear(&linears[n], true, counts);
    counts->flops_per_token += 2.0 * (double)(s->router.w.rows * s->router.w.cols); /* used twice */
    count_vector(s->router_norm.w, hidden, counts);
    count_vector(s->scale, hidden, counts);
    count_vector(s->residual_norm.w, hidden, counts);
}

void pj_model_count(pj_model *m)
{
    const pj_model_config *c = &m->config;
    pj_model_counts *counts = &m->counts;
    for (uint32_t i = 0; i < c->layers; i++) {
        const pj_layer *layer = &m->layers[i];
        const pj_norm norms[] = {
            layer->attention_norm, layer->attention_out_norm, layer->mlp_norm,
            layer->mlp_out_norm,   layer->dense_out_norm,     layer->router_norm,
            layer->experts_norm,   layer->experts_out_norm,   layer->token_norm};
        const pj_projection linears[] = {
            layer->q,           layer->k,          layer->v,
            layer->qkv,         layer->o,          layer->router,
            layer->shared_gate, layer->token_gate, layer->token_projection,
            layer->expert_in,   layer->expert_out};
        for (size_t n = 0; n < sizeof norms / sizeof *norms; n++) {
            count_vector(norms[n].w, c->hidden, counts);
            count_vector(norms[n].b, c->hidden, counts);
        }
        bool full = m->blueprint->qk_norm == PJ_QK_NORM_FULL, plain = m->blueprint->qk_norm_plain;
        count_vector(layer->sinks, layer->heads, counts);
        count_vector(layer->expert_correction, c->experts, counts);
        if (layer->delta) count_delta(layer->delta, counts);
        if (layer->latent) count_latent(layer, counts);
        if (layer->streams) count_streams(layer->streams, c->hidden, counts);
        count_vector(layer->attended_norm.w, layer->heads * layer->head_dim, counts);
        count_vector(layer->mlp.act_norm.w, layer->mlp.width, counts);
        count_vector(layer->mlp.xielu, layer->mlp.xielu ? 4 : 0, counts);
        count_vector(plain ? NULL : layer->q_norm.w, layer->head_dim * (full ? layer->heads : 1),
                     counts);
        count_vector(plain ? NULL : layer->k_norm.w, layer->head_dim * (full ? layer->kv_heads : 1),
                     counts);
        count_vector(layer->q_norm.b, layer->head_dim, counts); /* never of all heads */
        count_vector(layer->k_norm.b, layer->head_dim, counts);
        for (size_t n = 0; n < sizeof linears / sizeof *linears; n++)
            count_linear(&linears[n], true, counts);
        count_mlp(&layer->mlp, true, counts);
        count_mlp(&layer->shared, true, counts);
        for (uint32_t e = 0; layer->experts && e < c->experts; e++)
            count_mlp(&layer->experts[e], e < layer->chosen, counts); /* all are alike */
    }
    count_vector(m->final_norm.w, c->hidden, counts);
    count_vector(m->final_norm.b, c->hidden, counts);
    count_linear(&m->head, true, counts);
    if (m->head.w.data != m->embedding.data) {
        uint64_t weights = (uint64_t)m->embedding.rows * m->embedding.cols;
        counts->parameters += weights;
        counts->active_parameters += weights;
        counts->weight_bytes += (uint64_t)m->embedding.rows * m->embedding.row_bytes;
    }
    counts->decode_weight_bytes += m->embedding.row_bytes + m->token_embedding.row_bytes;
    count_linear(&m->next_projection, true, counts);
    count_vector(m->next_embedding_norm.w, c->hidden, counts);
    count_vector(m->next_hidden_norm.w, c->hidden, counts);
    count_linear(&m->token_projection, true, counts);
    for (uint32_t i = 0; i + 1 < c->streams.count; i++) {
        count_linear(&m->streams_in[i], true, counts);
        count_linear(&m->streams_out[i], true, counts);
    }
    count_vector(m->token_norm.w, c->token_vector, counts);
    uint64_t vectors = (uint64_t)m->token_embedding.rows * m->token_embedding.cols;
    counts->parameters += vectors;
    counts->active_parameters += vectors;
    counts->weight_bytes += (uint64_t)m->token_embedding.rows * m->token_embedding.row_bytes;
    const pj_layer *first = &m->layers[0];
    counts->dtype = first->delta      ? first->delta->out.w.type
                    : first->o.w.data ? first->o.w.type
                                      : first->mlp.down.w.type;
}
