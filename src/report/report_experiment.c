/* The report of an experiment. */
#include "report/report_parts.h"

#include "report/report_conditions.h"
#include "report/report_repeat.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 500 }; /* of a table: a document is to be read */

static void write_more(pj_document *d, size_t rows)
{
    if (rows > MOST_ROWS)
        pj_document_text(d, "And %zu more: perjoule experiment --result --json has all of them.",
                         rows - MOST_ROWS);
}

static void write_cells(pj_document *d, const json_t *view)
{
    pj_document_part parts[40];
    uint32_t n = 0;
    size_t i;
    const json_t *c;
    pj_document_heading(d, "Cells");
    pj_document_table(d, "cell|runs|J per token, 95 %|tokens/s|TTFT, ms|W|loss");
    json_array_foreach(json_object_get(view, "cells"), i, c)
    {
        double mean = pj_member_number(c, "joules_per_token"),
               hi = pj_member_number(c, "joules_per_token_hi");
        char value[96];
        if (i == MOST_ROWS) break;
        pj_report_figure(value, sizeof value, mean, hi - mean, "J");
        if (n < 40)
            parts[n++] = (pj_document_part){pj_member_text(c, "name"), mean,
                                            pj_member_number(c, "joules_per_token_lo"), hi};
        pj_document_row(d);
        pj_document_cell(d, "%s", pj_member_text(c, "name"));
        pj_document_cell(d, "%.0f", pj_member_number(c, "runs"));
        pj_document_cell(d, "%s", value);
        pj_report_number_cell(d, pj_member_number(c, "tokens_per_second"));
        pj_report_number_cell(d, pj_member_number(c, "ttft_ms"));
        pj_report_number_cell(d, pj_member_number(c, "mean_power_mw") / 1000);
        pj_document_cell(d, isnan(pj_member_number(c, "loss")) ? "–" : "%.4f",
                         pj_member_number(c, "loss"));
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
    write_more(d, json_array_size(json_object_get(view, "cells")));
    pj_document_bars(d, "Energy per output token of each cell, J, with 95 % intervals", parts, n,
                     "J", false);
}

static void estimate(const json_t *of, char *text, size_t bytes)
{
    double value = pj_member_number(of, "joules_per_token");
    if (isnan(value))
        snprintf(text, bytes, "unavailable");
    else
        pj_report_figure(text, bytes, value, pj_member_number(of, "joules_per_token_hi") - value,
                         "J");
}

static void write_ablations(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *a, *all = json_object_get(view, "ablations");
    if (!json_array_size(all)) return;
    pj_document_heading(d, "What the missing parts take");
    pj_document_text(d, "Per token, two independent measurements: the difference between runs with "
                        "and without the part, and what attribution assigns to it in whole runs.");
    pj_document_table(d, "cell|by difference|by attribution|verdict");
    json_array_foreach(all, i, a)
    {
        char difference[96], attributed[96];
        estimate(json_object_get(a, "difference"), difference, sizeof difference);
        estimate(json_object_get(a, "attributed"), attributed, sizeof attributed);
        pj_document_row(d);
        pj_document_cell(d, "%s",
                         pj_member_text(json_array_get(json_object_get(view, "cells"),
                                                       (size_t)pj_member_number(a, "cell")),
                                        "name"));
        pj_document_cell(d, "%s", difference);
        pj_document_cell(d, "%s", attributed);
        pj_document_cell(d, "%s", pj_member_text(a, "text"));
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

static const char *cell_name(const json_t *view, double index)
{
    return pj_member_text(json_array_get(json_object_get(view, "cells"), (size_t)index), "name");
}

static bool has_energy(const json_t *view)
{
    size_t i;
    const json_t *cell;
    json_array_foreach(json_object_get(view, "cells"), i, cell)
    {
        if (!isnan(pj_member_number(cell, "joules_per_token"))) return true;
    }
    return false;
}

/* The optimum, with the cells not distinguishable from it. */
static void name_optimum(const json_t *view, char *line, size_t bytes)
{
    enum { TIES_SHOWN = 8 };
    size_t i;
    const json_t *tie, *optimum = json_object_get(view, "optimum");
    const json_t *ties = json_object_get(optimum, "ties");
    size_t count = json_array_size(ties);
    const char *refusal = pj_member_text(view, "refusal");
    if (!json_is_object(optimum)) {
        if (*refusal)
            snprintf(line, bytes, "No verdict, since cells are not comparable: %s", refusal);
        else
            snprintf(line, bytes, "%s",
                     has_energy(view) ? "No cell keeps the latency limit."
                                      : "No energy was measured.");
        return;
    }
    char energy[96];
    const json_t *cell =
        json_array_get(json_object_get(view, "cells"), (size_t)pj_member_number(optimum, "cell"));
    estimate(cell, energy, sizeof energy);
    size_t n = (size_t)snprintf(line, bytes, "Least energy per token: %s, %s%s",
                                pj_member_text(optimum, "name"), energy,
                                count ? ". Not distinguishable from it: " : ".");
    json_array_foreach(ties, i, tie)
    {
        if (i == TIES_SHOWN || n >= bytes) break;
        n += (size_t)snprintf(line + n, bytes - n, "%s%s", i ? "; " : "",
                              cell_name(view, json_number_value(tie)));
    }
    if (count > TIES_SHOWN && n < bytes)
        n += (size_t)snprintf(line + n, bytes - n, "; and %zu more", count - TIES_SHOWN);
    if (count && n < bytes) snprintf(line + n, bytes - n, ".");
}

static void write_knees(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *knee;
    json_array_foreach(json_object_get(view, "knees"), i, knee)
        pj_document_text(d, "%s", pj_member_text(knee, "text"));
}

/* Energy per token along a front, with the knee named. */
static void write_front(pj_document *d, const json_t *view, const json_t *front)
{
    size_t i;
    const json_t *index, *cells = json_object_get(view, "cells");
    bool loss = strcmp(pj_member_text(front, "over"), "loss") == 0;
    double knee = pj_member_number(front, "knee");
    pj_document_heading(d, loss ? "Energy against loss" : "Energy against speed");
    pj_document_text(d, "The Pareto front: no cell needs less energy per token at %s. %s%s%s",
                     loss ? "no higher loss" : "no lower speed",
                     isnan(knee) ? "It has no knee." : "Its knee, the best trade: ",
                     isnan(knee) ? "" : cell_name(view, knee), isnan(knee) ? "" : ".");
    pj_document_table(d, loss ? "cell|loss|J per token" : "cell|tokens/s|J per token");
    json_array_foreach(json_object_get(front, "cells"), i, index)
    {
        char value[96];
        const json_t *c = json_array_get(cells, (size_t)json_number_value(index));
        estimate(c, value, sizeof value);
        pj_document_row(d);
        pj_document_cell(d, "%s", pj_member_text(c, "name"));
        if (loss)
            pj_document_cell(d, "%.4f", pj_member_number(c, "loss"));
        else
            pj_report_number_cell(d, pj_member_number(c, "tokens_per_second"));
        pj_document_cell(d, "%s", value);
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

static void write_fronts(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *front;
    if (json_array_size(json_object_get(view, "cells")) < 2) return;
    json_array_foreach(json_object_get(view, "fronts"), i, front) write_front(d, view, front);
}

/* A cell, its ratio with an interval, p and what follows. */
static void write_ratio_row(pj_document *d, const char *name, const json_t *c, const char *p_name)
{
    char ratio[64], lo[64], hi[64];
    double reach = (pj_member_number(c, "ratio_hi") - pj_member_number(c, "ratio_lo")) / 2;
    double p = pj_member_number(c, p_name);
    pj_report_rounded(ratio, sizeof ratio, pj_member_number(c, "ratio"), reach);
    pj_report_rounded(lo, sizeof lo, pj_member_number(c, "ratio_lo"), reach);
    pj_report_rounded(hi, sizeof hi, pj_member_number(c, "ratio_hi"), reach);
    pj_document_row(d);
    pj_document_cell(d, "%s", name);
    pj_document_cell(d, "%s", ratio);
    if (isnan(reach))
        pj_document_cell(d, "–");
    else
        pj_document_cell(d, "%s to %s", lo, hi);
    if (isnan(p))
        pj_document_cell(d, "–");
    else
        pj_document_cell(d, "%.2g", p);
    pj_document_cell(d, "%s",
                     isnan(p)                                        ? "not judged"
                     : json_is_true(json_object_get(c, "different")) ? "different"
                                                                     : "not distinguishable");
    pj_document_row_end(d);
}

static void write_cell_comparisons(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *c, *all = json_object_get(view, "comparisons");
    if (!json_array_size(all)) return;
    pj_document_heading(d, "Against the first cell");
    pj_document_text(d,
                     "Energy per token, times that of %s; p by Benjamini and Hochberg over all "
                     "cells.",
                     cell_name(view, 0));
    pj_document_table(d, "cell|ratio|95 %|adjusted p|verdict");
    json_array_foreach(all, i, c)
    {
        if (i == MOST_ROWS) break;
        write_ratio_row(d, cell_name(view, pj_member_number(c, "b")), c, "p_adjusted");
    }
    pj_document_table_end(d);
    write_more(d, json_array_size(all));
}

/* The same plan, run again. */
static void write_former(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *c, *all = json_object_get(view, "against_former");
    if (!json_array_size(all)) return;
    pj_document_heading(d, "Against the round before");
    pj_document_text(d, "Energy per token, times that of the same cell in the round before; cells "
                        "are called different by Bonferroni over all of them.");
    pj_document_table(d, "cell|ratio|95 %|p|verdict");
    json_array_foreach(all, i, c)
    {
        if (i == MOST_ROWS) break;
        write_ratio_row(d, cell_name(view, pj_member_number(c, "cell")), c, "p");
    }
    pj_document_table_end(d);
    write_more(d, json_array_size(all));
}

static double disturbed_runs(const json_t *view)
{
    size_t i;
    const json_t *c;
    double sum = 0;
    json_array_foreach(json_object_get(view, "cells"), i, c) sum +=
        pj_member_number(c, "disturbed_runs");
    return sum;
}

void pj_report_experiment(pj_document *d, pj_store *store, const json_t *view)
{
    char line[2048];
    const json_t *first = json_array_get(json_object_get(view, "cells"), 0);
    name_optimum(view, line, sizeof line);
    pj_document_verdict(d, line);
    pj_document_text(
        d, "The experiment is %s: %.0f of %.0f runs in randomised complete blocks; energy is %s.",
        pj_member_text(view, "state"), pj_member_number(view, "done"),
        pj_member_number(view, "total"),
        *pj_member_text(first, "energy_source") ? pj_member_text(first, "energy_source")
                                                : "unknown");
    if (disturbed_runs(view) > 0)
        pj_document_text(d,
                         "The machine was busy with something else during %.0f of these runs: "
                         "they are counted, and widen the intervals.",
                         disturbed_runs(view));
    write_cells(d, view);
    write_knees(d, view);
    write_fronts(d, view);
    write_cell_comparisons(d, view);
    write_former(d, view);
    write_ablations(d, view);
    pj_report_experiment_conditions(d, store, view);
    pj_report_method(
        d, "Cells are compared within blocks, by a paired t-test on the logarithms of energy per "
           "token, so that drift from block to block is no difference of cells; cells without two "
           "blocks in common by Welch's t-test.");
    pj_report_repeat_experiment(d, view);
}
