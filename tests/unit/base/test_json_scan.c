/*
 * The JSON cursor: members and items in order, values of other types, trees of parts, and what it
 * refuses: it agrees with jansson about which texts are valid.
 */
#include "../assertions.h"
#include "base/json_scan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static pj_json_scan scan_of(const char *text)
{
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, strlen(text));
    return scan;
}

static void assert_text(pj_json_text text, const char *want)
{
    assert_int_equal(text.bytes, strlen(want));
    assert_memory_equal(text.text, want, text.bytes);
}

static void members_come_in_order(void **state)
{
    (void)state;
    pj_json_scan scan = scan_of(" { \"a\" : [1, {\"b\": 2}] , \"\\u00e4\\n\":\"x\" , \"c\":{} } ");
    pj_json_text key, value;
    assert_true(pj_json_scan_enter(&scan, '{'));
    assert_true(pj_json_scan_member(&scan, &key));
    assert_text(key, "a");
    assert_true(pj_json_scan_skip(&scan, &value));
    assert_text(value, "[1, {\"b\": 2}]");
    assert_true(pj_json_scan_member(&scan, &key));
    assert_text(key, "\xc3\xa4\n");
    assert_true(pj_json_scan_string(&scan, &value));
    assert_text(value, "x");
    assert_text(key, "\xc3\xa4\n"); /* a value without escapes does not overwrite it */
    assert_true(pj_json_scan_member(&scan, &key));
    assert_that(pj_json_scan_peek(&scan), ==, '{');
    assert_true(pj_json_scan_skip(&scan, NULL));
    assert_false(pj_json_scan_member(&scan, &key));
    assert_false(pj_json_scan_failed(&scan));
    assert_true(pj_json_scan_end(&scan));
    pj_json_scan_fini(&scan);
}

static void values_of_other_types_are_skipped(void **state)
{
    (void)state;
    pj_json_scan scan = scan_of("[-1.5e2, \"7\", null, [3], 0, {\"a\":1}, true, \"t\", 9]");
    double want[] = {-150, NAN, NAN, NAN, 0, NAN}, number;
    pj_json_text text;
    pj_json_scan_enter(&scan, '[');
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(pj_json_scan_next(&scan, '['));
        assert_true(pj_json_scan_number(&scan, &number));
        assert_true(isnan(want[i]) ? isnan(number) : number == want[i]);
    }
    pj_json_scan_next(&scan, '[');
    assert_true(pj_json_scan_text(&scan, &text) && !text.text);
    pj_json_scan_next(&scan, '[');
    assert_true(pj_json_scan_text(&scan, &text));
    assert_text(text, "t");
    pj_json_scan_next(&scan, '[');
    assert_true(pj_json_scan_text(&scan, &text) && !text.text);
    assert_false(pj_json_scan_next(&scan, '['));
    assert_true(pj_json_scan_end(&scan));
    pj_json_scan_fini(&scan);
}

static void numbers_of_any_length(void **state)
{
    (void)state;
    char long_text[400] = "0.";
    double number;
    memset(long_text + 2, '3', 300);
    pj_json_scan scan = scan_of(long_text);
    assert_true(pj_json_scan_number(&scan, &number));
    assert_that(number, ==, 1.0 / 3);
    assert_true(pj_json_scan_end(&scan));
    pj_json_scan_fini(&scan);
    /* text that is not terminated: digits after its end are not part of the number */
    pj_json_scan_init(&scan, "1234", 2);
    assert_true(pj_json_scan_number(&scan, &number));
    assert_that(number, ==, 12);
    scan = scan_of("1e999");
    assert_true(pj_json_scan_number(&scan, &number) && isinf(number));
}

static void parts_become_trees(void **state)
{
    (void)state;
    pj_json_scan scan = scan_of("[{\"a\":[1,2]},5,{\"a\":1,\"a\":2}, 6]");
    pj_json_scan_enter(&scan, '[');
    pj_json_scan_next(&scan, '[');
    json_t *tree = pj_json_scan_tree(&scan, JSON_REJECT_DUPLICATES);
    assert_int_equal(json_array_size(json_object_get(tree, "a")), 2);
    json_decref(tree);
    pj_json_scan_next(&scan, '[');
    tree = pj_json_scan_tree(&scan, 0);
    assert_int_equal(json_integer_value(tree), 5);
    json_decref(tree);
    pj_json_scan_next(&scan, '[');
    assert_null(pj_json_scan_tree(&scan, JSON_REJECT_DUPLICATES));
    assert_true(pj_json_scan_failed(&scan));
    assert_false(pj_json_scan_next(&scan, '[')); /* errors stay */
    pj_json_scan_fini(&scan);
}

static bool is_valid(const char *text, size_t bytes)
{
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, bytes);
    bool valid = pj_json_scan_skip(&scan, NULL) && pj_json_scan_end(&scan);
    assert_that(valid, !=, pj_json_scan_failed(&scan));
    pj_json_scan_fini(&scan);
    return valid;
}

static bool jansson_reads(const char *text, size_t bytes)
{
    json_t *tree = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_decref(tree);
    return tree != NULL;
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[2 * (PJ_JSON_SCAN_DEPTH + 1)];
    for (int depth = PJ_JSON_SCAN_DEPTH; depth <= PJ_JSON_SCAN_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        assert_int_equal(is_valid(text, 2 * (size_t)depth), depth == PJ_JSON_SCAN_DEPTH);
    }
}

/* Every cut and many changed bytes of a text with everything in it. */
static void jansson_agrees_on_what_is_valid(void **state)
{
    (void)state;
    const char *const whole =
        "{\"text \\u00e4\\ud83d\\ude00 \xf0\x9f\x98\x80 \\\\ \\\" \\/\\b\\f\\n\\r\\t\":"
        "[0,-1,1.5,-2e+3,4E-2, true,false,null , {} , [ ] ,{\"\":[[\"\"]]}]\n,\t\"b\":\r0}";
    size_t bytes = strlen(whole);
    char text[256];
    for (size_t cut = 0; cut <= bytes; cut++)
        assert_int_equal(is_valid(whole, cut), jansson_reads(whole, cut));
    srand(11);
    for (int i = 0; i < 20000; i++) {
        memcpy(text, whole, bytes);
        text[(size_t)rand() % bytes] = (char)rand();
        text[(size_t)rand() % bytes] = whole[(size_t)rand() % bytes];
        if (is_valid(text, bytes) != jansson_reads(text, bytes))
            fail_msg("only one of the two reads %.*s", (int)bytes, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_order),
        cmocka_unit_test(values_of_other_types_are_skipped),
        cmocka_unit_test(numbers_of_any_length),
        cmocka_unit_test(parts_become_trees),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(jansson_agrees_on_what_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
