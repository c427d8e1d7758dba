/* What differs between architectures: one row each. The forward pass depends on the row and on
 * nothing else of the architecture; only readers of files (config*.c, gguf_config.c) ask for more.
 * A component that the row does not name does not exist; one that it names is looked up in the
 * checkpoint, and recorded, under that name. */
#ifndef PJ_MODEL_BLUEPRINT_H
#define PJ_MODEL_BLUEPRINT_H

#include "engine/model/config.h"
#include "engine/model/names.h"

typedef enum pj_norm_kind { PJ_NORM_RMS = 0, PJ_NORM_LAYER } pj_norm_kind;

/* Norm of queries and keys, before rotation: as the others if these have biases, else RMSNorm. */
typedef enum pj_qk_norm {
    PJ_QK_NORM_NONE = 0,
    PJ_QK_NORM_HEAD, /* per head, with weights shared by all heads */
    PJ_QK_NORM_FULL  /* over all heads of a token together */
} pj_qk_norm;

/* Whether a linear layer has a bias. */
typedef enum pj_bias_rule {
    PJ_BIAS_NEVER = 0,
    PJ_BIAS_ALWAYS,
    PJ_BIAS_ATTENTION, /* config.attention_bias */
    PJ_BIAS_QKV,       /* config.qkv_bias */
    PJ_BIAS_OUT,       /* config.out_bias */
    PJ_BIAS_HEAD,      /* config.head_bias */
    PJ_BIAS_MLP        /* config.mlp_bias */
} pj_bias_rule;

typedef enum pj_mlp_kind {
    PJ_MLP_GATED = 0,   /* down(act(gate x) * up x) */
    PJ_MLP_GATED_FUSED, /* as above, gate and up are halves of one matrix */
    PJ_MLP_PLAIN        /* fc2(act(fc1 x)) */
} pj_mlp_kind;

typedef enum pj_router_kind {
    PJ_ROUTER_NONE = 0,
    PJ_ROUTER_SOFTMAX_RENORMALISED, /* the chosen weights always sum to 1 */
    PJ_ROUTER_SOFTMAX,              /* only if config.norm_topk */
    PJ_ROUTER_MIXER                 /* one after the other (ops.h) */
} pj_router_kind;

typedef struct pj_blueprint {
    pj_norm_kind norm;
    bool norm_without_bias; /* of PJ_NORM_LAYER */
    bool norm_adds_one;     /* config.json checkpoints store norm weights as w - 1 */
    bool fused_qkv;         /* rows of q, then k, then v in one matrix */
    bool parallel_block;    /* x + attention(n x) + mlp(n x) with one norm */
    pj_qk_norm qk_norm;
    bool qk_norm_rotated; /* after the rotation, instead of before */
    bool qk_norm_plain;   /* without weights, and only in layers that rotate */
    pj_mlp_kind mlp;
    pj_router_kind router;
    bool router_bias;
    bool output_gate; /* rows of q_proj: per head the query, then the output gate */
    /* attention sinks: a logit per head that takes part in the softmax and has no value */
    bool sinks;
    bool v_norm;           /* RMSNorm of each head of values, without weights */
    bool layer_scale;      /* a learned factor on each layer's output */
    bool parallel_experts; /* experts run in parallel with the dense block, not instead of it */
    bool shared_expert;    /* an additional expert for every token */
    bool shared_gate;      /* it is weighted by a sigmoid */
    /* an expert's input is multiplied by its weight, instead of its output */
    bool weighted_input;
    bool experts_transposed; /* tensors of all experts are [experts, in, out] */
    bool experts_unbiased;   /* mlp_bias is for other blocks alone */
    pj_bias_rule qkv_bias, o_bias, mlp_bias, head_bias;
    /* Components in layer order; PJ_N_NONE: the architecture has no such norm. */
    const char *block;                     /* the feed-forward block's own name; NULL: "mlp" */
    const char *mixer;                     /* likewise; NULL: "self_attn", "mamba", ... */
    pj_instrument_name attention_norm;     /* before attention */
    pj_instrument_name q_norm, k_norm;     /* PJ_N_NONE: q_norm and k_norm */
    pj_instrument_name attended_norm;      /* of the heads' outputs, before that projection */
    pj_instrument_name o;                  /* attention's output projection */
    pj_instrument_name attention_out_norm; /* of attention's output, before the residual sum */
    pj_instrument_name mlp_norm;           /* before the feed-forward block */
    pj_instrument_name gate, gate_up;      /* PJ_N_NONE: gate_proj and gate_up_proj */
    pj_instrument_name act_norm;           /* of the activation, before the last layer */
    pj_instrument_name up, down;           /* first layer of a plain block; last layer of any */
    pj_instrument_name mlp_out_norm;       /* of the block's output, before the residual sum */
    pj_instrument_name final_norm;
} pj_blueprint;

const pj_blueprint *pj_blueprint_get(pj_arch arch); /* static */
static inline bool pj_norms_have_bias(const pj_blueprint *blueprint)
{
    return blueprint->norm == PJ_NORM_LAYER && !blueprint->norm_without_bias;
}
bool pj_bias_wanted(pj_bias_rule rule, const pj_model_config *config);
/* Whether experts have biases. */
static inline bool pj_expert_bias_wanted(const pj_blueprint *blueprint,
                                         const pj_model_config *config)
{
    return !blueprint->experts_unbiased && pj_bias_wanted(blueprint->mlp_bias, config);
}

#endif
