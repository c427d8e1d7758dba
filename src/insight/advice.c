/* Writes the advice about a stored run as JSON. */
#include "insight/advice.h"

#include "analysis/cost.h"

#include <math.h>

static void write_evidence(pj_json *json, const pj_advice *a)
{
    pj_json_kv_array_begin(json, "evidence");
    for (uint32_t i = 0; i < a->evidence_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", a->evidence[i].name);
        pj_json_kv_double(json, "value", a->evidence[i].value);
        pj_json_kv_string(json, "unit", a->evidence[i].unit);
        pj_json_kv_string(json, "text", a->evidence[i].says);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void advice_write_saving(pj_json *json, const pj_advice *a)
{
    pj_json_key(json, "saving");
    if (isnan(a->share)) {
        pj_json_null(json);
        return;
    }
    pj_json_object_begin(json);
    pj_json_kv_string(json, "of", a->of);
    pj_json_kv_string(json, "basis", a->basis);
    pj_json_kv_double(json, "share", a->share);
    pj_json_kv_double(json, "share_lo", a->lo);
    pj_json_kv_double(json, "share_hi", a->hi);
    pj_json_kv_double(json, "energy_mj", a->share * a->mj);
    pj_json_kv_double(json, "energy_mj_lo", a->lo * a->mj);
    pj_json_kv_double(json, "energy_mj_hi", a->hi * a->mj);
    pj_json_object_end(json);
}

static void write_finding(pj_json *json, const pj_advice *a)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "rule", a->rule);
    pj_json_kv_string(json, "title", a->title);
    pj_json_kv_string(json, "text", a->text);
    pj_json_kv_string(json, "kind", a->limits ? "trust" : "saving");
    write_evidence(json, a);
    advice_write_saving(json, a);
    pj_json_kv_object_begin(json, "cost");
    pj_json_kv_string(json, "quality", a->quality);
    pj_json_kv_string(json, "latency", a->latency);
    pj_json_kv_string(json, "memory", a->memory);
    pj_json_object_end(json);
    pj_json_kv_string(json, "test", a->test[0] ? a->test : NULL);
    pj_json_object_end(json);
}

static void advice_write_all(pj_json *json, const pj_advice_list *list)
{
    const pj_run_info *info = list->run.runs;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "run_id", info->id);
    pj_json_kv_string(json, "energy_source", pj_quality_name(info->quality));
    pj_json_kv_string(json, "refusal", list->refusal);
    pj_json_kv_array_begin(json, "findings");
    for (size_t i = 0; i < list->speaking; i++) write_finding(json, &list->all[i]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "silent");
    for (size_t i = list->speaking; i < list->count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "rule", list->all[i].rule);
        pj_json_kv_string(json, "reason", list->all[i].text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static pj_status advise(pj_store *store, const pj_advice_options *options, pj_advice_list *list,
                        pj_error *err)
{
    pj_arena *arena = &list->run.arena;
    pj_advice *all = pj_arena_alloc(arena, pj_advice_rules(), sizeof *all);
    pj_advice_facts *facts = pj_arena_alloc(arena, 1, sizeof *facts);
    if (!all || !facts) return pj_fail_memory(err, "advice");
    pj_status status = pj_advice_facts_get(store, list->run.runs, arena, facts, err);
    if (status != PJ_OK) return status;
    const pj_cost_region *lowest = pj_cost_lowest_region();
    facts->g_per_kwh = options ? options->g_per_kwh : NAN;
    facts->lowest_g_per_kwh = lowest->g_per_kwh;
    facts->lowest_region = lowest->name;
    list->all = all;
    list->refusal = facts->refusal;
    list->count = pj_advise(facts, all, &list->speaking);
    return PJ_OK;
}

pj_status pj_advice_list_get(pj_store *store, const char *id, const pj_advice_options *options,
                             pj_advice_list *list, pj_error *err)
{
    char full[PJ_UUID_BYTES];
    *list = (pj_advice_list){0};
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &list->run, err);
    if (status == PJ_OK) status = advise(store, options, list, err);
    if (status != PJ_OK) pj_advice_list_fini(list);
    return status;
}

void pj_advice_list_fini(pj_advice_list *list)
{
    pj_run_list_fini(&list->run);
    *list = (pj_advice_list){0};
}

pj_status pj_insight_advice(pj_store *store, const char *id, const pj_advice_options *options,
                            pj_json *json, pj_error *err)
{
    pj_advice_list list;
    pj_status status = pj_advice_list_get(store, id, options, &list, err);
    if (status == PJ_OK) advice_write_all(json, &list);
    pj_advice_list_fini(&list);
    return status;
}
