/* The indexer of sparse attention (engine/model/latent.h): its rotation and cache of keys, scores,
 * and the keys that each row sees. Some rows are scored at a time, so that their scores stay small.
 */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

enum { INDEX_THREADS = 128, INDEX_CHUNK = 128, INDEX_CHOOSERS = 256 };

/* With `chooses` the queries too, else the key alone. */
static void indexer_rotate(pj_gpu *s, const pj_layer *l, pj_slice index, bool chooses,
                           const pj_index_work *work)
{
    const struct pj_indexer *m = l->indexer;
    bool rotates = l->rope != PJ_NO_ROPE;
    uint32_t name = rotates ? l->rope : 0, heads = chooses ? m->heads : 0;
    const pj_rope *rope = &s->model->ropes[name];
    uint64_t angles = s->inputs.device.address + s->inputs.angles[name];
    uint64_t sequence_bytes = pj_gpu_index_bytes(s, l);
    pj_slice turned = pj_slice_cols(index, chooses ? 0 : m->heads * m->dim, (heads + 1) * m->dim);
    pj_vk_rope_constants constants = {.threads = PJ_GPU_HEAD_THREADS,
                                      .cache_type = s->options.kv_type,
                                      .norm = PJ_VK_NORM_NONE,
                                      .neighbours = m->neighbours};
    pj_vk_rope_args args = {.qkv = pj_gpu_at(s, turned),
                            .rows = s->inputs.device.address + s->inputs.rows,
                            .cosine = angles,
                            .sine = angles + 4ull * s->rows.pass->tokens * rope->pairs,
                            .keys = pj_gpu_index_at(s, l->index),
                            .sequence_bytes = sequence_bytes,
                            .head_bytes = (uint32_t)sequence_bytes,
                            .row_bytes = (uint32_t)pj_dtype_row_bytes(s->options.kv_type, m->dim),
                            .heads = heads,
                            .kv_heads = 1,
                            .dim = m->dim,
                            .pairs = rotates ? rope->pairs : 0,
                            .qkv_stride = index.stride,
                            .stores = 1};
    pj_gpu_operation(s, rotates ? PJ_N_OP_ROPE : PJ_N_OP_KV_APPEND);
    pj_gpu_touch(s, pj_gpu_bit(index) | PJ_GPU_BIT(PJ_GPU_IDS),
                 pj_gpu_bit(index) | PJ_GPU_BIT(PJ_GPU_CACHE));
    PJ_GPU_RUN(s, PJ_VK_ROPE, &constants, &args, heads + 1, index.rows,
               8ull * index.rows * turned.cols);
    pj_gpu_operation_end(s, 3 * work->rotated, 8 * work->rotated + work->stored, turned);
}

/* Rows that are scored at once, and what of them is. */
typedef struct index_wave {
    uint32_t begin, rows, most; /* most: keys of a row */
    double pairs, kept;
} index_wave;

static index_wave indexer_wave(const pj_gpu *s, const struct pj_indexer *m, uint32_t begin,
                               uint32_t end)
{
    uint32_t left = end - begin;
    index_wave w = {.begin = begin, .rows = left < s->index_rows ? left : s->index_rows};
    for (uint32_t row = begin; row < begin + w.rows; row++) {
        uint32_t keys = s->rows.position[row] + 1;
        if (keys <= m->kept) continue;
        if (keys > w.most) w.most = keys;
        w.pairs += keys;
        w.kept += m->kept;
    }
    return w;
}

static void indexer_score(pj_gpu *s, const pj_layer *l, pj_slice index, const index_wave *w,
                          const pj_index_work *all)
{
    const struct pj_indexer *m = l->indexer;
    uint32_t row_bytes = (uint32_t)pj_dtype_row_bytes(s->options.kv_type, m->dim);
    pj_vk_index_scores_constants constants = {INDEX_THREADS, s->options.kv_type, m->dim,
                                              INDEX_CHUNK};
    pj_vk_index_scores_args args = {.index = pj_gpu_at(s, index) + 4ull * w->begin * index.stride,
                                    .rows = s->inputs.device.address + s->inputs.rows +
                                            w->begin * sizeof(pj_vk_cache_row),
                                    .keys = pj_gpu_index_at(s, l->index),
                                    .scores = s->index_scores,
                                    .sequence_bytes = pj_gpu_index_bytes(s, l),
                                    .row_bytes = row_bytes,
                                    .heads = m->heads,
                                    .index_stride = index.stride,
                                    .scores_stride = s->options.context,
                                    .kept = m->kept,
                                    .scale = m->scale};
    double floats = w->rows * (m->heads * (m->dim + 1.0));
    pj_gpu_operation(s, PJ_N_OP_INDEX_SCORES);
    pj_gpu_touch(s, pj_gpu_bit(index) | PJ_GPU_BIT(PJ_GPU_CACHE) | PJ_GPU_BIT(PJ_GPU_IDS),
                 PJ_GPU_BIT(PJ_GPU_CHOICES));
    PJ_GPU_RUN(s, PJ_VK_INDEX_SCORES, &constants, &args, pj_gpu_groups(w->most, PJ_VK_INDEX_KEYS),
               w->rows, (uint64_t)w->rows * w->most * row_bytes);
    pj_gpu_operation_end(s, w->pairs * m->heads * (2.0 * m->dim + 3),
                         w->pairs / all->pairs * all->keys * row_bytes + 4 * (floats + w->pairs),
                         (pj_slice){0});
}

static void indexer_choose(pj_gpu *s, const struct pj_indexer *m, const index_wave *w)
{
    pj_vk_threads_constants constants = {INDEX_CHOOSERS};
    pj_vk_index_choose_args args = {.rows = s->inputs.device.address + s->inputs.rows +
                                            w->begin * sizeof(pj_vk_cache_row),
                                    .scores = s->index_scores,
                                    .seen = s->seen_keys + 4ull * w->begin * m->kept,
                                    .scores_stride = s->options.context,
                                    .kept = m->kept};
    pj_gpu_operation(s, PJ_N_OP_TOP_K);
    pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_IDS), PJ_GPU_BIT(PJ_GPU_CHOICES));
    PJ_GPU_RUN(s, PJ_VK_INDEX_CHOOSE, &constants, &args, w->rows, 1,
               20ull * w->rows * w->most); /* scores are read five times */
    pj_gpu_operation_end(s, w->pairs, 4 * (w->pairs + w->kept), (pj_slice){0});
}

void pj_gpu_choose_keys(void *state, const pj_layer *layer, pj_slice index, bool chooses)
{
    pj_gpu *s = state;
    const pj_rows_of_pass *r = &s->rows;
    pj_index_work work =
        pj_index_work_of(s->model, layer, r->pass, r->sequences, s->options.kv_type);
    indexer_rotate(s, layer, index, chooses, &work);
    for (uint32_t begin = 0; chooses && begin < index.rows;) {
        index_wave w = indexer_wave(s, layer->indexer, begin, index.rows);
        if (w.most) {
            indexer_score(s, layer, index, &w, &work);
            indexer_choose(s, layer->indexer, &w);
        }
        begin += w.rows;
    }
}
