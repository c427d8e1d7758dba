/* A report as Markdown, for mail and pull requests: verdict, trust, figures, how to repeat. */
#include "report/report_forms.h"

#include "base/estimate.h"
#include "base/utf8.h"
#include "report/report_repeat.h"
#include "trace/json_member.h"
#include "trace/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 500, PARTS = 12 }; /* of a table, to keep it readable */

/* Escapes text of a run: no HTML, no table syntax, whole characters. Images are not fetched: the
 * text of one stays text. */
__attribute__((format(printf, 2, 3))) static void markdown_put(pj_buffer *out, const char *format,
                                                               ...)
{
    char text[2048];
    uint32_t c;
    va_list list;
    va_start(list, format);
    int count = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    size_t bytes = count < (int)sizeof text ? (size_t)count : sizeof text - 1;
    for (size_t i = 0, n; i < bytes; i += n ? n : 1) {
        n = pj_utf8_next(text + i, bytes - i, &c);
        if (n && c == '<')
            pj_buffer_text(out, "&lt;");
        else if (n && c == '!' && i + 1 < bytes && text[i + 1] == '[')
            pj_buffer_text(out, "&#33;");
        else if (n && (c < ' ' || c == '|' || pj_utf8_is_control(c)))
            pj_buffer_char(out, c == '|' ? '/' : ' ');
        else
            pj_buffer_append(out, text + i, n);
    }
}

#define LINE(...)      (markdown_put(out, __VA_ARGS__), pj_buffer_char(out, '\n'))
#define PARAGRAPH(...) (pj_buffer_char(out, '\n'), LINE(__VA_ARGS__))

/* With the digits that the interval supports, "0.2431 ± 0.0021 J". Larger figures without one are
 * whole numbers. */
static void markdown_figure(char text[96], double value, pj_bounds bounds, const char *unit)
{
    bool large = fabs(value) >= 1000 && fabs(value) < 1e15;
    bool small = value != 0 && fabs(value) < 1e-3;
    size_t n = 0;
    if (isnan(value))
        unit = "", n = (size_t)snprintf(text, 96, "unavailable");
    else if (isnan(bounds.lo) && small)
        n = pj_digits_write(value, 3, text, 96);
    else if (isnan(bounds.lo))
        n = (size_t)snprintf(text, 96, large ? "%.0f" : "%.4g", value);
    else
        n = pj_estimate_write(value, bounds, text, 96);
    if (*unit) snprintf(text + n, 96 - n, " %s", unit);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* A column of a table whose rows are objects. */
typedef struct column {
    const char *head, *key; /* a number, or without a unit a text */
    const char *unit;
    double scale;
    /* its interval: the ends, the standard deviation, or that of a run's phases or, in proportion,
     * total; NULL: none */
    const char *lo, *hi, *sd, *phase;
    bool as_total;
    bool may_be_negative;
} column;

static void markdown_head(pj_buffer *out, const column *columns, size_t count)
{
    pj_buffer_char(out, '\n');
    for (size_t i = 0; i < count; i++) pj_buffer_printf(out, "| %s ", columns[i].head);
    pj_buffer_text(out, "|\n");
    for (size_t i = 0; i < count; i++) pj_buffer_text(out, i ? "|---:" : "|---");
    pj_buffer_text(out, "|\n");
}

static double sd_of_phases(const json_t *run, const char *name)
{
    size_t i;
    const json_t *phase;
    double sd = 0;
    json_array_foreach(json_object_get(run, "phases"), i, phase)
    {
        if (strcmp(pj_member_text(phase, "phase"), name) == 0)
            sd += pj_member_number(phase, "energy_sd_mj");
    }
    return sd;
}

static double markdown_sd(const json_t *row, const column *c, double value)
{
    if (c->as_total)
        return value * pj_member_number(row, "total_energy_sd_mj") /
               pj_member_number(row, "total_energy_mj");
    if (c->phase) return c->scale * sd_of_phases(row, c->phase);
    return c->sd ? c->scale * pj_member_number(row, c->sd) : NAN;
}

/* `gain_sd`, relative, is an error of all rows alike, which a line below them says once. */
static pj_bounds markdown_bounds(const json_t *row, const column *c, double value, double gain_sd)
{
    double half = PJ_Z95 * pj_sd_without_gain(value, markdown_sd(row, c, value), gain_sd);
    if (c->lo && c->hi)
        return (pj_bounds){pj_member_number(row, c->lo) * c->scale,
                           pj_member_number(row, c->hi) * c->scale};
    return c->may_be_negative ? (pj_bounds){value - half, value + half} : pj_bounds_of(value, half);
}

static void markdown_cell(pj_buffer *out, const json_t *row, const column *c, double gain_sd)
{
    char text[96];
    double value = pj_member_number(row, c->key) * c->scale;
    if (c->unit) markdown_figure(text, value, markdown_bounds(row, c, value, gain_sd), c->unit);
    markdown_put(out, "%s", c->unit ? text : pj_member_text(row, c->key));
}

static void markdown_row(pj_buffer *out, const json_t *row, const column *columns, size_t count,
                         double gain_sd)
{
    for (size_t i = 0; i < count; i++) {
        pj_buffer_text(out, "| ");
        markdown_cell(out, row, &columns[i], gain_sd);
        pj_buffer_char(out, ' ');
    }
    pj_buffer_text(out, "|\n");
}

static void markdown_table(pj_buffer *out, const char *title, const json_t *rows, size_t most,
                           const column *columns, size_t count, double gain_sd)
{
    size_t i, all = json_array_size(rows);
    const json_t *row;
    if (!all) return;
    pj_buffer_printf(out, "\n## %s\n", title);
    markdown_head(out, columns, count);
    json_array_foreach(rows, i, row)
    {
        if (i == most) break;
        markdown_row(out, row, columns, count, gain_sd);
    }
    if (all > most) PARAGRAPH("And %zu more, which are in the JSON.", all - most);
}

#define TABLE(title, rows, most, columns, gain_sd) \
    markdown_table(out, title, rows, most, columns, sizeof columns / sizeof *columns, gain_sd)

/* ---- a run ---------------------------------------------------------------------------------- */

/* Conditions of a device, means over the run. */
static void markdown_device(pj_buffer *out, const char *of, const char *name, const json_t *device)
{
    static const struct {
        const char *key, *unit;
        double scale;
    } all[] = {{"temperature_c", "°C", 1},
               {"clock_mhz", "MHz", 1},
               {"utilisation", "% busy", 100},
               {"throttled_share", "% throttled", 100}};
    bool any = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double value = pj_member_number(device, all[i].key) * all[i].scale;
        if (isnan(value)) continue;
        if (!any) markdown_put(out, "- %sConditions of %s", of, name);
        markdown_put(out, ", %.4g %s", value, all[i].unit);
        any = true;
    }
    if (any) pj_buffer_char(out, '\n');
}

/* What computed besides the host, and what measured it. */
static void markdown_computed_on(pj_buffer *out, const json_t *run, const char *of)
{
    const char *number;
    json_t *device;
    json_object_foreach(json_object_get(run, "devices"), number, device)
    {
        const char *rails = pj_member_text(device, "rails");
        if (strcmp(number, "0") == 0) continue;
        LINE("- %sComputed on %s, %s%s.", of, pj_member_text(device, "name"),
             *rails ? "measured by " : "which is not measured: ",
             *rails ? rails : pj_member_text(device, "rail_reason"));
    }
}

/* Where the energy comes from. */
static void markdown_trust(pj_buffer *out, const json_t *run, const char *of)
{
    size_t i;
    const json_t *rail;
    const char *name, *sources = pj_member_text(run, "power_sources");
    json_t *device;
    const char *machine = pj_member_text(run, "machine");
    LINE("- %sEnergy is %s (%s); attribution by %s; recorded %s%s%s%s.", of,
         pj_member_text(run, "energy_source"), *sources ? sources : "no sensor",
         pj_member_text(run, "method"), *machine ? "on " : "", machine, *machine ? ", " : "",
         pj_member_text(run, "created_at"));
    markdown_computed_on(out, run, of);
    json_array_foreach(json_object_get(run, "partial_rails"), i, rail)
        LINE("- The total lacks %s.", json_string_value(rail));
    double disturbed = pj_member_number(json_object_get(run, "disturbance"), "request_energy_mj");
    if (pj_member_number(run, "disturbed_share") > 0.001)
        LINE("- %sDisturbances took %.4g mJ, %.1f %% of the request's energy.", of, disturbed,
             100 * pj_member_number(run, "disturbed_share"));
    json_object_foreach(json_object_get(run, "conditions"), name, device)
        markdown_device(out, of, name, device);
}

static void markdown_figures(pj_buffer *out, const json_t *run, double gain_sd)
{
    static const column rows[] = {
        {"total energy", "total_energy_mj", "J", 1e-3, .sd = "total_energy_sd_mj"},
        {"request", "request_energy_mj", "J", 1e-3, .sd = "request_energy_sd_mj"},
        {"net of idle", "net_energy_mj", "J", 1e-3, .sd = "net_energy_sd_mj",
         .may_be_negative = true},
        {"prefill", "prefill_energy_mj", "J", 1e-3, .phase = "prefill"},
        {"decode", "decode_energy_mj", "J", 1e-3, .phase = "decode"},
        {"typical token", "joules_per_token_typical", "J", 1, .sd = "joules_per_token_typical_sd"},
        {"per output token, mean", "joules_per_token", "J", 1, .sd = "joules_per_token_sd"},
        {"speed", "tokens_per_second", "tokens/s", 1},
        {"mean power", "mean_power_mw", "W", 1e-3, .as_total = true},
        {"duration", "total_duration_ms", "s", 1e-3},
        {"cost", "cost_usd", "µUSD", 1e6, .as_total = true},
        {"CO2", "co2_grams", "mg", 1e3, .as_total = true}};
    static const column heads[] = {{"figure"}, {"value, 95 %"}};
    pj_buffer_text(out, "\n## Figures\n");
    markdown_head(out, heads, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pj_buffer_printf(out, "| %s ", rows[i].head);
        markdown_row(out, run, &rows[i], 1, gain_sd);
    }
    if (gain_sd > 0)
        PARAGRAPH("Intervals leave out the sensor's calibration, which all rows share: ±%.2g %%.",
                  100 * PJ_Z95 * gain_sd);
}

/* A recommendation with its saving, what it costs and the command that tests it. */
static void markdown_finding(pj_buffer *out, const json_t *finding)
{
    const json_t *saving = json_object_get(finding, "saving");
    const json_t *cost = json_object_get(finding, "cost");
    LINE("- **%s.** %s", pj_member_text(finding, "title"), pj_member_text(finding, "text"));
    if (json_is_object(saving))
        LINE("  - Saves %.0f %% (%.0f to %.0f %%) of the %s, %s.",
             100 * pj_member_number(saving, "share"), 100 * pj_member_number(saving, "share_lo"),
             100 * pj_member_number(saving, "share_hi"), pj_member_text(saving, "of"),
             pj_member_text(saving, "basis"));
    LINE("  - Costs in quality: %s; in latency: %s; in memory: %s.",
         pj_member_text(cost, "quality"), pj_member_text(cost, "latency"),
         pj_member_text(cost, "memory"));
    if (*pj_member_text(finding, "test")) LINE("  - Test: `%s`", pj_member_text(finding, "test"));
}

/* The typical token, or for runs without one the mean. */
static void markdown_per_token(pj_buffer *out, const json_t *run)
{
    char text[96];
    double mean = pj_member_number(run, "joules_per_token");
    double typical = pj_member_number(run, "joules_per_token_typical");
    double half = PJ_Z95 * pj_member_number(run, "joules_per_token_sd");
    if (isnan(typical))
        markdown_figure(text, mean, pj_bounds_of(mean, half), "J");
    else
        markdown_figure(text, typical,
                        (pj_bounds){pj_member_number(run, "joules_per_token_typical_lo"),
                                    pj_member_number(run, "joules_per_token_typical_hi")},
                        "J");
    PARAGRAPH("**Energy per %stoken of %s in %s: %s.**", isnan(typical) ? "" : "typical ",
              pj_member_text(run, "model_name"), pj_member_text(run, "dtype"), text);
}

static void markdown_run(pj_buffer *out, const json_t *run, const json_t *advice)
{
    static const column parts[] = {{"component", "component_name"},
                                   {"energy, 95 %", "energy_mj", "mJ", 1, .sd = "energy_sd_mj"},
                                   {"time", "time_ms", "ms", 1}};
    size_t i;
    const json_t *finding;
    double gain_sd =
        pj_member_number(run, "total_energy_sd_gain_mj") / pj_member_number(run, "total_energy_mj");
    if (!isfinite(gain_sd)) gain_sd = 0;
    markdown_per_token(out, run);
    pj_buffer_char(out, '\n');
    markdown_trust(out, run, "");
    markdown_figures(out, run, gain_sd);
    TABLE("Components", json_object_get(run, "components"), PARTS, parts, gain_sd);
    json_array_foreach(json_object_get(advice, "findings"), i, finding)
    {
        if (!i) pj_buffer_text(out, "\n## What to change\n\n");
        markdown_finding(out, finding);
    }
}

/* ---- a comparison --------------------------------------------------------------------------- */

static void markdown_differences(pj_buffer *out, const json_t *view)
{
    size_t i, k;
    const json_t *item, *value;
    pj_buffer_text(out, "\n## What differs\n\n");
    json_array_foreach(json_object_get(view, "differences"), i, item)
    {
        markdown_put(out, "- %s", pj_member_text(item, "setting"));
        json_array_foreach(json_object_get(item, "values"), k, value)
            markdown_put(out, "%s%c: %.80s", k ? ", " : ". ", (int)('A' + k),
                         json_is_string(value) ? json_string_value(value) : "unknown");
        pj_buffer_char(out, '\n');
    }
    json_array_foreach(json_object_get(view, "caveats"), i, item)
        LINE("- Caveat. %s", pj_member_text(item, "text"));
}

static double markdown_of_side(const json_t *metric, const char *list, size_t side)
{
    const json_t *value = json_array_get(json_object_get(metric, list), side);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void markdown_metrics(pj_buffer *out, const json_t *view)
{
    static const column heads[] = {{"figure"}, {"A"}, {"B"}, {"C"}, {"D"}};
    size_t i, k, sides = json_array_size(json_object_get(view, "sides"));
    const json_t *m;
    pj_buffer_text(out, "\n## Figures\n");
    markdown_head(out, heads, 1 + sides);
    json_array_foreach(json_object_get(view, "metrics"), i, m)
    {
        pj_buffer_printf(out, "| %s ", pj_member_text(m, "metric"));
        for (k = 0; k < sides; k++) {
            char text[96];
            double value = markdown_of_side(m, "values", k);
            markdown_figure(text, value,
                            (pj_bounds){markdown_of_side(m, "lo", k), markdown_of_side(m, "hi", k)},
                            pj_member_text(m, "unit"));
            pj_buffer_printf(out, "| %s ", text);
        }
        pj_buffer_text(out, "|\n");
    }
}

/* What explains the difference of two runs. */
static void markdown_why(pj_buffer *out, const json_t *why)
{
    size_t i;
    const json_t *f;
    bool per_run = strcmp(pj_member_text(why, "unit"), "mJ/run") == 0;
    json_array_foreach(json_object_get(why, "findings"), i, f)
    {
        const char *part = pj_member_text(f, "part");
        if (!i) pj_buffer_text(out, "\n## Why\n\n");
        const char *phase = pj_member_text(f, "phase");
        if (per_run && strcmp(phase, "pre_inference") == 0) phase = ""; /* a trace has no phases */
        LINE("- **%+.4g (%.4g to %.4g) mJ per %s (%+.1f %%), %s%s%s.** %s.",
             pj_member_number(f, "mj"), pj_member_number(f, "mj_lo"), pj_member_number(f, "mj_hi"),
             per_run ? "run" : "token", 100 * pj_member_number(f, "share"), phase,
             *phase ? " " : "", *part ? part : "all parts", pj_member_text(f, "text"));
    }
}

static void markdown_comparison(pj_buffer *out, const json_t *view, const json_t *why)
{
    static const column terms[] = {{"phase", "phase"},
                                   {"part", "component"},
                                   {"mJ per token", "difference_mj", "", 1},
                                   {"by time", "by_time_mj", "", 1},
                                   {"by power", "by_power_mj", "", 1}};
    size_t i;
    const json_t *item;
    char of[64];
    json_array_foreach(json_object_get(view, "conclusions"), i, item)
    {
        const char *text = pj_member_text(item, "text");
        if (*text) PARAGRAPH("**%s**", text);
    }
    pj_buffer_char(out, '\n');
    json_array_foreach(json_object_get(view, "runs"), i, item)
    {
        snprintf(of, sizeof of, "%c: ", (int)('A' + i));
        markdown_trust(out, item, of);
    }
    markdown_why(out, why);
    markdown_differences(out, view);
    markdown_metrics(out, view);
    json_array_foreach(json_object_get(view, "decomposition"), i, item)
    {
        snprintf(of, sizeof of, "From A to %c: %.4g mJ per token",
                 (int)('A' + pj_member_number(item, "b")), pj_member_number(item, "difference_mj"));
        TABLE(of, json_object_get(item, "terms"), MOST_ROWS, terms, 0);
    }
}

/* ---- an experiment -------------------------------------------------------------------------- */

static const char *markdown_name(const json_t *view, const json_t *index)
{
    double i = json_is_number(index) ? json_number_value(index) : 0;
    return pj_member_text(json_array_get(json_object_get(view, "cells"), (size_t)i), "name");
}

/* Names of the cells of a list, as one paragraph. */
static void markdown_names(pj_buffer *out, const json_t *view, const json_t *cells,
                           const char *what)
{
    size_t i;
    const json_t *cell;
    json_array_foreach(cells, i, cell)
    {
        if (!i) pj_buffer_printf(out, "\n%s: ", what);
        markdown_put(out, "%s%s", i ? "; " : "", markdown_name(view, cell));
    }
    if (json_array_size(cells)) pj_buffer_text(out, ".\n");
}

/* Ratios of cells. `of`: the member that is a cell's index, replaced by its name. */
static void markdown_ratios(pj_buffer *out, const json_t *view, const char *list, const char *of,
                            const char *title)
{
    const column columns[] = {{"cell", "name"},
                              {"ratio", "ratio", "", 1},
                              {"95 % from", "ratio_lo", "", 1},
                              {"to", "ratio_hi", "", 1},
                              {"p", strcmp(of, "b") ? "p" : "p_adjusted", "", 1},
                              {"verdict", "verdict"}};
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(view, list), i, c)
    {
        const char *verdict = isnan(pj_member_number(c, columns[4].key)) ? "not judged"
                              : json_is_true(json_object_get(c, "different"))
                                  ? "different"
                                  : "not distinguishable";
        json_object_set_new(c, "name", json_string(markdown_name(view, json_object_get(c, of))));
        json_object_set_new(c, "verdict", json_string(verdict));
    }
    TABLE(title, json_object_get(view, list), MOST_ROWS, columns, 0);
}

static void markdown_optimum(pj_buffer *out, const json_t *view)
{
    const json_t *optimum = json_object_get(view, "optimum");
    const char *metric = pj_member_text(view, "metric"); /* which figure decided */
    if (*pj_member_text(view, "refusal"))
        PARAGRAPH("**No verdict, since cells are not comparable: %s**",
                  pj_member_text(view, "refusal"));
    else if (!json_is_object(optimum))
        PARAGRAPH("**No cell has an energy within the limits of the plan.**");
    else
        PARAGRAPH("**Least energy per %stoken: %s, %.3g J.**",
                  strcmp(metric, "joules_per_token_typical") == 0 ? "typical " : "",
                  pj_member_text(optimum, "name"), pj_member_number(optimum, metric));
    markdown_names(out, view, json_object_get(optimum, "ties"), "Not distinguishable from it");
}

static const char *front_title(const char *over)
{
    return strcmp(over, "loss") == 0    ? "On the Pareto front of energy against loss"
           : strcmp(over, "score") == 0 ? "On the Pareto front of energy against answers"
                                        : "On the Pareto front of energy against speed";
}

static void markdown_experiment(pj_buffer *out, const json_t *view)
{
    static const column cells[] = {
        {"cell", "name"},
        {"runs", "runs", "", 1},
        {"typical token, 95 %", "joules_per_token_typical", "J", 1,
         .lo = "joules_per_token_typical_lo", .hi = "joules_per_token_typical_hi"},
        {"mean, 95 %", "joules_per_token", "J", 1, .lo = "joules_per_token_lo",
         .hi = "joules_per_token_hi"},
        {"tokens/s", "tokens_per_second", "", 1},
        {"TTFT", "ttft_ms", "ms", 1},
        {"power", "mean_power_mw", "W", 1e-3},
        {"loss", "loss", "", 1},
        {"tasks solved, 95 %", "score", "%", 100, .lo = "score_lo", .hi = "score_hi"},
        {"energy", "energy_source"}};
    size_t i;
    const json_t *item;
    markdown_optimum(out, view);
    PARAGRAPH("The experiment is %s: %.0f of %.0f runs in randomised complete blocks.",
              pj_member_text(view, "state"), pj_member_number(view, "done"),
              pj_member_number(view, "total"));
    TABLE("Cells", json_object_get(view, "cells"), MOST_ROWS, cells, 0);
    json_array_foreach(json_object_get(view, "knees"), i, item)
        PARAGRAPH("%s", pj_member_text(item, "text"));
    json_array_foreach(json_object_get(view, "fronts"), i, item) markdown_names(
        out, view, json_object_get(item, "cells"), front_title(pj_member_text(item, "over")));
    if (*pj_member_text(json_object_get(view, "answers"), "text"))
        PARAGRAPH("%s", pj_member_text(json_object_get(view, "answers"), "text"));
    markdown_ratios(out, view, "comparisons", "b", "Against the first cell");
    markdown_ratios(out, view, "against_former", "cell", "Against the previous round");
    json_array_foreach(json_object_get(view, "ablations"), i, item) PARAGRAPH(
        "%s: %s", markdown_name(view, json_object_get(item, "cell")), pj_member_text(item, "text"));
}

/* ---- the document --------------------------------------------------------------------------- */

static void markdown_repeat(pj_buffer *out, const json_t *view)
{
    pj_buffer lines;
    pj_buffer_init(&lines, PJ_REPORT_MAX_BYTES);
    pj_report_repeat(view, &lines);
    pj_buffer_text(out, "\n## How to repeat\n\n");
    for (const char *at = pj_buffer_get(&lines); *at;) {
        size_t length = strcspn(at, "\n");
        pj_buffer_text(out, "    ");
        pj_buffer_append(out, at, length);
        pj_buffer_char(out, '\n');
        at += length + (at[length] == '\n');
    }
    pj_buffer_fini(&lines);
}

void pj_report_markdown(const pj_report_subject *s, pj_buffer *out)
{
    if (s->experiment)
        LINE("# Experiment %.200s", s->experiment);
    else if (s->count > 1)
        LINE("# Comparison of %u runs", s->count);
    else
        LINE("# Energy of %.100s, run %s", pj_member_text(s->view, "model_name"), s->ids[0]);
    if (s->without) PARAGRAPH(PJ_REPORT_WITHOUT);
    if (s->experiment)
        markdown_experiment(out, s->view);
    else if (s->count > 1)
        markdown_comparison(out, s->view, s->why);
    else
        markdown_run(out, s->view, s->advice);
    markdown_repeat(out, s->view);
}
