/* Lanes and the public calls on them. A record never wraps around the end of a lane's ring: a PAD
 * record fills the rest when one does not fit. The writer owns `head`, the collector `tail`. */
#include "trace/lane.h"

#include "base/ids.h"
#include "trace/spool.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_LANE_BYTES = 4 << 20, LEAST_LANE_BYTES = 256 << 10, MAX_EXTRAS = 1024 };

typedef struct frame {
    int64_t begin_ns;
    uint32_t id, serial;
    int32_t replaced; /* the context's previous value for this kind */
    uint8_t kind;
} frame;

struct pj_lane {
    /* the owner's */
    unsigned char *ring;
    size_t mask; /* ring bytes - 1 */
    uint64_t tail_seen;
    pj_recorder *recorder;
    uint64_t owner; /* serial number of the thread */
    uint32_t serial, skipped;
    int32_t context[PJ_SPAN_KIND_COUNT]; /* by kind; -1 none for token and layer, else 0 */
    uint16_t number, depth;
    uint8_t device; /* whose spans it takes, 0: a thread's */
    bool quiet;     /* its spans lie in the past, so they do not set the run's current context */
    int32_t launched_in[PJ_SPAN_KIND_COUNT]; /* a device's lane: context of its outermost spans */
    frame frames[PJ_MAX_OPEN_SPANS];
    pj_lane *next;
    /* shared */
    _Alignas(64) _Atomic uint64_t head; /* bytes written, ever */
    _Atomic uint64_t lost, misused, spans, statistics_ns;
    _Alignas(64) _Atomic uint64_t tail; /* bytes read, ever */
};

/* ---- the run's current context, one word, for threads without open spans ------------------- */

/* phase 3 bits | section 16 | layer + 1 13 | token + 1 32 */
static uint64_t pack_context(const int32_t context[PJ_SPAN_KIND_COUNT])
{
    return (uint64_t)(context[PJ_SPAN_PHASE] & 7) |
           (uint64_t)(uint16_t)context[PJ_SPAN_SECTION] << 3 |
           (uint64_t)((context[PJ_SPAN_LAYER] + 1) & 0x1fff) << 19 |
           (uint64_t)(uint32_t)(context[PJ_SPAN_TOKEN] + 1) << 32;
}

static void unpack_context(uint64_t word, int32_t context[PJ_SPAN_KIND_COUNT])
{
    context[PJ_SPAN_PHASE] = (int32_t)(word & 7);
    context[PJ_SPAN_SECTION] = (int32_t)(word >> 3 & 0xffff);
    context[PJ_SPAN_LAYER] = (int32_t)(word >> 19 & 0x1fff) - 1;
    context[PJ_SPAN_TOKEN] = (int32_t)(uint32_t)(word >> 32) - 1;
    context[PJ_SPAN_COMPONENT] = context[PJ_SPAN_OPERATION] = 0;
}

/* ---- the ring ------------------------------------------------------------------------------ */

/* The share of a ring that is for phases, sections, tokens and texts alone: a collector that a slow
 * disk or a busy machine stalls costs details, not tokens. */
enum { SPARE_SHARE = 8 };

static size_t recorder_spare(const pj_lane *lane, pj_span_kind kind)
{
    return kind > PJ_SPAN_TOKEN ? (lane->mask + 1) / SPARE_SHARE : 0;
}

/* Room for a record, leaving `spare` bytes; NULL if there is none, which is counted. */
static unsigned char *recorder_claim(pj_lane *lane, size_t size, size_t spare)
{
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
    size_t capacity = lane->mask + 1, at = head & lane->mask, rest = capacity - at;
    size_t need = (size <= rest ? size : rest + size) + spare;
    if (head + need - lane->tail_seen > capacity) {
        lane->tail_seen = atomic_load_explicit(&lane->tail, memory_order_acquire);
        if (head + need - lane->tail_seen > capacity) {
            atomic_fetch_add_explicit(&lane->lost, 1, memory_order_relaxed);
            return NULL;
        }
    }
    if (size <= rest) return lane->ring + at;
    pj_record *pad = (pj_record *)(lane->ring + at);
    *pad = (pj_record){.type_bytes = PJ_RECORD_PAD | (uint32_t)(rest - sizeof *pad) << 8};
    atomic_store_explicit(&lane->head, head + rest, memory_order_release);
    return lane->ring;
}

static void recorder_publish(pj_lane *lane, size_t size)
{
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed) + size;
    atomic_store_explicit(&lane->head, head, memory_order_release);
    /* the next cache lines may still belong to the collector's core */
    __builtin_prefetch(lane->ring + ((head + 256) & lane->mask), 1);
    __builtin_prefetch(lane->ring + ((head + 320) & lane->mask), 1);
}

/* A record whose span is written in place: copying one just stored member by member would stall on
 * store forwarding. */
typedef struct open_record {
    pj_span *span;
    size_t size;
    uint8_t flags;
} open_record;

/* False if there is no room; counts the loss. */
static bool recorder_open_span(pj_lane *lane, pj_record_type type, pj_span_kind kind,
                               const pj_work *work, open_record *open)
{
    uint32_t extras = work && work->extras ? work->extra_count : 0;
    if (extras > MAX_EXTRAS) extras = MAX_EXTRAS;
    bool stats = work && work->stats;
    size_t payload = sizeof(pj_span) + (stats ? 32 : 0) + extras * sizeof(pj_extra);
    open->size = sizeof(pj_record) + payload;
    open->flags = (uint8_t)((stats ? PJ_SPAN_HAS_STATS : 0) | (extras ? PJ_SPAN_HAS_EXTRAS : 0));
    unsigned char *at = recorder_claim(lane, open->size, recorder_spare(lane, kind));
    if (!at) return false;
    *(pj_record *)at = (pj_record){.type_bytes = type | (uint32_t)payload << 8};
    at += sizeof(pj_record);
    open->span = (pj_span *)at;
    at += sizeof(pj_span);
    if (stats) {
        memcpy(at, work->stats, sizeof(pj_stats));
        if (sizeof(pj_stats) < 32) memset(at + sizeof(pj_stats), 0, 32 - sizeof(pj_stats));
        at += 32;
    }
    if (extras) memcpy(at, work->extras, extras * sizeof(pj_extra));
    return true;
}

static void recorder_close_span(pj_lane *lane, pj_record_type type, const open_record *open)
{
    recorder_publish(lane, open->size);
    if (type == PJ_RECORD_SPAN) {
        uint64_t spans = atomic_load_explicit(&lane->spans, memory_order_relaxed);
        atomic_store_explicit(&lane->spans, spans + 1, memory_order_relaxed);
    }
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* Records a span in the lane's current context. */
static void recorder_put_span(pj_lane *lane, pj_record_type type, const frame *f, int64_t end_ns,
                              uint8_t flags, const pj_work *work)
{
    const int32_t *c = lane->context;
    open_record open;
    if (!recorder_open_span(lane, type, (pj_span_kind)f->kind, work, &open)) return;
    *open.span = (pj_span){
        .begin_ns = f->begin_ns,
        .end_ns = end_ns,
        .flops = work ? (float)work->flops : NAN,
        .bytes = work ? (float)work->bytes : NAN,
        .serial = f->serial,
        .id = f->id,
        .token = c[PJ_SPAN_TOKEN],
        .layer = (int16_t)c[PJ_SPAN_LAYER],
        .lane = lane->number,
        .section = (uint16_t)c[PJ_SPAN_SECTION],
        .component = (uint16_t)c[PJ_SPAN_COMPONENT],
        .kind = f->kind,
        .phase = (uint8_t)(f->kind == PJ_SPAN_PHASE && type == PJ_RECORD_SPAN ? f->id
                                                                              : c[PJ_SPAN_PHASE]),
        .flags = (uint8_t)(flags | open.flags | (lane->device ? PJ_SPAN_DEVICE : 0)),
        .device = lane->device,
    };
    recorder_close_span(lane, type, &open);
}

pj_context pj_recorder_context(const pj_recorder *recorder)
{
    int32_t context[PJ_SPAN_KIND_COUNT];
    unpack_context(atomic_load_explicit(&recorder->context, memory_order_relaxed), context);
    return (pj_context){.phase = (pj_phase)context[PJ_SPAN_PHASE],
                        .token = context[PJ_SPAN_TOKEN],
                        .layer = context[PJ_SPAN_LAYER]};
}

static void publish_context(pj_lane *lane)
{
    if (lane->quiet) return;
    atomic_store_explicit(&lane->recorder->context, pack_context(lane->context),
                          memory_order_relaxed);
}

void pj_lane_misuse(pj_lane *lane)
{
    atomic_fetch_add_explicit(&lane->misused, 1, memory_order_relaxed);
}

static bool is_finer_than(pj_span_kind kind, pj_depth depth)
{
    return kind > (depth == PJ_DEPTH_DEEP     ? PJ_SPAN_OPERATION
                   : depth == PJ_DEPTH_MODULE ? PJ_SPAN_COMPONENT
                                              : PJ_SPAN_TOKEN);
}

/* The context of a lane without open spans. */
static void take_context(pj_lane *lane)
{
    if (lane->device)
        memcpy(lane->context, lane->launched_in, sizeof lane->context);
    else
        unpack_context(atomic_load_explicit(&lane->recorder->context, memory_order_relaxed),
                       lane->context);
}

void pj_lane_begin(pj_lane *lane, pj_span_kind kind, uint32_t id, int64_t now_ns)
{
    /* Dropped spans will still be ended: `skipped` counts them. */
    if (lane->skipped || is_finer_than(kind, lane->recorder->depth)) {
        lane->skipped++;
        return;
    }
    if (lane->depth == 0) {
        take_context(lane);
    } else if (lane->depth == PJ_MAX_OPEN_SPANS ||
               !pj_span_may_nest((pj_span_kind)lane->frames[lane->depth - 1].kind, kind)) {
        lane->skipped++;
        pj_lane_misuse(lane);
        return;
    }
    if ((unsigned)kind >= PJ_SPAN_KIND_COUNT ||
        (kind == PJ_SPAN_PHASE && id >= (uint32_t)PJ_PHASE_COUNT)) {
        lane->skipped++;
        pj_lane_misuse(lane);
        return;
    }
    frame *f = &lane->frames[lane->depth++];
    *f = (frame){now_ns, id, lane->serial++, lane->context[kind], (uint8_t)kind};
    if (kind <= PJ_SPAN_TOKEN && !lane->device) /* a device's have ended */
        recorder_put_span(lane, PJ_RECORD_SPAN_BEGIN, f, 0, 0, NULL);
    lane->context[kind] = (int32_t)id;
    if (kind <= PJ_SPAN_LAYER) publish_context(lane);
}

int pj_lane_end(pj_lane *lane, const pj_work *work, int64_t now_ns, uint8_t flags)
{
    if (lane->skipped) {
        lane->skipped--;
        return -1;
    }
    if (lane->depth == 0) {
        pj_lane_misuse(lane);
        return -1;
    }
    const frame *f = &lane->frames[--lane->depth];
    lane->context[f->kind] = f->replaced;
    if (f->kind <= PJ_SPAN_LAYER) publish_context(lane);
    recorder_put_span(lane, PJ_RECORD_SPAN, f, now_ns, flags, work);
    return f->kind;
}

/* ---- for spans with times of their own ----------------------------------------------------- */

void pj_lane_set_quiet(pj_lane *lane, bool quiet)
{
    lane->quiet = quiet;
}

int32_t pj_lane_layer(const pj_lane *lane)
{
    return lane->context[PJ_SPAN_LAYER];
}

void pj_lane_set_layer(pj_lane *lane, int32_t layer)
{
    lane->context[PJ_SPAN_LAYER] = layer;
}

void pj_lane_set_phase(pj_lane *lane, pj_span_kind begun, pj_phase phase)
{
    int32_t *c = lane->context;
    c[PJ_SPAN_PHASE] = (int32_t)phase;
    if (begun != PJ_SPAN_SECTION) c[PJ_SPAN_SECTION] = 0;
    if (begun != PJ_SPAN_TOKEN) c[PJ_SPAN_TOKEN] = -1;
    if (begun != PJ_SPAN_LAYER) c[PJ_SPAN_LAYER] = -1;
}

void pj_lane_wait_for_room(const pj_lane *lane, int64_t *patience_ns)
{
    enum { WAIT_NS = 200 * 1000 };
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
    while (head - atomic_load_explicit(&lane->tail, memory_order_acquire) > (lane->mask + 1) / 2 &&
           *patience_ns > 0) {
        pj_clock_sleep_until(pj_clock_ns() + WAIT_NS);
        *patience_ns -= WAIT_NS;
    }
}

pj_recorder *pj_lane_recorder(const pj_lane *lane)
{
    return lane->recorder;
}

int64_t pj_lane_begun_ns(const pj_lane *lane)
{
    return lane->recorder->begun_ns;
}

/* ---- for spans of devices ------------------------------------------------------------------ */

void pj_lane_locate(const pj_lane *lane, pj_launch_place *place)
{
    int32_t context[PJ_SPAN_KIND_COUNT];
    if (lane->depth)
        memcpy(context, lane->context, sizeof context);
    else
        unpack_context(atomic_load_explicit(&lane->recorder->context, memory_order_relaxed),
                       context);
    *place = (pj_launch_place){.noted = 1,
                               .phase = context[PJ_SPAN_PHASE],
                               .section = context[PJ_SPAN_SECTION],
                               .token = context[PJ_SPAN_TOKEN],
                               .layer = context[PJ_SPAN_LAYER],
                               .component = context[PJ_SPAN_COMPONENT]};
    if (!lane->depth) return;
    place->lane = lane->number + 1u;
    place->serial = lane->frames[lane->depth - 1].serial;
}

void pj_lane_launch(pj_lane *lane, const pj_launch_place *place, int64_t clock_error_ns)
{
    size_t size = sizeof(pj_record) + sizeof(pj_launch_record);
    pj_launch_place here = *place;
    if (!place->noted) pj_lane_locate(lane, &here); /* nothing is open on a device's lane */
    const int32_t context[PJ_SPAN_KIND_COUNT] = {here.phase, here.section,   here.token,
                                                 here.layer, here.component, 0};
    memcpy(lane->launched_in, context, sizeof context);
    unsigned char *at = recorder_claim(lane, size, 0);
    if (!at) return;
    *(pj_record *)at =
        (pj_record){.type_bytes = PJ_RECORD_LAUNCH | (uint32_t)sizeof(pj_launch_record) << 8};
    *(pj_launch_record *)(at + sizeof(pj_record)) =
        (pj_launch_record){.clock_error_ns = clock_error_ns,
                           .lane = lane->number,
                           .serial = lane->serial,
                           .host_lane = here.lane ? here.lane - 1 : UINT32_MAX,
                           .host_serial = here.lane ? here.serial : UINT32_MAX,
                           .device = lane->device};
    recorder_publish(lane, size);
}

/* ---- public calls -------------------------------------------------------------------------- */

void pj_span_begin(pj_lane *lane, pj_span_kind kind, uint32_t id)
{
    if (lane) pj_lane_begin(lane, kind, id, pj_clock_ns());
}

void pj_span_end(pj_lane *lane, const pj_work *work)
{
    if (lane) pj_lane_end(lane, work, pj_clock_ns(), 0);
}

void pj_span_begin_at(pj_lane *lane, pj_span_kind kind, uint32_t id, int64_t now_ns)
{
    if (lane) pj_lane_begin(lane, kind, id, now_ns);
}

void pj_span_end_at(pj_lane *lane, const pj_work *work, int64_t now_ns)
{
    if (lane) pj_lane_end(lane, work, now_ns, 0);
}

void pj_span_next(pj_lane *lane, const pj_work *work, pj_span_kind kind, uint32_t id)
{
    if (!lane) return;
    int64_t now_ns = pj_clock_ns();
    pj_lane_end(lane, work, now_ns, 0);
    pj_lane_begin(lane, kind, id, now_ns);
}

void pj_token_text(pj_lane *lane, uint32_t sequence, int32_t token_id, const char *text,
                   size_t bytes)
{
    if (!lane || lane->skipped) return;
    int i = lane->depth - 1;
    while (i >= 0 && lane->frames[i].kind != PJ_SPAN_TOKEN) i--;
    if (i < 0) {
        pj_lane_misuse(lane);
        return;
    }
    if (!text) bytes = 0;
    if (bytes > 255) bytes = 255;
    size_t payload = sizeof(pj_token_text_record) + bytes, size = pj_record_size(payload);
    unsigned char *at = recorder_claim(lane, size, 0);
    if (!at) return;
    pj_record *record = (pj_record *)at;
    *record = (pj_record){.type_bytes = PJ_RECORD_TOKEN_TEXT | (uint32_t)payload << 8};
    pj_token_text_record head = {lane->frames[i].serial, lane->number, sequence, token_id};
    memset(at + size - 8, 0, 8); /* the padding */
    memcpy(record->payload, &head, sizeof head);
    if (bytes) memcpy(record->payload + sizeof head, text, bytes);
    recorder_publish(lane, size);
}

void pj_statistics_time(pj_lane *lane, int64_t ns)
{
    if (lane && ns > 0)
        atomic_fetch_add_explicit(&lane->statistics_ns, (uint64_t)ns, memory_order_relaxed);
}

/* ---- lanes and names ----------------------------------------------------------------------- */

static uint64_t this_thread(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t number;
    if (!number) number = atomic_fetch_add(&threads, 1) + 1;
    return number;
}

static pj_lane *lane_new(pj_recorder *recorder, uint64_t owner)
{
    uint32_t number = atomic_load(&recorder->lane_count);
    if (number >= PJ_MAX_LANES) return NULL;
    pj_lane *lane = pj_alloc_aligned(_Alignof(pj_lane), 1, sizeof *lane);
    size_t bytes = number ? recorder->lane_bytes / 4 : recorder->lane_bytes;
    if (!lane) return NULL;
    lane->ring = pj_alloc_aligned(
        64, bytes, 1); /* zeroed: touches the pages, so that recording causes no page faults */
    if (!lane->ring) {
        pj_free(lane);
        return NULL;
    }
    lane->mask = bytes - 1;
    lane->recorder = recorder;
    lane->owner = owner;
    lane->number = (uint16_t)number;
    lane->next = atomic_load(&recorder->lanes);
    atomic_store_explicit(&recorder->lanes, lane, memory_order_release);
    atomic_store(&recorder->lane_count, number + 1);
    return lane;
}

pj_lane *pj_recorder_lane(pj_recorder *recorder)
{
    static _Thread_local struct {
        uint64_t generation;
        pj_lane *lane;
    } last;
    if (last.generation == recorder->generation) return last.lane;
    uint64_t owner = this_thread();
    pthread_mutex_lock(&recorder->mutex);
    pj_lane *lane = atomic_load(&recorder->lanes);
    while (lane && lane->owner != owner) lane = lane->next;
    if (!lane) lane = lane_new(recorder, owner);
    pthread_mutex_unlock(&recorder->mutex);
    if (lane) {
        last.generation = recorder->generation;
        last.lane = lane;
    }
    return lane;
}

pj_lane *pj_recorder_new_lane(pj_recorder *recorder)
{
    pthread_mutex_lock(&recorder->mutex);
    pj_lane *lane = lane_new(recorder, 0); /* 0: no thread */
    pthread_mutex_unlock(&recorder->mutex);
    return lane;
}

pj_lane *pj_recorder_new_device_lane(pj_recorder *recorder, uint32_t device)
{
    pj_lane *lane = pj_recorder_new_lane(recorder);
    if (!lane) return NULL;
    lane->device = (uint8_t)device;
    lane->quiet = true;
    return lane;
}

/* The hash slot of the name: the one that holds it, or the free one for it. */
static uint32_t *recorder_find_slot(const pj_recorder *recorder, const char *name)
{
    uint32_t mask = recorder->slot_count - 1;
    for (uint32_t i = (uint32_t)pj_hash64(0, name, strlen(name));; i++) {
        uint32_t *slot = &recorder->slots[i & mask];
        if (!*slot || strcmp(recorder->names[*slot], name) == 0) return slot;
    }
}

static bool recorder_grow_names(pj_recorder *recorder)
{
    uint32_t capacity = recorder->name_capacity ? recorder->name_capacity * 2 : 64;
    const char **names = pj_resize(recorder->names, capacity + 1, sizeof *names);
    if (!names) return false;
    recorder->names = names;
    uint32_t *slots = pj_alloc((size_t)capacity * 2, sizeof *slots);
    if (!slots) return false;
    pj_free(recorder->slots);
    recorder->slots = slots;
    recorder->slot_count = capacity * 2;
    recorder->name_capacity = capacity;
    for (uint32_t id = 1; id <= recorder->name_count; id++)
        *recorder_find_slot(recorder, names[id]) = id;
    return true;
}

static uint32_t recorder_intern(pj_recorder *recorder, const char *name)
{
    uint32_t *slot = recorder->slot_count ? recorder_find_slot(recorder, name) : NULL;
    if (slot && *slot) return *slot;
    if (recorder->name_count == PJ_MAX_NAMES) return 0;
    if (recorder->name_count == recorder->name_capacity && !recorder_grow_names(recorder)) return 0;
    const char *copy = pj_arena_strndup(&recorder->arena, name, strlen(name));
    if (!copy) return 0;
    recorder->names[++recorder->name_count] = copy;
    return *recorder_find_slot(recorder, name) = recorder->name_count;
}

uint32_t pj_recorder_name(pj_recorder *recorder, const char *name)
{
    if (!name || !*name || strlen(name) > 1000) return 0;
    pthread_mutex_lock(&recorder->mutex);
    uint32_t id = recorder_intern(recorder, name);
    pthread_mutex_unlock(&recorder->mutex);
    return id;
}

/* ---- the collector's side ------------------------------------------------------------------ */

enum { NAME_RECORD_BYTES = sizeof(pj_record) + 4 + 1008 };

/* The record of the next name; false: all are drained. */
static bool drain_next_name(pj_recorder *recorder, unsigned char *room)
{
    pj_record *record = (pj_record *)room;
    memset(room, 0, NAME_RECORD_BYTES);
    pthread_mutex_lock(&recorder->mutex);
    bool has_next = recorder->names_drained < recorder->name_count;
    if (has_next) {
        uint32_t id = ++recorder->names_drained;
        size_t length = strlen(recorder->names[id]);
        record->type_bytes = PJ_RECORD_NAME | (uint32_t)(4 + length) << 8;
        memcpy(record->payload, &id, 4);
        memcpy(record->payload + 4, recorder->names[id], length);
    }
    pthread_mutex_unlock(&recorder->mutex);
    return has_next;
}

/* Without the recorder's mutex while a name is taken: `take` locks the spool, and who declares a
 * device locks the spool first. */
static void drain_names(pj_recorder *recorder, pj_record_fn *take, void *context)
{
    _Alignas(8) unsigned char room[NAME_RECORD_BYTES];
    while (drain_next_name(recorder, room)) take(context, (const pj_record *)room);
}

static void drain_lane(pj_lane *lane, uint64_t until, pj_record_fn *take, void *context)
{
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
    while (tail < until) {
        const pj_record *record = (const pj_record *)(lane->ring + (tail & lane->mask));
        if (pj_record_kind(record) != PJ_RECORD_PAD) take(context, record);
        tail += pj_record_size(pj_record_bytes(record));
        atomic_store_explicit(&lane->tail, tail, memory_order_release);
    }
}

void pj_recorder_drain(pj_recorder *recorder, pj_record_fn *take, void *context)
{
    /* Heads before names: every name used by a record before a head is then included. */
    uint64_t heads[PJ_MAX_LANES];
    pj_lane *first = atomic_load_explicit(&recorder->lanes, memory_order_acquire);
    for (pj_lane *lane = first; lane; lane = lane->next)
        heads[lane->number] = atomic_load_explicit(&lane->head, memory_order_acquire);
    drain_names(recorder, take, context);
    for (pj_lane *lane = first; lane; lane = lane->next)
        drain_lane(lane, heads[lane->number], take, context);
}

bool pj_recorder_is_busy(const pj_recorder *recorder)
{
    pj_lane *lane = atomic_load_explicit(&recorder->lanes, memory_order_acquire);
    for (; lane; lane = lane->next)
        if (atomic_load_explicit(&lane->head, memory_order_relaxed) -
                atomic_load_explicit(&lane->tail, memory_order_relaxed) >
            (lane->mask + 1) / 4)
            return true;
    return false;
}

void pj_recorder_close_open(pj_recorder *recorder)
{
    int64_t now_ns = pj_clock_ns();
    for (pj_lane *lane = atomic_load(&recorder->lanes); lane; lane = lane->next) {
        lane->skipped = 0;
        while (lane->depth) pj_lane_end(lane, NULL, now_ns, PJ_SPAN_UNFINISHED);
    }
}

pj_recorder_counts pj_recorder_count(const pj_recorder *recorder)
{
    pj_recorder_counts counts = {0};
    pj_lane *lane = atomic_load_explicit(&recorder->lanes, memory_order_acquire);
    for (; lane; lane = lane->next) {
        counts.spans += atomic_load_explicit(&lane->spans, memory_order_relaxed);
        counts.lost += atomic_load_explicit(&lane->lost, memory_order_relaxed);
        counts.statistics_ns += atomic_load_explicit(&lane->statistics_ns, memory_order_relaxed);
        counts.misused += atomic_load_explicit(&lane->misused, memory_order_relaxed);
    }
    return counts;
}

pj_status pj_recorder_init(pj_recorder *recorder, pj_depth depth, uint32_t lane_bytes,
                           pj_error *err)
{
    static _Atomic uint64_t generations;
    memset(recorder, 0, sizeof *recorder);
    uint32_t bytes = LEAST_LANE_BYTES;
    while (bytes < (lane_bytes ? lane_bytes : DEFAULT_LANE_BYTES) && bytes < 1u << 30) bytes *= 2;
    int rc = pthread_mutex_init(&recorder->mutex, NULL);
    if (rc) return pj_fail_errno(err, rc, "cannot create a mutex");
    recorder->generation = atomic_fetch_add(&generations, 1) + 1;
    recorder->begun_ns = pj_clock_ns();
    recorder->depth = depth;
    recorder->lane_bytes = bytes;
    atomic_store(&recorder->device_count, 1); /* the host */
    static const int32_t nowhere[PJ_SPAN_KIND_COUNT] = {PJ_PHASE_IDLE, 0, -1, -1, 0, 0};
    atomic_store(&recorder->context, pack_context(nowhere));
    pj_arena_init(&recorder->arena, 0);
    return PJ_OK;
}

void pj_recorder_fini(pj_recorder *recorder)
{
    if (!recorder->generation) return;
    for (pj_lane *lane = atomic_load(&recorder->lanes), *next; lane; lane = next) {
        next = lane->next;
        pj_free(lane->ring);
        pj_free(lane);
    }
    for (uint32_t d = 1; d < atomic_load(&recorder->device_count); d++)
        pthread_mutex_destroy(&recorder->devices[d].mutex);
    pj_free(recorder->names);
    pj_free(recorder->slots);
    pj_arena_fini(&recorder->arena);
    pthread_mutex_destroy(&recorder->mutex);
    memset(recorder, 0, sizeof *recorder);
}
