/* Rejects impossible requests before anything is loaded: by the model's header, and what there is
 * to compute with. */
#include "generate/preflight.h"

#include "engine/generation/devices.h"
#include "engine/model/checkpoint.h"
#include "engine/model/synthetic.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#include <string.h>

/* Upper bound of special tokens and chat template around a prompt; if prompt and output come closer
 * to the context length than this, tokens are counted exactly. */
enum { FRAME_TOKENS = 64 };

/* Facts in a model's header; 0: unknown. */
typedef struct bounds {
    uint32_t context, layers, vocab;
} bounds;

static pj_status synthetic_bounds(const char *shape, bounds *found, pj_error *err)
{
    pj_model_config config;
    pj_dtype dtype;
    uint32_t layers;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status = pj_synthetic_config(shape, &arena, &config, &dtype, &layers, err);
    pj_arena_fini(&arena);
    if (status == PJ_OK) *found = (bounds){config.context, config.layers, config.vocab};
    return status;
}

/* A base model has no chat template. */
static pj_status check_chat(const char *folder, pj_error *err)
{
    pj_chat *chat = NULL;
    pj_status status = pj_chat_open(folder, &chat, err);
    pj_chat_close(chat);
    return status;
}

static pj_status find_bounds(const char *path, bool wants_chat, bounds *found, pj_error *err)
{
    pj_checkpoint *checkpoint;
    *found = (bounds){0};
    static const char synthetic[] = "synthetic:";
    if (strncmp(path, synthetic, sizeof synthetic - 1) == 0)
        return synthetic_bounds(path + sizeof synthetic - 1, found, err);
    pj_status status = pj_checkpoint_open(path, &checkpoint, err);
    if (status != PJ_OK) {
        pj_error why = err ? *err : (pj_error){0};
        return pj_fail(err, status, "model %s: %s", path, why.text);
    }
    const pj_model_config *config = pj_checkpoint_config(checkpoint);
    /* dynamic RoPE scaling extends it */
    if (config->rope.type != PJ_ROPE_DYNAMIC) found->context = config->context;
    found->layers = config->layers;
    found->vocab = config->vocab;
    if (wants_chat && !pj_checkpoint_gguf(checkpoint))
        status = check_chat(pj_checkpoint_path(checkpoint), err);
    pj_checkpoint_close(checkpoint);
    return status;
}

static pj_status check_ids(const pj_prompt *prompt, uint32_t vocab, pj_error *err)
{
    for (uint32_t i = 0; prompt->ids && vocab && i < prompt->id_count; i++)
        if (prompt->ids[i] < 0 || (uint32_t)prompt->ids[i] >= vocab)
            return pj_fail(err, PJ_E_INVALID, "token id %d is outside the model's vocabulary of %u",
                           (int)prompt->ids[i], vocab);
    return PJ_OK;
}

static pj_status check_tokens(uint32_t prompt, uint64_t tokens, uint32_t wanted, uint32_t context,
                              pj_error *err)
{
    if (tokens + wanted <= context) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "prompt %u has %llu tokens; with %u new ones that is more than the model's "
                   "context of %u: shorten the prompt or ask for fewer",
                   prompt + 1, (unsigned long long)tokens, wanted, context);
}

/* A token has at least one byte, so most prompts are certain to fit and need not be tokenised. */
static pj_status check_text(const pj_profile_options *o, uint32_t i, uint32_t context,
                            pj_error *err)
{
    pj_tokenizer *tokenizer;
    pj_ids ids = {0};
    const pj_prompt *prompt = &o->request.prompts[i];
    if (prompt->bytes + o->request.max_tokens + FRAME_TOKENS <= context) return PJ_OK;
    if (pj_tokenizer_open(o->engine.model, &tokenizer, NULL) != PJ_OK) return PJ_OK;
    pj_status status = PJ_OK;
    if (pj_tokenizer_encode(tokenizer, prompt->text, prompt->bytes, &(pj_encode_options){0}, &ids,
                            NULL) == PJ_OK)
        status = check_tokens(i, ids.count, o->request.max_tokens, context, err);
    pj_ids_fini(&ids);
    pj_tokenizer_close(tokenizer);
    return status;
}

static pj_status check_ablation(const char *text, uint32_t layers, pj_error *err)
{
    pj_ablation without;
    pj_status status = pj_ablation_parse(text, &without, err);
    if (status == PJ_OK && layers && without.layers >= layers)
        return pj_fail(err, PJ_E_INVALID, "%s has no effect: the model has %u layers", text,
                       layers);
    return status;
}

pj_status pj_profile_preflight(const pj_profile_options *o, pj_error *err)
{
    bounds found;
    bool wants_chat = o->request.chat;
    for (uint32_t i = 0; i < o->request.prompt_count; i++)
        wants_chat |= o->request.prompts[i].messages;
    pj_status status = find_bounds(o->engine.model, wants_chat, &found, err);
    uint32_t context = found.context;
    if (status == PJ_OK) status = pj_device_check(o->engine.device, err);
    if (status == PJ_OK) status = pj_engine_check_isa(o->engine.isa, err);
    if (status == PJ_OK) status = check_ablation(o->ablate, found.layers, err);
    for (uint32_t i = 0; i < o->request.prompt_count && status == PJ_OK; i++)
        status = check_ids(&o->request.prompts[i], found.vocab, err);
    for (uint32_t i = 0; i < o->request.prompt_count && context && status == PJ_OK; i++)
        status = o->request.prompts[i].ids ? check_tokens(i, o->request.prompts[i].id_count,
                                                          o->request.max_tokens, context, err)
                                           : check_text(o, i, context, err);
    return status;
}
