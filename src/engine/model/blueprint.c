/* The table of architectures. */
#include "engine/model/blueprint.h"

#define PARTS          .o = PJ_N_O_PROJ, .up = PJ_N_UP_PROJ, .down = PJ_N_DOWN_PROJ, .final_norm = PJ_N_NORM
#define ATTENTION_BIAS .qkv_bias = PJ_BIAS_ATTENTION, .o_bias = PJ_BIAS_ATTENTION

/* Norms before each half of a layer, as Llama has them; after each, as OLMo 2; or both, as Gemma.
 */
#define PRE_NORM \
    PARTS, .attention_norm = PJ_N_INPUT_LAYERNORM, .mlp_norm = PJ_N_POST_ATTENTION_LAYERNORM
#define POST_NORM                                               \
    PARTS, .attention_out_norm = PJ_N_POST_ATTENTION_LAYERNORM, \
           .mlp_out_norm = PJ_N_POST_FEEDFORWARD_LAYERNORM
#define SANDWICH_NORM                                           \
    PARTS, .attention_norm = PJ_N_INPUT_LAYERNORM,              \
           .attention_out_norm = PJ_N_POST_ATTENTION_LAYERNORM, \
           .mlp_norm = PJ_N_PRE_FEEDFORWARD_LAYERNORM,          \
           .mlp_out_norm = PJ_N_POST_FEEDFORWARD_LAYERNORM

#define LATENT PRE_NORM, ATTENTION_BIAS, .router = PJ_ROUTER_SOFTMAX, .shared_expert = true

/* Experts, where there are some, beside a block that has gate and up in one matrix. */
#define GRANITE_EXPERTS                                                                         \
    .mlp = PJ_MLP_GATED_FUSED, .router = PJ_ROUTER_SOFTMAX_RENORMALISED, .shared_expert = true, \
    .gate_up = PJ_N_INPUT_LINEAR, .down = PJ_N_OUTPUT_LINEAR
#define HUNYUAN                                                                    \
    PRE_NORM, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_HEAD, .qk_norm_rotated = true, \
                              .q_norm = PJ_N_QUERY_LAYERNORM, .k_norm = PJ_N_KEY_LAYERNORM
#define SHORT_CONVOLUTIONS                                                                     \
    .block = "feed_forward", .qk_norm = PJ_QK_NORM_HEAD, .attention_norm = PJ_N_OPERATOR_NORM, \
    .mlp_norm = PJ_N_FFN_NORM, .q_norm = PJ_N_Q_LAYERNORM, .k_norm = PJ_N_K_LAYERNORM,         \
    .o = PJ_N_OUT_PROJ, .gate = PJ_N_W1, .up = PJ_N_W3, .down = PJ_N_W2,                       \
    .final_norm = PJ_N_EMBEDDING_NORM

static const pj_blueprint blueprints[PJ_ARCH_COUNT] = {
    [PJ_ARCH_LLAMA] = {PRE_NORM, ATTENTION_BIAS, .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_MISTRAL] = {PRE_NORM},
    [PJ_ARCH_PHI] = {.norm = PJ_NORM_LAYER,
                     .parallel_block = true,
                     .mlp = PJ_MLP_PLAIN,
                     .qkv_bias = PJ_BIAS_ALWAYS,
                     .o_bias = PJ_BIAS_ALWAYS,
                     .mlp_bias = PJ_BIAS_ALWAYS,
                     .head_bias = PJ_BIAS_ALWAYS,
                     .qk_norm = PJ_QK_NORM_HEAD,
                     .q_norm = PJ_N_Q_LAYERNORM,
                     .k_norm = PJ_N_K_LAYERNORM,
                     .attention_norm = PJ_N_INPUT_LAYERNORM,
                     .o = PJ_N_DENSE,
                     .up = PJ_N_FC1,
                     .down = PJ_N_FC2,
                     .final_norm = PJ_N_FINAL_LAYERNORM},
    [PJ_ARCH_PHI3] = {PRE_NORM, .fused_qkv = true, .mlp = PJ_MLP_GATED_FUSED},
    [PJ_ARCH_QWEN2] = {PRE_NORM, .qkv_bias = PJ_BIAS_ALWAYS},
    [PJ_ARCH_QWEN3] = {PRE_NORM, .qk_norm = PJ_QK_NORM_HEAD, .qkv_bias = PJ_BIAS_ATTENTION,
                       .o_bias = PJ_BIAS_ATTENTION},
    [PJ_ARCH_MIXTRAL] = {PRE_NORM, .router = PJ_ROUTER_SOFTMAX_RENORMALISED},
    [PJ_ARCH_QWEN2_MOE] = {PRE_NORM, .router = PJ_ROUTER_SOFTMAX, .shared_expert = true,
                           .shared_gate = true, .qkv_bias = PJ_BIAS_QKV},
    [PJ_ARCH_QWEN3_MOE] = {PRE_NORM, .router = PJ_ROUTER_SOFTMAX, .qk_norm = PJ_QK_NORM_HEAD,
                           .qkv_bias = PJ_BIAS_ATTENTION, .o_bias = PJ_BIAS_ATTENTION},
    [PJ_ARCH_SMOLLM3] = {PRE_NORM, ATTENTION_BIAS, .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_GRANITE] = {PRE_NORM, ATTENTION_BIAS, .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_OLMO2] = {POST_NORM, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_FULL},
    [PJ_ARCH_OLMO3] = {POST_NORM, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_FULL},
    [PJ_ARCH_GLM4] = {PARTS, .mlp = PJ_MLP_GATED_FUSED, .qkv_bias = PJ_BIAS_ATTENTION,
                      .attention_norm = PJ_N_INPUT_LAYERNORM,
                      .attention_out_norm = PJ_N_POST_SELF_ATTN_LAYERNORM,
                      .mlp_norm = PJ_N_POST_ATTENTION_LAYERNORM,
                      .mlp_out_norm = PJ_N_POST_MLP_LAYERNORM},
    [PJ_ARCH_MINISTRAL3] = {PRE_NORM},
    [PJ_ARCH_GEMMA2] = {SANDWICH_NORM, ATTENTION_BIAS, .norm_adds_one = true},
    [PJ_ARCH_GEMMA3] = {SANDWICH_NORM, ATTENTION_BIAS, .norm_adds_one = true,
                        .qk_norm = PJ_QK_NORM_HEAD},
    [PJ_ARCH_GPT_OSS] = {PRE_NORM, ATTENTION_BIAS, .router = PJ_ROUTER_SOFTMAX_RENORMALISED,
                         .router_bias = true, .mlp_bias = PJ_BIAS_ALWAYS, .sinks = true},
    [PJ_ARCH_QWEN3_5] = {PRE_NORM, ATTENTION_BIAS, .norm_adds_one = true, .output_gate = true,
                         .qk_norm = PJ_QK_NORM_HEAD},
    [PJ_ARCH_QWEN3_5_MOE] = {PRE_NORM, ATTENTION_BIAS, .norm_adds_one = true, .output_gate = true,
                             .qk_norm = PJ_QK_NORM_HEAD, .router = PJ_ROUTER_SOFTMAX_RENORMALISED,
                             .shared_expert = true, .shared_gate = true},
    [PJ_ARCH_GEMMA4] = {SANDWICH_NORM, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_HEAD, .v_norm = true,
                        .router = PJ_ROUTER_SOFTMAX_RENORMALISED, .layer_scale = true,
                        .parallel_experts = true},
    [PJ_ARCH_QWEN3_NEXT] = {PRE_NORM, ATTENTION_BIAS, .norm_adds_one = true, .output_gate = true,
                            .qk_norm = PJ_QK_NORM_HEAD, .router = PJ_ROUTER_SOFTMAX,
                            .shared_expert = true, .shared_gate = true},
    [PJ_ARCH_GLM4_MOE] = {PRE_NORM, .qkv_bias = PJ_BIAS_ATTENTION, .qk_norm = PJ_QK_NORM_HEAD,
                          .router = PJ_ROUTER_SOFTMAX, .shared_expert = true},
    [PJ_ARCH_MINIMAX_M2] = {PRE_NORM, .qk_norm = PJ_QK_NORM_FULL,
                            .router = PJ_ROUTER_SOFTMAX_RENORMALISED},
    [PJ_ARCH_SEED_OSS] = {PRE_NORM, .qkv_bias = PJ_BIAS_ATTENTION, .o_bias = PJ_BIAS_OUT,
                          .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_ERNIE4_5] = {PRE_NORM, ATTENTION_BIAS, .mlp_bias = PJ_BIAS_MLP},
    [PJ_ARCH_ERNIE4_5_MOE] = {PRE_NORM, ATTENTION_BIAS, .mlp_bias = PJ_BIAS_MLP,
                              .experts_unbiased = true, .head_bias = PJ_BIAS_HEAD,
                              .router = PJ_ROUTER_SOFTMAX_RENORMALISED, .shared_expert = true},
    [PJ_ARCH_EXAONE4] = {POST_NORM, .qk_norm = PJ_QK_NORM_HEAD},
    [PJ_ARCH_COHERE2] = {PARTS, ATTENTION_BIAS, .norm = PJ_NORM_LAYER, .norm_without_bias = true,
                         .parallel_block = true, .attention_norm = PJ_N_INPUT_LAYERNORM},
    /* GGUF files have this name for all three */
    [PJ_ARCH_DEEPSEEK_V2] = {LATENT, .mlp_bias = PJ_BIAS_MLP, .experts_unbiased = true},
    [PJ_ARCH_DEEPSEEK_V3] = {LATENT},
    [PJ_ARCH_GLM4_MOE_LITE] = {LATENT},
    [PJ_ARCH_DEEPSEEK_V32] = {LATENT},
    [PJ_ARCH_GLM_MOE_DSA] = {LATENT},
    [PJ_ARCH_LFM2] = {SHORT_CONVOLUTIONS},
    [PJ_ARCH_LFM2_MOE] = {SHORT_CONVOLUTIONS, .router = PJ_ROUTER_SOFTMAX},
    [PJ_ARCH_GRANITE_HYBRID] = {ATTENTION_BIAS, GRANITE_EXPERTS, .block = "shared_mlp",
                                .attention_norm = PJ_N_INPUT_LAYERNORM,
                                .mlp_norm = PJ_N_POST_ATTENTION_LAYERNORM, .o = PJ_N_O_PROJ,
                                .up = PJ_N_UP_PROJ, .final_norm = PJ_N_NORM},
    [PJ_ARCH_GRANITE_MOE] = {ATTENTION_BIAS, GRANITE_EXPERTS,
                             .attention_norm = PJ_N_INPUT_LAYERNORM,
                             .mlp_norm = PJ_N_POST_ATTENTION_LAYERNORM, .o = PJ_N_O_PROJ,
                             .up = PJ_N_UP_PROJ, .final_norm = PJ_N_NORM},
    [PJ_ARCH_HUNYUAN_DENSE] = {HUNYUAN},
    [PJ_ARCH_HUNYUAN_MOE] = {HUNYUAN, .router = PJ_ROUTER_SOFTMAX_RENORMALISED,
                             .shared_expert = true},
    [PJ_ARCH_APERTUS] = {PARTS, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_HEAD, .mlp = PJ_MLP_PLAIN,
                         .attention_norm = PJ_N_ATTENTION_LAYERNORM,
                         .mlp_norm = PJ_N_FEEDFORWARD_LAYERNORM},
    [PJ_ARCH_BITNET] = {PRE_NORM, ATTENTION_BIAS, .attended_norm = PJ_N_ATTN_SUB_NORM,
                        .act_norm = PJ_N_FFN_SUB_NORM},
    [PJ_ARCH_PHIMOE] = {PRE_NORM, ATTENTION_BIAS, .norm = PJ_NORM_LAYER, .router = PJ_ROUTER_MIXER,
                        .head_bias = PJ_BIAS_HEAD},
    [PJ_ARCH_NEMOTRON_H] = {.block = "mixer",
                            .mixer = "mixer",
                            .mlp = PJ_MLP_PLAIN,
                            .router = PJ_ROUTER_SOFTMAX,
                            .shared_expert = true,
                            .mlp_bias = PJ_BIAS_MLP,
                            .experts_unbiased = true,
                            .attention_norm = PJ_N_NORM,
                            .mlp_norm = PJ_N_NORM,
                            .o = PJ_N_O_PROJ,
                            .up = PJ_N_UP_PROJ,
                            .down = PJ_N_DOWN_PROJ,
                            .final_norm = PJ_N_NORM_F},
    [PJ_ARCH_MAMBA2] = {.mixer = "mixer", .attention_norm = PJ_N_NORM, .final_norm = PJ_N_NORM_F},
    [PJ_ARCH_FALCON_H1] = {ATTENTION_BIAS, .block = "feed_forward", .mlp_bias = PJ_BIAS_MLP,
                           .attention_norm = PJ_N_INPUT_LAYERNORM,
                           .mlp_norm = PJ_N_PRE_FF_LAYERNORM, .o = PJ_N_O_PROJ, .up = PJ_N_UP_PROJ,
                           .down = PJ_N_DOWN_PROJ, .final_norm = PJ_N_FINAL_LAYERNORM},
    [PJ_ARCH_LLAMA4] = {PRE_NORM, ATTENTION_BIAS, .block = "feed_forward",
                        .qk_norm = PJ_QK_NORM_HEAD, .qk_norm_rotated = true, .qk_norm_plain = true,
                        .router = PJ_ROUTER_SOFTMAX, .shared_expert = true, .weighted_input = true,
                        .experts_transposed = true},
    [PJ_ARCH_MIMO] = {PRE_NORM, .qkv_bias = PJ_BIAS_ALWAYS},
    [PJ_ARCH_GEMMA3N] = {SANDWICH_NORM, ATTENTION_BIAS, .qk_norm = PJ_QK_NORM_HEAD, .v_norm = true},
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
    case PJ_BIAS_OUT: return config->out_bias;
    case PJ_BIAS_HEAD: return config->head_bias;
    case PJ_BIAS_MLP: return config->mlp_bias;
    default: return false;
    }
}
