/* Shared by the engine's files. */
#ifndef PJ_GENERATION_ENGINE_INTERNAL_H
#define PJ_GENERATION_ENGINE_INTERNAL_H

#include "engine/forward/compute.h"
#include "engine/generation/engine.h"

struct pj_engine {
    pj_engine_options options; /* `model` is our copy */
    pj_team *team;
    bool borrows_team; /* a draft runs on the threads of its target */
    const pj_kernels *kernels;
    pj_model model;
    pj_loaded loaded;               /* the model on its device */
    pj_error declined;              /* why "auto" took no GPU; zeroed: it did, or was not asked */
    struct pj_tokenizer *tokenizer; /* NULL: none */
    pj_engine *draft;               /* proposes tokens (speculation.h); NULL: none */
    bool is_head;                   /* of another engine's model, which is that engine's target */
    pj_dtype kv_type;
    uint32_t context;     /* maximum tokens per sequence */
    uint32_t vocab_limit; /* ids from here on have no text and are never sampled */
    pj_engine_facts facts;
    pj_instrument instrument;
};

/* Appends `count` tokens to the sequence, in passes of at most max_tokens. RoPE frequencies are
 * those for a sequence of `horizon` tokens (UINT32_MAX: unchanged); if they differ from those in
 * the cache, the cache is recomputed. With `greedy`, the most likely token to follow is computed.
 */
pj_status pj_engine_feed(pj_engine *engine, pj_compute *compute, uint32_t sequence,
                         const int32_t *ids, uint32_t count, uint32_t horizon, bool greedy,
                         const _Atomic bool *cancel);

/* PJ_E_LOST where a weight file was shortened while it was in use. */
pj_status pj_engine_check_files(const pj_engine *engine, pj_error *err);

static inline bool pj_is_cancelled(const _Atomic bool *cancel)
{
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

/* Room for a generation of this engine, on its device, recorded by its instrument. */
pj_status pj_engine_compute(pj_engine *engine, const pj_state_options *options, pj_compute *compute,
                            pj_error *err);

#endif
