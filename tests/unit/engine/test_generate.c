/* Generation: batches, stopping, limits, cancelling, and decoding without allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../sanitized.h"
#include "base/memory.h"
#include "engine/generation/calibrate.h"
#include "engine/generation/engine.h"
#include "record/run.h"
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPTS = 4 };

static tiny_model model;
static pj_engine *engine;

static void open_shape(const char *name)
{
    pj_error err = {0};
    tiny_make(&model, tiny_find(name), 11);
    tiny_write(&model, TINY_F32);
    pj_engine_options options = {.model = model.folder, .threads = 2};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
}

static void close_shape(void)
{
    pj_engine_close(engine);
    tiny_free(&model);
}

/* Prompts of unequal lengths: some beyond windows and original contexts, some not. */
static int32_t prompt_ids[PROMPTS][32];
static const uint32_t prompt_lengths[PROMPTS] = {3, 14, 1, 22};

static void make_prompts(pj_prompt prompts[PROMPTS])
{
    for (uint32_t p = 0; p < PROMPTS; p++) {
        for (uint32_t i = 0; i < prompt_lengths[p]; i++)
            prompt_ids[p][i] = (int32_t)(2 + (p * 31 + i * 17) % (uint32_t)(model.shape.vocab - 2));
        prompts[p] = (pj_prompt){.ids = prompt_ids[p], .id_count = prompt_lengths[p]};
    }
}

static pj_generate_result generate(const pj_generate_request *request)
{
    pj_error err = {0};
    pj_generate_result result = {0};
    if (pj_engine_generate(engine, request, &result, &err) != PJ_OK) fail_msg("%s", err.text);
    return result;
}

static void batch_equals_singles(void **state)
{
    for (size_t s = 0; s < tiny_shape_count; s++) {
        pj_prompt prompts[PROMPTS];
        open_shape(tiny_shapes[s].name);
        make_prompts(prompts);
        for (int sampled = 0; sampled < 2; sampled++) {
            pj_sampling sampling = PJ_SAMPLING_GREEDY;
            if (sampled) sampling = (pj_sampling){0.8, 20, 0.9, 0, 1.1, 77};
            pj_generate_request request = {.prompts = prompts,
                                           .prompt_count = PROMPTS,
                                           .sequences = PROMPTS + 1, /* the first one twice */
                                           .max_tokens = 12,
                                           .ignore_eos = true,
                                           .sampling = sampling};
            pj_generate_result all = generate(&request);
            assert_int_equal(all.count, PROMPTS + 1);
            assert_int_equal(all.input_tokens, 3 + 14 + 1 + 22 + 3);
            assert_int_equal(all.output_tokens, 12 * (PROMPTS + 1));
            if (sampled) /* same prompt, independent random streams */
                assert_memory_not_equal(all.sequences[0].ids, all.sequences[PROMPTS].ids,
                                        12 * sizeof(int32_t));
            for (uint32_t i = 0; i <= PROMPTS; i++) {
                request.prompts = &prompts[i % PROMPTS];
                request.prompt_count = request.sequences = 1;
                request.first_stream = i;
                pj_generate_result one = generate(&request);
                assert_int_equal(one.sequences[0].count, 12);
                assert_memory_equal(one.sequences[0].ids, all.sequences[i].ids,
                                    12 * sizeof(int32_t));
                assert_string_equal(one.sequences[0].text, all.sequences[i].text);
                pj_generate_result_fini(&one);
            }
            pj_generate_result_fini(&all);
        }
        close_shape();
    }
}

/* Each greedy token is the argmax of the logits when the whole text is evaluated at once. */
typedef struct last_row {
    uint32_t wanted;
    int32_t best;
} last_row;

static bool keep_best(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    last_row *l = context;
    if (position != l->wanted) return true;
    l->best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[l->best]) l->best = (int32_t)i;
    return true;
}

static void steps_equal_the_whole(void **state)
{
    for (size_t s = 0; s < tiny_shape_count; s++) {
        pj_prompt prompts[PROMPTS];
        open_shape(tiny_shapes[s].name);
        make_prompts(prompts);
        pj_generate_request request = {.prompts = &prompts[1],
                                       .prompt_count = 1,
                                       .max_tokens = 20, /* from 14 over a border at 16 */
                                       .ignore_eos = true,
                                       .sampling = PJ_SAMPLING_GREEDY};
        pj_generate_result r = generate(&request);
        int32_t text[64];
        memcpy(text, prompt_ids[1], 14 * sizeof *text);
        memcpy(text + 14, r.sequences[0].ids, 20 * sizeof *text);
        for (uint32_t n = 14; n < 34; n++) {
            pj_error err = {0};
            last_row last = {.wanted = n - 1};
            assert_int_equal(pj_engine_logits(engine, text, n, true, keep_best, &last, &err),
                             PJ_OK);
            assert_int_equal(last.best, text[n]);
        }
        pj_generate_result_fini(&r);
        close_shape();
    }
}

/* ---- stopping ----------------------------------------------------------------------------- */

/* Without a tokenizer a token's text is its id, with a space in front but for the first. */
static char seen_text[4096];
static uint32_t seen_tokens;

static void take_token(void *context, const pj_generated *t)
{
    assert_int_equal(t->position, seen_tokens);
    strncat(seen_text, t->text, t->bytes);
    seen_tokens++;
}

static pj_generate_result talk(pj_generate_request *request)
{
    seen_text[0] = 0;
    seen_tokens = 0;
    request->on_token = take_token;
    pj_generate_result r = generate(request);
    assert_int_equal(seen_tokens, r.sequences[0].count);
    assert_string_equal(seen_text, r.sequences[0].text);
    return r;
}

static void stops(void **state)
{
    pj_prompt prompts[PROMPTS];
    open_shape("llama");
    make_prompts(prompts);
    pj_generate_request request = {.prompts = prompts,
                                   .prompt_count = 1,
                                   .max_tokens = 30,
                                   .ignore_eos = true,
                                   .sampling = {1.5, 0, 1, 0, 1, 3}};
    pj_generate_result whole = talk(&request);
    assert_int_equal(whole.sequences[0].stop, PJ_STOP_LENGTH);
    assert_int_equal(whole.sequences[0].count, 30);
    /* a stop string across three tokens, and a text that only shares its prefix */
    char stop[64], decoy[64], want[4096];
    snprintf(stop, sizeof stop, "%d %d %d ", whole.sequences[0].ids[9] % 10,
             whole.sequences[0].ids[10], whole.sequences[0].ids[11]);
    snprintf(decoy, sizeof decoy, " %d %d never", whole.sequences[0].ids[3],
             whole.sequences[0].ids[4]);
    const char *const list[] = {decoy, stop, NULL};
    snprintf(want, sizeof want, "%s", whole.sequences[0].text);
    char *at = strstr(want, stop);
    assert_non_null(at);
    *at = 0;
    request.stop = list;
    pj_generate_result stopped = talk(&request);
    assert_int_equal(stopped.sequences[0].stop, PJ_STOP_STRING);
    assert_string_equal(stopped.sequences[0].text, want);
    pj_generate_result_fini(&stopped);
    /* a text that ends in a prefix of a stop string is output whole */
    char tail[64];
    snprintf(tail, sizeof tail, " %d no", whole.sequences[0].ids[29]);
    const char *const unfinished[] = {tail, NULL};
    request.stop = unfinished;
    pj_generate_result complete = talk(&request);
    assert_string_equal(complete.sequences[0].text, whole.sequences[0].text);
    pj_generate_result_fini(&complete);
    pj_generate_result_fini(&whole);
    close_shape();
}

/* config.json of the shapes has eos 1: found by sampling at a high temperature. */
static void eos(void **state)
{
    pj_prompt prompts[PROMPTS];
    open_shape("llama");
    make_prompts(prompts);
    int ended = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        pj_generate_request request = {.prompts = prompts,
                                       .prompt_count = 1,
                                       .max_tokens = 40,
                                       .sampling = {5, 0, 1, 0, 1, seed}};
        pj_generate_result r = generate(&request);
        const pj_sequence_result *s = &r.sequences[0];
        for (uint32_t i = 0; i + 1 < s->count; i++) assert_int_not_equal(s->ids[i], 1);
        assert_int_equal(s->stop == PJ_STOP_EOS, s->ids[s->count - 1] == 1);
        ended += s->stop == PJ_STOP_EOS;
        pj_generate_result_fini(&r);
    }
    assert_that(ended, >, 0);
    close_shape();
}

/* ---- a draft model ------------------------------------------------------------------------ */

/* The text as streamed to the caller token by token, with positions in order. */
typedef struct streamed {
    char text[4096];
    uint32_t count;
} streamed;

static void stream(void *context, const pj_generated *t)
{
    streamed *s = context;
    assert_int_equal(t->position, s->count++);
    assert_that(strlen(s->text) + t->bytes, <, sizeof s->text);
    strncat(s->text, t->text, t->bytes);
}

/* One of the same shape, or of another with as many words whose state can go back. */
static const char *draft_shape_of(const char *shape)
{
    const tiny_shape *s = tiny_find(shape);
    return s->delta ? "glm4-moe" : s->family == TINY_LFM2 || s->scans ? "llama" : shape;
}

/* Opens the model with itself, or with other weights of the same shape, as its draft. */
static void open_with_draft(const char *shape, tiny_model *draft, uint64_t seed)
{
    pj_error err = {0};
    tiny_make(&model, tiny_find(shape), 11);
    tiny_write(&model, TINY_F32);
    tiny_make(draft, tiny_find(draft_shape_of(shape)), seed);
    tiny_write(draft, TINY_F32);
    pj_engine_options options = {.model = model.folder, .draft = draft->folder, .threads = 2};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s: %s", shape, err.text);
}

static void check_with_draft(const char *shape, uint64_t seed, bool sampled)
{
    static tiny_model draft;
    static const uint32_t ahead[] = {0, 1, 16};
    pj_prompt prompts[PROMPTS];
    pj_sampling sampling = PJ_SAMPLING_GREEDY;
    if (sampled) sampling = (pj_sampling){0.8, 20, 0.9, 0, 1.1, 77, .frequency_penalty = 0.3};
    open_shape(shape);
    make_prompts(prompts);
    pj_generate_request request = {.prompts = &prompts[1],
                                   .prompt_count = 1,
                                   .max_tokens = 40,
                                   .ignore_eos = true,
                                   .sampling = sampling};
    pj_generate_result plain = generate(&request);
    assert_int_equal(plain.proposed, 0);
    close_shape();
    open_with_draft(shape, &draft, seed);
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
        streamed s = {0};
        request.draft_tokens = ahead[i];
        request.on_token = stream;
        request.context = &s;
        pj_generate_result with = generate(&request);
        assert_int_equal(with.sequences[0].count, 40);
        assert_memory_equal(with.sequences[0].ids, plain.sequences[0].ids, 40 * sizeof(int32_t));
        assert_string_equal(with.sequences[0].text, plain.sequences[0].text);
        assert_string_equal(s.text, plain.sequences[0].text);
        assert_that(with.proposed, >, 0);
        assert_that(with.accepted, <=, with.proposed);
        assert_int_equal(with.decode_steps + with.accepted, 39);
        bool itself = seed == 11 && strcmp(draft_shape_of(shape), shape) == 0;
        if (itself && !sampled) assert_int_equal(with.accepted, with.proposed);
        if (seed != 11) assert_that(with.accepted, <, with.proposed);
        pj_generate_result_fini(&with);
    }
    pj_generate_result_fini(&plain);
    tiny_free(&draft);
    close_shape();
}

static void a_draft_changes_no_text(void **state)
{
    for (size_t s = 0; s < tiny_shape_count; s++)
        for (int sampled = 0; sampled < 2; sampled++) {
            if (PJ_SANITIZED ? s % 10 || (s / 10 + (size_t)sampled) % 2 : sampled && s % 3)
                continue;
            if (tiny_shapes[s].beside) continue; /* its scans cannot go back */
            check_with_draft(tiny_shapes[s].name, 11, sampled);
            check_with_draft(tiny_shapes[s].name, 12, sampled);
        }
}

static void a_draft_must_fit(void **state)
{
    static tiny_model draft;
    pj_error err = {0};
    pj_prompt prompts[PROMPTS];
    pj_generate_result result = {0};
    open_with_draft(tiny_shapes[0].name, &draft, 3);
    make_prompts(prompts);
    pj_generate_request request = {
        .prompts = prompts, .prompt_count = 2, .max_tokens = 2, .sampling = PJ_SAMPLING_GREEDY};
    assert_int_equal(pj_engine_generate(engine, &request, &result, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "batch"));
    pj_generate_result_fini(&result);
    tiny_free(&draft);
    close_shape();
    tiny_shape larger = tiny_shapes[0];
    larger.vocab += 8;
    tiny_make(&model, &tiny_shapes[0], 1);
    tiny_write(&model, TINY_F32);
    tiny_make(&draft, &larger, 1);
    tiny_write(&draft, TINY_F32);
    pj_engine_options other = {.model = model.folder, .draft = draft.folder, .threads = 1};
    assert_int_equal(pj_engine_open(&other, &engine, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "vocabularies differ"));
    tiny_free(&draft);
    tiny_free(&model);
    tiny_make(&model, tiny_find("glm4-moe"), 1);
    tiny_write(&model, TINY_F32);
    tiny_make(&draft, tiny_find("qwen3.5"), 1);
    tiny_write(&draft, TINY_F32);
    other = (pj_engine_options){.model = model.folder, .draft = draft.folder, .threads = 1};
    assert_int_equal(pj_engine_open(&other, &engine, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cannot be the draft of speculative decoding"));
    tiny_free(&draft);
    tiny_free(&model);
}

/* ---- limits ------------------------------------------------------------------------------- */

static void assert_refused(const pj_generate_request *request, const char *word)
{
    pj_error err = {0};
    pj_generate_result result = {0};
    assert_int_equal(pj_engine_generate(engine, request, &result, &err), PJ_E_INVALID);
    if (!strstr(err.text, word)) fail_msg("\"%s\" does not say %s", err.text, word);
    assert_int_equal(result.output_tokens, 0);
    pj_generate_result_fini(&result);
}

static void limits(void **state)
{
    int32_t ids[104] = {0}, wrong = 97;
    open_shape("llama"); /* context 128, vocabulary 97 */
    pj_prompt prompt = {.ids = ids, .id_count = 104};
    pj_generate_request request = {
        .prompts = &prompt, .prompt_count = 1, .max_tokens = 25, .sampling = PJ_SAMPLING_GREEDY};
    assert_refused(&request, "128");
    request.max_tokens = 24;
    request.ignore_eos = true;
    pj_generate_result r = generate(&request);
    assert_int_equal(r.output_tokens, 24);
    pj_generate_result_fini(&r);
    prompt = (pj_prompt){.ids = &wrong, .id_count = 1};
    assert_refused(&request, "97");
    wrong = -1;
    assert_refused(&request, "-1");
    prompt = (pj_prompt){.ids = ids, .id_count = 0};
    assert_refused(&request, "empty");
    prompt = (pj_prompt){.ids = ids, .id_count = 1};
    request.sampling.top_p = 2;
    assert_refused(&request, "top_p");
    request.sampling = PJ_SAMPLING_GREEDY;
    request.prompt_count = 0;
    assert_refused(&request, "no prompt");
    request.prompt_count = 1;
    request.sequences = 1000000;
    assert_refused(&request, "1000000");
    request.sequences = 1;
    request.max_tokens = 0; /* prefill alone */
    r = generate(&request);
    assert_int_equal(r.output_tokens, 0);
    assert_string_equal(r.sequences[0].text, "");
    pj_generate_result_fini(&r);
    close_shape();
}

/* ---- cancelling and memory ---------------------------------------------------------------- */

static _Atomic bool cancel;
static uint64_t allocations[64];

static void cancel_at_five(void *context, const pj_generated *t)
{
    if (t->position == 4) atomic_store(&cancel, true);
}

static void cancelling(void **state)
{
    pj_prompt prompts[PROMPTS];
    pj_error err = {0};
    pj_generate_result r = {0};
    open_shape("qwen3");
    make_prompts(prompts);
    pj_generate_request request = {.prompts = prompts,
                                   .prompt_count = 1,
                                   .max_tokens = 30,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .on_token = cancel_at_five,
                                   .cancel = &cancel};
    atomic_store(&cancel, false);
    assert_int_equal(pj_engine_generate(engine, &request, &r, &err), PJ_E_CANCELLED);
    assert_int_equal(r.sequences[0].count, 5);
    assert_int_equal(r.sequences[0].stop, PJ_STOP_CANCELLED);
    assert_that(r.sequences[0].text_bytes, >, 0);
    pj_generate_result_fini(&r);
    /* before it begins */
    assert_int_equal(pj_engine_generate(engine, &request, &r, &err), PJ_E_CANCELLED);
    assert_int_equal(r.output_tokens, 0);
    pj_generate_result_fini(&r);
    close_shape();
}

/* Generating or converting weights can take long, must be cancellable, and reports its progress. */
static void cancelling_while_loading(void **state)
{
    cancel = true;
    pj_error err = {0};
    pj_progress progress = {0};
    pj_engine_options options = {.model = "synthetic:smollm2-135m,layers=3",
                                 .threads = 2,
                                 .cancel = &cancel,
                                 .progress = &progress};
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_E_CANCELLED);
    assert_null(engine);
    assert_int_equal(progress.done, 0);
    cancel = false;
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_OK);
    assert_int_equal(progress.total, 3);
    assert_int_equal(progress.done, 3);
    pj_engine_close(engine);
}

/* Copied weights compute the same, and no longer depend on their file. */
static void weights_may_be_copied(void **state)
{
    pj_error err = {0};
    pj_prompt prompts[PROMPTS];
    char weights[128];
    open_shape("llama");
    make_prompts(prompts);
    pj_generate_request request = {.prompts = prompts,
                                   .prompt_count = PROMPTS,
                                   .max_tokens = 8,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY};
    pj_generate_result mapped = generate(&request);
    pj_engine_close(engine);

    cancel = true;
    pj_engine_options options = {
        .model = model.folder, .threads = 2, .no_mmap = true, .cancel = &cancel};
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_E_CANCELLED);
    cancel = false;
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    snprintf(weights, sizeof weights, "%s/model.safetensors", model.folder);
    assert_int_equal(truncate(weights, 0), 0);
    pj_generate_result copied = generate(&request);
    for (uint32_t i = 0; i < PROMPTS; i++)
        assert_memory_equal(copied.sequences[i].ids, mapped.sequences[i].ids, 8 * sizeof(int32_t));
    pj_generate_result_fini(&mapped);
    pj_generate_result_fini(&copied);
    close_shape();
}

static void count_allocations(void *context, const pj_generated *t)
{
    if (t->position < 64) allocations[t->position] = pj_memory_count();
}

static void decoding_allocates_nothing(void **state)
{
    for (size_t s = 0; s < tiny_shape_count; s++) {
        pj_prompt prompts[PROMPTS];
        open_shape(tiny_shapes[s].name);
        make_prompts(prompts);
        pj_generate_request request = {.prompts = prompts,
                                       .prompt_count = PROMPTS,
                                       .max_tokens = 40,
                                       .ignore_eos = true,
                                       .sampling = {0.7, 30, 0.95, 0.01, 1.2, 5},
                                       .on_token = count_allocations};
        pj_generate_result r = generate(&request);
        assert_that(allocations[0], >, 0);
        assert_int_equal(allocations[0], allocations[39]);
        pj_generate_result_fini(&r);
        close_shape();
    }
}

static void memory_runs_out(void **state)
{
    pj_prompt prompts[PROMPTS];
    pj_status status = PJ_E_NO_MEMORY;
    open_shape("mixtral");
    make_prompts(prompts);
    for (int64_t n = 0; status != PJ_OK; n++) {
        pj_error err = {0};
        pj_generate_result r = {0};
        pj_generate_request request = {.prompts = prompts,
                                       .prompt_count = 2,
                                       .max_tokens = 3,
                                       .sampling = {0.7, 30, 0.95, 0.01, 1.2, 5}};
        pj_memory_fail_after(n);
        status = pj_engine_generate(engine, &request, &r, &err);
        pj_memory_fail_after(-1);
        if (status != PJ_OK) assert_int_equal(status, PJ_E_NO_MEMORY);
        if (status != PJ_OK) assert_that(err.text[0], !=, 0);
        pj_generate_result_fini(&r);
        assert_that(n, <, 10000);
    }
    close_shape();
}

static void synthetic_models(void **state)
{
    uint64_t hash = 0;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        pj_error err = {0};
        pj_engine_options options = {.model = "synthetic:smollm2-135m,q8_0,layers=2",
                                     .threads = threads};
        if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
        const pj_engine_facts *facts = pj_engine_get_facts(engine);
        assert_true(facts->synthetic && facts->extrapolated);
        assert_string_equal(facts->dtype, "q8_0");
        assert_int_equal(facts->config->layers, 2);
        pj_prompt prompt = {.text = "a prompt", .bytes = 8}; /* its bytes are its ids */
        pj_generate_request request = {
            .prompts = &prompt, .prompt_count = 1, .max_tokens = 4, .sampling = PJ_SAMPLING_GREEDY};
        pj_generate_result r = generate(&request);
        assert_int_equal(r.input_tokens, 8);
        if (threads == 1) hash = r.logits_hash;
        assert_int_equal(r.logits_hash, hash);
        pj_generate_result_fini(&r);
        pj_engine_close(engine);
    }
}

/* ---- calibration -------------------------------------------------------------------------- */

static void record_run(pj_run_data *data, pj_status (*work)(pj_run *, pj_error *))
{
    pj_error err = {0};
    pj_session *session;
    pj_run *run;
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    if (work(run, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, data, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_session_close(session);
}

static pj_status generate_some(pj_run *run, pj_error *err)
{
    static const int32_t ids[] = {5, 6, 7};
    pj_prompt prompt = {.ids = ids, .id_count = 3};
    pj_generate_result result = {0};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .max_tokens = 2,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .run = run};
    pj_status status = pj_engine_generate(engine, &request, &result, err);
    pj_generate_result_fini(&result);
    return status;
}

static pj_status calibrate(pj_run *run, pj_error *err)
{
    return pj_engine_calibrate(
        engine,
        &(pj_calibrate_request){
            .run = run, .block_ns = 1000, .passes = 1, .context = 8, .prefill_rows = 4, .seed = 1},
        err);
}

static bool has_component(const pj_run_data *data, const char *name)
{
    for (uint32_t i = 0; i < data->component_count; i++)
        if (strcmp(data->components[i].name, name) == 0) return true;
    return false;
}

/* Whatever an architecture names its components, each is measured. */
static void every_component_is_calibrated(void **state)
{
    (void)state;
    for (size_t s = 0; s < tiny_shape_count; s += PJ_SANITIZED ? 4 : 1) {
        pj_run_data run, calibration;
        open_shape(tiny_shapes[s].name);
        record_run(&run, generate_some);
        record_run(&calibration, calibrate);
        for (uint32_t i = 0; i < run.component_count; i++) {
            const char *name = run.components[i].name;
            /* the embedding's rows are read within microseconds */
            if (strcmp(name, "embed_tokens") != 0 && !has_component(&calibration, name))
                fail_msg("%s: %s is not calibrated", tiny_shapes[s].name, name);
        }
        pj_run_data_fini(&run);
        pj_run_data_fini(&calibration);
        close_shape();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_equals_singles),
        cmocka_unit_test(steps_equal_the_whole),
        cmocka_unit_test(stops),
        cmocka_unit_test(eos),
        cmocka_unit_test(a_draft_changes_no_text),
        cmocka_unit_test(every_component_is_calibrated),
        cmocka_unit_test(a_draft_must_fit),
        cmocka_unit_test(limits),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(cancelling_while_loading),
        cmocka_unit_test(weights_may_be_copied),
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(synthetic_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
