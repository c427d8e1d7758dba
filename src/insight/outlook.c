/* Compares a run with its prediction and with published figures. */
#include "insight/outlook.h"

#include "analysis/published.h"
#include "base/clock.h"
#include "insight/known_runs.h"
#include "store/views.h"
#include "trace/json_member.h"
#include "trace/summary.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- predicted and actual ---------------------------------------------------------------- */

static void write_expectation(pj_json *json, const pj_known_run *actual, const pj_prediction *p)
{
    bool known = !p->refusal;
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "runs", p->runs);
    pj_json_kv_string(json, "refusal", p->refusal);
    pj_json_kv_double(json, "joules", p->joules);
    pj_json_kv_double(json, "joules_lo", p->joules_lo);
    pj_json_kv_double(json, "joules_hi", p->joules_hi);
    pj_json_kv_double(json, "actual_joules", actual->joules);
    pj_json_kv_double(json, "seconds", p->seconds);
    pj_json_kv_double(json, "seconds_lo", p->seconds_lo);
    pj_json_kv_double(json, "seconds_hi", p->seconds_hi);
    pj_json_kv_double(json, "actual_seconds", actual->seconds);
    pj_json_key(json, "within");
    if (known)
        pj_json_bool(json, p->joules_lo <= actual->joules && actual->joules <= p->joules_hi);
    else
        pj_json_null(json);
    pj_json_object_end(json);
}

typedef struct question {
    pj_store *store;
    const pj_run_info *info;
} question;

static pj_status make_predicted(void *context, pj_json *json, pj_error *err)
{
    const question *q = context;
    const pj_run_info *info = q->info;
    char before[40];
    pj_known_run actual;
    pj_known_runs known = {0};
    pj_prediction p;
    if (!pj_known_run_of(info, &actual) || !info->machine) {
        pj_json_null(json);
        return PJ_OK;
    }
    pj_clock_format_iso(info->created_wall_ns, before);
    pj_known_query query = {
        .machine = info->machine, .before = before, .threads = info->threads, .like = info};
    pj_status status = pj_known_runs_load(q->store, &query, &known, err);
    if (status == PJ_OK) {
        pj_predict(known.runs, known.count, &actual.work, &p);
        write_expectation(json, &actual, &p);
    }
    pj_known_runs_fini(&known);
    return status;
}

/* ---- published figures ---------------------------------------------------------------------- */

static void write_beside(pj_json *json, const pj_published_beside *b)
{
    const pj_published *f = b->figure;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", f->model);
    pj_json_kv_double(json, "parameters", f->parameters);
    pj_json_kv_double(json, "active_parameters", f->active_parameters);
    pj_json_kv_string(json, "dtype", f->dtype);
    pj_json_kv_string(json, "hardware", f->hardware);
    pj_json_key(json, "batch");
    if (f->batch)
        pj_json_uint(json, f->batch);
    else
        pj_json_null(json);
    pj_json_kv_string(json, "scope", PJ_PUBLISHED_SCOPE);
    pj_json_kv_double(json, "joules_per_token", f->joules_per_token);
    pj_json_kv_double(json, "joules_per_token_hi", f->joules_hi);
    pj_json_kv_string(json, "source", f->source);
    pj_json_kv_string(json, "address", f->address);
    pj_json_kv_double(json, "ratio", b->ratio);
    pj_json_key(json, "caveats");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < b->caveat_count; i++) pj_json_string(json, b->caveats[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static double active_parameters(const pj_run_info *info)
{
    json_t *model = info->model_json ? json_loads(info->model_json, 0, NULL) : NULL;
    double active = pj_member_number(model, "active_parameters");
    json_decref(model);
    return active;
}

static void write_published(const pj_run_info *info, pj_json *json)
{
    pj_published_beside beside[PJ_PUBLISHED_NEAREST];
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    const char *sources = info->power_sources && info->power_sources[0] ? info->power_sources : "";
    pj_published_ask ask = {.active_parameters = active_parameters(info),
                            .batch = info->batch_size ? info->batch_size : 1,
                            .dtype = info->dtype,
                            .scope = strcmp(sources, "nvml") == 0 ? PJ_PUBLISHED_SCOPE : sources,
                            .joules_per_token = ratios.joules_per_token,
                            .is_modelled = info->quality == PJ_MODELLED};
    uint32_t count = isnan(ask.joules_per_token) ? 0 : pj_published_near(&ask, beside);
    pj_json_key(json, "published");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) write_beside(json, &beside[i]);
    pj_json_array_end(json);
}

pj_status pj_outlook_write(pj_store *store, const char *id, pj_json *json, pj_error *err)
{
    pj_run_list one = {0};
    pj_status status = pj_store_info(store, id, &one, err);
    pj_json_key(json, "predicted");
    /* Based on the runs before this one, so that it does not change later. */
    if (status == PJ_OK)
        status = pj_view_kept(store, id, "predicted-1", make_predicted,
                              &(question){store, &one.runs[0]}, json, err);
    if (status == PJ_OK) write_published(&one.runs[0], json);
    pj_run_list_fini(&one);
    return status;
}
