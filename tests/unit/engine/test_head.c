/* A model's own head for further tokens as draft: the text is the one without it, and every
 * proposal is the one of the second forward pass (tiny.h). */
#include "../assertions.h"
#include "engine/generation/engine.h"
#include "made_gguf.h"
#include "record/run.h"
#include "reference_device.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 9, NEW = 24, ALL = PROMPT + NEW, HIDDEN = 48, VOCAB = 29 };

typedef struct outcome {
    int32_t ids[NEW];
    uint64_t proposed, accepted;
    uint32_t steps;
} outcome;

static pj_engine *open_model(const char *path, const char *draft, uint32_t chunk,
                             const pj_backend *backend)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {
        .model = path, .threads = 2, .chunk = chunk, .draft = draft, .backend = backend};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    return engine;
}

static void generate(pj_engine *engine, const int32_t *prompt, uint32_t draft_tokens,
                     const pj_sampling *sampling, pj_run *run, outcome *out)
{
    pj_error err = {0};
    pj_generate_result result = {0};
    pj_prompt ids = {.ids = prompt, .id_count = PROMPT};
    pj_generate_request request = {.prompts = &ids,
                                   .prompt_count = 1,
                                   .max_tokens = NEW,
                                   .ignore_eos = true,
                                   .sampling = *sampling,
                                   .draft_tokens = draft_tokens,
                                   .run = run};
    if (pj_engine_generate(engine, &request, &result, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(result.sequences[0].count, NEW);
    memcpy(out->ids, result.sequences[0].ids, sizeof out->ids);
    out->proposed = result.proposed;
    out->accepted = result.accepted;
    out->steps = result.decode_steps;
    pj_generate_result_fini(&result);
}

static void make_model(tiny_model *m, uint64_t seed)
{
    tiny_make(m, tiny_find("glm4-moe"), seed);
    assert_int_equal(m->shape.hidden, HIDDEN);
    assert_int_equal(m->shape.vocab, VOCAB);
    tiny_write(m, TINY_F32);
}

static void make_prompt(int32_t *ids, uint64_t seed)
{
    for (uint64_t i = 0; i < PROMPT; i++) ids[i] = (int32_t)((seed * 7 + i * 5 + i * i) % VOCAB);
}

static int32_t best_of(const double *logits)
{
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The proposals after `length` known tokens, of which the model has read all but the last. */
static void expected_proposals(tiny_model *m, const int32_t *ids, int length, int count,
                               int32_t *proposed)
{
    static double outputs[ALL * HIDDEN], own[ALL * HIDDEN], logits[ALL * VOCAB];
    int32_t next[ALL];
    int pairs = length - 1;
    tiny_outputs(m, ids, pairs, outputs);
    memcpy(next, ids + 1, (size_t)pairs * sizeof *next);
    for (int i = 0; i < count; i++) {
        tiny_head(m, outputs, next, pairs, own, logits);
        next[pairs] = proposed[i] = best_of(logits + (pairs - 1) * VOCAB);
        memcpy(outputs + pairs * HIDDEN, own + (pairs - 1) * HIDDEN, HIDDEN * sizeof *own);
        pairs++;
    }
}

/* What a run over this text proposes and accepts, by the second forward pass. */
static outcome expected(tiny_model *m, const int32_t *text, int draft_tokens)
{
    outcome e = {0};
    for (int count = 1; count < NEW;) {
        int left = NEW - count - 1, n = draft_tokens < left ? draft_tokens : left, same = 0;
        int32_t proposed[8];
        expected_proposals(m, text, PROMPT + count, n, proposed);
        while (same < n && proposed[same] == text[PROMPT + count + same]) same++;
        e.proposed += (uint64_t)n;
        e.accepted += (uint64_t)same;
        e.steps++;
        count += same + 1;
    }
    return e;
}

static void check_outcome(const outcome *got, const outcome *without, const outcome *want,
                          const char *name)
{
    if (memcmp(got->ids, without->ids, sizeof got->ids) != 0) fail_msg("%s: another text", name);
    if (got->proposed != want->proposed || got->accepted != want->accepted ||
        got->steps != want->steps)
        fail_msg("%s: %d of %d accepted in %d steps, not %d of %d in %d", name, (int)got->accepted,
                 (int)got->proposed, (int)got->steps, (int)want->accepted, (int)want->proposed,
                 (int)want->steps);
}

static void proposals(void **state)
{
    static const uint32_t chunks[] = {0, 4, 1};
    uint64_t accepted = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        tiny_model m;
        outcome without, got, want;
        int32_t text[ALL];
        int draft_tokens = 1 + (int)(seed % 4);
        char name[32];
        make_model(&m, seed);
        make_prompt(text, seed);
        pj_engine *plain = open_model(m.folder, NULL, 0, NULL);
        generate(plain, text, 0, &PJ_SAMPLING_GREEDY, NULL, &without);
        memcpy(text + PROMPT, without.ids, sizeof without.ids);
        want = expected(&m, text, draft_tokens);
        snprintf(name, sizeof name, "seed %d", (int)seed);
        pj_engine *engine = open_model(m.folder, PJ_DRAFT_HEAD, chunks[seed % 3],
                                       seed % 5 ? NULL : &reference_device);
        generate(engine, text, (uint32_t)draft_tokens, &PJ_SAMPLING_GREEDY, NULL, &got);
        check_outcome(&got, &without, &want, name);
        accepted += got.accepted;
        pj_engine_close(engine);
        pj_engine_close(plain);
        tiny_free(&m);
    }
    assert_that(accepted, >, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
