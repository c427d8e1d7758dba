/* Exchanges with a server that this test plays itself, on the same thread: what arrives in pieces,
 * what breaks off, and which connections are used again. */
#include "../assertions.h"
#include "http/call.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    pj_url url;
    int listener, peer; /* the server's end; -1: none */
    pj_call call;
    char body[256];
    size_t body_bytes, most; /* most: what take_body accepts */
    int heads;
} fixture;

static void take_head(void *context)
{
    fixture *f = context;
    f->heads++;
}

static bool take_body(void *context, const char *bytes, size_t count)
{
    fixture *f = context;
    if (f->body_bytes + count > f->most) return false;
    memcpy(f->body + f->body_bytes, bytes, count);
    f->body_bytes += count;
    return true;
}

static int set_up(void **state)
{
    static fixture made;
    fixture *f = &made;
    *f = (fixture){.peer = -1, .most = sizeof f->body};
    *state = f;
    if (pj_url_parse_listen("127.0.0.1:0", &f->url, NULL) != PJ_OK) return 1;
    if (pj_listen(&f->url, &f->listener, NULL) != PJ_OK) return 1;
    pj_call_init(&f->call, &f->url);
    f->call.context = f;
    f->call.take_head = take_head;
    f->call.take_body = take_body;
    return pj_address_resolve(&f->url, &f->call.address, NULL) != PJ_OK;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pj_call_fini(&f->call);
    if (f->peer >= 0) close(f->peer);
    close(f->listener);
    return 0;
}

static void run_for_ms(fixture *f, int ms)
{
    int64_t until_ns = pj_clock_ns() + ms * PJ_NS_PER_MS;
    while (pj_call_is_running(&f->call) && pj_clock_ns() < until_ns) pj_call_poll(&f->call, 1);
}

/* A request on its way; the server's end has received it. */
static void begin(fixture *f)
{
    char seen[512] = "";
    size_t got = 0;
    f->body_bytes = 0;
    pj_call_write(&f->call, "GET", "/x");
    pj_buffer_text(&f->call.out, "\r\n");
    pj_call_begin(&f->call);
    while (got < f->call.out.length) {
        pj_call_poll(&f->call, 0);
        if (f->peer < 0) f->peer = pj_accept(f->listener);
        ssize_t n = f->peer < 0 ? -1 : recv(f->peer, seen + got, sizeof seen - 1 - got, 0);
        if (n == 0) { /* the call has left this connection for a new one */
            close(f->peer);
            f->peer = -1;
        }
        if (n > 0) got += (size_t)n;
    }
    assert_memory_equal(seen, "GET /x HTTP/1.1\r\nHost: 127.0.0.1:", 33);
}

static void answer(fixture *f, const char *text)
{
    assert_int_equal(send(f->peer, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void hang_up(fixture *f)
{
    close(f->peer);
    f->peer = -1;
}

static void expect_body(const fixture *f, const char *body)
{
    if (f->call.state != PJ_CALL_DONE) fail_msg("%s", f->call.failure);
    assert_int_equal(f->body_bytes, strlen(body));
    assert_memory_equal(f->body, body, f->body_bytes);
}

static void expect_failure(const fixture *f, const char *part)
{
    assert_int_equal(f->call.state, PJ_CALL_FAILED);
    assert_int_equal(f->call.fd, -1);
    if (!strstr(f->call.failure, part)) fail_msg("%s", f->call.failure);
}

static void an_answer_in_single_bytes(void **state)
{
    fixture *f = *state;
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
    begin(f);
    for (size_t i = 0; text[i]; i++) {
        answer(f, (char[]){text[i], 0});
        pj_call_poll(&f->call, 1000);
    }
    expect_body(f, "abcd");
    assert_int_equal(f->heads, 1);
    assert_int_equal(f->call.head.status, 200);
    assert_that(f->call.sent_ns, >, 0);
    assert_that(f->call.heard_ns, >=, f->call.sent_ns);
}

static void a_connection_is_used_again(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        begin(f);
        assert_int_equal(f->call.is_reused, i > 0);
        answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        run_for_ms(f, 5000);
        expect_body(f, "ok");
        assert_that(f->call.fd, >=, 0);
    }
    hang_up(f); /* between two requests: the next one is sent on a new connection */
    begin(f);
    assert_false(f->call.is_reused);
    answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    run_for_ms(f, 5000);
    expect_body(f, "ok");
    assert_int_equal(f->call.fd, -1);
}

/* The server refuses a request without reading all of it: the rest must not become the next. */
static void an_early_answer_ends_the_connection(void **state)
{
    fixture *f = *state;
    static char large[1 << 20];
    memset(large, 'a', sizeof large);
    pj_call_write(&f->call, "POST", "/x");
    pj_buffer_printf(&f->call.out, "Content-Length: %zu\r\n\r\n", 64 * sizeof large);
    for (int i = 0; i < 64; i++) pj_buffer_append(&f->call.out, large, sizeof large);
    pj_call_begin(&f->call);
    while ((f->peer = pj_accept(f->listener)) < 0) pj_call_poll(&f->call, 1);
    answer(f, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
    run_for_ms(f, 5000);
    expect_body(f, "no");
    assert_int_equal(f->call.fd, -1);
}

static void until_the_connection_closes(void **state)
{
    fixture *f = *state;
    begin(f);
    answer(f, "HTTP/1.0 200 OK\r\n\r\nall");
    run_for_ms(f, 20);
    assert_int_equal(f->call.state, PJ_CALL_BODY);
    hang_up(f);
    run_for_ms(f, 5000);
    expect_body(f, "all");
}

static void another_protocol(void **state)
{
    fixture *f = *state;
    begin(f);
    answer(f, "HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05watch");
    run_for_ms(f, 5000);
    assert_int_equal(f->call.state, PJ_CALL_DONE);
    assert_that(f->call.fd, >=, 0);
    size_t rest = f->call.in.length - f->call.head.bytes;
    assert_int_equal(rest, 7);
    assert_memory_equal(f->call.in.data + f->call.head.bytes, "\x81\x05watch", rest);
}

static void what_fails(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *answer, *why;
    } cases[] = {
        {"", "connection closed by 127.0.0.1:"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "broke off"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed chunks"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         "body length is ambiguous"},
        {"SSH-2.0-OpenSSH\r\n", "no HTTP response"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcdefghi", "too large"},
    };
    f->most = 8;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(f);
        answer(f, cases[i].answer);
        hang_up(f);
        run_for_ms(f, 5000);
        expect_failure(f, cases[i].why);
    }
    begin(f);
    assert_false(pj_call_wait(&f->call, pj_clock_ns() + 20 * PJ_NS_PER_MS));
    expect_failure(f, "nothing came from");
    hang_up(f);
    close(f->listener);
    f->listener = -1;
    pj_call_begin(&f->call);
    run_for_ms(f, 5000);
    expect_failure(f, "cannot connect to 127.0.0.1:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_in_single_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_is_used_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_early_answer_ends_the_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(until_the_connection_closes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_protocol, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
