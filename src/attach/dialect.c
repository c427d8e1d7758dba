#include "attach/dialect.h"

#include "base/clock.h"
#include "base/json.h"
#include "http/call.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS (10 * PJ_NS_PER_S)

static void dialect_set_kind(pj_remote_server *s, const char *owner)
{
    static const struct {
        const char *owner, *engine;
        pj_server_kind kind;
    } known[] = {{"llamacpp", "llama-server", PJ_SERVER_LLAMA},
                 {"vllm", "vllm", PJ_SERVER_VLLM},
                 {"sglang", "sglang", PJ_SERVER_OPENAI},
                 {"library", "ollama", PJ_SERVER_OPENAI}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(owner, known[i].owner) == 0) {
            s->kind = known[i].kind;
            snprintf(s->engine, sizeof s->engine, "%s", known[i].engine);
        }
}

static double dialect_number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : 0;
    return number > 0 && number < 1e18 ? number : 0;
}

static void take_openai_models(pj_remote_server *s, const json_t *answer)
{
    const json_t *first = json_array_get(json_object_get(answer, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    const char *owner = json_string_value(json_object_get(first, "owned_by"));
    const json_t *meta = json_object_get(first, "meta");
    if (id) snprintf(s->model, sizeof s->model, "%s", id);
    if (owner) dialect_set_kind(s, owner);
    s->weight_bytes = dialect_number_of(meta, "size");
    s->vocabulary = dialect_number_of(meta, "n_vocab");
}

/* True: it is Ollama's list of models. */
static bool take_ollama_models(pj_remote_server *s, const json_t *answer)
{
    const json_t *models = json_object_get(answer, "models");
    const char *name = json_string_value(json_object_get(json_array_get(models, 0), "name"));
    if (!models) return false;
    s->kind = PJ_SERVER_OLLAMA;
    s->prefix = "";
    snprintf(s->engine, sizeof s->engine, "ollama");
    if (name) snprintf(s->model, sizeof s->model, "%s", name);
    return true;
}

/* The JSON of an answer 200; NULL: there is none. *answers: the server has answered anything. */
static json_t *dialect_get(const pj_url *url, const char *path, const char *headers, bool *answers)
{
    int status = 0;
    pj_buffer body;
    *answers = pj_call_get(url, path, headers, PATIENCE_NS, &status, &body, NULL) == PJ_OK;
    json_t *answer =
        *answers && status == 200 ? json_loadb(pj_buffer_get(&body), body.length, 0, NULL) : NULL;
    pj_buffer_fini(&body);
    return answer;
}

pj_status pj_server_find(const pj_url *url, const char *headers, pj_remote_server *s, pj_error *err)
{
    bool bare = !url->prefix[0], answers = true, is_ollama = false;
    *s = (pj_remote_server){.prefix = bare ? "/v1" : ""};
    snprintf(s->engine, sizeof s->engine, "openai");
    if (bare) {
        json_t *tags = dialect_get(url, "/api/tags", headers, &answers);
        is_ollama = take_ollama_models(s, tags);
        json_decref(tags);
    }
    if (answers && !is_ollama) {
        json_t *models = dialect_get(url, bare ? "/v1/models" : "/models", headers, &answers);
        take_openai_models(s, models);
        json_decref(models);
        answers |= bare;
    }
    if (answers) return PJ_OK;
    char authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(url, authority, sizeof authority);
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "no server answers at http://%s%s; start it, or give its address with --url",
                   authority, url->prefix);
}

/* ---- requests ------------------------------------------------------------------------------- */

const char *pj_request_path(const pj_remote_server *server, const pj_ask *request)
{
    bool v1 = server->prefix[0];
    if (server->kind == PJ_SERVER_OLLAMA)
        return request->completion ? "/api/generate" : "/api/chat";
    if (request->completion) return v1 ? "/v1/completions" : "/completions";
    return v1 ? "/v1/chat/completions" : "/chat/completions";
}

static void write_prompt(const pj_ask *request, pj_json *json)
{
    if (request->completion) {
        pj_json_key(json, "prompt");
        pj_json_string_n(json, request->prompt, request->prompt_bytes);
        return;
    }
    pj_json_kv_array_begin(json, "messages");
    pj_json_object_begin(json);
    pj_json_kv_string(json, "role", "user");
    pj_json_key(json, "content");
    pj_json_string_n(json, request->prompt, request->prompt_bytes);
    pj_json_object_end(json);
    pj_json_array_end(json);
}

static void write_ollama_options(const pj_ask *request, pj_json *json)
{
    pj_json_kv_object_begin(json, "options");
    if (request->max_tokens) pj_json_kv_int(json, "num_predict", request->max_tokens);
    if (!isnan(request->temperature)) pj_json_kv_double(json, "temperature", request->temperature);
    pj_json_object_end(json);
}

static void write_extras(const pj_remote_server *server, const pj_ask *request, pj_json *json)
{
    if (request->max_tokens) pj_json_kv_int(json, "max_tokens", request->max_tokens);
    if (!isnan(request->temperature)) pj_json_kv_double(json, "temperature", request->temperature);
    if (request->plain) return;
    pj_json_kv_object_begin(json, "stream_options");
    pj_json_kv_bool(json, "include_usage", true);
    if (server->kind == PJ_SERVER_VLLM) pj_json_kv_bool(json, "continuous_usage_stats", true);
    pj_json_object_end(json);
    if (server->kind == PJ_SERVER_LLAMA) {
        pj_json_kv_bool(json, "timings_per_token", true);
        pj_json_kv_bool(json, "return_progress", true);
    }
    if (request->ignore_end && server->kind != PJ_SERVER_OPENAI)
        pj_json_kv_bool(json, "ignore_eos", true);
}

void pj_request_write(const pj_remote_server *server, const pj_ask *request, pj_buffer *body)
{
    pj_json json;
    pj_json_init(&json, body);
    pj_json_object_begin(&json);
    if (request->model && *request->model) pj_json_kv_string(&json, "model", request->model);
    write_prompt(request, &json);
    pj_json_kv_bool(&json, "stream", true);
    if (server->kind == PJ_SERVER_OLLAMA)
        write_ollama_options(request, &json);
    else
        write_extras(server, request, &json);
    pj_json_object_end(&json);
    pj_json_finish(&json);
}
