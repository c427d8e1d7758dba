/* Requests to generate: parsing untrusted bodies, writing and reading them back, and agreement of
 * the table of fields with openapi.json, the documents and the dashboard's types. */
#include "../assertions.h"
#include "base/file.h"
#include "trace/generation_request.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static pj_status parse(const char *text, pj_generation_request *request, pj_arena *arena,
                       bool *syntax, pj_error *err)
{
    pj_arena_init(arena, 16 << 20);
    return pj_generation_request_parse(text, strlen(text), request, arena, syntax, err);
}

static void a_body_becomes_a_request(void **state)
{
    pj_generation_request request;
    pj_arena arena;
    bool syntax;
    assert_int_equal(parse("{\"prompt\":\"h\\u00e9\",\"tags\":[\"a\",\"b\"],\"max_length\":7.0,"
                           "\"profiling_depth\":\"deep\",\"top_p\":0.5,\"wait\":false,"
                           "\"seed\":null,\"dtype\":\"q4_0\",\"experiment_name\":null}",
                           &request, &arena, &syntax, NULL),
                     PJ_OK);
    assert_string_equal(request.prompt, "h\xc3\xa9");
    assert_int_equal(request.prompt_bytes, 3);
    assert_int_equal(request.tags.count, 2);
    assert_string_equal(request.tags.items[1], "b");
    assert_null(request.tags.items[2]);
    assert_int_equal(request.max_tokens, 7);
    assert_string_equal(request.depth, "deep");
    assert_that(request.top_p, ==, 0.5);
    assert_true(isnan(request.temperature));
    assert_that(request.seed, <, 0);
    assert_false(request.wait);
    assert_string_equal(request.dtype, "q4_0");
    assert_null(request.experiment);
    pj_arena_fini(&arena);
}

static void what_is_absent_has_its_default(void **state)
{
    pj_generation_request request, clear;
    pj_arena arena;
    bool syntax;
    pj_generation_request_init(&clear);
    assert_int_equal(parse("{\"prompt\":\"a\",\"max_length\":null,\"wait\":null}", &request, &arena,
                           &syntax, NULL),
                     PJ_OK);
    assert_that(request.max_tokens, ==, 100);
    assert_that(clear.max_tokens, ==, 100);
    assert_true(request.wait && clear.wait && !request.chat);
    assert_string_equal(request.depth, "module");
    assert_that(request.batch, ==, 0);
    assert_that(request.top_k, <, 0);
    assert_true(isnan(request.min_p));
    pj_arena_fini(&arena);
}

static void a_bad_body_names_its_field(void **state)
{
    static const struct {
        const char *text, *names;
        bool syntax;
    } bad[] = {{"", "JSON", true},
               {"{\"prompt\":\"a\\u0000b\"}", "JSON", true},
               {"{\"prompt\":\"\xff\"}", "JSON", true},
               {"{} {}", "JSON", true},
               {"[1]", "object", false},
               {"{\"promt\":\"a\"}", "did you mean prompt", false},
               {"{\"prompt\":\"a\",\"prompt_ids\":[1]}", "either", false},
               {"{\"prompt_ids\":[1.5]}", "prompt_ids", false},
               {"{\"prompt_ids\":[1e10]}", "prompt_ids", false},
               {"{\"prompt_ids\":[]}", "prompt_ids", false},
               {"{\"prompt\":\"a\",\"max_length\":-1e300}", "max_length", false},
               {"{\"prompt\":\"a\",\"profiling_depth\":\"dee\"}", "profiling_depth", false},
               {"{\"prompt\":\"a\",\"dtype\":\"q8_0 q4_0\"}", "dtype", false},
               {"{\"prompt\":\"a\",\"dtype\":\"\"}", "dtype", false},
               {"{\"prompt\":\"a\",\"min_p\":2}", "min_p", false},
               {"{\"prompt\":\"a\",\"chat\":1}", "chat", false},
               {"{\"prompt\":\"a\",\"logit_bias\":[1]}", "logit_bias", false},
               {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":101}}", "logit_bias", false},
               {"{\"prompt\":\"a\",\"logit_bias\":{\"1\":\"2\"}}", "logit_bias", false},
               {"{\"prompt\":\"a\",\"statistics\":\"some\"}", "statistics", false},
               {"{\"prompt\":\"a\",\"stop\":[\"\"]}", "stop", false},
               {"{\"prompt\":\"a\",\"seed\":9007199254740994}", "seed", false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_generation_request request;
        pj_arena arena;
        pj_error err = {0};
        bool syntax;
        assert_int_equal(parse(bad[i].text, &request, &arena, &syntax, &err), PJ_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].names));
        assert_int_equal(syntax, bad[i].syntax);
        pj_arena_fini(&arena);
    }
}

/* Every field at a value that is not its default. */
static pj_generation_request unusual(void)
{
    static const int32_t ids[] = {3, 1, 2};
    pj_generation_request request;
    pj_generation_request_init(&request);
    for (const pj_request_field *f = pj_request_fields; f->name; f++) {
        void *at = (char *)&request + f->offset;
        if (f->kind == PJ_REQUEST_TEXT) *(const char **)at = f->name;
        if (f->kind == PJ_REQUEST_CHOICE) *(const char **)at = strrchr(f->choices, ' ') + 1;
        if (f->kind == PJ_REQUEST_INT) *(int64_t *)at = (int64_t)f->most - 1;
        if (f->kind == PJ_REQUEST_NUMBER) *(double *)at = (f->least + f->most) / 2;
        if (f->kind == PJ_REQUEST_FLAG) *(bool *)at = f->standard <= 0;
        if (f->kind == PJ_REQUEST_LIST) *(pj_text_list *)at = (pj_text_list){{f->name, "b"}, 2};
        if (f->kind == PJ_REQUEST_MAP)
            *(pj_text_list *)at = (pj_text_list){{"7=-1.5", "12=100"}, 2};
    }
    request.prompt_ids = ids;
    request.prompt_id_count = 3;
    return request;
}

static char *written(const pj_generation_request *request)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_generation_request_write(request, &json);
    assert_true(pj_json_finish(&json));
    return pj_buffer_take(&buffer);
}

static void a_request_is_read_back_as_written(void **state)
{
    pj_generation_request texts, request = unusual(), none, again;
    pj_generation_request_init(&none);
    texts = none;
    texts.prompt = "a \"quoted\"\nprompt";
    texts.prompt_bytes = strlen(texts.prompt);
    const pj_generation_request *all[] = {&request, &texts};
    for (int i = 0; i < 2; i++) {
        pj_arena arena;
        bool syntax;
        char *text = written(all[i]);
        assert_int_equal(parse(text, &again, &arena, &syntax, NULL), PJ_OK);
        char *second = written(&again);
        assert_string_equal(text, second);
        for (const pj_request_field *f = pj_request_fields; f->name && i == 0; f++) {
            char key[64];
            snprintf(key, sizeof key, "\"%s\":", f->name);
            assert_true(f->kind == PJ_REQUEST_PROMPT || strstr(text, key));
        }
        pj_free(second);
        pj_free(text);
        pj_arena_fini(&arena);
    }
}

static void a_copy_shares_nothing(void **state)
{
    pj_generation_request request = unusual(), copy;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    assert_true(pj_generation_request_copy(&copy, &request, &arena));
    assert_true(copy.prompt_ids != request.prompt_ids);
    for (const pj_request_field *f = pj_request_fields; f->name; f++) {
        const char **mine = (const char **)((char *)&copy + f->offset);
        const char **its = (const char **)((char *)&request + f->offset);
        if (f->kind != PJ_REQUEST_TEXT && f->kind != PJ_REQUEST_CHOICE &&
            f->kind != PJ_REQUEST_LIST && f->kind != PJ_REQUEST_MAP)
            continue;
        assert_ptr_not_equal(*mine, *its);
        assert_string_equal(*mine, *its);
    }
    char *a = written(&request), *b = written(&copy);
    assert_string_equal(a, b);
    pj_free(a);
    pj_free(b);
    pj_arena_fini(&arena);
    pj_arena_init(&arena, 64);
    assert_false(pj_generation_request_copy(&copy, &request, &arena));
    pj_arena_fini(&arena);
}

/* ---- agreement with what is not C ----------------------------------------------------------- */

static char *source_file(const char *name)
{
    char path[4096], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", PJ_SOURCE_ROOT, name);
    assert_int_equal(pj_file_read(path, 16 << 20, &text, &bytes, NULL), PJ_OK);
    return text;
}

static bool bounds_agree(const pj_request_field *f, const json_t *schema)
{
    const json_t *least = json_object_get(schema, "minimum"),
                 *most = json_object_get(schema, "maximum"),
                 *standard = json_object_get(schema, "default");
    if (f->kind != PJ_REQUEST_INT && f->kind != PJ_REQUEST_NUMBER) return true;
    if (json_number_value(least) != f->least || json_number_value(most) != f->most) return false;
    return standard ? json_number_value(standard) == f->standard : !(f->standard > 0);
}

/* "a b", and the schema's list has exactly these and null. */
static bool choices_agree(const pj_request_field *f, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum");
    size_t words = 1;
    if (f->kind != PJ_REQUEST_CHOICE) return true;
    for (const char *p = f->choices; *p; p++) words += *p == ' ';
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (word && !strstr(f->choices, word)) return false;
    }
    return json_array_size(list) == words + 1;
}

static void openapi_describes_every_field(void **state)
{
    char *text = source_file("src/net/openapi.json");
    json_t *root = json_loads(text, 0, NULL);
    const json_t *schema = json_object_get(
        json_object_get(json_object_get(root, "components"), "schemas"), "GenerateRequest");
    const json_t *properties = json_object_get(schema, "properties");
    size_t count = 0;
    for (const pj_request_field *f = pj_request_fields; f->name; f++, count++) {
        const json_t *property = json_object_get(properties, f->name);
        if (!property || !bounds_agree(f, property) || !choices_agree(f, property))
            fail_msg("openapi.json: GenerateRequest.%s differs from the table", f->name);
    }
    assert_int_equal(json_object_size(properties), count);
    json_decref(root);
    pj_free(text);
}

static void documents_and_dashboard_know_every_field(void **state)
{
    char *api = source_file("docs/api.md"), *types = source_file("ui/src/api/types.ts"), name[80];
    char *section = strstr(types, "export interface GenerateRequest {");
    assert_non_null(section);
    *strchr(section, '}') = 0;
    for (const pj_request_field *f = pj_request_fields; f->name; f++) {
        snprintf(name, sizeof name, "`%s`", f->name);
        if (!strstr(api, name)) fail_msg("docs/api.md lacks %s", f->name);
        snprintf(name, sizeof name, "  %s", f->name);
        if (!strstr(section, name)) fail_msg("ui/src/api/types.ts lacks %s", f->name);
    }
    pj_free(api);
    pj_free(types);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_becomes_a_request),
        cmocka_unit_test(what_is_absent_has_its_default),
        cmocka_unit_test(a_bad_body_names_its_field),
        cmocka_unit_test(a_request_is_read_back_as_written),
        cmocka_unit_test(a_copy_shares_nothing),
        cmocka_unit_test(openapi_describes_every_field),
        cmocka_unit_test(documents_and_dashboard_know_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
