/* A generation on the device: its buffers, its cache, and the beginning and end of a pass. */
#include "engine/forward/work.h"
#include "engine/model/delta.h"
#include "engine/vulkan/gpu.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { STATE_ALIGNMENT = 256, STATE_SLIDE_THREADS = 64 };

static uint64_t state_padded(uint64_t bytes)
{
    return (bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
}

/* ---- memory ---- */

/* A generation that only makes pipelines has no memory. */
static pj_status state_buffer(pj_gpu *s, pj_vk_place place, uint64_t bytes, const char *what,
                              pj_vk_buffer *buffer, pj_error *err)
{
    return s->dry ? PJ_OK : pj_vk_buffer_make(s->vk, place, bytes, what, buffer, err);
}

static pj_status state_make_activations(pj_gpu *s, const size_t *floats, pj_error *err)
{
    uint64_t bytes = 0;
    for (int i = 1; i < PJ_BUFFERS; i++) bytes += state_padded(4ull * floats[i]);
    pj_status status =
        state_buffer(s, PJ_VK_DEVICE, bytes, "the activations of a pass", &s->activations, err);
    uint64_t at = s->activations.address;
    for (int i = 1; i < PJ_BUFFERS && status == PJ_OK; i++) {
        s->buffers[i] = at;
        at += state_padded(4ull * floats[i]);
    }
    return status;
}

/* Keys and values of a sequence. */
static uint64_t state_kv_bytes(const pj_gpu *s, const pj_layer *l)
{
    if (!pj_layer_has_keys(l)) return 0;
    return (uint64_t)pj_gpu_stored_heads(l) * pj_gpu_slots(s, l) * pj_gpu_kv_row_bytes(s, l);
}

uint64_t pj_gpu_recurrent_bytes(const pj_gpu *s, const pj_layer *layer)
{
    uint64_t copies = s->options.rewind ? s->options.rewind + 2 : 1;
    return layer->delta ? 4 * copies * pj_delta_state_floats(layer->delta) : 0;
}

/* Of a sequence. */
static uint64_t state_layer_bytes(const pj_gpu *s, const pj_layer *l)
{
    return state_kv_bytes(s, l) + pj_gpu_recurrent_bytes(s, l) + pj_gpu_index_bytes(s, l);
}

/* What drivers allocate for certain. */
static uint64_t state_most_chunk(const pj_gpu *s)
{
    const uint64_t most = 1ull << 30;
    uint64_t buffer = s->dry ? 0 : pj_vk_device(s->vk)->buffer_bytes;
    return buffer && buffer < most + STATE_ALIGNMENT ? buffer - STATE_ALIGNMENT : most;
}

/* Layers from `first` on share a chunk. */
static uint32_t state_place_chunk(pj_gpu *s, uint32_t first, uint64_t *bytes)
{
    const uint64_t most = state_most_chunk(s);
    uint32_t layers = s->model->config.layers, i = first;
    for (*bytes = 0; i < layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        uint64_t keys = state_padded(s->options.sequences * state_kv_bytes(s, l));
        uint64_t recurrent = state_padded(s->options.sequences * pj_gpu_recurrent_bytes(s, l));
        uint64_t index = state_padded(s->options.sequences * pj_gpu_index_bytes(s, l));
        uint64_t needs = keys + recurrent + index;
        if (i > first && *bytes + needs > most) break;
        s->cache_places[i] =
            (pj_gpu_place){s->cache_chunks, *bytes, *bytes + keys, *bytes + keys + recurrent};
        *bytes += needs;
    }
    return i;
}

/* Kernels take the distance between heads as 32 bits. */
static pj_status state_check_heads(const pj_gpu *s, const pj_layer *l, pj_error *err)
{
    uint64_t bytes = pj_gpu_slots(s, l) * pj_gpu_kv_row_bytes(s, l);
    if (!pj_layer_has_keys(l) || l->kv_heads == 1 || bytes <= UINT32_MAX) return PJ_OK;
    return pj_fail(err, PJ_E_UNSUPPORTED,
                   "a context of %u tokens is too long for this device: the keys of a head take "
                   "%.2f GB, of at most %.2f",
                   s->options.context, (double)bytes / 1e9, UINT32_MAX / 1e9);
}

/* Before any of it is taken, so that the sizes are those of the whole. */
static pj_status state_check_cache(const pj_gpu *s, pj_error *err)
{
    char what[80];
    uint64_t all = 0;
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < s->model->config.layers && status == PJ_OK; i++) {
        const pj_layer *l = &s->model->layers[i];
        status = state_check_heads(s, l, err);
        all += s->options.sequences * state_layer_bytes(s, l);
    }
    if (status != PJ_OK || s->dry) return status;
    snprintf(what, sizeof what, "the cache of %u tokens in %u sequences", s->options.context,
             s->options.sequences);
    return pj_vk_need(s->vk, all, what, err);
}

static pj_status state_make_cache(pj_gpu *s, pj_error *err)
{
    char what[80];
    uint32_t layers = s->model->config.layers;
    pj_status status = state_check_cache(s, err);
    if (status != PJ_OK) return status;
    s->cache_places = pj_alloc(layers, sizeof *s->cache_places);
    s->cache = pj_alloc(layers, sizeof *s->cache);
    if (!s->cache_places || !s->cache) return pj_fail_memory(err, "a cache");
    snprintf(what, sizeof what, "a part of the cache of %u tokens in %u sequences",
             s->options.context, s->options.sequences);
    for (uint32_t i = 0; i < layers && status == PJ_OK;) {
        uint64_t bytes;
        i = state_place_chunk(s, i, &bytes);
        status = state_buffer(s, PJ_VK_DEVICE, bytes + STATE_ALIGNMENT, what,
                              &s->cache[s->cache_chunks], err);
        s->cache_chunks += status == PJ_OK;
    }
    return status;
}

static pj_status state_make_parts(pj_gpu *s, pj_error *err)
{
    uint64_t bytes = pj_gpu_split_bytes(&s->options, s->model, &s->most_splits);
    if (!bytes) return PJ_OK;
    return state_buffer(s, PJ_VK_DEVICE, bytes, "parts of attention", &s->parts, err);
}

/* Scores of some rows at a time, and what all rows of a pass see. */
static pj_status state_make_choices(pj_gpu *s, pj_error *err)
{
    enum { MOST_SCORES = 1 << 24 };
    uint64_t kept = s->model->config.indexer.kept, context = s->options.context;
    uint64_t tokens = s->options.max_tokens, rows = MOST_SCORES / context;
    if (kept == 0 || kept >= context) return PJ_OK;
    rows = rows < 1 ? 1 : rows < tokens ? rows : tokens;
    uint64_t scores = state_padded(4 * rows * context);
    s->index_rows = (uint32_t)rows;
    pj_status status = state_buffer(s, PJ_VK_DEVICE, scores + 4 * tokens * kept,
                                    "the choices of sparse attention", &s->choices, err);
    s->index_scores = s->choices.address;
    s->seen_keys = s->choices.address + scores;
    return status;
}

static uint64_t state_cut(uint64_t *bytes, uint64_t count)
{
    uint64_t at = *bytes;
    *bytes = state_padded(at + 4 * count);
    return at;
}

static pj_status state_make_inputs(pj_gpu *s, pj_error *err)
{
    enum { LISTS = 4 }; /* of up to max_logits or max_tokens rows in a pass */
    pj_gpu_inputs *in = &s->inputs;
    uint64_t bytes = 0, rows = s->options.max_tokens;
    in->ids = state_cut(&bytes, rows);
    in->segments = state_cut(&bytes, 3 * rows);
    in->rows = state_cut(&bytes, 4 * rows);
    for (int i = 0; i < PJ_ROPES; i++)
        in->angles[i] = state_cut(&bytes, 2 * rows * s->model->ropes[i].pairs);
    in->bytes = bytes;
    in->lists = state_cut(&bytes, LISTS * (rows + s->options.max_logits));
    pj_status status = state_buffer(s, PJ_VK_UPLOAD, bytes, "the inputs of a pass", &in->host, err);
    if (status == PJ_OK)
        status = state_buffer(s, PJ_VK_DEVICE, in->bytes, "the inputs of a pass", &in->device, err);
    return status;
}

static pj_status state_make_outputs(pj_gpu *s, const size_t *floats, pj_error *err)
{
    uint64_t rows = s->options.max_logits ? s->options.max_logits : 1;
    uint64_t bytes = floats[PJ_BUFFER_LOGITS] ? 4ull * floats[PJ_BUFFER_LOGITS] : 4;
    pj_status status = state_buffer(s, PJ_VK_READBACK, bytes, "logits", &s->logits, err);
    if (status == PJ_OK) status = state_buffer(s, PJ_VK_READBACK, 4 * rows, "ids", &s->ids, err);
    if (status == PJ_OK)
        status = state_buffer(s, PJ_VK_DEVICE, 8 * rows * PJ_GPU_MOST_PARTS, "the largest logits",
                              &s->found, err);
    return status;
}

/* Room for few rows of the widest matrix, and for their entries of experts. */
static pj_status state_make_packed(pj_gpu *s, pj_error *err)
{
    const pj_gpu_weights *w = &s->on->weights;
    const pj_model_config *c = &s->model->config;
    uint64_t width = c->expert_intermediate;
    if (s->model->blueprint->weighted_input && c->hidden > width) width = c->hidden;
    uint64_t widest = c->experts_per_token * width;
    if (!s->on->packs) return PJ_OK;
    for (size_t i = 0; i < w->count; i++)
        if (w->copies[i].matrix.cols > widest) widest = w->copies[i].matrix.cols;
    uint64_t codes = state_padded(PJ_GPU_FEW * widest);
    pj_status status = state_buffer(s, PJ_VK_DEVICE, codes + PJ_GPU_FEW * widest / 8 + 4,
                                    "packed activations", &s->packed, err);
    s->packed_scales = s->packed.address + codes;
    return status;
}

/* Where heads that predict further tokens may be asked: they and their model check drafts. */
static pj_status state_make_rows(pj_gpu *s, pj_error *err)
{
    uint64_t bytes = 4ull * s->options.max_tokens * s->model->config.hidden;
    if (!s->options.rewind) return PJ_OK;
    pj_status status = state_buffer(s, PJ_VK_UPLOAD, bytes, "hidden rows", &s->given, err);
    return status == PJ_OK ? state_buffer(s, PJ_VK_READBACK, bytes, "hidden rows", &s->read, err)
                           : status;
}

/* Everything is zero when opened. */
static pj_status state_clear(pj_gpu *s, pj_error *err)
{
    pj_vk_fill(s->vk, &s->activations, 0, s->activations.bytes, 0);
    for (uint32_t i = 0; i < s->cache_chunks; i++)
        pj_vk_fill(s->vk, &s->cache[i], 0, s->cache[i].bytes / 4 * 4, 0);
    return pj_vk_wait(s->vk, err);
}

static pj_status state_make(pj_gpu *s, const pj_generation_shape *shape, pj_error *err)
{
    pj_status status = state_make_activations(s, shape->floats, err);
    if (status == PJ_OK) status = state_make_cache(s, err);
    if (status == PJ_OK) status = state_make_parts(s, err);
    if (status == PJ_OK) status = state_make_choices(s, err);
    if (status == PJ_OK) status = state_make_inputs(s, err);
    if (status == PJ_OK) status = state_make_outputs(s, shape->floats, err);
    if (status == PJ_OK) status = state_make_packed(s, err);
    if (status == PJ_OK) status = state_make_rows(s, err);
    if (status == PJ_OK) status = pj_gpu_routing_open(s, err);
    if (status != PJ_OK || s->dry) return status;
    status = pj_gpu_prepare(s->on, &s->options, s->instrument, err);
    if (status == PJ_OK) status = pj_gpu_record_open(s, err);
    return status == PJ_OK ? state_clear(s, err) : status;
}

pj_status pj_gpu_open(void *loaded, const pj_generation_shape *shape, void **state, pj_error *err)
{
    pj_gpu_model *on = loaded;
    pj_gpu *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "the state of a generation");
    s->on = on;
    s->dry = on->dry;
    s->settle = pj_gpu_settle;
    s->model = on->model;
    s->vk = on->vk;
    s->options = *shape->options;
    s->full_slots = shape->full_slots;
    s->window_slots = shape->window_slots;
    s->instrument = shape->instrument;
    pj_status status = state_make(s, shape, err);
    if (status == PJ_OK)
        *state = s;
    else
        pj_gpu_close(s);
    return status;
}

void pj_gpu_close(void *state)
{
    pj_gpu *s = state;
    pj_vk_buffer *buffers[] = {&s->activations,    &s->parts, &s->inputs.host, &s->inputs.device,
                               &s->logits,         &s->ids,   &s->found,       &s->packed,
                               &s->routing.memory, &s->given, &s->read,        &s->choices};
    pj_vk_wait(s->vk, NULL);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        pj_vk_buffer_free(s->vk, buffers[i]);
    for (uint32_t i = 0; i < s->cache_chunks; i++) pj_vk_buffer_free(s->vk, &s->cache[i]);
    pj_gpu_record_close(s);
    pj_free(s->cache);
    pj_free(s->cache_places);
    pj_free(s);
}

/* ---- passes ---- */

/* The ids; what else the host knows of the rows is written by `angles`, once there is room for
 * them. A pass without new rows has those of the last one. */
void pj_gpu_begin_pass(void *state, const pj_rows_of_pass *rows)
{
    pj_gpu *s = state;
    pj_gpu_inputs *in = &s->inputs;
    s->rows = *rows;
    in->lists_used = 0;
    s->logit_rows = 0;
    pj_gpu_record_begin(s);
    uint32_t tokens = rows->pass->tokens;
    if (tokens == 0 || s->dry) return;
    pj_gpu_touch(s, 0, PJ_GPU_BIT(PJ_GPU_IDS));
    memcpy((char *)in->host.mapped + in->ids, rows->pass->ids, tokens * sizeof(int32_t));
    pj_vk_segment *segments = (void *)((char *)in->host.mapped + in->segments);
    for (uint32_t i = 0; i < rows->pass->segment_count; i++) {
        const pj_pass_segment *g = &rows->pass->segments[i];
        segments[i] = (pj_vk_segment){g->row, g->count, g->sequence};
    }
    pj_vk_copy(s->vk, &in->device, 0, &in->host, 0, in->rows);
}

pj_status pj_gpu_end_pass(void *state, bool cancelled, pj_error *err)
{
    pj_gpu *s = state;
    uint64_t row_bytes = 4ull * s->model->config.vocab;
    s->settle(s);
    if (s->dry) return PJ_OK;
    if (s->logit_rows && !cancelled && !s->rows.pass->greedy) {
        uint64_t offset = s->buffers[PJ_BUFFER_LOGITS] - s->activations.address;
        pj_gpu_touch(s, PJ_GPU_BIT(PJ_BUFFER_LOGITS), 0);
        pj_vk_copy(s->vk, &s->logits, 0, &s->activations, offset, s->logit_rows * row_bytes);
    }
    const char *message;
    pj_status status = pj_vk_wait(s->vk, err);
    if (status == PJ_OK) status = pj_gpu_record_pass(s, err);
    if (status == PJ_OK && pj_vk_validation_messages(s->vk, &message))
        return pj_fail(err, PJ_E_INTERNAL, "Vulkan's validation layer says: %s", message);
    return status;
}

float *pj_gpu_logits(void *state, uint32_t rows)
{
    const pj_gpu *s = state;
    return s->logits.mapped;
}

const int32_t *pj_gpu_ids(void *state)
{
    const pj_gpu *s = state;
    return s->ids.mapped;
}

/* ---- rows of the host ---- */

static uint64_t state_offset(const pj_gpu *s, pj_slice x)
{
    return pj_gpu_at(s, x) - s->activations.address;
}

void pj_gpu_give(void *state, const float *values, pj_slice y)
{
    pj_gpu *s = state;
    uint64_t bytes = 4ull * y.rows * y.cols;
    if (s->dry) return;
    memcpy(s->given.mapped, values, bytes);
    pj_gpu_touch(s, 0, pj_gpu_bit(y));
    pj_vk_copy(s->vk, &s->activations, state_offset(s, y), &s->given, 0, bytes);
}

const float *pj_gpu_rows(void *state, pj_slice x)
{
    pj_gpu *s = state;
    pj_gpu_touch(s, pj_gpu_bit(x), 0);
    pj_vk_copy(s->vk, &s->read, 0, &s->activations, state_offset(s, x), 4ull * x.rows * x.cols);
    return pj_vk_wait(s->vk, NULL) == PJ_OK ? s->read.mapped : NULL;
}

/* ---- sequences ---- */

void pj_gpu_reset(void *state, uint32_t sequence)
{
    pj_gpu *s = state;
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        uint64_t bytes = pj_gpu_recurrent_bytes(s, l);
        if (!bytes) continue;
        pj_gpu_touch(s, 0, PJ_GPU_BIT(PJ_GPU_CACHE));
        pj_vk_fill(s->vk, &s->cache[s->cache_places[i].chunk],
                   s->cache_places[i].recurrent + sequence * bytes, bytes, 0);
    }
}

void pj_gpu_rewind(void *state, uint32_t sequence, uint32_t row)
{
    pj_gpu *s = state;
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        if (!l->delta) continue;
        const pj_gpu_place *place = &s->cache_places[i];
        uint64_t bytes = 4 * pj_delta_state_floats(l->delta);
        uint64_t at = place->recurrent + sequence * pj_gpu_recurrent_bytes(s, l);
        pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_CACHE), PJ_GPU_BIT(PJ_GPU_CACHE));
        pj_vk_copy(s->vk, &s->cache[place->chunk], at, &s->cache[place->chunk],
                   at + (1 + row) * bytes, bytes);
    }
}

void pj_gpu_slide(void *state, uint32_t sequence, uint32_t from, uint32_t count)
{
    pj_gpu *s = state;
    if (from == 0 || count == 0) return;
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        if (l->window == UINT32_MAX || !pj_layer_has_keys(l)) continue;
        uint32_t words = (uint32_t)pj_gpu_kv_row_bytes(s, l) / 2;
        pj_vk_threads_constants constants = {STATE_SLIDE_THREADS};
        pj_vk_slide_args args = {.heads = pj_gpu_cache_at(s, i) + sequence * state_kv_bytes(s, l),
                                 .head_bytes = pj_gpu_slots(s, l) * pj_gpu_kv_row_bytes(s, l),
                                 .row_words = words,
                                 .from = from,
                                 .count = count};
        pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_CACHE), PJ_GPU_BIT(PJ_GPU_CACHE));
        PJ_GPU_RUN(s, PJ_VK_SLIDE, &constants, &args, pj_gpu_groups(words, STATE_SLIDE_THREADS),
                   pj_gpu_stored_heads(l), 8ull * count * words * l->kv_heads);
    }
}
