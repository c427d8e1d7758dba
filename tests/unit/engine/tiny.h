/*
 * Tiny models for tests: random checkpoints of every architecture and variant, written as model
 * files, and a double-precision reference forward pass over the same weights that shares no code
 * with the engine.
 */
#ifndef PJ_TESTS_UNIT_TINY_H
#define PJ_TESTS_UNIT_TINY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TINY_MAX_TENSORS = 512, TINY_MAX_TOKENS = 64 };

enum { TINY_PRE = 0, TINY_POST, TINY_SANDWICH };

/* Mixtures of experts of families that are otherwise the same as others, with names of their own.
 */
typedef enum tiny_family {
    TINY_PLAIN = 0,
    TINY_GRANITE, /* gate and up of all experts in one tensor */
    TINY_HUNYUAN,
    TINY_LFM2, /* layers of attention, and of short convolutions (`convolves`) */
} tiny_family;

typedef struct tiny_shape {
    const char *name;
    const char *architecture; /* "LlamaForCausalLM" */
    int layers, hidden, heads, kv_heads, head_dim, width, vocab;
    int window;       /* 0: none */
    double partial;   /* share of rotating dimensions; 0: all */
    const char *rope; /* "default", "linear", "llama3", "yarn", "longrope" */
    bool fused;       /* qkv_proj and gate_up_proj */
    bool plain_mlp;   /* fc1, gelu, fc2; parallel block, LayerNorm, biases everywhere */
    bool qk_norm;
    bool qkv_bias, all_bias;
    bool tied;
    int experts, chosen, expert_width, shared_width; /* experts 0: dense */
    int expert_latent; /* width of what experts read and write; 0: hidden */
    int dense_layer;   /* of a mixture; -1: none */
    bool renormalise;
    bool fused_experts; /* one tensor for all experts */
    bool mixtral;       /* tensor names of that family */
    /* Families of 2024 to 2026. */
    int norms;         /* TINY_PRE, TINY_POST (OLMo 2) or TINY_SANDWICH (Gemma) */
    bool full_qk_norm; /* one norm over all heads */
    bool gemma;        /* weights of norms are w - 1, GeGLU, embedding times sqrt(hidden) */
    double residual_scale, logit_scale, score_scale; /* 0: plain */
    double score_cap, logit_cap;                     /* 0: none */
    int unrotated_every;                             /* every n-th layer without RoPE; 0: none */
    int full_every;                                  /* every n-th without window; 0: none */
    bool rotated_norm; /* norms of queries and keys after the rotation (Hunyuan) */
    bool xielu;        /* up_proj, xIELU, down_proj (Apertus) */
    bool relu2;        /* and norms of attention's output and of the activation (BitNet) */
    double mixer;      /* two experts, one after the other, LayerNorm (Phi-3.5-MoE): its noise */
    bool halves; /* attention without rotation and plain blocks in turn (Nemotron-H), the first
                    of them, if there are experts, without a dense block */
    /* Alternating updates (Gemma 3n): streams, the one that layers compute, the rank of the
     * residual beside attention, the width of token vectors, and the layers that read earlier keys.
     */
    int streams, active, rank, token_vector, readers;
    /* GLM-4.5: a router by sigmoid with a correction, a shared expert without a gate, and a head
     * that predicts the token after the next. */
    bool sigmoid;
    double routed_scale; /* 0: 1 */
    /* Qwen3.5: layers of the gated delta rule but for each fourth, whose attention has an output
     * gate; norms of w - 1; a head likewise, under names of its own. */
    bool delta;
    bool mimo; /* Qwen2 with a head under other names */
    /* DeepSeek V3.2: latent attention of `kept` keys that an indexer chooses; GLM-5 (`shares`):
     * every second layer from the third on sees what the layer before it sees, and the indexer
     * rotates neighbours. */
    int kept;
    bool shares;
    /* Chunks of attention in the layers that rotate, experts whose input is weighted in every
     * second layer (Llama 4); 0: none */
    int chunk;
    int query_period; /* queries of the others are scaled, and none has a norm; 0: the default */
    bool beside;      /* attention and a state-space scan side by side (Falcon-H1) */
    bool multiplied;  /* its multipliers, and a norm after the scan's gate */
    tiny_family family;
    bool scans;      /* state-space scans alone (Mamba-2) */
    bool convolves;  /* every second layer, from the first on, with biases */
    int last_chosen; /* experts per token of the last layer; 0: as of the others */
    bool latent;     /* of all keys, rotated by halves (DeepSeek V3) */
    bool no_gguf;    /* no GGUF file has it */
} tiny_shape;

extern const tiny_shape tiny_shapes[];
extern const size_t tiny_shape_count;
const tiny_shape *tiny_find(const char *name);

typedef struct tiny_tensor {
    char name[128];
    int rank, shape[3];
    size_t count;
    float *values;
} tiny_tensor;

typedef struct tiny_model {
    tiny_shape shape;
    tiny_tensor tensors[TINY_MAX_TENSORS];
    int tensor_count;
    char folder[64]; /* where its files are */
} tiny_model;

/* Element type of the file; the values in memory are rounded to it too. */
typedef enum tiny_type { TINY_F32 = 0, TINY_BF16, TINY_F16 } tiny_type;

void tiny_make(tiny_model *model, const tiny_shape *shape, uint64_t seed);
/* Writes config.json and model.safetensors into a new folder under /tmp. */
void tiny_write(tiny_model *model, tiny_type type);
void tiny_free(tiny_model *model);                          /* removes the folder too */
tiny_tensor *tiny_get(tiny_model *model, const char *name); /* NULL: none */
/* Quantises and dequantises every matrix (not vectors) with 8- or 4-bit blocks as the formats
 * define; with 4 bits, embedding and head get 8. */
void tiny_quantise(tiny_model *model, int bits);

/* The reference's statistics of a component's output, over all tokens. */
typedef struct tiny_capture {
    const char *component; /* e.g. "q_proj"; the layer is 0 */
    double mean_abs, mean, std, max_abs, sparsity;
    size_t count;
} tiny_capture;

/* What the head reads of the model: [count][hidden], normalised. */
void tiny_outputs(tiny_model *model, const int32_t *ids, int count, double *outputs);
/* The head that predicts the token after the next, over outputs and the tokens that follow them:
 * its own normalised outputs [count][hidden], and logits [count][vocab]. */
void tiny_head(tiny_model *model, const double *outputs, const int32_t *next, int count,
               double *own, double *logits);

/* logits [count][vocab]; `captures` may be NULL. */
void tiny_forward(tiny_model *model, const int32_t *ids, int count, double *logits,
                  tiny_capture *captures, int capture_count);

#endif
