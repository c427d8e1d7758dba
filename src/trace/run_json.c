/* Writing and reading the spool's JSON objects. */
#include "trace/run_json.h"

#include "trace/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BASELINE_MW = 10000000 }; /* 10 kW: a higher baseline in a spool is not believed */

/* ---- writing ------------------------------------------------------------------------------- */

void pj_run_info_write(pj_json *json, const pj_run_info *info, int64_t start_ns)
{
    pj_json_object_begin(json);
    if (start_ns) pj_json_kv_int(json, "start_ns", start_ns);
    pj_json_kv_string(json, "id", info->id);
    pj_json_kv_int(json, "created_wall_ns", info->created_wall_ns);
    pj_json_kv_double(json, "monotonic_ms", info->monotonic_ms);
    pj_json_kv_string(json, "depth", pj_depth_name(info->depth));
    pj_json_kv_string(json, "prompt", info->prompt);
    pj_json_kv_string(json, "prompt_private", info->prompt_private);
    pj_json_kv_string(json, "output_private", info->output_private);
    pj_json_kv_string(json, "model_name", info->model_name);
    pj_json_kv_string(json, "model_path", info->model_path);
    pj_json_kv_string(json, "engine", info->engine);
    pj_json_kv_string(json, "scope", info->scope);
    pj_json_kv_string(json, "level", info->level);
    pj_json_kv_string(json, "experiment_name", info->experiment_name);
    pj_json_key(json, "tags");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < info->tag_count; i++) pj_json_string(json, info->tags[i]);
    pj_json_array_end(json);
    pj_json_kv_uint(json, "batch_size", info->batch_size);
    pj_json_kv_string(json, "dtype", info->dtype);
    pj_json_kv_string(json, "isa", info->isa);
    pj_json_kv_uint(json, "threads", info->threads);
    pj_json_kv_string(json, "machine", info->machine);
    pj_json_kv_string(json, "machine_json", info->machine_json);
    pj_json_kv_string(json, "failure", info->failure);
    pj_json_kv_string(json, "settings_json", info->settings_json);
    pj_json_kv_string(json, "model_json", info->model_json);
    pj_json_kv_string(json, "repeat_group", info->repeat_group);
    pj_json_kv_uint(json, "repeat_index", info->repeat_index);
    pj_json_kv_uint(json, "input_tokens", info->input_tokens);
    pj_json_kv_uint(json, "output_tokens", info->output_tokens);
    pj_json_kv_string(json, "batch_rule", info->batch_rule);
    pj_json_kv_double(json, "cached_tokens", info->cached_tokens);
    pj_json_kv_string(json, "allocation", info->allocation);
    pj_json_key(json, "prompt_tokens");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < info->prompt_count; i++) pj_json_uint(json, info->prompt_tokens[i]);
    pj_json_array_end(json);
    pj_json_kv_string(json, "quality", pj_quality_name(info->quality));
    pj_json_kv_string(json, "power_sources", info->power_sources);
    pj_json_kv_string(json, "partial_rails", info->partial_rails);
    pj_json_kv_double(json, "overhead_ms", info->overhead_ms);
    pj_json_kv_double(json, "overhead_share", info->overhead_share);
    pj_json_kv_double(json, "statistics_ms", info->statistics_ms);
    pj_json_kv_double(json, "sampler_cpu_share", info->sampler_cpu_share);
    pj_json_kv_double(json, "sampler_jitter_us", info->sampler_jitter_us);
    pj_json_kv_uint(json, "samples_missed", info->samples_missed);
    pj_json_kv_uint(json, "spans_lost", info->spans_lost);
    pj_json_kv_double(json, "baseline_cold_mw", info->baseline_cold_mw);
    pj_json_kv_double(json, "baseline_resident_mw", info->baseline_resident_mw);
    pj_json_object_end(json);
}

void pj_rail_write(pj_json *json, uint32_t index, const pj_rail *rail, double baseline_mw,
                   double baseline_sd_mw)
{
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "index", index);
    pj_json_kv_string(json, "name", rail->name);
    pj_json_kv_string(json, "source", rail->source);
    pj_json_kv_string(json, "device", rail->device);
    pj_json_kv_string(json, "field", rail->field);
    pj_json_kv_int(json, "class", rail->rail_class);
    pj_json_kv_int(json, "kind", rail->kind);
    pj_json_kv_int(json, "scope", rail->scope);
    pj_json_kv_int(json, "quality", rail->quality);
    pj_json_kv_int(json, "parent", rail->parent);
    pj_json_kv_int(json, "period_ns", rail->period_ns);
    pj_json_kv_int(json, "window_ns", rail->window_ns);
    pj_json_kv_int(json, "delay_ns", rail->delay_ns);
    pj_json_kv_int(json, "lag_ns", rail->lag_ns);
    if (rail->twin_class) pj_json_kv_int(json, "twin_class", rail->twin_class);
    pj_json_kv_double(json, "resolution", rail->resolution);
    pj_json_kv_double(json, "modulus_uj", rail->modulus_uj);
    pj_json_kv_double(json, "max_mw", rail->max_mw);
    pj_json_kv_double(json, "gain", rail->gain);
    pj_json_kv_double(json, "gain_sd", rail->gain_sd);
    pj_json_kv_double(json, "baseline_mw", baseline_mw);
    pj_json_kv_double(json, "baseline_sd_mw", baseline_sd_mw);
    pj_json_object_end(json);
}

void pj_warning_write(pj_json *json, int64_t t_ns, const char *code, const char *sentence)
{
    pj_json_object_begin(json);
    pj_json_kv_int(json, "t_ns", t_ns);
    pj_json_kv_string(json, "code", code);
    pj_json_kv_string(json, "text", sentence);
    pj_json_object_end(json);
}

void pj_run_end_write(pj_json *json, int64_t t_ns, pj_run_status status)
{
    pj_json_object_begin(json);
    pj_json_kv_int(json, "t_ns", t_ns);
    pj_json_kv_string(json, "status", pj_run_status_name(status));
    pj_json_object_end(json);
}

/* ---- reading ------------------------------------------------------------------------------- */

static pj_status parse(const char *text, size_t bytes, json_t **object, pj_error *err)
{
    json_error_t where;
    *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (json_is_object(*object)) return PJ_OK;
    json_decref(*object);
    *object = NULL;
    return pj_fail(err, PJ_E_INVALID, "a record of the spool is not a JSON object");
}

static void get_text(const json_t *object, const char *key, pj_arena *arena, const char **text)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return;
    const char *copy = pj_arena_strndup(arena, json_string_value(value), json_string_length(value));
    if (copy) *text = copy;
}

bool pj_run_is_json_object(const char *text)
{
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool is_object = json_is_object(value);
    json_decref(value);
    return is_object;
}

/* Embedded verbatim in other JSON, so it must be valid JSON itself. */
static void get_object(const json_t *object, const char *key, pj_arena *arena, const char **text)
{
    const char *given = json_string_value(json_object_get(object, key));
    if (given && pj_run_is_json_object(given)) get_text(object, key, arena, text);
}

/* The facts about the model that figures per parameter need. */
static void read_model(pj_run_info *info)
{
    json_t *model = info->model_json ? json_loads(info->model_json, 0, NULL) : NULL;
    const json_t *all = json_object_get(model, "parameters");
    const json_t *active = json_object_get(model, "active_parameters");
    info->parameters = json_is_number(all) ? json_number_value(all) : NAN;
    info->active_parameters = json_is_number(active) ? json_number_value(active) : NAN;
    json_decref(model);
}

static void get_chars(const json_t *object, const char *key, char *text, size_t bytes)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value)) snprintf(text, bytes, "%s", json_string_value(value));
}

static void get_int(const json_t *object, const char *key, int64_t *number)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) *number = json_integer_value(value);
}

static void get_u64(const json_t *object, const char *key, uint64_t *number)
{
    int64_t value = -1;
    get_int(object, key, &value);
    if (value >= 0) *number = (uint64_t)value;
}

static void get_u32(const json_t *object, const char *key, uint32_t *number)
{
    int64_t value = -1;
    get_int(object, key, &value);
    if (value >= 0 && value <= UINT32_MAX) *number = (uint32_t)value;
}

/* A number within [low, high], for what becomes an enumeration. */
static int get_choice(const json_t *object, const char *key, int low, int high, int otherwise)
{
    int64_t value = otherwise;
    get_int(object, key, &value);
    return value >= low && value <= high ? (int)value : otherwise;
}

static void get_double(const json_t *object, const char *key, double *number)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) *number = json_number_value(value);
    if (json_is_null(value)) *number = NAN;
}

static pj_status get_tags(const json_t *object, pj_arena *arena, pj_run_info *info, pj_error *err)
{
    const json_t *tags = json_object_get(object, "tags");
    size_t count = json_array_size(tags), kept = 0;
    if (!count) return PJ_OK;
    const char **list = pj_arena_alloc(arena, count + 1, sizeof *list);
    if (!list) return pj_fail_memory(err, "the tags of a run");
    for (size_t i = 0; i < count; i++) {
        const json_t *tag = json_array_get(tags, i);
        if (!json_is_string(tag)) continue;
        list[kept] = pj_arena_strndup(arena, json_string_value(tag), json_string_length(tag));
        if (!list[kept++]) return pj_fail_memory(err, "the tags of a run");
    }
    info->tags = list;
    info->tag_count = (uint32_t)kept;
    return PJ_OK;
}

static pj_status get_prompts(const json_t *object, pj_arena *arena, pj_run_info *info,
                             pj_error *err)
{
    const json_t *list = json_object_get(object, "prompt_tokens");
    size_t count = json_array_size(list);
    if (!count || count > UINT32_MAX) return PJ_OK;
    uint32_t *tokens = pj_arena_alloc(arena, count, sizeof *tokens);
    if (!tokens) return pj_fail_memory(err, "the prompts of a run");
    for (size_t i = 0; i < count; i++) {
        json_int_t n = json_integer_value(json_array_get(list, i));
        tokens[i] = n > 0 && n < UINT32_MAX ? (uint32_t)n : 0;
    }
    info->prompt_tokens = tokens;
    info->prompt_count = (uint32_t)count;
    return PJ_OK;
}

static int parsed_or(int parsed, int otherwise)
{
    return parsed >= 0 ? parsed : otherwise;
}

pj_status pj_run_info_read(const char *text, size_t bytes, pj_arena *arena, pj_run_info *info,
                           int64_t *start_ns, pj_error *err)
{
    json_t *o;
    char word[32] = "";
    pj_status status = parse(text, bytes, &o, err);
    if (status != PJ_OK) return status;
    get_int(o, "start_ns", start_ns);
    get_chars(o, "id", info->id, sizeof info->id);
    get_int(o, "created_wall_ns", &info->created_wall_ns);
    get_double(o, "monotonic_ms", &info->monotonic_ms);
    get_chars(o, "depth", word, sizeof word);
    info->depth = (pj_depth)parsed_or(pj_depth_parse(word), (int)info->depth);
    get_chars(o, "quality", word, sizeof word);
    info->quality = (pj_source_quality)parsed_or(pj_quality_parse(word), (int)info->quality);
    get_text(o, "prompt", arena, &info->prompt);
    get_object(o, "prompt_private", arena, &info->prompt_private);
    get_object(o, "output_private", arena, &info->output_private);
    get_text(o, "model_name", arena, &info->model_name);
    get_text(o, "model_path", arena, &info->model_path);
    get_text(o, "engine", arena, &info->engine);
    get_text(o, "scope", arena, &info->scope);
    get_text(o, "level", arena, &info->level);
    get_text(o, "experiment_name", arena, &info->experiment_name);
    get_text(o, "dtype", arena, &info->dtype);
    get_text(o, "isa", arena, &info->isa);
    get_text(o, "machine", arena, &info->machine);
    get_object(o, "machine_json", arena, &info->machine_json);
    get_text(o, "failure", arena, &info->failure);
    get_object(o, "settings_json", arena, &info->settings_json);
    get_object(o, "model_json", arena, &info->model_json);
    read_model(info);
    get_text(o, "repeat_group", arena, &info->repeat_group);
    get_text(o, "power_sources", arena, &info->power_sources);
    get_text(o, "partial_rails", arena, &info->partial_rails);
    get_text(o, "batch_rule", arena, &info->batch_rule);
    get_text(o, "allocation", arena, &info->allocation);
    get_double(o, "cached_tokens", &info->cached_tokens);
    get_u32(o, "repeat_index", &info->repeat_index);
    get_u32(o, "batch_size", &info->batch_size);
    get_u32(o, "threads", &info->threads);
    get_u64(o, "input_tokens", &info->input_tokens);
    get_u64(o, "output_tokens", &info->output_tokens);
    get_u64(o, "samples_missed", &info->samples_missed);
    get_u64(o, "spans_lost", &info->spans_lost);
    get_double(o, "overhead_ms", &info->overhead_ms);
    get_double(o, "overhead_share", &info->overhead_share);
    get_double(o, "statistics_ms", &info->statistics_ms);
    get_double(o, "sampler_cpu_share", &info->sampler_cpu_share);
    get_double(o, "sampler_jitter_us", &info->sampler_jitter_us);
    get_double(o, "baseline_cold_mw", &info->baseline_cold_mw);
    get_double(o, "baseline_resident_mw", &info->baseline_resident_mw);
    status = get_tags(o, arena, info, err);
    if (status == PJ_OK) status = get_prompts(o, arena, info, err);
    json_decref(o);
    return status;
}

pj_status pj_rail_read(const char *text, size_t bytes, uint32_t *index, pj_rail *rail,
                       double *baseline_mw, double *baseline_sd_mw, pj_error *err)
{
    json_t *o;
    pj_status status = parse(text, bytes, &o, err);
    if (status != PJ_OK) return status;
    *index = UINT32_MAX;
    *baseline_mw = *baseline_sd_mw = NAN;
    *rail = (pj_rail){0};
    get_u32(o, "index", index);
    get_chars(o, "name", rail->name, sizeof rail->name);
    get_chars(o, "source", rail->source, sizeof rail->source);
    get_chars(o, "device", rail->device, sizeof rail->device);
    get_chars(o, "field", rail->field, sizeof rail->field);
    rail->rail_class =
        (pj_rail_class)get_choice(o, "class", 0, PJ_RAIL_CLASS_COUNT - 1, PJ_RAIL_PLATFORM);
    rail->kind = (pj_rail_kind)get_choice(o, "kind", 0, PJ_RAIL_AVERAGE, PJ_RAIL_INSTANT);
    rail->scope = (pj_rail_scope)get_choice(o, "scope", 0, PJ_SCOPE_MACHINE, PJ_SCOPE_DOMAIN);
    rail->quality = (pj_source_quality)get_choice(o, "quality", 0, PJ_MEASURED, PJ_MODELLED);
    rail->parent = get_choice(o, "parent", -1, PJ_MAX_RAILS - 1, -1);
    get_int(o, "period_ns", &rail->period_ns);
    get_int(o, "window_ns", &rail->window_ns);
    get_int(o, "delay_ns", &rail->delay_ns);
    get_int(o, "lag_ns", &rail->lag_ns);
    rail->twin_class = get_choice(o, "twin_class", 0, PJ_RAIL_CLASS_COUNT, 0);
    get_double(o, "resolution", &rail->resolution);
    get_double(o, "modulus_uj", &rail->modulus_uj);
    get_double(o, "max_mw", &rail->max_mw);
    get_double(o, "gain", &rail->gain);
    get_double(o, "gain_sd", &rail->gain_sd);
    get_double(o, "baseline_mw", baseline_mw);
    get_double(o, "baseline_sd_mw", baseline_sd_mw);
    if (!(fabs(*baseline_mw) <= MOST_BASELINE_MW)) *baseline_mw = *baseline_sd_mw = NAN;
    json_decref(o);
    return *index < PJ_MAX_RAILS
               ? PJ_OK
               : pj_fail(err, PJ_E_INVALID, "a rail of the spool has no valid index");
}

pj_status pj_warning_read(const char *text, size_t bytes, pj_arena *arena, int64_t *t_ns,
                          const char **code, const char **sentence, pj_error *err)
{
    json_t *o;
    pj_status status = parse(text, bytes, &o, err);
    if (status != PJ_OK) return status;
    *t_ns = 0;
    *code = *sentence = "";
    get_int(o, "t_ns", t_ns);
    get_text(o, "code", arena, code);
    get_text(o, "text", arena, sentence);
    json_decref(o);
    return PJ_OK;
}

pj_status pj_run_end_read(const char *text, size_t bytes, int64_t *t_ns, pj_run_status *status,
                          pj_error *err)
{
    json_t *o;
    char word[32] = "";
    pj_status parsed = parse(text, bytes, &o, err);
    if (parsed != PJ_OK) return parsed;
    get_int(o, "t_ns", t_ns);
    get_chars(o, "status", word, sizeof word);
    *status = (pj_run_status)parsed_or(pj_run_status_parse(word), PJ_RUN_INTERRUPTED);
    json_decref(o);
    return PJ_OK;
}
