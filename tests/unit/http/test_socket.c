/* Which of several addresses is taken, and which are this machine's own. */
#include "http/socket.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static pj_address address_of(const char *text, int port)
{
    pj_address a = {.bytes = sizeof(struct sockaddr_in)};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a.storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.storage;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return a;
    }
    assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    a.bytes = sizeof *v6;
    return a;
}

static struct addrinfo entry(pj_address *a, struct addrinfo *next)
{
    return (struct addrinfo){.ai_family = a->storage.ss_family,
                             .ai_addr = (struct sockaddr *)&a->storage,
                             .ai_addrlen = a->bytes,
                             .ai_next = next};
}

/* A listening socket, and another port of the same address at which nothing listens. */
static int listen_at(const char *text, int *port, int *closed)
{
    int fd = -1, ports[2] = {0, 0}, fds[2];
    for (int i = 0; i < 2; i++) {
        pj_address a = address_of(text, 0);
        struct sockaddr_in got;
        socklen_t bytes = sizeof got;
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fds[i], (struct sockaddr *)&a.storage, a.bytes), 0);
        assert_int_equal(getsockname(fds[i], (struct sockaddr *)&got, &bytes), 0);
        ports[i] = ntohs(got.sin_port);
    }
    fd = fds[0];
    assert_int_equal(listen(fd, 4), 0);
    *port = ports[0];
    *closed = ports[1]; /* stays bound, so that nobody else listens there */
    return fd;
}

static void where_something_listens(void **state)
{
    int port, closed, fd = listen_at("127.0.0.1", &port, &closed);
    pj_address open = address_of("127.0.0.1", port), shut = address_of("127.0.0.1", closed),
               v6 = address_of("::1", closed);
    struct addrinfo last = entry(&open, NULL), middle = entry(&shut, &last),
                    first = entry(&v6, &middle);
    (void)state;
    assert_ptr_equal(pj_address_choose(&first), &last);
    middle.ai_next = NULL; /* nowhere: the first of IPv4 */
    assert_ptr_equal(pj_address_choose(&first), &middle);
    first.ai_next = NULL;
    assert_ptr_equal(pj_address_choose(&first), &first);
    close(fd);
}

static void this_machine(void **state)
{
    static const struct {
        const char *text;
        bool here;
    } cases[] = {{"127.0.0.1", true},
                 {"127.9.9.9", true},
                 {"0.0.0.0", true},
                 {"::1", true},
                 {"::", true},
                 {"::ffff:127.0.0.1", true},
                 {"::ffff:192.0.2.77", false},
                 {"203.0.113.9", false},
                 {"2001:db8::9", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_address a = address_of(cases[i].text, 80);
        if (pj_address_is_here(&a) != cases[i].here) fail_msg("%s", cases[i].text);
    }
    /* The address that a socket of ours has towards elsewhere (nothing is sent). */
    pj_address far = address_of("203.0.113.9", 9), own = {.bytes = sizeof own.storage};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(fd, (struct sockaddr *)&far.storage, far.bytes) == 0 &&
        getsockname(fd, (struct sockaddr *)&own.storage, &own.bytes) == 0)
        assert_true(pj_address_is_here(&own));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_something_listens),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
