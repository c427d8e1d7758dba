/* The report of a run. */
#include "report/report_parts.h"

#include "report/report_conditions.h"
#include "report/report_repeat.h"
#include "store/class_sums.h"
#include "store/views.h"
#include "trace/json_member.h"
#include "trace/phases.h"
#include "trace/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
        pj_report_figure(value, sizeof value, pj_member_number(run, rows[i].key) * rows[i].scale,
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
        pj_report_figure(value, sizeof value, parts[i].value, parts[i].hi - parts[i].value, "J");
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
        pj_report_figure(per_token, sizeof per_token, joules,
                         1.96 * pj_member_number(run, "joules_per_token_sd"), "J");
        size_t n = (size_t)snprintf(line, sizeof line, "A token of %.100s in %.20s takes %s",
                                    pj_member_text(run, "model_name"), pj_member_text(run, "dtype"),
                                    per_token);
        /* A run of one token has no decode, and neither a speed. */
        double speed = pj_member_number(run, "tokens_per_second");
        char digits[32];
        pj_report_four_digits(digits, sizeof digits, speed);
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

pj_status pj_report_run(pj_document *d, pj_store *store, const json_t *run, const json_t *advice,
                        pj_error *err)
{
    write_run_verdict(d, run);
    pj_report_trust(d, run, "");
    pj_status status = write_bar(d, store, run, err);
    write_findings(d, advice);
    write_run_figures(d, run);
    write_model_use(d, run);
    write_components(d, run);
    if (status == PJ_OK) status = write_tokens(d, store, run, err);
    pj_report_conditions(d, "Conditions", json_object_get(run, "conditions"));
    write_predicted(d, run);
    write_published(d, run);
    pj_report_method(d, "");
    pj_document_heading(d, "How to repeat");
    pj_report_repeat_run(d, run);
    return status;
}
