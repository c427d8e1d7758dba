/* Machines that join a server: how many there may be, and what closing does to one that is being
 * watched. */
#include "../assertions.h"

#include "net/relay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static pj_relay *open_relay(void)
{
    pj_relay *relay;
    assert_int_equal(pj_relay_open(&relay, NULL), PJ_OK);
    return relay;
}

/* A socket without a peer stays quiet, as the connection of a machine that nobody watches. */
static void join_quietly(pj_relay *relay, const char *name)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_that(fd, >=, 0);
    pj_relay_join(relay, name, "", fd);
}

static void a_full_server_refuses_further_machines(void **state)
{
    (void)state;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < PJ_RELAY_MACHINES + 100) skip();
    if (limit.rlim_cur < PJ_RELAY_MACHINES + 100) limit.rlim_cur = PJ_RELAY_MACHINES + 100;
    setrlimit(RLIMIT_NOFILE, &limit);
    pj_relay *relay = open_relay();
    pj_error err;
    char name[32];
    for (int i = 0; i < PJ_RELAY_MACHINES; i++) {
        snprintf(name, sizeof name, "machine-%d", i);
        join_quietly(relay, name);
    }
    assert_int_equal(pj_relay_may_join(relay, "one-more", "", &err), PJ_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "4096 machines have already joined"));
    assert_int_equal(pj_relay_may_join(relay, name, "another", &err), PJ_E_STATE);
    join_quietly(relay, "one-more");
    assert_false(pj_relay_has(relay, "one-more"));
    assert_true(pj_relay_has(relay, name));
    pj_relay_close(relay);
}

/* A relay that takes the end of its own connections for a machine's would tell the watchers that
 * the machine is away, and wait for it before it closes. */
static void closing_is_no_interruption(void **state)
{
    (void)state;
    pj_relay *relay = open_relay();
    int machine[2], watcher[2];
    char text[4096];
    size_t length = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, machine), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, watcher), 0);
    pj_relay_join(relay, "alpha", "", machine[1]);
    pj_hub *hub = pj_relay_watch(relay, "alpha", NULL);
    assert_non_null(hub);
    assert_true(pj_hub_add(hub, watcher[1], &(pj_reader_options){0}, NULL, 0));
    pj_relay_close(relay);
    for (ssize_t n; (n = recv(watcher[0], text + length, sizeof text - 1 - length, 0)) > 0;)
        length += (size_t)n;
    text[length] = 0;
    for (size_t i = 0; i < length; i++)
        if (!text[i]) text[i] = ' ';
    assert_non_null(strstr(text, "hello"));
    assert_null(strstr(text, "machine_away"));
    close(machine[0]);
    close(watcher[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_server_refuses_further_machines),
                                       cmocka_unit_test(closing_is_no_interruption)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
