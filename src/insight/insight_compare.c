/*
 * Runs side by side. Where all runs belong to different --repeat series, whole runs are the
 * samples; otherwise the decode tokens of single runs are, which are many but not independent: the
 * p values then state whether these runs differ, not whether future ones will.
 */
#include "insight/insight.h"

#include "store/run_summary.h"

#include <math.h>
#include <string.h>

static void insight_compare_write_list(pj_json *json, const char *key, const double *values,
                                       uint32_t count)
{
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < count; i++) pj_json_double(json, values[i]);
    pj_json_array_end(json);
}

/* ---- components ----------------------------------------------------------------------- */

static const pj_component_sum *find_component(const pj_compared_run *s, const char *name)
{
    for (uint32_t i = 0; i < s->component_count; i++)
        if (strcmp(s->components[i].name, name) == 0) return &s->components[i];
    return NULL;
}

static void insight_compare_write_component(pj_json *json, const pj_compared *c, const char *name)
{
    double ms[PJ_COMPARE_MAX], mj[PJ_COMPARE_MAX];
    for (uint32_t i = 0; i < c->run_count; i++) {
        const pj_component_sum *sum = find_component(&c->runs[i], name);
        ms[i] = sum ? sum->time_ms : NAN;
        mj[i] = sum ? sum->energy_mj : NAN;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "component_name", name);
    insight_compare_write_list(json, "time_ms", ms, c->run_count);
    insight_compare_write_list(json, "energy_mj", mj, c->run_count);
    pj_json_object_end(json);
}

/* Components of the first run, highest energy first, then those that only later runs have. */
static void insight_compare_write_components(pj_json *json, const pj_compared *c)
{
    pj_json_kv_array_begin(json, "components");
    for (uint32_t i = 0; i < c->run_count; i++)
        for (uint32_t k = 0; k < c->runs[i].component_count; k++) {
            const char *name = c->runs[i].components[k].name;
            bool seen = false;
            for (uint32_t j = 0; j < i; j++) seen |= find_component(&c->runs[j], name) != NULL;
            if (!seen) insight_compare_write_component(json, c, name);
        }
    pj_json_array_end(json);
}

static void insight_compare_write_phases(pj_json *json, const pj_compared *c)
{
    double ms[2][PJ_COMPARE_MAX], mj[2][PJ_COMPARE_MAX];
    for (uint32_t i = 0; i < c->run_count; i++) {
        const pj_run_info *info = c->runs[i].info;
        ms[0][i] = info->prefill_ms;
        mj[0][i] = info->prefill_mj;
        ms[1][i] = info->decode_ms;
        mj[1][i] = info->decode_mj;
    }
    pj_json_kv_array_begin(json, "phases");
    for (int p = 0; p < 2; p++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "phase", p ? "decode" : "prefill");
        insight_compare_write_list(json, "duration_ms", ms[p], c->run_count);
        insight_compare_write_list(json, "energy_mj", mj[p], c->run_count);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- the whole comparison --------------------------------------------------------------- */

static pj_status load_run(pj_compared *c, pj_compared_run *n, pj_store *store, const char *id,
                          pj_error *err)
{
    char full[PJ_UUID_BYTES];
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &n->one, err);
    if (status != PJ_OK) return status;
    n->info = n->one.runs;
    status = pj_view_component_sums(store, full, &c->sides.arena, &n->components,
                                    &n->component_count, err);
    if (status == PJ_OK && n->info->repeat_group)
        status = pj_store_list(
            store, &(pj_run_query){.repeat_group = n->info->repeat_group, .status = "completed"},
            &n->series, err);
    return status;
}

/* Each belongs to its own series of more than one run. */
static bool are_series(const pj_compared *c)
{
    for (uint32_t i = 0; i < c->run_count; i++) {
        if (c->runs[i].series.count < 2) return false;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(c->runs[i].info->repeat_group, c->runs[j].info->repeat_group) == 0)
                return false;
    }
    return true;
}

static pj_status insight_compare_make_sides(pj_compared *c, pj_error *err)
{
    bool series = are_series(c);
    for (uint32_t i = 0; i < c->run_count; i++) {
        const pj_compared_run *n = &c->runs[i];
        const char name[2] = {(char)('A' + i), 0};
        uint32_t count = series ? n->series.count : 1;
        const pj_run_info **runs = pj_arena_alloc(&c->sides.arena, count, sizeof *runs);
        if (!runs) return pj_fail_memory(err, "a comparison");
        for (uint32_t k = 0; k < count; k++) runs[k] = series ? &n->series.runs[k] : n->info;
        pj_status status = pj_sides_add(&c->sides, name, runs, count, err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static void write_runs(const pj_compared *c, const pj_cost_rates *rates, pj_json *json)
{
    pj_json_kv_array_begin(json, "runs");
    for (uint32_t i = 0; i < c->run_count; i++) pj_summary_write(json, c->runs[i].info, rates);
    pj_json_array_end(json);
}

static void write_groups(const pj_compared *c, pj_json *json)
{
    pj_json_kv_string(json, "by", c->by);
    pj_json_kv_uint(json, "runs", c->list.count);
    pj_json_kv_uint(json, "groups", c->group_count);
    pj_json_kv_uint(json, "without_value", c->without_value);
}

void pj_compared_write(const pj_compared *c, const pj_cost_rates *rates, pj_json *json)
{
    pj_json_object_begin(json);
    if (c->run_count)
        write_runs(c, rates, json);
    else
        write_groups(c, json);
    pj_sides_write(&c->sides, json);
    if (c->run_count) {
        insight_compare_write_phases(json, c);
        insight_compare_write_components(json, c);
    }
    pj_json_object_end(json);
}

pj_status pj_sides_compute(pj_sides *sides, pj_error *err)
{
    pj_status status = pj_sides_test(sides, err);
    if (status == PJ_OK) status = pj_sides_settings(sides, err);
    if (status == PJ_OK) status = pj_sides_terms(sides, err);
    return status;
}

pj_status pj_compared_runs(pj_store *store, const char *const *ids, uint32_t count,
                           pj_compared **out, pj_error *err)
{
    *out = NULL;
    if (count < 2 || count > PJ_COMPARE_MAX)
        return pj_fail(err, PJ_E_INVALID, "2 to %d runs can be compared, not %u", PJ_COMPARE_MAX,
                       count);
    pj_compared *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a comparison");
    pj_sides_init(&c->sides, store);
    c->run_count = count;
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < count && status == PJ_OK; i++)
        status = load_run(c, &c->runs[i], store, ids[i], err);
    if (status == PJ_OK) status = insight_compare_make_sides(c, err);
    if (status == PJ_OK) status = pj_sides_compute(&c->sides, err);
    if (status == PJ_OK)
        *out = c;
    else
        pj_compared_free(c);
    return status;
}

void pj_compared_free(pj_compared *c)
{
    if (!c) return;
    for (uint32_t i = 0; i < c->run_count; i++) {
        pj_run_list_fini(&c->runs[i].one);
        pj_run_list_fini(&c->runs[i].series);
    }
    pj_run_list_fini(&c->list);
    pj_sides_fini(&c->sides);
    pj_free(c);
}

pj_status pj_insight_compare(pj_store *store, const char *const *ids, uint32_t count,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    pj_compared *c;
    pj_status status = pj_compared_runs(store, ids, count, &c, err);
    if (c) pj_compared_write(c, rates, json);
    pj_compared_free(c);
    return status;
}
