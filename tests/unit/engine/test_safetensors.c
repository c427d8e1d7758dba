/* Inconsistent headers, one defect each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "engine/files/safetensors.h"

#include <string.h>

static pj_status parse(const char *header, size_t data_bytes, uint32_t *count, pj_error *err)
{
    unsigned char file[4096] = {0};
    size_t length = strlen(header);
    pj_arena arena;
    pj_tensor *tensors;
    assert_that(length + data_bytes + 8, <=, sizeof file);
    file[0] = (unsigned char)length;
    file[1] = (unsigned char)(length >> 8);
    memcpy(file + 8, header, length);
    pj_arena_init(&arena, 0);
    pj_status status =
        pj_safetensors_parse(file, 8 + length + data_bytes, "made", &arena, &tensors, count, err);
    if (status == PJ_OK && *count == 2) {
        assert_string_equal(tensors[0].name, "a");
        assert_ptr_equal(tensors[0].data, file + 8 + length + 4);
        assert_int_equal(tensors[1].rank, 2);
        assert_int_equal(tensors[1].shape[1], 1);
    }
    pj_arena_fini(&arena);
    return status;
}

static void assert_refused(const char *header, size_t data_bytes, const char *part)
{
    uint32_t count;
    pj_error err = {0};
    assert_int_equal(parse(header, data_bytes, &count, &err), PJ_E_INVALID);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_fine(void **state)
{
    (void)state;
    uint32_t count;
    pj_error err = {0};
    static const char two[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                              "\"b\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
                              "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]}}   ";
    assert_int_equal(parse(two, 5, &count, &err), PJ_OK);
    assert_int_equal(count, 2);
    assert_int_equal(parse("{}", 0, &count, &err), PJ_OK);
    assert_int_equal(count, 0);
}

static void test_lies(void **state)
{
    (void)state;
#define ONE(dtype, shape, offsets) \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
    assert_refused(ONE("F32", "[2]", "[0,8]"), 7, "truncated");
    assert_refused(ONE("F32", "[2]", "[0,8]"), 9, "after its last tensor");
    assert_refused(ONE("F32", "[2]", "[0,4]"), 4, "needs 8");
    assert_refused(ONE("F32", "[2]", "[8,0]"), 8, "truncated");
    assert_refused(ONE("F32", "[2]", "[1,9]"), 9, "hole");
    assert_refused(ONE("F33", "[2]", "[0,8]"), 8, "F33");
    assert_refused(ONE("U8", "[-1]", "[0,8]"), 8, "non-negative integer");
    assert_refused(ONE("U8", "[8.0]", "[0,8]"), 8, "not an integer");
    assert_refused(ONE("U8", "[8]", "[0]"), 8, "data_offsets");
    assert_refused(ONE("U8", "[8]", "[0,8,8]"), 8, "data_offsets");
    assert_refused(ONE("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "dimensions");
    assert_refused(ONE("F64", "[4294967296,4294967296]", "[0,8]"), 8, "overflows");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no data_offsets");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                   2, "twice");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                   3, "overlaps");
    assert_refused("[]", 0, "object");
    assert_refused("{} x", 0, "after the value");
}

static void test_not_a_header(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t bytes;
        const char *part;
    } files[] = {{"", 0, "too few"},
                 {"\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, "declares"},
                 {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        pj_arena arena;
        pj_tensor *tensors;
        uint32_t count;
        pj_error err = {0};
        pj_arena_init(&arena, 0);
        assert_int_equal(pj_safetensors_parse((const unsigned char *)files[i].file, files[i].bytes,
                                              "made", &arena, &tensors, &count, &err),
                         PJ_E_INVALID);
        assert_non_null(strstr(err.text, files[i].part));
        pj_arena_fini(&arena);
    }
}

static void test_names_of_types(void **state)
{
    (void)state;
    for (int i = 0; i < PJ_FILE_TYPE_COUNT; i++) {
        const char *name = pj_file_type_name((pj_file_type)i);
        assert_non_null(name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, pj_file_type_name((pj_file_type)j));
    }
}

/* Binary search in the sorted table finds exactly the existing tensors. */
static void test_finding_tensors(void **state)
{
    (void)state;
    const pj_tensor tensors[] = {{.name = "a"}, {.name = "a.b"}, {.name = "b"}, {.name = "c"}};
    for (size_t count = 0; count <= 4; count++)
        for (size_t i = 0; i < 4; i++)
            assert_ptr_equal(pj_tensors_find(tensors, count, tensors[i].name),
                             i < count ? &tensors[i] : NULL);
    assert_null(pj_tensors_find(tensors, 4, "a."));
    assert_null(pj_tensors_find(tensors, 4, "d"));
    assert_null(pj_tensors_find(NULL, 0, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fine),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_not_a_header),
        cmocka_unit_test(test_names_of_types),
        cmocka_unit_test(test_finding_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
