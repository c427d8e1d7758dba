/* The slot that keeps a model open: what a run leaves in it, by how the run ended. */
#include "../assertions.h"
#include "../engine/reference_device.h"
#include "../engine/tiny.h"
#include "base/file.h"
#include "generate/generate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pj_status ending;
static const int32_t ids[] = {3, 4, 5};
static const pj_prompt prompt = {.ids = ids, .id_count = 3};

static pj_status end_pass(void *state, bool cancelled, pj_error *err)
{
    pj_status status = reference_device.ops.end_pass(state, cancelled, err);
    return ending == PJ_OK ? status : pj_fail(err, ending, "the device says so");
}

static pj_status run_bare(pj_model_slot *slot, const pj_profile_options *options)
{
    pj_generate_result result;
    pj_error err = {0};
    pj_status status = pj_profile_bare(slot, options, &result, &err);
    pj_generate_result_fini(&result);
    return status;
}

/* A device that was lost is opened anew; after other failures the model is still there. */
static void test_a_lost_device(void **state)
{
    tiny_model model;
    tiny_make(&model, tiny_find("llama"), 42);
    tiny_write(&model, TINY_F32);
    pj_backend fails = reference_device;
    fails.ops.end_pass = end_pass;
    pj_model_slot slot = {0};
    pj_profile_options options = {
        .engine = {.model = model.folder, .threads = 1, .backend = &fails},
        .depth = PJ_DEPTH_OFF,
        .request = {.prompts = &prompt,
                    .prompt_count = 1,
                    .max_tokens = 2,
                    .ignore_eos = true,
                    .sampling = PJ_SAMPLING_GREEDY}};
    reference_seen = (reference_log){0};
    const struct {
        pj_status ends;
        uint32_t loads;
    } runs[] = {{PJ_OK, 1}, {PJ_E_NO_MEMORY, 1}, {PJ_E_LOST, 1}, {PJ_OK, 2}, {PJ_OK, 2}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ending = runs[i].ends;
        assert_int_equal(run_bare(&slot, &options), runs[i].ends);
        assert_int_equal(reference_seen.loads, runs[i].loads);
        assert_int_equal(slot.engine != NULL, runs[i].ends != PJ_E_LOST);
    }
    pj_model_slot_close(&slot);
    tiny_free(&model);
}

static pj_profile_options options_for(const char *folder)
{
    return (pj_profile_options){.engine = {.model = folder, .threads = 1},
                                .depth = PJ_DEPTH_OFF,
                                .request = {.prompts = &prompt,
                                            .prompt_count = 1,
                                            .max_tokens = 2,
                                            .ignore_eos = true,
                                            .sampling = PJ_SAMPLING_GREEDY}};
}

/* A copy of the weights and their mapping are not the same model. */
static void test_a_copy_is_another_model(void **state)
{
    tiny_model model;
    pj_error err = {0};
    tiny_make(&model, tiny_find("llama"), 42);
    tiny_write(&model, TINY_F32);
    pj_model_slot slot = {0};
    pj_profile_options options = options_for(model.folder);
    assert_int_equal(pj_model_slot_open(&slot, &options.engine, &err), PJ_OK);
    assert_true(pj_model_slot_holds(&slot, &options.engine));
    options.engine.no_mmap = true;
    assert_false(pj_model_slot_holds(&slot, &options.engine));
    assert_int_equal(pj_model_slot_open(&slot, &options.engine, &err), PJ_OK);
    assert_true(pj_model_slot_holds(&slot, &options.engine));
    pj_model_slot_close(&slot);
    tiny_free(&model);
}

/* The weights that are mapped are gone: the run fails, the process goes on. */
static void test_a_file_that_is_shortened(void **state)
{
    tiny_model model;
    char path[100];
    pj_generate_result result;
    pj_error err = {0};
    pj_file_guard();
    tiny_make(&model, tiny_find("llama"), 42);
    tiny_write(&model, TINY_F32);
    pj_model_slot slot = {0};
    pj_profile_options options = options_for(model.folder);
    assert_int_equal(run_bare(&slot, &options), PJ_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", model.folder);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(pj_profile_bare(&slot, &options, &result, &err), PJ_E_LOST);
    pj_generate_result_fini(&result);
    assert_non_null(strstr(err.text, "was shortened, or could not be read, while it was in use"));
    assert_null(slot.engine);
    tiny_write(&model, TINY_F32); /* and back */
    assert_int_equal(run_bare(&slot, &options), PJ_OK);
    pj_model_slot_close(&slot);
    tiny_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_lost_device),
                                       cmocka_unit_test(test_a_copy_is_another_model),
                                       cmocka_unit_test(test_a_file_that_is_shortened)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
