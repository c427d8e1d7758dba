/*
 * The mutable state of a generation: the KV cache of its sequences and the activations of one pass.
 * Everything is allocated here; the forward pass allocates nothing.
 *
 * The keys (or values) of one layer, sequence and KV head are contiguous rows of head_dim values,
 * oldest first. Layers with a sliding window keep only what a query can still see: their rows start
 * at position `base` of the sequence, and when the rows are full the visible ones are moved to the
 * front. So attention always reads one contiguous range in order.
 */
#ifndef PJ_FORWARD_STATE_H
#define PJ_FORWARD_STATE_H

#include "engine/forward/backend.h"
#include "engine/kernels/linear.h"

/* Sums over the sampled attention rows of one head. */
typedef struct pj_head_figures {
    uint32_t number; /* of the attention that they are about */
    uint32_t rows;
    double entropy, entropy_normalised, largest, largest_of_all;
    double visible, below, below_relative; /* keys; with p < tau; with p < 0.1 / n */
} pj_head_figures;

enum { PJ_ATTENTION_STAGES = 7, PJ_ATTENTION_SUMS = 5 };

/* What one thread did for the attention of a layer at depth deep, on cache lines of its own. */
typedef struct pj_attention_part {
    _Alignas(64) uint32_t number; /* of the attention that this is about */
    int64_t ns[PJ_ATTENTION_STAGES];
    pj_value_sums sums[PJ_ATTENTION_SUMS];
} pj_attention_part;

/* Padding between the rows of gate and up, in floats: nine cache lines. Widths are powers of two,
 * and rows 64 KiB apart would map to the same cache set and evict each other when a panel's rows
 * are written together. */
enum { PJ_GATE_GAP = 144 };

typedef struct pj_state {
    const pj_model *model;
    const pj_kernels *kernels;
    pj_team *team;
    pj_state_options options;
    pj_sequence *sequences; /* [options.sequences] */

    /* KV cache: layer i starts at kv + kv_offset[i], holds [sequences][2: K, V][kv_heads][slots]
     * rows of head_dim values. */
    unsigned char *kv;
    size_t kv_bytes;
    size_t *kv_offset;    /* [layers] */
    size_t *kv_row_bytes; /* [layers] of one position's keys, or values, of one head */
    uint32_t full_slots, window_slots;

    /* Activations; T = options.max_tokens. */
    unsigned char *block; /* all of the following */
    size_t block_bytes;
    float *x;                /* [T][hidden] residual stream */
    float *normed;           /* [T][hidden] */
    float *mixed;            /* [T][channels] input of the delta rule's convolution */
    float *gate;             /* [T][widest] output gates; queries and gates alternating by head */
    float *strength;         /* [T][2 value heads] the delta rule's b, then a */
    float *qkv;              /* [T][(heads + 2 kv_heads) head_dim]: q, k, v of a token, adjacent */
    float *attended;         /* [T][heads head_dim] */
    float *y;                /* [T][hidden] output of attention and of the MLP */
    float *y2;               /* [T][hidden] output of one expert */
    float *gate_up;          /* [T][2 widest f + PJ_GATE_GAP] gate and up of a token, adjacent */
    float *act;              /* [T][widest f] */
    float *gathered;         /* [T][hidden] for experts: their tokens, contiguous */
    float *branch;           /* [T][hidden] dense block's output, if experts run in parallel */
    float *token_vectors;    /* [T][layers token_vector] per-layer token vectors */
    float *token_context;    /* the same, from the embedding's projection */
    float *routing;          /* [T][experts] router logits */
    float *probability;      /* [T][experts] their softmax */
    uint32_t *chosen;        /* [T][experts_per_token] */
    float *chosen_weight;    /* [T][experts_per_token] */
    uint32_t *expert_begin;  /* [experts + 1] first entry of each expert in the next two */
    uint32_t *expert_row;    /* [T experts_per_token] rows by expert */
    float *expert_weight;    /* [T experts_per_token] their weights */
    uint32_t *row_sequence;  /* [T] sequence of a row */
    uint32_t *row_position;  /* [T] its position */
    float *cosine[PJ_ROPES]; /* [T][pairs] of each rope */
    float *sine[PJ_ROPES];
    float *ratios;                      /* [2][T heads] variance and mean square ratios of a norm */
    pj_head_figures *figures;           /* [threads][heads] of attention at depth deep */
    pj_attention_part *attention_parts; /* [threads], likewise */
    uint32_t attention_number;          /* of the last attention at depth deep */
    float *logits;                      /* [max_logits][vocab] */
    void *packed;                       /* activations packed for products */
    float *scores; /* [threads][score_floats] attention weights of the current units */
    size_t score_floats;
} pj_state;

pj_status pj_state_init(pj_state *state, const pj_model *model, const pj_kernels *kernels,
                        pj_team *team, const pj_state_options *options, pj_error *err);
void pj_state_fini(pj_state *state); /* may run twice; a zeroed state is allowed */

/* KV cache bytes per token, in all layers or only in those with a sliding window. */
size_t pj_state_kv_token_bytes(const pj_model *model, pj_dtype kv_type, bool only_windowed);

/* Rows of keys (which 0) or values (which 1) of one head, from position `first` of the sequence. */
pj_kv_rows pj_state_kv(const pj_state *state, uint32_t layer, uint32_t sequence, uint32_t which,
                       uint32_t head, uint32_t first);
/* A sequence's state of a layer with the delta rule: pj_delta_state_floats. */
float *pj_state_delta(const pj_state *state, uint32_t layer, uint32_t sequence);
/* Empties a sequence. */
void pj_state_reset(pj_state *state, uint32_t sequence);
/* Makes room for `count` more tokens of a sequence in windowed layers. */
void pj_state_make_room(pj_state *state, uint32_t sequence, uint32_t count);

#endif
