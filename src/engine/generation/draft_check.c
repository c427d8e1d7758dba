/* Compares the vocabularies of two models, and rejects models whose state cannot be rolled back. */
#include "engine/generation/draft_check.h"

#include "engine/text/tokenizer.h"

#include <string.h>

/* Layers with the delta rule, a scan or a convolution have a state: within a target's pass it can
 * go back, where the device keeps it after each row; over the passes of a draft it cannot. */
static pj_status check_one(const pj_engine *e, const char *role, bool goes_back, pj_error *err)
{
    if (e->model.config.linear.kernel > 0 && !goes_back)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s cannot be the %s of speculative decoding%s%s: the state of its linear "
                       "attention cannot go back when a token is rejected",
                       e->facts.model_name, role, e->loaded.facts.host_memory ? "" : " on ",
                       e->loaded.facts.host_memory ? "" : e->loaded.facts.name);
    return PJ_OK;
}

static pj_status check_target(const pj_engine *e, pj_error *err)
{
    return check_one(e, "target", e->loaded.backend->ops.rewind != NULL, err);
}

/* Equal sizes and equal text of some tokens: checking all would take as long as loading them. */
static bool same_vocabulary(const pj_engine *a, const pj_engine *b)
{
    enum { SOME = 256 };
    if (a->model.config.vocab != b->model.config.vocab) return false;
    if (!a->tokenizer || !b->tokenizer) return true;
    bool same = a->vocab_limit == b->vocab_limit;
    uint32_t step = a->vocab_limit / SOME + 1;
    for (uint32_t id = 0; id < a->vocab_limit && same; id += step) {
        pj_buffer one, other;
        int32_t ids[] = {(int32_t)id};
        pj_buffer_init(&one, 1 << 16);
        pj_buffer_init(&other, 1 << 16);
        same = !pj_tokenizer_decode(a->tokenizer, ids, 1, false, &one, NULL) &&
               !pj_tokenizer_decode(b->tokenizer, ids, 1, false, &other, NULL) &&
               strcmp(pj_buffer_get(&one), pj_buffer_get(&other)) == 0;
        pj_buffer_fini(&one);
        pj_buffer_fini(&other);
    }
    return same;
}

pj_status pj_draft_check_head(const pj_engine *target, pj_error *err)
{
    if (!target->loaded.backend->ops.give)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s cannot run heads that predict further tokens yet: use --device cpu",
                       target->loaded.facts.name);
    return check_target(target, err);
}

pj_status pj_draft_check(const pj_engine *target, const pj_engine *draft, pj_error *err)
{
    pj_status status = check_target(target, err);
    if (!status) status = check_one(draft, "draft", false, err);
    if (!status && !same_vocabulary(target, draft))
        status = pj_fail(err, PJ_E_INVALID,
                         "%s cannot be the draft of %s: their vocabularies differ; take a smaller "
                         "model of the same family",
                         draft->facts.model_name, target->facts.model_name);
    return status;
}
