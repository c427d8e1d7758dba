/* Positions, the cache of keys and values, and attention over it. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <math.h>

/* ---- what the host knows of each row ---- */

/* Factor of queries by position, so that attention over a long context stays sharp. */
static float attention_query_scale(const pj_model_config *c, uint32_t position)
{
    if (c->query_beta == 0) return 1;
    double periods = floor(((double)position + c->query_first) / c->query_period);
    return (float)(1 + c->query_beta * log(1 + periods));
}

static void attention_write_row(const pj_gpu *s, uint32_t row)
{
    const pj_rows_of_pass *r = &s->rows;
    char *host = s->inputs.host.mapped;
    pj_vk_cache_row *rows = (pj_vk_cache_row *)(void *)(host + s->inputs.rows);
    uint32_t sequence = r->sequence[row], position = r->position[row], tokens = r->pass->tokens;
    rows[row] = (pj_vk_cache_row){position, sequence, r->sequences[sequence].base,
                                  attention_query_scale(&s->model->config, position)};
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        const pj_rope *rope = &s->model->ropes[i];
        float *cosine = (float *)(void *)(host + s->inputs.angles[i]);
        size_t pairs = rope->pairs;
        pj_rope_angles(rope, r->sequences[sequence].generation, position, cosine + row * pairs,
                       cosine + ((size_t)tokens + row) * pairs);
    }
}

void pj_gpu_angles(void *state)
{
    pj_gpu *s = state;
    pj_gpu_inputs *in = &s->inputs;
    if (s->dry) return;
    for (uint32_t row = 0; row < s->rows.pass->tokens; row++) attention_write_row(s, row);
    pj_gpu_touch(s, 0, PJ_GPU_BIT(PJ_GPU_IDS));
    pj_vk_copy(s->vk, &in->device, in->rows, &in->host, in->rows, in->bytes - in->rows);
}

/* ---- cache ---- */

/* The cache of a layer: keys of all heads of a sequence, then values, unless keys contain them. */
typedef struct attention_cache {
    uint64_t keys, values, sequence_bytes;
    uint32_t head_bytes, row_bytes;
} attention_cache;

static attention_cache attention_cache_of(const pj_gpu *s, const pj_layer *layer)
{
    const pj_layer *l = &s->model->layers[layer->kv_source];
    uint64_t row = pj_gpu_kv_row_bytes(s, l), head = row * pj_gpu_slots(s, l);
    uint64_t keys = pj_gpu_cache_at(s, l->index);
    uint64_t values = l->values_in_keys ? 0 : l->kv_heads * head;
    return (attention_cache){keys, keys + values, l->kv_heads * head + values, (uint32_t)head,
                             (uint32_t)row};
}

/* Whether queries and keys are still to be rotated when keys are stored. */
static bool attention_rotates(const pj_layer *l)
{
    return l->rope != PJ_NO_ROPE && !l->norm_rotated;
}

/* The work that the CPU records as `rope`, `query_scale` and `kv_append`. */
static void attention_end_rotation(pj_gpu *s, const pj_layer *l, pj_slice qkv)
{
    bool rotates = attention_rotates(l), scales = l->scales_queries;
    double rotated = rotates ? qkv.rows * pj_rotated_values(s->model, l) : 0;
    double scaled = scales ? (double)qkv.rows * l->heads * l->head_dim : 0;
    uint32_t heads = l->heads + (rotates && pj_layer_has_keys(l) ? l->kv_heads : 0);
    pj_slice changed = pj_slice_cols(qkv, 0, heads * l->head_dim);
    pj_gpu_operation_end(s, 3 * rotated + scaled,
                         8 * (rotated + scaled) + qkv.rows * pj_stored_bytes(l, s->options.kv_type),
                         rotates || scales ? changed : (pj_slice){0});
}

/* The rotation of queries and keys, if `rotates`. */
static pj_vk_rope_args attention_rope_args(const pj_gpu *s, const pj_layer *layer, pj_slice qkv,
                                           bool rotates)
{
    uint32_t index = layer->rope != PJ_NO_ROPE ? layer->rope : 0;
    const pj_rope *rope = &s->model->ropes[index];
    uint64_t angles = s->inputs.device.address + s->inputs.angles[index];
    return (pj_vk_rope_args){.qkv = pj_gpu_at(s, qkv),
                             .rows = s->inputs.device.address + s->inputs.rows,
                             .cosine = angles,
                             .sine = angles + 4ull * s->rows.pass->tokens * rope->pairs,
                             .heads = layer->heads,
                             .kv_heads = layer->kv_heads,
                             .dim = layer->head_dim,
                             .pairs = rotates ? rope->pairs : 0,
                             .qkv_stride = qkv.stride,
                             .first = rotates ? layer->rope_first : 0};
}

static pj_vk_rope_constants attention_rope_constants(const pj_gpu *s, const pj_layer *layer,
                                                     bool normed)
{
    return (pj_vk_rope_constants){
        .threads = PJ_GPU_HEAD_THREADS,
        .cache_type = s->options.kv_type,
        .norm = normed ? PJ_VK_NORM_RMS : PJ_VK_NORM_NONE,
        .neighbours = s->model->ropes[layer->rope != PJ_NO_ROPE ? layer->rope : 0].neighbours,
        .eps = (float)s->model->config.norm_eps};
}

void pj_gpu_rotate(void *state, const pj_layer *layer, pj_slice qkv)
{
    pj_gpu *s = state;
    double values = qkv.rows * pj_rotated_values(s->model, layer);
    uint32_t heads = layer->heads + (pj_layer_has_keys(layer) ? layer->kv_heads : 0);
    pj_vk_rope_constants constants = attention_rope_constants(s, layer, false);
    pj_vk_rope_args args = attention_rope_args(s, layer, qkv, true);
    if (layer->rope == PJ_NO_ROPE) return;
    pj_gpu_operation(s, PJ_N_OP_ROPE);
    pj_gpu_touch(s, pj_gpu_bit(qkv) | PJ_GPU_BIT(PJ_GPU_IDS), pj_gpu_bit(qkv));
    PJ_GPU_RUN(s, PJ_VK_ROPE, &constants, &args, heads, qkv.rows, 8ull * qkv.rows * qkv.cols);
    pj_gpu_operation_end(s, 3 * values, 8 * values, pj_slice_cols(qkv, 0, heads * layer->head_dim));
}

void pj_gpu_rotate_and_store(void *state, const pj_layer *layer, pj_slice qkv)
{
    pj_gpu *s = state;
    bool rotates = attention_rotates(layer), stores = pj_layer_has_keys(layer);
    attention_cache cache = attention_cache_of(s, layer);
    pj_gpu_head_norms norms = pj_gpu_take_head_norms(s);
    bool normed = norms.q || norms.k;
    if (!rotates && !stores && !normed && !layer->scales_queries) return;
    pj_vk_rope_constants constants = attention_rope_constants(s, layer, normed);
    pj_vk_rope_args args = attention_rope_args(s, layer, qkv, rotates);
    args.q_norm = pj_gpu_weight(&s->on->weights, norms.q);
    args.k_norm = pj_gpu_weight(&s->on->weights, norms.k);
    args.keys = cache.keys;
    args.values = cache.values;
    args.sequence_bytes = cache.sequence_bytes;
    args.head_bytes = cache.head_bytes;
    args.row_bytes = cache.row_bytes;
    args.windowed = pj_gpu_window(layer);
    args.scaled = layer->scales_queries;
    args.stores = stores;
    if (normed && s->instrument->module)
        pj_gpu_widen_component(s, norms.name, norms.flops, norms.bytes);
    pj_gpu_operation(s, rotates                 ? PJ_N_OP_ROPE
                        : layer->scales_queries ? PJ_N_OP_QUERY_SCALE
                                                : PJ_N_OP_KV_APPEND);
    pj_gpu_touch(s, pj_gpu_bit(qkv) | PJ_GPU_BIT(PJ_GPU_IDS),
                 pj_gpu_bit(qkv) | PJ_GPU_BIT(PJ_GPU_CACHE));
    PJ_GPU_RUN(s, PJ_VK_ROPE, &constants, &args,
               layer->heads + (stores ? pj_gpu_stored_heads(layer) : 0), qkv.rows,
               8ull * qkv.rows * qkv.cols);
    attention_end_rotation(s, layer, qkv);
}

/* ---- attention ---- */

enum {
    ATTEND_THREADS = 128,
    ATTEND_ROWS = 16,    /* query rows of a workgroup, at most */
    ATTEND_LANES = 32,   /* threads that share a row's values, at most */
    ATTEND_CHUNK = 128,  /* columns of keys in shared memory */
    ATTEND_SPLIT = 256,  /* least keys of a part */
    ATTEND_FEW_ROWS = 64 /* passes of more rows are not split: they fill the device */
};

/* Largest divisor of the heads of a group that a workgroup has room for. */
static uint32_t attend_heads(uint32_t group)
{
    uint32_t heads = group < ATTEND_ROWS ? group : ATTEND_ROWS;
    while (group % heads) heads--;
    return heads;
}

static uint32_t attend_lanes(uint32_t dim)
{
    uint32_t lanes = 1, quads = (dim + 3) / 4;
    while (lanes < quads && lanes < ATTEND_LANES) lanes *= 2;
    return lanes;
}

static uint32_t attend_most_keys(const pj_gpu *s, const pj_layer *l, uint32_t row, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = row; i < row + count; i++) {
        uint32_t seen = pj_layer_seen_keys(l, s->rows.position[i]);
        if (seen > most) most = seen;
    }
    return most;
}

/* Parts that a long context is divided into, so that few rows keep the whole device busy. */
static uint32_t attend_splits(const pj_gpu *s, const pj_layer *l, uint32_t row, uint32_t count)
{
    if (count > ATTEND_FEW_ROWS) return 1;
    uint32_t splits = pj_gpu_groups(attend_most_keys(s, l, row, count), ATTEND_SPLIT);
    return splits < s->most_splits ? splits : s->most_splits;
}

static uint32_t attend_split_keys(uint32_t keys, uint32_t splits)
{
    return pj_gpu_groups(pj_gpu_groups(keys, splits), 32) * 32; /* whole tiles */
}

uint64_t pj_gpu_split_bytes(const pj_state_options *options, const pj_model *model,
                            uint32_t *most_splits)
{
    enum { MOST_SPLITS = 64 };
    uint64_t most = 0,
             rows = options->max_tokens < ATTEND_FEW_ROWS ? options->max_tokens : ATTEND_FEW_ROWS;
    uint32_t splits = pj_gpu_groups(options->context, ATTEND_SPLIT);
    *most_splits = splits < MOST_SPLITS ? splits : MOST_SPLITS;
    for (uint32_t i = 0; i < model->config.layers; i++) {
        const pj_layer *l = &model->layers[i];
        uint64_t bytes =
            pj_layer_attends(l) ? 4 * rows * *most_splits * l->heads * (2 + l->head_dim) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* A run of rows; POSITIONS adjacent ones of a sequence share a workgroup. */
typedef struct attend_run {
    uint32_t row, count, positions;
    bool chosen; /* rows beyond a number of keys list what they see */
} attend_run;

static pj_vk_attention_args attend_args(const pj_gpu *s, const pj_layer *l, pj_slice qkv,
                                        pj_slice y, const attend_run *run)
{
    attention_cache cache = attention_cache_of(s, l);
    return (pj_vk_attention_args){
        .qkv = pj_gpu_at(s, qkv) + 4ull * run->row * qkv.stride,
        .rows = s->inputs.device.address + s->inputs.rows + run->row * sizeof(pj_vk_cache_row),
        .keys = cache.keys,
        .values = cache.values,
        .y = pj_gpu_at(s, y) + 4ull * run->row * y.stride,
        .sinks = pj_gpu_weight(&s->on->weights, l->sinks),
        .sequence_bytes = cache.sequence_bytes,
        .head_bytes = cache.head_bytes,
        .row_bytes = cache.row_bytes,
        .tokens = run->count,
        .heads = l->heads,
        .kv_heads = l->kv_heads,
        .qkv_stride = qkv.stride,
        .y_stride = y.stride,
        .window = l->window,
        .windowed = pj_gpu_window(l),
        .scale = l->score_scale,
        .cap = (float)s->model->config.attention_softcap,
        .kept = run->chosen ? l->indexer->kept : 0,
        .seen = run->chosen ? s->seen_keys + 4ull * run->row * l->indexer->kept : 0};
}

static void attend_merge(pj_gpu *s, const pj_layer *l, const pj_vk_attention_args *args, uint64_t y,
                         uint32_t splits)
{
    pj_vk_threads_constants constants = {PJ_GPU_HEAD_THREADS};
    pj_vk_attention_merge_args merge = {.parts = args->y,
                                        .y = y,
                                        .sinks = args->sinks,
                                        .heads = l->heads,
                                        .splits = splits,
                                        .dim = l->value_dim,
                                        .y_stride = args->y_stride};
    pj_vk_barrier(s->vk);
    PJ_GPU_RUN(s, PJ_VK_ATTENTION_MERGE, &constants, &merge, l->heads, args->tokens,
               4ull * args->tokens * l->heads * splits * l->value_dim);
}

static void attend_run_rows(pj_gpu *s, const pj_layer *l, pj_slice qkv, pj_slice y,
                            const attend_run *run)
{
    uint32_t group = l->heads / l->kv_heads, heads = attend_heads(group);
    uint32_t lanes = attend_lanes(l->value_dim), splits = attend_splits(s, l, run->row, run->count);
    uint32_t keys = attend_most_keys(s, l, run->row, run->count) + run->positions - 1;
    pj_vk_attention_constants constants = {.threads = ATTEND_THREADS,
                                           .cache_type = s->options.kv_type,
                                           .dim = l->head_dim,
                                           .heads = heads,
                                           .positions = run->positions,
                                           .lanes = lanes,
                                           .chunk = ATTEND_CHUNK,
                                           .split = splits > 1,
                                           .value_dim = l->value_dim,
                                           .chosen = run->chosen};
    pj_vk_attention_args args = attend_args(s, l, qkv, y, run);
    uint64_t to = args.y,
             work = (uint64_t)run->count * keys * args.row_bytes * pj_gpu_stored_heads(l);
    if (splits > 1) {
        args.y = s->parts.address;
        args.split_keys = attend_split_keys(keys, splits);
    }
    pj_gpu_run_3d(s, PJ_VK_ATTENTION, &constants, sizeof constants, &args, splits,
                  pj_vk_attention_groups(&constants, &args),
                  pj_gpu_groups(run->count, run->positions), work);
    if (splits > 1) attend_merge(s, l, &args, to, splits);
}

static void attend_run_segments(pj_gpu *s, const pj_layer *l, pj_slice qkv, pj_slice y)
{
    const pj_pass *pass = s->rows.pass;
    uint32_t positions = ATTEND_ROWS / attend_heads(l->heads / l->kv_heads);
    for (uint32_t i = 0; i < pass->segment_count; i++) {
        const pj_pass_segment *g = &pass->segments[i];
        if (i > 0) pj_vk_barrier(s->vk); /* parts of a split context are in one buffer */
        attend_run_rows(s, l, qkv, y, &(attend_run){g->row, g->count, positions, false});
    }
}

/* Figures of the weights, which were never stored. */
static void attend_describe(pj_gpu *s, const pj_layer *l, pj_slice qkv, pj_slice y, bool chosen)
{
    if (!s->instrument->deep) return;
    pj_vk_attention_args all =
        attend_args(s, l, qkv, y, &(attend_run){0, s->rows.pass->tokens, 1, chosen});
    pj_gpu_touch(s, pj_gpu_bit(qkv) | PJ_GPU_BIT(PJ_GPU_CACHE) | PJ_GPU_BIT(PJ_GPU_IDS), 0);
    pj_gpu_attention_figures(s, l, &all);
}

/* Decoding, and where each row sees keys of its own: every row by itself. Prefill: the rows of each
 * sequence in blocks. */
void pj_gpu_attend(void *state, const pj_layer *l, pj_slice qkv, pj_slice y,
                   const pj_attention_extent *extent)
{
    pj_gpu *s = state;
    const pj_pass *pass = s->rows.pass;
    bool chosen = pj_pass_chooses(l, s->rows.sequences, pass);
    pj_gpu_operation(s, PJ_N_OP_FUSED_ATTENTION);
    pj_gpu_touch(s,
                 pj_gpu_bit(qkv) | PJ_GPU_BIT(PJ_GPU_CACHE) | PJ_GPU_BIT(PJ_GPU_IDS) |
                     (chosen ? PJ_GPU_BIT(PJ_GPU_CHOICES) : 0),
                 pj_gpu_bit(y) | PJ_GPU_BIT(PJ_GPU_SCRATCH));
    if (chosen || pass->tokens == pass->segment_count)
        attend_run_rows(s, l, qkv, y, &(attend_run){0, pass->tokens, 1, chosen});
    else
        attend_run_segments(s, l, qkv, y);
    double kv_bytes = (double)pj_dtype_row_bytes(s->options.kv_type, 1);
    double each =
        s->model->config.attention_softcap > 0 ? 13 : 7; /* of scale, mask, softmax, cap */
    double values = (double)l->value_dim / l->head_dim;
    pj_gpu_operation_end(s, extent->pairs * (2.0 * (l->head_dim + (double)l->value_dim) + each),
                         (1 + values) * (extent->kv_floats * kv_bytes + 4 * extent->q_floats), y);
    attend_describe(s, l, qkv, y, chosen);
}
