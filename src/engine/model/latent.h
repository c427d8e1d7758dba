/*
 * Multi-head latent attention (DeepSeek V2): all heads' keys and values are projections of one
 * latent vector per token, which is what the cache holds, beside a rotated part that all heads
 * share. The projection to keys is applied to the queries instead, and that to values to the
 * output, so that attention is over one head of keys (the latent vector, then the rotated part),
 * whose first columns are also its values.
 */
#ifndef PJ_MODEL_LATENT_H
#define PJ_MODEL_LATENT_H

#include "engine/model/model.h"

struct pj_latent {
    uint32_t plain, rotated; /* columns of a query: without rotation, then with it */
    uint32_t value;          /* columns of a head's output */
    pj_projection q_a;       /* [query rank, hidden]; absent: q reads the layer's input */
    pj_norm q_a_norm;
    pj_projection q;       /* [heads (plain + rotated), query rank or hidden] */
    pj_projection kv_a;    /* [rank + rotated, hidden] */
    pj_norm kv_a_norm;     /* [rank] */
    pj_projection *keys;   /* [heads] of [rank, plain]: a query's part for the latent vector */
    pj_projection *values; /* [heads] of [value, rank] */
};

/*
 * Sparse attention (DeepSeek V3.2): before attention, an indexer with heads and keys of its own
 * scores every key t of a query's past, sum over h of weight_h max(0, scale q_h . k_t), and the
 * query sees only the `kept` keys with the largest scores, of equal ones the earlier. Its keys have
 * a cache of their own. Layers may see what the layer before them sees instead. The published
 * implementation also turns queries and keys by a Hadamard matrix, which changes no product, and
 * rounds them to eight bits, as its reference in floating point does not.
 */
struct pj_indexer {
    uint32_t layer; /* that has it; others use what it chose */
    uint32_t heads, dim, kept;
    bool neighbours; /* rotates pairs (2i, 2i + 1), else halves, of each head's first columns */
    float scale;     /* positive, so that it may be a factor of the weights */
    pj_projection q; /* [heads dim, query rank] */
    pj_projection k; /* [dim, hidden] */
    pj_norm k_norm;  /* LayerNorm */
    pj_projection weights; /* [heads, hidden] */
};

/* Columns of the buffer INDEX: queries, then a key, then the weights. */
static inline uint32_t pj_indexer_columns(const struct pj_indexer *m)
{
    return m->heads * m->dim + m->dim + m->heads;
}
/* Whether a layer has the indexer whose choices it sees. */
static inline bool pj_layer_has_indexer(const pj_layer *layer)
{
    return layer->indexer && layer->indexer->layer == layer->index;
}

static inline uint32_t pj_latent_query(const struct pj_latent *latent)
{
    return latent->plain + latent->rotated;
}

#endif
