/* The table of statistics is complete, and what is made from it agrees with it. */
#include "../assertions.h"
#include "trace/phases.h"
#include "trace/statistics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A member of pj_stats that the table forgot would be stored nowhere. */
static void every_member_has_a_line(void **state)
{
    (void)state;
    size_t bytes = 0;
#define X(ID, member, ...) bytes += sizeof(((pj_stats *)0)->member);
    PJ_STATISTICS(X)
#undef X
    assert_int_equal(bytes, sizeof(pj_stats));
}

static void each_line_reads_its_own_member(void **state)
{
    (void)state;
    pj_stats stats = {0};
    float value = 1;
#define X(ID, member, ...) stats.member = value++;
    PJ_STATISTICS(X)
#undef X
    for (int s = 0; s < PJ_STATISTIC_COUNT; s++)
        assert_that(pj_statistic_get(&stats, (pj_statistic)s), ==, s + 1);
    assert_true(pj_statistic_get(&stats, PJ_STATISTIC_COUNT) !=
                pj_statistic_get(&stats, PJ_STATISTIC_COUNT));
}

static void names_are_unique(void **state)
{
    (void)state;
    for (int a = 0; a < PJ_STATISTIC_COUNT; a++)
        for (int b = a + 1; b < PJ_STATISTIC_COUNT; b++) {
            assert_string_not_equal(pj_statistics[a].activation, pj_statistics[b].activation);
            assert_string_not_equal(pj_statistics[a].tensor, pj_statistics[b].tensor);
        }
}

static void shown_statistics_are_metrics(void **state)
{
    (void)state;
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++) {
        int metric = pj_metric_parse(pj_statistics[s].activation);
        assert_that(metric, >=, 0);
        assert_int_equal(pj_metric_statistic((pj_metric)metric), s);
        assert_true(pj_metric_table[metric].in_heatmap && !pj_metric_table[metric].in_tree);
        assert_string_equal(pj_metric_table[metric].unit, pj_statistics[s].unit);
    }
    assert_int_equal(pj_metric_statistic(PJ_METRIC_TIME), PJ_STATISTIC_COUNT);
    assert_int_equal(pj_metric_statistic(PJ_METRIC_ENTROPY), PJ_STATISTIC_COUNT);
    assert_int_equal(pj_metric_parse(pj_statistics[PJ_STATISTIC_NAN_COUNT].activation), -1);
}

/* The choices of the routes: exactly the metrics that the chart has, between bars. */
static void assert_choices(const char *choices, bool tree)
{
    char text[512] = "";
    for (int m = 0; m < PJ_METRIC_COUNT; m++) {
        if (!(tree ? pj_metric_table[m].in_tree : pj_metric_table[m].in_heatmap)) continue;
        if (text[0]) strcat(text, "|");
        strcat(text, pj_metric_table[m].name);
    }
    assert_string_equal(choices, text);
}

static void choices_list_every_metric(void **state)
{
    (void)state;
    assert_choices(PJ_HEATMAP_CHOICES, false);
    assert_choices(PJ_TREE_CHOICES, true);
}

static void phases_are_found_by_name(void **state)
{
    (void)state;
    char text[256] = "";
    for (int p = 0; p < PJ_PHASE_COUNT; p++) {
        assert_int_equal(pj_phase_parse(pj_phase_name((pj_phase)p)), p);
        if (p) strcat(text, "|");
        strcat(text, pj_phase_name((pj_phase)p));
    }
    assert_string_equal(PJ_PHASE_CHOICES, text);
    assert_int_equal(pj_phase_parse("run"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_has_a_line),
        cmocka_unit_test(each_line_reads_its_own_member),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(shown_statistics_are_metrics),
        cmocka_unit_test(choices_list_every_metric),
        cmocka_unit_test(phases_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
