/* Compares a run with its prediction and with published figures. */
#include "insight/outlook.h"

#include "base/clock.h"
#include "insight/known_runs.h"
#include "store/views.h"
#include "trace/model_figures.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- predicted and actual ---------------------------------------------------------------- */

typedef struct question {
    pj_store *store;
    const pj_run_info *info;
} question;

static void outlook_append(pj_buffer *items, const pj_known_run *actual, const pj_prediction *p)
{
    pj_expectation e = {.runs = (uint32_t)p->runs,
                        .joules = p->joules,
                        .joules_lo = p->joules_lo,
                        .joules_hi = p->joules_hi,
                        .actual_joules = actual->joules,
                        .seconds = p->seconds,
                        .seconds_lo = p->seconds_lo,
                        .seconds_hi = p->seconds_hi,
                        .actual_seconds = actual->seconds};
    snprintf(e.refusal, sizeof e.refusal, "%s", p->refusal ? p->refusal : "");
    pj_buffer_append(items, &e, sizeof e);
}

static pj_status make_predicted(void *context, pj_buffer *items, pj_error *err)
{
    const question *q = context;
    const pj_run_info *info = q->info;
    char before[40];
    pj_known_run actual;
    pj_known_runs known = {0};
    pj_prediction p;
    if (!pj_known_run_of(info, &actual) || !info->machine) return PJ_OK;
    pj_clock_format_iso(info->created_wall_ns, before);
    pj_known_query query = {
        .machine = info->machine, .before = before, .threads = info->threads, .like = info};
    pj_status status = pj_known_runs_load(q->store, &query, &known, err);
    if (status == PJ_OK) {
        pj_predict(known.runs, known.count, &actual.work, &p);
        outlook_append(items, &actual, &p);
    }
    pj_known_runs_fini(&known);
    return status;
}

/* Based on the runs before this one, so that it does not change later. */
static pj_status get_predicted(pj_store *store, const pj_run_info *info, pj_arena *arena,
                               pj_outlook *outlook, pj_error *err)
{
    static const pj_view_chart chart = {"predicted-3", sizeof(pj_expectation), make_predicted};
    void *items = NULL;
    uint32_t count = 0;
    question q = {store, info};
    pj_status status = pj_view_kept(store, info->id, &chart, &q, arena, &items, &count, err);
    pj_expectation *e = items;
    if (status != PJ_OK || !count) return status;
    e->refusal[sizeof e->refusal - 1] = 0;
    outlook->predicted = e;
    return PJ_OK;
}

bool pj_expectation_is_met(const pj_expectation *e)
{
    return e->joules_lo <= e->actual_joules && e->actual_joules <= e->joules_hi;
}

static void write_expectation(pj_json *json, const pj_expectation *e)
{
    bool known = !e->refusal[0];
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "runs", e->runs);
    pj_json_kv_string(json, "refusal", known ? NULL : e->refusal);
    pj_json_kv_double(json, "joules", e->joules);
    pj_json_kv_double(json, "joules_lo", e->joules_lo);
    pj_json_kv_double(json, "joules_hi", e->joules_hi);
    pj_json_kv_double(json, "actual_joules", e->actual_joules);
    pj_json_kv_double(json, "seconds", e->seconds);
    pj_json_kv_double(json, "seconds_lo", e->seconds_lo);
    pj_json_kv_double(json, "seconds_hi", e->seconds_hi);
    pj_json_kv_double(json, "actual_seconds", e->actual_seconds);
    pj_json_key(json, "within");
    if (known)
        pj_json_bool(json, pj_expectation_is_met(e));
    else
        pj_json_null(json);
    pj_json_object_end(json);
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
    pj_json_kv_optional(json, "batch", f->batch, f->batch);
    pj_json_kv_string(json, "scope", PJ_PUBLISHED_SCOPE);
    pj_json_kv_double(json, "joules_per_token", f->joules_per_token);
    pj_json_kv_double(json, "joules_per_token_hi", f->joules_hi);
    pj_json_kv_string(json, "source", f->source);
    pj_json_kv_string(json, "address", f->address);
    pj_json_kv_double(json, "ratio", b->ratio);
    pj_json_kv_array_begin(json, "caveats");
    for (uint32_t i = 0; i < b->caveat_count; i++) pj_json_string(json, b->caveats[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static void find_published(const pj_run_info *info, pj_outlook *outlook)
{
    pj_run_ratios ratios;
    pj_model_figures model;
    pj_run_ratios_get(info, &ratios);
    pj_model_figures_read(info->model_json, &model);
    const char *sources = info->power_sources && info->power_sources[0] ? info->power_sources : "";
    pj_published_query request = {.active_parameters = model.active_parameters,
                                  .batch = info->batch_size ? info->batch_size : 1,
                                  .dtype = info->dtype,
                                  .scope =
                                      strcmp(sources, "nvml") == 0 ? PJ_PUBLISHED_SCOPE : sources,
                                  .joules_per_token = ratios.joules_per_token,
                                  .is_modelled = info->quality == PJ_MODELLED};
    if (!isnan(request.joules_per_token))
        outlook->published_count = pj_published_near(&request, outlook->published);
}

pj_status pj_outlook_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                         pj_outlook *outlook, pj_error *err)
{
    *outlook = (pj_outlook){0};
    find_published(info, outlook);
    return get_predicted(store, info, arena, outlook, err);
}

void pj_outlook_write(const pj_outlook *outlook, pj_json *json)
{
    pj_json_key(json, "predicted");
    if (outlook->predicted)
        write_expectation(json, outlook->predicted);
    else
        pj_json_null(json);
    pj_json_kv_array_begin(json, "published");
    for (uint32_t i = 0; i < outlook->published_count; i++)
        write_beside(json, &outlook->published[i]);
    pj_json_array_end(json);
}
