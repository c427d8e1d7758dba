/* Layers with a recurrent state, and greedy choices. */
#include "engine/model/delta.h"
#include "engine/vulkan/gpu.h"

enum { DELTA_THREADS = 128, DELTA_PARTS = 4 };

static uint64_t delta_segments(const pj_gpu *s)
{
    return s->inputs.device.address + s->inputs.segments;
}

/* Passes that may be rolled back keep the state after each of their rows. */
static uint64_t delta_kept_bytes(const pj_gpu *s, const struct pj_delta *d)
{
    const pj_pass *pass = s->rows.pass;
    for (uint32_t i = 0; i < pass->segment_count; i++)
        if (pass->segments[i].count > s->options.rewind + 1) return 0;
    return s->options.rewind ? 4 * pj_delta_state_floats(d) : 0;
}

void pj_gpu_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y)
{
    pj_gpu *s = state;
    const struct pj_delta *d = layer->delta;
    uint32_t channels = (uint32_t)pj_delta_channels(d);
    pj_vk_convolve_constants constants = {DELTA_THREADS, d->kernel,
                                          d->kind == PJ_SHORT_CONVOLUTION};
    pj_vk_convolve_args args = {.x = pj_gpu_at(s, x),
                                .y = pj_gpu_at(s, y),
                                .weights = pj_gpu_weight(&s->on->weights, d->conv),
                                .bias = pj_gpu_weight(&s->on->weights, d->conv_bias),
                                .state = pj_gpu_recurrent_at(s, layer->index),
                                .sequence_bytes = pj_gpu_recurrent_bytes(s, layer),
                                .segments = delta_segments(s),
                                .kept_bytes = delta_kept_bytes(s, d),
                                .channels = channels,
                                .x_stride = x.stride,
                                .y_stride = y.stride};
    pj_gpu_touch(s, pj_gpu_bit(x) | PJ_GPU_BIT(PJ_GPU_CACHE) | PJ_GPU_BIT(PJ_GPU_IDS),
                 pj_gpu_bit(y) | PJ_GPU_BIT(PJ_GPU_CACHE));
    PJ_GPU_RUN(s, PJ_VK_CONVOLVE, &constants, &args, pj_gpu_groups(channels, DELTA_THREADS),
               s->rows.pass->segment_count, 8ull * y.rows * channels);
}

/* The matrices follow the convolution's last inputs. */
void pj_gpu_delta_rule(void *state, const pj_layer *layer, pj_slice qkv, pj_slice strength,
                       pj_slice y)
{
    pj_gpu *s = state;
    const struct pj_delta *d = layer->delta;
    const pj_gpu_weights *w = &s->on->weights;
    pj_vk_delta_rule_constants constants = {DELTA_THREADS, d->key_dim, DELTA_PARTS, d->tiled,
                                            d->kind == PJ_SCAN};
    pj_vk_delta_rule_args args = {.qkv = pj_gpu_at(s, qkv),
                                  .strength = pj_gpu_at(s, strength),
                                  .y = pj_gpu_at(s, y),
                                  .rate = pj_gpu_weight(w, d->rate),
                                  .bias = pj_gpu_weight(w, d->bias),
                                  .state = pj_gpu_recurrent_at(s, layer->index) +
                                           4 * (d->kernel - 1) * pj_delta_channels(d),
                                  .sequence_bytes = pj_gpu_recurrent_bytes(s, layer),
                                  .segments = delta_segments(s),
                                  .kept_bytes = delta_kept_bytes(s, d),
                                  .skip = pj_gpu_weight(w, d->skip),
                                  .key_heads = d->key_heads,
                                  .value_heads = d->value_heads,
                                  .value_dim = d->value_dim,
                                  .qkv_stride = qkv.stride,
                                  .strength_stride = strength.stride,
                                  .y_stride = y.stride,
                                  .least_step = d->least_step,
                                  .most_step = d->most_step};
    pj_gpu_touch(s,
                 pj_gpu_bit(qkv) | pj_gpu_bit(strength) | PJ_GPU_BIT(PJ_GPU_CACHE) |
                     PJ_GPU_BIT(PJ_GPU_IDS),
                 pj_gpu_bit(y) | PJ_GPU_BIT(PJ_GPU_CACHE));
    pj_gpu_run_3d(s, PJ_VK_DELTA_RULE, &constants, sizeof constants, &args,
                  pj_gpu_groups(d->value_dim, DELTA_THREADS / DELTA_PARTS), d->value_heads,
                  s->rows.pass->segment_count, 8ull * y.rows * y.cols * d->key_dim);
}

/* y = rmsnorm(x) by `parts` of a row, each with its own weights or all with the same; times silu of
 * the gate if there is one. */
static void delta_norm(pj_gpu *s, const struct pj_delta *d, uint32_t parts, pj_slice x, pj_slice y,
                       pj_slice gate)
{
    uint32_t n = y.cols / parts;
    pj_vk_norm_constants constants = {DELTA_THREADS, PJ_VK_NORM_RMS,
                                      gate.buffer ? PJ_VK_NORM_GATED : PJ_VK_NORM_STORE,
                                      (float)s->model->config.norm_eps, 1};
    pj_vk_norm_args args = {.x = pj_gpu_at(s, x),
                            .y = pj_gpu_at(s, y),
                            .weight = pj_gpu_weight(&s->on->weights, d->norm),
                            .other = pj_gpu_at(s, gate),
                            .rows = y.rows * parts,
                            .n = n,
                            .per_token = parts,
                            .x_stride = x.stride,
                            .y_stride = y.stride,
                            .other_stride = gate.stride,
                            .weight_step = d->kind == PJ_SCAN ? n : 0};
    pj_gpu_touch(s, pj_gpu_bit(x) | pj_gpu_bit(gate), pj_gpu_bit(y));
    PJ_GPU_RUN(s, PJ_VK_NORM, &constants, &args, args.rows < 65535 ? args.rows : 65535, 1,
               12ull * y.rows * y.cols);
}

void pj_gpu_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate)
{
    pj_gpu *s = state;
    const struct pj_delta *d = layer->delta;
    bool scan = d->kind == PJ_SCAN, gate_first = scan && !d->norm_first;
    pj_slice gated = d->norm ? gate : y;
    if (gate_first || !d->norm)
        pj_gpu_run_rows(s, PJ_VK_ROWS_GATE, PJ_VK_GATE_SILU, gate, gated, y, 1, 0, 1);
    if (d->norm)
        delta_norm(s, d, scan ? d->norm_groups : d->value_heads, gate_first ? gate : y, y,
                   gate_first ? pj_no_slice : gate);
}

/* ---- greedy choices ---- */

/* In two steps: parts of each row, then the best of them. */
void pj_gpu_argmax(void *state, pj_slice x)
{
    enum { VALUES = 16 * DELTA_THREADS }; /* of a part, at least */
    pj_gpu *s = state;
    uint32_t parts = pj_gpu_groups(x.cols, VALUES);
    if (parts > PJ_GPU_MOST_PARTS) parts = PJ_GPU_MOST_PARTS;
    pj_vk_argmax_constants constants = {DELTA_THREADS, 0};
    pj_vk_argmax_args args = {.x = pj_gpu_at(s, x),
                              .ids = s->ids.address,
                              .found = s->found.address,
                              .rows = x.rows,
                              .n = x.cols,
                              .x_stride = x.stride,
                              .parts = parts};
    pj_gpu_touch(s, pj_gpu_bit(x), PJ_GPU_BIT(PJ_GPU_SCRATCH));
    PJ_GPU_RUN(s, PJ_VK_ARGMAX, &constants, &args, parts, x.rows, 4ull * x.rows * x.cols);
    constants.last = 1;
    pj_gpu_touch(s, PJ_GPU_BIT(PJ_GPU_SCRATCH), PJ_GPU_BIT(PJ_GPU_SCRATCH));
    PJ_GPU_RUN(s, PJ_VK_ARGMAX, &constants, &args, 1, x.rows, 8ull * x.rows * parts);
}
