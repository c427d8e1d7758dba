/* Phases of simulated sensors whose tags were removed, by kind of sensor. The figures are printed.
 */
#include "../assertions.h"
#include "bench/sim_phases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MACHINES = 15 };

typedef struct sensor {
    const char *preset;
    double stretch;    /* of the requests: a slow sensor needs long ones */
    uint64_t machines; /* one of 1 ms is slow to judge, and has samples enough */
} sensor;

/* xe reads as rapl does; nvml-turing, nvml-ampere and nvml-ada as apple; nvml-hopper as nvml-a100;
 * other averages over a second as nvml-ampere-average. */
static const sensor sensors[] = {
    {"rapl", 1, 1},
    {"nvml-volta", 1, MACHINES},
    {"apple", 4, MACHINES},
    {"nvml-a100", 4, MACHINES},
    {"nvml-ampere-average", 4, MACHINES},
};

static void phases_of_simulated_sensors_are_found(void **state)
{
    pj_error err;
    (void)state;
    for (size_t i = 0; i < sizeof sensors / sizeof *sensors; i++) {
        const sensor *of = &sensors[i];
        pj_sim_phase_score s = {0};
        for (uint64_t seed = 1; seed <= of->machines; seed++)
            if (pj_sim_phases_judge(of->preset, seed, of->stretch, &s, &err) != PJ_OK)
                fail_msg("%s", err.text);
        printf("%s: %.0f samples, %.1f %% right; %.0f %% of them of clear phases, %.1f %% right; "
               "of %.0f at 90 %%, %.1f %% right; %u unknown; by the prior %.1f %% right, "
               "%.1f %% believed\n",
               of->preset, s.all, 100 * s.right / s.all, 100 * s.clear / s.all,
               100 * s.clear_right / s.clear, s.near_90, 100 * s.near_90_right / s.near_90,
               (unsigned)s.unknown, 100 * s.prior_right / s.all, 100 * s.prior_confidence / s.all);
        assert_that(s.clear, >=, 0.2 * s.all);
        assert_that(s.clear_right, >=, 0.95 * s.clear);
        assert_that(s.right, >=, 0.9 * s.all);
        /* the samples of a segment are right or wrong together: only many segments tell */
        if (of->machines < MACHINES) continue;
        assert_that(s.near_90, >=, 0.03 * s.all);
        assert_that(s.near_90_right, >=, 0.9 * s.near_90);
        assert_that(s.near_90_right, <=, 0.98 * s.near_90);
        assert_that(s.prior_right, >=, 0.7 * s.all);
        assert_that(s.prior_confidence, <=, s.prior_right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(phases_of_simulated_sensors_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
