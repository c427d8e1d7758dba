/* Files of tasks: what is read, what is refused with its line, and which answers count. */
#include "../assertions.h"
#include "analysis/tasks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static pj_status parse(const char *text, pj_arena *arena, pj_tasks *tasks, pj_error *err)
{
    pj_arena_init(arena, 0);
    return pj_tasks_parse(text, strlen(text), "set.jsonl", arena, tasks, err);
}

static void tasks_are_read(void **state)
{
    static const char text[] =
        "\xef\xbb\xbf{\"prompt\":\"2 + 2 =\",\"answer\":[\"4\",\"four\"],\"stop\":\".\",\"max_tokens\":3}\r\n"
        "\n"
        "  \t\n"
        "{\"prompt\":\"Q\",\"choices\":[\" a\",\" b\"],\"answer\":\" b\",\"chat\":true}";
    pj_arena arena;
    pj_tasks tasks;
    pj_error err = {0};
    (void)state;
    assert_int_equal(parse(text, &arena, &tasks, &err), PJ_OK);
    assert_int_equal(tasks.count, 2);
    const pj_task *written = &tasks.items[0], *chosen = &tasks.items[1];
    assert_string_equal(written->prompt, "2 + 2 =");
    assert_string_equal(written->answers[1], "four");
    assert_null(written->answers[2]);
    assert_null(written->choices);
    assert_string_equal(written->stop[0], ".");
    assert_int_equal(written->max_tokens, 3);
    assert_false(written->chat);
    assert_int_equal(chosen->line, 4);
    assert_string_equal(chosen->choices[0], " a");
    assert_null(chosen->choices[2]);
    assert_true(chosen->chat);
    assert_string_equal(chosen->stop[0], "\n");
    pj_arena_fini(&arena);
}

static void many_tasks_are_kept(void **state)
{
    char *text = calloc(PJ_TASK_MAX_COUNT + 1, 64);
    pj_arena arena;
    pj_tasks tasks;
    pj_error err = {0};
    size_t used = 0;
    (void)state;
    for (int i = 0; i < PJ_TASK_MAX_COUNT; i++)
        used += (size_t)sprintf(text + used, "{\"prompt\":\"%d\",\"answer\":\"%d\"}\n", i, i);
    assert_int_equal(parse(text, &arena, &tasks, &err), PJ_OK);
    assert_int_equal(tasks.count, PJ_TASK_MAX_COUNT);
    assert_string_equal(tasks.items[4321].prompt, "4321");
    pj_arena_fini(&arena);
    strcat(text + used, "{\"prompt\":\"x\",\"answer\":\"x\"}\n");
    assert_int_equal(parse(text, &arena, &tasks, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "10000"));
    pj_arena_fini(&arena);
    free(text);
}

static void wrong_lines_are_named(void **state)
{
    static const struct {
        const char *line, *says;
    } wrong[] = {
        {"", "set.jsonl has no tasks"},
        {"[]", "not a JSON object"},
        {"{\"prompt\":\"x\"", "line 2: "},
        {"{\"answer\":\"x\"}", "prompt must be a text"},
        {"{\"prompt\":\"\",\"answer\":\"x\"}", "prompt must be a text"},
        {"{\"prompt\":\"a\\u0000b\",\"answer\":\"x\"}", "line 2: "},
        {"{\"prompt\":\"x\"}", "answer must be"},
        {"{\"prompt\":\"x\",\"answer\":4}", "answer must be"},
        {"{\"prompt\":\"x\",\"answer\":[]}", "answer must be"},
        {"{\"prompt\":\"x\",\"answer\":[\"a\",1]}", "answer must be"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"choices\":[\"a\"]}", "choices must be"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"choices\":\"ab\"}", "choices must be"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"choices\":[\"a\",\"b\",\"a\"]}", "choices must be"},
        {"{\"prompt\":\"x\",\"answer\":\"c\",\"choices\":[\"a\",\"b\"]}",
         "answer must be one of the choices"},
        {"{\"prompt\":\"x\",\"answer\":[\"a\",\"b\"],\"choices\":[\"a\",\"b\"]}",
         "answer must be one of the choices"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"choices\":[\"a\",\"b\"],\"stop\":\"x\"}",
         "answers that the model writes"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"max_tokens\":0}", "max_tokens"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"max_tokens\":\"9\"}", "max_tokens"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"max_tokens\":5000}", "max_tokens"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"chat\":1}", "chat"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"stop\":[]}", "stop"},
        {"{\"prompt\":\"x\",\"answer\":\"a\",\"answers\":[]}", "unknown member answers"},
        {"{\"prompt\":\"x\",\"prompt\":\"y\",\"answer\":\"a\"}", "line 2: "}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[512];
        pj_arena arena;
        pj_tasks tasks;
        pj_error err = {0};
        snprintf(text, sizeof text, "\n%s\n", wrong[i].line);
        assert_int_equal(parse(text, &arena, &tasks, &err), PJ_E_INVALID);
        if (!strstr(err.text, wrong[i].says)) fail_msg("%s: %s", wrong[i].line, err.text);
        if (*wrong[i].line) assert_non_null(strstr(err.text, "set.jsonl, line 2"));
        pj_arena_fini(&arena);
    }
}

static void answers_are_exact_but_for_blanks(void **state)
{
    const char *const answers[] = {" Paris ", "the city of Paris", NULL};
    const pj_task task = {.answers = answers};
    static const char *const right[] = {"Paris", "\n Paris\t", "the city of Paris"};
    static const char *const not_right[] = {
        "", "paris", "Paris.", "Pari", "Pariss", " ", "the city of  Paris"};
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_true(pj_task_is_solved_by(&task, right[i], strlen(right[i])));
    for (size_t i = 0; i < sizeof not_right / sizeof *not_right; i++)
        assert_false(pj_task_is_solved_by(&task, not_right[i], strlen(not_right[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tasks_are_read),
                                       cmocka_unit_test(many_tasks_are_kept),
                                       cmocka_unit_test(wrong_lines_are_named),
                                       cmocka_unit_test(answers_are_exact_but_for_blanks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
