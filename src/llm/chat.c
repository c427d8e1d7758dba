/* Recognising and writing chat formats. */
#include "llm/chat.h"

#include "base/file.h"
#include "base/memory.h"
#include "llm/gguf.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_TEXT_BYTES = 256 << 20 };

static const char *const names[PJ_CHAT_KIND_COUNT] = {
    "chatml",         "phi-4",      "llama-2", "mistral-v1", "mistral-v3",
    "mistral-tekken", "mistral-v7", "phi-3",   "llama-3",
};

const char *pj_chat_name(pj_chat_kind kind)
{
    return names[kind];
}

/* ---- recognising ---- */

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static bool recognise_kind(const char *text, pj_chat_kind *kind)
{
    if (has(text, "<|im_start|>"))
        *kind = has(text, "<|im_sep|>") ? PJ_CHAT_PHI4 : PJ_CHAT_CHATML;
    else if (has(text, "[INST]") && has(text, "[SYSTEM_PROMPT]"))
        *kind = PJ_CHAT_MISTRAL_V7;
    else if (has(text, "[INST]") && has(text, "<<SYS>>"))
        *kind = PJ_CHAT_LLAMA2;
    else if (has(text, "[INST]"))
        *kind = has(text, " [/INST]")     ? PJ_CHAT_MISTRAL_V1
                : has(text, "\"[INST]\"") ? PJ_CHAT_MISTRAL_TEKKEN
                                          : PJ_CHAT_MISTRAL_V3;
    else if (has(text, "<|assistant|>") && has(text, "<|end|>"))
        *kind = PJ_CHAT_PHI3;
    else if (has(text, "<|start_header_id|>"))
        *kind = PJ_CHAT_LLAMA3;
    else
        return false;
    return true;
}

/* The system text that a ChatML template writes by itself: plain text between the markers, in one
 * string literal. */
static void find_default_system(const char *text, char *out, size_t bytes)
{
    static const char opening[] = "<|im_start|>system\\n";
    for (const char *at = text; (at = strstr(at, opening)); at++) {
        const char *begin = at + sizeof opening - 1, *end = strstr(begin, "<|im_end|>");
        size_t length = end ? (size_t)(end - begin) : 0;
        if (length == 0 || length >= bytes || strcspn(begin, "'\"{}\\") < length) continue;
        memcpy(out, begin, length);
        out[length] = 0;
        return;
    }
}

pj_status pj_chat_recognise(const char *text, const char *bos, const char *eos,
                            pj_chat_format *format, pj_error *err)
{
    *format = (pj_chat_format){0};
    if (!recognise_kind(text, &format->kind))
        return pj_fail(
            err, PJ_E_UNSUPPORTED,
            "the model's chat template is of no known family; leave out --chat and write "
            "the format into the prompt");
    bool writes_bos = has(text, "bos_token") || (bos[0] && has(text, bos));
    snprintf(format->bos, sizeof format->bos, "%s", writes_bos ? bos : "");
    snprintf(format->eos, sizeof format->eos, "%s", eos);
    format->dated_system = has(text, "Cutting Knowledge Date");
    format->newlines = has(text, "\\n") || has(text, "|>\n");
    format->leading_space = has(text, "' [INST]") || has(text, "\" [INST]");
    if (format->kind == PJ_CHAT_CHATML)
        find_default_system(text, format->default_system, sizeof format->default_system);
    return PJ_OK;
}

/* ---- the files ---- */

/* A token of tokenizer_config.json: a string, or an object with its content. */
static const char *token_text(json_t *config, const char *key)
{
    json_t *value = json_object_get(config, key);
    const char *text =
        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? text : "";
}

/* A template is one text, or a list of {name, template}, of which "default" is meant. */
static const char *template_text(json_t *config)
{
    json_t *value = json_object_get(config, "chat_template"), *item;
    const char *found = NULL;
    size_t i;
    if (json_is_string(value)) return json_string_value(value);
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *text = json_string_value(json_object_get(item, "template"));
        if (text && (!found || (name && strcmp(name, "default") == 0))) found = text;
    }
    return found;
}

static pj_status read_file(const char *folder, const char *file, char path[PATH_MAX], char **text,
                           size_t *bytes, pj_error *err)
{
    *text = NULL;
    *bytes = 0;
    if (!pj_path_join(path, PATH_MAX, folder, file))
        return pj_fail(err, PJ_E_INVALID, "the path %.80s... is too long", folder);
    if (!pj_file_exists(path)) return PJ_OK;
    return pj_file_read(path, MAX_CONFIG_BYTES, text, bytes, err);
}

pj_status pj_chat_open(const char *folder, pj_chat_format *format, pj_error *err)
{
    char path[PATH_MAX], *text = NULL, *jinja = NULL;
    size_t bytes, jinja_bytes;
    json_t *config = NULL;
    *format = (pj_chat_format){0};
    pj_status status = read_file(folder, "chat_template.jinja", path, &jinja, &jinja_bytes, err);
    if (status == PJ_OK)
        status = read_file(folder, "tokenizer_config.json", path, &text, &bytes, err);
    if (status == PJ_OK && text) {
        json_error_t where;
        config = json_loadb(text, bytes, JSON_ALLOW_NUL, &where);
        if (!config)
            status = pj_fail(err, PJ_E_INVALID, "%s is not valid JSON: %s (line %d)", path,
                             where.text, where.line);
    }
    const char *template = jinja ? jinja : template_text(config);
    if (status == PJ_OK && !template)
        status = pj_fail(err, PJ_E_UNSUPPORTED,
                         "%s has no chat template (a base model?); leave out --chat", folder);
    if (status == PJ_OK)
        status = pj_chat_recognise(template, token_text(config, "bos_token"),
                                   token_text(config, "eos_token"), format, err);
    json_decref(config);
    pj_free(text);
    pj_free(jinja);
    return status;
}

/* The text of a token that a field names; "" when it names none. */
static const char *token_of_field(const pj_gguf *gguf, const pj_tokenizer *tokenizer,
                                  const char *key)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, key);
    int64_t id;
    if (!value || value->is_array || !pj_gguf_integer(value, 0, &id) || id > INT32_MAX) return "";
    const char *text = pj_tokenizer_token(tokenizer, (int32_t)id);
    return text ? text : "";
}

pj_status pj_chat_of_gguf(const pj_gguf *gguf, const pj_tokenizer *tokenizer, const char *name,
                          pj_chat_format *format, pj_error *err)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, "tokenizer.chat_template");
    pj_gguf_text found;
    *format = (pj_chat_format){0};
    if (!value || !pj_gguf_string(value, &found))
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%s has no chat template (a base model?); leave out --chat", name);
    char *template = pj_strndup(found.text, found.bytes);
    if (!template) return pj_fail_memory(err, "a chat template");
    pj_status status = pj_chat_recognise(
        template, token_of_field(gguf, tokenizer, "tokenizer.ggml.bos_token_id"),
        token_of_field(gguf, tokenizer, "tokenizer.ggml.eos_token_id"), format, err);
    pj_free(template);
    return status;
}

/* ---- writing ---- */

typedef struct writer {
    const pj_chat_format *format;
    pj_buffer *text;
    pj_text_span *literals;
    size_t literal_count;
} writer;

static void put(writer *w, const char *text)
{
    pj_buffer_text(w->text, text);
}

static void put_content(writer *w, const char *content, bool trimmed)
{
    size_t bytes = strlen(content), space = strspn(content, " \t\r\n");
    if (trimmed) {
        content += space;
        bytes -= space;
        while (bytes > 0 && strchr(" \t\r\n", content[bytes - 1])) bytes--;
    }
    size_t begin = w->text->length;
    pj_buffer_append(w->text, content, bytes);
    w->literals[w->literal_count++] = (pj_text_span){begin, w->text->length};
}

static bool is_role(const pj_chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* opening role middle content closing, for each message; then the assistant's opening. */
static void put_blocks(writer *w, const pj_chat_message *messages, size_t count,
                       const char *opening, const char *middle, const char *closing, bool trimmed)
{
    for (size_t i = 0; i < count; i++) {
        put(w, opening);
        put(w, messages[i].role);
        put(w, middle);
        put_content(w, messages[i].content, trimmed);
        put(w, closing);
    }
    put(w, opening);
    put(w, "assistant");
    put(w, middle);
}

static void put_chatml(writer *w, const pj_chat_message *messages, size_t count)
{
    const char *system = w->format->default_system;
    if (system[0] && (count == 0 || !is_role(&messages[0], "system"))) {
        put(w, "<|im_start|>system\n");
        put(w, system);
        put(w, "<|im_end|>\n");
    }
    put_blocks(w, messages, count, "<|im_start|>", "\n", "<|im_end|>\n", false);
}

/* Llama 3.1 and later always have a system block with dates; the date is the fixed one that their
 * templates fall back to, so that a prompt has the same ids every day. */
static void put_llama3(writer *w, const pj_chat_message *messages, size_t count)
{
    static const char opening[] = "<|start_header_id|>", middle[] = "<|end_header_id|>\n\n";
    bool system = count > 0 && is_role(&messages[0], "system");
    if (w->format->dated_system) {
        put(w, "<|start_header_id|>system<|end_header_id|>\n\n"
               "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
        if (system) put_content(w, messages[0].content, true);
        put(w, "<|eot_id|>");
        messages += system;
        count -= system;
    }
    put_blocks(w, messages, count, opening, middle, "<|eot_id|>", true);
}

static void put_llama2(writer *w, const pj_chat_message *messages, size_t count)
{
    const char *system = NULL;
    for (size_t i = 0; i < count; i++) {
        if (is_role(&messages[i], "system")) {
            system = messages[i].content;
        } else if (is_role(&messages[i], "assistant")) {
            put(w, " ");
            put_content(w, messages[i].content, true);
            put(w, " ");
            put(w, w->format->eos);
        } else {
            put(w, w->format->bos);
            put(w, "[INST] ");
            if (system) {
                put(w, "<<SYS>>\n");
                put_content(w, system, false);
                put(w, "\n<</SYS>>\n\n");
                system = NULL;
            }
            put_content(w, messages[i].content, true);
            put(w, " [/INST]");
        }
    }
}

static void put_mistral(writer *w, const pj_chat_message *messages, size_t count)
{
    pj_chat_kind kind = w->format->kind;
    const char *space = kind == PJ_CHAT_MISTRAL_TEKKEN ? "" : " ", *system = NULL;
    for (size_t i = 0; i < count; i++) {
        if (is_role(&messages[i], "system") && kind == PJ_CHAT_MISTRAL_V7) {
            put(w, "[SYSTEM_PROMPT] ");
            put_content(w, messages[i].content, false);
            put(w, "[/SYSTEM_PROMPT]");
        } else if (is_role(&messages[i], "system")) {
            system = messages[i].content; /* goes before the next user's text */
        } else if (is_role(&messages[i], "assistant")) {
            put(w, space);
            put_content(w, messages[i].content, kind != PJ_CHAT_MISTRAL_V1);
            put(w, w->format->eos);
        } else {
            put(w, w->format->leading_space ? " [INST]" : "[INST]");
            put(w, space);
            if (system) {
                put_content(w, system, false);
                put(w, "\n\n");
                system = NULL;
            }
            put_content(w, messages[i].content, false);
            put(w, kind == PJ_CHAT_MISTRAL_V1 ? " [/INST]" : "[/INST]");
        }
    }
}

static pj_status check_roles(const pj_chat_message *messages, size_t count, pj_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!is_role(&messages[i], "system") && !is_role(&messages[i], "user") &&
            !is_role(&messages[i], "assistant"))
            return pj_fail(err, PJ_E_INVALID,
                           "a message has the role %.40s; system, user and assistant are known",
                           messages[i].role);
    return PJ_OK;
}

pj_status pj_chat_render(const pj_chat_format *format, const pj_chat_message *messages,
                         size_t count, pj_buffer *text, pj_text_span *literals, pj_error *err)
{
    writer w = {format, text, literals, 0};
    pj_status status = check_roles(messages, count, err);
    if (status != PJ_OK) return status;
    const char *newline = format->newlines ? "|>\n" : "|>";
    if (format->kind != PJ_CHAT_LLAMA2) put(&w, format->bos);
    switch (format->kind) {
    case PJ_CHAT_CHATML: put_chatml(&w, messages, count); break;
    case PJ_CHAT_PHI4:
        put_blocks(&w, messages, count, "<|im_start|>", "<|im_sep|>", "<|im_end|>", false);
        break;
    case PJ_CHAT_PHI3:
        put_blocks(&w, messages, count, "<|", newline, format->newlines ? "<|end|>\n" : "<|end|>",
                   false);
        break;
    case PJ_CHAT_LLAMA3: put_llama3(&w, messages, count); break;
    case PJ_CHAT_LLAMA2: put_llama2(&w, messages, count); break;
    default: put_mistral(&w, messages, count); break;
    }
    /* Messages that wrote nothing leave empty spans. */
    while (w.literal_count < count) literals[w.literal_count++] = (pj_text_span){0, 0};
    return pj_buffer_status(text, "a conversation", err);
}

pj_status pj_chat_encode(const pj_chat_format *format, const pj_tokenizer *tokenizer,
                         const pj_chat_message *messages, size_t count, pj_ids *ids, pj_error *err)
{
    pj_buffer text;
    pj_text_span *literals = pj_alloc(count + 1, sizeof *literals);
    if (!literals) return pj_fail_memory(err, "a conversation");
    pj_buffer_init(&text, MAX_TEXT_BYTES);
    pj_status status = pj_chat_render(format, messages, count, &text, literals, err);
    pj_encode_options options = {.no_special = true, .literals = literals, .literal_count = count};
    /* Empty spans at the end would not be ascending, but match nothing. */
    if (status == PJ_OK)
        status =
            pj_tokenizer_encode(tokenizer, pj_buffer_get(&text), text.length, &options, ids, err);
    pj_buffer_fini(&text);
    pj_free(literals);
    return status;
}
