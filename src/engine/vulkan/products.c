/* Products with weights: few rows by a kernel that reads every weight once, many by those of
 * many.c. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <math.h>

enum {
    PRODUCTS_THREADS = 128,
    PRODUCTS_LANES = 32,
    PRODUCTS_PARTS = 3 /* of one dispatch */
};

static pj_vk_norm products_norm(const pj_gpu_input *in)
{
    return !in->norm                        ? PJ_VK_NORM_NONE
           : in->norm_kind == PJ_NORM_LAYER ? PJ_VK_NORM_LAYER
                                            : PJ_VK_NORM_RMS;
}

static uint64_t products_bytes(const pj_projection *p)
{
    return (uint64_t)p->w.rows * p->w.row_bytes;
}

static pj_vk_part products_part(const pj_gpu *s, const pj_product *p)
{
    const pj_projection *projection = p->projection;
    return (pj_vk_part){pj_gpu_weight(&s->on->weights, projection->w.data),
                        pj_gpu_weight(&s->on->weights, projection->bias), pj_gpu_at(s, p->y),
                        (uint32_t)projection->w.rows, p->y.stride};
}

uint32_t pj_gpu_few_tokens(uint32_t rows)
{
    uint32_t tokens = 1;
    while (tokens < rows && tokens < PJ_GPU_FEW) tokens *= 2;
    return tokens;
}

static bool products_packs(const pj_gpu *s, const pj_product *p)
{
    return pj_gpu_packs(s, p->projection);
}

void pj_gpu_pack(pj_gpu *s, pj_vk_norm norm, pj_vk_quantise_args args)
{
    pj_vk_quantise_constants constants = {PRODUCTS_THREADS, norm, (float)s->model->config.norm_eps};
    args.codes = s->packed.address;
    args.scales = s->packed_scales;
    PJ_GPU_RUN(s, PJ_VK_QUANTISE, &constants, &args, args.rows, 1, 5ull * args.rows * args.cols);
}

/* Codes of the input, normalised on the way. */
static void products_pack(pj_gpu *s, const pj_gpu_input *in)
{
    const pj_gpu_weights *w = &s->on->weights;
    pj_vk_quantise_args args = {
        .x = pj_gpu_at(s, in->x), .rows = in->x.rows, .cols = in->x.cols, .x_stride = in->x.stride};
    if (in->norm) args.weight = pj_gpu_weight(w, in->norm->w);
    if (in->norm && in->norm_kind == PJ_NORM_LAYER) args.bias = pj_gpu_weight(w, in->norm->b);
    pj_gpu_operation(s, PJ_N_OP_PACK);
    pj_gpu_touch(s, pj_gpu_bit(in->x), PJ_GPU_BIT(PJ_GPU_PACKED));
    pj_gpu_pack(s, products_norm(in), args);
    pj_gpu_operation_end(s, NAN, 5.0 * in->x.rows * in->x.cols, (pj_slice){0});
}

/* The norm's weights and bias, for the kernel of few rows. */
static void products_set_norm(const pj_gpu *s, const pj_gpu_input *in, pj_vk_product_args *args)
{
    const pj_gpu_weights *w = &s->on->weights;
    if (!in->norm) return;
    args->norm = pj_gpu_weight(w, in->norm->w);
    if (in->norm_kind == PJ_NORM_LAYER && in->norm->b)
        args->norm_bias = (uint32_t)((pj_gpu_weight(w, in->norm->b) - args->norm) / 4);
}

/* Dispatches the kernel of few rows over `args`, whose parts are set. */
static void products_dispatch_few(pj_gpu *s, const pj_gpu_input *in, const pj_product *like,
                                  pj_vk_product_constants constants, pj_vk_product_args args,
                                  uint64_t work)
{
    bool packs = products_packs(s, like);
    uint32_t tokens = pj_gpu_few_tokens(in->x.rows);
    constants.threads = PRODUCTS_THREADS;
    constants.type = pj_vk_weight_type(like->projection->w.type);
    constants.lanes = PRODUCTS_LANES;
    constants.rows = 1;
    constants.tokens = tokens;
    constants.eps = (float)s->model->config.norm_eps;
    args.cols = (uint32_t)like->projection->w.cols;
    args.tokens = in->x.rows;
    if (packs) {
        args.x = s->packed.address;
        args.norm = s->packed_scales;
        args.x_stride = args.cols;
    } else {
        constants.norm = products_norm(in);
        args.x = pj_gpu_at(s, in->x);
        args.x_stride = in->x.stride;
        products_set_norm(s, in, &args);
    }
    PJ_GPU_RUN(s, packs ? PJ_VK_PRODUCT_PACKED : PJ_VK_PRODUCT, &constants, &args,
               pj_vk_product_groups(&constants, &args), pj_gpu_groups(in->x.rows, tokens), work);
}

/* Products of one type without residual, or one with it. */
static void products_run_few(pj_gpu *s, const pj_gpu_input *in, const pj_product *const *products,
                             uint32_t count)
{
    const pj_product *first = products[0];
    bool adds = first->residual.buffer != PJ_NO_BUFFER;
    uint64_t work = 0;
    pj_vk_product_constants constants = {
        .output = adds ? PJ_VK_OUTPUT_RESIDUAL : PJ_VK_OUTPUT_STORE,
        .residual_scale = pj_gpu_residual_scale(s, first->projection),
        .alpha = 1};
    pj_vk_product_args args = {0};
    for (uint32_t i = 0; i < count; i++) {
        args.parts[i] = products_part(s, products[i]);
        work += products_bytes(products[i]->projection);
    }
    if (adds) {
        args.parts[2].y = pj_gpu_at(s, first->residual);
        args.parts[2].y_stride = first->residual.stride;
    }
    products_dispatch_few(s, in, first, constants, args, work);
}

static void products_run_many(pj_gpu *s, pj_slice x, const pj_product *p)
{
    pj_vk_part part = products_part(s, p);
    pj_gpu_many_plan plan = pj_gpu_plan_many(s->on, s->on->many, p->projection->w.type, x.rows,
                                             p->residual.buffer != PJ_NO_BUFFER,
                                             pj_gpu_residual_scale(s, p->projection));
    pj_vk_product_tiled_args args = {.x = pj_gpu_at(s, x),
                                     .w = part.w,
                                     .bias = part.bias,
                                     .y = part.y,
                                     .residual = pj_gpu_at(s, p->residual),
                                     .rows = part.rows,
                                     .cols = (uint32_t)p->projection->w.cols,
                                     .tokens = x.rows,
                                     .x_stride = x.stride,
                                     .y_stride = part.y_stride,
                                     .residual_stride = p->residual.stride};
    pj_gpu_run_many(s, &plan, &args, 0,
                    products_bytes(p->projection) * pj_gpu_groups(x.rows, plan.tile_tokens));
}

static bool products_fit(const pj_product *a, const pj_product *b)
{
    return a->projection->w.type == b->projection->w.type && !a->residual.buffer &&
           !b->residual.buffer;
}

/* Those that may share a dispatch, in any order: their outputs do not overlap. */
static void products_group(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                           uint32_t count)
{
    bool done[PJ_MAX_PRODUCTS] = {false};
    for (uint32_t i = 0; i < count; i++) {
        const pj_product *together[PRODUCTS_PARTS];
        uint32_t n = 0;
        for (uint32_t j = i; j < count && n < PRODUCTS_PARTS; j++) {
            if (done[j] || (j > i && !products_fit(&products[i], &products[j]))) continue;
            together[n++] = &products[j];
            done[j] = true;
        }
        if (n) products_run_few(s, in, together, n);
    }
}

/* Packs the input if any of the products wants it and it is not yet. The buffers that they read. */
static uint32_t products_prepare(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                                 uint32_t count, bool *packed)
{
    bool packs = false, floats = false;
    for (uint32_t i = 0; i < count && in->x.rows <= PJ_GPU_FEW; i++)
        packs |= products_packs(s, &products[i]);
    for (uint32_t i = 0; i < count; i++) floats |= !packs || !products_packs(s, &products[i]);
    if (packs && !*packed) products_pack(s, in);
    *packed |= packs;
    return (packs ? PJ_GPU_BIT(PJ_GPU_PACKED) : 0) | (floats ? pj_gpu_bit(in->x) : 0);
}

/* Products without a barrier between them. `packed`: the input is already; returns whether it is
 * now. */
static bool products_run(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                         uint32_t count, bool packed)
{
    uint32_t reads = products_prepare(s, in, products, count, &packed), writes = 0;
    double flops = 0, bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        writes |= pj_gpu_bit(products[i].y) | pj_gpu_bit(products[i].residual);
        flops += pj_product_flops(products[i].projection, in->x.rows);
        bytes += pj_product_bytes(products[i].projection, in->x.rows);
    }
    pj_gpu_operation(s, PJ_N_OP_MATMUL);
    pj_gpu_touch(s, reads | writes, writes);
    if (in->x.rows <= PJ_GPU_FEW)
        products_group(s, in, products, count);
    else
        for (uint32_t i = 0; i < count; i++) products_run_many(s, in->x, &products[i]);
    pj_gpu_operation_end(s, flops, bytes, count == 1 ? products[0].y : (pj_slice){0});
    return packed;
}

void pj_gpu_run_products(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                         uint32_t count)
{
    products_run(s, in, products, count, false);
}

/* The name of products that overlap: that of models which store them as one matrix. PJ_N_NONE:
 * there is none, and they are run one after the other. */
static pj_instrument_name products_common_name(const pj_product *products, uint32_t count)
{
    pj_instrument_name first = products[0].projection->name;
    if (count == 1) return first;
    return first == PJ_N_Q_PROJ      ? PJ_N_QKV_PROJ
           : first == PJ_N_GATE_PROJ ? PJ_N_GATE_UP_PROJ
                                     : PJ_N_NONE;
}

/* ---- gate and up with their activation ---- */

/* As parts: of one matrix, the second half of its rows are up. */
static void gate_parts(const pj_gpu *s, const pj_gpu_held *inputs, pj_slice act, pj_vk_part *parts)
{
    const pj_matrix *w = &inputs->products[0].projection->w;
    parts[0] = products_part(s, &inputs->products[0]);
    if (inputs->product_count == 2) {
        parts[1] = products_part(s, &inputs->products[1]);
    } else {
        parts[0].rows /= 2;
        parts[1] = parts[0];
        parts[1].w += parts[0].rows * pj_vk_weight_row_bytes(w->type, w->cols);
        if (parts[0].bias) parts[1].bias += 4ull * parts[0].rows;
    }
    parts[0].y = pj_gpu_at(s, act);
    parts[0].y_stride = act.stride;
}

static void gate_run(pj_gpu *s, const pj_gpu_held *inputs, const pj_activation *a)
{
    const pj_gpu_input *in = &inputs->input;
    bool packed = false;
    uint32_t reads = products_prepare(s, in, inputs->products, inputs->product_count, &packed);
    uint64_t work = 0;
    pj_vk_product_constants constants = {.output = PJ_VK_OUTPUT_GATE,
                                         .gate = pj_gpu_gate(a),
                                         .residual_scale = 1,
                                         .alpha = a->alpha,
                                         .limit = a->limit};
    pj_vk_product_args args = {0};
    for (uint32_t i = 0; i < inputs->product_count; i++)
        work += products_bytes(inputs->products[i].projection);
    gate_parts(s, inputs, a->act, args.parts);
    pj_gpu_touch(s, reads, pj_gpu_bit(a->act));
    products_dispatch_few(s, in, &inputs->products[0], constants, args, work);
}

/* The open component is the activation's, if they are components. */
void pj_gpu_run_gate(pj_gpu *s, const pj_gpu_held *inputs, const pj_activation *a)
{
    const pj_gpu_input *in = &inputs->input;
    if (s->instrument->module && !a->inner) {
        double flops = in->flops, bytes = in->bytes;
        for (uint32_t i = 0; i < inputs->product_count; i++) {
            flops += pj_product_flops(inputs->products[i].projection, in->x.rows);
            bytes += pj_product_bytes(inputs->products[i].projection, in->x.rows);
        }
        pj_instrument_name name = products_common_name(inputs->products, inputs->product_count);
        pj_gpu_widen_component(
            s, pj_gpu_group_name(s, in->norm ? in->norm->name : PJ_N_NONE, name, PJ_N_ACT), flops,
            bytes);
    }
    gate_run(s, inputs, a);
}

/* ---- components ---- */

/* Output of all: adjacent columns of one buffer, or none. */
static pj_slice products_common_output(const pj_product *products, uint32_t count)
{
    pj_slice all = products[0].y;
    for (uint32_t i = 1; i < count; i++) {
        pj_slice y = products[i].y;
        if (y.buffer != all.buffer || y.first != all.first + all.cols) return (pj_slice){0};
        all.cols += y.cols;
    }
    return all;
}

static bool products_record(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                            uint32_t count, pj_instrument_name name, bool packed)
{
    pj_done done = {.flops = in->flops,
                    .bytes = in->bytes,
                    .out = products_common_output(products, count),
                    .with_last = true};
    for (uint32_t i = 0; i < count; i++) {
        pj_done one = pj_product_work(&products[i]);
        done.flops += one.flops;
        done.bytes += one.bytes;
    }
    pj_gpu_begin_component(
        s, pj_gpu_group_name(s, in->norm ? in->norm->name : PJ_N_NONE, name, PJ_N_NONE));
    packed = products_run(s, in, products, count, packed);
    pj_gpu_end(s, &done);
    return packed;
}

/* One after the other: at depth deep, and where they have no common name. */
static void products_in_turn(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                             uint32_t count)
{
    bool packed = false;
    for (uint32_t i = 0; i < count; i++) {
        pj_instrument_name name = products[i].projection->name;
        packed = name == PJ_N_NONE ? products_run(s, in, &products[i], 1, packed)
                                   : products_record(s, in, &products[i], 1, name, packed);
    }
}

void pj_gpu_products(void *state, pj_slice x, const pj_product *products, uint32_t count)
{
    pj_gpu *s = state;
    pj_gpu_input in = pj_gpu_take_input(s, x);
    pj_instrument_name name = products_common_name(products, count);
    for (uint32_t i = 0; i < count; i++)
        if (products[i].y.buffer == PJ_BUFFER_LOGITS) s->logit_rows = x.rows;
    if (pj_gpu_hold_products(s, &in, products, count)) return;
    if (s->instrument->deep)
        products_in_turn(s, &in, products, count);
    else if (!s->instrument->module || products[0].projection->name == PJ_N_NONE)
        pj_gpu_run_products(s, &in, products, count);
    else if (name != PJ_N_NONE)
        products_record(s, &in, products, count, name, false);
    else
        products_in_turn(s, &in, products, count);
}
