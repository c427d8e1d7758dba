/* Prints one line per cell, then the optimum and whether a repetition confirmed it. */
#include "cli/experiment_print.h"

#include "cli/stored.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TIES_SHOWN = 8 };

static void format_or_dash(const char *format, double value, char *text, size_t bytes)
{
    if (isnan(value))
        snprintf(text, bytes, "-");
    else
        snprintf(text, bytes, format, value);
}

/* Of the first column: the longest name of a cell, since names may differ in their ends alone. */
static int name_width(const json_t *view)
{
    size_t i, width = 28;
    json_t *cell;
    json_array_foreach(json_object_get(view, "cells"), i, cell)
    {
        size_t length = strlen(pj_member_text(cell, "name"));
        if (length > width) width = length;
    }
    return (int)width;
}

static void print_cell(const json_t *view, const json_t *cell, int width)
{
    char joules[32], reach[32], power[32], speed[32], ttft[32];
    double mean = pj_member_number(cell, "joules_per_token");
    double lo = pj_member_number(cell, "joules_per_token_lo"),
           loss = pj_member_number(cell, "loss");
    pj_format_energy(mean * 1e3, joules, sizeof joules);
    pj_format_energy((mean - lo) * 1e3, reach, sizeof reach);
    pj_format_power(pj_member_number(cell, "mean_power_mw"), power, sizeof power);
    printf("%-*s %3.0f  ", width, pj_member_text(cell, "name"), pj_member_number(cell, "runs"));
    if (isnan(mean))
        printf("%-21s", "  unavailable");
    else
        printf("%9s ± %-9s", joules, isnan(lo) ? "?" : reach);
    format_or_dash("%.4g", pj_member_number(cell, "tokens_per_second"), speed, sizeof speed);
    format_or_dash("%.4g", pj_member_number(cell, "ttft_ms"), ttft, sizeof ttft);
    printf(" %8s  %8s  %8s", speed, ttft, isnan(mean) ? "-" : power);
    if (!isnan(loss)) printf("  %.4f", loss);
    const json_t *optimum = json_object_get(view, "optimum");
    if (pj_member_number(optimum, "cell") == pj_member_number(cell, "cell"))
        printf("  least energy");
    putchar('\n');
}

static const char *cell_name(const json_t *view, double index)
{
    return pj_member_text(json_array_get(json_object_get(view, "cells"), (size_t)index), "name");
}

static void print_against(const json_t *view, const char *list, const char *title, bool former,
                          int width)
{
    size_t i;
    json_t *c;
    char ratio[32];
    const json_t *all = json_object_get(view, list);
    if (!json_array_size(all)) return;
    printf("\n%s\n", title);
    json_array_foreach(all, i, c)
    {
        double lo = pj_member_number(c, "ratio_lo"), hi = pj_member_number(c, "ratio_hi");
        format_or_dash("%.4g", pj_member_number(c, "ratio"), ratio, sizeof ratio);
        printf("%-*s %8s  ", width, cell_name(view, pj_member_number(c, former ? "cell" : "b")),
               ratio);
        if (isnan(lo) || isnan(hi))
            puts("(too few runs for an interval)");
        else
            printf("(%.4g to %.4g)%s\n", lo, hi,
                   json_is_true(json_object_get(c, "different")) ? "  different" : "");
    }
}

/* "1.2 mJ (1.1 mJ to 1.3 mJ)" */
static void format_estimate(const json_t *estimate, char *text, size_t bytes)
{
    char value[32], lo[32], hi[32];
    double mean = pj_member_number(estimate, "joules_per_token");
    pj_format_energy(mean * 1e3, value, sizeof value);
    pj_format_energy(pj_member_number(estimate, "joules_per_token_lo") * 1e3, lo, sizeof lo);
    pj_format_energy(pj_member_number(estimate, "joules_per_token_hi") * 1e3, hi, sizeof hi);
    if (isnan(mean))
        snprintf(text, bytes, "unavailable");
    else
        snprintf(text, bytes, "%s (%s to %s)", value, lo, hi);
}

static void print_ablations(const json_t *view, int width)
{
    size_t i;
    json_t *a;
    char by_difference[112], by_attribution[112];
    const json_t *all = json_object_get(view, "ablations");
    if (!json_array_size(all)) return;
    printf("\n%swhat the missing part takes per token\n"
           "%-*s by the difference of runs           by attribution%s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell", pj_style_off(stdout));
    json_array_foreach(all, i, a)
    {
        format_estimate(json_object_get(a, "difference"), by_difference, sizeof by_difference);
        format_estimate(json_object_get(a, "attributed"), by_attribution, sizeof by_attribution);
        printf("%-*s %-35s %s\n%-*s %s\n", width, cell_name(view, pj_member_number(a, "cell")),
               by_difference, by_attribution, width, "", pj_member_text(a, "text"));
    }
}

/* Columns that only some models have: experts and the context of each cell. */
static void print_use(const json_t *view, int width)
{
    size_t i;
    json_t *cell;
    bool any = false;
    const json_t *cells = json_object_get(view, "cells");
    json_array_foreach(cells, i, cell) any |= !isnan(pj_member_number(cell, "context_share"));
    if (!any) return;
    printf("\n%s%-*s    KV MB   context  mJ / M active  experts per step%s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell", pj_style_off(stdout));
    json_array_foreach(cells, i, cell)
    {
        char kv[32], context[32], active[32], experts[32];
        format_or_dash("%.4g", pj_member_number(cell, "kv_megabytes"), kv, sizeof kv);
        format_or_dash("%.3g %%", 100 * pj_member_number(cell, "context_share"), context,
                       sizeof context);
        format_or_dash("%.4g", pj_member_number(cell, "energy_per_million_active_parameters_mj"),
                       active, sizeof active);
        format_or_dash("%.4g", pj_member_number(cell, "experts_per_step"), experts, sizeof experts);
        printf("%-*s %8s %9s  %13s  %16s\n", width, pj_member_text(cell, "name"), kv, context,
               active, experts);
    }
}

static void print_front(const json_t *view, const json_t *front)
{
    size_t i;
    json_t *index;
    bool loss = strcmp(pj_member_text(front, "over"), "loss") == 0;
    double knee = pj_member_number(front, "knee");
    printf("\n%s, on the Pareto front:", loss ? "Energy against loss" : "Energy against speed");
    json_array_foreach(json_object_get(front, "cells"), i, index)
        printf("%s %s", i ? ";" : "", cell_name(view, json_number_value(index)));
    if (!isnan(knee)) printf(". Its knee: %s", cell_name(view, knee));
    printf(".\n");
}

void pj_experiment_print(const json_t *view)
{
    size_t i;
    json_t *item;
    char title[160];
    int width = name_width(view);
    printf("%s%s%s: %s, %.0f of %.0f runs", pj_style_on(stdout, PJ_STYLE_BOLD),
           pj_member_text(view, "name"), pj_style_off(stdout), pj_member_text(view, "state"),
           pj_member_number(view, "done"), pj_member_number(view, "total"));
    const json_t *first = json_array_get(json_object_get(view, "cells"), 0);
    printf(", energy %s\n\n", *pj_member_text(first, "energy_source")
                                  ? pj_member_text(first, "energy_source")
                                  : "unknown");
    printf("%s%-*sruns  J per token, 95 %%    tokens/s   TTFT ms     power  loss%s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell", pj_style_off(stdout));
    json_array_foreach(json_object_get(view, "cells"), i, item) print_cell(view, item, width);
    print_use(view, width);
    snprintf(title, sizeof title, "energy per token, times that of %s", cell_name(view, 0));
    print_against(view, "comparisons", title, false, width);
    print_against(view, "against_former", "against the former round", true, width);
    print_ablations(view, width);
    json_array_foreach(json_object_get(view, "knees"), i, item)
        printf("\n%s\n", pj_member_text(item, "text"));
    json_array_foreach(json_object_get(view, "fronts"), i,
                       item) if (json_array_size(json_object_get(view, "cells")) > 1)
        print_front(view, item);
    if (*pj_member_text(view, "refusal"))
        printf("\nNo verdict, since cells are not comparable: %s\n",
               pj_member_text(view, "refusal"));
    const json_t *optimum = json_object_get(view, "optimum");
    if (json_is_object(optimum))
        printf("\n%sLeast energy per token: %s.%s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
               pj_member_text(optimum, "name"), pj_style_off(stdout));
    const json_t *ties = json_object_get(optimum, "ties");
    size_t count = json_array_size(ties);
    if (count) printf("Not distinguishable from it:");
    json_array_foreach(ties, i, item)
    {
        if (i == TIES_SHOWN) break;
        printf("%s %s", i ? ";" : "", cell_name(view, json_number_value(item)));
    }
    if (count > TIES_SHOWN) printf("; and %zu more", count - TIES_SHOWN);
    if (count) printf(". More blocks would tell.\n");
}
