/*
 * Recorded responses of real servers, replayed whole, split at every byte, and several at once:
 * each must give the counts stated in the recording itself. Needs PJ_FIXTURES/streams.
 */
#include "../unit/assertions.h"
#include "../unit/attach/replayed.h"
#include "judge.h"

#include "base/memory.h"

#include <dirent.h>
#include <jansson.h>

enum { MOST_STREAMS = 256, MOST_AT_ONCE = 4 };

typedef struct stream {
    char name[256], path[256];
    char *request, *bytes;
    size_t length;
    bool is_answer; /* a non-streamed response */
} stream;

static stream streams[MOST_STREAMS];
static size_t stream_count;

/* ---- reading recordings ------------------------------------------------------------------- */

static size_t decode_base64(const char *text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, have = 0;
    size_t n = 0;
    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        have += 6;
        if (have >= 8) out[n++] = (char)(bits >> (have -= 8));
    }
    return n;
}

static void take_line(stream *s, const json_t *line)
{
    const json_t *text = json_object_get(line, "text"), *request = json_object_get(line, "request");
    const char *base64 = json_string_value(json_object_get(line, "base64"));
    if (json_is_object(request)) {
        const char *path = json_string_value(json_object_get(request, "path"));
        snprintf(s->path, sizeof s->path, "%s", path ? path : "");
        s->request = json_dumps(json_object_get(request, "body"), JSON_ENCODE_ANY);
    }
    size_t most = base64 ? strlen(base64) : json_string_length(text);
    s->bytes = realloc(s->bytes, s->length + most + 1);
    if (base64)
        s->length += decode_base64(base64, s->bytes + s->length);
    else if (most)
        memcpy(s->bytes + s->length, json_string_value(text), most), s->length += most;
}

static void read_stream(const char *folder, const char *name)
{
    char path[PATH_MAX], *line = NULL;
    size_t capacity = 0;
    stream *s = &streams[stream_count++];
    FILE *file = fopen(judge_join(path, folder, name), "r");
    snprintf(s->name, sizeof s->name, "%s", name);
    while (file && getline(&line, &capacity, file) > 0) {
        json_t *object = json_loads(line, 0, NULL);
        if (!object) fail_msg("%s: a line is no JSON", path);
        take_line(s, object);
        json_decref(object);
    }
    free(line);
    fclose(file);
    s->is_answer = strstr(s->bytes, "200 OK") && strstr(s->path, "completions");
}

/* ---- counts stated in a recording ---------------------------------------------------------- */

/* The number after the last occurrence of a key; -1: none. */
static int64_t last_number(const stream *s, const char *key)
{
    char quoted[64];
    int64_t value = -1;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    s->bytes[s->length] = 0;
    for (const char *at = s->bytes; (at = strstr(at, quoted)); at++)
        value = strtoll(at + strlen(quoted), NULL, 10);
    return value;
}

static void check(const stream *s, const pj_exchange *x, const char *how)
{
    size_t rows;
    pj_exchange_counts c = pj_exchange_count(x);
    pj_exchange_token *tokens = pj_exchange_tokens(x, &rows);
    int64_t output = last_number(s, "completion_tokens"), input = last_number(s, "prompt_tokens"),
            cached = last_number(s, "cached_tokens");
    if (output >= 0 && (c.output != (uint64_t)output || rows != c.output || c.approximate))
        fail_msg("%s, %s: %d tokens, %d rows%s; it says %d", s->name, how, (int)c.output, (int)rows,
                 c.approximate ? ", approximate" : "", (int)output);
    if (input >= 0 && c.input != input) fail_msg("%s, %s: input %d", s->name, how, (int)c.input);
    if (cached >= 0 && c.cached != cached)
        fail_msg("%s, %s: cached %d", s->name, how, (int)c.cached);
    if (c.contradictory) fail_msg("%s, %s: contradictory", s->name, how);
    for (size_t i = 1; i < rows; i++) assert_that(tokens[i].at_ns, >=, tokens[i - 1].at_ns);
    if (s->is_answer) assert_that(rows, >, 0);
    if (s->is_answer) assert_that(x->first_ns, >, 0);
    pj_free(tokens);
}

static void test_cut_anywhere(void **state)
{
    (void)state;
    if (!stream_count) skip();
    for (size_t i = 0; i < stream_count; i++)
        for (size_t cut = 0; cut <= streams[i].length; cut++) {
            replayed r;
            const stream *s = &streams[i];
            replay_begin(&r, s->path, s->request);
            if (cut) replay_feed(&r, s->bytes, cut, 10);
            if (cut < s->length) replay_feed(&r, s->bytes + cut, s->length - cut, 20);
            replay_end(&r, 30);
            check(s, r.exchange, "cut in two");
            replay_fini(&r);
        }
}

static void test_in_small_pieces(void **state)
{
    (void)state;
    if (!stream_count) skip();
    for (size_t i = 0; i < stream_count; i++)
        for (size_t step = 1; step <= 97; step += step < 8 ? 1 : 11) {
            replayed r;
            const stream *s = &streams[i];
            replay_begin(&r, s->path, s->request);
            for (size_t at = 0, n; at < s->length; at += n) {
                n = s->length - at < step ? s->length - at : step;
                replay_feed(&r, s->bytes + at, n, (int64_t)at + 10);
            }
            replay_end(&r, (int64_t)s->length + 20);
            check(s, r.exchange, "in small pieces");
            replay_fini(&r);
        }
}

static void test_four_at_once(void **state)
{
    (void)state;
    if (stream_count < MOST_AT_ONCE) skip();
    for (size_t first = 0; first + MOST_AT_ONCE <= stream_count; first++) {
        replayed r[MOST_AT_ONCE];
        size_t at[MOST_AT_ONCE] = {0}, open = MOST_AT_ONCE;
        for (size_t k = 0; k < MOST_AT_ONCE; k++)
            replay_begin(&r[k], streams[first + k].path, streams[first + k].request);
        for (int64_t turn = 1; open; turn++)
            for (size_t k = 0; k < MOST_AT_ONCE; k++) {
                const stream *s = &streams[first + k];
                size_t n = 7 + 5 * k;
                if (at[k] == s->length) continue;
                if (n > s->length - at[k]) n = s->length - at[k];
                replay_feed(&r[k], s->bytes + at[k], n, turn);
                at[k] += n;
                if (at[k] == s->length) {
                    replay_end(&r[k], turn + 1);
                    open--;
                }
            }
        for (size_t k = 0; k < MOST_AT_ONCE; k++) {
            check(&streams[first + k], r[k].exchange, "four at once");
            replay_fini(&r[k]);
        }
    }
}

int main(void)
{
    const char *fixtures = getenv("PJ_FIXTURES");
    char folder[PATH_MAX];
    DIR *dir = fixtures ? opendir(judge_join(folder, fixtures, "streams")) : NULL;
    if (!dir) printf("no recorded streams: set PJ_FIXTURES to a folder that has streams/\n");
    for (struct dirent *e; dir && (e = readdir(dir)) && stream_count < MOST_STREAMS;)
        if (strstr(e->d_name, ".jsonl")) read_stream(folder, e->d_name);
    if (dir) closedir(dir);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut_anywhere),
                                       cmocka_unit_test(test_in_small_pieces),
                                       cmocka_unit_test(test_four_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
