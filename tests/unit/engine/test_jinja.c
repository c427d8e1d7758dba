/*
 * Jinja templates. The texts expected in jinja_cases.json were written by the reference
 * implementation (Python's jinja2 with the settings that chat templates are rendered with); the
 * templates are ours. Limits, rejections and data marks are checked here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "../sanitized.h"
#include "engine/text/jinja/jinja.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const trusted[] = {"bos_token", "eos_token", NULL};

static pj_status render(const char *template, const char *json, pj_jinja_output *output,
                        pj_error *err)
{
    pj_jinja *jinja;
    *output = (pj_jinja_output){0};
    pj_status status = pj_jinja_open(template, strlen(template), "it", &jinja, err);
    if (status == PJ_OK)
        status = pj_jinja_render(jinja, &(pj_jinja_input){json, strlen(json), trusted, 1750000000},
                                 output, err);
    pj_jinja_close(jinja);
    return status;
}

static void assert_case(json_t *item)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    const char *template = json_string_value(json_object_get(item, "template"));
    const char *want = json_string_value(json_object_get(item, "want"));
    char *input = json_dumps(json_object_get(item, "input"), JSON_COMPACT);
    pj_jinja_output output;
    pj_error err = {0};
    pj_status status = render(template, input, &output, &err);
    if (want && (status != PJ_OK || strcmp(output.text, want) != 0))
        fail_msg("%s: %s\nwanted: %s\ngot: %s%s", name, template, want,
                 output.text ? output.text : "", err.text);
    if (!want && status == PJ_OK) fail_msg("%s was not refused: %s", name, template);
    if (!want) assert_non_null(strstr(err.text, "line "));
    pj_jinja_output_fini(&output);
    free(input);
}

static void test_cases(void **state)
{
    json_error_t where;
    json_t *cases = json_load_file(getenv("PJ_JINJA_CASES"), 0, &where), *item;
    size_t i;
    (void)state;
    assert_that(json_array_size(cases), >, 100);
    json_array_foreach(cases, i, item) assert_case(item);
    json_decref(cases);
}

static void assert_refused(const char *template, pj_status want, const char *says)
{
    pj_jinja_output output;
    pj_error err;
    pj_status status = render(template, "{\"messages\": [], \"x\": \"text\"}", &output, &err);
    if (status != want || !strstr(err.text, says))
        fail_msg("%s: status %d, %s", template, (int)status, err.text);
    pj_jinja_output_fini(&output);
}

static void test_refused_by_name(void **state)
{
    (void)state;
    assert_refused("{% include 'a' %}", PJ_E_UNSUPPORTED, "\"include\"");
    assert_refused("{% import 'a' as b %}", PJ_E_UNSUPPORTED, "\"import\"");
    assert_refused("{% extends 'a' %}", PJ_E_UNSUPPORTED, "\"extends\"");
    assert_refused("\n\n{{ x | frobnicate }}", PJ_E_UNSUPPORTED,
                   "line 3: the filter \"frobnicate\"");
    assert_refused("{{ x is frobnicated }}", PJ_E_UNSUPPORTED, "the test \"frobnicated\"");
    assert_refused("{{ x.encode('x') }}", PJ_E_UNSUPPORTED, "the method \"encode\"");
    assert_refused("{{ '%y' % x }}", PJ_E_UNSUPPORTED, "the format field %y");
    assert_refused("{{ '{:#q}'.format(x) }}", PJ_E_UNSUPPORTED, "the format field #q");
    assert_refused("{{ 'truncate' is filter }}", PJ_E_UNSUPPORTED, "\"truncate\"");
    assert_refused("{{ lipsum() }}", PJ_E_UNSUPPORTED, "\"lipsum\" is not supported");
    assert_refused("{{ raise_exception('roles must alternate') }}", PJ_E_INVALID,
                   "rejects this conversation: roles must alternate");
    assert_refused("{{ y.z }}", PJ_E_INVALID, "'y' is undefined");
    assert_refused("{% for a in b %}", PJ_E_INVALID, "\"else\" is missing");
    assert_refused("{{ 'a }}", PJ_E_INVALID, "is not closed");
    assert_refused("{% break %}", PJ_E_INVALID, "outside of a loop");
}

/* A hostile template quickly ends with an error. */
static void test_bounds(void **state)
{
    (void)state;
    assert_refused(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        PJ_E_FULL, "too");
    assert_refused("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}"
                   "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
                   PJ_E_FULL, "too much memory");
    assert_refused("{{ 'abcdefgh' * 100000000 }}", PJ_E_FULL, "too");
    assert_refused("{{ range(9223372036854775807) }}", PJ_E_FULL, "too");
    assert_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", PJ_E_FULL, "too deeply");
    assert_refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", PJ_E_FULL,
                   "too deeply");
    assert_refused("{% for i in [1] recursive %}{{ loop([1, 1]) if loop.depth < 60 }}{% endfor %}",
                   PJ_E_FULL, "too");
    assert_refused("{{ 'a'.center(1000000000000) }}", PJ_E_FULL, "too");
    assert_refused("{{ 'a'.zfill(1000000000000) }}", PJ_E_FULL, "too");
    assert_refused("{{ '%99999d' % 1 }}", PJ_E_UNSUPPORTED, "the format field %9999");
    assert_refused("{{ range(100000) | slice(100000000) }}", PJ_E_INVALID, "slice takes a number");
    /* looking through a long text, or comparing values that hold others many times over, costs
     * steps, too */
    static const char *const looks[] = {"'b' in s",
                                        "s | length == 3",
                                        "s[999999] == 'b'",
                                        "s.find('b') > 0",
                                        "s.rfind('ab') > 0",
                                        "s.count('b')",
                                        "s.isdigit()",
                                        "s | wordcount",
                                        "s.split('b') == 1",
                                        "s.splitlines() == 1",
                                        "s == t"};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i += PJ_SANITIZED ? 4 : 1) {
        char text[300];
        snprintf(text, sizeof text,
                 "{%% set s = 'a' * 1000000 %%}{%% set t = 'a' * 1000000 %%}"
                 "{%% for k in range(1000000) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                 looks[i]);
        assert_refused(text, PJ_E_FULL, "too");
    }
    assert_refused("{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
                   "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
                   "{{ ns.a == ns.b }}",
                   PJ_E_FULL, "too many steps");
    assert_refused("{% set ns = namespace(a=1, b=1) %}{% for i in range(10000) %}"
                   "{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                   PJ_E_FULL, "too deeply");
    assert_refused("{{ 9223372036854775807 + 1 }}", PJ_E_INVALID, "too large");
    char deep[2006];
    memset(deep, '(', 1002);
    memset(deep + 1003, ')', 1000);
    memcpy(deep, "{{", 2);
    deep[1002] = '1';
    memcpy(deep + 2003, "}}", 3);
    assert_refused(deep, PJ_E_FULL, "too deeply");
    memcpy(deep, "{% for ", 7);
    memcpy(deep + 2003, "%}", 3);
    memset(deep + 7, '(', 995); /* names to assign to, within as many parentheses */
    assert_refused(deep, PJ_E_FULL, "too deeply");
}

static void assert_marks(const char *template, const char *want, const char *marks)
{
    pj_jinja_output output;
    pj_error err = {0};
    if (render(template, "{\"m\": \"<s>x Y\", \"bos_token\": \"<s>\"}", &output, &err) != PJ_OK)
        fail_msg("%s", err.text);
    assert_string_equal(output.text, want);
    for (size_t i = 0; i < output.bytes; i++)
        if (output.marks[i] != marks[i] - '0') fail_msg("%s: byte %zu of %s", template, i, want);
    pj_jinja_output_fini(&output);
}

/* A message's text stays marked as data (taint tracking) through all template operations. */
static void test_marks(void **state)
{
    (void)state;
    assert_marks("{{ bos_token }}[{{ m }}]", "<s>[<s>x Y]", "00001111110");
    assert_marks("{{ bos_token + m + '\\n' }}", "<s><s>x Y\n", "0001111110");
    assert_marks("{{ (m ~ '!') | upper }}", "<S>X Y!", "1111110");
    assert_marks("{{ ('  ' + m + '  ').strip() }}", "<s>x Y", "111111");
    assert_marks("{{ m.split(' ') | join('--') }}", "<s>x--Y", "1111001");
    assert_marks("{{ m | replace('x', '<e>') }}", "<s><e> Y", "11100011");
    assert_marks("{{ m[1:3] }}{{ m[0] }}", "s><", "111");
    assert_marks("{% set a %}a{{ m }}{% endset %}{{ a }}", "a<s>x Y", "0111111");
    assert_marks("{{ {'k': m} | tojson }}", "{\"k\": \"<s>x Y\"}",
                 "00000001111110"
                 "0");
    assert_marks("{% macro f(t) %}<{{ t }}>{% endmacro %}{{ f(m) }}", "<<s>x Y>", "01111110");
    assert_marks("{% for a, (b, c) in [(m, ('-', '+'))] %}{{ c ~ b }}{% endfor %}", "+-", "00");
    assert_marks("{{ '%' ~ m | reverse }}", "%Y x>s<", "0111111");
}

static void test_failing_memory(void **state)
{
    static const char template[] =
        "{% for c in m %}{{ c ~ m | upper }}{% endfor %}{{ {'a': [m]} }}";
    bool failed = true;
    (void)state;
    for (int64_t n = 0; failed && n < 500; n++) {
        pj_jinja_output output;
        pj_error err;
        pj_memory_fail_after(n);
        failed = render(template, "{\"m\": \"text\"}", &output, &err) != PJ_OK;
        pj_memory_fail_after(-1);
        pj_jinja_output_fini(&output);
    }
    assert_false(failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),          cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_marks),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
