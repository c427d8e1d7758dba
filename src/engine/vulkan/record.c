/*
 * Spans of what the device computes. During a pass, beginnings and ends are noted with the number
 * of a timestamp; after it, when the device has written them, the spans are recorded with their
 * times on the host's clock. A timestamp waits for nothing: a component's is recorded where a
 * barrier is needed anyway, and products that may overlap are timed as one component.
 */
#include "engine/vulkan/gpu.h"

#include "base/memory.h"

/* Without a clock, or with too many spans, nothing is recorded. */
static bool record_is_on(const pj_gpu *s)
{
    return s->instrument->lane && s->events && s->event_count < PJ_GPU_EVENTS;
}

/* A time between what was recorded before and what follows. */
static uint32_t record_stamp(pj_gpu *s)
{
    pj_vk_barrier(s->vk);
    s->reads = s->writes = 0;
    return pj_vk_stamp(s->vk);
}

static pj_gpu_event *record_event(pj_gpu *s, pj_gpu_event_kind kind, uint32_t id, uint32_t stamp)
{
    if (!record_is_on(s)) return NULL;
    pj_gpu_event *e = &s->events[s->event_count++];
    *e = (pj_gpu_event){.kind = kind, .id = id, .stamp = stamp};
    s->last_stamp = stamp;
    return e;
}

/* Ends and beginnings without work in between share a timestamp. */
static uint32_t record_same_stamp(pj_gpu *s)
{
    return s->reads || s->writes || s->event_count == 0 ? record_stamp(s) : s->last_stamp;
}

void pj_gpu_section(void *state, pj_instrument_name name)
{
    pj_gpu *s = state;
    if (record_is_on(s)) record_event(s, PJ_GPU_SECTION, name, record_same_stamp(s));
}

void pj_gpu_end_section(void *state)
{
    pj_gpu *s = state;
    if (record_is_on(s)) record_event(s, PJ_GPU_END_SECTION, 0, record_same_stamp(s));
}

void pj_gpu_layer(void *state, uint32_t layer)
{
    pj_gpu *s = state;
    if (record_is_on(s)) record_event(s, PJ_GPU_LAYER, layer, record_same_stamp(s));
}

void pj_gpu_component(void *state, pj_instrument_name name)
{
    pj_gpu *s = state;
    if (record_is_on(s)) record_event(s, PJ_GPU_COMPONENT, name, record_same_stamp(s));
}

void pj_gpu_end(void *state, const pj_done *done)
{
    pj_gpu *s = state;
    pj_gpu_event *e = record_is_on(s) ? record_event(s, PJ_GPU_END, 0, record_same_stamp(s)) : NULL;
    if (!e) return;
    e->flops = done->flops;
    e->bytes = done->bytes;
}

/* ---- after the pass ---- */

static void record_replay(pj_gpu *s, const pj_gpu_event *e, int64_t now_ns)
{
    pj_instrument *r = s->instrument;
    pj_work work = {.flops = e->flops, .bytes = e->bytes};
    switch (e->kind) {
    case PJ_GPU_SECTION: pj_span_begin_at(r->lane, PJ_SPAN_SECTION, r->names[e->id], now_ns); break;
    case PJ_GPU_LAYER: pj_span_begin_at(r->lane, PJ_SPAN_LAYER, e->id, now_ns); break;
    case PJ_GPU_COMPONENT:
        pj_span_begin_at(r->lane, PJ_SPAN_COMPONENT, r->names[e->id], now_ns);
        break;
    case PJ_GPU_END_SECTION: pj_span_end_at(r->lane, NULL, now_ns); break;
    case PJ_GPU_END: pj_span_end_at(r->lane, &work, now_ns); break;
    }
}

/* Times that a clock's error puts before the pass or out of order are moved. */
static int64_t record_in_order(int64_t time_ns, int64_t least_ns, int64_t most_ns)
{
    return time_ns < least_ns ? least_ns : time_ns > most_ns ? most_ns : time_ns;
}

void pj_gpu_record_pass(pj_gpu *s)
{
    int64_t last_ns = s->pass_begin_ns, now_ns = pj_clock_ns();
    uint32_t stamps = s->event_count ? s->last_stamp + 1 : 0;
    bool read = stamps && s->last_stamp != UINT32_MAX &&
                pj_vk_stamps_read(s->vk, 0, stamps, s->stamp_ns, NULL) == PJ_OK;
    for (uint32_t i = 0; read && i < s->event_count; i++) {
        last_ns = record_in_order(s->stamp_ns[s->events[i].stamp], last_ns, now_ns);
        record_replay(s, &s->events[i], last_ns);
    }
    s->instrument->ended_ns = 0; /* the host's next span begins now */
}

void pj_gpu_record_begin(pj_gpu *s)
{
    s->event_count = 0;
    s->pass_begin_ns = s->instrument->lane ? pj_clock_ns() : 0;
    if (s->events) pj_vk_stamps_clear(s->vk);
}

pj_status pj_gpu_record_open(pj_gpu *s, pj_error *err)
{
    if (!s->instrument->lane) return PJ_OK;
    pj_status status = pj_vk_clock_update(s->vk, 0, NULL);
    if (status != PJ_OK) return PJ_OK; /* a device without a clock computes all the same */
    s->events = pj_alloc(PJ_GPU_EVENTS, sizeof *s->events);
    s->stamp_ns = pj_alloc(PJ_VK_MAX_STAMPS, sizeof *s->stamp_ns);
    return s->events && s->stamp_ns ? PJ_OK : pj_fail_memory(err, "spans of the device");
}

void pj_gpu_record_close(pj_gpu *s)
{
    pj_free(s->events);
    pj_free(s->stamp_ns);
}
