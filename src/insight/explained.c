/* Chooses the runs of two sides and reads their rows. */
#include "insight/explained.h"

#include "base/memory.h"
#include "store/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* More runs of a side say no more about its parts. */
enum { MOST_RUNS = 64 };

#define BIT(table) (1u << PJ_TABLE_##table)

static const uint32_t class_tables = BIT(CLASSES);
static const uint32_t part_tables = BIT(CLASSES) | BIT(PHASES) | BIT(SECTIONS) | BIT(TOKENS) |
                                    BIT(LAYERS) | BIT(COMPONENTS) | BIT(OPERATIONS);

/* Rows of the first run with an energy say what the parts are; the others how much they vary. */
static pj_status read_side(pj_store *store, const pj_side *from, pj_why_side *to, pj_error *err)
{
    pj_status status = PJ_OK;
    if (from->run_count) pj_why_side_at_a_time(to, pj_run_at_a_time(from->runs[0]));
    for (uint32_t i = 0; i < from->run_count && i < MOST_RUNS && status == PJ_OK; i++) {
        pj_run_data data = {0};
        uint32_t tables = pj_why_side_runs(to) ? class_tables : part_tables;
        status = pj_store_load_tables(store, from->runs[i]->id, tables, UINT32_MAX, &data, err);
        if (status == PJ_OK) status = pj_why_side_add(to, &data, err);
        pj_run_data_fini(&data);
    }
    return status;
}

/* What parts of one name have in common only in models that agree in it. Engines agree on what the
 * first two mean. */
enum { SHAPES_OF_ALL = 2 };
static const struct {
    const char *field, *title;
} shapes[] = {{"model.layers", "layers"},
              {"model.hidden_size", "width"},
              {"model.intermediate_size", "width of MLPs"},
              {"model.heads", "heads"},
              {"model.kv_heads", "key-value heads"},
              {"model.experts", "experts"},
              {"model.experts_per_token", "experts per token"}};

/* Two runs of models of other shapes; what one of them does not know is no difference. */
static bool is_other_shape(const pj_run_info *a, const pj_run_info *b, char *text, size_t bytes)
{
    char x[64] = "", y[64] = "";
    pj_run_field(a, "engine", x, sizeof x);
    pj_run_field(b, "engine", y, sizeof y);
    size_t count = strcmp(x, y) == 0 ? sizeof shapes / sizeof *shapes : SHAPES_OF_ALL;
    for (size_t i = 0; i < count; i++) {
        if (!pj_run_field(a, shapes[i].field, x, sizeof x) ||
            !pj_run_field(b, shapes[i].field, y, sizeof y) || strcmp(x, y) == 0)
            continue;
        snprintf(text, bytes, "%s %s and %s", shapes[i].title, x, y);
        return true;
    }
    return false;
}

/* Refuses sides that mix models, and says how those of the two differ. */
static void compare_models(pj_explained *e)
{
    static const char *const mixed[] = {"the runs of A are of several models",
                                        "the runs of B are of several models"};
    const pj_side *sides = e->sides->sides;
    char ignored[sizeof e->unlike];
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 1; k < sides[i].run_count && k < MOST_RUNS; k++)
            if (is_other_shape(sides[i].runs[0], sides[i].runs[k], ignored, sizeof ignored))
                e->refusal = mixed[i];
    if (!is_other_shape(sides[0].runs[0], sides[1].runs[0], e->unlike, sizeof e->unlike))
        e->unlike[0] = 0;
}

static pj_status explain(pj_store *store, pj_explained *e, pj_error *err)
{
    pj_why_side *a = NULL, *b = NULL;
    pj_status status = pj_why_side_new(&a, err);
    if (status == PJ_OK) status = pj_why_side_new(&b, err);
    if (status == PJ_OK) status = read_side(store, &e->sides->sides[0], a, err);
    if (status == PJ_OK) status = read_side(store, &e->sides->sides[1], b, err);
    bool any = status == PJ_OK && pj_why_side_runs(a) && pj_why_side_runs(b);
    if (any && pj_why_sides_alike(a, b)) {
        e->refusal = pj_sides_refusal(&e->sides->sides[0], &e->sides->sides[1]);
        compare_models(e);
        status = pj_why_find(a, b, !e->unlike[0], &e->why, err);
    } else if (status == PJ_OK) {
        e->why.request_a_mj = e->why.request_b_mj = NAN;
        e->why.disturbed_a_mj = e->why.disturbed_b_mj = NAN;
        e->why.request_a = e->why.request_b = e->why.ratio = (pj_bounds){NAN, NAN};
        e->refusal = any                   ? "only one side counts output tokens"
                     : pj_why_side_runs(a) ? "no run of B has an energy"
                                           : "no run of A has an energy";
    }
    pj_why_side_free(a);
    pj_why_side_free(b);
    return status;
}

static pj_status finish(pj_store *store, pj_explained *e, pj_status status, pj_explained **out,
                        pj_error *err)
{
    if (status == PJ_OK) status = explain(store, e, err);
    if (status == PJ_OK)
        *out = e;
    else
        pj_explained_free(e);
    return status;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* The runs of a list with commas, each found by what the user may call it. */
static pj_status read_list(pj_store *store, const char *text, pj_run_list *list, pj_error *err)
{
    pj_buffer ids;
    uint32_t count = 0;
    pj_status status = PJ_OK;
    pj_buffer_init(&ids, 1 << 20);
    for (const char *at = text; status == PJ_OK;) {
        char one[128], id[PJ_UUID_BYTES];
        size_t length = strcspn(at, ",");
        if (!length || length >= sizeof one) {
            status = pj_fail(err, PJ_E_INVALID, "\"%.80s\" is not a list of runs", text);
            break;
        }
        memcpy(one, at, length);
        one[length] = 0;
        status = pj_store_resolve(store, one, id, err);
        if (status == PJ_OK) pj_buffer_append(&ids, id, strlen(id) + 1);
        count++;
        if (!at[length]) break;
        at += length + 1;
    }
    pj_run_query query = {.ids = pj_buffer_get(&ids), .id_count = count, .limit = count};
    if (status == PJ_OK) status = pj_buffer_status(&ids, "a list of runs", err);
    if (status == PJ_OK) status = pj_store_list(store, &query, list, err);
    pj_buffer_fini(&ids);
    return status;
}

static const char *series_of(const pj_run_list *list)
{
    return list->count == 1 ? list->runs[0].repeat_group : NULL;
}

/* Two single runs of different --repeat series stand for these. */
static pj_status widen_to_series(pj_store *store, pj_run_list lists[2], pj_error *err)
{
    const char *a = series_of(&lists[0]), *b = series_of(&lists[1]);
    if (!a || !b || strcmp(a, b) == 0) return PJ_OK;
    pj_run_list series[2] = {0};
    pj_status status = PJ_OK;
    for (int i = 0; i < 2 && status == PJ_OK; i++)
        status =
            pj_store_list(store, &(pj_run_query){.repeat_group = i ? b : a, .status = "completed"},
                          &series[i], err);
    bool wider = status == PJ_OK && series[0].count > 1 && series[1].count > 1;
    for (int i = 0; i < 2; i++) {
        if (wider) {
            pj_run_list_fini(&lists[i]);
            lists[i] = series[i];
        } else {
            pj_run_list_fini(&series[i]);
        }
    }
    return status;
}

/* A run compared with itself, or counted on both sides, says nothing. */
static pj_status check_apart(const pj_run_list lists[2], const char *const sides[2], pj_error *err)
{
    for (uint32_t i = 0; i < lists[0].count; i++)
        for (uint32_t k = 0; k < lists[1].count; k++)
            if (strcmp(lists[0].runs[i].id, lists[1].runs[k].id) == 0)
                return pj_fail(
                    err, PJ_E_INVALID, "%.80s and %.80s %s run %.18s", sides[0], sides[1],
                    lists[0].count + lists[1].count == 2 ? "are the same" : "have in common the",
                    lists[0].runs[i].id);
    return PJ_OK;
}

static pj_status add_side(pj_explained *e, int side, pj_error *err)
{
    static const char *const names[] = {"A", "B"};
    const pj_run_list *list = &e->lists[side];
    const pj_run_info **runs = pj_arena_alloc(&e->own.arena, list->count + 1, sizeof *runs);
    if (!runs) return pj_fail_memory(err, "a comparison");
    for (uint32_t i = 0; i < list->count; i++) runs[i] = &list->runs[i];
    return pj_sides_add(&e->own, names[side], runs, list->count, err);
}

pj_status pj_explained_runs(pj_store *store, const char *const sides[2], pj_explained **explained,
                            pj_error *err)
{
    pj_explained *e = pj_alloc(1, sizeof *e);
    pj_status status = PJ_OK;
    *explained = NULL;
    if (!e) return pj_fail_memory(err, "a comparison");
    pj_sides_init(&e->own, store);
    e->sides = &e->own;
    for (int i = 0; i < 2 && status == PJ_OK; i++)
        status = read_list(store, sides[i], &e->lists[i], err);
    if (status == PJ_OK) status = check_apart(e->lists, sides, err);
    if (status == PJ_OK) status = widen_to_series(store, e->lists, err);
    for (int i = 0; i < 2 && status == PJ_OK; i++) status = add_side(e, i, err);
    if (status == PJ_OK) status = pj_sides_compute(e->sides, err);
    return finish(store, e, status, explained, err);
}

/* ---- groups --------------------------------------------------------------------------------- */

static const pj_side *side_named(const pj_sides *sides, const char *by, const char *name)
{
    char shown[PJ_SIDE_NAME_BYTES];
    for (uint32_t i = 0; i < sides->count; i++)
        if (strcmp(sides->sides[i].name, pj_group_name(name, by, shown)) == 0)
            return &sides->sides[i];
    return NULL;
}

/* Keeps two of the groups, in the order asked for. */
static pj_status choose_groups(pj_sides *sides, const char *const *values, const char *by,
                               pj_error *err)
{
    pj_side kept[2];
    if (!values && sides->count < 2)
        return pj_fail(err, PJ_E_INVALID, "all runs have one %.40s: there is nothing to compare",
                       by);
    if (!values && sides->count > 2)
        return pj_fail(err, PJ_E_INVALID, "%u groups by %.40s: name the two to explain",
                       sides->count, by);
    for (int i = 0; values && i < 2; i++) {
        const pj_side *side = side_named(sides, by, values[i]);
        if (!side) return pj_fail(err, PJ_E_NOT_FOUND, "no runs with %.40s %.60s", by, values[i]);
        kept[i] = *side;
    }
    if (values && strcmp(kept[0].name, kept[1].name) == 0)
        return pj_fail(err, PJ_E_INVALID, "%.60s and %.60s are the same runs", values[0],
                       values[1]);
    if (values) memcpy(sides->sides, kept, sizeof kept);
    sides->count = 2;
    sides->test_count = sides->difference_count = sides->caveat_count = 0;
    sides->verdict_count = sides->conclusion_count = sides->best_count = sides->term_count = 0;
    return PJ_OK;
}

pj_status pj_explained_groups(pj_store *store, const pj_group_query *query,
                              const char *const *values, pj_explained **explained, pj_error *err)
{
    pj_explained *e = pj_alloc(1, sizeof *e);
    *explained = NULL;
    if (!e) return pj_fail_memory(err, "a comparison");
    pj_group_query of_values = *query;
    of_values.values = values;
    pj_status status = pj_compared_groups(store, &of_values, &e->groups, err);
    if (status == PJ_OK) {
        e->sides = &e->groups->sides;
        status = choose_groups(e->sides, values, query->by, err);
    }
    if (status == PJ_OK) status = pj_sides_compute(e->sides, err);
    return finish(store, e, status, explained, err);
}

void pj_explained_free(pj_explained *e)
{
    if (!e) return;
    pj_why_fini(&e->why);
    pj_compared_free(e->groups);
    if (!e->groups) pj_sides_fini(&e->own);
    for (int i = 0; i < 2; i++) pj_run_list_fini(&e->lists[i]);
    pj_free(e);
}

pj_status pj_insight_why(pj_store *store, const char *const sides[2], pj_json *json, pj_error *err)
{
    pj_explained *e;
    pj_status status = pj_explained_runs(store, sides, &e, err);
    if (e) pj_explained_write(e, json);
    pj_explained_free(e);
    return status;
}
