/* Phase detection in recorded power traces without tags (fixtures/nvml/traces). The figures are
 * printed. */
#include "../unit/assertions.h"
#include "judge.h"

#include "bench/recorded_phases.h"

static void recorded_phases_are_found(void **state)
{
    char folder[PATH_MAX];
    pj_recorded_score scores[PJ_RECORDED_TRACES];
    pj_error err;
    (void)state;
    judge_join(folder, judge_folder("PJ_FIXTURES"), "nvml/traces");
    if (pj_recorded_phases_judge(folder, scores, &err) != PJ_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < PJ_RECORDED_TRACES; i++) {
        const pj_recorded_score *s = &scores[i];
        printf("%s: %.0f samples, %.2f %% right", s->name, s->all, 100 * s->right / s->all);
        if (s->near_90 > 0)
            printf("; of %.0f at 90 %%, %.1f %% right", s->near_90,
                   100 * s->near_90_right / s->near_90);
        printf("; by the prior %.2f %% of work and idle\n", 100 * s->prior_right / s->all);
        assert_that(s->all, >, 100);
        assert_that(s->right, >=, 0.95 * s->all);
        assert_that(s->prior_right, >=, 0.90 * s->all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_phases_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
