/* Loads multi-head latent attention. Files hold the projection of the latent vector to keys and
 * values in one matrix, of which the part for keys is needed transposed, or (newer GGUF files) both
 * parts apart in the form needed. */
#include "engine/model/model_load.h"

#include "engine/model/latent.h"

#include <math.h>
#include <stdio.h>

/* A stacked tensor [heads, rows, cols], as one projection per head. */
static void load_stacked_heads(pj_loader *l, const char *attn, const char *part, uint32_t heads,
                               size_t rows, size_t cols, pj_projection *out)
{
    char name[PJ_TENSOR_NAME_BYTES];
    pj_matrix all;
    snprintf(name, sizeof name, "%s.%s.weight", attn, part);
    pj_load_stack(l, name, heads, rows, cols, false, &all);
    for (uint32_t h = 0; !l->status && h < heads; h++) {
        pj_matrix own = pj_matrix_rows(&all, h * rows, rows);
        pj_load_adopt(l, name, PJ_ROLE_LAYER, &own, &out[h].w);
    }
}

/* Half precision suffices for quantised weights, whose own steps are much wider. */
static pj_dtype plain_type(pj_dtype type)
{
    return pj_dtype_get(type)->block_values > 1 ? PJ_F16 : type;
}

/* One matrix: of each head, rows of keys, then rows of values. */
static void load_joint(pj_loader *l, const char *attn, struct pj_latent *m, uint32_t heads,
                       uint32_t rank)
{
    size_t each = m->plain + m->value;
    int wanted = l->dtype;
    pj_projection all = {0};
    l->dtype = wanted == PJ_F32 ? wanted : -1; /* blocks are made after it has been transposed */
    pj_load_linear(l, attn, "kv_b_proj", heads * each, rank, false, &all);
    l->dtype = wanted;
    if (l->status) return;
    pj_matrix stored = all.w;
    if (plain_type(stored.type) != stored.type)
        pj_load_converted(l, attn, plain_type(stored.type), &stored, NULL, stored.rows, rank,
                          &all.w);
    for (uint32_t h = 0; !l->status && h < heads; h++) {
        pj_matrix keys = pj_matrix_rows(&all.w, h * each, m->plain);
        pj_matrix values = pj_matrix_rows(&stored, h * each + m->plain, m->value);
        pj_row_source source =
            pj_rows_transposed(keys.data, keys.type, m->plain, keys.row_bytes, 0, 1);
        pj_load_adopt_rows(l, attn, &source, rank, &m->keys[h].w);
        pj_load_adopt(l, attn, PJ_ROLE_LAYER, &values, &m->values[h].w);
    }
}

/* Norms within latent attention have an eps of their own, whatever config.norm_eps is. */
static void load_inner_norm(pj_loader *l, const char *prefix, pj_instrument_name part, size_t count,
                            bool bias, pj_norm *out)
{
    pj_load_norm(l, prefix, part, count, bias, out);
    out->eps = 1e-6f;
}

/* The indexer of a layer, or that of the layer before. */
static void load_indexer(pj_loader *l, const char *attn, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    char prefix[PJ_TENSOR_NAME_BYTES - 32];
    if (!c->indexer.kept) return;
    if (!pj_config_has_indexer(c, layer->index)) {
        layer->indexer = layer[-1].indexer;
        return;
    }
    struct pj_indexer *m = layer->indexer = pj_load_alloc(l, 1, sizeof *m);
    if (!m) return;
    *m = (struct pj_indexer){
        .layer = layer->index,
        .heads = c->indexer.heads,
        .dim = c->indexer.dim,
        .kept = c->indexer.kept,
        .neighbours = c->indexer.neighbours,
        .scale = (float)(1 / sqrt((double)c->indexer.dim * c->indexer.heads)),
    };
    snprintf(prefix, sizeof prefix, "%s.indexer", attn);
    pj_load_component(l, prefix, PJ_N_WQ_B, (size_t)m->heads * m->dim, c->latent.query_rank, false,
                      &m->q);
    pj_load_component(l, prefix, PJ_N_WK, m->dim, c->hidden, false, &m->k);
    load_inner_norm(l, prefix, PJ_N_K_NORM, m->dim, true, &m->k_norm);
    pj_load_component(l, prefix, PJ_N_WEIGHTS_PROJ, m->heads, c->hidden, false, &m->weights);
    pj_load_exact(l, prefix, &m->weights);
}

void pj_load_latent(pj_loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    struct pj_latent *m = layer->latent = pj_load_alloc(l, 1, sizeof *m);
    uint32_t rank = c->latent.rank, heads = layer->heads;
    bool bias = c->attention_bias;
    char attn[PJ_TENSOR_NAME_BYTES];
    if (!m) return;
    *m = (struct pj_latent){
        .plain = c->latent.plain, .rotated = c->latent.rotated, .value = c->latent.value};
    m->keys = pj_load_alloc(l, heads, sizeof *m->keys);
    m->values = pj_load_alloc(l, heads, sizeof *m->values);
    if (!m->keys || !m->values) return;
    snprintf(attn, sizeof attn, "%s.self_attn", prefix);
    size_t queries = (size_t)heads * pj_latent_query(m), input = c->hidden;
    if (c->latent.query_rank) {
        input = c->latent.query_rank;
        pj_load_component(l, attn, PJ_N_Q_A_PROJ, input, c->hidden, bias, &m->q_a);
        load_inner_norm(l, attn, PJ_N_Q_A_LAYERNORM, input, false, &m->q_a_norm);
    }
    pj_load_component(l, attn, c->latent.query_rank ? PJ_N_Q_B_PROJ : PJ_N_Q_PROJ, queries, input,
                      false, &m->q);
    pj_load_component(l, attn, PJ_N_KV_A_PROJ, rank + m->rotated, c->hidden, bias, &m->kv_a);
    load_inner_norm(l, attn, PJ_N_KV_A_LAYERNORM, rank, false, &m->kv_a_norm);
    if (pj_load_has(l, attn, "k_b_proj.weight")) {
        load_stacked_heads(l, attn, "k_b_proj", heads, rank, m->plain, m->keys);
        load_stacked_heads(l, attn, "v_b_proj", heads, m->value, rank, m->values);
    } else {
        load_joint(l, attn, m, heads, rank);
    }
    load_indexer(l, attn, layer);
    pj_load_component(l, attn, PJ_N_O_PROJ, c->hidden, (size_t)heads * m->value, bias, &layer->o);
}
