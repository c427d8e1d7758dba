/* Counts a model's parameters and work: one list of its matrices and vectors, each with its use per
 * token. */
#include "engine/model/facts.h"

#include "engine/kernels/linear.h"
#include "engine/model/blueprint.h"

#include <stdio.h>

/* `stored` values exist; a token uses `used` of them, `multiplied` of these in matrix products, and
 * `vectors` of these are norms and biases, which the engine keeps in F32, and `exact` are matrices
 * such as routers, of which it keeps a copy in F32 where products would round what they read. */
typedef struct tally {
    uint64_t stored, used, multiplied, vectors, exact;
    uint64_t attention, mlp, norms; /* part of `stored`; the rest is embedding and head */
} tally;

static void add_matrix(tally *t, uint64_t rows, uint64_t cols)
{
    t->stored += rows * cols;
    t->used += rows * cols;
    t->multiplied += rows * cols;
}

static void add_exact_matrix(tally *t, uint64_t rows, uint64_t cols)
{
    add_matrix(t, rows, cols);
    t->exact += rows * cols;
}

static void add_vector(tally *t, bool present, uint64_t count)
{
    if (!present) return;
    t->stored += count;
    t->used += count;
    t->vectors += count;
}

static void add_norm(tally *t, const pj_blueprint *b, uint64_t width)
{
    add_vector(t, true, pj_norms_have_bias(b) ? 2 * width : width);
}

/* Width of a layer's queries, and of its keys, which it may share with another layer. */
static uint64_t query_width(const pj_model_config *c, uint32_t layer)
{
    return (uint64_t)c->heads * pj_config_head_dim(c, layer);
}

static uint64_t key_width(const pj_model_config *c, uint32_t layer)
{
    return (uint64_t)pj_config_kv_heads(c, layer) * pj_config_head_dim(c, layer);
}

static void add_indexer(tally *t, const pj_model_config *c)
{
    uint64_t heads = c->indexer.heads, dim = c->indexer.dim;
    add_matrix(t, heads * dim, c->latent.query_rank);
    add_matrix(t, dim, c->hidden);
    add_exact_matrix(t, heads, c->hidden);
    add_vector(t, true, 2 * dim);
}

/* Multi-head latent attention. */
static void add_latent(tally *t, const pj_model_config *c, uint32_t layer)
{
    if (pj_config_has_indexer(c, layer)) add_indexer(t, c);
    uint64_t rank = c->latent.rank, low = c->latent.query_rank, heads = c->heads;
    uint64_t queries = heads * (c->latent.plain + c->latent.rotated);
    if (low) add_matrix(t, low, c->hidden);
    add_vector(t, low > 0, low);
    add_matrix(t, queries, low ? low : c->hidden);
    add_matrix(t, rank + c->latent.rotated, c->hidden);
    add_vector(t, true, rank);
    add_matrix(t, heads * (c->latent.plain + c->latent.value), rank);
    add_matrix(t, c->hidden, heads * c->latent.value);
    add_vector(t, c->attention_bias, low + rank + c->latent.rotated + c->hidden);
}

static void add_attention(tally *t, const pj_model_config *c, const pj_blueprint *b, uint32_t layer)
{
    if (c->latent.rank) {
        add_latent(t, c, layer);
        return;
    }
    bool own = pj_config_kv_source(c, layer) == layer;
    uint64_t q = query_width(c, layer), kv = own ? key_width(c, layer) : 0;
    uint64_t head_dim = pj_config_head_dim(c, layer);
    bool values = !(c->keys_are_values && !pj_config_is_windowed(c, layer));
    uint64_t rows = (b->output_gate ? 2 * q : q) + (values ? 2 : 1) * kv;
    add_matrix(t, rows, c->hidden);
    add_vector(t, pj_bias_wanted(b->qkv_bias, c), rows);
    add_matrix(t, c->hidden, q);
    add_vector(t, pj_bias_wanted(b->o_bias, c), c->hidden);
    add_vector(t, b->sinks, c->heads);
    add_vector(t, b->qk_norm == PJ_QK_NORM_HEAD && !b->qk_norm_plain && !c->without_qk_norm,
               (own ? 2 : 1) * (pj_norms_have_bias(b) ? 2 : 1) * head_dim);
    add_vector(t, b->qk_norm == PJ_QK_NORM_FULL, q + kv);
    add_vector(t, b->attended_norm != PJ_N_NONE, q);
}

/* Layers with the gated delta rule, a scan, or a short convolution. */
static void add_recurrence(tally *t, const pj_model_config *c)
{
    uint64_t keys = (uint64_t)c->linear.key_heads * c->linear.key_dim;
    uint64_t values = (uint64_t)c->linear.value_heads * c->linear.value_dim;
    if (c->linear.kind == PJ_SHORT_CONVOLUTION) {
        add_matrix(t, 3 * (uint64_t)c->hidden, c->hidden);
        add_matrix(t, c->hidden, c->hidden);
        add_vector(t, true, (uint64_t)c->hidden * (c->linear.kernel + c->linear.conv_bias));
        add_vector(t, c->linear.in_bias, 3 * (uint64_t)c->hidden);
        add_vector(t, c->linear.out_bias, c->hidden);
    } else if (c->linear.kind == PJ_SCAN) {
        add_matrix(t, 2 * keys + 2 * values + c->linear.value_heads, c->hidden);
        add_matrix(t, c->hidden, values);
        add_vector(t, true, (2 * keys + values) * (c->linear.kernel + c->linear.conv_bias));
        add_vector(t, c->linear.in_bias, 2 * keys + 2 * values + c->linear.value_heads);
        add_vector(t, c->linear.out_bias, c->hidden);
        add_vector(t, true, 3 * (uint64_t)c->linear.value_heads);
        add_vector(t, !c->linear.without_norm, values);
    }
}

/* Layers with the gated delta rule. */
static void add_linear_attention(tally *t, const pj_model_config *c)
{
    if (c->linear.kind != PJ_DELTA_RULE) {
        add_recurrence(t, c);
        return;
    }
    uint64_t keys = (uint64_t)c->linear.key_heads * c->linear.key_dim;
    uint64_t values = (uint64_t)c->linear.value_heads * c->linear.value_dim;
    add_matrix(t, 2 * keys + 2 * values + 2 * (uint64_t)c->linear.value_heads, c->hidden);
    add_matrix(t, c->hidden, values);
    add_vector(t, true, (2 * keys + values) * c->linear.kernel);
    add_vector(t, true, 2 * (uint64_t)c->linear.value_heads + c->linear.value_dim);
}

/* A block that reads and writes rows of `hidden`. */
static void add_block(tally *t, const pj_model_config *c, const pj_blueprint *b, uint64_t hidden,
                      uint64_t width, bool bias)
{
    uint64_t inputs = b->mlp == PJ_MLP_PLAIN ? 1 : 2;
    add_matrix(t, inputs * width, hidden);
    add_matrix(t, hidden, width);
    add_vector(t, bias, inputs * width + hidden);
    add_vector(t, b->act_norm != PJ_N_NONE, width);
    add_vector(t, c->xielu, 4);
}

static void add_mlp(tally *t, const pj_model_config *c, const pj_blueprint *b, uint64_t width)
{
    add_block(t, c, b, c->hidden, width, pj_bias_wanted(b->mlp_bias, c));
}

static void add_experts(tally *t, const pj_model_config *c, const pj_blueprint *b, uint32_t layer)
{
    tally one = {0};
    uint64_t chosen = pj_config_chosen(c, layer);
    add_block(&one, c, b, pj_config_expert_hidden(c), c->expert_intermediate,
              pj_expert_bias_wanted(b, c));
    if (c->expert_latent) {
        add_matrix(t, c->expert_latent, c->hidden);
        add_matrix(t, c->hidden, c->expert_latent);
        add_vector(t, pj_bias_wanted(b->mlp_bias, c), c->expert_latent + c->hidden);
    }
    t->stored += c->experts * one.stored;
    t->used += chosen * one.used;
    t->multiplied += chosen * one.multiplied;
    t->vectors += chosen * one.vectors;
    add_exact_matrix(t, c->experts, c->hidden); /* the router */
    add_vector(t, b->router_bias || c->router_correction, c->experts);
    /* Scales of the router's input and of each expert, and norms around both branches. */
    add_vector(t, b->parallel_experts, c->hidden + c->experts + 3 * (uint64_t)c->hidden);
    if (!b->shared_expert || !c->shared_intermediate) return;
    add_mlp(t, c, b, c->shared_intermediate);
    if (b->shared_gate) add_matrix(t, 1, c->hidden);
}

/* Gate, projection and norm of a layer's token vectors. */
static void add_token_input(tally *t, const pj_model_config *c)
{
    if (!c->token_vector) return;
    add_matrix(t, c->token_vector, c->hidden);
    add_matrix(t, c->hidden, c->token_vector);
    add_vector(t, true, c->hidden);
}

/* The token vectors: one row of the table is read, and all are projected. */
static void add_token_vectors(tally *t, const pj_model_config *c)
{
    uint64_t n = (uint64_t)c->layers * c->token_vector;
    if (!n) return;
    t->stored += c->token_vector_vocab * n;
    t->used += n;
    add_matrix(t, n, c->hidden);
    add_vector(t, true, c->token_vector);
}

/* Alternating updates of a layer: router, coefficients and scale, and the low-rank residual. */
static void add_streams(tally *t, const pj_model_config *c)
{
    uint64_t n = c->streams.count, rank = c->streams.residual_rank;
    if (!n) return;
    add_exact_matrix(t, n, c->hidden);
    t->multiplied += n * c->hidden; /* the router is used twice */
    add_exact_matrix(t, n * n, n);
    add_matrix(t, n, n);
    t->vectors += n * n; /* the coefficients of the correction are always F32 */
    add_matrix(t, rank, c->hidden);
    add_matrix(t, c->hidden, rank);
    add_vector(t, true, (c->streams.without_scale ? 2 : 3) * (uint64_t)c->hidden);
}

static bool has_experts(const pj_model_config *c, uint32_t layer)
{
    return c->experts > 0 && !(c->layer_is_dense && c->layer_is_dense[layer]);
}

static tally count(const pj_model_config *c)
{
    const pj_blueprint *b = pj_blueprint_get(c->arch);
    tally t = {0};
    for (uint32_t i = 0; i < c->layers; i++) {
        pj_halves halves = pj_config_halves(c, i);
        const pj_instrument_name norms[] = {halves != PJ_HALF_MLP ? b->attention_norm : PJ_N_NONE,
                                            halves != PJ_HALF_MLP ? b->attention_out_norm
                                                                  : PJ_N_NONE,
                                            halves != PJ_HALF_MIXER ? b->mlp_norm : PJ_N_NONE,
                                            halves != PJ_HALF_MIXER ? b->mlp_out_norm : PJ_N_NONE};
        uint64_t before = t.stored;
        for (size_t n = 0; n < sizeof norms / sizeof *norms; n++)
            if (norms[n]) add_norm(&t, b, c->hidden);
        t.norms += t.stored - before;
        before = t.stored;
        if (pj_config_is_linear(c, i)) add_linear_attention(&t, c);
        if (pj_config_attends(c, i)) add_attention(&t, c, b, i);
        t.attention += t.stored - before;
        before = t.stored;
        if (has_experts(c, i)) add_experts(&t, c, b, i);
        if (halves != PJ_HALF_MIXER && (!has_experts(c, i) || b->parallel_experts))
            add_mlp(&t, c, b, pj_config_mlp_width(c, i));
        add_token_input(&t, c);
        add_streams(&t, c);
        add_vector(&t, b->layer_scale, 1);
        t.mlp += t.stored - before;
    }
    add_token_vectors(&t, c);
    if (c->streams.count)
        add_matrix(&t, 2 * (uint64_t)c->hidden * (c->streams.count - 1), c->hidden);
    uint64_t before = t.stored;
    add_norm(&t, b, c->hidden);
    t.norms += t.stored - before;
    add_matrix(&t, c->vocab, c->hidden); /* the head */
    add_vector(&t, pj_bias_wanted(b->head_bias, c), c->vocab);
    return t;
}

static const char *attention_name(const pj_model_config *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->layers; i++) any |= pj_config_attends(c, i);
    if (!any) return "SSM";
    if (c->indexer.kept) return "DSA";
    if (c->latent.rank) return "MLA";
    if (c->kv_heads == c->heads) return "MHA";
    return c->kv_heads == 1 ? "MQA" : "GQA";
}

static uint64_t bytes_of(pj_dtype dtype, uint64_t values)
{
    const pj_dtype_info *info = pj_dtype_get(dtype);
    return values / info->block_values * info->block_bytes +
           values % info->block_values * info->block_bytes / info->block_values;
}

/* Scores, softmax and values of each pair, as the forward pass counts them. */
static void add_reach(pj_attention_work *w, const pj_model_config *c, uint32_t layer)
{
    uint32_t dim = pj_config_head_dim(c, layer), value = c->latent.rank ? c->latent.rank : dim;
    pj_attention_reach kind = c->indexer.kept                   ? PJ_ATTENTION_CHOSEN
                              : pj_config_is_windowed(c, layer) ? PJ_ATTENTION_WINDOW
                                                                : PJ_ATTENTION_FULL;
    double each = c->attention_softcap > 0 ? 13 : 7; /* scale, mask, softmax, cap */
    uint32_t planes = c->latent.rank ? 1 : 2;        /* latent values are part of the keys */
    w->flops[kind] += c->heads * (2.0 * (dim + value) + each);
    w->bytes[kind] += 2.0 * planes * (double)key_width(c, layer);
    if (!pj_config_has_indexer(c, layer)) return;
    w->flops[PJ_ATTENTION_INDEX] += c->indexer.heads * (2.0 * c->indexer.dim + 3) + 1;
    w->bytes[PJ_ATTENTION_INDEX] += 2.0 * c->indexer.dim;
}

static pj_attention_work attention_work_of(const pj_model_config *c)
{
    pj_attention_work w = {
        .window = c->window, .kept = c->indexer.kept, .chunks = c->window_is_chunk};
    for (uint32_t i = 0; i < c->layers; i++)
        if (pj_config_attends(c, i)) add_reach(&w, c, i);
    return w;
}

void pj_model_facts_fill(const pj_model_config *c, pj_dtype dtype, pj_model_facts *facts)
{
    tally t = count(c);
    uint64_t embedding = (uint64_t)c->vocab * c->hidden, table = c->tied_head ? 0 : embedding;
    /* Of tables a token reads a row; all of them count as active. */
    uint64_t vectors = (uint64_t)c->layers * c->token_vector * c->token_vector_vocab;
    uint64_t unread = table + vectors - (vectors ? (uint64_t)c->layers * c->token_vector : 0);
    uint64_t rest = t.stored - t.attention - t.mlp - t.norms; /* including the head's matrix */
    uint64_t exact = pj_linear_is_float32(pj_kernels_get(), dtype) ? 0 : t.exact;
    uint64_t kv = 0, q = 0, indexed = 0; /* over all layers */
    for (uint32_t i = 0; i < c->layers; i++) {
        if (!pj_config_attends(c, i)) continue;
        q += query_width(c, i);
        if (pj_config_kv_source(c, i) == i) kv += key_width(c, i);
        if (pj_config_has_indexer(c, i)) indexed++;
    }
    *facts = (pj_model_facts){
        .layers = c->layers,
        .hidden = c->hidden,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .vocab = c->vocab,
        .context = c->context,
        .experts = c->experts,
        .experts_per_token = c->experts_per_token,
        .window = c->window,
        .dtype = dtype,
        .parameters = t.stored + table,
        .attention_parameters = t.attention,
        .mlp_parameters = t.mlp,
        .norm_parameters = t.norms,
        .embedding_parameters = rest - (c->tied_head ? 0 : embedding) + table,
        .head_parameters = c->tied_head ? 0 : embedding,
        .active_parameters = t.used + unread,
        /* plus one row of the embedding */
        .decode_weight_bytes = bytes_of(dtype, t.used - t.vectors - exact + c->hidden) +
                               (t.vectors + exact) * sizeof(float),
        .flops_per_token = 2 * t.multiplied,
        .kv_bytes_per_token = (c->latent.rank ? 1 : 2) * 2 * kv + 2 * indexed * c->indexer.dim,
        .attention_flops_per_position =
            (c->latent.rank ? 2 * (q + q / c->head_dim * c->latent.rank) : 2 * 2 * q) +
            2 * indexed * c->indexer.heads * c->indexer.dim,
        .attention_work = attention_work_of(c),
    };
    snprintf(facts->arch, sizeof facts->arch, "%s", c->arch_name);
    snprintf(facts->attention, sizeof facts->attention, "%s", attention_name(c));
}

void pj_model_parts_json(const pj_model_facts *f, pj_json *json)
{
    pj_json_kv_object_begin(json, "parameters_by_part");
    pj_json_kv_uint(json, "attention", f->attention_parameters);
    pj_json_kv_uint(json, "mlp", f->mlp_parameters);
    pj_json_kv_uint(json, "norms", f->norm_parameters);
    pj_json_kv_uint(json, "embedding", f->embedding_parameters);
    pj_json_kv_uint(json, "head", f->head_parameters);
    pj_json_object_end(json);
}

void pj_model_facts_json(const pj_model_facts *f, pj_json *json)
{
    pj_json_kv_string(json, "architecture", f->arch);
    pj_json_kv_uint(json, "parameters", f->parameters);
    pj_json_kv_uint(json, "active_parameters", f->active_parameters);
    pj_json_kv_uint(json, "layers", f->layers);
    pj_json_kv_uint(json, "hidden_size", f->hidden);
    pj_json_kv_uint(json, "heads", f->heads);
    pj_json_kv_uint(json, "kv_heads", f->kv_heads);
    pj_json_kv_uint(json, "head_dim", f->head_dim);
    pj_json_kv_string(json, "attention", f->attention);
    pj_json_kv_uint(json, "experts", f->experts);
    pj_json_kv_uint(json, "experts_per_token", f->experts_per_token);
    pj_json_key(json, "window");
    if (f->window)
        pj_json_uint(json, f->window);
    else
        pj_json_null(json);
    pj_json_kv_uint(json, "context", f->context);
    pj_json_kv_uint(json, "vocab_size", f->vocab);
    pj_json_kv_string(json, "dtype", pj_dtype_get(f->dtype)->name);
    pj_json_kv_uint(json, "decode_weight_bytes", f->decode_weight_bytes);
    pj_json_kv_uint(json, "flops_per_token", f->flops_per_token);
    pj_json_kv_uint(json, "kv_bytes_per_token", f->kv_bytes_per_token);
    pj_json_kv_uint(json, "attention_flops_per_position", f->attention_flops_per_position);
    pj_attention_work_json(&f->attention_work, json);
}
