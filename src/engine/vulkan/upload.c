/* Puts a model's weights into the device's memory, as they are stored, once. They lie in chunks, as
 * drivers limit the size of an allocation; a matrix is never cut. */
#include "engine/forward/work.h"
#include "engine/model/delta.h"
#include "engine/model/latent.h"
#include "engine/model/streams.h"
#include "engine/vulkan/gpu.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_ALIGNMENT = 256 };
static const uint64_t upload_chunk_bytes = 1ull << 30;

/* ---- what a model consists of ---- */

/* Collects copies to make. */
typedef struct upload_list {
    pj_gpu_weights *weights;
    bool full; /* out of memory */
} upload_list;

static void upload_add(upload_list *l, const void *host, uint64_t bytes)
{
    pj_gpu_weights *w = l->weights;
    if (!host || !bytes || l->full) return;
    pj_gpu_copy *grown = pj_grow(w->copies, w->count, &w->capacity, sizeof *grown);
    l->full = !grown;
    if (!grown) return;
    w->copies = grown;
    w->copies[w->count++] = (pj_gpu_copy){.host = host, .bytes = bytes};
}

static void upload_add_floats(upload_list *l, const float *values, uint64_t count)
{
    upload_add(l, values, count * sizeof *values);
}

/* As it lies on the device. */
static void upload_add_matrix(upload_list *l, const pj_matrix *m)
{
    const void *book;
    size_t before = l->weights->count;
    if (!m->data) return;
    upload_add(l, m->data,
               pj_vk_weight_book(m->type, &book) +
                   (uint64_t)m->rows * pj_vk_weight_row_bytes(m->type, m->cols));
    if (l->weights->count > before) l->weights->copies[before].matrix = *m;
}

static void upload_add_projection(upload_list *l, const pj_projection *p)
{
    upload_add_matrix(l, &p->w);
    if (p->w.data) upload_add_floats(l, p->bias, p->w.rows);
}

static void upload_add_norm(upload_list *l, const pj_norm *norm, uint64_t dims)
{
    upload_add_floats(l, norm->w, dims);
    upload_add_floats(l, norm->b, dims);
}

static void upload_add_mlp(upload_list *l, const pj_mlp *mlp)
{
    upload_add_projection(l, &mlp->gate);
    upload_add_projection(l, &mlp->up);
    upload_add_projection(l, &mlp->gate_up);
    upload_add_projection(l, &mlp->down);
    upload_add_norm(l, &mlp->act_norm, mlp->width);
    upload_add_floats(l, mlp->xielu, 4);
}

static void upload_add_delta(upload_list *l, const struct pj_delta *d)
{
    upload_add_projection(l, &d->qkv);
    upload_add_projection(l, &d->z);
    upload_add_projection(l, &d->b);
    upload_add_projection(l, &d->a);
    upload_add_projection(l, &d->out);
    upload_add_floats(l, d->conv, d->kernel * pj_delta_channels(d));
    upload_add_floats(l, d->rate, d->value_heads);
    upload_add_floats(l, d->bias, d->value_heads);
    upload_add_floats(l, d->norm, d->kind == PJ_SCAN ? pj_delta_values(d) : d->value_dim);
    upload_add_floats(l, d->conv_bias, pj_delta_channels(d));
    upload_add_floats(l, d->skip, d->value_heads);
}

static void upload_add_latent(upload_list *l, const struct pj_latent *m, uint32_t heads)
{
    upload_add_projection(l, &m->q_a);
    upload_add_norm(l, &m->q_a_norm, m->q_a.w.rows);
    upload_add_projection(l, &m->q);
    upload_add_projection(l, &m->kv_a);
    upload_add_norm(l, &m->kv_a_norm, m->kv_a.w.rows - m->rotated);
    for (uint32_t h = 0; h < heads; h++) {
        upload_add_projection(l, &m->keys[h]);
        upload_add_projection(l, &m->values[h]);
    }
}

static void upload_add_indexer(upload_list *l, const struct pj_indexer *m)
{
    upload_add_projection(l, &m->q);
    upload_add_projection(l, &m->k);
    upload_add_norm(l, &m->k_norm, m->dim);
    upload_add_projection(l, &m->weights);
}

static void upload_add_attention(upload_list *l, const pj_layer *layer, bool together)
{
    uint64_t dim = layer->head_dim;
    upload_add_projection(l, &layer->q);
    upload_add_projection(l, &layer->k);
    upload_add_projection(l, &layer->v);
    upload_add_projection(l, &layer->qkv);
    upload_add_projection(l, &layer->o);
    upload_add_floats(l, layer->sinks, layer->heads);
    if (layer->latent) upload_add_latent(l, layer->latent, layer->heads);
    if (pj_layer_has_indexer(layer)) upload_add_indexer(l, layer->indexer);
    upload_add_norm(l, &layer->q_norm, together ? dim * layer->heads : dim);
    upload_add_norm(l, &layer->k_norm, together ? dim * layer->kv_heads : dim);
    upload_add_norm(l, &layer->v_norm, dim);
    upload_add_norm(l, &layer->attended_norm, dim * layer->heads);
}

static void upload_add_streams(upload_list *l, const struct pj_streams *m, uint64_t hidden)
{
    upload_add_norm(l, &m->router_norm, hidden);
    upload_add_projection(l, &m->router);
    upload_add_projection(l, &m->predict);
    upload_add_projection(l, &m->correct);
    upload_add_floats(l, m->scale, hidden);
    upload_add_projection(l, &m->left);
    upload_add_projection(l, &m->right);
    upload_add_norm(l, &m->residual_norm, hidden);
}

static void upload_add_layer(upload_list *l, const pj_model *model, const pj_layer *layer)
{
    const pj_model_config *c = &model->config;
    const pj_norm *norms[] = {
        &layer->attention_norm,   &layer->attention_out_norm, &layer->mlp_norm,
        &layer->dense_out_norm,   &layer->router_norm,        &layer->experts_norm,
        &layer->experts_out_norm, &layer->mlp_out_norm,       &layer->token_norm};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        upload_add_norm(l, norms[i], c->hidden);
    if (layer->streams) upload_add_streams(l, layer->streams, c->hidden);
    if (layer->delta) upload_add_delta(l, layer->delta);
    if (pj_layer_attends(layer))
        upload_add_attention(l, layer, model->blueprint->qk_norm == PJ_QK_NORM_FULL);
    upload_add_mlp(l, &layer->mlp);
    upload_add_projection(l, &layer->router);
    upload_add_projection(l, &layer->expert_in);
    upload_add_projection(l, &layer->expert_out);
    for (uint32_t e = 0; layer->experts && e < c->experts; e++)
        upload_add_mlp(l, &layer->experts[e]);
    if (layer->experts) {
        upload_add_floats(l, layer->expert_scale, c->experts);
        upload_add_floats(l, layer->expert_correction, c->experts);
    }
    upload_add_mlp(l, &layer->shared);
    upload_add_projection(l, &layer->shared_gate);
    upload_add_projection(l, &layer->token_gate);
    upload_add_projection(l, &layer->token_projection);
}

static int upload_compare(const void *a, const void *b)
{
    const pj_gpu_copy *x = a, *y = b;
    return x->host < y->host ? -1 : x->host > y->host;
}

/* Sorted; a tied head is the embedding, once. */
static void upload_sort(pj_gpu_weights *w)
{
    size_t kept = 0;
    if (w->count) qsort(w->copies, w->count, sizeof *w->copies, upload_compare);
    for (size_t i = 0; i < w->count; i++) {
        if (kept && w->copies[kept - 1].host == w->copies[i].host) {
            if (w->copies[i].bytes > w->copies[kept - 1].bytes)
                w->copies[kept - 1].bytes = w->copies[i].bytes;
            continue;
        }
        w->copies[kept++] = w->copies[i];
    }
    w->count = kept;
}

static pj_status upload_collect(pj_gpu_weights *w, const pj_model *model, pj_error *err)
{
    upload_list l = {w, false};
    upload_add_matrix(&l, &model->embedding);
    upload_add_projection(&l, &model->head);
    upload_add_norm(&l, &model->final_norm, model->config.hidden);
    upload_add_matrix(&l, &model->token_embedding);
    upload_add_projection(&l, &model->token_projection);
    upload_add_norm(&l, &model->token_norm, model->config.token_vector);
    upload_add_norm(&l, &model->next_embedding_norm, model->config.hidden);
    upload_add_norm(&l, &model->next_hidden_norm, model->config.hidden);
    upload_add_projection(&l, &model->next_projection);
    for (uint32_t i = 0; i + 1 < model->config.streams.count; i++) {
        upload_add_projection(&l, &model->streams_in[i]);
        upload_add_projection(&l, &model->streams_out[i]);
    }
    for (uint32_t i = 0; i < model->config.layers; i++)
        upload_add_layer(&l, model, &model->layers[i]);
    if (l.full) return pj_fail_memory(err, "a list of weights");
    upload_sort(w);
    return PJ_OK;
}

uint64_t pj_gpu_weight(const pj_gpu_weights *weights, const void *host)
{
    size_t low = 0, high = weights->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (weights->copies[middle].host == host) return weights->copies[middle].address;
        if (weights->copies[middle].host < host)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* ---- chunks ---- */

static uint64_t upload_padded(uint64_t bytes)
{
    return (bytes + WEIGHTS_ALIGNMENT - 1) / WEIGHTS_ALIGNMENT * WEIGHTS_ALIGNMENT;
}

static pj_status upload_add_chunk(pj_gpu_weights *w, pj_vk *vk, uint64_t bytes, pj_error *err)
{
    pj_vk_buffer *grown = pj_grow(w->chunks, w->chunk_count, &w->chunk_capacity, sizeof *grown);
    if (!grown) return pj_fail_memory(err, "weights");
    w->chunks = grown;
    pj_status status = pj_vk_buffer_make(vk, PJ_VK_DEVICE, bytes, "a part of the model's weights",
                                         &w->chunks[w->chunk_count], err);
    if (status == PJ_OK) w->chunk_count++;
    return status;
}

/* How many copies from `first` on share a chunk, and its size. */
static size_t upload_fill_chunk(const pj_gpu_weights *w, size_t first, uint64_t *bytes)
{
    size_t end = first;
    *bytes = 0;
    do {
        *bytes += upload_padded(w->copies[end++].bytes);
    } while (end < w->count && *bytes + upload_padded(w->copies[end].bytes) <= upload_chunk_bytes);
    return end;
}

typedef struct upload_task {
    pj_gpu_weights *weights;
    pj_vk *vk;
    const pj_load_request *request;
    uint64_t done; /* bytes */
} upload_task;

static void upload_report(const upload_task *u)
{
    pj_progress *progress = u->request->progress;
    if (!progress || !u->weights->bytes) return;
    uint32_t total = atomic_load(&progress->total);
    double share = (double)u->done / (double)u->weights->bytes;
    atomic_store(&progress->done, (uint32_t)(share * total));
}

static bool upload_cancelled(const upload_task *u)
{
    const _Atomic bool *cancel = u->request->cancel;
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

/* Rows that lie otherwise on the device than in the file, some at a time. */
static pj_status upload_repacked(const upload_task *u, const pj_vk_buffer *chunk, uint64_t offset,
                                 const pj_matrix *m, pj_error *err)
{
    enum { BLOCK_BYTES = 1 << 20 };
    size_t row_bytes = pj_vk_weight_row_bytes(m->type, m->cols), n = BLOCK_BYTES / row_bytes + 1;
    unsigned char *rows = pj_alloc(n, row_bytes);
    pj_status status = rows ? PJ_OK : pj_fail_memory(err, "rows of weights");
    for (size_t first = 0; first < m->rows && status == PJ_OK; first += n) {
        size_t count = m->rows - first < n ? m->rows - first : n;
        const unsigned char *stored = (const unsigned char *)m->data + first * m->row_bytes;
        for (size_t i = 0; i < count; i++)
            pj_vk_weight_row(m->type, stored + i * m->row_bytes, m->cols, rows + i * row_bytes);
        status = pj_vk_upload_part(u->vk, chunk, offset + first * row_bytes, rows,
                                   count * row_bytes, err);
    }
    pj_free(rows);
    return status;
}

/* A matrix after its codebook, where its type has one. */
static pj_status upload_one(const upload_task *u, const pj_vk_buffer *chunk, uint64_t offset,
                            pj_gpu_copy *copy, pj_error *err)
{
    const pj_matrix *m = &copy->matrix;
    const void *book = NULL;
    size_t before = m->data ? pj_vk_weight_book(m->type, &book) : 0;
    copy->address = chunk->address + offset + before;
    if (m->data && pj_vk_weight_type(m->type) != (uint32_t)m->type)
        return upload_repacked(u, chunk, offset, m, err);
    if (before) {
        pj_status status = pj_vk_upload_part(u->vk, chunk, offset, book, before, err);
        if (status != PJ_OK) return status;
    }
    return pj_vk_upload_part(u->vk, chunk, offset + before, copy->host, copy->bytes - before, err);
}

static pj_status upload_chunk(upload_task *u, size_t first, size_t end, pj_error *err)
{
    pj_gpu_weights *w = u->weights;
    const pj_vk_buffer *chunk = &w->chunks[w->chunk_count - 1];
    uint64_t offset = 0;
    for (size_t i = first; i < end; i++) {
        pj_gpu_copy *copy = &w->copies[i];
        if (upload_cancelled(u)) return pj_fail(err, PJ_E_CANCELLED, "cancelled");
        pj_status status = upload_one(u, chunk, offset, copy, err);
        if (status != PJ_OK) return status;
        offset += upload_padded(copy->bytes);
        u->done += copy->bytes;
        upload_report(u);
    }
    return pj_vk_wait(u->vk, err);
}

static pj_status upload_check_room(const pj_gpu_weights *w, const pj_vk *vk, pj_error *err)
{
    uint64_t free = pj_vk_memory_free(vk);
    if (w->bytes <= free) return PJ_OK;
    return pj_fail(err, PJ_E_NO_MEMORY,
                   "the model's weights take %.2f GB, and %s has %.2f GB free of %.2f GB",
                   (double)w->bytes / 1e9, pj_vk_device(vk)->name, (double)free / 1e9,
                   (double)pj_vk_device(vk)->memory_bytes / 1e9);
}

static pj_status upload_copy(pj_gpu_weights *w, pj_vk *vk, const pj_load_request *request,
                             pj_error *err)
{
    upload_task u = {w, vk, request, 0};
    for (size_t i = 0; i < w->count; i++) w->bytes += upload_padded(w->copies[i].bytes);
    pj_status status = upload_check_room(w, vk, err);
    for (size_t i = 0; i < w->count && status == PJ_OK;) {
        uint64_t bytes;
        size_t end = upload_fill_chunk(w, i, &bytes);
        status = upload_add_chunk(w, vk, bytes, err);
        if (status == PJ_OK) status = upload_chunk(&u, i, end, err);
        i = end;
    }
    return status;
}

/* ---- experts ---- */

enum { WEIGHTS_TABLES = 6 };

static void upload_fill_tables(const pj_gpu_weights *w, const pj_layer *layer, uint32_t experts,
                               uint64_t *tables)
{
    for (uint32_t e = 0; e < experts; e++) {
        const pj_mlp *mlp = &layer->experts[e];
        const void *hosts[WEIGHTS_TABLES] = {mlp->gate.w.data, mlp->gate.bias,   mlp->up.w.data,
                                             mlp->up.bias,     mlp->down.w.data, mlp->down.bias};
        for (int i = 0; i < WEIGHTS_TABLES; i++)
            tables[(size_t)i * experts + e] = pj_gpu_weight(w, hosts[i]);
    }
}

static pj_status upload_load_tables(pj_gpu_weights *w, pj_vk *vk, const pj_layer *layer,
                                    uint32_t experts, pj_error *err)
{
    uint64_t count = (uint64_t)WEIGHTS_TABLES * experts, bytes = count * sizeof(uint64_t);
    uint64_t *tables = pj_alloc(count, sizeof *tables);
    if (!tables) return pj_fail_memory(err, "tables of experts");
    upload_fill_tables(w, layer, experts, tables);
    pj_status status = upload_add_chunk(w, vk, bytes, err);
    if (status == PJ_OK)
        status = pj_vk_upload(vk, &w->chunks[w->chunk_count - 1], 0, tables, bytes, err);
    if (status == PJ_OK) {
        uint64_t at[WEIGHTS_TABLES];
        for (int i = 0; i < WEIGHTS_TABLES; i++) {
            uint64_t first = tables[(size_t)i * experts];
            at[i] = first ? w->chunks[w->chunk_count - 1].address + 8ull * i * experts : 0;
        }
        w->experts[layer->index] = (pj_gpu_expert_tables){at[0], at[1], at[2], at[3], at[4], at[5]};
    }
    pj_free(tables);
    return status;
}

static pj_status upload_load_experts(pj_gpu_weights *w, pj_vk *vk, const pj_model *model,
                                     pj_error *err)
{
    const pj_model_config *c = &model->config;
    w->experts = pj_alloc(c->layers, sizeof *w->experts);
    if (!w->experts) return pj_fail_memory(err, "tables of experts");
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < c->layers && status == PJ_OK; i++)
        if (model->layers[i].experts)
            status = upload_load_tables(w, vk, &model->layers[i], c->experts, err);
    return status;
}

/* ---- heads of latent attention ---- */

static pj_status upload_load_head_table(pj_gpu_weights *w, pj_vk *vk, const pj_layer *layer,
                                        pj_error *err)
{
    uint32_t heads = layer->heads;
    uint64_t bytes = heads * (2 * sizeof(uint64_t) + sizeof(uint32_t));
    uint64_t *tables = pj_alloc(1, bytes);
    if (!tables) return pj_fail_memory(err, "tables of heads");
    uint32_t *all = (uint32_t *)(tables + 2 * (size_t)heads);
    for (uint32_t h = 0; h < heads; h++) {
        tables[h] = pj_gpu_weight(w, layer->latent->keys[h].w.data);
        tables[heads + h] = pj_gpu_weight(w, layer->latent->values[h].w.data);
        all[h] = h;
    }
    pj_status status = upload_add_chunk(w, vk, bytes, err);
    if (status == PJ_OK) {
        const pj_vk_buffer *chunk = &w->chunks[w->chunk_count - 1];
        status = pj_vk_upload(vk, chunk, 0, tables, bytes, err);
        w->heads[layer->index] = (pj_gpu_head_tables){chunk->address, chunk->address + 8ull * heads,
                                                      chunk->address + 16ull * heads};
    }
    pj_free(tables);
    return status;
}

static pj_status upload_load_heads(pj_gpu_weights *w, pj_vk *vk, const pj_model *model,
                                   pj_error *err)
{
    uint32_t layers = model->config.layers;
    if (!model->config.latent.rank) return PJ_OK;
    w->heads = pj_alloc(layers, sizeof *w->heads);
    if (!w->heads) return pj_fail_memory(err, "tables of heads");
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < layers && status == PJ_OK; i++)
        if (model->layers[i].latent) status = upload_load_head_table(w, vk, &model->layers[i], err);
    return status;
}

/* ---- */

pj_status pj_gpu_weights_load(pj_gpu_weights *weights, pj_vk *vk, const pj_load_request *request,
                              pj_error *err)
{
    *weights = (pj_gpu_weights){0};
    pj_status status = upload_collect(weights, request->model, err);
    weights->begin_ns = pj_clock_ns();
    if (status == PJ_OK) status = upload_copy(weights, vk, request, err);
    if (status == PJ_OK) status = upload_load_experts(weights, vk, request->model, err);
    if (status == PJ_OK) status = upload_load_heads(weights, vk, request->model, err);
    weights->end_ns = pj_clock_ns();
    if (status != PJ_OK) pj_gpu_weights_free(weights, vk);
    return status;
}

void pj_gpu_weights_free(pj_gpu_weights *weights, pj_vk *vk)
{
    pj_vk_wait(vk, NULL); /* uploads that were cancelled read staging buffers */
    for (size_t i = 0; i < weights->chunk_count; i++) pj_vk_buffer_free(vk, &weights->chunks[i]);
    pj_free(weights->chunks);
    pj_free(weights->copies);
    pj_free(weights->experts);
    pj_free(weights->heads);
    *weights = (pj_gpu_weights){0};
}
