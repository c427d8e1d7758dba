/*
 * Spans with explicit times, many in one call. They are sorted by their begin and replayed, the
 * host's on the caller's lane, a device's on the device's, so that they nest by their times and
 * reach the spool like all others. The host's come first: they tell where the devices' were
 * launched.
 */
#include "trace/lane.h"

#include "base/sized.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BATCH = 1 << 24 };

typedef struct item {
    int64_t begin_ns, end_ns;
    uint32_t index;
    uint16_t kind, device; /* as in pj_packed_span */
} item;

typedef struct open_item {
    int64_t end_ns;
    uint32_t index;
    uint16_t kind;
    int32_t layer_before;
} open_item;

typedef struct replay {
    pj_lane *lane;
    const pj_span_batch *batch;
    uint16_t device;          /* whose spans are replayed */
    pj_launch_place *places;  /* of every item of a device: where it was launched */
    pj_launch_place launched; /* where the last outermost span was */
    open_item open[PJ_MAX_OPEN_SPANS];
    uint32_t depth;
    int64_t patience_ns;
} replay;

/* ---- checks -------------------------------------------------------------------------------- */

static pj_status check_span(const pj_span_batch *b, size_t i, pj_error *err)
{
    const pj_packed_span *s = &b->spans[i];
    if (s->kind >= PJ_SPAN_KIND_COUNT)
        return pj_fail(err, PJ_E_INVALID, "span %zu has the invalid kind %u", i, s->kind);
    if (s->kind == PJ_SPAN_PHASE && s->id >= (uint32_t)PJ_PHASE_COUNT)
        return pj_fail(err, PJ_E_INVALID, "span %zu has the invalid phase %u", i, s->id);
    if (s->end_ns < s->begin_ns)
        return pj_fail(err, PJ_E_INVALID, "span %zu ends at %lld ns, before it begins at %lld ns",
                       i, (long long)s->end_ns, (long long)s->begin_ns);
    if (s->layer > INT16_MAX)
        return pj_fail(err, PJ_E_INVALID, "span %zu is in layer %d, which is out of range", i,
                       s->layer);
    if (s->detail > b->detail_count)
        return pj_fail(err, PJ_E_INVALID, "span %zu has detail %u of %zu", i, s->detail,
                       b->detail_count);
    if (s->device > b->device_count)
        return pj_fail(err, PJ_E_INVALID, "span %zu has device %u of %zu", i, s->device,
                       b->device_count);
    if (s->device && (s->kind == PJ_SPAN_PHASE || s->kind == PJ_SPAN_TOKEN))
        return pj_fail(err, PJ_E_INVALID,
                       "span %zu is a %s of a device: phases and tokens are the host's", i,
                       s->kind == PJ_SPAN_PHASE ? "phase" : "token");
    return PJ_OK;
}

static pj_status check_devices(const pj_recorder *recorder, const pj_span_batch *b, pj_error *err)
{
    for (size_t i = 0; i < b->device_count; i++) {
        const pj_packed_device *d = &b->devices[i];
        if (d->device == PJ_HOST || d->device >= atomic_load(&recorder->device_count))
            return pj_fail(err, PJ_E_INVALID, "the run has no device %u: declare it first",
                           d->device);
        if (d->clock_error_ns < 0)
            return pj_fail(err, PJ_E_INVALID, "the clock error of device %u is %lld ns", d->device,
                           (long long)d->clock_error_ns);
    }
    return PJ_OK;
}

static pj_status check_texts(const pj_span_batch *b, pj_error *err)
{
    for (size_t i = 0; i < b->text_count; i++) {
        if (b->texts[i].span >= b->span_count)
            return pj_fail(err, PJ_E_INVALID, "text %zu refers to span %u of %zu", i,
                           b->texts[i].span, b->span_count);
        if (i && b->texts[i].span < b->texts[i - 1].span)
            return pj_fail(err, PJ_E_INVALID, "texts are not in the order of their spans");
    }
    return PJ_OK;
}

static pj_status check_batch(const pj_recorder *recorder, const pj_span_batch *b, pj_error *err)
{
    if (b->device_count >= PJ_MAX_DEVICES)
        return pj_fail(err, PJ_E_INVALID, "more than %d devices in one call", PJ_MAX_DEVICES - 1);
    if (b->span_count > MAX_BATCH || b->text_count > MAX_BATCH || b->detail_count > MAX_BATCH)
        return pj_fail(err, PJ_E_INVALID, "more than %d spans in one call", MAX_BATCH);
    if ((b->span_count && !b->spans) || (b->text_count && !b->texts) ||
        (b->detail_count && !b->details) || (b->device_count && !b->devices))
        return pj_fail(err, PJ_E_INVALID, "an array of the batch is NULL");
    pj_status status = check_devices(recorder, b, err);
    if (status == PJ_OK) status = check_texts(b, err);
    for (size_t i = 0; i < b->span_count && status == PJ_OK; i++) status = check_span(b, i, err);
    return status;
}

/* ---- order --------------------------------------------------------------------------------- */

/* Orders outer spans before inner ones: by begin, then longer first, the host's first, then coarser
 * first. */
static int by_nesting(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    if (!x->device != !y->device) return x->device ? 1 : -1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Selects the spans that overlap the run, clipped to it and sorted; spans outside are counted as
 * misuse.
 */
static size_t sort_items(const replay *r, item *items)
{
    int64_t first_ns = pj_lane_begun_ns(r->lane), last_ns = pj_clock_ns();
    size_t count = 0;
    for (size_t i = 0; i < r->batch->span_count; i++) {
        const pj_packed_span *s = &r->batch->spans[i];
        if (s->end_ns < first_ns || s->begin_ns > last_ns) {
            pj_lane_misuse(r->lane);
            continue;
        }
        items[count++] =
            (item){s->begin_ns > first_ns ? s->begin_ns : first_ns,
                   s->end_ns < last_ns ? s->end_ns : last_ns, (uint32_t)i, s->kind, s->device};
    }
    qsort(items, count, sizeof *items, by_nesting);
    return count;
}

/* ---- replay -------------------------------------------------------------------------------- */

static void close_one(replay *r)
{
    const open_item *top = &r->open[--r->depth];
    const pj_packed_span *span = &r->batch->spans[top->index];
    const pj_span_detail *detail = span->detail ? &r->batch->details[span->detail - 1] : NULL;
    pj_work work = {.flops = NAN, .bytes = NAN};
    if (detail) work.flops = detail->flops, work.bytes = detail->bytes;
    if (detail && detail->has_stats) work.stats = &detail->stats;
    pj_lane_wait_for_room(r->lane, &r->patience_ns);
    pj_lane_end(r->lane, detail ? &work : NULL, top->end_ns, 0);
    pj_lane_set_layer(r->lane, top->layer_before);
}

/* The first text of a span, or text_count; they are in the order of spans. */
static size_t first_text(const pj_span_batch *b, uint32_t span)
{
    size_t low = 0, high = b->text_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (b->texts[middle].span < span)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_texts(replay *r, uint32_t span)
{
    const pj_span_batch *b = r->batch;
    for (size_t i = first_text(b, span); i < b->text_count && b->texts[i].span == span; i++) {
        const pj_packed_text *t = &b->texts[i];
        pj_lane_wait_for_room(r->lane, &r->patience_ns);
        pj_token_text(r->lane, t->sequence, t->token_id, t->text, t->bytes);
    }
}

/* Says where the outermost span of a device was launched. */
static void launch_one(replay *r, const item *it, const pj_launch_place *place)
{
    if (!memcmp(place, &r->launched, sizeof *place)) return;
    r->launched = *place;
    pj_lane_launch(r->lane, place, r->batch->devices[it->device - 1].clock_error_ns);
}

static void open_one(replay *r, const item *it)
{
    const pj_packed_span *span = &r->batch->spans[it->index];
    pj_lane_wait_for_room(r->lane, &r->patience_ns);
    int32_t before = pj_lane_layer(r->lane);
    pj_lane_begin(r->lane, (pj_span_kind)it->kind, span->id, it->begin_ns);
    if (it->kind > PJ_SPAN_LAYER && span->layer >= 0) pj_lane_set_layer(r->lane, span->layer);
    r->open[r->depth++] = (open_item){it->end_ns, it->index, it->kind, before};
    if (it->kind == PJ_SPAN_TOKEN) add_texts(r, it->index);
}

/* Whether `it` lies inside the open span. A span that outlasts a coarser one by less than half its
 * own length (clocks of different resolution) is clipped to it; other overlapping spans become
 * siblings, like spans of two threads.
 */
static bool lies_in(const open_item *outer, item *it)
{
    if (it->begin_ns >= outer->end_ns && it->end_ns > outer->end_ns) return false;
    if (!pj_span_may_nest((pj_span_kind)outer->kind, (pj_span_kind)it->kind)) return false;
    if (it->end_ns <= outer->end_ns) return true;
    if (it->kind <= outer->kind || outer->end_ns - it->begin_ns < it->end_ns - outer->end_ns)
        return false;
    it->end_ns = outer->end_ns;
    return true;
}

/* Notes the host's innermost span in which a device's began. */
static void note_place(replay *r, const item *it, pj_launch_place *place)
{
    while (r->depth && r->open[r->depth - 1].end_ns <= it->begin_ns) close_one(r);
    pj_lane_locate(r->lane, place);
}

static void replay_one(replay *r, item *it, const pj_launch_place *place)
{
    while (r->depth && !lies_in(&r->open[r->depth - 1], it)) close_one(r);
    if (r->depth == PJ_MAX_OPEN_SPANS) {
        pj_lane_misuse(r->lane);
        return;
    }
    if (it->device && !r->depth) launch_one(r, it, place);
    open_one(r, it);
}

/* The items of the host, or of one device. */
static void replay_items(replay *r, item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].device == r->device)
            replay_one(r, &items[i], r->places ? &r->places[i] : NULL);
        else if (!r->device)
            note_place(r, &items[i], &r->places[i]);
    }
    while (r->depth) close_one(r);
}

static void replay_host(replay *r, item *items, size_t count)
{
    pj_lane_set_quiet(r->lane, true);
    replay_items(r, items, count);
    pj_lane_set_quiet(r->lane, false);
}

static void replay_devices(const replay *host, pj_recorder *recorder, item *items, size_t count)
{
    for (uint16_t i = 1; i <= host->batch->device_count; i++) {
        pj_device_lane *own = &recorder->devices[host->batch->devices[i - 1].device];
        pthread_mutex_lock(&own->mutex);
        replay r = {.lane = own->lane,
                    .batch = host->batch,
                    .device = i,
                    .places = host->places,
                    .patience_ns = host->patience_ns};
        replay_items(&r, items, count);
        pthread_mutex_unlock(&own->mutex);
    }
}

static pj_status replay_batch(pj_lane *lane, const pj_span_batch *batch, pj_error *err)
{
    replay r = {.lane = lane, .batch = batch, .patience_ns = PJ_LANE_PATIENCE_NS};
    item *items = pj_alloc(batch->span_count, sizeof *items);
    if (batch->device_count) r.places = pj_alloc(batch->span_count, sizeof *r.places);
    bool allocated = items && (r.places || !batch->device_count);
    if (allocated) {
        size_t count = sort_items(&r, items);
        replay_host(&r, items, count);
        replay_devices(&r, pj_lane_recorder(lane), items, count);
    }
    pj_free(r.places);
    pj_free(items);
    return allocated ? PJ_OK : pj_fail_memory(err, "packed spans");
}

pj_status pj_spans_add(pj_lane *lane, const pj_span_batch *from, pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_span_batch, devices) };
    pj_span_batch batch;
    if (!lane) return pj_fail(err, PJ_E_INVALID, "pj_spans_add: lane is NULL");
    pj_status status = PJ_SIZED_READ(pj_span_batch, &batch, from, SIZE_0_1, err);
    if (status == PJ_OK) status = check_batch(pj_lane_recorder(lane), &batch, err);
    if (status != PJ_OK || !batch.span_count) return status;
    return replay_batch(lane, &batch, err);
}
