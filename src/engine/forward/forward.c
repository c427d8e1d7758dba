/* The forward pass, top to bottom: embedding, positions, layers (queries, keys and values,
 * attention, feed-forward block), head, and the sections they are recorded in. Parts that an
 * architecture lacks are absent from the model, and their steps do nothing. */
#include "engine/forward/steps.h"
#include "engine/model/delta.h"

#include <string.h>

static pj_steps steps_of(pj_compute *compute, const pj_pass *pass, pj_pass_part *part)
{
    return (pj_steps){.ops = &compute->loaded->backend->ops,
                      .state = compute->state,
                      .compute = compute,
                      .model = compute->loaded->model,
                      .instrument = compute->instrument,
                      .pass = pass,
                      .rows = pass->tokens,
                      .part = part};
}

static void begin_pass(const pj_steps *s)
{
    const pj_compute *c = s->compute;
    s->ops->begin_pass(s->state, &(pj_rows_of_pass){.pass = s->pass,
                                                    .sequence = c->row_sequence,
                                                    .position = c->row_position,
                                                    .sequences = c->sequences});
}

/* Begins a pass over new rows: their positions, and room for them in the cache. */
static void forward_place(const pj_steps *s)
{
    pj_compute *c = s->compute;
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_pass_segment *g = &s->pass->segments[i];
        for (uint32_t row = 0; row < g->count; row++) {
            c->row_sequence[g->row + row] = g->sequence;
            c->row_position[g->row + row] = c->sequences[g->sequence].length + row;
        }
    }
    begin_pass(s);
    for (uint32_t i = 0; i < s->pass->segment_count; i++)
        pj_compute_make_room(c, s->pass->segments[i].sequence, s->pass->segments[i].count);
}

/* ---- before the layers -------------------------------------------------------------------- */

/* Gemma 3n and 4: per-layer token vectors. */
static void embed_token_vectors(const pj_steps *s)
{
    const pj_model *m = s->model;
    const pj_matrix *table = &m->token_embedding;
    uint32_t n = (uint32_t)table->cols;
    pj_slice vectors = pj_steps_slice(s, PJ_BUFFER_TOKEN_VECTORS, n);
    pj_slice context = pj_steps_slice(s, PJ_BUFFER_TOKEN_CONTEXT, n);
    double values = (double)s->rows * n;
    pj_done done = {values, ((double)table->row_bytes / n + 4) * values, vectors, false};
    if (pj_steps_want(s, PJ_N_EMBED_TOKENS_PER_LAYER)) {
        pj_steps_component(s, PJ_N_EMBED_TOKENS_PER_LAYER);
        s->ops->gather(s->state, table, sqrtf((float)m->config.token_vector), vectors);
        pj_steps_end(s, &done);
    }
    pj_steps_product(s, pj_steps_hidden(s, PJ_BUFFER_X), &m->token_projection, context,
                     (pj_slice){0});
    if (!pj_steps_want(s, PJ_N_PER_LAYER_PROJECTION_NORM)) return;
    done.flops = 10 * values; /* scale, norm, sum and scale */
    done.bytes = 12 * values;
    pj_steps_component(s, PJ_N_PER_LAYER_PROJECTION_NORM);
    s->ops->join_vectors(s->state, &m->token_norm, context, vectors);
    pj_steps_end(s, &done);
}

/* Of a head that predicts the token after the next: X becomes the projection of the next token's
 * embedding and the model's output before it, each normalised. */
static void join_hidden(const pj_steps *s)
{
    const pj_model *m = s->model;
    uint32_t hidden = m->config.hidden;
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X), given = pj_steps_hidden(s, PJ_BUFFER_Y);
    pj_slice both = pj_steps_slice(s, PJ_BUFFER_MIXED, 2 * hidden);
    uint32_t first = m->next_hidden_first ? hidden : 0;
    pj_norm_step of_token = {.norm = &m->next_embedding_norm,
                             .heads = 1,
                             .x = x,
                             .y = pj_slice_cols(both, first, hidden)};
    pj_norm_step of_output = {.norm = &m->next_hidden_norm,
                              .heads = 1,
                              .x = given,
                              .y = pj_slice_cols(both, hidden - first, hidden)};
    s->ops->give(s->state, s->pass->hidden, given);
    pj_steps_norm(s, &of_token);
    pj_steps_norm(s, &of_output);
    pj_steps_product(s, both, &m->next_projection, x, pj_no_slice);
}

static void embed(const pj_steps *s)
{
    const pj_matrix *m = &s->model->embedding;
    double scale = s->model->config.embedding_scale, values = (double)s->rows * (double)m->cols;
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X);
    pj_done done = {.bytes = (double)s->rows * ((double)m->row_bytes + 4.0 * (double)m->cols),
                    .out = x};
    pj_steps_section(s, PJ_N_EMBEDDING);
    pj_steps_component(s, PJ_N_EMBED_TOKENS);
    s->ops->gather(s->state, m, 1, x);
    if (scale != 1) {
        s->ops->scale(s->state, x, (float)scale);
        done.flops += values;
        done.bytes += 8 * values;
    }
    pj_steps_end(s, &done);
    if (s->model->token_projection.w.data) embed_token_vectors(s);
    if (s->model->streams_in) pj_steps_widen(s);
    if (s->model->next_projection.w.data) join_hidden(s);
    pj_steps_end_section(s);
}

static void find_angles(const pj_steps *s)
{
    pj_steps_section(s, PJ_N_POSITION_EMBEDDING);
    s->ops->angles(s->state);
    pj_steps_end_section(s);
}

/* ---- layers ------------------------------------------------------------------------------- */

/* y = norm(x), added to `residual` unless none; returns x itself without such a norm. */
static pj_slice norm_into(const pj_steps *s, const pj_norm *norm, pj_slice x, pj_slice y,
                          pj_slice residual)
{
    pj_norm_step step = {.norm = norm,
                         .kind = s->model->blueprint->norm,
                         .heads = 1,
                         .x = x,
                         .y = y,
                         .residual = residual};
    pj_steps_norm(s, &step);
    return norm->w ? y : x;
}

static pj_slice forward_norm(const pj_steps *s, const pj_norm *norm, pj_slice x)
{
    pj_slice y = x;
    y.buffer = PJ_BUFFER_NORMED;
    return norm_into(s, norm, x, y, (pj_slice){0});
}

/* Normalises the output of half a layer in place and adds it to the residual stream. */
static void norm_output(const pj_steps *s, const pj_norm *norm)
{
    pj_slice y = pj_steps_hidden(s, PJ_BUFFER_Y);
    norm_into(s, norm, y, y, pj_steps_hidden(s, PJ_BUFFER_X));
}

static void attend_recurrent(const pj_steps *s, const pj_layer *l, pj_slice h)
{
    switch (l->delta->kind) {
    case PJ_DELTA_RULE: pj_steps_delta(s, l, h); break;
    case PJ_SCAN: pj_steps_scan(s, l, h); break;
    case PJ_SHORT_CONVOLUTION: pj_steps_short_convolution(s, l, h); break;
    }
}

/* Multiplies a half's input, which is scaled by `from` already. */
static void scale_input(const pj_steps *s, pj_instrument_name name, pj_slice h, double from,
                        double factor)
{
    double values = (double)h.rows * h.cols;
    pj_done done = {values, 8 * values, h, false};
    if (factor == from || !pj_steps_want(s, name)) return;
    pj_steps_component(s, name);
    s->ops->scale(s->state, h, (float)(factor / from));
    pj_steps_end(s, &done);
}

/* The first half of a layer: attention, a recurrence, or both of the same input. */
static void attend(const pj_steps *s, const pj_layer *l, pj_slice h)
{
    const pj_multipliers *m = &s->model->config.multipliers;
    if (l->delta) {
        scale_input(s, PJ_N_SSM_IN_MULTIPLIER, h, 1, m->ssm_in);
        attend_recurrent(s, l, h);
        if (!pj_layer_attends(l)) return;
    }
    scale_input(s, PJ_N_ATTENTION_IN_MULTIPLIER, h, l->delta ? m->ssm_in : 1, m->attention_in);
    if (l->latent)
        pj_steps_latent(s, l, h);
    else
        pj_steps_attention(s, l, h);
    norm_output(s, &l->attention_out_norm);
}

/* A dense block and experts in parallel; both outputs are normalised, added, and normalised
 * again. */
static void feed_forward_beside(const pj_steps *s, const pj_layer *l, pj_slice h)
{
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X), y = pj_steps_hidden(s, PJ_BUFFER_Y);
    pj_slice branch = pj_steps_hidden(s, PJ_BUFFER_BRANCH), none = pj_no_slice;
    pj_steps_mlp(s, &l->mlp, h, y, none);
    norm_into(s, &l->dense_out_norm, y, branch, none);
    pj_slice routed = norm_into(s, &l->router_norm, x, pj_steps_hidden(s, PJ_BUFFER_ROUTED), none);
    h = forward_norm(s, &l->experts_norm, x);
    pj_steps_experts(s, l, routed, h, none);
    norm_into(s, &l->experts_out_norm, y, y, branch);
    norm_into(s, &l->mlp_out_norm, branch, y, x);
}

/* The second half of a layer. */
static void feed_forward(const pj_steps *s, const pj_layer *l, pj_slice h)
{
    if (l->dense_out_norm.w) {
        feed_forward_beside(s, l, h);
        return;
    }
    pj_slice residual = l->mlp_out_norm.w ? pj_no_slice : pj_steps_hidden(s, PJ_BUFFER_X);
    if (l->experts)
        pj_steps_experts(s, l, h, h, residual);
    else
        pj_steps_mlp(s, &l->mlp, h, pj_steps_hidden(s, PJ_BUFFER_Y), residual);
    norm_output(s, &l->mlp_out_norm);
}

/* Multiplies the residual stream by the layer's scale factor. */
static void scale_output(const pj_steps *s, const pj_layer *l)
{
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X);
    double values = (double)x.rows * x.cols;
    pj_done done = {values, 8 * values, x, false};
    if (l->scale == 1 || !pj_steps_want(s, PJ_N_LAYER_SCALAR)) return;
    pj_steps_component(s, PJ_N_LAYER_SCALAR);
    s->ops->scale(s->state, x, l->scale);
    pj_steps_end(s, &done);
}

/* Adds the layer's token vectors to the residual stream, or to all but the first. */
static void add_token_input(const pj_steps *s, const pj_layer *l)
{
    pj_steps_token_input(s, l, pj_steps_hidden(s, PJ_BUFFER_Y));
    if (l->streams)
        pj_steps_add_to_others(s, &l->token_norm);
    else
        norm_output(s, &l->token_norm);
}

static void run_layer(const pj_steps *s, const pj_layer *l)
{
    const pj_ablation *without = &s->compute->options.without;
    pj_slice x = pj_steps_hidden(s, PJ_BUFFER_X);
    if (s->instrument->module) s->ops->layer(s->state, l->index);

    if (l->streams) pj_steps_predict(s, l);
    pj_slice h = forward_norm(s, &l->attention_norm, x);
    if (l->streams) pj_steps_low_rank(s, l, h);
    bool has_mixer = l->delta || pj_layer_attends(l);
    bool has_mlp = l->experts || l->mlp.down.w.data;
    if (!without->attention && has_mixer) attend(s, l, h);
    if (l->streams) pj_steps_join_low_rank(s, h);
    /* a parallel block uses the first norm's output for both halves */
    if (!s->model->blueprint->parallel_block) h = forward_norm(s, &l->mlp_norm, x);
    if (!without->mlp && has_mlp) feed_forward(s, l, h);

    if (l->streams) pj_steps_correct(s, l);
    if (l->token_gate.w.data) add_token_input(s, l);
    scale_output(s, l);
    pj_steps_end(
        s, &(pj_done){.flops = NAN, .bytes = NAN, .out = l->streams ? pj_steps_streams(s) : x});
}

static pj_status run_layers(const pj_steps *s)
{
    pj_status status = PJ_OK;
    pj_steps_section(s, PJ_N_LAYERS);
    uint32_t kept = s->compute->options.without.layers, all = s->model->config.layers;
    for (uint32_t i = 0; i < (kept && kept < all ? kept : all) && !status; i++) {
        const _Atomic bool *cancel = s->pass->cancel;
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
            status = PJ_E_CANCELLED;
        else
            run_layer(s, &s->model->layers[i]);
    }
    pj_steps_end_section(s);
    return status;
}

/* ---- head --------------------------------------------------------------------------------- */

/* Scales or caps logits if the architecture does so; not part of the head's component, whose
 * statistics are those of the product. */
static void bound_logits(const pj_steps *s, pj_slice logits)
{
    const pj_model_config *c = &s->model->config;
    double values = (double)logits.rows * c->vocab;
    bool scaled = c->logit_scale != 1, capped = c->logit_softcap > 0;
    if ((!scaled && !capped) || !pj_steps_want(s, PJ_N_LOGITS)) return;
    pj_done done = {.flops = (scaled + 6 * capped) * values, .bytes = 8 * values};
    pj_steps_component(s, PJ_N_LOGITS);
    s->ops->bound(s->state, logits, (float)c->logit_scale, (float)c->logit_softcap);
    pj_steps_end(s, &done);
}

/* Takes the selected rows of the residual stream to the front of Y, which the head reads. */
static void run_head(const pj_steps *s, const uint32_t *rows, uint32_t count)
{
    const pj_model *m = s->model;
    uint32_t hidden = m->config.hidden, vocab = m->config.vocab;
    pj_slice y = pj_slice_of(PJ_BUFFER_Y, count, hidden, hidden);
    pj_slice logits = pj_slice_of(PJ_BUFFER_LOGITS, count, vocab, vocab);
    pj_steps_section(s, PJ_N_FINAL_NORM);
    if (m->streams_out)
        pj_steps_narrow(s, rows, count);
    else
        s->ops->take_rows(s->state, pj_steps_hidden(s, PJ_BUFFER_X), rows, y);
    pj_slice h = forward_norm(s, &m->final_norm, y);
    pj_steps_end_section(s);
    pj_steps_section(s, PJ_N_LM_HEAD);
    if (!s->compute->options.without.head) {
        pj_steps_product(s, h, &m->head, logits, (pj_slice){0});
        bound_logits(s, logits);
    }
    if (s->pass->greedy) s->ops->argmax(s->state, logits);
    pj_steps_end_section(s);
}

/* ---- passes ------------------------------------------------------------------------------- */

/* Each layer has written its keys and values; here they become part of their sequences, and full
 * windows advance. */
static void forward_commit(const pj_steps *s)
{
    pj_compute *c = s->compute;
    pj_steps_section(s, s->pass->prefill ? PJ_N_KV_CACHE_STORE : PJ_N_KV_CACHE_APPEND);
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_pass_segment *g = &s->pass->segments[i];
        pj_sequence *q = &c->sequences[g->sequence];
        /* the same memory when a cache is recomputed */
        memmove(q->tokens + q->length, s->pass->ids + g->row, g->count * sizeof *q->tokens);
        q->length += g->count;
        pj_compute_make_room(c, g->sequence, 1);
    }
    pj_steps_end_section(s);
}

/* Ends a pass and makes its results readable. */
static pj_status end_pass(const pj_steps *s, pj_status status, uint32_t logits)
{
    pj_compute *c = s->compute;
    pj_status ended = s->ops->end_pass(s->state, status != PJ_OK, c->err);
    if (!status) status = ended;
    if (status || logits == 0) return status;
    if (s->pass->greedy)
        c->ids = s->ops->ids(s->state);
    else
        c->logits = s->ops->logits(s->state, logits);
    return PJ_OK;
}

pj_status pj_compute_forward(pj_compute *compute, const pj_pass *pass)
{
    pj_steps s = steps_of(compute, pass, NULL);
    forward_place(&s);
    embed(&s);
    find_angles(&s);
    pj_status status = run_layers(&s);
    if (!status && pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
    if (!status) forward_commit(&s);
    return end_pass(&s, status, pass->logit_count);
}

pj_status pj_compute_logits(pj_compute *compute, const uint32_t *rows, uint32_t count)
{
    const pj_pass pass = {0};
    pj_steps s = steps_of(compute, &pass, NULL);
    s.rows = compute->options.max_tokens; /* any row of the last pass */
    begin_pass(&s);
    run_head(&s, rows, count);
    return end_pass(&s, PJ_OK, count);
}

pj_status pj_compute_hidden(pj_compute *compute, uint32_t rows, const float **hidden)
{
    const pj_pass pass = {0};
    pj_steps s = steps_of(compute, &pass, NULL);
    s.rows = rows;
    pj_norm_step step = {.norm = &s.model->final_norm,
                         .kind = s.model->blueprint->norm,
                         .heads = 1,
                         .x = pj_steps_hidden(&s, PJ_BUFFER_X),
                         .y = pj_steps_hidden(&s, PJ_BUFFER_NORMED)};
    begin_pass(&s);
    s.ops->norm(s.state, &step); /* part of the caller's component */
    pj_status status = end_pass(&s, PJ_OK, 0);
    *hidden = status ? NULL : s.ops->rows(s.state, step.y);
    return status;
}

/* ---- single components, for calibration ---------------------------------------------------- */

pj_status pj_compute_prepare(pj_compute *compute, const pj_pass *pass, pj_pass_part *part)
{
    pj_steps s = steps_of(compute, pass, part);
    part->only = PJ_N_NONE;
    forward_place(&s);
    embed(&s);
    find_angles(&s);
    run_layers(&s);
    if (pass->logit_count) run_head(&s, pass->logit_rows, pass->logit_count);
    return end_pass(&s, PJ_OK, 0);
}

pj_status pj_compute_part(pj_compute *compute, const pj_pass *pass, pj_pass_part *part,
                          uint32_t layer)
{
    pj_steps s = steps_of(compute, pass, part);
    begin_pass(&s);
    if (part->only == PJ_N_LM_HEAD || part->only == PJ_N_LOGITS ||
        part->only == PJ_N_ALTUP_UNEMBED_PROJECTIONS || part->only == s.model->final_norm.name)
        run_head(&s, pass->logit_rows, pass->logit_count);
    else if (part->only >= PJ_N_EMBED_TOKENS_PER_LAYER &&
             part->only <= PJ_N_PER_LAYER_PROJECTION_NORM)
        embed_token_vectors(&s);
    else if (part->only == PJ_N_ALTUP_PROJECTIONS)
        pj_steps_widen(&s);
    else
        run_layer(&s, &s.model->layers[layer]);
    return end_pass(&s, PJ_OK, 0);
}
