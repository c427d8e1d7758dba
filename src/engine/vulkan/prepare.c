/* Pipelines are made before they are needed: passes like those to come are recorded, of which every
 * dispatch only finds its pipeline. A driver takes up to a quarter of a second for one. */
#include "engine/forward/compute.h"
#include "engine/vulkan/gpu.h"

#include "base/memory.h"

typedef struct prepare_task {
    pj_compute compute;
    pj_instrument instrument; /* the caller's depth, and no lane */
    pj_pass_segment *segments;
    int32_t *ids;
} prepare_task;

/* A pass of one segment, or of a row of each sequence, after `before` tokens. */
static void prepare_pass(prepare_task *t, uint32_t segments, uint32_t rows, uint32_t before,
                         bool greedy)
{
    const pj_state_options *o = &t->compute.options;
    uint32_t each = rows / segments, logit_row = 0;
    if (each + before > o->context || rows > o->max_tokens) return;
    for (uint32_t i = 0; i < segments; i++) {
        t->segments[i] = (pj_pass_segment){.sequence = i, .row = i * each, .count = each};
        t->compute.sequences[i].length = before;
        t->compute.sequences[i].base = 0;
    }
    pj_pass pass = {.ids = t->ids,
                    .tokens = rows,
                    .segments = t->segments,
                    .segment_count = segments,
                    .logit_rows = &logit_row,
                    .logit_count = o->max_logits > 0,
                    .greedy = greedy};
    pj_compute_forward(&t->compute, &pass);
}

/* The same at the end of the context, where sparse attention chooses keys. */
static void prepare_last_passes(prepare_task *t, uint32_t chunk)
{
    const pj_state_options *o = &t->compute.options;
    prepare_pass(t, o->sequences, o->sequences, o->context - 1, true);
    if (o->rewind && o->rewind < o->context)
        prepare_pass(t, 1, o->rewind + 1, o->context - o->rewind - 1, true);
    prepare_pass(t, 1, chunk, o->context - chunk, false);
}

/* Decode over few and over many tokens, the check of drafts, and a chunk of a prompt. */
static void prepare_passes(prepare_task *t)
{
    enum { LONG_CONTEXT = 512 }; /* attention is split */
    const pj_state_options *o = &t->compute.options;
    prepare_pass(t, o->sequences, o->sequences, 0, false);
    prepare_pass(t, o->sequences, o->sequences, LONG_CONTEXT, true);
    if (o->rewind) prepare_pass(t, 1, o->rewind + 1, 0, true);
    uint32_t chunk = o->max_tokens < o->context ? o->max_tokens : o->context;
    prepare_pass(t, 1, chunk, 0, false);
    if (t->compute.loaded->model->config.indexer.kept) prepare_last_passes(t, chunk);
    pj_gpu_record_prepare(t->compute.state);
    pj_gpu_figures_prepare(t->compute.state);
}

static pj_status prepare_run(prepare_task *t, pj_gpu_model *m, const pj_state_options *options,
                             pj_error *err)
{
    pj_loaded loaded = {.backend = m->backend, .model = m->model, .device = m};
    t->ids = pj_alloc(options->max_tokens, sizeof *t->ids);
    t->segments = pj_alloc(options->sequences, sizeof *t->segments);
    if (!t->ids || !t->segments) return pj_fail_memory(err, "a pass");
    pj_status status = pj_compute_open(&t->compute, &loaded, options, &t->instrument, err);
    if (status != PJ_OK) return status;
    prepare_passes(t);
    status = pj_vk_wait(m->vk, err); /* with the first pipeline that failed */
    pj_compute_close(&t->compute);
    return status;
}

pj_status pj_gpu_prepare(pj_gpu_model *m, const pj_state_options *options,
                         const pj_instrument *like, pj_error *err)
{
    prepare_task *t = pj_alloc(1, sizeof *t);
    if (!t) return pj_fail_memory(err, "a pass");
    if (like) {
        t->instrument.module = like->module;
        t->instrument.deep = like->deep;
        t->instrument.statistics = like->statistics;
    }
    m->dry = true;
    pj_status status = prepare_run(t, m, options, err);
    m->dry = false;
    pj_free(t->ids);
    pj_free(t->segments);
    pj_free(t);
    return status;
}

/* What a generation of one sequence needs. */
pj_status pj_gpu_prepare_model(pj_gpu_model *m, const pj_load_request *request, pj_error *err)
{
    enum { CONTEXT = 1024 };
    uint32_t most = request->model->config.context;
    uint32_t context = most && most < CONTEXT ? most : CONTEXT;
    pj_state_options usual = {.sequences = 1,
                              .context = context,
                              .max_tokens = request->chunk ? request->chunk : context,
                              .max_logits = 1,
                              .kv_type = request->kv_type};
    if (usual.max_tokens > context) usual.max_tokens = context;
    return pj_gpu_prepare(m, &usual, NULL, err);
}
