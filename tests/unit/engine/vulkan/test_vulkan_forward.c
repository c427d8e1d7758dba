/* The forward pass on a Vulkan device against the plain double-precision reference, for every
 * architecture. */
#include "../../assertions.h"
#include "../tiny.h"
#include "engine/generation/engine.h"
#include "vulkan_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 40, MAX_VOCAB = 200 };

static char device[40]; /* UUID */

static void make_ids(int32_t *ids, int count, int vocab)
{
    for (int i = 0; i < count; i++) ids[i] = 2 + (i * 37 + i * i * 11) % (vocab - 2);
}

typedef struct difference {
    const double *want;
    int first; /* positions before it are not compared */
    double square, all;
} difference;

static bool compare_row(void *context, uint32_t position, const float *got, uint32_t vocab)
{
    difference *d = context;
    for (uint32_t i = 0; i < vocab && (int)position >= d->first; i++) {
        double want = d->want[position * vocab + i], off = got[i] - want;
        d->square += isnan(off) ? INFINITY : off * off;
        d->all += want * want;
    }
    return true;
}

static pj_engine *open_tiny(const tiny_model *m, const pj_engine_options *base, pj_error *err)
{
    pj_engine *engine;
    pj_engine_options options = *base;
    options.model = m->folder;
    options.device = device;
    options.threads = 1;
    return pj_engine_open(&options, &engine, err) == PJ_OK ? engine : NULL;
}

static double error_of(pj_engine *engine, const int32_t *ids, int count, bool whole, int first,
                       const double *want)
{
    pj_error err = {0};
    difference d = {.want = want, .first = first};
    if (pj_engine_logits(engine, ids, (uint32_t)count, whole, compare_row, &d, &err) != PJ_OK)
        fail_msg("%s", err.text);
    return sqrt(d.square / d.all);
}

/* At once, in pieces that do not divide the prompt, and one by one. */
static void check_shape(const tiny_shape *shape, tiny_type type, double tolerance)
{
    tiny_model m;
    pj_error err = {0};
    int32_t ids[TOKENS];
    static double want[TOKENS * MAX_VOCAB];
    tiny_make(&m, shape, 42);
    tiny_write(&m, type);
    make_ids(ids, TOKENS, shape->vocab);
    tiny_forward(&m, ids, TOKENS, want, NULL, 0);
    for (uint32_t chunk = 0; chunk <= 7; chunk += 7) {
        pj_engine_options o = {.chunk = chunk};
        pj_engine *engine = open_tiny(&m, &o, &err);
        if (!engine) fail_msg("%s: %s", shape->name, err.text);
        /* token by token, positions within the original context use its frequencies */
        bool late = strcmp(shape->rope, "longrope") == 0;
        double whole = error_of(engine, ids, TOKENS, true, 0, want);
        double steps = chunk ? 0 : error_of(engine, ids, late ? 16 : TOKENS, false, 0, want);
        if (late && !chunk) steps = 0;
        if (!(whole < tolerance && steps < tolerance))
            fail_msg("%s, chunk %u: off by %g at once, %g in steps", shape->name, chunk, whole,
                     steps);
        pj_engine_close(engine);
    }
    tiny_free(&m);
}

static void every_architecture(void **state)
{
    for (size_t i = 0; i < tiny_shape_count; i++)
        check_shape(&tiny_shapes[i], TINY_F32, 1e-3);
}

static void sixteen_bits(void **state)
{
    check_shape(tiny_find("llama"), TINY_BF16, 1e-2);
    check_shape(tiny_find("llama"), TINY_F16, 1e-2);
}

static void unknown_devices(void **state)
{
    tiny_model m;
    pj_engine *engine;
    pj_error err = {0};
    tiny_make(&m, tiny_find("llama"), 42);
    tiny_write(&m, TINY_F32);
    pj_engine_options o = {.model = m.folder, .device = "gpu:77", .threads = 1};
    assert_int_equal(pj_engine_open(&o, &engine, &err), PJ_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"gpu:77\""));
    o.device = "auto"; /* a software driver is never taken by itself */
    assert_int_equal(pj_engine_open(&o, &engine, &err), PJ_OK);
    if (pj_vk_device(vulkan_test_vk)->kind == PJ_VK_SOFTWARE)
        assert_string_not_equal(pj_engine_get_facts(engine)->isa, "vulkan");
    pj_engine_close(engine);
    tiny_free(&m);
}

static void write_uuid(const uint8_t uuid[16])
{
    for (int i = 0; i < 16; i++) snprintf(device + 2 * i, 3, "%02x", uuid[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        vulkan_test(every_architecture),
        vulkan_test(sixteen_bits),
        vulkan_test(unknown_devices),
    };
    char folder[] = "/tmp/pj-vulkan-XXXXXX", command[100];
    if (!vulkan_test_open()) return VULKAN_TEST_SKIPPED;
    write_uuid(pj_vk_device(vulkan_test_vk)->uuid);
    if (!mkdtemp(folder)) return 1;
    setenv("XDG_CACHE_HOME", folder, 1); /* pipelines are compiled once */
    setenv("PERJOULE_VULKAN_VALIDATE", "1", 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pj_vk_close(vulkan_test_vk);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) ? 1 : failed;
}
