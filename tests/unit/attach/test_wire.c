/* HTTP heads, bodies and addresses: what is parsed, and what is rejected as ambiguous (request
 * smuggling). */
#include "attach/url.h"
#include "attach/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static pj_wire_verdict request(const char *text, pj_wire_head *head)
{
    return pj_wire_parse(text, strlen(text), true, head, NULL);
}

static pj_wire_verdict response(const char *text, pj_wire_head *head)
{
    return pj_wire_parse(text, strlen(text), false, head, NULL);
}

static void test_heads(void **state)
{
    pj_wire_head h;
    (void)state;
    assert_int_equal(
        request("POST /v1/completions HTTP/1.1\r\nHost: a\r\ncontent-LENGTH:  12 \r\n\r\nxx", &h),
        PJ_WIRE_COMPLETE);
    assert_string_equal(h.method, "POST");
    assert_string_equal(h.target, "/v1/completions");
    assert_int_equal(h.body, PJ_BODY_LENGTH);
    assert_int_equal(h.length, 12);
    assert_true(h.keep_alive);
    assert_int_equal(response("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", &h),
                     PJ_WIRE_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_CHUNKED);
    assert_int_equal(response("HTTP/1.0 200\r\nServer: x\r\n\r\n", &h), PJ_WIRE_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_UNTIL_CLOSE);
    assert_false(h.keep_alive);
    assert_int_equal(response("HTTP/1.1 204 No Content\r\n\r\n", &h), PJ_WIRE_COMPLETE);
    assert_int_equal(h.body, PJ_BODY_NONE);
    assert_int_equal(request("GET / HTTP/1.1\r\nHost: a\r\n", &h), PJ_WIRE_INCOMPLETE);
    assert_int_equal(request("GET / HTTP/1.1\r\nConnection: Keep-Alive, close\r\n\r\n", &h),
                     PJ_WIRE_COMPLETE);
    assert_false(h.keep_alive);
}

static void test_ambiguous_heads(void **state)
{
    static const char *const bad[] = {
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\n",
        "POST / HTTP/1.1\r\n folded: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\rb\r\n\r\n",
        "POST / HTTP/1.1\r\nnocolon\r\n\r\n",
        "POST / HTTP/1.1\n\n",
        "POST  / HTTP/1.1\r\n\r\n",
        "POST / HTTP/2.0\r\n\r\n",
        "POST /\r\n\r\n",
        "\r\n\r\n",
    };
    pj_wire_head h;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (request(bad[i], &h) != PJ_WIRE_BAD) fail_msg("let in: %s", bad[i]);
    assert_int_equal(pj_wire_parse("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24, true, &h, NULL),
                     PJ_WIRE_BAD);
    char endless[PJ_WIRE_HEAD_MAX_BYTES];
    memset(endless, 'a', sizeof endless);
    assert_int_equal(pj_wire_parse(endless, sizeof endless, true, &h, NULL), PJ_WIRE_BAD);
}

static void test_fields(void **state)
{
    const char head[] = "GET / HTTP/1.1\r\nA: 1\r\nTE: trailers;q=0.5, deflate\r\na: 2\r\n\r\n";
    size_t n, count = 0;
    pj_wire_line line;
    (void)state;
    const char *value = pj_wire_field(head, sizeof head - 1, "a", &n);
    assert_memory_equal(value, "1", n);
    value = pj_wire_field(head, sizeof head - 1, "te", &n);
    assert_true(pj_wire_has_token(value, n, "Trailers"));
    assert_false(pj_wire_has_token(value, n, "trailer"));
    assert_null(pj_wire_field(head, sizeof head - 1, "b", &n));
    for (size_t at = 0; pj_wire_next_field(head, sizeof head - 1, &at, &line);) count++;
    assert_int_equal(count, 3);
}

/* Payload and completeness of the body, however it is split. */
static void check_body(pj_body_kind kind, const char *raw, const char *payload, bool done)
{
    for (size_t cut = 1; cut <= strlen(raw); cut++) {
        pj_wire_body body;
        char got[256];
        size_t n = 0;
        bool broken = false;
        pj_wire_body_begin(&body, kind, kind == PJ_BODY_LENGTH ? strlen(payload) : 0);
        for (size_t at = 0; at < strlen(raw) && !body.done && !broken;) {
            size_t left = strlen(raw) - at, count = left < cut ? left : cut;
            pj_wire_part part = pj_wire_body_next(&body, raw + at, count);
            assert_true(part.kind == PJ_WIRE_BROKEN || part.bytes > 0);
            if (part.kind == PJ_WIRE_DATA) memcpy(got + n, raw + at, part.bytes), n += part.bytes;
            broken = part.kind == PJ_WIRE_BROKEN;
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
    assert_int_equal(pj_url_parse("http://127.0.0.1:8080/v1/", &u, &err), PJ_OK);
    assert_string_equal(u.host, "127.0.0.1");
    assert_int_equal(u.port, 8080);
    assert_string_equal(u.prefix, "/v1");
    assert_true(pj_url_is_loopback(&u));
    assert_int_equal(pj_url_parse("localhost:11434", &u, &err), PJ_OK);
    assert_int_equal(u.port, 11434);
    assert_int_equal(pj_url_parse("http://[::1]:9", &u, &err), PJ_OK);
    pj_url_authority(&u, text, sizeof text);
    assert_string_equal(text, "[::1]:9");
    assert_true(pj_url_is_loopback(&u));
    assert_int_equal(pj_url_parse("http://127.evil.example", &u, &err), PJ_OK);
    assert_false(pj_url_is_loopback(&u));
    assert_int_equal(pj_url_parse("https://api.example", &u, &err), PJ_E_UNSUPPORTED);
    static const char *const bad[] = {"",
                                      "http://",
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
        if (pj_url_parse(bad[i], &u, &err) == PJ_OK) fail_msg("let in: %s", bad[i]);
    assert_int_equal(pj_url_parse_listen("0.0.0.0:0", &u, &err), PJ_OK);
    assert_int_equal(pj_url_parse_listen(":8081", &u, &err), PJ_OK);
    assert_string_equal(u.host, "127.0.0.1");
    assert_int_equal(pj_url_parse_listen("host", &u, &err), PJ_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads), cmocka_unit_test(test_ambiguous_heads),
        cmocka_unit_test(test_fields), cmocka_unit_test(test_bodies), cmocka_unit_test(test_urls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
