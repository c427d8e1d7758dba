/* Prints the settings that differ, then figures and tests, and last the conclusion, which stays
 * visible above the prompt. */
#include "cli/compare_print.h"

#include "cli/stored.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 6, TERMS_SHOWN = 10 }; /* sides that a table shows */

static size_t side_count(const json_t *view)
{
    return json_array_size(json_object_get(view, "sides"));
}

static const char *side_name(const json_t *view, double index)
{
    return pj_member_text(json_array_get(json_object_get(view, "sides"), (size_t)index), "name");
}

static void print_title(const char *title)
{
    printf("\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), title, pj_style_off(stdout));
}

/* ---- heads and settings --------------------------------------------------------------------- */

static void print_heads(const json_t *view)
{
    size_t i;
    json_t *side;
    json_t *runs = json_object_get(view, "runs");
    json_array_foreach(json_object_get(view, "sides"), i, side)
    {
        double count = pj_member_number(side, "runs"), out = pj_member_number(side, "left_out");
        printf("%s", pj_member_text(side, "name"));
        if (json_is_array(runs)) {
            const json_t *run = json_array_get(runs, i);
            printf("  %.18s  %s, %s, %s, energy %s", pj_member_text(run, "id"),
                   pj_member_text(run, "model_name"), pj_member_text(run, "dtype"),
                   pj_member_text(run, "status"), pj_member_text(run, "energy_source"));
        }
        if (!json_is_array(runs) || count > 1 || out > 0)
            printf("%s%.0f run%s", json_is_array(runs) ? ", " : "  ", count, count == 1 ? "" : "s");
        if (out > 0) printf(" (%.0f left out)", out);
        putchar('\n');
    }
}

static void print_differences(const json_t *view)
{
    size_t i, k;
    json_t *d, *value;
    const json_t *list = json_object_get(view, "differences");
    if (!json_array_size(list)) return;
    print_title("settings that differ");
    json_array_foreach(list, i, d)
    {
        printf("%-20s", pj_member_text(d, "setting"));
        json_array_foreach(json_object_get(d, "values"), k, value)
            printf("  %s: %.40s", side_name(view, (double)k),
                   json_is_string(value) ? json_string_value(value) : "unknown");
        putchar('\n');
    }
}

static void print_caveats(const json_t *view)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(view, "caveats"), i, c)
        printf("%s%scaveat%s  %s\n", i ? "" : "\n", pj_style_on(stdout, PJ_STYLE_YELLOW),
               pj_style_off(stdout), pj_member_text(c, "text"));
}

/* ---- the table ------------------------------------------------------------------------------ */

static void print_change(double percent, bool lower)
{
    bool good = lower ? percent < 0 : percent > 0;
    pj_style style = fabs(percent) < 0.5 || isnan(percent) ? PJ_STYLE_PLAIN
                     : good                                ? PJ_STYLE_GREEN
                                                           : PJ_STYLE_RED;
    printf("  %s", pj_style_on(stdout, style));
    if (isnan(percent))
        printf("%9s", "-");
    else
        printf("%+7.1f %%", percent);
    fputs(pj_style_off(stdout), stdout);
}

static void print_metric(const json_t *m, size_t sides, int width)
{
    bool lower = strcmp(pj_member_text(m, "better"), "lower") == 0;
    const json_t *values = json_object_get(m, "values");
    const json_t *percents = json_object_get(m, "difference_percent");
    printf("%-*s %-4s", width, pj_member_text(m, "metric"), pj_member_text(m, "unit"));
    for (size_t i = 0; i < sides; i++) {
        const json_t *value = json_array_get(values, i);
        if (json_is_number(value))
            printf(" %11.5g", json_number_value(value));
        else
            printf(" %11s", "-");
    }
    for (size_t i = 1; i < sides; i++) {
        const json_t *p = json_array_get(percents, i);
        print_change(json_is_number(p) ? json_number_value(p) : NAN, lower);
    }
    putchar('\n');
}

static void print_metrics(const json_t *view)
{
    size_t i, sides = side_count(view);
    json_t *m, *metrics = json_object_get(view, "metrics");
    int width = 0;
    if (sides > COLUMNS_MAX) sides = COLUMNS_MAX;
    json_array_foreach(metrics, i, m)
    {
        int length = (int)strlen(pj_member_text(m, "metric"));
        if (length > width) width = length;
    }
    printf("\n%s%-*s %-4s", pj_style_on(stdout, PJ_STYLE_BOLD), width, "metric (mean)", "unit");
    for (i = 0; i < sides; i++) printf(" %11.11s", side_name(view, (double)i));
    for (i = 1; i < sides; i++) printf("  %9.9s", side_name(view, (double)i));
    printf("%s\n", pj_style_off(stdout));
    json_array_foreach(metrics, i, m) print_metric(m, sides, width);
    if (side_count(view) > COLUMNS_MAX) printf("the first %d groups; all: --json\n", COLUMNS_MAX);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void print_tests(const json_t *view)
{
    size_t i;
    json_t *t, *tests = json_object_get(view, "tests");
    if (json_array_size(tests) == 0) return;
    print_title("tests: ratio with 95 % interval, Hedges' g, p by Holm");
    json_array_foreach(tests, i, t)
    {
        char pair[40], decision[40];
        double p = pj_member_number(t, "p_adjusted");
        snprintf(pair, sizeof pair, "%.10s, %.10s", side_name(view, pj_member_number(t, "a")),
                 side_name(view, pj_member_number(t, "b")));
        if (isnan(p))
            snprintf(decision, sizeof decision, "not judged");
        else
            snprintf(decision, sizeof decision, "p %.2g%s", p, p < 0.05 ? "  different" : "");
        printf("%-24s %s  %.0f+%.0f %ss  %.4g (%.4g to %.4g)  g %.2f  %s\n",
               pj_member_text(t, "metric"), pair, pj_member_number(t, "n_a"),
               pj_member_number(t, "n_b"), pj_member_text(t, "sample"),
               pj_member_number(t, "ratio"), pj_member_number(t, "ratio_lo"),
               pj_member_number(t, "ratio_hi"), pj_member_number(t, "hedges_g"), decision);
    }
}

/* ---- where the difference comes from --------------------------------------------------------- */

static void print_decomposition(const json_t *view)
{
    size_t i, k;
    json_t *d, *t;
    char total[32], part[32], time[32], power[32], name[64];
    json_array_foreach(json_object_get(view, "decomposition"), i, d)
    {
        pj_format_energy(pj_member_number(d, "difference_mj"), total, sizeof total);
        printf("\n%sfrom %s to %s: %s per token%s, by time and by power of the parts\n",
               pj_style_on(stdout, PJ_STYLE_BOLD), side_name(view, pj_member_number(d, "a")),
               side_name(view, pj_member_number(d, "b")), total, pj_style_off(stdout));
        json_array_foreach(json_object_get(d, "terms"), k, t)
        {
            if (k == TERMS_SHOWN) {
                printf("  and %zu smaller ones: --json\n",
                       json_array_size(json_object_get(d, "terms")) - k);
                break;
            }
            pj_format_energy(pj_member_number(t, "difference_mj"), part, sizeof part);
            pj_format_energy(pj_member_number(t, "by_time_mj"), time, sizeof time);
            pj_format_energy(pj_member_number(t, "by_power_mj"), power, sizeof power);
            snprintf(name, sizeof name, "%s %s", pj_member_text(t, "phase"),
                     pj_member_text(t, "component"));
            printf("  %-34s %11s  %11s time %11s power\n", name, part, time, power);
        }
    }
}

/* ---- sentences ------------------------------------------------------------------------------ */

static void print_sides(const json_t *view, const json_t *sides, const char *introduction)
{
    size_t i;
    json_t *side;
    json_array_foreach(sides, i, side)
        printf("%s%s", i ? ", " : introduction, side_name(view, json_number_value(side)));
}

static void print_best(const json_t *view)
{
    size_t i;
    json_t *b;
    if (side_count(view) < 2) return;
    putchar('\n');
    json_array_foreach(json_object_get(view, "best"), i, b)
    {
        printf("%-15s %s", pj_member_text(b, "title"),
               side_name(view, pj_member_number(b, "side")));
        print_sides(view, json_object_get(b, "tied_with"), ", not told apart from ");
        print_sides(view, json_object_get(b, "untested"), ", not tested against ");
        putchar('\n');
    }
}

static void print_verdicts(const json_t *view)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(view, "verdicts"), i, v)
    {
        const char *text = pj_member_text(v, "text");
        if (*text)
            printf("\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), text, pj_style_off(stdout));
    }
}

void pj_compare_print(const json_t *view)
{
    print_heads(view);
    print_differences(view);
    print_caveats(view);
    print_metrics(view);
    print_tests(view);
    print_decomposition(view);
    print_best(view);
    print_verdicts(view);
}
