/*
 * The seam between the forward pass and perjoule.h: names interned once before the run, spans by
 * depth, statistics of outputs, and FLOPs and bytes by the conventions of docs/measurement.md. With
 * no run, or at a depth that does not ask, each call is a test of one flag.
 *
 * Only the thread that drives the forward pass records; the team computes statistics for it.
 */
#ifndef PJ_LLM_SEAM_H
#define PJ_LLM_SEAM_H

#include "llm/kernels/kernels.h"
#include "llm/team.h"

#include <math.h>

/* Every name the engine records, with its spelling. */
#define PJ_SEAM_NAMES(X)                                            \
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
    X(SAMPLING, "sampling")                                         \
    X(DETOKENIZATION, "detokenization")                             \
    X(CLEANUP, "cleanup")                                           \
    /* components */                                                \
    X(EMBED_TOKENS, "embed_tokens")                                 \
    X(ROTARY_EMB, "rotary_emb")                                     \
    X(INPUT_LAYERNORM, "input_layernorm")                           \
    X(POST_ATTENTION_LAYERNORM, "post_attention_layernorm")         \
    X(Q_PROJ, "q_proj")                                             \
    X(K_PROJ, "k_proj")                                             \
    X(V_PROJ, "v_proj")                                             \
    X(QKV_PROJ, "qkv_proj")                                         \
    X(Q_NORM, "q_norm")                                             \
    X(K_NORM, "k_norm")                                             \
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
    X(SHARED_EXPERT, "shared_expert")                               \
    X(NORM, "norm")                                                 \
    X(FINAL_LAYERNORM, "final_layernorm")                           \
    /* operations */                                                \
    X(OP_GATHER, "gather")                                          \
    X(OP_DEQUANTISE, "dequantise")                                  \
    X(OP_NORM, "norm")                                              \
    X(OP_PACK, "pack")                                              \
    X(OP_MATMUL, "matmul")                                          \
    X(OP_BIAS_ADD, "bias_add")                                      \
    X(OP_ROPE, "rope")                                              \
    X(OP_KV_APPEND, "kv_append")                                    \
    X(OP_QK_MATMUL, "qk_matmul")                                    \
    X(OP_SCALE, "scale")                                            \
    X(OP_MASK_APPLY, "mask_apply")                                  \
    X(OP_SOFTMAX, "softmax")                                        \
    X(OP_ATTN_DROPOUT, "attn_dropout")                              \
    X(OP_VALUE_MATMUL, "value_matmul")                              \
    X(OP_ACTIVATION, "activation")                                  \
    X(OP_GATE_MUL, "gate_mul")                                      \
    X(OP_RESIDUAL_ADD, "residual_add")                              \
    X(OP_TOP_K, "top_k")                                            \
    X(OP_SCATTER_ADD, "scatter_add")                                \
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

typedef enum pj_seam_name {
    PJ_N_NONE = 0,
#define X(symbol, text) PJ_N_##symbol,
    PJ_SEAM_NAMES(X)
#undef X
        PJ_N_COUNT
} pj_seam_name;

/* Extras and statistics look at all rows of passes of up to 64, and of longer ones at about 32,
 * evenly spaced, the last one always: every step-th. */
enum { PJ_LOOK_ALL = 64, PJ_LOOK_SOME = 32 };
static inline size_t pj_look_step(size_t rows)
{
    return rows <= PJ_LOOK_ALL ? 1 : (rows + PJ_LOOK_SOME - 1) / PJ_LOOK_SOME;
}
static inline bool pj_look_at(size_t row, size_t rows, size_t step)
{
    return (rows - 1 - row) % step == 0;
}

/* Threshold of sparsity, and of an activation being dead, as the contract of the figures says. */
#define PJ_SPARSITY_TAU 0.01f

enum { PJ_SEAM_EXTRAS = 1024, PJ_SEAM_KEPT = 4 };

/* Statistics of one buffer, taken at the end of an operation. */
typedef struct pj_kept_stats {
    const float *x; /* NULL: none */
    size_t rows, cols;
    size_t looked; /* rows that the statistics saw; 0: all */
    bool fresh;    /* of the span that is open */
    pj_stats stats;
} pj_kept_stats;

typedef struct pj_seam {
    pj_lane *lane;     /* NULL: nothing is recorded */
    bool module, deep; /* components and their statistics; operations and their extras */
    const pj_kernels *kernels;
    pj_team *team;
    uint32_t names[PJ_N_COUNT]; /* interned */
    uint32_t extra_count;
    pj_extra extras[PJ_SEAM_EXTRAS];
    pj_thread_sums *sums; /* [threads], zero between dispatches */
    /* What the operations of the component at hand gave: its last one's output is often the
     * component's own, and looking twice would cost twice. */
    pj_kept_stats kept[PJ_SEAM_KEPT];
    uint32_t kept_next;
    bool operation_open;
} pj_seam;

/* Interns the names and takes the calling thread's lane; `run` may be NULL. */
pj_status pj_seam_init(pj_seam *seam, pj_run *run, const pj_kernels *kernels, pj_team *team,
                       pj_error *err);
void pj_seam_fini(pj_seam *seam);            /* may run twice */
const char *pj_seam_text(pj_seam_name name); /* its spelling, static */

/* What a span did, on the way to its end. */
typedef struct pj_done {
    double flops, bytes;
    const float *x; /* output to take statistics of, or NULL; [rows][stride], cols used */
    size_t rows, cols, stride;
} pj_done;

static inline void pj_seam_section(pj_seam *r, pj_seam_name name)
{
    if (r->lane) pj_span_begin(r->lane, PJ_SPAN_SECTION, r->names[name]);
}
static inline void pj_seam_end(pj_seam *r)
{
    if (r->lane) pj_span_end(r->lane, NULL);
}
static inline void pj_seam_layer(pj_seam *r, uint32_t layer)
{
    if (r->module) pj_span_begin(r->lane, PJ_SPAN_LAYER, layer);
}
void pj_seam_begin_component(pj_seam *r, pj_seam_name name);
static inline void pj_seam_component(pj_seam *r, pj_seam_name name)
{
    if (r->module) pj_seam_begin_component(r, name);
}
static inline void pj_seam_operation(pj_seam *r, pj_seam_name name)
{
    if (!r->deep) return;
    pj_span_begin(r->lane, PJ_SPAN_OPERATION, r->names[name]);
    r->operation_open = true;
}
void pj_seam_end_done(pj_seam *r, const pj_done *done);
/* Ends a layer or component with its statistics and the extras gathered since the last end. */
static inline void pj_seam_module_end(pj_seam *r, pj_done done)
{
    if (r->module) pj_seam_end_done(r, &done);
}
static inline void pj_seam_operation_end(pj_seam *r, pj_done done)
{
    if (r->deep) pj_seam_end_done(r, &done);
}
/* Keeps an extra for the next end; index PJ_EXTRA_SCALAR for a scalar. NAN is left out. */
void pj_seam_extra(pj_seam *r, pj_seam_name name, uint32_t index, double value);

/* Statistics of an output by those who compute it, while it is in their caches: each thread adds to
 * its own sums during a dispatch, and the caller, behind it, takes what all have added as those of
 * the buffer that the span which is open puts out. */
static inline pj_value_sums *pj_seam_sums(pj_seam *r, unsigned thread)
{
    return &r->sums[thread].sums;
}
void pj_seam_take_sums(pj_seam *r, pj_value_sums *sums); /* and leaves zero */
void pj_seam_add_sums(pj_value_sums *into, const pj_value_sums *part);
void pj_seam_keep(pj_seam *r, const pj_done *done, const pj_value_sums *sums);
static inline void pj_seam_keep_sums(pj_seam *r, const pj_done *done)
{
    pj_value_sums sums;
    pj_seam_take_sums(r, &sums);
    pj_seam_keep(r, done, &sums);
}
/* Ends an operation; the extras gathered since the last end are added to the work. */
void pj_seam_end_work(pj_seam *r, pj_work *work);
pj_stats pj_stats_of_sums(const pj_value_sums *sums);

#endif
