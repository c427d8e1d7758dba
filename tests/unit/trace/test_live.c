/* Events reach every sink of a list; one that fails is left out and counted. */
#include "../assertions.h"
#include "trace/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct listener {
    int tokens, ends;
    int fails_after; /* tokens; 0: never */
} listener;

static void take_token(void *context, const char *run_id, const pj_live_token *token)
{
    (void)run_id;
    (void)token;
    ((listener *)context)->tokens++;
}

static void take_end(void *context, const char *run_id, const pj_live_end *end)
{
    (void)run_id;
    (void)end;
    ((listener *)context)->ends++;
}

static bool has_failed(void *context)
{
    const listener *l = context;
    return l->fails_after && l->tokens >= l->fails_after;
}

static void add(pj_live_sinks *list, listener *l, bool ends)
{
    pj_live_sink sink = {.version = PJ_LIVE_SINK_VERSION,
                         .context = l,
                         .token = take_token,
                         .run_end = ends ? take_end : NULL,
                         .has_failed = has_failed};
    assert_int_equal(pj_live_sinks_add(list, &sink, NULL), PJ_OK);
}

static void all_sinks_hear_what_they_want(void **state)
{
    (void)state;
    pj_live_sinks list = {0};
    listener a = {0}, b = {0};
    assert_null(list.all.token);
    add(&list, &a, false);
    assert_non_null(list.all.token);
    assert_null(list.all.run_end); /* no sink has it, so it is not prepared */
    add(&list, &b, true);
    list.all.token(list.all.context, "id", &(pj_live_token){0});
    list.all.run_end(list.all.context, "id", &(pj_live_end){0});
    assert_that(a.tokens, ==, 1);
    assert_that(a.ends, ==, 0);
    assert_that(b.tokens, ==, 1);
    assert_that(b.ends, ==, 1);
    pj_live_sinks_clear(&list);
    assert_null(list.all.token);
}

static void a_failing_sink_is_left_out(void **state)
{
    (void)state;
    pj_live_sinks list = {0};
    listener bad = {.fails_after = 2}, good = {0};
    add(&list, &bad, true);
    add(&list, &good, true);
    for (int i = 0; i < 5; i++) list.all.token(list.all.context, "id", &(pj_live_token){0});
    list.all.run_end(list.all.context, "id", &(pj_live_end){0});
    assert_that(bad.tokens, ==, 2);
    assert_that(bad.ends, ==, 0);
    assert_that(good.tokens, ==, 5);
    assert_that(good.ends, ==, 1);
    assert_int_equal(list.failed, 1);
}

static void other_versions_and_too_many_are_refused(void **state)
{
    (void)state;
    pj_live_sinks list = {0};
    listener l = {0};
    pj_live_sink old = {.version = PJ_LIVE_SINK_VERSION + 1};
    assert_int_equal(pj_live_sinks_add(&list, &old, NULL), PJ_E_UNSUPPORTED);
    for (int i = 0; i < PJ_MAX_LIVE_SINKS; i++) add(&list, &l, false);
    old.version = PJ_LIVE_SINK_VERSION;
    assert_int_equal(pj_live_sinks_add(&list, &old, NULL), PJ_E_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sinks_hear_what_they_want),
        cmocka_unit_test(a_failing_sink_is_left_out),
        cmocka_unit_test(other_versions_and_too_many_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
