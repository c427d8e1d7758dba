/* GGUF files written by other tools: the logits of every weight type on every instruction set, and
 * of model families with their own key and tensor names. */
#include "judge_json.h"

#include "engine/generation/engine.h"
#include "engine/kernels/kernels.h"
#include "record/run.h"

#include <math.h>

enum { MAX_IDS = 512, MAX_ISAS = 16 };

/* One for a device, which does not use them. */
static size_t list_isas(const char **isas)
{
    size_t count = pj_kernels_list(isas, MAX_ISAS);
    return getenv("PJ_DEVICE") ? 1 : count;
}

typedef struct comparison {
    const float *want;
    double square, worst; /* sum of squares; largest |difference| / (2e-4 + 2e-4 |reference|) */
    uint64_t count;
} comparison;

static bool compare_row(void *context, uint32_t position, const float *got, uint32_t vocab)
{
    comparison *c = context;
    for (uint32_t i = 0; i < vocab; i++) {
        double want = c->want[(size_t)position * vocab + i], d = fabs(got[i] - want);
        double share = d / (2e-4 + 2e-4 * fabs(want));
        if (!(share <= c->worst)) c->worst = share; /* a NaN is a failure too */
        c->square += d * d;
        c->count++;
    }
    return true;
}

static comparison compare(const char *model, const char *isa, const char *logits, const json_t *ids,
                          bool whole)
{
    pj_error err = {0};
    pj_engine *engine;
    int32_t list[MAX_IDS];
    char *text;
    size_t bytes;
    uint32_t count = judge_ids(ids, list, MAX_IDS);
    pj_engine_options options = {
        .model = model, .isa = isa, .threads = 2, .device = getenv("PJ_DEVICE")};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(pj_file_read(logits, 1 << 28, &text, &bytes, &err), PJ_OK);
    assert_int_equal(bytes, count * sizeof(float) * pj_engine_get_facts(engine)->config->vocab);
    comparison c = {.want = (const float *)(const void *)text};
    if (pj_engine_logits(engine, list, count, whole, compare_row, &c, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_free(text);
    pj_engine_close(engine);
    return c;
}

/* ---- weight types ------------------------------------------------------------------------- */

static void check_type(const char *folder, const json_t *reference, const json_t *model,
                       const char *isa)
{
    char path[PATH_MAX], logits[PATH_MAX];
    const char *file = json_string_value(json_object_get(model, "file"));
    judge_join(path, folder, file);
    judge_join(logits, folder, json_string_value(json_object_get(model, "logits")));
    /* Quantised products may lose no more than llama.cpp's, whose error the list states; the KL
     * divergence of the next token goes with its square. */
    double peer = json_real_value(json_object_get(model, "peer_rms_over_std"));
    double room = strstr(file, "f16") ? 0.002 : peer > 0 ? 1.05 * peer : 0.05;
    double std = json_real_value(json_object_get(model, "std"));
    for (int whole = 0; whole < 2; whole++) {
        comparison c = compare(path, isa, logits, json_object_get(reference, "ids"), whole);
        double rms = sqrt(c.square / (double)c.count) / std;
        if (!(rms <= room)) fail_msg("%s %s whole %d: rms %g", file, isa, whole, rms);
    }
}

static void test_types(void **state)
{
    const char *isas[MAX_ISAS], *folder = judge_folder("PJ_GOLDEN_GGUF");
    size_t count = list_isas(isas), i;
    json_t *reference = judge_json(folder, "reference.json"), *model;
    (void)state;
    json_array_foreach(json_object_get(reference, "models"), i, model)
    {
        for (size_t isa = 0; isa < count; isa++) check_type(folder, reference, model, isas[isa]);
    }
    json_decref(reference);
}

/* ---- statistics of activations ------------------------------------------------------------ */

/* Components of one prefill, with statistics of all rows. */
static void record(const char *model, const char *dtype, const char *isa, uint32_t tokens,
                   pj_depth depth, pj_run_data *data)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_session *session;
    pj_run *run;
    int32_t ids[MAX_IDS];
    for (uint32_t i = 0; i < tokens; i++) ids[i] = (int32_t)(3 + (i * 37 + i * i * 11) % 190);
    pj_engine_options options = {
        .model = model, .dtype = dtype, .isa = isa, .threads = 2, .device = getenv("PJ_DEVICE")};
    pj_session_options nothing = {.power = "none", .database = "none", .baseline_seconds = -1};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_session_open(&nothing, &session, &err) != PJ_OK) fail_msg("%s", err.text);
    if (pj_run_begin(session, &(pj_run_options){.depth = depth}, &run, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_prompt prompt = {.ids = ids, .id_count = tokens};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .max_tokens = 0,
                                   .sampling = PJ_SAMPLING_GREEDY,
                                   .statistics = PJ_STATISTICS_ALL,
                                   .run = run};
    pj_generate_result result = {0};
    if (pj_engine_generate(engine, &request, &result, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_generate_result_fini(&result);
    if (pj_run_finish(run, PJ_RUN_COMPLETED, NULL, data, &err) != PJ_OK) fail_msg("%s", err.text);
    pj_session_close(session);
    pj_engine_close(engine);
}

static void assert_within(double got, double want, double room, const char *what,
                          const pj_component_row *c, const char *where)
{
    if (!(fabs(got - want) <= room))
        fail_msg("%s: %s of %s is %g, with exact products %g", where, what, c->name, got, want);
}

/* Products of quantised weights round activations to 8 bits, which may not change statistics by
 * more than this, in standard deviations, of the largest value, and of the sparsity. */
static void same_statistics(const pj_run_data *exact, const pj_run_data *data, double room,
                            const char *where)
{
    assert_int_equal(data->component_count, exact->component_count);
    for (uint32_t i = 0; i < data->component_count; i++) {
        const pj_component_row *c = &data->components[i], *e = &exact->components[i];
        assert_string_equal(c->name, e->name);
        assert_int_equal(c->has_stats, e->has_stats);
        if (!e->has_stats) continue;
        double std = e->stats.std;
        assert_within(c->stats.mean_abs, e->stats.mean_abs, room * std, "the mean", c, where);
        assert_within(c->stats.mean, e->stats.mean, room * std, "the signed mean", c, where);
        assert_within(c->stats.std, e->stats.std, room * std, "the deviation", c, where);
        assert_within(c->stats.max_abs, e->stats.max_abs, 4 * room * e->stats.max_abs,
                      "the maximum", c, where);
        assert_within(c->stats.sparsity, e->stats.sparsity, fmax(2.5 * room, 0.01), "the sparsity",
                      c, where);
    }
}

static void test_statistics(void **state)
{
    static const uint32_t prompts[] = {1, 40, 97};
    const char *isas[MAX_ISAS], *folder = judge_folder("PJ_GOLDEN_GGUF");
    size_t count = list_isas(isas), i;
    json_t *reference = judge_json(folder, "reference.json"), *model;
    (void)state;
    json_array_foreach(json_object_get(reference, "models"), i, model)
    {
        const char *file = json_string_value(json_object_get(model, "file"));
        char path[PATH_MAX], where[PATH_MAX];
        judge_join(path, folder, file);
        for (size_t p = 0; p < sizeof prompts / sizeof *prompts; p++) {
            pj_run_data exact, data;
            record(path, "f32", "c", prompts[p], PJ_DEPTH_DEEP, &exact);
            for (size_t isa = 0; isa < count; isa++) {
                pj_depth depth = isa % 2 ? PJ_DEPTH_MODULE : PJ_DEPTH_DEEP;
                snprintf(where, sizeof where, "%s %s, %u tokens", file, isas[isa], prompts[p]);
                record(path, NULL, isas[isa], prompts[p], depth, &data);
                same_statistics(&exact, &data, strstr(file, "f16") ? 0.0005 : 0.02, where);
                pj_run_data_fini(&data);
            }
            pj_run_data_fini(&exact);
        }
    }
    json_decref(reference);
}

/* ---- families ----------------------------------------------------------------------------- */

/* The logits are in the folder of the same name. */
static void check_family(const char *path)
{
    char folder[PATH_MAX], logits[PATH_MAX], name[64];
    const char *file = pj_path_name(path), *golden = getenv("PJ_GOLDEN");
    size_t i;
    json_t *entry;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
    json_t *reference = judge_json(judge_join(folder, golden, name), "reference.json");
    json_array_foreach(json_object_get(reference, "logits"), i, entry)
    {
        judge_join(logits, folder, json_string_value(json_object_get(entry, "file")));
        for (int whole = 0; whole < 2; whole++) {
            comparison c = compare(path, NULL, logits, json_object_get(entry, "ids"), whole);
            if (!(c.worst <= 1)) fail_msg("%s whole %d: %g times the room", path, whole, c.worst);
        }
    }
    json_decref(reference);
}

static void test_families(void **state)
{
    char folder[PATH_MAX];
    (void)state;
    judge_folder("PJ_GOLDEN");
    judge_each(judge_join(folder, judge_folder("PJ_GOLDEN_GGUF"), "families"), check_family);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
