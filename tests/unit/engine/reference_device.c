#include "reference_device.h"

#include "base/memory.h"
#include "engine/forward/work.h"
#include "engine/model/delta.h"

#include <stdlib.h>
#include <string.h>

enum { COMMANDS = 65536, ROWS = 64, MAX_EXPERTS = 64, MAX_DEPTH = 8 };

reference_log reference_seen;

typedef struct reference reference;
typedef struct command command;
typedef void run_fn(reference *s, const command *c);

/* A noted operation: what `run` needs of its arguments. */
struct command {
    run_fn *run;
    const pj_layer *layer;
    pj_slice x, y, z;
    float factor, cap;
    uint32_t sequence, from, count, from_step, to_step;
    bool flag;
    union {
        const pj_matrix *table;
        const pj_norm *norm;
        const float *scale; /* or values */
        pj_norm_step step;
        pj_product product;
        pj_activation activation;
        reference_span span;
        uint32_t rows[ROWS];
    };
};

struct reference {
    const pj_model *model;
    const pj_kernels *plain; /* converts stored weights and cache rows */
    pj_state_options options;
    pj_instrument *instrument;
    pj_rows_of_pass rows;
    uint32_t full_slots, window_slots;
    float *buffers[PJ_BUFFERS];
    float **cache;      /* [layers] keys and values, or the state of the delta rule */
    float **recurrent;  /* [layers] */
    float **index_keys; /* [layers] of an indexer */
    bool *seen;     /* [max_tokens][full_slots] positions that a row sees, by the last indexer */
    uint32_t *base; /* [sequences] advanced by `slide` */
    float *cosine[PJ_ROPES], *sine[PJ_ROPES];
    uint32_t *chosen; /* [max_tokens][experts_per_token] */
    float *weight;
    float *logits; /* in host memory, like the next */
    int32_t *ids;
    command *commands;
    uint32_t command_count;
    pj_instrument_name open[MAX_DEPTH]; /* layers and components */
    uint32_t depth;
};

static command *note(void *state, run_fn *run)
{
    reference *s = state;
    if (s->command_count == COMMANDS) abort();
    command *c = &s->commands[s->command_count++];
    memset(c, 0, sizeof *c);
    c->run = run;
    return c;
}

static float *at(const reference *s, pj_slice x, uint32_t row)
{
    return s->buffers[x.buffer] + (size_t)row * x.stride + x.first;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- spans -------------------------------------------------------------------------------- */

static void log_span(reference *s, const command *c)
{
    reference_span span = c->span;
    double sum = 0;
    for (uint32_t r = 0; r < c->x.rows; r++)
        for (uint32_t i = 0; i < c->x.cols; i++) sum += fabs((double)at(s, c->x, r)[i]);
    span.mean_abs = c->x.buffer ? sum / ((double)c->x.rows * c->x.cols) : NAN;
    if (reference_seen.span_count < REFERENCE_SPANS)
        reference_seen.spans[reference_seen.span_count++] = span;
}

static void note_span(void *state, pj_instrument_name name, const pj_done *done)
{
    command *c = note(state, log_span);
    c->x = done->out;
    c->span = (reference_span){.name = name, .flops = done->flops, .bytes = done->bytes};
}

static void begin(void *state, pj_instrument_name name)
{
    reference *s = state;
    if (s->depth == MAX_DEPTH) abort();
    s->open[s->depth++] = name;
    reference_seen.open_spans++;
}

static void reference_end_section(void *state)
{
    reference *s = state;
    s->depth--;
    reference_seen.open_spans--;
}

static void reference_layer(void *state, uint32_t layer)
{
    begin(state, PJ_N_NONE);
}

static void reference_end(void *state, const pj_done *done)
{
    reference *s = state;
    note_span(s, s->open[s->depth - 1], done);
    reference_end_section(state);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void run_gather(reference *s, const command *c)
{
    const unsigned char *stored = c->table->data;
    for (uint32_t r = 0; r < c->y.rows; r++) {
        float *y = at(s, c->y, r);
        size_t id = (size_t)s->rows.pass->ids[r];
        if (id >= c->table->rows) id = 0;
        s->plain->dequantise(c->table->type, stored + id * c->table->row_bytes, y, c->y.cols);
        for (uint32_t i = 0; i < c->y.cols; i++) y[i] *= c->factor;
    }
}

static void reference_gather(void *state, const pj_matrix *table, float scale, pj_slice y)
{
    command *c = note(state, run_gather);
    c->table = table;
    c->factor = scale;
    c->y = y;
}

static void run_bound(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->x.rows; r++)
        for (uint32_t i = 0; i < c->x.cols; i++) {
            float *x = at(s, c->x, r) + i;
            *x *= c->factor;
            if (c->cap > 0) *x = c->cap * tanhf(*x / c->cap);
        }
}

static void reference_bound(void *state, pj_slice x, float factor, float cap)
{
    command *c = note(state, run_bound);
    c->x = x;
    c->factor = factor;
    c->cap = cap;
}

static void reference_scale(void *state, pj_slice x, float factor)
{
    reference_bound(state, x, factor, 0);
}

/* y += factor x, or sigmoid(z) x for each row. */
static void run_add(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->y.rows; r++) {
        float factor = c->z.buffer ? (float)sigmoid(at(s, c->z, r)[0]) : c->factor;
        for (uint32_t i = 0; i < c->y.cols; i++) at(s, c->y, r)[i] += factor * at(s, c->x, r)[i];
    }
}

static void add_scaled(void *state, pj_slice y, pj_slice x, float factor)
{
    const reference *s = state;
    command *c = note(state, run_add);
    c->y = y;
    c->x = x;
    c->factor = factor * (float)s->model->config.residual_scale;
}

static void reference_add(void *state, pj_slice y, pj_slice x)
{
    add_scaled(state, y, x, 1);
}

static void reference_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate)
{
    command *c = note(state, run_add);
    c->y = y;
    c->x = x;
    c->z = gate;
}

static void run_take_rows(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->y.rows; r++)
        memcpy(at(s, c->y, r), at(s, c->x, c->rows[r]), c->y.cols * sizeof(float));
}

static void reference_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y)
{
    command *c = note(state, run_take_rows);
    if (y.rows > ROWS) abort();
    c->x = x;
    c->y = y;
    memcpy(c->rows, rows, y.rows * sizeof *rows);
}

static void run_argmax(reference *s, const command *c)
{
    reference_seen.argmaxes++;
    for (uint32_t r = 0; r < c->x.rows; r++) {
        s->ids[r] = 0;
        for (uint32_t i = 1; i < c->x.cols; i++)
            if (at(s, c->x, r)[i] > at(s, c->x, r)[s->ids[r]]) s->ids[r] = (int32_t)i;
    }
}

static void reference_argmax(void *state, pj_slice x)
{
    note(state, run_argmax)->x = x;
}

/* ---- norms -------------------------------------------------------------------------------- */

static void norm_values(const pj_norm *norm, pj_norm_kind kind, double eps, const float *x,
                        float *y, uint32_t n)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; kind == PJ_NORM_LAYER && i < n; i++) mean += x[i] / (double)n;
    for (uint32_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(square / n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((x[i] - mean) * scale * norm->w[i] +
                       (kind == PJ_NORM_LAYER && norm->b ? norm->b[i] : 0));
}

static void run_norm(reference *s, const command *c)
{
    const pj_norm_step *n = &c->step;
    uint32_t cols = n->y.cols / n->heads;
    for (uint32_t r = 0; r < n->y.rows; r++)
        for (uint32_t h = 0; h < n->heads; h++)
            norm_values(n->norm, n->kind, pj_norm_eps(n->norm, &s->model->config),
                        at(s, n->x, r) + h * cols, at(s, n->y, r) + h * cols, cols);
}

static void reference_norm(void *state, const pj_norm_step *step)
{
    note(state, run_norm)->step = *step;
    if (step->residual.buffer) reference_add(state, step->residual, step->y);
}

static void run_join(reference *s, const command *c)
{
    const pj_model_config *m = &s->model->config;
    uint32_t n = m->token_vector;
    for (uint32_t r = 0; r < c->y.rows; r++)
        for (uint32_t h = 0; h < c->y.cols; h += n) {
            float *x = at(s, c->x, r) + h, *y = at(s, c->y, r) + h;
            for (uint32_t i = 0; i < n; i++) x[i] /= sqrtf((float)m->hidden);
            norm_values(c->norm, PJ_NORM_RMS, m->norm_eps, x, x, n);
            for (uint32_t i = 0; i < n; i++) y[i] = sqrtf(0.5f) * (y[i] + x[i]);
        }
}

static void reference_join_vectors(void *state, const pj_norm *norm, pj_slice context,
                                   pj_slice vectors)
{
    command *c = note(state, run_join);
    c->norm = norm;
    c->x = context;
    c->y = vectors;
}

/* ---- products ----------------------------------------------------------------------------- */

static void multiply(const reference *s, const pj_projection *p, const float *x, uint32_t x_stride,
                     uint32_t rows, float *y, uint32_t y_stride)
{
    float *w = pj_alloc(p->w.cols, sizeof *w);
    for (size_t o = 0; o < p->w.rows; o++) {
        const unsigned char *stored = p->w.data;
        s->plain->dequantise(p->w.type, stored + o * p->w.row_bytes, w, p->w.cols);
        for (uint32_t r = 0; r < rows; r++) {
            double sum = p->bias ? p->bias[o] : 0;
            for (size_t i = 0; i < p->w.cols; i++) sum += (double)w[i] * x[r * x_stride + i];
            y[(size_t)r * y_stride + o] = (float)sum;
        }
    }
    pj_free(w);
}

static void run_product(reference *s, const command *c)
{
    multiply(s, c->product.projection, at(s, c->x, 0), c->x.stride, c->x.rows,
             at(s, c->product.y, 0), c->product.y.stride);
}

static void reference_products(void *state, pj_slice x, const pj_product *products, uint32_t count)
{
    const reference *s = state;
    for (uint32_t i = 0; i < count; i++) {
        command *c = note(state, run_product);
        c->x = x;
        c->product = products[i];
        float factor = products[i].projection->out_factor;
        if (products[i].residual.buffer)
            add_scaled(state, products[i].residual, products[i].y, factor != 0 ? factor : 1);
        pj_done done = pj_product_work(&products[i]);
        pj_instrument_name name = products[i].projection->name;
        if (name && s->instrument->module) note_span(state, name, &done);
    }
}

/* ---- activations and experts -------------------------------------------------------------- */

static double activated(const pj_activation *a, double g)
{
    double cubic = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
    switch (a->kind) {
    case PJ_ACT_NONE: return g;
    case PJ_ACT_GELU: return 0.5 * g * (1 + tanh(cubic));
    case PJ_ACT_RELU2: return g > 0 ? g * g : 0;
    case PJ_ACT_XIELU:
        if (g > 0) return a->xielu[0] * g * g + a->xielu[2] * g;
        return a->xielu[1] * (expm1(fmin(g, a->xielu[3])) - g) + a->xielu[2] * g;
    case PJ_ACT_CLAMPED: g = fmin(g, a->limit); return g * sigmoid(a->alpha * g);
    default: return g * sigmoid(g);
    }
}

/* The value below which a row's gates are cut; 0 of those that are not. */
static double cutoff_of(const pj_activation *a, const float *gate)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < a->gate.cols; i++) mean += gate[i] / (double)a->gate.cols;
    for (uint32_t i = 0; i < a->gate.cols; i++) square += (gate[i] - mean) * (gate[i] - mean);
    return mean + a->cutoff * sqrt(square / a->gate.cols);
}

static void run_activation(reference *s, const command *c)
{
    const pj_activation *a = &c->activation;
    for (uint32_t r = 0; r < a->act.rows; r++) {
        double from = a->cuts ? cutoff_of(a, at(s, a->gate, r)) : 0;
        for (uint32_t i = 0; i < a->act.cols; i++) {
            double up = a->up.buffer ? at(s, a->up, r)[i] : 1, gate = at(s, a->gate, r)[i];
            if (a->cuts) gate = fmax(gate - from, 0);
            if (a->kind == PJ_ACT_CLAMPED && a->up.buffer)
                up = fmax(fmin(up, a->limit), -a->limit) + 1;
            at(s, a->act, r)[i] = (float)(activated(a, gate) * up);
        }
    }
}

static void reference_activate(void *state, const pj_activation *activation)
{
    note(state, run_activation)->activation = *activation;
}

/* A group's score for choosing: of its largest, or its two largest. */
static double group_score(const pj_model_config *m, const double *choice, uint32_t group)
{
    uint32_t each = m->experts / m->expert_groups;
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t e = group * each; e < (group + 1) * each; e++) {
        second = fmax(second, fmin(first, choice[e]));
        first = fmax(first, choice[e]);
    }
    return m->group_by_pair ? first + second : first;
}

static bool group_is_kept(const pj_model_config *m, const double *choice, uint32_t group)
{
    uint32_t better = 0;
    for (uint32_t g = 0; g < m->expert_groups; g++) {
        double other = group_score(m, choice, g), own = group_score(m, choice, group);
        better += other > own || (other == own && g < group);
    }
    return better < m->expert_groups_kept;
}

static void run_route(reference *s, const command *c)
{
    const pj_model_config *m = &s->model->config;
    uint32_t experts = c->x.cols, chosen = c->layer->chosen;
    for (uint32_t r = 0; r < c->x.rows; r++) {
        const float *logits = at(s, c->x, r);
        double total = 0, sum = 0, top = logits[0], score[MAX_EXPERTS], choice[MAX_EXPERTS];
        bool taken[MAX_EXPERTS] = {false};
        for (uint32_t e = 0; e < experts; e++) top = fmax(top, logits[e]);
        for (uint32_t e = 0; e < experts; e++) total += exp(logits[e] - top);
        for (uint32_t e = 0; e < experts; e++) {
            score[e] = m->router_sigmoid ? sigmoid(logits[e]) : exp(logits[e] - top) / total;
            choice[e] =
                score[e] + (c->layer->expert_correction ? c->layer->expert_correction[e] : 0);
        }
        for (uint32_t e = 0; m->expert_groups > 1 && e < experts; e++)
            taken[e] = !group_is_kept(m, choice, e / (experts / m->expert_groups));
        for (uint32_t k = 0; k < chosen; k++) {
            uint32_t best = UINT32_MAX;
            for (uint32_t e = 0; e < experts; e++)
                if (!taken[e] && (best == UINT32_MAX || choice[e] > choice[best])) best = e;
            taken[best] = true;
            s->chosen[r * chosen + k] = best;
            sum += score[best];
        }
        for (uint32_t k = 0; s->model->blueprint->router == PJ_ROUTER_MIXER && k < chosen; k++) {
            double most = logits[s->chosen[r * chosen + k]], among = 0;
            for (uint32_t e = 0; e < experts; e++) {
                bool earlier = false;
                for (uint32_t i = 0; i < k; i++) earlier |= s->chosen[r * chosen + i] == e;
                if (!earlier && (most - logits[e]) / fmax(fabs(logits[e]), most) <= m->router_reach)
                    among += exp(logits[e] - most);
            }
            s->weight[r * chosen + k] = (float)(1 / among);
        }
        for (uint32_t k = 0; s->model->blueprint->router != PJ_ROUTER_MIXER && k < chosen; k++) {
            uint32_t e = s->chosen[r * chosen + k];
            double factor = c->layer->expert_scale ? c->layer->expert_scale[e] : 1;
            s->weight[r * chosen + k] =
                (float)(score[e] / (c->flag ? sum : 1) * m->routed_scale * factor);
        }
    }
}

static void reference_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise)
{
    command *c = note(state, run_route);
    c->layer = layer;
    c->x = logits;
    c->flag = renormalise;
}

/* One row, times `factor`, through one expert's block, in the first row of Y2. */
static void run_block(reference *s, const command *c, const pj_mlp *mlp, uint32_t row, float factor)
{
    float *x = pj_alloc(c->x.cols, sizeof *x);
    for (uint32_t i = 0; i < c->x.cols; i++) x[i] = factor * at(s, c->x, row)[i];
    pj_slice own = pj_slice_of(PJ_BUFFER_Y2, 1, c->y.cols, c->y.cols);
    pj_mlp_block b = pj_mlp_block_of(mlp, &c->activation, own, (pj_slice){0});
    pj_slice act = b.activation.act;
    for (uint32_t i = 0; i < b.input_count; i++)
        multiply(s, b.inputs[i].projection, x, c->x.cols, 1, at(s, b.inputs[i].y, 0),
                 b.inputs[i].y.stride);
    run_activation(s, &(command){.activation = b.activation});
    multiply(s, &mlp->down, at(s, act, 0), act.stride, 1, at(s, own, 0), own.stride);
    pj_free(x);
}

static void run_experts(reference *s, const command *c)
{
    uint32_t chosen = c->layer->chosen;
    pj_slice own = pj_slice_of(PJ_BUFFER_Y2, 1, c->y.cols, c->y.cols);
    command span = {.x = c->y, .span = {.name = PJ_N_EXPERTS}};
    for (uint32_t r = 0; r < c->y.rows; r++) memset(at(s, c->y, r), 0, c->y.cols * sizeof(float));
    for (uint32_t e = 0; e < s->model->config.experts; e++) {
        uint32_t rows = 0;
        for (uint32_t i = 0; i < c->x.rows * chosen; i++) {
            if (s->chosen[i] != e) continue;
            rows++;
            bool first = s->model->blueprint->weighted_input;
            run_block(s, c, &c->layer->experts[e], i / chosen, first ? s->weight[i] : 1);
            for (uint32_t o = 0; o < c->y.cols; o++)
                at(s, c->y, i / chosen)[o] += (first ? 1 : s->weight[i]) * at(s, own, 0)[o];
        }
        if (rows == 0) continue;
        span.span.flops += pj_mlp_flops(&c->layer->experts[e], rows);
        span.span.bytes += pj_mlp_bytes(&c->layer->experts[e], rows);
    }
    if (s->instrument->module) log_span(s, &span);
}

static void reference_experts(void *state, const pj_layer *layer, const pj_activation *like,
                              pj_slice x, pj_slice y, pj_slice residual)
{
    command *c = note(state, run_experts);
    c->layer = layer;
    c->activation = *like;
    c->x = x;
    c->y = y;
    if (residual.buffer) reference_add(state, residual, y);
}

/* ---- queries, cache, attention ------------------------------------------------------------ */

static void run_angles(reference *s, const command *c)
{
    for (uint32_t r = 0; r < s->rows.pass->tokens; r++)
        for (uint32_t i = 0; i < PJ_ROPES; i++) {
            const pj_rope *rope = &s->model->ropes[i];
            pj_rope_angles(rope, s->rows.sequences[s->rows.sequence[r]].generation,
                           s->rows.position[r], s->cosine[i] + (size_t)r * rope->pairs,
                           s->sine[i] + (size_t)r * rope->pairs);
        }
}

static void reference_angles(void *state)
{
    note(state, run_angles);
}

static void run_take_queries(reference *s, const command *c)
{
    uint32_t dim = c->layer->head_dim;
    for (uint32_t r = 0; r < c->y.rows; r++)
        for (uint32_t i = 0; i < c->y.cols; i++)
            at(s, c->y, r)[i] = at(s, c->x, r)[2 * (i / dim) * dim + i % dim];
}

static void reference_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to)
{
    command *c = note(state, run_take_queries);
    c->layer = layer;
    c->x = from;
    c->y = to;
}

static void run_copy_heads(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->y.rows; r++)
        for (uint32_t h = 0; h < c->count; h++)
            for (uint32_t i = 0; i < c->y.cols; i++)
                at(s, c->y, r)[h * c->to_step + i] = at(s, c->x, r)[h * c->from_step + i];
}

static void reference_copy_heads(void *state, uint32_t heads, pj_slice from, uint32_t from_step,
                                 pj_slice to, uint32_t to_step)
{
    command *c = note(state, run_copy_heads);
    c->count = heads;
    c->x = from;
    c->y = to;
    c->from_step = from_step;
    c->to_step = to_step;
}

static void run_gate_heads(reference *s, const command *c)
{
    uint32_t dim = c->layer->head_dim;
    for (uint32_t r = 0; r < c->y.rows; r++)
        for (uint32_t i = 0; i < c->y.cols; i++)
            at(s, c->y, r)[i] *=
                (float)sigmoid(at(s, c->x, r)[(2 * (i / dim) + 1) * dim + i % dim]);
}

static void reference_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y)
{
    command *c = note(state, run_gate_heads);
    c->layer = layer;
    c->x = gates;
    c->y = y;
}

static size_t cache_slots(const reference *s, const pj_layer *l)
{
    return l->window == UINT32_MAX ? s->full_slots : s->window_slots;
}

/* Keys (which 0) or values of a head at a position; the cache keeps floats rounded to kv_type. */
static float *cached(const reference *s, const pj_layer *l, uint32_t sequence, uint32_t which,
                     uint32_t head, uint32_t position)
{
    uint32_t slot = position - (l->window == UINT32_MAX ? 0 : s->base[sequence]);
    size_t row = (((size_t)sequence * 2 + which) * l->kv_heads + head) * cache_slots(s, l) + slot;
    return s->cache[l->index] + row * l->head_dim;
}

static void rotate_pairs(const reference *s, uint32_t rope, float *x, uint32_t row, bool neighbours)
{
    uint32_t pairs = s->model->ropes[rope].pairs;
    for (uint32_t j = 0; j < pairs; j++) {
        float *a = x + (neighbours ? 2 * j : j), *b = a + (neighbours ? 1 : pairs), old = *a;
        float cosine = s->cosine[rope][(size_t)row * pairs + j];
        float sine = s->sine[rope][(size_t)row * pairs + j];
        *a = old * cosine - *b * sine;
        *b = *b * cosine + old * sine;
    }
}

static void rotate(const reference *s, const pj_layer *l, float *head, uint32_t row)
{
    rotate_pairs(s, l->rope, head + l->rope_first, row, s->model->ropes[l->rope].neighbours);
}

static void run_rotate(reference *s, const command *c)
{
    const pj_layer *l = c->layer;
    uint32_t heads = l->heads + (l->kv_source == l->index ? l->kv_heads : 0);
    for (uint32_t r = 0; l->rope != PJ_NO_ROPE && r < c->x.rows; r++)
        for (uint32_t h = 0; h < heads; h++) rotate(s, l, at(s, c->x, r) + h * l->head_dim, r);
}

static void reference_rotate(void *state, const pj_layer *layer, pj_slice qkv)
{
    command *c = note(state, run_rotate);
    c->layer = layer;
    c->x = qkv;
}

static void run_rotate_and_store(reference *s, const command *c)
{
    const pj_layer *l = c->layer;
    const pj_model_config *m = &s->model->config;
    bool own = l->kv_source == l->index;
    for (uint32_t r = 0; r < c->x.rows; r++) {
        uint32_t position = s->rows.position[r];
        float *qkv = at(s, c->x, r), *keys = qkv + l->heads * l->head_dim;
        for (uint32_t h = 0;
             !l->norm_rotated && l->rope != PJ_NO_ROPE && h < l->heads + (own ? l->kv_heads : 0);
             h++)
            rotate(s, l, qkv + h * l->head_dim, r);
        double periods = floor((position + (double)m->query_first) / m->query_period);
        double scale = 1 + m->query_beta * log(1 + periods);
        for (uint32_t i = 0; l->scales_queries && i < l->heads * l->head_dim; i++)
            qkv[i] *= (float)scale;
        for (uint32_t i = 0; own && i < pj_kv_planes(l) * l->kv_heads; i++) {
            unsigned char stored[4 * PJ_MAX_HEAD_DIM];
            s->plain->quantise(s->options.kv_type, keys + i * l->head_dim, stored, l->head_dim);
            s->plain->dequantise(
                s->options.kv_type, stored,
                cached(s, l, s->rows.sequence[r], i / l->kv_heads, i % l->kv_heads, position),
                l->head_dim);
        }
    }
}

static void reference_rotate_and_store(void *state, const pj_layer *layer, pj_slice qkv)
{
    command *c = note(state, run_rotate_and_store);
    c->layer = layer;
    c->x = qkv;
}

/* ---- sparse attention --------------------------------------------------------------------- */

static float *index_key(const reference *s, const pj_layer *l, uint32_t sequence, uint32_t position)
{
    size_t row = (size_t)sequence * s->full_slots + position;
    return s->index_keys[l->index] + row * l->indexer->dim;
}

/* The best of the keys up to a position that are not seen yet, the earliest of equal ones. */
static uint32_t best_unseen(const double *scores, const bool *seen, uint32_t position)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t t = 0; t <= position; t++)
        if (!seen[t] && (best == UINT32_MAX || scores[t] > scores[best])) best = t;
    return best;
}

static void run_choose_keys(reference *s, const command *c)
{
    const pj_layer *l = c->layer;
    const struct pj_indexer *m = l->indexer;
    double *scores = pj_alloc(s->full_slots, sizeof *scores);
    for (uint32_t r = 0; r < c->x.rows; r++) {
        float *q = at(s, c->x, r), *key = q + m->heads * m->dim, *weights = key + m->dim;
        uint32_t position = s->rows.position[r], sequence = s->rows.sequence[r];
        unsigned char stored[4 * PJ_MAX_HEAD_DIM];
        for (uint32_t h = 0; h <= m->heads; h++)
            if (c->flag || h == m->heads)
                rotate_pairs(s, l->rope, q + h * m->dim, r, m->neighbours);
        s->plain->quantise(s->options.kv_type, key, stored, m->dim);
        s->plain->dequantise(s->options.kv_type, stored, index_key(s, l, sequence, position),
                             m->dim);
        if (!c->flag) continue;
        bool *seen = s->seen + (size_t)r * s->full_slots;
        memset(seen, 0, s->full_slots);
        for (uint32_t t = 0; t <= position; t++) {
            scores[t] = 0;
            for (uint32_t h = 0; h < m->heads; h++) {
                double product = 0;
                for (uint32_t i = 0; i < m->dim; i++)
                    product += (double)q[h * m->dim + i] * index_key(s, l, sequence, t)[i];
                scores[t] += weights[h] * fmax(product * m->scale, 0);
            }
        }
        for (uint32_t k = 0; k < m->kept && k <= position; k++)
            seen[best_unseen(scores, seen, position)] = true;
    }
    pj_free(scores);
}

static void reference_choose_keys(void *state, const pj_layer *layer, pj_slice index, bool chooses)
{
    command *c = note(state, run_choose_keys);
    c->layer = layer;
    c->x = index;
    c->flag = chooses;
}

/* One query head of one row. */
static void attend_head(const reference *s, const command *c, uint32_t row, uint32_t head)
{
    const pj_layer *l = c->layer, *source = &s->model->layers[l->kv_source];
    uint32_t position = s->rows.position[row], sequence = s->rows.sequence[row];
    uint32_t dim = l->head_dim, kv_head = head / (l->heads / l->kv_heads);
    uint32_t first = position + 1 > l->window ? position + 1 - l->window : 0;
    if (l->window_is_chunk) first = position / l->window * l->window;
    const float *q = at(s, c->x, row) + head * dim;
    float *y = at(s, c->y, row) + head * l->value_dim;
    double *p = pj_alloc(position + 1, sizeof *p), cap = s->model->config.attention_softcap;
    double top = l->sinks ? l->sinks[head] : -INFINITY, sum = 0;
    const bool *seen = c->flag ? s->seen + (size_t)row * s->full_slots : NULL;
    for (uint32_t t = first; t <= position; t++) {
        const float *k = cached(s, source, sequence, 0, kv_head, t);
        for (uint32_t i = 0; i < dim; i++) p[t] += (double)q[i] * k[i];
        p[t] *= l->score_scale;
        if (cap > 0) p[t] = cap * tanh(p[t] / cap);
        if (seen && !seen[t]) p[t] = -INFINITY;
        top = fmax(top, p[t]);
    }
    for (uint32_t t = first; t <= position; t++) sum += p[t] = exp(p[t] - top);
    if (l->sinks) sum += exp(l->sinks[head] - top);
    for (uint32_t i = 0; i < l->value_dim; i++) {
        double value = 0;
        for (uint32_t t = first; t <= position; t++)
            value += p[t] / sum * cached(s, source, sequence, !l->values_in_keys, kv_head, t)[i];
        y[i] = (float)value;
    }
    pj_free(p);
}

static void run_attend(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->y.rows; r++)
        for (uint32_t head = 0; head < c->layer->heads; head++) attend_head(s, c, r, head);
}

static void reference_attend(void *state, const pj_layer *layer, pj_slice qkv, pj_slice y,
                             const pj_attention_extent *extent)
{
    const reference *s = state;
    command *c = note(state, run_attend);
    c->flag = pj_pass_chooses(layer, s->rows.sequences, s->rows.pass);
    c->layer = layer;
    c->x = qkv;
    c->y = y;
}

static void run_slide(reference *s, const command *c)
{
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        if (l->window == UINT32_MAX || l->kv_source != i) continue;
        for (uint32_t which = 0; which < 2; which++)
            for (uint32_t head = 0; head < l->kv_heads; head++) {
                float *rows = cached(s, l, c->sequence, which, head, s->base[c->sequence]);
                memmove(rows, rows + (size_t)c->from * l->head_dim,
                        (size_t)c->count * l->head_dim * sizeof *rows);
            }
    }
    s->base[c->sequence] += c->from;
}

static void reference_slide(void *state, uint32_t sequence, uint32_t from, uint32_t count)
{
    command *c = note(state, run_slide);
    c->sequence = sequence;
    c->from = from;
    c->count = count;
}

/* ---- the delta rule ----------------------------------------------------------------------- */

static float *recurrent(const reference *s, const pj_layer *l, uint32_t sequence)
{
    return s->recurrent[l->index] +
           sequence * (s->options.rewind + 2) * pj_delta_state_floats(l->delta);
}

/* Keeps part of the state after row r of the pass, if the pass may be rolled back. */
static void keep_state(const reference *s, const pj_layer *l, uint32_t r, size_t first,
                       size_t count)
{
    const pj_pass_segment *g = s->rows.pass->segments;
    size_t floats = pj_delta_state_floats(l->delta);
    if (s->rows.pass->segment_count > 1 || g->count > s->options.rewind + 1) return;
    float *own = recurrent(s, l, g->sequence);
    memcpy(own + (1 + r) * floats + first, own + first, count * sizeof *own);
}

static void reference_rewind(void *state, uint32_t sequence, uint32_t row)
{
    const reference *s = state;
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        if (!l->delta) continue;
        size_t floats = pj_delta_state_floats(l->delta);
        float *own = recurrent(s, l, sequence);
        memcpy(own, own + (1 + row) * floats, floats * sizeof *own);
    }
}

static void run_convolve(reference *s, const command *c)
{
    const struct pj_delta *d = c->layer->delta;
    uint32_t kept = d->kernel - 1, channels = c->x.cols;
    for (uint32_t r = 0; r < c->y.rows; r++) {
        float *last = recurrent(s, c->layer, s->rows.sequence[r]); /* [kept][channels] */
        for (uint32_t i = 0; i < channels; i++) {
            double sum = (double)d->conv[kept * channels + i] * at(s, c->x, r)[i];
            for (uint32_t j = 0; j < kept; j++)
                sum += (double)d->conv[j * channels + i] * last[j * channels + i];
            if (d->conv_bias) sum += d->conv_bias[i];
            at(s, c->y, r)[i] = (float)(d->kind == PJ_SHORT_CONVOLUTION ? sum : sum * sigmoid(sum));
        }
        memmove(last, last + channels, (size_t)(kept - 1) * channels * sizeof *last);
        memcpy(last + (kept - 1) * channels, at(s, c->x, r), channels * sizeof *last);
        keep_state(s, c->layer, r, 0, (size_t)kept * channels);
    }
}

static void reference_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y)
{
    command *c = note(state, run_convolve);
    c->layer = layer;
    c->x = x;
    c->y = y;
}

static double inverse_length(const float *x, uint32_t n)
{
    double square = 0;
    for (uint32_t i = 0; i < n; i++) square += (double)x[i] * x[i];
    return 1 / sqrt(square + 1e-6);
}

/* One value head of one row; m is its matrix [key_dim][value_dim]. */
static void delta_head(const struct pj_delta *d, const float *qkv, const float *strength,
                       uint32_t head, float *m, float *y)
{
    uint32_t keys = d->key_heads * d->key_dim, n = d->value_dim;
    uint32_t key_head = d->tiled ? head % d->key_heads : head / (d->value_heads / d->key_heads);
    const float *q = qkv + key_head * d->key_dim, *k = q + keys, *v = qkv + 2 * keys + head * n;
    double q_scale = inverse_length(q, d->key_dim) / sqrt(d->key_dim);
    double k_scale = inverse_length(k, d->key_dim), beta = sigmoid(strength[head]);
    double rise = log1p(exp((double)strength[d->value_heads + head] + d->bias[head]));
    double decay = exp(-d->rate[head] * rise);
    for (uint32_t o = 0; o < n; o++) {
        double held = 0, read = 0;
        for (uint32_t i = 0; i < d->key_dim; i++) held += decay * m[i * n + o] * k[i] * k_scale;
        for (uint32_t i = 0; i < d->key_dim; i++) {
            m[i * n + o] = (float)(decay * m[i * n + o] + k[i] * k_scale * beta * (v[o] - held));
            read += m[i * n + o] * q[i] * q_scale;
        }
        y[o] = (float)read;
    }
}

static void scan_head(const struct pj_delta *d, const float *mixed, const float *strength,
                      uint32_t head, float *m, float *y)
{
    uint32_t n = d->value_dim, group = head / (d->value_heads / d->key_heads);
    const float *x = mixed + head * n, *b = mixed + d->value_heads * n + group * d->key_dim;
    const float *c = b + d->key_heads * d->key_dim;
    double step = log1p(exp((double)strength[d->value_heads + head] + d->bias[head]));
    step = fmin(fmax(step, d->least_step), d->most_step);
    double decay = exp(-d->rate[head] * step);
    for (uint32_t o = 0; o < n; o++) {
        double read = d->skip[head] * x[o];
        for (uint32_t i = 0; i < d->key_dim; i++) {
            m[i * n + o] = (float)(decay * m[i * n + o] + step * b[i] * x[o]);
            read += c[i] * m[i * n + o];
        }
        y[o] = (float)read;
    }
}

static void run_delta_rule(reference *s, const command *c)
{
    const struct pj_delta *d = c->layer->delta;
    for (uint32_t r = 0; r < c->y.rows; r++) {
        float *m = recurrent(s, c->layer, s->rows.sequence[r]) + (d->kernel - 1) * c->x.cols;
        for (uint32_t head = 0; head < d->value_heads; head++)
            (d->kind == PJ_SCAN ? scan_head : delta_head)(
                d, at(s, c->x, r), at(s, c->z, r), head,
                m + (size_t)head * d->key_dim * d->value_dim, at(s, c->y, r) + head * d->value_dim);
        keep_state(s, c->layer, r, (d->kernel - 1) * c->x.cols,
                   (size_t)d->value_heads * d->key_dim * d->value_dim);
    }
}

static void reference_delta_rule(void *state, const pj_layer *layer, pj_slice qkv,
                                 pj_slice strength, pj_slice y)
{
    command *c = note(state, run_delta_rule);
    c->layer = layer;
    c->x = qkv;
    c->z = strength;
    c->y = y;
}

static void gate_values(float *y, const float *z, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) y[i] *= (float)(z[i] * sigmoid(z[i]));
}

static void run_gated_norm(reference *s, const command *c)
{
    const struct pj_delta *d = c->layer->delta;
    for (uint32_t r = 0; r < c->y.rows; r++) {
        float *y = at(s, c->y, r);
        bool scan = d->kind == PJ_SCAN, gate_first = scan && !d->norm_first;
        uint32_t n = scan ? c->y.cols / d->norm_groups : d->value_dim;
        if (gate_first) gate_values(y, at(s, c->x, r), c->y.cols);
        for (uint32_t i = 0; d->norm && i < c->y.cols; i += n)
            norm_values(&(pj_norm){.w = d->norm + (scan ? i : 0)}, PJ_NORM_RMS,
                        s->model->config.norm_eps, y + i, y + i, n);
        if (!gate_first) gate_values(y, at(s, c->x, r), c->y.cols);
    }
}

static void reference_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate)
{
    command *c = note(state, run_gated_norm);
    c->layer = layer;
    c->x = gate;
    c->y = y;
}

static void reference_reset(void *state, uint32_t sequence)
{
    reference *s = state;
    s->base[sequence] = 0;
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        if (l->delta)
            memset(recurrent(s, l, sequence), 0, pj_delta_state_floats(l->delta) * sizeof(float));
    }
}

/* ---- alternating updates ------------------------------------------------------------------ */

static void run_predict(reference *s, const command *c)
{
    uint32_t count = s->model->config.streams.count, n = c->x.cols;
    for (uint32_t r = 0; r < c->x.rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            double before[PJ_MAX_STREAMS];
            float *streams = at(s, c->y, r) + i;
            for (uint32_t j = 0; j < count; j++) before[j] = streams[j * n];
            for (uint32_t j = 0; j < count; j++) {
                double sum = before[j];
                for (uint32_t k = 0; k < count; k++)
                    sum += before[k] * at(s, c->z, r)[j * count + k];
                streams[j * n] = (float)sum;
            }
            at(s, c->x, r)[i] = streams[s->model->config.streams.active * n];
        }
}

static void reference_predict_streams(void *state, pj_slice coefficients, pj_slice streams,
                                      pj_slice x)
{
    command *c = note(state, run_predict);
    c->z = coefficients;
    c->y = streams;
    c->x = x;
}

static void run_correct(reference *s, const command *c)
{
    uint32_t count = s->model->config.streams.count, n = c->x.cols;
    for (uint32_t r = 0; r < c->x.rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            float *streams = at(s, c->y, r) + i, *x = at(s, c->x, r) + i;
            float *active = streams + s->model->config.streams.active * n;
            double change = (double)*x - *active;
            for (uint32_t j = 0; j < count; j++)
                streams[j * n] += (float)((1 + (double)at(s, c->z, r)[j]) * change);
            *x = *active * (c->scale ? c->scale[i] : 1);
        }
}

static void reference_correct_streams(void *state, pj_slice coefficients, const float *scale,
                                      pj_slice streams, pj_slice x)
{
    command *c = note(state, run_correct);
    c->z = coefficients;
    c->y = streams;
    c->x = x;
    c->scale = scale;
}

static void run_give(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->y.rows; r++)
        memcpy(at(s, c->y, r), c->scale + (size_t)r * c->y.cols, c->y.cols * sizeof(float));
}

static void reference_give(void *state, const float *values, pj_slice y)
{
    command *c = note(state, run_give);
    c->scale = values;
    c->y = y;
}

static const float *reference_rows(void *state, pj_slice x)
{
    return at(state, x, 0);
}

static double mean_square(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i] / n;
    return sum;
}

static void run_match(reference *s, const command *c)
{
    for (uint32_t r = 0; r < c->x.rows; r++) {
        double factor = sqrt(mean_square(at(s, c->y, r), c->x.cols)) /
                        sqrt(fmax(mean_square(at(s, c->x, r), c->x.cols), 1e-5));
        for (uint32_t i = 0; i < c->x.cols; i++) at(s, c->x, r)[i] *= (float)factor;
    }
}

static void reference_match_magnitude(void *state, pj_slice x, pj_slice like)
{
    command *c = note(state, run_match);
    c->x = x;
    c->y = like;
}

/* ---- passes ------------------------------------------------------------------------------- */

static void reference_begin_pass(void *state, const pj_rows_of_pass *rows)
{
    reference *s = state;
    s->rows = *rows;
    reference_seen.passes++;
}

static pj_status reference_end_pass(void *state, bool cancelled, pj_error *err)
{
    reference *s = state;
    size_t floats = (size_t)s->options.max_logits * s->model->config.vocab;
    for (uint32_t i = 0; i < s->command_count && !cancelled; i++)
        s->commands[i].run(s, &s->commands[i]);
    s->command_count = 0;
    memcpy(s->logits, s->buffers[PJ_BUFFER_LOGITS], floats * sizeof(float));
    return PJ_OK;
}

static float *reference_logits(void *state, uint32_t rows)
{
    const reference *s = state;
    return s->logits;
}

static const int32_t *reference_ids(void *state)
{
    const reference *s = state;
    return s->ids;
}

/* ---- the device --------------------------------------------------------------------------- */

static bool reference_has(const char *device)
{
    return strcmp(device, "reference") == 0;
}

static pj_status reference_load(const pj_load_request *request, void **loaded, pj_error *err)
{
    reference_seen.loads++;
    *loaded = (void *)(uintptr_t)request->model;
    return PJ_OK;
}

static void reference_unload(void *loaded)
{
    reference_seen.unloads++;
}

static void reference_facts(void *loaded, pj_compute_facts *facts)
{
    *facts = (pj_compute_facts){.name = "reference", .isa = "reference"};
}

static double reference_peak(void *loaded, int64_t duration_ns)
{
    return NAN;
}

static double reference_read_pass(void *loaded, unsigned streams, uint64_t max_bytes)
{
    return NAN;
}

static float *floats_of(size_t count, float value)
{
    float *x = pj_alloc(count + 1, sizeof *x);
    for (size_t i = 0; x && i < count; i++) x[i] = value;
    if (!x) abort();
    return x;
}

static size_t cache_floats(const reference *s, const pj_layer *l)
{
    if (l->kv_source != l->index) return 0;
    return 2 * (size_t)s->options.sequences * l->kv_heads * cache_slots(s, l) * l->head_dim;
}

static pj_status reference_open(void *loaded, const pj_generation_shape *shape, void **state,
                                pj_error *err)
{
    const pj_model *model = loaded;
    const pj_state_options *o = shape->options;
    reference *s = pj_alloc(1, sizeof *s);
    *s = (reference){.model = model,
                     .plain = pj_kernels_find("c"),
                     .options = *o,
                     .instrument = shape->instrument,
                     .full_slots = shape->full_slots,
                     .window_slots = shape->window_slots};
    for (int i = 1; i < PJ_BUFFERS; i++) s->buffers[i] = floats_of(shape->floats[i], NAN);
    memset(s->buffers[PJ_BUFFER_LOGITS], 0, shape->floats[PJ_BUFFER_LOGITS] * sizeof(float));
    s->cache = pj_alloc(model->config.layers, sizeof *s->cache);
    s->recurrent = pj_alloc(model->config.layers, sizeof *s->recurrent);
    s->index_keys = pj_alloc(model->config.layers, sizeof *s->index_keys);
    s->seen = pj_alloc((size_t)o->max_tokens * s->full_slots, sizeof *s->seen);
    for (uint32_t i = 0; i < model->config.layers; i++) {
        const struct pj_delta *d = model->layers[i].delta;
        s->cache[i] = floats_of(cache_floats(s, &model->layers[i]), NAN);
        const pj_layer *l = &model->layers[i];
        size_t keys = pj_layer_has_indexer(l) ? (size_t)o->sequences * s->full_slots : 0;
        s->index_keys[i] = floats_of(keys ? keys * l->indexer->dim : 0, NAN);
        s->recurrent[i] =
            floats_of(d ? o->sequences * (o->rewind + 2) * pj_delta_state_floats(d) : 0, 0);
    }
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        s->cosine[i] = floats_of((size_t)o->max_tokens * model->ropes[i].pairs, NAN);
        s->sine[i] = floats_of((size_t)o->max_tokens * model->ropes[i].pairs, NAN);
    }
    s->base = pj_alloc(o->sequences, sizeof *s->base);
    s->chosen =
        pj_alloc((size_t)o->max_tokens * model->config.experts_per_token + 1, sizeof *s->chosen);
    s->weight = floats_of((size_t)o->max_tokens * model->config.experts_per_token, NAN);
    s->logits = floats_of(shape->floats[PJ_BUFFER_LOGITS], NAN);
    s->ids = pj_alloc(o->max_logits, sizeof *s->ids);
    s->commands = pj_alloc(COMMANDS, sizeof *s->commands);
    *state = s;
    return PJ_OK;
}

static void reference_close(void *state)
{
    reference *s = state;
    for (int i = 1; i < PJ_BUFFERS; i++) pj_free(s->buffers[i]);
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        pj_free(s->cache[i]);
        pj_free(s->recurrent[i]);
        pj_free(s->index_keys[i]);
    }
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        pj_free(s->cosine[i]);
        pj_free(s->sine[i]);
    }
    pj_free(s->cache);
    pj_free(s->recurrent);
    pj_free(s->index_keys);
    pj_free(s->seen);
    pj_free(s->base);
    pj_free(s->chosen);
    pj_free(s->weight);
    pj_free(s->logits);
    pj_free(s->ids);
    pj_free(s->commands);
    pj_free(s);
}

const pj_backend reference_device = {.version = PJ_BACKEND_VERSION,
                                     .name = "reference",
                                     .has = reference_has,
                                     .load = reference_load,
                                     .unload = reference_unload,
                                     .facts = reference_facts,
                                     .peak = reference_peak,
                                     .read_pass = reference_read_pass,
                                     .open = reference_open,
                                     .close = reference_close,
                                     .ops = {.begin_pass = reference_begin_pass,
                                             .end_pass = reference_end_pass,
                                             .section = begin,
                                             .end_section = reference_end_section,
                                             .layer = reference_layer,
                                             .component = begin,
                                             .end = reference_end,
                                             .gather = reference_gather,
                                             .scale = reference_scale,
                                             .join_vectors = reference_join_vectors,
                                             .angles = reference_angles,
                                             .norm = reference_norm,
                                             .products = reference_products,
                                             .add = reference_add,
                                             .take_queries = reference_take_queries,
                                             .copy_heads = reference_copy_heads,
                                             .gate_heads = reference_gate_heads,
                                             .rotate = reference_rotate,
                                             .rotate_and_store = reference_rotate_and_store,
                                             .choose_keys = reference_choose_keys,
                                             .attend = reference_attend,
                                             .activate = reference_activate,
                                             .route = reference_route,
                                             .experts = reference_experts,
                                             .add_gated = reference_add_gated,
                                             .convolve = reference_convolve,
                                             .delta_rule = reference_delta_rule,
                                             .gated_norm = reference_gated_norm,
                                             .predict_streams = reference_predict_streams,
                                             .correct_streams = reference_correct_streams,
                                             .match_magnitude = reference_match_magnitude,
                                             .take_rows = reference_take_rows,
                                             .bound = reference_bound,
                                             .argmax = reference_argmax,
                                             .give = reference_give,
                                             .rows = reference_rows,
                                             .logits = reference_logits,
                                             .ids = reference_ids,
                                             .reset = reference_reset,
                                             .rewind = reference_rewind,
                                             .slide = reference_slide}};
