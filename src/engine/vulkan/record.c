/*
 * Spans of what the device computes. During a pass, beginnings and ends are noted with the number
 * of a timestamp, and statistics of outputs are summed on the device, as are the figures of
 * figures.c. After it, when the device is done, the spans are added to the run with their times on
 * the host's clock. A timestamp waits for nothing that would not be waited for anyway, and products
 * that may overlap are timed as one component, except at depth deep. Statistics are computed after
 * the end of the span that they describe.
 */
#include "engine/vulkan/gpu.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum {
    RECORD_THREADS = 128,
    RECORD_VALUES = 8 * RECORD_THREADS, /* of a part, at least */
    RECORD_MOST_PARTS = 8,              /* in each direction */
    RECORD_RESULTS = 16 << 20           /* bytes of a pass */
};

/* A time between what was recorded before and what follows. Ends and beginnings without work in
 * between share one. */
static uint32_t record_stamp(pj_gpu *s)
{
    if (!s->reads && !s->writes && s->record.span_count) return s->record.last_stamp;
    pj_vk_barrier(s->vk);
    s->reads = s->writes = 0;
    s->record.last_stamp = pj_vk_stamp(s->vk);
    return s->record.last_stamp;
}

static void record_begin_span(pj_gpu *s, pj_span_kind kind, uint32_t id)
{
    pj_gpu_record *r = &s->record;
    if (!r->device) return;
    if (r->span_count == PJ_GPU_SPANS) {
        r->left_out++;
        r->overflows = true;
        return;
    }
    uint32_t stamp = record_stamp(s);
    r->spans[r->span_count++] = (pj_gpu_span){
        .kind = kind, .id = id, .parent = r->open, .begin = stamp, .flops = NAN, .bytes = NAN};
    r->open = r->span_count;
}

/* Whether the innermost open span contains the one that ended last. */
static bool record_has_ended_child(const pj_gpu_record *r)
{
    return r->ended && r->spans[r->ended - 1].parent == r->open;
}

/* `with_last`: where the last span in it ended. NULL: none is open, or it was left out. */
static pj_gpu_span *record_end_span(pj_gpu *s, bool with_last)
{
    pj_gpu_record *r = &s->record;
    if (!r->device || !r->open) return NULL;
    if (r->left_out) {
        r->left_out--;
        r->ended = 0;
        return NULL;
    }
    pj_gpu_span *span = &r->spans[r->open - 1];
    bool shared = with_last && record_has_ended_child(r);
    span->end = shared ? r->spans[r->ended - 1].end : record_stamp(s);
    r->ended = r->open;
    r->open = span->parent;
    return span;
}

void pj_gpu_section(void *state, pj_instrument_name name)
{
    const pj_gpu *s = state;
    record_begin_span(state, PJ_SPAN_SECTION, s->instrument->names[name]);
}

void pj_gpu_end_section(void *state)
{
    record_end_span(state, false);
}

void pj_gpu_layer(void *state, uint32_t layer)
{
    record_begin_span(state, PJ_SPAN_LAYER, layer);
}

void pj_gpu_begin_component(pj_gpu *s, uint32_t id)
{
    s->record.summed = 0;
    if (s->routing.rows) pj_gpu_route_figures(s);
    record_begin_span(s, PJ_SPAN_COMPONENT, id);
}

void pj_gpu_component(void *state, pj_instrument_name name)
{
    pj_gpu *s = state;
    pj_gpu_begin_component(s, s->instrument->names[name]);
}

void pj_gpu_widen_component(pj_gpu *s, uint32_t id, double flops, double bytes)
{
    pj_gpu_record *r = &s->record;
    if (!r->device || !r->open || r->left_out) return;
    r->spans[r->open - 1].id = id;
    r->more_flops = flops;
    r->more_bytes = bytes;
}

/* The component of a step that was held back was begun and nothing recorded in it. */
static void record_drop_span(pj_gpu *s)
{
    pj_gpu_record *r = &s->record;
    if (!r->device || !r->open) return;
    if (r->left_out)
        r->left_out--;
    else
        r->open = r->spans[--r->span_count].parent;
}

/* ---- statistics ---- */

static uint32_t record_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static pj_vk_statistics_constants record_constants(void)
{
    return (pj_vk_statistics_constants){RECORD_THREADS, 0};
}

void pj_gpu_record_prepare(pj_gpu *s)
{
    pj_vk_statistics_constants constants = record_constants();
    if (s->instrument->statistics)
        PJ_GPU_RUN(s, PJ_VK_STATISTICS, &constants, &(pj_vk_statistics_args){0}, 0, 0, 0);
}

/* Sums of a span's output, by parts. */
static void record_sum_output(pj_gpu *s, pj_gpu_span *span, uint64_t address, uint32_t touched,
                              pj_slice out)
{
    uint32_t across = record_smaller(pj_gpu_groups(out.cols, RECORD_VALUES), RECORD_MOST_PARTS);
    uint32_t down = record_smaller(out.rows, RECORD_MOST_PARTS), parts = across * down;
    uint64_t at = pj_gpu_results(s, parts * sizeof(pj_vk_value_sums));
    if (at == PJ_GPU_NO_RESULTS) return;
    pj_vk_statistics_constants constants = record_constants();
    pj_vk_statistics_args args = {.x = address,
                                  .parts = s->record.results.address + at,
                                  .rows = out.rows,
                                  .cols = out.cols,
                                  .stride = out.stride,
                                  .step = (uint32_t)pj_instrument_step(s->instrument, out.rows),
                                  .tau = PJ_SPARSITY_TAU};
    pj_gpu_touch(s, touched, 0);
    PJ_GPU_RUN(s, PJ_VK_STATISTICS, &constants, &args, across, down, 4ull * out.rows * out.cols);
    span->sums = at;
    span->parts = parts;
    span->out = out;
}

/* The last operation's output is often its component's too. */
static bool record_reuse_sums(pj_gpu_record *r, pj_gpu_span *span, pj_slice out)
{
    const pj_gpu_span *before = r->summed ? &r->spans[r->summed - 1] : NULL;
    if (!before || memcmp(&before->out, &out, sizeof out) != 0) return false;
    span->sums = before->sums;
    span->parts = before->parts;
    span->out = out;
    return true;
}

static void record_output(pj_gpu *s, pj_gpu_span *span, pj_slice out)
{
    pj_gpu_record *r = &s->record;
    if (!s->instrument->statistics || !out.buffer || out.rows == 0) return;
    if (span->kind != PJ_SPAN_OPERATION && record_reuse_sums(r, span, out)) return;
    record_sum_output(s, span, pj_gpu_at(s, out), pj_gpu_bit(out), out);
    r->summed = span->parts ? r->ended : 0;
}

static pj_value_sums record_total(const pj_vk_value_sums *parts, uint32_t count)
{
    pj_value_sums all = {0};
    for (uint32_t i = 0; i < count; i++) {
        const pj_vk_value_sums *p = &parts[i];
        pj_value_sums_add(&all, &(pj_value_sums){.sum = (double)p->sum,
                                                 .sum_abs = (double)p->sum_abs,
                                                 .sum_square = (double)p->sum_square,
                                                 .count = p->count,
                                                 .skipped = p->skipped,
                                                 .below = p->below,
                                                 .max_abs = p->max_abs,
                                                 .nan = p->nan,
                                                 .inf = p->inf});
    }
    return all;
}

void pj_gpu_end(void *state, const pj_done *done)
{
    pj_gpu *s = state;
    pj_gpu_record *r = &s->record;
    if (s->held.joins) {
        s->held.joins = false;
        s->held.flops += done->flops;
        s->held.bytes += done->bytes;
        record_drop_span(s);
        return;
    }
    pj_gpu_span *span = record_end_span(s, done->with_last && s->instrument->deep);
    if (!span) return;
    span->flops = done->flops + r->more_flops;
    span->bytes = done->bytes + r->more_bytes;
    r->more_flops = r->more_bytes = 0;
    record_output(s, span, done->out);
}

void pj_gpu_operation(pj_gpu *s, pj_instrument_name name)
{
    if (s->instrument->deep) record_begin_span(s, PJ_SPAN_OPERATION, s->instrument->names[name]);
}

void pj_gpu_operation_end(pj_gpu *s, double flops, double bytes, pj_slice out)
{
    if (s->instrument->deep) pj_gpu_end(s, &(pj_done){.flops = flops, .bytes = bytes, .out = out});
}

void pj_gpu_operation_output(pj_gpu *s, uint64_t address, uint32_t touched, pj_slice out)
{
    pj_gpu_record *r = &s->record;
    if (s->instrument->deep && s->instrument->statistics && r->ended && out.rows)
        record_sum_output(s, &r->spans[r->ended - 1], address, touched, out);
}

/* ---- after the pass ---- */

/* Statistics, and how many rows they are of if not of all. */
static void record_fill_statistics(const pj_gpu *s, const pj_gpu_span *span, pj_work *work,
                                   pj_stats *stats)
{
    const pj_gpu_record *r = &s->record;
    const char *results = r->results.mapped;
    pj_value_sums sums = record_total((const void *)(results + span->sums), span->parts);
    uint64_t sampled = span->out.cols ? sums.count / span->out.cols : 0;
    *stats = pj_stats_of_sums(&sums);
    work->stats = stats;
    if (sampled != span->out.rows)
        pj_gpu_extra(s, work, PJ_N_X_STATISTICS_ROWS, PJ_EXTRA_SCALAR, (double)sampled);
}

static void record_fill(pj_gpu *s, uint32_t index)
{
    pj_gpu_record *r = &s->record;
    const pj_gpu_span *span = &r->spans[index];
    pj_work *work = &r->works[index];
    *work =
        (pj_work){.flops = span->flops, .bytes = span->bytes, .extras = r->extras + r->extra_count};
    if (span->parts) record_fill_statistics(s, span, work, &r->stats[index]);
    if (span->figures) pj_gpu_figures_read(s, &r->figures[span->figures - 1], work);
    r->extra_count += work->extra_count;
    r->done[index] = (pj_device_span){.begin_ns = r->stamp_ns[span->begin],
                                      .end_ns = r->stamp_ns[span->end],
                                      .kind = span->kind,
                                      .id = span->id,
                                      .layer = -1,
                                      .parent = span->parent,
                                      .work = work};
}

/* Spans that too many stamps left without a time end the list. */
static uint32_t record_timed(const pj_gpu_record *r)
{
    uint32_t count = 0;
    while (count < r->span_count && r->spans[count].begin != UINT32_MAX &&
           r->spans[count].end != UINT32_MAX)
        count++;
    return count;
}

pj_status pj_gpu_record_pass(pj_gpu *s, pj_error *err)
{
    pj_gpu_record *r = &s->record;
    if (!r->device) return PJ_OK;
    if (r->overflows)
        return pj_fail(err, PJ_E_FULL,
                       "%s: a pass has more than %d spans: record it at a lower depth",
                       pj_vk_device(s->vk)->name, PJ_GPU_SPANS);
    uint32_t count = record_timed(r), stamps = pj_vk_stamps(s->vk);
    pj_status status = count ? pj_vk_stamps_read(s->vk, 0, stamps, r->stamp_ns, err) : PJ_OK;
    if (!count || status != PJ_OK) return status;
    for (uint32_t i = 0; i < count; i++) record_fill(s, i);
    pj_device_batch batch = {.size = sizeof batch,
                             .launch = &r->launch,
                             .spans = r->done,
                             .span_count = count,
                             .clock_error_ns = (int64_t)pj_vk_clock_error_ns(s->vk)};
    pj_device_spans_add(s->instrument->run, r->device, &batch, NULL);
    s->instrument->ended_ns = 0; /* the host's next span begins now */
    return PJ_OK;
}

void pj_gpu_record_begin(pj_gpu *s)
{
    pj_gpu_record *r = &s->record;
    if (!r->device) return;
    pj_vk_stamps_clear(s->vk);
    pj_device_launch(s->instrument->lane, &r->launch);
    r->span_count = r->open = r->ended = r->left_out = r->summed = 0;
    r->overflows = false;
    r->results_used = 0;
    r->extra_count = r->figure_count = r->sampled_rows = 0;
}

/* ---- opening ---- */

static pj_status record_declare(pj_gpu *s, pj_error *err)
{
    const pj_vk_info *info = pj_vk_device(s->vk);
    char uuid[33], pci[24] = "";
    for (int i = 0; i < 16; i++) snprintf(uuid + 2 * i, 3, "%02x", info->uuid[i]);
    if (info->has_pci)
        snprintf(pci, sizeof pci, "%04x:%02x:%02x.%x", info->pci_domain, info->pci_bus,
                 info->pci_device, info->pci_function);
    pj_device_info device = {.size = sizeof device,
                             .name = info->name,
                             /* software runs on the CPU, whose rail measures it */
                             .kind = pj_vk_is_hardware(info) ? "gpu" : "cpu",
                             .uuid = info->uuid_is_shared ? NULL : uuid,
                             .pci = pci[0] ? pci : NULL,
                             .driver = info->driver,
                             .memory_bytes = info->memory_bytes};
    return pj_device_declare(s->instrument->run, &device, &s->record.device, err);
}

static pj_status record_allocate(pj_gpu *s, pj_error *err)
{
    pj_gpu_record *r = &s->record;
    r->spans = pj_alloc(PJ_GPU_SPANS, sizeof *r->spans);
    r->stamp_ns = pj_alloc(PJ_VK_MAX_STAMPS, sizeof *r->stamp_ns);
    r->done = pj_alloc(PJ_GPU_SPANS, sizeof *r->done);
    r->works = pj_alloc(PJ_GPU_SPANS, sizeof *r->works);
    r->stats = pj_alloc(PJ_GPU_SPANS, sizeof *r->stats);
    r->extras = pj_alloc(PJ_GPU_EXTRAS, sizeof *r->extras);
    r->figures = pj_alloc(PJ_GPU_SPANS, sizeof *r->figures);
    if (!r->spans || !r->stamp_ns || !r->done || !r->works || !r->stats || !r->extras ||
        !r->figures)
        return pj_fail_memory(err, "spans of the device");
    if (!s->instrument->module) return PJ_OK;
    return pj_vk_buffer_make(s->vk, PJ_VK_READBACK, RECORD_RESULTS, "statistics", &r->results, err);
}

/* A device without a clock computes all the same. */
pj_status pj_gpu_record_open(pj_gpu *s, pj_error *err)
{
    if (!s->instrument->lane || pj_vk_clock_update(s->vk, 0, NULL) != PJ_OK) return PJ_OK;
    pj_status status = record_allocate(s, err);
    if (status == PJ_OK) pj_gpu_declare_groups(s);
    return status == PJ_OK ? record_declare(s, err) : status;
}

void pj_gpu_record_close(pj_gpu *s)
{
    pj_gpu_record *r = &s->record;
    pj_vk_buffer_free(s->vk, &r->results);
    pj_free(r->spans);
    pj_free(r->stamp_ns);
    pj_free(r->done);
    pj_free(r->works);
    pj_free(r->stats);
    pj_free(r->extras);
    pj_free(r->figures);
}
