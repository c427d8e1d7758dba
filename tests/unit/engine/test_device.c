/* The forward pass over a device that runs nothing before its pass ends (reference_device.h): for
 * every architecture the logits, tokens and components are those of the CPU. */
#include "../assertions.h"
#include "engine/generation/engine.h"
#include "record/run.h"
#include "reference_device.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24, NEW_TOKENS = 6, MAX_VOCAB = 200 };

static void make_ids(int32_t *ids, int count, int vocab)
{
    for (int i = 0; i < count; i++) ids[i] = 2 + (i * 37 + i * i * 11) % (vocab - 2);
}

static pj_engine *open_tiny(const tiny_model *m, const pj_backend *backend, const char *draft)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {
        .model = m->folder, .threads = 2, .chunk = 7, .backend = backend, .draft = draft};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    return engine;
}

static bool keep_row(void *context, uint32_t position, const float *logits, uint32_t vocab)
{
    float *kept = context;
    memcpy(kept + position * vocab, logits, vocab * sizeof *logits);
    return true;
}

static void logits_of(pj_engine *engine, const int32_t *ids, bool whole, float *logits)
{
    pj_error err = {0};
    if (pj_engine_logits(engine, ids, TOKENS, whole, keep_row, logits, &err) != PJ_OK)
        fail_msg("%s", err.text);
}

/* `recurrent`: a state carries the rounding of each position on to the next ones, and -O1 (under
 * the sanitizers) rounds in another order than -O3. */
static void check_logits(pj_engine *cpu, pj_engine *device, const int32_t *ids, const char *name,
                         bool recurrent)
{
    float tolerance = recurrent ? 4e-4f : 2e-4f;
    static float want[TOKENS * MAX_VOCAB], got[TOKENS * MAX_VOCAB];
    uint32_t count = TOKENS * pj_engine_get_facts(cpu)->config->vocab;
    for (int whole = 0; whole < 2; whole++) {
        logits_of(cpu, ids, whole, want);
        logits_of(device, ids, whole, got);
        for (uint32_t i = 0; i < count; i++)
            if (!(fabsf(got[i] - want[i]) <= tolerance + tolerance * fabsf(want[i])))
                fail_msg("%s, whole %d: logit %u is %g, not %g", name, whole, i, got[i], want[i]);
    }
}

/* Generates for two sequences, recorded at depth module; ids [2][NEW_TOKENS]. */
static void generate(pj_engine *engine, const int32_t *ids, uint32_t sequences, int32_t *drawn,
                     pj_run_data *data)
{
    pj_error err = {0};
    pj_session *session;
    pj_run *run;
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    pj_prompt prompts[] = {{.ids = ids, .id_count = TOKENS}, {.ids = ids + 3, .id_count = 9}};
    pj_generate_result result = {0};
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = PJ_DEPTH_MODULE}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_generate_request request = {.prompts = prompts,
                                   .prompt_count = sequences,
                                   .max_tokens = NEW_TOKENS,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .run = run};
    if (pj_engine_generate(engine, &request, &result, &err) != PJ_OK) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < sequences; i++)
        memcpy(drawn + i * NEW_TOKENS, result.sequences[i].ids, NEW_TOKENS * sizeof *drawn);
    pj_generate_result_fini(&result);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, data, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_session_close(session);
}

static bool near(double got, double want, double room)
{
    return fabs(got - want) <= room * fmax(1, fabs(want));
}

/* The components that the device was told of, in order, with the statistics of its memory. */
static void check_components(const pj_run_data *cpu, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < reference_seen.span_count; i++) {
        const reference_span *span = &reference_seen.spans[i];
        if (span->name == PJ_N_NONE) continue;
        if (n == cpu->component_count) fail_msg("%s: more than %u components", name, n);
        const pj_component_row *want = &cpu->components[n++];
        if (strcmp(pj_instrument_text(span->name), want->name) != 0)
            fail_msg("%s: component %u is %s, not %s", name, n, pj_instrument_text(span->name),
                     want->name);
        if (!near(span->flops, want->flops, 1e-9) || !near(span->bytes, want->bytes, 1e-9))
            fail_msg("%s %s: %g FLOPs, %g bytes, not %g and %g", name, want->name, span->flops,
                     span->bytes, want->flops, want->bytes);
        if (want->has_stats != !isnan(span->mean_abs) ||
            (want->has_stats && !near(span->mean_abs, want->stats.mean_abs, 1e-3)))
            fail_msg("%s %s: mean %g, not %g", name, want->name, span->mean_abs,
                     want->stats.mean_abs);
    }
    assert_int_equal(n, cpu->component_count);
    assert_int_equal(reference_seen.open_spans, 0);
}

static void check_generation(pj_engine *cpu, pj_engine *device, const int32_t *ids,
                             const char *name)
{
    int32_t want[2 * NEW_TOKENS], got[2 * NEW_TOKENS];
    pj_run_data recorded, host;
    generate(cpu, ids, 2, want, &recorded);
    memset(&reference_seen, 0, sizeof reference_seen);
    generate(device, ids, 2, got, &host);
    assert_that(reference_seen.argmaxes, >, 0);
    if (memcmp(got, want, sizeof want) != 0) fail_msg("%s: other tokens", name);
    check_components(&recorded, name);
    pj_run_data_fini(&recorded);
    pj_run_data_fini(&host);
}

static void every_architecture(void **state)
{
    int32_t ids[TOKENS];
    for (size_t i = 0; i < tiny_shape_count; i++) {
        tiny_model m;
        tiny_make(&m, &tiny_shapes[i], 42);
        tiny_write(&m, TINY_F32);
        make_ids(ids, TOKENS, m.shape.vocab);
        pj_engine *cpu = open_tiny(&m, NULL, NULL);
        pj_engine *device = open_tiny(&m, &reference_device, NULL);
        check_logits(cpu, device, ids, m.shape.name, m.shape.delta || m.shape.beside);
        check_generation(cpu, device, ids, m.shape.name);
        pj_engine_close(device);
        pj_engine_close(cpu);
        tiny_free(&m);
    }
}

/* A draft on the device proposes what the target would say itself, so every proposal is accepted.
 */
static void a_draft_on_the_device(void **state)
{
    int32_t ids[TOKENS], want[NEW_TOKENS], got[NEW_TOKENS];
    tiny_model m;
    pj_run_data data;
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    make_ids(ids, TOKENS, m.shape.vocab);
    pj_engine *cpu = open_tiny(&m, NULL, NULL);
    generate(cpu, ids, 1, want, &data);
    pj_run_data_fini(&data);
    pj_engine_close(cpu);
    memset(&reference_seen, 0, sizeof reference_seen);
    pj_engine *device = open_tiny(&m, &reference_device, m.folder);
    assert_int_equal(reference_seen.loads, 2);
    generate(device, ids, 1, got, &data);
    assert_memory_equal(got, want, sizeof want);
    pj_run_data_fini(&data);
    pj_engine_close(device);
    assert_int_equal(reference_seen.unloads, 2);
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(a_draft_on_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
