/*
 * What differs between architectures, one row each. The forward pass and the loader read the row;
 * nothing else in the engine asks which architecture it runs. Names are those of checkpoints, and
 * the last part of a name is also the name of the recorded component.
 */
#ifndef PJ_LLM_BLUEPRINT_H
#define PJ_LLM_BLUEPRINT_H

#include "llm/config.h"

typedef enum pj_norm_kind { PJ_NORM_RMS = 0, PJ_NORM_LAYER } pj_norm_kind;

/* Whether a linear layer carries a bias. */
typedef enum pj_bias_rule {
    PJ_BIAS_NEVER = 0,
    PJ_BIAS_ALWAYS,
    PJ_BIAS_ATTENTION, /* config.attention_bias */
    PJ_BIAS_QKV,       /* config.qkv_bias */
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
    PJ_ROUTER_SOFTMAX               /* only where config.norm_topk says so */
} pj_router_kind;

typedef struct pj_blueprint {
    pj_norm_kind norm;
    bool fused_qkv;      /* rows of q, then k, then v in one matrix */
    bool qk_norm;        /* RMSNorm over each head of q and k, before rope */
    bool parallel_block; /* x + attention(n x) + mlp(n x) with one norm */
    pj_mlp_kind mlp;
    pj_router_kind router;
    bool shared_expert; /* one more expert for every token, behind a sigmoid gate */
    pj_bias_rule qkv_bias, o_bias, mlp_bias, head_bias;
    const char *o_name;          /* "o_proj" */
    const char *up_name;         /* plain MLP: "fc1" */
    const char *down_name;       /* "down_proj", "fc2" */
    const char *final_norm_name; /* "norm" */
} pj_blueprint;

const pj_blueprint *pj_blueprint_get(pj_arch arch); /* static */
bool pj_bias_wanted(pj_bias_rule rule, const pj_model_config *config);

#endif
