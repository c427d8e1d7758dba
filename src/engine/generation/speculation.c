/* The draft's side of speculative decoding. Its KV cache holds the text up to the token before the
 * last; rejected proposals are dropped by truncating the sequence. */
#include "engine/generation/speculation.h"

pj_status pj_speculation_open(pj_speculation *s, pj_engine *draft, uint32_t context, pj_error *err)
{
    uint32_t chunk = context < draft->options.chunk ? context : draft->options.chunk;
    pj_state_options options = {.sequences = 1,
                                .context = context,
                                .max_tokens = chunk,
                                .max_logits = 1,
                                .rewind = PJ_DRAFT_TOKENS,
                                .kv_type = draft->kv_type};
    if (context > draft->context)
        return pj_fail(err, PJ_E_INVALID,
                       "prompt and new tokens are %u, more than the draft model's context of %u",
                       context, draft->context);
    s->draft = draft;
    return pj_engine_compute(draft, &options, &s->compute, err);
}

void pj_speculation_close(pj_speculation *s)
{
    pj_compute_close(&s->compute);
    s->draft = NULL;
}

static pj_status speculation_feed(pj_speculation *s, const int32_t *ids, uint32_t count,
                                  bool greedy, const _Atomic bool *cancel)
{
    uint32_t length = s->compute.sequences[0].length;
    return pj_engine_feed(s->draft, &s->compute, 0, ids, count, length + count, greedy, cancel);
}

pj_status pj_speculation_feed(pj_speculation *s, const int32_t *ids, uint32_t count,
                              const _Atomic bool *cancel)
{
    pj_status status = s->has_pending ? speculation_feed(s, &s->pending, 1, false, cancel) : PJ_OK;
    s->has_pending = false;
    return status ? status : speculation_feed(s, ids, count, false, cancel);
}

pj_status pj_speculation_propose(pj_speculation *s, int32_t last, uint32_t count,
                                 const _Atomic bool *cancel)
{
    pj_status status = PJ_OK;
    int32_t ids[] = {s->pending, last};
    s->count = 0;
    if (count == 0) return PJ_OK;
    status = s->has_pending ? speculation_feed(s, ids, 2, true, cancel)
                            : speculation_feed(s, &last, 1, true, cancel);
    s->has_pending = false;
    while (!status) {
        last = s->compute.ids[0];
        s->proposed[s->count++] = last;
        if (s->count == count) break;
        status = speculation_feed(s, &last, 1, true, cancel);
    }
    return status;
}

void pj_speculation_accept(pj_speculation *s, uint32_t accepted)
{
    /* the cache holds the token before the proposals and all proposals but the last */
    if (s->count == 0) return;
    s->has_pending = accepted == s->count;
    s->pending = s->proposed[s->count - 1];
    if (!s->has_pending) s->compute.sequences[0].length -= s->count - 1 - accepted;
}
