/* Tokenizers against reference vectors: ids with and without special tokens, decoding at once and
 * as a stream; and malformed tokenizer files. */
#include "../unit/assertions.h"
#include "../unit/engine/made_gguf.h"
#include "judge.h"

#include "engine/text/chat.h"

#include <jansson.h>

static pj_tokenizer *open_tokenizer(const char *path)
{
    pj_error err;
    pj_tokenizer *tokenizer;
    if (pj_tokenizer_open(path, &tokenizer, &err) != PJ_OK) fail_msg("%s", err.text);
    return tokenizer;
}

static json_t *load_json(const char *path)
{
    json_error_t err;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &err);
    if (!root) fail_msg("%s: %s", path, err.text);
    return root;
}

static void print_ids(const char *what, const int32_t *ids, size_t count)
{
    print_message("%s:", what);
    for (size_t i = 0; i < count && i < 60; i++) print_message(" %d", ids[i]);
    print_message("\n");
}

static void check_ids(const pj_tokenizer *t, const char *text, size_t bytes, bool no_special,
                      const int32_t *want, size_t count, const char *where)
{
    pj_error err;
    pj_ids ids = {0};
    pj_encode_options options = {.no_special = no_special};
    if (pj_tokenizer_encode(t, text, bytes, &options, &ids, &err) != PJ_OK)
        fail_msg("%s", err.text);
    if (ids.count != count || (count && memcmp(ids.ids, want, count * sizeof *want) != 0)) {
        print_message("%s: \"%.*s\"\n", where, (int)(bytes < 200 ? bytes : 200), text);
        print_ids("want", want, count);
        print_ids("have", ids.ids, ids.count);
        fail();
    }
    pj_ids_fini(&ids);
}

static void check_text(const pj_tokenizer *t, const int32_t *ids, size_t count, bool skip_special,
                       const char *want, size_t bytes)
{
    pj_error err;
    pj_buffer text, streamed;
    pj_token_stream *stream;
    pj_buffer_init(&text, 1 << 24);
    pj_buffer_init(&streamed, 1 << 24);
    assert_int_equal(pj_tokenizer_decode(t, ids, count, skip_special, &text, &err), PJ_OK);
    if (text.length != bytes || memcmp(pj_buffer_get(&text), want, bytes) != 0)
        fail_msg("decoded \"%s\", want \"%s\"", pj_buffer_get(&text), want);
    assert_int_equal(pj_token_stream_new(t, skip_special, &stream, &err), PJ_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pj_token_stream_push(stream, ids[i], &streamed, &err), PJ_OK);
    assert_int_equal(pj_token_stream_finish(stream, &streamed, &err), PJ_OK);
    if (streamed.length != bytes || memcmp(pj_buffer_get(&streamed), want, bytes) != 0)
        fail_msg("streamed \"%s\", want \"%s\"", pj_buffer_get(&streamed), want);
    pj_token_stream_free(stream);
    pj_buffer_fini(&text);
    pj_buffer_fini(&streamed);
}

static size_t ids_of(json_t *array, int32_t **ids)
{
    size_t count = json_array_size(array);
    *ids = pj_alloc(count + 1, sizeof **ids);
    for (size_t i = 0; i < count; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return count;
}

static void check_vectors(const pj_tokenizer *t, const char *path)
{
    json_t *root = load_json(path), *item;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        json_t *text = json_object_get(item, "text");
        json_t *skipped = json_object_get(item, "decoded_skip_special");
        json_t *kept = json_object_get(item, "decoded_keep_special");
        int32_t *ids, *special;
        size_t count = ids_of(json_object_get(item, "ids"), &ids);
        size_t specials = ids_of(json_object_get(item, "ids_with_special"), &special);
        check_ids(t, json_string_value(text), json_string_length(text), true, ids, count, path);
        check_ids(t, json_string_value(text), json_string_length(text), false, special, specials,
                  path);
        check_text(t, ids, count, true, json_string_value(skipped), json_string_length(skipped));
        check_text(t, ids, count, false, json_string_value(kept), json_string_length(kept));
        pj_free(ids);
        pj_free(special);
    }
    print_message("%s: %zu texts\n", path, i);
    json_decref(root);
}

/* Inputs between separator lines; for each a line of ids without special tokens. */
static void check_inputs(const pj_tokenizer *t, const char *inputs, const char *outputs)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char *in, *out;
    size_t bytes;
    pj_error err;
    assert_int_equal(pj_file_read(inputs, 1 << 20, &in, &bytes, &err), PJ_OK);
    assert_int_equal(pj_file_read(outputs, 1 << 20, &out, &bytes, &err), PJ_OK);
    int cases = 0;
    char *line = out;
    for (char *text = in; text && *line; cases++) {
        char *end = strstr(text, separator), *newline = strchr(line, '\n');
        size_t length = end ? (size_t)(end - text) : strlen(text);
        int32_t ids[4096];
        size_t count = 0;
        for (char *p = line, *next;; p = next) {
            long id = strtol(p, &next, 10);
            if (next == p || (newline && next > newline)) break;
            ids[count++] = (int32_t)id;
        }
        check_ids(t, text, length, true, ids, count, inputs);
        text = end ? end + sizeof separator - 1 : NULL;
        line = newline ? newline + 1 : line + strlen(line);
    }
    print_message("%s: %d texts\n", inputs, cases);
    assert_that(cases, >, 40);
    pj_free(in);
    pj_free(out);
}

/* {"text", "encoded_ids" or "token_ids"}: ids with special tokens. */
static void check_long_text(const pj_tokenizer *t, const char *path)
{
    json_t *root = load_json(path), *text = json_object_get(root, "text");
    json_t *list = json_object_get(root, "token_ids");
    int32_t *ids;
    size_t count = ids_of(list ? list : json_object_get(root, "encoded_ids"), &ids);
    assert_that(count, >, 0);
    check_ids(t, json_string_value(text), json_string_length(text), false, ids, count, path);
    pj_free(ids);
    json_decref(root);
    print_message("%s\n", path);
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static void check_folder(const char *folder)
{
    char path[PATH_MAX], other[PATH_MAX];
    if (!pj_file_exists(judge_join(path, folder, "tokenizer.json"))) return;
    pj_tokenizer *t = open_tokenizer(folder);
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));) {
        judge_join(path, folder, e->d_name);
        if (strcmp(e->d_name, "vectors.json") == 0) check_vectors(t, path);
        if (strncmp(e->d_name, "swift-", 6) == 0) check_long_text(t, path);
        if (!ends_with(path, ".inp")) continue;
        snprintf(other, sizeof other, "%.*s.out", (int)strlen(path) - 4, path);
        check_inputs(t, path, other);
    }
    closedir(dir);
    pj_tokenizer_close(t);
}

static void test_vectors(void **state)
{
    (void)state;
    char path[PATH_MAX];
    judge_each(judge_join(path, judge_folder("PJ_FIXTURES"), "tokenizers"), check_folder);
    judge_each(judge_join(path, judge_folder("PJ_FIXTURES"), "models"), check_folder);
}

/* ---- the fields of GGUF files ---- */

static void test_gguf_vocabularies(void **state)
{
    static const char *const rows[][3] = {
        {"gguf/ggml-vocab-gpt-2.gguf", "gpt2", "llama.cpp-gpt-2"},
        {"gguf/ggml-vocab-llama-spm.gguf", "llama-2", "llama.cpp-llama-spm"},
    };
    const char *fixtures = judge_folder("PJ_FIXTURES");
    char path[PATH_MAX], other[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pj_tokenizer *t = open_tokenizer(judge_join(path, fixtures, rows[i][0]));
        snprintf(path, sizeof path, "%s/tokenizers/%s/%s.inp", fixtures, rows[i][1], rows[i][2]);
        snprintf(other, sizeof other, "%s/tokenizers/%s/%s.out", fixtures, rows[i][1], rows[i][2]);
        check_inputs(t, path, other);
        snprintf(path, sizeof path, "%s/tokenizers/%s/vectors.json", fixtures, rows[i][1]);
        check_vectors(t, path);
        pj_tokenizer_close(t);
    }
}

static pj_tokenizer *tokenizer_of(const made_gguf *g)
{
    pj_buffer file;
    pj_arena arena;
    pj_gguf gguf;
    pj_error err;
    pj_tokenizer *t = NULL;
    made_gguf_file(g, &file);
    pj_arena_init(&arena, 0);
    if (pj_gguf_parse((unsigned char *)file.data, file.length, "made", &arena, &gguf, &err) !=
            PJ_OK ||
        pj_tokenizer_from_gguf(&gguf, "made", &t, &err) != PJ_OK)
        fail_msg("%s", err.text);
    pj_arena_fini(&arena);
    pj_buffer_fini(&file);
    return t;
}

enum { MAX_TOKENS = 1 << 18, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, BYTE = 6 };

static const char *texts[MAX_TOKENS];
static uint32_t types[MAX_TOKENS];
static float scores[MAX_TOKENS];

static void put_merges(made_gguf *g, const json_t *list)
{
    size_t i, count = json_array_size(list);
    const char **merges = calloc(count, sizeof *merges);
    const json_t *item;
    assert_non_null(merges);
    json_array_foreach(list, i, item) merges[i] = json_string_value(item);
    made_gguf_strings(g, "tokenizer.ggml.merges", merges, count);
    free(merges);
}

/* A byte-level tokenizer.json as written by a converter. */
static void copy_byte_level(made_gguf *g, json_t *root, const char *pre)
{
    json_t *model = json_object_get(root, "model"), *item;
    const char *token;
    size_t i, count = 0;
    memset(texts, 0, sizeof texts);
    json_object_foreach(json_object_get(model, "vocab"), token, item)
    {
        size_t id = (size_t)json_integer_value(item);
        texts[id] = token;
        types[id] = NORMAL;
        if (id >= count) count = id + 1;
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, item)
    {
        size_t id = (size_t)json_integer_value(json_object_get(item, "id"));
        texts[id] = json_string_value(json_object_get(item, "content"));
        types[id] = json_is_true(json_object_get(item, "special")) ? CONTROL : USER_DEFINED;
        if (id >= count) count = id + 1;
    }
    made_gguf_string(g, "tokenizer.ggml.model", "gpt2");
    made_gguf_string(g, "tokenizer.ggml.pre", pre);
    made_gguf_strings(g, "tokenizer.ggml.tokens", texts, count);
    made_gguf_u32s(g, "tokenizer.ggml.token_type", types, count);
    put_merges(g, json_object_get(model, "merges"));
}

/* Every pre-tokenizer name against the tokenizer.json that it stands for. */
static void test_gguf_copies(void **state)
{
    static const struct {
        const char *folder, *pre;
        uint32_t bos;
    } rows[] = {
        {"gpt2", "gpt-2", 0},
        {"phi-2", "phi-2", 0},
        {"qwen2.5", "qwen2", 0},
        {"llama-3", "llama-bpe", 128000},
    };
    char folder[PATH_MAX], path[PATH_MAX], other[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made_gguf g;
        snprintf(folder, sizeof folder, "%s/tokenizers/%s", judge_folder("PJ_FIXTURES"),
                 rows[i].folder);
        json_t *root = load_json(judge_join(path, folder, "tokenizer.json"));
        made_gguf_init(&g);
        copy_byte_level(&g, root, rows[i].pre);
        made_gguf_u32(&g, "tokenizer.ggml.bos_token_id", rows[i].bos);
        pj_tokenizer *t = tokenizer_of(&g);
        check_vectors(t, judge_join(path, folder, "vectors.json"));
        snprintf(path, sizeof path, "llama.cpp-%s.inp", rows[i].pre);
        snprintf(other, sizeof other, "llama.cpp-%s.out", rows[i].pre);
        char in[PATH_MAX], out[PATH_MAX];
        if (pj_file_exists(judge_join(in, folder, path)))
            check_inputs(t, in, judge_join(out, folder, other));
        pj_tokenizer_close(t);
        made_gguf_fini(&g);
        json_decref(root);
    }
}

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
}

/* Pieces of a sentencepiece model: field 1 of the file; of a piece 1 is its text, 2 its score, 3
 * its type. */
static size_t read_pieces(char *text, size_t bytes)
{
    const unsigned char *at = (unsigned char *)text, *end = at + bytes;
    size_t count = 0;
    while (at < end) {
        uint64_t tag = varint(&at), length = varint(&at);
        const unsigned char *piece = at, *stop = at + length;
        if ((tag & 7) != 2) continue; /* a varint, already read as the length */
        at = stop;
        if (tag >> 3 != 1) continue;
        types[count] = NORMAL;
        while (piece < stop) {
            uint64_t field = varint(&piece);
            if (field == (1 << 3 | 2)) {
                uint64_t n = varint(&piece);
                texts[count] = strndup((const char *)piece, (size_t)n);
                piece += n;
            } else if (field == (2 << 3 | 5)) {
                memcpy(&scores[count], piece, 4);
                piece += 4;
            } else {
                types[count] = (uint32_t)varint(&piece);
            }
        }
        count++;
    }
    return count;
}

/* A SentencePiece model with its scores against the merges derived from it. */
static void test_gguf_scores(void **state)
{
    static const char *const folders[] = {"llama-2", "mistral-v0.1"};
    char folder[PATH_MAX], path[PATH_MAX], *text;
    size_t bytes;
    pj_error err;
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        made_gguf g;
        snprintf(folder, sizeof folder, "%s/tokenizers/%s", judge_folder("PJ_FIXTURES"),
                 folders[i]);
        assert_int_equal(
            pj_file_read(judge_join(path, folder, "tokenizer.model"), 1 << 24, &text, &bytes, &err),
            PJ_OK);
        size_t count = read_pieces(text, bytes);
        assert_int_equal(count, 32000);
        made_gguf_init(&g);
        made_gguf_string(&g, "tokenizer.ggml.model", "llama");
        made_gguf_strings(&g, "tokenizer.ggml.tokens", texts, count);
        made_gguf_f32s(&g, "tokenizer.ggml.scores", scores, count);
        made_gguf_u32s(&g, "tokenizer.ggml.token_type", types, count);
        made_gguf_u32(&g, "tokenizer.ggml.bos_token_id", 1);
        made_gguf_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
        pj_tokenizer *t = tokenizer_of(&g);
        check_vectors(t, judge_join(path, folder, "vectors.json"));
        pj_tokenizer_close(t);
        made_gguf_fini(&g);
        for (size_t id = 0; id < count; id++) free((char *)(uintptr_t)texts[id]);
        pj_free(text);
    }
}

/* Decoding the ids of the golden folders' greedy runs, which are arbitrary, so that many are
 * incomplete UTF-8 sequences. */
static void check_golden(const char *folder)
{
    char path[PATH_MAX];
    if (!pj_dir_exists(folder)) return;
    pj_tokenizer *t = open_tokenizer(folder);
    json_t *root = load_json(judge_join(path, folder, "reference.json"));
    json_t *run;
    size_t i;
    json_array_foreach(json_object_get(root, "greedy"), i, run)
    {
        json_t *prompt = json_object_get(run, "prompt"), *text = json_object_get(run, "text");
        int32_t *ids;
        size_t count = ids_of(json_object_get(run, "prompt_ids"), &ids);
        check_text(t, ids, count, true, json_string_value(prompt), json_string_length(prompt));
        pj_free(ids);
        count = ids_of(json_object_get(run, "token_ids"), &ids);
        check_text(t, ids, count, true, json_string_value(text), json_string_length(text));
        pj_free(ids);
    }
    assert_that(i, >, 0);
    json_decref(root);
    pj_tokenizer_close(t);
}

static void test_golden(void **state)
{
    (void)state;
    judge_each(judge_folder("PJ_GOLDEN"), check_golden);
}

/* A conversation rendered and encoded as by the model's authors. */
static void test_chat(void **state)
{
    (void)state;
    char path[PATH_MAX];
    const char *fixtures = judge_folder("PJ_FIXTURES");
    static const char template[] =
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} "
        "[/INST]"
        "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}";
    pj_tokenizer *t = open_tokenizer(judge_join(path, fixtures, "tokenizers/mistral-v0.1"));
    json_t *sample = load_json(
        judge_join(path, fixtures, "tokenizers/mistral-v0.1/chat-samples/no_tools.sample.json"));
    json_t *tokens = load_json(
        judge_join(path, fixtures, "tokenizers/mistral-v0.1/chat-samples/no_tools.tokens_v1.json"));
    size_t count;
    char *messages = json_dumps(json_object_get(sample, "messages"), 0);
    pj_conversation conversation = {.text = messages, .bytes = strlen(messages), .messages = true};
    pj_chat *chat;
    pj_error err;
    pj_ids ids = {0};
    int32_t *want;
    count = ids_of(json_object_get(tokens, "tokens"), &want);
    assert_int_equal(pj_chat_parse(template, strlen(template), "it", "<s>", "</s>", &chat, &err),
                     PJ_OK);
    assert_int_equal(pj_chat_encode(chat, t, &conversation, &ids, &err), PJ_OK);
    pj_chat_close(chat);
    free(messages);
    if (ids.count != count || (count && memcmp(ids.ids, want, count * sizeof *want) != 0)) {
        print_ids("want", want, count);
        print_ids("have", ids.ids, ids.count);
        fail();
    }
    pj_ids_fini(&ids);
    pj_free(want);
    json_decref(sample);
    json_decref(tokens);
    pj_tokenizer_close(t);
}

static void check_hostile(const char *path)
{
    static const char *const may_pass[] = {"duplicate-ids.json", "huge-id.json"};
    pj_error err = {0};
    pj_tokenizer *tokenizer;
    pj_status status = pj_tokenizer_open(path, &tokenizer, &err);
    print_message("%-6s %s\n", status == PJ_OK ? "accept" : "reject",
                  status == PJ_OK ? path : err.text);
    bool may = ends_with(path, may_pass[0]) || ends_with(path, may_pass[1]);
    if (status == PJ_OK && !may) fail_msg("%s was accepted", path);
    if (status == PJ_OK) check_ids(tokenizer, "", 0, true, NULL, 0, path);
    if (ends_with(path, "model-unigram.json")) assert_int_equal(status, PJ_E_UNSUPPORTED);
    pj_tokenizer_close(tokenizer);
}

static void test_hostile(void **state)
{
    (void)state;
    char path[PATH_MAX];
    judge_each(judge_join(path, judge_folder("PJ_FIXTURES"), "tokenizers/corrupt"), check_hostile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),     cmocka_unit_test(test_gguf_vocabularies),
        cmocka_unit_test(test_gguf_copies), cmocka_unit_test(test_gguf_scores),
        cmocka_unit_test(test_golden),      cmocka_unit_test(test_chat),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
