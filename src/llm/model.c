/* Loads a model. One walk over the blueprint names every tensor; the source of a matrix (the
 * checkpoint's mapping, a conversion of it, or a random generator) is decided in one place, so that
 * a synthetic model has exactly the tensors of a checkpoint of its shape. */
#include "llm/model.h"

#include "base/file.h"
#include "llm/delta.h"
#include "llm/kernels/linear.h"
#include "llm/model_check.h"
#include "llm/pages.h"
#include "llm/row_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 160, SLAB_BYTES = 256 << 20, MATRIX_ALIGNMENT = 64 };

/* A large block, from which matrices are allocated consecutively. Untouched pages cost nothing. */
typedef struct pj_slab {
    struct pj_slab *next;
    unsigned char *data;
    size_t bytes, used;
} pj_slab;

/* Embedding and head use 8 bits where layers have 4. */
typedef enum role { ROLE_LAYER, ROLE_TABLE } role;

typedef struct loader {
    pj_model *model;
    pj_team *team;
    const pj_kernels *kernels;
    int dtype;          /* requested type, -1: as stored */
    pj_dtype synthetic; /* type of synthetic weights */
    uint32_t matrices;  /* created so far: the random generator's stream number */
    bool check;         /* check names and shapes only, without conversion */
    pj_error *err;
} loader;

/* ---- memory ------------------------------------------------------------------------------- */

static unsigned char *take_bytes(pj_model *model, size_t bytes)
{
    pj_slab *slab = model->slabs;
    bytes = (bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
    if (!slab || slab->bytes - slab->used < bytes) {
        size_t size = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
        slab = pj_arena_alloc(&model->arena, 1, sizeof *slab);
        if (!slab || !(slab->data = pj_pages_alloc(size))) return NULL;
        slab->bytes = size;
        slab->next = model->slabs;
        model->slabs = slab;
    }
    unsigned char *block = slab->data + slab->used;
    slab->used += bytes;
    return block;
}

static void *small_alloc(loader *l, size_t count, size_t size)
{
    void *block = pj_arena_alloc(&l->model->arena, count, size);
    if (!block) pj_fail_memory(l->err, "the model's tables");
    return block;
}

/* ---- matrices ----------------------------------------------------------------------------- */

/* Job of the threads: fill `to` row by row. */
typedef struct fill {
    const pj_kernels *kernels;
    pj_team *team;
    const pj_matrix *from;       /* one of these, */
    const pj_row_source *source; /* or neither: random */
    pj_matrix *to;
    uint32_t matrix;
    float scale;
    float *scratch; /* [threads, cols] */
} fill;

static void fill_rows(void *context, unsigned thread)
{
    const fill *f = context;
    size_t cols = f->to->cols, begin, end;
    float *row = f->scratch + thread * cols;
    pj_team_share(f->team, thread, f->to->rows, 1, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        unsigned char *out = (unsigned char *)(uintptr_t)f->to->data + r * f->to->row_bytes;
        if (f->source && f->source->copy && f->to->type == f->source->type) {
            f->source->copy(f->source, r, out);
            continue;
        }
        if (f->source) {
            f->source->read(f->source, r, row);
        } else if (f->from) {
            const unsigned char *stored = f->from->data;
            f->kernels->dequantise(f->from->type, stored + r * f->from->row_bytes, row, cols);
        } else {
            pj_synthetic_row(f->matrix, r, row, cols, f->scale);
        }
        f->kernels->quantise(f->to->type, row, out, cols);
    }
}

/* A new matrix of `type`, converted from `from` or `source`, or random if both are NULL. */
static pj_status fill_matrix(loader *l, const char *name, pj_dtype type, const pj_matrix *from,
                             const pj_row_source *source, size_t rows, size_t cols, pj_matrix *to)
{
    size_t row_bytes = pj_dtype_row_bytes(type, cols), bytes;
    if (row_bytes == 0 || pj_mul_overflows(rows, row_bytes, &bytes))
        return pj_fail(l->err, PJ_E_INVALID, "%s is too large: %zu x %zu", name, rows, cols);
    if (l->check) {
        *to = (pj_matrix){from ? from->data : l->model, type, rows, cols, row_bytes};
        return PJ_OK;
    }
    unsigned char *data = take_bytes(l->model, bytes);
    size_t threads = pj_team_threads(l->team);
    float *scratch = data ? pj_alloc(threads * cols, sizeof(float)) : NULL;
    if (!scratch) return pj_fail_memory(l->err, name);
    *to = (pj_matrix){data, type, rows, cols, row_bytes};
    fill f = {.kernels = l->kernels,
              .team = l->team,
              .from = from,
              .source = source,
              .to = to,
              .matrix = l->matrices,
              .scale = sqrtf(3.0f / (float)cols), /* uniform within +-scale: variance 1 / cols */
              .scratch = scratch};
    pj_team_run(l->team, fill_rows, &f);
    pj_free(scratch);
    return PJ_OK;
}

static pj_status make_matrix(loader *l, const char *name, pj_dtype type, const pj_matrix *from,
                             size_t rows, size_t cols, pj_matrix *to)
{
    return fill_matrix(l, name, type, from, NULL, rows, cols, to);
}

static pj_dtype wanted_type(const loader *l, role use, pj_dtype stored, size_t cols)
{
    int type = l->dtype < 0 ? (int)stored : l->dtype;
    if (type == PJ_Q4_0 && use == ROLE_TABLE) type = PJ_Q8_0;
    /* rows that are not a multiple of the block size keep their type */
    return pj_dtype_row_bytes((pj_dtype)type, cols) ? (pj_dtype)type : stored;
}

/* Converts `stored` to the type that the model uses, if different. */
static pj_status adopt(loader *l, const char *name, role use, const pj_matrix *stored,
                       pj_matrix *out)
{
    pj_dtype type = wanted_type(l, use, stored->type, stored->cols);
    *out = *stored;
    if (type == stored->type) return PJ_OK;
    return make_matrix(l, name, type, stored, stored->rows, stored->cols, out);
}

static pj_status adopt_rows(loader *l, const char *name, const pj_row_source *source, size_t rows,
                            pj_matrix *out)
{
    pj_dtype type = wanted_type(l, ROLE_LAYER, source->type, source->cols);
    return fill_matrix(l, name, type, NULL, source, rows, source->cols, out);
}

enum { E4M3_BLOCK = 128 };

static size_t blocks_of(size_t count)
{
    return (count + E4M3_BLOCK - 1) / E4M3_BLOCK;
}

/* Derives the block that shares a scale from the scales' shape: everything, a row, or a square
 * block. */
static bool e4m3_blocks(const pj_tensor *scales, size_t rows, size_t cols, size_t *block_rows,
                        size_t *block_cols)
{
    size_t a = scales->rank > 0 ? (size_t)scales->shape[0] : 1;
    size_t b = scales->rank > 1 ? (size_t)scales->shape[1] : 1;
    if (scales->rank > 2) return false;
    *block_rows = a == 1 ? rows : a == rows ? 1 : E4M3_BLOCK;
    *block_cols = b == 1 ? cols : E4M3_BLOCK;
    if (a == 1 && b == 1) return true;
    if (a == rows && b == 1) return true;
    *block_rows = *block_cols = E4M3_BLOCK;
    return a == blocks_of(rows) && b == blocks_of(cols);
}

/* 8-bit floats with scales in "weight_scale_inv" or "weight_scale" next to "weight". */
static pj_status load_e4m3(loader *l, const char *name, const pj_tensor *tensor, role use,
                           size_t rows, size_t cols, pj_matrix *out)
{
    char scale_name[NAME_BYTES + 16];
    size_t block_rows, block_cols, count = 1;
    pj_dtype type, wanted = wanted_type(l, use, PJ_BF16, cols);
    if (tensor->rank != 2 || tensor->shape[0] != rows || tensor->shape[1] != cols)
        return pj_fail(l->err, PJ_E_INVALID, "%s should be [%zu, %zu] and is not", name, rows,
                       cols);
    snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
    const pj_tensor *scales = pj_checkpoint_find(l->model->checkpoint, scale_name);
    if (!scales) {
        snprintf(scale_name, sizeof scale_name, "%s_scale", name);
        scales = pj_checkpoint_find(l->model->checkpoint, scale_name);
    }
    if (!scales)
        return pj_fail(l->err, PJ_E_INVALID, "%s has 8-bit floats but no scale tensor", name);
    bool right = pj_file_dtype(scales->type, &type) && pj_dtype_get(type)->block_values == 1 &&
                 e4m3_blocks(scales, rows, cols, &block_rows, &block_cols);
    if (!right)
        return pj_fail(l->err, PJ_E_UNSUPPORTED,
                       "%s is neither one scale, nor one for each row, nor one for each block of "
                       "128 x 128",
                       scale_name);
    for (uint32_t i = 0; i < scales->rank; i++) count *= (size_t)scales->shape[i];
    float *values = small_alloc(l, count, sizeof *values);
    if (!values) return PJ_E_NO_MEMORY;
    l->kernels->dequantise(type, scales->data, values, count);
    pj_row_source source = pj_rows_e4m3(tensor->data, values, cols, block_rows, block_cols,
                                        (cols + block_cols - 1) / block_cols);
    return fill_matrix(l, name, wanted, NULL, &source, rows, cols, out);
}

static pj_status load_matrix(loader *l, const char *name, role use, size_t rows, size_t cols,
                             pj_matrix *out)
{
    l->matrices++;
    if (!l->model->checkpoint) {
        pj_dtype plain = pj_dtype_row_bytes(l->synthetic, cols) ? l->synthetic : PJ_BF16;
        return make_matrix(l, name, wanted_type(l, use, plain, cols), NULL, rows, cols, out);
    }
    pj_matrix stored;
    const pj_tensor *tensor = pj_checkpoint_find(l->model->checkpoint, name);
    if (tensor && tensor->type == PJ_FILE_E4M3)
        return load_e4m3(l, name, tensor, use, rows, cols, out);
    pj_status status =
        pj_checkpoint_matrix(l->model->checkpoint, name, rows, cols, &stored, l->err);
    return status ? status : adopt(l, name, use, &stored, out);
}

/* A vector as floats; synthetic models use `fallback` everywhere. */
static pj_status load_vector(loader *l, const char *name, size_t count, float fallback,
                             const float **out)
{
    pj_matrix stored = {0};
    if (l->model->checkpoint) {
        pj_status status =
            pj_checkpoint_matrix(l->model->checkpoint, name, count, 0, &stored, l->err);
        if (status) return status;
    }
    float *values = small_alloc(l, count, sizeof *values);
    if (!values) return PJ_E_NO_MEMORY;
    if (stored.data)
        l->kernels->dequantise(stored.type, stored.data, values, count);
    else
        for (size_t i = 0; i < count; i++) values[i] = fallback;
    *out = values;
    return PJ_OK;
}

static pj_status load_linear(loader *l, const char *prefix, const char *part, size_t rows,
                             size_t cols, bool bias, pj_projection *out)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
    pj_status status = load_matrix(l, name, ROLE_LAYER, rows, cols, &out->w);
    if (status || !bias) return status;
    snprintf(name, sizeof name, "%s.%s.bias", prefix, part);
    return load_vector(l, name, rows, 0, &out->bias);
}

/* A projection recorded as its own component. */
static pj_status load_component(loader *l, const char *prefix, pj_seam_name part, size_t rows,
                                size_t cols, bool bias, pj_projection *out)
{
    out->name = part;
    return load_linear(l, prefix, pj_seam_text(part), rows, cols, bias, out);
}

/* Norm weights stored as w - 1 need 1 added; GGUF files store the sum. */
static bool adds_one(const pj_model *m)
{
    return m->blueprint->norm_adds_one && m->checkpoint && !pj_checkpoint_gguf(m->checkpoint);
}

static void add_one(float *w, size_t count)
{
    for (size_t i = 0; i < count; i++) w[i] += 1;
}

/* PJ_N_NONE: the architecture has no such norm. */
static pj_status load_norm(loader *l, const char *prefix, pj_seam_name part, size_t count,
                           bool bias, pj_norm *out)
{
    char name[NAME_BYTES];
    out->name = part;
    if (part == PJ_N_NONE) return PJ_OK;
    snprintf(name, sizeof name, "%s.%s.weight", prefix, pj_seam_text(part));
    pj_status status = load_vector(l, name, count, 1, &out->w);
    if (!status && adds_one(l->model)) add_one((float *)(uintptr_t)out->w, count);
    if (status || !bias) return status;
    snprintf(name, sizeof name, "%s.%s.bias", prefix, pj_seam_text(part));
    return load_vector(l, name, count, 0, &out->b);
}

static bool has_tensor(const loader *l, const char *prefix, const char *part)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    return l->model->checkpoint && pj_checkpoint_find(l->model->checkpoint, name);
}

/* ---- layers ------------------------------------------------------------------------------- */

/* Rows [first, first + rows) of `whole`. */
static pj_matrix matrix_rows(const pj_matrix *whole, size_t first, size_t rows)
{
    pj_matrix part = *whole;
    part.data = (const unsigned char *)whole->data + first * whole->row_bytes;
    part.rows = rows;
    return part;
}

static pj_projection projection_rows(const pj_projection *whole, size_t first, size_t rows,
                                     pj_seam_name name)
{
    return (pj_projection){.w = matrix_rows(&whole->w, first, rows),
                           .bias = whole->bias ? whole->bias + first : NULL,
                           .name = name};
}

/* Some files fuse matrices that are separate in the architecture: the parts are rows of the
 * whole. */
static pj_status load_split_qkv(loader *l, const char *attn, size_t q_rows, size_t kv_rows,
                                bool bias, pj_layer *layer)
{
    pj_projection whole = {0};
    pj_status status = load_linear(l, attn, "qkv_proj", q_rows + 2 * kv_rows,
                                   l->model->config.hidden, bias, &whole);
    if (status) return status;
    layer->q = projection_rows(&whole, 0, q_rows, PJ_N_Q_PROJ);
    layer->k = projection_rows(&whole, q_rows, kv_rows, PJ_N_K_PROJ);
    layer->v = projection_rows(&whole, q_rows + kv_rows, kv_rows, PJ_N_V_PROJ);
    return PJ_OK;
}

static pj_status load_qkv(loader *l, const char *attn, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    size_t q = (size_t)layer->heads * layer->head_dim,
           kv = (size_t)layer->kv_heads * layer->head_dim;
    bool bias = pj_bias_wanted(b->qkv_bias, c);
    if (b->fused_qkv)
        return load_component(l, attn, PJ_N_QKV_PROJ, q + 2 * kv, c->hidden, bias, &layer->qkv);
    if (has_tensor(l, attn, "qkv_proj.weight")) return load_split_qkv(l, attn, q, kv, bias, layer);
    size_t q_rows = layer->output_gate ? 2 * q : q;
    pj_status status = load_component(l, attn, PJ_N_Q_PROJ, q_rows, c->hidden, bias, &layer->q);
    if (layer->kv_source != layer->index) return status;
    if (!status) status = load_component(l, attn, PJ_N_K_PROJ, kv, c->hidden, bias, &layer->k);
    if (!status && !layer->keys_are_values)
        status = load_component(l, attn, PJ_N_V_PROJ, kv, c->hidden, bias, &layer->v);
    return status;
}

/* RMSNorm of values without weights. */
static pj_status make_plain_norm(loader *l, size_t count, pj_norm *out)
{
    float *ones = small_alloc(l, count, sizeof *ones);
    if (!ones) return PJ_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) ones[i] = 1;
    *out = (pj_norm){.w = ones, .name = PJ_N_V_NORM};
    return PJ_OK;
}

static pj_status load_qk_norms(loader *l, const char *attn, pj_layer *layer)
{
    pj_qk_norm kind = l->model->blueprint->qk_norm;
    bool full = kind == PJ_QK_NORM_FULL;
    size_t q = full ? (size_t)layer->heads * layer->head_dim : layer->head_dim;
    size_t k = full ? (size_t)layer->kv_heads * layer->head_dim : layer->head_dim;
    if (kind == PJ_QK_NORM_NONE) return PJ_OK;
    pj_status status = load_norm(l, attn, PJ_N_Q_NORM, q, false, &layer->q_norm);
    if (layer->kv_source != layer->index) return status;
    if (!status && l->model->blueprint->v_norm) status = make_plain_norm(l, k, &layer->v_norm);
    return status ? status : load_norm(l, attn, PJ_N_K_NORM, k, false, &layer->k_norm);
}

/* GGUF files append ".weight" to every name. */
static pj_status load_sinks(loader *l, const char *attn, pj_layer *layer)
{
    char name[NAME_BYTES];
    bool gguf = l->model->checkpoint && pj_checkpoint_gguf(l->model->checkpoint);
    snprintf(name, sizeof name, "%s.sinks%s", attn, gguf ? ".weight" : "");
    return load_vector(l, name, layer->heads, 0, &layer->sinks);
}

static pj_status load_attention(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    size_t q_rows = (size_t)layer->heads * layer->head_dim;
    char attn[NAME_BYTES];
    snprintf(attn, sizeof attn, "%s.self_attn", prefix);
    pj_status status = load_qkv(l, attn, layer);
    if (!status)
        status = load_component(l, attn, b->o, c->hidden, q_rows, pj_bias_wanted(b->o_bias, c),
                                &layer->o);
    if (!status) status = load_qk_norms(l, attn, layer);
    return status || !b->sinks ? status : load_sinks(l, attn, layer);
}

/* Loads the parts by kind of block; parts of a named block are separate components. */
static pj_status load_mlp(loader *l, const char *prefix, uint32_t width, pj_mlp_kind kind,
                          pj_mlp *mlp)
{
    const pj_model_config *c = &l->model->config;
    const pj_blueprint *b = l->model->blueprint;
    bool bias = pj_bias_wanted(b->mlp_bias, c);
    size_t f = mlp->width = width, d = c->hidden;
    pj_status status = PJ_OK;
    if (kind == PJ_MLP_GATED_FUSED)
        status = load_component(l, prefix, PJ_N_GATE_UP_PROJ, 2 * f, d, bias, &mlp->gate_up);
    if (kind == PJ_MLP_GATED)
        status = load_component(l, prefix, PJ_N_GATE_PROJ, f, d, bias, &mlp->gate);
    if (!status && kind != PJ_MLP_GATED_FUSED)
        status = load_component(l, prefix, b->up, f, d, bias, &mlp->up);
    if (!status) status = load_component(l, prefix, b->down, d, f, bias, &mlp->down);
    return status;
}

/* The block belongs to another component: its parts are operations of that one. */
static void unname(pj_mlp *mlp)
{
    mlp->gate.name = mlp->up.name = mlp->gate_up.name = mlp->down.name = PJ_N_NONE;
}

/* All experts in one tensor [experts, rows, cols], as in newer files. */
static pj_status find_fused(loader *l, const char *prefix, const char *part, size_t rows,
                            size_t cols, pj_matrix *out)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    const pj_tensor *tensor = pj_checkpoint_find(l->model->checkpoint, name);
    size_t experts = l->model->config.experts;
    if (!tensor) return pj_fail(l->err, PJ_E_INVALID, "%s is missing", name);
    if (tensor->rank != 3 || tensor->shape[0] != experts || tensor->shape[1] != rows ||
        tensor->shape[2] != cols)
        return pj_fail(l->err, PJ_E_INVALID, "%s should be [%zu, %zu, %zu] and is not", name,
                       experts, rows, cols);
    pj_dtype type;
    if (!pj_file_dtype(tensor->type, &type))
        return pj_fail(l->err, PJ_E_UNSUPPORTED, "%s holds %s, which is no type of weights", name,
                       pj_file_type_name(tensor->type));
    *out = (pj_matrix){tensor->data, type, experts * rows, cols, pj_dtype_row_bytes(type, cols)};
    return PJ_OK;
}

static pj_status load_fused_experts(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate;
    pj_matrix gate_up, down;
    pj_status status = find_fused(l, prefix, "gate_up_proj", 2 * f, c->hidden, &gate_up);
    if (!status) status = find_fused(l, prefix, "down_proj", c->hidden, f, &down);
    for (uint32_t e = 0; !status && e < c->experts; e++) {
        pj_mlp *mlp = &layer->experts[e];
        pj_matrix gate = matrix_rows(&gate_up, 2 * f * e, f);
        pj_matrix up = matrix_rows(&gate_up, 2 * f * e + f, f);
        pj_matrix out = matrix_rows(&down, (size_t)c->hidden * e, c->hidden);
        mlp->width = c->expert_intermediate;
        status = adopt(l, prefix, ROLE_LAYER, &gate, &mlp->gate.w);
        if (!status) status = adopt(l, prefix, ROLE_LAYER, &up, &mlp->up.w);
        if (!status) status = adopt(l, prefix, ROLE_LAYER, &out, &mlp->down.w);
    }
    return status;
}

/* Biases of all experts, [experts][count]; takes the values first, first + step, ... of each. */
static pj_status load_expert_biases(loader *l, const char *prefix, const char *part, size_t count,
                                    size_t first, size_t step, const float **biases)
{
    char name[NAME_BYTES];
    pj_matrix stored;
    size_t experts = l->model->config.experts;
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    pj_status status =
        pj_checkpoint_matrix(l->model->checkpoint, name, experts, count * step, &stored, l->err);
    if (status) return status;
    float *values = small_alloc(l, experts * count, sizeof *values);
    float *row = values ? pj_alloc(count * step, sizeof *row) : NULL;
    if (!row) return pj_fail_memory(l->err, name);
    for (size_t e = 0; e < experts; e++) {
        l->kernels->dequantise(stored.type, (const char *)stored.data + e * stored.row_bytes, row,
                               count * step);
        for (size_t i = 0; i < count; i++) values[e * count + i] = row[first + i * step];
    }
    pj_free(row);
    *biases = values;
    return PJ_OK;
}

/* gpt-oss: rows of gate and up alternate. */
static pj_status load_interleaved_biases(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const float *gates, *ups, *downs;
    size_t f = c->expert_intermediate;
    pj_status status = load_expert_biases(l, prefix, "gate_up_proj_bias", f, 0, 2, &gates);
    if (!status) status = load_expert_biases(l, prefix, "gate_up_proj_bias", f, 1, 2, &ups);
    if (!status) status = load_expert_biases(l, prefix, "down_proj_bias", c->hidden, 0, 1, &downs);
    for (uint32_t e = 0; !status && e < c->experts; e++) {
        layer->experts[e].gate.bias = gates + e * f;
        layer->experts[e].up.bias = ups + e * f;
        layer->experts[e].down.bias = downs + (size_t)e * c->hidden;
    }
    return status;
}

/* Row sources for gate, up and down of one expert. */
typedef struct expert_sources {
    pj_row_source gate, up, down;
} expert_sources;

static pj_status adopt_expert(loader *l, const char *name, const expert_sources *from, pj_mlp *mlp)
{
    const pj_model_config *c = &l->model->config;
    size_t f = mlp->width = c->expert_intermediate;
    pj_status status = adopt_rows(l, name, &from->gate, f, &mlp->gate.w);
    if (!status) status = adopt_rows(l, name, &from->up, f, &mlp->up.w);
    return status ? status : adopt_rows(l, name, &from->down, c->hidden, &mlp->down.w);
}

/* Unquantised gpt-oss: [experts, in, out], gate and up interleaved. */
static pj_status load_interleaved_experts(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate, hidden = c->hidden;
    pj_matrix in, out;
    pj_status status = find_fused(l, prefix, "gate_up_proj", hidden, 2 * f, &in);
    if (!status) status = find_fused(l, prefix, "down_proj", f, hidden, &out);
    for (uint32_t e = 0; !status && e < c->experts; e++) {
        pj_matrix both = matrix_rows(&in, e * hidden, hidden), down = matrix_rows(&out, e * f, f);
        expert_sources from = {
            pj_rows_transposed(both.data, both.type, hidden, both.row_bytes, 0, 2),
            pj_rows_transposed(both.data, both.type, hidden, both.row_bytes, 1, 2),
            pj_rows_transposed(down.data, down.type, f, down.row_bytes, 0, 1)};
        status = adopt_expert(l, prefix, &from, &layer->experts[e]);
    }
    return status ? status : load_interleaved_biases(l, prefix, layer);
}

/* A byte tensor [experts, rows, cols / 32], with a fourth dimension of 16 for blocks. */
static pj_status find_mxfp4(loader *l, const char *prefix, const char *part, size_t rows,
                            size_t cols, bool blocks, const unsigned char **data)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    const pj_tensor *t = pj_checkpoint_find(l->model->checkpoint, name);
    uint64_t want[4] = {l->model->config.experts, rows, cols / 32, 16};
    uint32_t rank = blocks ? 4 : 3;
    if (!t) return pj_fail(l->err, PJ_E_INVALID, "%s is missing", name);
    bool right = cols % 32 == 0 && t->type == PJ_FILE_U8 && t->rank == rank &&
                 memcmp(t->shape, want, rank * sizeof *want) == 0;
    if (!right)
        return pj_fail(l->err, PJ_E_INVALID, "%s should be bytes [%zu, %zu, %zu%s] and is not",
                       name, (size_t)want[0], rows, (size_t)want[2], blocks ? ", 16" : "");
    *data = t->data;
    return PJ_OK;
}

/* gpt-oss as published. */
static pj_status load_mxfp4_experts(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate, d = c->hidden;
    const unsigned char *in, *in_scales, *out, *out_scales;
    pj_status status = find_mxfp4(l, prefix, "gate_up_proj_blocks", 2 * f, d, true, &in);
    if (!status) status = find_mxfp4(l, prefix, "gate_up_proj_scales", 2 * f, d, false, &in_scales);
    if (!status) status = find_mxfp4(l, prefix, "down_proj_blocks", d, f, true, &out);
    if (!status) status = find_mxfp4(l, prefix, "down_proj_scales", d, f, false, &out_scales);
    for (size_t e = 0; !status && e < c->experts; e++) {
        expert_sources from = {pj_rows_mxfp4(in, in_scales, d, 2 * f * e, 2),
                               pj_rows_mxfp4(in, in_scales, d, 2 * f * e + 1, 2),
                               pj_rows_mxfp4(out, out_scales, f, d * e, 1)};
        status = adopt_expert(l, prefix, &from, &layer->experts[e]);
    }
    return status ? status : load_interleaved_biases(l, prefix, layer);
}

static pj_status load_stacked_biases(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    const float *gates, *ups, *downs;
    size_t f = c->expert_intermediate;
    pj_status status = load_expert_biases(l, prefix, "gate_proj.bias", f, 0, 1, &gates);
    if (!status) status = load_expert_biases(l, prefix, "up_proj.bias", f, 0, 1, &ups);
    if (!status) status = load_expert_biases(l, prefix, "down_proj.bias", c->hidden, 0, 1, &downs);
    for (uint32_t e = 0; !status && e < c->experts; e++) {
        layer->experts[e].gate.bias = gates + e * f;
        layer->experts[e].up.bias = ups + e * f;
        layer->experts[e].down.bias = downs + (size_t)e * c->hidden;
    }
    return status;
}

/* Each of the three matrices of all experts in one tensor, as in GGUF files. */
static pj_status load_stacked_experts(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t f = c->expert_intermediate;
    pj_matrix gates, ups, downs;
    pj_status status = find_fused(l, prefix, "gate_proj.weight", f, c->hidden, &gates);
    if (!status) status = find_fused(l, prefix, "up_proj.weight", f, c->hidden, &ups);
    if (!status) status = find_fused(l, prefix, "down_proj.weight", c->hidden, f, &downs);
    for (uint32_t e = 0; !status && e < c->experts; e++) {
        pj_mlp *mlp = &layer->experts[e];
        pj_matrix gate = matrix_rows(&gates, f * e, f), up = matrix_rows(&ups, f * e, f);
        pj_matrix out = matrix_rows(&downs, (size_t)c->hidden * e, c->hidden);
        mlp->width = c->expert_intermediate;
        status = adopt(l, prefix, ROLE_LAYER, &gate, &mlp->gate.w);
        if (!status) status = adopt(l, prefix, ROLE_LAYER, &up, &mlp->up.w);
        if (!status) status = adopt(l, prefix, ROLE_LAYER, &out, &mlp->down.w);
    }
    bool bias = pj_bias_wanted(l->model->blueprint->mlp_bias, c);
    return status || !bias ? status : load_stacked_biases(l, prefix, layer);
}

/* One expert, in either of its two spellings. */
static pj_status load_expert(loader *l, const char *prefix, uint32_t expert, pj_mlp *mlp)
{
    static const char *const spellings[2][3] = {{"gate_proj", "up_proj", "down_proj"},
                                                {"w1", "w3", "w2"}};
    const pj_model_config *c = &l->model->config;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", prefix, expert);
    const char *const *part = spellings[has_tensor(l, name, "w1.weight")];
    size_t f = mlp->width = c->expert_intermediate;
    bool bias = pj_bias_wanted(l->model->blueprint->mlp_bias, c);
    pj_status status = load_linear(l, name, part[0], f, c->hidden, bias, &mlp->gate);
    if (!status) status = load_linear(l, name, part[1], f, c->hidden, bias, &mlp->up);
    if (!status) status = load_linear(l, name, part[2], c->hidden, f, bias, &mlp->down);
    return status;
}

/* The router's product is computed in float32 whatever its weights' type: rounded activations would
 * send tokens with close scores to other experts. */
static pj_status load_router(loader *l, const char *prefix, const char *part, pj_projection *out)
{
    const pj_model_config *c = &l->model->config;
    pj_projection read = {0};
    pj_status status = load_linear(l, prefix, part, c->experts, c->hidden,
                                   l->model->blueprint->router_bias, &read);
    *out = read; /* unnamed: its component, the router, also selects */
    if (status || pj_linear_form(l->kernels, read.w.type) == PJ_FORM_F32) return status;
    return make_matrix(l, prefix, PJ_F32, &read.w, c->experts, c->hidden, &out->w);
}

/* Loads the experts in whichever form the file has. */
static pj_status load_some_experts(loader *l, const char *prefix, pj_layer *layer)
{
    pj_status status = PJ_OK;
    if (has_tensor(l, prefix, "gate_up_proj_blocks")) return load_mxfp4_experts(l, prefix, layer);
    if (has_tensor(l, prefix, "gate_up_proj_bias"))
        return load_interleaved_experts(l, prefix, layer);
    if (has_tensor(l, prefix, "gate_up_proj")) return load_fused_experts(l, prefix, layer);
    if (has_tensor(l, prefix, "gate_proj.weight")) return load_stacked_experts(l, prefix, layer);
    for (uint32_t e = 0; !status && e < l->model->config.experts; e++)
        status = load_expert(l, prefix, e, &layer->experts[e]);
    return status;
}

static pj_status load_experts(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    char block[NAME_BYTES], experts[NAME_BYTES + 16];
    snprintf(block, sizeof block, "%s.%s", prefix,
             has_tensor(l, prefix, "block_sparse_moe.gate.weight") ? "block_sparse_moe" : "mlp");
    snprintf(experts, sizeof experts, "%s.experts", block);
    layer->experts = small_alloc(l, c->experts, sizeof *layer->experts);
    if (!layer->experts) return PJ_E_NO_MEMORY;
    const char *router = has_tensor(l, block, "router.weight") ? "router" : "gate";
    pj_status status = load_router(l, block, router, &layer->router);
    if (!status) status = load_some_experts(l, experts, layer);
    if (status || !l->model->blueprint->shared_expert) return status;
    char shared[NAME_BYTES + 16];
    snprintf(shared, sizeof shared, "%s.shared_expert", block);
    status = load_mlp(l, shared, c->shared_intermediate, PJ_MLP_GATED, &layer->shared);
    unname(&layer->shared);
    if (!status)
        status =
            load_linear(l, block, "shared_expert_gate", 1, c->hidden, false, &layer->shared_gate);
    return status;
}

static uint32_t rope_of(const pj_model *m, uint32_t index)
{
    const pj_model_config *c = &m->config;
    if (c->layer_rotates && !c->layer_rotates[index]) return PJ_NO_ROPE;
    return c->window_rope.dims && c->layer_is_windowed && c->layer_is_windowed[index] ? 1 : 0;
}

/* ---- the gated delta rule ----------------------------------------------------------------- */

/* The convolution's weights [channels][1][kernel], transposed to one row of channels per input. */
static pj_status load_convolution(loader *l, const char *prefix, struct pj_delta *d)
{
    char name[NAME_BYTES];
    size_t channels = pj_delta_channels(d), count = channels * d->kernel;
    float *rows = small_alloc(l, count, sizeof *rows), *values = rows;
    if (!rows) return PJ_E_NO_MEMORY;
    d->conv = rows;
    for (size_t i = 0; i < count; i++) rows[i] = 0.5f / (float)d->kernel;
    if (!l->model->checkpoint) return PJ_OK;
    snprintf(name, sizeof name, "%s.conv1d.weight", prefix);
    const pj_tensor *t = pj_checkpoint_find(l->model->checkpoint, name);
    pj_dtype type;
    bool right = t && pj_file_dtype(t->type, &type) && t->rank >= 2 && t->shape[0] == channels &&
                 t->shape[t->rank - 1] == d->kernel &&
                 (t->rank == 2 || (t->rank == 3 && t->shape[1] == 1)) &&
                 pj_dtype_get(type)->block_values == 1;
    if (!right)
        return pj_fail(l->err, PJ_E_INVALID, "%s should be floats [%zu, 1, %u] and is not", name,
                       channels, d->kernel);
    values = pj_alloc(count, sizeof *values);
    if (!values) return pj_fail_memory(l->err, name);
    l->kernels->dequantise(type, t->data, values, count);
    for (size_t c = 0; c < channels; c++)
        for (uint32_t j = 0; j < d->kernel; j++) rows[j * channels + c] = values[c * d->kernel + j];
    pj_free(values);
    return PJ_OK;
}

/* GGUF files store -e^A_log, others A_log. */
static pj_status load_rates(loader *l, const char *prefix, struct pj_delta *d)
{
    char name[NAME_BYTES];
    bool gguf = l->model->checkpoint && pj_checkpoint_gguf(l->model->checkpoint);
    snprintf(name, sizeof name, "%s.A_log%s", prefix, gguf ? ".weight" : "");
    pj_status status = load_vector(l, name, d->value_heads, 0, &d->rate);
    float *rates = (float *)(uintptr_t)d->rate;
    for (uint32_t i = 0; !status && i < d->value_heads; i++)
        rates[i] = gguf ? -rates[i] : expf(rates[i]);
    if (status) return status;
    snprintf(name, sizeof name, "%s.dt_bias%s", prefix, gguf ? ".bias" : "");
    return load_vector(l, name, d->value_heads, 1, &d->bias);
}

static pj_status load_delta(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    struct pj_delta *d = layer->delta = small_alloc(l, 1, sizeof *d);
    char linear[NAME_BYTES], name[NAME_BYTES + 16];
    size_t hidden = c->hidden;
    if (!d) return PJ_E_NO_MEMORY;
    *d = (struct pj_delta){.key_heads = c->linear.key_heads,
                           .value_heads = c->linear.value_heads,
                           .key_dim = c->linear.key_dim,
                           .value_dim = c->linear.value_dim,
                           .kernel = c->linear.kernel,
                           .tiled =
                               l->model->checkpoint && pj_checkpoint_gguf(l->model->checkpoint)};
    size_t channels = pj_delta_channels(d), values = pj_delta_values(d);
    snprintf(linear, sizeof linear, "%s.linear_attn", prefix);
    pj_status status =
        load_component(l, linear, PJ_N_IN_PROJ_QKV, channels, hidden, false, &d->qkv);
    if (!status) status = load_component(l, linear, PJ_N_IN_PROJ_Z, values, hidden, false, &d->z);
    if (!status)
        status = load_component(l, linear, PJ_N_IN_PROJ_B, d->value_heads, hidden, false, &d->b);
    if (!status)
        status = load_component(l, linear, PJ_N_IN_PROJ_A, d->value_heads, hidden, false, &d->a);
    if (!status) status = load_component(l, linear, PJ_N_OUT_PROJ, hidden, values, false, &d->out);
    if (!status) status = load_convolution(l, linear, d);
    if (!status) status = load_rates(l, linear, d);
    snprintf(name, sizeof name, "%s.norm.weight", linear);
    return status ? status : load_vector(l, name, d->value_dim, 1, &d->norm);
}

/* Layer properties from the configuration. */
static void shape_layer(const pj_model *m, uint32_t index, pj_layer *layer)
{
    const pj_model_config *c = &m->config;
    layer->index = index;
    layer->heads = c->heads;
    layer->kv_heads = pj_config_kv_heads(c, index);
    layer->head_dim = pj_config_head_dim(c, index);
    layer->output_gate = m->blueprint->output_gate;
    layer->kv_source = pj_config_kv_source(c, index);
    layer->keys_are_values = c->keys_are_values && !pj_config_is_windowed(c, index);
    layer->scale = 1;
    layer->window = pj_config_is_windowed(c, index) ? c->window : UINT32_MAX;
    layer->rope = rope_of(m, index);
    layer->score_scale =
        c->score_scale > 0 ? (float)c->score_scale : 1.0f / sqrtf((float)layer->head_dim);
}

/* Gemma 4: a router with its own norm and scales, and norms around both branches. */
static pj_status load_experts_beside(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    char name[NAME_BYTES];
    size_t d = c->hidden;
    layer->experts = small_alloc(l, c->experts, sizeof *layer->experts);
    if (!layer->experts) return PJ_E_NO_MEMORY;
    snprintf(name, sizeof name, "%s.router", prefix);
    pj_status status = load_router(l, name, "proj", &layer->router);
    snprintf(name, sizeof name, "%s.router.scale", prefix);
    if (!status) status = load_vector(l, name, d, 1, &layer->router_norm.w);
    for (size_t i = 0; !status && i < d; i++)
        ((float *)(uintptr_t)layer->router_norm.w)[i] *= 1.0f / sqrtf((float)d);
    layer->router_norm.name = PJ_N_ROUTER_NORM;
    snprintf(name, sizeof name, "%s.router.per_expert_scale", prefix);
    if (!status) status = load_vector(l, name, c->experts, 1, &layer->expert_scale);
    snprintf(name, sizeof name, "%s.experts", prefix);
    if (!status) status = load_some_experts(l, name, layer);
    if (!status)
        status = load_norm(l, prefix, PJ_N_POST_FEEDFORWARD_LAYERNORM_1, d, false,
                           &layer->dense_out_norm);
    if (!status)
        status =
            load_norm(l, prefix, PJ_N_PRE_FEEDFORWARD_LAYERNORM_2, d, false, &layer->experts_norm);
    if (!status)
        status = load_norm(l, prefix, PJ_N_POST_FEEDFORWARD_LAYERNORM_2, d, false,
                           &layer->experts_out_norm);
    return status;
}

static pj_status load_feed_forward(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    bool dense = c->experts == 0 || (c->layer_is_dense && c->layer_is_dense[layer->index]);
    char mlp[NAME_BYTES];
    snprintf(mlp, sizeof mlp, "%s.mlp", prefix);
    bool beside = l->model->blueprint->experts_beside;
    if (!dense && !beside) return load_experts(l, prefix, layer);
    pj_status status = load_mlp(l, mlp, pj_config_mlp_width(c, layer->index),
                                l->model->blueprint->mlp, &layer->mlp);
    return status || dense ? status : load_experts_beside(l, prefix, layer);
}

/* The layer's token vector weights and output scale. */
static pj_status load_token_input(loader *l, const char *prefix, pj_layer *layer)
{
    const pj_model_config *c = &l->model->config;
    size_t n = c->token_vector;
    char name[NAME_BYTES];
    const float *scale = NULL;
    pj_status status = PJ_OK;
    if (has_tensor(l, prefix, "layer_scalar")) {
        snprintf(name, sizeof name, "%s.layer_scalar", prefix);
        status = load_vector(l, name, 1, 1, &scale);
        if (!status) layer->scale = *scale;
    }
    if (!n || status) return status;
    status = load_component(l, prefix, PJ_N_PER_LAYER_INPUT_GATE, n, c->hidden, false,
                            &layer->token_gate);
    if (!status)
        status = load_component(l, prefix, PJ_N_PER_LAYER_PROJECTION, c->hidden, n, false,
                                &layer->token_projection);
    if (!status)
        status = load_norm(l, prefix, PJ_N_POST_PER_LAYER_INPUT_NORM, c->hidden, false,
                           &layer->token_norm);
    return status;
}

static pj_status load_layer(loader *l, uint32_t index)
{
    const pj_blueprint *b = l->model->blueprint;
    pj_layer *layer = &l->model->layers[index];
    size_t hidden = l->model->config.hidden;
    bool bias = b->norm == PJ_NORM_LAYER;
    char prefix[NAME_BYTES / 2];
    snprintf(prefix, sizeof prefix, "model.layers.%u", index);
    shape_layer(l->model, index, layer);
    pj_status status =
        load_norm(l, prefix, b->attention_norm, hidden, bias, &layer->attention_norm);
    if (!status)
        status =
            load_norm(l, prefix, b->attention_out_norm, hidden, bias, &layer->attention_out_norm);
    if (!status) status = load_norm(l, prefix, b->mlp_norm, hidden, bias, &layer->mlp_norm);
    if (!status) status = load_norm(l, prefix, b->mlp_out_norm, hidden, bias, &layer->mlp_out_norm);
    bool linear = l->model->config.layer_is_linear && l->model->config.layer_is_linear[index];
    if (!status) status = linear ? load_delta(l, prefix, layer) : load_attention(l, prefix, layer);
    if (!status) status = load_feed_forward(l, prefix, layer);
    return status ? status : load_token_input(l, prefix, layer);
}

/* Per-layer token vectors: a table, and a projection of the token's embedding. */
static pj_status load_token_vectors(loader *l)
{
    pj_model *m = l->model;
    const pj_model_config *c = &m->config;
    size_t n = (size_t)c->layers * c->token_vector;
    if (!n) return PJ_OK;
    pj_status status = load_matrix(l, "model.embed_tokens_per_layer.weight", ROLE_TABLE,
                                   c->token_vector_vocab, n, &m->token_embedding);
    if (!status)
        status = load_component(l, "model", PJ_N_PER_LAYER_MODEL_PROJECTION, n, c->hidden, false,
                                &m->token_projection);
    if (!status)
        status = load_norm(l, "model", PJ_N_PER_LAYER_PROJECTION_NORM, c->token_vector, false,
                           &m->token_norm);
    return status;
}

static pj_status load_ends(loader *l)
{
    pj_model *m = l->model;
    const pj_model_config *c = &m->config;
    bool own_head =
        m->checkpoint ? pj_checkpoint_find(m->checkpoint, "lm_head.weight") != NULL : !c->tied_head;
    pj_status status =
        load_matrix(l, "model.embed_tokens.weight", ROLE_TABLE, c->vocab, c->hidden, &m->embedding);
    if (!status)
        status = load_norm(l, "model", m->blueprint->final_norm, c->hidden,
                           m->blueprint->norm == PJ_NORM_LAYER, &m->final_norm);
    if (!status) status = load_token_vectors(l);
    m->head.w = m->embedding;
    m->head.name = PJ_N_LM_HEAD;
    if (!status && own_head)
        status = load_matrix(l, "lm_head.weight", ROLE_TABLE, c->vocab, c->hidden, &m->head.w);
    if (!status && pj_bias_wanted(m->blueprint->head_bias, c))
        status = load_vector(l, "lm_head.bias", c->vocab, 0, &m->head.bias);
    return status;
}

/* ---- counts ------------------------------------------------------------------------------- */

static void count_linear(const pj_projection *linear, double active, pj_model_counts *counts)
{
    if (!linear->w.data) return;
    double weights = (double)linear->w.rows * (double)linear->w.cols;
    double bytes = (double)linear->w.rows * (double)linear->w.row_bytes;
    counts->parameters += (uint64_t)weights + (linear->bias ? linear->w.rows : 0);
    counts->active_parameters += (uint64_t)(active * weights);
    counts->weight_bytes += (uint64_t)bytes;
    counts->decode_weight_bytes += (uint64_t)(active * bytes);
    counts->flops_per_token += 2 * active * weights;
}

static void count_mlp(const pj_mlp *mlp, double active, pj_model_counts *counts)
{
    count_linear(&mlp->gate, active, counts);
    count_linear(&mlp->up, active, counts);
    count_linear(&mlp->gate_up, active, counts);
    count_linear(&mlp->down, active, counts);
}

static void count_vector(const float *values, size_t count, pj_model_counts *counts)
{
    if (!values) return;
    counts->parameters += count;
    counts->active_parameters += count;
    counts->weight_bytes += count * sizeof *values;
    counts->decode_weight_bytes += count * sizeof *values;
}

static void count_delta(const struct pj_delta *d, pj_model_counts *counts)
{
    const pj_projection linears[] = {d->qkv, d->z, d->b, d->a, d->out};
    for (size_t n = 0; n < sizeof linears / sizeof *linears; n++)
        count_linear(&linears[n], 1, counts);
    count_vector(d->conv, d->kernel * pj_delta_channels(d), counts);
    count_vector(d->rate, d->value_heads, counts);
    count_vector(d->bias, d->value_heads, counts);
    count_vector(d->norm, d->value_dim, counts);
}

static void count_weights(pj_model *m)
{
    const pj_model_config *c = &m->config;
    pj_model_counts *counts = &m->counts;
    double chosen = c->experts ? (double)c->experts_per_token / c->experts : 1;
    for (uint32_t i = 0; i < c->layers; i++) {
        const pj_layer *layer = &m->layers[i];
        const pj_norm norms[] = {
            layer->attention_norm, layer->attention_out_norm, layer->mlp_norm,
            layer->mlp_out_norm,   layer->dense_out_norm,     layer->router_norm,
            layer->experts_norm,   layer->experts_out_norm,   layer->token_norm};
        const pj_projection linears[] = {
            layer->q,           layer->k,          layer->v,
            layer->qkv,         layer->o,          layer->router,
            layer->shared_gate, layer->token_gate, layer->token_projection};
        for (size_t n = 0; n < sizeof norms / sizeof *norms; n++) {
            count_vector(norms[n].w, c->hidden, counts);
            count_vector(norms[n].b, c->hidden, counts);
        }
        bool full = m->blueprint->qk_norm == PJ_QK_NORM_FULL;
        count_vector(layer->sinks, layer->heads, counts);
        if (layer->delta) count_delta(layer->delta, counts);
        count_vector(layer->q_norm.w, layer->head_dim * (full ? layer->heads : 1), counts);
        count_vector(layer->k_norm.w, layer->head_dim * (full ? layer->kv_heads : 1), counts);
        for (size_t n = 0; n < sizeof linears / sizeof *linears; n++)
            count_linear(&linears[n], 1, counts);
        count_mlp(&layer->mlp, 1, counts);
        count_mlp(&layer->shared, 1, counts);
        for (uint32_t e = 0; layer->experts && e < c->experts; e++)
            count_mlp(&layer->experts[e], chosen, counts);
    }
    count_vector(m->final_norm.w, c->hidden, counts);
    count_vector(m->final_norm.b, c->hidden, counts);
    count_linear(&m->head, 1, counts);
    if (m->head.w.data != m->embedding.data) {
        uint64_t weights = (uint64_t)m->embedding.rows * m->embedding.cols;
        counts->parameters += weights;
        counts->active_parameters += weights;
        counts->weight_bytes += (uint64_t)m->embedding.rows * m->embedding.row_bytes;
    }
    counts->decode_weight_bytes += m->embedding.row_bytes + m->token_embedding.row_bytes;
    count_linear(&m->token_projection, 1, counts);
    count_vector(m->token_norm.w, c->token_vector, counts);
    uint64_t vectors = (uint64_t)m->token_embedding.rows * m->token_embedding.cols;
    counts->parameters += vectors;
    counts->active_parameters += vectors;
    counts->weight_bytes += (uint64_t)m->token_embedding.rows * m->token_embedding.row_bytes;
    counts->dtype = m->layers[0].delta ? m->layers[0].delta->out.w.type : m->layers[0].o.w.type;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* A GGUF file has no superfluous tensors: one that no layer requested belongs to a computation that
 * is not implemented. */
static pj_status check_all_used(const pj_model *m, pj_error *err)
{
    const pj_tensor *unused = m->checkpoint ? pj_checkpoint_unused(m->checkpoint) : NULL;
    if (!unused) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED,
                   "the file holds the tensor %s, which %s has no use for; its computation is not "
                   "supported",
                   unused->name, m->config.arch_name);
}

static pj_status open_source(pj_model *m, const char *path, pj_dtype *synthetic, pj_error *err)
{
    static const char scheme[] = "synthetic:";
    if (strncmp(path, scheme, strlen(scheme)) == 0) {
        m->synthetic = true;
        m->generation = PJ_GENERATION_CONFIG_NONE;
        return pj_synthetic_config(path + strlen(scheme), &m->arena, &m->config, synthetic,
                                   &m->full_layers, err);
    }
    pj_status status = pj_checkpoint_open(path, &m->checkpoint, err);
    if (status) return status;
    m->config = *pj_checkpoint_config(m->checkpoint);
    m->generation = *pj_checkpoint_generation(m->checkpoint);
    m->full_layers = m->config.layers;
    return PJ_OK;
}

static pj_status open_ropes(pj_model *m, pj_error *err)
{
    const pj_model_config *c = &m->config;
    pj_status status = pj_rope_init(&m->ropes[0], &c->rope, c->context, err);
    if (status || !c->window_rope.dims) return status;
    return pj_rope_init(&m->ropes[1], &c->window_rope, c->context, err);
}

static pj_status load_all(loader *l, const char *path)
{
    pj_model *model = l->model;
    pj_status status = open_source(model, path, &l->synthetic, l->err);
    if (status) return status;
    model->blueprint = pj_blueprint_get(model->config.arch);
    status = open_ropes(model, l->err);
    if (status) return status;
    model->layers = small_alloc(l, model->config.layers, sizeof *model->layers);
    status = model->layers ? load_ends(l) : PJ_E_NO_MEMORY;
    for (uint32_t i = 0; !status && i < model->config.layers; i++) status = load_layer(l, i);
    return status ? status : check_all_used(model, l->err);
}

pj_status pj_model_open(pj_model *model, const pj_model_options *options, pj_team *team,
                        pj_error *err)
{
    *model = (pj_model){0};
    pj_arena_init(&model->arena, 0);
    loader l = {.model = model,
                .team = team,
                .kernels = options->kernels,
                .dtype = options->dtype,
                .err = err};
    pj_status status = load_all(&l, options->path);
    if (status) {
        pj_error_prefix(err, "model %s", options->path);
        pj_model_close(model);
        return status;
    }
    count_weights(model);
    return PJ_OK;
}

pj_status pj_model_check(const char *path, pj_error *err)
{
    pj_model model = {0};
    pj_arena_init(&model.arena, 0);
    loader l = {
        .model = &model, .kernels = pj_kernels_get(), .dtype = -1, .check = true, .err = err};
    pj_status status = load_all(&l, path);
    pj_model_close(&model);
    return status;
}

void pj_model_close(pj_model *model)
{
    for (pj_slab *slab = model->slabs; slab; slab = slab->next)
        pj_pages_free(slab->data, slab->bytes);
    for (int i = 0; i < PJ_ROPES; i++) pj_rope_fini(&model->ropes[i]);
    pj_arena_fini(&model->arena);
    pj_checkpoint_close(model->checkpoint);
    *model = (pj_model){0};
}
