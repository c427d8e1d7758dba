/*
 * The two products of attention for one KV head, vectorised.
 *
 * Few query rows (decode: the heads of one group): a key row is read once, converted once and
 * multiplied with all of them. Many rows (prefill): keys are transposed once into panels of a
 * tile's width for all rows, and both products use register tiles.
 */
#include "engine/kernels/vector_tile.h"

enum {
    PANEL = TILE_VECTORS * LANES, /* keys */
    MAX_HEAD = 1024,              /* head_dim: the panel must fit the caller's scratch */
    FEW_ROWS = TILE_ROWS - 1,
    VALUE_ROWS = 64 /* rows of V converted at a time */
};

_Static_assert(MAX_HEAD *PANEL * 4 + PANEL * MAX_HEAD * 4 <= PJ_ATTENTION_SCRATCH_BYTES,
               "a panel and its converted rows must fit the scratch");

static const char *kv_row(const pj_kv_rows *rows, size_t position)
{
    return (const char *)rows->data + position * rows->row_bytes;
}

/* Rows [first, first + n) as floats: in place, or converted to `to` with head_dim floats per
 * row. */
static const float *float_rows(const pj_kv_rows *rows, size_t first, size_t n, size_t head_dim,
                               float *to, size_t *stride)
{
    if (rows->type == PJ_F32 && rows->row_bytes % 4 == 0) {
        *stride = rows->row_bytes / 4;
        return (const float *)(const void *)kv_row(rows, first);
    }
    *stride = head_dim;
    for (size_t j = 0; j < n; j++) {
        const char *from = kv_row(rows, first + j);
        float *row = to + j * head_dim;
        size_t i = 0;
        if (rows->type == PJ_F16)
            for (; i + LANES <= head_dim; i += LANES)
                vec_store(row + i, vec_load_f16(from + 2 * i));
        for (; i < head_dim; i++) {
            if (rows->type == PJ_F16)
                row[i] = pj_float_of_f16(pj_load_u16(from + 2 * i));
            else
                memcpy(&row[i], from + 4 * i, 4);
        }
    }
    return to;
}

/* ---- scores ----------------------------------------------------------------------------- */

/* R query rows against LANES keys. */
INLINE void few_scores(float *scores, size_t score_stride, const float *q, size_t q_stride,
                       const pj_kv_rows *keys, size_t first, size_t n, size_t head_dim,
                       const size_t R)
{
    vec sums[4][LANES];
    size_t whole = head_dim / LANES * LANES, rest = head_dim - whole;
    for (size_t j = 0; j < LANES; j++) {
        const char *key = kv_row(keys, first + (j < n ? j : n - 1));
        size_t bytes = keys->type == PJ_F16 ? 2 : 4;
        vec sum[4] = {vec_of(0), vec_of(0), vec_of(0), vec_of(0)};
        for (size_t i = 0; i < whole; i += LANES) {
            vec k = vec_load_type(keys->type, key + i * bytes);
            UNROLL for (size_t r = 0; r < R; r++) sum[r] += k * vec_load(q + r * q_stride + i);
        }
        if (rest > 0) {
            vec k = vec_load_type_some(keys->type, key + whole * bytes, rest);
            UNROLL for (size_t r = 0; r < R; r++) sum[r] +=
                k * vec_load_some(q + r * q_stride + whole, rest);
        }
        UNROLL for (size_t r = 0; r < R; r++) sums[r][j] = sum[r];
    }
    UNROLL for (size_t r = 0; r < R; r++)
    {
        vec each = vec_sum_each(sums[r]);
        float *to = scores + r * score_stride + first;
        if (n == LANES)
            vec_store(to, each);
        else
            vec_store_some(to, each, n);
    }
}

static void scores_of_few(float *scores, size_t score_stride, const float *q, size_t q_stride,
                          size_t rows, const pj_kv_rows *keys, size_t n, size_t head_dim)
{
    for (size_t first = 0; first < n; first += LANES) {
        size_t part = n - first < LANES ? n - first : LANES, r = 0;
        for (; r + 4 <= rows; r += 4)
            few_scores(scores + r * score_stride, score_stride, q + r * q_stride, q_stride, keys,
                       first, part, head_dim, 4);
        for (; r < rows; r++)
            few_scores(scores + r * score_stride, score_stride, q + r * q_stride, q_stride, keys,
                       first, part, head_dim, 1);
    }
}

/* One panel of keys against all rows. Partial panels at the end of the scores' rows go through a
 * buffer. */
static void scores_of_panel(float *scores, size_t score_stride, const float *q, size_t q_stride,
                            size_t rows, const float *panel, size_t n, size_t head_dim)
{
    size_t vectors = (n + LANES - 1) / LANES;
    float buffer[TILE_ROWS * PANEL];
    for (size_t first = 0; first < rows; first += TILE_ROWS) {
        size_t some = rows - first < TILE_ROWS ? rows - first : TILE_ROWS;
        const float *a[TILE_ROWS];
        for (size_t r = 0; r < some; r++) a[r] = q + (first + r) * q_stride;
        bool direct = n == vectors * LANES;
        float *to = scores + first * score_stride;
        tile_any(direct ? to : buffer, direct ? score_stride : PANEL, a, panel, vectors * LANES,
                 head_dim, false, (tile_ahead){(const char *)panel, 0}, some, vectors);
        if (direct) continue;
        for (size_t r = 0; r < some; r++)
            memcpy(to + r * score_stride, buffer + r * PANEL, n * sizeof(float));
    }
}

static void attention_scores(float *scores, size_t score_stride, const float *q, size_t q_stride,
                             size_t rows, const pj_kv_rows *keys, size_t n, size_t head_dim,
                             void *scratch)
{
    if (rows <= FEW_ROWS || head_dim > MAX_HEAD) {
        scores_of_few(scores, score_stride, q, q_stride, rows, keys, n, head_dim);
        return;
    }
    float *panel = scratch, *converted = panel + (size_t)MAX_HEAD * PANEL;
    for (size_t first = 0; first < n; first += PANEL) {
        size_t part = n - first < PANEL ? n - first : PANEL, stride;
        size_t width = (part + LANES - 1) / LANES * LANES;
        const float *from = float_rows(keys, first, part, head_dim, converted, &stride);
        transpose_panel(from, stride, part, width, head_dim, panel);
        scores_of_panel(scores + first, score_stride, q, q_stride, rows, panel, part, head_dim);
    }
}

/* ---- values ----------------------------------------------------------------------------- */

/* The remaining columns, fewer than a vector. */
static void value_rest(float *y, size_t y_stride, const float *const *a, size_t rows,
                       const float *values, size_t stride, size_t n, size_t cols, bool add)
{
    for (size_t r = 0; r < rows; r++) {
        vec sum = add ? vec_load_some(y + r * y_stride, cols) : vec_of(0);
        for (size_t j = 0; j < n; j++) sum += a[r][j] * vec_load_some(values + j * stride, cols);
        vec_store_some(y + r * y_stride, sum, cols);
    }
}

static void values_of_rows(float *y, size_t y_stride, const float *const *a, size_t rows,
                           const float *values, size_t stride, size_t n, size_t head_dim, bool add)
{
    size_t col = 0;
    while (head_dim - col >= LANES) {
        size_t vectors = (head_dim - col) / LANES;
        if (vectors > TILE_VECTORS) vectors = vectors == 4 ? 2 : TILE_VECTORS;
        tile_any(y + col, y_stride, a, values + col, stride, n, add,
                 (tile_ahead){(const char *)values, 0}, rows, vectors);
        col += vectors * LANES;
    }
    if (col < head_dim)
        value_rest(y + col, y_stride, a, rows, values + col, stride, n, head_dim - col, add);
}

static void attention_values(float *y, size_t y_stride, const float *weights, size_t weight_stride,
                             size_t rows, const pj_kv_rows *values, size_t n, size_t head_dim,
                             bool add, void *scratch)
{
    size_t step = VALUE_ROWS;
    while (step * head_dim * sizeof(float) > PJ_ATTENTION_SCRATCH_BYTES) step /= 2;
    if (n == 0 && !add)
        for (size_t r = 0; r < rows; r++) memset(y + r * y_stride, 0, head_dim * sizeof *y);
    for (size_t first = 0; first < n; first += step) {
        size_t part = n - first < step ? n - first : step, stride;
        const float *from = float_rows(values, first, part, head_dim, scratch, &stride);
        for (size_t r = 0; r < rows; r += TILE_ROWS) {
            size_t some = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
            const float *a[TILE_ROWS];
            for (size_t i = 0; i < some; i++) a[i] = weights + (r + i) * weight_stride + first;
            values_of_rows(y + r * y_stride, y_stride, a, some, from, stride, part, head_dim,
                           add || first > 0);
        }
    }
}

void PJ_SET_SYMBOL(attention)(pj_kernels *kernels)
{
    kernels->attention_scores = attention_scores;
    kernels->attention_values = attention_values;
}
