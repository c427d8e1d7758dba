/* Loading a model on a device, and the parts of a generation's state that every device has:
 * sequences, and how large its buffers are. */
#include "engine/forward/compute.h"

#include "base/memory.h"
#include "engine/forward/work.h"
#include "engine/model/delta.h"
#include "engine/model/latent.h"

pj_status pj_load(pj_loaded *loaded, const pj_backend *backend, const pj_load_request *request,
                  pj_error *err)
{
    *loaded = (pj_loaded){.backend = backend, .model = request->model};
    if (backend->version != PJ_BACKEND_VERSION)
        return pj_fail(err, PJ_E_INTERNAL,
                       "compute backend %s has version %u, but this engine expects %d",
                       backend->name, backend->version, PJ_BACKEND_VERSION);
    pj_status status = backend->load(request, &loaded->device, err);
    if (!status) backend->facts(loaded->device, &loaded->facts);
    return status;
}

void pj_unload(pj_loaded *loaded)
{
    if (loaded->device) loaded->backend->unload(loaded->device);
    *loaded = (pj_loaded){0};
}

/* ---- sizes of buffers --------------------------------------------------------------------- */

static size_t compute_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t widest_mlp(const pj_model_config *c)
{
    size_t widest = compute_larger(c->expert_intermediate, c->shared_intermediate);
    bool parallel = pj_blueprint_get(c->arch)->parallel_experts;
    if (c->experts == 0 || c->layer_is_dense || parallel)
        widest = compute_larger(widest, c->intermediate);
    for (uint32_t i = 0; (c->wide_readers || c->layer_width) && i < c->layers; i++)
        widest = compute_larger(widest, pj_config_mlp_width(c, i));
    return compute_larger(widest, c->token_vector);
}

/* Widths of the buffers that depend on the kinds of layers; 0 if no layer uses them. */
static void widen_for_layer(const pj_layer *l, size_t *width)
{
    size_t queries = (size_t)l->heads * l->head_dim;
    size_t qkv = queries + 2 * (size_t)l->kv_heads * l->head_dim;
    if (pj_layer_attends(l)) {
        size_t gate = l->output_gate ? 2 * queries : 0;
        width[PJ_BUFFER_ATTENDED] = compute_larger(width[PJ_BUFFER_ATTENDED], queries);
        width[PJ_BUFFER_QKV] = compute_larger(width[PJ_BUFFER_QKV], qkv);
        width[PJ_BUFFER_GATE] = compute_larger(width[PJ_BUFFER_GATE], gate);
    }
    if (l->latent) {
        uint32_t query = pj_latent_query(l->latent), value = l->latent->value;
        size_t widest = (size_t)l->heads * compute_larger(query, value);
        width[PJ_BUFFER_GATE] = compute_larger(width[PJ_BUFFER_GATE], widest);
        width[PJ_BUFFER_MIXED] = compute_larger(width[PJ_BUFFER_MIXED], l->latent->q_a.w.rows);
        if (l->indexer) width[PJ_BUFFER_INDEX] = pj_indexer_columns(l->indexer); /* all alike */
    }
    if (!l->delta) return;
    size_t heads = l->delta->value_heads, values = pj_delta_values(l->delta);
    size_t channels = pj_delta_channels(l->delta);
    width[PJ_BUFFER_ATTENDED] = compute_larger(width[PJ_BUFFER_ATTENDED], values);
    width[PJ_BUFFER_QKV] = compute_larger(width[PJ_BUFFER_QKV], channels);
    width[PJ_BUFFER_GATE] = compute_larger(width[PJ_BUFFER_GATE], values);
    size_t mixed = l->delta->kind == PJ_SHORT_CONVOLUTION ? 3 * channels : channels;
    width[PJ_BUFFER_MIXED] = compute_larger(width[PJ_BUFFER_MIXED], mixed);
    width[PJ_BUFFER_STRENGTH] = compute_larger(width[PJ_BUFFER_STRENGTH], 2 * heads);
}

/* Floats of each buffer; false: more than can be addressed. */
static bool measure_buffers(const pj_model *model, const pj_state_options *o,
                            size_t floats[PJ_BUFFERS])
{
    const pj_model_config *c = &model->config;
    size_t f = widest_mlp(c), vectors = (size_t)c->layers * c->token_vector;
    size_t streams = c->streams.count;
    bool beside = model->blueprint->parallel_experts && c->experts;
    size_t width[PJ_BUFFERS] = {
        [PJ_BUFFER_X] = c->hidden,
        [PJ_BUFFER_NORMED] = c->hidden,
        [PJ_BUFFER_Y] = c->hidden,
        [PJ_BUFFER_Y2] = c->hidden,
        [PJ_BUFFER_GATE_UP] = 2 * f + PJ_GATE_GAP,
        [PJ_BUFFER_ACT] = f,
        [PJ_BUFFER_STREAMS] = streams * c->hidden,
        [PJ_BUFFER_COEFFICIENTS] = streams * streams,
        [PJ_BUFFER_MIXED] =
            model->next_projection.w.data ? 2 * (size_t)c->hidden : c->streams.residual_rank,
        [PJ_BUFFER_BRANCH] = beside || streams ? c->hidden : c->expert_latent,
        [PJ_BUFFER_ROUTED] = beside ? c->hidden : c->expert_latent,
        [PJ_BUFFER_ROUTING] = compute_larger(c->experts, streams),
        [PJ_BUFFER_TOKEN_VECTORS] = vectors,
        [PJ_BUFFER_TOKEN_CONTEXT] = vectors,
        [PJ_BUFFER_LOGITS] = c->vocab,
    };
    for (uint32_t i = 0; i < c->layers; i++) widen_for_layer(&model->layers[i], width);
    for (int i = 0; i < PJ_BUFFERS; i++) {
        size_t rows = i == PJ_BUFFER_LOGITS ? o->max_logits : o->max_tokens;
        if (pj_mul_overflows(rows, width[i], &floats[i])) return false;
    }
    return true;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Rows kept for windowed layers: a window, a pass, and slack so that moving them is rare. */
static uint32_t slots_of_windows(const pj_model *model, const pj_state_options *o)
{
    uint64_t slots = (uint64_t)model->config.window + o->max_tokens + o->rewind;
    slots += model->config.window / 4 > 64 ? model->config.window / 4 : 64;
    return model->config.window && slots < o->context ? (uint32_t)slots : o->context;
}

static bool allocate_sequences(pj_compute *c)
{
    const pj_state_options *o = &c->options;
    int32_t *tokens = pj_alloc((size_t)o->sequences * o->context, sizeof *tokens);
    c->sequences = pj_alloc(o->sequences, sizeof *c->sequences);
    c->row_sequence = pj_alloc(o->max_tokens, sizeof *c->row_sequence);
    c->row_position = pj_alloc(o->max_tokens, sizeof *c->row_position);
    if (!c->sequences || !tokens) {
        pj_free(tokens);
        return false;
    }
    for (uint32_t i = 0; i < o->sequences; i++)
        c->sequences[i].tokens = tokens + (size_t)i * o->context;
    return c->row_sequence && c->row_position;
}

pj_status pj_compute_open(pj_compute *c, const pj_loaded *loaded, const pj_state_options *options,
                          pj_instrument *instrument, pj_error *err)
{
    const pj_model *model = loaded->model;
    *c = (pj_compute){.loaded = loaded,
                      .options = *options,
                      .full_slots = options->context,
                      .window_slots = slots_of_windows(model, options),
                      .instrument = instrument,
                      .err = err};
    pj_generation_shape shape = {.options = &c->options,
                                 .full_slots = c->full_slots,
                                 .window_slots = c->window_slots,
                                 .instrument = instrument};
    pj_status status =
        allocate_sequences(c) && measure_buffers(model, options, shape.floats)
            ? loaded->backend->open(loaded->device, &shape, &c->state, err)
            : pj_fail(err, PJ_E_NO_MEMORY,
                      "there is not enough memory for a context of %u tokens in %u sequence%s",
                      options->context, options->sequences, options->sequences == 1 ? "" : "s");
    if (status) pj_compute_close(c);
    return status;
}

void pj_compute_close(pj_compute *c)
{
    if (c->state) c->loaded->backend->close(c->state);
    if (c->sequences) pj_free(c->sequences[0].tokens);
    pj_free(c->sequences);
    pj_free(c->row_sequence);
    pj_free(c->row_position);
    *c = (pj_compute){0};
}

size_t pj_kv_token_bytes(const pj_model *model, pj_dtype kv_type, bool only_windowed)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->config.layers; i++) {
        const pj_layer *l = &model->layers[i];
        if (pj_layer_has_indexer(l) && !only_windowed)
            bytes += pj_dtype_row_bytes(kv_type, l->indexer->dim);
        if (!pj_layer_has_keys(l)) continue; /* no per-token cache, or shared */
        if (only_windowed && l->window == UINT32_MAX) continue;
        bytes += (size_t)pj_kv_planes(l) * l->kv_heads * pj_dtype_row_bytes(kv_type, l->head_dim);
    }
    return bytes;
}

/* ---- sequences ---------------------------------------------------------------------------- */

void pj_compute_reset(pj_compute *c, uint32_t sequence)
{
    c->loaded->backend->ops.reset(c->state, sequence);
    c->sequences[sequence].length = 0;
    c->sequences[sequence].base = 0;
    c->sequences[sequence].generation = 0;
}

void pj_compute_rewind(pj_compute *c, uint32_t sequence, uint32_t kept)
{
    pj_sequence *q = &c->sequences[sequence];
    uint32_t begin = c->row_position[0];
    if (begin + kept == q->length) return;
    q->length = begin + kept;
    if (c->loaded->model->config.linear.kernel > 0)
        c->loaded->backend->ops.rewind(c->state, sequence, kept - 1);
}

void pj_compute_make_room(pj_compute *c, uint32_t sequence, uint32_t count)
{
    pj_sequence *q = &c->sequences[sequence];
    if (q->length - q->base + count <= c->window_slots) return;
    /* the next query sees itself and the window - 1 keys before it, also after a rollback */
    uint32_t seen = c->loaded->model->config.window - 1 + c->options.rewind;
    uint32_t held = q->length - q->base, keep = held < seen ? held : seen;
    c->loaded->backend->ops.slide(c->state, sequence, held - keep, keep);
    q->base = q->length - keep;
}
