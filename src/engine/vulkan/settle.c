/* Runs by themselves the steps that were held back (fuse.c). */
#include "engine/vulkan/gpu.h"

void pj_gpu_settle(pj_gpu *s)
{
    pj_gpu_held held = s->held;
    if (!held.normed && !held.product_count && !held.head_norm_count) return;
    s->held = (pj_gpu_held){0};
    for (uint32_t i = 0; i < held.head_norm_count; i++) pj_gpu_run_norm(s, &held.head_norms[i]);
    if (held.product_count)
        pj_gpu_run_products(s, &held.input, held.products, held.product_count);
    else if (held.normed)
        pj_gpu_run_norm(s, &held.norm);
}
