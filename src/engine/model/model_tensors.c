/* Tensors of a model by name: checked for type and shape, used in place in the mapped file,
 * converted if another type is requested, or generated for a synthetic model. */
#include "engine/model/model_load.h"

#include "base/process.h"
#include "engine/files/pages.h"
#include "engine/kernels/linear.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { SLAB_BYTES = 256 << 20, MATRIX_ALIGNMENT = 64 };

/* ---- memory ------------------------------------------------------------------------------- */

static unsigned char *take_bytes(pj_model *model, size_t bytes)
{
    pj_slab *slab = model->slabs;
    bytes = (bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
    if (!slab || slab->bytes - slab->used < bytes) {
        size_t size = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
        if ((double)bytes > pj_memory_available("")) return NULL;
        slab = pj_arena_alloc(&model->arena, 1, sizeof *slab);
        if (!slab || !(slab->data = pj_pages_alloc(size))) return NULL;
        slab->bytes = size;
        slab->next = model->slabs;
        model->slabs = slab;
    }
    unsigned char *block = slab->data + slab->used;
    slab->used += bytes;
    model->created_bytes += bytes;
    return block;
}

void *pj_load_alloc(pj_loader *l, size_t count, size_t size)
{
    void *block = l->status ? NULL : pj_arena_alloc(&l->model->arena, count, size);
    if (!block && !l->status) l->status = pj_fail_memory(l->err, "the model's tables");
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
    float *scratch;             /* [threads, cols] */
    const _Atomic bool *cancel; /* or NULL */
    bool is_quantised;          /* the new type has blocks, which cannot hold NaN or infinity */
    _Atomic bool *is_broken;    /* set when a row has such a value */
} fill;

static bool is_finite_row(const float *row, size_t n)
{
    static const uint32_t infinity = 0x7f800000u, magnitude = 0x7fffffffu;
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, row + i, sizeof bits);
        bits &= magnitude;
        most = bits > most ? bits : most;
    }
    return most < infinity;
}

static bool is_cancelled(const _Atomic bool *cancel)
{
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

static void model_tensors_fill_rows(void *context, unsigned thread)
{
    const fill *f = context;
    size_t cols = f->to->cols, begin, end;
    float *row = f->scratch + thread * cols;
    pj_team_share(f->team, thread, f->to->rows, 1, &begin, &end);
    for (size_t r = begin; r < end && !is_cancelled(f->cancel); r++) {
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
        if (f->is_quantised && !is_finite_row(row, cols)) {
            atomic_store(f->is_broken, true);
            return;
        }
        f->kernels->quantise(f->to->type, row, out, cols);
    }
}

void pj_load_converted(pj_loader *l, const char *name, pj_dtype type, const pj_matrix *from,
                       const pj_row_source *source, size_t rows, size_t cols, pj_matrix *to)
{
    size_t row_bytes = pj_dtype_row_bytes(type, cols), bytes;
    if (l->status) return;
    if (row_bytes == 0 || pj_mul_overflows(rows, row_bytes, &bytes)) {
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s is too large: %zu x %zu", name, rows, cols);
        return;
    }
    *to = (pj_matrix){from ? from->data : l->model, type, rows, cols, row_bytes};
    if (l->check) return;
    _Atomic bool is_broken = false;
    float *scratch = pj_alloc(pj_team_threads(l->team) * cols, sizeof(float));
    to->data = scratch ? take_bytes(l->model, bytes) : NULL;
    fill f = {.kernels = l->kernels,
              .team = l->team,
              .from = from,
              .source = source,
              .to = to,
              .matrix = l->matrices,
              .scale = sqrtf(3.0f / (float)cols), /* uniform within +-scale: variance 1 / cols */
              .scratch = scratch,
              .cancel = l->cancel,
              .is_quantised = pj_dtype_get(type)->block_values > 1,
              .is_broken = &is_broken};
    if (to->data) pj_team_run(l->team, model_tensors_fill_rows, &f);
    pj_free(scratch);
    if (!to->data)
        l->status = pj_fail_memory(l->err, name);
    else if (is_cancelled(l->cancel))
        l->status = pj_fail(l->err, PJ_E_CANCELLED, "loading was interrupted");
    else if (is_broken)
        l->status = pj_fail(l->err, PJ_E_INVALID,
                            "%s has NaN or infinite values, which cannot be quantised to %s", name,
                            pj_dtype_get(type)->name);
}

static pj_dtype wanted_type(const pj_loader *l, pj_role use, pj_dtype stored, size_t cols)
{
    int type = l->dtype < 0 ? (int)stored : l->dtype;
    if (type == PJ_Q4_0 && use == PJ_ROLE_TABLE) type = PJ_Q8_0;
    /* rows that are not a multiple of the block size keep their type */
    return pj_dtype_row_bytes((pj_dtype)type, cols) ? (pj_dtype)type : stored;
}

void pj_load_adopt(pj_loader *l, const char *name, pj_role use, const pj_matrix *stored,
                   pj_matrix *out)
{
    pj_dtype type = wanted_type(l, use, stored->type, stored->cols);
    *out = *stored;
    if (type != stored->type)
        pj_load_converted(l, name, type, stored, NULL, stored->rows, stored->cols, out);
}

void pj_load_adopt_rows(pj_loader *l, const char *name, const pj_row_source *source, size_t rows,
                        pj_matrix *out)
{
    pj_dtype type = wanted_type(l, PJ_ROLE_LAYER, source->type, source->cols);
    pj_load_converted(l, name, type, NULL, source, rows, source->cols, out);
}

enum { E4M3_BLOCK = 128 };

static size_t blocks_of(size_t count, size_t block)
{
    return (count + block - 1) / block;
}

/* Scales [a, b] of each of one or more matrices of 8-bit floats. */
typedef struct e4m3_scales {
    const pj_tensor *tensor;
    size_t count, a, b; /* count 1: all matrices have the same */
} e4m3_scales;

/* A stack's scales have its first dimension, unless there is only one; false: they have more
 * dimensions than matrices. */
static bool e4m3_shape(e4m3_scales *s, size_t count)
{
    const uint64_t *shape = s->tensor->shape;
    uint32_t rank = s->tensor->rank;
    s->count = s->a = s->b = 1;
    if (count > 1 && rank > 0 && shape[0] == count) {
        s->count = count;
        shape++, rank--;
    }
    if (rank > 2) return false;
    if (rank > 0) s->a = (size_t)shape[0];
    if (rank > 1) s->b = (size_t)shape[1];
    return s->a > 0 && s->b > 0;
}

/* Derives the block that shares a scale from the scales' shape: everything, a row, a group of a
 * row's columns, a column if those are outputs, or what the configuration says. */
static bool e4m3_blocks(const pj_model_config *c, const e4m3_scales *s, size_t rows, size_t cols,
                        bool transposed, size_t *block_rows, size_t *block_cols)
{
    *block_rows = c->fp8_rows ? c->fp8_rows : E4M3_BLOCK;
    *block_cols = c->fp8_cols ? c->fp8_cols : E4M3_BLOCK;
    if (s->tensor->rank >= 2 && s->a == blocks_of(rows, *block_rows) &&
        s->b == blocks_of(cols, *block_cols))
        return true;
    *block_rows = s->a == 1 ? rows : 1;
    *block_cols = cols / s->b;
    if (s->a == 1) return s->b == 1 || (transposed && s->b == cols);
    return s->a == rows && cols % s->b == 0;
}

/* Scales in floating point, or powers of two as 8-bit exponents. */
static bool read_scales(const pj_loader *l, const pj_tensor *scales, float *values, size_t count)
{
    pj_dtype type;
    if (scales->type == PJ_FILE_E8M0) {
        for (size_t i = 0; i < count; i++)
            values[i] = scales->data[i] == 255 ? NAN : ldexpf(1, scales->data[i] - 127);
        return true;
    }
    if (!pj_file_dtype(scales->type, &type) || pj_dtype_get(type)->block_values != 1) return false;
    l->kernels->dequantise(type, scales->data, values, count);
    return true;
}

/* The scales of 8-bit floats: "weight_scale_inv" or "weight_scale" next to "weight". */
static const pj_tensor *find_e4m3_scales(const pj_loader *l, const char *name, char *scale_name,
                                         size_t bytes)
{
    snprintf(scale_name, bytes, "%s_scale_inv", name);
    const pj_tensor *scales = pj_checkpoint_find(l->model->checkpoint, scale_name);
    if (scales) return scales;
    snprintf(scale_name, bytes, "%s_scale", name);
    return pj_checkpoint_find(l->model->checkpoint, scale_name);
}

/* Rows of one or more matrices of 8-bit floats, [count] of [rows, cols], or if `transposed` of
 * [in, out], whose scales for each output may be in either dimension. */
static bool find_e4m3(pj_loader *l, const char *name, const pj_tensor *tensor, size_t count,
                      size_t rows, size_t cols, bool transposed, pj_row_source *source)
{
    char scale_name[PJ_TENSOR_NAME_BYTES + 16];
    size_t block_rows, block_cols;
    const pj_model_config *c = &l->model->config;
    e4m3_scales s = {.tensor = find_e4m3_scales(l, name, scale_name, sizeof scale_name)};
    if (!s.tensor) {
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s has 8-bit floats but no scale tensor", name);
        return false;
    }
    bool right = e4m3_shape(&s, count);
    if (transposed && s.b == 1 && s.a == cols) {
        s.b = s.a;
        s.a = 1;
    }
    right = right && e4m3_blocks(c, &s, rows, cols, transposed, &block_rows, &block_cols);
    size_t each = s.a * s.b;
    float *values = right ? pj_load_alloc(l, s.count * each, sizeof *values) : NULL;
    if (right && !values) return false;
    if (!right || !read_scales(l, s.tensor, values, s.count * each)) {
        l->status = pj_fail(l->err, PJ_E_UNSUPPORTED,
                            "%s must be one scale, one per row or group of a row's columns, or one "
                            "per block of %u x %u",
                            scale_name, c->fp8_rows ? c->fp8_rows : E4M3_BLOCK,
                            c->fp8_cols ? c->fp8_cols : E4M3_BLOCK);
        return false;
    }
    pj_row_source one = pj_rows_e4m3(tensor->data, values, cols, block_rows, block_cols,
                                     (cols + block_cols - 1) / block_cols);
    *source = count > 1 ? pj_rows_e4m3_stack(&one, rows, s.count > 1 ? each : 0) : one;
    return true;
}

static void load_e4m3(pj_loader *l, const char *name, const pj_tensor *tensor, pj_role use,
                      size_t rows, size_t cols, pj_matrix *out)
{
    pj_row_source source;
    if (tensor->rank != 2 || tensor->shape[0] != rows || tensor->shape[1] != cols)
        l->status =
            pj_fail(l->err, PJ_E_INVALID, "%s must have the shape [%zu, %zu]", name, rows, cols);
    else if (find_e4m3(l, name, tensor, 1, rows, cols, false, &source))
        pj_load_converted(l, name, wanted_type(l, use, PJ_BF16, cols), NULL, &source, rows, cols,
                          out);
}

/* The factors beside a matrix, or a stack of them, in NVFP4 of a GGUF file: "weight" has "scale",
 * one for each matrix. NULL: there are none. */
static const float *find_factors(pj_loader *l, const char *name, size_t count)
{
    static const char suffix[] = "weight";
    size_t length = strlen(name), tail = sizeof suffix - 1;
    char scale_name[PJ_TENSOR_NAME_BYTES];
    /* Gemma 4's are loaded as its factors on experts */
    bool named = length > tail && strcmp(name + length - tail, suffix) == 0 &&
                 !(count > 1 && l->model->blueprint->parallel_experts);
    if (!named || !pj_load_is_gguf(l)) return NULL;
    snprintf(scale_name, sizeof scale_name, "%.*sscale", (int)(length - tail), name);
    const float *factors = NULL;
    if (pj_checkpoint_find(l->model->checkpoint, scale_name))
        pj_load_vector(l, scale_name, count, 1, &factors);
    return factors;
}

static void load_q2_0(pj_loader *l, const char *name, const pj_tensor *tensor, pj_role use,
                      size_t rows, size_t cols, pj_matrix *out)
{
    pj_row_source source = pj_rows_q2_0(tensor->data, cols);
    if (tensor->rank != 2 || tensor->shape[0] != rows || tensor->shape[1] != cols)
        l->status =
            pj_fail(l->err, PJ_E_INVALID, "%s must have the shape [%zu, %zu]", name, rows, cols);
    pj_load_converted(l, name, wanted_type(l, use, PJ_Q4_0, cols), NULL, &source, rows, cols, out);
}

void pj_load_matrix(pj_loader *l, const char *name, pj_role use, size_t rows, size_t cols,
                    pj_matrix *out)
{
    if (l->status) return;
    l->matrices++;
    if (!l->model->checkpoint) {
        pj_dtype plain = pj_dtype_row_bytes(l->synthetic, cols) ? l->synthetic : PJ_BF16;
        pj_load_converted(l, name, wanted_type(l, use, plain, cols), NULL, NULL, rows, cols, out);
        return;
    }
    pj_matrix stored;
    const pj_tensor *tensor = pj_checkpoint_find(l->model->checkpoint, name);
    if (tensor && tensor->type == PJ_FILE_E4M3) {
        load_e4m3(l, name, tensor, use, rows, cols, out);
        return;
    }
    if (tensor && tensor->type == PJ_FILE_Q2_0) {
        load_q2_0(l, name, tensor, use, rows, cols, out);
        return;
    }
    pj_row_source packed;
    if (!pj_load_is_gguf(l) && pj_load_packed(l, name, rows, cols, &packed)) {
        if (!l->status) pj_load_adopt_rows(l, name, &packed, rows, out);
        return;
    }
    l->status = pj_checkpoint_matrix(l->model->checkpoint, name, rows, cols, &stored, l->err);
    if (l->status) return;
    const float *factors = stored.type == PJ_NVFP4 ? find_factors(l, name, 1) : NULL;
    if (!factors) {
        pj_load_adopt(l, name, use, &stored, out);
        return;
    }
    pj_row_source scaled = pj_rows_scaled(&stored, factors, rows);
    pj_load_converted(l, name, wanted_type(l, use, scaled.type, cols), NULL, &scaled, rows, cols,
                      out);
}

/* A stack that has to be converted to be read. */
static void convert_stack(pj_loader *l, const char *name, const pj_row_source *source, size_t rows,
                          pj_matrix *out)
{
    pj_load_converted(l, name, wanted_type(l, PJ_ROLE_LAYER, source->type, source->cols), NULL,
                      source, rows, source->cols, out);
}

void pj_load_stack(pj_loader *l, const char *name, size_t count, size_t rows, size_t cols,
                   bool transposed, pj_matrix *out)
{
    if (l->status) return;
    const pj_tensor *tensor = pj_checkpoint_find(l->model->checkpoint, name);
    pj_dtype type;
    if (!tensor)
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s is missing", name);
    else if (tensor->rank != 3 || tensor->shape[0] != count || tensor->shape[1] != rows ||
             tensor->shape[2] != cols)
        l->status = pj_fail(l->err, PJ_E_INVALID, "%s must have the shape [%zu, %zu, %zu]", name,
                            count, rows, cols);
    else if (tensor->type == PJ_FILE_Q2_0) {
        pj_row_source source = pj_rows_q2_0(tensor->data, cols);
        pj_load_converted(l, name, PJ_Q4_0, NULL, &source, count * rows, cols, out);
    } else if (tensor->type == PJ_FILE_E4M3) {
        pj_row_source source;
        if (find_e4m3(l, name, tensor, count, rows, cols, transposed, &source))
            convert_stack(l, name, &source, count * rows, out);
    } else if (!pj_file_dtype(tensor->type, &type))
        l->status = pj_fail(l->err, PJ_E_UNSUPPORTED, "%s has the unsupported weight type %s", name,
                            pj_file_type_name(tensor->type));
    else
        *out = (pj_matrix){tensor->data, type, count * rows, cols, pj_dtype_row_bytes(type, cols)};
    const float *factors =
        !l->status && out->type == PJ_NVFP4 ? find_factors(l, name, count) : NULL;
    if (!factors) return;
    pj_matrix stored = *out;
    pj_row_source scaled = pj_rows_scaled(&stored, factors, rows);
    convert_stack(l, name, &scaled, count * rows, out);
}

void pj_load_vector(pj_loader *l, const char *name, size_t count, float fallback, const float **out)
{
    pj_matrix stored = {0};
    if (l->model->checkpoint && !l->status)
        l->status = pj_checkpoint_matrix(l->model->checkpoint, name, count, 0, &stored, l->err);
    float *values = pj_load_alloc(l, count, sizeof *values);
    if (!values) return;
    if (stored.data)
        l->kernels->dequantise(stored.type, stored.data, values, count);
    else
        for (size_t i = 0; i < count; i++) values[i] = fallback;
    *out = values;
}

void pj_load_linear(pj_loader *l, const char *prefix, const char *part, size_t rows, size_t cols,
                    bool bias, pj_projection *out)
{
    char name[PJ_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
    pj_load_matrix(l, name, PJ_ROLE_LAYER, rows, cols, &out->w);
    if (!bias) return;
    snprintf(name, sizeof name, "%s.%s.bias", prefix, part);
    pj_load_vector(l, name, rows, 0, &out->bias);
}

void pj_load_component(pj_loader *l, const char *prefix, pj_instrument_name part, size_t rows,
                       size_t cols, bool bias, pj_projection *out)
{
    out->name = part;
    pj_load_linear(l, prefix, pj_instrument_text(part), rows, cols, bias, out);
}

void pj_load_exact(pj_loader *l, const char *name, pj_projection *out)
{
    pj_matrix read = out->w;
    if (!l->status && !pj_linear_is_float32(l->kernels, read.type))
        pj_load_converted(l, name, PJ_F32, &read, NULL, read.rows, read.cols, &out->w);
}

/* Norm weights stored as w - 1 need 1 added; GGUF files store the sum. */
static bool adds_one(const pj_loader *l)
{
    return l->model->blueprint->norm_adds_one && l->model->checkpoint && !pj_load_is_gguf(l);
}

void pj_load_norm(pj_loader *l, const char *prefix, pj_instrument_name part, size_t count,
                  bool bias, pj_norm *out)
{
    char name[PJ_TENSOR_NAME_BYTES];
    out->name = part;
    if (part == PJ_N_NONE) return;
    snprintf(name, sizeof name, "%s.%s.weight", prefix, pj_instrument_text(part));
    pj_load_vector(l, name, count, 1, &out->w);
    float *w = (float *)(uintptr_t)out->w;
    for (size_t i = 0; !l->status && adds_one(l) && i < count; i++) w[i] += 1;
    if (!bias) return;
    snprintf(name, sizeof name, "%s.%s.bias", prefix, pj_instrument_text(part));
    pj_load_vector(l, name, count, 0, &out->b);
}

bool pj_load_is_gguf(const pj_loader *l)
{
    return l->model->checkpoint && pj_checkpoint_gguf(l->model->checkpoint);
}

bool pj_load_has(const pj_loader *l, const char *prefix, const char *part)
{
    char name[PJ_TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    return l->model->checkpoint && pj_checkpoint_find(l->model->checkpoint, name);
}

bool pj_load_has_linear(const pj_loader *l, const char *prefix, const char *part)
{
    static const char *const kinds[] = {"weight", "qweight", "weight_packed"};
    char name[PJ_TENSOR_NAME_BYTES];
    bool has = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(name, sizeof name, "%s.%s", part, kinds[i]);
        has |= pj_load_has(l, prefix, name);
    }
    return has;
}
