/* Waiting for sockets: the same for both implementations, of which this is built with each. */
#include "attach/poller.h"

#ifdef PJ_POLLER_PORTABLE
#include "../../../src/attach/poller.c"
#endif

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAIRS = 40 };

static int ends[PAIRS][2];

static int open_pairs(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) != 0) return 1;
    return 0;
}

static int close_pairs(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++)
        for (int e = 0; e < 2; e++)
            if (ends[i][e] >= 0) close(ends[i][e]);
    return 0;
}

static void test_readiness(void **state)
{
    pj_poller *p = pj_poller_new(PAIRS);
    pj_ready ready[PAIRS];
    char byte;
    (void)state;
    assert_non_null(p);
    for (int i = 0; i < PAIRS; i++) assert_true(pj_poller_set(p, ends[i][0], 0, POLLIN, ends[i]));
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 0), 0);
    assert_int_equal(write(ends[7][1], "x", 1), 1);
    for (int again = 0; again < 2; again++) { /* level-triggered */
        assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 1);
        assert_ptr_equal(ready[0].tag, ends[7]);
        assert_int_equal(ready[0].events, POLLIN);
    }
    assert_true(pj_poller_set(p, ends[7][0], POLLIN, POLLIN | POLLOUT, ends[7]));
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 1);
    assert_int_equal(ready[0].events, POLLIN | POLLOUT);
    assert_int_equal(read(ends[7][0], &byte, 1), 1);
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 1);
    assert_int_equal(ready[0].events, POLLOUT);
    assert_true(pj_poller_set(p, ends[7][0], POLLIN | POLLOUT, 0, NULL));
    assert_int_equal(write(ends[7][1], "x", 1), 1);
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 0), 0);
    assert_int_equal(write(ends[8][1], "x", 1), 1);
    assert_int_equal(write(ends[9][1], "x", 1), 1);
    assert_int_equal(pj_poller_wait(p, ready, 1, 20000), 1);
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 2);
    pj_poller_free(p);
}

static void test_disconnection(void **state)
{
    pj_poller *p = pj_poller_new(PAIRS);
    pj_ready ready[PAIRS];
    (void)state;
    assert_true(pj_poller_set(p, ends[0][0], 0, POLLIN, ends[0]));
    assert_true(pj_poller_set(p, ends[1][0], 0, POLLIN, ends[1]));
    close(ends[0][1]);
    ends[0][1] = -1;
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 1);
    assert_true(ready[0].events & (POLLIN | POLLHUP));
    assert_true(pj_poller_set(p, ends[0][0], POLLIN, 0, NULL)); /* no longer watched: silent */
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 0), 0);
    close(ends[0][0]);
    assert_int_equal(dup(ends[2][0]), ends[0][0]); /* the number is taken anew */
    assert_true(pj_poller_set(p, ends[0][0], 0, POLLIN, &ends[2]));
    assert_int_equal(write(ends[2][1], "x", 1), 1);
    assert_int_equal(pj_poller_wait(p, ready, PAIRS, 20000), 1);
    assert_ptr_equal(ready[0].tag, &ends[2]);
    pj_poller_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_readiness, open_pairs, close_pairs),
        cmocka_unit_test_setup_teardown(test_disconnection, open_pairs, close_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
