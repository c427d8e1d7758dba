/* Model files against reference data: every golden checkpoint opens, every published config is
 * read, every hostile safetensors or GGUF file, index and config has its expected outcome. */
#include "../unit/assertions.h"
#include "judge.h"

#include "engine/files/safetensors.h"
#include "engine/model/checkpoint.h"
#include "engine/model/facts.h"

#include <unistd.h>

static void open_golden(const char *path)
{
    if (!pj_dir_exists(path)) return;
    pj_error err;
    pj_checkpoint *checkpoint;
    if (pj_checkpoint_open(path, &checkpoint, &err) != PJ_OK) fail_msg("%s", err.text);
    const pj_model_config *config = pj_checkpoint_config(checkpoint);
    pj_matrix matrix;
    if (pj_checkpoint_matrix(checkpoint, "model.embed_tokens.weight", config->vocab, config->hidden,
                             &matrix, &err) != PJ_OK)
        fail_msg("%s", err.text);
    assert_int_equal(matrix.row_bytes, config->hidden * (matrix.type == PJ_F32 ? 4 : 2));
    assert_int_equal(config->eos_count, 1);
    /* The parameter count derived from the config equals that of the file. */
    uint64_t values = 0;
    pj_model_facts facts;
    for (uint32_t i = 0; i < pj_checkpoint_tensor_count(checkpoint); i++)
        values += pj_checkpoint_tensor(checkpoint, i)->bytes / (matrix.type == PJ_F32 ? 4 : 2);
    pj_model_facts_fill(config, matrix.type, &facts);
    if (facts.parameters != values)
        fail_msg("%s: %llu parameters counted, %llu in the file", path,
                 (unsigned long long)facts.parameters, (unsigned long long)values);
    pj_checkpoint_close(checkpoint);
}

static void test_golden(void **state)
{
    (void)state;
    judge_each(judge_folder("PJ_GOLDEN"), open_golden);
}

static pj_status parse_config(const char *path, pj_error *err)
{
    char *text;
    size_t bytes;
    pj_arena arena;
    pj_model_config config;
    assert_int_equal(pj_file_read(path, 1 << 20, &text, &bytes, err), PJ_OK);
    pj_arena_init(&arena, 0);
    pj_status status = pj_config_parse(text, bytes, path, &arena, &config, err);
    pj_arena_fini(&arena);
    pj_free(text);
    return status;
}

static void read_published(const char *folder)
{
    char path[PATH_MAX];
    pj_error err;
    if (parse_config(judge_join(path, folder, "config.json"), &err) != PJ_OK)
        fail_msg("%s", err.text);
}

static void test_configs(void **state)
{
    (void)state;
    char path[PATH_MAX];
    judge_each(judge_join(path, judge_folder("PJ_FIXTURES"), "configs"), read_published);
}

static pj_status parse_safetensors(const char *path, pj_error *err)
{
    pj_mapping file;
    pj_arena arena;
    pj_tensor *tensors;
    uint32_t count;
    assert_int_equal(pj_file_map(path, &file, err), PJ_OK);
    pj_arena_init(&arena, 0);
    pj_status status =
        pj_safetensors_parse(file.data, file.size, path, &arena, &tensors, &count, err);
    pj_arena_fini(&arena);
    pj_file_unmap(&file);
    return status;
}

static pj_status parse_gguf(const char *path, pj_error *err)
{
    pj_mapping file;
    pj_arena arena;
    pj_gguf gguf;
    assert_int_equal(pj_file_map(path, &file, err), PJ_OK);
    pj_arena_init(&arena, 0);
    pj_status status = pj_gguf_parse(file.data, file.size, path, &arena, &gguf, err);
    for (uint32_t i = 0; status == PJ_OK && i < gguf.tensor_count; i++) {
        const pj_tensor *t = &gguf.tensors[i];
        assert_true(t->data >= file.data);
        assert_true(t->data + t->bytes <= file.data + file.size);
    }
    pj_arena_fini(&arena);
    pj_file_unmap(&file);
    return status;
}

/* The known values of the file. */
static void test_gguf_values(void **state)
{
    (void)state;
    char path[PATH_MAX];
    pj_error err = {0};
    pj_mapping file;
    pj_arena arena;
    pj_gguf gguf;
    int64_t whole;
    double real;
    bool flag;
    pj_gguf_text text;
    judge_join(path, judge_folder("PJ_FIXTURES"), "gguf/dummy.gguf");
    assert_int_equal(pj_file_map(path, &file, &err), PJ_OK);
    pj_arena_init(&arena, 0);
    assert_int_equal(pj_gguf_parse(file.data, file.size, path, &arena, &gguf, &err), PJ_OK);
    assert_int_equal(gguf.entry_count, 15);
    assert_int_equal(gguf.tensor_count, 10);
    static const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"some.parameter.uint8", 18},
        {"some.parameter.int8", -19},
        {"some.parameter.uint16", 0x1234},
        {"some.parameter.int16", -0x1235},
        {"some.parameter.uint32", 0x12345678},
        {"some.parameter.int32", -0x12345679},
        {"some.parameter.uint64", 0x123456789abcdef0},
        {"some.parameter.int64", -0x123456789abcdef1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_true(pj_gguf_integer(pj_gguf_find(&gguf, numbers[i].key), 0, &whole));
        assert_that(whole, ==, numbers[i].value);
    }
    assert_true(pj_gguf_number(pj_gguf_find(&gguf, "some.parameter.float32"), 0, &real));
    assert_that(real, ==, (double)0.123456789f);
    assert_true(pj_gguf_number(pj_gguf_find(&gguf, "some.parameter.float64"), 0, &real));
    assert_that(real, ==, 0.12345678901234567890);
    assert_true(pj_gguf_bool(pj_gguf_find(&gguf, "some.parameter.bool"), &flag) && flag);
    assert_true(pj_gguf_string(pj_gguf_find(&gguf, "some.parameter.string"), &text));
    assert_true(pj_gguf_text_is(text, "hello world"));
    assert_true(pj_gguf_integer(pj_gguf_find(&gguf, "some.parameter.arr.i16"), 3, &whole));
    assert_int_equal(whole, 4);
    const unsigned char *at = pj_gguf_find(&gguf, "some.parameter.arr.str")->data;
    pj_gguf_next_string(&at);
    assert_true(pj_gguf_text_is(pj_gguf_next_string(&at), "world"));
    const pj_tensor *t = &gguf.tensors[6];
    assert_string_equal(t->name, "tensor_6");
    assert_int_equal(t->rank, 3);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->shape[2], 4);
    assert_int_equal(t->bytes, 240);
    pj_arena_fini(&arena);
    pj_file_unmap(&file);
}

/* An index is checked within a model folder, where it is in practice. */
static pj_status parse_index(const char *path, pj_error *err)
{
    char folder[] = "/tmp/perjoule-index-XXXXXX", config[PATH_MAX], file[PATH_MAX], *text;
    size_t bytes;
    pj_checkpoint *checkpoint;
    assert_non_null(mkdtemp(folder));
    judge_join(config, judge_folder("PJ_FIXTURES"), "models/stories260K/config.json");
    assert_int_equal(pj_file_read(config, 1 << 20, &text, &bytes, err), PJ_OK);
    judge_join(config, folder, "config.json");
    assert_int_equal(pj_file_write(config, text, bytes, err), PJ_OK);
    pj_free(text);
    assert_int_equal(pj_file_read(path, 1 << 20, &text, &bytes, err), PJ_OK);
    judge_join(file, folder, "model.safetensors.index.json");
    assert_int_equal(pj_file_write(file, text, bytes, err), PJ_OK);
    pj_free(text);
    pj_status status = pj_checkpoint_open(folder, &checkpoint, err);
    pj_checkpoint_close(checkpoint);
    unlink(config);
    unlink(file);
    rmdir(folder);
    return status;
}

static void check_case(const char *path, const char *verdict)
{
    pj_error err = {0};
    pj_status status;
    if (strstr(path, "/configs-corrupt/"))
        status = parse_config(path, &err);
    else if (strstr(path, "/corrupt-index/"))
        status = parse_index(path, &err);
    else if (strstr(path, "/safetensors/"))
        status = parse_safetensors(path, &err);
    else if (strstr(path, ".gguf"))
        status = parse_gguf(path, &err);
    else
        return;
    print_message("%-6s %s\n", status == PJ_OK ? "accept" : "reject",
                  status == PJ_OK ? path : err.text);
    assert_null(strchr(err.text, '\n'));
    if (strncmp(verdict, "accept or reject", 16) == 0) return;
    if (strcmp(verdict, "accept") == 0) {
        if (status != PJ_OK) fail_msg("%s", err.text);
        return;
    }
    // The list was written when packed folders were refused; GPTQ is read now.
    if (status == PJ_OK && strstr(path, "/quantized-gptq.json")) return;
    if (status == PJ_OK) fail_msg("%s was accepted", path);
    assert_true(err.text[0]);
    assert_int_equal(status, strstr(verdict, "unsupported") ? PJ_E_UNSUPPORTED : status);
}

static void test_hostile(void **state)
{
    (void)state;
    const char *fixtures = judge_folder("PJ_FIXTURES");
    char path[PATH_MAX], *text, *rest;
    size_t bytes;
    pj_error err;
    judge_join(path, fixtures, "CORRUPT-MANIFEST.tsv");
    assert_int_equal(pj_file_read(path, 1 << 20, &text, &bytes, &err), PJ_OK);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *columns, *file = strtok_r(line, "\t", &columns);
        char *verdict = strtok_r(NULL, "\t", &columns);
        if (verdict) check_case(judge_join(path, fixtures, file), verdict);
    }
    pj_free(text);
    check_case(judge_join(path, fixtures, "gguf/corrupt/declared-tensor-no-data.gguf"), "reject");
    check_case(judge_join(path, fixtures, "gguf/no-tensors.gguf"), "accept");
    check_case(
        judge_join(path, fixtures, "safetensors/corrupt/real-padding-not-counted.safetensors"),
        "reject");
    check_case(
        judge_join(path, fixtures, "safetensors/hostile-metadata/malicious_import.safetensors"),
        "accept");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_gguf_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
