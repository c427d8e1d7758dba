/* Inconsistent GGUF headers, one defect each; values of every type; tokenizers from metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "made_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parsed {
    pj_buffer file;
    pj_arena arena;
    pj_gguf gguf;
    pj_error err;
    pj_status status;
} parsed;

/* A copy of exact size, so that the address sanitizer sees reads past its end. */
static void parse_bytes(const char *bytes, size_t count, parsed *p)
{
    unsigned char *copy = malloc(count + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, count);
    unsigned char *exact = realloc(copy, count ? count : 1);
    p->err = (pj_error){0};
    pj_arena_init(&p->arena, 0);
    p->status = pj_gguf_parse(exact, count, "made", &p->arena, &p->gguf, &p->err);
    for (uint32_t i = 0; p->status == PJ_OK && i < p->gguf.tensor_count; i++) {
        const pj_tensor *t = &p->gguf.tensors[i];
        assert_true(t->data >= exact);
        assert_true(t->data + t->bytes <= exact + count);
    }
    pj_arena_fini(&p->arena);
    free(exact);
}

static made_gguf sample(void)
{
    made_gguf g;
    uint64_t sizes[2] = {4, 2}, one = 3;
    float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    made_gguf_init(&g);
    made_gguf_string(&g, "general.architecture", "llama");
    made_gguf_u32(&g, "a.count", 7);
    made_gguf_tensor(&g, "m", sizes, 2, 0, values, sizeof values);
    made_gguf_tensor(&g, "a", &one, 1, 0, values, 12);
    return g;
}

static void test_fine(void **state)
{
    (void)state;
    made_gguf g = sample();
    pj_buffer file;
    parsed p;
    for (g.version = 2; g.version <= 3; g.version++) {
        made_gguf_file(&g, &file);
        parse_bytes(file.data, file.length, &p);
        assert_int_equal(p.status, PJ_OK);
        assert_int_equal(p.gguf.entry_count, 2);
        assert_int_equal(p.gguf.tensor_count, 2);
        pj_buffer_fini(&file);
    }
    made_gguf_fini(&g);
}

/* Every prefix of a valid file, and the file with every byte changed: accepted or rejected without
 * a memory error. */
static void test_damage(void **state)
{
    (void)state;
    made_gguf g = sample();
    pj_buffer file;
    parsed p;
    int refused = 0;
    made_gguf_file(&g, &file);
    for (size_t length = 0; length < file.length; length++) {
        parse_bytes(file.data, length, &p);
        assert_int_not_equal(p.status, PJ_OK);
        assert_true(p.err.text[0] && !strchr(p.err.text, '\n'));
    }
    for (size_t at = 0; at < file.length; at++)
        for (int bit = 0; bit < 8; bit++) {
            file.data[at] ^= (char)(1 << bit);
            parse_bytes(file.data, file.length, &p);
            refused += p.status != PJ_OK;
            file.data[at] ^= (char)(1 << bit);
        }
    assert_that(refused, >, 300);
    pj_buffer_fini(&file);
    made_gguf_fini(&g);
}

typedef void lie_fn(made_gguf *g);

static void two_keys(made_gguf *g)
{
    made_gguf_u32(g, "a.count", 8);
}

static void two_tensors(made_gguf *g)
{
    uint64_t size = 1;
    made_gguf_tensor(g, "m", &size, 1, 0, "abcd", 4);
}

static void five_dimensions(made_gguf *g)
{
    uint64_t sizes[5] = {1, 1, 1, 1, 1};
    made_gguf_tensor(g, "t", sizes, 5, 0, "abcd", 4);
}

static void half_a_block(made_gguf *g)
{
    uint64_t size = 16;
    made_gguf_tensor(g, "t", &size, 1, 8, "0123456789abcdef0", 17);
}

static void overflowing_size(made_gguf *g)
{
    uint64_t sizes[3] = {1ull << 31, 1ull << 31, 16};
    made_gguf_tensor(g, "t", sizes, 3, 0, "abcd", 4);
}

static void no_such_type(made_gguf *g)
{
    uint64_t size = 1;
    made_gguf_tensor(g, "t", &size, 1, 250, "abcd", 4);
}

static void unread_type(made_gguf *g)
{
    uint64_t size = 32;
    made_gguf_tensor(g, "t", &size, 1, 15, "0123456789abcdef012345", 22);
}

/* Rows that are no multiple of the block of 256. */
static void half_block(made_gguf *g)
{
    static const char bytes[110];
    uint64_t size = 128;
    made_gguf_tensor(g, "t", &size, 1, 11, bytes, sizeof bytes);
}

/* Fewer bytes than two blocks of MXFP4 have. */
static void lying_type(made_gguf *g)
{
    static const char bytes[33];
    uint64_t size = 64;
    made_gguf_tensor(g, "t", &size, 1, 39, bytes, sizeof bytes);
}

static void long_name(made_gguf *g)
{
    uint64_t size = 1;
    made_gguf_tensor(g, "0123456789012345678901234567890123456789012345678901234567890123x", &size,
                     1, 0, "abcd", 4);
}

static void odd_alignment(made_gguf *g)
{
    made_gguf_u32(g, "general.alignment", 12);
}

static void no_alignment(made_gguf *g)
{
    made_gguf_u32(g, "general.alignment", 0);
}

static void text_alignment(made_gguf *g)
{
    made_gguf_string(g, "general.alignment", "32");
}

static void neither(made_gguf *g)
{
    made_gguf_bool(g, "b", true);
    g->keys.data[g->keys.length - 1] = 2;
}

static void value_type_99(made_gguf *g)
{
    made_gguf_key(g, "k", 99);
}

static void endless_array(made_gguf *g)
{
    made_gguf_key(g, "k", 9);
    made_gguf_bytes(&g->keys, 6, 4);
    made_gguf_bytes(&g->keys, 1ull << 61, 8);
}

static void endless_strings(made_gguf *g)
{
    made_gguf_key(g, "k", 9);
    made_gguf_bytes(&g->keys, 8, 4);
    made_gguf_bytes(&g->keys, UINT64_MAX, 8);
}

/* Arrays of arrays of arrays. */
static void deep_array(made_gguf *g)
{
    made_gguf_key(g, "k", 9);
    for (int i = 0; i < 20; i++) {
        made_gguf_bytes(&g->keys, 9, 4);
        made_gguf_bytes(&g->keys, 1, 8);
    }
}

static void empty_key(made_gguf *g)
{
    made_gguf_u32(g, "", 1);
}

static void many_keys(made_gguf *g)
{
    g->key_count = UINT64_MAX;
}

static void many_tensors(made_gguf *g)
{
    g->tensor_count = 1ull << 62;
}

static void old_version(made_gguf *g)
{
    g->version = 1;
}

static void big_endian(made_gguf *g)
{
    g->version = 3u << 24;
}

static void no_version(made_gguf *g)
{
    g->version = 0;
}

static void test_lies(void **state)
{
    static const struct {
        lie_fn *lie;
        pj_status status;
        const char *part;
    } rows[] = {
        {two_keys, PJ_E_INVALID, "has the key a.count twice"},
        {two_tensors, PJ_E_INVALID, "names tensor m twice"},
        {five_dimensions, PJ_E_INVALID, "5 dimensions"},
        {half_a_block, PJ_E_INVALID, "not a multiple of the block of Q8_0"},
        {overflowing_size, PJ_E_INVALID, "overflows"},
        {no_such_type, PJ_E_INVALID, "unknown type 250"},
        {unread_type, PJ_E_UNSUPPORTED, "is Q8_K, which is not supported"},
        {half_block, PJ_E_INVALID, "not a multiple of the block of Q3_K"},
        {lying_type, PJ_E_INVALID, "beyond the"},
        {long_name, PJ_E_INVALID, "is 65 bytes long"},
        {odd_alignment, PJ_E_INVALID, "general.alignment"},
        {no_alignment, PJ_E_INVALID, "general.alignment"},
        {text_alignment, PJ_E_INVALID, "general.alignment"},
        {neither, PJ_E_INVALID, "must be true or false"},
        {value_type_99, PJ_E_INVALID, "unknown value type 99"},
        {endless_array, PJ_E_INVALID, "does not lie within the file"},
        {endless_strings, PJ_E_INVALID, "does not lie within the file"},
        {deep_array, PJ_E_INVALID, "does not lie within the file"},
        {empty_key, PJ_E_INVALID, "name of a key"},
        {many_keys, PJ_E_INVALID, ""},
        {many_tensors, PJ_E_INVALID, ""},
        {old_version, PJ_E_UNSUPPORTED, "version 1"},
        {big_endian, PJ_E_UNSUPPORTED, "big-endian"},
        {no_version, PJ_E_INVALID, "version 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made_gguf g = sample();
        pj_buffer file;
        parsed p;
        rows[i].lie(&g);
        made_gguf_file(&g, &file);
        parse_bytes(file.data, file.length, &p);
        if (p.status != rows[i].status || !strstr(p.err.text, rows[i].part))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)p.status, p.err.text);
        pj_buffer_fini(&file);
        made_gguf_fini(&g);
    }
}

/* Position of each tensor's offset in the file: the last 8 bytes of its info. */
static void test_places(void **state)
{
    static const struct {
        uint64_t offset;
        const char *part;
    } rows[] = {
        {0, "overlaps"},
        {8, "not a multiple of the alignment"},
        {1 << 30, "beyond"},
        {UINT64_MAX - 31, "beyond"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made_gguf g = sample();
        pj_buffer file;
        parsed p;
        memcpy(g.infos.data + g.infos.length - 8, &rows[i].offset, 8);
        made_gguf_file(&g, &file);
        parse_bytes(file.data, file.length, &p);
        assert_int_equal(p.status, PJ_E_INVALID);
        if (!strstr(p.err.text, rows[i].part)) fail_msg("%s", p.err.text);
        pj_buffer_fini(&file);
        made_gguf_fini(&g);
    }
}

static void test_later_parts(void **state)
{
    (void)state;
    assert_true(pj_gguf_is_later_part("x-00002-of-00003.gguf"));
    assert_false(pj_gguf_is_later_part("x-00001-of-00003.gguf"));
    assert_false(pj_gguf_is_later_part("x-00004-of-00003.gguf"));
    assert_false(pj_gguf_is_later_part("x.gguf"));
    assert_false(pj_gguf_is_later_part("x-00002-of-00003.bin"));
}

/* ---- tokenizers --------------------------------------------------------------------------- */

static pj_status build(const made_gguf *g, pj_tokenizer **t, pj_error *err)
{
    pj_buffer file;
    pj_arena arena;
    pj_gguf gguf;
    made_gguf_file(g, &file);
    pj_arena_init(&arena, 0);
    pj_status status =
        pj_gguf_parse((unsigned char *)file.data, file.length, "made", &arena, &gguf, err);
    assert_int_equal(status, PJ_OK);
    status = pj_tokenizer_from_gguf(&gguf, "made", t, err);
    pj_arena_fini(&arena);
    pj_buffer_fini(&file);
    return status;
}

/* "id id id" */
static void check_ids(const pj_tokenizer *t, const char *text, const char *want)
{
    pj_error err = {0};
    pj_ids ids = {0};
    char got[512] = "";
    size_t used = 0;
    if (pj_tokenizer_encode(t, text, strlen(text), NULL, &ids, &err) != PJ_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.count && used < sizeof got; i++)
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%d", i ? " " : "", ids.ids[i]);
    if (strcmp(got, want) != 0) fail_msg("\"%s\": %s, not %s", text, got, want);
    pj_ids_fini(&ids);
}

static void check_decoded(const pj_tokenizer *t, const int32_t *ids, size_t count, const char *want)
{
    pj_error err = {0};
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    assert_int_equal(pj_tokenizer_decode(t, ids, count, true, &text, &err), PJ_OK);
    assert_string_equal(pj_buffer_get(&text), want);
    pj_buffer_fini(&text);
}

enum { SPM_FIRST = 3 + 256, SPM_TOKENS = SPM_FIRST + 12 };

/* <unk> <s> </s>, the bytes, then these with their scores. */
static const struct {
    const char *text;
    float score;
} pieces[SPM_TOKENS - SPM_FIRST] = {
    {"\xe2\x96\x81", -20},
    {"a", -21},
    {"b", -22},
    {"c", -23},
    {"ab", -1},
    {"bc", -2},
    {"abc", -9},
    {"aa", -3},
    {"aaa", -3},
    {"ba", -30},
    {"<s", -4},
    {"\xe2\x96\x81"
     "a",
     -5},
};

static made_gguf made_spm_of(const char *kind, const uint32_t *more_types)
{
    static char bytes[256][8];
    static const char *texts[SPM_TOKENS] = {"<unk>", "<s>", "</s>"};
    static float scores[SPM_TOKENS];
    static uint32_t types[SPM_TOKENS] = {2, 3, 3};
    made_gguf g;
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", (unsigned)i);
        texts[3 + i] = bytes[i];
        types[3 + i] = 6;
    }
    for (int i = SPM_FIRST; i < SPM_TOKENS; i++) {
        texts[i] = pieces[i - SPM_FIRST].text;
        scores[i] = pieces[i - SPM_FIRST].score;
        types[i] = more_types ? more_types[i - SPM_FIRST] : 1;
    }
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", kind);
    made_gguf_strings(&g, "tokenizer.ggml.tokens", texts, SPM_TOKENS);
    made_gguf_f32s(&g, "tokenizer.ggml.scores", scores, SPM_TOKENS);
    made_gguf_u32s(&g, "tokenizer.ggml.token_type", types, SPM_TOKENS);
    made_gguf_u32(&g, "tokenizer.ggml.bos_token_id", 1);
    made_gguf_u32(&g, "tokenizer.ggml.eos_token_id", 2);
    made_gguf_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
    return g;
}

static made_gguf made_spm(const uint32_t *more_types)
{
    return made_spm_of("llama", more_types);
}

static void test_scores(void **state)
{
    (void)state;
    made_gguf g = made_spm(NULL);
    pj_tokenizer *t;
    pj_error err = {0};
    made_gguf_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(build(&g, &t, &err), PJ_OK);
    /* highest score first, at any position: ab (-1) before bc (-2), then abc from ab and c */
    check_ids(t, "abc", "1 265");
    check_ids(t, "bbc", "1 261 264");
    /* leftmost of equal scores: aa (-3), then aaa (-3) */
    check_ids(t, "aaa", "1 267");
    check_ids(t, "aaaa", "1 267 260");
    check_ids(t, "ba", "1 268");
    /* byte fallback where no token spells the text */
    check_ids(t, "a\xc3\xa9", "1 260 198 172");
    check_ids(t, "a c", "1 260 259 262");
    /* control tokens are matched verbatim */
    check_ids(t, "</s>a", "1 2 260");
    check_decoded(t, (const int32_t[]){1, 265, 259, 198, 172, 2}, 6, "abc \xc3\xa9");
    pj_tokenizer_close(t);
    made_gguf_fini(&g);
}

/* Gemma 4: merges in their order, over whole texts with marked spaces; scores mean nothing. */
static void test_written_merges(void **state)
{
    static const char *const merges[] = {"b c", "a b", "\xe2\x96\x81 a", "a bc"};
    (void)state;
    made_gguf g = made_spm_of("gemma4", NULL);
    pj_tokenizer *t;
    pj_error err = {0};
    made_gguf_strings(&g, "tokenizer.ggml.merges", merges, 4);
    assert_int_equal(build(&g, &t, &err), PJ_OK);
    check_ids(t, "abc", "1 265");
    check_ids(t, "ab", "1 263");
    check_ids(t, "aa", "1 260 260"); /* by its score it would be one */
    check_ids(t, "c a", "1 262 270");
    check_ids(t, "a\xc3\xa9", "1 260 198 172");
    check_decoded(t, (const int32_t[]){262, 270, 198, 172}, 4, "c a\xc3\xa9");
    pj_tokenizer_close(t);
    made_gguf_fini(&g);
}

static void test_prefix(void **state)
{
    (void)state;
    made_gguf g = made_spm(NULL);
    pj_tokenizer *t;
    pj_error err = {0};
    made_gguf_bool(&g, "tokenizer.ggml.add_bos_token", false);
    made_gguf_bool(&g, "tokenizer.ggml.add_eos_token", true);
    assert_int_equal(build(&g, &t, &err), PJ_OK);
    check_ids(t, "a", "270 2");
    check_ids(t, "c", "259 262 2");
    check_ids(t, "", "2");
    check_decoded(t, (const int32_t[]){270, 262}, 2, "ac");
    pj_tokenizer_close(t);
    made_gguf_fini(&g);
}

/* User-defined tokens are matched verbatim; unused ones never. */
static void test_types(void **state)
{
    static const uint32_t types[] = {1, 1, 1, 1, 5, 1, 1, 1, 4, 1, 1, 1};
    (void)state;
    made_gguf g = made_spm(types);
    pj_tokenizer *t;
    pj_error err = {0};
    made_gguf_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    made_gguf_bool(&g, "tokenizer.ggml.add_bos_token", false);
    assert_int_equal(build(&g, &t, &err), PJ_OK);
    check_ids(t, "ab", "260 261");
    check_ids(t, "baaab", "261 267 261");
    assert_false(pj_tokenizer_is_special(t, 267));
    assert_true(pj_tokenizer_is_special(t, 2));
    pj_tokenizer_close(t);
    made_gguf_fini(&g);
}

/* The byte-level alphabet, then these tokens. */
enum { MORE = 8 };

static made_gguf made_letters(const char *pre, const char *const *merges, uint64_t merge_count)
{
    static char letters[256][4];
    static const char *texts[256 + MORE] = {
        [256] = "th", "the", "\xc4\xa0the", "<|end|>", "  ", "12", "t\xc3\x8c", ".\xc4\x8a",
    };
    static uint32_t types[256 + MORE];
    unsigned moved = 0;
    made_gguf g;
    for (unsigned byte = 0; byte < 256; byte++) {
        bool own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        letters[byte][pj_utf8_put(own ? byte : 256 + moved++, letters[byte])] = 0;
        texts[byte] = letters[byte];
    }
    for (int i = 0; i < 256 + MORE; i++) types[i] = i == 259 ? 3 : i == 260 ? 4 : 1;
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", "gpt2");
    if (pre) made_gguf_string(&g, "tokenizer.ggml.pre", pre);
    made_gguf_strings(&g, "tokenizer.ggml.tokens", texts, 256 + MORE);
    made_gguf_u32s(&g, "tokenizer.ggml.token_type", types, 256 + MORE);
    made_gguf_strings(&g, "tokenizer.ggml.merges", merges, merge_count);
    made_gguf_u32(&g, "tokenizer.ggml.bos_token_id", 0);
    return g;
}

static const char *const some_merges[] = {"t h", "th e",       "\xc4\xa0 the",
                                          "1 2", "t \xc3\x8c", ". \xc4\x8a"};

static void test_names(void **state)
{
    static const struct {
        const char *pre, *text, *ids;
    } rows[] = {
        {"gpt-2", "the the", "257 258"},
        {"gpt-2", "the<|end|>the", "257 259 257"},
        {"gpt-2", "1234th", "261 51 52 256"},
        /* BOS by itself, three digits at most, and whole words without merges */
        {"llama-bpe", "the", "0 257"},
        {"tekken", "the", "0 257"},
        {"dbrx", "the", "257"},
        {"smollm", "the12", "257 49 50"},
        {"gpt-4o", " the", "258"},
        /* composed: e and a combining acute are one letter of two bytes */
        {"qwen2", "e\xcc\x81", "195 169"},
        {"deepseek-r1-qwen", "e\xcc\x81", "101 204 129"},
        {"phi-2", "  the", "260 257"},
        /* a letter and its mark in one piece or in two; punctuation with its line break or without
         */
        {"qwen35", "t\xcc\x84", "262 132"},
        {"qwen2", "t\xcc\x84", "116 204 132"},
        {"dbrx", ".\n", "263"},
        {"seed-coder", ".\n", "46 10"},
        {"olmo", "12", "261"},
        {"mpt", "12", "261"},
        {"exaone4", "12", "261"},
        {"llama4", " the", "258"},
        {"falcon-h1", "the", "0 257"},
        {"falcon3", "the", "0 257"},
        {"pixtral", "the", "0 257"},
        {"hunyuan", "1234th", "49 50 51 52 256"},
        {"minimax-m2", " the", "258"},
        /* three digits at most; a mark of punctuation joins the letters after it */
        {"deepseek-v3", "1234th", "261 51 52 256"},
        /* a space joins letters with cases; digits are single; spaces at an end stay apart */
        {"deepseek-llm", " the12", "258 49 50"},
        {"deepseek-llm", "th\xe2\x82\xac the", "256 226 130 172 258"},
        {"deepseek-llm", "t\xcc\x84", "116 204 132"},
        {"deepseek-llm", ".\n", "46 10"},
        {"hunyuan-dense", " the", "258"},
        {"hunyuan-dense", ".\n", "263"},
        {"hunyuan-dense", "the12", "257 261"},
        /* digits split first: no merge joins them */
        {"refact", "the 12", "257 32 49 50"},
        {"starcoder", "the 12", "257 32 49 50"},
        {"command-r", "the 12", "257 32 49 50"},
        {"codeshell", "the 12", "257 32 49 50"},
        {"exaone", "the 12", "257 32 49 50"},
        {"minerva-7b", "the 12", "257 32 49 50"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made_gguf g = made_letters(rows[i].pre, some_merges, 6);
        pj_tokenizer *t;
        pj_error err = {0};
        if (build(&g, &t, &err) != PJ_OK) fail_msg("%s", err.text);
        check_ids(t, rows[i].text, rows[i].ids);
        check_decoded(t, (const int32_t[]){257, 259, 258}, 3, "the the");
        pj_tokenizer_close(t);
        made_gguf_fini(&g);
    }
}

static void refuse(made_gguf *g, pj_status status, const char *part)
{
    pj_tokenizer *t;
    pj_error err = {0};
    if (build(g, &t, &err) != status || !strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(t);
    made_gguf_fini(g);
}

static void test_refused(void **state)
{
    static const char *const outside[] = {"t x", "x"}, *const single[] = {"t"};
    (void)state;
    made_gguf g = made_letters(NULL, some_merges, 6);
    refuse(&g, PJ_E_UNSUPPORTED, "(none)");
    g = made_letters("default", some_merges, 6);
    refuse(&g, PJ_E_UNSUPPORTED, "default");
    g = made_letters("gpt-2", outside, 1);
    refuse(&g, PJ_E_INVALID, "merge 0");
    g = made_letters("gpt-2", single, 1);
    refuse(&g, PJ_E_INVALID, "merge 0");
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", "bert");
    refuse(&g, PJ_E_UNSUPPORTED, "of the kind bert");
    made_gguf_init(&g);
    refuse(&g, PJ_E_INVALID, "tokenizer.ggml.model is missing");
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", "llama");
    refuse(&g, PJ_E_INVALID, "tokenizer.ggml.tokens is missing");
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", "llama");
    made_gguf_strings(&g, "tokenizer.ggml.tokens", single, 1);
    refuse(&g, PJ_E_INVALID, "tokenizer.ggml.scores is missing");
    made_gguf_init(&g);
    made_gguf_string(&g, "tokenizer.ggml.model", "llama");
    made_gguf_strings(&g, "tokenizer.ggml.tokens", single, 1);
    made_gguf_f32s(&g, "tokenizer.ggml.scores", (const float[]){1, 2}, 2);
    refuse(&g, PJ_E_INVALID, "one item per token");
}

/* Each allocation fails once: an error without leaks. */
static void test_out_of_memory(void **state)
{
    static const uint32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        made_gguf g = kind ? made_letters("qwen2", some_merges, 6) : made_spm(types);
        pj_buffer file;
        made_gguf_file(&g, &file);
        bool done = false;
        for (int64_t after = 0; !done; after++) {
            pj_arena arena;
            pj_gguf gguf;
            pj_tokenizer *t = NULL;
            pj_error err = {0};
            assert_that(after, <, 1000);
            pj_arena_init(&arena, 0);
            pj_memory_fail_after(after);
            pj_status status =
                pj_gguf_parse((unsigned char *)file.data, file.length, "made", &arena, &gguf, &err);
            if (status == PJ_OK) status = pj_tokenizer_from_gguf(&gguf, "made", &t, &err);
            pj_memory_fail_after(-1);
            done = status == PJ_OK;
            if (!done) assert_true(err.text[0]);
            pj_tokenizer_close(t);
            pj_arena_fini(&arena);
        }
        pj_buffer_fini(&file);
        made_gguf_fini(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fine),          cmocka_unit_test(test_damage),
        cmocka_unit_test(test_lies),          cmocka_unit_test(test_places),
        cmocka_unit_test(test_scores),        cmocka_unit_test(test_written_merges),
        cmocka_unit_test(test_prefix),        cmocka_unit_test(test_types),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_later_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
