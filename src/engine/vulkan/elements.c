/* Operations on rows and single values: embedding, norms, sums, gates, selections. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <math.h>

enum { ELEMENTS_THREADS = 128, ELEMENTS_MOST_ROWS = 65535 };

static uint32_t elements_rows(uint32_t rows)
{
    return rows < ELEMENTS_MOST_ROWS ? rows : ELEMENTS_MOST_ROWS;
}

void pj_gpu_run_rows(pj_gpu *s, pj_vk_rows_operation operation, pj_vk_gate gate, pj_slice x,
                     pj_slice y, pj_slice other, float scale, float cap, uint32_t dim)
{
    pj_vk_rows_constants constants = {ELEMENTS_THREADS, operation, gate};
    pj_vk_rows_args args = {.x = pj_gpu_at(s, x),
                            .y = pj_gpu_at(s, y),
                            .other = pj_gpu_at(s, other),
                            .rows = y.rows,
                            .n = y.cols,
                            .x_stride = x.stride,
                            .y_stride = y.stride,
                            .other_stride = other.stride,
                            .dim = dim,
                            .scale = scale,
                            .cap = cap};
    pj_gpu_touch(s, pj_gpu_bit(x) | pj_gpu_bit(y) | pj_gpu_bit(other), pj_gpu_bit(y));
    PJ_GPU_RUN(s, PJ_VK_ROWS, &constants, &args, pj_gpu_groups(y.cols, ELEMENTS_THREADS),
               elements_rows(y.rows), 12ull * y.rows * y.cols);
}

/* Ends an operation with so many FLOPs and bytes for each value of y. */
static void elements_end(pj_gpu *s, double flops, double bytes, pj_slice y)
{
    double values = (double)y.rows * y.cols;
    pj_gpu_operation_end(s, flops * values, bytes * values, y);
}

/* ---- rows of tables ---- */

static void elements_gather(pj_gpu *s, uint32_t type, uint64_t table, uint32_t table_rows,
                            uint64_t row_bytes, uint64_t list, float scale, pj_slice y)
{
    pj_vk_gather_constants constants = {ELEMENTS_THREADS, type};
    pj_vk_gather_args args = {.table = table,
                              .list = list,
                              .y = pj_gpu_at(s, y),
                              .row_bytes = row_bytes,
                              .rows = y.rows,
                              .cols = y.cols,
                              .y_stride = y.stride,
                              .table_rows = table_rows,
                              .scale = scale};
    PJ_GPU_RUN(s, PJ_VK_GATHER, &constants, &args, pj_gpu_groups(y.cols, 16 * ELEMENTS_THREADS),
               y.rows, y.rows * row_bytes);
}

void pj_gpu_gather(void *state, const pj_matrix *table, float scale, pj_slice y)
{
    pj_gpu *s = state;
    pj_gpu_operation(s, table->type == PJ_F32 ? PJ_N_OP_GATHER : PJ_N_OP_DEQUANTISE);
    pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_IDS), pj_gpu_bit(y));
    elements_gather(s, pj_vk_weight_type(table->type), pj_gpu_weight(&s->on->weights, table->data),
                    (uint32_t)table->rows, pj_vk_weight_row_bytes(table->type, table->cols),
                    s->inputs.device.address + s->inputs.ids, scale, y);
    elements_end(s, scale != 1, (double)table->row_bytes / y.cols + 4, y);
}

void pj_gpu_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y)
{
    pj_gpu *s = state;
    pj_gpu_touch(s, pj_gpu_bit(x), pj_gpu_bit(y));
    elements_gather(s, PJ_F32, pj_gpu_at(s, x), UINT32_MAX, 4ull * x.stride,
                    pj_gpu_list(s, rows, y.rows), 1, y);
}

/* ---- norms ---- */

static void elements_norm(pj_gpu *s, const pj_norm_step *step)
{
    pj_slice other = step->residual;
    bool layer = step->kind == PJ_NORM_LAYER;
    const pj_gpu_weights *weights = &s->on->weights;
    /* the threads of the kernel that would do it with its own work: the same sums */
    uint32_t threads = step->heads > 1 ? PJ_GPU_HEAD_THREADS : ELEMENTS_THREADS;
    pj_vk_norm_constants constants = {threads, layer ? PJ_VK_NORM_LAYER : PJ_VK_NORM_RMS,
                                      other.buffer ? PJ_VK_NORM_RESIDUAL : PJ_VK_NORM_STORE,
                                      pj_norm_eps(step->norm, &s->model->config),
                                      (float)s->model->config.residual_scale};
    pj_vk_norm_args args = {.x = pj_gpu_at(s, step->x),
                            .y = pj_gpu_at(s, step->y),
                            .weight = pj_gpu_weight(weights, step->norm->w),
                            .bias = layer ? pj_gpu_weight(weights, step->norm->b) : 0,
                            .other = pj_gpu_at(s, other),
                            .rows = step->y.rows * step->heads,
                            .n = step->y.cols / step->heads,
                            .per_token = step->heads,
                            .x_stride = step->x.stride,
                            .y_stride = step->y.stride,
                            .other_stride = other.stride};
    uint32_t both = pj_gpu_bit(step->y) | pj_gpu_bit(other);
    pj_gpu_touch(s, pj_gpu_bit(step->x) | both, both);
    PJ_GPU_RUN(s, PJ_VK_NORM, &constants, &args, elements_rows(args.rows), 1,
               8ull * step->y.rows * step->y.cols);
}

void pj_gpu_norm(void *state, const pj_norm_step *step)
{
    if (!pj_gpu_hold_norm(state, step) && !pj_gpu_hold_head_norm(state, step))
        pj_gpu_run_norm(state, step);
}

void pj_gpu_run_norm(pj_gpu *s, const pj_norm_step *step)
{
    pj_done work = pj_norm_work(step);
    uint32_t figures = pj_gpu_norm_figures(s, step);
    pj_gpu_operation(s, PJ_N_OP_NORM);
    elements_norm(s, step);
    pj_gpu_operation_end(s, work.flops, work.bytes, step->y);
    pj_gpu_attach(s, figures);
}

void pj_gpu_join_vectors(void *state, const pj_norm *norm, pj_slice context, pj_slice vectors)
{
    pj_gpu *s = state;
    const pj_model_config *c = &s->model->config;
    pj_norm_step step = {.norm = norm,
                         .kind = PJ_NORM_RMS,
                         .heads = vectors.cols / c->token_vector,
                         .x = context,
                         .y = context};
    pj_gpu_operation(s, PJ_N_OP_NORM);
    pj_gpu_run_rows(s, PJ_VK_ROWS_SCALE, 0, context, context, (pj_slice){0},
                    1 / sqrtf((float)c->hidden), 0, 1);
    elements_norm(s, &step);
    pj_gpu_run_rows(s, PJ_VK_ROWS_JOIN, 0, context, vectors, (pj_slice){0}, sqrtf(0.5f), 0, 1);
    elements_end(s, 10, 12, vectors);
}

/* ---- value by value ---- */

void pj_gpu_scale(void *state, pj_slice x, float factor)
{
    pj_gpu_operation(state, PJ_N_OP_SCALE);
    pj_gpu_run_rows(state, PJ_VK_ROWS_SCALE, 0, x, x, (pj_slice){0}, factor, 0, 1);
    elements_end(state, 1, 8, x);
}

void pj_gpu_add(void *state, pj_slice y, pj_slice x)
{
    pj_gpu *s = state;
    float scale = (float)s->model->config.residual_scale;
    pj_gpu_operation(s, PJ_N_OP_RESIDUAL_ADD);
    pj_gpu_run_rows(s, PJ_VK_ROWS_ADD, 0, x, y, (pj_slice){0}, scale, 0, 1);
    elements_end(s, scale == 1 ? 1 : 2, 12, y);
}

void pj_gpu_bound(void *state, pj_slice x, float factor, float cap)
{
    double values = (double)x.rows * x.cols;
    pj_gpu_operation(state, cap > 0 ? PJ_N_OP_SOFTCAP : PJ_N_OP_SCALE);
    pj_gpu_run_rows(state, cap > 0 ? PJ_VK_ROWS_CAP : PJ_VK_ROWS_SCALE, 0, x, x, (pj_slice){0},
                    factor, cap, 1);
    pj_gpu_operation_end(state, ((factor != 1) + 6 * (cap > 0)) * values, 8 * values,
                         (pj_slice){0});
}

/* What gates are cut to, in act. */
static void elements_cut(pj_gpu *s, const pj_activation *a)
{
    pj_vk_cut_constants constants = {ELEMENTS_THREADS, a->cutoff};
    pj_vk_cut_args args = {.x = pj_gpu_at(s, a->gate),
                           .y = pj_gpu_at(s, a->act),
                           .rows = a->act.rows,
                           .n = a->act.cols,
                           .x_stride = a->gate.stride,
                           .y_stride = a->act.stride};
    pj_gpu_touch(s, pj_gpu_bit(a->gate), pj_gpu_bit(a->act));
    PJ_GPU_RUN(s, PJ_VK_CUT, &constants, &args, elements_rows(args.rows), 1,
               8ull * args.rows * args.n);
}

/* act = f(gate), times `up` if there is one. */
static void elements_run_gate(pj_gpu *s, const pj_activation *a, pj_slice up)
{
    pj_vk_rows_constants constants = {ELEMENTS_THREADS, PJ_VK_ROWS_GATE, pj_gpu_gate(a)};
    pj_slice gate = a->cuts ? a->act : a->gate;
    if (a->cuts) elements_cut(s, a);
    pj_vk_rows_args args = {.x = pj_gpu_at(s, gate),
                            .y = pj_gpu_at(s, a->act),
                            .other = a->xielu ? pj_gpu_weight(&s->on->weights, a->xielu)
                                              : pj_gpu_at(s, up),
                            .rows = a->act.rows,
                            .n = a->act.cols,
                            .x_stride = gate.stride,
                            .y_stride = a->act.stride,
                            .other_stride = up.stride,
                            .dim = 1,
                            .scale = a->alpha,
                            .cap = a->limit};
    pj_gpu_touch(s, pj_gpu_bit(gate) | pj_gpu_bit(up), pj_gpu_bit(a->act));
    PJ_GPU_RUN(s, PJ_VK_ROWS, &constants, &args, pj_gpu_groups(args.n, ELEMENTS_THREADS),
               elements_rows(args.rows), 12ull * args.rows * args.n);
}

/* What the gate's counts are of: f(gate), before it is multiplied. */
static void elements_count_gate(pj_gpu *s, const pj_activation *a)
{
    pj_gpu_touch(s, pj_gpu_bit(a->gate) | pj_gpu_bit(a->act) | pj_gpu_bit(a->up), 0);
    pj_gpu_gate_figures(s, (pj_vk_gate_figures_args){.gate = pj_gpu_at(s, a->gate),
                                                     .activated = pj_gpu_at(s, a->act),
                                                     .up = pj_gpu_at(s, a->up),
                                                     .rows = a->act.rows,
                                                     .n = a->act.cols,
                                                     .gate_stride = a->gate.stride,
                                                     .activated_stride = a->act.stride,
                                                     .up_stride = a->up.stride});
}

/* Activation and multiplication as operations of their own: the same values. */
static void elements_activate_apart(pj_gpu *s, const pj_activation *a)
{
    pj_gpu_operation(s, PJ_N_OP_ACTIVATION);
    elements_run_gate(s, a, pj_no_slice);
    elements_end(s, 4, 8, a->act);
    elements_count_gate(s, a);
    if (!a->up.buffer) return;
    pj_gpu_operation(s, PJ_N_OP_GATE_MUL);
    pj_gpu_run_rows(s, PJ_VK_ROWS_MULTIPLY, pj_gpu_gate(a), a->act, a->act, a->up, 1, a->limit, 1);
    elements_end(s, 1, 12, a->act);
}

/* act = gate up */
static void elements_multiply(pj_gpu *s, const pj_activation *a)
{
    pj_gpu_operation(s, PJ_N_OP_GATE_MUL);
    pj_gpu_run_rows(s, PJ_VK_ROWS_MULTIPLY, PJ_VK_GATE_SILU, a->gate, a->act, a->up, 1, 0, 1);
    elements_end(s, 1, 12, a->act);
}

void pj_gpu_activate(void *state, const pj_activation *a)
{
    pj_gpu *s = state;
    pj_gpu_held inputs;
    if (a->kind == PJ_ACT_NONE && a->up.buffer) {
        elements_multiply(s, a);
        return;
    }
    if (s->instrument->deep)
        elements_activate_apart(s, a);
    else if (pj_gpu_take_products(s, a, &inputs))
        pj_gpu_run_gate(s, &inputs, a);
    else
        elements_run_gate(s, a, a->up);
}

void pj_gpu_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to)
{
    pj_gpu_run_rows(state, PJ_VK_ROWS_QUERIES, 0, from, to, (pj_slice){0}, 1, 0, layer->head_dim);
}

void pj_gpu_copy_heads(void *state, uint32_t heads, pj_slice from, uint32_t from_step, pj_slice to,
                       uint32_t to_step)
{
    pj_gpu *s = state;
    pj_vk_rows_constants constants = {ELEMENTS_THREADS, PJ_VK_ROWS_HEADS, 0};
    pj_vk_rows_args args = {.x = pj_gpu_at(s, from),
                            .y = pj_gpu_at(s, to),
                            .rows = to.rows,
                            .n = heads * to.cols,
                            .x_stride = from.stride,
                            .y_stride = to.stride,
                            .dim = to.cols,
                            .x_step = from_step,
                            .y_step = to_step};
    pj_gpu_touch(s, pj_gpu_bit(from), pj_gpu_bit(to));
    PJ_GPU_RUN(s, PJ_VK_ROWS, &constants, &args, pj_gpu_groups(args.n, ELEMENTS_THREADS),
               elements_rows(to.rows), 8ull * to.rows * args.n);
}

void pj_gpu_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y)
{
    pj_gpu_run_rows(state, PJ_VK_ROWS_SIGMOID, 0, gates, y, (pj_slice){0}, 1, 0, layer->head_dim);
}

void pj_gpu_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate)
{
    double values = (double)y.rows * y.cols;
    pj_gpu_operation(state, PJ_N_OP_SCATTER_ADD);
    pj_gpu_run_rows(state, PJ_VK_ROWS_MIX, 0, x, y, gate, 1, 0, 1);
    pj_gpu_operation_end(state, 2 * values, 12 * values, (pj_slice){0});
}
