/* Long strings of JSON are cut, and what is left means the same. */
#include "../assertions.h"
#include "attach/exchange.h"
#include "attach/skim.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void assert_skims_to(const char *json, size_t bytes, const char *want)
{
    pj_buffer out;
    pj_buffer_init(&out, bytes + 1);
    assert_true(pj_skim_json(json, bytes, true, &out));
    assert_string_equal(pj_buffer_get(&out), want);
    pj_buffer_fini(&out);
}

/* Short texts, valid or not, stay as they are. */
static void what_is_short_stays(void **state)
{
    static const char *const texts[] = {"",         "{\"a\":\"b\"}",
                                        "\"",       "\"\\\"",
                                        "\"\\\\\"", "{\"a\\\\\\\"b\":[\"\\u00e9\",\"\"]}",
                                        "[[]]",     "[",
                                        "][\"",     "no JSON"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_skims_to(texts[i], strlen(texts[i]), texts[i]);
}

/* Units of a long string at every alignment of the cut: the result parses, and is a beginning of
 * the whole. */
static void cuts_are_between_characters(void **state)
{
    static const char *const units[] = {"a b",  "\xc3\xa9", "\xf0\x9f\x98\x80", "\\u00e9",
                                        "\\\\", "\\\"",     "\\ud83d\\ude00",   "\\n!"};
    (void)state;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t shift = 0; shift < strlen(units[u]); shift++) {
            pj_buffer json, out;
            pj_buffer_init(&json, 4 << 20);
            pj_buffer_init(&out, 4 << 20);
            pj_buffer_text(&json, "[\"");
            for (size_t i = 0; i < shift; i++) pj_buffer_char(&json, '.');
            while (json.length < PJ_SKIM_TEXT_BYTES + 1000) pj_buffer_text(&json, units[u]);
            pj_buffer_text(&json, "\",7]");
            assert_true(pj_skim_json(json.data, json.length, true, &out));
            assert_that(out.length, <, PJ_SKIM_TEXT_BYTES + 10);
            assert_that(out.length, >, PJ_SKIM_TEXT_BYTES - 20);
            json_t *whole = json_loadb(json.data, json.length, 0, NULL);
            json_t *skimmed = json_loadb(out.data, out.length, 0, NULL);
            assert_non_null(skimmed);
            assert_int_equal(json_integer_value(json_array_get(skimmed, 1)), 7);
            const json_t *text = json_array_get(skimmed, 0);
            assert_memory_equal(json_string_value(text),
                                json_string_value(json_array_get(whole, 0)),
                                json_string_length(text));
            json_decref(whole);
            json_decref(skimmed);
            pj_buffer_fini(&json);
            pj_buffer_fini(&out);
        }
}

/* An image between two texts: the texts are the prompt, and next to nothing of it is parsed. */
static void an_image_is_skimmed(void **state)
{
    static const char *const heads[] = {"data:image/png;base64,", ""};
    (void)state;
    for (size_t h = 0; h < 2; h++) {
        pj_buffer json, out;
        pj_buffer_init(&json, 4 << 20);
        pj_buffer_init(&out, 4 << 20);
        pj_buffer_printf(
            &json,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
            "\"text\":\"What is\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"%s",
            heads[h]);
        while (json.length < 2 << 20) pj_buffer_text(&json, "iVBORw0KGgo/+");
        pj_buffer_text(&json, "==\"}},{\"type\":\"text\",\"text\":\"this?\"}]}],\"max_tokens\":9}");
        assert_true(pj_skim_json(json.data, json.length, true, &out));
        assert_that(out.length, <, PJ_SKIM_ENCODED_BYTES + 500);
        pj_exchange *x = pj_exchange_new("POST", "/v1/chat/completions", json.data, json.length, 1);
        assert_string_equal(x->asked.prompt, "What is\n\nthis?");
        assert_int_equal(x->asked.max_tokens, 9);
        pj_exchange_free(x);
        pj_buffer_fini(&json);
        pj_buffer_fini(&out);
    }
}

/* Lists of embeddings go, lists of token ids and of short vectors stay, and so do texts. */
static void embeddings_are_skimmed(void **state)
{
    pj_buffer json, out;
    (void)state;
    pj_buffer_init(&json, 4 << 20);
    pj_buffer_init(&out, 4 << 20);
    pj_buffer_text(&json, "{\"data\":[");
    for (int k = 0; k < 3; k++) {
        pj_buffer_printf(&json, "%s{\"embedding\":[1", k ? "," : "");
        for (int i = 0; i < 1024; i++) pj_buffer_text(&json, ", -0.0123e-4");
        pj_buffer_text(&json, "],\"ids\":[0");
        for (int i = 0; i < 4000; i++) pj_buffer_text(&json, ",11");
        pj_buffer_text(&json, "],\"short\":[[0.5],[1]],\"text\":\"[");
        for (int i = 0; i < 4000; i++) pj_buffer_text(&json, "0.5,");
        pj_buffer_text(&json, "]\"}");
    }
    pj_buffer_text(&json, "],\"usage\":{\"prompt_tokens\":7}}");
    assert_true(pj_skim_json(json.data, json.length, false, &out));
    json_t *o = json_loadb(out.data, out.length, 0, NULL);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(o, "usage"), "prompt_tokens")), 7);
    for (size_t k = 0; k < 3; k++) {
        const json_t *part = json_array_get(json_object_get(o, "data"), k);
        assert_int_equal(json_array_size(json_object_get(part, "embedding")), 0);
        assert_int_equal(json_array_size(json_object_get(part, "ids")), 4001);
        assert_int_equal(json_array_size(json_object_get(part, "short")), 2);
        assert_int_equal(json_string_length(json_object_get(part, "text")), 16002);
    }
    json_decref(o);
    pj_buffer_fini(&json);
    pj_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_short_stays),
        cmocka_unit_test(cuts_are_between_characters),
        cmocka_unit_test(an_image_is_skimmed),
        cmocka_unit_test(embeddings_are_skimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
