/* A run's views for people: tables, bars, heatmaps. */
#include "cli/show.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/conditions_line.h"
#include "cli/disturbances.h"
#include "cli/run_parts.h"
#include "cli/show_table.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "cli/thinking_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pj_text energy(double mj)
{
    return pj_or_dash(mj, pj_energy_text(mj));
}

static pj_text interval(double mj, double sd_mj)
{
    return pj_or_dash(mj, pj_interval_text(mj, sd_mj));
}

static pj_text duration(double ms)
{
    return pj_or_dash(ms, pj_time_text(ms));
}

static void show_print_head(const char *text)
{
    pj_print(stdout, "\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), text, pj_style_off(stdout));
}

static void cell_of_duration(pj_show_table *t, double ms)
{
    pj_show_cell(t, duration(ms).s);
}

static void cell_of_interval(pj_show_table *t, double mj, double sd_mj)
{
    pj_show_cell(t, interval(mj, sd_mj).s);
}

/* Without the sensor's calibration, which a line below the table says once. */
static void cell_of_varied(pj_show_table *t, double mj, double sd_mj, double gain_sd)
{
    cell_of_interval(t, mj, pj_sd_without_gain(mj, sd_mj, gain_sd));
}

/* Prints model text without control characters, which could affect the terminal. */
static void show_print_text(FILE *out, const char *text)
{
    for (const char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        pj_print_safe(out, line, end ? (size_t)(end - line) : strlen(line));
        if (end) fputs("\\n", out);
        if (end) end++;
    }
}

/* ---- overview ---- */

static void show_print_line(const char *name, const char *text)
{
    char *line;
    size_t bytes;
    FILE *memory = text && *text ? open_memstream(&line, &bytes) : NULL;
    if (!memory) return;
    show_print_text(memory, text);
    fclose(memory);
    pj_print(stdout, "%-12s %s\n", name, line);
    free(line);
}

static void show_print_warnings(const pj_run_data *run)
{
    for (uint32_t i = 0; i < run->warning_count; i++) {
        const pj_warning_row *w = &run->warnings[i];
        if (w->code && strcmp(w->code, "run_failed") == 0) continue; /* shown at the top */
        pj_print(stdout, "%swarning%s      %s\n", pj_style_on(stdout, PJ_STYLE_YELLOW),
                 pj_style_off(stdout), w->text ? w->text : "");
    }
}

/* Disturbances have lines of their own. */
static void print_anomalies(const pj_run_insight *insight)
{
    const pj_run_anomaly *first = NULL;
    char reason[160];
    uint32_t count = 0;
    for (uint32_t i = 0; i < insight->anomaly_count; i++) {
        if (insight->anomalies[i].kind == PJ_EVENT_DISTURBANCE) continue;
        if (count++ == 0) first = &insight->anomalies[i];
    }
    if (!first) return;
    pj_run_anomaly_reason(first, reason, sizeof reason);
    pj_print(stdout, "anomalies    %u, the dearest: %s at %.1f ms\n", count, reason,
             first->begin_ms);
}

static void show_print_figure(const char *name, double value, const char *unit)
{
    char text[64];
    if (isnan(value)) return;
    pj_digits_write(value, 4, text, sizeof text);
    pj_print(stdout, "%-12s %s %s\n", name, text, unit);
}

/* With the digits that the energy's interval supports. */
static void show_price(const char *name, double value, const pj_run_info *info, const char *unit)
{
    static const char *const prefixes[] = {"", "m", "µ", "n"};
    char text[64];
    int i = 0;
    if (isnan(value)) return;
    bool small = value != 0 && fabs(value) < 1e-3;
    for (; small && i < 3 && fabs(value) < 1; i++) value *= 1e3;
    double half = PJ_Z95 * info->total_sd_mj / info->total_mj * value;
    pj_value_write(value, pj_bounds_of(value, half), text, sizeof text);
    pj_print(stdout, "%-12s %s %s%s\n", name, text, prefixes[i], unit);
}

static void show_per_token(const pj_run_info *info, const pj_run_ratios *r)
{
    if (!isnan(info->model_load_mj))
        pj_print(stdout, "%-12s %s, excluding %s for loading the model\n", "request",
                 interval(info->request_mj, info->request_sd_mj).s,
                 interval(info->model_load_mj, info->model_load_sd_mj).s);
    if (!isnan(r->joules_per_token_typical))
        pj_print(
            stdout, "%-12s %s, typical (median of decode)\n", "per token",
            interval(r->joules_per_token_typical * 1e3, r->joules_per_token_typical_sd * 1e3).s);
    if (!isnan(r->joules_per_token))
        pj_print(stdout, "%-12s %s on average\n",
                 isnan(r->joules_per_token_typical) ? "per token" : "",
                 interval(r->joules_per_token * 1e3, r->joules_per_token_sd * 1e3).s);
    if (pj_thinking_line(info).s[0])
        pj_print(stdout, "%-12s %s\n", "thinking", pj_thinking_line(info).s);
    pj_print_disturbances(stdout, info,
                          *pj_without_disturbances() ? "left out     " : "disturbed    ",
                          "             ");
}

/* "0.42 s busy, 12.3 J (gpu0, by UUID)" */
static void show_device(const pj_device_row *d)
{
    char busy[48] = "", rails[160];
    if (!isnan(d->busy_ms)) snprintf(busy, sizeof busy, ", busy for %s", duration(d->busy_ms).s);
    if (d->rails && d->rail_reason)
        snprintf(rails, sizeof rails, "%s (%s, %s)", energy(d->energy_mj).s, d->rails,
                 d->rail_reason);
    else if (d->rails)
        snprintf(rails, sizeof rails, "%s (%s)", energy(d->energy_mj).s, d->rails);
    else
        snprintf(rails, sizeof rails, "energy unavailable: %s",
                 d->rail_reason ? d->rail_reason : "no rail measures it");
    pj_print(stdout, "%-12s ", d->kind ? d->kind : "device");
    show_print_text(stdout, d->name);
    pj_print(stdout, "%s, %s\n", busy, rails);
}

static void show_devices(const pj_run_info *info)
{
    pj_arena arena;
    pj_device_row devices[PJ_MAX_DEVICES];
    pj_arena_init(&arena, 0);
    uint32_t count = pj_devices_read(info->devices_json, &arena, devices);
    for (uint32_t i = 0; i < count; i++)
        if (devices[i].name) show_device(&devices[i]);
    pj_arena_fini(&arena);
}

static void show_conditions(const pj_run_info *info)
{
    char text[2048];
    pj_conditions_line(info->conditions_json, "; ", text, sizeof text);
    show_print_line("conditions", text);
}

static void show_partial(const pj_run_info *info)
{
    char text[600];
    if (!info->partial_rails || !*info->partial_rails) return;
    pj_partial_text(info->total_rails ? info->total_rails : "", info->partial_rails, text,
                    sizeof text);
    show_print_line("partial", text);
}

static void show_predicted(const pj_expectation *p)
{
    if (!p || isnan(p->joules)) return;
    pj_print(stdout, "%-12s %s (%s to %s) from %u earlier runs: the request was %s\n", "predicted",
             energy(p->joules * 1e3).s, energy(p->joules_lo * 1e3).s, energy(p->joules_hi * 1e3).s,
             p->runs, pj_expectation_is_met(p) ? "within" : "outside");
}

/* The nearest published figure, always with the differences in setup. */
static void show_published(const pj_outlook *outlook)
{
    const pj_published_beside *b = &outlook->published[0];
    if (!outlook->published_count) return;
    pj_print(stdout, "%-12s %.3g J/token: %s, %s", "published", b->figure->joules_per_token,
             b->figure->model, b->figure->hardware);
    if (b->figure->batch) pj_print(stdout, ", batch %u", b->figure->batch);
    putchar('\n');
    if (!isnan(b->ratio)) pj_print(stdout, "%-12s this run needs %.3g times that\n", "", b->ratio);
    for (uint32_t i = 0; i < b->caveat_count; i++)
        pj_print(stdout, "%-12s - %s\n", "", b->caveats[i]);
}

/* Mixture of experts: what a step read, and how evenly the router spread its choices. */
static void show_experts(const pj_model_use *use, const pj_run_ratios *r)
{
    const pj_expert_use *e = &use->experts;
    if (!pj_model_use_has_experts(use)) return;
    pj_print(stdout, "%-12s %.0f of %.0f per token", "experts", e->per_token, e->experts);
    if (!isnan(e->per_step))
        pj_print(stdout, "; a decode step reads %.3g of a layer (%.3g if drawn at random)",
                 e->per_step, e->per_step_even);
    if (!isnan(use->variation))
        pj_print(stdout, "; load varies by %.0f %%, %.0f %% unused", 100 * use->variation,
                 100 * use->unused);
    putchar('\n');
    if (!isnan(r->mj_per_million_active_parameters))
        pj_print(stdout, "%-12s %s for the request per million active parameters\n", "",
                 energy(r->mj_per_million_active_parameters).s);
}

static void show_context(const pj_context_use *c)
{
    char kv[64] = "";
    if (isnan(c->share)) return;
    if (!isnan(c->kv_bytes))
        snprintf(kv, sizeof kv, ", keys and values %.4g MB", c->kv_bytes / 1e6);
    pj_print(stdout, "%-12s %.0f of %.0f tokens (%.3g %%)%s%s\n", "context", c->longest, c->limit,
             100 * c->share, kv, c->share >= PJ_CONTEXT_NEARLY_FULL ? ", nearly full" : "");
}

static void show_draft(const pj_show_run *run)
{
    char text[400];
    pj_run_draft draft;
    double ms = 0, mj = 0, sd_mj = 0;
    for (uint32_t i = 0; i < run->section_count; i++) {
        if (strcmp(run->sections[i].name, "draft") != 0) continue;
        ms += run->sections[i].duration_ms;
        mj += run->sections[i].energy_mj;
        sd_mj = hypot(sd_mj, run->sections[i].energy_sd_mj);
    }
    pj_run_draft_get(&run->data, ms, ms > 0 ? mj : NAN, sd_mj, &draft);
    if (!draft.name[0]) return;
    pj_run_draft_text(&draft, text, sizeof text);
    show_print_line("draft", text);
}

/* Runs of other engines: what their energy is of, and at which level they were observed. */
static void show_engine(const pj_run_info *info)
{
    const char *rule = info->allocation;
    if (!info->engine || !*info->engine || strcmp(info->engine, "perjoule") == 0) return;
    pj_print(stdout, "%-12s %s (scope %s, level %s%s%s)\n", "engine", pj_safe(info->engine).s,
             pj_safe(info->scope).s, info->level ? pj_safe(info->level).s : "unknown",
             rule ? "; energy shared by the rule " : "", pj_safe(rule).s);
}

/* Total and interval, or why there is none and what it was at most. */
static void show_energy(const pj_run_info *info)
{
    const char *sources = info->power_sources ? info->power_sources : "";
    pj_print(stdout, "%-12s %s (%s%s%s)\n", "energy", interval(info->total_mj, info->total_sd_mj).s,
             pj_quality_name(info->quality), *sources ? ", " : "", pj_safe(sources).s);
    if (!isnan(info->total_mj)) return;
    pj_print(stdout, "%-12s %s", "", pj_absence_text(pj_absence_name(info->absence)));
    if (!isnan(info->upper_mj)) pj_print(stdout, "; at most %s", energy(info->upper_mj).s);
    putchar('\n');
}

/* Rails in the order of the store, with the time between their readings. */
static void show_rails(const pj_run_data *run)
{
    pj_buffer line;
    pj_buffer_init(&line, PJ_MAX_RAILS * 96);
    for (uint32_t i = 0; i < run->rail_count; i++) {
        const pj_rail *r = &run->rails[i];
        pj_buffer_printf(&line, "%s%s", i ? ", " : "", pj_safe(r->name).s);
        if (r->period_ns)
            pj_buffer_printf(&line, " every %s", pj_time_text((double)r->period_ns * 1e-6).s);
    }
    show_print_line("rails", pj_buffer_get(&line));
    pj_buffer_fini(&line);
}

static void show_token_counts(const pj_run_data *run)
{
    const pj_run_info *info = &run->info;
    char input[32] = "unknown", output[32] = "unknown";
    bool is_counted = true;
    if (!info->input_tokens && !info->output_tokens) return; /* a program that reports none */
    for (uint32_t i = 0; i < run->warning_count; i++)
        is_counted &= strcmp(run->warnings[i].code, "tokens_approximate") != 0;
    if (info->input_tokens)
        snprintf(input, sizeof input, "%llu", (unsigned long long)info->input_tokens);
    if (info->output_tokens || is_counted)
        snprintf(output, sizeof output, "%llu", (unsigned long long)info->output_tokens);
    pj_print(stdout, "%-12s %s in, %s out\n", "tokens", input, output);
}

/* A document as prompt would push everything else off the screen. */
static void print_prompt(const char *prompt)
{
    enum { MOST_BYTES = 1000 };
    size_t bytes = prompt ? strlen(prompt) : 0;
    if (bytes <= MOST_BYTES) {
        show_print_line("prompt", prompt);
        return;
    }
    char text[MOST_BYTES + 64];
    size_t kept = pj_utf8_cut(prompt, bytes, MOST_BYTES);
    memcpy(text, prompt, kept);
    snprintf(text + kept, sizeof text - kept, "... (%zu more bytes, see --json)", bytes - kept);
    show_print_line("prompt", text);
}

static void show_identity(const pj_run_info *info)
{
    char created[40];
    pj_clock_format_iso(info->created_wall_ns, created);
    show_print_line("run", info->id);
    show_print_line("name", info->name);
    show_print_line("note", info->note);
    show_print_line("status", pj_run_status_name(info->status));
    show_print_line("failure", info->failure);
    show_print_line("created", created);
    show_engine(info);
    show_print_line("model", info->model_name);
    show_print_line("dtype", info->dtype);
    show_print_line("machine", info->machine);
    if (info->prompt_private)
        show_print_line("prompt", "(private: a hash and simple features are stored)");
    else
        print_prompt(info->prompt);
}

void pj_show_interrupted(const pj_run_info *info)
{
    show_identity(info);
    show_print_line("figures", "not recovered yet: perjoule check recovers them");
}

void pj_show_overview(const pj_show_run *run, const pj_cost_rates *rates)
{
    const pj_run_info *info = &run->data.info;
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    show_identity(info);
    show_token_counts(&run->data);
    pj_print(stdout, "%-12s %s\n", "duration", duration(info->total_ms).s);
    show_energy(info);
    show_rails(&run->data);
    show_partial(info);
    if (!isnan(info->net_mj))
        pj_print(stdout, "%-12s %s\n", "net of idle",
                 pj_signed_text(info->net_mj, info->net_sd_mj).s);
    show_print_figure("speed", ratios.tokens_per_second, "tokens/s");
    show_per_token(info, &ratios);
    show_context(&run->insight.use.context);
    show_draft(run);
    show_experts(&run->insight.use, &ratios);
    show_predicted(run->insight.outlook.predicted);
    show_published(&run->insight.outlook);
    show_price("cost", pj_cost_usd(info->total_mj, rates), info, "USD");
    show_price("CO2", pj_co2_grams(info->total_mj, rates), info, "g");
    show_devices(info);
    show_conditions(info);
    show_print_warnings(&run->data);
    print_anomalies(&run->insight);
    pj_show_phases(run);
    if (run->component_count) pj_show_components(run, UINT32_MAX);
}

/* ---- tables ---- */

void pj_show_hidden(uint32_t count, uint32_t limit)
{
    uint32_t hidden = count > limit ? count - limit : 0;
    if (hidden) pj_print(stdout, "%u more row%s with --limit\n", hidden, hidden == 1 ? "" : "s");
}

static void row_of_phase(pj_show_table *t, const char *name, const char *section, double ms,
                         double mj, double sd, const char *method)
{
    pj_show_cell(t, name);
    pj_show_cell(t, section);
    pj_show_cell(t, "");
    cell_of_duration(t, ms);
    cell_of_interval(t, mj, sd);
    pj_show_cell(t, method);
}

/* What a program does that reports no phases is stored as the phase before the prompt, which it
 * does not have. */
static bool is_one_piece(const pj_run_data *run)
{
    bool one = strcmp(run->info.engine ? run->info.engine : "", "exec") == 0;
    for (uint32_t i = 0; i < run->phase_count; i++)
        one &=
            run->phases[i].phase == PJ_PHASE_PRE_INFERENCE || run->phases[i].phase == PJ_PHASE_IDLE;
    return one;
}

/* Returns how many sections the phase has. */
static uint32_t print_sections(const pj_show_run *run, uint32_t phase, pj_show_table *t)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->section_count; i++) {
        const pj_section_sum *sum = &run->sections[i];
        if (sum->phase != phase) continue;
        count++;
        if (!t) continue;
        pj_show_cell(t, "");
        pj_show_cell(t, pj_safe(sum->name).s);
        pj_show_number(t, sum->count);
        cell_of_duration(t, sum->duration_ms);
        cell_of_interval(t, sum->energy_mj, sum->energy_sd_mj);
        pj_show_cell(t, "");
    }
    return count;
}

void pj_show_phases(const pj_show_run *run)
{
    static const pj_show_column columns[] = {{"phase", -14, 0},
                                             {"section", -18, 0},
                                             {"count", 5, 2},
                                             {"duration", 9, 1},
                                             {"energy", 20, 0},
                                             {"", -9, 3},
                                             {0}};
    double idle_ms = 0, idle_mj = 0, variance = 0, gain = pj_run_gain_sd(&run->data.info);
    const pj_phase_row *idle = NULL;
    bool one_piece = is_one_piece(&run->data);
    pj_show_table t;
    pj_show_table_begin(&t, columns);
    for (uint32_t i = 0; i < run->data.phase_count; i++) {
        const pj_phase_row *p = &run->data.phases[i];
        double mj = pj_mj_of_nj(p->energy.gross_nj);
        double sd = pj_sd_without_gain(mj, (double)p->energy.sd_mj, gain);
        if (p->phase == PJ_PHASE_IDLE && !print_sections(run, i, NULL)) {
            /* Idle time between phases comes in many pieces: one line for all of them, last. */
            if (!idle) idle = p;
            idle_ms += p->duration_ms;
            idle_mj += mj;
            variance += sd * sd;
            continue;
        }
        bool is_program = one_piece && p->phase == PJ_PHASE_PRE_INFERENCE;
        row_of_phase(&t, is_program ? "program" : pj_phase_name(p->phase), "", p->duration_ms, mj,
                     sd, pj_method_name(p->energy.method));
        print_sections(run, i, &t);
    }
    if (idle)
        row_of_phase(&t, "idle", "", idle_ms, idle_mj, sqrt(variance),
                     pj_method_name(idle->energy.method));
    if (run->data.info.disturbed.ms > 0)
        row_of_phase(&t, "", "of it disturbed", run->data.info.disturbed.ms,
                     run->data.info.disturbed.mj, NAN, "");
    pj_show_table_end(&t);
    pj_gain_note_print(stdout, "", gain);
}

void pj_show_layers(const pj_show_run *run, uint32_t limit)
{
    static const pj_show_column columns[] = {{"layer", 5, 0},   {"duration", 10, 1},
                                             {"energy", 20, 0}, {"attention", 20, 2},
                                             {"mlp", 20, 2},    {0}},
                                times[] = {{"layer", 5, 0},
                                           {"duration", 10, 0},
                                           {"attention", 10, 0},
                                           {"mlp", 10, 0},
                                           {0}};
    const pj_layer_sum *layers = run->layers;
    uint32_t count = run->layer_count, shown = count < limit ? count : limit;
    if (!count) {
        pj_print(stdout, "\nno layers: only runs of depth module and deep record them\n");
        return;
    }
    bool joules = run->data.info.quality != PJ_UNAVAILABLE;
    double gain = pj_run_gain_sd(&run->data.info);
    pj_show_table t;
    pj_show_table_begin(&t, joules ? columns : times);
    for (uint32_t l = 0; l < shown; l++) {
        const pj_layer_sum *sum = &layers[l];
        pj_show_number(&t, l);
        cell_of_duration(&t, sum->time_ms);
        if (joules) {
            cell_of_varied(&t, sum->energy_mj, sum->energy_sd_mj, gain);
            cell_of_varied(&t, sum->attention_mj, sum->attention_sd_mj, gain);
            cell_of_varied(&t, sum->mlp_mj, sum->mlp_sd_mj, gain);
        } else {
            cell_of_duration(&t, sum->attention_ms);
            cell_of_duration(&t, sum->mlp_ms);
        }
    }
    pj_show_table_end(&t);
    pj_show_hidden(count, limit);
    pj_gain_note_print(stdout, "", joules ? gain : 0);
}

/* Components are without disturbances, which are a row of their own. */
static void row_of_disturbances(pj_show_table *t, const pj_run_info *info)
{
    if (!(info->disturbed.ms > 0)) return;
    bool joules = !isnan(info->disturbed.mj);
    double share =
        joules ? info->disturbed.mj / info->total_mj : info->disturbed.ms / info->total_ms;
    pj_show_cell(t, "disturbed");
    pj_show_cell(t, "");
    cell_of_duration(t, info->disturbed.ms);
    cell_of_interval(t, info->disturbed.mj, NAN);
    pj_show_cell(t, pj_number_text("%.1f %%", share * 100).s);
    pj_show_cell(t, "");
}

void pj_show_components(const pj_show_run *run, uint32_t limit)
{
    static const pj_show_column columns[] = {{"component", -24, 0},
                                             {"count", 7, 3},
                                             {"duration", 10, 1},
                                             {"energy", 20, 0},
                                             {"share", 7, 2},
                                             {"GB/s", 7, 4},
                                             {0}};
    uint32_t count = run->component_count, shown = count < limit ? count : limit;
    if (!count) {
        pj_print(stdout, "\nno components: only runs of depth module and deep record them\n");
        return;
    }
    double gain = pj_run_gain_sd(&run->data.info);
    pj_show_table t;
    pj_show_table_begin(&t, columns);
    for (uint32_t i = 0; i < shown; i++) {
        const pj_component_sum *c = &run->components[i];
        double speed = c->time_ms > 0 ? c->bytes / c->time_ms / 1e6 : NAN;
        pj_show_cell(&t, pj_safe(c->name).s);
        pj_show_number(&t, c->count);
        cell_of_duration(&t, c->time_ms);
        cell_of_varied(&t, c->energy_mj, c->energy_sd_mj, gain);
        pj_show_cell(&t, pj_number_text("%.1f %%", c->share * 100).s);
        pj_show_cell(&t, pj_number_text("%.2f", speed).s);
    }
    row_of_disturbances(&t, &run->data.info);
    pj_show_table_end(&t);
    pj_show_hidden(count, limit);
}

static bool is_decode(const pj_run_data *run, const pj_token_row *token)
{
    return token->phase < run->phase_count && run->phases[token->phase].phase == PJ_PHASE_DECODE;
}

/* "|text|", its line breaks as \n. */
static void cell_of_text(pj_show_table *t, const pj_token_row *token)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 16);
    pj_buffer_char(&text, '|');
    for (const char *p = token->text ? token->text : ""; *p;) {
        size_t bytes = strcspn(p, "\n");
        char piece[128];
        snprintf(piece, sizeof piece, "%.*s", (int)(bytes < 100 ? bytes : 100), p);
        pj_buffer_text(&text, pj_safe(piece).s);
        p += bytes;
        if (*p) pj_buffer_text(&text, "\\n");
        if (*p) p++;
    }
    pj_buffer_printf(&text, "|%s", token->disturbed > 0 ? " disturbed" : "");
    pj_show_cell(t, pj_buffer_get(&text));
    pj_buffer_fini(&text);
}

void pj_show_tokens(const pj_run_data *run, uint32_t limit)
{
    static const pj_show_column columns[] = {
        {"token", 5, 0},     {"position", 8, 3}, {"seq", 3, 4},   {"phase", -8, 2},
        {"duration", 10, 1}, {"energy", 20, 0},  {"text", -8, 0}, {0}};
    uint32_t shown = run->token_count < limit ? run->token_count : limit;
    double gain = pj_run_gain_sd(&run->info);
    pj_show_table table;
    pj_show_table_begin(&table, columns);
    for (uint32_t i = 0; i < shown; i++) {
        const pj_token_row *t = &run->tokens[i];
        pj_show_number(&table, i);
        pj_show_number(&table, t->position);
        pj_show_number(&table, t->sequence);
        pj_show_cell(&table,
                     t->phase < run->phase_count ? pj_phase_name(run->phases[t->phase].phase) : "");
        cell_of_duration(&table, t->duration_ms);
        cell_of_varied(&table, pj_mj_of_nj(t->energy.gross_nj), (double)t->energy.sd_mj, gain);
        cell_of_text(&table, t);
    }
    pj_show_table_end(&table);
    pj_show_hidden(run->token_count, limit);
    pj_gain_note_print(stdout, "", gain);
}

void pj_show_sparkline(const pj_run_data *run)
{
    enum { MOST = 4096 };
    static double values[MOST];
    char text[MOST];
    size_t n = 0;
    bool joules = run->info.quality != PJ_UNAVAILABLE;
    for (uint32_t i = 0; i < run->token_count && n < MOST; i++) {
        const pj_token_row *t = &run->tokens[i];
        if (is_decode(run, t))
            values[n++] = joules ? pj_mj_of_nj(t->energy.gross_nj) : t->duration_ms;
    }
    if (n == 0) return;
    pj_sparkline(values, n, pj_terminal_width(stdout) - 2, 0, text, sizeof text);
    show_print_head(joules ? "energy of each decode token" : "duration of each decode token");
    pj_print(stdout, "%s\n", text);
}

void pj_show_part(void *context, const pj_part_figures *p)
{
    static const pj_show_column columns[] = {{"component", -24, 0},
                                             {"operation", -11, 0},
                                             {"layer", 5, 3},
                                             {"count", 5, 2},
                                             {"duration", 10, 1},
                                             {"energy", 20, 0},
                                             {0}};
    pj_show_parts *parts = context;
    pj_show_table *t = &parts->table;
    int32_t index = p->layer == PJ_ANY ? parts->choice->layer : p->layer;
    char layer[16] = "all";
    if (parts->count++ == 0) pj_show_table_begin(t, columns);
    if (parts->count > parts->limit) return;
    if (p->layer == -1)
        snprintf(layer, sizeof layer, "-");
    else if (index != PJ_ANY)
        snprintf(layer, sizeof layer, "%d", index);
    pj_show_cell(t, pj_safe(p->component).s);
    pj_show_cell(t, pj_safe(p->operation).s);
    pj_show_cell(t, layer);
    pj_show_number(t, p->count);
    cell_of_duration(t, p->time_ms);
    cell_of_interval(t, p->energy_mj, p->energy_sd_mj);
}

/* ---- heatmap ---- */

static void show_print_cell(double value, double low, double high)
{
    static const char *const shades[] = {" ", "░", "▒", "▓", "█"};
    double share = high > low ? (value - low) / (high - low) : 0.5;
    int level = (int)(share * 4.999);
    for (int i = 0; i < 3; i++) fputs(isnan(value) ? (i == 1 ? "." : " ") : shades[level], stdout);
}

/* Numbers the columns, and then names them, wrapped to the terminal's width: "1 q_proj, 2 ..." */
static void print_columns(const pj_heatmap *m, uint32_t count)
{
    int width = pj_terminal_width(stdout), at = width;
    pj_print(stdout, "     ");
    for (uint32_t i = 1; i <= count; i++) pj_print(stdout, "%2u ", i);
    for (uint32_t c = 0, i = 1; c < m->components; c++) {
        char text[300];
        if (!m->inside[c]) continue;
        int n = snprintf(text, sizeof text, "%u %s%s", i, pj_safe(m->names[c]).s,
                         i < count ? ", " : "");
        if (at + n > width) {
            pj_print(stdout, "\n     ");
            at = 5;
        }
        fputs(text, stdout);
        at += n;
        i++;
    }
    putchar('\n');
}

void pj_show_heatmap(const pj_heatmap *m, pj_metric metric)
{
    const pj_metric_info *what = &pj_metric_table[metric];
    uint32_t columns = 0;
    for (uint32_t c = 0; c < m->components; c++) columns += m->inside[c];
    if (!columns) {
        pj_print(
            stdout,
            "\nno heatmap: the run has no components in layers, which only depth module and deep "
            "record\n");
        return;
    }
    if (isnan(m->min)) {
        pj_print(stdout, "\nno heatmap: %s is unavailable for this selection\n", what->name);
        return;
    }
    pj_print(stdout, "\n%s%s by layer and component%s (%s): %.4g to %.4g %s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), what->name, pj_style_off(stdout), what->aggregate,
             m->min, m->max, what->unit);
    for (uint32_t l = 0; l < m->layers; l++) {
        pj_print(stdout, "%4u ", l);
        for (uint32_t c = 0; c < m->components; c++)
            if (m->inside[c]) show_print_cell(m->values[l * m->components + c], m->min, m->max);
        putchar('\n');
    }
    print_columns(m, columns);
}
