/* Spans with explicit times, many in one call: how they nest, what they carry, what is refused. */
#include "../assertions.h"
#include "record/run.h"

#include <perjoule.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define US 1000

static pj_session *session;

static int open_session(void **state)
{
    pj_session_options options = {
        .size = sizeof options, .power = "none", .database = "none", .baseline_seconds = -1};
    return pj_session_open(&options, &session, NULL);
}

static int close_session(void **state)
{
    pj_session_close(session);
    return 0;
}

static pj_run *begin(pj_depth depth)
{
    pj_run *run = NULL;
    pj_run_options options = {.size = sizeof options, .prompt = "hello", .depth = depth};
    assert_int_equal(pj_run_begin(session, &options, &run, NULL), PJ_OK);
    int64_t until = pj_clock_ns() + 1000 * US; /* so that there is a past to write into */
    while (pj_clock_ns() < until) {
    }
    return run;
}

static pj_run_data end(pj_run *run)
{
    pj_run_data data;
    assert_int_equal(pj_run_finish(run, PJ_RUN_COMPLETED, NULL, &data, NULL), PJ_OK);
    return data;
}

static pj_packed_span span(int64_t base_ns, int64_t begin_us, int64_t end_us, pj_span_kind kind,
                           uint32_t id, int32_t layer)
{
    return (pj_packed_span){.begin_ns = base_ns + begin_us * US,
                            .end_ns = base_ns + end_us * US,
                            .id = id,
                            .kind = (uint16_t)kind,
                            .layer = layer};
}

static pj_status add(pj_run *run, const pj_packed_span *spans, size_t count, pj_error *err)
{
    pj_span_batch batch = {.size = sizeof batch, .spans = spans, .span_count = count};
    return pj_spans_add(pj_run_lane(run), &batch, err);
}

static void shuffle(pj_packed_span *spans, size_t count)
{
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = (size_t)rand() % (i + 1);
        pj_packed_span kept = spans[i];
        spans[i] = spans[other];
        spans[other] = kept;
    }
}

/* A whole run in one call, in any order: phases, tokens, layers, components, operations. */
static void times_make_the_tree(void **state)
{
    for (int round = 0; round < 20; round++) {
        pj_run *run = begin(PJ_DEPTH_DEEP);
        uint32_t q = pj_run_name(run, "q_proj"), mm = pj_run_name(run, "matmul");
        int64_t t = pj_clock_ns() - 900 * US;
        pj_packed_span spans[] = {
            span(t, 0, 300, PJ_SPAN_PHASE, PJ_PHASE_PREFILL, -1),
            span(t, 300, 800, PJ_SPAN_PHASE, PJ_PHASE_DECODE, -1),
            span(t, 0, 300, PJ_SPAN_TOKEN, 0, -1),
            span(t, 300, 500, PJ_SPAN_TOKEN, 1, -1),
            span(t, 500, 800, PJ_SPAN_TOKEN, 2, -1),
            span(t, 310, 400, PJ_SPAN_LAYER, 0, -1),
            span(t, 400, 490, PJ_SPAN_LAYER, 1, -1),
            span(t, 410, 450, PJ_SPAN_COMPONENT, q, -1),
            span(t, 410, 450, PJ_SPAN_OPERATION, mm, -1),
        };
        shuffle(spans, sizeof spans / sizeof *spans);
        assert_int_equal(add(run, spans, sizeof spans / sizeof *spans, NULL), PJ_OK);
        pj_run_data d = end(run);
        assert_int_equal(d.token_count, 3);
        assert_int_equal(d.layer_count, 2);
        assert_int_equal(d.component_count, 1);
        assert_int_equal(d.operation_count, 1);
        const pj_component_row *c = &d.components[0];
        assert_string_equal(c->name, "q_proj");
        assert_int_equal(d.layers[c->layer].layer_index, 1);
        assert_int_equal(d.tokens[d.layers[c->layer].token].position, 1);
        assert_int_equal(d.phases[d.tokens[c->token].phase].phase, PJ_PHASE_DECODE);
        assert_near(c->duration_ms, 0.04, 1e-9);
        assert_int_equal(d.info.spans_lost, 0);
        pj_run_data_fini(&d);
    }
}

/* Inside spans that were opened by calls, and layers that have no span of their own. */
static void they_lie_in_what_is_open(void **state)
{
    pj_run *run = begin(PJ_DEPTH_MODULE);
    pj_lane *lane = pj_run_lane(run);
    uint32_t q = pj_run_name(run, "q_proj"), down = pj_run_name(run, "down_proj");
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 5);
    int64_t t = pj_clock_ns();
    while (pj_clock_ns() < t + 100 * US) {
    }
    pj_packed_span spans[] = {span(t, 40, 50, PJ_SPAN_COMPONENT, q, 1),
                              span(t, 0, 10, PJ_SPAN_COMPONENT, q, 0),
                              span(t, 10, 30, PJ_SPAN_COMPONENT, down, 0),
                              span(t, 12, 14, PJ_SPAN_OPERATION, q, 0) /* finer than the run */};
    pj_span_detail details[] = {
        {.flops = 5e6, .bytes = NAN},
        {.flops = NAN, .bytes = 7, .stats = {.max_abs = 3}, .has_stats = 1}};
    spans[0].detail = 2;
    spans[1].detail = 1;
    spans[2].detail = 1;
    pj_span_batch batch = {sizeof batch, spans, 4, details, 2, NULL, 0, NULL, 0};
    assert_int_equal(pj_spans_add(lane, &batch, NULL), PJ_OK);
    pj_token_text(lane, 0, 42, "x", 1);
    pj_span_end(lane, NULL);
    pj_span_end(lane, NULL);
    pj_run_data d = end(run);
    assert_int_equal(d.token_count, 1);
    assert_int_equal(d.layer_count, 2);
    assert_int_equal(d.component_count, 3);
    assert_int_equal(d.operation_count, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const pj_component_row *c = &d.components[i];
        const pj_layer_row *layer = &d.layers[c->layer];
        assert_int_equal(d.tokens[layer->token].position, 5);
        bool second = layer->layer_index == 1;
        assert_true(second ? isnan(c->flops) && c->bytes == 7 : c->flops == 5e6 && isnan(c->bytes));
        assert_int_equal(c->has_stats, second);
        if (second) assert_that(c->stats.max_abs, ==, 3);
    }
    assert_that(d.layers[0].duration_ms, >=, 0.0099);
    assert_that(d.layers[1].duration_ms, >=, 0.0099);
    assert_int_equal(d.tokens[0].token_id, 42);
    pj_run_data_fini(&d);
}

static void tokens_carry_texts(void **state)
{
    pj_run *run = begin(PJ_DEPTH_OFF);
    int64_t t = pj_clock_ns() - 900 * US;
    pj_packed_span spans[] = {span(t, 400, 800, PJ_SPAN_TOKEN, 1, -1),
                              span(t, 0, 400, PJ_SPAN_TOKEN, 0, -1),
                              span(t, 0, 800, PJ_SPAN_PHASE, PJ_PHASE_DECODE, -1)};
    pj_packed_text texts[] = {{0, 0, 7, 3, "two"}, {0, 1, 8, 3, "zwo"}, {1, 0, 9, 3, "one"}};
    pj_span_batch batch = {sizeof batch, spans, 3, NULL, 0, texts, 3, NULL, 0};
    assert_int_equal(pj_spans_add(pj_run_lane(run), &batch, NULL), PJ_OK);
    pj_run_data d = end(run);
    assert_int_equal(d.token_count, 3);
    assert_string_equal(d.tokens[0].text, "one");
    assert_string_equal(d.tokens[1].text, "two");
    assert_string_equal(d.tokens[2].text, "zwo");
    assert_int_equal(d.tokens[2].sequence, 1);
    assert_int_equal(d.tokens[2].token_id, 8);
    pj_run_data_fini(&d);
}

/* A UUID is a device's, unless its PCI address is another's or it is zero. */
static void devices_are_told_apart(void **state)
{
    static const char zero[] = "00000000-0000-0000-0000-000000000000",
                      uuid[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
    static const struct {
        const char *name, *uuid, *pci;
        uint32_t device;
    } cases[] = {{"card", uuid, "0000:01:00.0", 1},
                 {"card", uuid, "0000:02:00.0", 2},
                 {"the same", uuid, "01:00.0", 1},
                 {"the same", uuid, NULL, 1},
                 {"zero", zero, NULL, 3},
                 {"zero, too", zero, NULL, 4},
                 {"zero", zero, NULL, 3}};
    pj_run *run = begin(PJ_DEPTH_MODULE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pj_device_info info = {
            .size = sizeof info, .name = cases[i].name, .uuid = cases[i].uuid, .pci = cases[i].pci};
        uint32_t device;
        assert_int_equal(pj_device_declare(run, &info, &device, NULL), PJ_OK);
        if (device != cases[i].device)
            fail_msg("case %zu: device %u, not %u", i, device, cases[i].device);
    }
    pj_run_data d = end(run);
    pj_run_data_fini(&d);
}

/* The host's token and sections, and two devices' modules, in one call: modules nest on their
 * device, and lie in the section in which they began. */
static void devices_nest_among_themselves(void **state)
{
    pj_run *run = begin(PJ_DEPTH_MODULE);
    pj_lane *lane = pj_run_lane(run);
    uint32_t q = pj_run_name(run, "q_proj"), head = pj_run_name(run, "lm_head");
    uint32_t layers = pj_run_name(run, "layers");
    pj_packed_device devices[2] = {{.clock_error_ns = 700}, {.clock_error_ns = 900}};
    for (int i = 0; i < 2; i++) {
        pj_device_info info = {.size = sizeof info, .name = i ? "second" : "first"};
        assert_int_equal(pj_device_declare(run, &info, &devices[i].device, NULL), PJ_OK);
    }
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    int64_t t = pj_clock_ns();
    while (pj_clock_ns() < t + 100 * US) {
    }
    pj_packed_span spans[] = {
        span(t, 0, 90, PJ_SPAN_TOKEN, 5, -1),       span(t, 0, 50, PJ_SPAN_SECTION, layers, -1),
        span(t, 50, 80, PJ_SPAN_SECTION, head, -1), span(t, 0, 30, PJ_SPAN_LAYER, 0, -1),
        span(t, 5, 20, PJ_SPAN_COMPONENT, q, -1),   span(t, 25, 52, PJ_SPAN_LAYER, 1, -1),
        span(t, 26, 40, PJ_SPAN_COMPONENT, q, -1),  span(t, 50, 80, PJ_SPAN_COMPONENT, head, -1)};
    enum { COUNT = sizeof spans / sizeof *spans };
    pj_span_detail detail = {.flops = 5e6, .bytes = NAN};
    for (int i = 3; i < COUNT; i++) spans[i].device = i == 5 || i == 6 ? 2 : 1;
    spans[4].detail = 1;
    shuffle(spans, COUNT);
    pj_span_batch batch = {.size = sizeof batch,
                           .spans = spans,
                           .span_count = COUNT,
                           .details = &detail,
                           .detail_count = 1,
                           .devices = devices,
                           .device_count = 2};
    assert_int_equal(pj_spans_add(lane, &batch, NULL), PJ_OK);
    pj_span_end(lane, NULL);
    pj_run_data d = end(run);
    assert_int_equal(d.token_count, 1);
    assert_int_equal(d.section_count, 2);
    assert_int_equal(d.layer_count, 2);
    assert_int_equal(d.component_count, 3);
    for (uint32_t i = 0; i < 2; i++) {
        const pj_layer_row *l = &d.layers[i];
        assert_int_equal(l->device, devices[l->layer_index].device);
        assert_int_equal(d.tokens[l->token].position, 5);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const pj_component_row *c = &d.components[i];
        bool is_head = strcmp(c->name, "lm_head") == 0;
        assert_string_equal(d.sections[c->section].name, is_head ? "lm_head" : "layers");
        assert_int_equal(c->layer == PJ_NO_PARENT, is_head);
        if (!is_head) assert_int_equal(c->device, d.layers[c->layer].device);
        assert_int_equal(c->flops == 5e6, !is_head && d.layers[c->layer].layer_index == 0);
    }
    assert_int_equal(d.info.spans_lost, 0);
    pj_run_data_fini(&d);
}

/* Rounding makes a child outlast its parent; threads make neighbours overlap. */
static void overlaps_are_kept(void **state)
{
    pj_run *run = begin(PJ_DEPTH_MODULE);
    uint32_t a = pj_run_name(run, "a"), b = pj_run_name(run, "b");
    int64_t t = pj_clock_ns() - 900 * US;
    pj_packed_span spans[] = {
        span(t, 0, 800, PJ_SPAN_PHASE, PJ_PHASE_DECODE, -1),
        span(t, 0, 800, PJ_SPAN_TOKEN, 0, -1),
        span(t, 0, 100, PJ_SPAN_LAYER, 0, -1),
        span(t, 50, 101, PJ_SPAN_COMPONENT, a, -1),
        span(t, 60, 150, PJ_SPAN_COMPONENT, b, -1), /* most of it is after the layer */
        span(t, 60, 90, PJ_SPAN_COMPONENT, b, -1)};
    assert_int_equal(add(run, spans, 6, NULL), PJ_OK);
    pj_run_data d = end(run);
    assert_int_equal(d.component_count, 3);
    uint32_t inside = 0;
    for (uint32_t i = 0; i < 3; i++) inside += d.components[i].layer != PJ_NO_PARENT;
    assert_int_equal(inside, 1); /* a; b closed the layer, and the third lies in b */
    pj_run_data_fini(&d);
}

static void nonsense_is_refused_whole(void **state)
{
    pj_run *run = begin(PJ_DEPTH_MODULE);
    pj_error err = {0};
    int64_t t = pj_clock_ns() - 500 * US;
    pj_packed_span good = span(t, 0, 10, PJ_SPAN_SECTION, pj_run_name(run, "s"), -1), bad[2];
    for (int i = 0; i < 6; i++) {
        bad[0] = bad[1] = good;
        if (i == 0) bad[1].kind = 6;
        if (i == 1) bad[1].end_ns = bad[1].begin_ns - 1;
        if (i == 2) bad[1].detail = 1;
        if (i == 3) bad[1].layer = 40000;
        if (i == 4) bad[1].kind = PJ_SPAN_PHASE, bad[1].id = 77;
        if (i == 5) bad[1].device = 1;
        assert_int_equal(add(run, bad, 2, &err), PJ_E_INVALID);
        assert_non_null(strstr(err.text, "span 1"));
    }
    assert_int_equal(add(run, NULL, 3, &err), PJ_E_INVALID);
    assert_int_equal(pj_spans_add(NULL, NULL, &err), PJ_E_INVALID);
    pj_packed_device device = {.device = 1}; /* which the run has not */
    pj_span_batch on = {
        .size = sizeof on, .spans = &good, .span_count = 1, .devices = &device, .device_count = 1};
    assert_int_equal(pj_spans_add(pj_run_lane(run), &on, &err), PJ_E_INVALID);
    pj_device_info info = {.size = sizeof info, .name = "GPU"};
    assert_int_equal(pj_device_declare(run, &info, &device.device, NULL), PJ_OK);
    pj_packed_span token = good;
    token.kind = PJ_SPAN_TOKEN;
    token.device = 1;
    on.spans = &token;
    assert_int_equal(pj_spans_add(pj_run_lane(run), &on, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "token of a device"));
    device.clock_error_ns = -1;
    assert_int_equal(pj_spans_add(pj_run_lane(run), &on, &err), PJ_E_INVALID);
    pj_packed_text texts[] = {{1, 0, 7, 0, NULL}, {0, 0, 8, 0, NULL}};
    pj_span_batch batch = {sizeof batch, bad, 2, NULL, 0, texts, 2, NULL, 0};
    bad[1] = good;
    assert_int_equal(pj_spans_add(pj_run_lane(run), &batch, &err), PJ_E_INVALID);
    assert_int_equal(add(run, NULL, 0, &err), PJ_OK);
    pj_packed_span outside[] = {good, good};
    outside[0].begin_ns = outside[0].end_ns = 5; /* long before the run */
    outside[1].begin_ns += (int64_t)1 << 50;
    outside[1].end_ns += (int64_t)1 << 50;
    assert_int_equal(add(run, outside, 2, &err), PJ_OK);
    pj_run_data d = end(run);
    assert_int_equal(d.section_count, 0);
    bool said = false;
    for (uint32_t i = 0; i < d.warning_count; i++)
        said |= strcmp(d.warnings[i].code, "spans_misused") == 0;
    assert_true(said);
    pj_run_data_fini(&d);
}

/* Times that a program took from another clock, or that lie before its run: the run is not longer
 * for them. */
static void times_outside_the_run_are_clipped(void **state)
{
    static const int64_t hour_ns = 3600 * INT64_C(1000000000);
    const int64_t begin_us[] = {-50000, 0, -50000, hour_ns / US};
    const int64_t end_us[] = {0, hour_ns / US, hour_ns / US, 2 * hour_ns / US};
    for (int i = 0; i < 5; i++) {
        int64_t before_ns = pj_clock_ns();
        pj_run *run = begin(PJ_DEPTH_MODULE);
        pj_lane *lane = pj_run_lane(run);
        uint32_t name = pj_run_name(run, "s");
        int64_t t = pj_clock_ns() - 500 * US;
        pj_packed_span all = {.id = name, .kind = PJ_SPAN_SECTION, .layer = -1};
        all.begin_ns = INT64_MIN;
        all.end_ns = INT64_MAX;
        if (i == 4) {
            assert_int_equal(add(run, &all, 1, NULL), PJ_OK);
        } else {
            pj_span_begin_at(lane, PJ_SPAN_SECTION, name, t + begin_us[i] * US);
            pj_span_end_at(lane, NULL, t + end_us[i] * US);
        }
        pj_run_data d = end(run);
        double most_ms = (double)(pj_clock_ns() - before_ns) / 1e6;
        assert_that(d.info.total_ms, >=, 1);
        assert_that(d.info.total_ms, <=, most_ms);
        assert_int_equal(d.section_count, 1);
        const pj_section_row *s = &d.sections[0];
        assert_that(s->start_ms, >=, 0);
        assert_that(s->duration_ms, >=, 0);
        assert_that(s->start_ms + s->duration_ms, <=, d.info.total_ms + 1e-9);
        pj_run_data_fini(&d);
    }
}

/* Far more than a ring holds: the call waits for the collector instead of losing any. */
static void a_large_batch_is_not_lost(void **state)
{
    enum { COUNT = 200000 };
    pj_run *run = begin(PJ_DEPTH_MODULE);
    uint32_t q = pj_run_name(run, "q_proj");
    pj_packed_span *spans = calloc(COUNT, sizeof *spans);
    int64_t t = pj_clock_ns() - 900 * US;
    for (int i = 0; i < COUNT; i++) {
        spans[i] = span(t, 0, 0, PJ_SPAN_COMPONENT, q, i % 4);
        spans[i].begin_ns += 4 * i;
        spans[i].end_ns += 4 * i + 3;
    }
    assert_int_equal(add(run, spans, COUNT, NULL), PJ_OK);
    free(spans);
    pj_run_data d = end(run);
    assert_int_equal(d.info.spans_lost, 0);
    assert_int_equal(d.component_count, COUNT);
    pj_run_data_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_make_the_tree),
        cmocka_unit_test(they_lie_in_what_is_open),
        cmocka_unit_test(tokens_carry_texts),
        cmocka_unit_test(devices_are_told_apart),
        cmocka_unit_test(devices_nest_among_themselves),
        cmocka_unit_test(overlaps_are_kept),
        cmocka_unit_test(nonsense_is_refused_whole),
        cmocka_unit_test(a_large_batch_is_not_lost),
        cmocka_unit_test(times_outside_the_run_are_clipped),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
