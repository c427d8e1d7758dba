/* The shapes, their files, and the reference forward pass. Clarity before speed: plain loops over
 * doubles. */
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* each shape starts with the common sizes, followed by its special fields */
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
#define DENSE                                                                          \
    .layers = 2, .hidden = 48, .heads = 4, .kv_heads = 2, .head_dim = 12, .width = 80, \
    .vocab = 97, .rope = "default", .dense_layer = -1

#define SPARSE                                                                                \
    DENSE, .head_dim = LATENT_PLAIN + LATENT_ROTATED, .vocab = 29, .experts = 5, .chosen = 2, \
           .expert_width = 24, .shared_width = 24, .dense_layer = 0, .renormalise = true,     \
           .sigmoid = true, .routed_scale = 1.5

/* Of latent attention, and of its indexer. */
enum { LATENT_PLAIN = 12, LATENT_ROTATED = 8, LATENT_VALUE = 10, LATENT_RANK = 16, LOW_RANK = 20 };
enum { INDEX_HEADS = 8, INDEX_DIM = 10 };

const tiny_shape tiny_shapes[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", DENSE},
    {.name = "llama3", .architecture = "LlamaForCausalLM", DENSE, .rope = "llama3", .tied = true},
    {.name = "llama-linear",
     .architecture = "LlamaForCausalLM",
     DENSE,
     .rope = "linear",
     .all_bias = true,
     .qkv_bias = true},
    {.name = "mistral", .architecture = "MistralForCausalLM", DENSE, .window = 5, .head_dim = 10},
    {.name = "phi",
     .architecture = "PhiForCausalLM",
     DENSE,
     .kv_heads = 4,
     .partial = 0.5,
     .plain_mlp = true,
     .qkv_bias = true,
     .all_bias = true},
    {.name = "phi-normed",
     .architecture = "PhiForCausalLM",
     DENSE,
     .partial = 0.5,
     .plain_mlp = true,
     .qk_norm = true,
     .qkv_bias = true,
     .all_bias = true,
     .no_gguf = true},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", DENSE, .fused = true, .rope = "longrope"},
    {.name = "phi4-mini",
     .architecture = "Phi3ForCausalLM",
     DENSE,
     .fused = true,
     .rope = "longrope",
     .head_dim = 16,
     .partial = 0.75,
     .tied = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", DENSE, .qkv_bias = true, .rope = "yarn"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM", DENSE, .qk_norm = true, .head_dim = 14},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     DENSE,
     .experts = 4,
     .chosen = 2,
     .expert_width = 40,
     .renormalise = true,
     .mixtral = true},
    {.name = "qwen2-moe",
     .architecture = "Qwen2MoeForCausalLM",
     DENSE,
     .layers = 3,
     .qkv_bias = true,
     .experts = 5,
     .chosen = 3,
     .expert_width = 24,
     .shared_width = 56,
     .dense_layer = 1},
    {.name = "qwen3-moe",
     .architecture = "Qwen3MoeForCausalLM",
     DENSE,
     .qk_norm = true,
     .experts = 8,
     .chosen = 2,
     .expert_width = 24,
     .renormalise = true},
    {.name = "qwen3-moe-fused",
     .architecture = "Qwen3MoeForCausalLM",
     DENSE,
     .qk_norm = true,
     .experts = 8,
     .chosen = 2,
     .expert_width = 24,
     .renormalise = true,
     .fused_experts = true},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     DENSE,
     .layers = 4,
     .unrotated_every = 4,
     .tied = true},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     DENSE,
     .residual_scale = 0.4,
     .logit_scale = 3,
     .score_scale = 0.15},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     DENSE,
     .norms = TINY_POST,
     .qk_norm = true,
     .full_qk_norm = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     DENSE,
     .layers = 3,
     .norms = TINY_SANDWICH,
     .gemma = true,
     .window = 5,
     .full_every = 2,
     .score_scale = 0.28867513459481287, /* head_dim^-0.5 */
     .score_cap = 8,
     .logit_cap = 6},
    {.name = "wide",
     .architecture = "LlamaForCausalLM",
     DENSE,
     .hidden = 128,
     .head_dim = 32,
     .width = 256,
     .vocab = 200,
     .tied = true},
    {.name = "hunyuan",
     .architecture = "HunYuanDenseV1ForCausalLM",
     DENSE,
     .qk_norm = true,
     .rotated_norm = true},
    {.name = "apertus",
     .architecture = "ApertusForCausalLM",
     DENSE,
     .qk_norm = true,
     .xielu = true,
     .rope = "llama3"},
    {.name = "bitnet", .architecture = "BitNetForCausalLM", DENSE, .relu2 = true},
    {.name = "nemotron",
     .architecture = "NemotronHForCausalLM",
     DENSE,
     .layers = 5,
     .halves = true},
    {.name = "nemotron-moe",
     .architecture = "NemotronHForCausalLM",
     DENSE,
     .layers = 5,
     .halves = true,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .shared_width = 40,
     .renormalise = true,
     .sigmoid = true,
     .routed_scale = 2.5},
    {.name = "nemotron-latent",
     .architecture = "NemotronHForCausalLM",
     DENSE,
     .layers = 5,
     .halves = true,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .expert_latent = 20,
     .shared_width = 40,
     .renormalise = true,
     .sigmoid = true,
     .routed_scale = 2.5},
    {.name = "nemotron-biased",
     .architecture = "NemotronHForCausalLM",
     DENSE,
     .layers = 5,
     .halves = true,
     .all_bias = true,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .expert_latent = 20,
     .shared_width = 40,
     .renormalise = true,
     .sigmoid = true,
     .routed_scale = 2.5,
     .no_gguf = true},
    {.name = "mamba2", .architecture = "Mamba2ForCausalLM", DENSE, .layers = 3, .scans = true},
    {.name = "mamba2-biased",
     .architecture = "Mamba2ForCausalLM",
     DENSE,
     .tied = true,
     .scans = true,
     .all_bias = true},
    {.name = "granite-moe-alone",
     .architecture = "GraniteMoeForCausalLM",
     DENSE,
     .residual_scale = 0.4,
     .logit_scale = 3,
     .score_scale = 0.15,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .renormalise = true,
     .fused_experts = true,
     .family = TINY_GRANITE},
    {.name = "granite-moe",
     .architecture = "GraniteMoeSharedForCausalLM",
     DENSE,
     .residual_scale = 0.4,
     .logit_scale = 3,
     .score_scale = 0.15,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .shared_width = 40,
     .renormalise = true,
     .fused_experts = true,
     .family = TINY_GRANITE},
    {.name = "hunyuan-moe",
     .architecture = "HunYuanMoEV1ForCausalLM",
     DENSE,
     .qk_norm = true,
     .rotated_norm = true,
     .experts = 5,
     .chosen = 2,
     .expert_width = 80,
     .shared_width = 80,
     .renormalise = true,
     .family = TINY_HUNYUAN},
    {.name = "hunyuan-moe-listed",
     .architecture = "HunYuanMoEV1ForCausalLM",
     DENSE,
     .qk_norm = true,
     .rotated_norm = true,
     .experts = 5,
     .chosen = 1,
     .last_chosen = 3,
     .expert_width = 80,
     .shared_width = 80,
     .renormalise = true,
     .family = TINY_HUNYUAN,
     .no_gguf = true},
    {.name = "lfm2-biased",
     .architecture = "Lfm2ForCausalLM",
     DENSE,
     .layers = 3,
     .tied = true,
     .qk_norm = true,
     .family = TINY_LFM2,
     .convolves = true,
     .no_gguf = true},
    {.name = "lfm2-moe",
     .architecture = "Lfm2MoeForCausalLM",
     DENSE,
     .tied = true,
     .qk_norm = true,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .dense_layer = 0,
     .renormalise = true,
     .sigmoid = true,
     .family = TINY_LFM2},
    {.name = "falcon",
     .architecture = "FalconH1ForCausalLM",
     DENSE,
     .beside = true,
     .multiplied = true},
    {.name = "falcon-plain",
     .architecture = "FalconH1ForCausalLM",
     DENSE,
     .beside = true,
     .all_bias = true,
     .qkv_bias = true,
     .no_gguf = true},
    {.name = "llama4",
     .architecture = "Llama4ForCausalLM",
     DENSE,
     .layers = 4,
     .unrotated_every = 4,
     .chunk = 7,
     .experts = 5,
     .chosen = 1,
     .expert_width = 24},
    {.name = "llama4-scaled",
     .architecture = "Llama4ForCausalLM",
     DENSE,
     .layers = 3,
     .unrotated_every = 3,
     .chunk = 6,
     .query_period = 5,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .no_gguf = true},
    {.name = "phimoe",
     .architecture = "PhimoeForCausalLM",
     DENSE,
     .experts = 6,
     .chosen = 2,
     .expert_width = 80,
     .mixtral = true,
     .mixer = 0.25,
     .no_gguf = true},
    {.name = "phimoe-published",
     .architecture = "PhimoeForCausalLM",
     DENSE,
     .experts = 6,
     .chosen = 2,
     .expert_width = 80,
     .mixtral = true,
     .mixer = 0.01},
    {.name = "glm4-moe",
     .architecture = "Glm4MoeForCausalLM",
     DENSE,
     .vocab = 29,
     .qk_norm = true,
     .partial = 0.5,
     .experts = 5,
     .chosen = 2,
     .expert_width = 24,
     .shared_width = 24,
     .dense_layer = 0,
     .renormalise = true,
     .sigmoid = true,
     .routed_scale = 1.5},
    {.name = "qwen3.5",
     .architecture = "Qwen3_5ForCausalLM",
     DENSE,
     .layers = 5,
     .vocab = 29,
     .head_dim = 16,
     .partial = 0.25,
     .qk_norm = true,
     .delta = true},
    {.name = "mimo",
     .architecture = "MiMoForCausalLM",
     DENSE,
     .vocab = 29,
     .qkv_bias = true,
     .mimo = true,
     .no_gguf = true},
    {.name = "gemma3n",
     .architecture = "Gemma3nForCausalLM",
     DENSE,
     .layers = 6,
     .tied = true,
     .norms = TINY_SANDWICH,
     .qk_norm = true,
     .window = 5,
     .full_every = 2,
     .score_scale = 1,
     .logit_cap = 6,
     .streams = 3,
     .active = 1,
     .rank = 5,
     .token_vector = 6,
     .readers = 3},
    {.name = "deepseek-v3-halves",
     .architecture = "DeepseekV3ForCausalLM",
     SPARSE,
     .layers = 2,
     .latent = true,
     .no_gguf = true},
    {.name = "deepseek-v3.2",
     .architecture = "DeepseekV32ForCausalLM",
     SPARSE,
     .layers = 2,
     .kept = 4},
    {.name = "glm5",
     .architecture = "GlmMoeDsaForCausalLM",
     SPARSE,
     .layers = 4,
     .kept = 3,
     .shares = true},
};
const size_t tiny_shape_count = sizeof tiny_shapes / sizeof *tiny_shapes;

/* Of the scaled ropes: the original context, and the context of the model. */
enum { ORIGINAL = 16, CONTEXT = 128 };
static const double theta = 10000, factor = 4;
/* Of alternating updates: the base of windowed layers' rotation, the tokens that have vectors
 * (later ones have those of the first), and how far gates are cut in the first layers. */
static const double window_theta = 500;
enum { TOKEN_VECTORS = 80 };
/* Of the gated delta rule. */
enum { DELTA_KEY_HEADS = 2, DELTA_HEADS = 4, DELTA_KEY = 6, DELTA_VALUE = 8, DELTA_KERNEL = 3 };
enum { DELTA_KEYS = DELTA_KEY_HEADS * DELTA_KEY, DELTA_VALUES = DELTA_HEADS * DELTA_VALUE };
enum { DELTA_CHANNELS = 2 * DELTA_KEYS + DELTA_VALUES };
static const double cut_shares[] = {0.9, 0.5}, cutoffs[] = {1.2815515655446004, 0};
static const double beta_fast = 0.5, beta_slow = 0.1; /* YaRN; not the defaults */

/* Falcon-H1's scans, the bounds of their steps without multipliers, and the multipliers. */
enum { SCANS = 6, SCAN_DIM = 8, GROUPS = 2, STATE = 10, KERNEL = 3 };
enum { VALUES = SCANS * SCAN_DIM, KEYS = GROUPS * STATE, CHANNELS = VALUES + 2 * KEYS };
static const double least_step = 0.6, most_step = 1.1;
static const double attention_in = 1.3, attention_out = 0.9, key_factor = 0.4, ssm_in = 1.25;
static const double ssm_out = 0.6, parts_in[5] = {0.35, 0.7, 0.5, 0.8, 1.2};
static const double gate_factor = 0.88, down_factor = 0.6, embedded_by = 1.7, head_factor = 0.8;

const tiny_shape *tiny_find(const char *name)
{
    for (size_t i = 0; i < tiny_shape_count; i++)
        if (strcmp(tiny_shapes[i].name, name) == 0) return &tiny_shapes[i];
    return NULL;
}

/* ---- weights ------------------------------------------------------------------------------ */

static uint64_t random_state;

static double random_normal(void)
{
    double sum = 0; /* the sum of twelve uniform variables has variance 1 */
    for (int i = 0; i < 12; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(random_state >> 11) * 0x1p-53;
    }
    return sum - 6;
}

/* Parts of names, and a family's own, in the order in which they are replaced. */
static const char *const spellings[][8][2] = {
    [TINY_GRANITE] = {{".mlp.gate.", ".block_sparse_moe.router.layer."},
                      {".mlp.experts.gate_up_proj", ".block_sparse_moe.input_linear.weight"},
                      {".mlp.experts.down_proj", ".block_sparse_moe.output_linear.weight"},
                      {".mlp.shared_expert.gate_up_proj.", ".shared_mlp.input_linear."},
                      {".mlp.shared_expert.down_proj.", ".shared_mlp.output_linear."}},
    [TINY_HUNYUAN] = {{".mlp.gate.weight", ".mlp.gate.wg.weight"},
                      {".mlp.shared_expert.", ".mlp.shared_mlp."}},
    [TINY_LFM2] = {{".gate.e_score_correction_bias", ".expert_bias"},
                   {".mlp.", ".feed_forward."},
                   {".gate_proj.", ".w1."},
                   {".up_proj.", ".w3."},
                   {".down_proj.", ".w2."},
                   {".self_attn.o_proj.", ".self_attn.out_proj."},
                   {".input_layernorm.", ".operator_norm."},
                   {".post_attention_layernorm.", ".ffn_norm."}},
};

/* The family's spelling of a tensor's name. */
static void spell(const tiny_model *m, const char *name, char out[128])
{
    snprintf(out, 128, "%s", name);
    for (int i = 0; m->shape.family && i < 8 && spellings[m->shape.family][i][0]; i++) {
        const char *from = spellings[m->shape.family][i][0], *at = strstr(out, from);
        char rest[128];
        if (!at) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(from));
        snprintf(out + (at - out), 128 - (size_t)(at - out), "%s%s",
                 spellings[m->shape.family][i][1], rest);
    }
}

static void add(tiny_model *m, const char *name, int a, int b, int c)
{
    tiny_tensor *t = &m->tensors[m->tensor_count++];
    spell(m, name, t->name);
    t->rank = c ? 3 : b ? 2 : 1;
    t->shape[0] = a;
    t->shape[1] = b;
    t->shape[2] = c;
    t->count = (size_t)a * (size_t)(b ? b : 1) * (size_t)(c ? c : 1);
    t->values = malloc(t->count * sizeof *t->values);
    int in = c ? c : b;
    bool bias = strstr(name, "bias"), embedding = strstr(name, "embed");
    for (size_t i = 0; i < t->count; i++) {
        double x = random_normal();
        double scaled = embedding ? (m->shape.tied ? 0.2 : 0.8) * x
                        : bias    ? 0.2 * x
                        : in == 0 ? 1 + 0.25 * x
                                  : 1.3 * x / sqrt(in);
        t->values[i] = (float)scaled;
    }
}

static void add_linear(tiny_model *m, const char *prefix, const char *part, int rows, int cols,
                       bool bias)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
    add(m, name, rows, cols, 0);
    snprintf(name, sizeof name, "%s.%s.bias", prefix, part);
    if (bias) add(m, name, rows, 0, 0);
}

static void add_norm(tiny_model *m, const char *prefix, const char *part, int n)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s.weight", prefix, part);
    add(m, name, n, 0, 0);
    snprintf(name, sizeof name, "%s.%s.bias", prefix, part);
    if (m->shape.plain_mlp || m->shape.mixer > 0) add(m, name, n, 0, 0);
}

/* The block that has the experts. */
static const char *experts_of(const tiny_shape *s)
{
    return s->mixtral ? "block_sparse_moe" : s->halves ? "mixer" : "mlp";
}

static void add_experts(tiny_model *m, const char *layer)
{
    const tiny_shape *s = &m->shape;
    char block[80], name[128];
    snprintf(block, sizeof block, "%s.%s", layer, experts_of(s));
    add_linear(m, block, "gate", s->experts, s->hidden, false);
    if (s->fused_experts) {
        snprintf(name, sizeof name, "%s.experts.gate_up_proj", block);
        add(m, name, s->experts, 2 * s->expert_width, s->hidden);
        snprintf(name, sizeof name, "%s.experts.down_proj", block);
        add(m, name, s->experts, s->hidden, s->expert_width);
    }
    int rows = s->expert_latent ? s->expert_latent : s->hidden;
    for (int e = 0; e < s->experts && !s->fused_experts; e++) {
        snprintf(name, sizeof name, "%s.experts.%d", block, e);
        if (!s->halves)
            add_linear(m, name, s->mixtral ? "w1" : "gate_proj", s->expert_width, rows, false);
        add_linear(m, name, s->mixtral ? "w3" : "up_proj", s->expert_width, rows, false);
        add_linear(m, name, s->mixtral ? "w2" : "down_proj", rows, s->expert_width, false);
    }
    if (s->expert_latent) {
        add_linear(m, block, "fc1_latent_proj", rows, s->hidden, s->all_bias);
        add_linear(m, block, "fc2_latent_proj", s->hidden, rows, s->all_bias);
    }
    snprintf(name, sizeof name, "%s.gate.e_score_correction_bias", block);
    if (s->sigmoid) add(m, name, s->experts, 0, 0);
    if (!s->shared_width) return;
    snprintf(name, sizeof name, "%s.shared_expert%s", block, s->sigmoid ? "s" : "");
    add_linear(m, name, "down_proj", s->hidden, s->shared_width, s->all_bias);
    if (s->family == TINY_GRANITE) {
        add_linear(m, name, "gate_up_proj", 2 * s->shared_width, s->hidden, false);
        return;
    }
    add_linear(m, name, "up_proj", s->shared_width, s->hidden, s->all_bias);
    if (s->halves) return;
    add_linear(m, name, "gate_proj", s->shared_width, s->hidden, false);
    if (!s->sigmoid && !s->family) add_linear(m, block, "shared_expert_gate", 1, s->hidden, false);
}

static const char *final_norm_of(const tiny_shape *s)
{
    return s->plain_mlp || s->beside ? "final_layernorm"
           : s->halves || s->scans   ? "norm_f"
           : s->family == TINY_LFM2  ? "embedding_norm"
                                     : "norm";
}

static const char *mlp_norm_of(const tiny_shape *s)
{
    return s->xielu    ? "feedforward_layernorm"
           : s->beside ? "pre_ff_layernorm"
                       : "post_attention_layernorm";
}

/* The dense block's name. */
static const char *block_of(const tiny_shape *s)
{
    return s->chunk || s->beside ? "feed_forward" : "mlp";
}

static bool has_experts(const tiny_shape *s, int layer)
{
    if (s->halves) return s->experts && layer == 1;
    return s->experts && (s->chunk ? layer % 2 == 1 : layer != s->dense_layer);
}

/* Llama 4: all experts in tensors [experts, in, out]. */
static void add_chunk_experts(tiny_model *m, const char *block)
{
    const tiny_shape *s = &m->shape;
    char name[128];
    add_linear(m, block, "router", s->experts, s->hidden, false);
    snprintf(name, sizeof name, "%s.experts.gate_up_proj", block);
    add(m, name, s->experts, s->hidden, 2 * s->expert_width);
    snprintf(name, sizeof name, "%s.experts.down_proj", block);
    add(m, name, s->experts, s->expert_width, s->hidden);
    snprintf(name, sizeof name, "%s.shared_expert", block);
    add_linear(m, name, "gate_proj", s->expert_width, s->hidden, false);
    add_linear(m, name, "up_proj", s->expert_width, s->hidden, false);
    add_linear(m, name, "down_proj", s->hidden, s->expert_width, false);
}

static const char *scan_of(const tiny_shape *s)
{
    return s->scans ? "mixer" : "mamba";
}

static void add_scan(tiny_model *m, const char *layer)
{
    static const char *const vectors[] = {"A_log", "D", "dt_bias"};
    bool bias = m->shape.all_bias;
    char mamba[64], name[80];
    snprintf(mamba, sizeof mamba, "%s.%s", layer, scan_of(&m->shape));
    add_linear(m, mamba, "in_proj", VALUES + CHANNELS + SCANS, m->shape.hidden, bias);
    add_linear(m, mamba, "out_proj", m->shape.hidden, VALUES, bias);
    snprintf(name, sizeof name, "%s.conv1d.weight", mamba);
    add(m, name, CHANNELS, 1, KERNEL);
    snprintf(name, sizeof name, "%s.conv1d.bias", mamba);
    add(m, name, CHANNELS, 0, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", mamba, vectors[i]);
        add(m, name, SCANS, 0, 0);
    }
    if (m->shape.multiplied || m->shape.scans) add_norm(m, mamba, "norm", VALUES);
}

static bool convolves(const tiny_shape *s, int layer)
{
    return s->convolves && layer % 2 == 0;
}

static void add_convolution(tiny_model *m, const char *layer)
{
    int d = m->shape.hidden;
    char conv[64], name[80];
    snprintf(conv, sizeof conv, "%s.conv", layer);
    add_linear(m, conv, "in_proj", 3 * d, d, true);
    add_linear(m, conv, "out_proj", d, d, true);
    snprintf(name, sizeof name, "%s.conv.weight", conv);
    add(m, name, d, 1, KERNEL);
    snprintf(name, sizeof name, "%s.conv.bias", conv);
    add(m, name, d, 0, 0);
}

static void add_number(tiny_model *m, const char *prefix, const char *part, double value)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", prefix, part);
    add(m, name, 1, 0, 0);
    m->tensors[m->tensor_count - 1].values[0] = (float)value;
}

static const char *q_norm_of(const tiny_shape *s)
{
    bool of_layer = s->family == TINY_LFM2 || s->plain_mlp;
    return of_layer ? "q_layernorm" : s->rotated_norm ? "query_layernorm" : "q_norm";
}

static const char *k_norm_of(const tiny_shape *s)
{
    bool of_layer = s->family == TINY_LFM2 || s->plain_mlp;
    return of_layer ? "k_layernorm" : s->rotated_norm ? "key_layernorm" : "k_norm";
}

/* Every other layer is a block. */
static void add_half(tiny_model *m, const char *layer, const char *mixer, int index)
{
    const tiny_shape *s = &m->shape;
    int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    add_norm(m, layer, "norm", s->hidden);
    if (has_experts(s, index)) {
        add_experts(m, layer);
        return;
    }
    if (index % 2) {
        add_linear(m, mixer, "up_proj", s->width, s->hidden, s->all_bias);
        add_linear(m, mixer, "down_proj", s->hidden, s->width, s->all_bias);
        return;
    }
    add_linear(m, mixer, "q_proj", q, s->hidden, false);
    add_linear(m, mixer, "k_proj", kv, s->hidden, false);
    add_linear(m, mixer, "v_proj", kv, s->hidden, false);
    add_linear(m, mixer, "o_proj", s->hidden, q, false);
}

/* Widths differ between layers. */
static int width_of(const tiny_shape *s, int layer)
{
    return s->streams && layer % 3 == 1 ? s->width / 2 : s->width;
}

static void add_streams(tiny_model *m, const char *layer)
{
    const tiny_shape *s = &m->shape;
    char altup[64], laurel[64], name[80];
    int n = s->streams;
    snprintf(altup, sizeof altup, "%s.altup", layer);
    snprintf(laurel, sizeof laurel, "%s.laurel", layer);
    add_norm(m, altup, "router_norm", s->hidden);
    /* the input is divided by the hidden size; the rest keeps rounding errors from growing */
    add_linear(m, altup, "modality_router", n, s->hidden, false);
    tiny_tensor *router = &m->tensors[m->tensor_count - 1];
    for (size_t i = 0; i < router->count; i++) router->values[i] *= (float)s->hidden / 4;
    add_linear(m, altup, "prediction_coefs", n * n, n, false);
    add_linear(m, altup, "correction_coefs", n, n, false);
    snprintf(name, sizeof name, "%s.correct_output_scale", altup);
    add(m, name, s->hidden, 0, 0);
    add_linear(m, laurel, "linear_left", s->rank, s->hidden, false);
    add_linear(m, laurel, "linear_right", s->hidden, s->rank, false);
    add_norm(m, laurel, "post_laurel_norm", s->hidden);
    add_linear(m, layer, "per_layer_input_gate", s->token_vector, s->hidden, false);
    add_linear(m, layer, "per_layer_projection", s->hidden, s->token_vector, false);
    add_norm(m, layer, "post_per_layer_input_norm", s->hidden);
}

static void add_stream_ends(tiny_model *m)
{
    const tiny_shape *s = &m->shape;
    char name[64];
    int all = s->layers * s->token_vector;
    add(m, "model.embed_tokens_per_layer.weight", TOKEN_VECTORS, all, 0);
    add_linear(m, "model", "per_layer_model_projection", all, s->hidden, false);
    add_norm(m, "model", "per_layer_projection_norm", s->token_vector);
    for (int i = 0; i + 1 < s->streams; i++) {
        snprintf(name, sizeof name, "altup_projections.%d", i);
        add_linear(m, "model", name, s->hidden, s->hidden, false);
        snprintf(name, sizeof name, "altup_unembed_projections.%d", i);
        add_linear(m, "model", name, s->hidden, s->hidden, false);
    }
}

static bool reads_keys(const tiny_shape *s, int layer)
{
    return s->readers && layer >= s->layers - s->readers;
}

static bool is_delta(const tiny_shape *s, int layer)
{
    return s->delta && layer < s->layers && (layer + 1) % 4 != 0;
}

static void add_delta(tiny_model *m, const char *layer)
{
    const tiny_shape *s = &m->shape;
    char linear[64], name[80];
    snprintf(linear, sizeof linear, "%s.linear_attn", layer);
    add_linear(m, linear, "in_proj_qkv", DELTA_CHANNELS, s->hidden, false);
    add_linear(m, linear, "in_proj_z", DELTA_VALUES, s->hidden, false);
    add_linear(m, linear, "in_proj_b", DELTA_HEADS, s->hidden, false);
    add_linear(m, linear, "in_proj_a", DELTA_HEADS, s->hidden, false);
    add_linear(m, linear, "out_proj", s->hidden, DELTA_VALUES, false);
    snprintf(name, sizeof name, "%s.conv1d.weight", linear);
    add(m, name, DELTA_CHANNELS, 1, DELTA_KERNEL);
    snprintf(name, sizeof name, "%s.A_log", linear);
    add(m, name, DELTA_HEADS, 0, 0);
    snprintf(name, sizeof name, "%s.dt_bias", linear);
    add(m, name, DELTA_HEADS, 0, 0);
    snprintf(name, sizeof name, "%s.norm.weight", linear);
    add(m, name, DELTA_VALUE, 0, 0);
}

/* Whether a layer chooses its keys; a head's layer follows the others and does. */
static bool has_indexer(const tiny_shape *s, int layer)
{
    return s->kept && !(s->shares && layer < s->layers && layer > 1 && layer % 2 == 0);
}

/* Small, so that the eps of the norm that follows counts. */
static void shrink(tiny_model *m, int rows)
{
    tiny_tensor *t = &m->tensors[m->tensor_count - 1];
    for (int i = 0; i < rows * t->shape[1]; i++) t->values[i] *= 2e-3f;
}

static void add_latent(tiny_model *m, int index, const char *attn)
{
    const tiny_shape *s = &m->shape;
    char indexer[80], name[96];
    add_linear(m, attn, "q_a_proj", LOW_RANK, s->hidden, false);
    shrink(m, LOW_RANK);
    add_norm(m, attn, "q_a_layernorm", LOW_RANK);
    add_linear(m, attn, "q_b_proj", s->heads * s->head_dim, LOW_RANK, false);
    add_linear(m, attn, "kv_a_proj_with_mqa", LATENT_RANK + LATENT_ROTATED, s->hidden, false);
    shrink(m, LATENT_RANK);
    add_norm(m, attn, "kv_a_layernorm", LATENT_RANK);
    add_linear(m, attn, "kv_b_proj", s->heads * (LATENT_PLAIN + LATENT_VALUE), LATENT_RANK, false);
    add_linear(m, attn, "o_proj", s->hidden, s->heads * LATENT_VALUE, false);
    if (!has_indexer(s, index)) return;
    snprintf(indexer, sizeof indexer, "%s.indexer", attn);
    add_linear(m, indexer, "wq_b", INDEX_HEADS * INDEX_DIM, LOW_RANK, false);
    add_linear(m, indexer, "wk", INDEX_DIM, s->hidden, false);
    shrink(m, INDEX_DIM);
    add_norm(m, indexer, "k_norm", INDEX_DIM);
    snprintf(name, sizeof name, "%s.k_norm.bias", indexer);
    add(m, name, INDEX_DIM, 0, 0);
    add_linear(m, indexer, "weights_proj", INDEX_HEADS, s->hidden, false);
}

/* `layer`: the name of layer `index`. */
static void add_layer_as(tiny_model *m, int index, const char *layer)
{
    const tiny_shape *s = &m->shape;
    char attn[64], mlp[64];
    int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    snprintf(attn, sizeof attn, "%s.%s", layer, s->halves ? "mixer" : "self_attn");
    snprintf(mlp, sizeof mlp, "%s.%s", layer, block_of(s));
    if (s->beside || s->scans) add_scan(m, layer);
    if (s->scans) {
        add_norm(m, layer, "norm", s->hidden);
        return;
    }
    if (s->halves) {
        add_half(m, layer, attn, index);
        return;
    }
    if (s->norms != TINY_POST)
        add_norm(m, layer, s->xielu ? "attention_layernorm" : "input_layernorm", s->hidden);
    if (s->norms == TINY_SANDWICH) add_norm(m, layer, "pre_feedforward_layernorm", s->hidden);
    if (s->norms != TINY_PRE) add_norm(m, layer, "post_feedforward_layernorm", s->hidden);
    if (!s->plain_mlp) add_norm(m, layer, mlp_norm_of(s), s->hidden);
    if (s->fused) {
        add_linear(m, attn, "qkv_proj", q + 2 * kv, s->hidden, false);
    } else if (is_delta(s, index)) {
        add_delta(m, layer);
    } else if (s->kept || s->latent) {
        add_latent(m, index, attn);
    } else if (convolves(s, index)) {
        add_convolution(m, layer);
    } else {
        add_linear(m, attn, "q_proj", s->delta ? 2 * q : q, s->hidden, s->qkv_bias);
        if (!reads_keys(s, index)) {
            add_linear(m, attn, "k_proj", kv, s->hidden, s->qkv_bias);
            add_linear(m, attn, "v_proj", kv, s->hidden, s->qkv_bias);
        }
    }
    bool plain = !is_delta(s, index) && !convolves(s, index);
    if (plain && !s->kept && !s->latent)
        add_linear(m, attn, s->plain_mlp ? "dense" : "o_proj", s->hidden, q, s->all_bias);
    if (s->qk_norm && plain) {
        add_norm(m, attn, q_norm_of(s), s->full_qk_norm ? q : s->head_dim);
        if (!reads_keys(s, index))
            add_norm(m, attn, k_norm_of(s), s->full_qk_norm ? kv : s->head_dim);
    }
    if (s->relu2) add_norm(m, attn, "attn_sub_norm", q);
    if (s->relu2) add_norm(m, mlp, "ffn_sub_norm", s->width);
    if (s->chunk && has_experts(s, index)) {
        add_chunk_experts(m, mlp);
    } else if (has_experts(s, index)) {
        add_experts(m, layer);
    } else if (s->plain_mlp) {
        add_linear(m, mlp, "fc1", s->width, s->hidden, true);
        add_linear(m, mlp, "fc2", s->hidden, s->width, true);
    } else if (s->xielu) {
        add_linear(m, mlp, "up_proj", s->width, s->hidden, false);
        add_linear(m, mlp, "down_proj", s->hidden, s->width, false);
        add_number(m, mlp, "act_fn.alpha_p", 0.3);
        add_number(m, mlp, "act_fn.alpha_n", -0.4);
        add_number(m, mlp, "act_fn.beta", 0.6);
        add_number(m, mlp, "act_fn.eps", -0.05);
    } else if (s->fused) {
        add_linear(m, mlp, "gate_up_proj", 2 * s->width, s->hidden, false);
        add_linear(m, mlp, "down_proj", s->hidden, s->width, false);
    } else {
        int width = width_of(s, index);
        add_linear(m, mlp, "gate_proj", width, s->hidden, s->all_bias);
        add_linear(m, mlp, "up_proj", width, s->hidden, s->all_bias);
        add_linear(m, mlp, "down_proj", s->hidden, width, s->all_bias);
    }
    if (s->streams) add_streams(m, layer);
}

static void add_layer(tiny_model *m, int index)
{
    char layer[40];
    snprintf(layer, sizeof layer, "model.layers.%d", index);
    add_layer_as(m, index, layer);
}

static bool has_head(const tiny_shape *s)
{
    return (s->sigmoid && !s->halves && !s->family) || s->delta || s->mimo;
}

/* A head's layer follows the others, or has a name of its own. */
static void add_head(tiny_model *m)
{
    const tiny_shape *s = &m->shape;
    char layer[40];
    if (s->mimo) {
        const char *head = "model.mtp_layers.0";
        add_norm(m, head, "token_layernorm", s->hidden);
        add_norm(m, head, "hidden_layernorm", s->hidden);
        add_linear(m, head, "input_proj", s->hidden, 2 * s->hidden, false);
        add_norm(m, head, "final_layernorm", s->hidden);
        add_layer_as(m, s->layers, head);
        return;
    }
    if (s->delta) {
        add_norm(m, "mtp", "pre_fc_norm_embedding", s->hidden);
        add_norm(m, "mtp", "pre_fc_norm_hidden", s->hidden);
        add_linear(m, "mtp", "fc", s->hidden, 2 * s->hidden, false);
        add_norm(m, "mtp", "norm", s->hidden);
        add_layer_as(m, s->layers, "mtp.layers.0");
        return;
    }
    snprintf(layer, sizeof layer, "model.layers.%d", s->layers);
    add_norm(m, layer, "enorm", s->hidden);
    add_norm(m, layer, "hnorm", s->hidden);
    add_linear(m, layer, "eh_proj", s->hidden, 2 * s->hidden, false);
    add_norm(m, layer, "shared_head.norm", s->hidden);
    add_layer(m, s->layers);
}

void tiny_make(tiny_model *m, const tiny_shape *shape, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->shape = *shape;
    random_state = seed;
    add(m, "model.embed_tokens.weight", shape->vocab, shape->hidden, 0);
    if (shape->streams) add_stream_ends(m);
    for (int i = 0; i < shape->layers; i++) add_layer(m, i);
    if (has_head(shape)) add_head(m);
    add_norm(m, "model", final_norm_of(shape), shape->hidden);
    if (!shape->tied) add(m, "lm_head.weight", shape->vocab, shape->hidden, 0);
    if (shape->plain_mlp || shape->mixer > 0) add(m, "lm_head.bias", shape->vocab, 0, 0);
}

tiny_tensor *tiny_get(tiny_model *m, const char *name)
{
    char own[128];
    spell(m, name, own);
    for (int i = 0; i < m->tensor_count; i++)
        if (strcmp(m->tensors[i].name, own) == 0) return &m->tensors[i];
    return NULL;
}

/* ---- files -------------------------------------------------------------------------------- */

/* Rounds to FP16, ties to even: steps of 2^-24 below 2^-14 (subnormals), 1024 per binade above.
 * Finite values only. */
static float round_half(float x)
{
    int exponent;
    frexpf(x, &exponent);
    float step = ldexpf(1, (exponent < -13 ? -13 : exponent) - 11);
    return rintf(x / step) * step;
}

static uint16_t half_of(float x)
{
    float y = fabsf(round_half(x));
    int exponent, sign = signbit(x) ? 0x8000 : 0;
    if (y < 0x1p-14f) return (uint16_t)(sign | (int)(y * 0x1p24f));
    float fraction = frexpf(y, &exponent); /* in [1/2, 1) */
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)(fraction * 2048) - 1024));
}

static uint16_t bfloat_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of_bfloat(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static FILE *create(const tiny_model *m, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", m->folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    return f;
}

static void write_rope(FILE *f, const tiny_shape *s)
{
    int pairs = (int)(s->head_dim * (s->partial > 0 ? s->partial : 1)) / 2;
    fprintf(f, "\"rope_theta\": %g, \"rope_scaling\": ", theta);
    if (strcmp(s->rope, "linear") == 0)
        fprintf(f, "{\"rope_type\": \"linear\", \"factor\": %g}", factor);
    else if (strcmp(s->rope, "llama3") == 0)
        fprintf(f,
                "{\"rope_type\": \"llama3\", \"factor\": %g, \"low_freq_factor\": 1, "
                "\"high_freq_factor\": 4, \"original_max_position_embeddings\": %d}",
                factor, ORIGINAL);
    else if (strcmp(s->rope, "yarn") == 0)
        fprintf(f,
                "{\"rope_type\": \"yarn\", \"factor\": %g, \"beta_fast\": %g, \"beta_slow\": %g, "
                "\"original_max_position_embeddings\": %d}",
                factor, beta_fast, beta_slow, ORIGINAL);
    else if (strcmp(s->rope, "longrope") == 0) {
        fprintf(f, "{\"type\": \"longrope\", \"short_factor\": [");
        for (int i = 0; i < pairs; i++) fprintf(f, "%s%g", i ? "," : "", 1 + 0.1 * i);
        fprintf(f, "], \"long_factor\": [");
        for (int i = 0; i < pairs; i++) fprintf(f, "%s%g", i ? "," : "", 2 + 0.5 * i);
        fprintf(f, "]}, \"original_max_position_embeddings\": %d", ORIGINAL);
    } else
        fprintf(f, "null");
}

static const char *hidden_act(const tiny_shape *s)
{
    return s->plain_mlp ? "gelu_new" : s->xielu ? "xielu" : s->relu2 ? "relu2" : "silu";
}

static void write_falcon(FILE *f, const tiny_shape *s)
{
    const double *p = parts_in;
    fprintf(f,
            "\"mamba_d_ssm\": %d, \"mamba_n_heads\": %d, \"mamba_d_head\": \"auto\", "
            "\"mamba_n_groups\": %d, \"mamba_d_state\": %d, \"mamba_d_conv\": %d, "
            "\"mamba_proj_bias\": %s, \"projectors_bias\": %s, \"mamba_rms_norm\": %s, "
            "\"mamba_norm_before_gate\": false, ",
            VALUES, SCANS, GROUPS, STATE, KERNEL, s->all_bias ? "true" : "false",
            s->all_bias ? "true" : "false", s->multiplied ? "true" : "false");
    if (!s->multiplied) {
        fprintf(f, "\"time_step_limit\": [%g, %g], ", least_step, most_step);
        return;
    }
    fprintf(f,
            "\"time_step_limit\": [0.0, {\"__float__\": \"Infinity\"}], "
            "\"attention_in_multiplier\": %g, \"attention_out_multiplier\": %g, "
            "\"key_multiplier\": %g, \"ssm_in_multiplier\": %g, \"ssm_out_multiplier\": %g, "
            "\"ssm_multipliers\": [%g, %g, %g, %g, %g], \"mlp_multipliers\": [%g, %g], "
            "\"embedding_multiplier\": %g, \"lm_head_multiplier\": %g, ",
            attention_in, attention_out, key_factor, ssm_in, ssm_out, p[0], p[1], p[2], p[3], p[4],
            gate_factor, down_factor, embedded_by, head_factor);
}

static void write_llama4(FILE *f, const tiny_shape *s)
{
    fprintf(f,
            "\"attention_chunk_size\": %d, \"interleave_moe_layer_step\": 2, "
            "\"num_local_experts\": %d, \"num_experts_per_tok\": %d, "
            "\"intermediate_size_mlp\": %d, \"no_rope_layers\": [], ",
            s->chunk, s->experts, s->chosen, s->width);
    if (s->query_period)
        fprintf(f, "\"floor_scale\": %d, \"attn_scale\": 0.5, \"use_qk_norm\": false, ",
                s->query_period);
}

/* What only Gemma 3n has, and lists of what differs between its layers. */
static void write_streams(FILE *f, const tiny_shape *s)
{
    fprintf(f,
            "\"altup_num_inputs\": %d, \"altup_active_idx\": %d, \"laurel_rank\": %d, "
            "\"hidden_size_per_layer_input\": %d, \"vocab_size_per_layer_input\": %d, "
            "\"num_kv_shared_layers\": %d, \"final_logit_softcapping\": %g, "
            "\"rope_local_base_freq\": %g, \"layer_types\": [",
            s->streams, s->active, s->rank, s->token_vector, TOKEN_VECTORS, s->readers,
            s->logit_cap, window_theta);
    for (int i = 0; i < s->layers; i++)
        fprintf(f, "%s\"%s_attention\"", i ? "," : "",
                (i + 1) % s->full_every == 0 ? "full" : "sliding");
    fprintf(f, "], \"activation_sparsity_pattern\": [");
    for (int i = 0; i < s->layers; i++) fprintf(f, "%s%g", i ? "," : "", i < 2 ? cut_shares[i] : 0);
    fprintf(f, "], \"intermediate_size\": [");
    for (int i = 0; i < s->layers; i++) fprintf(f, "%s%d", i ? "," : "", width_of(s, i));
    fprintf(f, "], ");
}

static void write_family(FILE *f, const tiny_shape *s)
{
    if (s->family == TINY_GRANITE)
        fprintf(f, "\"num_local_experts\": %d, \"num_experts_per_tok\": %d, ", s->experts,
                s->chosen);
    if (s->family == TINY_GRANITE && s->shared_width)
        fprintf(f, "\"shared_intermediate_size\": %d, ", s->shared_width);
    if (s->family == TINY_HUNYUAN)
        fprintf(f,
                "\"num_experts\": %d, \"moe_topk\": [%d, %d], "
                "\"moe_intermediate_size\": [%d, %d], \"num_shared_expert\": [1, 1], ",
                s->experts, s->chosen, s->last_chosen ? s->last_chosen : s->chosen, s->expert_width,
                s->expert_width);
    if (s->convolves)
        fprintf(f,
                "\"conv_bias\": true, \"conv_L_cache\": %d, \"block_auto_adjust_ff_dim\": false, "
                "\"layer_types\": [\"conv\", \"full_attention\", \"conv\"], ",
                KERNEL);
    else if (s->family == TINY_LFM2)
        fprintf(f,
                "\"num_experts\": %d, \"num_experts_per_tok\": %d, "
                "\"moe_intermediate_size\": %d, \"num_dense_layers\": 1, "
                "\"layer_types\": [\"full_attention\", \"full_attention\"], ",
                s->experts, s->chosen, s->expert_width);
}

static void write_sparse(FILE *f, const tiny_shape *s)
{
    fprintf(f,
            "\"q_lora_rank\": %d, \"kv_lora_rank\": %d, \"qk_nope_head_dim\": %d, "
            "\"qk_rope_head_dim\": %d, \"v_head_dim\": %d, \"index_n_heads\": %d, "
            "\"index_head_dim\": %d, \"index_topk\": %d, ",
            LOW_RANK, LATENT_RANK, LATENT_PLAIN, LATENT_ROTATED, LATENT_VALUE, INDEX_HEADS,
            INDEX_DIM, s->kept);
    if (s->latent) fprintf(f, "\"rope_interleave\": false, ");
    if (s->shares) fprintf(f, "\"index_topk_freq\": 2, \"index_skip_topk_offset\": 2, ");
}

/* A configuration of its own, without attention and blocks. */
static void write_scans(FILE *f, const tiny_shape *s)
{
    fprintf(f,
            "{\"architectures\": [\"%s\"], \"hidden_size\": %d, \"num_hidden_layers\": %d, "
            "\"vocab_size\": %d, \"num_heads\": %d, \"head_dim\": %d, \"n_groups\": %d, "
            "\"state_size\": %d, \"conv_kernel\": %d, \"expand\": %d, \"use_bias\": %s, "
            "\"layer_norm_epsilon\": 1e-5, \"time_step_limit\": [0.0, Infinity], "
            "\"tie_word_embeddings\": %s, \"eos_token_id\": 1, \"bos_token_id\": 0}\n",
            s->architecture, s->hidden, s->layers, s->vocab, SCANS, SCAN_DIM, GROUPS, STATE, KERNEL,
            VALUES / s->hidden, s->all_bias ? "true" : "false", s->tied ? "true" : "false");
}

static void write_config(const tiny_model *m)
{
    const tiny_shape *s = &m->shape;
    FILE *f = create(m, "config.json");
    if (s->scans) {
        write_scans(f, s);
        fclose(f);
        return;
    }
    fprintf(f,
            "{\"architectures\": [\"%s\"], \"hidden_size\": %d, \"num_hidden_layers\": %d, "
            "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
            "\"%s\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d, "
            "\"%s\": 1e-5, \"hidden_act\": \"%s\", \"eos_token_id\": 1, \"bos_token_id\": 0, "
            "\"tie_word_embeddings\": %s, \"attention_bias\": %s, \"mlp_bias\": %s, ",
            s->architecture, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim,
            s->streams ? "unused_size" : "intermediate_size",
            s->mixtral || s->chunk || s->family == TINY_GRANITE ? s->expert_width : s->width,
            s->vocab, CONTEXT,
            s->plain_mlp             ? "layer_norm_eps"
            : s->halves              ? "layer_norm_epsilon"
            : s->family == TINY_LFM2 ? "norm_eps"
                                     : "rms_norm_eps",
            hidden_act(s), s->tied ? "true" : "false", s->all_bias ? "true" : "false",
            s->all_bias ? "true" : "false");
    if (s->halves)
        fprintf(f, "\"hybrid_override_pattern\": \"*%c*-*\", \"mlp_hidden_act\": \"relu2\", ",
                s->experts ? 'E' : '-');
    if (s->beside) write_falcon(f, s);
    if (s->chunk) write_llama4(f, s);
    if (s->mixer > 0) fprintf(f, "\"router_jitter_noise\": %g, \"lm_head_bias\": true, ", s->mixer);
    if (s->delta)
        fprintf(f,
                "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, "
                "\"linear_key_head_dim\": %d, \"linear_value_head_dim\": %d, "
                "\"linear_conv_kernel_dim\": %d, \"full_attention_interval\": 4, ",
                DELTA_KEY_HEADS, DELTA_HEADS, DELTA_KEY, DELTA_VALUE, DELTA_KERNEL);
    if (s->streams) write_streams(f, s);
    if (s->kept || s->latent) write_sparse(f, s);
    if (s->plain_mlp && s->qk_norm) fprintf(f, "\"qk_layernorm\": true, ");
    if (s->window) fprintf(f, "\"sliding_window\": %d, ", s->window);
    if (s->residual_scale > 0)
        fprintf(f,
                "\"embedding_multiplier\": 1.5, \"residual_multiplier\": %g, "
                "\"logits_scaling\": %g, \"attention_multiplier\": %g, ",
                s->residual_scale, s->logit_scale, s->score_scale);
    if (s->gemma)
        fprintf(f,
                "\"query_pre_attn_scalar\": %g, \"attn_logit_softcapping\": %g, "
                "\"final_logit_softcapping\": %g, ",
                1 / (s->score_scale * s->score_scale), s->score_cap, s->logit_cap);
    if (s->unrotated_every) fprintf(f, "\"no_rope_layer_interval\": %d, ", s->unrotated_every);
    if (s->partial > 0) fprintf(f, "\"partial_rotary_factor\": %g, ", s->partial);
    if (s->family) write_family(f, s);
    if (s->experts && !s->chunk && !s->family) {
        fprintf(f, "\"%s\": %d, \"num_experts_per_tok\": %d, \"norm_topk_prob\": %s, ",
                s->mixtral   ? "num_local_experts"
                : s->sigmoid ? "n_routed_experts"
                             : "num_experts",
                s->experts, s->chosen, s->renormalise ? "true" : "false");
        if (!s->mixtral) fprintf(f, "\"moe_intermediate_size\": %d, ", s->expert_width);
        if (s->expert_latent) fprintf(f, "\"moe_latent_size\": %d, ", s->expert_latent);
        if (s->halves)
            fprintf(f,
                    "\"moe_shared_expert_intermediate_size\": %d, \"routed_scaling_factor\": %g, ",
                    s->shared_width, s->routed_scale);
        else if (s->sigmoid)
            fprintf(f,
                    "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"n_group\": 1, "
                    "\"topk_group\": 1, \"use_qk_norm\": true, \"num_nextn_predict_layers\": 1, "
                    "\"routed_scaling_factor\": %g, ",
                    s->routed_scale);
        else if (s->shared_width)
            fprintf(f, "\"shared_expert_intermediate_size\": %d, ", s->shared_width);
        if (s->dense_layer >= 0 && !s->sigmoid)
            fprintf(f, "\"mlp_only_layers\": [%d], ", s->dense_layer);
    }
    write_rope(f, s);
    fprintf(f, "}\n");
    fclose(f);
}

static void write_values(FILE *f, tiny_tensor *t, tiny_type type)
{
    for (size_t i = 0; i < t->count; i++) {
        uint16_t bits;
        if (type == TINY_F32) {
            fwrite(&t->values[i], sizeof(float), 1, f);
            continue;
        }
        bits = type == TINY_BF16 ? bfloat_of(t->values[i]) : half_of(t->values[i]);
        t->values[i] = type == TINY_BF16 ? float_of_bfloat(bits) : round_half(t->values[i]);
        fwrite(&bits, sizeof bits, 1, f);
    }
}

static void write_weights(tiny_model *m, tiny_type type)
{
    static const char *const names[] = {"F32", "BF16", "F16"};
    size_t size = type == TINY_F32 ? 4 : 2, offset = 0, used = 0, room = 1 << 17;
    char *header = malloc(room);
    used += (size_t)snprintf(header, room, "{");
    for (int i = 0; i < m->tensor_count; i++) {
        const tiny_tensor *t = &m->tensors[i];
        used +=
            (size_t)snprintf(header + used, room - used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                             i ? "," : "", t->name, names[type]);
        for (int k = 0; k < t->rank; k++)
            used += (size_t)snprintf(header + used, room - used, "%s%d", k ? "," : "", t->shape[k]);
        used += (size_t)snprintf(header + used, room - used, "],\"data_offsets\":[%zu,%zu]}",
                                 offset, offset + t->count * size);
        offset += t->count * size;
    }
    used += (size_t)snprintf(header + used, room - used, "}");
    while (used % 8) header[used++] = ' ';
    uint64_t length = used;
    FILE *f = create(m, "model.safetensors");
    fwrite(&length, sizeof length, 1, f);
    fwrite(header, 1, used, f);
    for (int i = 0; i < m->tensor_count; i++) write_values(f, &m->tensors[i], type);
    fclose(f);
    free(header);
}

void tiny_write(tiny_model *m, tiny_type type)
{
    snprintf(m->folder, sizeof m->folder, "/tmp/perjoule-tiny-XXXXXX");
    if (!mkdtemp(m->folder)) abort();
    write_config(m);
    write_weights(m, type);
}

void tiny_free(tiny_model *m)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[128];
    for (int i = 0; i < m->tensor_count; i++) free(m->tensors[i].values);
    m->tensor_count = 0;
    if (!m->folder[0]) return;
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", m->folder, files[i]);
        unlink(path);
    }
    rmdir(m->folder);
    m->folder[0] = 0;
}

/* ---- quantisation ------------------------------------------------------------------------- */

static void quantise_block(float *x, int bits)
{
    float largest = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    float d = bits == 8 ? fabsf(largest) / 127 : largest / -8, inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) {
        float q = bits == 8 ? roundf(x[i] * inverse) : fminf(15, truncf(x[i] * inverse + 8.5f)) - 8;
        x[i] = q * round_half(d);
    }
}

void tiny_quantise(tiny_model *m, int bits)
{
    for (int i = 0; i < m->tensor_count; i++) {
        tiny_tensor *t = &m->tensors[i];
        if (t->rank < 2 || t->shape[t->rank - 1] % 32) continue;
        bool table = strstr(t->name, "embed") || strstr(t->name, "lm_head");
        for (size_t at = 0; at < t->count; at += 32)
            quantise_block(t->values + at, table ? 8 : bits);
    }
}

/* ---- the forward pass --------------------------------------------------------------------- */

typedef struct walk {
    tiny_model *m;
    const tiny_shape *s;
    int count; /* tokens */
    tiny_capture *captures;
    int capture_count;
    int layer;
    double *keys[2], *values[2]; /* of the last layer of either kind that has some */
    /* Keys that each token sees, by the last indexer. */
    bool seen[TINY_MAX_TOKENS][TINY_MAX_TOKENS];
} walk;

static double *zeros(size_t n)
{
    double *x = calloc(n, sizeof *x);
    if (!x) abort();
    return x;
}

static void capture(walk *w, const char *component, const double *x, size_t n)
{
    for (int i = 0; i < w->capture_count && w->layer == 0; i++) {
        tiny_capture *c = &w->captures[i];
        if (strcmp(c->component, component) != 0) continue;
        double sum = 0, abs_sum = 0, square = 0, below = 0;
        for (size_t k = 0; k < n; k++) {
            sum += x[k];
            abs_sum += fabs(x[k]);
            square += x[k] * x[k];
            c->max_abs = fmax(c->max_abs, fabs(x[k]));
            below += fabs(x[k]) < 0.01;
        }
        c->count = n;
        c->mean = sum / (double)n;
        c->mean_abs = abs_sum / (double)n;
        c->std = sqrt(square / (double)n - c->mean * c->mean);
        c->sparsity = below / (double)n;
    }
}

static const tiny_tensor *tensor(walk *w, const char *format, const char *part)
{
    char name[160];
    if (w->layer == w->s->layers && w->s->delta)
        snprintf(name, sizeof name, "mtp.layers.0.%s.%s", part, format);
    else if (w->layer == w->s->layers && w->s->mimo)
        snprintf(name, sizeof name, "model.mtp_layers.0.%s.%s", part, format);
    else if (w->layer >= 0)
        snprintf(name, sizeof name, "model.layers.%d.%s.%s", w->layer, part, format);
    else
        snprintf(name, sizeof name, "%s.%s", part, format);
    return tiny_get(w->m, name);
}

/* y[count][rows] = x[count][cols] times rows [first, first + rows) of a matrix, plus bias. */
static double *linear(walk *w, const char *part, const double *x, int count, int first, int rows)
{
    const tiny_tensor *weight = tensor(w, "weight", part), *bias = tensor(w, "bias", part);
    if (!weight) abort();
    int cols = weight->shape[1];
    if (rows == 0) rows = weight->shape[0];
    double *y = zeros((size_t)count * (size_t)rows);
    for (int t = 0; t < count; t++)
        for (int r = 0; r < rows; r++) {
            double sum = bias ? bias->values[first + r] : 0;
            for (int c = 0; c < cols; c++)
                sum += (double)weight->values[(size_t)(first + r) * (size_t)cols + (size_t)c] *
                       x[t * cols + c];
            y[t * rows + r] = sum;
        }
    return y;
}

static double *norm_by(walk *w, const char *part, const double *x, int rows, int n, double eps)
{
    const tiny_tensor *weight = tensor(w, "weight", part), *bias = tensor(w, "bias", part);
    double *y = zeros((size_t)rows * (size_t)n);
    for (int t = 0; t < rows; t++) {
        double mean = 0, square = 0;
        for (int i = 0; i < n; i++) mean += x[t * n + i] / n;
        if (!bias) mean = 0; /* RMSNorm does not centre */
        for (int i = 0; i < n; i++) square += (x[t * n + i] - mean) * (x[t * n + i] - mean) / n;
        for (int i = 0; i < n; i++)
            y[t * n + i] = (x[t * n + i] - mean) / sqrt(square + eps) *
                               (weight->values[i] + (w->s->gemma || w->s->delta ? 1.0 : 0.0)) +
                           (bias ? bias->values[i] : 0);
    }
    return y;
}

static double *norm(walk *w, const char *part, const double *x, int rows, int n)
{
    return norm_by(w, part, x, rows, n, 1e-5);
}

/* Frequency of pair i of `pairs`, and the factor on cosine and sine, for `length` tokens. */
static double frequency(const tiny_shape *s, double base, int i, int pairs, int length,
                        double *scale)
{
    double f = pow(base, -(double)i / pairs);
    *scale = 1;
    if (strcmp(s->rope, "linear") == 0) return f / factor;
    if (strcmp(s->rope, "llama3") == 0) {
        double wavelength = 2 * M_PI / f;
        if (wavelength > ORIGINAL / 1.0) return f / factor;
        if (wavelength < ORIGINAL / 4.0) return f;
        double smooth = (ORIGINAL / wavelength - 1) / (4 - 1);
        return (1 - smooth) * f / factor + smooth * f;
    }
    if (strcmp(s->rope, "yarn") == 0) {
        double dims = 2.0 * pairs;
        double low = floor(dims * log(ORIGINAL / (beta_fast * 2 * M_PI)) / (2 * log(theta)));
        double high = ceil(dims * log(ORIGINAL / (beta_slow * 2 * M_PI)) / (2 * log(theta)));
        if (low < 0) low = 0;
        if (high > dims - 1) high = dims - 1;
        double ramp = (i - low) / (high == low ? 0.001 : high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        *scale = 0.1 * log(factor) + 1;
        return f * (1 - ramp) + f / factor * ramp;
    }
    if (strcmp(s->rope, "longrope") == 0) {
        *scale = sqrt(1 + log((double)CONTEXT / ORIGINAL) / log(ORIGINAL));
        return f / (length > ORIGINAL ? 2 + 0.5 * i : 1 + 0.1 * i);
    }
    return f;
}

static void rotate(const tiny_shape *s, double base, double *x, int position, int length)
{
    int pairs = (int)(s->head_dim * (s->partial > 0 ? s->partial : 1)) / 2;
    for (int i = 0; i < pairs; i++) {
        double scale, f = frequency(s, base, i, pairs, length, &scale);
        double c = cos(position * f) * scale, n = sin(position * f) * scale;
        double *first = s->chunk ? x + 2 * i : x + i, *second = first + (s->chunk ? 1 : pairs);
        double a = *first, b = *second;
        *first = a * c - b * n;
        *second = b * c + a * n;
    }
}

static void heads_norm(walk *w, const char *part, double **x, int heads)
{
    int together = w->s->full_qk_norm ? heads : 1;
    double *y = norm(w, part, *x, w->count * heads / together, w->s->head_dim * together);
    free(*x);
    *x = y;
}

/* Without weights, by heads. */
static void plain_norm(double *x, int heads, int dim)
{
    for (int h = 0; h < heads; h++, x += dim) {
        double square = 0;
        for (int i = 0; i < dim; i++) square += x[i] * x[i] / dim;
        for (int i = 0; i < dim; i++) x[i] /= sqrt(square + 1e-5);
    }
}

static void norm_queries(walk *w, double **q, double **k)
{
    char name[64];
    if (!w->s->qk_norm) return;
    snprintf(name, sizeof name, "self_attn.%s", q_norm_of(w->s));
    heads_norm(w, name, q, w->s->heads);
    snprintf(name, sizeof name, "self_attn.%s", k_norm_of(w->s));
    heads_norm(w, name, k, w->s->kv_heads);
    capture(w, q_norm_of(w->s), *q, (size_t)(w->count * w->s->heads * w->s->head_dim));
}

static double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* Whether a layer rotates queries and keys. */
static bool rotates_at(const tiny_shape *s, int layer)
{
    return !s->halves && (!s->unrotated_every || (layer + 1) % s->unrotated_every != 0);
}

/* Attention of all heads: softmax of scores of the keys within the window, times values. */
static double *attend(walk *w, const double *q, const double *k, const double *v, int window)
{
    const tiny_shape *s = w->s;
    int dim = s->head_dim, nq = s->heads * dim, nkv = s->kv_heads * dim, n = w->count;
    double scale = s->score_scale > 0 ? s->score_scale : 1 / sqrt(dim);
    double *y = zeros((size_t)(n * nq));
    for (int t = 0; t < n; t++)
        for (int h = 0; h < s->heads; h++) {
            int kv = h / (s->heads / s->kv_heads);
            int first = window && t + 1 > window ? t + 1 - window : 0;
            if (s->chunk && rotates_at(s, w->layer)) first = t / s->chunk * s->chunk;
            double p[TINY_MAX_TOKENS], sum = 0;
            for (int j = first; j <= t; j++) {
                double score = 0;
                for (int i = 0; i < dim; i++)
                    score += q[t * nq + h * dim + i] * k[j * nkv + kv * dim + i];
                p[j] = exp(capped(score * scale, s->score_cap));
                sum += p[j];
            }
            for (int j = first; j <= t; j++)
                for (int i = 0; i < dim; i++)
                    y[t * nq + h * dim + i] += p[j] / sum * v[j * nkv + kv * dim + i];
        }
    capture(w, "attention", y, (size_t)(n * nq));
    return y;
}

/* ---- latent attention of chosen keys ---- */

/* Rotates the first columns of x, as many as there are in the rotated part. */
static void rotate_part(double *x, int position, bool neighbours)
{
    enum { PAIRS = LATENT_ROTATED / 2 };
    for (int i = 0; i < PAIRS; i++) {
        double f = position * pow(theta, -(double)i / PAIRS), c = cos(f), n = sin(f);
        double *first = x + (neighbours ? 2 * i : i), *second = first + (neighbours ? 1 : PAIRS);
        double a = *first, b = *second;
        *first = a * c - b * n;
        *second = b * c + a * n;
    }
}

/* Of the keys up to a token's own, the `kept` with the largest scores, the earlier of equal ones.
 */
static void see_best(walk *w, int token, const double *scores)
{
    bool *seen = w->seen[token];
    memset(seen, 0, sizeof w->seen[token]);
    for (int k = 0; k < w->s->kept && k <= token; k++) {
        int best = -1;
        for (int j = 0; j <= token; j++)
            if (!seen[j] && (best < 0 || scores[j] > scores[best])) best = j;
        seen[best] = true;
    }
}

static void choose(walk *w, const double *x, const double *low)
{
    int n = w->count, dim = INDEX_DIM;
    const char *indexer = "self_attn.indexer";
    char name[64];
    snprintf(name, sizeof name, "%s.wq_b", indexer);
    double *q = linear(w, name, low, n, 0, 0);
    snprintf(name, sizeof name, "%s.wk", indexer);
    double *wide = linear(w, name, x, n, 0, 0);
    snprintf(name, sizeof name, "%s.k_norm", indexer);
    double *k = norm_by(w, name, wide, n, dim, 1e-6);
    snprintf(name, sizeof name, "%s.weights_proj", indexer);
    double *weights = linear(w, name, x, n, 0, 0);
    for (int i = 0; i < n * INDEX_HEADS; i++)
        rotate_part(q + i * dim, i / INDEX_HEADS, w->s->shares);
    for (int t = 0; t < n; t++) rotate_part(k + t * dim, t, w->s->shares);
    for (int t = 0; t < n; t++) {
        double scores[TINY_MAX_TOKENS] = {0};
        for (int j = 0; j <= t; j++)
            for (int h = 0; h < INDEX_HEADS; h++) {
                double product = 0;
                for (int i = 0; i < dim; i++)
                    product += q[(t * INDEX_HEADS + h) * dim + i] * k[j * dim + i];
                scores[j] +=
                    weights[t * INDEX_HEADS + h] / sqrt(INDEX_HEADS) * fmax(product / sqrt(dim), 0);
            }
        see_best(w, t, scores);
    }
    free(q);
    free(wide);
    free(k);
    free(weights);
}

/* One head of one token over the keys that it sees. */
static void attend_seen(const walk *w, int token, const double *q, const double *kv,
                        const double *shared, double *y)
{
    const int each = LATENT_PLAIN + LATENT_VALUE, step = w->s->heads * each;
    double p[TINY_MAX_TOKENS], sum = 0;
    for (int j = 0; j <= token; j++) {
        double score = 0;
        for (int i = 0; i < LATENT_PLAIN; i++) score += q[i] * kv[j * step + i];
        for (int i = 0; i < LATENT_ROTATED; i++)
            score += q[LATENT_PLAIN + i] * shared[j * LATENT_ROTATED + i];
        p[j] = w->seen[token][j] ? exp(score / sqrt(w->s->head_dim)) : 0;
        sum += p[j];
    }
    for (int j = 0; j <= token; j++)
        for (int i = 0; i < LATENT_VALUE; i++) y[i] += p[j] / sum * kv[j * step + LATENT_PLAIN + i];
}

static double *sparse_attention(walk *w, const double *x)
{
    const tiny_shape *s = w->s;
    int n = w->count, wide = LATENT_RANK + LATENT_ROTATED, each = LATENT_PLAIN + LATENT_VALUE;
    double *compressed = linear(w, "self_attn.q_a_proj", x, n, 0, 0);
    double *low = norm_by(w, "self_attn.q_a_layernorm", compressed, n, LOW_RANK, 1e-6);
    double *q = linear(w, "self_attn.q_b_proj", low, n, 0, 0);
    double *both = linear(w, "self_attn.kv_a_proj_with_mqa", x, n, 0, 0);
    double *first = zeros((size_t)(n * LATENT_RANK)), *shared = zeros((size_t)(n * LATENT_ROTATED));
    for (int t = 0; t < n; t++) {
        memcpy(first + t * LATENT_RANK, both + t * wide, LATENT_RANK * sizeof *first);
        memcpy(shared + t * LATENT_ROTATED, both + t * wide + LATENT_RANK,
               LATENT_ROTATED * sizeof *shared);
        rotate_part(shared + t * LATENT_ROTATED, t, !s->latent);
        for (int h = 0; h < s->heads; h++)
            rotate_part(q + (t * s->heads + h) * s->head_dim + LATENT_PLAIN, t, !s->latent);
    }
    double *latent = norm_by(w, "self_attn.kv_a_layernorm", first, n, LATENT_RANK, 1e-6);
    double *kv = linear(w, "self_attn.kv_b_proj", latent, n, 0, 0);
    if (has_indexer(s, w->layer)) choose(w, x, low);
    if (s->latent) memset(w->seen, true, sizeof w->seen);
    double *y = zeros((size_t)(n * s->heads * LATENT_VALUE));
    for (int t = 0; t < n; t++)
        for (int h = 0; h < s->heads; h++)
            attend_seen(w, t, q + (t * s->heads + h) * s->head_dim, kv + h * each, shared,
                        y + (t * s->heads + h) * LATENT_VALUE);
    double *out = linear(w, "self_attn.o_proj", y, n, 0, 0);
    free(compressed);
    free(low);
    free(q);
    free(both);
    free(first);
    free(shared);
    free(latent);
    free(kv);
    free(y);
    return out;
}

/* Queries and output gates alternate by head: returns the gates, leaves the queries. */
static double *split_gates(const tiny_shape *s, double **q, int count)
{
    int dim = s->head_dim, n = count * s->heads * dim;
    double *queries = zeros((size_t)n), *gates = zeros((size_t)n);
    for (int i = 0; i < n; i++) {
        queries[i] = (*q)[i / dim * 2 * dim + i % dim];
        gates[i] = (*q)[(i / dim * 2 + 1) * dim + i % dim];
    }
    free(*q);
    *q = queries;
    return gates;
}

static double *attention(walk *w, const double *x)
{
    const tiny_shape *s = w->s;
    int dim = s->head_dim, nq = s->heads * dim, nkv = s->kv_heads * dim, n = w->count;
    const char *fused = "self_attn.qkv_proj";
    const char *const parts[2][3] = {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                     {"mixer.q_proj", "mixer.k_proj", "mixer.v_proj"}};
    const char *const *part = parts[s->halves];
    double *scaled = zeros((size_t)(n * s->hidden));
    for (int i = 0; i < n * s->hidden; i++) scaled[i] = (s->multiplied ? attention_in : 1) * x[i];
    x = scaled;
    double *q = s->delta ? linear(w, part[0], x, n, 0, 0)
                         : linear(w, s->fused ? fused : part[0], x, n, 0, nq);
    double *gates = s->delta ? split_gates(s, &q, n) : NULL;
    double *k = linear(w, s->fused ? fused : part[1], x, n, s->fused ? nq : 0, nkv);
    double *v = linear(w, s->fused ? fused : part[2], x, n, s->fused ? nq + nkv : 0, nkv);
    capture(w, "q_proj", q, (size_t)(n * nq));
    capture(w, "v_proj", v, (size_t)(n * nkv));
    if (!s->rotated_norm) norm_queries(w, &q, &k);
    bool rotates = rotates_at(s, w->layer);
    int window = s->full_every && (w->layer + 1) % s->full_every == 0 ? 0 : s->window;
    for (int t = 0; t < n && rotates; t++) {
        for (int h = 0; h < s->heads; h++) rotate(s, theta, q + t * nq + h * dim, t, n);
        for (int h = 0; h < s->kv_heads; h++) rotate(s, theta, k + t * nkv + h * dim, t, n);
    }
    if (s->rotated_norm) norm_queries(w, &q, &k);
    if (s->chunk && rotates && !s->query_period) {
        plain_norm(q, n * s->heads, dim);
        plain_norm(k, n * s->kv_heads, dim);
    }
    for (int i = 0; s->query_period && !rotates && i < n * nq; i++)
        q[i] *= 1 + 0.5 * log(1 + floor((i / nq + 1.0) / s->query_period));
    for (int i = 0; s->multiplied && i < n * nkv; i++) k[i] *= key_factor;
    double *y = attend(w, q, k, v, window);
    for (int i = 0; gates && i < n * nq; i++) y[i] /= 1 + exp(-gates[i]);
    free(gates);
    if (s->relu2) {
        double *normed = norm(w, "self_attn.attn_sub_norm", y, n, nq);
        free(y);
        y = normed;
    }
    const char *output = s->plain_mlp ? "self_attn.dense"
                         : s->halves  ? "mixer.o_proj"
                                      : "self_attn.o_proj";
    double *out = linear(w, output, y, n, 0, 0);
    capture(w, "o_proj", out, (size_t)(n * s->hidden));
    for (int i = 0; s->multiplied && i < n * s->hidden; i++) out[i] *= attention_out;
    free(scaled);
    free(q);
    free(k);
    free(v);
    free(y);
    return out;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* `prefix` is "mlp", or an expert's; parts are named gate, up and down in this order. */
static double *gated(walk *w, const char *prefix, const char *const parts[3], const double *x,
                     int count)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", prefix, parts[0]);
    double *gate = linear(w, name, x, count, 0, 0);
    int width = tensor(w, "weight", name)->shape[0];
    snprintf(name, sizeof name, "%s.%s", prefix, parts[1]);
    double *up = linear(w, name, x, count, 0, 0);
    for (int i = 0; w->s->multiplied && i < count * width; i++) gate[i] *= gate_factor;
    for (int i = 0; i < count * width; i++)
        gate[i] = (w->s->gemma   ? gelu(gate[i])
                   : w->s->relu2 ? fmax(gate[i], 0) * fmax(gate[i], 0)
                                 : silu(gate[i])) *
                  up[i];
    bool dense = strcmp(prefix, block_of(w->s)) == 0;
    if (dense) capture(w, "act", gate, (size_t)(count * width));
    if (w->s->relu2) {
        double *normed = norm(w, "mlp.ffn_sub_norm", gate, count, width);
        free(gate);
        gate = normed;
    }
    snprintf(name, sizeof name, "%s.%s", prefix, parts[2]);
    double *y = linear(w, name, gate, count, 0, 0);
    if (dense) capture(w, "down_proj", y, (size_t)(count * w->s->hidden));
    for (int i = 0; w->s->multiplied && i < count * w->s->hidden; i++) y[i] *= down_factor;
    free(gate);
    free(up);
    return y;
}

static const char *const hugging_face[3] = {"gate_proj", "up_proj", "down_proj"};
static const char *const mixtral[3] = {"w1", "w3", "w2"};

static double *fused_mlp(walk *w, const char *prefix, int f, const double *x)
{
    char name[96];
    snprintf(name, sizeof name, "%s.gate_up_proj", prefix);
    double *gate = linear(w, name, x, w->count, 0, f);
    double *up = linear(w, name, x, w->count, f, f);
    for (int i = 0; i < w->count * f; i++) gate[i] = silu(gate[i]) * up[i];
    snprintf(name, sizeof name, "%s.down_proj", prefix);
    double *y = linear(w, name, gate, w->count, 0, 0);
    free(gate);
    free(up);
    return y;
}

static double xielu_number(walk *w, const char *name)
{
    return tensor(w, name, "mlp.act_fn")->values[0];
}

static double *xielu_mlp(walk *w, const double *x)
{
    double positive = log1p(exp(xielu_number(w, "alpha_p"))), beta = xielu_number(w, "beta");
    double negative = beta + log1p(exp(xielu_number(w, "alpha_n"))), eps = xielu_number(w, "eps");
    double *a = linear(w, "mlp.up_proj", x, w->count, 0, 0);
    for (int i = 0; i < w->count * w->s->width; i++) {
        double g = a[i];
        a[i] = beta * g + (g > 0 ? positive * g * g : negative * (expm1(fmin(g, eps)) - g));
    }
    capture(w, "act", a, (size_t)(w->count * w->s->width));
    double *y = linear(w, "mlp.down_proj", a, w->count, 0, 0);
    free(a);
    return y;
}

static double *squared_mlp(walk *w, const char *prefix, const double *x, int count)
{
    char name[96];
    snprintf(name, sizeof name, "%s.up_proj", prefix);
    double *a = linear(w, name, x, count, 0, 0);
    int width = tensor(w, "weight", name)->shape[0];
    for (int i = 0; i < count * width; i++) a[i] = fmax(a[i], 0) * fmax(a[i], 0);
    snprintf(name, sizeof name, "%s.down_proj", prefix);
    double *y = linear(w, name, a, count, 0, 0);
    free(a);
    return y;
}

static double *plain_mlp(walk *w, const double *x)
{
    double *a = linear(w, "mlp.fc1", x, w->count, 0, 0);
    for (int i = 0; i < w->count * w->s->width; i++) a[i] = gelu(a[i]);
    double *y = linear(w, "mlp.fc2", a, w->count, 0, 0);
    free(a);
    return y;
}

/* One expert of a tensor that holds all of them. */
static double *fused_expert(walk *w, int e, const double *x)
{
    const tiny_shape *s = w->s;
    int f = s->expert_width, d = s->hidden;
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", w->layer);
    const float *gate_up = tiny_get(w->m, name)->values + (size_t)e * 2 * (size_t)f * (size_t)d;
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", w->layer);
    const float *down = tiny_get(w->m, name)->values + (size_t)e * (size_t)d * (size_t)f;
    double *y = zeros((size_t)d), *a = zeros((size_t)f);
    for (int r = 0; r < f; r++) {
        double gate = 0, up = 0;
        for (int c = 0; c < d; c++) {
            gate += (double)gate_up[r * d + c] * x[c];
            up += (double)gate_up[(f + r) * d + c] * x[c];
        }
        a[r] = silu(gate) * up;
    }
    for (int r = 0; r < d; r++)
        for (int c = 0; c < f; c++) y[r] += (double)down[r * f + c] * a[c];
    free(a);
    return y;
}

/* Phi-3.5-MoE: the softmax over the experts that are left and within reach of the best of them. */
static double weight_in_reach(const tiny_shape *s, const double *logits, const bool *taken,
                              int best)
{
    double top = logits[best], sum = 0;
    for (int e = 0; e < s->experts; e++)
        if (!taken[e] && (top - logits[e]) / fmax(fabs(logits[e]), top) <= 2 * s->mixer)
            sum += exp(logits[e] - top);
    return 1 / sum;
}

static double *mixture(walk *w, const double *x)
{
    const tiny_shape *s = w->s;
    const char *block = experts_of(s);
    char name[64];
    int d = s->hidden;
    snprintf(name, sizeof name, "%s.gate", block);
    double *logits = linear(w, name, x, w->count, 0, 0), *latent = NULL;
    if (s->expert_latent) {
        snprintf(name, sizeof name, "%s.fc1_latent_proj", block);
        latent = linear(w, name, x, w->count, 0, 0);
    }
    int n = latent ? s->expert_latent : d; /* width of the experts' rows */
    const double *in = latent ? latent : x;
    double *y = zeros((size_t)(w->count * n));
    for (int t = 0; t < w->count; t++) {
        double p[16], sum = 0, kept = 0, mixed[16];
        bool taken[16] = {false};
        snprintf(name, sizeof name, "%s.gate", block);
        const float *correction =
            s->sigmoid ? tensor(w, "e_score_correction_bias", name)->values : NULL;
        for (int e = 0; e < s->experts; e++) {
            double logit = logits[t * s->experts + e];
            sum += p[e] = s->sigmoid ? 1 / (1 + exp(-logit)) : exp(logit);
        }
        int chosen = s->last_chosen && w->layer + 1 == s->layers ? s->last_chosen : s->chosen;
        for (int i = 0; i < chosen; i++) {
            int best = -1;
            for (int e = 0; e < s->experts; e++)
                if (!taken[e] &&
                    (best < 0 || p[e] + (correction ? (double)correction[e] : 0) >
                                     p[best] + (correction ? (double)correction[best] : 0)))
                    best = e;
            mixed[best] = weight_in_reach(s, logits + t * s->experts, taken, best);
            taken[best] = true;
            kept += p[best];
        }
        for (int e = 0; e < s->experts; e++) {
            if (!taken[e]) continue;
            snprintf(name, sizeof name, "%s.experts.%d", block, e);
            double *out = s->fused_experts ? fused_expert(w, e, in + t * n)
                          : s->halves
                              ? squared_mlp(w, name, in + t * n, 1)
                              : gated(w, name, s->mixtral ? mixtral : hugging_face, in + t * n, 1);
            for (int i = 0; i < n; i++)
                y[t * n + i] += (s->routed_scale > 0 ? s->routed_scale : 1) *
                                (s->mixer > 0 ? mixed[e] : p[e] / (s->renormalise ? kept : sum)) *
                                out[i];
            free(out);
        }
    }
    if (latent) {
        double *wide;
        snprintf(name, sizeof name, "%s.fc2_latent_proj", block);
        wide = linear(w, name, y, w->count, 0, 0);
        free(latent);
        free(y);
        y = wide;
    }
    if (s->shared_width) {
        snprintf(name, sizeof name, "%s.shared_expert%s", block, s->sigmoid ? "s" : "");
        double *shared = s->halves                   ? squared_mlp(w, name, x, w->count)
                         : s->family == TINY_GRANITE ? fused_mlp(w, name, s->shared_width, x)
                                                     : gated(w, name, hugging_face, x, w->count),
               *gate = NULL;
        if (!s->sigmoid && !s->family)
            gate = linear(w, "mlp.shared_expert_gate", x, w->count, 0, 0);
        for (int i = 0; i < w->count * d; i++)
            y[i] += gate ? shared[i] / (1 + exp(-gate[i / d])) : shared[i];
        free(shared);
        free(gate);
    }
    free(logits);
    return y;
}

/* ---- the gated delta rule ---- */

/* Causal convolution by channel, and silu. */
static double *convolved(walk *w, const double *x)
{
    const float *weights = tensor(w, "conv1d.weight", "linear_attn")->values;
    double *y = zeros((size_t)(w->count * DELTA_CHANNELS));
    for (int t = 0; t < w->count; t++)
        for (int c = 0; c < DELTA_CHANNELS; c++) {
            double sum = 0;
            for (int j = 0; j < DELTA_KERNEL; j++) {
                int row = t + j + 1 - DELTA_KERNEL;
                if (row >= 0)
                    sum += (double)weights[c * DELTA_KERNEL + j] * x[row * DELTA_CHANNELS + c];
            }
            y[t * DELTA_CHANNELS + c] = silu(sum);
        }
    return y;
}

static void make_unit(double *x, int n)
{
    double square = 0;
    for (int i = 0; i < n; i++) square += x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] /= sqrt(square + 1e-6);
}

/* One head over all tokens. */
static void run_delta_head(walk *w, int head, double *qkv, const double *a, const double *b,
                           double *y)
{
    double state[DELTA_KEY][DELTA_VALUE] = {{0}};
    double rate = exp((double)tensor(w, "A_log", "linear_attn")->values[head]);
    double bias = tensor(w, "dt_bias", "linear_attn")->values[head];
    int key_head = head / (DELTA_HEADS / DELTA_KEY_HEADS);
    for (int t = 0; t < w->count; t++) {
        double q[DELTA_KEY], k[DELTA_KEY], *row = qkv + t * DELTA_CHANNELS;
        memcpy(q, row + key_head * DELTA_KEY, sizeof q);
        memcpy(k, row + DELTA_KEYS + key_head * DELTA_KEY, sizeof k);
        const double *v = row + 2 * DELTA_KEYS + head * DELTA_VALUE;
        make_unit(q, DELTA_KEY);
        make_unit(k, DELTA_KEY);
        double beta = 1 / (1 + exp(-b[t * DELTA_HEADS + head]));
        double decay = exp(-rate * log1p(exp(a[t * DELTA_HEADS + head] + bias)));
        for (int o = 0; o < DELTA_VALUE; o++) {
            double held = 0, read = 0;
            for (int i = 0; i < DELTA_KEY; i++) held += k[i] * (state[i][o] *= decay);
            for (int i = 0; i < DELTA_KEY; i++) {
                state[i][o] += k[i] * beta * (v[o] - held);
                read += q[i] * state[i][o] / sqrt(DELTA_KEY);
            }
            y[t * DELTA_VALUES + head * DELTA_VALUE + o] = read;
        }
    }
}

static double *delta_attention(walk *w, const double *x)
{
    const float *weights = tensor(w, "norm.weight", "linear_attn")->values;
    double *in = linear(w, "linear_attn.in_proj_qkv", x, w->count, 0, 0);
    double *z = linear(w, "linear_attn.in_proj_z", x, w->count, 0, 0);
    double *a = linear(w, "linear_attn.in_proj_a", x, w->count, 0, 0);
    double *b = linear(w, "linear_attn.in_proj_b", x, w->count, 0, 0);
    double *qkv = convolved(w, in), *y = zeros((size_t)(w->count * DELTA_VALUES));
    for (int h = 0; h < DELTA_HEADS; h++) run_delta_head(w, h, qkv, a, b, y);
    for (int h = 0; h < w->count * DELTA_HEADS; h++) {
        double square = 0, *head = y + h * DELTA_VALUE;
        for (int i = 0; i < DELTA_VALUE; i++) square += head[i] * head[i] / DELTA_VALUE;
        for (int i = 0; i < DELTA_VALUE; i++)
            head[i] *= weights[i] / sqrt(square + 1e-5) * silu(z[h * DELTA_VALUE + i]);
    }
    double *out = linear(w, "linear_attn.out_proj", y, w->count, 0, 0);
    free(in);
    free(z);
    free(a);
    free(b);
    free(qkv);
    free(y);
    return out;
}

/* ---- alternating updates ---- */

enum { MOST_STREAMS = 4 };

/* x becomes as long as `like`, row by row. */
static void match(double *x, const double *like, int rows, int n)
{
    for (int t = 0; t < rows; t++, x += n, like += n) {
        double own = 0, wanted = 0;
        for (int i = 0; i < n; i++) {
            own += x[i] * x[i] / n;
            wanted += like[i] * like[i] / n;
        }
        for (int i = 0; i < n; i++) x[i] *= sqrt(wanted) / sqrt(fmax(own, 1e-5));
    }
}

/* Vectors of all layers by token. */
static double *token_vectors(walk *w, const int32_t *ids, const double *x)
{
    const tiny_shape *s = w->s;
    int n = s->token_vector, all = s->layers * n;
    const float *table = tiny_get(w->m, "model.embed_tokens_per_layer.weight")->values;
    double *p = linear(w, "model.per_layer_model_projection", x, w->count, 0, 0);
    for (int i = 0; i < w->count * all; i++) p[i] /= sqrt(s->hidden);
    double *y = norm(w, "model.per_layer_projection_norm", p, w->count * s->layers, n);
    for (int t = 0; t < w->count; t++)
        for (int i = 0; i < all; i++) {
            int id = ids[t] < TOKEN_VECTORS ? ids[t] : 0;
            y[t * all + i] = (y[t * all + i] + sqrt(n) * table[id * all + i]) / sqrt(2);
        }
    free(p);
    return y;
}

static double *coefficients(walk *w, const double *x, const char *part)
{
    int d = w->s->hidden;
    double *normed = norm(w, "altup.router_norm", x, w->count, d);
    for (int i = 0; i < w->count * d; i++) normed[i] /= d;
    double *routed = linear(w, "altup.modality_router", normed, w->count, 0, 0);
    for (int i = 0; i < w->count * w->s->streams; i++) routed[i] = tanh(routed[i]);
    double *y = linear(w, part, routed, w->count, 0, 0);
    free(normed);
    free(routed);
    return y;
}

/* All streams side by side, as the layer's output is recorded. */
static void capture_streams(walk *w, const char *name, double *const *streams)
{
    size_t n = (size_t)(w->count * w->s->hidden);
    double *all = zeros(MOST_STREAMS * n);
    for (int i = 0; i < w->s->streams; i++) memcpy(all + i * n, streams[i], n * sizeof *all);
    capture(w, name, all, w->s->streams * n);
    free(all);
}

static void predict(walk *w, double **streams)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = s->streams;
    double *c = coefficients(w, streams[s->active], "altup.prediction_coefs");
    for (int e = 0; e < w->count * d; e++) {
        double before[MOST_STREAMS];
        for (int i = 0; i < n; i++) before[i] = streams[i][e];
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) streams[j][e] += c[e / d * n * n + j * n + i] * before[i];
    }
    capture_streams(w, "altup_predict", streams);
    free(c);
}

static void correct(walk *w, double **streams, const double *x)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = s->streams;
    double *c = coefficients(w, x, "altup.correction_coefs");
    for (int e = 0; e < w->count * d; e++) {
        double change = x[e] - streams[s->active][e];
        for (int j = 0; j < n; j++) streams[j][e] += (1 + c[e / d * n + j]) * change;
    }
    capture_streams(w, "altup_correct", streams);
    free(c);
}

/* Attention that may read the keys and values of an earlier layer of its kind; values are normed
 * without weights. */
static double *sharing_attention(walk *w, const double *x)
{
    const tiny_shape *s = w->s;
    int dim = s->head_dim, nkv = s->kv_heads * dim, n = w->count;
    bool full = (w->layer + 1) % s->full_every == 0;
    double base = full ? theta : window_theta;
    double *q = linear(w, "self_attn.q_proj", x, n, 0, 0);
    heads_norm(w, "self_attn.q_norm", &q, s->heads);
    for (int i = 0; i < n * s->heads; i++) rotate(s, base, q + i * dim, i / s->heads, n);
    if (!reads_keys(s, w->layer)) {
        double *k = linear(w, "self_attn.k_proj", x, n, 0, 0);
        double *v = linear(w, "self_attn.v_proj", x, n, 0, 0);
        heads_norm(w, "self_attn.k_norm", &k, s->kv_heads);
        for (int i = 0; i < n * s->kv_heads; i++) {
            double square = 0;
            rotate(s, base, k + i * dim, i / s->kv_heads, n);
            for (int e = 0; e < dim; e++) square += v[i * dim + e] * v[i * dim + e] / dim;
            for (int e = 0; e < dim; e++) v[i * dim + e] /= sqrt(square + 1e-5);
        }
        capture(w, "v_norm", v, (size_t)(n * nkv));
        free(w->keys[full]);
        free(w->values[full]);
        w->keys[full] = k;
        w->values[full] = v;
    }
    double *y = attend(w, q, w->keys[full], w->values[full], full ? 0 : s->window);
    double *out = linear(w, "self_attn.o_proj", y, n, 0, s->hidden);
    double *normed = norm(w, "post_attention_layernorm", out, n, s->hidden);
    free(q);
    free(y);
    free(out);
    return normed;
}

/* Gates of the first layers are cut above their mean. */
static double *cut_block(walk *w, const double *x)
{
    int f = width_of(w->s, w->layer);
    double *gate = linear(w, "mlp.gate_proj", x, w->count, 0, 0);
    double *up = linear(w, "mlp.up_proj", x, w->count, 0, 0);
    for (int t = 0; t < w->count; t++) {
        double mean = 0, square = 0, *row = gate + t * f;
        for (int i = 0; i < f; i++) mean += row[i] / f;
        for (int i = 0; i < f; i++) square += (row[i] - mean) * (row[i] - mean) / f;
        for (int i = 0; i < f && w->layer < 2; i++)
            row[i] = fmax(row[i] - mean - cutoffs[w->layer] * sqrt(square), 0);
        for (int i = 0; i < f; i++) row[i] = gelu(row[i]) * up[t * f + i];
    }
    capture(w, "act", gate, (size_t)(w->count * f));
    double *y = linear(w, "mlp.down_proj", gate, w->count, 0, 0);
    double *normed = norm(w, "post_feedforward_layernorm", y, w->count, w->s->hidden);
    free(gate);
    free(up);
    free(y);
    return normed;
}

/* What becomes of the active stream: attention beside a residual of low rank, and a block. */
static double *compute_active(walk *w, const double *active)
{
    int d = w->s->hidden, n = w->count * d;
    double *h = norm(w, "input_layernorm", active, w->count, d);
    double *low = linear(w, "laurel.linear_left", h, w->count, 0, 0);
    double *wide = linear(w, "laurel.linear_right", low, w->count, 0, 0);
    double *laurel = norm(w, "laurel.post_laurel_norm", wide, w->count, d);
    double *x = sharing_attention(w, h);
    for (int i = 0; i < n; i++) x[i] = (active[i] + x[i] + h[i] + laurel[i]) / sqrt(2);
    capture(w, "post_laurel_norm", laurel, (size_t)n);
    capture(w, "laurel", x, (size_t)n);
    free(h);
    h = norm(w, "pre_feedforward_layernorm", x, w->count, d);
    double *y = cut_block(w, h);
    for (int i = 0; i < n; i++) x[i] += y[i];
    free(h);
    free(low);
    free(wide);
    free(laurel);
    free(y);
    return x;
}

/* The layer's token vectors, gated by the scaled active stream, into all streams but the first. */
static void add_vectors(walk *w, double **streams, const double *vectors)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = s->token_vector, all = s->layers * n;
    const float *scale = tensor(w, "correct_output_scale", "altup")->values;
    double *x = zeros((size_t)(w->count * d));
    for (int i = 0; i < w->count * d; i++) x[i] = streams[s->active][i] * scale[i % d];
    double *g = linear(w, "per_layer_input_gate", x, w->count, 0, 0);
    for (int i = 0; i < w->count * n; i++)
        g[i] = gelu(g[i]) * vectors[i / n * all + w->layer * n + i % n];
    double *p = linear(w, "per_layer_projection", g, w->count, 0, 0);
    double *y = norm(w, "post_per_layer_input_norm", p, w->count, d);
    capture(w, "post_per_layer_input_norm", y, (size_t)(w->count * d));
    for (int j = 1; j < s->streams; j++)
        for (int i = 0; i < w->count * d; i++) streams[j][i] += y[i];
    free(x);
    free(g);
    free(p);
    free(y);
}

/* From the embedding to what the final norm reads, in x. */
static void alternating_layers(walk *w, const int32_t *ids, double *x)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = w->count * d;
    double *streams[MOST_STREAMS] = {x}, *vectors = token_vectors(w, ids, x);
    char name[64];
    for (int i = 1; i < s->streams; i++) {
        snprintf(name, sizeof name, "model.altup_projections.%d", i - 1);
        streams[i] = linear(w, name, x, w->count, 0, 0);
        match(streams[i], x, w->count, d);
    }
    for (w->layer = 0; w->layer < s->layers; w->layer++) {
        predict(w, streams);
        double *active = compute_active(w, streams[s->active]);
        correct(w, streams, active);
        add_vectors(w, streams, vectors);
        free(active);
    }
    w->layer = -1;
    double *first = zeros((size_t)n);
    memcpy(first, x, (size_t)n * sizeof *x);
    for (int i = 1; i < s->streams; i++) {
        snprintf(name, sizeof name, "model.altup_unembed_projections.%d", i - 1);
        double *y = linear(w, name, streams[i], w->count, 0, 0);
        match(y, first, w->count, d);
        for (int e = 0; e < n; e++) x[e] += y[e];
        free(streams[i]);
        free(y);
    }
    for (int e = 0; e < n; e++) x[e] /= s->streams;
    for (int kind = 0; kind < 2; kind++) {
        free(w->keys[kind]);
        free(w->values[kind]);
    }
    free(first);
    free(vectors);
}

/* Llama 4: y += an expert's block of the weighted input; gate and up are halves of the columns. */
static void add_chunk_expert(walk *w, int e, double weight, const double *x, double *y)
{
    int f = w->s->expert_width, d = w->s->hidden;
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.feed_forward.experts.gate_up_proj", w->layer);
    const float *in = tiny_get(w->m, name)->values + (size_t)e * (size_t)(d * 2 * f);
    snprintf(name, sizeof name, "model.layers.%d.feed_forward.experts.down_proj", w->layer);
    const float *out = tiny_get(w->m, name)->values + (size_t)e * (size_t)(f * d);
    for (int r = 0; r < f; r++) {
        double gate = 0, up = 0;
        for (int i = 0; i < d; i++) gate += weight * x[i] * (double)in[i * 2 * f + r];
        for (int i = 0; i < d; i++) up += weight * x[i] * (double)in[i * 2 * f + f + r];
        for (int i = 0; i < d; i++) y[i] += silu(gate) * up * (double)out[r * d + i];
    }
}

static double *chunk_mixture(walk *w, const double *x)
{
    const tiny_shape *s = w->s;
    double *logits = linear(w, "feed_forward.router", x, w->count, 0, 0);
    double *y = gated(w, "feed_forward.shared_expert", hugging_face, x, w->count);
    for (int t = 0; t < w->count; t++) {
        double *l = logits + t * s->experts;
        for (int i = 0; i < s->chosen; i++) {
            int best = 0;
            for (int e = 1; e < s->experts; e++)
                if (l[e] > l[best]) best = e;
            add_chunk_expert(w, best, 1 / (1 + exp(-l[best])), x + t * s->hidden,
                             y + t * s->hidden);
            l[best] = -INFINITY;
        }
    }
    free(logits);
    return y;
}

/* One head of a scan over all tokens, into y. */
static void scan_head(walk *w, int head, const double *mixed, const double *steps, double *y)
{
    const char *mamba = scan_of(w->s);
    double state[SCAN_DIM][STATE] = {{0}}, skip = tensor(w, "D", mamba)->values[head];
    double rate = exp(tensor(w, "A_log", mamba)->values[head]);
    double bias = tensor(w, "dt_bias", mamba)->values[head];
    for (int t = 0; t < w->count; t++) {
        const double *x = mixed + t * CHANNELS + head * SCAN_DIM;
        const double *b = mixed + t * CHANNELS + VALUES + head / (SCANS / GROUPS) * STATE;
        double step = log1p(exp(steps[t * SCANS + head] + bias));
        if (!w->s->multiplied && !w->s->scans) step = fmin(fmax(step, least_step), most_step);
        for (int i = 0; i < SCAN_DIM; i++) {
            double sum = skip * x[i];
            for (int k = 0; k < STATE; k++) {
                state[i][k] = exp(-rate * step) * state[i][k] + step * b[k] * x[i];
                sum += state[i][k] * b[KEYS + k];
            }
            y[t * VALUES + head * SCAN_DIM + i] = sum;
        }
    }
}

/* A state-space layer: convolution, scan, gate, perhaps a norm by groups. */
static double *scan(walk *w, const double *x)
{
    int n = w->count, d = w->s->hidden;
    bool multiplied = w->s->multiplied;
    const char *mamba = scan_of(w->s);
    const float *conv = tensor(w, "conv1d.weight", mamba)->values;
    const float *bias = tensor(w, "conv1d.bias", mamba)->values;
    char in_proj[32], out_proj[32];
    snprintf(in_proj, sizeof in_proj, "%s.in_proj", mamba);
    snprintf(out_proj, sizeof out_proj, "%s.out_proj", mamba);
    double *in = zeros((size_t)(n * d)), *mixed = zeros((size_t)(n * CHANNELS));
    for (int i = 0; i < n * d; i++) in[i] = (multiplied ? ssm_in : 1) * x[i];
    double *gate = linear(w, in_proj, in, n, 0, VALUES);
    double *xbc = linear(w, in_proj, in, n, VALUES, CHANNELS);
    double *steps = linear(w, in_proj, in, n, VALUES + CHANNELS, SCANS);
    for (int i = 0; multiplied && i < n * VALUES; i++) gate[i] *= parts_in[0];
    for (int i = 0; multiplied && i < n * SCANS; i++) steps[i] *= parts_in[4];
    for (int i = 0; multiplied && i < n * CHANNELS; i++) {
        int channel = i % CHANNELS;
        xbc[i] *= parts_in[channel < VALUES ? 1 : channel < VALUES + KEYS ? 2 : 3];
    }
    for (int i = 0; i < n * CHANNELS; i++) {
        double sum = bias[i % CHANNELS];
        for (int j = 0; j < KERNEL; j++) {
            int from = i - (KERNEL - 1 - j) * CHANNELS;
            if (from >= 0) sum += xbc[from] * conv[i % CHANNELS * KERNEL + j];
        }
        mixed[i] = silu(sum);
    }
    double *y = zeros((size_t)(n * VALUES));
    for (int head = 0; head < SCANS; head++) scan_head(w, head, mixed, steps, y);
    for (int i = 0; i < n * VALUES; i++) y[i] *= silu(gate[i]);
    const tiny_tensor *weight = tensor(w, "norm.weight", mamba);
    if (weight) plain_norm(y, n * GROUPS, VALUES / GROUPS);
    for (int i = 0; weight && i < n * VALUES; i++) y[i] *= weight->values[i % VALUES];
    double *out = linear(w, out_proj, y, n, 0, 0);
    for (int i = 0; multiplied && i < n * d; i++) out[i] *= ssm_out;
    free(in);
    free(mixed);
    free(gate);
    free(xbc);
    free(steps);
    free(y);
    return out;
}

/* LFM2: the input, gated, convolved by channel and gated again. */
static double *short_convolution(walk *w, const double *x)
{
    int n = w->count, d = w->s->hidden;
    const float *conv = tensor(w, "conv.weight", "conv")->values;
    const float *bias = tensor(w, "conv.bias", "conv")->values;
    double *all = linear(w, "conv.in_proj", x, n, 0, 0), *y = zeros((size_t)(n * d));
    for (int i = 0; i < n * d; i++) {
        double sum = bias[i % d];
        for (int j = 0; j < KERNEL; j++) {
            int row = i / d - (KERNEL - 1 - j);
            const double *from = all + row * 3 * d + i % d;
            if (row >= 0) sum += from[0] * from[2 * d] * conv[i % d * KERNEL + j];
        }
        y[i] = sum * all[i / d * 3 * d + d + i % d];
    }
    double *out = linear(w, "conv.out_proj", y, n, 0, 0);
    free(all);
    free(y);
    return out;
}

static double *feed_forward(walk *w, const double *x)
{
    bool experts = has_experts(w->s, w->layer);
    if (experts) return w->s->chunk ? chunk_mixture(w, x) : mixture(w, x);
    if (w->s->plain_mlp) return plain_mlp(w, x);
    if (w->s->xielu) return xielu_mlp(w, x);
    return w->s->fused ? fused_mlp(w, "mlp", w->s->width, x)
                       : gated(w, block_of(w->s), hugging_face, x, w->count);
}

/* x += part, after the norm of this name if the family has one. */
static void accumulate(walk *w, const char *closing, double *x, double *part, int n)
{
    const tiny_shape *s = w->s;
    double *y = closing ? norm(w, closing, part, w->count, s->hidden) : part;
    for (int i = 0; i < n; i++) x[i] += (s->residual_scale > 0 ? s->residual_scale : 1) * y[i];
    if (y != part) free(y);
    free(part);
}

/* The norm before attention or MLP, or a copy of x if the family has none. */
static double *opening(walk *w, const char *name, const double *x, int n)
{
    if (w->s->norms != TINY_POST) return norm(w, name, x, w->count, w->s->hidden);
    double *y = zeros((size_t)n);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

/* One layer of any architecture but those with several streams. */
static void run_layer(walk *w, double *x)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = w->count * d;
    const char *after = s->norms ? "post_attention_layernorm" : NULL;
    const char *before = s->norms ? "pre_feedforward_layernorm" : mlp_norm_of(s);
    if (s->scans) {
        double *h = norm(w, "norm", x, w->count, d);
        accumulate(w, NULL, x, scan(w, h), n);
        free(h);
        return;
    }
    if (s->halves) {
        double *h = norm(w, "norm", x, w->count, d);
        double *y = has_experts(s, w->layer) ? mixture(w, h)
                    : w->layer % 2           ? squared_mlp(w, "mixer", h, w->count)
                                             : attention(w, h);
        accumulate(w, NULL, x, y, n);
        free(h);
        return;
    }
    double *normed = opening(w, s->xielu ? "attention_layernorm" : "input_layernorm", x, n);
    capture(w, "input_layernorm", normed, (size_t)n);
    bool delta = is_delta(s, w->layer);
    if (s->beside) accumulate(w, NULL, x, scan(w, normed), n);
    accumulate(w, after, x,
               delta                    ? delta_attention(w, normed)
               : s->kept || s->latent   ? sparse_attention(w, normed)
               : convolves(s, w->layer) ? short_convolution(w, normed)
                                        : attention(w, normed),
               n);
    if (!s->plain_mlp) {
        free(normed);
        normed = opening(w, before, x, n);
    }
    accumulate(w, s->norms ? "post_feedforward_layernorm" : NULL, x, feed_forward(w, normed), n);
    free(normed);
}

static double *embed(walk *w, const int32_t *ids)
{
    const tiny_shape *s = w->s;
    int d = s->hidden, n = w->count * d;
    const float *embedding = tiny_get(w->m, "model.embed_tokens.weight")->values;
    double *x = zeros((size_t)n);
    double embedded = s->gemma || s->streams  ? sqrt(d)
                      : s->residual_scale > 0 ? 1.5
                      : s->multiplied         ? embedded_by
                                              : 1;
    for (int i = 0; i < n; i++) x[i] = embedded * embedding[ids[i / d] * d + i % d];
    return x;
}

/* From tokens to what the head reads. */
static double *run_model(walk *w, const int32_t *ids)
{
    const tiny_shape *s = w->s;
    char final[64];
    double *x = embed(w, ids);
    if (s->streams)
        alternating_layers(w, ids, x);
    else
        for (w->layer = 0; w->layer < s->layers; w->layer++) run_layer(w, x);
    w->layer = -1;
    snprintf(final, sizeof final, "model.%s", final_norm_of(s));
    double *normed = norm(w, final, x, w->count, s->hidden);
    free(x);
    return normed;
}

static void run_head(walk *w, const double *normed, double *logits)
{
    const tiny_shape *s = w->s;
    double logit_scale = s->logit_scale > 0 ? 1 / s->logit_scale : s->multiplied ? head_factor : 1;
    double *out =
        linear(w, s->tied ? "model.embed_tokens" : "lm_head", normed, w->count, 0, s->vocab);
    for (int i = 0; i < w->count * s->vocab; i++)
        logits[i] = capped(out[i] * logit_scale, s->logit_cap);
    free(out);
}

void tiny_forward(tiny_model *m, const int32_t *ids, int count, double *logits,
                  tiny_capture *captures, int capture_count)
{
    walk w = {m, &m->shape, count, captures, capture_count, -1, {NULL}, {NULL}, {{0}}};
    double *normed = run_model(&w, ids);
    run_head(&w, normed, logits);
    free(normed);
}

void tiny_outputs(tiny_model *m, const int32_t *ids, int count, double *outputs)
{
    walk w = {m, &m->shape, count, NULL, 0, -1, {NULL}, {NULL}, {{0}}};
    double *normed = run_model(&w, ids);
    memcpy(outputs, normed, (size_t)(count * m->shape.hidden) * sizeof *outputs);
    free(normed);
}

void tiny_head(tiny_model *m, const double *outputs, const int32_t *next, int count, double *own,
               double *logits)
{
    const tiny_shape *s = &m->shape;
    int d = s->hidden;
    walk w = {m, s, count, NULL, 0, s->layers, {NULL}, {NULL}, {{0}}};
    double *x = embed(&w, next), *both = zeros((size_t)(2 * count * d));
    const char *const parts[3][4] = {
        {"enorm", "hnorm", "eh_proj", "shared_head.norm"},
        {"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"},
        {"token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"}};
    const char *const *part = parts[s->delta ? 1 : s->mimo ? 2 : 0];
    int first = s->mimo ? d : 0; /* column of the embedding */
    w.layer = s->delta ? -1 : s->layers;
    double *token = norm(&w, part[0], x, count, d), *output = norm(&w, part[1], outputs, count, d);
    for (int i = 0; i < count * d; i++) {
        both[i / d * 2 * d + first + i % d] = token[i];
        both[i / d * 2 * d + d - first + i % d] = output[i];
    }
    free(x);
    x = linear(&w, part[2], both, count, 0, 0);
    w.layer = s->layers;
    run_layer(&w, x);
    if (s->delta) w.layer = -1;
    double *normed = norm(&w, part[3], x, count, d);
    memcpy(own, normed, (size_t)(count * d) * sizeof *own);
    w.layer = -1;
    run_head(&w, normed, logits);
    free(x);
    free(token);
    free(output);
    free(both);
    free(normed);
}
