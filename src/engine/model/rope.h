/* Rotary position embedding: frequencies by type, cosines and sines by position. Some types
 * (longrope, dynamic) change all frequencies when a sequence grows beyond a length. Keys in the
 * cache were rotated with the old ones, so the change invalidates a sequence's cache: a cache
 * belongs to a *generation* of frequencies, and a forward pass with another generation recomputes
 * it. */
#ifndef PJ_MODEL_ROPE_H
#define PJ_MODEL_ROPE_H

#include "engine/model/config.h"

typedef struct pj_rope {
    pj_rope_type type;
    uint32_t pairs;        /* rotary dimensions / 2 */
    uint32_t switch_at;    /* longer sequences leave generation 0; UINT32_MAX: never */
    float scale;           /* attention factor, applied to cosine and sine */
    float long_scale;      /* that of later generations */
    bool neighbours;       /* rotates pairs (2i, 2i + 1) instead of halves */
    float *frequency;      /* [pairs] generation 0, radians per position */
    float *long_frequency; /* [pairs] for longrope beyond switch_at, else NULL */
    double theta, factor;  /* dynamic */
} pj_rope;

/* `context` is the model's, used if a scaling does not state its original context. */
pj_status pj_rope_init(pj_rope *rope, const pj_rope_config *config, uint32_t context,
                       pj_error *err);
void pj_rope_fini(pj_rope *rope); /* may run twice */
/* The generation of frequencies for a sequence of `length` tokens. */
uint32_t pj_rope_generation(const pj_rope *rope, uint32_t length);
/* cosine and sine [pairs] of one position, scaled. */
void pj_rope_angles(const pj_rope *rope, uint32_t generation, uint32_t position, float *cosine,
                    float *sine);

#endif
