/* A run's summary with its anomalies and its predicted figures. */
#include "insight/insight.h"

#include "analysis/anomalies.h"

#include "insight/run_events.h"

pj_status pj_run_insight_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                             pj_run_insight *insight, pj_error *err)
{
    *insight = (pj_run_insight){0};
    pj_status status = pj_run_events_get(store, info, arena, insight, err);
    if (status == PJ_OK) status = pj_model_use_get(store, info, arena, &insight->use, err);
    if (status == PJ_OK) status = pj_outlook_get(store, info, arena, &insight->outlook, err);
    return status;
}

static void write_anomaly(pj_json *json, const pj_run_anomaly *a)
{
    static const char *const kinds[] = {"power", "token", "disturbance"};
    char reason[160];
    pj_run_anomaly_reason(a, reason, sizeof reason);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", kinds[a->kind]);
    pj_json_kv_optional(json, "token", a->tokens > 0, a->token);
    pj_json_kv_uint(json, "tokens", a->tokens);
    pj_json_kv_double(json, "begin_ms", a->begin_ms);
    pj_json_kv_double(json, "end_ms", a->end_ms);
    pj_json_kv_double(json, "value", a->value);
    pj_json_kv_double(json, "expected", a->expected);
    pj_json_kv_double(json, "times", a->times);
    pj_json_kv_double(json, "extra_energy_mj", a->extra_mj);
    pj_json_kv_string(json, "reason", reason);
    pj_json_kv_string(json, "cause", pj_anomaly_cause_name((pj_anomaly_cause)a->cause));
    pj_json_object_end(json);
}

static void write_insight(const pj_run_insight *insight, pj_json *json)
{
    pj_json_kv_array_begin(json, "anomalies");
    for (uint32_t i = 0; i < insight->anomaly_count; i++)
        write_anomaly(json, &insight->anomalies[i]);
    pj_json_array_end(json);
    pj_json_key(json, "model_use");
    pj_model_use_write(&insight->use, json);
    pj_outlook_write(&insight->outlook, json);
}

pj_status pj_insight_summary(pj_store *store, const char *id, const pj_cost_rates *rates,
                             pj_json *json, pj_error *err)
{
    char full[PJ_UUID_BYTES];
    pj_run_list one = {0};
    pj_run_insight insight;
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &one, err);
    if (status == PJ_OK) status = pj_run_insight_get(store, one.runs, &one.arena, &insight, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        status = pj_view_summary_members(store, full, rates, json, err);
        write_insight(&insight, json);
        pj_json_object_end(json);
    }
    pj_run_list_fini(&one);
    return status;
}

void pj_insight_prepare(pj_store *store, const char *id)
{
    pj_buffer discarded;
    pj_json json;
    pj_buffer_init(&discarded, 64 << 20);
    pj_json_init(&json, &discarded);
    pj_insight_summary(store, id, NULL, &json, NULL);
    pj_buffer_fini(&discarded);
}
