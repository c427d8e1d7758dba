/* Products of the heads of latent attention, each with its own matrix. Few rows take a dispatch
 * each, of all heads; with many rows, each head is a product like others. */
#include "engine/model/latent.h"
#include "engine/forward/work.h"
#include "engine/vulkan/gpu.h"

enum { LATENT_THREADS = 128, LATENT_LANES = 32 };

typedef struct latent_task {
    const pj_projection *like; /* all heads have the same shape and type */
    const pj_projection *heads;
    uint32_t count;
    uint64_t table, all;
    pj_slice from, to;
    uint32_t from_step, to_step;
    bool packs;
} latent_task;

/* Whether the codes of all heads of a row fit where few rows of the widest matrix do. */
static bool latent_has_room(const pj_gpu *s, const latent_task *t)
{
    return s->dry || (uint64_t)t->count * t->like->w.cols <= s->packed_scales - s->packed.address;
}

static void latent_pack(pj_gpu *s, const latent_task *t, uint64_t x)
{
    pj_gpu_operation(s, PJ_N_OP_PACK);
    pj_gpu_touch(s, pj_gpu_bit(t->from), PJ_GPU_BIT(PJ_GPU_PACKED));
    pj_gpu_pack(
        s, PJ_VK_NORM_NONE,
        (pj_vk_quantise_args){
            .x = x, .rows = t->count, .cols = (uint32_t)t->like->w.cols, .x_stride = t->from_step});
    pj_gpu_operation_end(s, NAN, 5.0 * t->count * t->like->w.cols, (pj_slice){0});
}

/* The heads of a row are entries, each with the expert of its number. */
static void latent_run_row(pj_gpu *s, const latent_task *t, uint32_t row)
{
    const pj_matrix *w = &t->like->w;
    uint64_t x = pj_gpu_at(s, t->from) + 4ull * row * t->from.stride;
    pj_vk_product_experts_constants constants = {.threads = LATENT_THREADS,
                                                 .type = pj_vk_weight_type(w->type),
                                                 .lanes = LATENT_LANES,
                                                 .rows = 1,
                                                 .tokens = 1,
                                                 .output = PJ_VK_EXPERTS_SINGLE,
                                                 .alpha = 1,
                                                 .residual_scale = 1};
    pj_vk_product_experts_args args = {.x = t->packs ? s->packed.address : x,
                                       .y = pj_gpu_at(s, t->to) + 4ull * row * t->to.stride,
                                       .scales = t->packs ? s->packed_scales : 0,
                                       .chosen = t->all,
                                       .w = t->table,
                                       .rows = (uint32_t)w->rows,
                                       .cols = (uint32_t)w->cols,
                                       .slots = 1,
                                       .x_stride = t->packs ? (uint32_t)w->cols : t->from_step,
                                       .y_stride = t->to_step};
    if (t->packs) latent_pack(s, t, x);
    pj_gpu_operation(s, PJ_N_OP_MATMUL);
    if (row == 0 || t->packs || s->instrument->deep)
        pj_gpu_touch(s, t->packs ? PJ_GPU_BIT(PJ_GPU_PACKED) : pj_gpu_bit(t->from),
                     pj_gpu_bit(t->to));
    PJ_GPU_RUN(s, t->packs ? PJ_VK_PRODUCT_EXPERTS_PACKED : PJ_VK_PRODUCT_EXPERTS, &constants,
               &args, pj_gpu_groups(w->rows, LATENT_THREADS / LATENT_LANES), t->count,
               (uint64_t)t->count * w->rows * w->row_bytes);
    pj_gpu_operation_end(s, t->count * pj_product_flops(t->like, 1),
                         t->count * pj_product_bytes(t->like, 1), (pj_slice){0});
}

/* Without barriers between the heads, whose outputs are apart. */
static void latent_run_many(pj_gpu *s, const latent_task *t)
{
    const pj_matrix *w = &t->like->w;
    uint32_t rows = t->from.rows;
    pj_gpu_many_plan plan = pj_gpu_plan_many(s->on, s->on->many, w->type, rows, false, 1);
    pj_gpu_operation(s, PJ_N_OP_MATMUL);
    pj_gpu_touch(s, pj_gpu_bit(t->from), pj_gpu_bit(t->to));
    for (uint32_t h = 0; h < t->count; h++) {
        pj_vk_product_tiled_args args = {.x = pj_gpu_at(s, t->from) + 4ull * h * t->from_step,
                                         .w = pj_gpu_weight(&s->on->weights, t->heads[h].w.data),
                                         .y = pj_gpu_at(s, t->to) + 4ull * h * t->to_step,
                                         .rows = (uint32_t)w->rows,
                                         .cols = (uint32_t)w->cols,
                                         .tokens = rows,
                                         .x_stride = t->from.stride,
                                         .y_stride = t->to.stride};
        pj_gpu_run_many(s, &plan, &args, 0,
                        (uint64_t)w->rows * w->row_bytes * pj_gpu_groups(rows, plan.tile_tokens));
    }
    pj_gpu_operation_end(s, t->count * pj_product_flops(t->like, rows),
                         t->count * pj_product_bytes(t->like, rows), (pj_slice){0});
}

void pj_gpu_project_heads(void *state, const pj_layer *layer, bool values, pj_slice from,
                          uint32_t from_step, pj_slice to, uint32_t to_step)
{
    pj_gpu *s = state;
    const pj_gpu_head_tables *tables =
        s->on->weights.heads ? &s->on->weights.heads[layer->index] : NULL;
    const pj_projection *heads = values ? layer->latent->values : layer->latent->keys;
    latent_task t = {.like = heads,
                     .heads = heads,
                     .count = layer->heads,
                     .table = !tables  ? 0
                              : values ? tables->values
                                       : tables->keys,
                     .all = tables ? tables->all : 0,
                     .from = from,
                     .to = to,
                     .from_step = from_step,
                     .to_step = to_step,
                     .packs = pj_gpu_packs(s, heads)};
    t.packs = t.packs && latent_has_room(s, &t);
    if (from.rows > PJ_GPU_FEW)
        latent_run_many(s, &t);
    else
        for (uint32_t row = 0; row < from.rows; row++) latent_run_row(s, &t, row);
}
