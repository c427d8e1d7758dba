/* A device of the forward pass: one that forwards to the CPU and counts gets every pass of a
 * generation, and its model is loaded once per engine; one of another version, or of an unknown
 * name, is rejected. */
#include "../assertions.h"
#include "engine/cpu/device.h"
#include "engine/generation/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NEW_TOKENS = 5 };

static struct {
    int loaded, unloaded, opened, closed, prefills, decodes, products;
    uint64_t tokens;
} seen;

static pj_status counting_load(const pj_load_request *request, void **loaded, pj_error *err)
{
    seen.loaded++;
    return pj_backend_cpu.load(request, loaded, err);
}

static void counting_unload(void *loaded)
{
    seen.unloaded++;
    pj_backend_cpu.unload(loaded);
}

static pj_status counting_open(void *loaded, const pj_generation_shape *shape, void **state,
                               pj_error *err)
{
    seen.opened++;
    return pj_backend_cpu.open(loaded, shape, state, err);
}

static void counting_close(void *state)
{
    seen.closed++;
    pj_backend_cpu.close(state);
}

static void counting_begin_pass(void *state, const pj_rows_of_pass *rows)
{
    seen.prefills += rows->pass->prefill;
    seen.decodes += !rows->pass->prefill;
    seen.tokens += rows->pass->tokens;
    pj_backend_cpu.ops.begin_pass(state, rows);
}

static void counting_products(void *state, pj_slice x, const pj_product *products, uint32_t count)
{
    seen.products += (int)count;
    pj_backend_cpu.ops.products(state, x, products, count);
}

static pj_backend counting_backend(void)
{
    pj_backend counting = pj_backend_cpu;
    counting.name = "counting";
    counting.load = counting_load;
    counting.unload = counting_unload;
    counting.open = counting_open;
    counting.close = counting_close;
    counting.ops.begin_pass = counting_begin_pass;
    counting.ops.products = counting_products;
    return counting;
}

/* Hash of all logits of a generation. */
static pj_status generate(const pj_backend *backend, const char *device, uint64_t *hash,
                          pj_error *err)
{
    pj_engine *engine;
    pj_engine_options options = {.model = "synthetic:smollm2-135m,q8_0,layers=2",
                                 .threads = 2,
                                 .chunk = 4,
                                 .device = device,
                                 .backend = backend};
    pj_prompt prompt = {.text = "ten bytes.", .bytes = 10};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .max_tokens = NEW_TOKENS,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY};
    pj_generate_result result = {0};
    pj_status status = pj_engine_open(&options, &engine, err);
    if (status != PJ_OK) return status;
    for (int i = 0; i < 2 && status == PJ_OK; i++) {
        status = pj_engine_generate(engine, &request, &result, err);
        *hash = result.logits_hash;
        pj_generate_result_fini(&result);
        if (i > 0 || status) break;
        seen.prefills = seen.decodes = 0;
        seen.tokens = 0;
    }
    pj_engine_close(engine);
    return status;
}

static void every_pass_goes_through_the_table(void **state)
{
    uint64_t plain = 0, counted = 0;
    pj_error err = {0};
    pj_backend counting = counting_backend();
    if (generate(NULL, "cpu", &plain, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(seen.opened, 0);
    if (generate(&counting, NULL, &counted, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(counted, plain);
    assert_int_equal(seen.loaded, 1);
    assert_int_equal(seen.unloaded, 1);
    assert_int_equal(seen.opened, 2);
    assert_int_equal(seen.closed, 2);
    assert_int_equal(seen.prefills, 3); /* 10 tokens by 4 */
    assert_int_equal(seen.decodes, NEW_TOKENS - 1);
    assert_int_equal(seen.tokens, 10 + NEW_TOKENS - 1);
    /* both generations: q, k, v, o, gate, up, down of two layers, and the head where logits are */
    int passes = 2 * (3 + NEW_TOKENS - 1);
    assert_int_equal(seen.products, passes * 2 * 7 + 2 * NEW_TOKENS);
}

static void another_version_is_refused(void **state)
{
    uint64_t hash = 0;
    pj_error err = {0};
    pj_backend newer = counting_backend();
    newer.version++;
    int loaded = seen.loaded;
    assert_int_equal(generate(&newer, NULL, &hash, &err), PJ_E_INTERNAL);
    assert_non_null(strstr(err.text, "counting"));
    assert_int_equal(seen.loaded, loaded);
}

static pj_status lost_end_pass(void *state, bool cancelled, pj_error *err)
{
    return pj_fail(err, PJ_E_UNAVAILABLE, "the device was lost");
}

static void a_pass_that_fails_ends_the_generation(void **state)
{
    uint64_t hash = 0;
    pj_error err = {0};
    pj_backend lost = counting_backend();
    lost.ops.end_pass = lost_end_pass;
    seen.prefills = seen.decodes = 0;
    assert_int_equal(generate(&lost, NULL, &hash, &err), PJ_E_UNAVAILABLE);
    assert_string_equal(err.text, "the device was lost");
    assert_int_equal(seen.prefills, 1);
    assert_int_equal(seen.decodes, 0);
    assert_int_equal(seen.opened, seen.closed);
    assert_int_equal(seen.loaded, seen.unloaded);
}

static void an_unknown_name_is_refused(void **state)
{
    uint64_t hash = 0;
    pj_error err = {0};
    assert_int_equal(generate(NULL, "abacus", &hash, &err), PJ_E_INVALID);
    const char *wanted = "there is no device \"abacus\", only the CPU: ";
    if (strncmp(err.text, wanted, strlen(wanted)) != 0) fail_msg("%s", err.text);
    assert_that(strlen(err.text), >, strlen(wanted));
}

int main(void)
{
    setenv("VK_ICD_FILENAMES", "/nowhere",
           1); /* names are looked for among no GPUs: drivers leak */
    setenv("VK_DRIVER_FILES", "/nowhere", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_goes_through_the_table),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(a_pass_that_fails_ends_the_generation),
        cmocka_unit_test(an_unknown_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
