/* Answers by generation, choices by the likelihood of their tokens after the prompt's. */
#include "experiment/scoring.h"

#include "base/buffer.h"
#include "experiment/loss.h"

#include <math.h>
#include <string.h>

/* ---- written answers ------------------------------------------------------------------------- */

static pj_status score_answer(pj_engine *engine, const pj_task *t, const _Atomic bool *cancel,
                              bool *solved, pj_error *err)
{
    const pj_prompt prompt = {.text = t->prompt, .bytes = strlen(t->prompt)};
    const pj_generate_request request = {.prompts = &prompt,
                                         .prompt_count = 1,
                                         .max_tokens = t->max_tokens,
                                         .chat = t->chat,
                                         .sampling = PJ_SAMPLING_GREEDY,
                                         .stop = t->stop,
                                         .cancel = cancel};
    pj_generate_result result = {0};
    pj_status status = pj_engine_generate(engine, &request, &result, err);
    if (status == PJ_OK)
        *solved = pj_task_is_solved_by(t, result.sequences[0].text, result.sequences[0].text_bytes);
    pj_generate_result_fini(&result);
    return status;
}

/* ---- choices --------------------------------------------------------------------------------- */

typedef struct choice_ids {
    int32_t *ids;
    uint32_t count;
} choice_ids;

static pj_status append_ids(choice_ids *to, const int32_t *ids, uint32_t count, pj_error *err)
{
    int32_t *whole = pj_resize(to->ids, to->count + count, sizeof *whole);
    if (!whole) return pj_fail_memory(err, "a task");
    memcpy(whole + to->count, ids, count * sizeof *ids);
    to->ids = whole;
    to->count += count;
    return PJ_OK;
}

/* After a chat template the choice is encoded alone, without the tokens that begin every text. */
static pj_status encode_after_chat(const pj_engine *engine, const pj_task *t, const char *choice,
                                   choice_ids *out, pj_error *err)
{
    const pj_chat_request chat = {.text = t->prompt, .bytes = strlen(t->prompt)};
    int32_t *ids = NULL, *none = NULL;
    uint32_t count = 0, before = 0;
    pj_status status = pj_engine_encode_chat(engine, &chat, &out->ids, &out->count, err);
    if (status == PJ_OK) status = pj_engine_encode(engine, "", 0, &none, &before, err);
    if (status == PJ_OK)
        status = pj_engine_encode(engine, choice, strlen(choice), &ids, &count, err);
    if (status == PJ_OK && count > before)
        status = append_ids(out, ids + before, count - before, err);
    pj_free(ids);
    pj_free(none);
    return status;
}

/* Prompt and choice are one text, as a model reads them: a token may reach from one into the
 * other. */
static pj_status encode_choice(const pj_engine *engine, const pj_task *t, const char *choice,
                               choice_ids *out, pj_error *err)
{
    pj_buffer text;
    if (t->chat) return encode_after_chat(engine, t, choice, out, err);
    pj_buffer_init(&text, SIZE_MAX);
    pj_buffer_text(&text, t->prompt);
    pj_buffer_text(&text, choice);
    pj_status status = pj_buffer_status(&text, "a task", err);
    if (status == PJ_OK)
        status = pj_engine_encode(engine, pj_buffer_get(&text), text.length, &out->ids, &out->count,
                                  err);
    pj_buffer_fini(&text);
    return status;
}

/* The number of tokens with which all of them begin. */
static uint32_t common_tokens(const choice_ids *choices, uint32_t count)
{
    uint32_t common = choices[0].count;
    for (uint32_t i = 1; i < count; i++) {
        uint32_t n = 0;
        while (n < common && n < choices[i].count && choices[i].ids[n] == choices[0].ids[n]) n++;
        common = n;
    }
    return common;
}

typedef struct likelihood {
    const choice_ids *of;
    uint32_t from; /* tokens before it are given */
    double sum;
} likelihood;

static bool add_likelihood(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    likelihood *l = context;
    uint32_t next = position + 1;
    if (next >= l->from && next < l->of->count)
        l->sum -= pj_cross_entropy(logits, vocab, l->of->ids[next]);
    return true;
}

static pj_status likelihood_of(pj_engine *engine, const choice_ids *choice, uint32_t from,
                               double *sum, pj_error *err)
{
    uint32_t context = pj_engine_get_facts(engine)->context;
    likelihood l = {.of = choice, .from = from};
    if (choice->count > context)
        return pj_fail(err, PJ_E_INVALID, "prompt and choice are longer than the model's context");
    pj_status status =
        pj_engine_logits(engine, choice->ids, choice->count, true, add_likelihood, &l, err);
    *sum = l.sum;
    if (status == PJ_OK && !isfinite(l.sum))
        return pj_fail(err, PJ_E_INVALID, "the model's logits are not finite");
    return status;
}

/* Solved if every other choice is less likely; a model that tells nothing apart solves nothing. */
static pj_status judge_choices(pj_engine *engine, const pj_task *t, const choice_ids *choices,
                               uint32_t count, bool *solved, pj_error *err)
{
    double right = -INFINITY, best_other = -INFINITY;
    uint32_t from = common_tokens(choices, count);
    if (!from)
        return pj_fail(err, PJ_E_INVALID, "prompt and choices have no first token in common");
    for (uint32_t i = 0; i < count; i++) {
        double sum = NAN;
        pj_status status = likelihood_of(engine, &choices[i], from, &sum, err);
        if (status != PJ_OK) return status;
        if (strcmp(t->choices[i], t->answers[0]) == 0)
            right = sum;
        else
            best_other = fmax(best_other, sum);
    }
    *solved = right > best_other;
    return PJ_OK;
}

static pj_status score_choices(pj_engine *engine, const pj_task *t, bool *solved, pj_error *err)
{
    choice_ids choices[PJ_TASK_MAX_TEXTS] = {0};
    uint32_t count = 0;
    pj_status status = PJ_OK;
    for (; t->choices[count] && status == PJ_OK; count++)
        status = encode_choice(engine, t, t->choices[count], &choices[count], err);
    if (status == PJ_OK) status = judge_choices(engine, t, choices, count, solved, err);
    for (uint32_t i = 0; i < count; i++) pj_free(choices[i].ids);
    return status;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

pj_status pj_tasks_score(pj_engine *engine, const pj_tasks *tasks, const char *name,
                         const _Atomic bool *cancel, char *outcomes, pj_error *err)
{
    for (uint32_t i = 0; i < tasks->count; i++) {
        const pj_task *t = &tasks->items[i];
        bool solved = false;
        pj_error why;
        if (cancel && *cancel)
            return pj_fail(err, PJ_E_CANCELLED, "stopped; run the same command to resume");
        pj_status status = t->choices ? score_choices(engine, t, &solved, &why)
                                      : score_answer(engine, t, cancel, &solved, &why);
        if (status != PJ_OK)
            return pj_fail(err, status, "%.200s, line %u: %s", name, t->line, why.text);
        outcomes[i] = solved ? '1' : '0';
    }
    outcomes[tasks->count] = 0;
    return PJ_OK;
}
