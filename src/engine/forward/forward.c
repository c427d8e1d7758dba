/* The forward pass, top to bottom: embedding, positions, layers (queries, keys and values,
 * attention, feed-forward block), head, and the sections they are recorded in. Parts that an
 * architecture lacks are absent from the model, and their steps do nothing. */
#include "engine/forward/forward.h"

#include "engine/forward/steps.h"

#include <string.h>

static pj_steps steps_of(pj_state *state, const pj_pass *pass, pj_instrument *instrument)
{
    return (pj_steps){.state = state,
                      .model = state->model,
                      .kernels = state->kernels,
                      .team = state->team,
                      .instrument = instrument,
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

/* Rows of n values of the residual stream to scale. */
typedef struct scaled_rows {
    const pj_steps *s;
    size_t n;
    float scale;
} scaled_rows;

static void forward_scale_row(void *context, size_t row)
{
    const scaled_rows *t = context;
    t->s->kernels->scale(t->s->state->x + row * t->n, t->n, t->scale);
}

/* `done`: work of the component so far. */
static void scale_embedding(const pj_steps *s, pj_done *done)
{
    double values = (double)(done->rows * done->cols);
    scaled_rows task = {s, done->cols, (float)s->model->config.embedding_scale};
    pj_done scaled = *done;
    scaled.flops = values;
    scaled.bytes = 8 * values;
    pj_instrument_operation(s->instrument, PJ_N_OP_SCALE);
    pj_steps_rows_summed(s, done->rows, done->rows * done->cols, forward_scale_row, &task, &scaled);
    pj_instrument_operation_end(s->instrument, &scaled);
    done->flops += scaled.flops;
    done->bytes += scaled.bytes;
}

static void embed_vector_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_matrix *m = &s->model->token_embedding;
    const unsigned char *stored = m->data;
    float *vectors = s->state->token_vectors + row * m->cols;
    s->kernels->dequantise(m->type, stored + (size_t)s->pass->ids[row] * m->row_bytes, vectors,
                           m->cols);
    s->kernels->scale(vectors, m->cols, sqrtf((float)s->model->config.token_vector));
}

/* Adds the projected and normalised token embedding to the vector from the table, per layer. */
static void join_vector_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_model_config *c = &s->model->config;
    const pj_kernels *k = s->kernels;
    size_t n = c->token_vector, all = c->layers * n;
    float *vectors = s->state->token_vectors + row * all;
    float *projected = s->state->token_context + row * all;
    k->scale(projected, all, 1 / sqrtf((float)c->hidden));
    for (size_t i = 0; i < all; i += n)
        k->rmsnorm(projected + i, projected + i, s->model->token_norm.w, n, (float)c->norm_eps);
    k->add(vectors, projected, all);
    k->scale(vectors, all, sqrtf(0.5f));
}

/* One operation of a component over rows of all layers' vectors. */
static void vectors_step(const pj_steps *s, pj_instrument_name component,
                         pj_instrument_name operation, pj_row_fn *run, double flops, double bytes)
{
    size_t n = s->model->token_embedding.cols;
    double values = (double)(s->rows * n);
    pj_done done = {flops * values, bytes * values, s->state->token_vectors, s->rows, n, n};
    if (!pj_steps_want(s, component)) return;
    pj_instrument_component(s->instrument, component);
    pj_instrument_operation(s->instrument, operation);
    pj_steps_rows_summed(s, s->rows, s->rows * n, run, (void *)(uintptr_t)s, &done);
    pj_instrument_operation_end(s->instrument, &done);
    pj_instrument_module_end(s->instrument, &done);
}

/* Gemma 4: per-layer token vectors. */
static void embed_token_vectors(const pj_steps *s)
{
    const pj_model *m = s->model;
    const pj_matrix *table = &m->token_embedding;
    pj_rows x = {s->state->x, s->rows, m->config.hidden};
    pj_instrument_name gather = table->type == PJ_F32 ? PJ_N_OP_GATHER : PJ_N_OP_DEQUANTISE;
    vectors_step(s, PJ_N_EMBED_TOKENS_PER_LAYER, gather, embed_vector_row, 1,
                 (double)table->row_bytes / (double)table->cols + 4);
    pj_steps_product(s, &x, &m->token_projection, s->state->token_context, table->cols, NULL);
    /* scale, norm, sum and scale */
    vectors_step(s, PJ_N_PER_LAYER_PROJECTION_NORM, PJ_N_OP_NORM, join_vector_row, 10, 12);
}

static void embed(const pj_steps *s)
{
    const pj_matrix *m = &s->model->embedding;
    pj_done done = {.bytes = (double)s->rows * ((double)m->row_bytes + 4.0 * (double)m->cols),
                    .x = s->state->x,
                    .rows = s->rows,
                    .cols = m->cols,
                    .stride = m->cols};
    pj_instrument_section(s->instrument, PJ_N_EMBEDDING);
    pj_instrument_component(s->instrument, PJ_N_EMBED_TOKENS);
    pj_instrument_operation(s->instrument, m->type == PJ_F32 ? PJ_N_OP_GATHER : PJ_N_OP_DEQUANTISE);
    pj_steps_rows_summed(s, s->rows, s->rows * m->cols, embed_row, (void *)(uintptr_t)s, &done);
    pj_instrument_operation_end(s->instrument, &done);
    if (s->model->config.embedding_scale != 1) scale_embedding(s, &done);
    pj_instrument_module_end(s->instrument, &done);
    if (s->model->token_projection.w.data) embed_token_vectors(s);
    pj_instrument_end(s->instrument);
}

static void angles_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_state *state = s->state;
    uint32_t generation = state->sequences[state->row_sequence[row]].generation;
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        const pj_rope *rope = &s->model->ropes[i];
        pj_rope_angles(rope, generation, state->row_position[row],
                       state->cosine[i] + row * rope->pairs, state->sine[i] + row * rope->pairs);
    }
}

/* Positions of all rows, and their rotation angles. */
static void forward_place(const pj_steps *s)
{
    pj_instrument_section(s->instrument, PJ_N_POSITION_EMBEDDING);
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_pass_segment *g = &s->pass->segments[i];
        for (uint32_t row = 0; row < g->count; row++) {
            s->state->row_sequence[g->row + row] = g->sequence;
            s->state->row_position[g->row + row] = s->state->sequences[g->sequence].length + row;
        }
    }
    size_t pairs = 0;
    for (uint32_t i = 0; i < PJ_ROPES; i++) pairs += s->model->ropes[i].pairs;
    /* a sine costs about as much as twenty simple operations */
    pj_steps_rows(s, s->rows, s->rows * pairs * 20, angles_row, (void *)(uintptr_t)s);
    pj_instrument_end(s->instrument);
}

/* ---- layers ------------------------------------------------------------------------------- */

/* y = norm(x), added to `residual` unless NULL; returns x itself without such a norm. */
static pj_rows norm_into(const pj_steps *s, const pj_norm *norm, const float *x, size_t rows,
                         float *y, float *residual)
{
    size_t hidden = s->model->config.hidden;
    pj_norm_step step = {.norm = norm,
                         .kind = s->model->blueprint->norm,
                         .x = x,
                         .y = y,
                         .rows = rows,
                         .n = hidden,
                         .per_token = 1,
                         .x_stride = hidden,
                         .y_stride = hidden,
                         .residual = residual};
    pj_steps_norm(s, &step);
    return (pj_rows){norm->w ? y : x, rows, hidden};
}

static pj_rows norm(const pj_steps *s, const pj_norm *norm, const float *x, size_t rows)
{
    return norm_into(s, norm, x, rows, s->state->normed, NULL);
}

/* Normalises the output of half a layer in place and adds it to the residual stream. */
static void forward_norm_output(const pj_steps *s, const pj_norm *norm)
{
    norm_into(s, norm, s->state->y, s->rows, s->state->y, s->state->x);
}

/* RMSNorm of queries, keys or values: per head, or over all heads of a token. */
static void norm_heads(const pj_steps *s, const pj_norm *norm, const float *x, float *y,
                       uint32_t heads, uint32_t head_dim, size_t stride)
{
    bool together = s->model->blueprint->qk_norm == PJ_QK_NORM_FULL;
    pj_norm_step step = {.norm = norm,
                         .kind = PJ_NORM_RMS,
                         .x = x,
                         .y = y,
                         .rows = s->rows * (together ? 1 : heads),
                         .n = together ? (size_t)heads * head_dim : head_dim,
                         .per_token = together ? 1 : heads,
                         .x_stride = stride,
                         .y_stride = stride};
    pj_steps_norm(s, &step);
}

typedef struct gated {
    const pj_steps *s;
    const pj_layer *l;
} gated;

/* Queries and gates alternate by head in state->gate; copies the queries to state->qkv. */
static void take_queries_row(void *context, size_t row)
{
    const gated *g = context;
    size_t dim = g->l->head_dim, heads = g->l->heads;
    const float *from = g->s->state->gate + row * 2 * heads * dim;
    float *q = g->s->state->qkv + row * (heads + 2 * (size_t)g->l->kv_heads) * dim;
    for (size_t head = 0; head < heads; head++)
        memcpy(q + head * dim, from + 2 * head * dim, dim * sizeof *q);
}

static void gate_row(void *context, size_t row)
{
    const gated *g = context;
    size_t dim = g->l->head_dim, heads = g->l->heads;
    const float *gates = g->s->state->gate + row * 2 * heads * dim + dim;
    float *y = g->s->state->attended + row * heads * dim;
    for (size_t head = 0; head < heads; head++)
        g->s->kernels->sigmoid_multiply(y + head * dim, gates + 2 * head * dim, dim);
}

/* Multiplies attention's output by the sigmoid of its gate. */
static void gate_output(const pj_steps *s, const pj_layer *l)
{
    gated g = {s, l};
    size_t floats = (size_t)l->heads * l->head_dim;
    double values = (double)s->rows * (double)floats;
    if (!l->output_gate || !pj_steps_want(s, PJ_N_OUTPUT_GATE)) return;
    pj_done done = {.flops = 5 * values,
                    .bytes = 12 * values,
                    .x = s->state->attended,
                    .rows = s->rows,
                    .cols = floats,
                    .stride = floats};
    pj_instrument_component(s->instrument, PJ_N_OUTPUT_GATE);
    pj_steps_rows_summed(s, s->rows, s->rows * floats * 8, gate_row, &g, &done);
    pj_instrument_module_end(s->instrument, &done);
}

/* Queries, keys and values of h, adjacent in state->qkv. */
static void project_qkv(const pj_steps *s, const pj_layer *l, pj_rows h)
{
    size_t q_floats = (size_t)l->heads * l->head_dim, kv_floats = (size_t)l->kv_heads * l->head_dim;
    size_t stride = q_floats + 2 * kv_floats;
    float *q = s->state->qkv, *k = q + q_floats, *v = k + kv_floats;
    const pj_product products[] = {
        {&l->qkv, q, stride, NULL}, /* fused, or separate */
        {&l->q, l->output_gate ? s->state->gate : q, l->output_gate ? 2 * q_floats : stride, NULL},
        {&l->k, k, stride, NULL},
        {&l->v, v, stride, NULL},
    };
    pj_steps_products(s, &h, products, 4);
    gated g = {s, l};
    if (l->output_gate) pj_steps_rows(s, s->rows, s->rows * q_floats, take_queries_row, &g);
    norm_heads(s, &l->q_norm, q, q, l->heads, l->head_dim, stride);
    norm_heads(s, &l->v_norm, l->keys_are_values ? k : v, v, l->kv_heads, l->head_dim, stride);
    norm_heads(s, &l->k_norm, k, k, l->kv_heads, l->head_dim, stride);
}

/* Output projection, added to the residual stream. */
static void project_output(const pj_steps *s, const pj_layer *l)
{
    pj_state *t = s->state;
    size_t floats = (size_t)l->heads * l->head_dim;
    pj_rows attended = {t->attended, s->rows, floats};
    bool normed = l->attention_out_norm.w != NULL;
    pj_steps_product(s, &attended, &l->o, t->y, s->model->config.hidden, normed ? NULL : t->x);
    forward_norm_output(s, &l->attention_out_norm);
}

/* The first half of a layer: attention or the delta rule. */
static void attend(const pj_steps *s, const pj_layer *l, pj_rows h)
{
    if (l->delta) {
        pj_steps_delta(s, l, &h);
        return;
    }
    project_qkv(s, l, h);
    pj_steps_attention(s, l);
    gate_output(s, l);
    project_output(s, l);
}

/* A dense block and experts in parallel; both outputs are normalised, added, and normalised
 * again. */
static void feed_forward_beside(const pj_steps *s, const pj_layer *l, pj_rows h)
{
    pj_state *t = s->state;
    pj_steps_mlp(s, &l->mlp, &h, t->y, NULL);
    norm_into(s, &l->dense_out_norm, t->y, s->rows, t->branch, NULL);
    pj_rows routed = norm_into(s, &l->router_norm, t->x, s->rows, t->gathered, NULL);
    h = norm(s, &l->experts_norm, t->x, s->rows);
    pj_steps_experts(s, l, &routed, &h, NULL);
    norm_into(s, &l->experts_out_norm, t->y, s->rows, t->y, t->branch);
    norm_into(s, &l->mlp_out_norm, t->branch, s->rows, t->y, t->x);
}

/* The second half of a layer. */
static void feed_forward(const pj_steps *s, const pj_layer *l, pj_rows h)
{
    if (l->dense_out_norm.w) {
        feed_forward_beside(s, l, h);
        return;
    }
    pj_state *t = s->state;
    float *residual = l->mlp_out_norm.w ? NULL : t->x;
    if (l->experts)
        pj_steps_experts(s, l, &h, &h, residual);
    else
        pj_steps_mlp(s, &l->mlp, &h, t->y, residual);
    forward_norm_output(s, &l->mlp_out_norm);
}

/* Multiplies the residual stream by the layer's scale factor. */
static void scale_output(const pj_steps *s, const pj_layer *l)
{
    size_t hidden = s->model->config.hidden;
    double values = (double)(s->rows * hidden);
    scaled_rows task = {s, hidden, l->scale};
    pj_done done = {values, 8 * values, s->state->x, s->rows, hidden, hidden};
    if (l->scale == 1 || !pj_steps_want(s, PJ_N_LAYER_SCALAR)) return;
    pj_instrument_component(s->instrument, PJ_N_LAYER_SCALAR);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCALE);
    pj_steps_rows_summed(s, s->rows, s->rows * hidden, forward_scale_row, &task, &done);
    pj_instrument_operation_end(s->instrument, &done);
    pj_instrument_module_end(s->instrument, &done);
}

static void run_layer(const pj_steps *s, const pj_layer *l)
{
    const pj_ablation *without = &s->state->options.without;
    float *x = s->state->x; /* the residual stream */
    size_t hidden = s->model->config.hidden;
    pj_instrument_layer(s->instrument, l->index);

    pj_rows h = norm(s, &l->attention_norm, x, s->rows);
    if (!without->attention) attend(s, l, h);
    /* a parallel block uses the first norm's output for both halves */
    if (!s->model->blueprint->parallel_block) h = norm(s, &l->mlp_norm, x, s->rows);
    if (!without->mlp) feed_forward(s, l, h);

    if (l->token_gate.w.data) {
        pj_steps_token_input(s, l, s->state->y);
        forward_norm_output(s, &l->token_norm);
    }
    scale_output(s, l);

    pj_instrument_module_end(
        s->instrument,
        &(pj_done){
            .flops = NAN, .bytes = NAN, .x = x, .rows = s->rows, .cols = hidden, .stride = hidden});
}

static pj_status run_layers(const pj_steps *s)
{
    pj_status status = PJ_OK;
    pj_instrument_section(s->instrument, PJ_N_LAYERS);
    uint32_t kept = s->state->options.without.layers, all = s->model->config.layers;
    for (uint32_t i = 0; i < (kept && kept < all ? kept : all) && !status; i++) {
        const _Atomic bool *cancel = s->pass->cancel;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            status = PJ_E_CANCELLED;
        else
            run_layer(s, &s->model->layers[i]);
    }
    pj_instrument_end(s->instrument);
    return status;
}

/* ---- head --------------------------------------------------------------------------------- */

static void bound_logits_row(void *context, size_t row)
{
    const pj_steps *s = context;
    const pj_model_config *c = &s->model->config;
    float *logits = s->state->logits + row * c->vocab;
    if (c->logit_scale != 1) s->kernels->scale(logits, c->vocab, (float)c->logit_scale);
    if (c->logit_softcap > 0) s->kernels->softcap(logits, c->vocab, (float)c->logit_softcap);
}

/* Scales or caps logits if the architecture does so; not part of the head's component, whose
 * statistics are those of the product. */
static void bound_logits(const pj_steps *s, uint32_t count)
{
    const pj_model_config *c = &s->model->config;
    double values = (double)count * c->vocab;
    bool scaled = c->logit_scale != 1, capped = c->logit_softcap > 0;
    if ((!scaled && !capped) || !pj_steps_want(s, PJ_N_LOGITS)) return;
    pj_done done = {.flops = (scaled + 6 * capped) * values, .bytes = 8 * values};
    pj_instrument_component(s->instrument, PJ_N_LOGITS);
    pj_instrument_operation(s->instrument, capped ? PJ_N_OP_SOFTCAP : PJ_N_OP_SCALE);
    pj_steps_rows(s, count, count * (size_t)c->vocab, bound_logits_row, (void *)(uintptr_t)s);
    pj_instrument_operation_end(s->instrument, &done);
    pj_instrument_module_end(s->instrument, &done);
}

/* Copies the selected rows of the residual stream to the front of `y`, which the head reads. */
static void run_head(const pj_steps *s, const uint32_t *rows, uint32_t count)
{
    const pj_model *m = s->model;
    pj_state *t = s->state;
    size_t hidden = m->config.hidden;
    pj_instrument_section(s->instrument, PJ_N_FINAL_NORM);
    for (uint32_t i = 0; i < count; i++)
        memcpy(t->y + i * hidden, t->x + rows[i] * hidden, hidden * sizeof(float));
    pj_rows h = norm(s, &m->final_norm, t->y, count);
    pj_instrument_end(s->instrument);
    pj_instrument_section(s->instrument, PJ_N_LM_HEAD);
    if (!t->options.without.head) {
        pj_steps_product(s, &h, &m->head, t->logits, m->config.vocab, NULL);
        bound_logits(s, count);
    }
    pj_instrument_end(s->instrument);
}

void pj_forward_logits(pj_state *state, const uint32_t *rows, uint32_t count,
                       pj_instrument *instrument)
{
    pj_steps s = steps_of(state, NULL, instrument);
    run_head(&s, rows, count);
}

/* ---- single components, for calibration ---------------------------------------------------- */

void pj_forward_prepare(pj_state *state, const pj_pass *pass, pj_instrument *silent,
                        struct pj_pass_part *part)
{
    pj_steps s = steps_of(state, pass, silent);
    s.part = part;
    part->only = PJ_N_NONE;
    for (uint32_t i = 0; i < pass->segment_count; i++)
        pj_state_make_room(state, pass->segments[i].sequence, pass->segments[i].count);
    embed(&s);
    forward_place(&s);
    run_layers(&s);
    if (pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
}

void pj_forward_part(pj_state *state, const pj_pass *pass, pj_instrument *silent,
                     struct pj_pass_part *part, uint32_t layer)
{
    pj_steps s = steps_of(state, pass, silent);
    s.part = part;
    if (part->only == PJ_N_LM_HEAD || part->only == PJ_N_LOGITS ||
        part->only == state->model->final_norm.name)
        run_head(&s, pass->logit_rows, pass->logit_count);
    else if (part->only >= PJ_N_EMBED_TOKENS_PER_LAYER &&
             part->only <= PJ_N_PER_LAYER_PROJECTION_NORM)
        embed_token_vectors(&s);
    else
        run_layer(&s, &state->model->layers[layer]);
}

/* ---- the cache ---------------------------------------------------------------------------- */

/* Each layer has written its keys and values; here they become part of their sequences, and full
 * windows advance. */
static void forward_commit(const pj_steps *s)
{
    pj_instrument_section(s->instrument,
                          s->pass->prefill ? PJ_N_KV_CACHE_STORE : PJ_N_KV_CACHE_APPEND);
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_pass_segment *g = &s->pass->segments[i];
        pj_sequence *q = &s->state->sequences[g->sequence];
        /* the same memory when a cache is recomputed */
        memmove(q->tokens + q->length, s->pass->ids + g->row, g->count * sizeof *q->tokens);
        q->length += g->count;
        pj_state_make_room(s->state, g->sequence, 1);
    }
    pj_instrument_end(s->instrument);
}

pj_status pj_forward(pj_state *state, const pj_pass *pass, pj_instrument *instrument)
{
    pj_steps s = steps_of(state, pass, instrument);
    for (uint32_t i = 0; i < pass->segment_count; i++)
        pj_state_make_room(state, pass->segments[i].sequence, pass->segments[i].count);
    embed(&s);
    forward_place(&s);
    pj_status status = run_layers(&s);
    if (status) return status;
    if (pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
    forward_commit(&s);
    return PJ_OK;
}
