/* Work of devices that is reported one by one: times, shares, packets, and what launched it. */
#include "../assertions.h"
#include "import/device_work.h"

#include "base/clock.h"
#include "trace/lane.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define US 1000

static pj_session *session;
static int64_t start_ns;

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

/* Correlation n was launched at n microseconds by thread 77. */
static bool find(void *context, uint32_t source, uint32_t correlation, uint32_t *thread,
                 int64_t *at_ns)
{
    *thread = 77;
    *at_ns = start_ns + (int64_t)correlation * US;
    return source == 1;
}

typedef struct recording {
    pj_run *run;
    pj_markers *markers;
    pj_device_work *work;
    uint32_t device, first, second, queue, other_queue;
} recording;

static recording begin(void)
{
    recording r;
    pj_run_options options = {.size = sizeof options, .depth = PJ_DEPTH_MODULE};
    pj_device_info gpu = {.size = sizeof gpu, .name = "gpu"};
    assert_int_equal(pj_run_begin(session, &options, &r.run, NULL), PJ_OK);
    assert_int_equal(pj_markers_new(r.run, &r.markers, NULL), PJ_OK);
    assert_int_equal(pj_device_declare(r.run, &gpu, &r.device, NULL), PJ_OK);
    assert_int_equal(pj_device_work_new(r.run, r.markers, find, NULL, 0, &r.work, NULL), PJ_OK);
    r.first = pj_run_name(r.run, "first");
    r.second = pj_run_name(r.run, "second");
    r.queue = pj_run_name(r.run, "stream 7");
    r.other_queue = pj_run_name(r.run, "stream 8");
    start_ns = pj_clock_ns();
    pj_clock_sleep_until(start_ns + 21000 * US);
    return r;
}

static void add(const recording *r, uint32_t name, uint32_t queue, int64_t begin_us, int64_t end_us)
{
    pj_work_piece piece = {
        start_ns + begin_us * US, start_ns + end_us * US, r->device, name, queue, 0, 0};
    pj_device_work_add(r->work, &piece);
}

static pj_run_data end(recording *r)
{
    pj_run_data data;
    pj_device_work_settle(r->work, pj_clock_ns(), true);
    pj_device_work_free(r->work);
    pj_markers_finish(r->markers, pj_clock_ns());
    pj_markers_free(r->markers);
    assert_int_equal(pj_run_finish(r->run, PJ_RUN_COMPLETED, NULL, &data, NULL), PJ_OK);
    return data;
}

/* Sum over components of that name; `count`: how many. */
static double time_of(const pj_run_data *d, const char *name, uint32_t *count)
{
    double ms = 0;
    *count = 0;
    for (uint32_t i = 0; i < d->component_count; i++)
        if (strcmp(d->components[i].name, name) == 0) {
            ms += d->components[i].duration_ms;
            ++*count;
        }
    return ms;
}

static void alone_keeps_its_times(void **state)
{
    uint32_t count;
    recording r = begin();
    add(&r, r.second, r.queue, 14000, 15000);
    add(&r, r.first, r.queue, 1000, 9000); /* longer than a packet */
    add(&r, r.first, r.queue, 9500, 10000);
    pj_run_data d = end(&r);
    assert_near(time_of(&d, "first", &count), 8.5, 1e-6);
    assert_int_equal(count, 2);
    assert_near(time_of(&d, "second", &count), 1, 1e-6);
    assert_int_equal(d.section_count, 3);
    double first_ms = d.sections[0].start_ms;
    for (uint32_t i = 1; i < 3; i++) first_ms = fmin(first_ms, d.sections[i].start_ms);
    for (uint32_t i = 0; i < 3; i++) {
        double at_ms = d.sections[i].start_ms - first_ms;
        assert_true(at_ms < 1e-6 || fabs(at_ms - 8.5) < 1e-6 || fabs(at_ms - 13) < 1e-6);
        assert_int_equal(d.sections[i].device, r.device);
    }
    pj_run_data_fini(&d);
}

static void many_are_added_up(void **state)
{
    uint32_t count;
    recording r = begin();
    for (int i = 0; i < 80; i++) /* 16 ms of busy time in reverse order, which is four packets */
        add(&r, i % 2 ? r.first : r.second, r.queue, 17000 - i * 200, 17200 - i * 200);
    pj_run_data d = end(&r);
    assert_near(time_of(&d, "first", &count), 8, 1e-6);
    assert_int_equal(count, 4);
    assert_near(time_of(&d, "second", &count), 8, 1e-6);
    assert_int_equal(d.section_count, 4);
    assert_int_equal(d.devices[r.device].busy_ms * 1000 + 0.5, 16000);
    pj_run_data_fini(&d);
}

static void what_overlaps_shares_each_instant(void **state)
{
    uint32_t count;
    recording r = begin();
    add(&r, r.first, r.queue, 1000, 4000);
    add(&r, r.second, r.other_queue, 2000, 3000); /* inside the first */
    add(&r, r.second, r.queue, 3500, 4500);       /* beyond its end */
    pj_run_data d = end(&r);
    assert_near(time_of(&d, "first", &count), 1 + 0.5 + 0.5 + 0.25, 1e-6);
    assert_near(time_of(&d, "second", &count), 0.5 + 0.25 + 0.5, 1e-6);
    assert_int_equal(count, 2); /* one per queue */
    assert_int_equal(d.devices[r.device].busy_ms * 1000 + 0.5, 3500);
    pj_run_data_fini(&d);
}

static void more_at_once_than_fits_is_counted(void **state)
{
    uint32_t count;
    recording r = begin();
    for (int i = 0; i < 300; i++) add(&r, r.first, r.queue, 1000, 2000);
    pj_device_work_settle(r.work, pj_clock_ns() + 9 * PJ_NS_PER_S, false);
    assert_int_equal(pj_device_work_lost(r.work), 300 - 256);
    pj_run_data d = end(&r);
    assert_near(time_of(&d, "first", &count), 1, 1e-6);
    pj_run_data_fini(&d);
}

static void late_work_is_recorded_too(void **state)
{
    uint32_t count;
    recording r = begin();
    add(&r, r.first, r.queue, 1000, 2000);
    add(&r, r.first, r.queue, 8000, 9000);
    pj_device_work_settle(r.work, start_ns + 8500 * US + 4 * PJ_NS_PER_S, false);
    add(&r, r.second, r.queue, 1500, 2500); /* by then recorded as idle and as the first's alone */
    add(&r, r.second, r.queue, 9000, 10000);
    pj_run_data d = end(&r);
    assert_near(time_of(&d, "first", &count), 2, 1e-6);
    assert_near(time_of(&d, "second", &count), 2, 1e-6);
    pj_run_data_fini(&d);
}

static void nonsense_is_left_out(void **state)
{
    recording r = begin();
    pj_work_piece piece = {start_ns, start_ns + US, PJ_MAX_DEVICES, r.first, r.queue, 0, 0};
    pj_device_work_add(r.work, &piece);
    piece.device = PJ_HOST;
    pj_device_work_add(r.work, &piece);
    assert_int_equal(pj_device_work_lost(r.work), 2);
    add(&r, r.first, r.queue, 2000, 2000);
    add(&r, r.first, r.queue, 2000, 1000);
    pj_run_data d = end(&r);
    assert_int_equal(d.component_count, 0);
    pj_run_data_fini(&d);
}

static void feed(const recording *r, int64_t at_us, const char *line)
{
    char text[128];
    int length =
        snprintf(text, sizeof text, "@%lld %s\n", (long long)(start_ns + at_us * US), line);
    pj_markers_feed(r->markers, text, (size_t)length, pj_clock_ns());
}

static pj_launch launch_at(const recording *r, uint32_t thread, int64_t at_us, bool is_settled)
{
    pj_launch launch;
    assert_int_equal(pj_markers_launch(r->markers, thread, start_ns + at_us * US, &launch),
                     is_settled);
    return launch;
}

/* The name of the section that was innermost; NULL: none. */
static const char *range_of(const recording *r, pj_launch launch)
{
    static const char *const names[] = {"outer", "of a domain", "inner"};
    pj_launch_place place;
    memcpy(&place, &launch, sizeof place);
    for (int i = 0; i < 3; i++)
        if (place.lane && place.section == (int32_t)pj_run_name(r->run, names[i])) return names[i];
    return NULL;
}

static void launches_are_in_the_innermost_range(void **state)
{
    recording r = begin();
    feed(&r, 500, "begin phase prefill");
    feed(&r, 1000, "#77 begin section outer");
    feed(&r, 2000, "#4294967373 begin section of a domain"); /* 77, and domain 1 */
    feed(&r, 3000, "#77 begin section inner");
    feed(&r, 4000, "#77 end");
    feed(&r, 5000, "#78 begin section inner"); /* another thread */
    feed(&r, 6000, "#4294967373 end");
    assert_null(range_of(&r, launch_at(&r, 77, 900, true)));
    assert_string_equal(range_of(&r, launch_at(&r, 77, 1500, true)), "outer");
    assert_string_equal(range_of(&r, launch_at(&r, 77, 2500, true)), "of a domain");
    assert_string_equal(range_of(&r, launch_at(&r, 77, 3500, true)), "inner");
    assert_string_equal(range_of(&r, launch_at(&r, 77, 5500, true)), "of a domain");
    assert_string_equal(range_of(&r, launch_at(&r, 77, 6500, false)), "outer");
    assert_null(range_of(&r, launch_at(&r, 79, 3500, false)));
    assert_null(range_of(&r, launch_at(&r, 0, 3500, false)));
    pj_launch_place place;
    pj_launch elsewhere = launch_at(&r, 79, 3500, false);
    memcpy(&place, &elsewhere, sizeof place);
    assert_int_equal(place.phase, PJ_PHASE_PREFILL);
    /* without ranges of its own a thread is where lane 0 is */
    feed(&r, 6600, "end");
    feed(&r, 6700, "begin section inner");
    assert_string_equal(range_of(&r, launch_at(&r, 79, 6800, false)), "inner");
    assert_string_equal(range_of(&r, launch_at(&r, 77, 6800, false)), "outer");
    feed(&r, 6900, "end");
    /* a long history forgets its beginning */
    for (int i = 0; i < 40000; i++) {
        feed(&r, 7000, "#77 begin section inner");
        feed(&r, 7000, "#77 end");
    }
    assert_null(range_of(&r, launch_at(&r, 77, 1500, true)));
    assert_string_equal(range_of(&r, launch_at(&r, 77, 7500, false)), "outer");
    /* work goes into them, whenever it ran */
    pj_work_piece piece = {
        start_ns + 9000 * US, start_ns + 9500 * US, r.device, r.first, r.queue, 1, 7500};
    pj_device_work_add(r.work, &piece);
    feed(&r, 20000, "#77 end");
    pj_run_data d = end(&r);
    assert_int_equal(d.component_count, 1);
    assert_int_equal(d.phases[d.sections[d.components[0].section].phase].phase, PJ_PHASE_PREFILL);
    pj_run_data_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_keeps_its_times),
        cmocka_unit_test(many_are_added_up),
        cmocka_unit_test(what_overlaps_shares_each_instant),
        cmocka_unit_test(more_at_once_than_fits_is_counted),
        cmocka_unit_test(late_work_is_recorded_too),
        cmocka_unit_test(nonsense_is_left_out),
        cmocka_unit_test(launches_are_in_the_innermost_range),
    };
    return cmocka_run_group_tests(tests, open_session, close_session);
}
