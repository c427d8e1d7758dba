/* Converts chat template variables from the command line to JSON. */
#include "cli/chat_options.h"

#include "base/json.h"
#include "base/memory.h"

#include <jansson.h>
#include <string.h>

enum { MAX_VARIABLES_BYTES = 1 << 20 };

static void chat_options_write_value(pj_json *json, const char *value)
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
        chat_options_write_value(&json, equals + 1);
    }
    pj_json_object_end(&json);
    if (!pj_json_finish(&json)) pj_fail_memory(err, "the template's variables");
    *variables = pj_buffer_take(&buffer);
    return *variables ? PJ_OK : pj_fail_memory(err, "the template's variables");
}
