/* The table of a request's fields, and what is made from it. */
#include "trace/generation_request.h"

#include "base/nearest.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(pj_generation_request, member)

enum { MAX_IDS_AND_TEXT = 1 << 20, MAX_NAME = 256, MAX_PATH = 4095 };

const pj_request_field pj_request_fields[] = {
    {"model_name", PJ_REQUEST_TEXT, AT(model), .most = MAX_PATH},
    {"prompt", PJ_REQUEST_PROMPT, .most = MAX_IDS_AND_TEXT},
    {"prompt_ids", PJ_REQUEST_IDS, .most = MAX_IDS_AND_TEXT},
    {"profiling_depth", PJ_REQUEST_CHOICE, AT(depth), .choices = "off module deep",
     .standard_text = "module", .option = "depth", .letter = 'd', .value_name = "DEPTH",
     .help = "what is recorded: off (phases and tokens only), module (also layers and components; "
             "default) or deep (also single operations)"},
    {"statistics", PJ_REQUEST_CHOICE, AT(statistics), .choices = "off sampled all",
     .option = "statistics", .value_name = "ROWS",
     .help = "rows of outputs that statistics are computed from: all (default at depth deep), "
             "sampled (at least 32; default at module) or off (no statistics)"},
    {"max_length", PJ_REQUEST_INT, AT(max_tokens), 1, 1 << 20, .standard = 100, .option = "tokens",
     .letter = 'n', .value_name = "N", .help = "new tokens (100)"},
    {"tags", PJ_REQUEST_LIST, AT(tags), .most = MAX_NAME, .option = "tag", .value_name = "TAG",
     .help = "a tag to find the run by; may be repeated"},
    {"experiment_name", PJ_REQUEST_TEXT, AT(experiment), .most = MAX_NAME, .option = "experiment",
     .value_name = "NAME", .help = "the experiment it belongs to"},
    {"temperature", PJ_REQUEST_NUMBER, AT(temperature), 0, 100, .standard = NAN, .option = "temp",
     .value_name = "T", .help = "temperature; 0 is greedy (default)"},
    {"top_k", PJ_REQUEST_INT, AT(top_k), 0, 1 << 20, .standard = -1, .option = "top-k",
     .value_name = "K", .help = "sample from the K most likely"},
    {"top_p", PJ_REQUEST_NUMBER, AT(top_p), 0, 1, .standard = NAN, .option = "top-p",
     .value_name = "P", .help = "sample from the most likely tokens with this total probability"},
    {"min_p", PJ_REQUEST_NUMBER, AT(min_p), 0, 1, .standard = NAN, .option = "min-p",
     .value_name = "P", .help = "drop tokens below P x the probability of the most likely"},
    {"typical_p", PJ_REQUEST_NUMBER, AT(typical_p), 0.001, 1, .standard = NAN,
     .option = "typical-p", .value_name = "P",
     .help =
         "sample from the tokens whose surprise is nearest to the mean, with this total probability"},
    {"repetition_penalty", PJ_REQUEST_NUMBER, AT(repetition_penalty), 0.01, 100, .standard = NAN,
     .option = "repeat-penalty", .value_name = "F",
     .help = "penalty for tokens that have occurred (1: none)"},
    {"frequency_penalty", PJ_REQUEST_NUMBER, AT(frequency_penalty), -2, 2, .standard = NAN,
     .option = "frequency-penalty", .value_name = "F",
     .help = "subtracted from a token's logit for each time it was generated (0)"},
    {"presence_penalty", PJ_REQUEST_NUMBER, AT(presence_penalty), -2, 2, .standard = NAN,
     .option = "presence-penalty", .value_name = "F",
     .help = "subtracted once from the logits of tokens that were generated (0)"},
    {"logit_bias", PJ_REQUEST_MAP, AT(logit_bias), -100, 100, .option = "logit-bias",
     .value_name = "ID=BIAS", .help = "added to a token's logit, -100 to 100; may be repeated"},
    {"seed", PJ_REQUEST_INT, AT(seed), 0, (double)(1LL << 53), .standard = -1, .option = "seed",
     .value_name = "N", .help = "seed of sampling; same seed, same text"},
    {"stop", PJ_REQUEST_LIST, AT(stop), .most = MAX_NAME, .option = "stop", .value_name = "TEXT",
     .help = "stop before this text; may be repeated"},
    {"chat", PJ_REQUEST_FLAG, AT(chat), .option = "chat",
     .help = "run the prompt through the model's chat template"},
    {"system", PJ_REQUEST_TEXT, AT(system), .most = MAX_IDS_AND_TEXT, .option = "system",
     .value_name = "TEXT", .help = "a system message; implies --chat"},
    {"ignore_eos", PJ_REQUEST_FLAG, AT(ignore_eos), .option = "ignore-eos",
     .help = "continue past end-of-sequence tokens, to -n tokens"},
    {"batch_size", PJ_REQUEST_INT, AT(batch), 1, 4096, .option = "batch", .letter = 'b',
     .value_name = "N", .help = "decode N sequences at once"},
    {"batch_rule", PJ_REQUEST_CHOICE, AT(batch_rule), .choices = "bytes tokens equal",
     .option = "batch-rule", .value_name = "RULE",
     .help = "how a shared step's energy is split: bytes (default), tokens, equal"},
    {"draft_model", PJ_REQUEST_TEXT, AT(draft), .most = MAX_PATH, .option = "draft",
     .value_name = "MODEL",
     .help = "a smaller model of the same vocabulary that proposes tokens (speculative decoding), "
             "or mtp: the model's own head for further tokens"},
    {"draft_tokens", PJ_REQUEST_INT, AT(draft_tokens), 1, 16, .standard = -1,
     .option = "draft-tokens", .value_name = "N",
     .help = "tokens that the draft model proposes in each step (4)"},
    {"device", PJ_REQUEST_TEXT, AT(device), .most = MAX_NAME, .option = "device",
     .value_name = "DEVICE",
     .help = "what computes: cpu (default), gpu, gpu:N, a name or UUID that `perjoule devices` "
             "lists, or auto (a GPU on which the model fits, else the CPU)"},
    {"dtype", PJ_REQUEST_CHOICE, AT(dtype), .choices = PJ_REQUEST_DTYPES},
    {"kv", PJ_REQUEST_CHOICE, AT(kv), .choices = PJ_REQUEST_KV_TYPES},
    {"no_mmap", PJ_REQUEST_FLAG, AT(no_mmap), .option = "no-mmap",
     .help = "copy the weights into memory on huge pages instead of mapping their files: loads "
             "slower, may decode faster"},
    {"wait", PJ_REQUEST_FLAG, AT(wait), .standard = 1},
    {0}};

const pj_request_field *pj_request_field_find(const char *name)
{
    for (const pj_request_field *f = pj_request_fields; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}

static void *member_of(pj_generation_request *request, const pj_request_field *f)
{
    return (char *)request + f->offset;
}

static const void *const_member_of(const pj_generation_request *request, const pj_request_field *f)
{
    return (const char *)request + f->offset;
}

void pj_generation_request_init(pj_generation_request *request)
{
    *request = (pj_generation_request){0};
    for (const pj_request_field *f = pj_request_fields; f->name; f++) {
        void *at = member_of(request, f);
        if (f->kind == PJ_REQUEST_CHOICE) *(const char **)at = f->standard_text;
        if (f->kind == PJ_REQUEST_INT) *(int64_t *)at = (int64_t)f->standard;
        if (f->kind == PJ_REQUEST_NUMBER) *(double *)at = f->standard;
        if (f->kind == PJ_REQUEST_FLAG) *(bool *)at = f->standard > 0;
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct parse {
    pj_generation_request *request;
    pj_arena *arena;
    pj_error *err;
} parse;

static pj_status wrong_type(parse *p, const pj_request_field *f, const char *wanted)
{
    return pj_fail(p->err, PJ_E_INVALID, "%s must be %s", f->name, wanted);
}

static pj_status generation_request_take_text(parse *p, const pj_request_field *f,
                                              const json_t *value, const char **text)
{
    if (!json_is_string(value)) return wrong_type(p, f, "a string");
    if ((double)json_string_length(value) > f->most)
        return pj_fail(p->err, PJ_E_INVALID, "%s is longer than %.0f bytes", f->name, f->most);
    *text = pj_arena_strndup(p->arena, json_string_value(value), json_string_length(value));
    return *text ? PJ_OK : pj_fail_memory(p->err, "a request");
}

static pj_status take_choice(parse *p, const pj_request_field *f, const json_t *value,
                             const char **choice)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    size_t length = strchr(text, ' ') ? 0 : strlen(text);
    for (const char *at = f->choices; length && at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, text, length) != 0 || (at[length] && at[length] != ' ')) continue;
        *choice = pj_arena_strndup(p->arena, text, length);
        return *choice ? PJ_OK : pj_fail_memory(p->err, "a request");
    }
    return pj_fail(p->err, PJ_E_INVALID, "%s must be one of: %s", f->name, f->choices);
}

static pj_status take_int(parse *p, const pj_request_field *f, const json_t *value, int64_t *number)
{
    /* 100.0 is an integer too. */
    double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(real == floor(real)) || real < f->least || real > f->most)
        return pj_fail(p->err, PJ_E_INVALID, "%s must be an integer from %.0f to %.0f", f->name,
                       f->least, f->most);
    *number = json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
    return PJ_OK;
}

static pj_status generation_request_take_number(parse *p, const pj_request_field *f,
                                                const json_t *value, double *number)
{
    double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(real >= f->least && real <= f->most))
        return pj_fail(p->err, PJ_E_INVALID, "%s must be a number from %.16g to %.16g", f->name,
                       f->least, f->most);
    *number = real;
    return PJ_OK;
}

static pj_status take_flag(parse *p, const pj_request_field *f, const json_t *value, bool *flag)
{
    if (!json_is_boolean(value)) return wrong_type(p, f, "true or false");
    *flag = json_is_true(value);
    return PJ_OK;
}

static pj_status take_list(parse *p, const pj_request_field *f, const json_t *value,
                           pj_text_list *list)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count > PJ_LIST_MAX)
        return pj_fail(p->err, PJ_E_INVALID, "%s must be an array of at most %d strings", f->name,
                       PJ_LIST_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_string_length(item))
            return wrong_type(p, f, "an array of strings that are not empty");
        pj_status status = generation_request_take_text(p, f, item, &list->items[i]);
        if (status != PJ_OK) return status;
    }
    list->count = (int)count;
    return PJ_OK;
}

static pj_status take_map(parse *p, const pj_request_field *f, json_t *value, pj_text_list *list)
{
    const char *key;
    json_t *item;
    if (!json_is_object(value) || json_object_size(value) > PJ_LIST_MAX)
        return pj_fail(p->err, PJ_E_INVALID, "%s must be an object of at most %d numbers", f->name,
                       PJ_LIST_MAX);
    json_object_foreach(value, key, item)
    {
        double number = json_is_number(item) ? json_number_value(item) : NAN;
        if (!(number >= f->least && number <= f->most))
            return pj_fail(p->err, PJ_E_INVALID, "%s must have numbers from %.16g to %.16g",
                           f->name, f->least, f->most);
        char text[64];
        int length = snprintf(text, sizeof text, "%.32s=%.9g", key, number);
        list->items[list->count] = pj_arena_strndup(p->arena, text, (size_t)length);
        if (!list->items[list->count++]) return pj_fail_memory(p->err, "a request");
    }
    return PJ_OK;
}

static pj_status take_prompt(parse *p, const pj_request_field *f, const json_t *value)
{
    pj_status status = generation_request_take_text(p, f, value, &p->request->prompt);
    p->request->prompt_bytes = p->request->prompt ? strlen(p->request->prompt) : 0;
    return status;
}

static pj_status take_ids(parse *p, const pj_request_field *f, const json_t *value)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 0;
    if (count == 0) return wrong_type(p, f, "an array of token ids");
    int32_t *ids = pj_arena_alloc(p->arena, count, sizeof *ids);
    if (!ids) return pj_fail_memory(p->err, "a request");
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        double id = json_is_number(item) ? json_number_value(item) : -1;
        if (!(id >= 0 && id <= INT32_MAX && id == floor(id)))
            return wrong_type(p, f, "an array of token ids");
        ids[i] = (int32_t)id;
    }
    p->request->prompt_ids = ids;
    p->request->prompt_id_count = (uint32_t)count;
    return PJ_OK;
}

/* null means absent. */
static pj_status take_value(parse *p, const pj_request_field *f, json_t *value)
{
    void *at = member_of(p->request, f);
    if (json_is_null(value)) return PJ_OK;
    switch (f->kind) {
    case PJ_REQUEST_TEXT: return generation_request_take_text(p, f, value, at);
    case PJ_REQUEST_CHOICE: return take_choice(p, f, value, at);
    case PJ_REQUEST_INT: return take_int(p, f, value, at);
    case PJ_REQUEST_NUMBER: return generation_request_take_number(p, f, value, at);
    case PJ_REQUEST_FLAG: return take_flag(p, f, value, at);
    case PJ_REQUEST_LIST: return take_list(p, f, value, at);
    case PJ_REQUEST_MAP: return take_map(p, f, value, at);
    case PJ_REQUEST_PROMPT: return take_prompt(p, f, value);
    case PJ_REQUEST_IDS: return take_ids(p, f, value);
    }
    return PJ_OK;
}

static pj_status unknown_field(parse *p, const char *name)
{
    pj_nearest nearest;
    char hint[128];
    pj_nearest_begin(&nearest, name);
    for (const pj_request_field *f = pj_request_fields; f->name; f++)
        pj_nearest_offer(&nearest, f->name, strlen(f->name));
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    return pj_fail(p->err, PJ_E_INVALID, "unknown field %.60s%s", name,
                   *hint ? hint : " in this request; see /api/openapi.json");
}

static pj_status generation_request_take_object(parse *p, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const pj_request_field *f = pj_request_field_find(name);
        pj_status status = f ? take_value(p, f, value) : unknown_field(p, name);
        if (status != PJ_OK) return status;
    }
    if (p->request->prompt && p->request->prompt_ids)
        return pj_fail(p->err, PJ_E_INVALID, "give either prompt or prompt_ids, not both");
    if (!p->request->prompt_ids && (!p->request->prompt || !p->request->prompt[0]))
        return pj_fail(p->err, PJ_E_INVALID, "prompt is missing: give the text to continue");
    return PJ_OK;
}

pj_status pj_generation_request_parse(const char *text, size_t bytes,
                                      pj_generation_request *request, pj_arena *arena, bool *syntax,
                                      pj_error *err)
{
    json_error_t why;
    pj_generation_request_init(request);
    *syntax = true;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!root)
        return pj_fail(err, PJ_E_INVALID, "the body is not valid JSON: line %d, %.200s", why.line,
                       why.text);
    parse p = {request, arena, err};
    *syntax = false;
    pj_status status = json_is_object(root)
                           ? generation_request_take_object(&p, root)
                           : pj_fail(err, PJ_E_INVALID, "the body must be a JSON object");
    json_decref(root);
    return status;
}

/* ---- writing and copying -------------------------------------------------------------------- */

static void generation_request_write_ids(const pj_generation_request *request, pj_json *json)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < request->prompt_id_count; i++)
        pj_json_int(json, request->prompt_ids[i]);
    pj_json_array_end(json);
}

static void generation_request_write_list(const pj_text_list *list, pj_json *json)
{
    pj_json_array_begin(json);
    for (int i = 0; i < list->count; i++) pj_json_string(json, list->items[i]);
    pj_json_array_end(json);
}

static void generation_request_write_map(const pj_text_list *list, pj_json *json)
{
    pj_json_object_begin(json);
    for (int i = 0; i < list->count; i++) {
        char key[64];
        const char *value = strchr(list->items[i], '=');
        if (!value) continue;
        snprintf(key, sizeof key, "%.*s", (int)(value - list->items[i]), list->items[i]);
        pj_json_kv_double(json, key, strtod(value + 1, NULL));
    }
    pj_json_object_end(json);
}

static bool is_given(const pj_generation_request *request, const pj_request_field *f)
{
    const void *at = const_member_of(request, f);
    switch (f->kind) {
    case PJ_REQUEST_TEXT:
    case PJ_REQUEST_CHOICE: return *(const char *const *)at != NULL;
    case PJ_REQUEST_INT: return (double)*(const int64_t *)at >= f->least;
    case PJ_REQUEST_NUMBER: return !isnan(*(const double *)at);
    case PJ_REQUEST_PROMPT: return request->prompt && !request->prompt_ids;
    case PJ_REQUEST_IDS: return request->prompt_ids != NULL;
    case PJ_REQUEST_MAP: return ((const pj_text_list *)at)->count > 0;
    case PJ_REQUEST_FLAG:
    case PJ_REQUEST_LIST: return true;
    }
    return false;
}

void pj_generation_request_write(const pj_generation_request *request, pj_json *json)
{
    pj_json_object_begin(json);
    for (const pj_request_field *f = pj_request_fields; f->name; f++) {
        const void *at = const_member_of(request, f);
        if (!is_given(request, f)) continue;
        pj_json_key(json, f->name);
        switch (f->kind) {
        case PJ_REQUEST_TEXT:
        case PJ_REQUEST_CHOICE: pj_json_string(json, *(const char *const *)at); break;
        case PJ_REQUEST_INT: pj_json_int(json, *(const int64_t *)at); break;
        case PJ_REQUEST_NUMBER: pj_json_double(json, *(const double *)at); break;
        case PJ_REQUEST_FLAG: pj_json_bool(json, *(const bool *)at); break;
        case PJ_REQUEST_LIST: generation_request_write_list(at, json); break;
        case PJ_REQUEST_MAP: generation_request_write_map(at, json); break;
        case PJ_REQUEST_PROMPT:
            pj_json_string_n(json, request->prompt, request->prompt_bytes);
            break;
        case PJ_REQUEST_IDS: generation_request_write_ids(request, json); break;
        }
    }
    pj_json_object_end(json);
}

static bool generation_request_copy_text(const char **text, size_t bytes, pj_arena *arena)
{
    if (!*text) return true;
    *text = pj_arena_strndup(arena, *text, bytes);
    return *text != NULL;
}

static bool copy_prompt(pj_generation_request *request, pj_arena *arena)
{
    if (!request->prompt_ids)
        return generation_request_copy_text(&request->prompt, request->prompt_bytes, arena);
    int32_t *ids = pj_arena_alloc(arena, request->prompt_id_count, sizeof *ids);
    if (ids) memcpy(ids, request->prompt_ids, request->prompt_id_count * sizeof *ids);
    request->prompt_ids = ids;
    request->prompt = NULL;
    return ids != NULL;
}

bool pj_generation_request_copy(pj_generation_request *copy, const pj_generation_request *request,
                                pj_arena *arena)
{
    *copy = *request;
    bool ok = copy_prompt(copy, arena);
    for (const pj_request_field *f = pj_request_fields; f->name && ok; f++) {
        const char **text = member_of(copy, f);
        pj_text_list *list = member_of(copy, f);
        if ((f->kind == PJ_REQUEST_TEXT || f->kind == PJ_REQUEST_CHOICE) && *text)
            ok = generation_request_copy_text(text, strlen(*text), arena);
        bool is_list = f->kind == PJ_REQUEST_LIST || f->kind == PJ_REQUEST_MAP;
        for (int i = 0; is_list && i < list->count && ok; i++)
            ok = generation_request_copy_text(&list->items[i], strlen(list->items[i]), arena);
    }
    return ok;
}
