/* Gathering runs of this machine, and the facts of the model that is asked about. */
#include "profile/predict.h"

#include "analysis/predict.h"
#include "llm/checkpoint.h"
#include "llm/scan.h"
#include "llm/synthetic.h"
#include "profile/find_model.h"
#include "profile/machine.h"
#include "profile/sides.h"
#include "trace/summary.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { MOST_RUNS = 400, LOOK_AT = 5000 };

/* ---- the model ------------------------------------------------------------------------------ */

static pj_status read_facts(const char *path, int wanted, pj_model_facts *facts, pj_error *err)
{
    static const char synthetic[] = "synthetic:";
    if (strncmp(path, synthetic, sizeof synthetic - 1) == 0) {
        pj_model_config config;
        pj_dtype dtype;
        uint32_t layers;
        pj_arena arena;
        pj_arena_init(&arena, 0);
        pj_status status =
            pj_synthetic_config(path + sizeof synthetic - 1, &arena, &config, &dtype, &layers, err);
        if (status == PJ_OK)
            pj_model_facts_fill(&config, wanted >= 0 ? (pj_dtype)wanted : dtype, facts);
        pj_arena_fini(&arena);
        return status;
    }
    pj_checkpoint *checkpoint;
    pj_status status = pj_checkpoint_open(path, &checkpoint, err);
    if (status != PJ_OK) return status;
    pj_model_config config = *pj_checkpoint_config(checkpoint);
    config.tied_head = pj_checkpoint_find(checkpoint, "lm_head.weight") == NULL;
    pj_model_facts_fill(&config,
                        wanted >= 0 ? (pj_dtype)wanted : pj_models_weight_dtype(checkpoint), facts);
    pj_checkpoint_close(checkpoint);
    return PJ_OK;
}

static pj_status work_of_ask(const pj_predict_ask *ask, pj_request_work *work, char *path,
                             size_t bytes, pj_error *err)
{
    pj_model_facts facts;
    int wanted = ask->dtype ? pj_dtype_parse(ask->dtype) : -1;
    if (ask->dtype && wanted < 0)
        return pj_fail(err, PJ_E_INVALID, "there is no dtype %.32s", ask->dtype);
    pj_status status = pj_model_find(ask->model, ask->models, path, bytes, err);
    if (status == PJ_OK) status = read_facts(path, wanted, &facts, err);
    if (status != PJ_OK) return status;
    *work = (pj_request_work){(double)facts.bytes_per_token,
                              (double)facts.flops_per_token,
                              (double)facts.kv_bytes_per_position,
                              (double)facts.attention_flops_per_position,
                              ask->input,
                              ask->output,
                              ask->batch};
    return PJ_OK;
}

/* ---- the runs ------------------------------------------------------------------------------- */

static double member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool known_run(const pj_run_info *info, pj_known_run *run)
{
    json_t *model = info->model_json ? json_loads(info->model_json, 0, NULL) : NULL;
    double batch = info->batch_size ? info->batch_size : 1;
    double attention =
        4 * member(model, "layers") * member(model, "heads") * member(model, "head_dim");
    run->work = (pj_request_work){member(model, "decode_weight_bytes"),
                                  member(model, "flops_per_token"),
                                  member(model, "kv_bytes_per_token"),
                                  attention,
                                  (double)info->input_tokens / batch,
                                  (double)info->output_tokens / batch,
                                  batch};
    run->joules = info->request_mj / 1e3;
    run->seconds = info->request_ms / 1e3;
    json_decref(model);
    return run->joules > 0 && run->seconds > 0 && run->work.weight_bytes > 0 &&
           run->work.flops_per_token > 0 && isfinite(run->work.kv_bytes_per_token) &&
           isfinite(attention) && run->work.output >= 1;
}

static bool same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Undisturbed runs of our engine here, with the threads of the newest; measured ones before others.
 */
static size_t choose(const pj_run_list *list, const char *machine, pj_source_quality quality,
                     pj_known_run *runs)
{
    size_t n = 0;
    uint32_t threads = 0;
    for (uint32_t i = 0; i < list->count && n < MOST_RUNS; i++) {
        const pj_run_info *info = &list->runs[i];
        if (info->quality != quality || !same(info->engine, "perjoule") ||
            !same(info->machine, machine) || pj_run_is_disturbed(info))
            continue;
        if (threads && info->threads != threads) continue;
        if (!known_run(info, &runs[n])) continue;
        threads = info->threads;
        n++;
    }
    return n;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static void write_prediction(const pj_predict_ask *ask, const pj_prediction *p, const char *path,
                             pj_source_quality quality, pj_json *json)
{
    double tokens = (double)ask->output * ask->batch;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", path);
    pj_json_kv_string(json, "dtype", ask->dtype);
    pj_json_kv_uint(json, "input", ask->input);
    pj_json_kv_uint(json, "output", ask->output);
    pj_json_kv_uint(json, "batch", ask->batch);
    pj_json_kv_string(json, "rests_on", pj_quality_name(quality));
    pj_json_kv_uint(json, "runs", p->runs);
    pj_json_kv_double(json, "median_error", p->median_error);
    pj_json_kv_double(json, "joules", p->joules);
    pj_json_kv_double(json, "joules_lo", p->joules_lo);
    pj_json_kv_double(json, "joules_hi", p->joules_hi);
    pj_json_kv_double(json, "joules_per_token", p->joules / tokens);
    pj_json_kv_double(json, "seconds", p->seconds);
    pj_json_kv_double(json, "seconds_lo", p->seconds_lo);
    pj_json_kv_double(json, "seconds_hi", p->seconds_hi);
    pj_json_object_end(json);
}

static pj_status predict(const pj_run_list *list, const char *machine, const pj_predict_ask *ask,
                         const pj_request_work *work, const char *path, pj_json *json,
                         pj_error *err)
{
    pj_prediction p;
    pj_source_quality quality = PJ_MEASURED;
    pj_known_run *runs = pj_alloc(MOST_RUNS, sizeof *runs);
    if (!runs) return pj_fail_memory(err, "a prediction");
    size_t n = choose(list, machine, quality, runs);
    if (n < PJ_PREDICT_LEAST) n = choose(list, machine, quality = PJ_MODELLED, runs);
    pj_predict(runs, n, work, &p);
    pj_free(runs);
    if (p.refusal)
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "nothing to go by: %s (%zu undisturbed runs with energy are known here); "
                       "perjoule experiment makes some",
                       p.refusal, n);
    write_prediction(ask, &p, path, quality, json);
    return PJ_OK;
}

pj_status pj_insight_predict(pj_store *store, const pj_predict_ask *ask, pj_json *json,
                             pj_error *err)
{
    pj_request_work work;
    char path[4096];
    pj_machine machine;
    pj_run_list list = {0};
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status = work_of_ask(ask, &work, path, sizeof path, err);
    if (status == PJ_OK) status = pj_machine_read("", NULL, 0, &arena, &machine, err);
    if (status == PJ_OK)
        status = pj_store_list(store, &(pj_run_query){.status = "completed", .limit = LOOK_AT},
                               &list, err);
    if (status == PJ_OK) status = predict(&list, machine.name, ask, &work, path, json, err);
    pj_run_list_fini(&list);
    pj_arena_fini(&arena);
    return status;
}
