/* Operations on rows and single values: embedding, norms, sums, gates, selections. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <math.h>

enum { ELEMENTS_THREADS = 128, ELEMENTS_MOST_ROWS = 65535 };

static uint32_t elements_rows(uint32_t rows)
{
    return rows < ELEMENTS_MOST_ROWS ? rows : ELEMENTS_MOST_ROWS;
}

/* What each is called as an operation. */
static const pj_instrument_name elements_names[] = {
    [PJ_VK_ROWS_SCALE] = PJ_N_OP_SCALE,      [PJ_VK_ROWS_ADD] = PJ_N_OP_RESIDUAL_ADD,
    [PJ_VK_ROWS_CAP] = PJ_N_OP_SOFTCAP,      [PJ_VK_ROWS_GATE] = PJ_N_OP_ACTIVATION,
    [PJ_VK_ROWS_SIGMOID] = PJ_N_OP_GATE_MUL, [PJ_VK_ROWS_QUERIES] = PJ_N_OP_GATHER,
    [PJ_VK_ROWS_MIX] = PJ_N_OP_SCATTER_ADD,  [PJ_VK_ROWS_JOIN] = PJ_N_OP_RESIDUAL_ADD};

/* A kernel by value over the rows of y. */
static void elements_run(pj_gpu *s, pj_vk_rows_operation operation, pj_vk_gate gate, pj_slice x,
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
    pj_gpu_operation(s, elements_names[operation]);
    pj_gpu_touch(s, pj_gpu_bit(x) | pj_gpu_bit(y) | pj_gpu_bit(other), pj_gpu_bit(y));
    PJ_GPU_RUN(s, PJ_VK_ROWS, &constants, &args, pj_gpu_groups(y.cols, ELEMENTS_THREADS),
               elements_rows(y.rows), 12ull * y.rows * y.cols);
    pj_gpu_operation_end(s, NAN, (other.buffer ? 12.0 : 8.0) * y.rows * y.cols);
}

/* ---- rows of tables ---- */

static void elements_gather(pj_gpu *s, uint32_t type, uint64_t table, uint64_t row_bytes,
                            uint64_t list, float scale, pj_slice y)
{
    pj_vk_gather_constants constants = {ELEMENTS_THREADS, type};
    pj_vk_gather_args args = {.table = table,
                              .list = list,
                              .y = pj_gpu_at(s, y),
                              .row_bytes = row_bytes,
                              .rows = y.rows,
                              .cols = y.cols,
                              .y_stride = y.stride,
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
                    pj_vk_weight_row_bytes(table->type, table->cols),
                    s->inputs.device.address + s->inputs.ids, scale, y);
    pj_gpu_operation_end(s, NAN, (double)y.rows * ((double)table->row_bytes + 4.0 * y.cols));
}

void pj_gpu_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y)
{
    pj_gpu *s = state;
    pj_gpu_touch(s, pj_gpu_bit(x), pj_gpu_bit(y));
    elements_gather(s, PJ_F32, pj_gpu_at(s, x), 4ull * x.stride, pj_gpu_list(s, rows, y.rows), 1,
                    y);
}

/* ---- norms ---- */

static void elements_norm(pj_gpu *s, const pj_norm_step *step, pj_vk_norm_output output,
                          const float *w, const float *b, pj_slice other)
{
    bool layer = step->kind == PJ_NORM_LAYER;
    const pj_gpu_weights *weights = &s->on->weights;
    /* the threads of the kernel that would do it with its own work: the same sums */
    uint32_t threads = step->heads > 1 ? PJ_GPU_HEAD_THREADS : ELEMENTS_THREADS;
    pj_vk_norm_constants constants = {threads, layer ? PJ_VK_NORM_LAYER : PJ_VK_NORM_RMS, output,
                                      (float)s->model->config.norm_eps,
                                      (float)s->model->config.residual_scale};
    pj_vk_norm_args args = {.x = pj_gpu_at(s, step->x),
                            .y = pj_gpu_at(s, step->y),
                            .weight = pj_gpu_weight(weights, w),
                            .bias = layer ? pj_gpu_weight(weights, b) : 0,
                            .other = pj_gpu_at(s, other),
                            .rows = step->y.rows * step->heads,
                            .n = step->y.cols / step->heads,
                            .per_token = step->heads,
                            .x_stride = step->x.stride,
                            .y_stride = step->y.stride,
                            .other_stride = other.stride};
    uint32_t both = pj_gpu_bit(step->y) | pj_gpu_bit(other);
    pj_done work = pj_norm_work(step);
    pj_gpu_operation(s, PJ_N_OP_NORM);
    pj_gpu_touch(s, pj_gpu_bit(step->x) | both, both);
    PJ_GPU_RUN(s, PJ_VK_NORM, &constants, &args, elements_rows(args.rows), 1,
               8ull * step->y.rows * step->y.cols);
    pj_gpu_operation_end(s, work.flops, work.bytes);
}

void pj_gpu_norm(void *state, const pj_norm_step *step)
{
    if (!pj_gpu_hold_norm(state, step) && !pj_gpu_hold_head_norm(state, step))
        pj_gpu_run_norm(state, step);
}

void pj_gpu_run_norm(pj_gpu *s, const pj_norm_step *step)
{
    bool adds = step->residual.buffer != PJ_NO_BUFFER;
    elements_norm(s, step, adds ? PJ_VK_NORM_RESIDUAL : PJ_VK_NORM_STORE, step->norm->w,
                  step->norm->b, step->residual);
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
    elements_run(s, PJ_VK_ROWS_SCALE, 0, context, context, (pj_slice){0},
                 1 / sqrtf((float)c->hidden), 0, 1);
    elements_norm(s, &step, PJ_VK_NORM_STORE, norm->w, NULL, (pj_slice){0});
    elements_run(s, PJ_VK_ROWS_JOIN, 0, context, vectors, (pj_slice){0}, sqrtf(0.5f), 0, 1);
}

/* ---- value by value ---- */

void pj_gpu_scale(void *state, pj_slice x, float factor)
{
    elements_run(state, PJ_VK_ROWS_SCALE, 0, x, x, (pj_slice){0}, factor, 0, 1);
}

void pj_gpu_add(void *state, pj_slice y, pj_slice x)
{
    const pj_gpu *s = state;
    elements_run(state, PJ_VK_ROWS_ADD, 0, x, y, (pj_slice){0},
                 (float)s->model->config.residual_scale, 0, 1);
}

void pj_gpu_bound(void *state, pj_slice x, float factor, float cap)
{
    elements_run(state, cap > 0 ? PJ_VK_ROWS_CAP : PJ_VK_ROWS_SCALE, 0, x, x, (pj_slice){0}, factor,
                 cap, 1);
}

void pj_gpu_activate(void *state, const pj_activation *a)
{
    pj_gpu *s = state;
    pj_gpu_held inputs;
    if (pj_gpu_take_products(s, a, &inputs))
        pj_gpu_run_gate(s, &inputs, a);
    else
        elements_run(s, PJ_VK_ROWS_GATE, pj_gpu_gate(a), a->gate, a->act, a->up, a->alpha, a->limit,
                     1);
}

void pj_gpu_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to)
{
    elements_run(state, PJ_VK_ROWS_QUERIES, 0, from, to, (pj_slice){0}, 1, 0, layer->head_dim);
}

void pj_gpu_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y)
{
    elements_run(state, PJ_VK_ROWS_SIGMOID, 0, gates, y, (pj_slice){0}, 1, 0, layer->head_dim);
}

void pj_gpu_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate)
{
    elements_run(state, PJ_VK_ROWS_MIX, 0, x, y, gate, 1, 0, 1);
}
