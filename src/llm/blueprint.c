/* The table of architectures. */
#include "llm/blueprint.h"

#define NAMES .o_name = "o_proj", .down_name = "down_proj", .final_norm_name = "norm"

static const pj_blueprint blueprints[PJ_ARCH_COUNT] = {
    [PJ_ARCH_LLAMA] = {NAMES, .qkv_bias = PJ_BIAS_ATTENTION, .o_bias = PJ_BIAS_ATTENTION,
                       .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_MISTRAL] = {NAMES},
    [PJ_ARCH_PHI] = {.norm = PJ_NORM_LAYER,
                     .parallel_block = true,
                     .mlp = PJ_MLP_PLAIN,
                     .qkv_bias = PJ_BIAS_ALWAYS,
                     .o_bias = PJ_BIAS_ALWAYS,
                     .mlp_bias = PJ_BIAS_ALWAYS,
                     .head_bias = PJ_BIAS_ALWAYS,
                     .o_name = "dense",
                     .up_name = "fc1",
                     .down_name = "fc2",
                     .final_norm_name = "final_layernorm"},
    [PJ_ARCH_PHI3] = {NAMES, .fused_qkv = true, .mlp = PJ_MLP_GATED_FUSED},
    [PJ_ARCH_QWEN2] = {NAMES, .qkv_bias = PJ_BIAS_ALWAYS},
    [PJ_ARCH_QWEN3] = {NAMES, .qk_norm = true, .qkv_bias = PJ_BIAS_ATTENTION,
                       .o_bias = PJ_BIAS_ATTENTION},
    [PJ_ARCH_MIXTRAL] = {NAMES, .router = PJ_ROUTER_SOFTMAX_RENORMALISED},
    [PJ_ARCH_QWEN2_MOE] = {NAMES, .router = PJ_ROUTER_SOFTMAX, .shared_expert = true,
                           .qkv_bias = PJ_BIAS_QKV},
    [PJ_ARCH_QWEN3_MOE] = {NAMES, .router = PJ_ROUTER_SOFTMAX, .qk_norm = true,
                           .qkv_bias = PJ_BIAS_ATTENTION, .o_bias = PJ_BIAS_ATTENTION},
};

const pj_blueprint *pj_blueprint_get(pj_arch arch)
{
    return (unsigned)arch < PJ_ARCH_COUNT ? &blueprints[arch] : &blueprints[PJ_ARCH_LLAMA];
}

bool pj_bias_wanted(pj_bias_rule rule, const pj_model_config *config)
{
    switch (rule) {
    case PJ_BIAS_ALWAYS: return true;
    case PJ_BIAS_ATTENTION: return config->attention_bias;
    case PJ_BIAS_QKV: return config->qkv_bias;
    case PJ_BIAS_MLP: return config->mlp_bias;
    default: return false;
    }
}
