/* Events that are recognised without parsing must mean what parsing says they mean. */
#include "attach/answer_template.h"
#include "attach/exchange.h"
#include "attach/usage_spot.h"
#include "base/memory.h"
#include "replayed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool match(const pj_answer_template *t, const char *event, char *text)
{
    const char *found;
    size_t bytes;
    if (!pj_answer_template_match(t, event, strlen(event), &found, &bytes)) return false;
    memcpy(text, found, bytes);
    text[bytes] = 0;
    return true;
}

static void learn(pj_answer_template *t, const char *event, const char *text)
{
    pj_answer_template_learn(t, event, strlen(event), text, strlen(text), 0, false);
}

static void test_match(void **state)
{
    pj_answer_template t;
    char text[64];
    (void)state;
    pj_answer_template_init(&t);
    assert_false(match(&t, "{\"m\":1,\"text\":\"a\",\"i\":0}", text));
    learn(&t, "{\"m\":1,\"text\":\"a\",\"i\":0}", "a");
    assert_true(match(&t, "{\"m\":1,\"text\":\" longer, \xc3\xa9\",\"i\":0}", text));
    assert_string_equal(text, " longer, \xc3\xa9");
    assert_true(match(&t, "{\"m\":1,\"text\":\"\",\"i\":0}", text));
    assert_string_equal(text, "");
    static const char *const others[] = {"{\"m\":2,\"text\":\"b\",\"i\":0}",
                                         "{\"m\":1,\"text\":\"b\",\"i\":1}",
                                         "{\"m\":1,\"text\":\"b\\n\",\"i\":0}",
                                         "{\"m\":1,\"text\":\"b\",\"text\":\"c\",\"i\":0}",
                                         "{\"m\":1,\"text\":\"b\xc3\",\"i\":0}",
                                         "{\"m\":1,\"text\":\"b\x01\",\"i\":0}",
                                         "{\"m\":1,\"text\":\"\",\"i\":0",
                                         "{\"m\":1,\"text\":\",\"i\":0}",
                                         ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(match(&t, others[i], text));
    pj_answer_template_forget(&t);
    assert_false(match(&t, "{\"m\":1,\"text\":\"a\",\"i\":0}", text));
    pj_answer_template_fini(&t);
}

static void test_ambiguous(void **state)
{
    pj_answer_template t;
    char text[64];
    (void)state;
    pj_answer_template_init(&t);
    learn(&t, "{\"model\":\"m\",\"text\":\"m\"}", "m"); /* which one is it? */
    assert_false(match(&t, "{\"model\":\"q\",\"text\":\"m\"}", text));
    learn(&t, "{\"model\":\"m\",\"text\":\"\\u006d\"}", "m"); /* written differently */
    assert_false(match(&t, "{\"model\":\"q\",\"text\":\"\\u006d\"}", text));
    learn(&t, "{\"text\":\"text\"}", "text"); /* a key */
    assert_false(match(&t, "{\"q\":\"text\"}", text));
    learn(&t, "{}", "");
    assert_false(match(&t, "{}", text));
    pj_answer_template_fini(&t);
}

/* A stream in which every event differs from the one before in a way that matters. */
static void test_stream(void **state)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    static const char *const events[] = {
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\n\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"c\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"}}]}",
        "{\"model\":\"n\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"d\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"e\"}}]}",
        "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"model\"}}]}",
        ("{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"f\"}}],"
         "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}")};
    replayed r;
    size_t count;
    (void)state;
    replay_begin(&r, "/v1/chat/completions", "{}");
    replay_feed(&r, head, strlen(head), 1);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        char event[512];
        int n = snprintf(event, sizeof event, "data: %s\n\n", events[i]);
        replay_feed(&r, event, (size_t)n, (int64_t)(i + 2));
    }
    replay_end(&r, 100);
    assert_string_equal(pj_exchange_text(r.exchange), "ab\nc\xef\xbf\xbd"
                                                      "demodelf");
    assert_int_equal(r.exchange->answer.events, 10);
    assert_int_equal(r.exchange->answer.malformed, 0);
    assert_string_equal(r.exchange->answer.model, "m");
    pj_exchange_token *tokens = pj_exchange_tokens(r.exchange, &count);
    assert_int_equal(count, 9);
    assert_int_equal(tokens[1].at_ns, 3);
    pj_free(tokens);
    assert_int_equal(pj_exchange_count(r.exchange).input, 3);
    replay_fini(&r);
}

/* Chunks of whole events are skipped unless they hold the key; the state stays right. */
static void test_spot(void **state)
{
    static const char plain[] = "data: {\"choices\":[{\"text\":\"}\"}]}\n\n";
    static const char with[] = "data: {\"choices\":[],\"usage\":{\"a\":1}}\n\n";
    static const char open[] = "data: {\"choices\":[],\n\n"; /* ends with its blank line */
    pj_usage_spot spot;
    (void)state;
    pj_usage_spot_init(&spot, PJ_EVENTS_SSE);
    assert_int_equal(pj_usage_spot_find(&spot, plain, strlen(plain)), -1);
    assert_int_equal(pj_usage_spot_find(&spot, open, strlen(open)), -1);
    assert_int_equal(pj_usage_spot_find(&spot, with, strlen(with)), strlen(with) - 4);
    pj_usage_spot_init(&spot, PJ_EVENTS_SSE);
    for (size_t cut = 1; cut < strlen(with) - 4; cut++) { /* begins in the middle of an event */
        assert_int_equal(pj_usage_spot_find(&spot, with, cut), -1);
        long found = pj_usage_spot_find(&spot, with + cut, strlen(with) - cut);
        assert_int_equal(found, strlen(with) - 4 - cut);
        size_t after = cut + (size_t)found + 1;
        assert_int_equal(pj_usage_spot_find(&spot, with + after, strlen(with) - after), -1);
        assert_int_equal(pj_usage_spot_find(&spot, plain, strlen(plain)), -1);
    }
    pj_usage_spot_init(&spot, PJ_EVENTS_LINES);
    assert_int_equal(pj_usage_spot_find(&spot, "{\"a\":\"b\"}\n", 10), -1);
    assert_int_equal(pj_usage_spot_find(&spot, "{\"usage\":{}}\n", 13), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_match),
                                       cmocka_unit_test(test_ambiguous),
                                       cmocka_unit_test(test_stream), cmocka_unit_test(test_spot)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
