/* Mixtures of experts. An expert's tokens are gathered, run through its block together, and added
 * back in expert order, so that a token's sum does not depend on what else is in the pass. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Up to so many choices are recorded one by one. */
enum { FEW_ENTRIES = 128 };

/* ---- router ------------------------------------------------------------------------------- */

typedef struct routing {
    pj_cpu *s;
    pj_slice logits;
    size_t rows;
    uint32_t experts, chosen;
    bool renormalise;
    const float *scale;      /* [experts] factors of the chosen weights, or NULL */
    const float *correction; /* [experts] added to scores when choosing, or NULL */
    float *choice;           /* [rows][experts] scores to choose by; NULL: the scores themselves */
} routing;

/* The expert with the largest score of those that are left, the first of equal ones; NaN is the
 * least. So the choices of a token are distinct whatever its scores are, and an expert has at most
 * one row of each token, which is what buffers have room for. */
static uint32_t best_left(const float *scores, const bool *taken, uint32_t experts)
{
    uint32_t best = 0;
    while (taken[best]) best++;
    for (uint32_t e = best + 1; e < experts; e++)
        if (!taken[e] && !isnan(scores[e]) && !(scores[e] <= scores[best])) best = e;
    return best;
}

/* Top-k of the probabilities, lower index first on ties, with their weights. */
static void choose_row(void *context, size_t row)
{
    const routing *t = context;
    const pj_cpu *s = t->s;
    float *p = s->probability + row * t->experts;
    uint32_t *chosen = s->chosen + row * t->chosen;
    float *weight = s->chosen_weight + row * t->chosen;
    bool taken[PJ_MAX_EXPERTS];
    memset(taken, 0, t->experts * sizeof *taken);
    memcpy(p, pj_cpu_row(s, t->logits, row), t->experts * sizeof *p);
    s->kernels->softmax(p, t->experts);
    float sum = 0;
    for (uint32_t slot = 0; slot < t->chosen; slot++) {
        uint32_t best = best_left(p, taken, t->experts);
        taken[best] = true;
        chosen[slot] = best;
        weight[slot] = p[best];
        sum += p[best];
    }
    for (uint32_t slot = 0; t->renormalise && slot < t->chosen; slot++) weight[slot] /= sum;
    for (uint32_t slot = 0; t->scale && slot < t->chosen; slot++)
        weight[slot] *= t->scale[chosen[slot]];
}

/* Scores of groups of neighbouring experts; all experts outside the best groups are excluded. */
static void keep_groups(const pj_model_config *c, float *choice)
{
    uint32_t each = c->experts / c->expert_groups;
    float score[PJ_MAX_EXPERTS / 2];
    for (uint32_t g = 0; g < c->expert_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t e = g * each; e < (g + 1) * each; e++) {
            if (choice[e] > first) {
                second = first;
                first = choice[e];
            } else if (choice[e] > second) {
                second = choice[e];
            }
        }
        score[g] = c->group_by_pair ? first + second : first;
    }
    for (uint32_t g = 0; g < c->expert_groups; g++) {
        uint32_t better = 0;
        for (uint32_t o = 0; o < c->expert_groups; o++)
            better += score[o] > score[g] || (score[o] == score[g] && o < g);
        for (uint32_t e = g * each; better >= c->expert_groups_kept && e < (g + 1) * each; e++)
            choice[e] = -INFINITY;
    }
}

/* Routers whose choice is not simply the largest of a softmax. Figures are about scores that sum
 * to 1, as those of a softmax do. */
static void choose_scored_row(void *context, size_t row)
{
    const routing *t = context;
    const pj_cpu *s = t->s;
    const pj_model_config *c = &s->model->config;
    const float *logits = pj_cpu_row(s, t->logits, row);
    float *p = s->probability + row * t->experts, *choice = t->choice + row * t->experts;
    uint32_t *chosen = s->chosen + row * t->chosen;
    float *weight = s->chosen_weight + row * t->chosen, sum = 0, all = 0;
    bool taken[PJ_MAX_EXPERTS];
    memset(taken, 0, t->experts * sizeof *taken);
    memcpy(p, logits, t->experts * sizeof *p);
    if (c->router_sigmoid)
        for (uint32_t e = 0; e < t->experts; e++) p[e] = 1 / (1 + expf(-p[e]));
    else
        s->kernels->softmax(p, t->experts);
    for (uint32_t e = 0; e < t->experts; e++) {
        choice[e] = p[e] + (t->correction ? t->correction[e] : 0);
        all += p[e];
    }
    if (c->expert_groups > 1) keep_groups(c, choice);
    for (uint32_t slot = 0; slot < t->chosen; slot++) {
        uint32_t best = best_left(choice, taken, t->experts);
        taken[best] = true;
        chosen[slot] = best;
        weight[slot] = p[best];
        sum += p[best];
    }
    float factor = (float)c->routed_scale / (t->renormalise && sum > 0 ? sum : 1);
    for (uint32_t slot = 0; slot < t->chosen; slot++)
        weight[slot] *= factor * (t->scale ? t->scale[chosen[slot]] : 1);
    for (uint32_t e = 0; all > 0 && e < t->experts; e++) p[e] /= all;
}

/* The softmax at `best` over the experts that are left and within reach of it. */
static float weight_in_reach(const float *logits, const bool *taken, uint32_t experts,
                             uint32_t best, float reach)
{
    float top = logits[best], sum = 0;
    for (uint32_t e = 0; e < experts; e++) {
        float factor = fmaxf(fabsf(logits[e]), top);
        if (!taken[e] && (top - logits[e]) / factor <= reach) sum += expf(logits[e] - top);
    }
    return 1 / sum;
}

/* Each expert of those that are left, weighted among its likes. */
static void choose_mixed_row(void *context, size_t row)
{
    const routing *t = context;
    const pj_cpu *s = t->s;
    const float *logits = pj_cpu_row(s, t->logits, row);
    float *p = s->probability + row * t->experts, *weight = s->chosen_weight + row * t->chosen;
    uint32_t *chosen = s->chosen + row * t->chosen;
    bool taken[PJ_MAX_EXPERTS];
    memset(taken, 0, t->experts * sizeof *taken);
    memcpy(p, logits, t->experts * sizeof *p);
    s->kernels->softmax(p, t->experts);
    for (uint32_t slot = 0; slot < t->chosen; slot++) {
        uint32_t best = best_left(logits, taken, t->experts);
        weight[slot] =
            weight_in_reach(logits, taken, t->experts, best, (float)s->model->config.router_reach);
        chosen[slot] = best;
        taken[best] = true;
    }
}

static bool is_scored(const pj_model_config *c)
{
    return c->router_sigmoid || c->router_correction || c->expert_groups > 1 ||
           c->routed_scale != 1;
}

/* Sorts rows by expert: expert e has the entries [expert_begin[e], expert_begin[e + 1]). */
static void sort_by_expert(const routing *t)
{
    const pj_cpu *s = t->s;
    size_t entries = t->rows * t->chosen;
    uint32_t *begin = s->expert_begin;
    memset(begin, 0, (t->experts + 1) * sizeof *begin);
    for (size_t i = 0; i < entries; i++) begin[s->chosen[i] + 1]++;
    for (uint32_t e = 0; e < t->experts; e++) begin[e + 1] += begin[e];
    for (size_t i = 0; i < entries; i++) {
        uint32_t at = begin[s->chosen[i]]++;
        s->expert_row[at] = (uint32_t)(i / t->chosen);
        s->expert_weight[at] = s->chosen_weight[i];
    }
    for (uint32_t e = t->experts; e > 0; e--) begin[e] = begin[e - 1];
    begin[0] = 0;
}

/* Entropy of the router's probabilities and its margin, averaged over rows. */
static void record_routing_figures(const routing *t)
{
    double entropy = 0, margin = 0, n = (double)t->rows;
    for (size_t row = 0; row < t->rows; row++) {
        const float *p = t->s->probability + row * t->experts;
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
    const pj_cpu *s = t->s;
    pj_instrument *r = t->s->instrument;
    size_t rows = t->rows, entries = rows * t->chosen;
    double mean = 1.0 / t->experts, square = 0, balance = 0;
    uint32_t unique = 0;
    for (uint32_t e = 0; e < t->experts; e++) {
        uint32_t count = s->expert_begin[e + 1] - s->expert_begin[e];
        double load = (double)count / (double)entries, probability = 0;
        for (size_t row = 0; row < rows; row++) probability += s->probability[row * t->experts + e];
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
        pj_instrument_extra(r, PJ_N_X_EXPERT, (uint32_t)i, s->chosen[i]);
        pj_instrument_extra(r, PJ_N_X_EXPERT_WEIGHT, (uint32_t)i, s->chosen_weight[i]);
    }
}

void pj_cpu_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise)
{
    pj_cpu *s = state;
    routing t = {.s = s,
                 .logits = logits,
                 .rows = logits.rows,
                 .experts = logits.cols,
                 .chosen = layer->chosen,
                 .renormalise = renormalise,
                 .scale = layer->expert_scale,
                 .correction = layer->expert_correction,
                 .choice = s->choice};
    double values = (double)t.rows * t.experts;
    pj_instrument_operation(s->instrument, PJ_N_OP_TOP_K);
    pj_cpu_rows(s, t.rows, (size_t)t.rows * t.experts * t.chosen,
                s->model->blueprint->router == PJ_ROUTER_MIXER ? choose_mixed_row
                : is_scored(&s->model->config)                 ? choose_scored_row
                                                               : choose_row,
                &t);
    sort_by_expert(&t);
    pj_cpu_operation_end(s, &(pj_cpu_done){.flops = 5 * values, .bytes = 8 * values});
    if (!s->instrument->module) return;
    record_routing_figures(&t);
    record_load(&t);
}

/* ---- experts ------------------------------------------------------------------------------ */

/* The rows of one expert: entries from `begin` on. */
typedef struct expert_rows {
    const pj_cpu *s;
    pj_slice from, to;
    uint32_t begin;
} expert_rows;

static void expert_gather_row(void *context, size_t i)
{
    const expert_rows *t = context;
    uint32_t entry = t->begin + (uint32_t)i;
    float *to = pj_cpu_row(t->s, t->to, i);
    memcpy(to, pj_cpu_row(t->s, t->from, t->s->expert_row[entry]), t->to.cols * sizeof(float));
    if (t->s->model->blueprint->weighted_input)
        t->s->kernels->scale(to, t->to.cols, t->s->expert_weight[entry]);
}

static void expert_scatter_row(void *context, size_t i)
{
    const expert_rows *t = context;
    uint32_t entry = t->begin + (uint32_t)i;
    float weight = t->s->model->blueprint->weighted_input ? 1 : t->s->expert_weight[entry];
    t->s->kernels->add_scaled(pj_cpu_row(t->s, t->to, t->s->expert_row[entry]),
                              pj_cpu_row(t->s, t->from, i), weight, t->to.cols);
}

static void run_expert(pj_cpu *s, const pj_mlp *mlp, const pj_activation *like, uint32_t begin,
                       uint32_t rows, pj_slice x, pj_slice y)
{
    pj_slice gathered = pj_slice_of((pj_buffer_name)PJ_CPU_GATHERED, rows, x.cols, x.cols);
    pj_slice own = pj_slice_of(PJ_BUFFER_Y2, rows, y.cols, y.cols);
    pj_mlp_block b = pj_mlp_block_of(mlp, like, own, (pj_slice){0});
    size_t values = (size_t)rows * x.cols;
    pj_instrument_operation(s->instrument, PJ_N_OP_GATHER);
    pj_cpu_rows(s, rows, values, expert_gather_row, &(expert_rows){s, x, gathered, begin});
    pj_cpu_operation_end(s, &(pj_cpu_done){.bytes = 8 * (double)values});
    pj_cpu_products(s, gathered, b.inputs, b.input_count);
    pj_cpu_activate(s, &b.activation);
    pj_cpu_products(s, b.activation.act, &b.output, 1);
    pj_instrument_operation(s->instrument, PJ_N_OP_SCATTER_ADD);
    pj_cpu_rows(s, rows, values, expert_scatter_row, &(expert_rows){s, own, y, begin});
    pj_cpu_operation_end(s,
                         &(pj_cpu_done){.flops = 2 * (double)values, .bytes = 12 * (double)values});
}

/* For few tokens, the experts that each of them chose. */
static void record_chosen(const pj_cpu *s, const pj_layer *layer, uint32_t rows)
{
    uint32_t few = rows * layer->chosen;
    for (uint32_t i = 0; few <= FEW_ENTRIES && i < few; i++)
        pj_instrument_extra(s->instrument, PJ_N_X_EXPERT, i, s->chosen[i]);
}

void pj_cpu_experts(void *state, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual)
{
    pj_cpu *s = state;
    const uint32_t *begin = s->expert_begin;
    pj_cpu_done done = pj_cpu_work(s, y, 0, 0);
    if (s->instrument->module) pj_cpu_begin_component(s, PJ_N_EXPERTS, 0);
    memset(pj_cpu_floats(s, y), 0, (size_t)y.rows * y.cols * sizeof(float));
    for (uint32_t e = 0; e < s->model->config.experts; e++) {
        uint32_t rows = begin[e + 1] - begin[e];
        if (rows == 0) continue;
        run_expert(s, &layer->experts[e], like, begin[e], rows, x, y);
        done.flops += pj_mlp_flops(&layer->experts[e], rows);
        done.bytes += pj_mlp_bytes(&layer->experts[e], rows);
    }
    if (residual.buffer) pj_cpu_add(s, residual, y);
    if (!s->instrument->module) return;
    record_chosen(s, layer, x.rows);
    pj_cpu_end_done(s, done.flops, done.bytes, &done, 0);
}
