/* Generates tokenizer.json texts: an alphabet, a few merges and the components of each kind. */
#include "made_tokenizer.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdio.h>

/* Merges of plain letters; their operands and results form the vocabulary in this order. */
static const char *const merges[][2] = {
    {"t", "h"},    {"th", "e"}, {"h", "e"},  {"i", "n"}, {"l", "l"}, {"he", "ll"},
    {"hell", "o"}, {"a", "n"},  {"an", "d"}, {"e", "r"}, {"o", "r"}, {"1", "2"},
};
enum { MERGES = sizeof merges / sizeof *merges };

static void put_token(pj_json *json, const char *text, unsigned *id)
{
    pj_json_kv_uint(json, text, (*id)++);
}

/* The 256 byte-level letters, or the printable ASCII with the mark of a space. */
static void put_alphabet(pj_json *json, bool letters, unsigned *id)
{
    char text[8] = {0};
    unsigned moved = 0;
    for (unsigned byte = 0; letters && byte < 256; byte++) {
        bool own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        text[pj_utf8_put(own ? byte : 256 + moved++, text)] = 0;
        put_token(json, text, id);
    }
    if (letters) return;
    for (char c = 33; c < 127; c++) {
        text[0] = c;
        text[1] = 0;
        put_token(json, text, id);
    }
    put_token(json, "\xe2\x96\x81", id);
}

static void put_vocab(pj_json *json, made_kind kind)
{
    unsigned id = 0;
    char text[16];
    pj_json_key(json, "vocab");
    pj_json_object_begin(json);
    put_token(json, "<unk>", &id);
    put_token(json, "<s>", &id);
    put_token(json, "</s>", &id);
    for (unsigned byte = 0; kind == MADE_FALLBACK && byte < 256; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", byte);
        put_token(json, text, &id);
    }
    put_alphabet(json, kind == MADE_BYTE_LEVEL, &id);
    for (int i = 0; i < MERGES; i++) {
        snprintf(text, sizeof text, "%s%s", merges[i][0], merges[i][1]);
        put_token(json, text, &id);
    }
    pj_json_object_end(json);
}

static void put_model(pj_json *json, made_kind kind)
{
    pj_json_key(json, "model");
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", "BPE");
    pj_json_kv_string(json, "unk_token", kind == MADE_BYTE_LEVEL ? NULL : "<unk>");
    pj_json_kv_bool(json, "byte_fallback", kind == MADE_FALLBACK);
    pj_json_kv_bool(json, "fuse_unk", kind == MADE_FALLBACK);
    pj_json_kv_bool(json, "ignore_merges", kind == MADE_BYTE_LEVEL);
    put_vocab(json, kind);
    pj_json_key(json, "merges");
    pj_json_array_begin(json);
    for (int i = 0; i < MERGES; i++) {
        char text[16];
        snprintf(text, sizeof text, "%s %s", merges[i][0], merges[i][1]);
        pj_json_string(json, text);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static const char *const parts[MADE_KIND_COUNT] = {
    [MADE_BYTE_LEVEL] =
        "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{"
        "L}+|"
        "\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
        "\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
        "{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},"
        "\"decoder\":{\"type\":\"ByteLevel\"}",
    [MADE_FALLBACK] =
        "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":false},"
        "{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":false}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
        "\"prepend\":\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
        "\"content\":\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null,\"post_processor\":null,"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
    [MADE_WORDS] =
        "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":true,"
        "\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":2,\"content\":\"</s>\","
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
        "\"special\":true},{\"id\":500,\"content\":\"AND\",\"single_word\":true,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":true,\"special\":false}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
        "{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\","
        "\"split\":true},{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":"
        "\"Punctuation\",\"behavior\":\"MergedWithPrevious\"}]},\"post_processor\":null,"
        "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
        "\"prepend_scheme\":\"first\"}",
};

void made_tokenizer(made_kind kind, pj_buffer *text)
{
    pj_json json;
    pj_buffer model;
    pj_buffer_init(&model, 1 << 20);
    pj_json_init(&json, &model);
    pj_json_object_begin(&json);
    put_model(&json, kind);
    pj_json_object_end(&json);
    /* {"model":...} with the other parts after its opening bracket. */
    pj_buffer_printf(text, "{\"version\":\"1.0\",%s,%s", parts[kind], pj_buffer_get(&model) + 1);
    pj_buffer_fini(&model);
}
