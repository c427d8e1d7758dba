/* Products with weights: few rows by a kernel that reads every weight once, many by tiles. */
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

#include <string.h>

enum {
    PRODUCTS_THREADS = 128,
    PRODUCTS_LANES = 32,
    PRODUCTS_TILE = 64,
    PRODUCTS_EACH = 4, /* outputs of a thread in each direction */
    PRODUCTS_PARTS = 3 /* of one dispatch */
};

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

/* A power of two, so that there are few pipelines. */
static uint32_t products_tokens(uint32_t rows)
{
    uint32_t tokens = 1;
    while (tokens < rows && tokens < PJ_GPU_FEW) tokens *= 2;
    return tokens;
}

/* Whether the product is one of 8-bit integers: of quantised weights, where the device has an
 * instruction for it. */
static bool products_packs(const pj_gpu *s, const pj_product *p)
{
    return s->on->packs && pj_dtype_get(p->projection->w.type)->block_values > 1;
}

static void products_pack(pj_gpu *s, pj_slice x, uint32_t cols)
{
    pj_vk_quantise_constants constants = {PRODUCTS_THREADS, PJ_VK_NORM_NONE, 0};
    pj_vk_quantise_args args = {.x = pj_gpu_at(s, x),
                                .codes = s->packed.address,
                                .scales = s->packed_scales,
                                .rows = x.rows,
                                .cols = cols,
                                .x_stride = x.stride};
    pj_gpu_touch(s, pj_gpu_bit(x), PJ_GPU_BIT(PJ_GPU_PACKED));
    PJ_GPU_RUN(s, PJ_VK_QUANTISE, &constants, &args, x.rows, 1, 5ull * x.rows * cols);
}

/* Products of one type without residual, or one with it. */
static void products_run_few(pj_gpu *s, pj_slice x, const pj_product *const *products,
                             uint32_t count)
{
    const pj_product *first = products[0];
    bool adds = first->residual.buffer != PJ_NO_BUFFER;
    uint32_t tokens = products_tokens(x.rows);
    uint64_t work = 0;
    pj_vk_product_constants constants = {.threads = PRODUCTS_THREADS,
                                         .type = pj_vk_weight_type(first->projection->w.type),
                                         .lanes = PRODUCTS_LANES,
                                         .rows = 1,
                                         .tokens = tokens,
                                         .output =
                                             adds ? PJ_VK_OUTPUT_RESIDUAL : PJ_VK_OUTPUT_STORE,
                                         .eps = (float)s->model->config.norm_eps,
                                         .residual_scale = (float)s->model->config.residual_scale,
                                         .alpha = 1};
    pj_vk_product_args args = {.x = pj_gpu_at(s, x),
                               .cols = (uint32_t)first->projection->w.cols,
                               .x_stride = x.stride,
                               .tokens = x.rows};
    for (uint32_t i = 0; i < count; i++) {
        args.parts[i] = products_part(s, products[i]);
        work += products_bytes(products[i]->projection);
    }
    if (adds) {
        args.parts[2].y = pj_gpu_at(s, first->residual);
        args.parts[2].y_stride = first->residual.stride;
    }
    bool packs = products_packs(s, first);
    if (packs) {
        args.x = s->packed.address;
        args.norm = s->packed_scales;
        args.x_stride = args.cols;
    }
    PJ_GPU_RUN(s, packs ? PJ_VK_PRODUCT_PACKED : PJ_VK_PRODUCT, &constants, &args,
               pj_vk_product_groups(&constants, &args), pj_gpu_groups(x.rows, tokens), work);
}

static void products_run_tiled(pj_gpu *s, pj_slice x, const pj_product *p)
{
    bool adds = p->residual.buffer != PJ_NO_BUFFER;
    pj_vk_part part = products_part(s, p);
    enum { ACROSS = PRODUCTS_TILE / PRODUCTS_EACH };
    pj_vk_product_tiled_constants constants = {
        .threads = ACROSS * ACROSS,
        .type = pj_vk_weight_type(p->projection->w.type),
        .tile_tokens = PRODUCTS_TILE,
        .tile_rows = PRODUCTS_TILE,
        .per_token = PRODUCTS_EACH,
        .per_row = PRODUCTS_EACH,
        .output = adds ? PJ_VK_OUTPUT_RESIDUAL : PJ_VK_OUTPUT_STORE,
        .residual_scale = (float)s->model->config.residual_scale};
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
    PJ_GPU_RUN(s, PJ_VK_PRODUCT_TILED, &constants, &args, pj_gpu_groups(part.rows, PRODUCTS_TILE),
               pj_gpu_groups(x.rows, PRODUCTS_TILE),
               products_bytes(p->projection) * pj_gpu_groups(x.rows, PRODUCTS_TILE));
}

static bool products_fit(const pj_product *a, const pj_product *b)
{
    return a->projection->w.type == b->projection->w.type && !a->residual.buffer &&
           !b->residual.buffer;
}

/* Those that may share a dispatch, in any order: their outputs do not overlap. */
static void products_group(pj_gpu *s, pj_slice x, const pj_product *products, uint32_t count)
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
        if (n) products_run_few(s, x, together, n);
    }
}

/* Products without a barrier between them; `packs`: of packed activations. */
static void products_multiply(pj_gpu *s, pj_slice x, const pj_product *products, uint32_t count,
                              bool packs)
{
    uint32_t reads = pj_gpu_bit(x) | (packs ? PJ_GPU_BIT(PJ_GPU_PACKED) : 0), writes = 0;
    double flops = 0, bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        writes |= pj_gpu_bit(products[i].y) | pj_gpu_bit(products[i].residual);
        flops += pj_product_flops(products[i].projection, x.rows);
        bytes += pj_product_bytes(products[i].projection, x.rows);
    }
    pj_gpu_operation(s, PJ_N_OP_MATMUL);
    pj_gpu_touch(s, reads | writes, writes);
    if (x.rows <= PJ_GPU_FEW)
        products_group(s, x, products, count);
    else
        for (uint32_t i = 0; i < count; i++) products_run_tiled(s, x, &products[i]);
    pj_gpu_operation_end(s, flops, bytes, count == 1 ? products[0].y : (pj_slice){0});
}

/* `packed`: x is already; returns whether it is now. */
static bool products_run(pj_gpu *s, pj_slice x, const pj_product *products, uint32_t count,
                         bool packed)
{
    uint32_t cols = (uint32_t)products[0].projection->w.cols;
    bool packs = false;
    for (uint32_t i = 0; i < count && x.rows <= PJ_GPU_FEW; i++)
        packs |= products_packs(s, &products[i]);
    if (packs && !packed) {
        pj_gpu_operation(s, PJ_N_OP_PACK);
        products_pack(s, x, cols);
        pj_gpu_operation_end(s, NAN, 5.0 * x.rows * cols, (pj_slice){0});
    }
    products_multiply(s, x, products, count, packs);
    return packs || packed;
}

/* ---- components ---- */

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

static bool products_record(pj_gpu *s, pj_slice x, const pj_product *products, uint32_t count,
                            pj_instrument_name name, bool packed)
{
    pj_done done = {.out = products_common_output(products, count), .with_last = true};
    for (uint32_t i = 0; i < count; i++) {
        pj_done one = pj_product_work(&products[i]);
        done.flops += one.flops;
        done.bytes += one.bytes;
    }
    pj_gpu_component(s, name);
    packed = products_run(s, x, products, count, packed);
    pj_gpu_end(s, &done);
    return packed;
}

/* One after the other: at depth deep, and where they have no common name. */
static void products_in_turn(pj_gpu *s, pj_slice x, const pj_product *products, uint32_t count)
{
    bool packed = false;
    for (uint32_t i = 0; i < count; i++) {
        pj_instrument_name name = products[i].projection->name;
        packed = name == PJ_N_NONE ? products_run(s, x, &products[i], 1, packed)
                                   : products_record(s, x, &products[i], 1, name, packed);
    }
}

void pj_gpu_products(void *state, pj_slice x, const pj_product *products, uint32_t count)
{
    pj_gpu *s = state;
    pj_instrument_name name = products_common_name(products, count);
    for (uint32_t i = 0; i < count; i++)
        if (products[i].y.buffer == PJ_BUFFER_LOGITS) s->logit_rows = x.rows;
    if (s->instrument->deep)
        products_in_turn(s, x, products, count);
    else if (!s->instrument->module || products[0].projection->name == PJ_N_NONE)
        products_run(s, x, products, count, false);
    else if (name != PJ_N_NONE)
        products_record(s, x, products, count, name, false);
    else
        products_in_turn(s, x, products, count);
}
