/* A run's views for people: tables, bars, heatmaps. */
#include "cli/show.h"

#include "cli/conditions_line.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOTTEST = 8 };

static const char *energy(double mj, char text[32])
{
    if (isnan(mj)) return "-";
    pj_format_energy(mj, text, 32);
    return text;
}

static const char *duration(double ms, char text[32])
{
    if (isnan(ms)) return "-";
    pj_format_time(ms, text, 32);
    return text;
}

static void print_head(const char *text)
{
    printf("\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), text, pj_style_off(stdout));
}

/* "12.3 mJ ± 0.4 mJ": half width of the 95 % interval. */
static void print_interval(double mj, double sd)
{
    char a[32], b[32];
    printf("%10s", energy(mj, a));
    printf(isnan(sd) || isnan(mj) ? "%12s" : " ± %-9s",
           isnan(sd) || isnan(mj) ? "" : energy(1.96 * sd, b));
}

/* Prints model text without control characters, which could affect the terminal. */
static void print_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", stdout);
        else
            putchar((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text);
    }
}

/* ---- overview ---------------------------------------------------------------------------------
 */

static void print_line(const char *name, const char *text)
{
    if (*text) {
        printf("%-12s ", name);
        print_text(text);
        putchar('\n');
    }
}

static void print_warnings(const json_t *summary)
{
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(summary, "warnings"), i, w)
    {
        if (strcmp(pj_member_text(w, "code"), "run_failed") == 0) continue; /* shown at the top */
        printf("%swarning%s      %s\n", pj_style_on(stdout, PJ_STYLE_YELLOW), pj_style_off(stdout),
               pj_member_text(w, "text"));
    }
    json_t *anomalies = json_object_get(summary, "anomalies");
    if (json_array_size(anomalies))
        printf("anomalies    %zu, the strongest: %s at %.1f ms\n", json_array_size(anomalies),
               pj_member_text(json_array_get(anomalies, 0), "reason"),
               pj_member_number(json_array_get(anomalies, 0), "t_ms"));
}

static void print_figure(const char *name, double value, const char *unit)
{
    if (!isnan(value)) printf("%-12s %.4g %s\n", name, value, unit);
}

static const char *with_interval(const json_t *s, const char *name, char *text, size_t bytes)
{
    char key[64], figure[32], width[32];
    snprintf(key, sizeof key, "%s_mj", name);
    const char *mean = energy(pj_member_number(s, key), figure);
    snprintf(key, sizeof key, "%s_sd_mj", name);
    double sd = pj_member_number(s, key);
    if (isnan(sd))
        snprintf(text, bytes, "%s", mean);
    else
        snprintf(text, bytes, "%s ± %s", mean, energy(1.96 * sd, width));
    return text;
}

static void show_per_token(const json_t *s)
{
    char a[80], b[80];
    double joules = pj_member_number(s, "joules_per_token");
    double sd = pj_member_number(s, "joules_per_token_sd");
    double typical = pj_member_number(s, "joules_per_token_typical");
    double disturbed = pj_member_number(s, "disturbed_tokens");
    double share = pj_member_number(s, "disturbed_share");
    if (!isnan(pj_member_number(s, "model_load_energy_mj")))
        printf("%-12s %s, without %s for loading the model\n", "request",
               with_interval(s, "request_energy", a, sizeof a),
               with_interval(s, "model_load_energy", b, sizeof b));
    if (!isnan(joules)) {
        printf("%-12s %s", "per token", energy(joules * 1e3, a));
        if (!isnan(sd)) printf(" ± %s", energy(1.96 * sd * 1e3, a));
        if (!isnan(typical)) printf(", typically %s", energy(typical * 1e3, a));
        putchar('\n');
    }
    if (disturbed > 0) {
        printf("%-12s %.0f token%s", "disturbed", disturbed, disturbed == 1 ? "" : "s");
        if (!isnan(share)) printf(", %.1f %% of the request's energy", 100 * share);
        putchar('\n');
    }
}

/* Joins an array of names with commas. */
static void join_names(const json_t *names, char *text, size_t bytes)
{
    size_t i, used = 0;
    const json_t *name;
    text[0] = 0;
    json_array_foreach(names, i, name) if (used < bytes && json_is_string(name)) used +=
        (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "",
                         json_string_value(name));
}

static void show_conditions(const json_t *s)
{
    char text[2048];
    char *given = json_dumps(json_object_get(s, "conditions"), JSON_COMPACT | JSON_PRESERVE_ORDER);
    pj_conditions_line(given, "; ", text, sizeof text);
    free(given);
    if (text[0]) print_line("conditions", text);
}

static void show_partial(const json_t *s)
{
    char total[256], missing[256], text[600];
    join_names(json_object_get(s, "total_rails"), total, sizeof total);
    join_names(json_object_get(s, "partial_rails"), missing, sizeof missing);
    if (!missing[0]) return;
    pj_partial_text(total, missing, text, sizeof text);
    print_line("partial", text);
}

static void show_predicted(const json_t *s)
{
    const json_t *p = json_object_get(s, "predicted");
    char a[32], b[32], c[32];
    double joules = pj_member_number(p, "joules");
    if (isnan(joules)) return;
    printf("%-12s %s (%s to %s) from %.0f runs before: %s\n", "predicted", energy(joules * 1e3, a),
           energy(pj_member_number(p, "joules_lo") * 1e3, b),
           energy(pj_member_number(p, "joules_hi") * 1e3, c), pj_member_number(p, "runs"),
           json_is_true(json_object_get(p, "within")) ? "the request was within"
                                                      : "the request was outside");
}

/* The nearest published figure, always with the differences in setup. */
static void show_published(const json_t *s)
{
    size_t i;
    const json_t *caveat, *f = json_array_get(json_object_get(s, "published"), 0);
    double ratio = pj_member_number(f, "ratio");
    if (!f) return;
    printf("%-12s %.3g J/token: %s, %s, batch %.0f\n", "published",
           pj_member_number(f, "joules_per_token"), pj_member_text(f, "model"),
           pj_member_text(f, "hardware"), pj_member_number(f, "batch"));
    if (!isnan(ratio)) printf("%-12s this run needs %.3g times that\n", "", ratio);
    json_array_foreach(json_object_get(f, "caveats"), i, caveat)
        printf("%-12s - %s\n", "", json_string_value(caveat));
}

/* Mixture of experts: what a step read, and how evenly the router spread its choices. */
static void show_experts(const json_t *s)
{
    char per_million[32];
    const json_t *e = json_object_get(json_object_get(s, "model_use"), "experts");
    double per_step = pj_member_number(e, "per_step");
    double mj = pj_member_number(s, "energy_per_million_active_parameters_mj");
    if (!json_is_object(e)) return;
    printf("%-12s %.0f of %.0f per token", "experts", pj_member_number(e, "per_token"),
           pj_member_number(e, "experts"));
    if (!isnan(per_step))
        printf("; a decode step reads %.3g of a layer (%.3g if drawn at random)", per_step,
               pj_member_number(e, "per_step_even"));
    if (!isnan(pj_member_number(e, "load_variation")))
        printf("; load varies by %.0f %%, %.0f %% unused",
               100 * pj_member_number(e, "load_variation"),
               100 * pj_member_number(e, "unused_share"));
    putchar('\n');
    if (!isnan(mj))
        printf("%-12s %s for the request per million active parameters\n", "",
               energy(mj, per_million));
}

static void show_context(const json_t *s)
{
    const json_t *c = json_object_get(json_object_get(s, "model_use"), "context");
    if (isnan(pj_member_number(c, "share"))) return;
    printf("%-12s %.0f of %.0f tokens (%.3g %%)", "context", pj_member_number(c, "longest"),
           pj_member_number(c, "limit"), 100 * pj_member_number(c, "share"));
    if (!isnan(pj_member_number(c, "kv_megabytes")))
        printf(", keys and values %.4g MB", pj_member_number(c, "kv_megabytes"));
    if (json_is_true(json_object_get(c, "nearly_full"))) printf(", nearly full");
    putchar('\n');
}

/* Sums over prefill and decode, and the draft model's part of them. */
static void show_draft(const json_t *s)
{
    const json_t *draft = json_object_get(json_object_get(s, "model"), "draft");
    double proposed = pj_member_number(draft, "proposed"), all_mj = 0, draft_mj = 0, draft_ms = 0;
    char a[32], b[32], c[32];
    size_t i, j;
    json_t *phase, *section;
    if (!draft) return;
    json_array_foreach(json_object_get(s, "phases"), i, phase)
    {
        const char *name = pj_member_text(phase, "phase");
        if (strcmp(name, "prefill") == 0 || strcmp(name, "decode") == 0)
            all_mj += pj_member_number(phase, "energy_mj");
        json_array_foreach(json_object_get(phase, "section_totals"), j, section)
        {
            if (strcmp(pj_member_text(section, "section_name"), "draft") != 0) continue;
            draft_ms += pj_member_number(section, "duration_ms");
            draft_mj += pj_member_number(section, "energy_mj");
        }
    }
    printf("%-12s %s", "draft", pj_member_text(draft, "model_name"));
    if (proposed > 0)
        printf(", %.0f of %.0f proposed tokens accepted (%.0f %%)",
               pj_member_number(draft, "accepted"), proposed,
               100 * pj_member_number(draft, "accepted") / proposed);
    printf("; it took %s", duration(draft_ms, a));
    if (!isnan(draft_mj) && !isnan(all_mj))
        printf(", %s, and the model %s", energy(draft_mj, b), energy(all_mj - draft_mj, c));
    putchar('\n');
}

/* Runs of other engines: what their energy is of, and how closely they were looked at. */
static void show_engine(const json_t *s)
{
    const char *engine = pj_member_text(s, "engine"), *rule = pj_member_text(s, "allocation");
    const char *level = pj_member_text(s, "level");
    if (!*engine || strcmp(engine, "perjoule") == 0) return;
    printf("%-12s %s (scope %s, level %s%s%s)\n", "engine", engine, pj_member_text(s, "scope"),
           *level ? level : "not told", *rule ? "; energy shared by the rule " : "", rule);
}

/* Total and interval, or why there is none and what it was at most. */
static void show_energy(const json_t *s)
{
    char a[32], b[32];
    double mj = pj_member_number(s, "total_energy_mj"),
           sd = pj_member_number(s, "total_energy_sd_mj");
    double upper_mj = pj_member_number(s, "energy_upper_mj");
    const char *sources = pj_member_text(s, "power_sources");
    printf("%-12s %s", "energy", energy(mj, a));
    if (!isnan(sd)) printf(" ± %s", energy(1.96 * sd, b));
    printf(" (%s%s%s)\n", pj_member_text(s, "energy_source"), *sources ? ", " : "", sources);
    if (!isnan(mj)) return;
    printf("%-12s %s", "", pj_absence_text(pj_member_text(s, "unavailable_reason")));
    if (!isnan(upper_mj)) printf("; at most %s", energy(upper_mj, a));
    putchar('\n');
}

static void show_tokens(const json_t *s)
{
    double input = pj_member_number(s, "input_tokens");
    double output = pj_member_number(s, "output_tokens");
    char text[32] = "unknown";
    if (isnan(input) && !(output > 0)) return; /* a program that reports none */
    if (!isnan(input)) snprintf(text, sizeof text, "%.0f", input);
    printf("%-12s %s in, %.0f out\n", "tokens", text, output);
}

void pj_show_overview(const json_t *s)
{
    char a[32];
    print_line("run", pj_member_text(s, "id"));
    print_line("status", pj_member_text(s, "status"));
    print_line("failure", pj_member_text(s, "failure"));
    print_line("created", pj_member_text(s, "created_at"));
    show_engine(s);
    print_line("model", pj_member_text(s, "model_name"));
    print_line("dtype", pj_member_text(s, "dtype"));
    print_line("machine", pj_member_text(s, "machine"));
    if (json_is_object(json_object_get(s, "prompt_private")))
        print_line("prompt", "(private: a hash and simple features are stored)");
    else
        print_line("prompt", pj_member_text(s, "prompt"));
    show_tokens(s);
    printf("%-12s %s\n", "duration", duration(pj_member_number(s, "total_duration_ms"), a));
    show_energy(s);
    show_partial(s);
    if (!isnan(pj_member_number(s, "net_energy_mj")))
        printf("%-12s %s\n", "net of idle", energy(pj_member_number(s, "net_energy_mj"), a));
    print_figure("speed", pj_member_number(s, "tokens_per_second"), "tokens/s");
    show_per_token(s);
    show_context(s);
    show_draft(s);
    show_experts(s);
    show_predicted(s);
    show_published(s);
    print_figure("cost", pj_member_number(s, "cost_usd"), "USD");
    print_figure("CO2", pj_member_number(s, "co2_grams"), "g");
    show_conditions(s);
    print_warnings(s);
    pj_show_phases(s);
    if (json_array_size(json_object_get(s, "components"))) pj_show_components(s);
}

/* ---- tables -----------------------------------------------------------------------------------
 */

static void print_phase(const char *name, double ms, double mj, double sd, const char *method)
{
    char a[32];
    printf("%-16s %-20s %5s %10s  ", name, "", "", duration(ms, a));
    print_interval(mj, sd);
    printf(" %s\n", method);
}

/* An idle phase without recorded sections. */
static bool is_plain_idle(const json_t *phase)
{
    return strcmp(pj_member_text(phase, "phase"), "idle") == 0 &&
           json_array_size(json_object_get(phase, "section_totals")) == 0;
}

/* Idle time between phases comes in many pieces: one line for all of them. */
static void print_idle(const json_t *phases)
{
    size_t i;
    json_t *phase, *first = NULL;
    double ms = 0, mj = 0, variance = 0;
    json_array_foreach(phases, i, phase)
    {
        if (!is_plain_idle(phase)) continue;
        double sd = pj_member_number(phase, "energy_sd_mj");
        if (!first) first = phase;
        ms += pj_member_number(phase, "duration_ms");
        mj += pj_member_number(phase, "energy_mj");
        variance += sd * sd;
    }
    if (first) print_phase("idle", ms, mj, sqrt(variance), pj_member_text(first, "method"));
}

void pj_show_phases(const json_t *s)
{
    size_t i, j;
    json_t *phase, *section;
    char a[32];
    print_head("phase            section              count   duration      energy");
    json_array_foreach(json_object_get(s, "phases"), i, phase)
    {
        if (is_plain_idle(phase)) continue; /* below */
        print_phase(pj_member_text(phase, "phase"), pj_member_number(phase, "duration_ms"),
                    pj_member_number(phase, "energy_mj"), pj_member_number(phase, "energy_sd_mj"),
                    pj_member_text(phase, "method"));
        json_array_foreach(json_object_get(phase, "section_totals"), j, section)
        {
            printf("%-16s %-20s %5.0f %10s  ", "", pj_member_text(section, "section_name"),
                   pj_member_number(section, "count"),
                   duration(pj_member_number(section, "duration_ms"), a));
            print_interval(pj_member_number(section, "energy_mj"), NAN);
            putchar('\n');
        }
    }
    print_idle(json_object_get(s, "phases"));
}

void pj_show_layers(const json_t *s)
{
    size_t i;
    json_t *layer;
    char a[32], b[32], c[32], d[32], e[32], f[32];
    if (json_array_size(json_object_get(s, "layers")) == 0) {
        printf("\nno layers: only runs of depth module and deep record them\n");
        return;
    }
    print_head("layer   duration  attention        mlp      energy  attention        mlp");
    json_array_foreach(json_object_get(s, "layers"), i, layer)
        printf("%5.0f %10s %10s %10s  %10s %10s %10s\n", pj_member_number(layer, "layer"),
               duration(pj_member_number(layer, "time_ms"), a),
               duration(pj_member_number(layer, "attention_ms"), b),
               duration(pj_member_number(layer, "mlp_ms"), c),
               energy(pj_member_number(layer, "energy_mj"), d),
               energy(pj_member_number(layer, "attention_energy_mj"), e),
               energy(pj_member_number(layer, "mlp_energy_mj"), f));
}

static void print_percent(double share)
{
    char text[16] = "-";
    if (!isnan(share)) snprintf(text, sizeof text, "%.1f %%", share * 100);
    printf(" %7s", text);
}

void pj_show_components(const json_t *s)
{
    size_t i;
    json_t *c;
    char a[32];
    if (json_array_size(json_object_get(s, "components")) == 0) {
        printf("\nno components: only runs of depth module and deep record them\n");
        return;
    }
    print_head(
        "component                  count   duration      energy               share    GB/s");
    json_array_foreach(json_object_get(s, "components"), i, c)
    {
        printf("%-24s %7.0f %10s  ", pj_member_text(c, "component_name"),
               pj_member_number(c, "count"), duration(pj_member_number(c, "time_ms"), a));
        print_interval(pj_member_number(c, "energy_mj"), pj_member_number(c, "energy_sd_mj"));
        print_percent(pj_member_number(c, "share"));
        double speed = pj_member_number(c, "gbytes_per_s");
        if (isnan(speed))
            printf("       -\n");
        else
            printf(" %7.2f\n", speed);
    }
}

void pj_show_tokens(const json_t *view)
{
    size_t i;
    json_t *t;
    char a[32];
    print_head("token position seq phase     duration      energy               text");
    json_array_foreach(json_object_get(view, "tokens"), i, t)
    {
        printf("%5.0f %8.0f %3.0f %-8s %9s  ", pj_member_number(t, "token"),
               pj_member_number(t, "position"), pj_member_number(t, "sequence"),
               pj_member_text(t, "phase"), duration(pj_member_number(t, "duration_ms"), a));
        print_interval(pj_member_number(t, "energy_mj"), pj_member_number(t, "energy_sd_mj"));
        printf(" |");
        print_text(pj_member_text(t, "text"));
        printf("|%s\n", json_is_true(json_object_get(t, "disturbed")) ? " disturbed" : "");
    }
}

void pj_show_sparkline(const json_t *view)
{
    enum { MOST = 4096 };
    static double values[MOST];
    char text[MOST];
    size_t i, n = 0;
    bool joules = strcmp(pj_member_text(view, "energy_source"), "unavailable") != 0;
    json_t *t;
    json_array_foreach(json_object_get(view, "tokens"), i, t)
    {
        if (n == MOST || strcmp(pj_member_text(t, "phase"), "decode") != 0) continue;
        values[n++] = pj_member_number(t, joules ? "energy_mj" : "duration_ms");
    }
    if (n == 0) return;
    pj_sparkline(values, n, pj_terminal_width(stdout) - 2, text, sizeof text);
    print_head(joules ? "energy of each decode token" : "duration of each decode token");
    printf("%s\n", text);
}

static bool has_choice(const json_t *view)
{
    return !json_is_null(json_object_get(view, "layer")) ||
           !json_is_null(json_object_get(view, "token")) ||
           !json_is_null(json_object_get(view, "component"));
}

/* Prints "components" or "operations" of a filtered view. */
static void print_parts(const json_t *view, const char *kind, const char *none)
{
    size_t i;
    json_t *o;
    char a[32];
    json_t *list = json_object_get(view, kind);
    if (json_array_size(list) == 0) {
        if (has_choice(view))
            printf("\nthe run has no %s there\n", kind);
        else
            printf("\n%s\n", none);
        return;
    }
    print_head("component            operation           layer  count   duration      energy");
    json_array_foreach(list, i, o)
    {
        char layer[16] = "all";
        double index = pj_member_number(o, "layer_index");
        if (json_object_get(o, "layer_index"))
            snprintf(layer, sizeof layer, isnan(index) ? "-" : "%.0f", index);
        else if (json_is_integer(json_object_get(view, "layer")))
            snprintf(layer, sizeof layer, "%.0f", pj_member_number(view, "layer"));
        printf("%-20s %-18s %6s %6.0f %10s  ", pj_member_text(o, "component_name"),
               pj_member_text(o, "operation_name"), layer, pj_member_number(o, "count"),
               duration(pj_member_number(o, "time_ms"), a));
        print_interval(pj_member_number(o, "energy_mj"), pj_member_number(o, "energy_sd_mj"));
        putchar('\n');
    }
}

void pj_show_operations(const json_t *view)
{
    print_parts(view, "operations", "no operations: only runs of depth deep record them");
}

void pj_show_some_components(const json_t *view)
{
    print_parts(view, "components",
                "no components: only runs of depth module and deep record them");
}

/* ---- heatmap ----------------------------------------------------------------------------------
 */

static void print_cell(double value, double low, double high)
{
    static const char *const shades[] = {" ", "░", "▒", "▓", "█"};
    double share = high > low ? (value - low) / (high - low) : 0.5;
    int level = (int)(share * 4.999);
    for (int i = 0; i < 3; i++) fputs(isnan(value) ? (i == 1 ? "." : " ") : shades[level], stdout);
}

/* "1 q_proj, 2 k_proj, ...", wrapped to the terminal's width. */
static void print_legend(const json_t *components)
{
    size_t i;
    json_t *name;
    int width = pj_terminal_width(stdout), at = width;
    json_array_foreach(components, i, name)
    {
        char text[300];
        int n = snprintf(text, sizeof text, "%zu %s%s", i + 1, json_string_value(name),
                         i + 1 < json_array_size(components) ? ", " : "");
        if (at + n > width) {
            printf("\n     ");
            at = 5;
        }
        fputs(text, stdout);
        at += n;
    }
    putchar('\n');
}

void pj_show_heatmap(const json_t *view)
{
    size_t i, j;
    json_t *name, *row, *cell;
    json_t *components = json_object_get(view, "components");
    double low = pj_member_number(view, "min"), high = pj_member_number(view, "max");
    if (json_array_size(components) == 0) {
        printf("\nno heatmap: only runs of depth module and deep record components\n");
        return;
    }
    if (isnan(low)) {
        printf("\nno heatmap: %s is unavailable there\n", pj_member_text(view, "metric"));
        return;
    }
    printf("\n%s%s by layer and component%s (%s): %.4g to %.4g %s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), pj_member_text(view, "metric"), pj_style_off(stdout),
           pj_member_text(view, "aggregate"), low, high, pj_member_text(view, "unit"));
    json_array_foreach(json_object_get(view, "values"), i, row)
    {
        printf("%4zu ", i);
        json_array_foreach(row, j, cell)
            print_cell(json_is_number(cell) ? json_number_value(cell) : NAN, low, high);
        putchar('\n');
    }
    printf("     ");
    json_array_foreach(components, i, name) printf("%2zu ", i + 1);
    print_legend(components);
}
