/* Mixtures of experts: routing, and the blocks of the chosen experts. An entry is a row and one of
 * its experts. One row's entries are computed one by one; more are sorted by expert, whose weights
 * are then read once. Nothing of it is known to the host. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <math.h>

enum {
    EXPERTS_THREADS = 128,
    EXPERTS_LANES = 32,
    EXPERTS_TILE = 64 /* entries: the rows of a tile of either kernel */
};

/* ---- memory ---- */

static uint64_t experts_cut(uint64_t *bytes, uint64_t words)
{
    uint64_t at = *bytes;
    *bytes += (4 * words + 255) / 256 * 256;
    return at;
}

static void experts_place(pj_gpu_routing *r, const pj_model_config *c, uint64_t rows)
{
    uint64_t entries = rows * c->experts_per_token, width = c->expert_intermediate;
    uint64_t tiles = pj_vk_most_tiles((uint32_t)entries, c->experts, EXPERTS_TILE);
    r->bytes = 0;
    r->probability = experts_cut(&r->bytes, rows * c->experts);
    r->chosen = experts_cut(&r->bytes, entries);
    r->weights = experts_cut(&r->bytes, entries);
    r->order = experts_cut(&r->bytes, entries);
    r->list = experts_cut(&r->bytes, entries);
    r->places = experts_cut(&r->bytes, entries);
    r->ones = experts_cut(&r->bytes, entries);
    r->begins = experts_cut(&r->bytes, c->experts + 1ull);
    r->tiles = experts_cut(&r->bytes, 1 + 3 * tiles);
    r->gate = experts_cut(&r->bytes, entries * width);
    r->up = experts_cut(&r->bytes, entries * width);
    r->act = experts_cut(&r->bytes, entries * width);
    r->out = experts_cut(&r->bytes, entries * c->hidden);
}

pj_status pj_gpu_routing_open(pj_gpu *s, pj_error *err)
{
    pj_gpu_routing *r = &s->routing;
    if (!s->model->config.experts) return PJ_OK;
    experts_place(r, &s->model->config, s->options.max_tokens);
    if (s->dry) return PJ_OK;
    pj_status status =
        pj_vk_buffer_make(s->vk, PJ_VK_DEVICE, r->bytes, "the experts of a pass", &r->memory, err);
    uint64_t *parts[] = {&r->probability, &r->chosen, &r->weights, &r->order, &r->list,
                         &r->places,      &r->ones,   &r->begins,  &r->tiles, &r->gate,
                         &r->up,          &r->act,    &r->out};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] += r->memory.address;
    return status;
}

/* ---- routing ---- */

void pj_gpu_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise)
{
    pj_gpu *s = state;
    const pj_model_config *c = &s->model->config;
    const pj_gpu_routing *r = &s->routing;
    uint32_t groups = c->expert_groups > 1 ? c->expert_groups : 1;
    bool mixed = s->model->blueprint->router == PJ_ROUTER_MIXER;
    pj_vk_route_constants constants = {EXPERTS_THREADS,
                                       layer->chosen,
                                       renormalise && !mixed,
                                       c->experts,
                                       c->router_sigmoid,
                                       groups,
                                       groups > 1 ? c->expert_groups_kept : 1,
                                       c->group_by_pair,
                                       (float)c->routed_scale,
                                       mixed,
                                       (float)c->router_reach};
    pj_vk_route_args args = {.logits = pj_gpu_at(s, logits),
                             .factors = pj_gpu_weight(&s->on->weights, layer->expert_scale),
                             .corrections =
                                 pj_gpu_weight(&s->on->weights, layer->expert_correction),
                             .probability = r->probability,
                             .chosen = r->chosen,
                             .weights = r->weights,
                             .order = r->order,
                             .logits_stride = logits.stride};
    pj_gpu_operation(s, PJ_N_OP_TOP_K);
    pj_gpu_touch(s, pj_gpu_bit(logits), PJ_GPU_BIT(PJ_GPU_ROUTES));
    PJ_GPU_RUN(s, PJ_VK_ROUTE, &constants, &args, logits.rows, 1, 4ull * logits.rows * c->experts);
    double values = (double)logits.rows * c->experts;
    pj_gpu_operation_end(s, 5 * values, 8 * values, (pj_slice){0});
    s->routing.slots = layer->chosen;
    s->routing.rows = s->instrument->module ? (uint32_t)logits.rows : 0;
}

/* ---- blocks ---- */

typedef struct experts_task {
    const pj_mlp *mlp; /* of any expert: all have the same shapes and types */
    const pj_gpu_expert_tables *tables;
    const pj_activation *like;
    pj_slice x, y, residual;
    bool weighs;      /* the weights apply to the input */
    uint64_t weights; /* of outputs */
    uint32_t slots, entries;
    uint32_t touched; /* buffers */
} experts_task;

/* What follows waits for what was recorded. */
static void experts_operation(pj_gpu *s, const experts_task *t, pj_instrument_name name)
{
    pj_gpu_operation(s, name);
    pj_gpu_touch(s, t->touched, t->touched);
}

/* The same for what need not wait, and does so at depth deep alone. */
static void experts_operation_apart(pj_gpu *s, const experts_task *t, pj_instrument_name name)
{
    if (s->instrument->deep) experts_operation(s, t, name);
}

/* Ends an operation whose output is `cols` values for every entry, at an address. */
static void experts_end_entries(pj_gpu *s, const experts_task *t, double flops, double bytes,
                                uint64_t y, uint32_t cols)
{
    pj_gpu_operation_end(s, flops, bytes, (pj_slice){0});
    pj_gpu_operation_output(s, y, t->touched, pj_slice_of(PJ_NO_BUFFER, t->entries, cols, cols));
}

/* How many bytes a product read is known when the device has said which experts were chosen. */
static void experts_count_bytes(pj_gpu *s, const pj_projection *p)
{
    double weights = pj_product_bytes(p, 0);
    if (s->instrument->deep)
        pj_gpu_experts_figures(s, weights, pj_product_bytes(p, 1) - weights, false);
}

static void experts_end_product(pj_gpu *s, const experts_task *t, const pj_projection *p,
                                uint64_t y)
{
    experts_end_entries(s, t, pj_product_flops(p, t->entries), NAN, y, (uint32_t)p->w.rows);
    experts_count_bytes(s, p);
}

/* Blocks without gates activate what their first matrix gives. */
static bool experts_have_gates(const experts_task *t)
{
    return t->mlp->gate.w.data != NULL;
}

/* act[entry] = f(gate[entry]) up[entry], or one half of it: x, other 0: none */
static void experts_run_rows(pj_gpu *s, const experts_task *t, pj_vk_rows_operation operation,
                             uint64_t x, uint64_t other)
{
    uint32_t width = t->mlp->width;
    pj_vk_rows_constants constants = {EXPERTS_THREADS, operation, pj_gpu_gate(t->like)};
    pj_vk_rows_args args = {.x = x,
                            .y = s->routing.act,
                            .other = other,
                            .rows = t->entries,
                            .n = width,
                            .x_stride = width,
                            .y_stride = width,
                            .other_stride = width,
                            .dim = 1,
                            .scale = t->like->alpha,
                            .cap = t->like->limit};
    PJ_GPU_RUN(s, PJ_VK_ROWS, &constants, &args, pj_gpu_groups(width, EXPERTS_THREADS),
               t->entries < 65535 ? t->entries : 65535, 12ull * t->entries * width);
}

static void experts_activate(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    uint32_t width = t->mlp->width;
    uint64_t up = experts_have_gates(t) ? r->up : 0;
    double values = (double)t->entries * width;
    experts_operation(s, t, PJ_N_OP_ACTIVATION);
    if (!s->instrument->deep) {
        experts_run_rows(s, t, PJ_VK_ROWS_GATE, r->gate, up);
        return;
    }
    experts_run_rows(s, t, PJ_VK_ROWS_GATE, r->gate, 0);
    experts_end_entries(s, t, 4 * values, 8 * values, r->act, width);
    pj_gpu_gate_figures(s, (pj_vk_gate_figures_args){.gate = r->gate,
                                                     .activated = r->act,
                                                     .up = up,
                                                     .rows = t->entries,
                                                     .n = width,
                                                     .gate_stride = width,
                                                     .activated_stride = width,
                                                     .up_stride = width});
    if (!up) return;
    experts_operation(s, t, PJ_N_OP_GATE_MUL);
    experts_run_rows(s, t, PJ_VK_ROWS_MULTIPLY, r->act, r->up);
    experts_end_entries(s, t, values, 12 * values, r->act, width);
}

/* ---- sorted entries ---- */

static void experts_sort(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    pj_vk_sort_constants constants = {EXPERTS_THREADS, s->model->config.experts};
    pj_vk_sort_args args = {.chosen = r->chosen,
                            .list = r->list,
                            .places = r->places,
                            .begins = r->begins,
                            .tiles = r->tiles,
                            .entries = t->entries,
                            .slots = t->slots,
                            .tile_entries = EXPERTS_TILE};
    experts_operation(s, t, PJ_N_OP_GATHER);
    PJ_GPU_RUN(s, PJ_VK_SORT, &constants, &args, 1, 1, 4ull * t->entries);
    pj_gpu_operation_end(s, 0, 12.0 * t->entries, (pj_slice){0});
}

/* The rows of x that products of entries read: those of the tokens, or one of each entry. */
typedef struct experts_input {
    uint64_t x, list;
    uint32_t rows, stride, slots; /* slots: entries of a row */
} experts_input;

/* Weighted rows, where they are read before the outputs are written. */
static experts_input experts_weigh(pj_gpu *s, const experts_task *t, bool sorted)
{
    const pj_gpu_routing *r = &s->routing;
    uint32_t n = t->x.cols;
    pj_vk_threads_constants constants = {EXPERTS_THREADS};
    pj_vk_weigh_args args = {.x = pj_gpu_at(s, t->x),
                             .y = r->out,
                             .weights = r->weights,
                             .ones = r->ones,
                             .places = sorted ? r->places : 0,
                             .entries = t->entries,
                             .n = n,
                             .slots = t->slots,
                             .x_stride = t->x.stride};
    experts_operation(s, t, PJ_N_OP_GATHER);
    PJ_GPU_RUN(s, PJ_VK_WEIGH, &constants, &args, pj_gpu_groups(n, EXPERTS_THREADS),
               t->entries < 65535 ? t->entries : 65535, 8ull * t->entries * n);
    pj_gpu_operation_end(s, (double)t->entries * n, 8.0 * t->entries * n, pj_no_slice);
    return (experts_input){r->out, 0, t->entries, n, 1};
}

static experts_input experts_take_input(pj_gpu *s, const experts_task *t, bool sorted)
{
    if (t->weighs) return experts_weigh(s, t, sorted);
    return (experts_input){pj_gpu_at(s, t->x), s->routing.list, t->x.rows, t->x.stride, t->slots};
}

static void experts_combine(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    pj_vk_combine_constants constants = {EXPERTS_THREADS, (float)s->model->config.residual_scale};
    pj_vk_combine_args args = {.x = r->out,
                               .y = pj_gpu_at(s, t->y),
                               .residual = pj_gpu_at(s, t->residual),
                               .places = r->places,
                               .weights = t->weights,
                               .order = r->order,
                               .n = t->y.cols,
                               .slots = t->slots,
                               .x_stride = t->y.cols,
                               .y_stride = t->y.stride,
                               .residual_stride = t->residual.stride};
    double values = (double)t->entries * t->y.cols;
    experts_operation(s, t, PJ_N_OP_SCATTER_ADD);
    PJ_GPU_RUN(s, PJ_VK_COMBINE, &constants, &args, pj_gpu_groups(t->y.cols, EXPERTS_THREADS),
               t->y.rows, 4ull * t->entries * t->y.cols);
    pj_gpu_operation_end(s, 2 * values, 12 * values, t->y);
}

/* ---- few rows ---- */

/* Of one row, whose experts differ, each entry by itself; of more, those of an expert together, so
 * that its weights are read once. */
static void experts_run_few(pj_gpu *s, const experts_task *t, pj_vk_experts_output output,
                            const pj_projection *p, pj_vk_product_experts_args args)
{
    bool packs = pj_gpu_packs(s, p), sorted = t->y.rows > 1;
    uint32_t experts = s->model->config.experts;
    uint32_t units = t->entries < experts ? t->entries : experts; /* most that have entries */
    pj_vk_product_experts_constants constants = {.threads = EXPERTS_THREADS,
                                                 .type = pj_vk_weight_type(p->w.type),
                                                 .lanes = EXPERTS_LANES,
                                                 .rows = 1,
                                                 .tokens = pj_gpu_few_tokens(t->y.rows),
                                                 .output = output,
                                                 .gate = pj_gpu_gate(t->like),
                                                 .alpha = t->like->alpha,
                                                 .limit = t->like->limit,
                                                 .residual_scale =
                                                     (float)s->model->config.residual_scale};
    uint32_t groups = pj_gpu_groups(p->w.rows, EXPERTS_THREADS / EXPERTS_LANES);
    uint64_t matrices = output == PJ_VK_EXPERTS_GATE ? 2 : 1;
    if (packs) {
        args.x = s->packed.address;
        args.scales = s->packed_scales;
        args.x_stride = (uint32_t)p->w.cols;
    }
    args.chosen = s->routing.chosen;
    args.tiles = sorted ? s->routing.tiles : 0;
    args.rows = (uint32_t)p->w.rows;
    args.cols = (uint32_t)p->w.cols;
    PJ_GPU_RUN(s, packs ? PJ_VK_PRODUCT_EXPERTS_PACKED : PJ_VK_PRODUCT_EXPERTS, &constants, &args,
               groups < 65535 ? groups : 65535,
               output == PJ_VK_EXPERTS_DOWN ? 1
               : sorted                     ? units
                                            : t->entries,
               matrices * units * p->w.rows * p->w.row_bytes);
}

static void experts_pack(pj_gpu *s, const experts_task *t, pj_vk_quantise_args args)
{
    experts_operation(s, t, PJ_N_OP_PACK);
    pj_gpu_pack(s, PJ_VK_NORM_NONE, args);
    pj_gpu_operation_end(s, NAN, 5.0 * args.rows * args.cols, (pj_slice){0});
}

/* Gate and up in one dispatch where they are of one type, except at depth deep. */
static void experts_run_inputs(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    const pj_gpu_expert_tables *w = t->tables;
    const pj_mlp *mlp = t->mlp;
    experts_input in = experts_take_input(s, t, t->y.rows > 1);
    pj_vk_product_experts_args args = {.x = in.x,
                                       .y = r->act,
                                       .w = w->gate,
                                       .bias = w->gate_bias,
                                       .up = w->up,
                                       .up_bias = w->up_bias,
                                       .list = in.list,
                                       .slots = in.slots,
                                       .x_stride = in.stride,
                                       .y_stride = mlp->width};
    if ((experts_have_gates(t) && pj_gpu_packs(s, &mlp->gate)) || pj_gpu_packs(s, &mlp->up))
        experts_pack(s, t,
                     (pj_vk_quantise_args){
                         .x = in.x, .rows = in.rows, .cols = t->x.cols, .x_stride = in.stride});
    experts_operation(s, t, PJ_N_OP_MATMUL);
    if (experts_have_gates(t)) {
        if (mlp->gate.w.type == mlp->up.w.type && !s->instrument->deep) {
            experts_run_few(s, t, PJ_VK_EXPERTS_GATE, &mlp->gate, args);
            return;
        }
        args.y = r->gate;
        experts_run_few(s, t, PJ_VK_EXPERTS_SINGLE, &mlp->gate, args);
        experts_end_product(s, t, &mlp->gate, r->gate);
        experts_operation_apart(s, t, PJ_N_OP_MATMUL);
    }
    args.y = experts_have_gates(t) ? r->up : r->gate;
    args.w = w->up;
    args.bias = w->up_bias;
    experts_run_few(s, t, PJ_VK_EXPERTS_SINGLE, &mlp->up, args);
    experts_end_product(s, t, &mlp->up, args.y);
    experts_activate(s, t);
}

static void experts_few(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    const pj_mlp *mlp = t->mlp;
    bool sorted = t->y.rows > 1;
    pj_vk_product_experts_args args = {.x = r->act,
                                       .y = sorted ? r->out : pj_gpu_at(s, t->y),
                                       .weights = t->weights,
                                       .order = r->order,
                                       .slots = t->slots,
                                       .w = t->tables->down,
                                       .bias = t->tables->down_bias,
                                       .residual = pj_gpu_at(s, t->residual),
                                       .x_stride = mlp->width,
                                       .y_stride = sorted ? t->y.cols : t->y.stride,
                                       .residual_stride = t->residual.stride};
    if (sorted) experts_sort(s, t);
    experts_run_inputs(s, t);
    if (pj_gpu_packs(s, &mlp->down))
        experts_pack(
            s, t,
            (pj_vk_quantise_args){
                .x = r->act, .rows = t->entries, .cols = mlp->width, .x_stride = mlp->width});
    experts_operation(s, t, PJ_N_OP_MATMUL);
    experts_run_few(s, t, sorted ? PJ_VK_EXPERTS_SINGLE : PJ_VK_EXPERTS_DOWN, &mlp->down, args);
    if (sorted) {
        experts_end_product(s, t, &mlp->down, r->out);
        experts_combine(s, t);
        return;
    }
    pj_gpu_operation_end(s, pj_product_flops(&mlp->down, t->entries) + 2.0 * t->entries * t->y.cols,
                         NAN, t->y);
    experts_count_bytes(s, &mlp->down);
}

/* ---- many rows ---- */

/* A tile of sort is one of the kernel. */
static void experts_run_many(pj_gpu *s, const experts_task *t, const pj_projection *p,
                             pj_vk_product_tiled_args args)
{
    uint32_t experts = s->model->config.experts;
    pj_gpu_many_plan plan = pj_gpu_plan_many(s->on, s->on->many, p->w.type, EXPERTS_TILE, false, 1);
    args.tiles = s->routing.tiles;
    args.rows = (uint32_t)p->w.rows;
    args.cols = (uint32_t)p->w.cols;
    args.tokens = t->entries;
    args.y_stride = (uint32_t)p->w.rows;
    pj_gpu_run_many(s, &plan, &args, pj_vk_most_tiles(t->entries, experts, EXPERTS_TILE),
                    (uint64_t)experts * p->w.rows * p->w.row_bytes);
}

static void experts_many(pj_gpu *s, const experts_task *t)
{
    const pj_gpu_routing *r = &s->routing;
    const pj_gpu_expert_tables *w = t->tables;
    experts_sort(s, t);
    experts_input in = experts_take_input(s, t, true);
    pj_vk_product_tiled_args args = {.x = in.x, .list = in.list, .x_stride = in.stride};
    experts_operation(s, t, PJ_N_OP_MATMUL);
    if (experts_have_gates(t)) {
        args.w = w->gate;
        args.bias = w->gate_bias;
        args.y = r->gate;
        experts_run_many(s, t, &t->mlp->gate, args);
        experts_end_product(s, t, &t->mlp->gate, r->gate);
        experts_operation_apart(s, t, PJ_N_OP_MATMUL);
    }
    args.w = w->up;
    args.bias = w->up_bias;
    args.y = experts_have_gates(t) ? r->up : r->gate;
    experts_run_many(s, t, &t->mlp->up, args);
    experts_end_product(s, t, &t->mlp->up, args.y);
    experts_activate(s, t);
    args = (pj_vk_product_tiled_args){
        .x = r->act, .w = w->down, .bias = w->down_bias, .y = r->out, .x_stride = t->mlp->width};
    experts_operation(s, t, PJ_N_OP_MATMUL);
    experts_run_many(s, t, &t->mlp->down, args);
    experts_end_product(s, t, &t->mlp->down, r->out);
    experts_combine(s, t);
}

/* Which experts were read is known to the device alone; with its figures of the routing the host
 * learns their bytes. */
void pj_gpu_experts(void *state, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual)
{
    pj_gpu *s = state;
    uint32_t slots = layer->chosen;
    bool weighs = s->model->blueprint->weighted_input;
    experts_task t = {&layer->experts[0],
                      &s->on->weights.experts[layer->index],
                      like,
                      x,
                      y,
                      residual,
                      weighs,
                      weighs ? s->routing.ones : s->routing.weights,
                      slots,
                      y.rows * slots,
                      pj_gpu_bit(x) | pj_gpu_bit(y) | pj_gpu_bit(residual) |
                          PJ_GPU_BIT(PJ_GPU_ROUTES) | PJ_GPU_BIT(PJ_GPU_PACKED)};
    double weights = pj_mlp_bytes(t.mlp, 0);
    bool recorded = s->instrument->module;
    if (recorded) pj_gpu_component(s, PJ_N_EXPERTS);
    if (x.rows <= PJ_GPU_FEW)
        experts_few(s, &t);
    else
        experts_many(s, &t);
    if (!recorded) return;
    pj_gpu_end(s, &(pj_done){pj_mlp_flops(t.mlp, t.entries), NAN, y, false});
    pj_gpu_experts_figures(s, weights, pj_mlp_bytes(t.mlp, 1) - weights, true);
}
