/*
 * Rotary position embedding: frequencies by rope type, cosines and sines by position. Some types
 * (longrope, dynamic) change all frequencies when a sequence grows past a length. Keys in the
 * cache were rotated with the old ones, so such a change makes a sequence's cache invalid: it
 * belongs to a *generation* of frequencies, and a forward pass of another generation starts over.
 */
#ifndef PJ_LLM_ROPE_H
#define PJ_LLM_ROPE_H

#include "llm/config.h"

typedef struct pj_rope {
    pj_rope_type type;
    uint32_t pairs;        /* rotary dimensions / 2 */
    uint32_t switch_at;    /* sequences longer than this leave generation 0; UINT32_MAX: never */
    float scale;           /* attention factor, on cosine and sine */
    bool neighbours;       /* pairs (2i, 2i + 1) rotate, not halves */
    float *frequency;      /* [pairs] generation 0, radians per position */
    float *long_frequency; /* [pairs] longrope past switch_at, else NULL */
    double theta, factor;  /* dynamic */
} pj_rope;

/* `context` is the model's: where a scaling does not say what it was trained with. */
pj_status pj_rope_init(pj_rope *rope, const pj_rope_config *config, uint32_t context, pj_error *err);
void pj_rope_fini(pj_rope *rope); /* may run twice */
/* Which frequencies a sequence of `length` tokens uses. */
uint32_t pj_rope_generation(const pj_rope *rope, uint32_t length);
/* cosine and sine [pairs] of one position, scaled. */
void pj_rope_angles(const pj_rope *rope, uint32_t generation, uint32_t position, float *cosine,
                    float *sine);

#endif
