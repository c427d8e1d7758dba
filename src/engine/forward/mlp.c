/* Feed-forward blocks: dense ones, and mixtures of experts. An expert's tokens are gathered, run
 * through its block together, and added back in expert order, so that a token's sum does not depend
 * on what else is in the pass. */
#include "engine/forward/steps.h"
#include "engine/kernels/stats_timer.h"

#include <math.h>
#include <string.h>

/* ---- activation --------------------------------------------------------------------------- */

typedef struct activation {
    const pj_steps *s;
    const float *gate; /* [rows][stride] */
    const float *up;   /* [rows][stride]; NULL: no gate */
    float *act;        /* [rows][f] */
    size_t f, stride, up_stride;
    bool gelu;
    float alpha, limit; /* for a clamped gate; limit 0: none */
} activation;

/* g sigmoid(alpha g) = silu(alpha g) / alpha, for gates clamped to the limit. */
static void activate_clamped(const activation *a, const float *gate, float *act)
{
    for (size_t i = 0; i < a->f; i++) act[i] = (gate[i] > a->limit ? a->limit : gate[i]) * a->alpha;
    a->s->kernels->silu(act, act, a->f);
    for (size_t i = 0; i < a->f; i++) act[i] *= 1 / a->alpha;
}

static void multiply_clamped(const activation *a, const float *up, float *act)
{
    for (size_t i = 0; i < a->f; i++) {
        float u = up[i] > a->limit ? a->limit : up[i];
        act[i] *= (u < -a->limit ? -a->limit : u) + 1;
    }
}

static void activate_row(void *context, size_t row)
{
    const activation *a = context;
    const pj_kernels *k = a->s->kernels;
    const float *gate = a->gate + row * a->stride;
    float *act = a->act + row * a->f;
    if (a->limit > 0)
        activate_clamped(a, gate, act);
    else if (a->gelu)
        k->gelu(act, gate, a->f);
    else
        k->silu(act, gate, a->f);
}

static void multiply_row(void *context, size_t row)
{
    const activation *a = context;
    if (a->limit > 0)
        multiply_clamped(a, a->up + row * a->up_stride, a->act + row * a->f);
    else
        a->s->kernels->multiply(a->act + row * a->f, a->up + row * a->up_stride, a->f);
}

static void activate_and_multiply_row(void *context, size_t row)
{
    const activation *a = context;
    if (a->gelu || a->limit > 0 || !a->up) {
        activate_row(context, row);
        if (a->up) multiply_row(context, row);
    } else {
        a->s->kernels->silu_multiply(a->act + row * a->f, a->gate + row * a->stride,
                                     a->up + row * a->up_stride, a->f);
    }
}

typedef struct thread_counts {
    _Alignas(64) pj_gate_counts counts;
} thread_counts;

/* Every thread counts its share of the rows. */
typedef struct count_task {
    const activation *a;
    const pj_done *done;
    size_t rows;
    thread_counts *thread;
} count_task;

/* Statistics of some rows, each while it is in L1. */
static void activate_and_count_rows(const count_task *t, size_t begin, size_t end, unsigned thread)
{
    const activation *a = t->a;
    const pj_kernels *k = a->s->kernels;
    size_t step = pj_sample_step(t->rows);
    for (size_t row = begin; row < end; row++) {
        const float *act = a->act + row * a->f;
        activate_row((void *)(uintptr_t)a, row);
        if (!a->s->instrument->statistics) continue;
        pj_instrument_sample(a->s->instrument, t->done, row, row + 1,
                             pj_instrument_sums(a->s->instrument, thread));
        if (!pj_sample_has_row(row, t->rows, step)) continue;
        int64_t timed_from = pj_stats_timer_begin();
        k->gate_counts(a->gate + row * a->stride, act, a->up ? a->up + row * a->up_stride : NULL,
                       a->f, PJ_SPARSITY_TAU, &t->thread[thread].counts);
        pj_stats_timer_end(timed_from);
    }
}

static void activate_and_count_share(void *context, unsigned thread)
{
    const count_task *t = context;
    size_t begin, end;
    pj_team_share(t->a->s->team, thread, t->rows, 1, &begin, &end);
    activate_and_count_rows(t, begin, end, thread);
}

static void activate_and_count(const activation *a, size_t rows, const pj_done *done)
{
    thread_counts counts[PJ_TEAM_MAX_THREADS];
    count_task task = {.a = a, .done = done, .rows = rows, .thread = counts};
    pj_gate_counts all = {0};
    pj_instrument *r = a->s->instrument;
    memset(counts, 0, pj_team_threads(a->s->team) * sizeof *counts);
    if (rows == 1)
        activate_and_count_rows(&task, 0, 1, 0);
    else
        pj_team_run(a->s->team, activate_and_count_share, &task);
    if (!r->statistics) return;
    pj_instrument_keep_sums(r, 0, done);
    for (unsigned t = 0; t < pj_team_threads(a->s->team); t++) {
        all.count += task.thread[t].counts.count;
        all.killed += task.thread[t].counts.killed;
        all.dead += task.thread[t].counts.dead;
        all.gated += task.thread[t].counts.gated;
    }
    if (all.count == 0) return;
    double n = (double)all.count;
    pj_steps_record_rows(a->s, rows);
    pj_instrument_extra(r, PJ_N_X_KILL_RATIO, PJ_EXTRA_SCALAR, (double)all.killed / n);
    pj_instrument_extra(r, PJ_N_X_DEAD_RATIO, PJ_EXTRA_SCALAR, (double)all.dead / n);
    if (a->up)
        pj_instrument_extra(r, PJ_N_X_GATED_SPARSITY, PJ_EXTRA_SCALAR, (double)all.gated / n);
}

/* act = f(gate) * up, or f(gate); `component` PJ_N_NONE: part of the open component. */
static void activate(const activation *a, size_t rows, pj_instrument_name component)
{
    const pj_steps *s = a->s;
    pj_instrument *r = s->instrument;
    size_t work = rows * a->f * 4;
    double values = (double)rows * (double)a->f;
    pj_done done = {.flops = (a->up ? 5 : 4) * values,
                    .bytes = 4 * (a->up ? 3 : 2) * values,
                    .x = a->act,
                    .rows = rows,
                    .cols = a->f,
                    .stride = a->f};
    if (!pj_steps_want(s, component)) return;
    if (component) pj_instrument_component(r, component);
    if (!r->deep) {
        if (component)
            pj_steps_rows_summed(s, rows, work, activate_and_multiply_row, (void *)(uintptr_t)a,
                                 &done);
        else
            pj_steps_rows(s, rows, work, activate_and_multiply_row, (void *)(uintptr_t)a);
    } else {
        pj_done half = done;
        half.flops = 4 * values;
        half.bytes = 8 * values;
        pj_instrument_operation(r, PJ_N_OP_ACTIVATION);
        activate_and_count(a, rows, &half);
        pj_instrument_operation_end(r, &half);
        if (a->up) {
            half.flops = values;
            half.bytes = 12 * values;
            pj_instrument_operation(r, PJ_N_OP_GATE_MUL);
            pj_steps_rows_summed(s, rows, work, multiply_row, (void *)(uintptr_t)a, &half);
            pj_instrument_operation_end(r, &half);
        }
    }
    if (component) pj_instrument_module_end_with_last(r, &done);
}

/* ---- one block ---------------------------------------------------------------------------- */

/* Runs x through the block into y [rows][hidden]: down(act(gate x) * up x), or down(act(up x)). */
void pj_steps_mlp(const pj_steps *s, const pj_mlp *mlp, const pj_rows *x, float *y, float *residual)
{
    const pj_state *state = s->state;
    size_t f = mlp->width, hidden = s->model->config.hidden;
    bool plain = !mlp->gate.w.data && !mlp->gate_up.w.data;
    float *gate = state->gate_up, *up = plain ? NULL : gate + f;
    size_t stride = (plain ? f : 2 * f) + PJ_GATE_GAP;
    const pj_product inputs[] = {
        {&mlp->gate_up, gate, stride, NULL}, /* fused, or separate */
        {&mlp->gate, gate, stride, NULL},
        {&mlp->up, plain ? gate : up, stride, NULL},
    };
    pj_steps_products(s, x, inputs, 3);
    activation a = {.s = s,
                    .gate = gate,
                    .up = up,
                    .act = state->act,
                    .f = f,
                    .stride = stride,
                    .up_stride = stride,
                    .gelu = s->model->config.gelu,
                    .alpha = (float)s->model->config.swiglu_alpha,
                    .limit = (float)s->model->config.swiglu_limit};
    activate(&a, x->count, mlp->down.name ? PJ_N_ACT : PJ_N_NONE);
    pj_rows act = {state->act, x->count, f};
    pj_steps_product(s, &act, &mlp->down, y, hidden, residual);
}

/* The layer's part of each token vector, gated by the residual stream. */
void pj_steps_token_input(const pj_steps *s, const pj_layer *l, float *y)
{
    const pj_model_config *c = &s->model->config;
    const pj_state *state = s->state;
    size_t n = c->token_vector;
    pj_rows x = {state->x, s->rows, c->hidden}, act = {state->act, s->rows, n};
    activation a = {.s = s,
                    .gate = state->gate_up,
                    .up = state->token_vectors + l->index * n,
                    .act = state->act,
                    .f = n,
                    .stride = n,
                    .up_stride = c->layers * n,
                    .gelu = c->gelu};
    pj_steps_product(s, &x, &l->token_gate, state->gate_up, n, NULL);
    activate(&a, s->rows, PJ_N_PER_LAYER_ACT);
    pj_steps_product(s, &act, &l->token_projection, y, c->hidden, NULL);
}

/* ---- router ------------------------------------------------------------------------------- */

typedef struct routing {
    const pj_steps *s;
    const pj_rows *x; /* input of the experts */
    uint32_t experts, chosen;
    bool renormalise;
    const float *scale; /* [experts] factors of the chosen weights, or NULL */
} routing;

/* Top-k of the probabilities, lower index first on ties, with their weights. */
static void choose_row(void *context, size_t row)
{
    const routing *t = context;
    const pj_state *state = t->s->state;
    float *p = state->probability + row * t->experts;
    uint32_t *chosen = state->chosen + row * t->chosen;
    float *weight = state->chosen_weight + row * t->chosen;
    memcpy(p, state->routing + row * t->experts, t->experts * sizeof *p);
    t->s->kernels->softmax(p, t->experts);
    float sum = 0;
    for (uint32_t slot = 0; slot < t->chosen; slot++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < t->experts; e++) {
            bool taken = false;
            for (uint32_t i = 0; i < slot; i++) taken |= chosen[i] == e;
            if (!taken && (best == UINT32_MAX || p[e] > p[best])) best = e;
        }
        chosen[slot] = best;
        weight[slot] = p[best];
        sum += p[best];
    }
    for (uint32_t slot = 0; t->renormalise && slot < t->chosen; slot++) weight[slot] /= sum;
    for (uint32_t slot = 0; t->scale && slot < t->chosen; slot++)
        weight[slot] *= t->scale[chosen[slot]];
}

/* Sorts rows by expert: expert e has the entries [expert_begin[e], expert_begin[e + 1]). */
static void sort_by_expert(const routing *t)
{
    const pj_state *state = t->s->state;
    size_t entries = t->s->rows * t->chosen;
    uint32_t *begin = state->expert_begin;
    memset(begin, 0, (t->experts + 1) * sizeof *begin);
    for (size_t i = 0; i < entries; i++) begin[state->chosen[i] + 1]++;
    for (uint32_t e = 0; e < t->experts; e++) begin[e + 1] += begin[e];
    for (size_t i = 0; i < entries; i++) {
        uint32_t at = begin[state->chosen[i]]++;
        state->expert_row[at] = (uint32_t)(i / t->chosen);
        state->expert_weight[at] = state->chosen_weight[i];
    }
    for (uint32_t e = t->experts; e > 0; e--) begin[e] = begin[e - 1];
    begin[0] = 0;
}

/* Entropy of the router's probabilities and its margin, averaged over rows. */
static void record_routing_figures(const routing *t)
{
    double entropy = 0, margin = 0, n = (double)t->s->rows;
    for (size_t row = 0; row < t->s->rows; row++) {
        const float *p = t->s->state->probability + row * t->experts;
        float first = 0, second = 0;
        for (uint32_t e = 0; e < t->experts; e++) {
            if (p[e] > 0) entropy -= p[e] * log(p[e]);
            if (p[e] > first) {
                second = first;
                first = p[e];
            } else if (p[e] > second) {
                second = p[e];
            }
        }
        margin += first - second;
    }
    pj_instrument *r = t->s->instrument;
    pj_instrument_extra(r, PJ_N_X_ROUTING_ENTROPY, PJ_EXTRA_SCALAR, entropy / n);
    pj_instrument_extra(r, PJ_N_X_ROUTING_ENTROPY_NORMALISED, PJ_EXTRA_SCALAR,
                        t->experts > 1 ? entropy / n / log(t->experts) : 0);
    pj_instrument_extra(r, PJ_N_X_ROUTING_MARGIN, PJ_EXTRA_SCALAR, margin / n);
}

/* Load of the experts; for few tokens also the experts chosen by each token. */
static void record_load(const routing *t)
{
    enum { FEW_ENTRIES = 128 };
    const pj_state *state = t->s->state;
    pj_instrument *r = t->s->instrument;
    size_t rows = t->s->rows, entries = rows * t->chosen;
    double mean = 1.0 / t->experts, square = 0, balance = 0;
    uint32_t unique = 0;
    for (uint32_t e = 0; e < t->experts; e++) {
        uint32_t count = state->expert_begin[e + 1] - state->expert_begin[e];
        double load = (double)count / (double)entries, probability = 0;
        for (size_t row = 0; row < rows; row++)
            probability += state->probability[row * t->experts + e];
        unique += count > 0;
        square += (load - mean) * (load - mean);
        balance += load * probability / (double)rows;
        if (entries > FEW_ENTRIES) pj_instrument_extra(r, PJ_N_X_EXPERT_LOAD, e, load);
    }
    pj_instrument_extra(r, PJ_N_X_UNIQUE_EXPERTS, PJ_EXTRA_SCALAR, unique);
    pj_instrument_extra(r, PJ_N_X_EXPERT_LOAD_VARIATION, PJ_EXTRA_SCALAR,
                        sqrt(square * mean) / mean);
    pj_instrument_extra(r, PJ_N_X_LOAD_BALANCE, PJ_EXTRA_SCALAR, balance * t->experts);
    for (size_t i = 0; entries <= FEW_ENTRIES && i < entries; i++) {
        pj_instrument_extra(r, PJ_N_X_EXPERT, (uint32_t)i, state->chosen[i]);
        pj_instrument_extra(r, PJ_N_X_EXPERT_WEIGHT, (uint32_t)i, state->chosen_weight[i]);
    }
}

static void route(const routing *t, const pj_layer *layer, const pj_rows *x)
{
    const pj_steps *s = t->s;
    pj_instrument *r = s->instrument;
    double values = (double)s->rows * t->experts;
    pj_instrument_component(r, PJ_N_ROUTER);
    pj_steps_product(s, x, &layer->router, s->state->routing, t->experts, NULL);
    pj_instrument_operation(r, PJ_N_OP_TOP_K);
    pj_steps_rows(s, s->rows, s->rows * t->experts * t->chosen, choose_row, (void *)(uintptr_t)t);
    sort_by_expert(t);
    pj_instrument_operation_end(r, &(pj_done){.flops = 5 * values, .bytes = 8 * values});
    if (r->module) {
        record_routing_figures(t);
        record_load(t);
    }
    pj_instrument_module_end(
        r, &(pj_done){.flops = pj_product_flops(&layer->router, s->rows) + 5 * values,
                      .bytes = pj_product_bytes(&layer->router, s->rows),
                      .x = s->state->routing,
                      .rows = s->rows,
                      .cols = t->experts,
                      .stride = t->experts});
}

/* ---- experts ------------------------------------------------------------------------------ */

typedef struct expert_rows {
    const pj_steps *s;
    const pj_rows *x;
    uint32_t begin; /* the expert's first entry */
} expert_rows;

static void gather_row(void *context, size_t i)
{
    const expert_rows *t = context;
    size_t hidden = t->s->model->config.hidden;
    const pj_state *state = t->s->state;
    memcpy(state->gathered + i * hidden, t->x->x + state->expert_row[t->begin + i] * t->x->stride,
           hidden * sizeof(float));
}

static void scatter_row(void *context, size_t i)
{
    const expert_rows *t = context;
    size_t hidden = t->s->model->config.hidden;
    const pj_state *state = t->s->state;
    t->s->kernels->add_scaled(state->y + state->expert_row[t->begin + i] * hidden,
                              state->y2 + i * hidden, state->expert_weight[t->begin + i], hidden);
}

static double block_flops(const pj_mlp *mlp, size_t rows)
{
    return pj_product_flops(&mlp->gate, rows) + pj_product_flops(&mlp->up, rows) +
           pj_product_flops(&mlp->down, rows) + 5.0 * (double)rows * mlp->width;
}

static double block_bytes(const pj_mlp *mlp, size_t rows)
{
    return pj_product_bytes(&mlp->gate, rows) + pj_product_bytes(&mlp->up, rows) +
           pj_product_bytes(&mlp->down, rows) + 12.0 * (double)rows * mlp->width;
}

static void run_expert(const routing *routed, const pj_mlp *mlp, uint32_t begin, uint32_t rows)
{
    const pj_steps *s = routed->s;
    size_t hidden = s->model->config.hidden;
    double values = (double)rows * (double)hidden;
    expert_rows t = {s, routed->x, begin};
    pj_rows gathered = {s->state->gathered, rows, hidden};
    pj_instrument_operation(s->instrument, PJ_N_OP_GATHER);
    pj_steps_rows(s, rows, rows * hidden, gather_row, &t);
    pj_instrument_operation_end(s->instrument, &(pj_done){.bytes = 8 * values});
    pj_steps_mlp(s, mlp, &gathered, s->state->y2, NULL);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCATTER_ADD);
    pj_steps_rows(s, rows, rows * hidden, scatter_row, &t);
    pj_instrument_operation_end(s->instrument,
                                &(pj_done){.flops = 2 * values, .bytes = 12 * values});
}

static pj_done hidden_done(const pj_steps *s, const float *x, double flops, double bytes)
{
    size_t hidden = s->model->config.hidden;
    return (pj_done){flops, bytes, x, s->rows, hidden, hidden};
}

/* Runs all experts into state->y, which is added to `residual` unless that is NULL. */
static void run_experts(const routing *t, const pj_layer *layer, float *residual)
{
    const pj_steps *s = t->s;
    const uint32_t *begin = s->state->expert_begin;
    double flops = 0, bytes = 0;
    pj_instrument_component(s->instrument, PJ_N_EXPERTS);
    memset(s->state->y, 0, s->rows * s->model->config.hidden * sizeof(float));
    for (uint32_t e = 0; e < t->experts; e++) {
        uint32_t rows = begin[e + 1] - begin[e];
        if (rows == 0) continue;
        run_expert(t, &layer->experts[e], begin[e], rows);
        flops += block_flops(&layer->experts[e], rows);
        bytes += block_bytes(&layer->experts[e], rows);
    }
    if (residual) pj_steps_add(s, residual, s->state->y, s->rows, s->model->config.hidden);
    if (s->instrument->module) {
        uint32_t few = (uint32_t)(s->rows * t->chosen);
        for (uint32_t i = 0; few <= 128 && i < few; i++)
            pj_instrument_extra(s->instrument, PJ_N_X_EXPERT, i, s->state->chosen[i]);
    }
    pj_done done = hidden_done(s, s->state->y, flops, bytes);
    pj_instrument_module_end(s->instrument, &done);
}

static void gate_shared_row(void *context, size_t row)
{
    const pj_steps *s = context;
    size_t hidden = s->model->config.hidden;
    float gate = 1.0f / (1.0f + expf(-s->state->routing[row]));
    s->kernels->add_scaled(s->state->y + row * hidden, s->state->y2 + row * hidden, gate, hidden);
}

/* The shared expert: applied to every token, weighted by a sigmoid. */
static void run_shared(const pj_steps *s, const pj_layer *layer, const pj_rows *x, float *residual)
{
    size_t hidden = s->model->config.hidden;
    double flops = block_flops(&layer->shared, s->rows),
           bytes = block_bytes(&layer->shared, s->rows);
    pj_instrument_component(s->instrument, PJ_N_SHARED_EXPERT);
    pj_steps_mlp(s, &layer->shared, x, s->state->y2, NULL);
    pj_steps_product(s, x, &layer->shared_gate, s->state->routing, 1, NULL);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCATTER_ADD);
    pj_steps_rows(s, s->rows, s->rows * hidden, gate_shared_row, (void *)(uintptr_t)s);
    pj_instrument_operation_end(s->instrument, &(pj_done){0});
    if (residual) pj_steps_add(s, residual, s->state->y, s->rows, hidden);
    pj_done done = hidden_done(s, s->state->y2, flops, bytes);
    pj_instrument_module_end(s->instrument, &done);
}

void pj_steps_experts(const pj_steps *s, const pj_layer *layer, const pj_rows *routed,
                      const pj_rows *x, float *residual)
{
    const pj_model_config *c = &s->model->config;
    routing t = {.s = s,
                 .x = x,
                 .scale = layer->expert_scale,
                 .experts = c->experts,
                 .chosen = c->experts_per_token,
                 .renormalise =
                     s->model->blueprint->router == PJ_ROUTER_SOFTMAX_RENORMALISED || c->norm_topk};
    bool shared = layer->shared.width > 0;
    if (pj_steps_want(s, PJ_N_ROUTER)) route(&t, layer, routed);
    if (pj_steps_want(s, PJ_N_EXPERTS)) run_experts(&t, layer, shared ? NULL : residual);
    if (shared && pj_steps_want(s, PJ_N_SHARED_EXPERT)) run_shared(s, layer, x, residual);
}
