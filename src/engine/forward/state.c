/* Allocates and addresses the KV cache and the activations: two blocks of pages. */
#include "engine/forward/state.h"

#include "engine/files/pages.h"
#include "engine/model/delta.h"

#include <string.h>

enum { CACHE_LINE = 64, SCORE_FLOATS = 1 << 18 };

/* Two-pass layout: `cut` runs over the same list twice, first to measure the block, then to assign
 * pointers. */
typedef struct cutter {
    unsigned char *block; /* NULL while measuring */
    size_t used;
    bool overflow;
} cutter;

static void *state_cut(cutter *c, size_t rows, size_t cols, size_t size)
{
    size_t bytes, padded, end;
    if (pj_mul_overflows(rows, cols, &bytes) || pj_mul_overflows(bytes, size, &bytes) ||
        pj_add_overflows(bytes, CACHE_LINE - 1, &padded) ||
        pj_add_overflows(c->used, padded / CACHE_LINE * CACHE_LINE, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *part = c->block ? c->block + c->used : NULL;
    c->used = end;
    return part;
}

static size_t state_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t widest_mlp(const pj_model_config *c)
{
    size_t widest = state_larger(c->expert_intermediate, c->shared_intermediate);
    bool parallel = pj_blueprint_get(c->arch)->parallel_experts;
    if (c->experts == 0 || c->layer_is_dense || parallel)
        widest = state_larger(widest, c->intermediate);
    for (uint32_t i = 0; c->wide_readers && i < c->layers; i++)
        widest = state_larger(widest, pj_config_mlp_width(c, i));
    return state_larger(widest, c->token_vector);
}

/* Size of a token's queries, and of its queries, keys and values, in the widest layer. */
static size_t widest_query(const pj_model *m)
{
    size_t widest = 0;
    for (uint32_t i = 0; i < m->config.layers; i++)
        widest = state_larger(widest, m->layers[i].delta
                                          ? pj_delta_values(m->layers[i].delta)
                                          : (size_t)m->layers[i].heads * m->layers[i].head_dim);
    return widest;
}

static size_t widest_qkv(const pj_model *m)
{
    size_t widest = 0;
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const pj_layer *l = &m->layers[i];
        widest = state_larger(widest, l->delta ? pj_delta_channels(l->delta)
                                               : ((size_t)l->heads + 2 * (size_t)l->kv_heads) *
                                                     l->head_dim);
    }
    return widest;
}

/* Buffer widths for the delta rule and for gated attention; 0 if no layer uses them. */
typedef struct extra_widths {
    size_t mixed, gate, strength;
} extra_widths;

static extra_widths widest_extra(const pj_model *m)
{
    extra_widths w = {0};
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const pj_layer *l = &m->layers[i];
        if (l->output_gate) w.gate = state_larger(w.gate, 2 * (size_t)l->heads * l->head_dim);
        if (!l->delta) continue;
        w.mixed = state_larger(w.mixed, pj_delta_channels(l->delta));
        w.gate = state_larger(w.gate, pj_delta_values(l->delta));
        w.strength = state_larger(w.strength, 2 * (size_t)l->delta->value_heads);
    }
    return w;
}

static void cut_activations(pj_state *s, cutter *c)
{
    const pj_model_config *m = &s->model->config;
    size_t tokens = s->options.max_tokens, heads = widest_query(s->model), f = widest_mlp(m);
    size_t vectors = (size_t)m->layers * m->token_vector;
    size_t experts = m->experts, chosen = m->experts_per_token;
    size_t cols = state_larger(state_larger(m->hidden, heads), f);
    s->x = state_cut(c, tokens, m->hidden, sizeof(float));
    s->normed = state_cut(c, tokens, m->hidden, sizeof(float));
    extra_widths extra = widest_extra(s->model);
    s->mixed = state_cut(c, tokens, extra.mixed, sizeof(float));
    s->gate = state_cut(c, tokens, extra.gate, sizeof(float));
    s->strength = state_cut(c, tokens, extra.strength, sizeof(float));
    s->qkv = state_cut(c, tokens, widest_qkv(s->model), sizeof(float));
    s->attended = state_cut(c, tokens, heads, sizeof(float));
    s->y = state_cut(c, tokens, m->hidden, sizeof(float));
    s->y2 = state_cut(c, tokens, m->hidden, sizeof(float));
    s->gate_up = state_cut(c, tokens, 2 * f + PJ_GATE_GAP, sizeof(float));
    s->act = state_cut(c, tokens, f, sizeof(float));
    s->gathered = state_cut(c, experts ? tokens : 0, m->hidden, sizeof(float));
    s->branch = state_cut(c, s->model->blueprint->parallel_experts && experts ? tokens : 0,
                          m->hidden, sizeof(float));
    s->token_vectors = state_cut(c, tokens, vectors, sizeof(float));
    s->token_context = state_cut(c, tokens, vectors, sizeof(float));
    s->routing = state_cut(c, tokens, experts, sizeof(float));
    s->probability = state_cut(c, tokens, experts, sizeof(float));
    s->chosen = state_cut(c, tokens, chosen, sizeof(uint32_t));
    s->chosen_weight = state_cut(c, tokens, chosen, sizeof(float));
    s->expert_begin = state_cut(c, experts + 1, 1, sizeof(uint32_t));
    s->expert_row = state_cut(c, tokens, chosen, sizeof(uint32_t));
    s->expert_weight = state_cut(c, tokens, chosen, sizeof(float));
    s->row_sequence = state_cut(c, tokens, 1, sizeof(uint32_t));
    s->row_position = state_cut(c, tokens, 1, sizeof(uint32_t));
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        s->cosine[i] = state_cut(c, tokens, s->model->ropes[i].pairs, sizeof(float));
        s->sine[i] = state_cut(c, tokens, s->model->ropes[i].pairs, sizeof(float));
    }
    s->ratios = state_cut(c, tokens, 2 * state_larger(m->heads, m->token_vector ? m->layers : 0),
                          sizeof(float));
    s->figures = state_cut(c, pj_team_threads(s->team), m->heads, sizeof(pj_head_figures));
    s->attention_parts = state_cut(c, pj_team_threads(s->team), 1, sizeof(pj_attention_part));
    s->logits = state_cut(c, s->options.max_logits, m->vocab, sizeof(float));
    size_t packed = pj_linear_pack_bytes(state_larger(tokens, s->options.max_logits), cols);
    if (packed == 0) c->overflow = true;
    s->packed = state_cut(c, packed, 1, 1);
    s->scores = state_cut(c, pj_team_threads(s->team), s->score_floats, sizeof(float));
}

/* Rows kept for windowed layers: a window, a pass, and slack so that moving them is rare. */
static uint32_t window_slots(const pj_model *model, const pj_state_options *o)
{
    uint64_t slots = (uint64_t)model->config.window + o->max_tokens + o->rewind;
    slots += model->config.window / 4 > 64 ? model->config.window / 4 : 64;
    return model->config.window && slots < o->context ? (uint32_t)slots : o->context;
}

static bool place_kv(pj_state *s, cutter *c)
{
    const pj_model_config *m = &s->model->config;
    for (uint32_t i = 0; i < m->layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        uint32_t slots = l->window == UINT32_MAX ? s->full_slots : s->window_slots;
        s->kv_offset[i] = c->used;
        s->kv_row_bytes[i] = pj_dtype_row_bytes(s->options.kv_type, l->head_dim);
        if (l->delta) {
            state_cut(c, s->options.sequences, pj_delta_state_floats(l->delta), sizeof(float));
            continue;
        }
        if (l->kv_source != i) continue; /* reads another layer's */
        size_t rows;
        if (pj_mul_overflows(2 * (size_t)l->kv_heads * s->options.sequences, slots, &rows))
            return false;
        state_cut(c, rows, s->kv_row_bytes[i], 1);
    }
    return !c->overflow;
}

pj_status pj_state_init(pj_state *s, const pj_model *model, const pj_kernels *kernels,
                        pj_team *team, const pj_state_options *options, pj_error *err)
{
    const pj_model_config *m = &model->config;
    *s = (pj_state){.model = model, .kernels = kernels, .team = team, .options = *options};
    s->full_slots = options->context;
    s->window_slots = window_slots(model, options);
    s->score_floats = state_larger(SCORE_FLOATS, ((size_t)options->context + 16) / 16 * 16);
    s->sequences = pj_alloc(options->sequences, sizeof *s->sequences);
    s->kv_offset = pj_alloc(m->layers, sizeof *s->kv_offset);
    s->kv_row_bytes = pj_alloc(m->layers, sizeof *s->kv_row_bytes);
    int32_t *tokens = pj_alloc((size_t)options->sequences * options->context, sizeof *tokens);
    if (s->sequences) s->sequences[0].tokens = tokens;
    if (!s->sequences || !s->kv_offset || !s->kv_row_bytes || !tokens) {
        if (!s->sequences) pj_free(tokens);
        goto fail;
    }
    for (uint32_t i = 0; i < options->sequences; i++)
        s->sequences[i].tokens = tokens + (size_t)i * options->context;
    cutter kv = {0}, activations = {0};
    cut_activations(s, &activations);
    if (!place_kv(s, &kv) || activations.overflow) goto fail;
    s->kv_bytes = kv.used;
    s->kv = pj_pages_alloc(s->kv_bytes);
    s->block_bytes = activations.used;
    s->block = pj_pages_alloc(s->block_bytes);
    if (!s->kv || !s->block) goto fail;
    cut_activations(s, &(cutter){.block = s->block});
    return PJ_OK;
fail:
    pj_state_fini(s);
    return pj_fail(err, PJ_E_NO_MEMORY,
                   "there is not enough memory for a context of %u tokens in %u sequences; give a "
                   "shorter one",
                   options->context, options->sequences);
}

void pj_state_fini(pj_state *s)
{
    pj_pages_free(s->kv, s->kv_bytes);
    pj_pages_free(s->block, s->block_bytes);
    if (s->sequences) pj_free(s->sequences[0].tokens);
    pj_free(s->sequences);
    pj_free(s->kv_offset);
    pj_free(s->kv_row_bytes);
    *s = (pj_state){0};
}

size_t pj_state_kv_token_bytes(const pj_model *model, pj_dtype kv_type, bool only_windowed)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->config.layers; i++) {
        const pj_layer *l = &model->layers[i];
        if (l->delta || l->kv_source != i) continue; /* no per-token cache, or shared */
        if (only_windowed && l->window == UINT32_MAX) continue;
        bytes += 2 * (size_t)l->kv_heads * pj_dtype_row_bytes(kv_type, l->head_dim);
    }
    return bytes;
}

static bool windowed(const pj_state *s, uint32_t layer)
{
    return s->model->layers[layer].window != UINT32_MAX;
}

/* Row 0 of a head's keys or values. */
static unsigned char *kv_start(const pj_state *s, uint32_t layer, uint32_t sequence, uint32_t which,
                               uint32_t head)
{
    const pj_layer *l = &s->model->layers[layer];
    size_t slots = windowed(s, layer) ? s->window_slots : s->full_slots;
    size_t run = ((size_t)sequence * 2 + which) * l->kv_heads + head;
    return s->kv + s->kv_offset[layer] + run * slots * s->kv_row_bytes[layer];
}

pj_kv_rows pj_state_kv(const pj_state *s, uint32_t layer, uint32_t sequence, uint32_t which,
                       uint32_t head, uint32_t first)
{
    uint32_t slot = first - (windowed(s, layer) ? s->sequences[sequence].base : 0);
    size_t row_bytes = s->kv_row_bytes[layer];
    return (pj_kv_rows){kv_start(s, layer, sequence, which, head) + slot * row_bytes, row_bytes,
                        s->options.kv_type};
}

float *pj_state_delta(const pj_state *s, uint32_t layer, uint32_t sequence)
{
    size_t floats = pj_delta_state_floats(s->model->layers[layer].delta);
    return (float *)(void *)(s->kv + s->kv_offset[layer]) + sequence * floats;
}

void pj_state_reset(pj_state *s, uint32_t sequence)
{
    for (uint32_t i = 0; i < s->model->config.layers; i++)
        if (s->model->layers[i].delta)
            memset(pj_state_delta(s, i, sequence), 0,
                   pj_delta_state_floats(s->model->layers[i].delta) * sizeof(float));
    s->sequences[sequence].length = 0;
    s->sequences[sequence].base = 0;
    s->sequences[sequence].generation = 0;
}

void pj_state_make_room(pj_state *s, uint32_t sequence, uint32_t count)
{
    pj_sequence *q = &s->sequences[sequence];
    const pj_model_config *m = &s->model->config;
    if (q->length - q->base + count <= s->window_slots) return;
    /* the next query sees itself and the window - 1 keys before it, also after a rollback */
    uint32_t seen = m->window - 1 + s->options.rewind, held = q->length - q->base;
    uint32_t keep = held < seen ? held : seen;
    uint32_t base = q->length - keep;
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        const pj_layer *l = &s->model->layers[layer];
        if (!windowed(s, layer) || l->kv_source != layer) continue;
        size_t row_bytes = s->kv_row_bytes[layer];
        for (uint32_t which = 0; which < 2; which++)
            for (uint32_t head = 0; head < l->kv_heads; head++) {
                unsigned char *rows = kv_start(s, layer, sequence, which, head);
                memmove(rows, rows + (base - q->base) * row_bytes, keep * row_bytes);
            }
    }
    q->base = base;
}
