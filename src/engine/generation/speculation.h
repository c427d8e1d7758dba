/* Speculative decoding: a small draft model proposes the next tokens, and the target model verifies
 * all of them in one pass, which reads its weights once. The target samples its own token at every
 * position, and a proposal is accepted if it is that token, so the text is the same as without a
 * draft, whatever the sampling.
 *
 * The draft may be the target's own head (pj_model_open_head). It reads the target's output beside
 * each token: it takes these outputs after every pass of the target (`follow`, `propose`), and its
 * cache only keeps positions computed from them. Further proposals are made from its own output.
 *
 * The draft runs on the target's threads, and is recorded as one section per step. */
#ifndef PJ_GENERATION_SPECULATION_H
#define PJ_GENERATION_SPECULATION_H

#include "engine/generation/engine_internal.h"

enum { PJ_DRAFT_TOKENS = 16 }; /* maximum tokens proposed per step */

typedef struct pj_speculation {
    pj_engine *draft; /* NULL: there is none */
    pj_compute compute;
    int32_t proposed[PJ_DRAFT_TOKENS];
    uint32_t count;  /* of `proposed` */
    int32_t pending; /* accepted, not yet in the draft's cache */
    bool has_pending;
    /* Of a head: the target's outputs [most][hidden] that it has not read with their next tokens.
     */
    float *outputs;
    uint32_t output_count, most;
    uint32_t fresh; /* further ones: rows of the target's last pass */
} pj_speculation;

/* Room for a sequence of `context` tokens, of which the target reads up to `chunk` in a pass. */
pj_status pj_speculation_open(pj_speculation *s, pj_engine *draft, uint32_t context, uint32_t chunk,
                              pj_error *err);
void pj_speculation_close(pj_speculation *s); /* may run twice; a zeroed one is allowed */
static inline bool pj_speculation_is_head(const pj_speculation *s)
{
    return s->draft && s->draft->is_head;
}

/* Appends tokens to the draft's sequence. */
pj_status pj_speculation_feed(pj_speculation *s, const int32_t *ids, uint32_t count,
                              const _Atomic bool *cancel);
/* A head reads the prompt's tokens of the target's last pass. */
pj_status pj_speculation_follow(pj_speculation *s, pj_compute *target, const int32_t *ids,
                                uint32_t count, const _Atomic bool *cancel);
/* Proposes `count` tokens greedily after a text that ends with the tokens before `end`. */
pj_status pj_speculation_propose(pj_speculation *s, pj_compute *target, const int32_t *end,
                                 uint32_t count, const _Atomic bool *cancel);
/* The target accepted the first `accepted` proposals and added one token of its own; its last pass
 * was over the token before the proposals and all of them. */
void pj_speculation_accept(pj_speculation *s, uint32_t accepted);

#endif
