/* Tokens between reasoning marks: marks of each kind, in one token and in many, opened by the
 * prompt, not closed, counted by a client, and texts that only look like marks. */
#include "../assertions.h"
#include "trace/thinking.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

/* Tokens as a text with "~" between them; token i of decoding has an energy of 2^i mJ, so that a
 * sum says which were taken. The first has the prompt's energy. */
typedef struct made {
    pj_run_data d;
    pj_phase_row phases[2];
    pj_token_row tokens[MOST];
    char text[512];
    size_t used;
} made;

static void add(made *m, const char *tokens, uint32_t sequence)
{
    char *rest;
    m->d.phases = m->phases;
    m->d.tokens = m->tokens;
    m->d.phase_count = 2;
    m->phases[0] = (pj_phase_row){.phase = PJ_PHASE_PREFILL, .energy = PJ_ENERGY_UNKNOWN};
    m->phases[1] = (pj_phase_row){.phase = PJ_PHASE_DECODE, .energy = PJ_ENERGY_UNKNOWN};
    m->phases[1].energy.gross_nj = 1000000;
    m->phases[1].energy.sd_mj = 0.1f;
    char *own = m->text + m->used;
    strcpy(own, tokens);
    m->used += strlen(tokens) + 1;
    uint32_t position = 0;
    for (char *word = strtok_r(own, "~", &rest); word; word = strtok_r(NULL, "~", &rest)) {
        pj_token_row *row = &m->tokens[m->d.token_count++];
        *row = (pj_token_row){.phase = position > 0,
                              .position = position,
                              .sequence = sequence,
                              .text = word,
                              .duration_ms = 1,
                              .energy = PJ_ENERGY_UNKNOWN};
        row->energy.gross_nj = (INT64_C(1) << position) * 1000000;
        position++;
    }
}

static void expect(const char *tokens, double count, double mj)
{
    made m = {0};
    add(&m, tokens, 0);
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    const pj_run_info *info = &m.d.info;
    if (isnan(count)) {
        assert_true(isnan(info->thinking_tokens) && isnan(info->thinking_mj) &&
                    isnan(info->thinking_ms));
        return;
    }
    assert_that(info->thinking_tokens, ==, count);
    assert_that(info->thinking_mj, ==, mj);
    assert_near(info->thinking_sd_mj, 0.1 * mj, 1e-6 * (1 + mj));
}

static void marks_of_each_kind(void **state)
{
    expect("a~<think>~b~c~</think>~d", 4, 2 + 4 + 8 + 16);
    expect("a~[THINK]~b~[/THINK]~d", 3, 2 + 4 + 8);
    expect("a~<seed:think>x~b</seed:think>c~d", 2, 2 + 4);
    expect("a~<|channel|>~analysis~<|message|>~b~<|end|>~<|channel|>final", 5, 2 + 4 + 8 + 16 + 32);
    expect("a~<|channel|>~final~b~<|end|>", NAN, NAN); /* not the analysis */
    /* marks of many tokens, and a token that is part of both sides */
    expect("a~b <~thi~nk>~c~</th~ink> d~e", 6, 2 + 4 + 8 + 16 + 32 + 64);
}

static void unusual_places(void **state)
{
    expect("<think>~a~</think>~b", 3, 2 + 4); /* the first token's energy is the prompt's */
    expect("a~b~</think>~c", 3, 2 + 4);       /* the prompt opened it */
    expect("a~<think>~b~c", 3, 2 + 4 + 8);    /* not closed */
    expect("a~<think>~</think>~b~<think>~c", 4, 2 + 4 + 16 + 32); /* twice */
    expect("a~</think>~b~<think>~c~</think>~d", 5, 2 + 8 + 16 + 32);
    expect("a~<thinks>~b", NAN, NAN);
    expect("a~b", NAN, NAN);
}

static void sequences_are_apart(void **state)
{
    made m = {0};
    add(&m, "a~<think>~b", 0);
    add(&m, "c~d~e", 1); /* is not inside the other's mark */
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    assert_that(m.d.info.thinking_tokens, ==, 2);
}

static void what_a_client_counted(void **state)
{
    made m = {0};
    add(&m, "a~b~<think>~d", 0);
    m.d.info.settings_json = "{\"reasoning_tokens\":2}";
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    assert_that(m.d.info.thinking_tokens, ==, 2);
    assert_that(m.d.info.thinking_mj, ==, 2);
    /* without texts (a private run), and without an energy */
    for (uint32_t i = 0; i < m.d.token_count; i++) m.tokens[i].text = NULL;
    m.tokens[1].energy = PJ_ENERGY_UNKNOWN;
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    assert_that(m.d.info.thinking_tokens, ==, 2);
    assert_true(isnan(m.d.info.thinking_mj));
    m.d.info.settings_json = "{}";
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    assert_true(isnan(m.d.info.thinking_tokens)); /* unknown, not none */
}

static double calls_of(const char *tokens, const char *settings)
{
    made m = {0};
    add(&m, tokens, 0);
    m.d.info.settings_json = settings;
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    return m.d.info.tool_calls;
}

static void calls_of_tools(void **state)
{
    assert_that(calls_of("a~<tool_call>~{}~</tool_call>~<tool~_call>~{}~</tool_call>", NULL), ==,
                2);
    assert_that(calls_of("<think>~a~</think>~[TOOL~_CALLS]~f~[ARGS]~{}", NULL), ==, 1);
    assert_that(calls_of("<|channel|>~commentary to=functions.f~<|message|>~{}", NULL), ==, 1);
    /* nested marks are one call each */
    assert_that(calls_of("<tool_call>~<function=f>~x~</function>~</tool_call>", NULL), ==, 1);
    assert_that(calls_of("<minimax:tool_call>~<invoke name=\"f\">~<invoke name=\"g\">", NULL), ==,
                2);
    assert_true(isnan(calls_of("a~tool_call~b", NULL))); /* unknown, not none */
    assert_true(isnan(calls_of("", NULL)));
    /* what a server gives apart is not in the text, and none is none */
    assert_that(calls_of("f~{}", "{\"tool_calls\":3}"), ==, 3);
    assert_that(calls_of("a~<tool_call>~b", "{\"tool_calls\":0}"), ==, 0);
    assert_that(calls_of("", "{\"tool_calls\":1}"), ==, 1);
    /* of all sequences */
    made m = {0};
    add(&m, "<tool_call>~a", 0);
    add(&m, "b~c", 1);
    add(&m, "<tool_call>~<tool_call>", 2);
    assert_int_equal(pj_thinking_find(&m.d, NULL), PJ_OK);
    assert_that(m.d.info.tool_calls, ==, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_of_each_kind),    cmocka_unit_test(unusual_places),
        cmocka_unit_test(sequences_are_apart),   cmocka_unit_test(calls_of_tools),
        cmocka_unit_test(what_a_client_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
