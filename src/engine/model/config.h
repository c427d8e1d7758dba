/* A model's configuration from config.json, in one form for all its spellings. All sizes are
 * checked before anything is allocated: positive, bounded, consistent; an error names the field.
 * The architecture comes from `architectures[0]`, else `model_type`, never from a folder's name. */
#ifndef PJ_MODEL_CONFIG_H
#define PJ_MODEL_CONFIG_H

#include "base/error.h"
#include "base/memory.h"
#include "engine/model/arch.h"

#include <math.h>

typedef enum pj_rope_type {
    PJ_ROPE_DEFAULT = 0,
    PJ_ROPE_LINEAR,
    PJ_ROPE_DYNAMIC,
    PJ_ROPE_LLAMA3,
    PJ_ROPE_YARN,
    PJ_ROPE_LONGROPE,
    PJ_ROPE_PROPORTIONAL
} pj_rope_type;

/* Layers of one half only. */
typedef enum pj_halves { PJ_HALVES_BOTH = 0, PJ_HALF_MIXER, PJ_HALF_MLP } pj_halves;

/* Factors of Falcon-H1 beside those that others have; 1 has no effect. */
typedef struct pj_multipliers {
    double attention_in, attention_out, ssm_in, ssm_out, gate, down;
    double ssm[5]; /* of in_proj's parts: gate, x, B, C, step */
} pj_multipliers;

#define PJ_MULTIPLIERS_NONE                                                                     \
    {                                                                                           \
        .attention_in = 1, .attention_out = 1, .ssm_in = 1, .ssm_out = 1, .gate = 1, .down = 1, \
        .ssm = {                                                                                \
            1,                                                                                  \
            1,                                                                                  \
            1,                                                                                  \
            1,                                                                                  \
            1                                                                                   \
        }                                                                                       \
    }

/* What layers with a recurrent state compute (delta.h). */
typedef enum pj_recurrence {
    PJ_DELTA_RULE = 0,
    PJ_SCAN,              /* Mamba-2 */
    PJ_SHORT_CONVOLUTION, /* LFM2 */
} pj_recurrence;

typedef struct pj_rope_config {
    pj_rope_type type;
    uint32_t dims; /* rotated dimensions of a head: head_dim x partial_rotary_factor, even */
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn, 32 and 1 when absent */
    bool truncate;                            /* yarn, true when absent */
    double attention_factor;                  /* NAN: not given */
    double long_attention_factor;             /* beyond the original context; 0: the same */
    double mscale, mscale_all_dim;            /* yarn variants, NAN: not given */
    uint32_t original_context;                /* 0: not given */
    const double *short_factor, *long_factor; /* longrope: dims / 2 values, in the arena */
    uint32_t factor_count;
    uint32_t turning; /* proportional: number of pairs that rotate */
    /* [factor_count] divisors of the frequencies, in the arena; NULL: none */
    const double *divisors;
    bool neighbours; /* rotates pairs (2i, 2i + 1) instead of (i, i + dims / 2) */
} pj_rope_config;

/* Rotation without scaling. */
#define PJ_ROPE_CONFIG_PLAIN                   \
    ((pj_rope_config){.factor = 1,             \
                      .beta_fast = 32,         \
                      .beta_slow = 1,          \
                      .truncate = true,        \
                      .attention_factor = NAN, \
                      .mscale = NAN,           \
                      .mscale_all_dim = NAN})

/* What config.json says that files of packed weights have. */
typedef struct pj_declared {
    const char *by; /* the words, "sym false"; static */
    uint32_t bits;  /* of matrices whose codes have b bits, if bit b is set */
} pj_declared;

/* Limits far beyond any published model; a file that exceeds them is wrong. */
enum {
    PJ_MAX_EOS = 16,
    PJ_MAX_LAYERS = 1024,
    PJ_MAX_WIDTH = 1 << 20,
    PJ_MAX_HEADS = 1 << 14,
    PJ_MAX_HEAD_DIM = 1 << 14,
    PJ_MAX_CONTEXT = 1 << 30,
    PJ_MAX_EXPERTS = 1 << 14,
    PJ_MAX_DELTA_DIM = 1024, /* per head of the delta rule */
    PJ_MAX_CONVOLUTION = 64,
    PJ_MAX_STREAMS = 16
};

typedef struct pj_model_config {
    pj_arch arch;
    char arch_name[64]; /* as in the file: "LlamaForCausalLM" */
    uint32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
    uint32_t context; /* max_position_embeddings */
    double norm_eps;
    pj_rope_config rope;
    pj_rope_config window_rope; /* for windowed layers; dims 0: as the others */
    bool *layer_rotates;        /* [layers], in the arena; NULL: all do */
    /* Queries are scaled by 1 + beta ln(1 + floor((position + first) / period)); beta 0: no
     * scaling.
     */
    double query_beta;
    uint32_t query_period, query_first;
    bool query_scale_unrotated; /* only in layers without rotation */
    /* Properties that differ between layers; [layers], in the arena; NULL: all alike. */
    uint32_t *layer_head_dim, *layer_kv_heads;
    /* index of the layer whose keys and values are read: itself or an earlier one */
    uint32_t *layer_kv_source;
    bool keys_are_values;  /* full-attention layers use the key projection for values too */
    bool wide_readers;     /* MLPs of layers that read another layer's keys are twice as wide */
    uint32_t *layer_width; /* of dense blocks */
    /* Gates count only above their token's mean plus so many standard deviations; -INFINITY: as
     * they are. */
    double *layer_cutoff;
    /* Alternating updates: residual streams, of which layers compute one, and the rank of the
     * residual beside attention (streams.h); 0: one stream, no such residual. */
    struct {
        uint32_t count, active, residual_rank;
        double clip;        /* of correction coefficients; 0: none */
        bool without_scale; /* of the stream that token vectors are gated by */
    } streams;
    /* Per-layer token embeddings of this width, added to every layer's input; 0: none. */
    uint32_t token_vector, token_vector_vocab;
    uint32_t window;         /* sliding window in tokens, 0: none */
    bool *layer_is_windowed; /* [layers], in the arena; NULL: every layer has the window */
    /* Positions are divided into chunks of `window`; a query sees the keys of its own chunk. */
    bool window_is_chunk;
    /* Layers with a recurrent state instead of attention (delta.h); kernel 0: none. */
    bool *layer_is_linear;   /* [layers], in the arena; NULL: none */
    bool attention_beside;   /* they have attention too, of the same input */
    pj_halves *layer_halves; /* [layers], in the arena; NULL: both everywhere */
    struct {
        pj_recurrence kind;
        uint32_t key_heads, value_heads, key_dim, value_dim, kernel;
        bool conv_bias, in_bias, out_bias;
        /* PJ_SCAN */
        double least_step, most_step;  /* of dt; most_step 0: no bound */
        bool without_norm, norm_first; /* the output is gated alone, or after its norm */
    } linear;
    /* Multi-head latent attention (latent.h); rank 0: none. */
    struct {
        uint32_t rank, query_rank, plain, rotated, value; /* query_rank 0: queries directly */
    } latent;
    /* Sparse attention: a query sees only the `kept` keys that an indexer chooses (latent.h); kept
     * 0: all. */
    struct {
        uint32_t heads, dim, kept;
        bool neighbours;    /* rotates pairs (2i, 2i + 1) */
        bool *layer_shares; /* [layers], in the arena: those that see what the layer before them
                               sees; NULL: none */
    } indexer;
    bool gptq_v2; /* GPTQ's zeros are stored as they are, not less 1 (packed_rows.h) */
    /* Zeros of packed weights, and groups of columns that are not adjacent: without them, values
     * would be wrong. */
    struct {
        pj_declared zeros, order;
    } packing;
    uint32_t fp8_rows, fp8_cols; /* of the blocks of 8-bit floats that share a scale; 0: 128 */
    bool tied_head;              /* a hint; presence of lm_head.weight decides */
    /* Scale factors of some architectures; 1 has no effect. */
    double embedding_scale; /* of the rows of the embedding */
    /* of each half layer's output, before adding it to the residual stream */
    double residual_scale;
    double logit_scale;
    pj_multipliers multipliers;
    double score_scale;   /* of q k^T; 0: head_dim^-0.5 */
    bool without_qk_norm; /* smaller models of a family whose larger ones norm queries and keys */
    double attention_softcap, logit_softcap; /* x becomes cap tanh(x / cap); 0: none */
    bool attention_bias, mlp_bias, qkv_bias, out_bias, head_bias;
    bool gelu;  /* gelu_new instead of silu */
    bool relu2; /* the square of relu */
    bool xielu; /* with parameters of each layer */
    /* [layers], in the arena: those parameters in GGUF files; NULL: tensors have them */
    float (*layer_xielu)[4];
    /* Clamped SwiGLU: g sigmoid(alpha g) (u + 1) with g <= limit and |u| <= limit; limit 0: plain.
     */
    double swiglu_alpha, swiglu_limit;
    /* mixture of experts; experts == 0: dense */
    uint32_t experts, experts_per_token, expert_intermediate, shared_intermediate;
    /* Experts compute in a space of this width, into and out of which projections lead; the router
     * and shared experts do not. 0: they read and write rows of `hidden`. */
    uint32_t expert_latent;
    bool norm_topk;
    double router_reach; /* PJ_ROUTER_MIXER: twice the noise of training */
    /* Routers that score each expert by itself (sigmoid, not softmax), add a correction to the
     * scores when choosing, scale the chosen weights, or choose among the best groups alone. */
    bool router_sigmoid, router_correction;
    double routed_scale;                        /* 1: none */
    uint32_t expert_groups, expert_groups_kept; /* at most 1: no groups */
    bool group_by_pair;   /* a group's score is the sum of its two best; else its best */
    bool *layer_is_dense; /* [layers], in the arena; NULL: every layer has experts */
    /* [layers], in the arena: experts per token, of which experts_per_token is the most; NULL: all
     * alike */
    uint32_t *layer_chosen;
    int32_t bos; /* -1: none */
    int32_t eos[PJ_MAX_EOS];
    uint32_t eos_count;
    char dtype_hint[16]; /* torch_dtype or dtype, "" when absent */
} pj_model_config;

static inline uint32_t pj_config_head_dim(const pj_model_config *c, uint32_t layer)
{
    return c->layer_head_dim ? c->layer_head_dim[layer] : c->head_dim;
}
static inline uint32_t pj_config_kv_heads(const pj_model_config *c, uint32_t layer)
{
    return c->layer_kv_heads ? c->layer_kv_heads[layer] : c->kv_heads;
}
static inline uint32_t pj_config_kv_source(const pj_model_config *c, uint32_t layer)
{
    return c->layer_kv_source ? c->layer_kv_source[layer] : layer;
}
static inline bool pj_config_is_windowed(const pj_model_config *c, uint32_t layer)
{
    return c->window && (!c->layer_is_windowed || c->layer_is_windowed[layer]);
}
static inline pj_halves pj_config_halves(const pj_model_config *c, uint32_t layer)
{
    return c->layer_halves ? c->layer_halves[layer] : PJ_HALVES_BOTH;
}
/* Whether a layer has a recurrent state, and whether it has attention. */
static inline bool pj_config_is_linear(const pj_model_config *c, uint32_t layer)
{
    return c->layer_is_linear && c->layer_is_linear[layer];
}
static inline bool pj_config_attends(const pj_model_config *c, uint32_t layer)
{
    return pj_config_halves(c, layer) != PJ_HALF_MLP &&
           (c->attention_beside || !pj_config_is_linear(c, layer));
}
/* Whether a layer chooses the keys that it sees. */
static inline bool pj_config_has_indexer(const pj_model_config *c, uint32_t layer)
{
    return c->indexer.kept && !(c->indexer.layer_shares && c->indexer.layer_shares[layer]);
}
/* Experts per token of a layer. */
static inline uint32_t pj_config_chosen(const pj_model_config *c, uint32_t layer)
{
    return c->layer_chosen ? c->layer_chosen[layer] : c->experts_per_token;
}
/* Width of the rows that experts read and write. */
static inline uint32_t pj_config_expert_hidden(const pj_model_config *c)
{
    return c->expert_latent ? c->expert_latent : c->hidden;
}
/* Width of a dense block. */
static inline uint32_t pj_config_mlp_width(const pj_model_config *c, uint32_t layer)
{
    if (c->layer_width) return c->layer_width[layer];
    return c->intermediate << (c->wide_readers && pj_config_kv_source(c, layer) != layer);
}

/* Initial value before a file has been read. */
#define PJ_MODEL_CONFIG_NONE                               \
    ((pj_model_config){.bos = -1,                          \
                       .embedding_scale = 1,               \
                       .residual_scale = 1,                \
                       .logit_scale = 1,                   \
                       .multipliers = PJ_MULTIPLIERS_NONE, \
                       .routed_scale = 1})

/* Sampling defaults of generation_config.json; NAN or 0 (top_k) where absent. */
typedef struct pj_generation_config {
    double temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
    bool has_do_sample, do_sample;
} pj_generation_config;

/* Value for models without a generation_config.json. */
#define PJ_GENERATION_CONFIG_NONE \
    ((pj_generation_config){      \
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN})

/* Sets the scale of latent attention's scores: by the size of a query before its projection, and by
 * the factor that YaRN puts on them (its mscale_all_dim). */
void pj_config_scale_latent(pj_model_config *config, double mscale);

/* Gemma 3n: how many standard deviations above its mean a gate must be, if a share in (0, 1) of
 * normally distributed gates is to be cut: the normal distribution's quantile. */
double pj_config_cutoff(double share);

/* Parses the text of a config.json; `name` (a path) appears in errors. Arrays live in `arena`. */
pj_status pj_config_parse(const char *text, size_t bytes, const char *name, pj_arena *arena,
                          pj_model_config *config, pj_error *err);
/* Merges generation_config.json: its eos ids are added to the config's. */
pj_status pj_generation_config_parse(const char *text, size_t bytes, const char *name,
                                     pj_model_config *config, pj_generation_config *generation,
                                     pj_error *err);

#endif
