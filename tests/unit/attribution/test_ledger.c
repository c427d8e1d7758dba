/*
 * Dividing a machine's energy between requests: shares sum to the total under every rule and in any
 * order of queries; rates, contexts and cached tokens count as the rules define; time without
 * readings stays unknown.
 */
#include "../assertions.h"
#include "attribution/ledger.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS PJ_NS_PER_MS

static pj_rail rail(const char *name, pj_rail_class rail_class)
{
    pj_rail r = {.rail_class = rail_class,
                 .kind = PJ_RAIL_COUNTER,
                 .quality = PJ_MEASURED,
                 .parent = -1,
                 .period_ns = 10 * MS,
                 .resolution = 1};
    strcpy(r.name, name);
    strcpy(r.source, "rapl");
    return r;
}

static pj_ledger *make(pj_batch_rule rule, const double *idle_mw, double weights, double context)
{
    pj_rail rails[] = {rail("cpu", PJ_RAIL_CPU), rail("dram", PJ_RAIL_DRAM)};
    return pj_ledger_new(&(pj_ledger_options){.rails = rails,
                                              .rail_count = 2,
                                              .idle_mw = idle_mw,
                                              .rule = rule,
                                              .weight_bytes = weights,
                                              .context_bytes = context});
}

/* Readings every 10 ms; power varies, so that sums cannot agree by chance. */
static void read_until(pj_ledger *l, int64_t from_ns, int64_t until_ns, double cpu_mw)
{
    static double cpu_uj, dram_uj;
    static int64_t last_ns;
    for (int64_t t = from_ns; t <= until_ns; t += 10 * MS) {
        double ms = t > last_ns && last_ns >= from_ns - 10 * MS ? (double)(t - last_ns) / 1e6 : 10;
        cpu_uj += cpu_mw * ms * (1 + 0.3 * sin((double)t / 3e7));
        dram_uj += 0.1 * cpu_mw * ms;
        last_ns = t;
        pj_reading r = {.before_ns = t, .after_ns = t, .fresh_ns = t, .value = cpu_uj};
        assert_int_equal(pj_ledger_read(l, &r, NULL), PJ_OK);
        r.rail = 1;
        r.value = dram_uj;
        assert_int_equal(pj_ledger_read(l, &r, NULL), PJ_OK);
    }
}

static double machine(const pj_ledger *l, int64_t begin_ns, int64_t end_ns)
{
    pj_curve_energy e;
    pj_ledger_machine(l, begin_ns, end_ns, &e);
    return e.energy_mj;
}

/* Many requests at irregular times, queried in random order: they sum to the machine's energy while
 * any was in flight. */
static void check_conservation(pj_batch_rule rule)
{
    enum { COUNT = 40 };
    const double idle_mw[] = {5000, NAN};
    pj_ledger *l = make(rule, idle_mw, 1e9, 1e5);
    pj_ledger_entry *e[COUNT];
    int64_t begin[COUNT], end[COUNT];
    srand(7);
    for (int i = 0; i < COUNT; i++) {
        begin[i] = 1000 * MS + (int64_t)i * 13 * MS + rand() % 1000000;
        end[i] = begin[i] + 5 * MS + rand() % (400 * (int)MS);
    }
    read_until(l, 0, 2500 * MS, 30000);
    for (int i = 0; i < COUNT; i++) { /* in order of begin, each queried when it has ended */
        e[i] = pj_ledger_enter(l, begin[i], 1 + rand() % 500);
        if (i % 5) pj_ledger_prompt(e[i], rand() % 300, rand() % 50);
        int64_t t = begin[i] + (end[i] - begin[i]) / 3;
        for (; i % 7 && t < end[i]; t += 1 + rand() % (9 * (int)MS))
            pj_ledger_tokens(e[i], t, 1 + i % 3);
        pj_ledger_leave(e[i], end[i]);
    }
    for (int i = COUNT; i-- > 0;)
        assert_int_equal(pj_ledger_settle(l, end[(i * 17) % COUNT], NULL), PJ_OK);
    double sum = 0, last = 0, idle = 0;
    for (int i = 0; i < COUNT; i++) {
        pj_ledger_figure f = pj_ledger_of(l, e[i]);
        assert_false(f.provisional);
        assert_that(f.total_mj, >, 0);
        assert_that(f.sd_mj, >=, 0);
        sum += f.total_mj;
        idle += pj_ledger_idle_mj(l, e[i], 0);
        if ((double)end[i] > last) last = (double)end[i];
        pj_ledger_series s = pj_ledger_series_of(l, e[i]);
        assert_int_equal(s.t_ns[0], begin[i]);
        assert_int_equal(s.t_ns[s.count - 1], end[i]);
        double own = s.mj[(s.count - 1) * 2] + s.mj[(s.count - 1) * 2 + 1];
        assert_near(own, f.total_mj, 1e-9 * own);
    }
    double whole = machine(l, begin[0], (int64_t)last);
    assert_near(sum, whole, 1e-9 * whole);
    int64_t unknown_ns;
    assert_near(pj_ledger_divided_mj(l, &unknown_ns), whole, 1e-9 * whole);
    assert_int_equal(unknown_ns, 0);
    assert_near(idle, 5000 * (last - (double)begin[0]) * 1e-9, 1e-6 * idle);
    pj_ledger_free(l);
}

static void test_conservation(void **state)
{
    (void)state;
    check_conservation(PJ_BATCH_TOKENS);
    check_conservation(PJ_BATCH_BYTES);
    check_conservation(PJ_BATCH_EQUAL);
}

/* A request that lives from one tick of the counter to another gets what was counted between them,
 * and so do several together: with ticks that jitter, lost reads, and whatever window the rail
 * declares. */
static void test_counted_is_kept(void **state)
{
    enum { TICKS = 60, REQUESTS = 12, SEEDS = 40 };
    static const int64_t periods[] = {MS, 10 * MS, 100 * MS, 1000 * MS};
    static const int64_t windows[] = {0, 25 * MS, 1000 * MS};
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        double at_uj[TICKS], uj = 0;
        int64_t tick_ns[TICKS], t = 5000 * MS, period = periods[seed % 4];
        pj_rail one = rail("gpu0", PJ_RAIL_GPU);
        one.period_ns = period;
        one.window_ns = windows[seed % 3];
        pj_ledger *l = pj_ledger_new(
            &(pj_ledger_options){.rails = &one, .rail_count = 1, .rule = PJ_BATCH_EQUAL});
        srand(seed);
        for (int i = 0; i < TICKS; i++) {
            int steps = rand() % 8 == 0 ? 3 : 1; /* reads are lost */
            for (int k = 0; k < steps; k++) {
                int64_t step = period * (90 + rand() % 20) / 100;
                uj += (double)step * 1e-3 * (20 + rand() % 300);
                t += step;
            }
            tick_ns[i] = t;
            at_uj[i] = uj;
            pj_reading r = {.before_ns = t, .after_ns = t, .fresh_ns = t, .value = uj};
            assert_int_equal(pj_ledger_read(l, &r, NULL), PJ_OK);
        }
        double sum = 0;
        for (int i = 0, at = 4; i < REQUESTS; i++) {
            int end = at + 1 + rand() % 3;
            pj_ledger_entry *a = pj_ledger_enter(l, tick_ns[at], 10);
            pj_ledger_entry *b = i % 2 ? pj_ledger_enter(l, tick_ns[at], 10) : NULL;
            pj_ledger_leave(a, tick_ns[end]);
            if (b) pj_ledger_leave(b, tick_ns[end]);
            assert_int_equal(pj_ledger_settle(l, tick_ns[end], NULL), PJ_OK);
            double mj = pj_ledger_of(l, a).total_mj + (b ? pj_ledger_of(l, b).total_mj : 0);
            double counted_mj = (at_uj[end] - at_uj[at]) * 1e-3;
            assert_near(mj, counted_mj, 1e-9 * counted_mj);
            sum += counted_mj;
            at = end;
        }
        int64_t unknown_ns;
        assert_near(pj_ledger_divided_mj(l, &unknown_ns), sum, 1e-9 * sum);
        pj_ledger_free(l);
    }
}

/* Two concurrent streams, one three times as fast as the other. */
static void test_rates(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 3000 * MS, 20000);
    pj_ledger_entry *a = pj_ledger_enter(l, 1000 * MS, 30), *b = pj_ledger_enter(l, 1000 * MS, 30);
    pj_ledger_prompt(a, 30, 0);
    pj_ledger_prompt(b, 10, 20); /* the rest of its prompt was cached */
    pj_ledger_tokens(a, 1300 * MS, 1);
    pj_ledger_tokens(b, 1300 * MS, 1);
    for (int i = 1; i <= 60; i++) pj_ledger_tokens(a, (1300 + i * 20) * MS, 1);
    for (int i = 1; i <= 20; i++) pj_ledger_tokens(b, (1300 + i * 60) * MS, 1);
    pj_ledger_leave(a, 2500 * MS);
    pj_ledger_leave(b, 2500 * MS);
    assert_int_equal(pj_ledger_settle(l, 2500 * MS, NULL), PJ_OK);
    pj_ledger_figure fa = pj_ledger_of(l, a), fb = pj_ledger_of(l, b);
    assert_true(fa.shared && fb.shared);
    assert_near(fa.output_mj / fb.output_mj, 3, 0.01);
    assert_near(fa.input_mj / fb.input_mj, 31.0 / 11, 0.01);
    pj_ledger_free(l);
}

/* A server that does one after the other: of equal requests that came together each gets as much,
 * once the server has said when it worked on which. */
static void test_queue(void **state)
{
    enum { COUNT = 3 };
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    pj_ledger_entry *e[COUNT];
    (void)state;
    read_until(l, 0, 5000 * MS, 20000);
    for (int i = 0; i < COUNT; i++) e[i] = pj_ledger_enter(l, 1000 * MS, 30);
    for (int i = 0; i < COUNT; i++) {
        int64_t begin = (1000 + 1000 * i) * MS;
        pj_ledger_prompt(e[i], 30, 0);
        pj_ledger_waited(e[i], begin);
        pj_ledger_tokens(e[i], begin + 200 * MS, 1);
        pj_ledger_tokens(e[i], begin + 1000 * MS, 40);
        pj_ledger_leave(e[i], begin + 1000 * MS);
    }
    assert_int_equal(pj_ledger_settle(l, 4000 * MS, NULL), PJ_OK);
    for (int i = 0; i < COUNT; i++) {
        int64_t begin = (1000 + 1000 * i) * MS;
        pj_ledger_figure f = pj_ledger_of(l, e[i]);
        assert_near(f.total_mj / machine(l, begin, begin + 1000 * MS), 1, 1e-6);
        assert_near(f.input_mj / machine(l, begin, begin + 200 * MS), 1, 1e-6);
    }
    pj_ledger_free(l);
}

/* Weights are read once for both, each context only for its own stream. */
static void test_contexts(void **state)
{
    (void)state;
    for (int big = 0; big < 2; big++) {
        pj_ledger *l = make(PJ_BATCH_BYTES, NULL, 1e6, big ? 1e6 : 1);
        pj_ledger_entry *e[2];
        read_until(l, 0, 3000 * MS, 20000);
        for (int i = 0; i < 2; i++) {
            e[i] = pj_ledger_enter(l, 1000 * MS, 1);
            pj_ledger_prompt(e[i], 1, i ? 3000 : 1000);
            for (int k = 0; k <= 50; k++) pj_ledger_tokens(e[i], (1001 + k * 20) * MS, 1);
            pj_ledger_leave(e[i], 2001 * MS);
        }
        assert_int_equal(pj_ledger_settle(l, 2001 * MS, NULL), PJ_OK);
        double ratio = pj_ledger_of(l, e[1]).output_mj / pj_ledger_of(l, e[0]).output_mj;
        assert_near(ratio, (big ? 2.95 : 1), 0.1);
        pj_ledger_free(l);
    }
    pj_ledger *l = make(PJ_BATCH_BYTES, NULL, 1e6, 0); /* the shape is not known */
    assert_int_equal(pj_ledger_rule(l), PJ_BATCH_TOKENS);
    pj_ledger_free(l);
}

/* The interval of an estimate made before the sensor has covered the end contains the final figure.
 */
static void test_estimates(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 1900 * MS, 20000);
    pj_ledger_entry *e = pj_ledger_enter(l, 1000 * MS, 10);
    pj_ledger_tokens(e, 1200 * MS, 1);
    pj_ledger_tokens(e, 1990 * MS, 20);
    pj_ledger_leave(e, 2000 * MS);
    pj_ledger_estimate(l, 2000 * MS);
    pj_ledger_figure early = pj_ledger_of(l, e);
    assert_true(early.provisional);
    early = pj_ledger_at(&early, 2000 * MS);
    read_until(l, 1910 * MS, 2100 * MS, 22000);
    assert_int_equal(pj_ledger_settle(l, 2000 * MS, NULL), PJ_OK);
    pj_ledger_figure final = pj_ledger_of(l, e);
    assert_near(early.total_mj, final.total_mj, 1.96 * early.sd_mj);
    assert_that(early.sd_mj, <, 0.2 * early.total_mj);
    assert_near(early.input_mj, final.input_mj, 0.01 * final.input_mj);
    pj_ledger_free(l);
}

/* The estimate at a request's end, for readings up to `known_ns` and tokens up to now, and the
 * final figure. */
static void settles_within(pj_ledger *l, pj_ledger_entry *e, int64_t known_ns, int64_t end_ns,
                           pj_ledger_entry *late, int64_t late_ns)
{
    read_until(l, 0, known_ns, 20000);
    pj_ledger_leave(e, end_ns);
    pj_ledger_estimate(l, end_ns);
    pj_ledger_figure early = pj_ledger_now(l, e, end_ns);
    assert_true(early.provisional);
    if (late) pj_ledger_tokens(late, late_ns, 100);
    if (late) pj_ledger_leave(late, late_ns);
    read_until(l, known_ns + 10 * MS, late_ns + 100 * MS, 20000);
    assert_int_equal(pj_ledger_settle(l, late_ns > end_ns ? late_ns : end_ns, NULL), PJ_OK);
    pj_ledger_figure final = pj_ledger_of(l, e);
    assert_false(final.provisional);
    assert_near(early.total_mj, final.total_mj, 1.96 * early.sd_mj);
    assert_that(early.sd_mj, <, 0.4 * early.total_mj);
}

/* Seven others have ended a moment ago: from then on the request is alone. */
static void test_others_have_left(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    pj_ledger_entry *e[8];
    for (int i = 0; i < 8; i++) e[i] = pj_ledger_enter(l, 1000 * MS, 10);
    for (int64_t ms = 1020; ms <= 1900; ms += 20)
        for (int i = 0; i < 8; i++) pj_ledger_tokens(e[i], ms * MS, 1);
    for (int i = 1; i < 8; i++) pj_ledger_leave(e[i], 1900 * MS);
    for (int64_t ms = 1920; ms <= 2000; ms += 20) pj_ledger_tokens(e[0], ms * MS, 1);
    settles_within(l, e[0], 1920 * MS, 2000 * MS, NULL, 2000 * MS);
    pj_ledger_free(l);
}

/* The tokens of the other come late, many at once: it was worked on all the time. */
static void test_a_late_token(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    pj_ledger_entry *e = pj_ledger_enter(l, 1000 * MS, 10);
    pj_ledger_entry *other = pj_ledger_enter(l, 1000 * MS, 10);
    for (int64_t ms = 1020; ms <= 1600; ms += 10) {
        pj_ledger_tokens(e, ms * MS, 1);
        if (ms <= 1400) pj_ledger_tokens(other, ms * MS, 5);
    }
    settles_within(l, e, 1600 * MS, 1600 * MS, other, 1601 * MS);
    pj_ledger_free(l);
}

/* Answers that came as a whole: where they do not begin and end together, their shares depend on
 * when their phases were, and that is estimated. */
static void test_estimated_phases(void **state)
{
    (void)state;
    for (int apart_ms = 0; apart_ms <= 300; apart_ms += 300) {
        pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
        pj_ledger_entry *a = pj_ledger_enter(l, 1000 * MS, 200);
        pj_ledger_entry *b = pj_ledger_enter(l, (1000 + apart_ms) * MS, 200);
        read_until(l, 0, 2500 * MS, 20000);
        pj_ledger_whole(a, 40);
        pj_ledger_leave(a, 2000 * MS);
        pj_ledger_whole(b, 40);
        pj_ledger_leave(b, (2000 + apart_ms) * MS);
        assert_int_equal(pj_ledger_settle(l, 2300 * MS, NULL), PJ_OK);
        pj_ledger_figure f = pj_ledger_of(l, a);
        double machine_sd = 0.081 * f.total_mj; /* nearly all of it is the gain's */
        if (apart_ms)
            assert_that(f.sd_mj, >, 1.2 * machine_sd);
        else
            assert_that(f.sd_mj, <, machine_sd);
        pj_ledger_free(l);
    }
}

/* A rail whose readings stop: its energy is unknown, not zero. */
static void test_gaps(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 1500 * MS, 20000);
    pj_ledger_entry *a = pj_ledger_enter(l, 1000 * MS, 1), *b = pj_ledger_enter(l, 1100 * MS, 1);
    pj_ledger_tokens(a, 1010 * MS, 1);
    pj_ledger_leave(a, 1400 * MS);
    pj_ledger_leave(b, 2000 * MS);
    assert_int_equal(pj_ledger_settle(l, 2000 * MS, NULL), PJ_OK);
    assert_that(pj_ledger_of(l, a).total_mj, >, 0);
    assert_true(isnan(pj_ledger_of(l, b).total_mj));
    pj_ledger_series s = pj_ledger_series_of(l, b);
    assert_true(isnan(s.mj[(s.count - 1) * 2]));
    pj_ledger_free(l);
}

static void test_nothing_known(void **state)
{
    (void)state;
    pj_ledger *l = pj_ledger_new(&(pj_ledger_options){0});
    pj_ledger_entry *e = pj_ledger_enter(l, 5, 1);
    pj_ledger_estimate(l, 10);
    assert_true(isnan(pj_ledger_of(l, e).total_mj));
    pj_ledger_leave(e, 20);
    assert_int_equal(pj_ledger_settle(l, 20, NULL), PJ_OK);
    assert_true(isnan(pj_ledger_of(l, e).total_mj));
    pj_ledger_drop(l, e);
    pj_ledger_free(l);
}

/* A request that ends before any reading covers it is estimated from the machine's last known
 * power. */
static void test_short(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    for (int64_t t = 0; t <= 1000 * MS; t += 10 * MS) {
        pj_reading r = {.before_ns = t, .after_ns = t, .fresh_ns = t, .value = (double)t / 1e6};
        pj_ledger_read(l, &r, NULL);
        r.rail = 1;
        pj_ledger_read(l, &r, NULL);
    }
    double mw = 2; /* a microjoule per millisecond on each of two rails */
    pj_ledger_entry *a = pj_ledger_enter(l, 1000 * MS, 1);
    pj_ledger_entry *b = pj_ledger_enter(l, 1000 * MS, 1);
    pj_ledger_figure f = pj_ledger_of(l, a), g = pj_ledger_of(l, b);
    assert_true(f.provisional && !f.shared && g.shared && isnan(f.input_mj));
    f = pj_ledger_at(&f, 1002 * MS);
    g = pj_ledger_at(&g, 1002 * MS);
    assert_near(f.total_mj, mw * 2e-3, 1e-6);
    assert_near(g.total_mj, mw * 1e-3, 1e-6);
    assert_that(f.sd_mj, >, 0);
    assert_true(isnan(f.output_mj));
    pj_ledger_drop(l, a);
    pj_ledger_drop(l, b);
    pj_ledger_free(l);
}

/* Three streams, the third of which spends most of the time in its prompt. Settles final shares
 * every `settle_ms`, or only at the end (0). */
static void run_streams(pj_ledger *l, int settle_ms, pj_ledger_entry **e)
{
    const int64_t begin[] = {1000 * MS, 1003 * MS, 6000 * MS}, first[] = {1100, 1450, 9000};
    const int64_t gap[] = {17, 41, 23};
    int settled = 0;
    for (int64_t ms = 1000; ms < 10000; ms++) {
        for (int i = 0; i < 3; i++) {
            if (ms * MS == begin[i]) e[i] = pj_ledger_enter(l, begin[i], 50 * (i + 1));
            if (ms >= first[i] && (ms - first[i]) % gap[i] == 0) pj_ledger_tokens(e[i], ms * MS, 1);
        }
        if (settle_ms && ms % settle_ms == 0 && pj_ledger_certain_ns(l) != INT64_MIN)
            settled += pj_ledger_settle(l, fmin(pj_ledger_certain_ns(l), ms * MS), NULL) == PJ_OK;
    }
    assert_true(!settle_ms || settled > 0);
    for (int i = 0; i < 3; i++) pj_ledger_leave(e[i], (10000 + i) * MS);
}

/* Settling incrementally gives the same shares as settling everything at the end. */
static void test_certain(void **state)
{
    (void)state;
    for (int rule = PJ_BATCH_TOKENS; rule <= PJ_BATCH_EQUAL; rule++) {
        pj_ledger_entry *often[3], *once[3];
        pj_ledger *a = make((pj_batch_rule)rule, NULL, 1e6, 10), *b;
        assert_that(pj_ledger_certain_ns(a), ==, INT64_MIN);
        read_until(a, 0, 12000 * MS, 20000);
        run_streams(a, 7, often);
        b = make((pj_batch_rule)rule, NULL, 1e6, 10);
        read_until(b, 0, 12000 * MS, 20000);
        run_streams(b, 0, once);
        assert_int_equal(pj_ledger_settle(a, 10002 * MS, NULL), PJ_OK);
        assert_int_equal(pj_ledger_settle(b, 10002 * MS, NULL), PJ_OK);
        for (int i = 0; i < 3; i++) {
            pj_ledger_figure f = pj_ledger_of(a, often[i]), g = pj_ledger_of(b, once[i]);
            assert_that(f.total_mj, >, 0);
            assert_near(f.total_mj, g.total_mj, 1e-12 * g.total_mj);
            assert_near(f.input_mj, g.input_mj, 1e-12 * g.input_mj);
            assert_int_equal(pj_ledger_series_of(a, often[i]).count,
                             pj_ledger_series_of(b, once[i]).count);
        }
        pj_ledger_free(a);
        pj_ledger_free(b);
    }
}

/* A rail that is read late delays settling, because its share would be unknown. */
static void test_certain_of_all_rails(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 1500 * MS, 20000);
    pj_ledger_entry *e = pj_ledger_enter(l, 1000 * MS, 10);
    assert_int_equal(pj_ledger_certain_ns(l), 1000 * MS); /* its prompt */
    pj_ledger_tokens(e, 1333 * MS, 1);
    assert_int_equal(pj_ledger_certain_ns(l), 1320 * MS);
    pj_ledger_tokens(e, 1990 * MS, 1);
    for (int64_t t = 1510 * MS; t <= 1980 * MS; t += 10 * MS) { /* the first rail alone */
        pj_reading r = {.before_ns = t, .after_ns = t, .fresh_ns = t, .value = 1e9 + (double)t};
        pj_ledger_read(l, &r, NULL);
    }
    assert_int_equal(pj_ledger_certain_ns(l), 1500 * MS);
    pj_ledger_leave(e, 2000 * MS);
    assert_int_equal(pj_ledger_certain_ns(l), 1500 * MS);
    pj_ledger_free(l);
}

/* A prompt that takes minutes is estimated in wider cells: shares still sum up, and the rate is
 * that of the last second. */
static void test_long_prompt(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 101000 * MS, 20000);
    pj_ledger_entry *slow = pj_ledger_enter(l, 1000 * MS, 1e6);
    pj_ledger_entry *e = pj_ledger_enter(l, 1000 * MS, 10);
    for (int64_t ms = 1100; ms < 101000; ms += 50) pj_ledger_tokens(e, ms * MS, 1);
    pj_ledger_estimate(l, 101000 * MS);
    pj_ledger_figure f = pj_ledger_of(l, slow), g = pj_ledger_of(l, e);
    double whole = machine(l, 1000 * MS, 101000 * MS);
    double last_mw = machine(l, 100000 * MS, 101000 * MS);
    assert_near(f.total_mj + g.total_mj, whole, 1e-9 * whole);
    assert_near(f.rate_mw + g.rate_mw, last_mw, 0.02 * last_mw);
    pj_ledger_free(l);
}

/* In an estimate, energy not covered by readings yet counts as input until the first token and as
 * output afterwards; for a request without any information the shares are unknown, not zero. */
static void test_early_parts(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 1100 * MS, 20000);
    pj_ledger_entry *e = pj_ledger_enter(l, 1000 * MS, 10), *late;
    pj_ledger_tokens(e, 1200 * MS, 1);
    pj_ledger_tokens(e, 1300 * MS, 5);
    late = pj_ledger_enter(l, 1250 * MS, 10);
    pj_ledger_tokens(late, 1260 * MS, 1);
    pj_ledger_estimate(l, 1300 * MS);
    pj_ledger_figure f = pj_ledger_of(l, e), g = pj_ledger_of(l, late);
    f = pj_ledger_at(&f, 1400 * MS);
    double known = machine(l, 1000 * MS, 1100 * MS), mw = known / 0.1;
    assert_near(f.input_mj, mw * 0.2, 1e-6 * mw);
    assert_near(f.output_mj, mw * 0.2, 1e-6 * mw);
    g = pj_ledger_at(&g, 1400 * MS);
    assert_that(g.total_mj, >, 0);
    assert_true(isnan(g.input_mj));
    assert_true(isnan(g.output_mj));
    pj_ledger_free(l);
}

/* The rate of a request also continues from settled time. */
static void test_settled_rate(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    read_until(l, 0, 5000 * MS, 20000);
    pj_ledger_entry *fast = pj_ledger_enter(l, 1000 * MS, 10);
    pj_ledger_entry *slow = pj_ledger_enter(l, 1000 * MS, 10);
    for (int64_t ms = 1010; ms <= 5000; ms += 10) {
        pj_ledger_tokens(fast, ms * MS, 3);
        pj_ledger_tokens(slow, ms * MS, 1);
    }
    assert_int_equal(pj_ledger_settle(l, pj_ledger_certain_ns(l), NULL), PJ_OK);
    pj_ledger_estimate(l, 5000 * MS);
    pj_ledger_figure f = pj_ledger_of(l, fast), g = pj_ledger_of(l, slow);
    assert_true(f.provisional);
    assert_near(f.rate_mw / g.rate_mw, 3, 0.01);
    double last_mw = machine(l, 4000 * MS, 5000 * MS);
    assert_near(f.rate_mw + g.rate_mw, last_mw, 0.02 * last_mw);
    pj_ledger_free(l);
}

/* More points than are kept: sums are preserved. */
static void test_long(void **state)
{
    (void)state;
    pj_ledger *l = make(PJ_BATCH_TOKENS, NULL, 0, 0);
    pj_ledger_entry *e = pj_ledger_enter(l, 0, 1);
    int64_t end = 2000ll * 1000 * MS;
    for (int64_t t = 0; t <= end; t += 1000 * MS) {
        pj_reading r = {.before_ns = t, .after_ns = t, .fresh_ns = t, .value = (double)t / 1e6};
        pj_ledger_read(l, &r, NULL);
        r.rail = 1;
        pj_ledger_read(l, &r, NULL);
    }
    pj_ledger_leave(e, end);
    assert_int_equal(pj_ledger_settle(l, end, NULL), PJ_OK);
    pj_ledger_series s = pj_ledger_series_of(l, e);
    assert_that(s.count, <=, 1 << 16);
    assert_int_equal(s.t_ns[s.count - 1], end);
    assert_near(s.mj[(s.count - 1) * 2], 2000, 1e-6);
    for (size_t i = 1; i < s.count; i++) assert_that(s.t_ns[i], >, s.t_ns[i - 1]);
    pj_ledger_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conservation),
                                       cmocka_unit_test(test_counted_is_kept),
                                       cmocka_unit_test(test_rates),
                                       cmocka_unit_test(test_queue),
                                       cmocka_unit_test(test_contexts),
                                       cmocka_unit_test(test_estimates),
                                       cmocka_unit_test(test_others_have_left),
                                       cmocka_unit_test(test_a_late_token),
                                       cmocka_unit_test(test_estimated_phases),
                                       cmocka_unit_test(test_gaps),
                                       cmocka_unit_test(test_nothing_known),
                                       cmocka_unit_test(test_short),
                                       cmocka_unit_test(test_certain),
                                       cmocka_unit_test(test_certain_of_all_rails),
                                       cmocka_unit_test(test_long_prompt),
                                       cmocka_unit_test(test_settled_rate),
                                       cmocka_unit_test(test_early_parts),
                                       cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
