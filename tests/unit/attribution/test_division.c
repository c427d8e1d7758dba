/*
 * Dividing the machine's energy between concurrent runs: for any order of begins and ends the
 * shares sum to the total; a run without overlap is unaffected; windows agree; time without
 * readings stays unknown; memory does not grow with time.
 */
#include "../assertions.h"
#include "attribution/division.h"

#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS PJ_NS_PER_MS

static int64_t read_ns;

static pj_division *make(pj_share_rule rule)
{
    pj_rail rails[2] = {{.name = "cpu", .rail_class = PJ_RAIL_CPU, .parent = -1},
                        {.name = "dram", .rail_class = PJ_RAIL_DRAM, .parent = -1}};
    for (int r = 0; r < 2; r++) {
        rails[r].kind = PJ_RAIL_COUNTER;
        rails[r].quality = PJ_MEASURED;
        rails[r].period_ns = 10 * MS;
        rails[r].resolution = 1;
    }
    read_ns = 0;
    return pj_division_new(rails, 2, rule);
}

/* Energy of a rail since time 0; its power varies, so that sums cannot agree by chance. */
static double truth_uj(int rail, int64_t t_ns)
{
    double ms = (double)t_ns / 1e6, mw = rail ? 3000 : 40000;
    return mw * (ms + 40 * (1 + sin(ms / 70 + rail)));
}

/* Readings every 10 ms up to and including a time. */
static void read_until(pj_division *d, int64_t until_ns)
{
    for (; read_ns <= until_ns; read_ns += 10 * MS)
        for (int rail = 0; rail < 2; rail++) {
            pj_reading r = {.before_ns = read_ns,
                            .after_ns = read_ns,
                            .fresh_ns = read_ns,
                            .rail = (uint16_t)rail,
                            .value = truth_uj(rail, read_ns)};
            assert_int_equal(pj_division_read(d, &r, NULL), PJ_OK);
        }
}

static double truth_mj(int rail, int64_t from_ns, int64_t to_ns)
{
    return (truth_uj(rail, to_ns) - truth_uj(rail, from_ns)) / 1e3;
}

typedef struct part {
    double mj[2];
    int announced, determined;
    int64_t first_ns, last_ns; /* of the parts whose energy was determined */
    double first_share, last_share;
} part;

static part take(pj_division *d, pj_division_member *m)
{
    part p = {.first_ns = -1};
    pj_share_record record;
    const pj_share_energy *energies;
    while (pj_division_next(m, &record, &energies)) {
        if (!record.end_ns) {
            assert_null(energies);
            p.announced++;
            continue;
        }
        if (p.first_ns >= 0) assert_int_equal(record.begin_ns, p.last_ns); /* without gaps */
        if (p.first_ns < 0) p.first_ns = record.begin_ns, p.first_share = record.share;
        p.last_ns = record.end_ns;
        p.last_share = record.share;
        p.determined++;
        for (uint32_t r = 0; r < record.rail_count; r++) p.mj[r] += record.share * energies[r].mj;
    }
    return p;
}

static pj_division_member *enter(pj_division *d, int64_t at_ns, double weight)
{
    read_until(d, at_ns);
    pj_division_member *m = pj_division_enter(d, &at_ns, weight);
    assert_non_null(m);
    return m;
}

static void leave(pj_division *d, pj_division_member *m, int64_t at_ns)
{
    read_until(d, at_ns);
    pj_division_leave(d, m, &at_ns);
}

static void a_run_alone_has_no_shares(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_division_member *m = enter(d, 100 * MS, 1);
    leave(d, m, 900 * MS);
    pj_division_settle(d, 900 * MS, 900 * MS);
    assert_false(pj_division_is_shared(m));
    assert_int_equal(take(d, m).determined, 0);
    pj_division_drop(d, m);
    pj_division_member *later = enter(d, 1000 * MS, 1); /* nor does one after it */
    assert_false(pj_division_is_shared(later));
    pj_division_free(d);
}

static void overlapping_runs_divide_everything(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_division_member *a = enter(d, 103 * MS, 1);
    pj_division_member *b = enter(d, 331 * MS, 5); /* weights do not count under this rule */
    pj_division_settle(d, 331 * MS, 0);
    pj_division_member *c = enter(d, 449 * MS, 1);
    leave(d, a, 777 * MS);
    leave(d, c, 901 * MS);
    leave(d, b, 1303 * MS);
    read_until(d, 1400 * MS);
    pj_division_settle(d, 1400 * MS, 0);
    part pa = take(d, a), pb = take(d, b), pc = take(d, c);
    for (int r = 0; r < 2; r++) {
        /* the same curve over the whole time, undivided */
        double whole = 0;
        pj_division_window *w = pj_division_window_open(d, 103 * MS);
        pj_curve_energy e;
        pj_division_window_stop(w, 1303 * MS);
        pj_division_window_energy(d, w, (uint32_t)r, &e);
        pj_division_window_close(d, w);
        whole = e.energy_mj;
        assert_near(pa.mj[r] + pb.mj[r] + pc.mj[r], whole, 1e-9 * whole);
        assert_near(whole, truth_mj(r, 103 * MS, 1303 * MS), 0.01 * whole);
    }
    double expected = truth_mj(0, 103 * MS, 331 * MS) + truth_mj(0, 331 * MS, 449 * MS) / 2 +
                      truth_mj(0, 449 * MS, 777 * MS) / 3;
    assert_near(pa.mj[0], expected, 0.01 * expected);
    /* also of the time before it was shared, and after */
    assert_that(pa.first_ns, ==, 103 * MS);
    assert_that(pa.last_ns, ==, 777 * MS);
    assert_that(pa.first_share, ==, 1);
    assert_that(pb.first_ns, ==, 331 * MS);
    assert_that(pb.last_ns, ==, 1303 * MS);
    assert_that(pb.last_share, ==, 1);
    assert_int_equal(pc.announced, 2);          /* a third, then a half */
    assert_int_equal(take(d, a).determined, 0); /* each record once */
    pj_division_free(d);
}

static void shares_are_announced_at_once(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_division_member *a = enter(d, 100 * MS, 1);
    assert_int_equal(take(d, a).announced, 0);
    pj_division_member *b = enter(d, 200 * MS, 1);
    part p = take(d, a);
    assert_int_equal(p.announced, 2); /* everything until 200 ms, then half */
    assert_int_equal(p.determined, 0);
    read_until(d, 300 * MS);
    pj_division_settle(d, 300 * MS, 0);
    assert_int_equal(take(d, a).determined, 1);
    assert_int_equal(take(d, b).announced, 1);
    pj_division_free(d);
}

static void weights_divide_in_proportion(void **state)
{
    pj_division *d = make(PJ_SHARE_WEIGHT);
    pj_division_member *a = enter(d, 100 * MS, 3), *b = enter(d, 150 * MS, 1);
    read_until(d, 500 * MS);
    pj_division_weigh(d, a, 500 * MS, 0); /* it waits */
    read_until(d, 700 * MS);
    pj_division_weigh(d, b, 700 * MS, 0); /* both wait: half each */
    leave(d, b, 900 * MS);
    leave(d, a, 950 * MS);
    read_until(d, 1000 * MS);
    pj_division_settle(d, 1000 * MS, 0);
    part pb = take(d, b);
    double expected = truth_mj(0, 150 * MS, 500 * MS) / 4 + truth_mj(0, 500 * MS, 700 * MS) +
                      truth_mj(0, 700 * MS, 900 * MS) / 2;
    assert_near(pb.mj[0], expected, 0.01 * expected);
    assert_that(take(d, a).last_share, ==, 1); /* alone again, whatever its weight */
    pj_division_free(d);
}

static void windows_see_the_same_energy(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    read_until(d, 100 * MS);
    pj_division_window *outer = pj_division_window_open(d, 100 * MS);
    pj_division_member *m = enter(d, 205 * MS, 1);
    for (int64_t t = 300; t < 26000; t += 100) { /* through several cells */
        read_until(d, t * MS);
        pj_division_settle(d, t * MS, 0);
    }
    pj_division_window *inner = pj_division_window_open(d, 25950 * MS);
    leave(d, m, 26000 * MS);
    read_until(d, 26500 * MS);
    pj_division_window_stop(inner, 26100 * MS);
    pj_division_window_stop(outer, 26300 * MS);
    read_until(d, 26600 * MS);
    pj_division_settle(d, 26600 * MS, 0);
    pj_curve_energy e;
    pj_division_window_energy(d, outer, 0, &e);
    double truth = truth_mj(0, 100 * MS, 26300 * MS);
    assert_near(e.energy_mj, truth, 3e-4 * truth);
    assert_that(e.sd_mj, >, 0);
    assert_that(e.known_share, >, 0.99);
    pj_division_window_energy(d, inner, 1, &e);
    truth = truth_mj(1, 25950 * MS, 26100 * MS);
    assert_near(e.energy_mj, truth, 0.01 * truth);
    pj_division_window_close(d, inner);
    pj_division_window_close(d, outer);
    pj_division_free(d);
}

/* Time is divided seldom while only open windows see it; their ends are
 * exact all the same, at ticks of the counter. */
static void a_window_alone_has_all_of_its_energy(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    read_until(d, 100 * MS);
    pj_division_window *outer = pj_division_window_open(d, 100 * MS), *inner = NULL;
    for (int64_t t = 110; t <= 20000; t += 10) {
        read_until(d, t * MS);
        pj_division_settle(d, t * MS, 0);
        if (t == 7000) inner = pj_division_window_open(d, t * MS);
    }
    pj_division_window_stop(inner, 19990 * MS);
    pj_division_window_stop(outer, 20010 * MS);
    read_until(d, 20100 * MS);
    pj_division_settle(d, 20100 * MS, 0);
    pj_curve_energy e;
    pj_division_window_energy(d, outer, 0, &e);
    assert_near(e.energy_mj, truth_mj(0, 100 * MS, 20010 * MS), 0.01);
    pj_division_window_energy(d, inner, 1, &e);
    assert_near(e.energy_mj, truth_mj(1, 7000 * MS, 19990 * MS), 0.01);
    pj_division_window_close(d, inner);
    pj_division_window_close(d, outer);
    pj_division_free(d);
}

static void what_no_sensor_saw_is_unknown(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_division_member *a = enter(d, 100 * MS, 1), *b = enter(d, 200 * MS, 1);
    read_until(d, 300 * MS); /* then readings stop */
    int64_t at_ns = 900 * MS;
    pj_division_leave(d, b, &at_ns);
    pj_division_settle(d, 2000 * MS, 0);
    assert_int_equal(take(d, b).determined, 0);
    pj_division_settle(d, 2000 * MS, 900 * MS);
    part p = take(d, b);
    assert_int_equal(p.determined, 1);
    assert_true(isnan(p.mj[0]));
    pj_division_window *w = pj_division_window_open(d, 150 * MS);
    pj_curve_energy e;
    pj_division_window_stop(w, 950 * MS);
    pj_division_window_energy(d, w, 0, &e);
    assert_true(isnan(e.energy_mj));
    pj_division_window_close(d, w);
    (void)a;
    pj_division_free(d);
}

/* A counter that stands still for longer than anything waits for it has counted that time when it
 * moves again; until then a window that reaches into that time is unknown. */
static void what_a_standing_counter_counted_is_kept(void **state)
{
    (void)state;
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_curve_energy e;
    read_until(d, 2000 * MS);
    pj_division_window *over = pj_division_window_open(d, 1000 * MS);
    pj_division_window *within = pj_division_window_open(d, 1500 * MS);
    for (int64_t t = 2000; t < 40000; t += 100) pj_division_settle(d, t * MS, (t - 6000) * MS);
    pj_division_window_stop(within, 39000 * MS);
    pj_division_settle(d, 40000 * MS, 39000 * MS);
    pj_division_window_energy(d, within, 0, &e);
    assert_true(isnan(e.energy_mj));
    read_ns = 40000 * MS;
    for (int64_t t = 40000; t < 45000; t += 100) {
        read_until(d, t * MS);
        pj_division_settle(d, t * MS, (t - 6000) * MS);
    }
    pj_division_window_stop(over, 44000 * MS);
    pj_division_window_energy(d, over, 0, &e);
    assert_near(e.energy_mj, truth_mj(0, 1000 * MS, 44000 * MS), 0.01);
    pj_division_window_close(d, within);
    pj_division_window_close(d, over);
    pj_division_free(d);
}

static void equal_times_still_make_parts(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    int64_t at_a = 100 * MS, at_b = 100 * MS, end = 100 * MS;
    read_until(d, 200 * MS);
    pj_division_member *a = pj_division_enter(d, &at_a, 1), *b = pj_division_enter(d, &at_b, 1);
    pj_division_leave(d, b, &end);
    assert_that(at_a, ==, 100 * MS);
    assert_that(at_b, ==, at_a + 1);
    assert_that(end, ==, at_b + 1);
    leave(d, a, 150 * MS);
    pj_division_settle(d, 200 * MS, 150 * MS);
    part pa = take(d, a), pb = take(d, b);
    assert_that(pa.determined, ==, 3);
    assert_that(pb.determined, ==, 1);
    pj_division_free(d);
}

/* Ten minutes of overlapping requests during one long run: data no longer needed is discarded;
 * otherwise the test would take quadratic time. */
static void long_sessions_stay_small(void **state)
{
    pj_division *d = make(PJ_SHARE_EQUAL);
    pj_division_member *stays = enter(d, 50 * MS, 1), *before = enter(d, 60 * MS, 1);
    double sum = 0, determined = 0;
    for (int64_t t = 100; t < 600000; t += 40) {
        pj_division_member *now = enter(d, t * MS, 1);
        leave(d, before, (t + 20) * MS);
        pj_division_settle(d, (t + 20) * MS, (t + 20) * MS);
        sum += take(d, before).mj[0];
        part p = take(d, stays);
        sum += p.mj[0];
        determined += p.determined;
        pj_division_drop(d, before);
        before = now;
    }
    leave(d, before, 600000 * MS);
    leave(d, stays, 600000 * MS + 1);
    read_until(d, 600100 * MS);
    pj_division_settle(d, 600100 * MS, 0);
    sum += take(d, before).mj[0] + take(d, stays).mj[0];
    double truth = truth_mj(0, 50 * MS, 600000 * MS);
    assert_near(sum, truth, 1e-4 * truth);
    assert_that(determined, >, 29000);
    pj_division_free(d);
}

/* Whatever a counter declares and however irregularly it ticks and is read: a window from one tick
 * to another has what was counted, and so have all runs together that share that time. */
static void what_was_counted_between_ticks_is_kept(void **state)
{
    enum { TICKS = 60, CASES = 6 };
    static const struct {
        int64_t period_ns, window_ns, delay_ns;
        double missed;
    } cases[CASES] = {{MS, 0, 0, 0},
                      {MS, 0, 0, 0.3},
                      {100 * MS, 25 * MS, 10 * MS, 0.2},
                      {100 * MS, PJ_WINDOW_UNKNOWN, 6 * MS, 0},
                      {100 * MS, PJ_WINDOW_UNKNOWN, 6 * MS, 0.5},
                      {1000 * MS, 1000 * MS, 0, 0.1}};
    (void)state;
    for (int c = 0; c < CASES; c++) {
        pj_random random = {(uint64_t)c + 3};
        pj_rail rail = {.name = "gpu0",
                        .rail_class = PJ_RAIL_GPU,
                        .kind = PJ_RAIL_COUNTER,
                        .scope = PJ_SCOPE_BOARD,
                        .quality = PJ_MEASURED,
                        .parent = -1,
                        .period_ns = cases[c].period_ns,
                        .window_ns = cases[c].window_ns,
                        .delay_ns = cases[c].delay_ns,
                        .resolution = 1};
        pj_division *d = pj_division_new(&rail, 1, PJ_SHARE_EQUAL);
        pj_division_window *open[TICKS] = {0};
        pj_division_member *runs[3] = {0};
        int64_t at[TICKS], entered[3], left[3];
        double value[TICKS], uj = 4e9;
        for (int i = 0; i < TICKS; i++) {
            double jitter = 0.3 * (double)rail.period_ns * pj_random_unit(&random);
            at[i] = (i + 1) * rail.period_ns + (int64_t)jitter;
            uj += 1e6 * pj_random_unit(&random);
            value[i] = uj;
            bool is_read = i % 10 == 0 || pj_random_unit(&random) >= cases[c].missed;
            pj_reading r = {.before_ns = at[i],
                            .after_ns = at[i],
                            .fresh_ns = at[i],
                            .value = uj,
                            .status = i ? PJ_READING_OK : PJ_READING_RESET};
            if (is_read) assert_int_equal(pj_division_read(d, &r, NULL), PJ_OK);
            int64_t seen_ns = at[i] - rail.delay_ns;
            if (i % 10 == 0 && i < 40) open[i] = pj_division_window_open(d, seen_ns);
            if (i == 50) pj_division_window_stop(open[0], seen_ns); /* it contains the others */
            if (i == 20 || i == 30 || i == 40) pj_division_window_stop(open[i - 10], seen_ns);
            for (int k = 0; k < 3; k++) { /* from ticks 10, 20 and 30 to 50, 40 and 40 */
                entered[k] = left[k] = seen_ns;
                if (i == 10 * (k + 1)) runs[k] = pj_division_enter(d, &entered[k], 1);
                if (i == (k ? 40 : 50)) pj_division_leave(d, runs[k], &left[k]);
            }
            pj_division_settle(d, seen_ns, 0);
        }
        pj_division_settle(d, at[TICKS - 1], at[50] - rail.delay_ns);
        double shared = 0, counted = (value[50] - value[10]) * 1e-3;
        for (int k = 0; k < 3; k++) shared += take(d, runs[k]).mj[0];
        assert_near(shared, counted, 1e-9 * value[50] * 1e-3);
        for (int i = 0; i < 40; i += 10) {
            pj_curve_energy e;
            int end = i == 0 ? 50 : i + 10;
            pj_division_window_energy(d, open[i], 0, &e);
            assert_near(e.energy_mj, (value[end] - value[i]) * 1e-3, 1e-9 * value[end] * 1e-3);
            pj_division_window_close(d, open[i]);
        }
        pj_division_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_alone_has_no_shares),
        cmocka_unit_test(overlapping_runs_divide_everything),
        cmocka_unit_test(shares_are_announced_at_once),
        cmocka_unit_test(weights_divide_in_proportion),
        cmocka_unit_test(windows_see_the_same_energy),
        cmocka_unit_test(a_window_alone_has_all_of_its_energy),
        cmocka_unit_test(what_was_counted_between_ticks_is_kept),
        cmocka_unit_test(what_no_sensor_saw_is_unknown),
        cmocka_unit_test(what_a_standing_counter_counted_is_kept),
        cmocka_unit_test(equal_times_still_make_parts),
        cmocka_unit_test(long_sessions_stay_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
