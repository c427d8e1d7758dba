/*
 * Config and weights of one model, ready to run: every matrix found by name, checked for type and
 * shape, and converted where the caller wants another type. Immutable after pj_model_open, so any
 * number of states may share it. Weights in the checkpoint's own type are used where the file is
 * mapped; only vectors (norms, biases) are copied, as floats.
 */
#ifndef PJ_LLM_MODEL_H
#define PJ_LLM_MODEL_H

#include "llm/blueprint.h"
#include "llm/checkpoint.h"
#include "llm/kernels/kernels.h"
#include "llm/rope.h"
#include "llm/synthetic.h"
#include "llm/team.h"

/* y = w x + bias */
typedef struct pj_projection {
    pj_matrix w;       /* [out, in]; data NULL: the model has no such layer */
    const float *bias; /* [out] or NULL */
    pj_seam_name name; /* of the component; PJ_N_NONE: a part of another one */
} pj_projection;

typedef struct pj_norm {
    const float *w;    /* [dims]; NULL: the model has no such norm */
    const float *b;    /* [dims] or NULL */
    pj_seam_name name; /* of the component */
} pj_norm;

/* One feed-forward block; f is its width. Exactly one of {gate and up}, {gate_up}, {up} is there.
 */
typedef struct pj_mlp {
    pj_projection gate;    /* [f, hidden] */
    pj_projection up;      /* [f, hidden]; alone: the plain block's first layer */
    pj_projection gate_up; /* [2 f, hidden], gate's rows first */
    pj_projection down;    /* [hidden, f] */
    uint32_t width;        /* f */
} pj_mlp;

enum { PJ_ROPES = 2, PJ_NO_ROPE = PJ_ROPES };

typedef struct pj_layer {
    uint32_t index;
    uint32_t heads, kv_heads, head_dim;
    uint32_t kv_source;     /* layer whose keys and values it reads: itself, or an earlier one */
    uint32_t window;        /* keys a query sees, itself included; UINT32_MAX: all */
    uint32_t rope;          /* of pj_model.ropes; PJ_NO_ROPE: positions do not rotate */
    float score_scale;      /* of q k^T */
    pj_norm attention_norm; /* [hidden] */
    pj_projection q;        /* [heads head_dim, hidden] */
    pj_projection k, v;     /* [kv_heads head_dim, hidden] */
    pj_projection qkv;      /* fused: instead of the three */
    struct pj_delta *delta; /* instead of attention; NULL: attention (delta.h) */
    bool output_gate;       /* q has rows of queries and of gates */
    const float *sinks;     /* [heads] or NULL */
    pj_norm q_norm, k_norm; /* [head_dim], or [heads head_dim] and [kv_heads head_dim] */
    pj_norm v_norm;         /* [head_dim] */
    bool keys_are_values;   /* there is no v: values are the keys before their norm */
    pj_projection o;        /* [hidden, heads head_dim] */
    pj_norm attention_out_norm; /* [hidden] */
    pj_norm mlp_norm;           /* [hidden] */
    pj_mlp mlp;                 /* dense layers */
    pj_projection router;       /* [experts, hidden]; absent in dense layers */
    pj_mlp *experts;            /* [experts] or NULL */
    pj_mlp shared;              /* width 0: none */
    pj_projection shared_gate;  /* [1, hidden] */
    /* Experts beside a dense block: norms of its output, of the router's and the experts' input,
     * of the experts' output; all [hidden]. */
    pj_norm dense_out_norm, router_norm, experts_norm, experts_out_norm;
    const float *expert_scale; /* [experts] of the chosen weights, or NULL */
    pj_norm mlp_out_norm;      /* [hidden] */
    /* The layer's part of each token's vector, through a gate into the residual stream. */
    pj_projection token_gate;       /* [token_vector, hidden] */
    pj_projection token_projection; /* [hidden, token_vector] */
    pj_norm token_norm;             /* [hidden] */
    float scale;                    /* of the layer's output */
} pj_layer;

typedef struct pj_model_counts {
    uint64_t parameters;          /* all weights, a tied head counted once */
    uint64_t active_parameters;   /* of experts only the chosen ones */
    uint64_t weight_bytes;        /* as they lie in memory */
    uint64_t decode_weight_bytes; /* read for one decode step of one sequence */
    double flops_per_token;       /* matrix products with weights, one token through all layers */
    pj_dtype dtype;               /* of the layers' matrices */
} pj_model_counts;

typedef struct pj_model {
    pj_model_config config;
    pj_generation_config generation;
    const pj_blueprint *blueprint;
    pj_rope ropes[PJ_ROPES]; /* that of full layers, that of windowed ones where it differs */
    pj_matrix embedding;     /* [vocab, hidden] */
    pj_projection head;      /* [vocab, hidden]; the embedding itself when tied */
    pj_norm final_norm;      /* [hidden] */
    /* Vectors of each token for each layer, where there are any. */
    pj_matrix token_embedding;      /* [vocab, layers token_vector] */
    pj_projection token_projection; /* [layers token_vector, hidden] */
    pj_norm token_norm;             /* [token_vector] */
    pj_layer *layers;               /* [config.layers] */
    pj_model_counts counts;
    bool synthetic;
    uint32_t full_layers;      /* synthetic: layers of the public shape; else config.layers */
    pj_checkpoint *checkpoint; /* NULL: synthetic */
    pj_arena arena;            /* small things: vectors, expert tables */
    struct pj_slab *slabs;     /* weights made in memory */
} pj_model;

typedef struct pj_model_options {
    const char *path; /* as pj_engine_options.model */
    int dtype;        /* a pj_dtype to convert to, or -1: as stored */
    const pj_kernels *kernels;
} pj_model_options;

/* The team converts or makes weights; it is not kept. */
pj_status pj_model_open(pj_model *model, const pj_model_options *options, pj_team *team,
                        pj_error *err);
void pj_model_close(pj_model *model); /* may run twice; a zeroed model is allowed */

/* One row of random weights of matrix number `matrix`, scaled so that signals keep their size. */
void pj_synthetic_row(uint32_t matrix, uint64_t row, float *values, size_t count, float scale);

#endif
