/* The draft's side of speculative decoding. Its KV cache holds the text up to the token before the
 * last; rejected proposals are dropped by truncating the sequence. */
#include "engine/generation/speculation.h"

#include "base/memory.h"

#include <string.h>

static size_t hidden_of(const pj_speculation *s)
{
    return s->draft->model.config.hidden;
}

pj_status pj_speculation_open(pj_speculation *s, pj_engine *draft, uint32_t context, uint32_t chunk,
                              pj_error *err)
{
    uint32_t own = context < draft->options.chunk ? context : draft->options.chunk;
    pj_state_options options = {.sequences = 1,
                                .context = context,
                                .max_tokens = own,
                                .max_logits = 1,
                                .rewind = PJ_DRAFT_TOKENS,
                                .kv_type = draft->kv_type};
    if (context > draft->context)
        return pj_fail(err, PJ_E_INVALID,
                       "prompt and new tokens are %u, more than the draft model's context of %u",
                       context, draft->context);
    s->draft = draft;
    if (draft->is_head) {
        s->most = chunk + 1 > PJ_DRAFT_TOKENS + 1 ? chunk + 1 : PJ_DRAFT_TOKENS + 1;
        options.max_tokens = s->most;
        s->outputs = pj_alloc(s->most * hidden_of(s), sizeof *s->outputs);
        if (!s->outputs) return pj_fail_memory(err, "the draft");
    }
    return pj_engine_compute(draft, &options, &s->compute, err);
}

void pj_speculation_close(pj_speculation *s)
{
    pj_compute_close(&s->compute);
    pj_free(s->outputs);
    s->outputs = NULL;
    s->draft = NULL;
}

/* ---- a head ------------------------------------------------------------------------------- */

/* Reads tokens, each with the output before it; with `greedy`, the most likely token to follow is
 * computed. */
static pj_status read_pairs(pj_speculation *s, const int32_t *ids, const float *outputs,
                            uint32_t count, bool greedy, const _Atomic bool *cancel)
{
    uint32_t last = count - 1;
    pj_pass_segment segment = {.count = count};
    pj_pass pass = {.ids = ids,
                    .hidden = outputs,
                    .tokens = count,
                    .segments = &segment,
                    .segment_count = 1,
                    .logit_rows = &last,
                    .logit_count = greedy,
                    .prefill = true,
                    .greedy = greedy,
                    .cancel = cancel};
    return count ? pj_compute_forward(&s->compute, &pass) : PJ_OK;
}

/* Adds the first `rows` outputs of a pass to those that wait for their next tokens. */
static pj_status add_outputs(pj_speculation *s, pj_compute *of, uint32_t rows)
{
    const float *outputs;
    pj_status status = pj_compute_hidden(of, rows, &outputs);
    if (status) return status;
    memcpy(s->outputs + s->output_count * hidden_of(s), outputs,
           rows * hidden_of(s) * sizeof *outputs);
    s->output_count += rows;
    return PJ_OK;
}

pj_status pj_speculation_follow(pj_speculation *s, pj_compute *target, const int32_t *ids,
                                uint32_t count, const _Atomic bool *cancel)
{
    uint32_t waiting = s->output_count; /* the one before these tokens, but for the first pass */
    pj_status status = add_outputs(s, target, count);
    if (status) return status;
    uint32_t pairs = s->output_count - 1;
    status = read_pairs(s, ids + (waiting ? 0 : 1), s->outputs, pairs, false, cancel);
    memmove(s->outputs, s->outputs + pairs * hidden_of(s), hidden_of(s) * sizeof *s->outputs);
    s->output_count = 1;
    return status;
}

static pj_status propose_by_head(pj_speculation *s, pj_compute *target, const int32_t *end,
                                 uint32_t count, const _Atomic bool *cancel)
{
    pj_status status = s->fresh ? add_outputs(s, target, s->fresh) : PJ_OK;
    s->fresh = 0;
    if (status) return status;
    uint32_t known = s->output_count;
    status = read_pairs(s, end - known, s->outputs, known, count > 0, cancel);
    uint32_t length = s->compute.sequences[0].length, row = known - 1;
    s->output_count = 0;
    while (!status && s->count < count) {
        int32_t id = s->proposed[s->count++] = s->compute.ids[0];
        if (s->count == count) break;
        const float *own;
        status = pj_compute_hidden(&s->compute, row + 1, &own);
        if (status) break;
        memcpy(s->outputs, own + row * hidden_of(s), hidden_of(s) * sizeof *own);
        row = 0;
        status = read_pairs(s, &id, s->outputs, 1, true, cancel);
    }
    s->compute.sequences[0].length = length;
    return status;
}

/* ---- a draft ------------------------------------------------------------------------------ */

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

pj_status pj_speculation_propose(pj_speculation *s, pj_compute *target, const int32_t *end,
                                 uint32_t count, const _Atomic bool *cancel)
{
    pj_status status = PJ_OK;
    int32_t last = end[-1], ids[] = {s->pending, last};
    s->count = 0;
    if (s->draft->is_head) return propose_by_head(s, target, end, count, cancel);
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
    if (s->draft->is_head) s->fresh = accepted + 1;
    /* the cache holds the token before the proposals and all proposals but the last */
    if (s->draft->is_head || s->count == 0) return;
    s->has_pending = accepted == s->count;
    s->pending = s->proposed[s->count - 1];
    if (!s->has_pending) s->compute.sequences[0].length -= s->count - 1 - accepted;
}
