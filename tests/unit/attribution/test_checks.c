/* Effects of rail checks on a run: warnings and gain uncertainty. */
#include "../assertions.h"
#include "attribution/energies.h"
#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SECONDS = 3, READINGS = 200 };

typedef struct rig {
    pj_run_data d;
    pj_tree tree;
    pj_energies j;
} rig;

static void add_rail(rig *g, const char *name, const char *device, pj_rail_kind kind, double watts,
                     double gain_sd)
{
    uint32_t index = g->d.rail_count++;
    pj_rail *rail = &g->d.rails[index];
    *rail = (pj_rail){.kind = kind,
                      .rail_class = PJ_RAIL_GPU,
                      .scope = PJ_SCOPE_BOARD,
                      .quality = PJ_MEASURED,
                      .parent = -1,
                      .gain_sd = gain_sd,
                      .period_ns = 20 * PJ_NS_PER_MS};
    strcpy(rail->name, name);
    strcpy(rail->device, device);
    strcpy(rail->source, "nvml");
    g->j.curves[index] = pj_curve_new(rail);
    assert_non_null(g->j.curves[index]);
    for (int i = 0; i < READINGS; i++) {
        int64_t at = i * rail->period_ns;
        double value = kind == PJ_RAIL_COUNTER ? watts * (double)at * 1e-3 : watts * 1e3;
        pj_reading reading = {.before_ns = at,
                              .after_ns = at,
                              .fresh_ns = at,
                              .value = value,
                              .rail = (uint16_t)index};
        assert_int_equal(pj_curve_add(g->j.curves[index], &reading, NULL), PJ_OK);
    }
    assert_int_equal(pj_curve_finish(g->j.curves[index], NULL), PJ_OK);
}

/* Each of two cards has a counter and a power reading `off` above it; the second was calibrated. */
static rig two_cards(double off)
{
    rig g = {.tree = {.begin_ns = 200 * PJ_NS_PER_MS,
                      .end_ns = 200 * PJ_NS_PER_MS + SECONDS * PJ_NS_PER_S}};
    pj_arena_init(&g.d.arena, 0);
    for (int card = 0; card < 2; card++) {
        char name[8] = {'g', 'p', 'u', (char)('0' + card)}, device[8] = {'#', (char)('0' + card)};
        double gain_sd = card ? 0.01 : 0;
        add_rail(&g, name, device, PJ_RAIL_COUNTER, 100, gain_sd);
        strcat(name, "p");
        add_rail(&g, name, device, PJ_RAIL_INSTANT, 100 * (1 + off), gain_sd);
    }
    return g;
}

static void point(rig *g)
{
    g->j.tree = &g->tree;
    g->j.d = &g->d;
}

static void discard(rig *g)
{
    for (uint32_t i = 0; i < g->d.rail_count; i++) pj_curve_free(g->j.curves[i]);
    pj_arena_fini(&g->j.arena);
    pj_arena_fini(&g->d.arena);
}

static void the_same_fault_of_two_rails_is_said_of_both(void **state)
{
    (void)state;
    rig g = two_cards(0.5);
    point(&g);
    assert_int_equal(pj_energy_check(&g.j, NULL), PJ_OK);
    assert_int_equal(pj_energy_report(&g.j, NULL), PJ_OK);
    bool named[2] = {false, false};
    for (uint32_t i = 0; i < g.d.warning_count; i++)
        if (strcmp(g.d.warnings[i].code, "sensors_disagree") == 0) {
            named[0] |= strstr(g.d.warnings[i].text, "gpu0") != NULL;
            named[1] |= strstr(g.d.warnings[i].text, "gpu1") != NULL;
        }
    assert_true(named[0] && named[1]);
    uint32_t once = g.d.warning_count; /* idempotent, because `import` repeats it */
    assert_int_equal(pj_energy_report(&g.j, NULL), PJ_OK);
    assert_int_equal(g.d.warning_count, once);
    discard(&g);
}

/* A difference of 6 % is reported, but is within the default gain uncertainty of 8 %. */
static void a_finding_never_makes_a_gain_surer(void **state)
{
    (void)state;
    rig g = two_cards(0.06);
    point(&g);
    assert_int_equal(pj_energy_check(&g.j, NULL), PJ_OK);
    assert_int_equal(g.j.finding_count, 2);
    assert_that(g.d.rails[0].gain_sd, ==, 0); /* still the default */
    pj_curve_energy energy;
    pj_curve_query(g.j.curves[0], g.tree.begin_ns, g.tree.end_ns, &energy);
    double offset_mj =
        pj_rail_offset_sd_mw(&g.d.rails[0]) * (double)(g.tree.end_ns - g.tree.begin_ns) * 1e-9;
    assert_near(energy.gain_sd_mj, hypot(PJ_USUAL_GAIN_SD * energy.energy_mj, offset_mj),
                1e-9 * energy.energy_mj);
    assert_near(g.d.rails[2].gain_sd, 0.06 / 1.06, 1e-3);
    discard(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_fault_of_two_rails_is_said_of_both),
        cmocka_unit_test(a_finding_never_makes_a_gain_surer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
