/* GGUF files written by other tools: the logits of every weight type on every instruction set, and
 * of model families with their own key and tensor names. */
#include "judge_json.h"

#include "llm/engine.h"
#include "llm/kernels/kernels.h"

#include <math.h>

enum { MAX_IDS = 512 };

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
    pj_engine_options options = {.model = model, .isa = isa, .threads = 2};
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

/* Types without a kernel are rejected by name. */
static void check_refusal(const char *path, const char *type)
{
    pj_error err = {0};
    pj_engine *engine;
    pj_engine_options options = {.model = path, .threads = 1};
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_E_UNSUPPORTED);
    if (!strstr(err.text, type) || !strstr(err.text, "not supported")) fail_msg("%s", err.text);
}

static bool is_refused(const char *file)
{
    return strstr(file, "IQ3_S") || strstr(file, "TQ2_0");
}

static void check_type(const char *folder, const json_t *reference, const json_t *model,
                       const char *isa)
{
    char path[PATH_MAX], logits[PATH_MAX];
    const char *file = json_string_value(json_object_get(model, "file"));
    judge_join(path, folder, file);
    judge_join(logits, folder, json_string_value(json_object_get(model, "logits")));
    double room = strstr(file, "f16") ? 0.002 : 0.05;
    double std = json_real_value(json_object_get(model, "std"));
    for (int whole = 0; whole < 2; whole++) {
        comparison c = compare(path, isa, logits, json_object_get(reference, "ids"), whole);
        double rms = sqrt(c.square / (double)c.count) / std;
        if (!(rms <= room)) fail_msg("%s %s whole %d: rms %g", file, isa, whole, rms);
    }
}

static void test_types(void **state)
{
    const char *isas[16], *folder = judge_folder("PJ_GOLDEN_GGUF");
    size_t count = pj_kernels_list(isas, 16), i;
    json_t *reference = judge_json(folder, "reference.json"), *model;
    (void)state;
    json_array_foreach(json_object_get(reference, "models"), i, model)
    {
        const char *file = json_string_value(json_object_get(model, "file"));
        char path[PATH_MAX];
        if (is_refused(file)) {
            check_refusal(judge_join(path, folder, file), strstr(file, "IQ3") ? "IQ3_S" : "TQ2_0");
            continue;
        }
        for (size_t isa = 0; isa < count; isa++) check_type(folder, reference, model, isas[isa]);
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
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
