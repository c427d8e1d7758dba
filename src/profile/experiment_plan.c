/* Combining a requested plan with the stored one. */
#include "profile/experiment_plan.h"

#include "store/experiments.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME_BYTES = 1000 }; /* the key of a table: PostgreSQL's keys end at 2,700 bytes */

/* Settings such as `repeat` may change between rounds; those that identify cells or their order may
 * not. */
static pj_status check_grid(const json_t *stored, const json_t *wanted, const char *name,
                            pj_error *err)
{
    static const char *const grid[] = {"models",  "dtypes", "batches", "inputs", "outputs",
                                       "threads", "ablate", "engines", "prompt", "seed"};
    for (size_t i = 0; i < sizeof grid / sizeof *grid; i++) {
        json_t *x = json_object_get(stored, grid[i]), *y = json_object_get(wanted, grid[i]);
        if (y && !json_equal(x, y))
            return pj_fail(err, PJ_E_INVALID,
                           "the experiment %.200s has other %s; give it another name", name,
                           grid[i]);
    }
    return PJ_OK;
}

/* The stored plan overlaid with the request's members; *merged stays NULL if there is no stored
 * plan. */
static pj_status merge(pj_store *store, const pj_plan_request *request, json_t *tree,
                       pj_arena *arena, json_t **merged, pj_error *err)
{
    const char *text, *losses, *name = json_string_value(json_object_get(tree, "name"));
    pj_error missing;
    *merged = NULL;
    pj_status status = pj_store_experiment_get(store, name, arena, &text, &losses, &missing);
    if (status != PJ_OK)
        return request->only_resumes ? pj_fail(err, PJ_E_NOT_FOUND,
                                               "there is no experiment %.200s to go on with", name)
                                     : PJ_OK;
    json_t *stored = json_loads(text, 0, NULL);
    json_int_t round = json_integer_value(json_object_get(stored, "round"));
    status = request->only_resumes ? PJ_OK : check_grid(stored, tree, name, err);
    if (status == PJ_OK) {
        json_object_update(stored, tree);
        json_object_set_new(stored, "round", json_integer(round + request->again));
        *merged = json_incref(stored);
    }
    json_decref(stored);
    return status;
}

pj_status pj_plan_join_stored(pj_store *store, const pj_plan_request *request, pj_arena *arena,
                              pj_plan *plan, pj_error *err)
{
    json_error_t where;
    json_t *merged = NULL, *tree = json_loads(request->json, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(tree)) {
        json_decref(tree);
        return pj_fail(err, PJ_E_INVALID, "the plan is not a JSON object: line %d: %s", where.line,
                       where.text);
    }
    if (!json_object_get(tree, "name"))
        json_object_set_new(tree, "name", json_string("experiment"));
    pj_status status = PJ_OK;
    if (!json_is_string(json_object_get(tree, "name")))
        status = pj_fail(err, PJ_E_INVALID, "the plan's name must be a text");
    else if (json_string_length(json_object_get(tree, "name")) > MAX_NAME_BYTES)
        status =
            pj_fail(err, PJ_E_INVALID, "the plan's name is longer than %d bytes", MAX_NAME_BYTES);
    if (status == PJ_OK) status = merge(store, request, tree, arena, &merged, err);
    char *text = status == PJ_OK ? json_dumps(merged ? merged : tree, JSON_COMPACT) : NULL;
    if (text) status = pj_plan_parse(text, arena, plan, err);
    free(text);
    json_decref(merged);
    json_decref(tree);
    return status;
}
