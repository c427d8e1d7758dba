/* Attention as steps: queries, keys and values with their norms, attention itself, its output gate
 * and projection. */
#include "engine/forward/steps.h"

/* Norm of queries, keys or values: per head, or over all heads of a token. */
static void norm_heads(const pj_steps *s, const pj_norm *norm, pj_slice x, pj_slice y,
                       uint32_t heads)
{
    bool together = s->model->blueprint->qk_norm == PJ_QK_NORM_FULL;
    pj_norm_step step = {.norm = norm,
                         .kind = norm->b ? PJ_NORM_LAYER : PJ_NORM_RMS,
                         .heads = together ? 1 : heads,
                         .x = x,
                         .y = y};
    pj_steps_norm(s, &step);
}

/* The rotation as a component of its own. */
static void rotate_apart(const pj_steps *s, const pj_layer *l, pj_slice qkv, uint32_t cols)
{
    double values = s->rows * pj_rotated_values(s->model, l);
    pj_done done = {.flops = 3 * values, .bytes = 8 * values, .out = pj_slice_cols(qkv, 0, cols)};
    if (!pj_steps_want(s, PJ_N_ROTARY_EMB)) return;
    pj_steps_component(s, PJ_N_ROTARY_EMB);
    s->ops->rotate(s->state, l, qkv);
    pj_steps_end(s, &done);
}

/* Queries, keys and values of x, adjacent in `qkv`. */
static void project_qkv(const pj_steps *s, const pj_layer *l, pj_slice x, pj_slice qkv)
{
    uint32_t queries = l->heads * l->head_dim, values = l->kv_heads * l->head_dim;
    pj_slice q = pj_slice_cols(qkv, 0, queries), k = pj_slice_cols(qkv, queries, values);
    pj_slice v = pj_slice_cols(qkv, queries + values, values);
    pj_slice gated = pj_steps_slice(s, PJ_BUFFER_GATE, 2 * queries);
    const pj_product products[] = {
        {.projection = &l->qkv, .y = qkv}, /* fused, or separate */
        {.projection = &l->q, .y = l->output_gate ? gated : q},
        {.projection = &l->k, .y = k},
        {.projection = &l->v, .y = v},
    };
    pj_steps_products(s, x, products, 4);
    if (l->output_gate) s->ops->take_queries(s->state, l, gated, q);
    if (l->norm_rotated) rotate_apart(s, l, qkv, queries + values);
    norm_heads(s, &l->q_norm, q, q, l->heads);
    norm_heads(s, &l->v_norm, l->keys_are_values ? k : v, v, l->kv_heads);
    norm_heads(s, &l->k_norm, k, k, l->kv_heads);
}

static pj_attention_extent extent_of_all(const pj_steps *s, const pj_layer *l)
{
    pj_attention_extent e = {0};
    for (uint32_t i = 0; i < s->pass->segment_count; i++) {
        const pj_pass_segment *g = &s->pass->segments[i];
        uint32_t first = s->compute->sequences[g->sequence].length, end = first + g->count;
        double seen = 0, keys = end - pj_layer_first_key(l, first);
        for (uint32_t position = first; position < end; position++)
            seen += pj_layer_seen_keys(l, position);
        e.pairs += l->heads * seen;
        e.q_floats += (double)l->heads * g->count * l->head_dim;
        /* rows that choose their keys may choose the same ones: at most so many */
        e.kv_floats += l->kv_heads * (seen < keys ? seen : keys) * l->head_dim;
    }
    return e;
}

static pj_done attention_work(const pj_steps *s, const pj_layer *l, const pj_attention_extent *e,
                              pj_slice y)
{
    const pj_model_config *c = &s->model->config;
    pj_dtype kv_type = s->compute->options.kv_type;
    double rotated = l->norm_rotated ? 0 : s->rows * pj_rotated_values(s->model, l);
    double scaled = l->scales_queries ? e->q_floats : 0;
    double each = c->attention_softcap > 0 ? 13 : 7; /* FLOPs of scale, mask, softmax, cap */
    return (pj_done){
        .flops =
            3 * rotated + scaled + e->pairs * (2.0 * ((double)l->head_dim + l->value_dim) + each),
        .bytes = 8 * (rotated + scaled) + s->rows * pj_stored_bytes(l, kv_type) +
                 (1 + (double)l->value_dim / l->head_dim) *
                     (e->kv_floats * (double)pj_dtype_row_bytes(kv_type, 1) + 4 * e->q_floats),
        .out = y,
        .with_last = true};
}

void pj_steps_attend(const pj_steps *s, const pj_layer *l, pj_slice qkv, pj_slice y)
{
    pj_attention_extent extent = {0};
    if (!pj_steps_want(s, PJ_N_ATTENTION)) return;
    if (s->instrument->module) extent = extent_of_all(s, l);
    pj_steps_component(s, PJ_N_ATTENTION);
    s->ops->rotate_and_store(s->state, l, qkv);
    s->ops->attend(s->state, l, qkv, y, &extent);
    pj_done done = attention_work(s, l, &extent, y);
    pj_steps_end(s, &done);
}

/* Multiplies attention's output by the sigmoid of its gate. */
static void gate_output(const pj_steps *s, const pj_layer *l, pj_slice y)
{
    double values = (double)y.rows * y.cols;
    pj_done done = {.flops = 5 * values, .bytes = 12 * values, .out = y};
    if (!l->output_gate || !pj_steps_want(s, PJ_N_OUTPUT_GATE)) return;
    pj_steps_component(s, PJ_N_OUTPUT_GATE);
    s->ops->gate_heads(s->state, l, pj_steps_slice(s, PJ_BUFFER_GATE, 2 * y.cols), y);
    pj_steps_end(s, &done);
}

void pj_steps_attention(const pj_steps *s, const pj_layer *l, pj_slice x)
{
    pj_slice qkv = pj_steps_slice(s, PJ_BUFFER_QKV, (l->heads + 2 * l->kv_heads) * l->head_dim);
    pj_slice attended = pj_steps_slice(s, PJ_BUFFER_ATTENDED, l->heads * l->head_dim);
    bool normed = l->attention_out_norm.w != NULL;
    project_qkv(s, l, x, qkv);
    pj_steps_attend(s, l, qkv, attended);
    gate_output(s, l, attended);
    pj_norm_step step = {.norm = &l->attended_norm, .heads = 1, .x = attended, .y = attended};
    pj_steps_norm(s, &step);
    pj_steps_product(s, attended, &l->o, pj_steps_hidden(s, PJ_BUFFER_Y),
                     normed ? pj_no_slice : pj_steps_hidden(s, PJ_BUFFER_X));
}
