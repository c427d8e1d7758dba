/* What a forward pass is asked to compute, and the sequences it adds to. */
#ifndef PJ_FORWARD_PASS_H
#define PJ_FORWARD_PASS_H

#include "engine/files/dtype.h"
#include "engine/model/ablation.h"

#include <perjoule.h>
#include <stdatomic.h>

typedef struct pj_sequence {
    uint32_t length;     /* tokens in the cache */
    uint32_t base;       /* first position that windowed layers still hold */
    uint32_t generation; /* of rope frequencies the keys were rotated with */
    int32_t *tokens;     /* [context] the ids whose keys are in the cache */
} pj_sequence;

typedef struct pj_state_options {
    uint32_t sequences;
    uint32_t context;    /* positions a sequence may have */
    uint32_t max_tokens; /* rows of one pass, over all sequences */
    uint32_t max_logits; /* rows of logits of one pass */
    uint32_t rewind;     /* tokens that the engine may roll back (pj_compute_rewind) */
    pj_dtype kv_type;    /* F32 or F16 */
    pj_ablation without; /* what a pass leaves out */
} pj_state_options;

/* Rows [row, row + count) of a pass are the next `count` tokens of a sequence. */
typedef struct pj_pass_segment {
    uint32_t sequence, row, count;
    uint32_t unit_begin; /* the device's, during the pass */
} pj_pass_segment;

typedef struct pj_pass {
    const int32_t *ids; /* [tokens], each within the vocabulary */
    uint32_t tokens;
    pj_pass_segment *segments; /* in row order, each sequence at most once */
    uint32_t segment_count;
    /* [tokens][hidden] for a head that predicts the token after the next: the model's normed output
     * (pj_compute_hidden) at the position before each token */
    const float *hidden;
    const uint32_t *logit_rows; /* rows whose logits are needed */
    uint32_t logit_count;
    bool prefill;
    bool greedy;                /* the most likely ids are wanted, and no logits */
    const _Atomic bool *cancel; /* polled once per layer; NULL: never */
} pj_pass;

#endif
