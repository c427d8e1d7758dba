/* The defaults of each architecture. */
#include "engine/model/config_rules.h"

#define SILU .activation = "silu"
#define GEMMA                                                                                      \
    .activation = "gelu_pytorch_tanh", .activation_in_gemma_key = true, .eps = 1e-6, .tied = true, \
    .hidden = 2304, .intermediate = 9216, .heads = 8, .kv_heads = 4, .head_dim = 256,              \
    .window = PJ_WINDOW_PERIOD, .lists_layers = true

static const pj_config_rules rules[PJ_ARCH_COUNT] = {
    [PJ_ARCH_LLAMA] = {SILU, .eps = 1e-6, .theta = 1e4},
    [PJ_ARCH_MISTRAL] = {SILU, .eps = 1e-6, .theta = 1e4, .window = PJ_WINDOW_ALL,
                         .window_absent = 4096},
    [PJ_ARCH_PHI] = {.activation = "gelu_new", .eps = 1e-5, .theta = 1e4, .partial = 0.5},
    [PJ_ARCH_PHI3] = {SILU, .eps = 1e-5, .theta = 1e4, .partial = 1, .window = PJ_WINDOW_ALL},
    [PJ_ARCH_QWEN2] = {SILU, .eps = 1e-6, .theta = 1e4, .window = PJ_WINDOW_FROM_BORDER,
                       .window_absent = 4096, .window_needs_switch = true, .lists_layers = true},
    [PJ_ARCH_QWEN3] = {SILU, .eps = 1e-6, .theta = 1e4, .window = PJ_WINDOW_FROM_BORDER,
                       .window_absent = 4096, .window_needs_switch = true, .lists_layers = true},
    [PJ_ARCH_MIXTRAL] = {SILU, .eps = 1e-5, .theta = 1e6, .window = PJ_WINDOW_ALL},
    [PJ_ARCH_QWEN2_MOE] = {SILU, .eps = 1e-6, .theta = 1e4, .window = PJ_WINDOW_EVEN_TO_BORDER,
                           .window_absent = 4096, .window_needs_switch = true,
                           .lists_layers = true},
    [PJ_ARCH_QWEN3_MOE] = {SILU, .eps = 1e-6, .theta = 1e4, .window = PJ_WINDOW_ALL,
                           .window_absent = 4096, .window_needs_switch = true},
    [PJ_ARCH_SMOLLM3] = {SILU, .eps = 1e-6, .theta = 2e6, .tied = true, .hidden = 2048,
                         .intermediate = 11008, .layers = 36, .heads = 16, .kv_heads = 4,
                         .vocab = 128256, .context = 32768, .window = PJ_WINDOW_UNROTATED,
                         .window_needs_switch = true, .lists_layers = true},
    [PJ_ARCH_GRANITE] = {SILU, .eps = 1e-6, .theta = 1e4, .hidden = 4096, .intermediate = 11008,
                         .layers = 32, .heads = 32, .vocab = 32000, .context = 2048},
    [PJ_ARCH_OLMO2] = {SILU, .eps = 1e-5, .theta = 1e4, .hidden = 4096, .intermediate = 11008,
                       .layers = 32, .heads = 32, .vocab = 50304, .context = 2048},
    [PJ_ARCH_OLMO3] = {SILU, .eps = 1e-5, .theta = 5e5, .window_theta = 5e5, .hidden = 4096,
                       .intermediate = 11008, .layers = 32, .heads = 32, .vocab = 50304,
                       .context = 2048, .window = PJ_WINDOW_PERIOD, .window_period = 4,
                       .window_absent = 4096, .lists_layers = true},
    [PJ_ARCH_GLM4] = {SILU, .eps = 1.5625e-7, .theta = 1e4, .partial = 0.5, .neighbours = true,
                      .attention_bias = true, .hidden = 4096, .intermediate = 13696, .layers = 40,
                      .heads = 32, .kv_heads = 2, .head_dim = 128, .vocab = 151552,
                      .context = 131072},
    [PJ_ARCH_MINISTRAL3] = {SILU, .eps = 1e-5, .theta = 1e4, .hidden = 4096, .intermediate = 14336,
                            .layers = 34, .heads = 32, .kv_heads = 8, .head_dim = 128,
                            .vocab = 131072, .context = 262144, .window = PJ_WINDOW_ALL},
    [PJ_ARCH_GEMMA2] = {GEMMA, .layers = 26, .vocab = 256000, .context = 8192, .theta = 1e4,
                        .window_period = 2, .window_absent = 4096},
    [PJ_ARCH_GEMMA3] = {GEMMA, .layers = 26, .vocab = 262208, .context = 131072, .theta = 1e6,
                        .window_theta = 1e4, .window_period = 6, .window_absent = 4096},
    [PJ_ARCH_GPT_OSS] = {SILU, .eps = 1e-5, .theta = 1.5e5, .attention_bias = true, .hidden = 2880,
                         .intermediate = 2880, .layers = 36, .heads = 64, .kv_heads = 8,
                         .head_dim = 64, .vocab = 201088, .context = 131072,
                         .window = PJ_WINDOW_PERIOD, .window_period = 2, .window_absent = 128,
                         .lists_layers = true},
    [PJ_ARCH_QWEN3_5] = {SILU, .eps = 1e-6, .theta = 1e4, .partial = 0.25, .hidden = 4096,
                         .intermediate = 12288, .layers = 32, .heads = 16, .kv_heads = 4,
                         .head_dim = 256, .vocab = 248320, .context = 32768},
    /* `intermediate`: no layer has a dense block */
    [PJ_ARCH_QWEN3_5_MOE] = {SILU, .eps = 1e-6, .theta = 1e4, .partial = 0.25, .hidden = 2048,
                             .intermediate = 512, .layers = 40, .heads = 16, .kv_heads = 2,
                             .head_dim = 256, .vocab = 248320, .context = 32768},
    [PJ_ARCH_GEMMA4] = {GEMMA, .layers = 30, .vocab = 262144, .context = 131072, .theta = 1e6,
                        .window_theta = 1e4, .window_period = 6, .window_absent = 512},
};

const pj_config_rules *pj_config_rules_get(pj_arch arch)
{
    return &rules[arch];
}
