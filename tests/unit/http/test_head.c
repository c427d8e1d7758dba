/* HTTP heads, bodies and addresses: what is parsed, and what is rejected as ambiguous (request
 * smuggling). */
#include "../assertions.h"
#include "http/head.h"
#include "http/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static pj_head_fault fault;

static pj_head_verdict request(const char *text, pj_head *head)
{
    return pj_head_parse(text, strlen(text), true, PJ_HEAD_MAX_BYTES, head, &fault);
}

static pj_head_verdict response(const char *text, pj_head *head)
{
    return pj_head_parse(text, strlen(text), false, PJ_HEAD_MAX_BYTES, head, &fault);
}

static void test_heads(void **state)
{
    pj_head h;
    (void)state;
    assert_int_equal(
        request("POST /v1/completions HTTP/1.1\r\nHost: a\r\ncontent-LENGTH:  12 \r\n\r\nxx", &h),
        PJ_HEAD_COMPLETE);
    assert_string_equal(h.method, "POST");
    assert_int_equal(h.target_bytes, strlen("/v1/completions"));
    assert_memory_equal(h.target, "/v1/completions", h.target_bytes);
    assert_int_equal(h.body, PJ_BODY_LENGTH);
    assert_int_equal(h.length, 12);
    assert_true(h.keep_alive);
    assert_int_equal(response("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", &h),
                     PJ_HEAD_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_CHUNKED);
    assert_int_equal(response("HTTP/1.0 200\r\nServer: x\r\n\r\n", &h), PJ_HEAD_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_UNTIL_CLOSE);
    assert_false(h.keep_alive);
    assert_int_equal(response("HTTP/1.1 204 No Content\r\n\r\n", &h), PJ_HEAD_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_NONE);
    assert_int_equal(request("GET / HTTP/1.1\r\nHost: a\r\n", &h), PJ_HEAD_INCOMPLETE);
    assert_int_equal(request("GET / HTTP/1.1\r\nConnection: Keep-Alive, close\r\n\r\n", &h),
                     PJ_HEAD_COMPLETE);
    assert_false(h.keep_alive);
}

/* Each with the status to refuse it with. */
static void test_ambiguous_heads(void **state)
{
    static const struct {
        int status;
        const char *text;
    } bad[] = {
        {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n"},
        {413, "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
        {400,
         "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n folded: 1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\nContent-Length: 1\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\rb\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nOrigin: a\r\nOrigin: b\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nnocolon\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nA: \x01\r\n\r\n"},
        {400, "POST / HTTP/1.1\n\n"},
        {400, "POST  / HTTP/1.1\r\n\r\n"},
        {400, "P@ST / HTTP/1.1\r\n\r\n"},
        {501, "ANENDLESSMETHODNAME / HTTP/1.1\r\n\r\n"},
        {400, "POST /\x01 HTTP/1.1\r\n\r\n"},
        {505, "POST / HTTP/2.0\r\n\r\n"},
        {400, "POST / HTTQ/1.1\r\n\r\n"},
        {400, "POST /\r\n\r\n"},
        {400, "\r\n\r\n"},
    };
    pj_head h;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (request(bad[i].text, &h) != PJ_HEAD_BAD) fail_msg("let in: %s", bad[i].text);
        if (fault.status != bad[i].status) fail_msg("%d: %s", fault.status, bad[i].text);
        assert_that(strlen(fault.detail), >, 10);
    }
    static const char nul[] = "GET / HTTP/1.1\r\nA: \0\r\n\r\n";
    assert_int_equal(pj_head_parse(nul, sizeof nul - 1, true, 100, &h, &fault), PJ_HEAD_BAD);
}

/* Servers that repeat a length, or speak a later 1.x, are understood. */
static void test_lenient_answers(void **state)
{
    pj_head h;
    (void)state;
    assert_int_equal(
        response("HTTP/1.7 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", &h),
        PJ_HEAD_COMPLETE);
    assert_int_equal(h.minor, 1);
    assert_int_equal(h.length, 1);
    assert_int_equal(
        response("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", &h),
        PJ_HEAD_BAD);
    static const char *const bad[] = {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
                                      "HTTP/1.1 2000 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n",
                                      "\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (response(bad[i], &h) != PJ_HEAD_BAD) fail_msg("let in: %s", bad[i]);
}

static void test_limits_of_heads(void **state)
{
    static char endless[1000];
    pj_head h;
    (void)state;
    memset(endless, 'a', sizeof endless);
    assert_int_equal(pj_head_parse(endless, 999, true, 1000, &h, &fault), PJ_HEAD_INCOMPLETE);
    assert_int_equal(pj_head_parse(endless, 1000, true, 1000, &h, &fault), PJ_HEAD_BAD);
    assert_int_equal(fault.status, 414);
    memcpy(endless, "HEAD / HTTP/1.1\r\nX: ", 20);
    assert_int_equal(pj_head_parse(endless, 1000, true, 1000, &h, &fault), PJ_HEAD_BAD);
    assert_int_equal(fault.status, 431);
    assert_string_equal(h.method, "HEAD");
    memcpy(endless + 996, "\r\n\r\n", 4);
    assert_int_equal(pj_head_parse(endless, 1000, true, 1000, &h, &fault), PJ_HEAD_COMPLETE);
    assert_int_equal(pj_head_parse(endless, 1000, true, 999, &h, &fault), PJ_HEAD_BAD);
}

/* What the server asks a head about. */
static void test_requests(void **state)
{
    pj_head h;
    (void)state;
    assert_int_equal(request("\r\nGET /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n\r\n", &h),
                     PJ_HEAD_COMPLETE);
    assert_true(h.has_host);
    assert_false(h.wrong_expectation);
    assert_int_equal(
        request("GET /a HTTP/1.1\r\nExpect: 100-continue, x\r\nUpgrade: w\r\n\r\n", &h),
        PJ_HEAD_COMPLETE);
    assert_false(h.has_host);
    assert_true(h.wrong_expectation);
    assert_true(h.upgrades);
}

static void test_fields(void **state)
{
    const char head[] = "GET / HTTP/1.1\r\nA: 1\r\nTE: trailers;q=0.5, deflate\r\na: 2\r\n\r\n";
    size_t n, count = 0;
    pj_head_field line;
    (void)state;
    const char *value = pj_head_find(head, sizeof head - 1, "a", &n);
    assert_memory_equal(value, "1", n);
    value = pj_head_find(head, sizeof head - 1, "te", &n);
    assert_true(pj_field_has(value, n, "Trailers"));
    assert_false(pj_field_has(value, n, "trailer"));
    assert_null(pj_head_find(head, sizeof head - 1, "b", &n));
    for (size_t at = 0; pj_head_next(head, sizeof head - 1, &at, &line);) count++;
    assert_int_equal(count, 3);
    static const char late[] = "\r\nGET / HTTP/1.1\r\nA: 1\r\n\r\n"; /* an empty line before */
    assert_non_null(pj_head_find(late, sizeof late - 1, "a", &n));
    assert_null(pj_head_find(late, sizeof late - 1, "GET / HTTP/1.1", &n));
}

/* Payload and completeness of the body, however it is split. */
static void check_body(pj_body_kind kind, const char *raw, const char *payload, bool done)
{
    for (size_t cut = 1; cut <= strlen(raw); cut++) {
        pj_body body;
        char got[256];
        size_t n = 0;
        bool broken = false;
        pj_body_begin(&body, kind, kind == PJ_BODY_LENGTH ? strlen(payload) : 0);
        for (size_t at = 0; at < strlen(raw) && !body.done && !broken;) {
            size_t left = strlen(raw) - at, count = left < cut ? left : cut;
            pj_body_part part = pj_body_next(&body, raw + at, count);
            assert_true(part.kind == PJ_PART_BROKEN || part.bytes > 0);
            if (part.kind == PJ_PART_DATA) memcpy(got + n, raw + at, part.bytes), n += part.bytes;
            broken = part.kind == PJ_PART_BROKEN;
            at += part.bytes;
        }
        assert_int_equal(body.done, done);
        assert_int_equal(broken, !done);
        if (done) assert_int_equal(n, strlen(payload));
        if (done) assert_memory_equal(got, payload, n);
    }
}

static void test_bodies(void **state)
{
    (void)state;
    check_body(PJ_BODY_CHUNKED, "3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\n\r\n", "abc0123456789",
               true);
    check_body(PJ_BODY_CHUNKED, "1\r\na\r\n000\r\nTrailer: 1\r\nB: 2\r\n\r\n", "a", true);
    check_body(PJ_BODY_LENGTH, "abcdef", "abcdef", true);
    check_body(PJ_BODY_CHUNKED, "g\r\n", "", false);
    check_body(PJ_BODY_CHUNKED, "\r\n", "", false);
    check_body(PJ_BODY_CHUNKED, "2\r\nabc\r\n", "", false);
    check_body(PJ_BODY_CHUNKED, "1\nab", "", false);
    check_body(PJ_BODY_CHUNKED, "ffffffffffffffff\r\n", "", false);
}

static void test_urls(void **state)
{
    pj_url u;
    pj_error err;
    char text[300];
    (void)state;
    assert_int_equal(pj_url_parse("http://127.0.0.1:8080/v1/", PJ_URL_HTTP_PORT, &u, &err), PJ_OK);
    assert_string_equal(u.host, "127.0.0.1");
    assert_int_equal(u.port, 8080);
    assert_string_equal(u.prefix, "/v1");
    assert_true(pj_host_is_loopback(u.host));
    assert_int_equal(pj_url_parse("localhost:11434", PJ_URL_HTTP_PORT, &u, &err), PJ_OK);
    assert_int_equal(u.port, 11434);
    assert_int_equal(pj_url_parse("http://[::1]:9", PJ_URL_HTTP_PORT, &u, &err), PJ_OK);
    pj_url_authority(&u, text, sizeof text);
    assert_string_equal(text, "[::1]:9");
    assert_true(pj_host_is_loopback(u.host));
    assert_int_equal(pj_url_parse("http://127.evil.example", PJ_URL_HTTP_PORT, &u, &err), PJ_OK);
    assert_false(pj_host_is_loopback(u.host));
    assert_int_equal(pj_url_parse("https://api.example", PJ_URL_HTTP_PORT, &u, &err),
                     PJ_E_UNSUPPORTED);
    assert_int_equal(pj_url_parse("lab", 8000, &u, &err), PJ_OK);
    assert_int_equal(u.port, 8000);
    assert_int_equal(pj_url_parse("http://lab:/", 8000, &u, &err), PJ_OK);
    assert_int_equal(u.port, 8000);
    static const char *const bad[] = {"",
                                      "http://",
                                      "http://[::1",
                                      "http://[::1]9",
                                      "http://[lab]:9",
                                      "http://a:1:1",
                                      "http://:80",
                                      "http://a:b",
                                      "ftp://a",
                                      "http://a:70000",
                                      "http://a b",
                                      "http://u@h",
                                      "http://a/?q",
                                      "http://a/\r\nX: y",
                                      "http://a:0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pj_url_parse(bad[i], PJ_URL_HTTP_PORT, &u, &err) == PJ_OK)
            fail_msg("let in: %s", bad[i]);
    assert_int_equal(pj_url_parse_listen("0.0.0.0:0", &u, &err), PJ_OK);
    assert_int_equal(pj_url_parse_listen(":8081", &u, &err), PJ_OK);
    assert_string_equal(u.host, "127.0.0.1");
    static const char *const nowhere[] = {"host", "host:", ":", ":x", ":70000"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        if (pj_url_parse_listen(nowhere[i], &u, &err) == PJ_OK) fail_msg("let in: %s", nowhere[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),           cmocka_unit_test(test_ambiguous_heads),
        cmocka_unit_test(test_lenient_answers), cmocka_unit_test(test_limits_of_heads),
        cmocka_unit_test(test_requests),        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_bodies),          cmocka_unit_test(test_urls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
