/* Loads packed weights of folders (packed_rows.h): finds the tensors that replace "weight", tells
 * the packing from their names and shapes, and converts rows to types that kernels read. */
#include "engine/model/model_load.h"

#include "engine/model/packed_rows.h"

#include <stdio.h>
#include <string.h>

typedef struct packed_part {
    const pj_tensor *tensor; /* NULL: absent */
    size_t rows, cols;
} packed_part;

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

/* The groups of columns, if they are not adjacent. */
static bool take_order(pj_packed_weights *w, const packed_part *order)
{
    bool adjacent = true;
    if (!order->tensor) return true;
    if (!is_words(order, 1, w->cols)) return false;
    for (size_t i = 0; i < w->cols; i++) {
        uint32_t group;
        memcpy(&group, order->tensor->data + 4 * i, 4);
        if (group >= w->cols / w->group) return false;
        adjacent &= group == i / w->group;
    }
    if (!adjacent) w->group_of = order->tensor->data;
    return true;
}

/* GPTQ and AWQ. */
static bool take_by_columns(const pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part codes = find_part(l, stem, "qweight"), zeros = find_part(l, stem, "qzeros");
    packed_part scales = find_part(l, stem, "scales"), order = find_part(l, stem, "g_idx");
    size_t out = w->rows, in = w->cols;
    w->packing = codes.rows == in ? PJ_PACKED_AWQ : PJ_PACKED_GPTQ;
    w->bits = codes.rows * 4 == in ? 8 : 4;
    w->zero_plus = w->packing == PJ_PACKED_GPTQ && l->model->config.packed_zero_plus;
    size_t words = out * w->bits / 32;
    bool right = out % 32 == 0 && in % 32 == 0 &&
                 (w->packing == PJ_PACKED_AWQ ? is_words(&codes, in, out / 8)
                                              : is_words(&codes, in * w->bits / 32, out)) &&
                 take_groups(w, &scales, scales.rows) &&
                 take_scales(w, &scales, scales.rows, out) &&
                 (!zeros.tensor || is_words(&zeros, scales.rows, words));
    if (!right) return false;
    w->codes = codes.tensor->data;
    if (zeros.tensor) w->zeros = zeros.tensor->data;
    return w->packing == PJ_PACKED_AWQ || take_order(w, &order);
}

static bool take_by_rows(const pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part codes = find_part(l, stem, "weight_packed");
    packed_part scales = find_part(l, stem, "weight_scale"),
                order = find_part(l, stem, "weight_g_idx");
    w->packing = PJ_PACKED_ROWS;
    w->bits = codes.cols * 4 == w->cols ? 8 : 4;
    bool right = w->cols % 32 == 0 && is_words(&codes, w->rows, w->cols * w->bits / 32) &&
                 take_groups(w, &scales, scales.cols) &&
                 take_scales(w, &scales, w->rows, scales.cols) &&
                 !find_part(l, stem, "weight_zero_point").tensor;
    if (!right) return false;
    w->codes = codes.tensor->data;
    return take_order(w, &order);
}

/* One float: a factor on all scales, or what they were multiplied with. */
static bool take_factor(const pj_loader *l, const char *stem, pj_packed_weights *w)
{
    packed_part factor = find_part(l, stem, "weight_scale_2");
    packed_part inverse = find_part(l, stem, "weight_global_scale");
    const packed_part *given = factor.tensor ? &factor : &inverse;
    pj_dtype type;
    w->factor = 1;
    if (!given->tensor) return true;
    if (given->rows * given->cols != 1 || !pj_file_dtype(given->tensor->type, &type) ||
        pj_dtype_get(type)->block_values != 1)
        return false;
    l->kernels->dequantise(type, given->tensor->data, &w->factor, 1);
    if (!factor.tensor) w->factor = 1 / w->factor;
    return w->factor > 0 && w->factor < 1e30f;
}

static bool take_fp4(const pj_loader *l, const char *stem, pj_packed_weights *w)
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

bool pj_load_packed(pj_loader *l, const char *name, size_t rows, size_t cols, pj_row_source *source)
{
    static const char suffix[] = "weight";
    size_t length = strlen(name), tail = sizeof suffix - 1;
    char stem[PJ_TENSOR_NAME_BYTES];
    if (l->status || length < tail || strcmp(name + length - tail, suffix) != 0) return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(length - tail), name);
    packed_part plain = find_part(l, stem, "weight"), other = find_part(l, stem, "weight_packed");
    bool columns = find_part(l, stem, "qweight").tensor != NULL;
    const pj_tensor *bytes = plain.tensor ? plain.tensor : other.tensor;
    bool fp4 = bytes && bytes->type == PJ_FILE_U8;
    if (!columns && !other.tensor && !fp4) return false;
    pj_packed_weights *w = pj_arena_alloc(&l->model->arena, 1, sizeof *w);
    if (!w) {
        l->status = pj_fail_memory(l->err, name);
        return true;
    }
    *w = (pj_packed_weights){.rows = rows, .cols = cols};
    bool right = columns ? take_by_columns(l, stem, w)
                 : fp4   ? take_fp4(l, stem, w)
                         : take_by_rows(l, stem, w);
    if (!right) {
        l->status =
            pj_fail(l->err, PJ_E_UNSUPPORTED,
                    "%s is packed in a way that is not read, or not [%zu, %zu] (GPTQ with 4 "
                    "or 8 bits, AWQ, symmetric compressed-tensors and NVFP4 are)",
                    name, rows, cols);
        return true;
    }
    *source = pj_rows_packed(w);
    return true;
}
