/* The pass itself: embedding, positions, layers, head, and the sections they are recorded in. */
#include "llm/forward.h"

#include "llm/pass.h"

#include <string.h>

static pj_steps steps_of(pj_state *state, const pj_pass *pass, pj_seam *seam)
{
    return (pj_steps){.state = state,
                      .model = state->model,
                      .kernels = state->kernels,
                      .team = state->team,
                      .seam = seam,
                      .pass = pass,
                      .rows = pass ? pass->tokens : 0};
}

/* ---- before the layers -------------------------------------------------------------------- */

static void embed_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_matrix *m = &s->model->embedding;
    const unsigned char *stored = m->data;
    s->kernels->dequantise(m->type, stored + (size_t)s->pass->ids[row] * m->row_bytes,
                           s->state->x + row * m->cols, m->cols);
}

static void embed(const pj_steps *s)
{
    const pj_matrix *m = &s->model->embedding;
    pj_done done = {.bytes = (double)s->rows * ((double)m->row_bytes + 4.0 * (double)m->cols),
                    .x = s->state->x,
                    .rows = s->rows,
                    .cols = m->cols,
                    .stride = m->cols};
    pj_seam_section(s->seam, PJ_N_EMBEDDING);
    pj_seam_component(s->seam, PJ_N_EMBED_TOKENS);
    pj_seam_operation(s->seam, m->type == PJ_F32 ? PJ_N_OP_GATHER : PJ_N_OP_DEQUANTISE);
    pj_steps_rows_summed(s, s->rows, s->rows * m->cols, embed_row, (void *)(uintptr_t)s, &done);
    pj_seam_operation_end(s->seam, done);
    pj_seam_module_end(s->seam, done);
    pj_seam_end(s->seam);
}

static void angles_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_state *state = s->state;
    size_t pairs = s->model->rope.pairs;
    pj_rope_angles(&s->model->rope, state->sequences[state->row_sequence[row]].generation,
                   state->row_position[row], state->cosine + row * pairs,
                   state->sine + row * pairs);
}

/* Where every row stands, and the angles of its rotation. */
static void place(const pj_steps *s)
{
    pj_seam_section(s->seam, PJ_N_POSITION_EMBEDDING);
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_segment *g = &s->pass->segments[i];
        for (uint32_t row = 0; row < g->count; row++) {
            s->state->row_sequence[g->row + row] = g->sequence;
            s->state->row_position[g->row + row] = s->state->sequences[g->sequence].length + row;
        }
    }
    /* a sine costs about as much as twenty simple values */
    pj_steps_rows(s, s->rows, s->rows * s->model->rope.pairs * 20, angles_row,
                  (void *)(uintptr_t)s);
    pj_seam_end(s->seam);
}

/* ---- layers ------------------------------------------------------------------------------- */

static void norm_hidden(const pj_steps *s, pj_seam_name name, const pj_norm *norm, const float *x,
                        size_t rows)
{
    size_t hidden = s->model->config.hidden;
    pj_norm_step step = {.name = name,
                         .norm = norm,
                         .kind = s->model->blueprint->norm,
                         .x = x,
                         .y = s->state->normed,
                         .rows = rows,
                         .n = hidden,
                         .per_token = 1,
                         .x_stride = hidden,
                         .y_stride = hidden};
    pj_steps_norm(s, &step);
}

/* RMSNorm of every head of q or k, where it lies. */
static void norm_heads(const pj_steps *s, pj_seam_name name, const pj_norm *norm, float *x,
                       uint32_t heads, size_t stride)
{
    pj_norm_step step = {.name = name,
                         .norm = norm,
                         .kind = PJ_NORM_RMS,
                         .x = x,
                         .y = x,
                         .rows = s->rows * heads,
                         .n = s->model->config.head_dim,
                         .per_token = heads,
                         .x_stride = stride,
                         .y_stride = stride};
    pj_steps_norm(s, &step);
}

static void attend(const pj_steps *s, uint32_t index, float *y, float *residual)
{
    const pj_model_config *c = &s->model->config;
    const pj_layer *layer = &s->model->layers[index];
    const pj_state *state = s->state;
    size_t q = (size_t)c->heads * c->head_dim, kv = (size_t)c->kv_heads * c->head_dim;
    size_t stride = q + 2 * kv;
    if (layer->qkv.w.data) {
        pj_product fused = {PJ_N_QKV_PROJ, &layer->qkv, state->qkv, stride};
        pj_steps_products(s, &fused, 1, state->normed, c->hidden, s->rows, true, NULL);
    } else {
        pj_product apart[] = {{PJ_N_Q_PROJ, &layer->q, state->qkv, stride},
                              {PJ_N_K_PROJ, &layer->k, state->qkv + q, stride},
                              {PJ_N_V_PROJ, &layer->v, state->qkv + q + kv, stride}};
        pj_steps_products(s, apart, 3, state->normed, c->hidden, s->rows, true, NULL);
    }
    if (layer->q_norm.w) {
        norm_heads(s, PJ_N_Q_NORM, &layer->q_norm, state->qkv, c->heads, stride);
        norm_heads(s, PJ_N_K_NORM, &layer->k_norm, state->qkv + q, c->kv_heads, stride);
    }
    pj_steps_attention(s, index);
    bool dense = s->model->blueprint->parallel_block;
    pj_product out = {dense ? PJ_N_DENSE : PJ_N_O_PROJ, &layer->o, y, c->hidden};
    pj_steps_products(s, &out, 1, state->attended, q, s->rows, true, residual);
}

static void run_layer(const pj_steps *s, uint32_t index)
{
    const pj_layer *layer = &s->model->layers[index];
    pj_state *state = s->state;
    size_t hidden = s->model->config.hidden;
    pj_seam_layer(s->seam, index);
    norm_hidden(s, PJ_N_INPUT_LAYERNORM, &layer->input_norm, state->x, s->rows);
    attend(s, index, state->y, state->x);
    /* in a parallel block both halves read the first norm, which is still there */
    if (!s->model->blueprint->parallel_block)
        norm_hidden(s, PJ_N_POST_ATTENTION_LAYERNORM, &layer->post_norm, state->x, s->rows);
    if (layer->experts)
        pj_steps_experts(s, layer, state->x);
    else
        pj_steps_mlp(s, &layer->mlp, state->y, state->x);
    pj_seam_module_end(s->seam, (pj_done){.flops = NAN,
                                          .bytes = NAN,
                                          .x = state->x,
                                          .rows = s->rows,
                                          .cols = hidden,
                                          .stride = hidden});
}

static pj_status run_layers(const pj_steps *s)
{
    pj_status status = PJ_OK;
    pj_seam_section(s->seam, PJ_N_LAYERS);
    for (uint32_t i = 0; i < s->model->config.layers && !status; i++) {
        const _Atomic bool *cancel = s->pass->cancel;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            status = PJ_E_CANCELLED;
        else
            run_layer(s, i);
    }
    pj_seam_end(s->seam);
    return status;
}

/* ---- head --------------------------------------------------------------------------------- */

/* Rows of the residual stream move to the front of `y`, which the head reads. */
static void run_head(const pj_steps *s, const uint32_t *rows, uint32_t count)
{
    const pj_model *m = s->model;
    pj_state *state = s->state;
    size_t hidden = m->config.hidden;
    bool layer_norm = m->blueprint->norm == PJ_NORM_LAYER;
    pj_product head = {PJ_N_LM_HEAD, &m->head, state->logits, m->config.vocab};
    pj_seam_section(s->seam, PJ_N_FINAL_NORM);
    for (uint32_t i = 0; i < count; i++)
        memcpy(state->y + i * hidden, state->x + rows[i] * hidden, hidden * sizeof(float));
    norm_hidden(s, layer_norm ? PJ_N_FINAL_LAYERNORM : PJ_N_NORM, &m->final_norm, state->y, count);
    pj_seam_end(s->seam);
    pj_seam_section(s->seam, PJ_N_LM_HEAD);
    pj_steps_products(s, &head, 1, state->normed, hidden, count, true, NULL);
    pj_seam_end(s->seam);
}

void pj_forward_logits(pj_state *state, const uint32_t *rows, uint32_t count, pj_seam *seam)
{
    pj_steps s = steps_of(state, NULL, seam);
    run_head(&s, rows, count);
}

/* ---- parts, for calibration --------------------------------------------------------------- */

void pj_forward_prepare(pj_state *state, const pj_pass *pass, pj_seam *silent, struct pj_part *part)
{
    pj_steps s = steps_of(state, pass, silent);
    s.part = part;
    part->only = PJ_N_NONE;
    for (uint32_t i = 0; i < pass->segment_count; i++)
        pj_state_make_room(state, pass->segments[i].sequence, pass->segments[i].count);
    embed(&s);
    place(&s);
    run_layers(&s);
    if (pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
}

void pj_forward_part(pj_state *state, const pj_pass *pass, pj_seam *silent, struct pj_part *part,
                     uint32_t layer)
{
    pj_steps s = steps_of(state, pass, silent);
    s.part = part;
    if (part->only == PJ_N_LM_HEAD || part->only == PJ_N_NORM || part->only == PJ_N_FINAL_LAYERNORM)
        run_head(&s, pass->logit_rows, pass->logit_count);
    else
        run_layer(&s, layer);
}

/* ---- the cache ---------------------------------------------------------------------------- */

/* The keys and values themselves were written by each layer; here they become part of their
 * sequences, and windows that are full move on. */
static void commit(const pj_steps *s)
{
    pj_seam_section(s->seam, s->pass->prefill ? PJ_N_KV_CACHE_STORE : PJ_N_KV_CACHE_APPEND);
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_segment *g = &s->pass->segments[i];
        pj_sequence *q = &s->state->sequences[g->sequence];
        /* the same memory when a cache is made again */
        memmove(q->tokens + q->length, s->pass->ids + g->row, g->count * sizeof *q->tokens);
        q->length += g->count;
        pj_state_make_room(s->state, g->sequence, 1);
    }
    pj_seam_end(s->seam);
}

pj_status pj_forward(pj_state *state, const pj_pass *pass, pj_seam *seam)
{
    pj_steps s = steps_of(state, pass, seam);
    for (uint32_t i = 0; i < pass->segment_count; i++)
        pj_state_make_room(state, pass->segments[i].sequence, pass->segments[i].count);
    embed(&s);
    place(&s);
    pj_status status = run_layers(&s);
    if (status) return status;
    if (pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
    commit(&s);
    return PJ_OK;
}
