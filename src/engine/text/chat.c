/* Finds a model's chat template and special tokens, and renders conversations. */
#include "engine/text/chat.h"

#include "base/file.h"
#include "base/memory.h"
#include "engine/files/gguf.h"
#include "engine/text/tokenizer/parts.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_CONFIG_BYTES = 64 << 20 };

/* Special tokens that templates may reference; they count as template text, not as data. */
static const char *const token_names[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                          "pad_token", "cls_token", "mask_token", NULL};

struct pj_chat {
    pj_jinja *jinja;
    json_t *tokens;   /* an object: name -> text */
    char *with_tools; /* the template for conversations with tools, parsed when needed; or NULL */
    size_t with_tools_bytes;
    char title[200];
};

void pj_chat_close(pj_chat *chat)
{
    if (!chat) return;
    pj_jinja_close(chat->jinja);
    json_decref(chat->tokens);
    pj_free(chat->with_tools);
    pj_free(chat);
}

/* Takes `tokens`. */
static pj_status new_chat(const char *template, size_t bytes, const char *name, json_t *tokens,
                          pj_chat **chat, pj_error *err)
{
    pj_chat *made = pj_alloc(1, sizeof *made);
    *chat = NULL;
    if (!made || !tokens) {
        pj_free(made);
        json_decref(tokens);
        return pj_fail_memory(err, "a chat template");
    }
    made->tokens = tokens;
    snprintf(made->title, sizeof made->title, "the chat template of %.150s", name);
    pj_status status = pj_jinja_open(template, bytes, made->title, &made->jinja, err);
    if (status != PJ_OK) {
        pj_chat_close(made);
        return status;
    }
    *chat = made;
    return PJ_OK;
}

pj_status pj_chat_parse(const char *template, size_t bytes, const char *name, const char *bos,
                        const char *eos, pj_chat **chat, pj_error *err)
{
    json_t *tokens = json_object();
    json_object_set_new(tokens, "bos_token", json_string(bos));
    json_object_set_new(tokens, "eos_token", json_string(eos));
    return new_chat(template, bytes, name, tokens, chat, err);
}

/* ---- model folders ---- */

static pj_status chat_read_json(const char *folder, const char *file, json_t **json, pj_error *err)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    json_error_t where;
    *json = NULL;
    if (!pj_path_join(path, sizeof path, folder, file))
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", folder);
    if (!pj_file_exists(path)) return PJ_OK;
    pj_status status = pj_file_read(path, MAX_CONFIG_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    *json = json_loadb(text, bytes, JSON_ALLOW_NUL, &where);
    pj_free(text);
    if (*json) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "%s is not valid JSON: %s (line %d)", path, where.text,
                   where.line);
}

/* A token is a string, or an object with its content. The first file that defines one wins. */
static void chat_add_tokens(json_t *tokens, json_t *config)
{
    for (const char *const *name = token_names; *name; name++) {
        json_t *value = json_object_get(config, *name);
        if (json_is_object(value)) value = json_object_get(value, "content");
        if (json_is_string(value) && !json_object_get(tokens, *name))
            json_object_set(tokens, *name, value);
    }
}

/* A template is a string, which is the default, or a list of {name, template}. */
static json_t *template_of(json_t *config, const char *wanted)
{
    json_t *value = json_object_get(config, "chat_template"), *item, *found = NULL;
    size_t i;
    if (json_is_string(value)) return strcmp(wanted, "default") == 0 ? value : NULL;
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        json_t *text = json_object_get(item, "template");
        if (json_is_string(text) && name && strcmp(name, wanted) == 0) found = text;
    }
    return found;
}

static pj_status copy_template(json_t *found, char **text, size_t *bytes, pj_error *err)
{
    *bytes = json_string_length(found);
    *text = pj_strndup(json_string_value(found), *bytes);
    return *text ? PJ_OK : pj_fail_memory(err, "a chat template");
}

/* The template that the reference takes for conversations with tools; NULL: the default. Files take
 * precedence over tokenizer_config.json. */
static pj_status read_tool_template(const char *folder, json_t *config, pj_chat *chat,
                                    pj_error *err)
{
    char path[PATH_MAX];
    if (pj_path_join(path, sizeof path, folder, "additional_chat_templates/tool_use.jinja") &&
        pj_file_exists(path))
        return pj_file_read(path, MAX_CONFIG_BYTES, &chat->with_tools, &chat->with_tools_bytes,
                            err);
    if (pj_path_join(path, sizeof path, folder, "chat_template.jinja") && pj_file_exists(path))
        return PJ_OK;
    json_t *found = template_of(config, "tool_use");
    return found ? copy_template(found, &chat->with_tools, &chat->with_tools_bytes, err) : PJ_OK;
}

static pj_status chat_read_template(const char *folder, json_t *config, char **text, size_t *bytes,
                                    pj_error *err)
{
    char path[PATH_MAX];
    json_t *of_processor = NULL;
    *text = NULL;
    if (!pj_path_join(path, sizeof path, folder, "chat_template.jinja"))
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", folder);
    if (pj_file_exists(path)) return pj_file_read(path, MAX_CONFIG_BYTES, text, bytes, err);
    json_t *found = template_of(config, "default");
    if (found) return copy_template(found, text, bytes, err);
    if (json_array_size(json_object_get(config, "chat_template")) > 0)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s has several chat templates, none of which is named default", folder);
    /* of models that also read images */
    pj_status status = chat_read_json(folder, "chat_template.json", &of_processor, err);
    found = template_of(of_processor, "default");
    if (status == PJ_OK)
        status = found
                     ? copy_template(found, text, bytes, err)
                     : pj_fail(err, PJ_E_UNSUPPORTED,
                               "%s has no chat template (a base model?); leave out --chat", folder);
    json_decref(of_processor);
    return status;
}

pj_status pj_chat_open(const char *folder, pj_chat **chat, pj_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *config = NULL, *map = NULL, *tokens = json_object();
    *chat = NULL;
    pj_status status = chat_read_json(folder, "tokenizer_config.json", &config, err);
    if (status == PJ_OK) status = chat_read_json(folder, "special_tokens_map.json", &map, err);
    if (status == PJ_OK) status = chat_read_template(folder, config, &text, &bytes, err);
    if (status == PJ_OK) {
        chat_add_tokens(tokens, config);
        chat_add_tokens(tokens, map);
        status = new_chat(text, bytes, folder, json_incref(tokens), chat, err);
    }
    if (status == PJ_OK) status = read_tool_template(folder, config, *chat, err);
    if (status != PJ_OK) {
        pj_chat_close(*chat);
        *chat = NULL;
    }
    pj_free(text);
    json_decref(config);
    json_decref(map);
    json_decref(tokens);
    return status;
}

/* ---- GGUF ---- */

/* The text of the token that a field refers to; NULL: none. */
static const char *token_of_field(const pj_gguf *gguf, const pj_tokenizer *tokenizer,
                                  const char *key)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, key);
    int64_t id;
    if (!value || value->is_array || !pj_gguf_integer(value, 0, &id) || id < 0 || id > INT32_MAX)
        return NULL;
    return pj_tokenizer_token(tokenizer, (int32_t)id);
}

static json_t *gguf_tokens(const pj_gguf *gguf, const pj_tokenizer *tokenizer)
{
    static const struct {
        const char *name, *key;
    } fields[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"sep_token", "tokenizer.ggml.seperator_token_id"}, /* sic: the files' spelling */
        {"pad_token", "tokenizer.ggml.padding_token_id"},
    };
    json_t *tokens = json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *text = token_of_field(gguf, tokenizer, fields[i].key);
        if (text) json_object_set_new(tokens, fields[i].name, json_string(text));
    }
    return tokens;
}

pj_status pj_chat_of_gguf(const pj_gguf *gguf, const pj_tokenizer *tokenizer, const char *name,
                          pj_chat **chat, pj_error *err)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, "tokenizer.chat_template");
    pj_gguf_text found;
    *chat = NULL;
    if (!value || !pj_gguf_string(value, &found))
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s has no chat template (a base model?); leave out --chat", name);
    pj_status status =
        new_chat(found.text, found.bytes, name, gguf_tokens(gguf, tokenizer), chat, err);
    value = pj_gguf_find(gguf, "tokenizer.chat_template.tool_use");
    if (status != PJ_OK || !value || !pj_gguf_string(value, &found)) return status;
    (*chat)->with_tools = pj_strndup(found.text, found.bytes);
    (*chat)->with_tools_bytes = found.bytes;
    if ((*chat)->with_tools) return PJ_OK;
    pj_chat_close(*chat);
    *chat = NULL;
    return pj_fail_memory(err, "a chat template");
}

/* ---- conversations ---- */

/* JSON requires valid UTF-8: invalid sequences become U+FFFD, as in the tokenizer. */
static json_t *json_text(const char *text, size_t bytes)
{
    pj_buffer clean;
    pj_buffer_init(&clean, 3 * bytes + 1);
    json_t *made = pj_utf8_repair(text, bytes, &clean)
                       ? json_stringn(pj_buffer_get(&clean), clean.length)
                       : NULL;
    pj_buffer_fini(&clean);
    return made;
}

static pj_status check_messages(json_t *messages, pj_error *err)
{
    json_t *message;
    size_t i;
    if (!json_is_array(messages))
        return pj_fail(err, PJ_E_INVALID,
                       "a conversation is a JSON array of {\"role\", \"content\"}, or an object "
                       "with one as \"messages\"");
    json_array_foreach(messages, i, message) if (
        !json_is_string(json_object_get(
            message, "role"))) return pj_fail(err, PJ_E_INVALID,
                                              "message %zu of the conversation has no role", i + 1);
    return PJ_OK;
}

/* The messages of a JSON text; other members of an object become template variables. */
static pj_status read_messages(const pj_conversation *c, json_t *input, json_t **messages,
                               pj_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(c->text, c->bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
    if (!root)
        return pj_fail(err, PJ_E_INVALID, "the conversation is not valid JSON: %s (line %d)",
                       where.text, where.line);
    if (json_is_object(root)) json_object_update(input, root);
    *messages = json_incref(json_is_object(root) ? json_object_get(root, "messages") : root);
    json_decref(root);
    return check_messages(*messages, err);
}

static pj_status add_variables(const pj_conversation *c, json_t *input, pj_error *err)
{
    json_error_t where;
    if (!c->variables) return PJ_OK;
    json_t *root = json_loads(c->variables, 0, &where);
    bool good = json_is_object(root);
    if (good) json_object_update(input, root);
    json_decref(root);
    return good ? PJ_OK
                : pj_fail(err, PJ_E_INVALID, "the template's variables are not a JSON object");
}

static json_t *message_of(const char *role, const char *text, size_t bytes)
{
    return json_pack("{s:s, s:o}", "role", role, "content", json_text(text, bytes));
}

static pj_status add_system(const pj_conversation *c, json_t *messages, pj_error *err)
{
    if (!c->system) return PJ_OK;
    const char *first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    if (first && (strcmp(first, "system") == 0 || strcmp(first, "developer") == 0))
        return pj_fail(err, PJ_E_INVALID,
                       "the conversation already has a system message; leave out --system");
    json_t *message = message_of("system", c->system, strlen(c->system));
    return json_array_insert_new(messages, 0, message) == 0 ? PJ_OK
                                                            : pj_fail_memory(err, "a conversation");
}

/* The template's input as one object. */
static pj_status make_input(const pj_chat *chat, const pj_conversation *c, json_t *input,
                            pj_error *err)
{
    json_t *messages = NULL;
    json_object_set_new(input, "tools", json_null());
    json_object_set_new(input, "documents", json_null());
    json_object_update(input, chat->tokens);
    pj_status status = PJ_OK;
    if (c->messages)
        status = read_messages(c, input, &messages, err);
    else if (!(messages = json_array()) ||
             json_array_append_new(messages, message_of("user", c->text, c->bytes)) != 0)
        status = pj_fail_memory(err, "a conversation");
    if (status == PJ_OK) status = add_system(c, messages, err);
    if (status == PJ_OK) status = add_variables(c, input, err);
    if (status == PJ_OK) {
        json_object_set(input, "messages", messages);
        json_object_set_new(input, "add_generation_prompt", json_true());
    }
    json_decref(messages);
    return status;
}

pj_status pj_chat_render(const pj_chat *chat, const pj_conversation *conversation,
                         pj_jinja_output *output, pj_error *err)
{
    json_t *input = json_object();
    *output = (pj_jinja_output){0};
    pj_status status =
        input ? make_input(chat, conversation, input, err) : pj_fail_memory(err, "a conversation");
    char *text = status == PJ_OK ? json_dumps(input, JSON_COMPACT) : NULL;
    if (status == PJ_OK && !text) status = pj_fail_memory(err, "a conversation");
    pj_jinja *with_tools = NULL;
    json_t *tools = json_object_get(input, "tools");
    if (status == PJ_OK && chat->with_tools && tools && !json_is_null(tools))
        status =
            pj_jinja_open(chat->with_tools, chat->with_tools_bytes, chat->title, &with_tools, err);
    if (status == PJ_OK)
        status = pj_jinja_render(with_tools ? with_tools : chat->jinja,
                                 &(pj_jinja_input){.json = text,
                                                   .bytes = strlen(text),
                                                   .trusted = token_names,
                                                   .now = (int64_t)time(NULL)},
                                 output, err);
    pj_jinja_close(with_tools);
    free(text);
    json_decref(input);
    return status;
}

/* Ranges of bytes marked as data. */
static pj_text_span *literal_spans(const pj_jinja_output *output, size_t *count)
{
    size_t runs = 0;
    for (size_t i = 0; i < output->bytes; i++)
        runs += output->marks[i] && (i == 0 || !output->marks[i - 1]);
    pj_text_span *spans = pj_alloc(runs + 1, sizeof *spans);
    *count = 0;
    for (size_t i = 0; spans && i < output->bytes; i++) {
        if (!output->marks[i]) continue;
        if (i == 0 || !output->marks[i - 1]) spans[(*count)++].begin = i;
        spans[*count - 1].end = i + 1;
    }
    return spans;
}

pj_status pj_chat_encode(const pj_chat *chat, const pj_tokenizer *tokenizer,
                         const pj_conversation *conversation, pj_ids *ids, pj_error *err)
{
    pj_jinja_output output;
    size_t count = 0;
    pj_status status = pj_chat_render(chat, conversation, &output, err);
    if (status != PJ_OK) return status;
    pj_text_span *spans = literal_spans(&output, &count);
    pj_encode_options options = {.no_special = true, .literals = spans, .literal_count = count};
    status = spans ? pj_tokenizer_encode(tokenizer, output.text, output.bytes, &options, ids, err)
                   : pj_fail_memory(err, "a conversation");
    pj_free(spans);
    pj_jinja_output_fini(&output);
    return status;
}
