/* Prefetch distances: chosen from timings alone, kept per machine, and never from a broken file. */
#include "../assertions.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/kernels/ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t BEYOND_CACHES = UINT64_C(1) << 44;
enum { BYTES = 4 << 20, ALL = PJ_AHEAD_DISTANCES * PJ_AHEAD_SAMPLES };

static unsigned index_of(size_t bytes)
{
    for (unsigned d = 0; d < PJ_AHEAD_DISTANCES; d++)
        if (pj_ahead_distances[d] == bytes) return d;
    fail_msg("%zu is not a distance", bytes);
    return 0;
}

/* Runs products that take `ns[d]` with distance d, except that every other one is disturbed. */
static void choose(pj_ahead *a, pj_dtype type, const int64_t ns[PJ_AHEAD_DISTANCES])
{
    unsigned tried[PJ_AHEAD_DISTANCES] = {0};
    for (unsigned i = 0; i < ALL; i++) {
        assert_true(pj_ahead_try(a, type, BYTES));
        unsigned d = index_of(pj_ahead_bytes(a, type));
        pj_ahead_took(a, type, ns[d] + (tried[d]++ % 2 ? 5000000 : 0));
    }
    for (unsigned d = 0; d < PJ_AHEAD_DISTANCES; d++) assert_int_equal(tried[d], PJ_AHEAD_SAMPLES);
    assert_false(pj_ahead_try(a, type, BYTES));
}

static void test_the_fastest_is_chosen(void **state)
{
    for (unsigned best = 0; best < PJ_AHEAD_DISTANCES; best++) {
        int64_t ns[PJ_AHEAD_DISTANCES];
        for (unsigned d = 0; d < PJ_AHEAD_DISTANCES; d++) ns[d] = d == best ? 900000 : 1000000;
        pj_ahead a = {0};
        pj_ahead_begin(&a, BEYOND_CACHES);
        choose(&a, PJ_F16, ns);
        assert_int_equal(pj_ahead_bytes(&a, PJ_F16), pj_ahead_distances[best]);
        assert_int_equal(pj_ahead_bytes(&a, PJ_Q8_0), pj_ahead_distances[0]);
    }
}

static void test_a_gain_that_is_noise_changes_nothing(void **state)
{
    pj_ahead a = {0};
    pj_ahead_begin(&a, BEYOND_CACHES);
    choose(&a, PJ_F16, (int64_t[]){1000000, 990000, 995000});
    assert_int_equal(pj_ahead_bytes(&a, PJ_F16), pj_ahead_distances[0]);
}

static void test_only_like_products_beyond_the_caches_are_timed(void **state)
{
    pj_ahead a = {0};
    assert_false(pj_ahead_try(&a, PJ_F16, BYTES));
    pj_ahead_begin(&a, 1 << 20);
    assert_false(pj_ahead_try(&a, PJ_F16, BYTES));
    pj_ahead_begin(&a, BEYOND_CACHES);
    assert_false(pj_ahead_try(&a, PJ_F16, 0));
    assert_false(pj_ahead_try(&a, PJ_F16, 1000));
    assert_true(pj_ahead_try(&a, PJ_F16, BYTES));
    assert_false(pj_ahead_try(&a, PJ_F16, 2 * BYTES));
    assert_true(pj_ahead_try(&a, PJ_BF16, 2 * BYTES));
}

/* ---- kept choices ------------------------------------------------------------------------- */

static char path[64];

static int set_up(void **state)
{
    snprintf(path, sizeof path, "/tmp/ahead-test-%ld.json", (long)getpid());
    return 0;
}

static int tear_down(void **state)
{
    unlink(path);
    return 0;
}

static void test_a_kept_choice_is_used(void **state)
{
    pj_ahead a = {0}, b = {0}, other = {0};
    pj_ahead_begin(&a, BEYOND_CACHES);
    pj_ahead_write(&a, path, "set", 2);
    assert_false(pj_file_exists(path)); /* nothing was measured */
    choose(&a, PJ_F16, (int64_t[]){1000000, 900000, 800000});
    pj_ahead_write(&a, path, "set", 2);
    assert_false(a.changed);

    pj_ahead_begin(&b, BEYOND_CACHES);
    pj_ahead_read(&b, path, "set", 2);
    assert_int_equal(pj_ahead_bytes(&b, PJ_F16), pj_ahead_distances[2]);
    assert_false(pj_ahead_try(&b, PJ_F16, BYTES));
    assert_true(pj_ahead_try(&b, PJ_Q8_0, BYTES));
    assert_false(b.changed);

    /* what was kept for other types and threads stays */
    choose(&b, PJ_Q8_0, (int64_t[]){1000000, 900000, 1000000});
    pj_ahead_write(&b, path, "set", 2);
    pj_ahead_begin(&other, BEYOND_CACHES);
    pj_ahead_read(&other, path, "set", 1);
    assert_true(pj_ahead_try(&other, PJ_F16, BYTES));
    pj_ahead_read(&other, path, "set", 2);
    assert_int_equal(pj_ahead_bytes(&other, PJ_F16), pj_ahead_distances[2]);
    assert_int_equal(pj_ahead_bytes(&other, PJ_Q8_0), pj_ahead_distances[1]);
}

/* Writes a file like one of ours, with its text `from` replaced by `to`. */
static void write_broken(const char *from, const char *to)
{
    pj_ahead a = {0};
    char *text, broken[2000];
    size_t bytes;
    unlink(path);
    pj_ahead_begin(&a, BEYOND_CACHES);
    choose(&a, PJ_F16, (int64_t[]){1000000, 900000, 800000});
    pj_ahead_write(&a, path, "set", 2);
    assert_int_equal(pj_file_read(path, 1000, &text, &bytes, NULL), PJ_OK);
    const char *at = strstr(text, from);
    assert_non_null(at);
    int count =
        snprintf(broken, sizeof broken, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(pj_file_write(path, broken, (size_t)count, NULL), PJ_OK);
    pj_free(text);
}

static void test_a_broken_file_is_ignored(void **state)
{
    static const char *const changes[][2] = {
        {"{", "["},
        {"\"bytes\": 0", "\"bytes\": 77"},
        {"\"bytes\": 0", "\"bytes\": -9223372036854775808"},
        {"\"bytes\": 0", "\"bytes\": \"0\""},
        {"\"measured_s\": ", "\"measured_s\": 9"}, /* in the future */
        {"\"measured_s\": 1", "\"measured_s\": "}, /* decades ago */
        {"\"measured_s\"", "\"measured\""},
        {"\"f16\": {", "\"f16\": 3, \"x\": {"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        pj_ahead a = {0};
        write_broken(changes[i][0], changes[i][1]);
        pj_ahead_begin(&a, BEYOND_CACHES);
        pj_ahead_read(&a, path, "set", 2);
        assert_int_equal(pj_ahead_bytes(&a, PJ_F16), pj_ahead_distances[0]);
        assert_true(pj_ahead_try(&a, PJ_F16, BYTES));
        /* and replaced */
        choose(&a, PJ_F16, (int64_t[]){1000000, 900000, 1000000});
        pj_ahead_write(&a, path, "set", 2);
        pj_ahead again = {0};
        pj_ahead_read(&again, path, "set", 2);
        assert_int_equal(pj_ahead_bytes(&again, PJ_F16), pj_ahead_distances[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_is_chosen),
        cmocka_unit_test(test_a_gain_that_is_noise_changes_nothing),
        cmocka_unit_test(test_only_like_products_beyond_the_caches_are_timed),
        cmocka_unit_test_setup_teardown(test_a_kept_choice_is_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_broken_file_is_ignored, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
