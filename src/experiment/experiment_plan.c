/* Combining a requested plan with the stored one. */
#include "experiment/experiment_plan.h"

#include "power/source.h"
#include "store/experiments.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME_BYTES = 1000 }; /* the key of a table: PostgreSQL's keys end at 2,700 bytes */

/* A plan as stored. NULL: out of memory. */
static json_t *tree_of(const pj_plan *plan)
{
    pj_json json;
    pj_json_open(&json, 64 << 20);
    pj_plan_write(plan, &json);
    const char *text = pj_json_whole(&json);
    json_t *tree = text ? json_loads(text, 0, NULL) : NULL;
    pj_json_close(&json);
    return tree;
}

/* Writes "rapl, not sim" for texts and numbers; other values are only named. */
static void differing_values(const json_t *stored, const json_t *wanted, char *text, size_t bytes)
{
    text[0] = 0;
    if (json_is_string(stored) && json_is_string(wanted))
        snprintf(text, bytes, " (%.80s, not %.80s)", json_string_value(stored),
                 json_string_value(wanted));
    if (json_is_number(stored) && json_is_number(wanted))
        snprintf(text, bytes, " (%g, not %g)", json_number_value(stored),
                 json_number_value(wanted));
}

/* Settings such as `repeat` may change between rounds, but not those that define the cells, their
 * order or their measurements. A text whose loss is measured and tasks may be added, not replaced;
 * so may the power sources of plans that were stored without. */
static pj_status check_grid(const json_t *stored, const pj_plan *plan, pj_error *err)
{
    static const char *const grid[] = {"models",     "dtypes", "batches",    "inputs",    "outputs",
                                       "threads",    "ablate", "engines",    "prompt",    "seed",
                                       "depth",      "device", "eval",       "eval_text", "tasks",
                                       "tasks_text", "power",  "interval_ms"};
    enum { GRID = sizeof grid / sizeof *grid, ADDED = 6 };
    pj_status status = PJ_OK;
    json_t *wanted = tree_of(plan);
    if (!wanted) return pj_fail_memory(err, "a plan");
    for (size_t i = 0; i < GRID && status == PJ_OK; i++) {
        json_t *x = json_object_get(stored, grid[i]), *y = json_object_get(wanted, grid[i]);
        char values[200];
        bool added = !x && i + ADDED >= GRID;
        if ((!x && !y) || added || json_equal(x, y)) continue;
        differing_values(x, y, values, sizeof values);
        status = pj_fail(err, PJ_E_INVALID,
                         "the stored experiment %.200s differs in %s%s; choose another name",
                         plan->name, grid[i], values);
    }
    json_decref(wanted);
    return status;
}

/* Adds what measures the plan: power sources and the time between samples belong together. */
static pj_status put_power(const pj_plan_request *request, const json_t *tree, json_t *merged,
                           pj_error *err)
{
    const char *named = json_string_value(json_object_get(tree, "power"));
    char power[1024];
    if (!request->power) return PJ_OK;
    pj_power_list_public(request->power, power, sizeof power);
    if (request->measures_itself && named && strcmp(named, power) != 0)
        return pj_fail(err, PJ_E_INVALID,
                       "the plan asks for the power sources %.200s, but this server measures with "
                       "%.200s",
                       named, power);
    if (request->measures_itself || !json_object_get(merged, "power")) {
        json_object_set_new(merged, "power", json_string(power));
        json_object_set_new(merged, "interval_ms", json_real(request->interval_ms));
    }
    return PJ_OK;
}

/* The stored plan, NULL if there is none, and the request overlaid on it. */
static pj_status merge(pj_store *store, const pj_plan_request *request, json_t *tree,
                       pj_arena *arena, json_t **stored, json_t **merged, pj_error *err)
{
    const char *text, *losses, *name = json_string_value(json_object_get(tree, "name"));
    pj_error missing;
    *merged = *stored = NULL;
    pj_status status = pj_store_experiment_get(store, name, arena, &text, &losses, &missing);
    if (status != PJ_OK && request->only_resumes)
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no experiment %.200s to resume", name);
    if (status == PJ_OK) *stored = json_loads(text, 0, NULL);
    *merged = json_copy(*stored ? *stored : tree);
    if (!*merged) return pj_fail_memory(err, "a plan");
    if (*stored) {
        json_int_t round = json_integer_value(json_object_get(*stored, "round"));
        json_object_update(*merged, tree);
        json_object_set_new(*merged, "round", json_integer(round + request->again));
    }
    return put_power(request, tree, *merged, err);
}

pj_status pj_plan_join_stored(pj_store *store, const pj_plan_request *request, pj_arena *arena,
                              pj_plan *plan, pj_error *err)
{
    json_error_t where;
    json_t *stored = NULL, *merged = NULL,
           *tree = json_loads(request->json, JSON_REJECT_DUPLICATES, &where);
    if (!tree)
        return pj_fail(err, PJ_E_INVALID, "the plan is not JSON: line %d: %s", where.line,
                       where.text);
    if (!json_is_object(tree)) {
        json_decref(tree);
        return pj_fail(err, PJ_E_INVALID, "the plan is not a JSON object");
    }
    if (!json_object_get(tree, "name"))
        json_object_set_new(tree, "name", json_string("experiment"));
    pj_status status = PJ_OK;
    if (!json_is_string(json_object_get(tree, "name")))
        status = pj_fail(err, PJ_E_INVALID, "the plan's name must be a string");
    else if (json_string_length(json_object_get(tree, "name")) > MAX_NAME_BYTES)
        status =
            pj_fail(err, PJ_E_INVALID, "the plan's name is longer than %d bytes", MAX_NAME_BYTES);
    if (status == PJ_OK) status = merge(store, request, tree, arena, &stored, &merged, err);
    char *text = status == PJ_OK ? json_dumps(merged, JSON_COMPACT) : NULL;
    if (text) status = pj_plan_parse(text, arena, plan, err);
    if (status == PJ_OK && stored) status = check_grid(stored, plan, err);
    free(text);
    json_decref(stored);
    json_decref(merged);
    json_decref(tree);
    return status;
}
