/* Opens a model, gathers its facts, and evaluates logits. Generation is in generate.c. */
#include "engine/generation/engine.h"

#include "base/file.h"
#include "base/nearest.h"
#include "engine/files/locations.h"
#include "engine/generation/devices.h"
#include "engine/generation/draft_check.h"
#include "engine/generation/engine_internal.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CHUNK = 512, MAX_CHUNK = 8192, EVAL_LOGITS = 32 };

static pj_status read_dtype(const char *name, int *dtype, pj_error *err)
{
    *dtype = name ? pj_dtype_parse(name) : -1;
    if (name && (*dtype < 0 || *dtype > PJ_Q4_0)) {
        char hint[80];
        pj_nearest_hint(name, "q8_0 q4_0 bf16 f16 f32", hint, sizeof hint);
        return pj_fail(err, PJ_E_INVALID,
                       "unknown dtype \"%.40s\": use q8_0, q4_0, bf16, f16 or f32%s", name, hint);
    }
    return PJ_OK;
}

static void choose_kv_type(pj_engine *e)
{
    bool exact = e->model.counts.dtype == PJ_F32;
    e->kv_type = e->options.kv == PJ_KV_F32   ? PJ_F32
                 : e->options.kv == PJ_KV_F16 ? PJ_F16
                 : exact                      ? PJ_F32
                                              : PJ_F16;
}

static void gather_facts(pj_engine *e)
{
    const pj_model_counts *m = &e->model.counts;
    pj_engine_facts *f = &e->facts;
    const char *path = e->options.model;
    if (e->model.synthetic || e->is_head)
        snprintf(f->model_name, sizeof f->model_name, "%s", e->is_head ? PJ_DRAFT_HEAD : path);
    else
        pj_model_name_of_path(pj_checkpoint_path(e->model.checkpoint), f->model_name,
                              sizeof f->model_name);
    f->model_path = path;
    f->architecture = e->model.config.arch_name;
    f->dtype = pj_dtype_get(m->dtype)->name;
    f->isa = e->loaded.facts.isa;
    f->context = e->context;
    f->device_key = e->loaded.facts.key;
    f->declined = e->declined.text[0] ? e->declined.text : NULL;
    f->kv = pj_dtype_get(e->kv_type)->name;
    f->upload_bytes = e->loaded.facts.upload_bytes;
    f->upload_begin_ns = e->loaded.facts.upload_begin_ns;
    f->upload_end_ns = e->loaded.facts.upload_end_ns;
    f->synthetic = e->model.synthetic;
    f->extrapolated = e->model.full_layers != e->model.config.layers;
    f->has_tokenizer = e->tokenizer != NULL;
    f->threads = pj_team_threads(e->team);
    f->config = &e->model.config;
    f->parameters = m->parameters;
    f->active_parameters = m->active_parameters;
    f->weight_bytes = m->weight_bytes;
    f->decode_weight_bytes = m->decode_weight_bytes;
    f->flops_per_token = m->flops_per_token;
    f->kv_bytes_per_token = pj_kv_token_bytes(&e->model, e->kv_type, false);
    f->kv_window_bytes_per_token = pj_kv_token_bytes(&e->model, e->kv_type, true);
}

/* From the folder or the GGUF file; a missing tokenizer is not an error. */
static pj_status find_tokenizer(pj_engine *e, pj_error *err)
{
    char path[4096];
    const char *where = pj_checkpoint_path(e->model.checkpoint);
    const pj_gguf *gguf = pj_checkpoint_gguf(e->model.checkpoint);
    if (gguf)
        return pj_tokenizer_in_gguf(gguf) ? pj_tokenizer_from_gguf(gguf, where, &e->tokenizer, err)
                                          : PJ_OK;
    if (!pj_path_join(path, sizeof path, where, "tokenizer.json") || !pj_file_exists(path))
        return PJ_OK;
    return pj_tokenizer_open(path, &e->tokenizer, err);
}

/* A model without a tokenizer still runs prompts given as ids; an existing one must be valid. */
static pj_status open_tokenizer(pj_engine *e, pj_error *err)
{
    e->vocab_limit = e->model.config.vocab;
    if (e->model.synthetic || e->options.no_tokenizer) return PJ_OK;
    pj_status status = find_tokenizer(e, err);
    if (status && e->options.any_tokenizer) return PJ_OK;
    if (status || !e->tokenizer) return status;
    uint32_t size = pj_tokenizer_size(e->tokenizer);
    if (size > 0 && size < e->vocab_limit) e->vocab_limit = size;
    return PJ_OK;
}

/* While one thread reads the tokenizer's file, the others make the kernel map weights that are in
 * the page cache, so that the first pass takes no page faults: faulting in a few pages at a time
 * costs as much as reading them. Mapping stops when the tokenizer is ready. */
typedef struct tokenizer_load {
    pj_engine *engine;
    bool map_weights;
    pj_status status;
    pj_error *err;
    atomic_bool read;
    atomic_size_t next; /* bytes of weights mapped so far */
} tokenizer_load;

static void read_or_map_part(void *context, unsigned thread)
{
    enum { STEP_BYTES = 2 << 20 };
    tokenizer_load *load = context;
    if (thread == 0) {
        load->status = open_tokenizer(load->engine, load->err);
        load->read = true;
        return;
    }
    while (load->map_weights && !load->read) {
        size_t at = atomic_fetch_add_explicit(&load->next, STEP_BYTES, memory_order_relaxed);
        if (!pj_checkpoint_touch(load->engine->model.checkpoint, at, STEP_BYTES)) return;
    }
}

static pj_status read_tokenizer(pj_engine *e, bool map_weights, pj_error *err)
{
    tokenizer_load load = {.engine = e, .map_weights = map_weights, .err = err};
    int64_t begin_ns = pj_clock_ns();
    pj_team_run(e->team, read_or_map_part, &load);
    e->facts.tokenizer_ns = pj_clock_ns() - begin_ns;
    return load.status;
}

/* Puts the model on its device. */
static pj_status load_model(pj_engine *e, pj_error *err)
{
    const pj_engine_options *o = &e->options;
    const pj_backend *backend = o->backend;
    pj_load_request request = {.device = o->device,
                               .model = &e->model,
                               .kernels = e->kernels,
                               .team = e->team,
                               .kv_type = e->kv_type,
                               .chunk = o->chunk,
                               .declined = &e->declined,
                               .cancel = o->cancel,
                               .progress = o->progress};
    return backend ? pj_load(&e->loaded, backend, &request, err)
                   : pj_device_load(&e->loaded, &request, err);
}

static pj_status find_kernels(const char *isa, const pj_kernels **kernels, pj_error *err)
{
    const char *mask = isa ? isa : getenv("PERJOULE_ISA");
    *kernels = pj_kernels_find(mask);
    if (*kernels) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "unknown kernel set \"%.40s\": use c, avx2, avx512, vnni, vbmi, bf16, amx, "
                   "neon, dotprod or i8mm",
                   mask);
}

pj_status pj_engine_check_isa(const char *isa, pj_error *err)
{
    const pj_kernels *kernels;
    return find_kernels(isa, &kernels, err);
}

/* `team`: threads of another engine to run on; NULL: its own. `target`: the engine whose model's
 * head this one is, or NULL. */
static pj_status engine_open(const pj_engine_options *options, pj_team *team,
                             const pj_engine *target, pj_engine **engine, pj_error *err)
{
    int dtype;
    *engine = NULL;
    pj_status status = read_dtype(options->dtype, &dtype, err);
    if (status) return status;
    if (!options->model || !options->model[0])
        return pj_fail(err, PJ_E_INVALID, "no model was given");
    pj_engine *e = pj_alloc(1, sizeof *e);
    if (!e) return pj_fail_memory(err, "the engine");
    int64_t begin_ns = pj_clock_ns();
    e->options = *options;
    e->team = team;
    e->borrows_team = team != NULL;
    e->options.chunk = options->chunk ? options->chunk : DEFAULT_CHUNK;
    if (e->options.chunk > MAX_CHUNK) e->options.chunk = MAX_CHUNK;
    e->options.model = pj_strdup(options->model);
    status = find_kernels(options->isa, &e->kernels, err);
    if (status) goto fail;
    if (!e->options.model)
        status = pj_fail_memory(err, "the engine");
    else if (!team)
        status = pj_team_new(options->threads, true, &e->team, err);
    if (status) goto fail;
    pj_model_options model = {.path = options->model,
                              .dtype = dtype,
                              .no_mmap = options->no_mmap,
                              .kernels = e->kernels,
                              .cancel = options->cancel,
                              .progress = options->progress};
    e->is_head = target != NULL;
    status = target ? pj_model_open_head(&e->model, &target->model, &model, e->team, err)
                    : pj_model_open(&e->model, &model, e->team, err);
    if (status) goto fail;
    choose_kv_type(e);
    status = load_model(e, err);
    if (status) goto fail;
    e->context = e->model.config.context;
    /* dynamic RoPE scaling is defined beyond the training length */
    if (e->model.ropes[0].type == PJ_ROPE_DYNAMIC)
        e->context = (uint32_t)(e->context * e->model.ropes[0].factor);
    e->facts.model_ns = pj_clock_ns() - begin_ns;
    status = read_tokenizer(e, dtype < 0 && !e->model.synthetic, err);
    if (status) goto fail;
    gather_facts(e);
    *engine = e;
    return PJ_OK;
fail:
    pj_engine_close(e);
    return status;
}

/* The draft model runs on this engine's device and threads. */
static pj_status open_draft(pj_engine *e, pj_error *err)
{
    bool head = e->options.draft && strcmp(e->options.draft, PJ_DRAFT_HEAD) == 0;
    pj_engine_options options = {.model = head ? e->options.model : e->options.draft,
                                 .dtype = head ? e->options.dtype : NULL,
                                 .no_tokenizer = head,
                                 .kv = e->options.kv,
                                 .no_mmap = e->options.no_mmap,
                                 .isa = e->options.isa,
                                 .device = e->options.device,
                                 .backend = e->options.backend,
                                 .any_tokenizer = true,
                                 .cancel = e->options.cancel};
    if (!e->options.draft) return PJ_OK;
    pj_status status = head ? pj_draft_check_head(e, err) : PJ_OK;
    if (!status) status = engine_open(&options, e->team, head ? e : NULL, &e->draft, err);
    return status || head ? status : pj_draft_check(e, e->draft, err);
}

pj_status pj_engine_open(const pj_engine_options *options, pj_engine **engine, pj_error *err)
{
    pj_status status = engine_open(options, NULL, NULL, engine, err);
    if (status) return status;
    status = open_draft(*engine, err);
    if (!status) return PJ_OK;
    pj_engine_close(*engine);
    *engine = NULL;
    return status;
}

void pj_engine_close(pj_engine *e)
{
    if (!e) return;
    pj_engine_close(e->draft);
    pj_unload(&e->loaded);
    pj_model_close(&e->model);
    pj_tokenizer_close(e->tokenizer);
    if (!e->borrows_team) pj_team_free(e->team);
    pj_free((void *)(uintptr_t)e->options.model);
    pj_free(e);
}

const pj_engine_facts *pj_engine_get_facts(const pj_engine *engine)
{
    return &engine->facts;
}

const pj_engine_facts *pj_engine_draft_facts(const pj_engine *engine)
{
    return engine->draft ? &engine->draft->facts : NULL;
}

double pj_engine_read_pass(pj_engine *e, unsigned streams, uint64_t max_bytes)
{
    return e->loaded.backend->read_pass(e->loaded.device, streams, max_bytes);
}

double pj_engine_read_speed(pj_engine *e, uint64_t max_bytes)
{
    double best = NAN;
    for (unsigned streams = 1; streams <= PJ_ENGINE_READ_STREAMS; streams *= 2)
        best = fmax(best, pj_engine_read_pass(e, streams, max_bytes));
    return best;
}

double pj_engine_peak(pj_engine *e, int64_t duration_ns)
{
    return e->loaded.backend->peak(e->loaded.device, duration_ns);
}

void pj_engine_sampling_defaults(const pj_engine *engine, pj_sampling *sampling)
{
    const pj_generation_config *g = &engine->model.generation;
    *sampling = PJ_SAMPLING_GREEDY;
    bool sample = !g->has_do_sample || g->do_sample;
    if (sample && g->temperature > 0) sampling->temperature = g->temperature;
    if (sample && g->top_k > 0) sampling->top_k = g->top_k;
    if (sample && g->top_p > 0 && g->top_p <= 1) sampling->top_p = g->top_p;
    if (sample && g->min_p > 0 && g->min_p <= 1) sampling->min_p = g->min_p;
    if (g->repetition_penalty > 0) sampling->repetition_penalty = g->repetition_penalty;
}

pj_status pj_engine_compute(pj_engine *e, const pj_state_options *options, pj_compute *compute,
                            pj_error *err)
{
    return pj_compute_open(compute, &e->loaded, options, &e->instrument, err);
}

/* Recomputes keys that were rotated with other frequencies. */
static pj_status engine_rebuild(pj_engine *e, pj_compute *compute, uint32_t sequence,
                                uint32_t generation, const _Atomic bool *cancel)
{
    pj_sequence *q = &compute->sequences[sequence];
    uint32_t length = q->length;
    if (q->generation == generation && length > 0) return PJ_OK;
    pj_compute_reset(compute, sequence);
    q->generation = generation;
    if (length == 0) return PJ_OK;
    pj_instrument_section(&e->instrument, PJ_N_KV_CACHE_REBUILD);
    pj_status status =
        pj_engine_feed(e, compute, sequence, q->tokens, length, UINT32_MAX, false, cancel);
    pj_instrument_end(&e->instrument);
    return status;
}

pj_status pj_engine_check_files(const pj_engine *e, pj_error *err)
{
    pj_status status = PJ_OK;
    if (e->model.checkpoint) status = pj_checkpoint_check(e->model.checkpoint, err);
    return status || !e->draft ? status : pj_engine_check_files(e->draft, err);
}

bool pj_engine_is_current(const pj_engine *e)
{
    return (!e->model.checkpoint || pj_checkpoint_is_current(e->model.checkpoint)) &&
           (!e->draft || pj_engine_is_current(e->draft));
}

uint64_t pj_engine_stamp(const pj_engine *e)
{
    return e->model.checkpoint ? pj_checkpoint_stamp(e->model.checkpoint) : 0;
}

pj_status pj_engine_feed(pj_engine *e, pj_compute *compute, uint32_t sequence, const int32_t *ids,
                         uint32_t count, uint32_t horizon, bool greedy, const _Atomic bool *cancel)
{
    uint32_t chunk = compute->options.max_tokens;
    pj_status status = PJ_OK;
    if (horizon != UINT32_MAX)
        status = engine_rebuild(e, compute, sequence,
                                pj_rope_generation(&e->model.ropes[0], horizon), cancel);
    for (uint32_t done = 0; !status && done < count;) {
        uint32_t n = count - done < chunk ? count - done : chunk, last = n - 1;
        pj_pass_segment segment = {.sequence = sequence, .count = n};
        pj_pass pass = {.ids = ids + done,
                        .tokens = n,
                        .segments = &segment,
                        .segment_count = 1,
                        .logit_rows = &last,
                        .logit_count = greedy && done + n == count,
                        .prefill = true,
                        .greedy = greedy,
                        .cancel = cancel};
        status = pj_compute_forward(compute, &pass);
        done += n;
    }
    return status;
}

/* ---- prompts ------------------------------------------------------------------------------ */

/* Without a tokenizer every byte is a token: synthetic models have no vocabulary of their own. */
static pj_status encode_bytes(const char *text, size_t bytes, pj_ids *ids, pj_error *err)
{
    for (size_t i = 0; i < bytes; i++)
        if (!pj_ids_append(ids, (unsigned char)text[i]))
            return pj_fail_memory(err, "the token ids");
    return PJ_OK;
}

static pj_status give_ids(pj_status status, pj_ids *list, int32_t **ids, uint32_t *count,
                          pj_error *err)
{
    *ids = NULL;
    *count = 0;
    if (!status && list->count > UINT32_MAX)
        status = pj_fail(err, PJ_E_INVALID, "the text has more than 4 billion tokens");
    if (status) {
        pj_ids_fini(list);
        return status;
    }
    *ids = list->ids;
    *count = (uint32_t)list->count;
    return PJ_OK;
}

pj_status pj_engine_encode(const pj_engine *e, const char *text, size_t bytes, int32_t **ids,
                           uint32_t *count, pj_error *err)
{
    pj_ids list = {0};
    pj_status status;
    if (e->tokenizer)
        status = pj_tokenizer_encode(e->tokenizer, text, bytes, NULL, &list, err);
    else if (e->model.synthetic)
        status = encode_bytes(text, bytes, &list, err);
    else
        status =
            pj_fail(err, PJ_E_UNAVAILABLE, "%s has no tokenizer; give the prompt as ids (--ids)",
                    e->facts.model_name);
    return give_ids(status, &list, ids, count, err);
}

static pj_status open_chat(const pj_engine *e, pj_chat **chat, pj_error *err)
{
    *chat = NULL;
    if (!e->tokenizer)
        return pj_fail(err, PJ_E_UNSUPPORTED, "%s has no tokenizer, so it has no chat template",
                       e->facts.model_name);
    const char *where = pj_checkpoint_path(e->model.checkpoint);
    const pj_gguf *gguf = pj_checkpoint_gguf(e->model.checkpoint);
    return gguf ? pj_chat_of_gguf(gguf, e->tokenizer, where, chat, err)
                : pj_chat_open(where, chat, err);
}

pj_status pj_engine_encode_chat(const pj_engine *e, const pj_chat_request *request, int32_t **ids,
                                uint32_t *count, pj_error *err)
{
    pj_ids list = {0};
    pj_chat *chat;
    pj_conversation conversation = {request->text, request->bytes, request->messages,
                                    request->system, request->variables};
    pj_status status = open_chat(e, &chat, err);
    if (!status) status = pj_chat_encode(chat, e->tokenizer, &conversation, &list, err);
    pj_chat_close(chat);
    return give_ids(status, &list, ids, count, err);
}

/* ---- logits of every position ------------------------------------------------------------- */

static pj_status check_ids(const pj_engine *e, const int32_t *ids, uint32_t count, pj_error *err)
{
    if (count == 0) return pj_fail(err, PJ_E_INVALID, "the prompt is empty");
    if (count > e->context)
        return pj_fail(err, PJ_E_INVALID,
                       "%u tokens are more than the model's context of %u; give a shorter text",
                       count, e->context);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->model.config.vocab)
            return pj_fail(err, PJ_E_INVALID, "token id %d is outside the vocabulary of %u",
                           (int)ids[i], e->model.config.vocab);
    return PJ_OK;
}

/* Hands out the logits of all rows of the pass that ran, a few rows at a time; *stopped: `row` did
 * not want more. */
static pj_status hand_out(pj_engine *e, pj_compute *compute, uint32_t first, uint32_t count,
                          pj_logits_row_fn *row, void *context, bool *stopped, pj_error *err)
{
    uint32_t vocab = e->model.config.vocab;
    for (uint32_t done = 0; done < count;) {
        uint32_t rows[EVAL_LOGITS], n = 0;
        for (; n < compute->options.max_logits && done + n < count; n++) rows[n] = done + n;
        pj_status status = pj_compute_logits(compute, rows, n);
        if (!status) status = pj_engine_check_files(e, err);
        if (status) return status;
        for (uint32_t i = 0; i < n && !*stopped; i++)
            *stopped = !row(context, first + done + i, compute->logits + (size_t)i * vocab, vocab);
        if (*stopped) return PJ_OK;
        done += n;
    }
    return PJ_OK;
}

pj_status pj_engine_logits(pj_engine *e, const int32_t *ids, uint32_t count, bool whole,
                           pj_logits_row_fn *row, void *context, pj_error *err)
{
    pj_status status = check_ids(e, ids, count, err);
    if (status) return status;
    uint32_t chunk = whole ? (count < e->options.chunk ? count : e->options.chunk) : 1;
    pj_state_options options = {.sequences = 1,
                                .context = count,
                                .max_tokens = chunk,
                                .max_logits = chunk < EVAL_LOGITS ? chunk : EVAL_LOGITS,
                                .kv_type = e->kv_type};
    pj_compute compute = {0};
    bool stopped = false;
    status = pj_instrument_init(&e->instrument, NULL, PJ_STATISTICS_BY_DEPTH, err);
    if (!status) status = pj_engine_compute(e, &options, &compute, err);
    for (uint32_t done = 0; !status && !stopped && done < count;) {
        uint32_t n = count - done < chunk ? count - done : chunk;
        /* token by token, frequencies follow the current length; in one pass, the final length */
        status =
            pj_engine_feed(e, &compute, 0, ids + done, n, whole ? count : done + n, false, NULL);
        if (!status) status = hand_out(e, &compute, done, n, row, context, &stopped, err);
        done += n;
    }
    pj_compute_close(&compute);
    return status;
}
