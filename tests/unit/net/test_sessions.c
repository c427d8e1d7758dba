/* Sessions of browsers, and wrong tokens. */
#include "../assertions.h"
#include "../virtual_clock.h"

#include "net/gate.h"

#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HOUR_NS (3600 * PJ_NS_PER_S)

static char said[4096];

static void note(const char *text)
{
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", text);
}

static pj_sessions *opened(void)
{
    pj_sessions *s = NULL;
    said[0] = 0;
    assert_int_equal(pj_sessions_open(note, &s, NULL), PJ_OK);
    return s;
}

static void sessions_are_random_and_end(void **state)
{
    pj_sessions *s = opened();
    char a[PJ_SECRET_BYTES], b[PJ_SECRET_BYTES];
    (void)state;
    assert_true(pj_sessions_begin(s, a));
    assert_true(pj_sessions_begin(s, b));
    assert_string_not_equal(a, b);
    assert_int_equal(strspn(a, "0123456789abcdef"), 64);
    assert_true(pj_sessions_has(s, a));
    assert_true(pj_sessions_has(s, b));
    assert_false(pj_sessions_has(s, NULL));
    assert_false(pj_sessions_has(s, ""));
    pj_sessions_end(s, a);
    assert_false(pj_sessions_has(s, a));
    assert_true(pj_sessions_has(s, b));
    pj_sessions_end(s, NULL);
    pj_sessions_close(s);
}

static void an_idle_session_ends(void **state)
{
    pj_sessions *s = opened();
    char used[PJ_SECRET_BYTES], idle[PJ_SECRET_BYTES];
    (void)state;
    assert_true(pj_sessions_begin(s, used));
    assert_true(pj_sessions_begin(s, idle));
    pj_clock_sleep_until(pj_clock_ns() + 11 * HOUR_NS);
    assert_true(pj_sessions_has(s, used));
    pj_clock_sleep_until(pj_clock_ns() + 2 * HOUR_NS);
    assert_true(pj_sessions_has(s, used));
    assert_false(pj_sessions_has(s, idle));
    pj_sessions_close(s);
}

/* A table full of sessions gives up the one that was not used for longest. */
static void the_table_is_bounded(void **state)
{
    pj_sessions *s = opened();
    char first[PJ_SECRET_BYTES], second[PJ_SECRET_BYTES], each[PJ_SECRET_BYTES];
    (void)state;
    assert_true(pj_sessions_begin(s, first));
    assert_true(pj_sessions_begin(s, second));
    for (int i = 0; i < 255; i++) {
        assert_true(pj_sessions_begin(s, each));
        assert_true(pj_sessions_has(s, first));
    }
    assert_false(pj_sessions_has(s, second));
    pj_sessions_close(s);
}

static bool is_it(const void *right)
{
    return *(const bool *)right;
}

static unsigned try_token(pj_sessions *s, const char *address, bool right)
{
    return pj_sessions_check(s, address, is_it, &right);
}

static void guesses_are_slowed_by_address(void **state)
{
    pj_sessions *s = opened();
    (void)state;
    int64_t begin_ns = pj_clock_ns();
    for (int i = 0; i < 5; i++) assert_int_equal(try_token(s, "192.0.2.1", false), 401);
    assert_that(pj_clock_ns() - begin_ns, <, PJ_NS_PER_MS);
    for (int i = 0; i < 100; i++) assert_int_equal(try_token(s, "192.0.2.1", false), 401);
    assert_that(pj_clock_ns() - begin_ns, >, 150 * PJ_NS_PER_S);
    int64_t other_ns = pj_clock_ns();
    assert_int_equal(try_token(s, "192.0.2.2", false), 401);
    assert_that(pj_clock_ns() - other_ns, <, PJ_NS_PER_MS);
    assert_string_equal(said, "wrong token from 192.0.2.1 (1 so far)\n"
                              "wrong token from 192.0.2.1 (2 so far)\n"
                              "wrong token from 192.0.2.1 (4 so far)\n"
                              "wrong token from 192.0.2.1 (8 so far)\n"
                              "wrong token from 192.0.2.1 (16 so far)\n"
                              "wrong token from 192.0.2.1 (32 so far)\n"
                              "wrong token from 192.0.2.1 (64 so far)\n"
                              "wrong token from 192.0.2.2 (1 so far)\n");
    pj_clock_sleep_until(pj_clock_ns() + HOUR_NS);
    other_ns = pj_clock_ns();
    assert_int_equal(try_token(s, "192.0.2.1", false), 401);
    assert_that(pj_clock_ns() - other_ns, <, PJ_NS_PER_MS);
    pj_sessions_close(s);
}

static void a_right_token_waits_once_and_takes_no_pause(void **state)
{
    pj_sessions *s = opened();
    (void)state;
    for (int i = 0; i < 20; i++) try_token(s, "192.0.2.1", false);
    int64_t begin_ns = pj_clock_ns();
    assert_int_equal(try_token(s, "192.0.2.1", true), 0);
    assert_that(pj_clock_ns() - begin_ns, >, PJ_NS_PER_S); /* or it would stand out */
    begin_ns = pj_clock_ns();
    for (int i = 0; i < 100; i++) assert_int_equal(try_token(s, "192.0.2.1", true), 0);
    assert_that(pj_clock_ns() - begin_ns, <, PJ_NS_PER_MS);
    pj_sessions_close(s);
}

enum { GUESSERS = 40 };

static void *guess(void *s)
{
    return (void *)(uintptr_t)try_token(s, "192.0.2.1", false);
}

static void however_many_guess_one_is_checked_per_pause(void **state)
{
    pj_sessions *s = opened();
    pthread_t threads[GUESSERS];
    unsigned checked = 0;
    void *status;
    (void)state;
    for (int i = 0; i < 20; i++) try_token(s, "192.0.2.1", false);
    int64_t begin_ns = pj_clock_ns();
    for (int i = 0; i < GUESSERS; i++) pthread_create(&threads[i], NULL, guess, s);
    for (int i = 0; i < GUESSERS; i++) {
        pthread_join(threads[i], &status);
        assert_true((uintptr_t)status == 401 || (uintptr_t)status == 429);
        checked += (uintptr_t)status == 401;
    }
    assert_that(checked, >=, 1);
    assert_that(checked, <=, 2);
    assert_that(pj_clock_ns() - begin_ns, <, 4 * PJ_NS_PER_S);
    pj_sessions_close(s);
}

static void join_tokens_hold_for_a_name(void **state)
{
    const char *const tokens[] = {"any", "alpha=one", "beta=YmV0YQ==", "Zm9v==", NULL};
    pj_gate gate = {.host = "0.0.0.0", .token = "admin", .join_tokens = tokens},
            plain = {.host = "0.0.0.0", .token = "admin"};
    (void)state;
    assert_true(pj_gate_join(&gate, "Bearer any", "whoever"));
    assert_true(pj_gate_join(&gate, "Bearer one", "alpha"));
    assert_false(pj_gate_join(&gate, "Bearer one", "alpha2"));
    assert_false(pj_gate_join(&gate, "Bearer one", "alph"));
    assert_false(pj_gate_join(&gate, "Bearer alpha=one", "alpha"));
    assert_true(pj_gate_join(&gate, "Bearer YmV0YQ==", "beta"));
    assert_true(pj_gate_join(&gate, "Bearer Zm9v==", "whoever"));
    assert_false(pj_gate_join(&gate, "Bearer admin", "alpha"));
    assert_false(pj_gate_join(&gate, "Bearer ", "alpha"));
    assert_false(pj_gate_join(&gate, NULL, "alpha"));
    assert_false(pj_gate_token(&gate, "Bearer any", NULL));
    assert_true(pj_gate_join(&plain, "Bearer admin", "alpha"));
    assert_false(pj_gate_join(&plain, "Bearer any", "alpha"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_are_random_and_end),
        cmocka_unit_test(an_idle_session_ends),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(guesses_are_slowed_by_address),
        cmocka_unit_test(a_right_token_waits_once_and_takes_no_pause),
        cmocka_unit_test(however_many_guess_one_is_checked_per_pause),
        cmocka_unit_test(join_tokens_hold_for_a_name),
    };
    virtual_clock_use();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
