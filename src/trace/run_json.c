/* Writing and reading the spool's JSON objects. */
#include "trace/run_json.h"

#include "trace/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BASELINE_MW = 10000000 }; /* 10 kW: a higher baseline in a spool is ignored */

/* clang-format off */
/* Members of pj_run_info and pj_rail that are written and read alike, under their names. */
#define INFO_TEXTS(X)                                                                              \
    X(prompt) X(model_name) X(model_path) X(engine) X(scope) X(level) X(experiment_name) X(dtype)  \
    X(isa) X(machine) X(failure) X(repeat_group) X(power_sources) X(partial_rails) X(batch_rule)   \
    X(allocation) X(simulation)
#define INFO_OBJECTS(X) /* texts that are JSON themselves */                                       \
    X(prompt_private) X(output_private) X(machine_json) X(settings_json) X(model_json)
#define INFO_U32(X) X(batch_size) X(threads) X(repeat_index)
#define INFO_U64(X) X(input_tokens) X(output_tokens) X(samples_missed) X(spans_lost)
#define INFO_DOUBLES(X)                                                                            \
    X(monotonic_ms) X(cached_tokens) X(overhead_ms) X(overhead_share) X(statistics_ms)             \
    X(sampler_cpu_share) X(sampler_jitter_us) X(baseline_cold_mw) X(baseline_resident_mw)      \
    X(memory_read_bytes) X(memory_written_bytes) X(process_mj)
#define RAIL_CHARS(X)   X(name) X(source) X(device) X(field)
#define RAIL_I64(X)     X(period_ns) X(window_ns) X(delay_ns) X(lag_ns) X(grid_ns) X(log_ns)
#define RAIL_DOUBLES(X) X(resolution) X(modulus_uj) X(max_mw) X(gain) X(gain_sd)
/* clang-format on */

/* ---- writing ------------------------------------------------------------------------------- */

#define WRITE_TEXT(name)   pj_json_kv_string(json, #name, from->name);
#define WRITE_INT(name)    pj_json_kv_int(json, #name, from->name);
#define WRITE_UINT(name)   pj_json_kv_uint(json, #name, from->name);
#define WRITE_DOUBLE(name) pj_json_kv_double(json, #name, from->name);

void pj_run_info_write(pj_json *json, const pj_run_info *from, int64_t start_ns)
{
    pj_json_object_begin(json);
    if (start_ns) pj_json_kv_int(json, "start_ns", start_ns);
    pj_json_kv_string(json, "id", from->id);
    pj_json_kv_int(json, "created_wall_ns", from->created_wall_ns);
    pj_json_kv_string(json, "depth", pj_depth_name(from->depth));
    pj_json_kv_string(json, "quality", pj_quality_name(from->quality));
    INFO_TEXTS(WRITE_TEXT)
    INFO_OBJECTS(WRITE_TEXT)
    INFO_U32(WRITE_UINT)
    INFO_U64(WRITE_UINT)
    INFO_DOUBLES(WRITE_DOUBLE)
    pj_json_kv_array_begin(json, "tags");
    for (uint32_t i = 0; i < from->tag_count; i++) pj_json_string(json, from->tags[i]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "prompt_tokens");
    for (uint32_t i = 0; i < from->prompt_count; i++) pj_json_uint(json, from->prompt_tokens[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_rail_write(pj_json *json, uint32_t index, const pj_rail *from, double baseline_mw,
                   double baseline_sd_mw)
{
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "index", index);
    RAIL_CHARS(WRITE_TEXT)
    pj_json_kv_int(json, "class", from->rail_class);
    WRITE_INT(kind)
    WRITE_INT(scope)
    WRITE_INT(quality)
    WRITE_INT(parent)
    if (from->twin_class) WRITE_INT(twin_class)
    RAIL_I64(WRITE_INT)
    RAIL_DOUBLES(WRITE_DOUBLE)
    pj_json_kv_double(json, "baseline_mw", baseline_mw);
    pj_json_kv_double(json, "baseline_sd_mw", baseline_sd_mw);
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

static pj_status run_json_parse(const char *text, size_t bytes, json_t **object, pj_error *err)
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

static pj_status run_json_get_prompts(const json_t *object, pj_arena *arena, pj_run_info *info,
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

#define READ_TEXT(name)   get_text(o, #name, arena, &to->name);
#define READ_OBJECT(name) get_object(o, #name, arena, &to->name);
#define READ_CHARS(name)  get_chars(o, #name, to->name, sizeof to->name);
#define READ_I64(name)    get_int(o, #name, &to->name);
#define READ_U64(name)    get_u64(o, #name, &to->name);
#define READ_U32(name)    get_u32(o, #name, &to->name);
#define READ_DOUBLE(name) get_double(o, #name, &to->name);

pj_status pj_run_info_read(const char *text, size_t bytes, pj_arena *arena, pj_run_info *to,
                           int64_t *start_ns, pj_error *err)
{
    json_t *o;
    char word[32] = "";
    pj_status status = run_json_parse(text, bytes, &o, err);
    if (status != PJ_OK) return status;
    get_int(o, "start_ns", start_ns);
    READ_CHARS(id)
    READ_I64(created_wall_ns)
    get_chars(o, "depth", word, sizeof word);
    to->depth = (pj_depth)parsed_or(pj_depth_parse(word), (int)to->depth);
    get_chars(o, "quality", word, sizeof word);
    to->quality = (pj_source_quality)parsed_or(pj_quality_parse(word), (int)to->quality);
    INFO_TEXTS(READ_TEXT)
    INFO_OBJECTS(READ_OBJECT)
    INFO_U32(READ_U32)
    INFO_U64(READ_U64)
    INFO_DOUBLES(READ_DOUBLE)
    read_model(to);
    status = get_tags(o, arena, to, err);
    if (status == PJ_OK) status = run_json_get_prompts(o, arena, to, err);
    json_decref(o);
    return status;
}

pj_status pj_rail_read(const char *text, size_t bytes, uint32_t *index, pj_rail *to,
                       double *baseline_mw, double *baseline_sd_mw, pj_error *err)
{
    json_t *o;
    pj_status status = run_json_parse(text, bytes, &o, err);
    if (status != PJ_OK) return status;
    *index = UINT32_MAX;
    *baseline_mw = *baseline_sd_mw = NAN;
    *to = (pj_rail){0};
    get_u32(o, "index", index);
    RAIL_CHARS(READ_CHARS)
    to->rail_class =
        (pj_rail_class)get_choice(o, "class", 0, PJ_RAIL_CLASS_COUNT - 1, PJ_RAIL_PLATFORM);
    to->kind = (pj_rail_kind)get_choice(o, "kind", 0, PJ_RAIL_AVERAGE, PJ_RAIL_INSTANT);
    to->scope = (pj_rail_scope)get_choice(o, "scope", 0, PJ_SCOPE_MACHINE, PJ_SCOPE_DOMAIN);
    to->quality = (pj_source_quality)get_choice(o, "quality", 0, PJ_MEASURED, PJ_MODELLED);
    to->parent = get_choice(o, "parent", -1, PJ_MAX_RAILS - 1, -1);
    to->twin_class = get_choice(o, "twin_class", 0, PJ_RAIL_CLASS_COUNT, 0);
    RAIL_I64(READ_I64)
    RAIL_DOUBLES(READ_DOUBLE)
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
    pj_status status = run_json_parse(text, bytes, &o, err);
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
    pj_status parsed = run_json_parse(text, bytes, &o, err);
    if (parsed != PJ_OK) return parsed;
    get_int(o, "t_ns", t_ns);
    get_chars(o, "status", word, sizeof word);
    *status = (pj_run_status)parsed_or(pj_run_status_parse(word), PJ_RUN_INTERRUPTED);
    json_decref(o);
    return PJ_OK;
}

/* ---- as records of a spool ------------------------------------------------------------------ */

void pj_spool_put(pj_spool_writer *w, pj_record_type type, const void *payload, size_t bytes)
{
    if (w->status == PJ_OK) w->status = pj_spool_append(w->spool, type, payload, bytes, w->err);
}

static void put_json(pj_spool_writer *w, pj_record_type type, pj_json *json)
{
    if (w->status == PJ_OK) w->status = pj_buffer_status(&json->own, "a record of a run", w->err);
    pj_spool_put(w, type, json->own.data, json->own.length);
    pj_json_close(json);
}

void pj_spool_put_info(pj_spool_writer *w, const pj_run_info *info, int64_t start_ns)
{
    pj_json json;
    pj_json_open(&json, PJ_RECORD_MAX_BYTES);
    pj_run_info_write(&json, info, start_ns);
    put_json(w, PJ_RECORD_INFO, &json);
}

void pj_spool_put_rail(pj_spool_writer *w, uint32_t index, const pj_rail *rail, double baseline_mw,
                       double baseline_sd_mw)
{
    pj_json json;
    pj_json_open(&json, 1 << 16);
    pj_rail_write(&json, index, rail, baseline_mw, baseline_sd_mw);
    put_json(w, PJ_RECORD_RAIL, &json);
}

void pj_spool_put_device(pj_spool_writer *w, const pj_device_row *device)
{
    pj_json json;
    pj_json_open(&json, 1 << 16);
    pj_device_write(&json, device);
    put_json(w, PJ_RECORD_DEVICE, &json);
}

void pj_spool_put_warning(pj_spool_writer *w, int64_t t_ns, const char *code, const char *sentence)
{
    pj_json json;
    pj_json_open(&json, 1 << 16);
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "t_ns", t_ns);
    pj_json_kv_string(&json, "code", code);
    pj_json_kv_string(&json, "text", sentence);
    pj_json_object_end(&json);
    put_json(w, PJ_RECORD_WARNING, &json);
}

void pj_spool_put_end(pj_spool_writer *w, int64_t t_ns, pj_run_status status)
{
    pj_json json;
    pj_json_open(&json, 1 << 12);
    pj_run_end_write(&json, t_ns, status);
    put_json(w, PJ_RECORD_END, &json);
}

void pj_spool_put_name(pj_spool_writer *w, uint32_t id, const char *name)
{
    char record[sizeof id + 256];
    size_t bytes = strnlen(name, 256);
    memcpy(record, &id, sizeof id);
    memcpy(record + sizeof id, name, bytes);
    pj_spool_put(w, PJ_RECORD_NAME, record, sizeof id + bytes);
}

void pj_spool_put_span(pj_spool_writer *w, const pj_span *span)
{
    pj_spool_put(w, PJ_RECORD_SPAN, span, sizeof *span);
}

void pj_spool_put_reading(pj_spool_writer *w, const pj_reading *reading)
{
    pj_spool_put(w, PJ_RECORD_READINGS, reading, sizeof *reading);
}
