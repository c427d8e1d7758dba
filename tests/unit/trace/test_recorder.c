/* The recorder: nesting, context, depth, loss, threads, and what it costs in allocations. */
#include "../assertions.h"
#include "base/clock.h"
#include "base/thread.h"
#include "trace/recorder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_KEPT = 4096 };

typedef struct kept {
    pj_record_type type;
    pj_span span;
    pj_stats stats;
    pj_extra extras[8];
    uint32_t extra_count;
    char text[64];
} kept;

typedef struct span_log {
    kept items[MAX_KEPT];
    uint32_t count;
} span_log;

static void keep(void *context, const pj_record *record)
{
    span_log *l = context;
    if (l->count == MAX_KEPT) return;
    kept *k = &l->items[l->count++];
    pj_span_view view;
    memset(k, 0, sizeof *k);
    k->type = pj_record_kind(record);
    if (k->type == PJ_RECORD_SPAN || k->type == PJ_RECORD_SPAN_BEGIN) {
        assert_true(pj_span_view_get(record, &view));
        k->span = *view.span;
        if (view.stats) k->stats = *view.stats;
        k->extra_count = view.extra_count;
        for (uint32_t i = 0; i < view.extra_count && i < 8; i++) k->extras[i] = view.extras[i];
    } else {
        size_t head = k->type == PJ_RECORD_NAME ? 4 : sizeof(pj_token_text_record);
        memcpy(k->text, record->payload + head, pj_record_bytes(record) - head);
    }
}

static span_log seen;

static void drain(pj_recorder *recorder)
{
    seen.count = 0;
    pj_recorder_drain(recorder, keep, &seen);
}

static const kept *ended(uint32_t nth)
{
    for (uint32_t i = 0; i < seen.count; i++)
        if (seen.items[i].type == PJ_RECORD_SPAN && nth-- == 0) return &seen.items[i];
    fail_msg("fewer spans than expected");
    return NULL;
}

static uint32_t count_of(pj_record_type type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < seen.count; i++) n += seen.items[i].type == type;
    return n;
}

static void spans_carry_their_context(void **state)
{
    pj_recorder r;
    pj_error err;
    assert_int_equal(pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, &err), PJ_OK);
    pj_lane *lane = pj_recorder_lane(&r);
    uint32_t layers = pj_recorder_name(&r, "layers"), q = pj_recorder_name(&r, "q_proj");
    uint32_t matmul = pj_recorder_name(&r, "matmul");
    assert_int_equal(pj_recorder_name(&r, "q_proj"), q);
    assert_int_equal(pj_recorder_name(&r, ""), 0);
    pj_stats stats = {.mean_abs = 1.5f, .nan_count = 2};
    pj_extra extras[2] = {{q, PJ_EXTRA_SCALAR, 0.25}, {q, 3, -7}};
    pj_work work = {1e6, 2e6, &stats, extras, 2};
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 7);
    pj_span_begin(lane, PJ_SPAN_SECTION, layers); /* a section may lie in a token */
    assert_int_equal(pj_recorder_context(&r).layer, -1);
    pj_span_begin(lane, PJ_SPAN_LAYER, 3);
    pj_context place = pj_recorder_context(&r);
    assert_that(place.phase, ==, PJ_PHASE_DECODE);
    assert_that(place.token, ==, 7);
    assert_that(place.layer, ==, 3);
    pj_span_begin(lane, PJ_SPAN_COMPONENT, q);
    pj_span_begin(lane, PJ_SPAN_OPERATION, matmul);
    pj_token_text(lane, 2, 42, "hello", 5);
    pj_span_end(lane, &work);
    pj_span_next(lane, NULL, PJ_SPAN_COMPONENT, q);
    for (int i = 0; i < 5; i++) pj_span_end(lane, NULL);
    assert_int_equal(pj_recorder_context(&r).layer, -1);
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_NAME), 3);
    assert_int_equal(count_of(PJ_RECORD_SPAN_BEGIN), 3);
    assert_string_equal(seen.items[0].text, "layers");
    const kept *op = ended(0);
    assert_int_equal(op->span.kind, PJ_SPAN_OPERATION);
    assert_int_equal(op->span.phase, PJ_PHASE_DECODE);
    assert_int_equal(op->span.token, 7);
    assert_int_equal(op->span.layer, 3);
    assert_int_equal(op->span.section, layers);
    assert_int_equal(op->span.component, q);
    assert_that(op->span.flops, ==, 1e6f);
    assert_that(op->span.bytes, ==, 2e6f);
    assert_that(op->stats.mean_abs, ==, 1.5f);
    assert_that(op->stats.nan_count, ==, 2);
    assert_int_equal(op->extra_count, 2);
    assert_that(op->extras[1].value, ==, -7);
    assert_that(op->extras[1].index, ==, 3);
    assert_that(op->span.end_ns, >=, op->span.begin_ns);
    /* pj_span_next: one clock reading between the two. */
    assert_int_equal(ended(1)->span.end_ns, ended(2)->span.begin_ns);
    assert_true(isnan(ended(1)->span.flops));
    const kept *token = ended(5), *phase = ended(6);
    assert_int_equal(token->span.kind, PJ_SPAN_TOKEN);
    assert_int_equal(token->span.layer, -1);
    assert_int_equal(token->span.section, 0);
    assert_int_equal(phase->span.kind, PJ_SPAN_PHASE);
    assert_int_equal(phase->span.phase, PJ_PHASE_DECODE);
    for (uint32_t i = 0; i < seen.count; i++)
        if (seen.items[i].type == PJ_RECORD_TOKEN_TEXT)
            assert_string_equal(seen.items[i].text, "hello");
    assert_int_equal(count_of(PJ_RECORD_TOKEN_TEXT), 1);
    assert_int_equal(pj_recorder_count(&r).misused, 0);
    pj_recorder_fini(&r);
    pj_recorder_fini(&r);
}

static void depth_drops_what_is_finer(void **state)
{
    const struct {
        pj_depth depth;
        uint32_t spans;
    } cases[] = {{PJ_DEPTH_OFF, 2}, {PJ_DEPTH_MODULE, 4}, {PJ_DEPTH_DEEP, 5}};
    for (int c = 0; c < 3; c++) {
        pj_recorder r;
        pj_recorder_init(&r, cases[c].depth, 0, NULL);
        pj_lane *lane = pj_recorder_lane(&r);
        const pj_span_kind kinds[] = {PJ_SPAN_PHASE, PJ_SPAN_TOKEN, PJ_SPAN_LAYER,
                                      PJ_SPAN_COMPONENT, PJ_SPAN_OPERATION};
        for (int i = 0; i < 5; i++) pj_span_begin(lane, kinds[i], 1);
        for (int i = 0; i < 5; i++) pj_span_end(lane, NULL);
        drain(&r);
        assert_int_equal(count_of(PJ_RECORD_SPAN), cases[c].spans);
        assert_int_equal(pj_recorder_count(&r).spans, cases[c].spans);
        pj_recorder_fini(&r);
    }
}

static void misuse_is_counted_and_balanced(void **state)
{
    pj_recorder r;
    pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, NULL);
    pj_lane *lane = pj_recorder_lane(&r);
    pj_span_end(lane, NULL); /* nothing is open */
    pj_span_begin(lane, PJ_SPAN_LAYER, 1);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL); /* coarser than what is around it */
    pj_span_begin(lane, PJ_SPAN_COMPONENT, 1);            /* inside what was dropped */
    pj_span_end(lane, NULL);
    pj_span_end(lane, NULL);
    pj_span_end(lane, NULL);
    for (int i = 0; i < 20; i++) pj_span_begin(lane, PJ_SPAN_OPERATION, 1); /* 16 fit */
    for (int i = 0; i < 20; i++) pj_span_end(lane, NULL);
    pj_span_begin(lane, PJ_SPAN_PHASE, 99);
    pj_span_end(lane, NULL);
    pj_token_text(lane, 0, 0, "x", 1); /* no token is open */
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_SPAN), 1 + 16);
    assert_int_equal(pj_recorder_count(&r).misused, 1 + 1 + 1 + 1 + 1);
    pj_span_begin(NULL, PJ_SPAN_TOKEN, 0);
    pj_span_end(NULL, NULL);
    pj_span_next(NULL, NULL, PJ_SPAN_TOKEN, 0);
    pj_token_text(NULL, 0, 0, "x", 1);
    pj_recorder_fini(&r);
}

static void a_full_ring_counts_losses_and_goes_on(void **state)
{
    pj_recorder r;
    pj_recorder_init(&r, PJ_DEPTH_DEEP, 1, NULL); /* the smallest: 256 kB */
    pj_lane *lane = pj_recorder_lane(&r);
    const uint32_t tried = 10000;
    for (uint32_t i = 0; i < tried; i++) {
        pj_span_begin(lane, PJ_SPAN_OPERATION, i);
        pj_span_end(lane, NULL);
    }
    pj_recorder_counts counts = pj_recorder_count(&r);
    assert_int_equal(counts.spans, 256 * 1024 / 64 / 8 * 7);
    assert_int_equal(counts.spans + counts.lost, tried);
    for (uint32_t i = 0; i < 100; i++) { /* the rest is for tokens */
        pj_span_begin(lane, PJ_SPAN_TOKEN, i);
        pj_span_begin(lane, PJ_SPAN_OPERATION, i);
        pj_span_end(lane, NULL);
        pj_token_text(lane, 0, (int32_t)i, "x", 1);
        pj_span_end(lane, NULL);
    }
    assert_int_equal(pj_recorder_count(&r).spans, counts.spans + 100);
    counts.lost += 100;
    assert_int_equal(pj_recorder_count(&r).lost, counts.lost);
    assert_true(pj_recorder_is_busy(&r));
    drain(&r);
    assert_false(pj_recorder_is_busy(&r));
    pj_stats stats = {0};
    for (uint32_t i = 0; i < 20000; i++) { /* wraps at every alignment */
        pj_extra extra = {1, i, i};
        pj_work work = {i, i, i % 3 ? &stats : NULL, &extra, i % 2};
        pj_span_begin(lane, PJ_SPAN_OPERATION, i);
        pj_span_end(lane, &work);
        if (i % 500 != 499) continue;
        drain(&r);
        assert_int_equal(count_of(PJ_RECORD_SPAN), 500);
        for (uint32_t k = 0; k < 500; k++) {
            assert_int_equal(seen.items[k].span.id, i - 499 + k);
            assert_int_equal(seen.items[k].extra_count, seen.items[k].span.id % 2);
        }
    }
    assert_int_equal(pj_recorder_count(&r).lost, counts.lost);
    pj_recorder_fini(&r);
}

static void hot_path_allocates_nothing(void **state)
{
    pj_recorder r;
    pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, NULL);
    pj_lane *lane = pj_recorder_lane(&r);
    pj_stats stats = {0};
    pj_extra extras[4] = {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}};
    pj_work work = {1, 1, &stats, extras, 4};
    uint64_t before = pj_memory_count();
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    for (uint32_t i = 0; i < 5000; i++) {
        pj_span_begin(lane, PJ_SPAN_TOKEN, i);
        pj_span_begin(lane, PJ_SPAN_COMPONENT, 1);
        pj_span_next(lane, &work, PJ_SPAN_COMPONENT, 1);
        pj_span_end(lane, &work);
        pj_token_text(lane, 0, 1, "a", 1);
        pj_span_end(lane, NULL);
        if (i % 1000 == 0) drain(&r);
    }
    pj_span_end(lane, NULL);
    assert_int_equal(pj_memory_count(), before);
    assert_int_equal(pj_recorder_count(&r).lost, 0);
    pj_recorder_fini(&r);
}

/* ---- devices ------------------------------------------------------------------------------- */

static pj_device_span on_device(pj_span_kind kind, uint32_t id, uint32_t parent, int64_t begin_ns,
                                int64_t end_ns)
{
    return (pj_device_span){begin_ns, end_ns, (uint32_t)kind, id, -1, parent, NULL};
}

static void start_with_device(pj_recorder *r)
{
    pj_recorder_init(r, PJ_DEPTH_DEEP, 0, NULL);
    r->begun_ns = pj_clock_ns() - 10000000; /* spans of the past 10 ms are the run's */
    assert_int_equal(pj_recorder_add_device(r), 1);
}

/* Four levels of two launches, the first of which is added after its host span has ended. */
static void device_spans_nest_and_know_their_launch(void **state)
{
    pj_recorder r;
    pj_launch first, second;
    start_with_device(&r);
    int64_t t = r.begun_ns + 1000;
    pj_lane *lane = pj_recorder_lane(&r);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 7);
    pj_device_launch(lane, &first);
    pj_span_end(lane, NULL);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 8);
    pj_device_launch(lane, &second);
    pj_work work = {.flops = 5, .bytes = 6};
    pj_device_span spans[] = {on_device(PJ_SPAN_LAYER, 3, 0, t, t + 100),
                              on_device(PJ_SPAN_COMPONENT, 4, 1, t + 10, t + 90),
                              on_device(PJ_SPAN_LAYER, 9, 0, t + 100, t + 120),
                              on_device(PJ_SPAN_OPERATION, 5, 2, t + 20, t + 95)};
    spans[3].work = &work;
    pj_device_batch batch = {.size = sizeof batch,
                             .launch = &second,
                             .spans = spans,
                             .span_count = 4,
                             .clock_error_ns = 11};
    assert_int_equal(pj_recorder_add_device_spans(&r, 1, &batch, NULL), PJ_OK);
    batch.launch = &first;
    batch.span_count = 1;
    assert_int_equal(pj_recorder_add_device_spans(&r, 1, &batch, NULL), PJ_OK);
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_LAUNCH), 2);
    /* the host's first token, then each device span after what it contains */
    static const struct {
        uint8_t kind;
        uint32_t id, serial;
        int32_t token, layer;
    } expected[] = {{PJ_SPAN_OPERATION, 5, 2, 8, 3},
                    {PJ_SPAN_COMPONENT, 4, 1, 8, 3},
                    {PJ_SPAN_LAYER, 3, 0, 8, -1},
                    {PJ_SPAN_LAYER, 9, 3, 8, -1},
                    {PJ_SPAN_LAYER, 3, 4, 7, -1}};
    uint32_t found = 0;
    for (uint32_t i = 0; i < count_of(PJ_RECORD_SPAN); i++) {
        const pj_span *s = &ended(i)->span;
        if (s->device == 0) continue;
        assert_int_equal(s->flags & PJ_SPAN_DEVICE, PJ_SPAN_DEVICE);
        assert_int_equal(s->phase, PJ_PHASE_DECODE);
        assert_int_equal(s->kind, expected[found].kind);
        assert_int_equal(s->id, expected[found].id);
        assert_int_equal(s->serial, expected[found].serial);
        assert_int_equal(s->token, expected[found].token);
        assert_int_equal(s->layer, expected[found].layer);
        found++;
    }
    assert_int_equal(found, 5);
    assert_float_equal(ended(1)->span.flops, 5, 0);
    assert_that(ended(1)->span.end_ns, ==, t + 90); /* clipped to its parent */
    pj_recorder_fini(&r);
}

static void device_spans_stay_within_the_run(void **state)
{
    pj_recorder r;
    start_with_device(&r);
    int64_t begun_ns = r.begun_ns;
    pj_device_span spans[] = {
        on_device(PJ_SPAN_COMPONENT, 1, 0, begun_ns - 200, begun_ns - 100),
        on_device(PJ_SPAN_COMPONENT, 2, 0, INT64_MAX - 1, INT64_MAX),
        on_device(PJ_SPAN_COMPONENT, 3, 0, INT64_MIN, INT64_MAX),
    };
    pj_device_batch batch = {.size = sizeof batch, .spans = spans, .span_count = 3};
    assert_int_equal(pj_recorder_add_device_spans(&r, 1, &batch, NULL), PJ_OK);
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_SPAN), 1);
    assert_int_equal(pj_recorder_count(&r).misused, 2);
    assert_int_equal(ended(0)->span.id, 3);
    assert_that(ended(0)->span.begin_ns, ==, begun_ns);
    assert_that(ended(0)->span.end_ns, <=, pj_clock_ns());
    pj_recorder_fini(&r);
}

static void impossible_device_spans_are_refused_as_a_whole(void **state)
{
    pj_recorder r;
    start_with_device(&r);
    int64_t t = r.begun_ns;
    const pj_device_span good = on_device(PJ_SPAN_COMPONENT, 1, 0, t, t + 10);
    const struct {
        pj_device_span span;
        const char *says;
    } bad[] = {{on_device(PJ_SPAN_PHASE, 1, 0, t, t), "kind"},
               {on_device(PJ_SPAN_TOKEN, 1, 0, t, t), "kind"},
               {on_device(PJ_SPAN_KIND_COUNT, 1, 0, t, t), "kind"},
               {on_device(PJ_SPAN_OPERATION, 1, 0, t, t - 1), "before it begins"},
               {on_device(PJ_SPAN_OPERATION, 1, 2, t, t), "not before it"},
               {on_device(PJ_SPAN_LAYER, 1, 1, t, t), "coarser"},
               {on_device(PJ_SPAN_OPERATION, 1, 1, t + 11, t + 12), "outside its parent"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_device_span spans[] = {good, bad[i].span};
        pj_device_batch batch = {.size = sizeof batch, .spans = spans, .span_count = 2};
        pj_error err = {0};
        assert_int_equal(pj_recorder_add_device_spans(&r, 1, &batch, &err), PJ_E_INVALID);
        if (!strstr(err.text, bad[i].says)) fail_msg("%zu: %s", i, err.text);
    }
    pj_device_span deep[20];
    for (uint32_t i = 0; i < 20; i++) deep[i] = on_device(PJ_SPAN_COMPONENT, 1, i, t, t);
    pj_device_batch batch = {.size = sizeof batch, .spans = deep, .span_count = 20};
    assert_int_equal(pj_recorder_add_device_spans(&r, 1, &batch, NULL), PJ_E_INVALID);
    batch.span_count = 1;
    assert_int_equal(pj_recorder_add_device_spans(&r, 2, &batch, NULL), PJ_E_INVALID);
    assert_int_equal(pj_recorder_add_device_spans(&r, 0, &batch, NULL), PJ_E_INVALID);
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_SPAN), 0);
    pj_recorder_fini(&r);
}

static void open_spans_are_closed_as_unfinished(void **state)
{
    pj_recorder r;
    pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, NULL);
    pj_lane *lane = pj_recorder_lane(&r);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
    pj_span_begin(lane, PJ_SPAN_LAYER, 1);
    pj_recorder_close_open(&r);
    drain(&r);
    assert_int_equal(count_of(PJ_RECORD_SPAN), 2);
    assert_int_equal(ended(0)->span.flags, PJ_SPAN_UNFINISHED);
    assert_int_equal(ended(0)->span.kind, PJ_SPAN_LAYER);
    pj_recorder_fini(&r);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { WORKERS = 4, SPANS_EACH = 20000 };

typedef struct crowd {
    pj_recorder recorder;
    _Atomic bool stop;
    uint64_t seen_by_lane[64];
    uint32_t next_serial[64];
    bool ordered, tagged;
} crowd;

static void *work_hard(void *context)
{
    crowd *c = context;
    pj_lane *lane = pj_recorder_lane(&c->recorder);
    for (uint32_t i = 0; i < SPANS_EACH; i++) {
        char name[16];
        snprintf(name, sizeof name, "name-%u", i % 300);
        uint32_t id = i % 100 == 0 ? pj_recorder_name(&c->recorder, name) : 1;
        pj_span_begin(lane, PJ_SPAN_COMPONENT, id);
        pj_span_end(lane, NULL);
        while (pj_recorder_is_busy(&c->recorder)) pj_cpu_relax();
    }
    return lane;
}

static void count_record(void *context, const pj_record *record)
{
    crowd *c = context;
    pj_span_view view;
    if (pj_record_kind(record) != PJ_RECORD_SPAN || !pj_span_view_get(record, &view)) return;
    uint16_t lane = view.span->lane;
    if (lane == 0) return; /* the phase's own thread */
    c->seen_by_lane[lane]++;
    c->ordered &= view.span->serial == c->next_serial[lane]++;
    c->tagged &= view.span->phase == PJ_PHASE_DECODE && view.span->token == 9;
}

static void *collect(void *context)
{
    crowd *c = context;
    while (!c->stop) pj_recorder_drain(&c->recorder, count_record, c);
    pj_recorder_drain(&c->recorder, count_record, c);
    return NULL;
}

static void many_threads_lose_and_mix_nothing(void **state)
{
    static crowd c;
    pthread_t workers[WORKERS], collector;
    c.ordered = c.tagged = true;
    pj_recorder_init(&c.recorder, PJ_DEPTH_DEEP, 0, NULL);
    pj_lane *lane = pj_recorder_lane(&c.recorder);
    assert_ptr_equal(pj_recorder_lane(&c.recorder), lane);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE); /* workers are in it too */
    pj_span_begin(lane, PJ_SPAN_TOKEN, 9);
    pthread_create(&collector, NULL, collect, &c);
    for (int i = 0; i < WORKERS; i++) pthread_create(&workers[i], NULL, work_hard, &c);
    void *lanes[WORKERS];
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], &lanes[i]);
    c.stop = true;
    pthread_join(collector, NULL);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(c.seen_by_lane[i + 1], SPANS_EACH);
        for (int k = 0; k < i; k++) assert_ptr_not_equal(lanes[i], lanes[k]);
    }
    assert_true(c.ordered && c.tagged);
    assert_int_equal(pj_recorder_count(&c.recorder).lost, 0);
    pj_recorder_fini(&c.recorder);
}

static void *add_device(void *recorder)
{
    assert_int_equal(pj_recorder_add_device(recorder), 1);
    assert_true(pj_recorder_name(recorder, "named meanwhile") > 0);
    return NULL;
}

/* Waits for another thread, as for a lock that it holds. */
static void wait_for_device(void *context, const pj_record *record)
{
    pthread_t other;
    bool first = seen.count == 0;
    keep(&seen, record);
    if (!first) return;
    assert_int_equal(pthread_create(&other, NULL, add_device, context), 0);
    pthread_join(other, NULL);
}

/* A device is declared while the collector takes a name. */
static void names_are_taken_without_a_lock(void **state)
{
    pj_recorder r;
    assert_int_equal(pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, NULL), PJ_OK);
    pj_recorder_name(&r, "first");
    seen.count = 0;
    pj_recorder_drain(&r, wait_for_device, &r);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.items[0].text, "first");
    assert_string_equal(seen.items[1].text, "named meanwhile");
    pj_recorder_fini(&r);
}

static void nth_allocation_may_fail(void **state)
{
    for (int n = 0; n < 60; n++) {
        pj_recorder r;
        pj_memory_fail_after(n);
        if (pj_recorder_init(&r, PJ_DEPTH_DEEP, 0, NULL) == PJ_OK) {
            pj_lane *lane = pj_recorder_lane(&r);
            for (int i = 0; i < 200; i++) {
                char name[16];
                snprintf(name, sizeof name, "n%d", i);
                pj_recorder_name(&r, name);
            }
            pj_span_begin(lane, PJ_SPAN_TOKEN, 1);
            pj_span_end(lane, NULL);
            assert_non_null(pj_recorder_lane(&r)); /* the failure is over by now */
            pj_recorder_fini(&r);
        }
        pj_memory_fail_after(-1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_carry_their_context),
        cmocka_unit_test(depth_drops_what_is_finer),
        cmocka_unit_test(misuse_is_counted_and_balanced),
        cmocka_unit_test(a_full_ring_counts_losses_and_goes_on),
        cmocka_unit_test(hot_path_allocates_nothing),
        cmocka_unit_test(device_spans_nest_and_know_their_launch),
        cmocka_unit_test(device_spans_stay_within_the_run),
        cmocka_unit_test(impossible_device_spans_are_refused_as_a_whole),
        cmocka_unit_test(open_spans_are_closed_as_unfinished),
        cmocka_unit_test(many_threads_lose_and_mix_nothing),
        cmocka_unit_test(names_are_taken_without_a_lock),
        cmocka_unit_test(nth_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
