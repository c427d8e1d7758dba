/*
 * Spans of devices. A device has a lane of its own, on which the spans of a call are replayed: they
 * nest and reach the spool like those of a thread.
 */
#include "trace/lane.h"

#include "base/sized.h"

#include <string.h>

enum { MOST_SPANS = 1 << 24 };

/* A forest: by index + 1, so that 0 is none. */
typedef struct device_tree {
    const pj_device_span *spans;
    uint32_t *first_child, *next; /* [count + 1]; the children of 0 are the outermost spans */
} device_tree;

typedef struct device_replay {
    pj_lane *lane;
    device_tree tree;
    int64_t first_ns, last_ns; /* of the run so far */
    int64_t patience_ns;
} device_replay;

/* ---- checks -------------------------------------------------------------------------------- */

static pj_status check_parent(const pj_device_batch *b, size_t i, pj_error *err)
{
    const pj_device_span *s = &b->spans[i];
    if (s->parent > i)
        return pj_fail(err, PJ_E_INVALID,
                       "device span %zu has the parent %u, which is not before it", i, s->parent);
    if (!s->parent) return PJ_OK;
    const pj_device_span *outer = &b->spans[s->parent - 1];
    if (!pj_span_may_nest((pj_span_kind)outer->kind, (pj_span_kind)s->kind))
        return pj_fail(err, PJ_E_INVALID, "device span %zu is coarser than its parent", i);
    if (s->begin_ns > outer->end_ns || s->end_ns < outer->begin_ns)
        return pj_fail(err, PJ_E_INVALID, "device span %zu lies outside its parent", i);
    return PJ_OK;
}

static pj_status device_spans_check_one(const pj_device_batch *b, size_t i, pj_error *err)
{
    const pj_device_span *s = &b->spans[i];
    if (s->kind == PJ_SPAN_PHASE || s->kind == PJ_SPAN_TOKEN || s->kind >= PJ_SPAN_KIND_COUNT)
        return pj_fail(err, PJ_E_INVALID,
                       "device span %zu has the kind %u: it must be a section, layer, component or "
                       "operation",
                       i, s->kind);
    if (s->end_ns < s->begin_ns)
        return pj_fail(err, PJ_E_INVALID,
                       "device span %zu ends at %lld ns, before it begins at %lld ns", i,
                       (long long)s->end_ns, (long long)s->begin_ns);
    if (s->layer > INT16_MAX)
        return pj_fail(err, PJ_E_INVALID, "device span %zu is in layer %d, which is out of range",
                       i, s->layer);
    return check_parent(b, i, err);
}

static pj_status device_spans_check(const pj_device_batch *b, pj_error *err)
{
    if (b->span_count > MOST_SPANS)
        return pj_fail(err, PJ_E_INVALID, "more than %d device spans in one call", MOST_SPANS);
    if (b->span_count && !b->spans) return pj_fail(err, PJ_E_INVALID, "the device spans are NULL");
    if (b->clock_error_ns < 0)
        return pj_fail(err, PJ_E_INVALID,
                       "the clock error of a device is %lld ns: it cannot be "
                       "negative",
                       (long long)b->clock_error_ns);
    pj_status status = PJ_OK;
    for (size_t i = 0; i < b->span_count && status == PJ_OK; i++)
        status = device_spans_check_one(b, i, err);
    return status;
}

/* ---- replay -------------------------------------------------------------------------------- */

static bool device_tree_make(const pj_device_batch *b, device_tree *tree)
{
    uint32_t count = (uint32_t)b->span_count;
    tree->spans = b->spans;
    tree->first_child = pj_alloc(2 * ((size_t)count + 1), sizeof *tree->first_child);
    if (!tree->first_child) return false;
    tree->next = tree->first_child + count + 1;
    for (uint32_t i = count; i > 0; i--) { /* so that children are in order */
        uint32_t *first = &tree->first_child[b->spans[i - 1].parent];
        tree->next[i] = *first;
        *first = i;
    }
    return true;
}

static int64_t device_spans_clip(int64_t at_ns, int64_t first_ns, int64_t last_ns)
{
    return at_ns < first_ns ? first_ns : at_ns > last_ns ? last_ns : at_ns;
}

/* Opens a span unless it lies outside the run. */
static bool device_spans_open(device_replay *r, const pj_device_span *s, int64_t begin_ns)
{
    if (s->end_ns < r->first_ns || s->begin_ns > r->last_ns) {
        pj_lane_misuse(r->lane);
        return false;
    }
    pj_lane_wait_for_room(r->lane, &r->patience_ns);
    pj_lane_begin(r->lane, (pj_span_kind)s->kind, s->id, begin_ns);
    if (s->kind > PJ_SPAN_LAYER && s->layer >= 0) pj_lane_set_layer(r->lane, s->layer);
    return true;
}

/* The children of a span, within its times. Recursion is as deep as the spans nest, which has been
 * checked. */
static void device_spans_replay(device_replay *r, uint32_t parent, int64_t first_ns,
                                int64_t last_ns)
{
    for (uint32_t i = r->tree.first_child[parent]; i; i = r->tree.next[i]) {
        const pj_device_span *s = &r->tree.spans[i - 1];
        int64_t begin_ns = device_spans_clip(s->begin_ns, first_ns, last_ns);
        int64_t end_ns = device_spans_clip(s->end_ns, first_ns, last_ns);
        int32_t layer = pj_lane_layer(r->lane);
        bool opened = device_spans_open(r, s, begin_ns);
        device_spans_replay(r, i, begin_ns, end_ns);
        if (!opened) continue;
        pj_lane_wait_for_room(r->lane, &r->patience_ns);
        pj_lane_end(r->lane, s->work, end_ns, 0);
        pj_lane_set_layer(r->lane, layer);
    }
}

/* The deepest nesting; spans come after their parents. */
static uint32_t device_spans_depth(const pj_device_batch *b, uint8_t *depth)
{
    uint32_t deepest = 0;
    for (size_t i = 0; i < b->span_count; i++) {
        uint32_t own = b->spans[i].parent ? depth[b->spans[i].parent - 1] + 1u : 1;
        depth[i] = own > UINT8_MAX ? UINT8_MAX : (uint8_t)own;
        if (own > deepest) deepest = own;
    }
    return deepest;
}

static pj_status device_spans_check_depth(const pj_device_batch *b, pj_error *err)
{
    uint8_t *depth = pj_alloc(b->span_count, sizeof *depth);
    if (!depth) return pj_fail_memory(err, "spans of a device");
    uint32_t deepest = device_spans_depth(b, depth);
    pj_free(depth);
    if (deepest <= PJ_MAX_OPEN_SPANS) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "device spans nest more than %d deep", PJ_MAX_OPEN_SPANS);
}

static void device_spans_put(pj_recorder *recorder, uint32_t device, device_replay *r,
                             const pj_device_batch *batch)
{
    pj_device_lane *own = &recorder->devices[device];
    pj_launch_place place = {0};
    if (batch->launch) memcpy(&place, batch->launch, sizeof place);
    pthread_mutex_lock(&own->mutex);
    r->lane = own->lane;
    r->first_ns = pj_lane_begun_ns(own->lane);
    r->last_ns = pj_clock_ns();
    r->patience_ns = PJ_LANE_PATIENCE_NS;
    pj_lane_wait_for_room(own->lane, &r->patience_ns);
    pj_lane_launch(own->lane, &place, batch->clock_error_ns);
    device_spans_replay(r, 0, r->first_ns, r->last_ns);
    pthread_mutex_unlock(&own->mutex);
}

pj_status pj_recorder_add_device_spans(pj_recorder *recorder, uint32_t device,
                                       const pj_device_batch *from, pj_error *err)
{
    enum { SIZE_0_1 = sizeof(pj_device_batch) };
    pj_device_batch batch;
    device_replay r = {0};
    if (device == PJ_HOST || device >= atomic_load(&recorder->device_count))
        return pj_fail(err, PJ_E_INVALID, "the run has no device %u: declare it first", device);
    pj_status status = PJ_SIZED_READ(pj_device_batch, &batch, from, SIZE_0_1, err);
    if (status == PJ_OK) status = device_spans_check(&batch, err);
    if (status == PJ_OK) status = device_spans_check_depth(&batch, err);
    if (status != PJ_OK || !batch.span_count) return status;
    if (!device_tree_make(&batch, &r.tree)) return pj_fail_memory(err, "spans of a device");
    device_spans_put(recorder, device, &r, &batch);
    pj_free(r.tree.first_child);
    return PJ_OK;
}

uint32_t pj_recorder_add_device(pj_recorder *recorder)
{
    uint32_t number = atomic_load(&recorder->device_count);
    if (number == PJ_MAX_DEVICES) return 0;
    pj_device_lane *own = &recorder->devices[number];
    if (pthread_mutex_init(&own->mutex, NULL) != 0) return 0;
    own->lane = pj_recorder_new_device_lane(recorder, number);
    if (!own->lane) {
        pthread_mutex_destroy(&own->mutex);
        return 0;
    }
    atomic_store(&recorder->device_count, number + 1);
    return number;
}

void pj_device_launch(const pj_lane *lane, pj_launch *launch)
{
    pj_launch_place place = {0};
    if (!launch) return;
    if (lane) pj_lane_locate(lane, &place);
    memcpy(launch, &place, sizeof place);
}
