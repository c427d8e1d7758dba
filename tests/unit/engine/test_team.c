/* The thread pool: sharing, taking and offering work, and failure to start. */
#include "base/memory.h"
#include "engine/kernels/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- the team --------------------------------------------------------------------------- */

typedef struct counted {
    pj_team *team;
    _Atomic size_t taken;
    size_t shared[8];
} counted;

static void count_items(void *context, unsigned thread)
{
    counted *c = context;
    size_t begin, end;
    pj_team_share(c->team, thread, 1000, 8, &begin, &end);
    c->shared[thread] = end - begin;
    while (pj_team_take(c->team, 1000, 7, &begin, &end)) c->taken += end - begin;
    memset(pj_team_scratch(c->team, thread), (int)thread, PJ_TEAM_SCRATCH_BYTES);
}

typedef struct offered {
    pj_team *team;
    _Atomic size_t taken;
    _Atomic unsigned inside;
} offered;

static void take_items(void *context, unsigned thread)
{
    offered *o = context;
    size_t begin, end;
    o->inside++;
    while (pj_team_take(o->team, 500, 3, &begin, &end)) o->taken += end - begin;
    o->inside--;
}

/* For any subset of arriving threads, each item is processed exactly once, and no thread works
 * afterwards. */
static void test_offers(void **state)
{
    for (unsigned threads = 1; threads <= 4; threads++) {
        offered o = {0};
        counted c = {0};
        assert_int_equal(pj_team_new(threads, threads % 2, &o.team, NULL), PJ_OK);
        c.team = o.team;
        for (size_t i = 1; i <= 2000; i++) {
            pj_team_offer(o.team, take_items, &o);
            assert_int_equal(o.inside, 0);
            assert_int_equal(o.taken, i * 500);
            if (i % 50) continue;
            c.taken = 0;
            pj_team_run(c.team, count_items, &c); /* all of them, after some did not arrive */
            assert_int_equal(c.taken, 1000);
        }
        pj_team_free(o.team);
    }
}

static void test_team(void **state)
{
    for (unsigned threads = 1; threads <= 4; threads++) {
        counted c = {0};
        pj_error err;
        assert_int_equal(pj_team_new(threads, threads % 2, &c.team, &err), PJ_OK);
        assert_int_equal(pj_team_threads(c.team), threads);
        uint64_t allocations = pj_memory_count();
        for (int i = 0; i < 200; i++) {
            c.taken = 0;
            pj_team_run(c.team, count_items, &c);
            size_t all = 0;
            for (unsigned t = 0; t < threads; t++) all += c.shared[t];
            assert_int_equal(all, 1000);
            assert_int_equal(c.taken, 1000);
        }
        assert_int_equal(pj_memory_count(), allocations);
        pj_team_free(c.team);
    }
    for (int64_t after = 0; after < 2; after++) { /* no memory: an error, nothing left behind */
        pj_team *team;
        pj_error err;
        pj_memory_fail_after(after);
        assert_int_equal(pj_team_new(2, false, &team, &err), PJ_E_NO_MEMORY);
        assert_null(team);
    }
    pj_memory_fail_after(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_team),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
