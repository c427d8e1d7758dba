/* Generated tokenizers: round trips, flags of added tokens, streams, literals, long words, and
 * rejected files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "base/memory.h"
#include "base/random.h"
#include "engine/text/chat.h"
#include "made_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pj_tokenizer *make(made_kind kind)
{
    pj_buffer text;
    pj_tokenizer *tokenizer;
    pj_error err;
    pj_buffer_init(&text, 1 << 20);
    made_tokenizer(kind, &text);
    if (pj_tokenizer_parse(pj_buffer_get(&text), text.length, "made", &tokenizer, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_buffer_fini(&text);
    return tokenizer;
}

/* The tokens of a text, spelled, with spaces between. */
static void assert_tokens(const pj_tokenizer *t, const char *text, const pj_encode_options *options,
                          const char *want)
{
    pj_ids ids = {0};
    pj_buffer have;
    pj_error err;
    pj_buffer_init(&have, 1 << 20);
    assert_int_equal(pj_tokenizer_encode(t, text, strlen(text), options, &ids, &err), PJ_OK);
    for (size_t i = 0; i < ids.count; i++)
        pj_buffer_printf(&have, "%s%s", i ? " " : "", pj_tokenizer_token(t, ids.ids[i]));
    assert_string_equal(pj_buffer_get(&have), want);
    pj_buffer_fini(&have);
    pj_ids_fini(&ids);
}

static void assert_comes_back(const pj_tokenizer *t, const char *text, const char *want)
{
    pj_ids ids = {0};
    pj_buffer whole, streamed;
    pj_token_stream *stream;
    pj_error err;
    pj_buffer_init(&whole, 1 << 20);
    pj_buffer_init(&streamed, 1 << 20);
    assert_int_equal(pj_tokenizer_encode(t, text, strlen(text), NULL, &ids, &err), PJ_OK);
    assert_int_equal(pj_tokenizer_decode(t, ids.ids, ids.count, true, &whole, &err), PJ_OK);
    assert_string_equal(pj_buffer_get(&whole), want);
    assert_int_equal(pj_token_stream_new(t, true, &stream, &err), PJ_OK);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(pj_token_stream_push(stream, ids.ids[i], &streamed, &err), PJ_OK);
    assert_int_equal(pj_token_stream_finish(stream, &streamed, &err), PJ_OK);
    assert_string_equal(pj_buffer_get(&streamed), want);
    pj_token_stream_free(stream);
    pj_ids_fini(&ids);
    pj_buffer_fini(&whole);
    pj_buffer_fini(&streamed);
}

static void test_byte_level(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_BYTE_LEVEL);
    static const pj_encode_options plain = {.no_special = true};
    assert_tokens(t, "hello the123", NULL, "<s> hello \xc4\xa0 the 12 3");
    assert_tokens(t, "hello", &plain, "hello");
    assert_tokens(t, "", &plain, "");
    assert_tokens(t, "and<s>and", &plain, "and <s> and");
    assert_comes_back(t, "hello \xc3\xa9\xf0\x9f\x99\x82\r\n it's",
                      "hello \xc3\xa9\xf0\x9f\x99\x82\r\n it's");
    assert_comes_back(t, "a\xff\xe2\x82z", "a\xef\xbf\xbd\xef\xbf\xbdz");
    assert_true(pj_tokenizer_is_special(t, pj_tokenizer_find(t, "<s>")));
    assert_false(pj_tokenizer_is_special(t, pj_tokenizer_find(t, "hello")));
    assert_int_equal(pj_tokenizer_find(t, "no such"), -1);
    assert_null(pj_tokenizer_token(t, -1));
    assert_null(pj_tokenizer_token(t, (int32_t)pj_tokenizer_size(t)));
    pj_tokenizer_close(t);
}

static void test_fallback(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_FALLBACK);
    assert_tokens(t, "hello and", NULL, "\xe2\x96\x81 hello \xe2\x96\x81 and");
    assert_tokens(t, "\xc3\xa9", NULL, "\xe2\x96\x81 <0xC3> <0xA9>");
    assert_comes_back(t, "hello \xc3\xa9 and\n", "hello \xc3\xa9 and\n");
    pj_tokenizer_close(t);
}

static void test_words(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_WORDS);
    /* AND matches as a single word, normalised; <s> strips the space around it. */
    assert_tokens(t, "x AND y", NULL, "\xe2\x96\x81 x \xe2\x96\x81 AND \xe2\x96\x81 y");
    assert_tokens(t, "xANDy", NULL, "\xe2\x96\x81 x and y");
    assert_tokens(t, "x  <s>  y", NULL, "\xe2\x96\x81 x <s> y");
    assert_tokens(t, "\xef\xac\x81n 12!", NULL, "\xe2\x96\x81 f in \xe2\x96\x81 1 2 !");
    pj_tokenizer_close(t);
}

/* A character whose bytes are in several tokens is streamed as a whole. */
static void test_stream_holds_back(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_FALLBACK);
    pj_token_stream *stream;
    pj_buffer out;
    pj_error err;
    static const char *const bytes[] = {"<0xF0>", "<0x9F>", "<0x99>", "<0x82>"};
    pj_buffer_init(&out, 1024);
    assert_int_equal(pj_token_stream_new(t, true, &stream, &err), PJ_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out.length, 0);
        pj_token_stream_push(stream, pj_tokenizer_find(t, bytes[i]), &out, &err);
    }
    assert_string_equal(pj_buffer_get(&out), "\xf0\x9f\x99\x82");
    pj_token_stream_push(stream, pj_tokenizer_find(t, "<0xF0>"), &out, &err);
    pj_token_stream_finish(stream, &out, &err);
    assert_string_equal(pj_buffer_get(&out), "\xf0\x9f\x99\x82\xef\xbf\xbd");
    pj_token_stream_free(stream);
    pj_buffer_fini(&out);
    pj_tokenizer_close(t);
}

static void test_literals(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_BYTE_LEVEL);
    pj_text_span span = {3, 6};
    pj_encode_options options = {.no_special = true, .literals = &span, .literal_count = 1};
    assert_tokens(t, "<s><s>", &options, "<s> < s >");
    span = (pj_text_span){0, 3};
    assert_tokens(t, "<s><s>", &options, "< s > <s>");
    pj_tokenizer_close(t);
}

/* Words above the limit for linear scanning are merged with a heap: a long word must give the same
 * ids as its parts. */
static void test_long_words(void **state)
{
    (void)state;
    pj_tokenizer *t = make(MADE_FALLBACK);
    pj_random random = {7};
    for (int round = 0; round < 200; round++) {
        /* '.' occurs in no merge, so each piece between dots is merged independently. */
        char text[2048] = "";
        pj_ids whole = {0}, parts = {0};
        pj_error err;
        for (int i = 0; i < 40; i++) {
            char piece[16];
            size_t length = 1 + pj_random_u64(&random) % 8;
            for (size_t k = 0; k < length; k++)
                piece[k] = "thelindaro"[pj_random_u64(&random) % 10];
            piece[length] = '.';
            piece[length + 1] = 0;
            strcat(text, piece);
            pj_ids one = {0};
            assert_int_equal(pj_tokenizer_encode(t, piece, length + 1, NULL, &one, &err), PJ_OK);
            /* Each text begins with the space marker; only the first keeps it. */
            for (size_t k = i > 0; k < one.count; k++) pj_ids_append(&parts, one.ids[k]);
            pj_ids_fini(&one);
        }
        assert_int_equal(pj_tokenizer_encode(t, text, strlen(text), NULL, &whole, &err), PJ_OK);
        assert_int_equal(whole.count, parts.count);
        assert_memory_equal(whole.ids, parts.ids, whole.count * sizeof *whole.ids);
        pj_ids_fini(&whole);
        pj_ids_fini(&parts);
    }
    pj_tokenizer_close(t);
}

static void assert_refused(const char *json, pj_status status, const char *part)
{
    pj_tokenizer *tokenizer;
    pj_error err = {0};
    assert_int_equal(pj_tokenizer_parse(json, strlen(json), "made.json", &tokenizer, &err), status);
    assert_null(tokenizer);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void test_refused(void **state)
{
    (void)state;
    assert_refused("", PJ_E_INVALID, "made.json");
    assert_refused("[]", PJ_E_INVALID, "object");
    assert_refused("{}", PJ_E_INVALID, "no model");
    assert_refused("{\"version\":\"2.0\"," MODEL "}", PJ_E_UNSUPPORTED, "2.0");
    assert_refused("{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\"}}", PJ_E_UNSUPPORTED,
                   "Precompiled");
    assert_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", PJ_E_UNSUPPORTED,
                   "UnicodeScripts");
    assert_refused("{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", PJ_E_UNSUPPORTED, "CTC");
    assert_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                   "\"behavior\":\"Isolated\"}}",
                   PJ_E_INVALID, "regular expression");
    assert_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                   "\"[a&&[b]]\"},\"behavior\":\"Isolated\"}}",
                   PJ_E_UNSUPPORTED, "intersection");
    assert_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", PJ_E_UNSUPPORTED,
                   "WordPiece");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
                   PJ_E_UNSUPPORTED, "dropout");
    assert_refused(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
        PJ_E_INVALID, "not in the vocabulary: ab");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000},\"merges\":[]}}",
                   PJ_E_INVALID, "beyond");
    assert_refused("{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                   "{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[77]}}}}",
                   PJ_E_INVALID, "77");
}

static pj_tokenizer *parse(const char *json)
{
    pj_tokenizer *t;
    pj_error err;
    if (pj_tokenizer_parse(json, strlen(json), "made", &t, &err) != PJ_OK) fail_msg("%s", err.text);
    return t;
}

/* Character classes match the same Unicode characters as in Oniguruma: what a pattern matches
 * becomes b,
 * and a character that is not in the vocabulary disappears. */
static void test_classes(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"\\\\w", "\xe2\x91\xa1", ""},        /* U+2461, a circled digit */
        {"\\\\w", "\xe2\x93\x90", "b"},       /* U+24D0, a circled letter */
        {"\\\\w", "\xc2\xb2", "b"},           /* U+00B2: alone yes, */
        {"[\\\\w]", "\xc2\xb2", ""},          /* in a class no */
        {"[[:alpha:]]", "\xd6\xb0", "b"},     /* U+05B0, an alphabetic mark */
        {"[[:lower:]]", "\xca\xb0", "b"},     /* U+02B0, a modifier */
        {"[[:^word:]]", "\xe2\x91\xa1", "b"}, /* U+2461 */
        {"[x[\xc3\xa9y]z]", "\xc3\xa9", "b"}, /* a class inside a class */
        {"[^(\\\\s|[.,!\xe2\x80\xa6])]+", "zz .", "b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"%s\"},"
                 "\"content\":\"b\"}}",
                 cases[i].pattern);
        pj_tokenizer *t = parse(json);
        assert_tokens(t, cases[i].text, NULL, cases[i].want);
        pj_tokenizer_close(t);
    }
}

/* The first piece is the one with the first character of the original text, which a normalizer may
 * have removed. */
static void test_mark_of_the_start(void **state)
{
    (void)state;
    static const struct {
        const char *normalizer, *text, *want;
    } cases[] = {
        {"null", "ab", "\xe2\x96\x81 ab"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " ab ", "ab"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", "ab ", "\xe2\x96\x81 ab"},
        {"{\"type\":\"StripAccents\"}",
         "\xcc\x81"
         "ab",
         "ab"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"b\"}", "ab", "b"},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}", "ab",
         "\xe2\x96\x81 b b"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"b\"},"
         "{\"type\":\"Replace\",\"pattern\":{\"String\":\"ba\"},\"content\":\"a\"}]}",
         "ab", "\xe2\x96\x81 ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[512];
        snprintf(json, sizeof json,
                 "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
                 "\"\xe2\x96\x81\":3},\"merges\":[\"a b\"]},\"normalizer\":%s,"
                 "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
                 "\"prepend_scheme\":\"first\"}}",
                 cases[i].normalizer);
        pj_tokenizer *t = parse(json);
        assert_tokens(t, cases[i].text, NULL, cases[i].want);
        pj_tokenizer_close(t);
    }
}

/* An empty pattern matches between any two characters. */
static void test_empty_pattern(void **state)
{
    (void)state;
    pj_tokenizer *t = parse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                            "{\"String\":\"\"},\"behavior\":\"Isolated\"}}");
    assert_tokens(t, "abab", NULL, "a b a b");
    pj_tokenizer_close(t);
}

/* In the byte-level alphabet U+2581 is three ordinary letters, and merges cross them. */
static void test_mark_in_letters(void **state)
{
    (void)state;
    pj_tokenizer *t =
        parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xc3\xa2\":1,\"\xc4\xb8\":2,"
              "\"\xc4\xa3\":3,\"\xe2\x96\x81\":4,\"a\xc3\xa2\":5},\"merges\":[\"a \xc3\xa2\"]},"
              "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
              "\"use_regex\":false}}");
    assert_tokens(t, "a\xe2\x96\x81", NULL, "a\xc3\xa2 \xc4\xb8 \xc4\xa3");
    pj_tokenizer_close(t);
}

static void assert_streams(const char *json, const int32_t *ids, size_t count, const char *want)
{
    pj_tokenizer *t = parse(json);
    pj_token_stream *stream;
    pj_buffer out;
    pj_error err;
    pj_buffer_init(&out, 1024);
    assert_int_equal(pj_token_stream_new(t, true, &stream, &err), PJ_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pj_token_stream_push(stream, ids[i], &out, &err), PJ_OK);
    assert_int_equal(pj_token_stream_finish(stream, &out, &err), PJ_OK);
    assert_string_equal(pj_buffer_get(&out), want);
    pj_token_stream_free(stream);
    pj_buffer_fini(&out);
    pj_tokenizer_close(t);
}

#define STRIP "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"

/* Decoders without a streaming fast path: only the start of the whole text is stripped, and invalid
 * bytes become whole characters. */
static void test_stream_of_any_decoders(void **state)
{
    (void)state;
    static const int32_t spaces[] = {0, 2, 2, 1}, bytes[] = {3, 4, 0};
    assert_streams(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2},\"merges\":[]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}," STRIP "," STRIP
        "]}}",
        spaces, 4, "a  b");
    assert_streams("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"<0x31>\":3,"
                   "\"<0xC3>\":4},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                   "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," STRIP "," STRIP "]}}",
                   bytes, 3,
                   "1\xef\xbf\xbd"
                   "a");
}

/* Streams `count` times the ids 0, 1 and 2, and counts the ids that are decoded for it. */
static void assert_linear(const char *decoder, bool equals_whole)
{
    enum { COUNT = 1500, TOKENS = 3 * COUNT, TIMES = 100 };
    char json[512];
    int32_t ids[TOKENS];
    pj_token_stream *stream;
    pj_buffer streamed, whole;
    pj_error err;
    snprintf(json, sizeof json,
             "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xe2\x96\x81x</w>\":0,\"y\":1,"
             "\"\xef\xbf\xbd\":2},\"merges\":[]},\"decoder\":%s}",
             decoder);
    pj_tokenizer *t = parse(json);
    pj_buffer_init(&streamed, 1 << 20);
    pj_buffer_init(&whole, 1 << 20);
    assert_int_equal(pj_token_stream_new(t, true, &stream, &err), PJ_OK);
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i % 3;
        assert_int_equal(pj_token_stream_push(stream, ids[i], &streamed, &err), PJ_OK);
    }
    assert_int_equal(pj_token_stream_finish(stream, &streamed, &err), PJ_OK);
    assert_that(pj_token_stream_work(stream), >, TOKENS); /* it is not the direct path */
    assert_that(pj_token_stream_work(stream), <, TIMES * TOKENS);
    assert_int_equal(pj_tokenizer_decode(t, ids, TOKENS, true, &whole, &err), PJ_OK);
    if (equals_whole) assert_string_equal(pj_buffer_get(&streamed), pj_buffer_get(&whole));
    pj_token_stream_free(stream);
    pj_buffer_fini(&whole);
    pj_buffer_fini(&streamed);
    pj_tokenizer_close(t);
}

/* Decoders for which no part of a text ever equals what its tokens give alone, or which give
 * nothing at all, or which hold every character back. */
static void test_streams_take_linear_time(void **state)
{
    (void)state;
    assert_linear("null", true);
    assert_linear("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}", true);
    assert_linear("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\",\"replacement\":"
                  "\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"},{\"type\":\"Fuse\"}]}",
                  true);
    assert_linear("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\".\"},\"content\":\"\"}", true);
    assert_linear(
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"$\"},\"content\":\"\xef\xbf\xbd\"}", true);
    assert_linear("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\","
                  "\"pattern\":{\"Regex\":\"^.+\"},\"content\":\"z\"}]}",
                  false);
}

/* "a", "ba", "bba" and so on */
static void letters(char *text, size_t length)
{
    memset(text, 'b', length);
    text[length - 1] = 'a';
    text[length] = 0;
}

/* A vocabulary of such tokens with up to `most` letters, each merged from a letter and the previous
 * token; merge number `bad` (from 1) uses a letter that does not exist. */
static void grown(pj_buffer *json, unsigned most, bool pairs, unsigned bad)
{
    char token[128];
    pj_buffer_init(json, 1 << 20);
    pj_buffer_text(json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"b\":0");
    for (unsigned n = 1; n <= most; n++) {
        letters(token, n);
        pj_buffer_printf(json, ",\"%s\":%u", token, n);
    }
    pj_buffer_text(json, "},\"merges\":[");
    for (unsigned n = 1; n < most; n++) {
        letters(token, n);
        char first = n == bad ? 'z' : 'b';
        pj_buffer_printf(json, pairs ? "%s[\"\\u00%x\",\"%s\"]" : "%s\"%c %s\"", n > 1 ? "," : "",
                         first, token);
    }
    pj_buffer_text(json, "]}}");
}

/* Merges are looked up in batches, and texts compared by machine words: every length, every
 * position in a batch, and batches of one. */
static void test_many_merges(void **state)
{
    (void)state;
    enum { MOST = 100 };
    char token[MOST + 2];
    for (unsigned most = 1; most <= MOST; most++) {
        pj_buffer json;
        grown(&json, most, most % 2, 0);
        pj_tokenizer *t = parse(pj_buffer_get(&json));
        for (unsigned n = 1; n <= most; n++) {
            letters(token, n);
            assert_int_equal(pj_tokenizer_find(t, token), n);
            assert_tokens(t, token, NULL, token);
            if (n == 1) continue;
            token[0] = 'a'; /* differs only in the first or last character */
            assert_int_equal(pj_tokenizer_find(t, token), -1);
            letters(token, n);
            token[n - 1] = 'c';
            assert_int_equal(pj_tokenizer_find(t, token), -1);
        }
        letters(token, most + 1);
        assert_int_equal(pj_tokenizer_find(t, token), -1);
        pj_tokenizer_close(t);
        pj_buffer_fini(&json);
    }
}

/* The first bad merge is named, wherever in a batch it is. */
static void test_bad_merge_is_named(void **state)
{
    (void)state;
    for (unsigned bad = 1; bad < 99; bad++) {
        char want[80];
        pj_buffer json;
        snprintf(want, sizeof want, "merge %u joins a token that is not in the vocabulary: z",
                 bad - 1);
        grown(&json, 100, bad % 2, bad);
        assert_refused(pj_buffer_get(&json), PJ_E_INVALID, want);
        pj_buffer_fini(&json);
    }
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                   "\"merges\":[\"a b\",\"a b b\"]}}",
                   PJ_E_INVALID, "merge 1 does not have two parts: a b b");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                   "\"merges\":[\"a z\",\"a b b\"]}}",
                   PJ_E_INVALID, "merge 0 joins a token that is not in the vocabulary: z");
}

/* The last of duplicate keys or merges counts; later merges keep their rank. */
static void test_repeated_keys(void **state)
{
    (void)state;
    pj_tokenizer *t =
        parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"a\":3,\"ba\":4,"
              "\"ab\":5,\"c\":6},\"merges\":[\"a b\",\"b a\",\"a b\"]}}");
    assert_int_equal(pj_tokenizer_find(t, "a"), 3);
    assert_int_equal(pj_tokenizer_find(t, "ab"), 5);
    assert_int_equal(pj_tokenizer_find(t, "ba"), 4);
    assert_int_equal(pj_tokenizer_find(t, "c"), 6);
    assert_null(pj_tokenizer_token(t, 0));
    assert_tokens(t, "aba", NULL, "a ba"); /* "b a" has rank 1, "a b" 2 */
    pj_tokenizer_close(t);
}

/* Failing at any allocation must neither leak nor return a partial tokenizer. */
static void test_out_of_memory(void **state)
{
    (void)state;
    pj_buffer text;
    pj_buffer_init(&text, 1 << 20);
    made_tokenizer(MADE_WORDS, &text);
    for (int64_t after = 0; after < 400; after++) {
        pj_tokenizer *tokenizer;
        pj_error err;
        pj_ids ids = {0};
        pj_memory_fail_after(after);
        pj_status status = pj_tokenizer_parse(text.data, text.length, "made", &tokenizer, &err);
        if (status == PJ_OK)
            status = pj_tokenizer_encode(tokenizer, "hello AND 12", 12, NULL, &ids, &err);
        pj_memory_fail_after(-1);
        pj_ids_fini(&ids);
        pj_tokenizer_close(tokenizer);
        if (status == PJ_OK && after > 50) break;
    }
    pj_buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_stream_holds_back),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_mark_of_the_start),
        cmocka_unit_test(test_empty_pattern),
        cmocka_unit_test(test_mark_in_letters),
        cmocka_unit_test(test_stream_of_any_decoders),
        cmocka_unit_test(test_streams_take_linear_time),
        cmocka_unit_test(test_many_merges),
        cmocka_unit_test(test_bad_merge_is_named),
        cmocka_unit_test(test_repeated_keys),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
