/* Sorting, sharing and packing. */
#include "import/device_work.h"

#include "base/clock.h"
#include "base/memory.h"
#include "trace/device.h"
#include "trace/lane.h"

#include <stdlib.h>
#include <string.h>

/* At once on a device; in a packet; waiting. */
enum { MOST_RUNNING = 256, MOST_GROUPS = 2 * MOST_RUNNING, MOST_PENDING = 1 << 22 };
/* How late the driver may report work, and a program may report what launched it. */
#define LATE_NS   (4 * PJ_NS_PER_S)
#define UNSURE_NS (3 * PJ_NS_PER_S)

/* The length of packets at first, and of the idle time that ends them; a server that runs for hours
 * would have too many. */
enum {
    PACKET_NS = 5000000,
    GAPS_PER_PACKET = 50,
    SPANS_PER_DOUBLING = 1000000,
    MOST_DOUBLINGS = 4
};

typedef struct pending_piece {
    pj_work_piece piece;
    pj_launch launch;
    bool is_placed;
} pending_piece;

/* All work of one name, queue and launching span in a packet. */
typedef struct work_group {
    int64_t begin_ns, share_ns;
    uint32_t name, queue;
    pj_launch launch;
    uint32_t section; /* 1 + index of the first group of its section */
} work_group;

typedef struct running_piece {
    pending_piece piece;
    uint32_t group; /* 1 + index in the packet; 0: not yet in it */
} running_piece;

/* A device's time is swept from left to right. */
typedef struct device_sweep {
    uint32_t device;
    int64_t at_ns;    /* swept until then; INT64_MIN: nothing yet */
    int64_t begin_ns; /* of the open packet */
    running_piece running[MOST_RUNNING];
    uint32_t running_count;
    work_group groups[MOST_GROUPS];
    uint32_t group_count;
} device_sweep;

struct pj_device_work {
    pj_run *run;
    const pj_markers *markers;
    pj_launch_finder *find;
    void *context;
    int64_t clock_error_ns;
    pending_piece *pending;
    size_t count, capacity;
    device_sweep *sweeps[PJ_MAX_DEVICES]; /* by device; made when it has work */
    device_sweep *late;                   /* for pieces that begin in swept time */
    int64_t packet_ns;
    uint64_t spans, lost;
};

/* ---- packets to spans ---- */

static bool is_same_section(const work_group *a, const work_group *b)
{
    return a->queue == b->queue && memcmp(&a->launch, &b->launch, sizeof a->launch) == 0;
}

/* Sections are in the order of their first groups. Returns the work's time in the packet. */
static int64_t divide_into_sections(device_sweep *s)
{
    int64_t sum_ns = 0;
    for (uint32_t i = 0; i < s->group_count; i++) {
        work_group *g = &s->groups[i];
        uint32_t first = 0;
        while (first < i && !is_same_section(&s->groups[first], g)) first++;
        g->section = first + 1;
        sum_ns += g->share_ns;
    }
    return sum_ns;
}

/* The section that begins with group `first`, at a time; returns when it ends. */
static int64_t put_section(pj_device_work *w, const device_sweep *s, uint32_t first, int64_t at_ns)
{
    pj_device_span spans[MOST_GROUPS + 1];
    uint32_t count = 1;
    spans[0] = (pj_device_span){
        .begin_ns = at_ns, .kind = PJ_SPAN_SECTION, .id = s->groups[first].queue, .layer = -1};
    for (uint32_t i = first; i < s->group_count; i++) {
        const work_group *g = &s->groups[i];
        if (g->section != first + 1 || g->share_ns <= 0) continue;
        spans[count++] = (pj_device_span){.begin_ns = at_ns,
                                          .end_ns = at_ns + g->share_ns,
                                          .kind = PJ_SPAN_COMPONENT,
                                          .id = g->name,
                                          .layer = -1,
                                          .parent = 1};
        at_ns += g->share_ns;
    }
    spans[0].end_ns = at_ns;
    pj_device_batch batch = {.size = sizeof batch,
                             .launch = &s->groups[first].launch,
                             .spans = spans,
                             .span_count = count,
                             .clock_error_ns = w->clock_error_ns};
    if (count > 1 && pj_device_spans_add(w->run, s->device, &batch, NULL) != PJ_OK)
        w->lost += count - 1;
    w->spans += count;
    return at_ns;
}

/* Sections begin when their first work did, unless that time is taken or what follows would then
 * not fit into the packet. */
static void close_packet(pj_device_work *w, device_sweep *s)
{
    int64_t free_ns = s->begin_ns, left_ns = divide_into_sections(s);
    for (uint32_t i = 0; i < s->group_count; i++) {
        const work_group *g = &s->groups[i];
        if (g->section != i + 1) continue;
        int64_t latest_ns = s->at_ns - left_ns, at_ns = g->begin_ns;
        if (at_ns > latest_ns) at_ns = latest_ns;
        if (at_ns < free_ns) at_ns = free_ns;
        free_ns = put_section(w, s, i, at_ns);
        left_ns -= free_ns - at_ns;
    }
    s->group_count = 0;
    for (uint32_t i = 0; i < s->running_count; i++) s->running[i].group = 0;
    s->begin_ns = s->at_ns;
    uint64_t doublings = w->spans / SPANS_PER_DOUBLING;
    w->packet_ns = (int64_t)PACKET_NS << (doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS);
}

/* ---- the sweep ---- */

static uint32_t work_group_of(device_sweep *s, const running_piece *r)
{
    work_group wanted = {.begin_ns = s->at_ns,
                         .name = r->piece.piece.name,
                         .queue = r->piece.piece.queue,
                         .launch = r->piece.launch};
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i].name == wanted.name && is_same_section(&s->groups[i], &wanted))
            return i + 1;
    s->groups[s->group_count] = wanted;
    return ++s->group_count;
}

/* Shares the time until `to_ns` equally among what runs; the first get what does not divide. */
static void share_until(device_sweep *s, int64_t to_ns)
{
    int64_t ns = to_ns - s->at_ns, count = s->running_count;
    for (uint32_t i = 0; i < s->running_count && ns > 0; i++) {
        running_piece *r = &s->running[i];
        if (!r->group) r->group = work_group_of(s, r);
        s->groups[r->group - 1].share_ns += ns / count + (i < ns % count);
    }
    s->at_ns = to_ns;
}

static void drop_ended(device_sweep *s)
{
    uint32_t stay = 0;
    for (uint32_t i = 0; i < s->running_count; i++)
        if (s->running[i].piece.piece.end_ns > s->at_ns) s->running[stay++] = s->running[i];
    s->running_count = stay;
}

/* Work that is alone needs no limit: nothing is added up. */
static bool is_full(const pj_device_work *w, const device_sweep *s)
{
    bool is_alone = s->group_count <= 1 && s->running_count <= 1;
    return s->group_count + s->running_count > MOST_GROUPS ||
           (!is_alone && s->at_ns >= s->begin_ns + w->packet_ns);
}

/* The next moment at which something changes, at most `until_ns`. */
static int64_t next_change(const pj_device_work *w, const device_sweep *s, int64_t until_ns)
{
    int64_t next_ns = s->begin_ns + w->packet_ns;
    if (next_ns <= s->at_ns || next_ns > until_ns) next_ns = until_ns;
    for (uint32_t i = 0; i < s->running_count; i++)
        if (s->running[i].piece.piece.end_ns < next_ns) next_ns = s->running[i].piece.piece.end_ns;
    return next_ns;
}

static void sweep_until(pj_device_work *w, device_sweep *s, int64_t until_ns)
{
    while (s->running_count && s->at_ns < until_ns) {
        share_until(s, next_change(w, s, until_ns));
        drop_ended(s);
        if (is_full(w, s)) close_packet(w, s);
    }
    bool is_idle = s->running_count == 0 && until_ns > s->at_ns + w->packet_ns / GAPS_PER_PACKET;
    if (is_idle && s->group_count) close_packet(w, s);
}

static void sweep_piece(pj_device_work *w, device_sweep *s, const pending_piece *p)
{
    sweep_until(w, s, p->piece.begin_ns);
    if (s->running_count == MOST_RUNNING) {
        w->lost++;
        return;
    }
    bool is_over = p->piece.begin_ns >= s->begin_ns + w->packet_ns;
    bool has_no_room = s->group_count + s->running_count + 1 > MOST_GROUPS;
    if (s->group_count && (is_over || has_no_room)) close_packet(w, s);
    if (s->at_ns < p->piece.begin_ns) s->at_ns = p->piece.begin_ns;
    if (!s->group_count && !s->running_count) s->begin_ns = s->at_ns;
    s->running[s->running_count++] = (running_piece){.piece = *p};
}

static device_sweep *sweep_new(uint32_t device)
{
    device_sweep *s = pj_alloc(1, sizeof *s);
    if (s) *s = (device_sweep){.device = device, .at_ns = INT64_MIN, .begin_ns = INT64_MIN};
    return s;
}

/* A piece that begins in time that has been swept overlaps what was recorded there. */
static void sweep_late(pj_device_work *w, const pending_piece *p)
{
    if (!w->late) w->late = sweep_new(0);
    if (!w->late) {
        w->lost++;
        return;
    }
    w->late->device = p->piece.device;
    w->late->at_ns = w->late->begin_ns = INT64_MIN;
    sweep_piece(w, w->late, p);
    sweep_until(w, w->late, INT64_MAX);
    if (w->late->group_count) close_packet(w, w->late);
}

static void sweep(pj_device_work *w, const pending_piece *p)
{
    device_sweep **s = &w->sweeps[p->piece.device];
    if (!*s) *s = sweep_new(p->piece.device);
    if (!*s)
        w->lost++;
    else if (p->piece.begin_ns < (*s)->at_ns)
        sweep_late(w, p);
    else
        sweep_piece(w, *s, p);
}

/* ---- launches ---- */

static void place_piece(const pj_device_work *w, pending_piece *p, int64_t now_ns, bool is_last)
{
    uint32_t thread = 0;
    int64_t at_ns = p->piece.begin_ns;
    bool is_found = w->find(w->context, p->piece.source, p->piece.correlation, &thread, &at_ns);
    bool is_settled = pj_markers_launch(w->markers, thread, at_ns, &p->launch);
    p->is_placed = is_last || (is_found && is_settled) || now_ns - p->piece.end_ns > UNSURE_NS;
}

/* ---- from begin to end ---- */

pj_status pj_device_work_new(pj_run *run, const pj_markers *markers, pj_launch_finder *find,
                             void *context, int64_t clock_error_ns, pj_device_work **work,
                             pj_error *err)
{
    *work = pj_alloc(1, sizeof **work);
    if (!*work) return pj_fail_memory(err, "the work of devices");
    **work = (pj_device_work){.run = run,
                              .markers = markers,
                              .find = find,
                              .context = context,
                              .clock_error_ns = clock_error_ns,
                              .packet_ns = PACKET_NS};
    return PJ_OK;
}

void pj_device_work_add(pj_device_work *w, const pj_work_piece *piece)
{
    if (piece->end_ns <= piece->begin_ns) return;
    bool may_be = piece->device != PJ_HOST && piece->device < PJ_MAX_DEVICES;
    pending_piece *room = may_be && w->count < MOST_PENDING
                              ? pj_grow(w->pending, w->count, &w->capacity, sizeof *w->pending)
                              : NULL;
    if (!room) {
        w->lost++;
        return;
    }
    w->pending = room;
    w->pending[w->count++] = (pending_piece){.piece = *piece};
}

static int pending_by_begin(const void *a, const void *b)
{
    const pending_piece *x = a, *y = b;
    return x->piece.begin_ns < y->piece.begin_ns ? -1 : x->piece.begin_ns > y->piece.begin_ns;
}

/* Brings the pieces that begin before a time to the front, in order; their number. */
static size_t take_due(pj_device_work *w, int64_t until_ns)
{
    size_t due = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (w->pending[i].piece.begin_ns >= until_ns) continue;
        pending_piece p = w->pending[i];
        w->pending[i] = w->pending[due];
        w->pending[due++] = p;
    }
    if (due) qsort(w->pending, due, sizeof *w->pending, pending_by_begin);
    return due;
}

void pj_device_work_settle(pj_device_work *w, int64_t now_ns, bool is_last)
{
    int64_t until_ns = is_last ? INT64_MAX : now_ns - LATE_NS;
    for (size_t i = 0; i < w->count; i++)
        if (!w->pending[i].is_placed) place_piece(w, &w->pending[i], now_ns, is_last);
    size_t due = take_due(w, until_ns);
    for (size_t i = 0; i < due; i++) sweep(w, &w->pending[i]);
    w->count -= due;
    if (due) memmove(w->pending, w->pending + due, w->count * sizeof *w->pending);
    for (uint32_t d = 0; d < PJ_MAX_DEVICES; d++) {
        device_sweep *s = w->sweeps[d];
        if (s) sweep_until(w, s, until_ns);
        if (s && is_last && s->group_count) close_packet(w, s);
    }
}

uint64_t pj_device_work_lost(const pj_device_work *w)
{
    return w->lost;
}

void pj_device_work_free(pj_device_work *w)
{
    if (!w) return;
    for (uint32_t d = 0; d < PJ_MAX_DEVICES; d++) pj_free(w->sweeps[d]);
    pj_free(w->late);
    pj_free(w->pending);
    pj_free(w);
}
