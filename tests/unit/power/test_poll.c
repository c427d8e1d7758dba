/* When a counter whose read takes milliseconds is read, and how its values are dated, against a
 * simulated card on a virtual time: its ticks jitter and drift, calls are slow or lost, the counter
 * stops, its phase jumps, or it has no grid. The value of a read names the tick that published it,
 * so the true date of each reading is known. */
#include "../assertions.h"

#include "base/clock.h"
#include "base/random.h"
#include "power/filter.h"
#include "power/poll.h"

enum { TICKS = 6000, FIRST_TICK = 20 };
#define MS PJ_NS_PER_MS
static const int64_t PERIOD_NS = 100 * MS, BEGIN_NS = 7000 * MS;
static const double STEP_UJ = 25e6, START_UJ = 5e9;

typedef struct card {
    /* what it is like */
    const char *name;
    int64_t jitter_ns;    /* of a tick, to either side */
    double drift;         /* of its clock relative to ours */
    double slow, lost;    /* shares of the calls that take 17 ms and that fail */
    int64_t held_up_ns;   /* at most, of any call: a busy machine */
    double stops_s;       /* the counter stands still from then on; 0: never */
    double jumps_s;       /* the phase jumps by 37 ms then; 0: never */
    int64_t irregular_ns; /* of the intervals, to either side, where there is no grid */
    bool has_log;
    bool is_unknown; /* first contact has not seen its grid */
    /* its state, and what was seen of it */
    int64_t ticks[TICKS];
    uint32_t tick_count;
    int64_t now_ns, calls_ns; /* the time, and the part of it that calls took */
    uint32_t reads, dated, vague, wrong, stood;
    double value; /* of the last reading */
    double worst_ms;
    pj_random random;
    pj_rail rail;
    pj_filter filter;
    pj_poll poll;
    pj_reading early;
    bool is_early;
} card;

/* ---- the card ----------------------------------------------------------------------------------
 */

static int64_t card_random(card *c, int64_t most_ns)
{
    return (int64_t)((2 * pj_random_unit(&c->random) - 1) * (double)most_ns);
}

static void card_make_ticks(card *c)
{
    double at = (double)(BEGIN_NS - FIRST_TICK * PERIOD_NS) + 61e6;
    double stop = (double)BEGIN_NS + c->stops_s * 1e9, jump = (double)BEGIN_NS + c->jumps_s * 1e9;
    bool has_jumped = c->jumps_s == 0;
    for (c->tick_count = 0; c->tick_count < TICKS; c->tick_count++) {
        if (c->stops_s > 0 && at > stop) return;
        if (!has_jumped && at > jump) at += 37e6;
        has_jumped = has_jumped || at > jump;
        c->ticks[c->tick_count] = (int64_t)at + card_random(c, c->jitter_ns);
        at += (double)PERIOD_NS * (1 + c->drift) + (double)card_random(c, c->irregular_ns);
    }
}

static void card_init(card *c)
{
    c->random.state = 41;
    c->rail = (pj_rail){.name = "gpu0",
                        .kind = PJ_RAIL_COUNTER,
                        .scope = PJ_SCOPE_BOARD,
                        .period_ns = PERIOD_NS,
                        .grid_ns = c->irregular_ns || c->is_unknown ? 0 : PERIOD_NS,
                        .resolution = 1000,
                        .max_mw = 700e3};
    card_make_ticks(c);
    c->now_ns = BEGIN_NS;
    pj_filter_init(&c->filter, &c->rail);
    pj_poll_init(&c->poll, &c->rail, c->has_log, 3 * MS);
    pj_poll_start(&c->poll, c->now_ns);
}

static uint32_t card_last_tick(const card *c, int64_t at_ns)
{
    uint32_t i = 0;
    while (i + 1 < c->tick_count && c->ticks[i + 1] <= at_ns) i++;
    return i;
}

static void card_pass(card *c, int64_t took_ns)
{
    c->now_ns += took_ns;
    c->calls_ns += took_ns;
}

/* A call: the value is that of some moment within. */
static pj_reading card_call(card *c)
{
    pj_reading r = {.before_ns = c->now_ns};
    int64_t took = 3050000 + card_random(c, 450000);
    if (pj_random_unit(&c->random) < c->slow) took = 17 * MS;
    took += (int64_t)((double)c->held_up_ns * pj_random_unit(&c->random));
    int64_t moment = c->now_ns + (int64_t)((double)took * pj_random_unit(&c->random));
    r.value = START_UJ + STEP_UJ * card_last_tick(c, moment);
    if (pj_random_unit(&c->random) < c->lost) r.status = PJ_READING_GAP;
    card_pass(c, took);
    r.after_ns = c->now_ns;
    c->reads++;
    return r;
}

/* ---- the reader, as the sampler's thread -------------------------------------------------------
 */

static void card_check_date(card *c, const pj_reading *r)
{
    if (r->status != PJ_READING_OK && r->status != PJ_READING_RESET) return;
    bool stands = r->status == PJ_READING_OK && r->value == c->value;
    c->value = r->value;
    c->stood += stands; /* nothing was counted up to its date: that is no tick's */
    if (stands) return;
    int64_t tick = c->ticks[(uint32_t)((r->value - START_UJ) / STEP_UJ + 0.5)];
    double off_ms = fabs((double)(r->fresh_ns - tick)) * 1e-6;
    c->dated++;
    if (off_ms > (double)(r->fresh_error_ns + c->irregular_ns) * 1e-6) c->wrong++;
    if (r->fresh_error_ns > PERIOD_NS / 8)
        c->vague++; /* straddled a tick, and says so */
    else if (off_ms > c->worst_ms)
        c->worst_ms = off_ms;
}

static void card_read(card *c)
{
    if (c->has_log && !c->poll.looking) card_pass(c, 3 * MS);
    int64_t before = c->now_ns;
    pj_reading r = c->early;
    if (!c->is_early) {
        r = card_call(c);
        pj_filter_take(&c->filter, &r);
        pj_poll_see(&c->poll, &r);
        c->early = r;
    }
    bool was_early = c->is_early;
    c->is_early = !was_early && pj_poll_is_early(&c->poll);
    bool is_vague = !was_early && pj_poll_is_vague(&c->poll);
    if (is_vague) pj_filter_rearm(&c->filter);
    if (!c->is_early && !is_vague) card_check_date(c, &r);
    pj_poll_done(&c->poll, was_early ? c->now_ns : before, c->now_ns, MS);
}

/* Reads when it is due; a sleeper wakes up to 0.3 ms late. */
static void card_step(card *c)
{
    int64_t due = pj_poll_due(&c->poll);
    if (due > c->now_ns) c->now_ns = due + (int64_t)(3e5 * pj_random_unit(&c->random));
    card_read(c);
}

static void card_run(card *c, double seconds)
{
    int64_t end = c->now_ns + (int64_t)(seconds * 1e9);
    c->reads = c->dated = c->vague = c->wrong = c->stood = 0;
    c->calls_ns = 0;
    c->worst_ms = 0;
    while (c->now_ns < end) card_step(c);
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static const card cards[] = {
    {.name = "exact"},
    {.name = "with a log", .has_log = true},
    {.name = "jitter", .jitter_ns = 400000},
    {.name = "drift", .drift = 20e-6, .jitter_ns = 200000},
    {.name = "drift back", .drift = -20e-6, .has_log = true},
    {.name = "slow calls", .slow = 0.1, .jitter_ns = 200000, .has_log = true},
    {.name = "all calls slow", .slow = 1},
    {.name = "lost reads", .lost = 0.2, .has_log = true},
    {.name = "all of these",
     .lost = 0.05,
     .slow = 0.05,
     .drift = 20e-6,
     .jitter_ns = 400000,
     .has_log = true},
    {.name = "no grid", .irregular_ns = 15 * MS},
    {.name = "no grid, slow, with a log", .irregular_ns = 15 * MS, .slow = 0.1, .has_log = true},
};
enum { CARDS = sizeof cards / sizeof *cards };

static card *card_new(const card *like)
{
    static card c;
    c = *like;
    card_init(&c);
    return &c;
}

/* Each date is within its stated error of the truth, and on a grid, where calls are not slow,
 * nearly all are stated to an eighth of the period. */
static void dates_are_right(void **state)
{
    (void)state;
    for (int i = 0; i < CARDS; i++) {
        card *c = card_new(&cards[i]);
        card_run(c, 1);
        assert_int_equal(c->wrong, 0);
        card_run(c, 120);
        if (c->wrong > 0)
            fail_msg("%s: %u of %u dates are off by more than stated, up to %.1f ms", c->name,
                     c->wrong, c->dated, c->worst_ms);
        assert_that(c->dated, >, c->slow > 0.5 ? 15 : 60);
        bool is_usual = c->slow == 0 && !c->irregular_ns;
        if (is_usual && c->vague > c->dated / (c->lost > 0 ? 8 : 20))
            fail_msg("%s: %u of %u dates are vague", c->name, c->vague, c->dated);
    }
}

/* After the first second, reads stay rare, and take less than one percent of a core in all. */
static void reads_are_rare(void **state)
{
    (void)state;
    for (int i = 0; i < CARDS; i++) {
        card *c = card_new(&cards[i]);
        card_run(c, 1);
        double seconds = c->irregular_ns ? 300 : 60; /* a grid is looked for in vain a few times */
        card_run(c, seconds);
        double share = (double)c->calls_ns * 1e-9 / seconds, per_s = c->reads / seconds;
        /* failures are followed by further reads */
        if (share > (c->lost > 0.1 ? 0.015 : 0.01) || per_s > 4)
            fail_msg("%s: %.1f reads per second take %.2f %% of a core", c->name, per_s,
                     100 * share);
    }
}

/* A grid that first contact did not see is learnt in passing, and from then on dates are as good as
 * ever; what is on no grid is not taken for one. */
static void missed_grids_are_learnt(void **state)
{
    (void)state;
    for (int i = 0; i < CARDS; i++) {
        card *c = card_new(&cards[i]);
        c->is_unknown = true;
        card_init(c);
        card_run(c, 120);
        assert_int_equal(c->wrong, 0);
        bool is_slow = c->slow > 0.5; /* two reads do not tell where a tick was */
        if (c->poll.grid.period_ns != (c->irregular_ns || is_slow ? 0 : PERIOD_NS))
            fail_msg("%s: %.3f ms", c->name, (double)c->poll.grid.period_ns * 1e-6);
        card_run(c, 60);
        assert_int_equal(c->wrong, 0);
        if (c->slow == 0 && c->lost == 0 && !c->irregular_ns)
            assert_that(c->vague, <=, c->dated / 20);
    }
}

/* On a busy machine one tick is seen too vaguely to tell the phase, a few of them are not. */
static void a_few_vague_ticks_tell_the_phase(void **state)
{
    enum { STARTS = 200 };
    unsigned known = 0;
    (void)state;
    for (int i = 0; i < STARTS; i++) {
        card *c = card_new(&(card){.name = "busy", .held_up_ns = 18 * MS, .jitter_ns = 200000});
        c->random.state = (uint64_t)i + 1;
        c->now_ns += (int64_t)(pj_random_unit(&c->random) * (double)PERIOD_NS);
        pj_poll_start(&c->poll, c->now_ns);
        card_run(c, 0.45);
        known += pj_grid_known(&c->poll.grid, c->now_ns);
        assert_int_equal(c->wrong, 0);
    }
    print_message("%u of %d\n", known, STARTS);
    assert_that(known, >=, 0.9 * STARTS);
}

/* Nor does who waits wait longer while a grid is looked for. */
static void looks_for_a_grid_give_way(void **state)
{
    (void)state;
    for (int log = 0; log < 2; log++) {
        card *c = card_new(&(card){.name = "unknown", .has_log = log, .is_unknown = true});
        for (int n = 0; n < 10; n++) {
            while (!c->poll.looking && c->poll.grid.period_ns == 0) card_step(c);
            card_run(c, 0.7 * pj_random_unit(&c->random));
            int64_t at = c->now_ns;
            for (int tries = 0; (c->poll.covered_ns < at || c->is_early) && tries < 20; tries++) {
                pj_poll_want(&c->poll, at);
                card_step(c);
            }
            assert_that(c->now_ns - at, <, 3 * PERIOD_NS);
        }
        assert_int_equal(c->wrong, 0);
        assert_int_equal(c->poll.grid.period_ns, PERIOD_NS);
    }
}

/* Who waits for the energy up to now gets it as soon as a tick has published it. */
static void who_waits_is_served(void **state)
{
    (void)state;
    for (int i = 0; i < CARDS; i++) {
        card *c = card_new(&cards[i]);
        if (c->lost > 0) continue;
        card_run(c, 2);
        for (int n = 0; n < 100; n++) {
            card_run(c, 0.4 * pj_random_unit(&c->random));
            int64_t at = c->now_ns;
            for (int tries = 0; c->poll.covered_ns < at && tries < 20; tries++) {
                pj_poll_want(&c->poll, at);
                card_step(c);
            }
            /* a call in progress, the next tick, the time for a log to reach it, and a call */
            double periods = (double)(c->now_ns - at) / (double)PERIOD_NS;
            if (periods > (c->slow > 0 || c->irregular_ns ? 2.2 : 1.6))
                fail_msg("%s: waited for %.2f periods", c->name, periods);
        }
    }
}

/* A counter that stops is not read more often for it, and is known to have counted nothing until it
 * is taken for dead. When it stopped between two reads is unknown: its last value alone has a date
 * that is too late. */
static void standing_counter_is_not_pursued(void **state)
{
    (void)state;
    card *c = card_new(&(card){.name = "stops", .stops_s = 20, .has_log = true});
    card_run(c, 18);
    assert_int_equal(c->wrong, 0);
    assert_int_equal(c->stood, 0);
    card_run(c, 60);
    assert_that(c->wrong, <=, 1);
    assert_that(c->stood, >=, 1);
    assert_that(c->reads, <, 60 * 15);
    assert_that((double)c->calls_ns, <, 0.05 * 60e9);
}

/* A phase that jumps is found when it is next confirmed; from then on dates are right again. */
static void jumping_phase_is_found(void **state)
{
    (void)state;
    card *c = card_new(&(card){.name = "jumps", .jumps_s = 20, .jitter_ns = 200000});
    card_run(c, 19);
    assert_int_equal(c->wrong, 0);
    card_run(c, 70);
    card_run(c, 60);
    assert_int_equal(c->wrong, 0);
    assert_that(c->dated, >, 40);
    assert_that(c->worst_ms, <, 8);
    assert_that(c->vague, <=, c->dated / 10);
}

/* ---- the grid ----------------------------------------------------------------------------------
 */

/* Reads are up to `read_ms` before and after a tick. */
static int64_t found_period_by(double read_ms, double period_ms, double jitter_ms, double missed,
                               uint32_t count)
{
    enum { MOST = 64 };
    int64_t from[MOST], to[MOST];
    pj_random random = {5};
    double at = 1234.5;
    for (uint32_t i = 0; i < count; i++) {
        at += period_ms;
        while (pj_random_unit(&random) < missed) at += period_ms;
        double tick = at + jitter_ms * (2 * pj_random_unit(&random) - 1);
        from[i] = (int64_t)((tick - read_ms * pj_random_unit(&random)) * 1e6);
        to[i] = (int64_t)((tick + read_ms * pj_random_unit(&random)) * 1e6);
    }
    return pj_grid_find(from, to, count);
}

static int64_t found_period(double period_ms, double jitter_ms, double missed, uint32_t count)
{
    return found_period_by(5, period_ms, jitter_ms, missed, count);
}

static void grids_are_found_where_they_are(void **state)
{
    (void)state;
    assert_int_equal(found_period(100, 0.4, 0, 12), 100 * MS);
    assert_int_equal(found_period(100, 0.4, 0.3, 40), 100 * MS);
    assert_int_equal(found_period(20, 0.2, 0, 64), 20 * MS);
    /* slow reads on a busy machine */
    assert_int_equal(found_period_by(25, 100, 0.4, 0.4, 12), 100 * MS);
    assert_int_equal(found_period_by(25, 100, 0.4, 0.7, 24), 100 * MS);
    /* several periods fit on a busy machine: the round one, or none */
    for (double ms = 80; ms <= 120; ms += 20)
        assert_int_equal(found_period_by(25, ms, 0.4, 0, 10), (int64_t)ms * MS);
    assert_int_equal(found_period_by(40, 97, 0.4, 0, 8), -1);
    assert_int_equal(found_period_by(5, 97, 0.4, 0, 40), 97 * MS);
    assert_int_equal(found_period(100, 25, 0, 40), 0); /* irregular */
    assert_int_equal(found_period(97.3, 0, 0, 40), 0); /* no timer has this period */
    assert_int_equal(found_period(100, 0, 0, 7), 0);   /* too few */
}

static void grid_knows_how_sure_it_is(void **state)
{
    (void)state;
    pj_grid g = {.period_ns = PERIOD_NS};
    assert_false(pj_grid_known(&g, BEGIN_NS));
    assert_int_equal(pj_grid_error(&g, BEGIN_NS), INT64_MAX);
    assert_true(pj_grid_observe(&g, BEGIN_NS, BEGIN_NS + 60 * MS)); /* too wide to say anything */
    assert_false(pj_grid_known(&g, BEGIN_NS));
    assert_true(pj_grid_observe(&g, BEGIN_NS, BEGIN_NS + 6 * MS));
    assert_int_equal(pj_grid_last(&g, BEGIN_NS + 3 * MS), BEGIN_NS + 3 * MS);
    assert_int_equal(pj_grid_last(&g, BEGIN_NS + 3 * MS - 1), BEGIN_NS - 97 * MS);
    assert_int_equal(pj_grid_last(&g, BEGIN_NS + 950 * MS), BEGIN_NS + 903 * MS);
    int64_t error = pj_grid_error(&g, BEGIN_NS + 6 * MS);
    assert_that(error, >=, 3 * MS);
    assert_that(pj_grid_error(&g, BEGIN_NS + 60000 * MS), >, error + 2 * MS);   /* drift */
    assert_true(pj_grid_observe(&g, BEGIN_NS + 104 * MS, BEGIN_NS + 109 * MS)); /* narrower */
    assert_that(pj_grid_error(&g, BEGIN_NS + 109 * MS), <, 2 * MS);
    int64_t elsewhere = BEGIN_NS + 250 * MS;
    assert_false(pj_grid_observe(&g, elsewhere, elsewhere + 4 * MS));
    assert_true(pj_grid_known(&g, elsewhere)); /* one contradiction may be a slip */
    assert_false(pj_grid_observe(&g, elsewhere + PERIOD_NS, elsewhere + PERIOD_NS + 4 * MS));
    assert_false(pj_grid_known(&g, elsewhere));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_are_right),
        cmocka_unit_test(reads_are_rare),
        cmocka_unit_test(missed_grids_are_learnt),
        cmocka_unit_test(a_few_vague_ticks_tell_the_phase),
        cmocka_unit_test(looks_for_a_grid_give_way),
        cmocka_unit_test(who_waits_is_served),
        cmocka_unit_test(standing_counter_is_not_pursued),
        cmocka_unit_test(jumping_phase_is_found),
        cmocka_unit_test(grids_are_found_where_they_are),
        cmocka_unit_test(grid_knows_how_sure_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
