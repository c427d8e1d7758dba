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

static void make_model(tiny_model *m, const char *shape, uint64_t seed)
{
    tiny_make(m, tiny_find(shape), seed);
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

/* With twelve seeds each chunk meets each number of tokens; with five both devices have run. */
static void check_proposals(const char *shape, uint64_t seeds)
{
    static const uint32_t chunks[] = {0, 4, 1};
    uint64_t accepted = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        tiny_model m;
        outcome without, got, want;
        int32_t text[ALL];
        int draft_tokens = 1 + (int)(seed % 4);
        char name[32];
        make_model(&m, shape, seed);
        make_prompt(text, seed);
        pj_engine *plain = open_model(m.folder, NULL, 0, NULL);
        generate(plain, text, 0, &PJ_SAMPLING_GREEDY, NULL, &without);
        memcpy(text + PROMPT, without.ids, sizeof without.ids);
        want = expected(&m, text, draft_tokens);
        snprintf(name, sizeof name, "%s, seed %d", shape, (int)seed);
        pj_engine *engine = open_model(m.folder, PJ_DRAFT_HEAD, chunks[seed % 3],
                                       seed % 5 ? NULL : &reference_device);
        generate(engine, text, (uint32_t)draft_tokens, &PJ_SAMPLING_GREEDY, NULL, &got);
        check_outcome(&got, &without, &want, name);
        accepted += got.accepted;
        pj_engine_close(engine);
        pj_engine_close(plain);
        tiny_free(&m);
    }
    assert_that(accepted, >, seeds / 6);
}

static void proposals(void **state)
{
    (void)state;
    check_proposals("glm4-moe", 12);
    check_proposals("mimo", 5);
    check_proposals("deepseek-v3.2", 5); /* whose heads choose their own keys */
    check_proposals("glm5", 5);
}

/* Tokens that the target rejects leave no trace in its state. */
static void proposals_to_a_recurrent_model(void **state)
{
    (void)state;
    check_proposals("qwen3.5", 12);
}

/* A copy as GGUF has the head's layer beyond the model's. */
static void in_a_gguf_file(void **state)
{
    tiny_model m;
    outcome without, got, want;
    int32_t text[ALL];
    char path[128];
    made_gguf g;
    pj_checkpoint *checkpoint;
    pj_error err = {0};
    (void)state;
    make_model(&m, "glm4-moe", 4);
    make_prompt(text, 4);
    snprintf(path, sizeof path, "%s/copy.gguf", m.folder);
    if (pj_checkpoint_open(m.folder, &checkpoint, &err) != PJ_OK) fail_msg("%s", err.text);
    made_gguf_init(&g);
    made_gguf_copy(&g, checkpoint, &(made_gguf_options){.type = -1});
    made_gguf_write(&g, path);
    made_gguf_fini(&g);
    pj_checkpoint_close(checkpoint);
    pj_engine *plain = open_model(m.folder, NULL, 0, NULL);
    generate(plain, text, 0, &PJ_SAMPLING_GREEDY, NULL, &without);
    memcpy(text + PROMPT, without.ids, sizeof without.ids);
    want = expected(&m, text, 3);
    pj_engine *engine = open_model(path, PJ_DRAFT_HEAD, 0, NULL);
    generate(engine, text, 3, &PJ_SAMPLING_GREEDY, NULL, &got);
    check_outcome(&got, &without, &want, "GGUF");
    pj_engine_close(engine);
    pj_engine_close(plain);
    unlink(path);
    tiny_free(&m);
}

/* Whatever is drawn, and whatever weights are converted to, a draft changes no text. */
static void sampled_and_converted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        const char *shape = seed % 3 ? "qwen3.5" : "glm4-moe";
        tiny_model m;
        int32_t prompt[PROMPT];
        pj_sampling sampling = PJ_SAMPLING_GREEDY;
        outcome with, without;
        pj_error err = {0};
        pj_engine *engine, *plain;
        make_model(&m, shape, seed);
        make_prompt(prompt, seed);
        pj_engine_options options = {
            .model = m.folder, .threads = 2, .dtype = seed % 2 ? "f32" : "f16", .kv = PJ_KV_F32};
        sampling.temperature = 0.7;
        sampling.seed = seed;
        if (pj_engine_open(&options, &plain, &err) != PJ_OK) fail_msg("%s", err.text);
        options.draft = PJ_DRAFT_HEAD;
        if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
        generate(plain, prompt, 0, &sampling, NULL, &without);
        generate(engine, prompt, 4, &sampling, NULL, &with);
        assert_memory_equal(with.ids, without.ids, sizeof with.ids);
        assert_that(with.proposed, >, 0);
        assert_string_equal(pj_engine_draft_facts(engine)->model_name, PJ_DRAFT_HEAD);
        assert_string_equal(pj_engine_draft_facts(engine)->dtype,
                            pj_engine_get_facts(engine)->dtype);
        pj_engine_close(engine);
        pj_engine_close(plain);
        tiny_free(&m);
    }
}

/* The head's work is the section `draft` with its component, in prefill and in every step. */
static void recorded(void **state)
{
    tiny_model m;
    int32_t prompt[PROMPT];
    outcome out;
    pj_error err = {0};
    pj_session *session;
    pj_run *run;
    pj_run_data data;
    uint32_t passes = 0, norms = 0;
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    (void)state;
    make_model(&m, "glm4-moe", 7);
    make_prompt(prompt, 7);
    pj_engine *engine = open_model(m.folder, PJ_DRAFT_HEAD, 0, NULL);
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    generate(engine, prompt, 2, &PJ_SAMPLING_GREEDY, run, &out);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, &err) != PJ_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < data.component_count; i++) {
        const pj_component_row *c = &data.components[i];
        if (strcmp(c->name, "draft_pass") == 0) passes++;
        assert_string_not_equal(c->name, "eh_proj"); /* part of it */
        norms += strcmp(c->name, "norm") == 0;
    }
    assert_int_equal(passes, 1 + out.steps);
    assert_int_equal(norms, 1 + out.steps); /* of the model's own passes */
    pj_run_data_fini(&data);
    pj_session_close(session);
    pj_engine_close(engine);
    tiny_free(&m);
}

static void assert_no_head(const char *folder, const pj_backend *backend, const char *part)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {
        .model = folder, .threads = 1, .draft = PJ_DRAFT_HEAD, .backend = backend};
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_E_UNSUPPORTED);
    if (!strstr(err.text, part)) fail_msg("%s", err.text);
}

static void refused(void **state)
{
    tiny_model m;
    pj_backend limited = reference_device;
    (void)state;
    tiny_make(&m, tiny_find("llama"), 1);
    tiny_write(&m, TINY_F32);
    assert_no_head(m.folder, NULL, "have no head that predicts the token after the next");
    tiny_free(&m);
    make_model(&m, "glm4-moe", 1);
    limited.ops.give = NULL;
    assert_no_head(m.folder, &limited, "cannot run heads that predict further tokens yet");
    tiny_free(&m);
    tiny_make(&m, tiny_find("glm4-moe"), 1);
    snprintf(tiny_get(&m, "model.layers.2.eh_proj.weight")->name, 32, "model.layers.2.other");
    tiny_write(&m, TINY_F32);
    assert_no_head(m.folder, NULL, "have no head");
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals),      cmocka_unit_test(proposals_to_a_recurrent_model),
        cmocka_unit_test(in_a_gguf_file), cmocka_unit_test(sampled_and_converted),
        cmocka_unit_test(recorded),       cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
