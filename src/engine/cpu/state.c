/* Allocates and addresses the KV cache and the activations: two blocks of pages. */
#include "engine/cpu/cpu.h"

#include "base/memory.h"
#include "engine/files/pages.h"
#include "engine/kernels/stats_timer.h"
#include "engine/model/delta.h"

#include <string.h>

enum { CACHE_LINE = 64, SCORE_FLOATS = 1 << 18, INDEX_FLOATS = 1 << 20 };

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

/* The longest rows that a product reads. */
static size_t widest_input(const pj_model *model, const size_t *floats, size_t tokens)
{
    size_t widest = model->config.hidden;
    widest = state_larger(widest, floats[PJ_BUFFER_ATTENDED] / tokens);
    widest = state_larger(widest, floats[PJ_BUFFER_GATE] / tokens);
    widest = state_larger(widest, floats[PJ_BUFFER_MIXED] / tokens);
    return state_larger(widest, floats[PJ_BUFFER_ACT] / tokens);
}

/* What sparse attention needs, if sequences may become so long that keys are left out. */
static void cut_choices(pj_cpu *s, cutter *c)
{
    size_t kept = s->model->config.indexer.kept, context = s->options.context;
    size_t tokens = s->options.max_tokens, rows = INDEX_FLOATS / context;
    size_t row_bytes = pj_dtype_row_bytes(s->options.kv_type, s->model->config.head_dim);
    if (kept == 0 || kept >= context) return;
    s->index_rows = (uint32_t)(rows < 1 ? 1 : rows < tokens ? rows : tokens);
    s->gathered_bytes = (kept * row_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    s->index_scores = state_cut(c, s->index_rows, context, sizeof(float));
    s->seen_keys = state_cut(c, tokens, kept, sizeof(uint32_t));
    s->gathered = state_cut(c, pj_team_threads(s->team), s->gathered_bytes, 1);
}

/* What an operation needs beside the buffers of the forward pass. */
static void cut_scratch(pj_cpu *s, cutter *c, const size_t *floats)
{
    const pj_model_config *m = &s->model->config;
    size_t tokens = s->options.max_tokens, threads = pj_team_threads(s->team);
    size_t experts = m->experts, chosen = m->experts_per_token;
    s->buffers[PJ_CPU_GATHERED] = state_cut(c, experts ? tokens : 0, m->hidden, sizeof(float));
    s->probability = state_cut(c, tokens, experts, sizeof(float));
    s->choice = state_cut(c, tokens, experts, sizeof(float));
    s->chosen = state_cut(c, tokens, chosen, sizeof(uint32_t));
    s->chosen_weight = state_cut(c, tokens, chosen, sizeof(float));
    s->expert_begin = state_cut(c, experts + 1, 1, sizeof(uint32_t));
    s->expert_row = state_cut(c, tokens, chosen, sizeof(uint32_t));
    s->expert_weight = state_cut(c, tokens, chosen, sizeof(float));
    for (uint32_t i = 0; i < PJ_ROPES; i++) {
        s->cosine[i] = state_cut(c, tokens, s->model->ropes[i].pairs, sizeof(float));
        s->sine[i] = state_cut(c, tokens, s->model->ropes[i].pairs, sizeof(float));
    }
    s->ratios = state_cut(c, tokens, 2 * (size_t)m->heads, sizeof(float));
    s->figures = state_cut(c, threads, m->heads, sizeof(pj_head_figures));
    s->attention_parts = state_cut(c, threads, 1, sizeof(pj_attention_part));
    s->sums = state_cut(c, PJ_MAX_PRODUCTS, threads, sizeof(pj_thread_sums));
    s->ids = state_cut(c, s->options.max_logits, 1, sizeof(int32_t));
    size_t packed = pj_linear_pack_bytes(state_larger(tokens, s->options.max_logits),
                                         widest_input(s->model, floats, tokens));
    if (packed == 0) c->overflow = true;
    s->packed = state_cut(c, packed, 1, 1);
    s->scores = state_cut(c, threads, s->score_floats, sizeof(float));
    cut_choices(s, c);
}

static void cut_activations(pj_cpu *s, cutter *c, const size_t *floats)
{
    for (int i = 1; i < PJ_BUFFERS; i++) s->buffers[i] = state_cut(c, floats[i], 1, sizeof(float));
    cut_scratch(s, c, floats);
}

/* A recurrent state, and one after each row of a pass that may be rolled back. */
static size_t delta_copies(const pj_cpu *s)
{
    return s->options.rewind ? s->options.rewind + 2 : 1;
}

static bool place_kv(pj_cpu *s, cutter *c)
{
    const pj_model_config *m = &s->model->config;
    for (uint32_t i = 0; i < m->layers; i++) {
        const pj_layer *l = &s->model->layers[i];
        uint32_t slots = l->window == UINT32_MAX ? s->full_slots : s->window_slots;
        s->delta_offset[i] = c->used;
        if (l->delta)
            state_cut(c, s->options.sequences * delta_copies(s), pj_delta_state_floats(l->delta),
                      sizeof(float));
        s->index_offset[i] = c->used;
        if (pj_layer_has_indexer(l)) {
            size_t keys;
            if (pj_mul_overflows(s->options.sequences, s->full_slots, &keys)) return false;
            state_cut(c, keys, pj_dtype_row_bytes(s->options.kv_type, l->indexer->dim), 1);
        }
        s->kv_offset[i] = c->used;
        s->kv_row_bytes[i] = pj_dtype_row_bytes(s->options.kv_type, l->head_dim);
        if (!pj_layer_has_keys(l)) continue;
        size_t rows;
        if (pj_mul_overflows(pj_kv_planes(l) * (size_t)l->kv_heads * s->options.sequences, slots,
                             &rows))
            return false;
        state_cut(c, rows, s->kv_row_bytes[i], 1);
    }
    return !c->overflow;
}

static bool allocate(pj_cpu *s, const size_t *floats)
{
    cutter kv = {0}, activations = {0};
    s->kv_offset = pj_alloc(s->model->config.layers, sizeof *s->kv_offset);
    s->delta_offset = pj_alloc(s->model->config.layers, sizeof *s->delta_offset);
    s->index_offset = pj_alloc(s->model->config.layers, sizeof *s->index_offset);
    s->kv_row_bytes = pj_alloc(s->model->config.layers, sizeof *s->kv_row_bytes);
    if (!s->kv_offset || !s->delta_offset || !s->index_offset || !s->kv_row_bytes) return false;
    cut_activations(s, &activations, floats);
    if (!place_kv(s, &kv) || activations.overflow) return false;
    s->kv_bytes = kv.used;
    s->kv = pj_pages_alloc(s->kv_bytes);
    s->block_bytes = activations.used;
    s->block = pj_pages_alloc(s->block_bytes);
    if (!s->kv || !s->block) return false;
    cut_activations(s, &(cutter){.block = s->block}, floats);
    return true;
}

pj_status pj_cpu_open(void *loaded, const pj_generation_shape *shape, void **state, pj_error *err)
{
    const pj_cpu_device *device = loaded;
    const pj_state_options *o = shape->options;
    pj_cpu *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "the state of a generation");
    *s = (pj_cpu){.model = device->model,
                  .kernels = device->kernels,
                  .team = device->team,
                  .options = *o,
                  .instrument = shape->instrument,
                  .full_slots = shape->full_slots,
                  .window_slots = shape->window_slots,
                  .score_floats = state_larger(SCORE_FLOATS, ((size_t)o->context + 16) / 16 * 16)};
    if (!allocate(s, shape->floats)) {
        pj_cpu_close(s);
        return pj_fail(err, PJ_E_NO_MEMORY,
                       "there is not enough memory for a context of %u tokens in %u sequence%s",
                       o->context, o->sequences, o->sequences == 1 ? "" : "s");
    }
    if (s->instrument->statistics) pj_stats_timer_start();
    *state = s;
    return PJ_OK;
}

void pj_cpu_close(void *state)
{
    pj_cpu *s = state;
    /* the rest of the team does an equal share in the meantime, or spins */
    if (s->block && s->instrument->statistics)
        pj_statistics_time(s->instrument->lane,
                           pj_stats_timer_stop() * (int64_t)pj_team_threads(s->team));
    pj_pages_free(s->kv, s->kv_bytes);
    pj_pages_free(s->block, s->block_bytes);
    pj_free(s->kv_offset);
    pj_free(s->delta_offset);
    pj_free(s->index_offset);
    pj_free(s->kv_row_bytes);
    pj_free(s);
}

static bool windowed(const pj_cpu *s, uint32_t layer)
{
    return s->model->layers[layer].window != UINT32_MAX;
}

/* Row 0 of a head's keys or values. */
static unsigned char *kv_start(const pj_cpu *s, uint32_t layer, uint32_t sequence, uint32_t which,
                               uint32_t head)
{
    const pj_layer *l = &s->model->layers[layer];
    size_t slots = windowed(s, layer) ? s->window_slots : s->full_slots;
    size_t run = ((size_t)sequence * pj_kv_planes(l) + which) * l->kv_heads + head;
    return s->kv + s->kv_offset[layer] + run * slots * s->kv_row_bytes[layer];
}

pj_kv_rows pj_cpu_kv(const pj_cpu *s, uint32_t layer, uint32_t sequence, uint32_t which,
                     uint32_t head, uint32_t first)
{
    uint32_t slot = first - (windowed(s, layer) ? s->rows.sequences[sequence].base : 0);
    size_t row_bytes = s->kv_row_bytes[layer];
    return (pj_kv_rows){kv_start(s, layer, sequence, which, head) + slot * row_bytes, row_bytes,
                        s->options.kv_type};
}

pj_kv_rows pj_cpu_index_keys(const pj_cpu *s, uint32_t layer, uint32_t sequence)
{
    size_t row_bytes = pj_dtype_row_bytes(s->options.kv_type, s->model->layers[layer].indexer->dim);
    size_t first = (size_t)sequence * s->full_slots;
    return (pj_kv_rows){s->kv + s->index_offset[layer] + first * row_bytes, row_bytes,
                        s->options.kv_type};
}

float *pj_cpu_delta(const pj_cpu *s, uint32_t layer, uint32_t sequence)
{
    size_t floats = pj_delta_state_floats(s->model->layers[layer].delta);
    return (float *)(void *)(s->kv + s->delta_offset[layer]) + sequence * delta_copies(s) * floats;
}

float *pj_cpu_delta_after(const pj_cpu *s, uint32_t layer, const pj_pass_segment *segment,
                          uint32_t row)
{
    if (!s->options.rewind || segment->count > s->options.rewind + 1) return NULL;
    return pj_cpu_delta(s, layer, segment->sequence) +
           (1 + (size_t)row) * pj_delta_state_floats(s->model->layers[layer].delta);
}

void pj_cpu_rewind(void *state, uint32_t sequence, uint32_t row)
{
    const pj_cpu *s = state;
    const pj_pass_segment last = {.sequence = sequence, .count = 1};
    for (uint32_t i = 0; i < s->model->config.layers; i++) {
        const struct pj_delta *d = s->model->layers[i].delta;
        if (d)
            memcpy(pj_cpu_delta(s, i, sequence), pj_cpu_delta_after(s, i, &last, row),
                   pj_delta_state_floats(d) * sizeof(float));
    }
}

void pj_cpu_reset(void *state, uint32_t sequence)
{
    const pj_cpu *s = state;
    for (uint32_t i = 0; i < s->model->config.layers; i++)
        if (s->model->layers[i].delta)
            memset(pj_cpu_delta(s, i, sequence), 0,
                   pj_delta_state_floats(s->model->layers[i].delta) * sizeof(float));
}

void pj_cpu_slide(void *state, uint32_t sequence, uint32_t from, uint32_t count)
{
    const pj_cpu *s = state;
    for (uint32_t layer = 0; layer < s->model->config.layers; layer++) {
        const pj_layer *l = &s->model->layers[layer];
        if (!windowed(s, layer) || !pj_layer_has_keys(l)) continue;
        size_t row_bytes = s->kv_row_bytes[layer];
        for (uint32_t which = 0; which < pj_kv_planes(l); which++)
            for (uint32_t head = 0; head < l->kv_heads; head++) {
                unsigned char *rows = kv_start(s, layer, sequence, which, head);
                memmove(rows, rows + from * row_bytes, count * row_bytes);
            }
    }
}
