/* Operations on single values and rows: gathering, scaling, sums, selections. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Rows of up to this many are summed at the end of a layer rather than while they are added. */
enum { FEW_ROWS = 8 };

/* ---- embedding ---------------------------------------------------------------------------- */

typedef struct gather_task {
    const pj_cpu *s;
    const pj_matrix *table;
    float scale;
    pj_slice y;
} gather_task;

static void gather_row(void *context, size_t row)
{
    const gather_task *t = context;
    const unsigned char *stored = t->table->data;
    float *y = pj_cpu_row(t->s, t->y, row);
    size_t id = (size_t)t->s->rows.pass->ids[row];
    if (id >= t->table->rows) id = 0;
    t->s->kernels->dequantise(t->table->type, stored + id * t->table->row_bytes, y, t->y.cols);
    if (t->scale != 1) t->s->kernels->scale(y, t->y.cols, t->scale);
}

void pj_cpu_gather(void *state, const pj_matrix *table, float scale, pj_slice y)
{
    pj_cpu *s = state;
    double rows = y.rows, values = rows * y.cols;
    pj_cpu_done done =
        pj_cpu_work(s, y, scale != 1 ? values : 0, rows * (double)table->row_bytes + 4 * values);
    pj_instrument_operation(s->instrument,
                            table->type == PJ_F32 ? PJ_N_OP_GATHER : PJ_N_OP_DEQUANTISE);
    pj_cpu_rows_summed(s, y.rows, (size_t)y.rows * y.cols, gather_row,
                       &(gather_task){s, table, scale, y}, &done);
    pj_cpu_operation_end(s, &done);
}

typedef struct join_task {
    const pj_cpu *s;
    const pj_norm *norm;
    pj_slice context, vectors;
} join_task;

static void join_row(void *context, size_t row)
{
    const join_task *t = context;
    const pj_model_config *c = &t->s->model->config;
    const pj_kernels *k = t->s->kernels;
    size_t n = c->token_vector, all = t->vectors.cols;
    float *vectors = pj_cpu_row(t->s, t->vectors, row);
    float *projected = pj_cpu_row(t->s, t->context, row);
    k->scale(projected, all, 1 / sqrtf((float)c->hidden));
    for (size_t i = 0; i < all; i += n)
        k->rmsnorm(projected + i, projected + i, t->norm->w, n, (float)c->norm_eps);
    k->add(vectors, projected, all);
    k->scale(vectors, all, sqrtf(0.5f));
}

void pj_cpu_join_vectors(void *state, const pj_norm *norm, pj_slice context, pj_slice vectors)
{
    pj_cpu *s = state;
    size_t values = (size_t)vectors.rows * vectors.cols;
    pj_cpu_done done = pj_cpu_work(s, vectors, 10.0 * (double)values, 12.0 * (double)values);
    pj_instrument_operation(s->instrument, PJ_N_OP_NORM);
    pj_cpu_rows_summed(s, vectors.rows, values, join_row, &(join_task){s, norm, context, vectors},
                       &done);
    pj_cpu_operation_end(s, &done);
}

/* ---- scaling ------------------------------------------------------------------------------ */

typedef struct scale_task {
    const pj_cpu *s;
    pj_slice x;
    float factor, cap;
} scale_task;

static void scale_row(void *context, size_t row)
{
    const scale_task *t = context;
    t->s->kernels->scale(pj_cpu_row(t->s, t->x, row), t->x.cols, t->factor);
}

void pj_cpu_scale(void *state, pj_slice x, float factor)
{
    pj_cpu *s = state;
    size_t values = (size_t)x.rows * x.cols;
    pj_cpu_done done = pj_cpu_work(s, x, (double)values, 8 * (double)values);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCALE);
    pj_cpu_rows_summed(s, x.rows, values, scale_row, &(scale_task){s, x, factor, 0}, &done);
    pj_cpu_operation_end(s, &done);
}

static void bound_row(void *context, size_t row)
{
    const scale_task *t = context;
    float *x = pj_cpu_row(t->s, t->x, row);
    if (t->factor != 1) t->s->kernels->scale(x, t->x.cols, t->factor);
    if (t->cap > 0) t->s->kernels->softcap(x, t->x.cols, t->cap);
}

void pj_cpu_bound(void *state, pj_slice x, float factor, float cap)
{
    pj_cpu *s = state;
    size_t values = (size_t)x.rows * x.cols;
    pj_cpu_done done = {.flops = ((factor != 1) + 6 * (cap > 0)) * (double)values,
                        .bytes = 8 * (double)values};
    pj_instrument_operation(s->instrument, cap > 0 ? PJ_N_OP_SOFTCAP : PJ_N_OP_SCALE);
    pj_cpu_rows(s, x.rows, values, bound_row, &(scale_task){s, x, factor, cap});
    pj_cpu_operation_end(s, &done);
}

/* ---- sums --------------------------------------------------------------------------------- */

typedef struct add_task {
    const pj_cpu *s;
    pj_slice y, x, gate;
    float scale;
} add_task;

static void add_row(void *context, size_t row)
{
    const add_task *t = context;
    float *y = pj_cpu_row(t->s, t->y, row);
    const float *x = pj_cpu_row(t->s, t->x, row);
    if (t->scale == 1)
        t->s->kernels->add(y, x, t->y.cols);
    else
        t->s->kernels->add_scaled(y, x, t->scale, t->y.cols);
}

void pj_cpu_add_scaled(pj_cpu *s, pj_slice y, pj_slice x, float scale)
{
    size_t values = (size_t)y.rows * y.cols;
    pj_cpu_done done =
        pj_cpu_work(s, y, (scale == 1 ? 1 : 2) * (double)values, 12 * (double)values);
    add_task task = {.s = s, .y = y, .x = x, .scale = scale};
    pj_instrument_operation(s->instrument, PJ_N_OP_RESIDUAL_ADD);
    /* At depth `module` only the statistics of a layer's last addition are needed: of many rows
     * they are computed while in cache, of few at the end of the layer. */
    if (s->instrument->deep || y.rows > FEW_ROWS)
        pj_cpu_rows_summed(s, y.rows, values, add_row, &task, &done);
    else
        pj_cpu_rows(s, y.rows, values, add_row, &task);
    pj_cpu_operation_end(s, &done);
}

void pj_cpu_add(void *state, pj_slice y, pj_slice x)
{
    pj_cpu *s = state;
    pj_cpu_add_scaled(s, y, x, (float)s->model->config.residual_scale);
}

static void add_gated_row(void *context, size_t row)
{
    const add_task *t = context;
    float gate = 1.0f / (1.0f + expf(-*pj_cpu_row(t->s, t->gate, row)));
    t->s->kernels->add_scaled(pj_cpu_row(t->s, t->y, row), pj_cpu_row(t->s, t->x, row), gate,
                              t->y.cols);
}

void pj_cpu_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate)
{
    pj_cpu *s = state;
    add_task task = {.s = s, .y = y, .x = x, .gate = gate};
    double values = (double)y.rows * y.cols;
    pj_instrument_operation(s->instrument, PJ_N_OP_SCATTER_ADD);
    pj_cpu_rows(s, y.rows, (size_t)y.rows * y.cols, add_gated_row, &task);
    pj_cpu_operation_end(s, &(pj_cpu_done){.flops = 2 * values, .bytes = 12 * values});
}

void pj_cpu_give(void *state, const float *values, pj_slice y)
{
    const pj_cpu *s = state;
    for (uint32_t row = 0; row < y.rows; row++)
        memcpy(pj_cpu_row(s, y, row), values + row * (size_t)y.cols, y.cols * sizeof *values);
}

/* ---- selections --------------------------------------------------------------------------- */

void pj_cpu_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y)
{
    const pj_cpu *s = state;
    for (uint32_t i = 0; i < y.rows; i++)
        memcpy(pj_cpu_row(s, y, i), pj_cpu_row(s, x, rows[i]), y.cols * sizeof(float));
}

void pj_cpu_argmax(void *state, pj_slice x)
{
    const pj_cpu *s = state;
    for (uint32_t row = 0; row < x.rows; row++) {
        const float *values = pj_cpu_row(s, x, row);
        uint32_t best = 0;
        for (uint32_t i = 1; i < x.cols; i++)
            if (values[i] > values[best]) best = i;
        s->ids[row] = (int32_t)best;
    }
}
