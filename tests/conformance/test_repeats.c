/* Comparison of recorded runs that are alike (fixtures/llm-energy/dos-group): of 2,000 pairs of
 * groups without a difference at most 5 % may be called different, and planted differences are
 * found. The figures are printed. */
#include "../unit/assertions.h"
#include "judge.h"

#include "analysis/ratio.h"
#include "bench/recorded_repeats.h"

static pj_recorded_repeats repeats;

static void read(void)
{
    char of[PATH_MAX], path[PATH_MAX];
    pj_error err;
    judge_join(of, judge_folder("PJ_FIXTURES"), "llm-energy/dos-group");
    judge_join(path, of, "mfu_aggregated_per_config_A100.csv");
    if (pj_recorded_repeats_read(path, &repeats, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_that(repeats.count, >=, 400);
}

/* 5 %, plus twice the sampling error of 2,000 pairs. */
static void runs_that_are_alike_are_seldom_called_different(void **state)
{
    static const size_t sizes[] = {3, 4, 5, 10};
    (void)state;
    read();
    printf("%zu recorded runs, a spread of %.2f %%\n", repeats.count, 100 * repeats.spread);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double different = pj_recorded_repeats_different(&repeats, sizes[k], 1);
        printf("%zu a side: %.1f %% of pairs that are alike called different\n", sizes[k],
               100 * different);
        assert_that(different, <=, 0.061);
    }
}

/* At the spread of the recorded runs, whatever it is: the difference that ten repeats find with the
 * stated power is found at least that often, less what the heavier tails of real runs cost. */
static void planted_differences_are_found(void **state)
{
    (void)state;
    read();
    double difference = pj_recorded_repeats_detectable(&repeats);
    double found = pj_recorded_repeats_different(&repeats, 10, 1 + difference);
    printf("10 a side, %.1f %% planted: %.1f %% found, %.0f %% stated\n", 100 * difference,
           100 * found, 100 * PJ_POWER);
    assert_that(found, >=, PJ_POWER - 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_that_are_alike_are_seldom_called_different),
        cmocka_unit_test(planted_differences_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
