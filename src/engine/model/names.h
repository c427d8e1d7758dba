/* Names of everything the engine records: sections, components, operations and extras. A component
 * is named after the module of the published checkpoint that it runs, so the blueprint uses the
 * same list to find tensors and to name spans. */
#ifndef PJ_MODEL_NAMES_H
#define PJ_MODEL_NAMES_H

/* Symbol and spelling. Components are contiguous, so that a range of symbols identifies them. */
#define PJ_INSTRUMENT_NAMES(X)                                      \
    /* sections */                                                  \
    X(TOKENIZATION, "tokenization")                                 \
    X(KV_CACHE_INIT, "kv_cache_init")                               \
    X(EMBEDDING, "embedding")                                       \
    X(POSITION_EMBEDDING, "position_embedding")                     \
    X(LAYERS, "layers")                                             \
    X(FINAL_NORM, "final_norm")                                     \
    X(LM_HEAD, "lm_head")                                           \
    X(KV_CACHE_STORE, "kv_cache_store")                             \
    X(KV_CACHE_APPEND, "kv_cache_append")                           \
    X(KV_CACHE_REBUILD, "kv_cache_rebuild")                         \
    X(DRAFT, "draft")                                               \
    X(SAMPLING, "sampling")                                         \
    X(DETOKENIZATION, "detokenization")                             \
    X(CLEANUP, "cleanup")                                           \
    /* components */                                                \
    X(EMBED_TOKENS, "embed_tokens")                                 \
    X(EMBED_TOKENS_PER_LAYER, "embed_tokens_per_layer")             \
    X(PER_LAYER_MODEL_PROJECTION, "per_layer_model_projection")     \
    X(PER_LAYER_PROJECTION_NORM, "per_layer_projection_norm")       \
    X(ALTUP_PROJECTIONS, "altup_projections")                       \
    X(ROTARY_EMB, "rotary_emb")                                     \
    X(INPUT_LAYERNORM, "input_layernorm")                           \
    X(POST_ATTENTION_LAYERNORM, "post_attention_layernorm")         \
    X(POST_SELF_ATTN_LAYERNORM, "post_self_attn_layernorm")         \
    X(PRE_FEEDFORWARD_LAYERNORM, "pre_feedforward_layernorm")       \
    X(POST_FEEDFORWARD_LAYERNORM, "post_feedforward_layernorm")     \
    X(POST_MLP_LAYERNORM, "post_mlp_layernorm")                     \
    X(POST_FEEDFORWARD_LAYERNORM_1, "post_feedforward_layernorm_1") \
    X(PRE_FEEDFORWARD_LAYERNORM_2, "pre_feedforward_layernorm_2")   \
    X(POST_FEEDFORWARD_LAYERNORM_2, "post_feedforward_layernorm_2") \
    X(Q_PROJ, "q_proj")                                             \
    X(K_PROJ, "k_proj")                                             \
    X(V_PROJ, "v_proj")                                             \
    X(QKV_PROJ, "qkv_proj")                                         \
    X(Q_NORM, "q_norm")                                             \
    X(K_NORM, "k_norm")                                             \
    X(V_NORM, "v_norm")                                             \
    X(ATTENTION, "attention")                                       \
    X(O_PROJ, "o_proj")                                             \
    X(DENSE, "dense")                                               \
    X(GATE_PROJ, "gate_proj")                                       \
    X(UP_PROJ, "up_proj")                                           \
    X(GATE_UP_PROJ, "gate_up_proj")                                 \
    X(FC1, "fc1")                                                   \
    X(ACT, "act")                                                   \
    X(DOWN_PROJ, "down_proj")                                       \
    X(FC2, "fc2")                                                   \
    X(ROUTER, "router")                                             \
    X(EXPERTS, "experts")                                           \
    X(FC1_LATENT_PROJ, "fc1_latent_proj")                           \
    X(FC2_LATENT_PROJ, "fc2_latent_proj")                           \
    X(SHARED_EXPERT, "shared_expert")                               \
    X(ROUTER_NORM, "router_norm")                                   \
    X(PER_LAYER_INPUT_GATE, "per_layer_input_gate")                 \
    X(PER_LAYER_PROJECTION, "per_layer_projection")                 \
    X(PER_LAYER_ACT, "per_layer_act")                               \
    X(POST_PER_LAYER_INPUT_NORM, "post_per_layer_input_norm")       \
    X(LAYER_SCALAR, "layer_scalar")                                 \
    X(NORM, "norm")                                                 \
    X(LOGITS, "logits")                                             \
    X(IN_PROJ_QKV, "in_proj_qkv")                                   \
    X(IN_PROJ_Z, "in_proj_z")                                       \
    X(IN_PROJ_B, "in_proj_b")                                       \
    X(IN_PROJ_A, "in_proj_a")                                       \
    X(CONV1D, "conv1d")                                             \
    X(DELTA_RULE, "delta_rule")                                     \
    X(LINEAR_ATTN_NORM, "linear_attn_norm")                         \
    X(OUT_PROJ, "out_proj")                                         \
    X(OUTPUT_GATE, "output_gate")                                   \
    X(FINAL_LAYERNORM, "final_layernorm")                           \
    X(DRAFT_PASS, "draft_pass")                                     \
    X(IN_PROJ, "in_proj")                                           \
    X(IN_PROJ_XBC, "in_proj_xbc")                                   \
    X(IN_PROJ_DT, "in_proj_dt")                                     \
    X(SCAN, "scan")                                                 \
    X(MAMBA_NORM, "mamba_norm")                                     \
    X(CONV, "conv")                                                 \
    X(OPERATOR_NORM, "operator_norm")                               \
    X(FFN_NORM, "ffn_norm")                                         \
    X(EMBEDDING_NORM, "embedding_norm")                             \
    X(Q_LAYERNORM, "q_layernorm")                                   \
    X(K_LAYERNORM, "k_layernorm")                                   \
    X(W1, "w1")                                                     \
    X(W2, "w2")                                                     \
    X(W3, "w3")                                                     \
    X(INPUT_LINEAR, "input_linear")                                 \
    X(OUTPUT_LINEAR, "output_linear")                               \
    X(Q_A_PROJ, "q_a_proj")                                         \
    X(Q_A_LAYERNORM, "q_a_layernorm")                               \
    X(Q_B_PROJ, "q_b_proj")                                         \
    X(KV_A_PROJ, "kv_a_proj_with_mqa")                              \
    X(KV_A_LAYERNORM, "kv_a_layernorm")                             \
    X(K_B_PROJ, "k_b_proj")                                         \
    X(V_B_PROJ, "v_b_proj")                                         \
    X(WQ_B, "wq_b")                                                 \
    X(WK, "wk")                                                     \
    X(WEIGHTS_PROJ, "weights_proj")                                 \
    X(INDEXER, "indexer")                                           \
    X(QUERY_LAYERNORM, "query_layernorm")                           \
    X(KEY_LAYERNORM, "key_layernorm")                               \
    X(ATTENTION_LAYERNORM, "attention_layernorm")                   \
    X(FEEDFORWARD_LAYERNORM, "feedforward_layernorm")               \
    X(ATTN_SUB_NORM, "attn_sub_norm")                               \
    X(NORM_F, "norm_f")                                             \
    X(FFN_SUB_NORM, "ffn_sub_norm")                                 \
    X(QK_NORM, "qk_norm")                                           \
    X(PRE_FF_LAYERNORM, "pre_ff_layernorm")                         \
    X(SSM_IN_MULTIPLIER, "ssm_in_multiplier")                       \
    X(SSM_MULTIPLIERS, "ssm_multipliers")                           \
    X(ATTENTION_IN_MULTIPLIER, "attention_in_multiplier")           \
    X(MODALITY_ROUTER, "modality_router")                           \
    X(MODALITIES, "modalities")                                     \
    X(PREDICTION_COEFS, "prediction_coefs")                         \
    X(ALTUP_PREDICT, "altup_predict")                               \
    X(LINEAR_LEFT, "linear_left")                                   \
    X(LINEAR_RIGHT, "linear_right")                                 \
    X(POST_LAUREL_NORM, "post_laurel_norm")                         \
    X(LAUREL, "laurel")                                             \
    X(CORRECTION_COEFS, "correction_coefs")                         \
    X(ALTUP_CORRECT, "altup_correct")                               \
    X(ALTUP_UNEMBED_PROJECTIONS, "altup_unembed_projections")       \
    X(ENORM, "enorm")                                               \
    X(HNORM, "hnorm")                                               \
    X(EH_PROJ, "eh_proj")                                           \
    X(PRE_FC_NORM_EMBEDDING, "pre_fc_norm_embedding")               \
    X(PRE_FC_NORM_HIDDEN, "pre_fc_norm_hidden")                     \
    X(FC, "fc")                                                     \
    X(TOKEN_LAYERNORM, "token_layernorm")                           \
    X(HIDDEN_LAYERNORM, "hidden_layernorm")                         \
    X(INPUT_PROJ, "input_proj")                                     \
    /* operations */                                                \
    X(OP_GATHER, "gather")                                          \
    X(OP_DEQUANTISE, "dequantise")                                  \
    X(OP_NORM, "norm")                                              \
    X(OP_PACK, "pack")                                              \
    X(OP_MATMUL, "matmul")                                          \
    X(OP_BIAS_ADD, "bias_add")                                      \
    X(OP_ROPE, "rope")                                              \
    X(OP_QUERY_SCALE, "query_scale")                                \
    X(OP_KV_APPEND, "kv_append")                                    \
    X(OP_QK_MATMUL, "qk_matmul")                                    \
    X(OP_SCALE, "scale")                                            \
    X(OP_SOFTCAP, "softcap")                                        \
    X(OP_MASK_APPLY, "mask_apply")                                  \
    X(OP_SOFTMAX, "softmax")                                        \
    X(OP_FUSED_ATTENTION, "fused_attention")                        \
    X(OP_ATTN_DROPOUT, "attn_dropout")                              \
    X(OP_VALUE_MATMUL, "value_matmul")                              \
    X(OP_ACTIVATION, "activation")                                  \
    X(OP_GATE_MUL, "gate_mul")                                      \
    X(OP_RESIDUAL_ADD, "residual_add")                              \
    X(OP_TOP_K, "top_k")                                            \
    X(OP_SCATTER_ADD, "scatter_add")                                \
    X(OP_STREAM_MIX, "stream_mix")                                  \
    X(OP_INDEX_SCORES, "index_scores")                              \
    /* extras */                                                    \
    X(X_ENTROPY, "attention_entropy")                               \
    X(X_ENTROPY_NORMALISED, "attention_entropy_normalised")         \
    X(X_LARGEST, "attention_largest_weight")                        \
    X(X_LARGEST_OF_ALL, "attention_largest_weight_of_all")          \
    X(X_ATTENTION_SPARSITY, "attention_sparsity")                   \
    X(X_ATTENTION_SPARSITY_RELATIVE, "attention_sparsity_relative") \
    X(X_ATTENTION_ROWS, "attention_rows")                           \
    X(X_ENTROPY_HEAD, "attention_entropy_head")                     \
    X(X_LARGEST_HEAD, "attention_largest_weight_head")              \
    X(X_ATTENTION_SPARSITY_HEAD, "attention_sparsity_head")         \
    X(X_ROWS, "rows")                                               \
    X(X_STATISTICS_ROWS, "statistics_rows")                         \
    X(X_KILL_RATIO, "kill_ratio")                                   \
    X(X_DEAD_RATIO, "dead_ratio")                                   \
    X(X_GATED_SPARSITY, "gated_sparsity")                           \
    X(X_VARIANCE_RATIO, "variance_ratio")                           \
    X(X_VARIANCE_RATIO_P95, "variance_ratio_p95")                   \
    X(X_MEAN_SQUARE_RATIO, "mean_square_ratio")                     \
    X(X_ROUTING_ENTROPY, "routing_entropy")                         \
    X(X_ROUTING_ENTROPY_NORMALISED, "routing_entropy_normalised")   \
    X(X_ROUTING_MARGIN, "routing_margin")                           \
    X(X_EXPERT, "expert")                                           \
    X(X_EXPERT_WEIGHT, "expert_weight")                             \
    X(X_EXPERT_LOAD, "expert_load")                                 \
    X(X_EXPERT_LOAD_VARIATION, "expert_load_variation")             \
    X(X_LOAD_BALANCE, "load_balance")                               \
    X(X_UNIQUE_EXPERTS, "unique_experts")

typedef enum pj_instrument_name {
    PJ_N_NONE = 0,
#define X(symbol, text) PJ_N_##symbol,
    PJ_INSTRUMENT_NAMES(X)
#undef X
        PJ_N_COUNT
} pj_instrument_name;

const char *pj_instrument_text(pj_instrument_name name); /* its spelling, static */

#endif
