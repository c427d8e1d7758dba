/* Loads a layer's token mixer: attention, or the gated delta rule. */
#include "engine/model/model_load.h"

#include "engine/model/delta.h"

#include <math.h>
#include <stdio.h>

/* ---- attention ----------------------------------------------------------------------------- */

/* Rows [first, first + rows) of `whole`. */
pj_matrix pj_matrix_rows(const pj_matrix *whole, size_t first, size_t rows)
{
    pj_matrix part = *whole;
    part.data = (const unsigned char *)whole->data + first * whole->row_bytes;
    part.rows = rows;
    return part;
}

pj_projection pj_projection_rows(const pj_projection *whole, size_t first, size_t rows,
                                 pj_instrument_name name)
{
    return (pj_projection){.w = pj_matrix_rows(&whole->w, first, rows),
                           .bias = whole->bias ? whole->bias + first : NULL,
                           .name = name};
}

/* Some files fuse matrices that are separate in the architecture: the parts are rows of the
 * whole. */
static void load_split_qkv(pj_loader *l, const char *attn, size_t q_rows, size_t kv_rows, bool bias,
                           pj_layer *layer)
{
    pj_projection whole = {0};
    pj_load_linear(l, attn, "qkv_proj", q_rows + 2 * kv_rows, l->model->config.hidden, bias,
                   &whole);
    if (l->status) return;
    layer->q = pj_projection_rows(&whole, 0, q_rows, PJ_N_Q_PROJ);
    layer->k = pj_projection_rows(&whole, q_rows, kv_rows, PJ_N_K_PROJ);
    layer->v = pj_projection_rows(&whole, q_rows + kv_rows, kv_rows, PJ_N_V_PROJ);
}

static void load_qkv(pj_loader *l, const char *attn, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    size_t q = (size_t)layer->heads * layer->head_dim,
           kv = (size_t)layer->kv_heads * layer->head_dim;
    bool bias = pj_bias_wanted(b->qkv_bias, c);
    if (b->fused_qkv) {
        pj_load_component(l, attn, PJ_N_QKV_PROJ, q + 2 * kv, c->hidden, bias, &layer->qkv);
        return;
    }
    if (pj_load_has(l, attn, "qkv_proj.weight")) {
        load_split_qkv(l, attn, q, kv, bias, layer);
        return;
    }
    size_t q_rows = layer->output_gate ? 2 * q : q;
    pj_load_component(l, attn, PJ_N_Q_PROJ, q_rows, c->hidden, bias, &layer->q);
    if (layer->kv_source != layer->index) return;
    pj_load_component(l, attn, PJ_N_K_PROJ, kv, c->hidden, bias, &layer->k);
    if (!layer->keys_are_values)
        pj_load_component(l, attn, PJ_N_V_PROJ, kv, c->hidden, bias, &layer->v);
}

/* RMSNorm without weights. */
static void make_plain_norm(pj_loader *l, size_t count, pj_instrument_name name, pj_norm *out)
{
    float *ones = pj_load_alloc(l, count, sizeof *ones);
    for (size_t i = 0; ones && i < count; i++) ones[i] = 1;
    *out = (pj_norm){.w = ones, .name = name};
}

/* Llama 4: in layers that rotate, after the rotation; one module there. */
static void make_plain_qk_norms(pj_loader *l, pj_layer *layer)
{
    if (layer->rope == PJ_NO_ROPE) return;
    make_plain_norm(l, layer->head_dim, PJ_N_QK_NORM, &layer->q_norm);
    make_plain_norm(l, layer->head_dim, PJ_N_QK_NORM, &layer->k_norm);
    layer->norm_rotated = true;
}

static void load_qk_norms(pj_loader *l, const char *attn, pj_layer *layer)
{
    pj_qk_norm kind = l->model->blueprint->qk_norm;
    bool full = kind == PJ_QK_NORM_FULL;
    size_t q = full ? (size_t)layer->heads * layer->head_dim : layer->head_dim;
    size_t k = full ? (size_t)layer->kv_heads * layer->head_dim : layer->head_dim;
    if (kind == PJ_QK_NORM_NONE || l->model->config.without_qk_norm) return;
    const pj_blueprint *b = l->model->blueprint;
    if (b->qk_norm_plain) {
        make_plain_qk_norms(l, layer);
        return;
    }
    bool bias = pj_norms_have_bias(b);
    pj_load_norm(l, attn, b->q_norm ? b->q_norm : PJ_N_Q_NORM, q, bias, &layer->q_norm);
    if (layer->kv_source != layer->index) return;
    if (b->v_norm) make_plain_norm(l, k, PJ_N_V_NORM, &layer->v_norm);
    pj_load_norm(l, attn, b->k_norm ? b->k_norm : PJ_N_K_NORM, k, bias, &layer->k_norm);
    layer->norm_rotated = b->qk_norm_rotated;
}

void pj_load_attention(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    size_t q_rows = (size_t)layer->heads * layer->head_dim;
    char attn[PJ_TENSOR_NAME_BYTES], sinks[PJ_TENSOR_NAME_BYTES + 16];
    snprintf(attn, sizeof attn, "%s.%s", prefix, b->mixer ? b->mixer : "self_attn");
    load_qkv(l, attn, layer);
    pj_load_component(l, attn, b->o, c->hidden, q_rows, pj_bias_wanted(b->o_bias, c), &layer->o);
    layer->o.out_factor = (float)c->multipliers.attention_out;
    load_qk_norms(l, attn, layer);
    if (b->attended_norm)
        pj_load_norm(l, attn, b->attended_norm, q_rows, false, &layer->attended_norm);
    /* GGUF files append ".weight" to every name */
    snprintf(sinks, sizeof sinks, "%s.sinks%s", attn, pj_load_is_gguf(l) ? ".weight" : "");
    if (b->sinks) pj_load_vector(l, sinks, layer->heads, 0, &layer->sinks);
}

/* ---- the gated delta rule ----------------------------------------------------------------- */

/* The convolution's weights [channels][1][kernel], transposed to one row of channels per input. */
void pj_load_convolution(pj_loader *l, const char *prefix, const char *part, struct pj_delta *d)
{
    char name[PJ_TENSOR_NAME_BYTES];
    size_t channels = pj_delta_channels(d), count = channels * d->kernel;
    float *rows = pj_load_alloc(l, count, sizeof *rows);
    d->conv = rows;
    for (size_t i = 0; rows && i < count; i++) rows[i] = 0.5f / (float)d->kernel;
    if (!rows || !l->model->checkpoint) return;
    snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
    const pj_tensor *t = pj_checkpoint_find(l->model->checkpoint, name);
    pj_dtype type;
    bool right = t && pj_file_dtype(t->type, &type) && t->rank >= 2 && t->shape[0] == channels &&
                 t->shape[t->rank - 1] == d->kernel &&
                 (t->rank == 2 || (t->rank == 3 && t->shape[1] == 1)) &&
                 pj_dtype_get(type)->block_values == 1;
    float *values = right ? pj_alloc(count, sizeof *values) : NULL;
    if (!right)
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s must be floats of shape [%zu, 1, %u]", name,
                            channels, d->kernel);
    else if (!values)
        l->status = pj_fail_memory(l->err, name);
    if (!values) return;
    l->kernels->dequantise(type, t->data, values, count);
    for (size_t c = 0; c < channels; c++)
        for (uint32_t j = 0; j < d->kernel; j++) rows[j * channels + c] = values[c * d->kernel + j];
    pj_free(values);
}

/* GGUF files store -e^A_log, others A_log. */
void pj_load_rates(pj_loader *l, const char *prefix, struct pj_delta *d)
{
    char name[PJ_TENSOR_NAME_BYTES];
    bool gguf = pj_load_is_gguf(l);
    snprintf(name, sizeof name, "%s.A_log%s", prefix, gguf ? ".weight" : "");
    pj_load_vector(l, name, d->value_heads, 0, &d->rate);
    float *rates = (float *)(uintptr_t)d->rate;
    for (uint32_t i = 0; !l->status && i < d->value_heads; i++)
        rates[i] = gguf ? -rates[i] : expf(rates[i]);
    snprintf(name, sizeof name, "%s.dt_bias%s", prefix, gguf ? ".bias" : "");
    pj_load_vector(l, name, d->value_heads, 1, &d->bias);
}

/* Rows of one kind in a matrix that alternates kinds by key head: `rows` of each head, `first` rows
 * after the head's beginning, heads `apart` from each other. */
typedef struct head_rows {
    size_t first, rows, apart;
} head_rows;

static void order_heads(uint32_t *order, size_t heads, const head_rows *part)
{
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < part->rows; i++)
            *order++ = (uint32_t)(h * part->apart + part->first + i);
}

/* Gathers kinds of rows from a matrix that alternates them, into one matrix. */
static void load_apart(pj_loader *l, const pj_projection *mixed, const struct pj_delta *d,
                       const head_rows *parts, size_t count, pj_instrument_name name,
                       pj_projection *out)
{
    size_t rows = 0, done = 0;
    for (size_t i = 0; i < count; i++) rows += parts[i].rows * d->key_heads;
    uint32_t *order = pj_load_alloc(l, rows, sizeof *order);
    out->name = name;
    if (!order) return;
    for (size_t i = 0; i < count; i++) {
        order_heads(order + done, d->key_heads, &parts[i]);
        done += parts[i].rows * d->key_heads;
    }
    pj_row_source source = pj_rows_ordered(&mixed->w, order);
    pj_load_adopt_rows(l, pj_instrument_text(name), &source, rows, &out->w);
}

/* Qwen3-Next: one matrix with queries, keys, values and gates of the first key head, then of the
 * next, and one with strengths and decays likewise. */
static void load_alternating(pj_loader *l, const char *linear, struct pj_delta *d)
{
    size_t hidden = l->model->config.hidden, ratio = d->value_heads / d->key_heads;
    size_t k = d->key_dim, v = ratio * d->value_dim, all = 2 * k + 2 * v;
    const head_rows parts[] = {{0, k, all}, {k, k, all}, {2 * k, v, all}, {2 * k + v, v, all}};
    const head_rows halves[] = {{0, ratio, 2 * ratio}, {ratio, ratio, 2 * ratio}};
    pj_projection mixed = {0}, rates = {0};
    if (pj_load_has_linear(l, linear, "in_proj_qkvz")) {
        pj_load_linear(l, linear, "in_proj_qkvz", all * d->key_heads, hidden, false, &mixed);
        load_apart(l, &mixed, d, parts, 3, PJ_N_IN_PROJ_QKV, &d->qkv);
        load_apart(l, &mixed, d, parts + 3, 1, PJ_N_IN_PROJ_Z, &d->z);
    } else {
        pj_load_component(l, linear, PJ_N_IN_PROJ_QKV, pj_delta_channels(d), hidden, false,
                          &d->qkv);
        pj_load_component(l, linear, PJ_N_IN_PROJ_Z, pj_delta_values(d), hidden, false, &d->z);
    }
    pj_load_linear(l, linear, "in_proj_ba", 2 * d->value_heads, hidden, false, &rates);
    load_apart(l, &rates, d, halves, 1, PJ_N_IN_PROJ_B, &d->b);
    load_apart(l, &rates, d, halves + 1, 1, PJ_N_IN_PROJ_A, &d->a);
}

void pj_load_delta(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    struct pj_delta *d = layer->delta = pj_load_alloc(l, 1, sizeof *d);
    char linear[PJ_TENSOR_NAME_BYTES], name[PJ_TENSOR_NAME_BYTES + 16];
    size_t hidden = c->hidden;
    if (!d) return;
    *d = (struct pj_delta){.key_heads = c->linear.key_heads,
                           .value_heads = c->linear.value_heads,
                           .key_dim = c->linear.key_dim,
                           .value_dim = c->linear.value_dim,
                           .kernel = c->linear.kernel,
                           .tiled = pj_load_is_gguf(l) && c->arch != PJ_ARCH_QWEN3_NEXT};
    size_t channels = pj_delta_channels(d), values = pj_delta_values(d);
    snprintf(linear, sizeof linear, "%s.linear_attn", prefix);
    if (pj_load_has_linear(l, linear, "in_proj_ba")) {
        load_alternating(l, linear, d);
    } else {
        pj_load_component(l, linear, PJ_N_IN_PROJ_QKV, channels, hidden, false, &d->qkv);
        pj_load_component(l, linear, PJ_N_IN_PROJ_Z, values, hidden, false, &d->z);
        pj_load_component(l, linear, PJ_N_IN_PROJ_B, d->value_heads, hidden, false, &d->b);
        pj_load_component(l, linear, PJ_N_IN_PROJ_A, d->value_heads, hidden, false, &d->a);
    }
    pj_load_component(l, linear, PJ_N_OUT_PROJ, hidden, values, false, &d->out);
    pj_load_convolution(l, linear, "conv1d", d);
    pj_load_rates(l, linear, d);
    snprintf(name, sizeof name, "%s.norm.weight", linear);
    pj_load_vector(l, name, d->value_dim, 1, &d->norm);
}
