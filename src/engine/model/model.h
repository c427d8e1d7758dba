/* Configuration and weights of one model, ready to run: every matrix looked up by name, checked for
 * type and shape, and converted if requested. Immutable after pj_model_open, so it can be shared by
 * any number of states. Weights in the checkpoint's own type are used in the file's mapping; only
 * vectors (norms, biases) are copied, as floats. */
#ifndef PJ_MODEL_MODEL_H
#define PJ_MODEL_MODEL_H

#include "base/progress.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/team.h"
#include "engine/model/blueprint.h"
#include "engine/model/checkpoint.h"
#include "engine/model/rope.h"
#include "engine/model/synthetic.h"

/* y = w x + bias */
typedef struct pj_projection {
    pj_matrix w;             /* [out, in]; data NULL: the model has no such layer */
    const float *bias;       /* [out] or NULL */
    pj_instrument_name name; /* of the component; PJ_N_NONE: part of another one */
    /* factor on y when it is added to the residual stream, beside config.residual_scale; 0: 1 */
    float out_factor;
} pj_projection;

typedef struct pj_norm {
    const float *w;          /* [dims]; NULL: the model has no such norm */
    const float *b;          /* [dims] or NULL */
    pj_instrument_name name; /* of the component */
    float eps;               /* 0: config.norm_eps */
} pj_norm;

static inline float pj_norm_eps(const pj_norm *norm, const pj_model_config *config)
{
    return norm->eps > 0 ? norm->eps : (float)config->norm_eps;
}

/* One feed-forward block of width f. Exactly one of {gate and up}, {gate_up}, {up} exists. */
typedef struct pj_mlp {
    pj_projection gate;    /* [f, hidden] */
    pj_projection up;      /* [f, hidden]; alone: first layer of a plain block */
    pj_projection gate_up; /* [2 f, hidden], gate's rows first */
    pj_projection down;    /* [hidden, f] */
    uint32_t width;        /* f */
    pj_norm act_norm;      /* [f] of the activation, before `down` */
    const float *xielu;    /* its four parameters (ops.h), or NULL */
    bool cuts;             /* gates are cut `cutoff` standard deviations above their mean (ops.h) */
    float cutoff;
} pj_mlp;

enum { PJ_ROPES = 2, PJ_NO_ROPE = PJ_ROPES };

typedef struct pj_layer {
    uint32_t index;
    uint32_t heads, kv_heads, head_dim;
    uint32_t kv_source;         /* layer whose keys and values are read: itself or an earlier one */
    uint32_t window;            /* keys visible to a query, including its own; UINT32_MAX: all */
    bool window_is_chunk;       /* only those since the last multiple of `window` */
    uint32_t rope;              /* index into pj_model.ropes; PJ_NO_ROPE: no rotation */
    float score_scale;          /* of q k^T */
    bool scales_queries;        /* by config.query_beta */
    pj_norm attention_norm;     /* [hidden] */
    pj_projection q;            /* [heads head_dim, hidden] */
    pj_projection k, v;         /* [kv_heads head_dim, hidden] */
    pj_projection qkv;          /* fused: replaces the three */
    struct pj_delta *delta;     /* replaces attention; NULL: attention (delta.h) */
    struct pj_latent *latent;   /* replaces q, k and v; NULL: none (latent.h) */
    struct pj_indexer *indexer; /* chooses the keys that are seen; NULL: all are (latent.h) */
    uint32_t value_dim;         /* of a head's values */
    bool values_in_keys;        /* values are the first columns of the keys, and not stored */
    uint32_t rope_first;        /* first column of a head that rotates */
    bool output_gate;           /* q has rows of queries and of gates, alternating by head */
    const float *sinks;         /* [heads] or NULL */
    pj_norm q_norm, k_norm;     /* [head_dim], or [heads head_dim] and [kv_heads head_dim] */
    pj_norm v_norm;             /* [head_dim] */
    bool norm_rotated;          /* queries and keys are rotated before their norms */
    pj_norm attended_norm;      /* [heads head_dim], of attention's output before `o` */
    bool keys_are_values;       /* no v: values are the keys before their norm */
    pj_projection o;            /* [hidden, heads head_dim] */
    pj_norm attention_out_norm; /* [hidden] */
    pj_norm mlp_norm;           /* [hidden] */
    pj_mlp mlp;                 /* dense layers */
    pj_projection router;       /* [experts, hidden]; absent in dense layers */
    pj_mlp *experts;            /* [experts] or NULL */
    uint32_t chosen;            /* of them for each token */
    pj_projection expert_in, expert_out; /* [latent, hidden], [hidden, latent]; absent: experts
                                            read and write rows of hidden */
    pj_mlp shared;                       /* width 0: no shared expert */
    pj_projection shared_gate;           /* [1, hidden] */
    /* Experts in parallel with a dense block: norms of its output, of the router's and the experts'
     * input, and of the experts' output; all [hidden]. */
    pj_norm dense_out_norm, router_norm, experts_norm, experts_out_norm;
    const float *expert_scale;      /* [experts] factors of the chosen weights, or NULL */
    const float *expert_correction; /* [experts] added to scores when choosing, or NULL */
    pj_norm mlp_out_norm;           /* [hidden] */
    struct pj_streams *streams;     /* alternating updates (streams.h); NULL: none */
    /* The layer's part of each token vector, gated into the residual stream. */
    pj_projection token_gate;       /* [token_vector, hidden] */
    pj_projection token_projection; /* [hidden, token_vector] */
    pj_norm token_norm;             /* [hidden] */
    float scale;                    /* factor on the layer's output */
} pj_layer;

typedef struct pj_model_counts {
    uint64_t parameters;          /* all weights, a tied head counted once */
    uint64_t active_parameters;   /* counting only the chosen experts */
    uint64_t weight_bytes;        /* in memory */
    uint64_t decode_weight_bytes; /* read for one decode step of one sequence */
    double flops_per_token;       /* matrix products with weights, one token through all layers */
    pj_dtype dtype;               /* of the layers' matrices */
} pj_model_counts;

typedef struct pj_model {
    pj_model_config config;
    pj_generation_config generation;
    const pj_blueprint *blueprint;
    pj_rope ropes[PJ_ROPES]; /* for full-attention layers; for windowed ones if different */
    pj_matrix embedding;     /* [vocab, hidden] */
    pj_projection head;      /* [vocab, hidden]; the embedding if tied */
    pj_norm final_norm;      /* [hidden] */
    /* Per-layer token vectors, if any. */
    pj_matrix token_embedding;      /* [vocab, layers token_vector] */
    pj_projection token_projection; /* [layers token_vector, hidden] */
    pj_norm token_norm;             /* [token_vector] */
    /* From the embedding to each stream but the first, and back; [streams - 1] of [hidden, hidden]
     */
    pj_projection *streams_in, *streams_out;
    /* Of a head that predicts the token after the next: norms of the next token's embedding and of
     * the model's normed output, and the projection [hidden, 2 hidden] of both. */
    pj_norm next_embedding_norm, next_hidden_norm; /* [hidden] */
    pj_projection next_projection;
    bool next_hidden_first; /* its first columns are the output's */
    bool borrows;           /* checkpoint, embedding and head are another model's */
    pj_layer *layers;       /* [config.layers] */
    pj_model_counts counts;
    bool synthetic;
    uint32_t full_layers;      /* synthetic: layers of the public shape; else config.layers */
    pj_checkpoint *checkpoint; /* NULL: synthetic */
    pj_arena arena;            /* small objects: vectors, expert tables */
    struct pj_slab *slabs;     /* weights created in memory */
    size_t created_bytes;      /* of them */
} pj_model;

typedef struct pj_model_options {
    const char *path; /* as pj_engine_options.model */
    int dtype;        /* a pj_dtype to convert to, or -1: as stored */
    bool no_mmap;     /* as pj_engine_options.no_mmap */
    const pj_kernels *kernels;
    const _Atomic bool *cancel; /* as pj_engine_options.cancel */
    pj_progress *progress;      /* as pj_engine_options.progress */
} pj_model_options;

/* The team converts or generates weights; it is not stored. */
pj_status pj_model_open(pj_model *model, const pj_model_options *options, pj_team *team,
                        pj_error *err);
/* The head of an open model that predicts the token after the next: a model of one layer, which
 * reads the model's normed output beside tokens (pj_pass.hidden). It uses the model's embedding and
 * head, and must be closed first. Fails if the model has none. */
pj_status pj_model_open_head(pj_model *head, const pj_model *model, const pj_model_options *options,
                             pj_team *team, pj_error *err);
void pj_model_close(pj_model *model); /* may run twice; a zeroed model is allowed */
/* Whether it would open: every tensor that the configuration requires exists with its shape and a
 * supported type. Nothing is read or converted; the error is the one of opening. */
pj_status pj_model_check(const char *path, pj_error *err);

/* Generates one row of random weights of matrix number `matrix`, scaled to preserve signal
 * variance. */
void pj_synthetic_row(uint32_t matrix, uint64_t row, float *values, size_t count, float scale);

#endif
