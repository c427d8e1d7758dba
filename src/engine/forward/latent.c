/* Multi-head latent attention as steps (engine/model/latent.h). */
#include "engine/model/latent.h"

#include "engine/forward/steps.h"

static void project_each(const pj_steps *s, const pj_layer *l, const pj_projection *heads,
                         pj_slice from, uint32_t from_step, pj_slice to, uint32_t to_step)
{
    for (uint32_t h = 0; h < l->heads; h++) {
        pj_slice x = pj_slice_cols(from, h * from_step, (uint32_t)heads[h].w.cols);
        pj_slice y = pj_slice_cols(to, h * to_step, (uint32_t)heads[h].w.rows);
        pj_steps_product(s, x, &heads[h], y, (pj_slice){0});
    }
}

/* Products of each head's columns with its own matrix, as one component. */
static void project_heads(const pj_steps *s, const pj_layer *l, bool values, pj_slice from,
                          uint32_t from_step, pj_slice to, uint32_t to_step)
{
    const pj_projection *heads = values ? l->latent->values : l->latent->keys;
    pj_instrument_name name = values ? PJ_N_V_B_PROJ : PJ_N_K_B_PROJ;
    pj_done done = {.out = to};
    if (!pj_steps_want(s, name)) return;
    pj_steps_component(s, name);
    if (s->ops->project_heads)
        s->ops->project_heads(s->state, l, values, from, from_step, to, to_step);
    else
        project_each(s, l, heads, from, from_step, to, to_step);
    for (uint32_t h = 0; h < l->heads; h++) {
        done.flops += pj_product_flops(&heads[h], s->rows);
        done.bytes += pj_product_bytes(&heads[h], s->rows);
    }
    pj_steps_end(s, &done);
}

/* The keys that attention sees: the indexer's own queries, of the compressed ones, its key and its
 * weights. While all keys are seen, it only stores its own. */
static void choose_keys(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice low)
{
    const struct pj_indexer *m = l->indexer;
    bool chooses = pj_pass_chooses(l, s->compute->sequences, s->pass);
    uint32_t queries = m->heads * m->dim;
    pj_slice index = pj_steps_slice(s, PJ_BUFFER_INDEX, pj_indexer_columns(m));
    pj_slice key = pj_slice_cols(index, queries, m->dim);
    pj_norm_step norm = {.norm = &m->k_norm, .kind = PJ_NORM_LAYER, .heads = 1, .x = key, .y = key};
    if (chooses) pj_steps_product(s, low, &m->q, pj_slice_cols(index, 0, queries), pj_no_slice);
    pj_steps_product(s, x, &m->k, key, pj_no_slice);
    pj_steps_norm(s, &norm);
    if (chooses)
        pj_steps_product(s, x, &m->weights, pj_slice_cols(index, queries + m->dim, m->heads),
                         pj_no_slice);
    if (!pj_steps_want(s, PJ_N_INDEXER)) return;
    pj_index_work work =
        pj_index_work_of(s->model, l, s->pass, s->compute->sequences, s->compute->options.kv_type);
    pj_done done = {.flops = work.flops, .bytes = work.bytes, .with_last = true};
    /* what it turns */
    done.out = chooses ? pj_slice_cols(index, 0, queries + m->dim) : key;
    pj_steps_component(s, PJ_N_INDEXER);
    s->ops->choose_keys(s->state, l, index, chooses);
    pj_steps_end(s, &done);
}

/* Queries of all heads, then the latent vector and its rotated part, as attention reads them. */
static void project(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice qkv)
{
    const struct pj_latent *m = l->latent;
    uint32_t each = pj_latent_query(m), rank = l->value_dim;
    pj_slice own = pj_steps_slice(s, PJ_BUFFER_GATE, l->heads * each);
    pj_slice key = pj_slice_cols(qkv, l->heads * l->head_dim, l->head_dim), low = x;
    if (m->q_a.w.data) {
        low = pj_steps_slice(s, PJ_BUFFER_MIXED, (uint32_t)m->q_a.w.rows);
        pj_steps_product(s, x, &m->q_a, low, (pj_slice){0});
        pj_steps_norm(s, &(pj_norm_step){.norm = &m->q_a_norm, .heads = 1, .x = low, .y = low});
    }
    if (pj_layer_has_indexer(l)) choose_keys(s, l, x, low);
    pj_steps_product(s, low, &m->q, own, (pj_slice){0});
    pj_steps_product(s, x, &m->kv_a, key, (pj_slice){0});
    pj_slice latent = pj_slice_cols(key, 0, rank);
    pj_steps_norm(s, &(pj_norm_step){.norm = &m->kv_a_norm, .heads = 1, .x = latent, .y = latent});
    /* first, as statistics of the products are those of whole queries */
    s->ops->copy_heads(s->state, l->heads, pj_slice_cols(own, m->plain, m->rotated), each,
                       pj_slice_cols(qkv, rank, m->rotated), l->head_dim);
    project_heads(s, l, false, own, each, pj_slice_cols(qkv, 0, l->heads * l->head_dim),
                  l->head_dim);
}

void pj_steps_latent(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    const struct pj_latent *m = l->latent;
    pj_slice qkv = pj_steps_slice(s, PJ_BUFFER_QKV, (l->heads + 1) * l->head_dim);
    pj_slice attended = pj_steps_slice(s, PJ_BUFFER_ATTENDED, l->heads * l->value_dim);
    pj_slice values = pj_steps_slice(s, PJ_BUFFER_GATE, l->heads * m->value);
    bool normed = l->attention_out_norm.w != NULL;
    project(s, l, x, qkv);
    pj_steps_attend(s, l, qkv, attended);
    project_heads(s, l, true, attended, l->value_dim, values, m->value);
    pj_steps_product(s, values, &l->o, pj_steps_hidden(s, PJ_BUFFER_Y),
                     normed ? pj_no_slice : pj_steps_hidden(s, PJ_BUFFER_X));
}
