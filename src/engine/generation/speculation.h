/* Speculative decoding: a small draft model proposes the next tokens, and the target model verifies
 * all of them in one pass, which reads its weights once. The target samples its own token at every
 * position, and a proposal is accepted if it is that token, so the text is the same as without a
 * draft, whatever the sampling.
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
} pj_speculation;

/* Room for a sequence of `context` tokens. */
pj_status pj_speculation_open(pj_speculation *s, pj_engine *draft, uint32_t context, pj_error *err);
void pj_speculation_close(pj_speculation *s); /* may run twice; a zeroed one is allowed */

/* Appends tokens to the draft's sequence. */
pj_status pj_speculation_feed(pj_speculation *s, const int32_t *ids, uint32_t count,
                              const _Atomic bool *cancel);
/* Proposes `count` tokens after `last`, greedily. */
pj_status pj_speculation_propose(pj_speculation *s, int32_t last, uint32_t count,
                                 const _Atomic bool *cancel);
/* The target accepted the first `accepted` proposals and added one token of its own. */
void pj_speculation_accept(pj_speculation *s, uint32_t accepted);

#endif
