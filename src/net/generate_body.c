#include "net/generate_body.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct parse {
    pj_generate_ask *ask;
    pj_arena *arena;
    pj_error *err;
} parse;

typedef pj_status field_fn(parse *p, const char *name, const json_t *value);

static pj_status wrong(parse *p, const char *name, const char *wanted)
{
    return pj_fail(p->err, PJ_E_INVALID, "%s must be %s", name, wanted);
}

static pj_status no_memory(parse *p)
{
    return pj_fail_memory(p->err, "a request");
}

/* A text of at most `max` bytes, or (with null allowed) NULL. */
static pj_status take_text(parse *p, const char *name, const json_t *value, size_t max,
                           const char **text)
{
    *text = NULL;
    if (json_is_null(value)) return PJ_OK;
    if (!json_is_string(value)) return wrong(p, name, "a string");
    if (json_string_length(value) > max)
        return pj_fail(p->err, PJ_E_INVALID, "%s is longer than %zu bytes", name, max);
    *text = pj_arena_strndup(p->arena, json_string_value(value), json_string_length(value));
    return *text ? PJ_OK : no_memory(p);
}

static pj_status take_int(parse *p, const char *name, const json_t *value, int64_t min, int64_t max,
                          int64_t *number)
{
    if (json_is_null(value)) return PJ_OK;
    /* 100.0 is an integer too. */
    double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(real == floor(real)) || real < (double)min || real > (double)max)
        return pj_fail(p->err, PJ_E_INVALID, "%s must be a whole number from %lld to %lld", name,
                       (long long)min, (long long)max);
    *number = json_is_integer(value) ? json_integer_value(value) : (int64_t)real;
    return PJ_OK;
}

static pj_status take_number(parse *p, const char *name, const json_t *value, double min,
                             double max, double *number)
{
    if (json_is_null(value)) return PJ_OK;
    double real = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(real >= min && real <= max))
        return pj_fail(p->err, PJ_E_INVALID, "%s must be a number from %g to %g", name, min, max);
    *number = real;
    return PJ_OK;
}

static pj_status field_model(parse *p, const char *name, const json_t *value)
{
    return take_text(p, name, value, 1024, &p->ask->model_name);
}

static pj_status field_prompt(parse *p, const char *name, const json_t *value)
{
    pj_status status = take_text(p, name, value, 1 << 20, &p->ask->prompt);
    p->ask->prompt_bytes = p->ask->prompt ? strlen(p->ask->prompt) : 0;
    return status;
}

static pj_status field_prompt_ids(parse *p, const char *name, const json_t *value)
{
    if (json_is_null(value)) return PJ_OK;
    size_t count = json_is_array(value) ? json_array_size(value) : 0;
    if (count == 0) return wrong(p, name, "an array of token ids");
    int32_t *ids = pj_arena_alloc(p->arena, count, sizeof *ids);
    if (!ids) return no_memory(p);
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        pj_status status = take_int(p, name, json_array_get(value, i), 0, INT32_MAX, &id);
        if (status != PJ_OK || id < 0) return wrong(p, name, "an array of token ids");
        ids[i] = (int32_t)id;
    }
    p->ask->prompt_ids = ids;
    p->ask->prompt_id_count = (uint32_t)count;
    return PJ_OK;
}

static pj_status field_depth(parse *p, const char *name, const json_t *value)
{
    static const char *const names[] = {"off", "module", "deep"};
    if (json_is_null(value)) return PJ_OK;
    for (int i = 0; i < 3 && json_is_string(value); i++)
        if (strcmp(json_string_value(value), names[i]) == 0) {
            p->ask->depth = (pj_depth)i;
            return PJ_OK;
        }
    return wrong(p, name, "\"off\", \"module\" or \"deep\"");
}

static pj_status field_max_length(parse *p, const char *name, const json_t *value)
{
    int64_t n = p->ask->max_length;
    pj_status status = take_int(p, name, value, 1, PJ_MAX_NEW_TOKENS, &n);
    p->ask->max_length = (uint32_t)n;
    return status;
}

static pj_status field_batch_size(parse *p, const char *name, const json_t *value)
{
    int64_t n = p->ask->batch_size;
    pj_status status = take_int(p, name, value, 1, PJ_MAX_BATCH, &n);
    p->ask->batch_size = (uint32_t)n;
    return status;
}

static pj_status field_tags(parse *p, const char *name, const json_t *value)
{
    if (json_is_null(value)) return PJ_OK;
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count > PJ_MAX_TAGS)
        return pj_fail(p->err, PJ_E_INVALID, "%s must be an array of at most %d strings", name,
                       PJ_MAX_TAGS);
    const char **tags = pj_arena_alloc(p->arena, count + 1, sizeof *tags);
    if (!tags) return no_memory(p);
    for (size_t i = 0; i < count; i++) {
        pj_status status =
            take_text(p, name, json_array_get(value, i), PJ_MAX_TEXT_BYTES, &tags[i]);
        if (status != PJ_OK) return status;
        if (!tags[i] || !tags[i][0])
            return wrong(p, name, "an array of strings that are not empty");
    }
    p->ask->tags = tags;
    return PJ_OK;
}

static pj_status field_experiment(parse *p, const char *name, const json_t *value)
{
    return take_text(p, name, value, PJ_MAX_TEXT_BYTES, &p->ask->experiment_name);
}

static pj_status field_temperature(parse *p, const char *name, const json_t *value)
{
    return take_number(p, name, value, 0, 100, &p->ask->temperature);
}

static pj_status field_top_p(parse *p, const char *name, const json_t *value)
{
    return take_number(p, name, value, 0, 1, &p->ask->top_p);
}

static pj_status field_top_k(parse *p, const char *name, const json_t *value)
{
    return take_int(p, name, value, 0, 1 << 20, &p->ask->top_k);
}

static pj_status field_seed(parse *p, const char *name, const json_t *value)
{
    return take_int(p, name, value, 0, (int64_t)1 << 53, &p->ask->seed);
}

static pj_status field_dtype(parse *p, const char *name, const json_t *value)
{
    static const char *const names[] = {"q8_0", "q4_0", "bf16", "f16", "f32"};
    if (json_is_null(value)) return PJ_OK;
    for (int i = 0; i < 5 && json_is_string(value); i++)
        if (strcmp(json_string_value(value), names[i]) == 0) {
            p->ask->dtype = names[i];
            return PJ_OK;
        }
    return wrong(p, name, "one of q8_0, q4_0, bf16, f16, f32");
}

static pj_status field_wait(parse *p, const char *name, const json_t *value)
{
    if (!json_is_boolean(value)) return wrong(p, name, "true or false");
    p->ask->wait = json_is_true(value);
    return PJ_OK;
}

static const struct field {
    const char *name;
    field_fn *take;
} fields[] = {
    {"model_name", field_model},
    {"prompt", field_prompt},
    {"prompt_ids", field_prompt_ids},
    {"profiling_depth", field_depth},
    {"max_length", field_max_length},
    {"tags", field_tags},
    {"experiment_name", field_experiment},
    {"temperature", field_temperature},
    {"top_k", field_top_k},
    {"top_p", field_top_p},
    {"seed", field_seed},
    {"batch_size", field_batch_size},
    {"dtype", field_dtype},
    {"wait", field_wait},
};

enum { FIELD_COUNT = sizeof fields / sizeof *fields };

static const char *field_name(const void *list, size_t i)
{
    return i < FIELD_COUNT ? ((const struct field *)list)[i].name : NULL;
}

static pj_status take_field(parse *p, const char *name, const json_t *value)
{
    for (int i = 0; i < FIELD_COUNT; i++)
        if (strcmp(fields[i].name, name) == 0) return fields[i].take(p, name, value);
    const char *near = pj_nearest_name(name, field_name, fields);
    return pj_fail(p->err, PJ_E_INVALID, "there is no field %.60s%s%s", name,
                   near ? "; did you mean " : " in this request; see /api/openapi.json",
                   near ? near : "");
}

static pj_status take_object(parse *p, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        pj_status status = take_field(p, name, value);
        if (status != PJ_OK) return status;
    }
    if (p->ask->prompt && p->ask->prompt_ids)
        return pj_fail(p->err, PJ_E_INVALID, "give either prompt or prompt_ids, not both");
    if (!p->ask->prompt_ids && (!p->ask->prompt || !p->ask->prompt[0]))
        return pj_fail(p->err, PJ_E_INVALID, "prompt is missing: give the text to continue");
    return PJ_OK;
}

pj_status pj_generate_body_parse(const char *text, size_t bytes, pj_generate_ask *ask,
                                 pj_arena *arena, bool *syntax, pj_error *err)
{
    static const char *const no_tags[] = {NULL};
    json_error_t why;
    *ask = (pj_generate_ask){.depth = PJ_DEPTH_MODULE,
                             .max_length = 100,
                             .batch_size = 1,
                             .tags = no_tags,
                             .temperature = NAN,
                             .top_p = NAN,
                             .top_k = -1,
                             .seed = -1,
                             .wait = true};
    *syntax = true;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!root)
        return pj_fail(err, PJ_E_INVALID, "the body is not valid JSON: line %d, %.200s", why.line,
                       why.text);
    parse p = {ask, arena, err};
    *syntax = false;
    pj_status status = json_is_object(root)
                           ? take_object(&p, root)
                           : pj_fail(err, PJ_E_INVALID, "the body must be a JSON object");
    json_decref(root);
    return status;
}
