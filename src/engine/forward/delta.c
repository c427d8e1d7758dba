/* Gated delta rule layers, step by step: projections, convolution, rule, gated norm. Rows of a
 * sequence depend on each other in the convolution and in the rule, so work is parallelised by
 * channel and by head, never by row: a batch gives the same results as single sequences. */
#include "engine/model/delta.h"

#include "engine/forward/steps.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>
#include <string.h>

typedef struct delta {
    const pj_steps *s;
    const struct pj_delta *d;
    uint32_t layer;
    size_t channels, values;
} delta;

/* ---- convolution -------------------------------------------------------------------------- */

/* Channels per work item. */
enum { RUN = 256 };

/* Inputs preceding a segment's first row, [kernel - 1][channels], oldest first. */
static float *last_inputs(const delta *t, const pj_pass_segment *g)
{
    return pj_state_delta(t->s->state, t->layer, g->sequence);
}

/* Channels [begin, begin + n) of row `row` of a segment; negative rows are in the state. */
static const float *input_row(const delta *t, const pj_pass_segment *g, int64_t row, size_t begin)
{
    if (row >= 0) return t->s->state->mixed + (g->row + (size_t)row) * t->channels + begin;
    return last_inputs(t, g) + (size_t)(row + t->d->kernel - 1) * t->channels + begin;
}

static void convolve_run(const delta *t, const pj_pass_segment *g, size_t begin, size_t n)
{
    const pj_kernels *k = t->s->kernels;
    for (uint32_t row = 0; row < g->count; row++) {
        float *y = t->s->state->qkv + (g->row + row) * t->channels + begin;
        memset(y, 0, n * sizeof *y);
        for (uint32_t j = 0; j < t->d->kernel; j++) {
            const float *x = input_row(t, g, (int64_t)row + j + 1 - t->d->kernel, begin);
            const float *w = t->d->conv + j * t->channels + begin;
            for (size_t i = 0; i < n; i++) y[i] += w[i] * x[i];
        }
        k->silu(y, y, n);
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

static void convolve(void *context, size_t run)
{
    const delta *t = context;
    size_t begin = run * RUN, n = t->channels - begin < RUN ? t->channels - begin : RUN;
    for (uint32_t i = 0; i < t->s->pass->segment_count; i++) {
        convolve_run(t, &t->s->pass->segments[i], begin, n);
        keep_inputs(t, &t->s->pass->segments[i], begin, n);
    }
}

static void run_convolution(const delta *t)
{
    const pj_steps *s = t->s;
    double values = (double)s->rows * (double)t->channels;
    if (!pj_steps_want(s, PJ_N_CONV1D)) return;
    pj_done done = {.flops = (2.0 * t->d->kernel + 4) * values,
                    .bytes = 8 * values + 4.0 * t->d->kernel * (double)t->channels,
                    .x = s->state->qkv,
                    .rows = s->rows,
                    .cols = t->channels,
                    .stride = t->channels};
    pj_instrument_component(s->instrument, PJ_N_CONV1D);
    pj_steps_rows(s, (t->channels + RUN - 1) / RUN, s->rows * t->channels * t->d->kernel, convolve,
                  (void *)(uintptr_t)t);
    pj_instrument_module_end(s->instrument, &done);
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

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* One row of one value head. */
static void delta_run_row(const delta *t, uint32_t head, size_t row, float *matrix)
{
    const struct pj_delta *d = t->d;
    pj_state *state = t->s->state;
    size_t keys = (size_t)d->key_heads * d->key_dim;
    uint32_t key_head = d->tiled ? head % d->key_heads : head / (d->value_heads / d->key_heads);
    const float *q = state->qkv + row * t->channels + (size_t)key_head * d->key_dim, *k = q + keys;
    const float *v = state->qkv + row * t->channels + 2 * keys + (size_t)head * d->value_dim;
    const float *ba = state->strength + row * 2 * d->value_heads;
    float unit_q[PJ_MAX_DELTA_DIM], unit_k[PJ_MAX_DELTA_DIM];
    delta_normalise(unit_q, q, d->key_dim, 1 / sqrtf((float)d->key_dim));
    delta_normalise(unit_k, k, d->key_dim, 1);
    float beta = 1 / (1 + expf(-ba[head]));
    float decay = expf(-d->rate[head] * softplus(ba[d->value_heads + head] + d->bias[head]));
    t->s->kernels->delta_step(matrix, unit_q, unit_k, v, decay, beta, d->key_dim, d->value_dim,
                              state->attended + row * t->values + (size_t)head * d->value_dim);
}

/* All rows of one head of one segment, in order. */
static void run_unit(void *context, size_t unit)
{
    const delta *t = context;
    const struct pj_delta *d = t->d;
    const pj_pass_segment *g = &t->s->pass->segments[unit / d->value_heads];
    uint32_t head = (uint32_t)(unit % d->value_heads);
    float *matrix = last_inputs(t, g) + (d->kernel - 1) * t->channels +
                    (size_t)head * d->key_dim * d->value_dim;
    for (uint32_t row = 0; row < g->count; row++) delta_run_row(t, head, g->row + row, matrix);
}

static void run_rule(const delta *t)
{
    const pj_steps *s = t->s;
    const struct pj_delta *d = t->d;
    double rows = (double)s->rows, cells = (double)t->values * d->key_dim;
    if (!pj_steps_want(s, PJ_N_DELTA_RULE)) return;
    pj_done done = {.flops = rows * (7 * cells + 6 * (double)d->value_heads * d->key_dim),
                    .bytes = rows * (8 * cells + 4 * (double)(t->channels + t->values)),
                    .x = s->state->attended,
                    .rows = s->rows,
                    .cols = t->values,
                    .stride = t->values};
    pj_instrument_component(s->instrument, PJ_N_DELTA_RULE);
    pj_steps_rows(s, (size_t)s->pass->segment_count * d->value_heads, s->rows * (size_t)cells,
                  run_unit, (void *)(uintptr_t)t);
    pj_instrument_module_end(s->instrument, &done);
}

/* ---- output ------------------------------------------------------------------------------- */

/* Normalises each head's output and multiplies by silu of its gate. */
static void delta_norm_row(void *context, size_t row)
{
    const delta *t = context;
    const pj_kernels *k = t->s->kernels;
    float *y = t->s->state->attended + row * t->values, *z = t->s->state->gate + row * t->values;
    size_t n = t->d->value_dim;
    for (uint32_t head = 0; head < t->d->value_heads; head++)
        k->rmsnorm(y + head * n, y + head * n, t->d->norm, n, (float)t->s->model->config.norm_eps);
    k->silu(z, z, t->values);
    k->multiply(y, z, t->values);
}

static void run_norm(const delta *t)
{
    const pj_steps *s = t->s;
    double values = (double)s->rows * (double)t->values;
    if (!pj_steps_want(s, PJ_N_LINEAR_ATTN_NORM)) return;
    pj_done done = {.flops = 9 * values,
                    .bytes = 12 * values,
                    .x = s->state->attended,
                    .rows = s->rows,
                    .cols = t->values,
                    .stride = t->values};
    pj_instrument_component(s->instrument, PJ_N_LINEAR_ATTN_NORM);
    pj_steps_rows_summed(s, s->rows, s->rows * t->values * 8, delta_norm_row, (void *)(uintptr_t)t,
                         &done);
    pj_instrument_module_end(s->instrument, &done);
}

void pj_steps_delta(const pj_steps *s, const pj_layer *layer, const pj_rows *x)
{
    const struct pj_delta *d = layer->delta;
    pj_state *state = s->state;
    delta t = {s, d, layer->index, pj_delta_channels(d), pj_delta_values(d)};
    const pj_product products[] = {
        {&d->qkv, state->mixed, t.channels, NULL},
        {&d->z, state->gate, t.values, NULL},
        {&d->b, state->strength, 2 * (size_t)d->value_heads, NULL},
        {&d->a, state->strength + d->value_heads, 2 * (size_t)d->value_heads, NULL},
    };
    pj_steps_products(s, x, products, 4);
    run_convolution(&t);
    run_rule(&t);
    run_norm(&t);
    pj_rows out = {state->attended, s->rows, t.values};
    pj_steps_product(s, &out, &d->out, state->y, s->model->config.hidden, state->x);
}
