/* Groups of runs by the value of a field, side by side. */
#include "insight/insight.h"

#include "base/nearest.h"
#include "insight/sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    char key[PJ_SIDE_NAME_BYTES];
    const pj_run_info **runs;
    uint32_t count, capacity;
} group;

typedef struct grouping {
    pj_arena arena;
    pj_run_list list;
    group *groups;
    uint32_t count, capacity;
    uint32_t unknown; /* runs without a value of the field */
} grouping;

static group *group_of(grouping *g, const char *key)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (strcmp(g->groups[i].key, key) == 0) return &g->groups[i];
    if (g->count == g->capacity) {
        uint32_t capacity = g->capacity ? 2 * g->capacity : 16;
        group *groups = pj_arena_alloc(&g->arena, capacity, sizeof *groups);
        if (!groups) return NULL;
        if (g->count) memcpy(groups, g->groups, g->count * sizeof *groups);
        g->groups = groups;
        g->capacity = capacity;
    }
    group *new = &g->groups[g->count++];
    snprintf(new->key, sizeof new->key, "%s", key);
    return new;
}

static bool add_run(grouping *g, const char *key, const pj_run_info *run)
{
    group *to = group_of(g, key);
    if (!to) return false;
    if (to->count == to->capacity) {
        uint32_t capacity = to->capacity ? 2 * to->capacity : 16;
        const pj_run_info **runs = pj_arena_alloc(&g->arena, capacity, sizeof *runs);
        if (!runs) return false;
        if (to->count) memcpy(runs, to->runs, to->count * sizeof *runs);
        to->runs = runs;
        to->capacity = capacity;
    }
    to->runs[to->count++] = run;
    return true;
}

/* A run with several tags is in several groups. */
static bool add_by_tags(grouping *g, const pj_run_info *run)
{
    bool room = true;
    for (uint32_t i = 0; i < run->tag_count && room; i++) room = add_run(g, run->tags[i], run);
    g->unknown += run->tag_count == 0;
    return room;
}

static pj_status divide(grouping *g, const char *by, pj_error *err)
{
    char key[PJ_SIDE_NAME_BYTES];
    bool tags = strcmp(by, "tag") == 0, room = true;
    for (uint32_t i = 0; i < g->list.count && room; i++) {
        const pj_run_info *run = &g->list.runs[i];
        if (tags)
            room = add_by_tags(g, run);
        else if (pj_run_field(run, by, key, sizeof key))
            room = add_run(g, key, run);
        else
            g->unknown++;
    }
    return room ? PJ_OK : pj_fail_memory(err, "groups of runs");
}

/* Numbers by size, words by the alphabet. */
static int by_key(const void *x, const void *y)
{
    const char *a = ((const group *)x)->key, *b = ((const group *)y)->key;
    char *end_a, *end_b;
    double number_a = strtod(a, &end_a), number_b = strtod(b, &end_b);
    if (end_a != a && end_b != b && !*end_a && !*end_b)
        return (number_a > number_b) - (number_a < number_b);
    return strcmp(a, b);
}

static int by_count(const void *x, const void *y)
{
    uint32_t a = ((const group *)x)->count, b = ((const group *)y)->count;
    return (a < b) - (a > b);
}

/* Labels of numeric values include the field: "batch 8", not "8". */
static void name_side(const char *key, const char *by, char name[PJ_SIDE_NAME_BYTES])
{
    char *end;
    strtod(key, &end);
    if (end == key || *end) {
        snprintf(name, PJ_SIDE_NAME_BYTES, "%s", key);
        return;
    }
    snprintf(name, PJ_SIDE_NAME_BYTES, "%.40s %.40s", by, key);
    for (char *c = name; *c; c++)
        if (*c == '_') *c = ' ';
}

static pj_status make_sides(grouping *g, const char *by, pj_sides *sides, pj_error *err)
{
    pj_status status = PJ_OK;
    uint32_t count = g->count < PJ_SIDES_MAX ? g->count : PJ_SIDES_MAX;
    if (g->count) qsort(g->groups, g->count, sizeof *g->groups, by_count);
    if (count) qsort(g->groups, count, sizeof *g->groups, by_key);
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        char name[PJ_SIDE_NAME_BYTES];
        name_side(g->groups[i].key, by, name);
        status = pj_sides_add(sides, name, g->groups[i].runs, g->groups[i].count, err);
    }
    return status;
}

static pj_status write_all(const grouping *g, const char *by, pj_sides *sides, pj_json *json,
                           pj_error *err)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "by", by);
    pj_json_kv_uint(json, "runs", g->list.count);
    pj_json_kv_uint(json, "groups", g->count);
    pj_json_kv_uint(json, "without_value", g->unknown);
    pj_sides_write_sides(sides, json);
    pj_sides_write_settings(sides, json);
    pj_status status = pj_sides_write_verdicts(sides, json, err);
    pj_sides_write_metrics(sides, json);
    pj_sides_write_tests(sides, json);
    pj_sides_write_best(sides, json);
    if (status == PJ_OK) status = pj_sides_write_decomposition(sides, json, err);
    pj_json_object_end(json);
    return status;
}

static pj_status check_field(const char *by, pj_error *err)
{
    if (strncmp(by, "settings.", 9) == 0 || strncmp(by, "model.", 6) == 0) return PJ_OK;
    for (int i = 0; pj_group_fields[i]; i++)
        if (strcmp(by, pj_group_fields[i]) == 0) return PJ_OK;
    pj_nearest nearest;
    char hint[80];
    pj_nearest_begin(&nearest, by);
    for (int i = 0; pj_group_fields[i]; i++)
        pj_nearest_offer(&nearest, pj_group_fields[i], strlen(pj_group_fields[i]));
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    return pj_fail(
        err, PJ_E_INVALID,
        "runs have no field %.64s to group by: try model, dtype, batch, engine, machine, "
        "tag, experiment, threads, input_tokens, output_tokens, settings.NAME or "
        "model.NAME%s",
        by, hint);
}

pj_status pj_insight_groups(pj_store *store, const pj_group_query *query, pj_json *json,
                            pj_error *err)
{
    grouping g = {0};
    pj_sides *sides = pj_alloc(1, sizeof *sides);
    pj_run_query runs = query->runs;
    pj_status status = sides ? check_field(query->by, err) : pj_fail_memory(err, "a comparison");
    pj_arena_init(&g.arena, 0);
    if (sides) pj_sides_init(sides, store);
    runs.status = "completed";
    runs.limit = PJ_QUERY_MAX;
    if (sides) sides->with_disturbed = query->with_disturbed;
    if (status == PJ_OK) status = pj_store_list(store, &runs, &g.list, err);
    if (status == PJ_OK) status = divide(&g, query->by, err);
    if (status == PJ_OK && g.count == 0)
        status = pj_fail(err, PJ_E_NOT_FOUND, "no completed run that matches has a %s", query->by);
    if (status == PJ_OK) status = make_sides(&g, query->by, sides, err);
    if (status == PJ_OK) status = pj_sides_test(sides, err);
    if (status == PJ_OK) status = write_all(&g, query->by, sides, json, err);
    pj_run_list_fini(&g.list);
    pj_arena_fini(&g.arena);
    if (sides) pj_sides_fini(sides);
    pj_free(sides);
    return status;
}
