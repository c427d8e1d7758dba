/* What the files of the engine share. */
#ifndef PJ_LLM_ENGINE_INTERNAL_H
#define PJ_LLM_ENGINE_INTERNAL_H

#include "llm/engine.h"
#include "llm/forward.h"

struct pj_engine {
    pj_engine_options options; /* `model` is our copy */
    pj_team *team;
    const pj_kernels *kernels;
    pj_model model;
    struct pj_tokenizer *tokenizer; /* NULL: none */
    pj_dtype kv_type;
    uint32_t context;     /* tokens that one sequence may have */
    uint32_t vocab_limit; /* ids at and above it have no text and are never drawn */
    pj_engine_facts facts;
    pj_seam seam;
};

/* Feeds `count` tokens behind what the sequence holds, in passes of at most state's max_tokens.
 * Rope frequencies are those of a sequence of `horizon` tokens (UINT32_MAX: as the sequence has
 * them); when they differ from those of the cache, the cache is made again. Logits of the last
 * token are left in the state when `logits`. */
pj_status pj_engine_feed(pj_engine *engine, pj_state *state, uint32_t sequence, const int32_t *ids,
                         uint32_t count, uint32_t horizon, bool logits, const _Atomic bool *cancel);

#endif
