/* A report as Markdown, for mail and pull requests: verdict, trust, figures, what differs, how to
 * repeat. */
#include "report/report_forms.h"

#include "base/decimal.h"
#include "base/utf8.h"
#include "report/report_repeat.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 500, TERMS = 13, PARTS = 12 }; /* of a table: a document is to be read */

/* ---- text ----------------------------------------------------------------------------------- */

/* Text of a run may hold anything: it is neither HTML nor a table's syntax, and whole characters.
 */
static void markdown_escape(pj_buffer *out, const char *text)
{
    uint32_t c;
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        n = pj_utf8_next(text, left, &c);
        if (!n)
            n = 1;
        else if (c < ' ' || c == '|')
            pj_buffer_char(out, c == '|' ? '/' : ' ');
        else if (c == '<')
            pj_buffer_text(out, "&lt;");
        else
            pj_buffer_append(out, text, n);
    }
}

__attribute__((format(printf, 2, 3))) static void markdown_put(pj_buffer *out, const char *format,
                                                               ...)
{
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    markdown_escape(out, text);
}

#define TEXT(...)                       \
    do {                                \
        pj_buffer_char(out, '\n');      \
        markdown_put(out, __VA_ARGS__); \
        pj_buffer_char(out, '\n');      \
    } while (0)
#define CELL(...)                       \
    do {                                \
        markdown_put(out, __VA_ARGS__); \
        pj_buffer_text(out, " | ");     \
    } while (0)

static void markdown_heading(pj_buffer *out, const char *text)
{
    pj_buffer_printf(out, "\n## %s\n", text);
}

/* `heads`: "cell | runs | J" */
static void markdown_table(pj_buffer *out, const char *heads)
{
    pj_buffer_printf(out, "\n| %s |\n|---|", heads);
    for (const char *c = heads; *c; c++)
        if (*c == '|') pj_buffer_text(out, "---:|");
    pj_buffer_char(out, '\n');
}

static void markdown_code(pj_buffer *out, const char *lines)
{
    markdown_heading(out, "How to repeat");
    for (pj_buffer_char(out, '\n'); *lines;) {
        size_t length = strcspn(lines, "\n");
        pj_buffer_printf(out, "    %.*s\n", (int)length, lines);
        lines += length + (lines[length] == '\n');
    }
}

/* ---- figures -------------------------------------------------------------------------------- */

typedef struct figure {
    char text[96];
} figure;

/* With as many digits as the interval deserves: down to the second digit of `reach`. */
static figure markdown_digits(double value, double reach)
{
    figure f;
    if (isnan(value))
        snprintf(f.text, sizeof f.text, "–");
    else if (reach >= 1e-5 && reach < 100)
        snprintf(f.text, sizeof f.text, "%.*f", pj_decimals_for(reach), value);
    else
        snprintf(f.text, sizeof f.text, fabs(value) >= 1000 && fabs(value) < 1e15 ? "%.0f" : "%.4g",
                 value);
    return f;
}

/* "0.2431 ± 0.0021 J", "unavailable" */
static figure markdown_figure(double value, double reach, const char *unit)
{
    figure f = markdown_digits(value, reach);
    size_t n = strlen(f.text);
    if (isnan(value))
        snprintf(f.text, sizeof f.text, "unavailable");
    else if (isnan(reach))
        snprintf(f.text + n, sizeof f.text - n, " %s", unit);
    else
        snprintf(f.text + n, sizeof f.text - n, reach < 100 ? " ± %.2g %s" : " ± %.0f %s", reach,
                 unit);
    return f;
}

static figure markdown_joules(const json_t *of)
{
    double value = pj_member_number(of, "joules_per_token");
    return markdown_figure(value, pj_member_number(of, "joules_per_token_hi") - value, "J");
}

/* Where the energy comes from. */
static void markdown_trust(pj_buffer *out, const json_t *run, const char *of)
{
    size_t i;
    const json_t *rail;
    const char *sources = pj_member_text(run, "power_sources");
    char partial[128] = "";
    json_array_foreach(json_object_get(run, "partial_rails"), i, rail)
        snprintf(partial + strlen(partial), sizeof partial - strlen(partial), "%s%s",
                 i ? ", " : "; the total lacks ", json_string_value(rail));
    TEXT("%sEnergy is %s (%s)%s; attribution by %s%s; recorded on %s, %s.", of,
         pj_member_text(run, "energy_source"), *sources ? sources : "no sensor", partial,
         pj_member_text(run, "method"),
         pj_member_number(run, "disturbed_share") > 0.1
             ? "; more than a tenth of the energy is in disturbed tokens"
             : "",
         pj_member_text(run, "machine"), pj_member_text(run, "created_at"));
}

static void markdown_conditions(pj_buffer *out, const json_t *run, const char *title)
{
    static const char *const keys[] = {"temperature_c", "clock_mhz", "utilisation",
                                       "throttled_share"};
    const char *name;
    json_t *device, *conditions = json_object_get(run, "conditions");
    if (!json_object_size(conditions)) return;
    markdown_heading(out, title);
    markdown_table(out, "device | °C | MHz | busy, % | throttled, %");
    json_object_foreach(conditions, name, device)
    {
        pj_buffer_text(out, "| ");
        CELL("%s", name);
        for (int i = 0; i < 4; i++)
            CELL("%s",
                 markdown_digits(pj_member_number(device, keys[i]) * (i < 2 ? 1 : 100), NAN).text);
        pj_buffer_char(out, '\n');
    }
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void markdown_verdict(pj_buffer *out, const json_t *run)
{
    double joules = pj_member_number(run, "joules_per_token");
    double speed = pj_member_number(run, "tokens_per_second");
    pj_buffer_text(out, "\n**");
    if (isnan(joules))
        markdown_put(out, "Energy is unavailable");
    else
        markdown_put(
            out, "A token of %s in %s takes %s", pj_member_text(run, "model_name"),
            pj_member_text(run, "dtype"),
            markdown_figure(joules, 1.96 * pj_member_number(run, "joules_per_token_sd"), "J").text);
    if (!isnan(speed)) markdown_put(out, " at %s tokens/s", markdown_digits(speed, NAN).text);
    pj_buffer_text(out, ".**\n");
}

static void markdown_findings(pj_buffer *out, const json_t *advice)
{
    size_t i;
    const json_t *f;
    json_array_foreach(json_object_get(advice, "findings"), i, f)
    {
        if (!i) markdown_heading(out, "Findings");
        TEXT("- %s. %s", pj_member_text(f, "title"), pj_member_text(f, "text"));
    }
}

static void markdown_figures(pj_buffer *out, const json_t *run)
{
    static const struct {
        const char *name, *key, *sd, *unit;
        double scale;
    } rows[] = {{"total energy", "total_energy_mj", "total_energy_sd_mj", "J", 1e-3},
                {"request", "request_energy_mj", "request_energy_sd_mj", "J", 1e-3},
                {"net of idle", "net_energy_mj", "net_energy_sd_mj", "J", 1e-3},
                {"prefill", "prefill_energy_mj", "", "J", 1e-3},
                {"decode", "decode_energy_mj", "", "J", 1e-3},
                {"per output token", "joules_per_token", "joules_per_token_sd", "J", 1},
                {"typical token", "joules_per_token_typical", "", "J", 1},
                {"speed", "tokens_per_second", "", "tokens/s", 1},
                {"mean power", "mean_power_mw", "", "W", 1e-3},
                {"duration", "total_duration_ms", "", "s", 1e-3},
                {"cost", "cost_usd", "", "USD", 1},
                {"CO2", "co2_grams", "", "g", 1}};
    markdown_heading(out, "Figures");
    markdown_table(out, "figure | value, 95 %");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pj_buffer_printf(out, "| %s | %s |\n", rows[i].name,
                         markdown_figure(pj_member_number(run, rows[i].key) * rows[i].scale,
                                         1.96 * pj_member_number(run, rows[i].sd) * rows[i].scale,
                                         rows[i].unit)
                             .text);
}

static void markdown_components(pj_buffer *out, const json_t *run)
{
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(run, "components"), i, c)
    {
        double mj = pj_member_number(c, "energy_mj"), sd = pj_member_number(c, "energy_sd_mj");
        if (i == PARTS || isnan(mj)) break;
        if (!i) markdown_heading(out, "Components");
        if (!i) markdown_table(out, "component | energy, 95 %");
        pj_buffer_text(out, "| ");
        CELL("%s", pj_member_text(c, "component_name"));
        CELL("%s", markdown_figure(mj / 1000, 1.96 * sd / 1000, "J").text);
        pj_buffer_char(out, '\n');
    }
}

/* ---- a comparison --------------------------------------------------------------------------- */

static void markdown_differences(pj_buffer *out, const json_t *view)
{
    size_t i, k;
    const json_t *item, *value;
    markdown_heading(out, "What differs");
    json_array_foreach(json_object_get(view, "differences"), i, item)
    {
        markdown_put(out, "\n- %s", pj_member_text(item, "setting"));
        json_array_foreach(json_object_get(item, "values"), k, value)
            markdown_put(out, "%s%c: %.80s", k ? ", " : ". ", (int)('A' + k),
                         json_is_string(value) ? json_string_value(value) : "unknown");
    }
    json_array_foreach(json_object_get(view, "caveats"), i, item)
        markdown_put(out, "\n- Caveat. %s", pj_member_text(item, "text"));
    pj_buffer_char(out, '\n');
}

static double markdown_element(const json_t *object, const char *list, size_t index)
{
    const json_t *value = json_array_get(json_object_get(object, list), index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void markdown_metrics(pj_buffer *out, const json_t *view)
{
    size_t i, k, sides = json_array_size(json_object_get(view, "sides"));
    const json_t *m;
    markdown_heading(out, "Figures");
    markdown_table(out, sides == 2   ? "figure | A | B"
                        : sides == 3 ? "figure | A | B | C"
                                     : "figure | A | B | C | D");
    json_array_foreach(json_object_get(view, "metrics"), i, m)
    {
        pj_buffer_text(out, "| ");
        CELL("%s", pj_member_text(m, "metric"));
        for (k = 0; k < sides; k++) {
            double value = markdown_element(m, "values", k);
            CELL("%s", markdown_figure(value, markdown_element(m, "hi", k) - value,
                                       pj_member_text(m, "unit"))
                           .text);
        }
        pj_buffer_char(out, '\n');
    }
}

/* The largest terms, and the sum of all others, so that the table adds up to the difference. */
static void markdown_terms(pj_buffer *out, const json_t *terms)
{
    static const char *const members[] = {"difference_mj", "by_time_mj", "by_power_mj"};
    double rest[3] = {0};
    size_t k, shown = 0;
    const json_t *t;
    markdown_table(out, "part | mJ per token | by time | by power");
    json_array_foreach(terms, k, t)
    {
        bool named = shown < TERMS && *pj_member_text(t, "component");
        if (named) pj_buffer_text(out, "| ");
        if (named) CELL("%s %s", pj_member_text(t, "phase"), pj_member_text(t, "component"));
        for (int i = 0; i < 3; i++) {
            if (named)
                CELL("%+.4g", pj_member_number(t, members[i]));
            else
                rest[i] += pj_member_number(t, members[i]);
        }
        if (named) pj_buffer_char(out, '\n');
        shown += named;
    }
    pj_buffer_printf(out, "| all others | %+.4g | %+.4g | %+.4g |\n", rest[0], rest[1], rest[2]);
}

static void markdown_comparison(pj_buffer *out, const json_t *view)
{
    size_t i;
    const json_t *item, *runs = json_object_get(view, "runs");
    char of[32];
    json_array_foreach(json_object_get(view, "verdicts"), i,
                       item) if (*pj_member_text(item, "text"))
        TEXT("%s", pj_member_text(item, "text"));
    json_array_foreach(runs, i, item)
    {
        snprintf(of, sizeof of, "%c: ", (int)('A' + i));
        markdown_trust(out, item, of);
    }
    markdown_differences(out, view);
    markdown_metrics(out, view);
    json_array_foreach(json_object_get(view, "decomposition"), i, item)
    {
        markdown_heading(out, "Where the difference comes from");
        TEXT("From A to %c: %.4g mJ per token.", (int)('A' + pj_member_number(item, "b")),
             pj_member_number(item, "difference_mj"));
        markdown_terms(out, json_object_get(item, "terms"));
    }
    json_array_foreach(runs, i, item)
    {
        snprintf(of, sizeof of, "Conditions of %c", (int)('A' + i));
        markdown_conditions(out, item, of);
    }
}

/* ---- an experiment -------------------------------------------------------------------------- */

static const json_t *markdown_cell(const json_t *view, double index)
{
    return json_array_get(json_object_get(view, "cells"), (size_t)index);
}

static void markdown_cells(pj_buffer *out, const json_t *view)
{
    size_t i, rows = json_array_size(json_object_get(view, "cells"));
    const json_t *c;
    markdown_heading(out, "Cells");
    markdown_table(out, "cell | runs | J per token, 95 % | tokens/s | TTFT, ms | W | loss");
    json_array_foreach(json_object_get(view, "cells"), i, c)
    {
        if (i == MOST_ROWS) break;
        pj_buffer_text(out, "| ");
        CELL("%s", pj_member_text(c, "name"));
        CELL("%.0f", pj_member_number(c, "runs"));
        CELL("%s", markdown_joules(c).text);
        CELL("%s", markdown_digits(pj_member_number(c, "tokens_per_second"), NAN).text);
        CELL("%s", markdown_digits(pj_member_number(c, "ttft_ms"), NAN).text);
        CELL("%s", markdown_digits(pj_member_number(c, "mean_power_mw") / 1000, NAN).text);
        CELL("%s", markdown_digits(pj_member_number(c, "loss"), NAN).text);
        pj_buffer_char(out, '\n');
    }
    if (rows > MOST_ROWS)
        TEXT("And %zu more: perjoule experiment --result --json has all of them.",
             rows - MOST_ROWS);
}

/* Cells against others, by ratios with an interval. `cell`, `p`: the members that name them. */
static void markdown_ratios(pj_buffer *out, const json_t *view, const char *list, const char *title,
                            const char *cell, const char *p)
{
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(view, list), i, c)
    {
        double lo = pj_member_number(c, "ratio_lo"), hi = pj_member_number(c, "ratio_hi");
        double reach = (hi - lo) / 2;
        if (!i) markdown_heading(out, title);
        if (!i) markdown_table(out, "cell | ratio | 95 % | p | verdict");
        if (i == MOST_ROWS) break;
        pj_buffer_text(out, "| ");
        CELL("%s", pj_member_text(markdown_cell(view, pj_member_number(c, cell)), "name"));
        CELL("%s", markdown_digits(pj_member_number(c, "ratio"), reach).text);
        CELL("%s to %s", markdown_digits(lo, reach).text, markdown_digits(hi, reach).text);
        CELL("%s", markdown_digits(pj_member_number(c, p), NAN).text);
        CELL("%s", isnan(pj_member_number(c, p))                   ? "not judged"
                   : json_is_true(json_object_get(c, "different")) ? "different"
                                                                   : "not distinguishable");
        pj_buffer_char(out, '\n');
    }
}

static void markdown_optimum(pj_buffer *out, const json_t *view)
{
    size_t i;
    const json_t *tie, *optimum = json_object_get(view, "optimum");
    const json_t *cell = markdown_cell(view, pj_member_number(optimum, "cell"));
    const char *refusal = pj_member_text(view, "refusal");
    if (*refusal)
        TEXT("**No verdict, since cells are not comparable: %s**", refusal);
    else if (!json_is_object(optimum))
        TEXT("**No cell is the best: none has an energy within the limits of the plan.**");
    else
        TEXT("**Least energy per token: %s, %s.**", pj_member_text(optimum, "name"),
             markdown_joules(cell).text);
    json_array_foreach(json_object_get(optimum, "ties"), i, tie)
        markdown_put(out, "%s%s", i ? "; " : "\nNot distinguishable from it: ",
                     pj_member_text(markdown_cell(view, json_number_value(tie)), "name"));
    pj_buffer_text(out, json_array_size(json_object_get(optimum, "ties")) ? ".\n" : "");
}

static void markdown_ablations(pj_buffer *out, const json_t *view)
{
    size_t i;
    const json_t *a;
    json_array_foreach(json_object_get(view, "ablations"), i, a)
    {
        if (!i) markdown_heading(out, "What the missing parts take");
        if (!i) markdown_table(out, "cell | by difference | by attribution | verdict");
        pj_buffer_text(out, "| ");
        CELL("%s", pj_member_text(markdown_cell(view, pj_member_number(a, "cell")), "name"));
        CELL("%s", markdown_joules(json_object_get(a, "difference")).text);
        CELL("%s", markdown_joules(json_object_get(a, "attributed")).text);
        CELL("%s", pj_member_text(a, "text"));
        pj_buffer_char(out, '\n');
    }
}

static void markdown_experiment(pj_buffer *out, const json_t *view)
{
    size_t i;
    const json_t *item;
    markdown_optimum(out, view);
    TEXT("The experiment is %s: %.0f of %.0f runs in randomised complete blocks; energy is %s.",
         pj_member_text(view, "state"), pj_member_number(view, "done"),
         pj_member_number(view, "total"), pj_member_text(markdown_cell(view, 0), "energy_source"));
    markdown_cells(out, view);
    json_array_foreach(json_object_get(view, "knees"), i, item)
        TEXT("%s", pj_member_text(item, "text"));
    markdown_ratios(out, view, "comparisons", "Against the first cell", "b", "p_adjusted");
    markdown_ratios(out, view, "against_former", "Against the round before", "cell", "p");
    markdown_ablations(out, view);
}

/* ---- the document --------------------------------------------------------------------------- */

static void markdown_title(pj_buffer *out, const pj_report_subject *s)
{
    pj_buffer_text(out, "# ");
    if (s->experiment)
        markdown_put(out, "Experiment %.200s", s->experiment);
    else if (s->count > 1)
        markdown_put(out, "Comparison of %zu sides",
                     json_array_size(json_object_get(s->view, "sides")));
    else
        markdown_put(out, "Energy of %.100s, run %s", pj_member_text(s->view, "model_name"),
                     s->ids[0]);
    pj_buffer_char(out, '\n');
}

static void markdown_repeat(pj_buffer *out, const pj_report_subject *s)
{
    pj_buffer lines;
    pj_buffer_init(&lines, PJ_REPORT_MAX_BYTES);
    pj_report_repeat(s->view, &lines);
    markdown_code(out, pj_buffer_get(&lines));
    pj_buffer_fini(&lines);
}

void pj_report_markdown(const pj_report_subject *s, pj_buffer *out)
{
    markdown_title(out, s);
    if (s->experiment) {
        markdown_experiment(out, s->view);
    } else if (s->count > 1) {
        markdown_comparison(out, s->view);
    } else {
        markdown_verdict(out, s->view);
        markdown_trust(out, s->view, "");
        markdown_findings(out, s->advice);
        markdown_figures(out, s->view);
        markdown_components(out, s->view);
        markdown_conditions(out, s->view, "Conditions");
    }
    pj_buffer_text(out, "\nIntervals are 95 %; docs/measurement.md says how energy is measured, "
                        "shared among parts and compared.\n");
    markdown_repeat(out, s);
}
