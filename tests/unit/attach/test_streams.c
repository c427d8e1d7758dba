/*
 * Responses of servers, handwritten from their published documentation: each is replayed whole and
 * split at every byte, and must give the same tokens, counts and text.
 */
#include "../assertions.h"
#include "replayed.h"

#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SSE         "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
#define JSON        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
#define LINES       "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
#define DELTA(text) "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"}}]}\n\n"

typedef struct answer_case {
    const char *name, *path, *request, *bytes;
    const char *text;
    int64_t input, cached;
    uint64_t output, tokens; /* total; as rows */
    bool approximate, spread, contradictory;
    pj_exchange_outcome outcome;
    const char *failure;
} answer_case;

#define CHAT "/v1/chat/completions"

static const answer_case cases[] = {
    {"a role alone is no token, and usage comes with empty choices", CHAT, "{}",
     SSE
     "data: "
     "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n" DELTA(
         "Hel")
         DELTA("lo") "data: "
                     "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],"
                     "\"usage\":null}\n\n"
                     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
                     "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
                     "data: [DONE]\n\n",
     "Hello", 7, 4, 2, 2, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"no usage at all: chunks are counted, and it is said", CHAT, "{}", SSE DELTA("a") DELTA("b"),
     "ab", -1, -1, 2, 2, true, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"comments, CR LF, CR, several data lines and a last event without its end", CHAT, "{}",
     SSE
     ": ping\r\n\r\nevent: x\r\ndata: {\"choices\":[{\"index\":0,\r\n"
     "data: \"delta\":{\"content\":\"a\"}}]}\r\n\r\n"
     ":\r\rid: 3\rretry: 9\rdata:{\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\r"
     "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}],\"usage\":{\"completion_tokens\":3}}",
     "abc", -1, -1, 3, 3, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"several tokens to a chunk, as the sum in the end tells", CHAT, "{}",
     SSE DELTA("one two") DELTA(
         " three four") "data: "
                        "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],"
                        "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}"
                        "}\n\n",
     "one two three four", 3, -1, 4, 4, false, true, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"vLLM with usage on every chunk: one of them holds three tokens", "/v1/completions", "{}",
     SSE "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n"
         "data: {\"choices\":[{\"index\":0,\"text\":\"bcd\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}}\n\n"
         "data: {\"choices\":[{\"index\":0,\"text\":\"\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":5}}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":5}}\n\n"
         "data: [DONE]\n\n",
     "abcd", 5, -1, 5, 5, false, true, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"token ids count, and usage that says less contradicts", "/v1/completions", "{}",
     SSE "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"token_ids\":[5]}]}\n\n"
         "data: {\"choices\":[{\"index\":0,\"text\":\"bc\",\"token_ids\":[6,7]}]}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\n",
     "abc", 2, -1, 3, 3, false, true, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"a usage beyond reason is not believed", "/v1/completions", "{\"max_tokens\":4}",
     SSE
     "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":90000000}}\n\n",
     "a", 2, -1, 1, 1, true, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"nor one that there was no time for", CHAT, "{}",
     SSE DELTA("fifteen") DELTA(" letters") "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,"
                                            "\"completion_tokens\":500000}}\n\n",
     "fifteen letters", 2, -1, 2, 2, true, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"nor such a running count", "/v1/completions", "{}",
     SSE "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n"
         "data: {\"choices\":[{\"index\":0,\"text\":\"b\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":500000}}\n\n"
         "data: {\"choices\":[{\"index\":0,\"text\":\"c\"}],"
         "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":500001}}\n\n",
     "abc", 5, -1, 3, 3, true, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"nor a prompt that there was no time for", CHAT, "{}",
     SSE DELTA("a") "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":90000000,"
                    "\"completion_tokens\":1}}\n\n",
     "a", -1, -1, 1, 1, false, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"a sum that is none", CHAT, "{}",
     SSE DELTA("a") "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,"
                    "\"total_tokens\":9}}\n\n",
     "a", 3, -1, 1, 1, false, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"negative and huge counts, more cached than there are", "/v1/completions", "{}",
     SSE "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}],\"usage\":{\"completion_tokens\":-3,"
         "\"prompt_tokens\":1e300}}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"prompt_tokens_details\":"
         "{\"cached_tokens\":3}}}\n\n",
     "a", 2, -1, 1, 1, true, false, true, PJ_EXCHANGE_COMPLETED, NULL},
    {"llama-server: progress, nulls before the first token, cached tokens", "/v1/completions", "{}",
     SSE
     "data: {\"choices\":[{\"text\":\"\",\"index\":0}],\"timings\":{\"cache_n\":0,\"prompt_n\":0,"
     "\"prompt_ms\":0,\"prompt_per_second\":null,\"predicted_n\":0,\"predicted_ms\":0},"
     "\"prompt_progress\":{\"total\":9,\"cache\":3,\"processed\":0,\"time_ms\":0}}\n\n"
     "data: {\"choices\":[{\"text\":\"x\",\"index\":0}],\"timings\":{\"cache_n\":3,\"prompt_n\":6,"
     "\"prompt_ms\":2.5,\"predicted_n\":1,\"predicted_ms\":0.1}}\n\n"
     "data: {\"choices\":[{\"text\":\"yz\",\"index\":0}],\"timings\":{\"cache_n\":3,\"prompt_n\":6,"
     "\"prompt_ms\":2.5,\"predicted_n\":4,\"predicted_ms\":1.5}}\n\n"
     "data: {\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":\"stop\"}],\"timings\":"
     "{\"cache_n\":3,\"prompt_n\":6,\"prompt_ms\":2.5,\"predicted_n\":4,\"predicted_ms\":1.5}}\n\n"
     "data: [DONE]\n\n",
     "xyz", 9, 3, 4, 4, false, true, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"llama-server before it had cache_n: what is not computed was cached", CHAT, "{}",
     SSE "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"index\":0}],\"timings\":"
         "{\"prompt_n\":38,\"prompt_ms\":110.5,\"predicted_n\":1,\"predicted_ms\":0.0}}\n\n"
         "data: {\"choices\":[{\"delta\":{},\"index\":0,\"finish_reason\":\"stop\"}],\"usage\":"
         "{\"completion_tokens\":1,\"prompt_tokens\":57},\"timings\":{\"prompt_n\":38,"
         "\"prompt_ms\":110.5,\"predicted_n\":1,\"predicted_ms\":0.5}}\n\n"
         "data: [DONE]\n\n",
     "x", 57, 19, 1, 1, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"llama-server's own completion", "/completion", "{}",
     SSE "data: {\"content\":\"a\",\"stop\":false,\"tokens\":[11],\"tokens_predicted\":1}\n\n"
         "data: {\"content\":\"b\",\"stop\":false,\"tokens\":[12],\"tokens_predicted\":2}\n\n"
         "data: {\"content\":\"\",\"stop\":true,\"tokens_predicted\":2,\"tokens_evaluated\":6,"
         "\"stop_type\":\"limit\"}\n\n",
     "ab", 6, -1, 2, 2, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"Ollama generate", "/api/generate", "{\"prompt\":\"why\"}",
     LINES "{\"model\":\"m\",\"response\":\"The\",\"done\":false}\n"
           "{\"model\":\"m\",\"response\":\" sky\",\"done\":false}\n"
           "{\"model\":\"m\",\"response\":\"\",\"done\":true,\"done_reason\":\"stop\","
           "\"total_duration\":5000000,\"load_duration\":2000000,\"prompt_eval_count\":4,"
           "\"prompt_eval_duration\":1000000,\"eval_count\":2,\"eval_duration\":1500000}\n",
     "The sky", 4, -1, 2, 2, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"Ollama chat with thinking, cached prompt, last line without its end", "/api/chat", "{}",
     LINES
     "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n"
     "{\"message\":{\"role\":\"assistant\",\"content\":\"ok\"},\"done\":false}\n"
     "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"eval_count\":2}",
     "hmok", -1, -1, 2, 2, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"Ollama's error in mid-stream", "/api/chat", "{}",
     LINES "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"out of memory\"}\n", "a",
     -1, -1, 1, 1, true, false, false, PJ_EXCHANGE_FAILED,
     "the server answered 200: out of memory"},
    {"an error object in mid-stream with status 200", CHAT, "{}",
     SSE DELTA("a") "data: {\"error\":{\"message\":\"worker died\",\"code\":500}}\n\n", "a", -1, -1,
     1, 1, true, false, false, PJ_EXCHANGE_FAILED, "the server answered 200: worker died"},
    {"an error line of older llama-servers", CHAT, "{}",
     SSE DELTA("a") "error: {\"code\":500,\"message\":\"slot lost\"}\n\n", "a", -1, -1, 1, 1, true,
     false, false, PJ_EXCHANGE_FAILED, "the server answered 200: slot lost"},
    {"a status of failure with its words", CHAT, "{}",
     "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\r\n"
     "{\"error\":{\"code\":400,\"message\":\"too long\",\"n_prompt_tokens\":902}}",
     "", -1, -1, 0, 0, false, false, false, PJ_EXCHANGE_FAILED,
     "the server answered 400: too long"},
    {"a status of failure in plain text", CHAT, "{}",
     "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nInternal Server Error",
     "", -1, -1, 0, 0, false, false, false, PJ_EXCHANGE_FAILED,
     "the server answered 500: Internal Server Error"},
    {"not streamed", CHAT, "{}",
     JSON
     "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello there\"},"
     "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}",
     "Hello there", 3, -1, 5, 5, false, true, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"a character cut in two between chunks and one cut by the server", CHAT, "{}",
     SSE DELTA("\xc3\xa9") DELTA("\\ud83d") DELTA("\\ude00") DELTA("\\ud83d\\ude00"),
     "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80", -1, -1, 4, 4, true, false, false,
     PJ_EXCHANGE_COMPLETED, NULL},
    {"bytes that are no UTF-8, and events that are no JSON", CHAT, "{}",
     SSE DELTA("a\xff\xfe") "data: {\"choices\":[\n\n"
                            "data: 17\n\n" DELTA("b"),
     "a\xef\xbf\xbd\xef\xbf\xbd"
     "b",
     -1, -1, 2, 2, true, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"reasoning and calls of tools are output", CHAT, "{}",
     SSE "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"so\",\"reasoning\":\"so\"}}]}\n\n"
         "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\","
         "\"arguments\":\"\"}}]}}]}\n\n"
         "data: "
         "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n",
     "sof{}", -1, -1, 3, 3, true, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"the responses API", "/v1/responses", "{\"input\":\"hi\"}",
     SSE "event: response.output_text.delta\n"
         "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n"
         "event: response.output_text.delta\n"
         "data: {\"type\":\"response.output_text.delta\",\"delta\":\"!\"}\n\n"
         "event: response.completed\n"
         "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":8,"
         "\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":2}}}\n\n",
     "Hi!", 8, 2, 2, 2, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"log probabilities count tokens", CHAT, "{}",
     SSE "data: {\"choices\":[{\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":"
         "[{\"token\":\"a\"},{\"token\":\"b\"}]}}]}\n\n",
     "ab", -1, -1, 2, 2, false, true, false, PJ_EXCHANGE_COMPLETED, NULL},
    {"an embedding has no output", "/v1/embeddings", "{\"input\":[\"a\",\"b\"]}",
     JSON "{\"data\":[{\"embedding\":[0.1]}],\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2}}",
     "", 2, -1, 0, 0, false, false, false, PJ_EXCHANGE_COMPLETED, NULL},
};

static void check_case(const answer_case *c, size_t cut)
{
    replayed r;
    size_t length = strlen(c->bytes), rows;
    replay_begin(&r, c->path, c->request);
    for (size_t at = 0, n; at < length; at += n) {
        n = at == 0 && cut < length ? cut : length - at;
        replay_feed(&r, c->bytes + at, n, (int64_t)(10 + at));
    }
    replay_end(&r, (int64_t)(1000 + length));
    pj_exchange_counts got = pj_exchange_count(r.exchange);
    pj_exchange_token *tokens = pj_exchange_tokens(r.exchange, &rows);
    if (strcmp(pj_exchange_text(r.exchange), c->text) != 0 || got.input != c->input ||
        got.cached != c->cached || got.output != c->output || rows != c->tokens ||
        got.approximate != c->approximate || got.spread != c->spread ||
        got.contradictory != c->contradictory)
        fail_msg("%s, cut at %zu: \"%s\" in %d cached %d out %d rows %d approximate %d spread %d "
                 "contradictory %d",
                 c->name, cut, pj_exchange_text(r.exchange), (int)got.input, (int)got.cached,
                 (int)got.output, (int)rows, got.approximate, got.spread, got.contradictory);
    assert_int_equal(r.exchange->outcome, c->outcome);
    if (c->failure) assert_string_equal(r.exchange->failure, c->failure);
    for (size_t i = 1; i < rows; i++) assert_that(tokens[i].at_ns, >=, tokens[i - 1].at_ns);
    size_t bytes = 0;
    for (size_t i = 0; i < rows; i++) bytes += tokens[i].bytes;
    assert_that(bytes, <=, strlen(c->text));
    pj_free(tokens);
    replay_fini(&r);
}

static int64_t reasoning_of(const char *stream)
{
    replayed r;
    replay_begin(&r, CHAT, "{}");
    replay_feed(&r, stream, strlen(stream), 10);
    replay_end(&r, 1000);
    int64_t tokens = pj_exchange_reasoning(r.exchange);
    replay_fini(&r);
    return tokens;
}

#define REASONING(text) "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"" text "\"}}]}\n\n"

/* Also of events that are recognised by the one before them. */
static void test_reasoning(void **state)
{
    assert_int_equal(reasoning_of(SSE REASONING("a") REASONING("b") REASONING("c") DELTA("d")
                                      DELTA("e") DELTA("f")),
                     3);
    assert_int_equal(reasoning_of(SSE REASONING("a") DELTA("d") REASONING("b")), 1);
    assert_int_equal(reasoning_of(SSE DELTA("d") REASONING("b")), -1);
    assert_int_equal(reasoning_of(SSE DELTA("d")), -1);
    /* one of both names may be empty */
    assert_int_equal(reasoning_of(SSE "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"\","
                                      "\"reasoning\":\"a\"}}]}\n\n" REASONING("b") DELTA("d")),
                     2);
#define USAGE(tokens, reasoning)                                     \
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":" tokens \
    ",\"completion_tokens_details\":{\"reasoning_tokens\":" reasoning "}}}\n\n"
    /* what the server says of them, unless it cannot be */
    assert_int_equal(reasoning_of(SSE DELTA("d") USAGE("9", "7")), 7);
    assert_int_equal(reasoning_of(SSE REASONING("a") REASONING("b") DELTA("d") USAGE("3", "0")), 2);
    assert_int_equal(reasoning_of(SSE REASONING("a") DELTA("d") USAGE("2", "7")), 1);
    assert_int_equal(reasoning_of(SSE
                                  "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":"
                                  "\"a\"}},{\"index\":1,\"delta\":{\"reasoning\":\"b\"}}]}\n\n"),
                     -1);
    assert_int_equal(reasoning_of(SSE "data: {\"type\":\"content_block_delta\",\"delta\":"
                                      "{\"thinking\":\"so\"}}\n\n"),
                     1);
}

static int64_t calls_of(const char *path, const char *stream)
{
    int64_t calls = -1;
    for (size_t cut = 1; cut < strlen(stream); cut += 7) {
        replayed r;
        replay_begin(&r, path, "{}");
        replay_feed(&r, stream, cut, 10);
        replay_feed(&r, stream + cut, strlen(stream) - cut, 20);
        replay_end(&r, 1000);
        if (calls >= 0) assert_int_equal(r.exchange->answer.tool_calls, calls);
        calls = r.exchange->answer.tool_calls;
        replay_fini(&r);
    }
    return calls;
}

#define CALL(index, name, arguments)                                                \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":" index \
    ",\"function\":{" name "\"arguments\":\"" arguments "\"}}]}}]}\n\n"
#define NAMED(index, name) CALL(index, "\"name\":\"" name "\",", "")

/* As servers give them: named once in a stream, named in every piece, whole, as items. */
static void test_calls_of_tools(void **state)
{
    assert_int_equal(calls_of(CHAT, SSE DELTA("a") DELTA("b")), 0);
    assert_int_equal(calls_of(CHAT, SSE NAMED("0", "f") CALL("0", "", "{") CALL("0", "", "}")
                                        NAMED("1", "f") CALL("1", "", "{}")),
                     2);
    assert_int_equal(
        calls_of(CHAT, SSE NAMED("0", "f") NAMED("0", "f") NAMED("0", "f") NAMED("1", "g")), 2);
    assert_int_equal(calls_of(CHAT, SSE NAMED("0", "") CALL("0", "\"name\":null,", "{}")), 0);
    assert_int_equal(
        calls_of(CHAT,
                 JSON "{\"choices\":[{\"message\":{\"tool_calls\":["
                      "{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                      "{\"id\":\"2\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}"),
        2);
    assert_int_equal(calls_of("/api/chat",
                              LINES "{\"message\":{\"role\":\"assistant\",\"content\":\"\","
                                    "\"tool_calls\":[{\"function\":{\"name\":\"f\","
                                    "\"arguments\":{}}}]},\"done\":false}\n"
                                    "{\"message\":{\"content\":\"\"},\"done\":true}\n"),
                     1);
    assert_int_equal(
        calls_of("/v1/responses", SSE
                 "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":"
                 "\"message\"}}\n\n"
                 "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":"
                 "\"function_call\",\"name\":\"f\"}}\n\n"
                 "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{}\"}"
                 "\n\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":"
                 "\"function_call\",\"name\":\"f\"}]}}\n\n"),
        1);
    assert_int_equal(calls_of("/v1/responses", JSON "{\"output\":[{\"type\":\"function_call\","
                                                    "\"name\":\"f\"},{\"type\":\"message\"}]}"),
                     1);
    assert_int_equal(calls_of("/v1/messages",
                              SSE "data: {\"type\":\"content_block_start\",\"content_block\":"
                                  "{\"type\":\"tool_use\",\"name\":\"f\"}}\n\n"
                                  "data: {\"type\":\"content_block_delta\",\"delta\":"
                                  "{\"partial_json\":\"{}\"}}\n\n"),
                     1);
    assert_int_equal(calls_of("/v1/messages",
                              JSON "{\"type\":\"message\",\"content\":[{\"type\":"
                                   "\"text\",\"text\":\"a\"},{\"type\":\"tool_use\"},"
                                   "{\"type\":\"tool_use\"}]}"),
                     2);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t cut = 1; cut <= strlen(cases[i].bytes); cut++) check_case(&cases[i], cut);
}

/* Reasoning that is not shown: tokens without text, which take their time. */
static void test_unseen_tokens(void **state)
{
    replayed r;
    const char usage[] =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3000}}\n\n";
    (void)state;
    for (int64_t ms = 100; ms <= 1000; ms += 900) {
        replay_begin(&r, CHAT, "{}");
        replay_feed(&r, SSE, strlen(SSE), 100);
        replay_feed(&r, DELTA("42"), strlen(DELTA("42")), ms * 1000000);
        replay_feed(&r, usage, strlen(usage), ms * 1000000 + 1000);
        replay_end(&r, ms * 1000000 + 2000);
        pj_exchange_counts counts = pj_exchange_count(r.exchange);
        assert_int_equal(counts.output, ms == 1000 ? 3000 : 1);
        assert_int_equal(counts.contradictory, ms != 1000);
        replay_fini(&r);
    }
}

static void test_times(void **state)
{
    replayed r;
    (void)state;
    replay_begin(&r, CHAT,
                 "{\"model\":\"m\",\"max_tokens\":5,\"messages\":[{\"role\":\"system\","
                 "\"content\":\"Be brief\"},{\"role\":\"user\",\"content\":[{\"type\":"
                 "\"text\",\"text\":\"Hi\"}]}]}");
    assert_string_equal(r.exchange->asked.prompt, "system: Be brief\nuser: Hi");
    assert_string_equal(r.exchange->asked.model, "m");
    assert_int_equal(r.exchange->asked.max_tokens, 5);
    replay_feed(&r, SSE, strlen(SSE), 100);
    const char role[] = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    replay_feed(&r, role, strlen(role), 200);
    assert_int_equal(r.exchange->first_ns, 0);
    replay_feed(&r, DELTA("a"), strlen(DELTA("a")), 300);
    replay_feed(&r, DELTA("b"), strlen(DELTA("b")), 450);
    assert_int_equal(pj_exchange_tokens_so_far(r.exchange), 2);
    replay_end(&r, 500);
    assert_int_equal(r.exchange->first_ns, 300);
    assert_int_equal(r.exchange->last_ns, 450);
    replay_fini(&r);
}

/* Three tokens arrive in one read, or nearly, every 30 ms: each has a third of the time since the
 * arrival before. Those of the first arrival are known by its time alone, and share the next one's.
 */
static void bursts_share_their_time(int64_t apart_ns)
{
    enum { BURST = 3, BURSTS = 20, MS = 1000000 };
    replayed r;
    size_t rows;
    replay_begin(&r, CHAT, "{}");
    replay_feed(&r, SSE, strlen(SSE), MS);
    for (int64_t i = 0; i < BURSTS; i++)
        for (int64_t k = 0; k < BURST; k++)
            replay_feed(&r, DELTA("a"), strlen(DELTA("a")), (100 + 30 * i) * MS + k * apart_ns);
    replay_end(&r, 2000ll * MS);
    pj_exchange_token *tokens = pj_exchange_tokens(r.exchange, &rows);
    assert_int_equal(rows, BURST * BURSTS);
    assert_int_equal(tokens[0].at_ns, 100ll * MS);
    assert_int_equal(tokens[rows - 1].at_ns,
                     (100ll + 30 * (BURSTS - 1)) * MS + (BURST - 1) * apart_ns);
    for (size_t i = 1; i < rows; i++) {
        int64_t took = tokens[i].at_ns - tokens[i - 1].at_ns, want = (i < 2 * BURST ? 6 : 10) * MS;
        assert_that(llabs(took - want), <=, BURST * apart_ns + 1);
    }
    pj_free(tokens);
    replay_fini(&r);
}

static void test_bursts(void **state)
{
    bursts_share_their_time(0);
    bursts_share_their_time(200000);
}

/* Steps that differ, with stalls among them, are nobody's bursts. */
static void test_steps_that_differ(void **state)
{
    enum { TOKENS = 40 };
    int64_t at_ns[TOKENS], now_ns = 1000000;
    replayed r;
    size_t rows;
    replay_begin(&r, CHAT, "{}");
    replay_feed(&r, SSE, strlen(SSE), 1);
    for (int i = 0; i < TOKENS; i++) {
        now_ns += i % 20 == 7 ? 5000000000 : 4000000 + i * i * 10000;
        replay_feed(&r, DELTA("a"), strlen(DELTA("a")), at_ns[i] = now_ns);
    }
    replay_end(&r, now_ns + 1);
    pj_exchange_token *tokens = pj_exchange_tokens(r.exchange, &rows);
    assert_int_equal(rows, TOKENS);
    for (int i = 0; i < TOKENS; i++) assert_int_equal(tokens[i].at_ns, at_ns[i]);
    pj_free(tokens);
    replay_fini(&r);
}

/* An unterminated event and an endless response: memory stays bounded. */
static void test_endless(void **state)
{
    replayed r;
    char block[4096];
    (void)state;
    memset(block, 'x', sizeof block);
    replay_begin(&r, CHAT, "{}");
    replay_feed(&r, SSE "data: ", strlen(SSE) + 6, 1);
    for (int i = 0; i < 2000; i++) replay_feed(&r, block, sizeof block, 2);
    replay_feed(&r, "\n\n" DELTA("a"), 2 + strlen(DELTA("a")), 3);
    replay_end(&r, 4);
    assert_string_equal(pj_exchange_text(r.exchange), "a");
    replay_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_reasoning),
                                       cmocka_unit_test(test_calls_of_tools),
                                       cmocka_unit_test(test_unseen_tokens),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_bursts),
                                       cmocka_unit_test(test_steps_that_differ),
                                       cmocka_unit_test(test_endless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
