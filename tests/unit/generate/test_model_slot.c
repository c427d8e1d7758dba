/* The slot that keeps a model open: what a run leaves in it, by how the run ended. */
#include "../assertions.h"
#include "../engine/reference_device.h"
#include "../engine/tiny.h"
#include "base/file.h"
#include "base/memory.h"
#include "generate/generate.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

/* Times of modification advance with the kernel's ticks, which tests are faster than. */
static void make_older(const char *path)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A folder whose files were exchanged is another model: by renaming, as downloads do it, by writing
 * into them, and by a text that was not there before. */
static void test_files_that_change_between_runs(void **state)
{
    tiny_model model;
    char path[100], other[100];
    pj_error err = {0};
    tiny_make(&model, tiny_find("llama"), 42);
    tiny_write(&model, TINY_F32);
    snprintf(path, sizeof path, "%s/model.safetensors", model.folder);
    char *bytes;
    size_t count;
    assert_int_equal(pj_file_read(path, 1 << 24, &bytes, &count, &err), PJ_OK);
    for (int change = 0; change < 3; change++) {
        pj_model_slot slot = {0};
        pj_profile_options options = options_for(model.folder);
        make_older(path);
        assert_int_equal(run_bare(&slot, &options), PJ_OK);
        pj_engine *engine = slot.engine;
        assert_true(pj_model_slot_holds(&slot, &options.engine));
        assert_int_equal(run_bare(&slot, &options), PJ_OK);
        assert_ptr_equal(slot.engine, engine);
        if (change == 0) {
            assert_int_equal(pj_file_write(path, bytes, count, &err), PJ_OK);
        } else if (change == 1) {
            FILE *file = fopen(path, "r+b");
            assert_int_equal(fwrite(bytes, 1, count, file), count);
            fclose(file);
        } else {
            snprintf(other, sizeof other, "%s/generation_config.json", model.folder);
            assert_int_equal(pj_file_write(other, "{}", 2, &err), PJ_OK);
        }
        assert_false(pj_model_slot_holds(&slot, &options.engine));
        slot.is_series = true; /* of which this would not be a repetition */
        assert_int_equal(pj_model_slot_open(&slot, &options.engine, &err), PJ_E_LOST);
        assert_non_null(strstr(err.text, "have changed since the run before"));
        slot.is_series = false;
        assert_int_equal(pj_model_slot_open(&slot, &options.engine, &err), PJ_OK);
        assert_true(pj_model_slot_holds(&slot, &options.engine));
        pj_model_slot_close(&slot);
    }
    pj_free(bytes);
    tiny_free(&model);
}

/* What somebody does to the weights before a pass ends: writes as many bytes, shortens the file, or
 * puts another one in its place. */
enum { WRITTEN, SHORTENED, REPLACED };
static char changed_path[100];
static int change;

static pj_status change_in_pass(void *state, bool cancelled, pj_error *err)
{
    char *bytes;
    size_t count;
    assert_int_equal(pj_file_read(changed_path, 1 << 24, &bytes, &count, err), PJ_OK);
    if (change == REPLACED) {
        assert_int_equal(pj_file_write(changed_path, bytes, count, err), PJ_OK);
    } else if (change == SHORTENED) {
        assert_int_equal(truncate(changed_path, 0), 0);
    } else {
        FILE *file = fopen(changed_path, "r+b");
        assert_int_equal(fwrite(bytes, 1, count, file), count);
        fclose(file);
    }
    pj_free(bytes);
    return reference_device.ops.end_pass(state, cancelled, err);
}

/* Weights that change under a run are neither the ones before nor the ones after: it fails, and the
 * process goes on. A file that takes their place leaves the mapping as it was, and a copy is not
 * read from the file. */
static void test_files_that_change_within_a_run(void **state)
{
    tiny_model model;
    pj_generate_result result;
    pj_file_guard();
    tiny_make(&model, tiny_find("llama"), 42);
    pj_backend changes = reference_device;
    changes.ops.end_pass = change_in_pass;
    const struct {
        int change;
        bool no_mmap;
        const char *says; /* NULL: it succeeds */
    } runs[] = {{WRITTEN, false, "model.safetensors was changed while it was in use"},
                {SHORTENED, false, "was shortened, or could not be read, while it was in use"},
                {REPLACED, false, NULL},
                {WRITTEN, true, NULL},
                {SHORTENED, true, NULL}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        pj_model_slot slot = {0};
        pj_error err = {0};
        tiny_write(&model, TINY_F32);
        snprintf(changed_path, sizeof changed_path, "%s/model.safetensors", model.folder);
        make_older(changed_path);
        pj_profile_options options = options_for(model.folder);
        options.engine.backend = &changes;
        options.engine.no_mmap = runs[i].no_mmap;
        change = runs[i].change;
        assert_int_equal(pj_profile_bare(&slot, &options, &result, &err),
                         runs[i].says ? PJ_E_LOST : PJ_OK);
        if (runs[i].says) assert_non_null(strstr(err.text, runs[i].says));
        pj_generate_result_fini(&result);
        assert_int_equal(slot.engine != NULL, !runs[i].says);
        pj_model_slot_close(&slot);
    }
    tiny_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_lost_device),
                                       cmocka_unit_test(test_a_copy_is_another_model),
                                       cmocka_unit_test(test_files_that_change_between_runs),
                                       cmocka_unit_test(test_files_that_change_within_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
