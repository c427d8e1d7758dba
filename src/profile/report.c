/* Reports from the JSON that the API returns, so that the numbers agree. */
#include "profile/report.h"

#include "base/decimal.h"
#include "profile/advice.h"
#include "profile/document.h"
#include "profile/experiment_view.h"
#include "profile/insight.h"
#include "profile/report_conditions.h"
#include "profile/report_repeat.h"
#include "store/class_sums.h"
#include "trace/json_member.h"
#include "trace/phases.h"
#include "trace/request.h"
#include "trace/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four digits, and all of a number of thousands. */
static void four_digits(char *out, size_t bytes, double value)
{
    bool large = fabs(value) >= 1000 && fabs(value) < 1e15;
    snprintf(out, bytes, large ? "%.0f" : "%.4g", value);
}

/* A value with as many digits as its interval deserves: down to the second digit of the reach. */
static void rounded(char *out, size_t bytes, double value, double reach)
{
    bool known = reach >= 1e-5 && reach < 100;
    if (isnan(value))
        snprintf(out, bytes, "–");
    else if (known)
        snprintf(out, bytes, "%.*f", pj_decimals_for(reach), value);
    else
        four_digits(out, bytes, value);
}

/* "0.2431 ± 0.0021 J", "unavailable" */
static void figure(char *out, size_t bytes, double value, double reach, const char *unit)
{
    char digits[64], half[32];
    rounded(digits, sizeof digits, value, reach);
    snprintf(half, sizeof half, reach < 100 ? "%.2g" : "%.0f", reach);
    if (isnan(value))
        snprintf(out, bytes, "unavailable");
    else if (isnan(reach))
        snprintf(out, bytes, "%s %s", digits, unit);
    else
        snprintf(out, bytes, "%s ± %s %s", digits, half, unit);
}

static void number_cell(pj_document *d, double value)
{
    char digits[64];
    rounded(digits, sizeof digits, value, NAN);
    pj_document_cell(d, "%s", digits);
}

/* ---- common parts --------------------------------------------------------------------------- */

/* `of`: "A: " in a comparison, "" for a run by itself. */
static void write_trust(pj_document *d, const json_t *run, const char *of)
{
    size_t i;
    const json_t *rail;
    char partial[128] = "";
    json_array_foreach(json_object_get(run, "partial_rails"), i, rail)
        snprintf(partial + strlen(partial), sizeof partial - strlen(partial), "%s%s",
                 i ? ", " : "; the total lacks ", json_string_value(rail));
    double disturbed = pj_member_number(run, "disturbed_share");
    pj_document_text(d, "%sEnergy is %s (%s)%s; attribution by %s%s; recorded on %s, %s.", of,
                     pj_member_text(run, "energy_source"),
                     *pj_member_text(run, "power_sources") ? pj_member_text(run, "power_sources")
                                                           : "no sensor",
                     partial, pj_member_text(run, "method"),
                     isnan(disturbed)  ? ""
                     : disturbed > 0.1 ? "; more than a tenth of the energy is in disturbed tokens"
                                       : "; the machine did not disturb it much",
                     pj_member_text(run, "machine"), pj_member_text(run, "created_at"));
}

/* comparison: how the document's ratios were tested, or "" if it has none */
static void write_method(pj_document *d, const char *comparison)
{
    pj_document_heading(d, "Method");
    pj_document_text(
        d,
        "Each sensor's readings become one energy curve, and the energy of an interval is the "
        "curve's difference over it. Energy below the token is shared by one regression over "
        "all sensor windows, conditioned on the totals, so that parts sum to the whole. "
        "The request leaves out loading the model and idle gaps. Intervals are 95 %% and hold "
        "noise, the sensor's delay and window, and its calibration, which cancels on one machine."
        "%s%s",
        *comparison ? " " : "", comparison);
}

/* ---- a run ---------------------------------------------------------------------------------- */

enum { LOAD, PREFILL, ATTENTION, MLP, HEAD, REST, OTHER, IDLE, BUCKETS };

static int bucket_of(const pj_class_sum *c)
{
    if (strcmp(c->name, PJ_SECTION_MODEL_LOAD) == 0) return LOAD;
    if (c->phase == PJ_PHASE_IDLE) return IDLE;
    if (c->phase == PJ_PHASE_PREFILL) return PREFILL;
    if (c->phase != PJ_PHASE_DECODE) return OTHER;
    if (strcmp(c->name, "lm_head") == 0) return HEAD;
    pj_part part = pj_component_part(c->name);
    return part == PJ_PART_ATTENTION ? ATTENTION : part == PJ_PART_MLP ? MLP : REST;
}

static pj_status write_bar(pj_document *d, pj_store *store, const json_t *run, pj_error *err)
{
    static const char *const names[BUCKETS] = {
        "model load",   "prefill",      "decode: attention", "decode: MLP",
        "decode: head", "decode: rest", "before and after",  "idle and unattributed"};
    pj_document_part parts[BUCKETS];
    pj_class_sum *sums;
    uint32_t count;
    const char *id = pj_member_text(run, "id");
    double total = pj_member_number(run, "total_energy_mj"), sum = 0;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    double joules[BUCKETS];
    for (int i = 0; i < BUCKETS; i++) joules[i] = NAN;
    pj_status status = pj_store_class_sums(store, &id, 1, &arena, &sums, &count, err);
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        double *bucket = &joules[bucket_of(&sums[i])], j = sums[i].energy_mj / 1000;
        if (!isnan(j)) *bucket = isnan(*bucket) ? j : *bucket + j;
    }
    /* Parts that did not happen, such as loading an already loaded model, are omitted. */
    uint32_t used = 0;
    for (int i = 0; i < IDLE; i++)
        if (!isnan(joules[i])) {
            sum += joules[i];
            parts[used++] = (pj_document_part){names[i], joules[i], NAN, NAN};
        }
    /* The remainder, so that the bar adds up to the total. */
    parts[used++] = (pj_document_part){names[IDLE], total / 1000 - sum, NAN, NAN};
    pj_arena_fini(&arena);
    pj_document_heading(d, "Where the joules went");
    if (isnan(total))
        pj_document_text(d, "Energy is unavailable: %s.",
                         pj_absence_text(pj_member_text(run, "unavailable_reason")));
    else
        pj_document_stack(d, parts, used, "J");
    return status;
}

static void write_findings(pj_document *d, const json_t *advice)
{
    size_t i;
    const json_t *f;
    const json_t *findings = json_object_get(advice, "findings");
    pj_document_heading(d, "Findings");
    if (!json_array_size(findings)) pj_document_text(d, "No rule has evidence enough for advice.");
    json_array_foreach(findings, i, f)
    {
        char line[1024], saving[128] = "";
        const json_t *s = json_object_get(f, "saving");
        if (i == 3) break;
        if (json_is_object(s))
            snprintf(saving, sizeof saving, " Saves %.0f %% of the %s (%.0f to %.0f %%, %s).",
                     100 * pj_member_number(s, "share"), pj_member_text(s, "of"),
                     100 * pj_member_number(s, "share_lo"), 100 * pj_member_number(s, "share_hi"),
                     pj_member_text(s, "basis"));
        snprintf(line, sizeof line, "%s%s Test: %s", pj_member_text(f, "text"), saving,
                 pj_member_text(f, "test"));
        pj_document_item(d, pj_member_text(f, "title"), line);
    }
}

static void write_run_figures(pj_document *d, const json_t *run)
{
    char value[96];
    const struct {
        const char *name, *key, *sd, *unit;
        double scale;
    } rows[] = {{"total energy", "total_energy_mj", "total_energy_sd_mj", "J", 1e-3},
                {"request", "request_energy_mj", "request_energy_sd_mj", "J", 1e-3},
                {"net of idle", "net_energy_mj", "net_energy_sd_mj", "J", 1e-3},
                {"model load", "model_load_energy_mj", "", "J", 1e-3},
                {"energy per output token", "joules_per_token", "joules_per_token_sd", "J", 1},
                {"typical token", "joules_per_token_typical", "", "J", 1},
                {"energy per input token", "joules_per_input_token", "", "J", 1},
                {"speed", "tokens_per_second", "", "tokens/s", 1},
                {"prefill", "prefill_tokens_per_second", "", "tokens/s", 1},
                {"mean power", "mean_power_mw", "", "W", 1e-3},
                {"duration", "total_duration_ms", "", "s", 1e-3},
                {"cost", "cost_usd", "", "USD", 1},
                {"CO2", "co2_grams", "", "g", 1}};
    pj_document_heading(d, "Figures");
    pj_document_table(d, "figure|value, 95 %");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool load = strcmp(rows[i].key, "model_load_energy_mj") == 0;
        if (load && isnan(pj_member_number(run, rows[i].key)))
            continue; /* the model was already loaded */
        figure(value, sizeof value, pj_member_number(run, rows[i].key) * rows[i].scale,
               1.96 * pj_member_number(run, rows[i].sd) * rows[i].scale, rows[i].unit);
        pj_document_row(d);
        pj_document_cell(d, "%s", rows[i].name);
        pj_document_cell(d, "%s", value);
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

/* How the run used its model: context, cache and experts. */
static void write_model_use(pj_document *d, const json_t *run)
{
    const json_t *use = json_object_get(run, "model_use");
    const json_t *c = json_object_get(use, "context"), *e = json_object_get(use, "experts");
    if (!isnan(pj_member_number(c, "share")))
        pj_document_text(d, "Context: %.0f of %.0f tokens (%.3g %%), keys and values %.4g MB%s.",
                         pj_member_number(c, "longest"), pj_member_number(c, "limit"),
                         100 * pj_member_number(c, "share"), pj_member_number(c, "kv_megabytes"),
                         json_is_true(json_object_get(c, "nearly_full")) ? ", nearly full" : "");
    if (!isnan(pj_member_number(e, "per_step")))
        pj_document_text(
            d,
            "Experts: %.0f of %.0f per token; a decode step reads %.3g of each layer (%.3g if "
            "drawn at random), and %.4g mJ go into each million active parameters.",
            pj_member_number(e, "per_token"), pj_member_number(e, "experts"),
            pj_member_number(e, "per_step"), pj_member_number(e, "per_step_even"),
            pj_member_number(run, "energy_per_million_active_parameters_mj"));
}

static void write_components(pj_document *d, const json_t *run)
{
    pj_document_part parts[12];
    uint32_t n = 0;
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(run, "components"), i, c)
    {
        double mj = pj_member_number(c, "energy_mj"), sd = pj_member_number(c, "energy_sd_mj");
        if (n == 12 || isnan(mj)) break;
        parts[n++] = (pj_document_part){pj_member_text(c, "component_name"), mj / 1000,
                                        (mj - 1.96 * sd) / 1000, (mj + 1.96 * sd) / 1000};
    }
    if (!n) return;
    pj_document_heading(d, "Components");
    pj_document_bars(d, "Energy of components over the whole run, J, with 95 % intervals", parts, n,
                     "J", false);
    pj_document_table(d, "component|energy, J");
    for (i = 0; i < n; i++) {
        char value[96];
        figure(value, sizeof value, parts[i].value, parts[i].hi - parts[i].value, "J");
        pj_document_row(d);
        pj_document_cell(d, "%s", parts[i].name);
        pj_document_cell(d, "%s", value);
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

static pj_status write_tokens(pj_document *d, pj_store *store, const json_t *run, pj_error *err)
{
    pj_arena arena;
    pj_token_series series;
    pj_arena_init(&arena, 0);
    pj_status status = pj_view_token_series(store, pj_member_text(run, "id"), &arena, &series, err);
    if (status == PJ_OK)
        pj_document_line(d, "Energy of each decode token, mJ", series.energy_mj, series.count,
                         "mJ");
    pj_arena_fini(&arena);
    return status;
}

static void write_run_verdict(pj_document *d, const json_t *run)
{
    char line[512], per_token[96];
    double joules = pj_member_number(run, "joules_per_token");
    double share =
        pj_member_number(run, "decode_energy_mj") / pj_member_number(run, "request_energy_mj");
    if (isnan(joules)) {
        snprintf(line, sizeof line, "Energy is unavailable.");
    } else {
        figure(per_token, sizeof per_token, joules,
               1.96 * pj_member_number(run, "joules_per_token_sd"), "J");
        size_t n = (size_t)snprintf(line, sizeof line, "A token of %.100s in %.20s takes %s",
                                    pj_member_text(run, "model_name"), pj_member_text(run, "dtype"),
                                    per_token);
        /* A run of one token has no decode, and neither a speed. */
        double speed = pj_member_number(run, "tokens_per_second");
        char digits[32];
        four_digits(digits, sizeof digits, speed);
        if (!isnan(speed))
            n += (size_t)snprintf(line + n, sizeof line - n, " at %s tokens/s", digits);
        if (!isnan(share))
            n += (size_t)snprintf(line + n, sizeof line - n, "; decode is %.0f %% of the request",
                                  100 * share);
        snprintf(line + n, sizeof line - n, ".");
    }
    pj_document_verdict(d, line);
}

static void write_predicted(pj_document *d, const json_t *run)
{
    const json_t *p = json_object_get(run, "predicted");
    double joules = pj_member_number(p, "joules");
    if (isnan(joules)) return;
    pj_document_heading(d, "Predicted");
    pj_document_text(d,
                     "From %.0f earlier runs of this machine: %.4g J (%.4g to %.4g) for the "
                     "request, which took %.4g J.",
                     pj_member_number(p, "runs"), joules, pj_member_number(p, "joules_lo"),
                     pj_member_number(p, "joules_hi"), pj_member_number(p, "actual_joules"));
}

static void write_published(pj_document *d, const json_t *run)
{
    size_t i, k;
    const json_t *figures = json_object_get(run, "published"), *f, *caveat;
    if (!json_array_size(figures)) return;
    pj_document_heading(d, "Published figures");
    pj_document_text(d,
                     "An order of magnitude, never a verdict: they differ from this run as said.");
    pj_document_table(d, "figure|J per output token|times that|what differs|source");
    json_array_foreach(figures, i, f)
    {
        char differs[640] = "";
        double ratio = pj_member_number(f, "ratio"), batch = pj_member_number(f, "batch");
        json_array_foreach(json_object_get(f, "caveats"), k, caveat)
            snprintf(differs + strlen(differs), sizeof differs - strlen(differs), "%s%s",
                     k ? "; " : "", json_string_value(caveat));
        pj_document_row(d);
        if (isnan(batch))
            pj_document_cell(d, "%s on %s", pj_member_text(f, "model"),
                             pj_member_text(f, "hardware"));
        else
            pj_document_cell(d, "%s on %s, batch %.0f", pj_member_text(f, "model"),
                             pj_member_text(f, "hardware"), batch);
        if (pj_member_number(f, "joules_per_token_hi") > pj_member_number(f, "joules_per_token"))
            pj_document_cell(d, "%.3g to %.3g", pj_member_number(f, "joules_per_token"),
                             pj_member_number(f, "joules_per_token_hi"));
        else
            pj_document_cell(d, "%.3g", pj_member_number(f, "joules_per_token"));
        if (isnan(ratio))
            pj_document_cell(d, "not comparable");
        else
            pj_document_cell(d, "%.3g", ratio);
        pj_document_cell(d, "%s", differs);
        pj_document_cell(d, "%s", pj_member_text(f, "source"));
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

static pj_status write_run(pj_document *d, pj_store *store, const json_t *run, const json_t *advice,
                           pj_error *err)
{
    write_run_verdict(d, run);
    write_trust(d, run, "");
    pj_status status = write_bar(d, store, run, err);
    write_findings(d, advice);
    write_run_figures(d, run);
    write_model_use(d, run);
    write_components(d, run);
    if (status == PJ_OK) status = write_tokens(d, store, run, err);
    pj_report_conditions(d, "Conditions", json_object_get(run, "conditions"));
    write_predicted(d, run);
    write_published(d, run);
    write_method(d, "");
    pj_document_heading(d, "How to repeat");
    pj_report_repeat_run(d, run);
    return status;
}

/* ---- a comparison --------------------------------------------------------------------------- */

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
            figure(text, sizeof text, value, hi - value, unit);
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

static void write_comparison(pj_document *d, const json_t *view)
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
        write_trust(d, item, of);
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
    write_method(
        d, "Comparisons are of whole runs: ratios of geometric means, tested by Welch's t-test on "
           "logarithms, in small groups by permutation.");
    pj_document_heading(d, "How to repeat");
    json_array_foreach(json_object_get(view, "runs"), i, item) pj_report_repeat_run(d, item);
}

/* ---- an experiment -------------------------------------------------------------------------- */

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
        figure(value, sizeof value, mean, hi - mean, "J");
        if (n < 40)
            parts[n++] = (pj_document_part){pj_member_text(c, "name"), mean,
                                            pj_member_number(c, "joules_per_token_lo"), hi};
        pj_document_row(d);
        pj_document_cell(d, "%s", pj_member_text(c, "name"));
        pj_document_cell(d, "%.0f", pj_member_number(c, "runs"));
        pj_document_cell(d, "%s", value);
        number_cell(d, pj_member_number(c, "tokens_per_second"));
        number_cell(d, pj_member_number(c, "ttft_ms"));
        number_cell(d, pj_member_number(c, "mean_power_mw") / 1000);
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
        figure(text, bytes, value, pj_member_number(of, "joules_per_token_hi") - value, "J");
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
            number_cell(d, pj_member_number(c, "tokens_per_second"));
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
    rounded(ratio, sizeof ratio, pj_member_number(c, "ratio"), reach);
    rounded(lo, sizeof lo, pj_member_number(c, "ratio_lo"), reach);
    rounded(hi, sizeof hi, pj_member_number(c, "ratio_hi"), reach);
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

static void write_experiment(pj_document *d, pj_store *store, const json_t *view)
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
    write_method(
        d, "Cells are compared within blocks, by a paired t-test on the logarithms of energy per "
           "token, so that drift from block to block is no difference of cells; cells without two "
           "blocks in common by Welch's t-test.");
    pj_report_repeat_experiment(d, view);
}

/* ---- the whole ------------------------------------------------------------------------------ */

typedef pj_status make_fn(pj_store *store, const pj_report_ask *ask, pj_json *json, pj_error *err);

static pj_status make_summary(pj_store *store, const pj_report_ask *ask, pj_json *json,
                              pj_error *err)
{
    return pj_insight_summary(store, ask->ids[0], NULL, json, err);
}

static pj_status make_advice(pj_store *store, const pj_report_ask *ask, pj_json *json,
                             pj_error *err)
{
    return pj_insight_advice(store, ask->ids[0], NULL, json, err);
}

static pj_status make_comparison(pj_store *store, const pj_report_ask *ask, pj_json *json,
                                 pj_error *err)
{
    return pj_insight_compare(store, ask->ids, ask->count, NULL, json, err);
}

static pj_status make_experiment(pj_store *store, const pj_report_ask *ask, pj_json *json,
                                 pj_error *err)
{
    return pj_view_experiment(store, ask->experiment, NULL, json, err);
}

static bool has_groups(const json_t *view)
{
    size_t i;
    const json_t *side;
    bool any = false;
    json_array_foreach(json_object_get(view, "sides"), i, side) any |=
        pj_member_number(side, "runs") > 1;
    return any;
}

static pj_status get_tree(pj_store *store, const pj_report_ask *ask, make_fn *make, json_t **tree,
                          pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1u << 28);
    pj_json_init(&json, &buffer);
    pj_status status = make(store, ask, &json, err);
    if (status == PJ_OK) {
        *tree = json_loadb(pj_buffer_get(&buffer), buffer.length, 0, NULL);
        if (!*tree) status = pj_fail_memory(err, "a report");
    }
    pj_buffer_fini(&buffer);
    return status;
}

pj_status pj_report_make(pj_store *store, const pj_report_ask *ask, pj_buffer *out, pj_error *err)
{
    json_t *view = NULL, *advice = NULL;
    pj_document d;
    char title[300];
    make_fn *make = ask->experiment  ? make_experiment
                    : ask->count > 1 ? make_comparison
                                     : make_summary;
    if (!ask->experiment && (ask->count < 1 || ask->count > PJ_COMPARE_MAX))
        return pj_fail(err, PJ_E_INVALID, "a report is of 1 to %d runs or an experiment",
                       PJ_COMPARE_MAX);
    pj_status status = get_tree(store, ask, make, &view, err);
    if (status == PJ_OK && make == make_summary)
        status = get_tree(store, ask, make_advice, &advice, err);
    if (status == PJ_OK) {
        if (ask->experiment)
            snprintf(title, sizeof title, "Experiment %.200s", ask->experiment);
        else if (ask->count > 1)
            snprintf(title, sizeof title, "Comparison of %u %s", ask->count,
                     has_groups(view) ? "groups of runs" : "runs");
        else
            snprintf(title, sizeof title, "Energy of %.100s, run %.36s",
                     pj_member_text(view, "model_name"), pj_member_text(view, "id"));
        pj_document_begin(&d, out, ask->html, title);
        if (ask->experiment)
            write_experiment(&d, store, view);
        else if (ask->count > 1)
            write_comparison(&d, view);
        else
            status = write_run(&d, store, view, advice, err);
        pj_document_end(&d);
    }
    json_decref(view);
    json_decref(advice);
    return status == PJ_OK ? pj_buffer_status(out, "a report", err) : status;
}
