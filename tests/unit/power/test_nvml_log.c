/* The driver's log while the wall clock, with which it is stamped, is set: no value is lost or
 * counted twice, and their order and times stay right. */
#include "../assertions.h"

#include "base/clock.h"

#include <string.h>

static int64_t clock_now(void);
static int64_t clock_wall(void);
#define pj_clock_ns      clock_now
#define pj_clock_wall_ns clock_wall
#include "power/nvml_log.c"
#undef pj_clock_ns
#undef pj_clock_wall_ns

#define MS PJ_NS_PER_MS
enum { HELD = 119, EVERY_MS = 20, MOST = 4000 };
static const int64_t HOUR_NS = 3600 * PJ_NS_PER_S;

/* ---- a card whose log holds the last 119 values, stamped when they were made -------------------
 */

typedef struct logged {
    unsigned long long stamp_us;
    int64_t at_ns;
} logged;

static logged values[MOST];
static unsigned value_count;
static int64_t now_ns, offset_ns, set_within_call_ns;

static int64_t clock_now(void)
{
    return now_ns += 50;
}

static int64_t clock_wall(void)
{
    return now_ns + offset_ns;
}

/* Time passes; value i is i milliwatts. */
static void card_pass(int64_t until_ns)
{
    while ((int64_t)(value_count + 1) * EVERY_MS * MS <= until_ns && value_count < MOST) {
        int64_t at = (int64_t)(value_count + 1) * EVERY_MS * MS;
        values[value_count++] = (logged){(unsigned long long)((at + offset_ns) / 1000), at};
    }
    if (until_ns > now_ns) now_ns = until_ns;
}

/* Returns what is stamped after `since`, as the driver does, which compares stamps alone. */
static nvml_return card_samples(nvml_device device, int kind, unsigned long long since, int *type,
                                unsigned *count, nvml_sample *samples)
{
    (void)device;
    assert_int_equal(kind, 0);
    *type = 1;
    if (!samples) {
        *count = HELD;
        return NVML_OK;
    }
    card_pass(now_ns + MS);
    unsigned n = 0;
    for (unsigned i = value_count > HELD ? value_count - HELD : 0; i < value_count; i++) {
        if (values[i].stamp_us <= since) continue;
        assert_that(n, <, *count);
        samples[n++] = (nvml_sample){values[i].stamp_us, {.ui = i}};
    }
    offset_ns += set_within_call_ns; /* the clock is set after the values were taken */
    set_within_call_ns = 0;
    card_pass(now_ns + 2 * MS);
    *count = n;
    return n ? NVML_OK : NVML_NOT_FOUND;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static unsigned next_value;

static void card_init(void)
{
    value_count = next_value = 0;
    now_ns = 0;
    set_within_call_ns = 0;
    offset_ns = 1795669866 * PJ_NS_PER_S;
}

/* Every value once, in order and with its time, up to now. */
static void expect_all(nvml_log *log)
{
    static const nvml_api api = {.samples = card_samples};
    pj_reading readings[NVML_LOG_MOST];
    uint32_t count = 0;
    assert_int_equal(nvml_log_read(&api, NULL, log, 7, readings, NVML_LOG_MOST, &count), NVML_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (readings[i].value != next_value)
            fail_msg("value %.0f follows %d", readings[i].value, (int)next_value - 1);
        assert_near((double)(readings[i].fresh_ns - values[next_value].at_ns) * 1e-6, 0, 0.1);
        assert_int_equal(readings[i].rail, 7);
        next_value++;
    }
}

static void expect_up_to_date(void)
{
    assert_that(value_count - next_value, <=, 1); /* made during the last call */
}

static void values_come_once(void **state)
{
    (void)state;
    nvml_log log = {0};
    card_init();
    for (int i = 0; i < 100; i++) {
        card_pass(now_ns + (i % 7) * 61 * MS);
        expect_all(&log);
    }
    expect_up_to_date();
    assert_that(next_value, >, 800);
    nvml_api api = {.samples = card_samples};
    assert_int_equal(nvml_log_capacity(&api, NULL), HELD);
    api.samples = NULL;
    assert_int_equal(nvml_log_capacity(&api, NULL), 0);
}

/* An hour forward and backward, a second, and as little as a slewed clock: between calls. */
static void clock_is_set_between_calls(void **state)
{
    static const int64_t steps[] = {3600000, -3600000, 1000, -1000, 300, -300, 30, -30, 7, -7};
    (void)state;
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        nvml_log log = {0};
        card_init();
        for (int i = 0; i < 40; i++) {
            card_pass(now_ns + 333 * MS);
            if (i % 8 == 3) offset_ns += steps[k] * MS + 137000;
            card_pass(now_ns + 127 * MS);
            expect_all(&log);
        }
        expect_up_to_date();
    }
}

/* The clock is set while the driver answers, as it may be on any machine. */
static void clock_is_set_during_a_call(void **state)
{
    static const int64_t hours[] = {1, -1};
    (void)state;
    for (int k = 0; k < 2; k++) {
        nvml_log log = {0};
        card_init();
        for (int i = 0; i < 40; i++) {
            card_pass(now_ns + 460 * MS);
            if (i % 8 == 3) set_within_call_ns = hours[k] * HOUR_NS;
            expect_all(&log);
        }
        expect_up_to_date();
    }
}

/* Set twice between two calls, and back to where it was. */
static void clock_is_set_and_set_back(void **state)
{
    (void)state;
    nvml_log log = {0};
    card_init();
    card_pass(now_ns + 1000 * MS);
    expect_all(&log);
    card_pass(now_ns + 200 * MS);
    offset_ns += HOUR_NS;
    unsigned from = value_count;
    card_pass(now_ns + 200 * MS);
    unsigned until = value_count;
    offset_ns -= HOUR_NS;
    card_pass(now_ns + 200 * MS);
    /* what was stamped in between follows no offset that was seen: it is dropped, not misdated */
    static const nvml_api api = {.samples = card_samples};
    pj_reading readings[NVML_LOG_MOST];
    uint32_t count = 0;
    assert_int_equal(nvml_log_read(&api, NULL, &log, 7, readings, NVML_LOG_MOST, &count), NVML_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (next_value == from) next_value = until;
        assert_int_equal(readings[i].value, next_value);
        assert_near((double)(readings[i].fresh_ns - values[next_value++].at_ns) * 1e-6, 0, 0.1);
    }
    expect_up_to_date();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_once),
        cmocka_unit_test(clock_is_set_between_calls),
        cmocka_unit_test(clock_is_set_during_a_call),
        cmocka_unit_test(clock_is_set_and_set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
