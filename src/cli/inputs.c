/* Reads what commands take from files and options. */
#include "cli/inputs.h"
#include "cli/patience.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIABLES_BYTES = 1 << 20 };

pj_status pj_input_read(const char *path, size_t max_bytes, char **text, size_t *bytes,
                        pj_error *err)
{
    if (strcmp(path, "-") != 0) return pj_file_read(path, max_bytes, text, bytes, err);
    pj_patience_end(); /* it is the user who takes their time */
    return pj_file_read_fd(0, "standard input", max_bytes, text, bytes, err);
}

pj_status pj_input_prompts(const char *path, uint32_t most, char **text, pj_prompt **prompts,
                           uint32_t *count, pj_error *err)
{
    size_t bytes, lines = 1;
    pj_status status = pj_input_read(path, PJ_INPUT_PROMPT_BYTES, text, &bytes, err);
    if (status != PJ_OK) return status;
    for (size_t i = 0; i < bytes; i++) lines += (*text)[i] == '\n';
    *prompts = pj_alloc(lines, sizeof **prompts);
    if (!*prompts) return pj_fail_memory(err, "the prompts");
    *count = 0;
    for (char *line = *text, *end = *text + bytes; line < end;) {
        size_t length = strcspn(line, "\n");
        if (length) (*prompts)[(*count)++] = (pj_prompt){.text = line, .bytes = length};
        line += length + 1;
    }
    if (*count > most) return pj_fail(err, PJ_E_INVALID, "%s has more than %u prompts", path, most);
    return *count ? PJ_OK : pj_fail(err, PJ_E_INVALID, "%s contains no prompt", path);
}

pj_status pj_ids_parse(const char *text, int32_t **ids, uint32_t *count, pj_error *err)
{
    /* a number and its separator take two characters at least */
    size_t most = strlen(text) / 2 + 1;
    int32_t *list = pj_alloc(most, sizeof *list);
    *ids = NULL;
    *count = 0;
    if (!list) return pj_fail_memory(err, "the token ids");
    for (const char *p = text + strspn(text, " \t\r\n,"); *p;) {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || !strchr(" \t\r\n,", *end)) {
            pj_free(list);
            return pj_fail(err, PJ_E_INVALID, "\"%.20s\" is not a token id", p);
        }
        list[(*count)++] = (int32_t)id;
        p = end + strspn(end, " \t\r\n,");
    }
    *ids = list;
    return PJ_OK;
}

double pj_share_parse(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || (*end && strcmp(end, "%") != 0) || (!*end && value >= 1)) return NAN;
    return *end ? value / 100 : value;
}

static void inputs_write_value(pj_json *json, const char *value)
{
    json_error_t where;
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, &where);
    if (parsed)
        pj_json_raw(json, value, strlen(value));
    else
        pj_json_string(json, value);
    json_decref(parsed);
}

pj_status pj_chat_variables(const pj_text_list *settings, char **variables, pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    *variables = NULL;
    if (settings->count == 0) return PJ_OK;
    pj_buffer_init(&buffer, MAX_VARIABLES_BYTES);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    for (int i = 0; i < settings->count; i++) {
        const char *setting = settings->items[i], *equals = strchr(setting, '=');
        char name[128];
        size_t bytes = equals ? (size_t)(equals - setting) : 0;
        if (bytes == 0 || bytes >= sizeof name) {
            pj_buffer_fini(&buffer);
            return pj_fail(
                err, PJ_E_INVALID,
                "--chat-set takes NAME=VALUE, as in enable_thinking=false, not \"%.40s\"", setting);
        }
        memcpy(name, setting, bytes);
        name[bytes] = 0;
        pj_json_key(&json, name);
        inputs_write_value(&json, equals + 1);
    }
    pj_json_object_end(&json);
    if (!pj_json_finish(&json)) pj_fail_memory(err, "the template's variables");
    *variables = pj_buffer_take(&buffer);
    return *variables ? PJ_OK : pj_fail_memory(err, "the template's variables");
}

void pj_input_make_up(pj_random *random, int64_t count, pj_buffer *text)
{
    static const char *const words[] = {
        "the", "of", "and",  "to",   "in",   "is",   "that",  "for",  "it",   "was",  "on",
        "are", "as", "with", "they", "be",   "at",   "one",   "have", "this", "from", "or",
        "had", "by", "hot",  "but",  "some", "what", "there", "we",   "can",  "out"};
    for (int64_t i = 0; i < count; i++)
        pj_buffer_printf(text, "%s%s", i ? " " : "", words[pj_random_u64(random) & 31]);
}
