/* Routing, experts, the delta rule and greedy choices. */
#include "engine/vulkan/gpu.h"

void pj_gpu_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise)
{
    pj_gpu_refuse(state, "experts");
}

void pj_gpu_experts(void *state, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual)
{
    pj_gpu_refuse(state, "experts");
}

void pj_gpu_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y)
{
    pj_gpu_refuse(state, "the gated delta rule");
}

void pj_gpu_delta_rule(void *state, const pj_layer *layer, pj_slice qkv, pj_slice strength,
                       pj_slice y)
{
    pj_gpu_refuse(state, "the gated delta rule");
}

void pj_gpu_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate)
{
    pj_gpu_refuse(state, "the gated delta rule");
}

void pj_gpu_argmax(void *state, pj_slice x)
{
    pj_gpu_refuse(state, "the most likely ids");
}
