/*
 * Properties of dividing energy, over random overlaps and weights: the parts of requests and of
 * runs sum to the machine's energy to the nanojoule, whatever the order in which readings arrive
 * and cells are settled; alone means everything; weights of zero; thousands of requests.
 */
#include "../assertions.h"
#include "../sanitized.h"
#include "attribution/division.h"
#include "attribution/ledger.h"
#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { RAILS = 2, COUNT = 24, EVENTS = 3 * COUNT };
#define MS        PJ_NS_PER_MS
#define NANOJOULE 1e-6 /* mJ */
#define UNTIL_NS  (3000 * MS)

static pj_random random_numbers;

static uint64_t random_below(int64_t most)
{
    return pj_random_u64(&random_numbers) % (uint64_t)most;
}

static void make_rails(pj_rail rails[RAILS])
{
    for (int r = 0; r < RAILS; r++)
        rails[r] = (pj_rail){.rail_class = r ? PJ_RAIL_DRAM : PJ_RAIL_CPU,
                             .kind = PJ_RAIL_COUNTER,
                             .quality = PJ_MEASURED,
                             .parent = -1,
                             .period_ns = 10 * MS,
                             .resolution = 1};
}

static pj_reading reading_at(int64_t t_ns, int rail)
{
    double ms = (double)t_ns / 1e6, mw = rail ? 3000 : 40000;
    return (pj_reading){.before_ns = t_ns,
                        .after_ns = t_ns,
                        .fresh_ns = t_ns,
                        .rail = (uint16_t)rail,
                        .value = mw * (ms + 40 * (1 + sin(ms / 70 + rail)))};
}

static double curve_mj(int64_t begin_ns, int64_t end_ns, int rail)
{
    static pj_curve *curves[RAILS];
    pj_rail rails[RAILS];
    make_rails(rails);
    if (!curves[rail]) {
        curves[rail] = pj_curve_new(&rails[rail]);
        for (int64_t t = 0; t <= UNTIL_NS; t += 10 * MS) {
            pj_reading reading = reading_at(t, rail);
            pj_curve_add(curves[rail], &reading, NULL);
        }
    }
    return pj_curve_energy_mj(curves[rail], begin_ns, end_ns);
}

/* What happens, in order of time: the same for every way of settling. */
typedef struct event {
    int64_t at_ns;
    int who;
    enum { ENTER, CHANGE, LEAVE } what;
    double value; /* a weight, or tokens */
} event;

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static void make_events(event events[EVENTS], uint64_t seed)
{
    random_numbers.state = seed;
    for (int i = 0; i < COUNT; i++) {
        int64_t begin_ns = 100 * MS + (int64_t)random_below(1800 * MS);
        int64_t length_ns = 1 * MS + (int64_t)random_below(900 * MS);
        int64_t change_ns = begin_ns + 1 + (int64_t)random_below(length_ns - 1);
        events[3 * i] = (event){begin_ns, i, ENTER, (double)random_below(4)};
        events[3 * i + 1] = (event){change_ns, i, CHANGE, (double)random_below(3)};
        events[3 * i + 2] = (event){begin_ns + length_ns, i, LEAVE, 0};
    }
    qsort(events, EVENTS, sizeof *events, by_time);
}

/* Energy while anything was in flight. */
static double busy_mj(const event *events, int rail)
{
    int live = 0;
    double sum = 0;
    for (int i = 0; i < EVENTS; i++) {
        if (live) sum += curve_mj(events[i - 1].at_ns, events[i].at_ns, rail);
        live += events[i].what == ENTER ? 1 : events[i].what == LEAVE ? -1 : 0;
    }
    return sum;
}

/* ---- requests ------------------------------------------------------------------------------- */

typedef enum order { AT_ONCE, STEP_BY_STEP, LATE_READINGS, ORDER_COUNT } order;

static void read_ledger(pj_ledger *l, int64_t *from_ns, int64_t until_ns)
{
    for (; *from_ns <= until_ns; *from_ns += 10 * MS)
        for (int r = 0; r < RAILS; r++) {
            pj_reading reading = reading_at(*from_ns, r);
            assert_int_equal(pj_ledger_read(l, &reading, NULL), PJ_OK);
        }
}

static void divide_requests(const event *events, pj_batch_rule rule, order how, double *mj)
{
    pj_rail rails[RAILS];
    pj_ledger_entry *entries[COUNT];
    int64_t read_ns = 0;
    make_rails(rails);
    pj_ledger *l = pj_ledger_new(&(pj_ledger_options){.rails = rails,
                                                      .rail_count = RAILS,
                                                      .rule = rule,
                                                      .weight_bytes = 1e9,
                                                      .context_bytes = 1e5});
    if (how == AT_ONCE) read_ledger(l, &read_ns, UNTIL_NS);
    for (int i = 0; i < EVENTS; i++) {
        const event *e = &events[i];
        if (how == STEP_BY_STEP) read_ledger(l, &read_ns, e->at_ns);
        if (e->what == ENTER) entries[e->who] = pj_ledger_enter(l, e->at_ns, 10 * e->value);
        if (e->what == CHANGE) pj_ledger_tokens(entries[e->who], e->at_ns, e->value);
        if (e->what == LEAVE) pj_ledger_tokens(entries[e->who], e->at_ns, 5);
        if (e->what == LEAVE) pj_ledger_leave(entries[e->who], e->at_ns);
        int64_t certain_ns = pj_ledger_certain_ns(l);
        if (how == STEP_BY_STEP && certain_ns > events[0].at_ns)
            assert_int_equal(pj_ledger_settle(l, certain_ns, NULL), PJ_OK);
        if (how == STEP_BY_STEP) pj_ledger_estimate(l, e->at_ns); /* changes nothing */
    }
    read_ledger(l, &read_ns, UNTIL_NS);
    assert_int_equal(pj_ledger_settle(l, UNTIL_NS, NULL), PJ_OK);
    for (int i = 0; i < COUNT; i++) mj[i] = pj_ledger_of(l, entries[i]).total_mj;
    pj_ledger_free(l);
}

static void requests_sum_to_the_machine(void **state)
{
    (void)state;
    event events[EVENTS];
    for (uint64_t seed = 1; seed <= 12; seed++) {
        make_events(events, seed);
        double whole = busy_mj(events, 0) + busy_mj(events, 1);
        for (int rule = 0; rule <= PJ_BATCH_EQUAL; rule++) {
            double first[COUNT], mj[COUNT];
            for (order how = 0; how < ORDER_COUNT; how++) {
                double sum = 0;
                divide_requests(events, (pj_batch_rule)rule, how, how ? mj : first);
                for (int i = 0; i < COUNT; i++) {
                    double part = how ? mj[i] : first[i];
                    assert_that(part, >=, 0);
                    assert_near(part, first[i], NANOJOULE);
                    sum += part;
                }
                if (fabs(sum - whole) >= NANOJOULE)
                    fail_msg("rule %d: %.9f mJ of %.9f mJ are divided", rule, sum, whole);
            }
        }
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void read_division(pj_division *d, int64_t *from_ns, int64_t until_ns)
{
    for (; *from_ns <= until_ns; *from_ns += 10 * MS)
        for (int r = 0; r < RAILS; r++) {
            pj_reading reading = reading_at(*from_ns, r);
            assert_int_equal(pj_division_read(d, &reading, NULL), PJ_OK);
        }
}

typedef struct run_parts {
    double mj[RAILS];
    double least_share, most_share;
    int64_t ns;
} run_parts;

static void take_records(pj_division_member *m, run_parts *p)
{
    pj_share_record record;
    const pj_share_energy *energies;
    while (pj_division_next(m, &record, &energies)) {
        if (!record.end_ns) continue;
        for (int r = 0; r < RAILS; r++) p->mj[r] += record.share * energies[r].mj;
        p->least_share = fmin(p->least_share, record.share);
        p->most_share = fmax(p->most_share, record.share);
        p->ns += record.end_ns - record.begin_ns;
    }
}

static void divide_runs(const event *events, pj_share_rule rule, order how, run_parts *parts)
{
    pj_rail rails[RAILS];
    pj_division_member *members[COUNT] = {NULL};
    int64_t read_ns = 0;
    make_rails(rails);
    pj_division *d = pj_division_new(rails, RAILS, rule);
    for (int i = 0; i < COUNT; i++) parts[i] = (run_parts){.least_share = 1};
    if (how == AT_ONCE) read_division(d, &read_ns, UNTIL_NS);
    for (int i = 0; i < EVENTS; i++) {
        const event *e = &events[i];
        int64_t at_ns = e->at_ns;
        if (how == STEP_BY_STEP) {
            read_division(d, &read_ns, at_ns);
            pj_division_settle(d, at_ns, 0);
        }
        if (e->what == ENTER) members[e->who] = pj_division_enter(d, &at_ns, e->value);
        if (e->what == CHANGE) pj_division_weigh(d, members[e->who], at_ns, e->value);
        if (e->what == LEAVE) pj_division_leave(d, members[e->who], &at_ns);
        assert_int_equal(at_ns, e->at_ns);
        for (int m = 0; how == STEP_BY_STEP && m < COUNT; m++)
            if (members[m]) take_records(members[m], &parts[m]);
    }
    read_division(d, &read_ns, UNTIL_NS);
    pj_division_settle(d, UNTIL_NS, 0);
    for (int m = 0; m < COUNT; m++) take_records(members[m], &parts[m]);
    pj_division_free(d);
}

/* The definition: between two events every run that is open gets its part. */
static double defined_mj(const event *events, pj_share_rule rule, int who, int rail)
{
    double weights[COUNT] = {0}, sum = 0;
    bool open[COUNT] = {false};
    for (int i = 0; i < EVENTS; i++) {
        double all = 0, count = 0;
        for (int m = 0; m < COUNT; m++) {
            all += open[m] ? weights[m] : 0;
            count += open[m];
        }
        if (open[who])
            sum += curve_mj(events[i - 1].at_ns, events[i].at_ns, rail) *
                   (rule == PJ_SHARE_WEIGHT && all > 0 ? weights[who] / all : 1 / count);
        open[events[i].who] = events[i].what != LEAVE;
        weights[events[i].who] = events[i].value;
    }
    return sum;
}

static void runs_sum_to_the_machine(void **state)
{
    (void)state;
    event events[EVENTS];
    for (uint64_t seed = 1; seed <= 40; seed++) {
        make_events(events, seed);
        for (int rule = 0; rule < PJ_SHARE_RULE_COUNT; rule++) {
            run_parts first[COUNT], parts[COUNT];
            bool all_share = true;
            for (order how = 0; how < ORDER_COUNT; how++) {
                double sums[RAILS] = {0};
                divide_runs(events, (pj_share_rule)rule, how, how ? parts : first);
                for (int i = 0; i < COUNT; i++) {
                    const run_parts *p = how ? &parts[i] : &first[i];
                    all_share &= p->ns > 0; /* a run that was always alone has no records */
                    assert_int_equal(p->ns, first[i].ns);
                    for (int r = 0; r < RAILS; r++) {
                        double defined = p->ns ? defined_mj(events, rule, i, r) : 0;
                        assert_near(p->mj[r], defined, NANOJOULE);
                        sums[r] += p->mj[r];
                    }
                }
                for (int r = 0; r < RAILS && all_share; r++) {
                    double whole = busy_mj(events, r);
                    if (fabs(sums[r] - whole) >= NANOJOULE)
                        fail_msg("rule %d: %.9f mJ of %.9f mJ are divided", rule, sums[r], whole);
                }
            }
        }
    }
}

/* A long run, one inside it with the given weights, and one that begins when all others are over.
 */
static void divide_three(double outer, double inner, run_parts parts[3])
{
    const event events[] = {{200 * MS, 0, ENTER, outer}, {403 * MS, 1, ENTER, inner},
                            {707 * MS, 1, LEAVE, 0},     {1000 * MS, 0, LEAVE, 0},
                            {1200 * MS, 2, ENTER, 1},    {1500 * MS, 2, LEAVE, 0}};
    pj_rail rails[RAILS];
    pj_division_member *members[3];
    int64_t read_ns = 0;
    make_rails(rails);
    pj_division *d = pj_division_new(rails, RAILS, PJ_SHARE_WEIGHT);
    read_division(d, &read_ns, UNTIL_NS);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        int64_t at_ns = events[i].at_ns;
        if (events[i].what == ENTER)
            members[events[i].who] = pj_division_enter(d, &at_ns, events[i].value);
        else
            pj_division_leave(d, members[events[i].who], &at_ns);
    }
    pj_division_settle(d, UNTIL_NS, 0);
    for (int i = 0; i < 3; i++) {
        parts[i] = (run_parts){.least_share = 1};
        take_records(members[i], &parts[i]);
    }
    pj_division_free(d);
}

static void zero_weights_and_none(void **state)
{
    (void)state;
    run_parts parts[3];
    divide_three(0, 0, parts); /* equally */
    assert_that(parts[0].least_share, ==, 0.5);
    assert_that(parts[0].most_share, ==, 1);
    assert_that(parts[1].least_share, ==, 0.5);
    assert_that(parts[1].most_share, ==, 0.5);
    divide_three(0, 2, parts);
    assert_that(parts[0].least_share, ==, 0);
    double outside = curve_mj(200 * MS, 403 * MS, 0) + curve_mj(707 * MS, 1000 * MS, 0);
    assert_near(parts[0].mj[0], outside, NANOJOULE);
    assert_that(parts[1].ns, ==, 0); /* it always had all of it */
    divide_three(3, 1, parts);
    assert_that(parts[0].least_share, ==, 0.75);
    assert_that(parts[1].most_share, ==, 0.25);
    assert_that(parts[2].ns, ==, 0); /* alone */
}

static void a_request_alone_gets_everything(void **state)
{
    (void)state;
    for (int rule = 0; rule <= PJ_BATCH_EQUAL; rule++) {
        pj_rail rails[RAILS];
        int64_t read_ns = 0;
        make_rails(rails);
        pj_ledger *l = pj_ledger_new(
            &(pj_ledger_options){.rails = rails, .rail_count = RAILS, .rule = (pj_batch_rule)rule});
        read_ledger(l, &read_ns, UNTIL_NS);
        pj_ledger_entry *e = pj_ledger_enter(l, 333 * MS, 0); /* without any known work */
        pj_ledger_leave(e, 999 * MS);
        assert_int_equal(pj_ledger_settle(l, 999 * MS, NULL), PJ_OK);
        double whole = curve_mj(333 * MS, 999 * MS, 0) + curve_mj(333 * MS, 999 * MS, 1);
        assert_near(pj_ledger_of(l, e).total_mj, whole, NANOJOULE);
        assert_false(pj_ledger_of(l, e).shared);
        pj_ledger_free(l);
    }
}

/* ---- many ----------------------------------------------------------------------------------- */

/* Three thousand requests, two hundred at a time: memory and time do not grow with those that came
 * before. */
static void thousands_of_requests(void **state)
{
    (void)state;
    enum { REQUESTS = PJ_SANITIZED ? 600 : 3000, AT_A_TIME = 200 };
    static pj_ledger_entry *entries[AT_A_TIME];
    pj_rail rails[RAILS];
    int64_t read_ns = 0, begun_ns = pj_clock_ns(), unknown_ns;
    double sum = 0;
    make_rails(rails);
    pj_ledger *l = pj_ledger_new(
        &(pj_ledger_options){.rails = rails, .rail_count = RAILS, .rule = PJ_BATCH_TOKENS});
    for (int i = 0; i < REQUESTS + AT_A_TIME; i++) {
        int64_t now_ns = 100 * MS + i * 5 * MS + i % 7;
        pj_ledger_entry **e = &entries[i % AT_A_TIME];
        read_ledger(l, &read_ns, now_ns + 10 * MS);
        if (i >= AT_A_TIME) {
            pj_ledger_leave(*e, now_ns);
            assert_int_equal(pj_ledger_settle(l, now_ns, NULL), PJ_OK);
            sum += pj_ledger_of(l, *e).total_mj;
            assert_that(pj_ledger_series_of(l, *e).count, <, 4 * AT_A_TIME);
            pj_ledger_drop(l, *e);
        }
        if (i < REQUESTS) *e = pj_ledger_enter(l, now_ns, 1 + i % 100);
    }
    assert_near(pj_ledger_divided_mj(l, &unknown_ns), sum, NANOJOULE);
    assert_int_equal(unknown_ns, 0);
    pj_ledger_free(l);
    if (!PJ_SANITIZED) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        assert_that(usage.ru_maxrss, <, 200 << 10); /* kB */
        assert_that(pj_clock_ns() - begun_ns, <, 60 * PJ_NS_PER_S);
    }
}

/* Between requests a server may be idle for days. */
static void an_idle_ledger_forgets(void **state)
{
    (void)state;
    pj_rail rails[RAILS];
    int64_t read_ns = 0;
    pj_curve_energy e;
    make_rails(rails);
    pj_ledger *l = pj_ledger_new(&(pj_ledger_options){.rails = rails, .rail_count = RAILS});
    for (int64_t now_ns = 0; now_ns <= 600 * PJ_NS_PER_S; now_ns += PJ_NS_PER_S) {
        read_ledger(l, &read_ns, now_ns);
        pj_ledger_start(l, now_ns);
    }
    pj_ledger_machine(l, 590 * PJ_NS_PER_S, 600 * PJ_NS_PER_S, &e);
    assert_that(e.energy_mj, >, 0);
    pj_ledger_machine(l, 10 * PJ_NS_PER_S, 100 * PJ_NS_PER_S, &e);
    assert_true(isnan(e.energy_mj));
    pj_ledger_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_sum_to_the_machine),
        cmocka_unit_test(runs_sum_to_the_machine),
        cmocka_unit_test(zero_weights_and_none),
        cmocka_unit_test(a_request_alone_gets_everything),
        cmocka_unit_test(thousands_of_requests),
        cmocka_unit_test(an_idle_ledger_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
