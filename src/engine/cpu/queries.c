/* What becomes of queries, keys and values between their projections and attention: gates, rotation
 * by position, and the cache. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* ---- angles ------------------------------------------------------------------------------- */

static void angles_row(void *context, size_t row)
{
    const pj_cpu *s = context;
    uint32_t generation = s->rows.sequences[s->rows.sequence[row]].generation;
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        const pj_rope *rope = &s->model->ropes[i];
        pj_rope_angles(rope, generation, s->rows.position[row], s->cosine[i] + row * rope->pairs,
                       s->sine[i] + row * rope->pairs);
    }
}

void pj_cpu_angles(void *state)
{
    pj_cpu *s = state;
    size_t pairs = 0, rows = s->rows.pass->tokens;
    for (uint32_t i = 0; i < PJ_ROPES; i++) pairs += s->model->ropes[i].pairs;
    /* a sine costs about as much as twenty simple operations */
    pj_cpu_rows(s, rows, rows * pairs * 20, angles_row, s);
}

/* ---- gates -------------------------------------------------------------------------------- */

typedef struct gate_task {
    const pj_cpu *s;
    const pj_layer *l;
    pj_slice gated, y; /* queries and gates alternating by head */
} gate_task;

static void take_queries_row(void *context, size_t row)
{
    const gate_task *t = context;
    size_t dim = t->l->head_dim;
    const float *from = pj_cpu_row(t->s, t->gated, row);
    float *q = pj_cpu_row(t->s, t->y, row);
    for (size_t head = 0; head < t->l->heads; head++)
        memcpy(q + head * dim, from + 2 * head * dim, dim * sizeof *q);
}

void pj_cpu_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to)
{
    pj_cpu_rows(state, to.rows, (size_t)to.rows * to.cols, take_queries_row,
                &(gate_task){state, layer, from, to});
}

typedef struct copy_task {
    const pj_cpu *s;
    uint32_t heads, from_step, to_step;
    pj_slice from, to;
} copy_task;

static void copy_heads_row(void *context, size_t row)
{
    const copy_task *t = context;
    const float *from = pj_cpu_row(t->s, t->from, row);
    float *to = pj_cpu_row(t->s, t->to, row);
    for (uint32_t h = 0; h < t->heads; h++, from += t->from_step, to += t->to_step)
        memcpy(to, from, t->to.cols * sizeof *to);
}

void pj_cpu_copy_heads(void *state, uint32_t heads, pj_slice from, uint32_t from_step, pj_slice to,
                       uint32_t to_step)
{
    pj_cpu_rows(state, to.rows, (size_t)to.rows * to.cols * heads, copy_heads_row,
                &(copy_task){state, heads, from_step, to_step, from, to});
}

static void gate_row(void *context, size_t row)
{
    const gate_task *t = context;
    size_t dim = t->l->head_dim;
    const float *gates = pj_cpu_row(t->s, t->gated, row) + dim;
    float *y = pj_cpu_row(t->s, t->y, row);
    for (size_t head = 0; head < t->l->heads; head++)
        t->s->kernels->sigmoid_multiply(y + head * dim, gates + 2 * head * dim, dim);
}

void pj_cpu_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y)
{
    pj_cpu_done done = pj_cpu_work(state, y, 0, 0);
    pj_cpu_rows_summed(state, y.rows, (size_t)y.rows * y.cols * 8, gate_row,
                       &(gate_task){state, layer, gates, y}, &done);
}

/* ---- rotation and the cache --------------------------------------------------------------- */

typedef struct query_task {
    pj_cpu *s;
    const pj_layer *l;
    pj_slice qkv;
} query_task;

static size_t rotated_heads(const pj_layer *l)
{
    return l->heads + (pj_layer_has_keys(l) ? l->kv_heads : 0);
}

static void rope_row(void *context, size_t row)
{
    const query_task *t = context;
    const pj_cpu *s = t->s;
    const pj_rope *rope = &s->model->ropes[t->l->rope];
    size_t pairs = rope->pairs;
    /* the heads of k follow those of q */
    s->kernels->rope(pj_cpu_row(s, t->qkv, row) + t->l->rope_first, rotated_heads(t->l),
                     t->l->head_dim, s->cosine[t->l->rope] + row * pairs,
                     s->sine[t->l->rope] + row * pairs, 2 * pairs, rope->neighbours);
}

static void scale_queries_row(void *context, size_t row)
{
    const query_task *t = context;
    const pj_model_config *c = &t->s->model->config;
    double periods = floor(((double)t->s->rows.position[row] + c->query_first) / c->query_period);
    if (periods == 0) return;
    t->s->kernels->scale(pj_cpu_row(t->s, t->qkv, row), (size_t)t->l->heads * t->l->head_dim,
                         (float)(1 + c->query_beta * log(1 + periods)));
}

/* An operation on the first `cols` values of each row. */
static void run_on_queries(const query_task *t, pj_instrument_name name, pj_row_fn *run,
                           size_t cols, size_t work, double flops, double values)
{
    pj_cpu *s = t->s;
    pj_cpu_done done = pj_cpu_work(s, t->qkv, flops * values, 8 * values);
    done.cols = cols;
    pj_instrument_operation(s->instrument, name);
    if (s->instrument->deep)
        pj_cpu_rows_summed(s, done.rows, work, run, (void *)(uintptr_t)t, &done);
    else
        pj_cpu_rows(s, done.rows, work, run, (void *)(uintptr_t)t);
    pj_cpu_operation_end(s, &done);
}

static void append_row(void *context, size_t row)
{
    const query_task *t = context;
    const pj_layer *l = t->l;
    const pj_cpu *s = t->s;
    const float *from = pj_cpu_row(s, t->qkv, row) + (size_t)l->heads * l->head_dim;
    for (uint32_t which = 0; which < pj_kv_planes(l); which++)
        for (uint32_t head = 0; head < l->kv_heads; head++, from += l->head_dim) {
            pj_kv_rows to =
                pj_cpu_kv(s, l->index, s->rows.sequence[row], which, head, s->rows.position[row]);
            s->kernels->quantise(to.type, from, (void *)(uintptr_t)to.data, l->head_dim);
        }
}

void pj_cpu_rotate(void *state, const pj_layer *l, pj_slice qkv)
{
    pj_cpu *s = state;
    query_task t = {s, l, qkv};
    size_t values = (size_t)qkv.rows * qkv.cols;
    if (l->rope == PJ_NO_ROPE) return;
    run_on_queries(&t, PJ_N_OP_ROPE, rope_row, rotated_heads(l) * l->head_dim, values, 3,
                   qkv.rows * pj_rotated_values(s->model, l));
}

void pj_cpu_rotate_and_store(void *state, const pj_layer *l, pj_slice qkv)
{
    pj_cpu *s = state;
    query_task t = {s, l, qkv};
    size_t values = (size_t)qkv.rows * qkv.cols, queries = (size_t)l->heads * l->head_dim;
    if (!l->norm_rotated) pj_cpu_rotate(s, l, qkv);
    /* a temperature by position, so that attention over a long context stays sharp */
    if (l->scales_queries)
        run_on_queries(&t, PJ_N_OP_QUERY_SCALE, scale_queries_row, queries, qkv.rows * queries, 1,
                       (double)qkv.rows * (double)queries);
    if (!pj_layer_has_keys(l)) return;
    pj_instrument_operation(s->instrument, PJ_N_OP_KV_APPEND);
    pj_cpu_rows(s, qkv.rows, values, append_row, &t);
    pj_cpu_operation_end(
        s, &(pj_cpu_done){.bytes = qkv.rows * pj_stored_bytes(l, s->options.kv_type)});
}
