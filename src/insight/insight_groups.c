/* Groups of runs by the value of a field, side by side. */
#include "insight/insight.h"

#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    char key[PJ_SIDE_NAME_BYTES];
    const pj_run_info **runs;
    uint32_t count, capacity;
} group;

typedef struct grouping {
    pj_arena *arena;
    group *groups;
    uint32_t count, capacity;
    uint32_t unknown; /* runs without a value of the field */
} grouping;

/* An array with room for one more item, at least twice as large if it was full. */
static void *room_for_one(pj_arena *arena, void *items, uint32_t count, uint32_t *capacity,
                          size_t size)
{
    if (count < *capacity) return items;
    uint32_t more = *capacity ? 2 * *capacity : 16;
    void *bigger = pj_arena_alloc(arena, more, size);
    if (!bigger) return NULL;
    if (count) memcpy(bigger, items, count * size);
    *capacity = more;
    return bigger;
}

static group *group_of(grouping *g, const char *key)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (strcmp(g->groups[i].key, key) == 0) return &g->groups[i];
    group *all = room_for_one(g->arena, g->groups, g->count, &g->capacity, sizeof *all);
    if (!all) return NULL;
    g->groups = all;
    group *new = &all[g->count++];
    snprintf(new->key, sizeof new->key, "%s", key);
    return new;
}

static bool insight_groups_add_run(grouping *g, const char *key, const pj_run_info *run)
{
    group *to = group_of(g, key);
    if (!to) return false;
    const pj_run_info **runs =
        room_for_one(g->arena, to->runs, to->count, &to->capacity, sizeof *runs);
    if (!runs) return false;
    to->runs = runs;
    runs[to->count++] = run;
    return true;
}

/* A run with several tags is in several groups. */
static bool add_by_tags(grouping *g, const pj_run_info *run)
{
    bool room = true;
    for (uint32_t i = 0; i < run->tag_count && room; i++)
        room = insight_groups_add_run(g, run->tags[i], run);
    g->unknown += run->tag_count == 0;
    return room;
}

static pj_status insight_groups_divide(grouping *g, const pj_run_list *list, const char *by,
                                       pj_error *err)
{
    char key[PJ_SIDE_NAME_BYTES];
    bool tags = strcmp(by, "tag") == 0, room = true;
    for (uint32_t i = 0; i < list->count && room; i++) {
        const pj_run_info *run = &list->runs[i];
        if (tags)
            room = add_by_tags(g, run);
        else if (pj_run_field(run, by, key, sizeof key))
            room = insight_groups_add_run(g, key, run);
        else
            g->unknown++;
    }
    return room ? PJ_OK : pj_fail_memory(err, "groups of runs");
}

/* Numbers numerically, texts alphabetically. */
static int insight_groups_by_key(const void *x, const void *y)
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
const char *pj_group_name(const char *value, const char *by, char shown[PJ_SIDE_NAME_BYTES])
{
    char *end;
    strtod(value, &end);
    if (end == value || *end) {
        snprintf(shown, PJ_SIDE_NAME_BYTES, "%s", value);
        return shown;
    }
    const char *field = strrchr(by, '.'); /* of "settings.concurrency" */
    snprintf(shown, PJ_SIDE_NAME_BYTES, "%.40s %.40s", field ? field + 1 : by, value);
    for (char *c = shown; *c; c++)
        if (*c == '_') *c = ' ';
    return shown;
}

static void keep_groups(grouping *g, const char *by, const char *const *values)
{
    uint32_t kept = 0;
    char shown[PJ_SIDE_NAME_BYTES], asked[PJ_SIDE_NAME_BYTES];
    for (uint32_t i = 0; i < g->count; i++) {
        bool keep = false;
        pj_group_name(g->groups[i].key, by, shown);
        for (int k = 0; k < 2; k++) keep |= strcmp(shown, pj_group_name(values[k], by, asked)) == 0;
        if (keep) g->groups[kept++] = g->groups[i];
    }
    g->count = kept;
}

static pj_status insight_groups_make_sides(grouping *g, const char *by, pj_sides *sides,
                                           pj_error *err)
{
    pj_status status = PJ_OK;
    uint32_t count = g->count < PJ_SIDES_MAX ? g->count : PJ_SIDES_MAX;
    if (g->count) qsort(g->groups, g->count, sizeof *g->groups, by_count);
    if (count) qsort(g->groups, count, sizeof *g->groups, insight_groups_by_key);
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        char name[PJ_SIDE_NAME_BYTES];
        pj_group_name(g->groups[i].key, by, name);
        status = pj_sides_add(sides, name, g->groups[i].runs, g->groups[i].count, err);
    }
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
        "tag, session, commit, experiment, threads, input_tokens, output_tokens, settings.NAME or "
        "model.NAME%s",
        by, hint);
}

static pj_status compare_groups(pj_compared *c, const pj_group_query *query, pj_error *err)
{
    grouping g = {.arena = &c->sides.arena};
    pj_run_query runs = query->runs;
    runs.status = "completed";
    runs.limit = PJ_QUERY_MAX;
    c->sides.with_disturbed = query->with_disturbed;
    pj_status status = check_field(query->by, err);
    if (status == PJ_OK) status = pj_store_list(c->sides.store, &runs, &c->list, err);
    if (status == PJ_OK) status = insight_groups_divide(&g, &c->list, query->by, err);
    if (status == PJ_OK && g.count == 0)
        status = pj_fail(err, PJ_E_NOT_FOUND, "no matching completed run has a %s", query->by);
    if (status == PJ_OK && query->values) keep_groups(&g, query->by, query->values);
    if (status == PJ_OK) status = insight_groups_make_sides(&g, query->by, &c->sides, err);
    c->by = query->by;
    c->group_count = g.count;
    c->without_value = g.unknown;
    return status == PJ_OK ? pj_sides_compute(&c->sides, err) : status;
}

pj_status pj_compared_groups(pj_store *store, const pj_group_query *query, pj_compared **out,
                             pj_error *err)
{
    *out = NULL;
    pj_compared *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a comparison");
    pj_sides_init(&c->sides, store);
    pj_status status = compare_groups(c, query, err);
    if (status == PJ_OK)
        *out = c;
    else
        pj_compared_free(c);
    return status;
}

pj_status pj_insight_groups(pj_store *store, const pj_group_query *query, pj_json *json,
                            pj_error *err)
{
    pj_compared *c;
    pj_status status = pj_compared_groups(store, query, &c, err);
    if (c) pj_compared_write(c, NULL, json);
    pj_compared_free(c);
    return status;
}
