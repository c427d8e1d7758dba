/* Plans: parsing, cells, order, when to stop. */
#include "analysis/plan.h"

#include "analysis/compare.h"
#include "base/random.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_BLOCKS = 3 };

/* ---- JSON ---- */

static pj_status plan_bad(pj_error *err, const char *what)
{
    return pj_fail(err, PJ_E_INVALID, "the plan's %s", what);
}

/* A list of the plan; NULL: it is missing. Its values come after `before` others. */
static pj_status plan_list(const json_t *tree, const char *name, const char *of, size_t before,
                           const json_t **list, pj_error *err)
{
    *list = json_object_get(tree, name);
    if (*list && !json_is_array(*list))
        return pj_fail(err, PJ_E_INVALID, "the plan's %s must be an array of %s", name, of);
    if (*list && !before && !json_array_size(*list)) /* no combination has a value of it */
        return pj_fail(err, PJ_E_INVALID, "the plan's %s is an empty list", name);
    if (before + json_array_size(*list) > PJ_PLAN_VALUES)
        return plan_bad(err, "lists have at most 64 values");
    return PJ_OK;
}

/* A missing list has the one value ""; with `before` 1 a list's values come after that one. */
static pj_status plan_read_texts(const json_t *tree, const char *name, uint32_t before,
                                 pj_arena *arena, const char **out, uint32_t *count, pj_error *err)
{
    const json_t *list;
    pj_status status = plan_list(tree, name, "strings", before, &list, err);
    if (status != PJ_OK) return status;
    out[0] = "";
    *count = list ? before : 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || (before && !*text))
            return pj_fail(err, PJ_E_INVALID, "the plan's %s must be an array of strings", name);
        out[*count] = pj_arena_strndup(arena, text, strlen(text));
        if (!out[(*count)++]) return pj_fail_memory(err, "a plan");
    }
    return PJ_OK;
}

/* Engines replace ours, unless "perjoule" is among them. */
static pj_status name_engines(pj_plan *p, pj_error *err)
{
    for (uint32_t i = 0; i < p->engine_count; i++) {
        const char *name = p->engines[i];
        if (strcmp(name, "perjoule") == 0)
            p->engines[i] = "";
        else if (*name && strncmp(name, "attach:", 7) != 0 && strncmp(name, "exec:", 5) != 0)
            return pj_fail(err, PJ_E_INVALID,
                           "unknown engine %.100s: use perjoule, attach:URL or exec:COMMAND", name);
    }
    return PJ_OK;
}

static bool only_ours(const pj_plan *p)
{
    for (uint32_t i = 0; i < p->engine_count; i++)
        if (p->engines[i][0]) return false;
    return true;
}

/* Settings that cannot be controlled in other engines. */
static pj_status check_engines(const pj_plan *p, pj_error *err)
{
    if (only_ours(p)) return PJ_OK;
    if (p->dtype_count > 1 || p->thread_count > 1 || p->dtypes[0][0] || p->threads[0])
        return plan_bad(err, "dtypes and threads apply to the built-in engine only");
    if (p->ablate_count > 1) return plan_bad(err, "ablate applies to the built-in engine only");
    if (p->eval || p->eval_text || p->tasks || p->tasks_text)
        return plan_bad(err, "eval and tasks apply to the built-in engine only: leave them out "
                             "with other engines");
    return PJ_OK;
}

static pj_status read_numbers(const json_t *tree, const char *name, uint32_t usual, double most,
                              uint32_t *out, uint32_t *count, pj_error *err)
{
    const json_t *list;
    pj_status status = plan_list(tree, name, "numbers", 0, &list, err);
    if (status != PJ_OK) return status;
    out[0] = usual;
    *count = list ? (uint32_t)json_array_size(list) : 1;
    for (uint32_t i = 0; list && i < *count; i++) {
        const json_t *value = json_array_get(list, i);
        double number = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(number >= (usual ? 1 : 0) && number <= most && number == floor(number)))
            return pj_fail(err, PJ_E_INVALID, "the plan's %s must be integers from %d to %.0f",
                           name, usual ? 1 : 0, most);
        out[i] = (uint32_t)number;
    }
    return PJ_OK;
}

static pj_status read_lists(const json_t *tree, pj_arena *arena, pj_plan *p, pj_error *err)
{
    const struct {
        const char *name;
        uint32_t before;
        const char **out;
        uint32_t *count;
    } texts[] = {{"models", 0, p->models, &p->model_count},
                 {"dtypes", 0, p->dtypes, &p->dtype_count},
                 {"engines", 0, p->engines, &p->engine_count},
                 {"ablate", 1, p->ablate, &p->ablate_count}};
    const struct {
        const char *name;
        uint32_t usual;
        double most;
        uint32_t *out, *count;
    } numbers[] = {{"batches", 1, 4096, p->batches, &p->batch_count},
                   {"inputs", 32, 1e6, p->inputs, &p->input_count},
                   {"outputs", 32, 1e6, p->outputs, &p->output_count},
                   {"threads", 0, 1024, p->threads, &p->thread_count}};
    pj_status status = PJ_OK;
    for (int i = 0; i < 4 && status == PJ_OK; i++)
        status = plan_read_texts(tree, texts[i].name, texts[i].before, arena, texts[i].out,
                                 texts[i].count, err);
    for (int i = 0; i < 4 && status == PJ_OK; i++)
        status = read_numbers(tree, numbers[i].name, numbers[i].usual, numbers[i].most,
                              numbers[i].out, numbers[i].count, err);
    return status == PJ_OK ? name_engines(p, err) : status;
}

static double plan_number_of(const json_t *tree, const char *name, double usual)
{
    const json_t *value = json_object_get(tree, name);
    return json_is_number(value) ? json_number_value(value) : usual;
}

static const char *plan_text_of(const json_t *tree, const char *name, const char *usual,
                                pj_arena *arena)
{
    const char *text = json_string_value(json_object_get(tree, name));
    return text ? pj_arena_strndup(arena, text, strlen(text)) : usual;
}

static bool is_among(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* Unknown members and values of another kind are errors. Lists are checked where they are read. */
static pj_status plan_check_members(json_t *tree, pj_error *err)
{
    static const char *const numbers[] = {"repeat", "precision",   "cool_down_s", "max_latency_ms",
                                          "seed",   "interval_ms", "round",       NULL};
    static const char *const texts[] = {"name",       "prompt", "eval",   "eval_text", "tasks",
                                        "tasks_text", "depth",  "device", "power",     NULL};
    static const char *const lists[] = {"models",  "dtypes",  "batches", "inputs", "outputs",
                                        "threads", "engines", "ablate",  NULL};
    const char *name;
    json_t *value;
    json_object_foreach(tree, name, value)
    {
        bool number = is_among(numbers, name), text = is_among(texts, name);
        if (!number && !text && !is_among(lists, name))
            return pj_fail(
                err, PJ_E_INVALID,
                "unknown member %.64s in the plan; known: name, models, dtypes, "
                "batches, inputs, outputs, threads, ablate, engines, repeat, precision, "
                "cool_down_s, max_latency_ms, seed, prompt, eval, eval_text, tasks, tasks_text, depth, device, "
                "power and interval_ms",
                name);
        bool fits = json_is_null(value) || (number ? json_is_number(value) : json_is_string(value));
        if ((number || text) && !fits)
            return pj_fail(err, PJ_E_INVALID, "the plan's %s must be a %s", name,
                           number ? "number" : "string");
    }
    return PJ_OK;
}

static pj_status read_rest(const json_t *tree, pj_arena *arena, pj_plan *p, pj_error *err)
{
    p->name = plan_text_of(tree, "name", NULL, arena);
    p->prompt = plan_text_of(tree, "prompt", NULL, arena);
    p->eval = plan_text_of(tree, "eval", NULL, arena);
    p->eval_text = plan_text_of(tree, "eval_text", NULL, arena);
    p->tasks = plan_text_of(tree, "tasks", NULL, arena);
    p->tasks_text = plan_text_of(tree, "tasks_text", NULL, arena);
    p->depth = plan_text_of(tree, "depth", "module", arena);
    p->device = plan_text_of(tree, "device", NULL, arena);
    p->power = plan_text_of(tree, "power", NULL, arena);
    p->interval_ms = plan_number_of(tree, "interval_ms", 0);
    p->precision = plan_number_of(tree, "precision", 0);
    double repeat = plan_number_of(tree, "repeat", p->precision > 0 ? 30 : 5);
    p->cool_down_s = plan_number_of(tree, "cool_down_s", 0);
    p->max_latency_ms = plan_number_of(tree, "max_latency_ms", 0);
    double seed = plan_number_of(tree, "seed", 1), round = plan_number_of(tree, "round", 0);
    if (!(repeat >= 1 && repeat <= 10000 && repeat == floor(repeat)))
        return plan_bad(err, "repeat must be an integer from 1 to 10000");
    if (!(p->precision >= 0 && p->precision < 1)) return plan_bad(err, "precision must be 0 to 1");
    if (!(p->cool_down_s >= 0 && p->cool_down_s <= 86400))
        return plan_bad(err, "cool_down_s must be 0 to 86400");
    if (!(p->interval_ms >= 0 && p->interval_ms <= 1e9))
        return plan_bad(err, "interval_ms must be 0 (each source's own) to 1e9");
    if (!(p->max_latency_ms >= 0))
        return plan_bad(err, "max_latency_ms must be 0 (no limit) or more");
    if (!(seed >= 0 && seed < 9e15 && seed == floor(seed)))
        return plan_bad(err, "seed must be an integer");
    p->repeat = (uint32_t)repeat;
    p->seed = (uint64_t)seed;
    if (!(round >= 0 && round < 1e6 && round == floor(round)))
        return plan_bad(err, "round must be an integer");
    if (p->name && !*p->name) return plan_bad(err, "name is empty");
    p->round = (uint32_t)round;
    return PJ_OK;
}

pj_status pj_plan_parse(const char *text, pj_arena *arena, pj_plan *p, pj_error *err)
{
    json_error_t where;
    json_t *tree = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    *p = (pj_plan){0};
    if (!tree)
        return pj_fail(err, PJ_E_INVALID, "the plan is not JSON: line %d: %s", where.line,
                       where.text);
    pj_status status = json_is_object(tree) ? plan_check_members(tree, err)
                                            : plan_bad(err, "the plan is not a JSON object");
    if (status == PJ_OK) status = read_lists(tree, arena, p, err);
    if (status == PJ_OK) status = read_rest(tree, arena, p, err);
    if (status == PJ_OK) status = check_engines(p, err);
    json_decref(tree);
    if (status == PJ_OK && pj_plan_cells(p) > PJ_PLAN_CELLS)
        return pj_fail(err, PJ_E_INVALID, "the plan has more than %d cells", PJ_PLAN_CELLS);
    return status;
}

/* An empty text is written as `empty`; a list of it alone is left out. */
static void write_texts(pj_json *json, const char *name, const char *const *texts, uint32_t count,
                        const char *empty)
{
    if (count == 1 && !texts[0][0]) return;
    pj_json_kv_array_begin(json, name);
    for (uint32_t i = 0; i < count; i++) pj_json_string(json, texts[i][0] ? texts[i] : empty);
    pj_json_array_end(json);
}

static void write_numbers(pj_json *json, const char *name, const uint32_t *values, uint32_t count)
{
    pj_json_kv_array_begin(json, name);
    for (uint32_t i = 0; i < count; i++) pj_json_uint(json, values[i]);
    pj_json_array_end(json);
}

void pj_plan_write(const pj_plan *p, pj_json *json)
{
    pj_json_object_begin(json);
    if (p->name) pj_json_kv_string(json, "name", p->name);
    write_texts(json, "models", p->models, p->model_count, "");
    write_texts(json, "dtypes", p->dtypes, p->dtype_count, "");
    write_numbers(json, "batches", p->batches, p->batch_count);
    if (!p->prompt) write_numbers(json, "inputs", p->inputs, p->input_count);
    write_numbers(json, "outputs", p->outputs, p->output_count);
    write_numbers(json, "threads", p->threads, p->thread_count);
    if (p->ablate_count > 1) write_texts(json, "ablate", p->ablate + 1, p->ablate_count - 1, "");
    write_texts(json, "engines", p->engines, p->engine_count, "perjoule");
    pj_json_kv_uint(json, "repeat", p->repeat);
    pj_json_kv_double(json, "precision", p->precision);
    pj_json_kv_double(json, "cool_down_s", p->cool_down_s);
    pj_json_kv_double(json, "max_latency_ms", p->max_latency_ms);
    pj_json_kv_uint(json, "seed", p->seed);
    if (p->prompt) pj_json_kv_string(json, "prompt", p->prompt);
    if (p->eval) pj_json_kv_string(json, "eval", p->eval);
    if (p->eval_text) pj_json_kv_string(json, "eval_text", p->eval_text);
    if (p->tasks) pj_json_kv_string(json, "tasks", p->tasks);
    if (p->tasks_text) pj_json_kv_string(json, "tasks_text", p->tasks_text);
    pj_json_kv_string(json, "depth", p->depth);
    if (p->device) pj_json_kv_string(json, "device", p->device);
    if (p->power) pj_json_kv_string(json, "power", p->power);
    if (p->power) pj_json_kv_double(json, "interval_ms", p->interval_ms);
    pj_json_kv_uint(json, "round", p->round);
    pj_json_object_end(json);
}

/* ---- cells ---- */

uint32_t pj_plan_cells(const pj_plan *p)
{
    double n = (double)p->model_count * p->dtype_count * p->batch_count * p->input_count *
               p->output_count * p->thread_count * p->engine_count * p->ablate_count;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static uint32_t plan_take(uint32_t *index, uint32_t count)
{
    uint32_t at = *index % count;
    *index /= count;
    return at;
}

void pj_plan_cell(const pj_plan *p, uint32_t index, pj_cell *c)
{
    c->threads = p->threads[plan_take(&index, p->thread_count)];
    c->output = p->outputs[plan_take(&index, p->output_count)];
    c->input = p->inputs[plan_take(&index, p->input_count)];
    c->batch = p->batches[plan_take(&index, p->batch_count)];
    c->dtype = p->dtypes[plan_take(&index, p->dtype_count)];
    c->model = p->models[plan_take(&index, p->model_count)];
    c->engine = p->engines[plan_take(&index, p->engine_count)];
    c->ablate = p->ablate[plan_take(&index, p->ablate_count)];
}

uint32_t pj_plan_whole_cell(const pj_plan *p, uint32_t index)
{
    return index % (pj_plan_cells(p) / p->ablate_count);
}

__attribute__((format(printf, 3, 4))) static void plan_add(char *text, size_t bytes,
                                                           const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;
    if (n + 3 >= bytes) return;
    if (n) n += (size_t)snprintf(text + n, bytes - n, ", ");
    va_start(args, format);
    vsnprintf(text + n, bytes - n, format, args);
    va_end(args);
}

void pj_plan_cell_name(const pj_plan *p, uint32_t index, char *text, size_t bytes)
{
    pj_cell c;
    pj_plan_cell(p, index, &c);
    text[0] = 0;
    const char *last = strrchr(c.model, '/');
    if (p->model_count > 1) plan_add(text, bytes, "%.40s", last && last[1] ? last + 1 : c.model);
    if (p->dtype_count > 1) plan_add(text, bytes, "%.16s", c.dtype[0] ? c.dtype : "as stored");
    if (p->batch_count > 1) plan_add(text, bytes, "batch %u", c.batch);
    if (p->input_count > 1) plan_add(text, bytes, "in %u", c.input);
    if (p->output_count > 1) plan_add(text, bytes, "out %u", c.output);
    if (p->thread_count > 1 && c.threads)
        plan_add(text, bytes, "%u thread%s", c.threads, c.threads > 1 ? "s" : "");
    if (p->thread_count > 1 && !c.threads) plan_add(text, bytes, "all threads");
    if (p->engine_count > 1) plan_add(text, bytes, "%.60s", c.engine[0] ? c.engine : "perjoule");
    if (strncmp(c.ablate, "layers=", 7) == 0)
        plan_add(text, bytes, "first %.8s layers only", c.ablate + 7);
    else if (c.ablate[0])
        plan_add(text, bytes, "without %.16s", c.ablate);
    if (!text[0]) snprintf(text, bytes, p->ablate_count > 1 ? "the whole model" : "the cell");
}

/* ---- order and end ---- */

void pj_plan_order(const pj_plan *p, uint32_t block, uint32_t *order)
{
    uint32_t n = pj_plan_cells(p);
    pj_random random = {p->seed * 0x9e3779b97f4a7c15u + block + 1000003u * p->round};
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(pj_random_unit(&random) * i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

bool pj_plan_is_enough(const pj_plan *p, const double *joules, uint32_t count)
{
    double mean = 0, squares = 0;
    if (count >= p->repeat) return true;
    if (!(p->precision > 0) || count < LEAST_BLOCKS) return false;
    for (uint32_t i = 0; i < count; i++) mean += joules[i] / count;
    for (uint32_t i = 0; i < count; i++) squares += (joules[i] - mean) * (joules[i] - mean);
    return pj_half_width(count, squares) <= p->precision * mean;
}
