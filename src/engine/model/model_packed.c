/* Loads packed weights of folders (packed_rows.h): finds the tensors that replace "weight" and
 * tells the packing from their names, types and shapes, whatever config.json says of a layer. */
#include "engine/model/model_load.h"

#include "engine/model/packed_rows.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct packed_part {
    const pj_tensor *tensor; /* NULL: absent */
    size_t rows, cols;
} packed_part;

static void *packed_alloc(pj_loader *l, size_t count, size_t size)
{
    void *block = pj_arena_alloc(&l->model->arena, count, size);
    if (!block && !l->status) l->status = pj_fail_memory(l->err, "packed weights");
    return block;
}

/* "<stem><part>"; a vector has one row. */
static packed_part find_part(const pj_loader *l, const char *stem, const char *part)
{
    char name[PJ_TENSOR_NAME_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", stem, part);
    const pj_tensor *t = pj_checkpoint_find(l->model->checkpoint, name);
    packed_part p = {.tensor = t};
    if (!t || t->rank > 2) return p;
    p.cols = t->rank > 0 ? (size_t)t->shape[t->rank - 1] : 1;
    p.rows = t->rank == 2 ? (size_t)t->shape[0] : 1;
    return p;
}

static bool is_words(const packed_part *p, size_t rows, size_t cols)
{
    return p->tensor && (p->tensor->type == PJ_FILE_I32 || p->tensor->type == PJ_FILE_U32) &&
           p->rows == rows && p->cols == cols;
}

/* Scales [rows][cols] in floating point. */
static bool take_scales(pj_packed_weights *w, const packed_part *p, size_t rows, size_t cols)
{
    if (!p->tensor || p->rows != rows || p->cols != cols) return false;
    w->scales = p->tensor->data;
    return pj_file_dtype(p->tensor->type, &w->scale_type) &&
           pj_dtype_get(w->scale_type)->block_values == 1;
}

static bool take_groups(pj_packed_weights *w, const packed_part *scales, size_t groups)
{
    if (!scales->tensor || groups == 0 || w->cols % groups != 0) return false;
    w->group = w->cols / groups;
    return true;
}

/* Whether a part is there, or need not be; else it is refused by its name. */
static bool has_declared(pj_loader *l, const char *stem, const char *part, const packed_part *found,
                         const pj_declared *declared, const pj_packed_weights *w)
{
    if (found->tensor || !(declared->bits >> w->bits & 1)) return true;
    l->status = pj_fail(l->err, PJ_E_INVALID, "%s%s is missing, but quantization_config has %s",
                        stem, part, declared->by);
    return false;
}

/* Codes minus what: stored, or half of the codes' range. */
static bool take_zeros(pj_loader *l, const char *stem, const char *part, const packed_part *zeros,
                       pj_packed_weights *w)
{
    if (zeros->tensor) w->zeros = zeros->tensor->data;
    return has_declared(l, stem, part, zeros, &l->model->config.packing.zeros, w);
}

/* compressed-tensors: an order that was never found is stored as -1. */
static bool is_unset(const packed_part *order)
{
    bool any = false;
    for (size_t i = 0; i < order->cols; i++) {
        int32_t group;
        memcpy(&group, order->tensor->data + 4 * i, 4);
        any |= group == -1;
    }
    return any;
}

/* The groups of columns, if they are not adjacent. */
static bool take_order(pj_loader *l, const char *stem, const char *part, pj_packed_weights *w)
{
    packed_part found = find_part(l, stem, part), *order = &found;
    bool adjacent = true;
    if (w->group < w->cols &&
        !has_declared(l, stem, part, order, &l->model->config.packing.order, w))
        return false;
    if (!order->tensor) return true;
    if (!is_words(order, 1, w->cols)) return false;
    if (w->packing != PJ_PACKED_GPTQ && is_unset(order)) return true;
    for (size_t i = 0; i < w->cols; i++) {
        uint32_t group;
        memcpy(&group, order->tensor->data + 4 * i, 4);
        if (group >= w->cols / w->group) return false;
        adjacent &= group == i / w->group;
    }
    if (!adjacent) w->group_of = order->tensor->data;
    return true;
}

/* The bits of a code of which `count` take so many words, without gaps. */
static unsigned bits_of(size_t words, size_t count)
{
    unsigned bits = count ? (unsigned)(words * 32 / count) : 0;
    bool known = bits == 2 || bits == 3 || bits == 4 || bits == 8;
    return known && words * 32 == (size_t)bits * count ? bits : 0;
}

/* GPTQ and AWQ. */
static bool take_by_columns(pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part codes = find_part(l, stem, "qweight"), zeros = find_part(l, stem, "qzeros");
    packed_part scales = find_part(l, stem, "scales");
    size_t out = w->rows, in = w->cols;
    bool awq = codes.rows == in;
    w->packing = awq ? PJ_PACKED_AWQ : PJ_PACKED_GPTQ;
    w->bits = awq ? 4 : bits_of(codes.rows, in);
    w->zero_plus = !awq && !l->model->config.gptq_v2;
    bool right = w->bits && out % 32 == 0 && in % 32 == 0 &&
                 (awq ? is_words(&codes, in, out / 8) : is_words(&codes, in * w->bits / 32, out)) &&
                 take_groups(w, &scales, scales.rows) &&
                 take_scales(w, &scales, scales.rows, out) &&
                 (!zeros.tensor || is_words(&zeros, scales.rows, out * w->bits / 32));
    if (!right) return false;
    w->codes = codes.tensor->data;
    return take_zeros(l, stem, "qzeros", &zeros, w) && (awq || take_order(l, stem, "g_idx", w));
}

/* Words that `count` codes take, as many whole ones in each as fit. */
static size_t whole_words(size_t count, unsigned bits)
{
    return (count + 32 / bits - 1) / (32 / bits);
}

static bool take_by_rows(pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part codes = find_part(l, stem, "weight_packed"),
                scales = find_part(l, stem, "weight_scale"),
                zeros = find_part(l, stem, "weight_zero_point");
    static const unsigned widths[] = {2, 3, 4, 8};
    w->packing = PJ_PACKED_ROWS;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (codes.cols == whole_words(w->cols, widths[i])) w->bits = widths[i];
    bool right =
        w->bits && w->cols % 32 == 0 && is_words(&codes, w->rows, whole_words(w->cols, w->bits)) &&
        take_groups(w, &scales, scales.cols) && take_scales(w, &scales, w->rows, scales.cols) &&
        (!zeros.tensor || is_words(&zeros, whole_words(w->rows, w->bits), scales.cols));
    if (!right) return false;
    w->codes = codes.tensor->data;
    return take_zeros(l, stem, "weight_zero_point", &zeros, w) &&
           take_order(l, stem, "weight_g_idx", w);
}

/* Signed bytes with one scale for all, for each row, or for groups of its columns. */
static bool take_bytes_of(pj_loader *l, const char *stem, pj_packed_weights *w)
{
    enum { LARGEST_CODE = 127 };
    packed_part codes = find_part(l, stem, "weight"), scales = find_part(l, stem, "weight_scale"),
                zeros = find_part(l, stem, "weight_zero_point"),
                largest = find_part(l, stem, "SCB");
    w->packing = PJ_PACKED_BYTES;
    w->bits = 8;
    if (!scales.tensor && largest.tensor) {
        scales = largest;
        w->factor = 1.0f / LARGEST_CODE;
    }
    if (scales.tensor && scales.tensor->rank < 2 && scales.cols == w->rows) {
        scales.rows = scales.cols; /* a vector */
        scales.cols = 1;
        if (zeros.tensor && zeros.tensor->rank < 2) zeros.rows = zeros.cols, zeros.cols = 1;
    }
    bool right = w->cols % 32 == 0 && codes.rows == w->rows && codes.cols == w->cols &&
                 codes.tensor->rank == 2 && take_groups(w, &scales, scales.cols) &&
                 take_scales(w, &scales, w->rows, scales.cols) &&
                 (!zeros.tensor || (zeros.tensor->type == PJ_FILE_I8 && zeros.rows == w->rows &&
                                    zeros.cols == scales.cols));
    if (!right) return false;
    w->codes = codes.tensor->data;
    return take_zeros(l, stem, "weight_zero_point", &zeros, w) &&
           take_order(l, stem, "weight_g_idx", w);
}

/* One float: a factor on all scales, or what they were multiplied with. */
static bool take_factor(const pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part factor = find_part(l, stem, "weight_scale_2");
    packed_part inverse = find_part(l, stem, "weight_global_scale");
    const packed_part *given = factor.tensor ? &factor : &inverse;
    pj_dtype type;
    if (!given->tensor) return true;
    if (given->rows * given->cols != 1 || !pj_file_dtype(given->tensor->type, &type) ||
        pj_dtype_get(type)->block_values != 1)
        return false;
    l->kernels->dequantise(type, given->tensor->data, &w->factor, 1);
    if (!factor.tensor) w->factor = 1 / w->factor;
    return w->factor > 0 && w->factor < 1e30f;
}

static bool take_fp4(pj_loader *l, const char *stem, pj_packed_weights *w)
{
    enum { GROUP = 16 };
    packed_part codes = find_part(l, stem, "weight_packed"),
                scales = find_part(l, stem, "weight_scale");
    if (!codes.tensor) codes = find_part(l, stem, "weight");
    w->packing = PJ_PACKED_FP4;
    w->group = GROUP;
    bool right = w->cols % 32 == 0 && codes.tensor && codes.tensor->type == PJ_FILE_U8 &&
                 codes.rows == w->rows && codes.cols * 2 == w->cols && scales.tensor &&
                 scales.tensor->type == PJ_FILE_E4M3 && scales.rows == w->rows &&
                 scales.cols * GROUP == w->cols;
    if (!right) return false;
    w->codes = codes.tensor->data;
    w->scales = scales.tensor->data;
    return take_factor(l, stem, w);
}

/* ---- bitsandbytes with four bits ----------------------------------------------------------- */

/* Exactly `count` floats, copied. */
static const float *find_floats(const pj_loader *l, const char *stem, const char *part,
                                size_t count, float *copy)
{
    packed_part p = find_part(l, stem, part);
    if (!p.tensor || p.tensor->type != PJ_FILE_F32 || p.rows * p.cols != count) return NULL;
    memcpy(copy, p.tensor->data, count * sizeof *copy);
    return copy;
}

static size_t blocks_in(size_t count, size_t block)
{
    return block ? (count + block - 1) / block : 0;
}

/* The JSON of a quantisation state: sizes of the blocks of values and of scales; its shape must be
 * the matrix's. */
static bool read_state(const packed_part *state, const pj_packed_weights *w, pj_packed_levels *v)
{
    json_t *text = json_loadb((const char *)state->tensor->data, state->tensor->bytes, 0, NULL);
    const json_t *shape = json_object_get(text, "shape");
    json_int_t block = json_integer_value(json_object_get(text, "blocksize")),
               outer = json_integer_value(json_object_get(text, "nested_blocksize"));
    bool right = json_array_size(shape) == 2 && block > 0 && block <= 1 << 20 && outer >= 0 &&
                 outer <= 1 << 20 &&
                 json_integer_value(json_array_get(shape, 0)) == (json_int_t)w->rows &&
                 json_integer_value(json_array_get(shape, 1)) == (json_int_t)w->cols;
    v->block = (size_t)block;
    v->scale_block = (size_t)outer;
    v->offset = (float)json_number_value(json_object_get(text, "nested_offset"));
    json_decref(text);
    return right;
}

/* Scales as floats, or as codes with scales of their own. */
static bool take_level_scales(pj_loader *l, const char *stem, pj_packed_levels *v, size_t count)
{
    packed_part scales = find_part(l, stem, "weight.absmax");
    bool nested = scales.tensor && scales.tensor->type == PJ_FILE_U8;
    size_t outer = blocks_in(count, v->scale_block), values = nested ? outer : count;
    if (!scales.tensor || values == 0 || scales.rows * scales.cols != count) return false;
    float *copy = packed_alloc(l, values, sizeof *copy);
    if (!copy) return false;
    if (!nested) {
        v->scales = find_floats(l, stem, "weight.absmax", count, copy);
        return v->scales;
    }
    v->codes = scales.tensor->data;
    v->scale_scales = find_floats(l, stem, "weight.nested_absmax", outer, copy);
    return v->scale_scales && find_floats(l, stem, "weight.nested_quant_map", 256, v->scale_level);
}

static packed_part level_state(const pj_loader *l, const char *stem)
{
    packed_part state = find_part(l, stem, "weight.quant_state.bitsandbytes__nf4");
    return state.tensor ? state : find_part(l, stem, "weight.quant_state.bitsandbytes__fp4");
}

static bool take_levels(pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part codes = find_part(l, stem, "weight"), state = level_state(l, stem);
    pj_packed_levels *v = packed_alloc(l, 1, sizeof *v);
    w->packing = PJ_PACKED_LEVELS;
    w->group = w->cols;
    w->levels = v;
    bool right = v && state.tensor->type == PJ_FILE_U8 && read_state(&state, w, v) &&
                 w->rows * w->cols % 2 == 0 && codes.tensor && codes.tensor->type == PJ_FILE_U8 &&
                 codes.rows * codes.cols == w->rows * w->cols / 2 &&
                 find_floats(l, stem, "weight.quant_map", 16, v->level) &&
                 take_level_scales(l, stem, v, blocks_in(w->rows * w->cols, v->block));
    if (right) w->codes = codes.tensor->data;
    return right;
}

/* ---- any of them --------------------------------------------------------------------------- */

typedef bool take_function(pj_loader *l, const char *stem, pj_packed_weights *w);

/* 4-bit floats in groups of 32 whose scales are powers of two: MXFP4 as it is. */
static bool find_mxfp4_rows(const pj_loader *l, const char *stem, size_t rows, size_t cols,
                            pj_row_source *source)
{
    enum { GROUP = 32 };
    packed_part codes = find_part(l, stem, "weight_packed"),
                scales = find_part(l, stem, "weight_scale");
    if (!codes.tensor) codes = find_part(l, stem, "weight");
    bool right = codes.tensor && codes.tensor->type == PJ_FILE_U8 && scales.tensor &&
                 (scales.tensor->type == PJ_FILE_U8 || scales.tensor->type == PJ_FILE_E8M0) &&
                 codes.rows == rows && codes.cols * 2 == cols && scales.rows == rows &&
                 scales.cols * GROUP == cols;
    if (right) *source = pj_rows_mxfp4(codes.tensor->data, scales.tensor->data, cols, 0, 1);
    return right;
}

/* How the tensors at `stem` are packed, by their names and types; NULL: they are not. */
static take_function *packing_of(const pj_loader *l, const char *stem)
{
    packed_part plain = find_part(l, stem, "weight"), other = find_part(l, stem, "weight_packed");
    const pj_tensor *bytes = plain.tensor ? plain.tensor : other.tensor;
    if (find_part(l, stem, "qweight").tensor) return take_by_columns;
    if (level_state(l, stem).tensor) return take_levels;
    if (bytes && bytes->type == PJ_FILE_U8) return take_fp4;
    if (bytes && bytes->type == PJ_FILE_I8) return take_bytes_of;
    return other.tensor ? take_by_rows : NULL;
}

bool pj_load_packed(pj_loader *l, const char *name, size_t rows, size_t cols, pj_row_source *source)
{
    static const char suffix[] = "weight";
    size_t length = strlen(name), tail = sizeof suffix - 1;
    char stem[PJ_TENSOR_NAME_BYTES];
    if (l->status || length < tail || strcmp(name + length - tail, suffix) != 0) return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(length - tail), name);
    if (find_mxfp4_rows(l, stem, rows, cols, source)) return true;
    take_function *take = packing_of(l, stem);
    if (!take) return false;
    pj_packed_weights *w = packed_alloc(l, 1, sizeof *w);
    if (!w) return true;
    *w = (pj_packed_weights){.rows = rows, .cols = cols, .factor = 1};
    bool scaled = find_part(l, stem, "pre_quant_scale").tensor;
    bool right = !scaled && take(l, stem, w);
    if (scaled)
        l->status =
            pj_fail(l->err, PJ_E_UNSUPPORTED,
                    "%s has a pre_quant_scale, a factor on its inputs, which is not read", name);
    else if (!right && !l->status)
        l->status = pj_fail(l->err, PJ_E_UNSUPPORTED,
                            "%s is packed in a way that is not read, or not [%zu, %zu] (GPTQ with "
                            "2, 3, 4 or 8 bits, AWQ with 4, packed or 8-bit compressed-tensors, "
                            "NVFP4 and bitsandbytes are)",
                            name, rows, cols);
    if (right) *source = pj_rows_packed(w);
    return true;
}
