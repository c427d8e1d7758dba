/* perjoule tokenize: text to ids and back. */
#include "base/memory.h"
#include "cli/inputs.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/text/tokenizer.h"
#include "generate/find_model.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30, MAX_JSON_BYTES = 1 << 30 };

typedef struct request {
    const char *model, *file, *decode, *text;
    bool json, special, skip_special;
} request;

/* The text to encode, from the argument, a file or standard input. The caller frees *text. */
static pj_status tokenize_read_text(const request *r, char **text, size_t *bytes, pj_error *err)
{
    if (r->file || strcmp(r->text, "-") == 0)
        return pj_input_read(r->file ? r->file : "-", MAX_TEXT_BYTES, text, bytes, err);
    *bytes = strlen(r->text);
    *text = pj_strdup(r->text);
    return *text ? PJ_OK : pj_fail_memory(err, "the text");
}

static void print_ids(const pj_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) pj_print(stdout, "%s%d", i ? "," : "", ids->ids[i]);
    pj_print(stdout, "\n");
}

static bool tokenize_write_out(void *context, const char *bytes, size_t count)
{
    return pj_write_output(stdout, bytes, count);
}

static bool tokenize_print_json(const pj_tokenizer *tokenizer, const pj_ids *ids)
{
    pj_buffer block;
    pj_json json;
    pj_buffer_init(&block, MAX_JSON_BYTES);
    pj_json_init_stream(&json, &block, tokenize_write_out, NULL);
    pj_json_object_begin(&json);
    pj_json_kv_array_begin(&json, "ids");
    for (size_t i = 0; i < ids->count; i++) pj_json_int(&json, ids->ids[i]);
    pj_json_array_end(&json);
    pj_json_kv_array_begin(&json, "tokens");
    for (size_t i = 0; i < ids->count; i++)
        pj_json_string(&json, pj_tokenizer_token(tokenizer, ids->ids[i]));
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    bool ok = pj_json_finish(&json);
    pj_print(stdout, "\n");
    pj_buffer_fini(&block);
    return ok;
}

static pj_status encode(const request *r, const pj_tokenizer *tokenizer, pj_error *err)
{
    char *text = NULL;
    size_t bytes;
    pj_ids ids = {0};
    pj_encode_options options = {.no_special = !r->special};
    pj_status status = tokenize_read_text(r, &text, &bytes, err);
    if (status == PJ_OK) status = pj_tokenizer_encode(tokenizer, text, bytes, &options, &ids, err);
    if (status == PJ_OK && !r->json) print_ids(&ids);
    if (status == PJ_OK && r->json && !tokenize_print_json(tokenizer, &ids))
        status = pj_fail(err, PJ_E_IO, "cannot write to standard output");
    pj_ids_fini(&ids);
    pj_free(text);
    return status;
}

static pj_status check_exist(const pj_tokenizer *tokenizer, const int32_t *ids, uint32_t count,
                             pj_error *err)
{
    for (uint32_t i = 0; i < count; i++)
        if (!pj_tokenizer_token(tokenizer, ids[i]))
            return pj_fail(err, PJ_E_INVALID, "the tokenizer has no token with id %d", ids[i]);
    return PJ_OK;
}

static pj_status decode(const request *r, const pj_tokenizer *tokenizer, pj_error *err)
{
    int32_t *ids = NULL;
    uint32_t count;
    pj_buffer text;
    pj_buffer_init(&text, MAX_TEXT_BYTES);
    pj_status status = pj_ids_parse(r->decode, &ids, &count, err);
    if (status == PJ_OK) status = check_exist(tokenizer, ids, count, err);
    if (status == PJ_OK)
        status = pj_tokenizer_decode(tokenizer, ids, count, r->skip_special, &text, err);
    if (status == PJ_OK && r->json) {
        pj_json_out out;
        pj_json *json = pj_json_out_begin(&out);
        pj_json_object_begin(json);
        pj_json_key(json, "text");
        pj_json_string_n(json, pj_buffer_get(&text), text.length);
        pj_json_object_end(json);
        status = pj_json_out_end(&out, status, err);
    } else if (status == PJ_OK) {
        pj_write_output(stdout, pj_buffer_get(&text), text.length);
        pj_print(stdout, "\n");
    }
    pj_buffer_fini(&text);
    pj_free(ids);
    return status;
}

static int run(const pj_command *command, int argc, char **argv)
{
    request r = {.special = true};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &r.model, "MODEL",
         "name of a model, its folder, a tokenizer.json, or a GGUF file"},
        {"file", 'f', PJ_OPTION_TEXT, &r.file, "FILE",
         "read the text from FILE; - is standard input", .rule = pj_rule_file_or_input},
        {"decode", 0, PJ_OPTION_TEXT, &r.decode, "IDS", "ids to text: 1,2,3", .rule = pj_rule_ids},
        {"special", 0, PJ_OPTION_FLAG, &r.special, NULL,
         "add the model's special tokens (default; --no-special: do not)", .excludes = "decode"},
        {"skip-special", 0, PJ_OPTION_FLAG, &r.skip_special, NULL,
         "with --decode: leave out special tokens", .needs = "decode"},
        {"json", 0, PJ_OPTION_FLAG, &r.json, NULL, "print JSON"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    r.text = positional > 0 ? argv[1] : NULL;
    if (!r.model) return pj_command_usage(command, "-m MODEL is required");
    if (positional > 1) return pj_command_usage(command, "give one text in quotes");
    if ((r.text != NULL) + (r.file != NULL) + (r.decode != NULL) != 1)
        return pj_command_usage(command, "give one of TEXT, -f FILE and --decode IDS");
    pj_tokenizer *tokenizer = NULL;
    pj_error err;
    char path[4096];
    pj_status status = pj_model_find(r.model, NULL, path, sizeof path, &err);
    if (status == PJ_OK) status = pj_tokenizer_open(path, &tokenizer, &err);
    if (status == PJ_OK)
        status = r.decode ? decode(&r, tokenizer, &err) : encode(&r, tokenizer, &err);
    pj_tokenizer_close(tokenizer);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids, or ids into text",
    .run = run,
    .usage = "-m MODEL [options] TEXT",
    .text =
        "Prints the ids that the model's tokenizer gives for a text. It needs no weights: a folder "
        "with a tokenizer.json, or a GGUF file that holds a vocabulary only, is enough.",
    .examples = "perjoule tokenize -m models/llama \"Hello, world\"\n"
                "perjoule tokenize -m models/llama --json -f text.txt\n"
                "perjoule tokenize -m models/llama --decode 1,15043,3186\n",
};
