/* Products of many rows, dense or of experts: by cooperative matrices where the device has them and
 * weights have no more than 16 bits, else by tiles in single precision. */
#include "engine/vulkan/gpu.h"

#include <string.h>

enum {
    MANY_TILE = 64,
    MANY_EACH = 4,     /* outputs of a thread in each direction */
    MANY_ACROSS = 4,   /* subgroups of a workgroup */
    MANY_SUBGROUP = 32 /* of the kernel without subgroups */
};

/* What is set of the constants is copied: they are all words. */
static void many_set(pj_gpu_many_plan *plan, const void *constants, size_t bytes)
{
    memcpy(plan->constants, constants, bytes);
    plan->constant_count = (uint32_t)(bytes / sizeof(uint32_t));
}

static pj_gpu_many_plan many_matrices(const pj_gpu_model *m, pj_vk_kernel kernel, pj_dtype type,
                                      uint32_t tokens, bool adds, float residual_scale)
{
    uint32_t down = tokens > PJ_VK_MATRIX_DOWN ? 2 : 1;
    uint32_t subgroup =
        kernel == PJ_VK_PRODUCT_MATRIX ? pj_vk_device(m->vk)->subgroup_size : MANY_SUBGROUP;
    pj_vk_product_matrix_constants constants = {.threads = down * MANY_ACROSS * subgroup,
                                                .type = pj_vk_weight_type(type),
                                                .down = down,
                                                .across = MANY_ACROSS,
                                                .subgroup = subgroup,
                                                .output = adds ? PJ_VK_OUTPUT_RESIDUAL
                                                               : PJ_VK_OUTPUT_STORE,
                                                .residual_scale = residual_scale};
    pj_gpu_many_plan plan = {.kernel = kernel,
                             .tile_tokens = down * PJ_VK_MATRIX_DOWN,
                             .tile_rows = MANY_ACROSS * PJ_VK_MATRIX_ACROSS};
    many_set(&plan, &constants, sizeof constants);
    return plan;
}

static pj_gpu_many_plan many_tiles(pj_dtype type, bool adds, float residual_scale)
{
    enum { EDGE = MANY_TILE / MANY_EACH };
    pj_vk_product_tiled_constants constants = {.threads = EDGE * EDGE,
                                               .type = pj_vk_weight_type(type),
                                               .tile_tokens = MANY_TILE,
                                               .tile_rows = MANY_TILE,
                                               .per_token = MANY_EACH,
                                               .per_row = MANY_EACH,
                                               .output = adds ? PJ_VK_OUTPUT_RESIDUAL
                                                              : PJ_VK_OUTPUT_STORE,
                                               .residual_scale = residual_scale};
    pj_gpu_many_plan plan = {
        .kernel = PJ_VK_PRODUCT_TILED, .tile_tokens = MANY_TILE, .tile_rows = MANY_TILE};
    many_set(&plan, &constants, sizeof constants);
    return plan;
}

pj_gpu_many_plan pj_gpu_plan_many(const pj_gpu_model *m, pj_vk_kernel kernel, pj_dtype type,
                                  uint32_t tokens, bool adds, float residual_scale)
{
    if (kernel == PJ_VK_PRODUCT_TILED || type == PJ_F32)
        return many_tiles(type, adds, residual_scale);
    return many_matrices(m, kernel, type, tokens, adds, residual_scale);
}

/* `tiles`: 0: as many as `tokens` need. */
void pj_gpu_run_many(pj_gpu *s, const pj_gpu_many_plan *plan, const pj_vk_product_tiled_args *args,
                     uint32_t tiles, uint64_t work)
{
    pj_gpu_run(s, plan->kernel, plan->constants, plan->constant_count * sizeof(uint32_t), args,
               pj_gpu_groups(args->rows, plan->tile_rows),
               tiles ? tiles : pj_gpu_groups(args->tokens, plan->tile_tokens), work);
}
