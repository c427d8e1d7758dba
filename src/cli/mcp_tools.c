/* The tools of `perjoule mcp`. */
#include "cli/mcp.h"

#include "base/clock.h"
#include "cli/stored.h"
#include "generate/predict.h"
#include "insight/advice.h"
#include "insight/explained.h"
#include "insight/insight.h"
#include "insight/task_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_RUNS = 10, MOST_RUNS = 200, LENGTH_MOST = 10000000, BATCH_MOST = 65536 };

/* ---- arguments ---- */

static const char *text_of(const json_t *arguments, const char *name)
{
    return json_string_value(json_object_get(arguments, name));
}

static pj_status number_of(const json_t *arguments, const char *name, int64_t otherwise,
                           int64_t most, int64_t *value, pj_error *err)
{
    const json_t *given = json_object_get(arguments, name);
    *value = given ? json_integer_value(given) : otherwise;
    if (given && (!json_is_integer(given) || *value < 1 || *value > most))
        return pj_fail(err, PJ_E_INVALID, "%s must be a whole number from 1 to %lld", name,
                       (long long)most);
    if (*value) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "%s is missing", name);
}

/* ---- tools ---- */

static void write_short_run(const pj_run_info *run, pj_json *json)
{
    pj_run_ratios r;
    char created[32];
    pj_run_ratios_get(run, &r);
    pj_clock_format_iso(run->created_wall_ns, created);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "id", run->id);
    pj_json_kv_string(json, "created_at", created);
    pj_json_kv_string(json, "status", pj_run_status_name(run->status));
    pj_json_kv_string(json, "model_name", run->model_name);
    pj_json_kv_string(json, "engine", run->engine);
    pj_json_kv_string(json, "dtype", run->dtype);
    pj_json_kv_uint(json, "batch_size", run->batch_size);
    pj_json_kv_optional(json, "input_tokens", run->input_tokens > 0, (int64_t)run->input_tokens);
    pj_json_kv_uint(json, "output_tokens", run->output_tokens);
    pj_json_kv_double(json, "total_energy_mj", run->total_mj);
    pj_json_kv_string(json, "energy_source", pj_quality_name(run->quality));
    pj_json_kv_string(json, "partial_rails", run->partial_rails);
    pj_json_kv_double(json, "joules_per_token_typical", r.joules_per_token_typical);
    pj_json_kv_double(json, "joules_per_token_typical_lo", r.typical_bounds.lo);
    pj_json_kv_double(json, "joules_per_token_typical_hi", r.typical_bounds.hi);
    pj_json_kv_double(json, "joules_per_token", r.joules_per_token);
    pj_json_kv_double(json, "tokens_per_second", r.tokens_per_second);
    pj_json_key(json, "tags");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < run->tag_count; i++) pj_json_string(json, run->tags[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static pj_status tool_runs(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                           pj_json *json, pj_error *err)
{
    char session[256];
    const char *tags[2];
    pj_run_list list = {0};
    pj_run_query query = {.model = text_of(arguments, "model"),
                          .experiment = text_of(arguments, "experiment"),
                          .engine = text_of(arguments, "engine"),
                          .tags = tags};
    const char *tag = text_of(arguments, "tag"), *id = text_of(arguments, "session");
    int64_t limit;
    pj_status status = number_of(arguments, "limit", USUAL_RUNS, MOST_RUNS, &limit, err);
    if (tag) tags[query.tag_count++] = tag;
    if (id) {
        snprintf(session, sizeof session, PJ_TAG_SESSION "%s", id);
        tags[query.tag_count++] = session;
    }
    query.limit = (uint32_t)limit;
    if (status == PJ_OK) status = pj_store_list(store, &query, &list, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "total", list.total);
        pj_json_kv_array_begin(json, "runs");
        for (uint32_t i = 0; i < list.count; i++) write_short_run(&list.runs[i], json);
        pj_json_array_end(json);
        pj_json_object_end(json);
    }
    pj_run_list_fini(&list);
    return status;
}

/* Without the classes of the regression: half of the text, and nothing that a model could use. */
static pj_status tool_run(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                          pj_json *json, pj_error *err)
{
    pj_buffer buffer;
    pj_json summary;
    pj_buffer_init(&buffer, 64 << 20);
    pj_json_init(&summary, &buffer);
    pj_status status = pj_insight_summary(store, text_of(arguments, "id"), NULL, &summary, err);
    pj_json_finish(&summary);
    if (status == PJ_OK) status = pj_buffer_status(&buffer, "a run", err);
    json_t *run = status == PJ_OK ? json_loadb(buffer.data, buffer.length, 0, NULL) : NULL;
    if (run) json_object_del(run, "classes");
    char *text = run ? json_dumps(run, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    if (text)
        pj_json_raw(json, text, strlen(text));
    else if (status == PJ_OK)
        status = pj_fail_memory(err, "a run");
    free(text);
    json_decref(run);
    pj_buffer_fini(&buffer);
    return status;
}

static pj_status tool_advice(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                             pj_json *json, pj_error *err)
{
    return pj_insight_advice(store, text_of(arguments, "id"), NULL, json, err);
}

static pj_status tool_compare(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                              pj_json *json, pj_error *err)
{
    const json_t *given = json_object_get(arguments, "ids");
    const char *ids[PJ_COMPARE_MAX];
    size_t count = json_array_size(given);
    const pj_cost_rates rates = PJ_COST_RATES_DEFAULT;
    if (count < 2 || count > PJ_COMPARE_MAX)
        return pj_fail(err, PJ_E_INVALID, "ids must be an array of 2 to %d runs", PJ_COMPARE_MAX);
    for (size_t i = 0; i < count; i++) {
        ids[i] = json_string_value(json_array_get(given, i));
        if (!ids[i]) return pj_fail(err, PJ_E_INVALID, "ids must be an array of texts");
    }
    return pj_insight_compare(store, ids, (uint32_t)count, &rates, json, err);
}

/* A side is a list of runs with commas, as in perjoule compare --why. */
static pj_status tool_why(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                          pj_json *json, pj_error *err)
{
    const char *const sides[] = {text_of(arguments, "a"), text_of(arguments, "b")};
    if (!sides[1]) return pj_fail(err, PJ_E_INVALID, "b is missing");
    return pj_insight_why(store, sides, json, err);
}

static pj_status tool_predict(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                              pj_json *json, pj_error *err)
{
    int64_t input, output, batch;
    pj_status status = number_of(arguments, "input", 0, LENGTH_MOST, &input, err);
    if (status == PJ_OK) status = number_of(arguments, "output", 0, LENGTH_MOST, &output, err);
    if (status == PJ_OK) status = number_of(arguments, "batch", 1, BATCH_MOST, &batch, err);
    if (status != PJ_OK) return status;
    const pj_predict_query query = {.model = text_of(arguments, "model"),
                                    .models = mcp->models,
                                    .dtype = text_of(arguments, "dtype"),
                                    .input = (uint32_t)input,
                                    .output = (uint32_t)output,
                                    .batch = (uint32_t)batch};
    return pj_insight_predict(store, &query, json, err);
}

static pj_status tool_sessions(const pj_mcp *mcp, pj_store *store, const json_t *arguments,
                               pj_json *json, pj_error *err)
{
    return pj_insight_sessions(store, text_of(arguments, "by"), text_of(arguments, "id"), json,
                               err);
}

#define ID_SCHEMA "a run's id, the begin of one (4 characters or more), last, or last~N"
#define SIDE_SCHEMA \
    "{\"type\":\"string\",\"description\":\"" ID_SCHEMA "; several of one kind with commas\"}"

static const struct tool {
    const char *name, *title, *description;
    const char *properties, *required; /* JSON Schema */
    const char *needs_text;            /* an argument that must be a text; NULL: none */
    pj_status (*call)(const pj_mcp *mcp, pj_store *store, const json_t *arguments, pj_json *json,
                      pj_error *err);
} tools[] = {
    {"runs", "Stored runs",
     "Lists measured inference runs, newest first: energy, joules per token with its 95 % interval, "
     "speed, model, settings. null is unavailable, not zero; energy_source says measured or "
     "modelled; a run with partial_rails lacks these in its total.",
     "{\"model\":{\"type\":\"string\",\"description\":\"only this model\"},"
     "\"engine\":{\"type\":\"string\"},\"tag\":{\"type\":\"string\"},"
     "\"experiment\":{\"type\":\"string\"},"
     "\"session\":{\"type\":\"string\",\"description\":\"runs and requests of one task\"},"
     "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":200,\"default\":10}}",
     "[]", NULL, tool_runs},
    {"run", "One run",
     "Everything known of one run: phases, energy gross and net with uncertainty, conditions, "
     "attribution, anomalies with causes, use of the model.",
     "{\"id\":{\"type\":\"string\",\"description\":\"" ID_SCHEMA "\"}}", "[\"id\"]", "id",
     tool_run},
    {"sessions", "What tasks cost",
     "Sums of the runs and requests of each task (session), or of each commit that a gate measured, "
     "newest first: joules with their standard deviation, tokens, calls of tools, joules per call. "
     "null is unavailable, not zero.",
     "{\"by\":{\"type\":\"string\",\"enum\":[\"session\",\"commit\"],\"default\":\"session\"},"
     "\"id\":{\"type\":\"string\",\"description\":\"only this session or commit\"}}",
     "[]", NULL, tool_sessions},
    {"compare", "Compare runs",
     "Compares two to four runs: what differs in their settings, ratio of joules per token with "
     "interval and verdict, the difference by phase and component.",
     "{\"ids\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"description\":\"" ID_SCHEMA
     "\"},\"minItems\":2,\"maxItems\":4}}",
     "[\"ids\"]", NULL, tool_compare},
    {"why", "Why two differ",
     "Explains why B costs more or less energy per token than A: the parts that differ, each with "
     "its cause and the energy this explains, with a 95 % interval where one is known; refusal says "
     "why there is no explanation.",
     "{\"a\":" SIDE_SCHEMA ",\"b\":" SIDE_SCHEMA "}", "[\"a\",\"b\"]", "a", tool_why},
    {"advice", "Advice on a run",
     "What would save energy, by rules over the run's figures: each with evidence, the expected "
     "saving with its interval, what it costs, and the command that tests it.",
     "{\"id\":{\"type\":\"string\",\"description\":\"" ID_SCHEMA "\"}}", "[\"id\"]", "id",
     tool_advice},
    {"predict", "Predict a request",
     "Energy and time of a request before it runs, with 95 % intervals, from this machine's stored "
     "runs; with too few of them, or outside their range, figures are null and refusal says why.",
     "{\"model\":{\"type\":\"string\",\"description\":\"folder, GGUF file, or a name that perjoule "
     "models lists; default: the demo model\"},\"dtype\":{\"type\":\"string\"},"
     "\"input\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"tokens of the prompt\"},"
     "\"output\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"tokens to generate\"},"
     "\"batch\":{\"type\":\"integer\",\"minimum\":1,\"default\":1}}",
     "[\"input\",\"output\"]", NULL, tool_predict},
};

enum { TOOLS = sizeof tools / sizeof *tools };

void pj_mcp_tools_write(pj_json *json)
{
    pj_json_array_begin(json);
    for (int i = 0; i < TOOLS; i++) {
        const struct tool *t = &tools[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", t->name);
        pj_json_kv_string(json, "title", t->title);
        pj_json_kv_string(json, "description", t->description);
        pj_json_kv_object_begin(json, "inputSchema");
        pj_json_kv_string(json, "type", "object");
        pj_json_key(json, "properties");
        pj_json_raw(json, t->properties, strlen(t->properties));
        pj_json_key(json, "required");
        pj_json_raw(json, t->required, strlen(t->required));
        pj_json_kv_bool(json, "additionalProperties", false);
        pj_json_object_end(json);
        pj_json_kv_object_begin(json, "annotations");
        pj_json_kv_bool(json, "readOnlyHint", true);
        pj_json_kv_bool(json, "openWorldHint", false);
        pj_json_object_end(json);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static const struct tool *find_tool(const char *name)
{
    for (int i = 0; i < TOOLS; i++)
        if (strcmp(tools[i].name, name) == 0) return &tools[i];
    return NULL;
}

bool pj_mcp_tool_exists(const char *name)
{
    return find_tool(name) != NULL;
}

/* A name that is misspelt, or a value of another type, would be ignored silently. */
static pj_status check_arguments(const struct tool *tool, json_t *arguments, pj_error *err)
{
    const char *name;
    json_t *value, *properties = json_loads(tool->properties, 0, NULL);
    char known[160] = "";
    size_t used = 0;
    pj_status status = PJ_OK;
    json_object_foreach(properties, name, value) if (used < sizeof known) used +=
        (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", name);
    json_object_foreach(arguments, name, value)
    {
        const json_t *type = json_object_get(json_object_get(properties, name), "type");
        if (!type)
            status = pj_fail(err, PJ_E_INVALID, "%s has no argument %.60s; known: %s", tool->name,
                             name, known);
        else if (strcmp(json_string_value(type), "string") == 0 && !json_is_null(value) &&
                 (!json_is_string(value) ||
                  strlen(json_string_value(value)) != json_string_length(value)))
            status = pj_fail(err, PJ_E_INVALID, "%.60s must be a text", name);
        if (status != PJ_OK) break;
    }
    json_decref(properties);
    return status;
}

/* Opened for each call, and only for reading: a client may keep the server for days. */
pj_status pj_mcp_tool_call(const pj_mcp *mcp, const char *name, json_t *arguments, pj_json *json,
                           pj_error *err)
{
    const struct tool *tool = find_tool(name);
    const pj_store_options options = {.path = mcp->db, .read_only = true};
    pj_store *store = NULL;
    pj_status status = check_arguments(tool, arguments, err);
    if (status != PJ_OK) return status;
    if (tool->needs_text && !text_of(arguments, tool->needs_text))
        return pj_fail(err, PJ_E_INVALID, "%s is missing", tool->needs_text);
    status = pj_store_open(&options, &store, err);
    if (status == PJ_OK) status = tool->call(mcp, store, arguments, json, err);
    pj_store_close(store);
    return status;
}
