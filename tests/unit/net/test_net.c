/* The server's pure parts: addresses, names, tokens, bodies, encodings, the handshake, the ring. */
#include "../assertions.h"
#include "base/clock.h"
#include "net/gate.h"
#include "net/handshake.h"
#include "net/page.h"
#include "net/ring.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- addresses ----------------------------------------------------------------------------- */

static pj_status parse(const char *raw, pj_target *target, pj_arena *arena)
{
    pj_arena_init(arena, 1 << 20);
    return pj_target_parse(raw, target, arena, NULL);
}

static void addresses_are_decoded(void **state)
{
    pj_target t;
    pj_arena arena;
    assert_int_equal(parse("/a%2fb?x=1+2%20%C3%A9&flag&y=&&z=%26", &t, &arena), PJ_OK);
    assert_string_equal(t.path, "/a/b");
    assert_int_equal(t.params.count, 4);
    assert_string_equal(pj_params_text(&t.params, "x"), "1 2 \xc3\xa9");
    assert_string_equal(pj_params_text(&t.params, "flag"), "");
    assert_null(t.authority);
    assert_string_equal(pj_params_text(&t.params, "z"), "&");
    assert_null(pj_params_text(&t.params, "w"));
    pj_arena_fini(&arena);
    /* Percent-encoding of names in paths: an experiment may be called "batch größe 1+2". */
    assert_int_equal(parse("/x/batch%20gr%C3%B6%C3%9Fe%201+2", &t, &arena), PJ_OK);
    assert_string_equal(t.path, "/x/batch gr\xc3\xb6\xc3\x9f"
                                "e 1+2");
    pj_arena_fini(&arena);
}

/* RFC 9112, 3.2.2: a server accepts the absolute form, and its authority replaces Host. */
static void absolute_addresses_are_taken_apart(void **state)
{
    pj_target t;
    pj_arena arena;
    assert_int_equal(parse("HTTP://localhost:8000/a?b=c", &t, &arena), PJ_OK);
    assert_string_equal(t.authority, "localhost:8000");
    assert_string_equal(t.path, "/a");
    assert_string_equal(pj_params_text(&t.params, "b"), "c");
    pj_arena_fini(&arena);
    assert_int_equal(parse("http://evil.example?b=c", &t, &arena), PJ_OK);
    assert_string_equal(t.authority, "evil.example");
    assert_string_equal(t.path, "/");
    pj_arena_fini(&arena);
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const bad[] = {
        "",      "a",    "*",    "/%",   "/%a",     "/%zz",   "/%00",     "/a b",    "/\x7f",
        "/\xc3", "/%01", "/%7f", "/%C3", "/?a=%00", "/?%ff=", "/?a=%1b[", "/?a=%C3", "ftp://x/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_target t;
        pj_arena arena;
        assert_int_equal(parse(bad[i], &t, &arena), PJ_E_INVALID);
        pj_arena_fini(&arena);
    }
}

static pj_status check(const char *raw, const pj_param_rule *rules, pj_error *err)
{
    pj_target t;
    pj_arena arena;
    assert_int_equal(parse(raw, &t, &arena), PJ_OK);
    pj_status status = pj_params_check(&t.params, rules, err);
    pj_arena_fini(&arena);
    return status;
}

static void parameters_keep_their_rules(void **state)
{
    static const pj_param_rule rules[] = {{"limit", PJ_PARAM_INT, 1, 100},
                                          {"from", PJ_PARAM_TIME},
                                          {"sort", PJ_PARAM_CHOICE, 0, 0, "date|energy"},
                                          {"ratio", PJ_PARAM_NUMBER},
                                          {"tag", PJ_PARAM_TEXT, 0, 0, NULL, true},
                                          {0}};
    static const char *const good[] = {"/?limit=1",         "/?limit=100&tag=a&tag=b",
                                       "/?sort=energy",     "/?ratio=-1.5e3",
                                       "/?from=2026-01-31", "/?from=2026-01-31T12:00:00%2B00:00"};
    static const char *const bad[][2] = {{"/?limit=0", "limit"},
                                         {"/?limit=101", "limit"},
                                         {"/?limit=", "limit"},
                                         {"/?limit=1x", "limit"},
                                         {"/?limit=99999999999999999999", "limit"},
                                         {"/?limit=%201", "limit"},
                                         {"/?sort=dat", "sort"},
                                         {"/?sort=", "sort"},
                                         {"/?ratio=nan", "ratio"},
                                         {"/?ratio=inf", "ratio"},
                                         {"/?ratio=0x10", "ratio"},
                                         {"/?from=monday", "from"},
                                         {"/?limt=5", "limit"},
                                         {"/?limit=5&limit=5", "twice"},
                                         {"/?utterly_other=5", "utterly_other"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(check(good[i], rules, NULL), PJ_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_error err = {0};
        assert_int_equal(check(bad[i][0], rules, &err), PJ_E_INVALID);
        assert_non_null(strstr(err.text, bad[i][1]));
    }
    assert_int_equal(check("/?a=b", NULL, NULL), PJ_E_INVALID);
}

/* ---- access ------------------------------------------------------------------------------ */

static void hosts_are_names_of_this_machine(void **state)
{
    static const char *const extra[] = {"box.example", NULL};
    pj_gate home = {.loopback = true, .host = "127.0.0.1"};
    pj_gate open = {.host = "0.0.0.0", .extra_hosts = extra};
    assert_true(pj_gate_host(&home, "localhost"));
    assert_true(pj_gate_host(&home, "LocalHost:8000"));
    assert_true(pj_gate_host(&home, "127.0.0.1:8000"));
    assert_true(pj_gate_host(&home, "127.1.2.3"));
    assert_true(pj_gate_host(&home, "[::1]:8000"));
    static const char *const strangers[] = {
        "evil.example", "localhost.evil.example", "192.168.1.5",  "[2001:db8::1]", "localhost:",
        "localhost:x",  "localhost:123456",       "[::1",         "[::1]x",        "",
        ":8000",        "localhost:80:80",        "[localhost]:1"};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        bool empty_port = strcmp(strangers[i], "localhost:") == 0;
        assert_int_equal(pj_gate_host(&home, strangers[i]), empty_port);
    }
    assert_false(pj_gate_host(&home, NULL));
    assert_true(pj_gate_host(&open, "192.168.1.5:8000"));
    assert_true(pj_gate_host(&open, "box.example:8000"));
    assert_false(pj_gate_host(&open, "other.example"));
}

static void origins_are_our_own_pages(void **state)
{
    static const char *const extra[] = {"http://localhost:5173", NULL};
    pj_gate gate = {.loopback = true, .host = "127.0.0.1", .extra_origins = extra};
    assert_true(pj_gate_origin(&gate, "http://localhost:8000", "localhost:8000"));
    assert_true(pj_gate_origin(&gate, "https://localhost:8000", "localhost:8000"));
    assert_true(pj_gate_origin(&gate, "http://localhost:5173", "localhost:8000"));
    assert_false(pj_gate_origin(&gate, "http://localhost:8001", "localhost:8000"));
    assert_false(pj_gate_origin(&gate, "http://evil.example", "localhost:8000"));
    assert_false(pj_gate_origin(&gate, "null", "localhost:8000"));
    assert_false(pj_gate_origin(&gate, "localhost:8000", "localhost:8000"));
    assert_false(pj_gate_origin(&gate, "http://localhost:8000", NULL));
}

static void tokens_are_compared_whole(void **state)
{
    pj_gate gate = {.host = "0.0.0.0", .token = "secret"}, none = {.host = "127.0.0.1"};
    assert_true(pj_gate_token(&gate, "Bearer secret", NULL));
    assert_true(pj_gate_token(&gate, "bearer secret", NULL));
    assert_true(pj_gate_token(&gate, NULL, "secret"));
    static const char *const wrong[] = {"Bearer ",
                                        "Bearer secre",
                                        "Bearer secretx",
                                        "Bearer secretsecret",
                                        "secret",
                                        "Basic secret",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(pj_gate_token(&gate, wrong[i], NULL));
    assert_false(pj_gate_token(&gate, NULL, NULL));
    assert_false(pj_gate_token(&gate, NULL, ""));
    assert_true(pj_gate_token(&none, NULL, NULL));
}

/* ---- pages --------------------------------------------------------------------------------- */

static void encodings_are_those_that_were_offered(void **state)
{
    static const unsigned char bytes[1] = {0};
    pj_asset all = {.identity = {bytes, 1}, .gzip = {bytes, 1}, .brotli = {bytes, 1}};
    pj_asset plain = {.identity = {bytes, 1}},
             zipped = {.identity = {bytes, 1}, .gzip = {bytes, 1}};
    static const struct {
        const char *accept;
        char want;
    } cases[] = {{NULL, 'i'},
                 {"", 'i'},
                 {"gzip", 'g'},
                 {"gzip, deflate, br", 'b'},
                 {"br;q=0, gzip", 'g'},
                 {"br;q=0.5, gzip;q=0.9", 'g'},
                 {"*", 'b'},
                 {"*;q=0", 'i'},
                 {"gzip;q=0, *", 'b'},
                 {"identity, gzip;q=0", 'i'},
                 {"GZIP ; q=1", 'g'},
                 {"brotli", 'i'},
                 {";;;,,q=,", 'i'}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pj_page_encoding(&all, cases[i].accept), cases[i].want);
    assert_int_equal(pj_page_encoding(&plain, "br, gzip"), 'i');
    assert_int_equal(pj_page_encoding(&zipped, "br, gzip;q=0.1"), 'g');
}

static void tags_match_whole(void **state)
{
    assert_true(pj_page_tag_matches("\"a\", \"b-br\"", "\"b-br\""));
    assert_true(pj_page_tag_matches("W/\"b\"", "\"b\""));
    assert_true(pj_page_tag_matches("*", "\"b\""));
    assert_false(pj_page_tag_matches("\"b-br\"", "\"b\""));
    assert_false(pj_page_tag_matches(NULL, "\"b\""));
    assert_false(pj_page_tag_matches("", "\"b\""));
}

/* ---- the handshake ------------------------------------------------------------------------- */

static void sha1_is_sha1(void **state)
{
    static const struct {
        const char *text;
        unsigned char first[4];
    } known[] = {{"", {0xda, 0x39, 0xa3, 0xee}}, {"abc", {0xa9, 0x99, 0x3e, 0x36}}};
    unsigned char digest[20], million[20] = {0x34, 0xaa, 0x97, 0x3c};
    for (int i = 0; i < 2; i++) {
        pj_sha1(known[i].text, strlen(known[i].text), digest);
        assert_memory_equal(digest, known[i].first, 4);
    }
    char *as = malloc(1000000);
    memset(as, 'a', 1000000);
    pj_sha1(as, 1000000, digest);
    assert_memory_equal(digest, million, 4);
    free(as);
}

static void accept_keys_are_those_of_the_standard(void **state)
{
    char accept[PJ_ACCEPT_BYTES];
    assert_true(pj_handshake_accept("dGhlIHNhbXBsZSBub25jZQ==", accept));
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_false(pj_handshake_accept(NULL, accept));
    assert_false(pj_handshake_accept("", accept));
    assert_false(pj_handshake_accept("dGhlIHNhbXBsZSBub25jZQ=", accept));
    assert_false(
        pj_handshake_accept("dGhlIHNhbXBsZSBub25jZR==", accept)); /* bits beyond 16 bytes */
    assert_false(pj_handshake_accept("dGhlIHNhbXBsZSBub25j!Q==", accept));
}

/* ---- messages ------------------------------------------------------------------------------ */

static pj_message *make(uint64_t number, bool state, size_t bytes)
{
    char *text = malloc(bytes + 2);
    memset(text, ' ', bytes + 2);
    text[0] = '{';
    text[bytes + 1] = '}';
    pj_publication p = {
        .run_id = "r", .audience = PJ_FOR_ALL, .state = state, .bytes = text, .count = bytes + 2};
    pj_message *message = pj_message_new(&p, number);
    free(text);
    return message;
}

static void frames_have_the_shortest_head(void **state)
{
    unsigned char head[PJ_FRAME_HEAD_MAX];
    assert_int_equal(pj_frame_head(head, false, 125), 2);
    assert_int_equal(head[0] << 8 | head[1], 0x817d);
    assert_int_equal(pj_frame_head(head, true, 126), 4);
    assert_int_equal((unsigned)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3], 0x827e007eu);
    assert_int_equal(pj_frame_head(head, true, 65536), 10);
    assert_int_equal(head[7], 1);
    pj_publication p = {.bytes = "{\"a\":1}", .count = 7, .audience = PJ_FOR_ALL};
    pj_message *m = pj_message_new(&p, 42);
    assert_int_equal(m->bytes - m->head_bytes, strlen("{\"seq\":42,\"a\":1}"));
    assert_memory_equal(m->frame + m->head_bytes, "{\"seq\":42,\"a\":1}", m->bytes - m->head_bytes);
    pj_message_unref(m);
}

static void the_ring_lets_states_go_first(void **state)
{
    pj_message_ring ring;
    assert_int_equal(pj_message_ring_init(&ring, 100, 5000, NULL), PJ_OK);
    for (uint64_t n = 1; n <= 40; n++) pj_message_ring_put(&ring, make(n, n % 2, 200));
    assert_that(ring.bytes, <=, 5000);
    assert_int_equal(ring.head, 41);
    assert_int_equal(ring.tail, 1);
    int states = 0;
    for (uint64_t n = ring.tail; n < ring.head; n++) {
        bool kept = pj_message_ring_at(&ring, n)->message != NULL;
        if (n % 2 == 0) assert_true(kept); /* all events fit once nearly all states are dropped */
        states += n % 2 && kept;
    }
    assert_that(states, <, 4);
    for (uint64_t n = 41; n <= 80; n++) pj_message_ring_put(&ring, make(n, false, 200));
    assert_that(ring.bytes, <=, 5000);
    assert_that(ring.tail, >, 50);
    pj_message_ring_fini(&ring);
}

static void the_ring_is_bounded_in_messages(void **state)
{
    pj_message_ring ring;
    assert_int_equal(pj_message_ring_init(&ring, 64, 1 << 20, NULL), PJ_OK);
    for (uint64_t n = 1; n <= 1000; n++)
        if (n % 10) pj_message_ring_put(&ring, make(n, false, 10)); /* a tenth is missing */
    assert_int_equal(ring.head, 1000);
    assert_int_equal(ring.head - ring.tail, 64);
    assert_null(pj_message_ring_at(&ring, 990)->message);
    assert_int_equal(pj_message_ring_at(&ring, 990)->audience, PJ_FOR_ALL);
    pj_message_ring_put(&ring, make(1000000, false, 10)); /* and a long run of them */
    assert_int_equal(ring.head, 1000001);
    assert_that(ring.head - ring.tail, <=, 65);
    pj_message_ring_fini(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_decoded),
        cmocka_unit_test(absolute_addresses_are_taken_apart),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(parameters_keep_their_rules),
        cmocka_unit_test(hosts_are_names_of_this_machine),
        cmocka_unit_test(origins_are_our_own_pages),
        cmocka_unit_test(tokens_are_compared_whole),
        cmocka_unit_test(encodings_are_those_that_were_offered),
        cmocka_unit_test(tags_match_whole),
        cmocka_unit_test(sha1_is_sha1),
        cmocka_unit_test(accept_keys_are_those_of_the_standard),
        cmocka_unit_test(frames_have_the_shortest_head),
        cmocka_unit_test(the_ring_lets_states_go_first),
        cmocka_unit_test(the_ring_is_bounded_in_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
