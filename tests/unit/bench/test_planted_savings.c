/* Advice about runs of simulated machines: it names the waste that was planted, its interval
 * contains what the same machine takes less without it, and a machine without any gets none. */
#include "../assertions.h"
#include "bench/planted_savings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MACHINES = 3 };

typedef struct place {
    char folder[64];
    pj_store *store;
} place;

static int set_up(void **state)
{
    char path[128];
    place *p = calloc(1, sizeof *p);
    snprintf(p->folder, sizeof p->folder, "/tmp/pj-savings-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(path, sizeof path, "%s/runs.db", p->folder);
    assert_int_equal(pj_store_open(&(pj_store_options){.path = path}, &p->store, NULL), PJ_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    place *p = *state;
    pj_store_close(p->store);
    snprintf(command, sizeof command, "rm -rf %s", p->folder);
    assert_int_equal(system(command), 0);
    free(p);
    return 0;
}

static void judge(const char *rule, pj_store *store, pj_saving_score *s)
{
    pj_error err;
    for (uint64_t seed = 1; seed <= MACHINES; seed++)
        if (pj_planted_saving_judge(rule, seed, store, s, &err) != PJ_OK) fail_msg("%s", err.text);
}

static void planted_waste_is_named_with_its_saving(void **state)
{
    place *p = *state;
    pj_saving_score all = {0};
    for (const char *const *rule = pj_planted_savings; *rule; rule++) {
        pj_saving_score s = {0};
        judge(*rule, p->store, &s);
        printf("%s: named %.0f of %.0f, held %.0f, stated %.1f %%, planted %.1f %%, other %.0f\n",
               *rule, s.found, s.machines, s.held, 100 * s.stated / s.found,
               100 * s.planted / s.found, s.other);
        assert_that(s.found, >=, s.machines);
        assert_that(s.held, >=, s.found - 1);
        assert_that(s.planted, >=, 0.05 * s.found);
        all.held += s.held, all.found += s.found, all.other += s.other;
    }
    assert_that(all.held, >=, 0.95 * all.found);
    assert_that(all.other, ==, 0);
}

static void nothing_is_advised_without_waste(void **state)
{
    place *p = *state;
    pj_saving_score s = {0};
    judge(NULL, p->store, &s);
    assert_that(s.other, ==, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_waste_is_named_with_its_saving),
        cmocka_unit_test(nothing_is_advised_without_waste),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
