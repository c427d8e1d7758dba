/* The report of a comparison. */
#include "report/report_parts.h"

#include "report/report_conditions.h"
#include "report/report_repeat.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void write_differences(pj_document *d, const json_t *view)
{
    size_t i, k;
    const json_t *item, *value;
    pj_document_heading(d, "What differs");
    json_array_foreach(json_object_get(view, "differences"), i, item)
    {
        char line[512] = "";
        json_array_foreach(json_object_get(item, "values"), k, value)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s%c: %.80s", k ? ", " : "",
                     (int)('A' + k), json_is_string(value) ? json_string_value(value) : "unknown");
        pj_document_item(d, pj_member_text(item, "setting"), line);
    }
    json_array_foreach(json_object_get(view, "caveats"), i, item)
        pj_document_item(d, "Caveat", pj_member_text(item, "text"));
}

/* "total_energy_mj": "total energy" */
static void name_of_metric(const char *metric, char *name, size_t bytes)
{
    static const char *const units[] = {"_mj", "_ms", "_mw"};
    snprintf(name, bytes, "%s", metric);
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (length > 3 && strcmp(name + length - 3, units[i]) == 0) name[length - 3] = 0;
    for (char *c = name; *c; c++)
        if (*c == '_') *c = ' ';
}

/* Thousandths of a unit become the unit; returns the factor. */
static double in_basic_units(const char **unit)
{
    static const char *const units[][2] = {{"mJ", "J"}, {"mW", "W"}, {"ms", "s"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(*unit, units[i][0]) != 0) continue;
        *unit = units[i][1];
        return 1e-3;
    }
    return 1;
}

static double element(const json_t *object, const char *list, size_t index)
{
    const json_t *value = json_array_get(json_object_get(object, list), index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void write_metrics(pj_document *d, const json_t *view)
{
    size_t i, k, sides = json_array_size(json_object_get(view, "sides"));
    const json_t *m;
    pj_document_heading(d, "Figures");
    pj_document_table(d, sides == 2   ? "figure|A|B"
                         : sides == 3 ? "figure|A|B|C"
                                      : "figure|A|B|C|D");
    json_array_foreach(json_object_get(view, "metrics"), i, m)
    {
        char text[96];
        const char *unit = pj_member_text(m, "unit");
        double scale = in_basic_units(&unit);
        name_of_metric(pj_member_text(m, "metric"), text, sizeof text);
        pj_document_row(d);
        pj_document_cell(d, "%s", text);
        for (k = 0; k < sides; k++) {
            double value = element(m, "values", k) * scale, hi = element(m, "hi", k) * scale;
            pj_report_figure(text, sizeof text, value, hi - value, unit);
            pj_document_cell(d, "%s", text);
        }
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

static void write_ratios(pj_document *d, const json_t *view)
{
    pj_document_part parts[16];
    char names[16][64];
    uint32_t n = 0;
    size_t i;
    const json_t *t;
    json_array_foreach(json_object_get(view, "tests"), i, t)
    {
        if (n == 16 || pj_member_number(t, "a") != 0) continue;
        char metric[56];
        name_of_metric(pj_member_text(t, "metric"), metric, sizeof metric);
        snprintf(names[n], sizeof names[n], "%c: %s", (int)('A' + pj_member_number(t, "b")),
                 metric);
        parts[n] =
            (pj_document_part){names[n], pj_member_number(t, "ratio"),
                               pj_member_number(t, "ratio_lo"), pj_member_number(t, "ratio_hi")};
        n++;
    }
    pj_document_bars(d, "Ratios to A around 1, logarithmic, with 95 % intervals", parts, n,
                     "times A", true);
}

static void write_term(pj_document *d, const char *name, const double mj[3])
{
    pj_document_row(d);
    pj_document_cell(d, "%s", name);
    for (int i = 0; i < 3; i++) pj_document_cell(d, "%+.4g", mj[i]);
    pj_document_row_end(d);
}

/* The largest terms, and the sum of all others, so that the table adds up to the difference. */
static void write_terms(pj_document *d, const json_t *terms)
{
    enum { SHOWN = 13 };
    static const char *const members[] = {"difference_mj", "by_time_mj", "by_power_mj"};
    pj_document_part parts[SHOWN + 1];
    char names[SHOWN][80];
    double rest[3] = {0};
    uint32_t n = 0;
    size_t k;
    const json_t *t;
    pj_document_table(d, "part|mJ per token|by time|by power");
    json_array_foreach(terms, k, t)
    {
        double mj[3];
        for (int i = 0; i < 3; i++) mj[i] = pj_member_number(t, members[i]);
        if (n == SHOWN || !*pj_member_text(t, "component")) {
            for (int i = 0; i < 3; i++) rest[i] += mj[i];
            continue;
        }
        snprintf(names[n], sizeof names[n], "%s %s", pj_member_text(t, "phase"),
                 pj_member_text(t, "component"));
        parts[n] = (pj_document_part){names[n], mj[0], NAN, NAN};
        write_term(d, names[n++], mj);
    }
    parts[n] = (pj_document_part){"all others", rest[0], NAN, NAN};
    write_term(d, "all others", rest);
    pj_document_table_end(d);
    pj_document_bars(d, "Parts of the difference, mJ per token", parts, n + 1, "mJ", false);
}

static void write_decomposition(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(view, "decomposition"), i, c)
    {
        pj_document_heading(d, "Where the difference comes from");
        pj_document_text(d, "From A to %c: %.4g mJ per token.",
                         (int)('A' + pj_member_number(c, "b")),
                         pj_member_number(c, "difference_mj"));
        write_terms(d, json_object_get(c, "terms"));
    }
}

/* "A, 3 runs of demo in bf16: " */
static void name_side(const json_t *view, size_t i, const json_t *run, char *text, size_t bytes)
{
    const json_t *side = json_array_get(json_object_get(view, "sides"), i);
    double runs = pj_member_number(side, "runs"), left_out = pj_member_number(side, "left_out");
    size_t n = (size_t)snprintf(text, bytes, "%c, %.0f run%s of %.80s in %.20s", (int)('A' + i),
                                runs, runs == 1 ? "" : "s", pj_member_text(run, "model_name"),
                                pj_member_text(run, "dtype"));
    if (left_out > 0 && n < bytes)
        n += (size_t)snprintf(text + n, bytes - n, " (%.0f disturbed left out)", left_out);
    if (n < bytes) snprintf(text + n, bytes - n, ": ");
}

void pj_report_comparison(pj_document *d, const json_t *view)
{
    size_t i;
    const json_t *item;
    char of[192];
    json_array_foreach(json_object_get(view, "verdicts"), i,
                       item) if (*pj_member_text(item, "text"))
        pj_document_verdict(d, pj_member_text(item, "text"));
    json_array_foreach(json_object_get(view, "runs"), i, item)
    {
        name_side(view, i, item, of, sizeof of);
        pj_report_trust(d, item, of);
    }
    write_differences(d, view);
    write_metrics(d, view);
    write_ratios(d, view);
    write_decomposition(d, view);
    json_array_foreach(json_object_get(view, "runs"), i, item)
    {
        snprintf(of, sizeof of, "Conditions of %c", (int)('A' + i));
        pj_report_conditions(d, of, json_object_get(item, "conditions"));
    }
    pj_report_method(
        d, "Comparisons are of whole runs: ratios of geometric means, tested by Welch's t-test on "
           "logarithms, in small groups by permutation.");
    pj_document_heading(d, "How to repeat");
    json_array_foreach(json_object_get(view, "runs"), i, item) pj_report_repeat_run(d, item);
}
