/* Collects the properties of the requested model and writes the prediction. */
#include "generate/predict.h"

#include "analysis/predict.h"
#include "base/nearest.h"
#include "engine/model/checkpoint.h"
#include "engine/model/scan.h"
#include "engine/model/synthetic.h"
#include "generate/find_model.h"
#include "insight/known_runs.h"
#include "record/machine.h"
#include "trace/generate_ask.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    if (ask->dtype && wanted < 0) {
        char hint[80];
        pj_nearest_hint(ask->dtype, PJ_ASK_DTYPES, hint, sizeof hint);
        return pj_fail(err, PJ_E_INVALID, "there is no dtype %.32s%s", ask->dtype, hint);
    }
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

/* ---- the answer ----------------------------------------------------------------------------- */

static void write_nearest(const pj_known_runs *known, const pj_prediction *p, pj_json *json)
{
    pj_json_key(json, "nearest");
    pj_json_array_begin(json);
    for (size_t i = 0; i < p->nearest_count && p->refusal; i++) {
        const pj_known_run *run = &known->runs[p->nearest[i]];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "run_id", run->id);
        pj_json_kv_double(json, "weight_bytes", run->work.weight_bytes);
        pj_json_kv_double(json, "input", run->work.input);
        pj_json_kv_double(json, "output", run->work.output);
        pj_json_kv_double(json, "batch", run->work.batch);
        pj_json_kv_double(json, "joules", run->joules);
        pj_json_kv_double(json, "seconds", run->seconds);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- the map --------------------------------------------------------------------------------- */

enum { MAP_LENGTHS = 16 };

/* Powers of two between the shortest and the longest length in the data. */
static uint32_t lengths_seen(const pj_known_runs *known, bool output, uint32_t *lengths)
{
    double least = INFINITY, most = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < known->count; i++) {
        double length = output ? known->runs[i].work.output : known->runs[i].work.input;
        least = fmin(least, length);
        most = fmax(most, length);
    }
    for (double length = exp2(ceil(log2(least))); length <= most && count < MAP_LENGTHS;
         length *= 2)
        lengths[count++] = (uint32_t)length;
    return count;
}

static void write_lengths(pj_json *json, const char *name, const uint32_t *lengths, uint32_t count)
{
    pj_json_key(json, name);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) pj_json_uint(json, lengths[i]);
    pj_json_array_end(json);
}

/* Energy per output token over input and output length, and where it is least. */
static void write_map(const pj_known_runs *known, pj_request_work work, pj_json *json)
{
    uint32_t inputs[MAP_LENGTHS], outputs[MAP_LENGTHS], best_in = 0, best_out = 0;
    uint32_t in_count = lengths_seen(known, false, inputs);
    uint32_t out_count = lengths_seen(known, true, outputs);
    double best = INFINITY;
    pj_json_key(json, "map");
    pj_json_object_begin(json);
    write_lengths(json, "inputs", inputs, in_count);
    write_lengths(json, "outputs", outputs, out_count);
    pj_json_key(json, "joules_per_token");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < in_count; i++) {
        pj_json_array_begin(json);
        for (uint32_t k = 0; k < out_count; k++) {
            pj_prediction p;
            work.input = inputs[i];
            work.output = outputs[k];
            pj_predict(known->runs, known->count, &work, &p);
            double joules = p.joules / (work.output * work.batch);
            pj_json_double(json, joules);
            if (joules < best) best = joules, best_in = inputs[i], best_out = outputs[k];
        }
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
    pj_json_key(json, "least");
    if (isfinite(best)) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "input", best_in);
        pj_json_kv_uint(json, "output", best_out);
        pj_json_kv_double(json, "joules_per_token", best);
        pj_json_object_end(json);
    } else {
        pj_json_null(json);
    }
    pj_json_object_end(json);
}

static void write_prediction(const pj_predict_ask *ask, const pj_request_work *work,
                             const pj_known_runs *known, const char *path, pj_json *json)
{
    pj_prediction made, *p = &made;
    pj_predict(known->runs, known->count, work, p);
    char text[320], *refusal = p->refusal ? text : NULL;
    snprintf(text, sizeof text,
             "nothing to go by: %s (%zu undisturbed runs with energy are known here); perjoule "
             "experiment makes some",
             p->refusal ? p->refusal : "", p->runs);
    double tokens = (double)ask->output * ask->batch;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", path);
    pj_json_kv_string(json, "dtype", ask->dtype);
    pj_json_kv_uint(json, "input", ask->input);
    pj_json_kv_uint(json, "output", ask->output);
    pj_json_kv_uint(json, "batch", ask->batch);
    pj_json_kv_string(json, "refusal", refusal);
    pj_json_kv_string(json, "rests_on", pj_quality_name(known->quality));
    pj_json_kv_uint(json, "runs", p->runs);
    pj_json_kv_double(json, "median_error", p->median_error);
    pj_json_kv_double(json, "joules", p->joules);
    pj_json_kv_double(json, "joules_lo", p->joules_lo);
    pj_json_kv_double(json, "joules_hi", p->joules_hi);
    pj_json_kv_double(json, "joules_per_token", p->joules / tokens);
    pj_json_kv_double(json, "seconds", p->seconds);
    pj_json_kv_double(json, "seconds_lo", p->seconds_lo);
    pj_json_kv_double(json, "seconds_hi", p->seconds_hi);
    write_nearest(known, p, json);
    if (ask->map) write_map(known, *work, json);
    pj_json_object_end(json);
}

pj_status pj_insight_predict(pj_store *store, const pj_predict_ask *ask, pj_json *json,
                             pj_error *err)
{
    pj_request_work work;
    char path[4096];
    pj_machine machine;
    pj_known_runs known = {0};
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status = work_of_ask(ask, &work, path, sizeof path, err);
    if (status == PJ_OK) status = pj_machine_read("", NULL, 0, &arena, &machine, err);
    if (status == PJ_OK)
        status = pj_known_runs_load(store, &(pj_known_query){.machine = machine.name}, &known, err);
    if (status == PJ_OK) write_prediction(ask, &work, &known, path, json);
    pj_known_runs_fini(&known);
    pj_arena_fini(&arena);
    return status;
}
