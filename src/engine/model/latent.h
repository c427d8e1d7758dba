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

static inline uint32_t pj_latent_query(const struct pj_latent *latent)
{
    return latent->plain + latent->rotated;
}

#endif
