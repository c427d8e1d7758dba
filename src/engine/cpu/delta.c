/* The gated delta rule: convolution, rule, gated norm. Rows of a sequence depend on each other in
 * the convolution and in the rule, so work is parallelised by channel and by head, never by row: a
 * batch gives the same results as single sequences. */
#include "engine/model/delta.h"

#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct delta {
    pj_cpu *s;
    const struct pj_delta *d;
    uint32_t layer;
    size_t channels; /* of the convolution: queries, keys, values */
    pj_slice x, y, qkv, strength, gate;
} delta;

/* ---- convolution -------------------------------------------------------------------------- */

/* Channels per work item. */
enum { RUN = 256 };

/* Inputs preceding a segment's first row, [kernel - 1][channels], oldest first. */
static float *last_inputs(const delta *t, const pj_pass_segment *g)
{
    return pj_cpu_delta(t->s, t->layer, g->sequence);
}

/* Channels [begin, begin + n) of row `row` of a segment; negative rows are in the state. */
static const float *input_row(const delta *t, const pj_pass_segment *g, int64_t row, size_t begin)
{
    if (row >= 0) return pj_cpu_row(t->s, t->x, g->row + (size_t)row) + begin;
    return last_inputs(t, g) + (size_t)(row + t->d->kernel - 1) * t->channels + begin;
}

static void convolve_run(const delta *t, const pj_pass_segment *g, size_t begin, size_t n)
{
    const pj_kernels *k = t->s->kernels;
    for (uint32_t row = 0; row < g->count; row++) {
        float *y = pj_cpu_row(t->s, t->y, g->row + row) + begin;
        if (t->d->conv_bias)
            memcpy(y, t->d->conv_bias + begin, n * sizeof *y);
        else
            memset(y, 0, n * sizeof *y);
        for (uint32_t j = 0; j < t->d->kernel; j++) {
            const float *x = input_row(t, g, (int64_t)row + j + 1 - t->d->kernel, begin);
            const float *w = t->d->conv + j * t->channels + begin;
            for (size_t i = 0; i < n; i++) y[i] += w[i] * x[i];
        }
        if (t->d->kind != PJ_SHORT_CONVOLUTION) k->silu(y, y, n);
    }
}

/* The segment's last inputs become the state; in ascending order none is overwritten before it is
 * moved. */
static void keep_inputs(const delta *t, const pj_pass_segment *g, size_t begin, size_t n)
{
    uint32_t kept = t->d->kernel - 1;
    for (uint32_t j = 0; j < kept; j++)
        memmove(last_inputs(t, g) + j * t->channels + begin,
                input_row(t, g, (int64_t)g->count + j - kept, begin), n * sizeof(float));
}

/* The state after each row of a pass that may be rolled back. */
static void keep_each(const delta *t, const pj_pass_segment *g, size_t begin, size_t n)
{
    uint32_t kept = t->d->kernel - 1;
    for (uint32_t row = 0; row < g->count; row++) {
        float *after = pj_cpu_delta_after(t->s, t->layer, g, row);
        for (uint32_t j = 0; after && j < kept; j++)
            memcpy(after + j * t->channels + begin,
                   input_row(t, g, (int64_t)row + 1 + j - kept, begin), n * sizeof(float));
    }
}

static void convolve(void *context, size_t run)
{
    const delta *t = context;
    size_t begin = run * RUN, n = t->channels - begin < RUN ? t->channels - begin : RUN;
    const pj_pass *pass = t->s->rows.pass;
    for (uint32_t i = 0; i < pass->segment_count; i++) {
        convolve_run(t, &pass->segments[i], begin, n);
        keep_each(t, &pass->segments[i], begin, n);
        keep_inputs(t, &pass->segments[i], begin, n);
    }
}

void pj_cpu_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y)
{
    const struct pj_delta *d = layer->delta;
    delta t = {.s = state, .d = d, .layer = layer->index, .channels = x.cols, .x = x, .y = y};
    pj_cpu_rows(state, (t.channels + RUN - 1) / RUN, x.rows * t.channels * d->kernel, convolve, &t);
}

/* ---- the rule ----------------------------------------------------------------------------- */

/* L2-normalises x and multiplies by scale. */
static void delta_normalise(float *y, const float *x, size_t n, float scale)
{
    float square = 0;
    for (size_t i = 0; i < n; i++) square += x[i] * x[i];
    scale /= sqrtf(square + 1e-6f);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * scale;
}

/* One row of one value head. */
static void delta_run_row(const delta *t, uint32_t head, size_t row, float *matrix)
{
    const struct pj_delta *d = t->d;
    size_t keys = (size_t)d->key_heads * d->key_dim;
    uint32_t key_head = d->tiled ? head % d->key_heads : head / (d->value_heads / d->key_heads);
    const float *qkv = pj_cpu_row(t->s, t->qkv, row);
    const float *q = qkv + (size_t)key_head * d->key_dim, *k = q + keys;
    const float *v = qkv + 2 * keys + (size_t)head * d->value_dim;
    const float *ba = pj_cpu_row(t->s, t->strength, row);
    float unit_q[PJ_MAX_DELTA_DIM], unit_k[PJ_MAX_DELTA_DIM];
    delta_normalise(unit_q, q, d->key_dim, 1 / sqrtf((float)d->key_dim));
    delta_normalise(unit_k, k, d->key_dim, 1);
    float beta = 1 / (1 + expf(-ba[head]));
    float decay = expf(-d->rate[head] * pj_softplus(ba[d->value_heads + head] + d->bias[head]));
    t->s->kernels->delta_step(matrix, unit_q, unit_k, v, decay, beta, d->key_dim, d->value_dim,
                              pj_cpu_row(t->s, t->y, row) + (size_t)head * d->value_dim);
}

/* The same for a scan; `matrix` is [key_dim][value_dim]. */
static void scan_row(const delta *t, uint32_t head, size_t row, float *matrix)
{
    const struct pj_delta *d = t->d;
    size_t values = pj_delta_values(d), n = d->value_dim;
    const float *x = pj_cpu_row(t->s, t->qkv, row) + head * n;
    const float *b = pj_cpu_row(t->s, t->qkv, row) + values +
                     (size_t)(head / (d->value_heads / d->key_heads)) * d->key_dim;
    const float *c = b + (size_t)d->key_heads * d->key_dim;
    float *y = pj_cpu_row(t->s, t->y, row) + head * n;
    float step =
        pj_softplus(pj_cpu_row(t->s, t->strength, row)[d->value_heads + head] + d->bias[head]);
    step = fminf(fmaxf(step, d->least_step), d->most_step);
    float decay = expf(-d->rate[head] * step);
    for (size_t i = 0; i < n; i++) y[i] = d->skip[head] * x[i];
    for (uint32_t k = 0; k < d->key_dim; k++, matrix += n) {
        float in = step * b[k], out = c[k];
        for (size_t i = 0; i < n; i++) {
            matrix[i] = decay * matrix[i] + in * x[i];
            y[i] += out * matrix[i];
        }
    }
}

/* All rows of one head of one segment, in order. */
static void run_unit(void *context, size_t unit)
{
    const delta *t = context;
    const struct pj_delta *d = t->d;
    const pj_pass_segment *g = &t->s->rows.pass->segments[unit / d->value_heads];
    uint32_t head = (uint32_t)(unit % d->value_heads);
    size_t floats = (size_t)d->key_dim * d->value_dim;
    size_t first = (d->kernel - 1) * t->channels + head * floats;
    float *matrix = last_inputs(t, g) + first;
    for (uint32_t row = 0; row < g->count; row++) {
        if (d->kind == PJ_SCAN)
            scan_row(t, head, g->row + row, matrix);
        else
            delta_run_row(t, head, g->row + row, matrix);
        float *after = pj_cpu_delta_after(t->s, t->layer, g, row);
        if (after) memcpy(after + first, matrix, floats * sizeof *matrix);
    }
}

void pj_cpu_delta_rule(void *state, const pj_layer *layer, pj_slice qkv, pj_slice strength,
                       pj_slice y)
{
    pj_cpu *s = state;
    const struct pj_delta *d = layer->delta;
    delta t = {.s = s,
               .d = d,
               .layer = layer->index,
               .channels = qkv.cols,
               .y = y,
               .qkv = qkv,
               .strength = strength};
    pj_cpu_rows(s, (size_t)s->rows.pass->segment_count * d->value_heads,
                (size_t)y.rows * y.cols * d->key_dim, run_unit, &t);
}

/* ---- output ------------------------------------------------------------------------------- */

/* A scan's output by groups, or the delta rule's by head. */
static void norm_parts(const delta *t, float *y)
{
    bool scan = t->d->kind == PJ_SCAN;
    size_t n = scan ? t->y.cols / t->d->norm_groups : t->d->value_dim;
    for (size_t i = 0; t->d->norm && i < t->y.cols; i += n)
        t->s->kernels->rmsnorm(y + i, y + i, t->d->norm + (scan ? i : 0), n,
                               (float)t->s->model->config.norm_eps);
}

/* Multiplies outputs by silu of their gates, before or after their norm. */
static void delta_norm_row(void *context, size_t row)
{
    const delta *t = context;
    const pj_kernels *k = t->s->kernels;
    float *y = pj_cpu_row(t->s, t->y, row), *z = pj_cpu_row(t->s, t->gate, row);
    bool norm_first = t->d->kind != PJ_SCAN || t->d->norm_first;
    if (norm_first) norm_parts(t, y);
    k->silu(z, z, t->y.cols);
    k->multiply(y, z, t->y.cols);
    if (!norm_first) norm_parts(t, y);
}

void pj_cpu_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate)
{
    delta t = {.s = state, .d = layer->delta, .y = y, .gate = gate};
    pj_cpu_done done = pj_cpu_work(state, y, 0, 0);
    pj_cpu_rows_summed(state, y.rows, (size_t)y.rows * y.cols * 8, delta_norm_row, &t, &done);
}
