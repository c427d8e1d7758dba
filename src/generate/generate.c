/* Opens the model inside a run, describes it, generates, and ends the run in every case. */
#include "generate/generate.h"

#include "base/buffer.h"
#include "base/json.h"
#include "engine/files/locations.h"
#include "engine/model/facts.h"
#include "generate/calibrate.h"
#include "insight/model_use.h"
#include "trace/private_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- describing ---------------------------------------------------------------------------- */

/* The draft model and, after generation, its acceptance rate. */
static void write_draft(pj_json *json, const pj_engine_facts *f, const pj_generate_result *result)
{
    pj_json_kv_object_begin(json, "draft");
    pj_json_kv_string(json, "model_name", f->model_name);
    pj_json_kv_string(json, "dtype", f->dtype);
    pj_json_kv_uint(json, "parameters", f->parameters);
    pj_json_kv_uint(json, "decode_weight_bytes", f->decode_weight_bytes);
    if (result) {
        pj_json_kv_uint(json, "proposed", result->proposed);
        pj_json_kv_uint(json, "accepted", result->accepted);
        pj_json_kv_uint(json, "steps", result->decode_steps);
        pj_json_kv_double(json, "acceptance",
                          result->proposed ? (double)result->accepted / (double)result->proposed
                                           : NAN);
    }
    pj_json_object_end(json);
}

static void generate_write_model(pj_json *json, const pj_engine *engine,
                                 const pj_generate_result *result)
{
    const pj_engine_facts *f = pj_engine_get_facts(engine), *draft = pj_engine_draft_facts(engine);
    const pj_model_config *c = f->config;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "architecture", f->architecture);
    pj_json_kv_uint(json, "parameters", f->parameters);
    pj_json_kv_uint(json, "active_parameters", f->active_parameters);
    pj_model_facts counted;
    pj_model_facts_fill(c, PJ_F32, &counted); /* the type does not matter here */
    pj_json_kv_string(json, "attention", counted.attention);
    pj_model_parts_json(&counted, json);
    pj_json_kv_uint(json, "layers", c->layers);
    pj_json_kv_uint(json, "hidden_size", c->hidden);
    pj_json_kv_uint(json, "intermediate_size", c->intermediate);
    pj_json_kv_uint(json, "heads", c->heads);
    pj_json_kv_uint(json, "kv_heads", c->kv_heads);
    pj_json_kv_uint(json, "head_dim", c->head_dim);
    pj_json_kv_uint(json, "vocab_size", c->vocab);
    pj_json_kv_uint(json, "context", c->context);
    pj_json_kv_uint(json, "window", c->window);
    pj_json_kv_uint(json, "experts", c->experts);
    pj_json_kv_uint(json, "experts_per_token", c->experts_per_token);
    pj_json_kv_uint(json, "weight_bytes", f->weight_bytes);
    pj_json_kv_uint(json, "decode_weight_bytes", f->decode_weight_bytes);
    pj_json_kv_double(json, "flops_per_token", f->flops_per_token);
    pj_json_kv_uint(json, "kv_bytes_per_token", f->kv_bytes_per_token);
    pj_json_kv_uint(json, "kv_window_bytes_per_token", f->kv_window_bytes_per_token);
    pj_json_kv_string(json, "kv_type", f->kv);
    bool wide = strcmp(f->kv, pj_dtype_get(PJ_F32)->name) == 0; /* figures are of F16 */
    for (int k = 0; wide && k < PJ_ATTENTION_KINDS; k++) counted.attention_work.bytes[k] *= 2;
    pj_attention_work_json(&counted.attention_work, json);
    pj_json_kv_bool(json, "synthetic", f->synthetic);
    pj_json_kv_bool(json, "extrapolated", f->extrapolated);
    if (draft) write_draft(json, draft, result);
    pj_json_object_end(json);
}

static void write_biases(pj_json *json, const pj_sampling *s)
{
    pj_json_kv_object_begin(json, "logit_bias");
    for (uint32_t i = 0; i < s->bias_count; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)s->biases[i].id);
        pj_json_kv_double(json, id, (double)s->biases[i].bias);
    }
    pj_json_object_end(json);
}

static void write_sampling(pj_json *json, const pj_sampling *s)
{
    pj_json_kv_double(json, "temperature", s->temperature);
    pj_json_kv_uint(json, "top_k", s->top_k);
    pj_json_kv_double(json, "top_p", s->top_p);
    pj_json_kv_double(json, "min_p", s->min_p);
    pj_json_kv_double(json, "repetition_penalty", s->repetition_penalty);
    pj_json_kv_double(json, "typical_p", s->typical_p > 0 ? s->typical_p : 1);
    pj_json_kv_double(json, "frequency_penalty", s->frequency_penalty);
    pj_json_kv_double(json, "presence_penalty", s->presence_penalty);
    if (s->bias_count) write_biases(json, s);
    pj_json_kv_uint(json, "seed", s->seed);
}

static const char *statistics_name(const pj_profile_options *o)
{
    static const char *const names[] = {NULL, "off", "sampled", "all"};
    if (o->depth < PJ_DEPTH_MODULE) return "off";
    if (o->request.statistics == PJ_STATISTICS_BY_DEPTH)
        return o->depth == PJ_DEPTH_DEEP ? "all" : "sampled";
    return names[o->request.statistics];
}

/* The run's settings with defaults. Threads and the model's own sampling need `engine`, NULL until
 * the model is open. */
static void generate_write_settings(pj_json *json, const pj_session *session,
                                    const pj_profile_options *o, const pj_engine *engine)
{
    pj_sampling sampling = o->request.sampling;
    uint32_t threads = engine ? pj_engine_get_facts(engine)->threads : o->engine.threads;
    if (engine && o->sampling_from_model) pj_engine_sampling_defaults(engine, &sampling);
    char power[2 * PJ_POWER_ARGUMENT_BYTES];
    pj_power_list_public(session->power_requested, power, sizeof power);
    pj_json_object_begin(json);
    pj_json_kv_uint(json, "max_tokens", o->request.max_tokens);
    pj_json_kv_uint(json, "batch",
                    o->request.sequences ? o->request.sequences : o->request.prompt_count);
    pj_json_kv_bool(json, "chat", o->request.chat);
    if (o->request.is_private) pj_json_kv_bool(json, "private", true);
    if (o->request.system && !o->request.is_private)
        pj_json_kv_string(json, "system", o->request.system);
    if (o->request.chat_variables && !o->request.is_private) {
        pj_json_key(json, "chat_variables");
        pj_json_raw(json, o->request.chat_variables, strlen(o->request.chat_variables));
    }
    pj_json_kv_bool(json, "ignore_eos", o->request.ignore_eos);
    if (o->sampling_from_model) pj_json_kv_string(json, "sampling", "as the model says");
    if (engine || !o->sampling_from_model) write_sampling(json, &sampling);
    pj_json_kv_string(json, "dtype", o->engine.dtype);
    if (o->engine.no_mmap) pj_json_kv_bool(json, "no_mmap", true);
    pj_json_key(json, "threads");
    if (threads)
        pj_json_uint(json, threads);
    else
        pj_json_null(json);
    pj_json_kv_string(json, "power", power);
    pj_json_kv_double(json, "interval_ms",
                      session->power_env.interval_ns ? (double)session->power_env.interval_ns / 1e6
                                                     : NAN);
    pj_json_kv_uint(json, "warmup", o->warmup);
    pj_json_kv_string(json, "statistics", statistics_name(o));
    if (o->engine.draft) pj_json_kv_string(json, "draft_model", o->engine.draft);
    if (o->engine.draft)
        pj_json_kv_uint(json, "draft_tokens",
                        o->request.draft_tokens ? o->request.draft_tokens : PJ_DRAFT_USUAL);
    if (o->engine.device) pj_json_kv_string(json, "device", o->engine.device);
    if (o->ablate) pj_json_kv_string(json, "ablate", o->ablate);
    pj_experiment_cell_write(o->cell_id, json);
    pj_json_object_end(json);
}

/* Facts about the models that are available only after generation. */
static pj_status describe_draft(pj_run *run, const pj_engine *engine,
                                const pj_generate_result *result, pj_error *err)
{
    pj_json json;
    pj_json_open(&json, 1 << 20);
    generate_write_model(&json, engine, result);
    pj_run_facts facts = {.size = sizeof facts, .model_json = pj_json_whole(&json)};
    pj_status status = facts.model_json ? pj_run_describe(run, &facts, err)
                                        : pj_fail_memory(err, "the draft model");
    pj_json_close(&json);
    return status;
}

static pj_status generate_describe(const pj_session *session, pj_run *run, const pj_engine *engine,
                                   const pj_profile_options *o, pj_error *err)
{
    const pj_engine_facts *f = pj_engine_get_facts(engine);
    pj_json model, settings;
    pj_json_open(&model, 1 << 20);
    generate_write_model(&model, engine, NULL);
    pj_json_open(&settings, 1 << 16);
    generate_write_settings(&settings, session, o, engine);
    bool first = o->repeat_group && !*o->repeat_group;
    pj_status status = pj_run_describe(
        run,
        &(pj_run_facts){.size = sizeof(pj_run_facts),
                        .model_name = f->model_name,
                        .model_path = f->model_path,
                        .dtype = f->dtype,
                        .isa = f->isa,
                        .model_json = pj_json_whole(&model),
                        .batch_rule = pj_batch_rule_name(o->batch_rule),
                        .settings_json = o->settings_json ? NULL : pj_json_whole(&settings),
                        .threads = f->threads,
                        .layer_count = f->config->layers,
                        .repeat_group = first ? pj_run_id(run) : o->repeat_group,
                        .repeat_index = o->repeat_index},
        err);
    pj_json_close(&model);
    pj_json_close(&settings);
    return status;
}

/* The text of the prompts as stored with the run: concatenated, or the ids. */
static bool prompt_text(const pj_profile_options *o, pj_buffer *text)
{
    pj_buffer_init(text, 64u << 20);
    pj_buffer_text(text, "");
    for (uint32_t i = 0; i < o->request.prompt_count; i++) {
        const pj_prompt *p = &o->request.prompts[i];
        if (i) pj_buffer_char(text, '\n');
        if (!p->ids) pj_buffer_append(text, p->text, p->bytes);
        for (uint32_t k = 0; p->ids && k < p->id_count; k++)
            pj_buffer_printf(text, k ? ",%d" : "%d", (int)p->ids[k]);
    }
    return !text->failed;
}

/* Features that a private run stores of its prompt and output. On failure only the features are
 * lost. */
static void keep_features(pj_run *run, const pj_buffer *prompt, const pj_buffer *output)
{
    const pj_buffer *text = prompt ? prompt : output;
    if (!text) return;
    pj_json json;
    pj_error err = {0};
    pj_json_open(&json, 1 << 12);
    pj_private_text_write(&json, text->data, text->length);
    const char *object = pj_json_whole(&json);
    pj_status status =
        object ? pj_run_set_private(run, prompt ? object : NULL, output ? object : NULL, &err)
               : pj_fail_memory(&err, "the features of a text");
    if (status != PJ_OK) pj_run_warn(run, "features_lost", "%s", err.text);
    pj_json_close(&json);
}

/* For a batch: the concatenated texts of its sequences. */
static void keep_output_features(pj_run *run, const pj_generate_result *result)
{
    pj_buffer text;
    pj_buffer_init(&text, 64u << 20);
    pj_buffer_text(&text, "");
    for (uint32_t i = 0; i < result->count; i++) {
        const pj_sequence_result *s = &result->sequences[i];
        if (i) pj_buffer_char(&text, '\n');
        if (s->text) pj_buffer_append(&text, s->text, s->text_bytes);
    }
    if (text.failed)
        pj_run_warn(run, "features_lost", "out of memory: the features of the output are unknown");
    else
        keep_features(run, NULL, &text);
    pj_buffer_fini(&text);
}

static pj_status generate_begin(pj_session *session, const pj_profile_options *o, pj_run **run,
                                pj_error *err)
{
    char model_name[512];
    pj_buffer prompt;
    pj_json json;
    pj_model_name_of_path(o->engine.model, model_name, sizeof model_name);
    pj_json_open(&json, 1 << 16);
    generate_write_settings(&json, session, o, NULL);
    const char *settings = pj_json_whole(&json);
    bool ok = prompt_text(o, &prompt) && settings;
    pj_status status = ok ? PJ_OK : pj_fail_memory(err, "the prompt of a run");
    if (ok)
        status = pj_run_begin(
            session,
            &(pj_run_options){.prompt = o->request.is_private ? NULL : pj_buffer_get(&prompt),
                              .model_name = model_name,
                              .model_path = o->engine.model,
                              .engine = "perjoule",
                              .experiment_name = o->experiment_name,
                              .tags = o->tags,
                              .depth = o->depth,
                              .batch_size = o->request.sequences ? o->request.sequences
                                                                 : o->request.prompt_count,
                              .settings_json = o->settings_json ? o->settings_json : settings},
            run, err);
    if (status == PJ_OK && o->request.is_private) keep_features(*run, &prompt, NULL);
    pj_json_close(&json);
    pj_buffer_fini(&prompt);
    return status;
}

/* ---- generating ---------------------------------------------------------------------------- */

/* Passes tokens on, and warns once when a sequence comes near the model's context length. */
typedef struct context_watch {
    const pj_profile_options *o;
    pj_run *run; /* NULL: nothing is recorded */
    bool warned;
} context_watch;

static void watch_context(context_watch *w, const pj_generated *token)
{
    if (w->warned || token->context < PJ_CONTEXT_NEARLY_FULL * token->context_limit) return;
    w->warned = true;
    pj_run_warn(w->run, "context_nearly_full",
                "%u of the %u tokens of the model's context are used: longer requests will be "
                "refused. Shorten the prompt or start a new conversation.",
                token->context, token->context_limit);
}

static void on_token(void *context, const pj_generated *token)
{
    context_watch *w = context;
    if (w->run) watch_context(w, token);
    if (w->o->request.on_token) w->o->request.on_token(w->o->request.context, token);
}

static pj_status generate(pj_engine *engine, const pj_profile_options *o, pj_run *run,
                          pj_generate_result *result, pj_error *err)
{
    context_watch watch = {.o = o, .run = run};
    pj_generate_request request = o->request;
    if (run || request.on_token) request.on_token = on_token;
    request.context = &watch;
    request.run = run;
    request.in_pre_inference = run != NULL;
    if (o->sampling_from_model) pj_engine_sampling_defaults(engine, &request.sampling);
    pj_status status = pj_ablation_parse(o->ablate, &request.without, err);
    return status == PJ_OK ? pj_engine_generate(engine, &request, result, err) : status;
}

/* The calibration of this model on this machine, if any, becomes the prior of the run's fit. An
 * unreadable one is reported and ignored. */
static void take_calibration(pj_session *session, const pj_engine *engine, pj_run *run)
{
    char key[sizeof session->calibration->key];
    pj_error err;
    pj_calibration_key(session, engine, key, sizeof key);
    if (session->calibration && strcmp(session->calibration->key, key) == 0) return;
    pj_free(session->calibration);
    session->calibration = NULL;
    pj_status status = pj_calibration_load(key, &session->calibration, &err);
    if (status != PJ_OK && status != PJ_E_NOT_FOUND)
        pj_run_warn(run, "calibration_unusable", "%s", err.text);
}

/* Cancelling the run also cancels loading. */
static pj_status open_model(pj_model_slot *slot, const pj_profile_options *o, pj_run *run,
                            pj_error *err)
{
    pj_engine_options options = o->engine;
    options.cancel = o->request.cancel;
    options.progress = run ? pj_run_load_progress(run) : NULL;
    return pj_model_slot_open(slot, &options, err);
}

/* The copy of the weights to the device, as a part of `model_load`. */
static void record_upload(pj_run *run, const pj_engine_facts *facts)
{
    pj_lane *lane = pj_run_lane(run);
    pj_work work = {.flops = NAN, .bytes = (double)facts->upload_bytes};
    if (!facts->upload_bytes) return;
    pj_span_begin_at(lane, PJ_SPAN_SECTION, pj_run_name(run, "tensor_transfer"),
                     facts->upload_begin_ns);
    pj_span_end_at(lane, &work, facts->upload_end_ns);
}

/* What `auto` took, if it is not what one hopes for. */
static void warn_declined(pj_run *run, const pj_engine_facts *facts)
{
    if (facts->declined) pj_run_warn(run, "gpu_declined", "the CPU computed: %s", facts->declined);
}

/* Loads the model inside the run unless it is open, then generates. */
static pj_status run_inside(pj_session *session, pj_model_slot *slot, const pj_profile_options *o,
                            pj_run *run, pj_generate_result *result, pj_error *err)
{
    pj_lane *lane = pj_run_lane(run);
    pj_status status = PJ_OK;
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE);
    if (!pj_model_slot_holds(slot, &o->engine)) {
        pj_span_begin(lane, PJ_SPAN_SECTION, pj_run_name(run, "model_load"));
        status = open_model(slot, o, run, err);
        if (status == PJ_OK) record_upload(run, pj_engine_get_facts(slot->engine));
        pj_span_end(lane, NULL);
        if (status == PJ_OK) pj_run_keeps_model(run);
    }
    if (status == PJ_OK) status = generate_describe(session, run, slot->engine, o, err);
    if (status == PJ_OK) take_calibration(session, slot->engine, run);
    if (status == PJ_OK) warn_declined(run, pj_engine_get_facts(slot->engine));
    if (status != PJ_OK) {
        pj_span_end(lane, NULL);
        return status;
    }
    status = generate(slot->engine, o, run, result, err);
    pj_error lost;
    if (pj_engine_draft_facts(slot->engine) &&
        describe_draft(run, slot->engine, result, &lost) != PJ_OK)
        pj_run_warn(run, "draft_unknown", "%s", lost.text);
    return status;
}

static pj_run_status run_status_of(pj_status status)
{
    return status == PJ_OK            ? PJ_RUN_COMPLETED
           : status == PJ_E_CANCELLED ? PJ_RUN_CANCELLED
                                      : PJ_RUN_FAILED;
}

typedef struct built_watch {
    const pj_profile_options *o;
    const pj_profile_result *result;
} built_watch;

static void on_built(void *context, const pj_run_data *data)
{
    const built_watch *w = context;
    w->o->on_result(w->o->request.context, w->result);
}

pj_status pj_profile_generate(pj_session *session, pj_model_slot *slot, const pj_profile_options *o,
                              pj_profile_result *result, pj_error *err)
{
    pj_run *run;
    pj_error failure = {0}, storing = {0};
    *result = (pj_profile_result){0};
    if (o->run_id) snprintf(session->next_run_id, sizeof session->next_run_id, "%s", o->run_id);
    pj_status status = generate_begin(session, o, &run, err);
    if (status != PJ_OK) return status;
    memcpy(result->run_id, pj_run_id(run), sizeof result->run_id);
    if (o->on_run) o->on_run(o->request.context, result->run_id);
    status = run_inside(session, slot, o, run, &result->generated, &failure);
    uint64_t output = result->generated.output_tokens;
    pj_run_set_tokens(run, result->generated.input_tokens, output ? output : PJ_NO_TOKENS);
    result->run_status = run_status_of(status);
    if (o->request.is_private) keep_output_features(run, &result->generated);
    built_watch watch = {o, result};
    if (o->on_result) pj_run_on_built(run, on_built, &watch);
    pj_status stored = pj_run_finish(run, result->run_status,
                                     result->run_status == PJ_RUN_FAILED ? failure.text : NULL,
                                     &result->data, &storing);
    pj_model_slot_check(slot, status);
    result->stored = stored == PJ_OK && session->store;
    if (status == PJ_OK && stored != PJ_OK) failure = storing;
    if (err && (status != PJ_OK || stored != PJ_OK)) *err = failure;
    return status != PJ_OK ? status : stored;
}

void pj_profile_result_fini(pj_profile_result *result)
{
    pj_generate_result_fini(&result->generated);
    pj_run_data_fini(&result->data);
}

pj_status pj_profile_bare(pj_model_slot *slot, const pj_profile_options *o,
                          pj_generate_result *result, pj_error *err)
{
    *result = (pj_generate_result){0};
    pj_status status = open_model(slot, o, NULL, err);
    if (status == PJ_OK) status = generate(slot->engine, o, NULL, result, err);
    pj_model_slot_check(slot, status);
    return status;
}
