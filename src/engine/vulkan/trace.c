/* What a pass dispatches, by the arguments of the kernels. */
#include "engine/vulkan/trace.h"

#include "base/memory.h"
#include "engine/forward/compute.h"

#include <math.h>

static double trace_product(const pj_vk_product_constants *k, const pj_vk_product_args *a)
{
    double rows = a->parts[0].rows;
    if (k->output == PJ_VK_OUTPUT_STORE) rows += (double)a->parts[1].rows + a->parts[2].rows;
    if (k->output == PJ_VK_OUTPUT_GATE) rows *= 2;
    return 2.0 * rows * a->cols * a->tokens;
}

/* Every key is multiplied with the query heads of its group, every value added to their sums. */
static double trace_attention(const pj_vk_attention_args *a, double bytes,
                              const pj_vk_attention_constants *k)
{
    double stored = a->keys == a->values ? 1 : 2; /* rows of a position */
    return 2.0 * (k->dim + k->value_dim) * a->heads * bytes / (stored * a->row_bytes * a->kv_heads);
}

/* Every key is multiplied with all query heads. */
static double trace_index(const pj_vk_index_scores_args *a, double bytes,
                          const pj_vk_index_scores_constants *k)
{
    return (2.0 * k->dim + 3) * a->heads * bytes / a->row_bytes;
}

/* A few operations per value where nothing is multiplied by matrices. */
static double trace_flops(const pj_gpu_call *c)
{
    const pj_vk_product_experts_args *e = c->args;
    const pj_vk_product_tiled_args *t = c->args;
    switch (c->kernel) {
    case PJ_VK_PRODUCT:
    case PJ_VK_PRODUCT_PACKED: return trace_product(c->constants, c->args);
    case PJ_VK_PRODUCT_EXPERTS:
    case PJ_VK_PRODUCT_EXPERTS_PACKED:
        return 2.0 * e->rows * e->cols * c->y *
               (((const pj_vk_product_experts_constants *)c->constants)->output ==
                        PJ_VK_EXPERTS_GATE
                    ? 2
                    : 1);
    case PJ_VK_PRODUCT_TILED:
    case PJ_VK_PRODUCT_MATRIX:
    case PJ_VK_PRODUCT_MATRIX_PLAIN: return 2.0 * t->rows * t->cols * t->tokens;
    case PJ_VK_ATTENTION: return trace_attention(c->args, (double)c->work, c->constants);
    case PJ_VK_INDEX_SCORES: return trace_index(c->args, (double)c->work, c->constants);
    default: return (double)c->work / 4;
    }
}

static void trace_note(pj_gpu *s, const pj_gpu_call *call)
{
    pj_gpu_trace *trace = s->on->trace;
    if (trace->count == trace->most) return;
    trace->list[trace->count++] = (pj_gpu_dispatched){.kernel = pj_vk_kernels[call->kernel].name,
                                                      .bytes = (double)call->work,
                                                      .flops = trace_flops(call),
                                                      .seconds = NAN};
    if (s->dry) return;
    pj_vk_barrier(s->vk);
    pj_vk_stamp(s->vk);
}

/* ---- passes ---- */

static pj_status trace_read_times(pj_vk *vk, pj_gpu_trace *trace, pj_error *err)
{
    uint32_t stamps = trace->count + 1;
    if (pj_vk_stamps(vk) != stamps)
        return pj_fail(err, PJ_E_INTERNAL, "the pass has too many dispatches to time");
    int64_t *ns = pj_alloc(stamps, sizeof *ns);
    if (!ns) return pj_fail_memory(err, "times of dispatches");
    pj_status status = pj_vk_stamps_read(vk, 0, stamps, ns, err);
    for (uint32_t i = 0; i < trace->count && status == PJ_OK; i++)
        trace->list[i].seconds = (double)(ns[i + 1] - ns[i]) / 1e9;
    pj_free(ns);
    return status;
}

static pj_status trace_pass(pj_compute *c, pj_pass_segment *segments, int32_t *ids, uint32_t before,
                            pj_gpu_trace *trace, pj_error *err)
{
    pj_gpu_model *m = c->loaded->device;
    uint32_t rows = c->options.sequences, last = rows - 1;
    for (uint32_t i = 0; i < rows; i++) {
        segments[i] = (pj_pass_segment){.sequence = i, .row = i, .count = 1};
        c->sequences[i].length = before;
    }
    pj_pass pass = {.ids = ids,
                    .tokens = rows,
                    .segments = segments,
                    .segment_count = rows,
                    .logit_rows = &last,
                    .logit_count = 1,
                    .greedy = true};
    pj_status status = m->dry ? PJ_OK : pj_vk_clock_update(m->vk, 0, err);
    if (status != PJ_OK) return status;
    pj_vk_stamps_clear(m->vk);
    if (!m->dry) pj_vk_stamp(m->vk);
    trace->count = 0;
    m->trace = trace;
    m->note = trace_note;
    status = pj_compute_forward(c, &pass);
    m->note = NULL;
    if (status == PJ_OK && !m->dry) status = trace_read_times(m->vk, trace, err);
    pj_vk_stamps_clear(m->vk);
    return status;
}

pj_status pj_gpu_trace_decode(pj_gpu_model *m, pj_dtype kv_type, uint32_t sequences,
                              uint32_t before, pj_gpu_trace *trace, pj_error *err)
{
    pj_loaded loaded = {.backend = m->backend, .model = m->model, .device = m};
    pj_state_options options = {.sequences = sequences,
                                .context = before + 2,
                                .max_tokens = sequences,
                                .max_logits = 1,
                                .kv_type = kv_type};
    pj_compute compute = {0};
    pj_instrument *silent = pj_alloc(1, sizeof *silent);
    pj_pass_segment *segments = pj_alloc(sequences, sizeof *segments);
    int32_t *ids = pj_alloc(sequences, sizeof *ids);
    pj_status status = silent && segments && ids ? PJ_OK : pj_fail_memory(err, "a pass");
    if (status == PJ_OK) status = pj_compute_open(&compute, &loaded, &options, silent, err);
    /* the second pass finds its pipelines compiled and memory mapped */
    for (int i = 0; i < 2 && status == PJ_OK; i++)
        status = trace_pass(&compute, segments, ids, before, trace, err);
    pj_compute_close(&compute);
    pj_free(silent);
    pj_free(segments);
    pj_free(ids);
    return status;
}

/* ---- outlines ---- */

pj_status pj_gpu_outline_open(const pj_model *model, bool packs, pj_gpu_model **m, pj_error *err)
{
    uint32_t layers = model->config.layers;
    pj_gpu_model *made = pj_alloc(1, sizeof *made);
    *m = NULL;
    if (!made) return pj_fail_memory(err, "the engine");
    *made = (pj_gpu_model){.model = model,
                           .packs = packs,
                           .many = PJ_VK_PRODUCT_TILED,
                           .dry = true,
                           .backend = &pj_backend_vulkan};
    made->weights.experts = pj_alloc(layers, sizeof *made->weights.experts);
    pj_status status = made->weights.experts ? pj_vk_open(&made->vk, &(pj_vk_options){0}, err)
                                             : pj_fail_memory(err, "tables of experts");
    if (status == PJ_OK)
        *m = made;
    else
        pj_gpu_outline_close(made);
    return status;
}

void pj_gpu_outline_close(pj_gpu_model *m)
{
    if (!m) return;
    pj_vk_close(m->vk);
    pj_free(m->weights.experts);
    pj_free(m);
}
