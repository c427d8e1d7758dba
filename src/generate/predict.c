/* Collects the properties of the requested model and writes the prediction. */
#include "generate/predict.h"

#include "base/nearest.h"
#include "engine/model/checkpoint.h"
#include "engine/model/facts.h"
#include "engine/model/synthetic.h"
#include "generate/find_model.h"
#include "record/machine.h"
#include "trace/generation_request.h"
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
    pj_model_facts_fill(
        &config, wanted >= 0 ? (pj_dtype)wanted : pj_checkpoint_weight_dtype(checkpoint), facts);
    pj_checkpoint_close(checkpoint);
    return PJ_OK;
}

static pj_status work_of_query(const pj_predict_query *request, pj_request_work *work, char *path,
                               size_t bytes, pj_error *err)
{
    pj_model_facts facts;
    int wanted = request->dtype ? pj_dtype_parse(request->dtype) : -1;
    if (request->dtype && wanted < 0) {
        char hint[80];
        pj_nearest_hint(request->dtype, PJ_REQUEST_DTYPES, hint, sizeof hint);
        return pj_fail(err, PJ_E_INVALID, "unknown dtype %.32s%s", request->dtype, hint);
    }
    pj_status status = pj_model_find(request->model, request->models, path, bytes, err);
    if (status == PJ_OK) status = read_facts(path, wanted, &facts, err);
    if (status != PJ_OK) return status;
    *work = (pj_request_work){(double)facts.decode_weight_bytes,
                              (double)facts.flops_per_token,
                              facts.attention_work,
                              request->input,
                              request->output,
                              request->batch};
    return PJ_OK;
}

/* ---- the map --------------------------------------------------------------------------------- */

static uint32_t lengths_seen(const pj_known_runs *known, bool output, uint32_t *lengths)
{
    double least = INFINITY, most = 0;
    uint32_t count = 0;
    for (size_t i = 0; i < known->count; i++) {
        double length = output ? known->runs[i].work.output : known->runs[i].work.input;
        least = fmin(least, length);
        most = fmax(most, length);
    }
    for (double length = exp2(ceil(log2(least))); length <= most && count < PJ_MAP_LENGTHS;
         length *= 2)
        lengths[count++] = (uint32_t)length;
    return count;
}

static void make_map(const pj_known_runs *known, pj_request_work work, pj_length_map *map)
{
    *map = (pj_length_map){.least = INFINITY};
    map->input_count = lengths_seen(known, false, map->inputs);
    map->output_count = lengths_seen(known, true, map->outputs);
    for (uint32_t i = 0; i < map->input_count; i++)
        for (uint32_t k = 0; k < map->output_count; k++) {
            pj_prediction p;
            work.input = map->inputs[i];
            work.output = map->outputs[k];
            pj_predict(known->runs, known->count, &work, &p);
            double joules = map->joules[i][k] = p.joules / (work.output * work.batch);
            if (!(joules < map->least)) continue;
            map->least = joules;
            map->least_input = map->inputs[i];
            map->least_output = map->outputs[k];
        }
}

static void write_lengths(pj_json *json, const char *name, const uint32_t *lengths, uint32_t count)
{
    pj_json_kv_array_begin(json, name);
    for (uint32_t i = 0; i < count; i++) pj_json_uint(json, lengths[i]);
    pj_json_array_end(json);
}

static void predict_write_map(const pj_length_map *map, pj_json *json)
{
    pj_json_kv_object_begin(json, "map");
    write_lengths(json, "inputs", map->inputs, map->input_count);
    write_lengths(json, "outputs", map->outputs, map->output_count);
    pj_json_kv_array_begin(json, "joules_per_token");
    for (uint32_t i = 0; i < map->input_count; i++) {
        pj_json_array_begin(json);
        for (uint32_t k = 0; k < map->output_count; k++) pj_json_double(json, map->joules[i][k]);
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
    pj_json_key(json, "least");
    if (map->least_output) {
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "input", map->least_input);
        pj_json_kv_uint(json, "output", map->least_output);
        pj_json_kv_double(json, "joules_per_token", map->least);
        pj_json_object_end(json);
    } else {
        pj_json_null(json);
    }
    pj_json_object_end(json);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static void write_nearest(const pj_request_prediction *p, pj_json *json)
{
    pj_json_kv_array_begin(json, "nearest");
    for (size_t i = 0; i < p->figures.nearest_count && p->refusal[0]; i++) {
        const pj_known_run *run = &p->known.runs[p->figures.nearest[i]];
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

void pj_request_prediction_write(const pj_request_prediction *p, pj_json *json)
{
    const pj_prediction *f = &p->figures;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", p->path);
    pj_json_kv_string(json, "dtype", p->request.dtype);
    pj_json_kv_uint(json, "input", p->request.input);
    pj_json_kv_uint(json, "output", p->request.output);
    pj_json_kv_uint(json, "batch", p->request.batch);
    pj_json_kv_string(json, "refusal", p->refusal[0] ? p->refusal : NULL);
    pj_json_kv_string(json, "rests_on", pj_quality_name(p->known.quality));
    pj_json_kv_string(json, "partial", p->known.partial[0] ? p->known.partial : NULL);
    pj_json_kv_uint(json, "runs", f->runs);
    pj_json_kv_double(json, "median_error", f->median_error);
    pj_json_kv_double(json, "joules", f->joules);
    pj_json_kv_double(json, "joules_lo", f->joules_lo);
    pj_json_kv_double(json, "joules_hi", f->joules_hi);
    pj_json_kv_double(json, "joules_per_token", p->joules_per_token);
    pj_json_kv_double(json, "seconds", f->seconds);
    pj_json_kv_double(json, "seconds_lo", f->seconds_lo);
    pj_json_kv_double(json, "seconds_hi", f->seconds_hi);
    write_nearest(p, json);
    if (p->request.map) predict_write_map(&p->map, json);
    pj_json_object_end(json);
}

pj_status pj_request_predict(pj_store *store, const pj_predict_query *request,
                             pj_request_prediction *p, pj_error *err)
{
    pj_request_work work;
    pj_machine machine;
    pj_arena arena;
    *p = (pj_request_prediction){.request = *request};
    pj_arena_init(&arena, 0);
    pj_status status = work_of_query(request, &work, p->path, sizeof p->path, err);
    if (status == PJ_OK) status = pj_machine_read("", NULL, 0, &arena, &machine, err);
    if (status == PJ_OK)
        status =
            pj_known_runs_load(store, &(pj_known_query){.machine = machine.name}, &p->known, err);
    pj_arena_fini(&arena);
    if (status != PJ_OK) return status;
    pj_predict(p->known.runs, p->known.count, &work, &p->figures);
    p->joules_per_token = p->figures.joules / ((double)request->output * request->batch);
    if (p->figures.refusal)
        snprintf(p->refusal, sizeof p->refusal,
                 "no prediction: %s (%zu undisturbed runs with energy are known); "
                 "perjoule experiment creates more",
                 p->figures.refusal, p->figures.runs);
    if (request->map) make_map(&p->known, work, &p->map);
    return PJ_OK;
}

void pj_request_prediction_fini(pj_request_prediction *p)
{
    pj_known_runs_fini(&p->known);
}

pj_status pj_insight_predict(pj_store *store, const pj_predict_query *request, pj_json *json,
                             pj_error *err)
{
    pj_request_prediction p;
    pj_status status = pj_request_predict(store, request, &p, err);
    if (status == PJ_OK) pj_request_prediction_write(&p, json);
    pj_request_prediction_fini(&p);
    return status;
}
