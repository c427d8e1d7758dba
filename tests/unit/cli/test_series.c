/* The table of repeated runs: figures that not every run has, and figures with a large spread. */
#include "../assertions.h"
#include "cli/run_report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void series_fill(pj_series_figure *f, const char *name, const double *values, size_t count)
{
    *f = (pj_series_figure){.group = PJ_SERIES_RUN, .name = name, .unit = "mJ"};
    for (size_t i = 0; i < count; i++) pj_moments_add(&f->moments, values[i]);
}

/* The line of a figure in the printed table. */
static const char *series_line(const pj_series *series, const char *name)
{
    static char line[256];
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    pj_series_print(out, series);
    fclose(out);
    const char *begin = strstr(text, name);
    snprintf(line, sizeof line, "%s", begin ? begin : "");
    line[strcspn(line, "\n")] = 0;
    free(text);
    return line;
}

static void rows_say_of_how_many_values_they_are(void **state)
{
    static const double values[] = {2, 5, 40};
    static pj_series s;
    s = (pj_series){.runs = 3, .count = 4};
    series_fill(&s.figures[0], "total_energy_mj", values, 3);
    series_fill(&s.figures[1], "net_energy_mj", values, 2);
    series_fill(&s.figures[2], "model_load_energy_mj", values, 1);
    series_fill(&s.figures[3], "request_energy_mj", values, 0);
    pj_series_finish(&s);
    assert_non_null(strstr(series_line(&s, "total_energy_mj"), "  n 3  sd 21"));
    assert_that(s.figures[0].mean.lo, >, 0);
    assert_non_null(strstr(series_line(&s, "  net_energy_mj"), "n 2  sd 2.1"));
    assert_that(s.figures[1].mean.lo, <, 0); /* above idle: may be negative */
    assert_non_null(strstr(series_line(&s, "model_load_energy_mj"), "2.00 mJ "));
    assert_non_null(strstr(series_line(&s, "model_load_energy_mj"), "  n 1"));
    assert_null(strstr(series_line(&s, "model_load_energy_mj"), "sd"));
    assert_string_equal(series_line(&s, "request_energy_mj"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_say_of_how_many_values_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
