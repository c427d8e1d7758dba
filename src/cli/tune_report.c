/* What `perjoule tune` prints. */
#include "cli/tune.h"

#include <math.h>
#include <string.h>

static const char *const part_names[] = {"prefill", "decode", "request"};

const char *pj_limit_what_name(pj_limit_what what)
{
    return what == PJ_LIMIT_POWER ? "power" : "clock";
}

static const char *limit_unit(const pj_limit *l)
{
    return l->what == PJ_LIMIT_POWER ? "W" : "MHz";
}

static double shown(const pj_limit *l, double value)
{
    return l->what == PJ_LIMIT_POWER ? value / 1e3 : value;
}

pj_text pj_tune_setting_text(const pj_limit *l, double value)
{
    pj_text text;
    if (isnan(value))
        snprintf(text.s, sizeof text.s, "-");
    else
        snprintf(text.s, sizeof text.s, "%.4g %s", shown(l, value), limit_unit(l));
    return text;
}

/* ---- what can be set ---- */

pj_text pj_tune_bounds_text(const pj_limit *l)
{
    pj_text text;
    if (isnan(l->least) && isnan(l->most))
        snprintf(text.s, sizeof text.s, "-");
    else if (isnan(l->least))
        snprintf(text.s, sizeof text.s, "to %s", pj_tune_setting_text(l, l->most).s);
    else
        snprintf(text.s, sizeof text.s, "%.4g to %s", shown(l, l->least),
                 pj_tune_setting_text(l, l->most).s);
    return text;
}

void pj_tune_survey_print(const pj_limits *limits, FILE *out)
{
    pj_print(out, "%s%-10s %-6s %9s %9s  %-18s %s%s\n", pj_style_on(out, PJ_STYLE_BOLD), "device",
             "limit", "now", "default", "bounds", "name", pj_style_off(out));
    for (uint32_t i = 0; i < limits->count; i++) {
        const pj_limit *l = &limits->items[i];
        pj_print(out, "%-10s %-6s %9s %9s  %-18s %s\n", pj_safe(l->device).s,
                 pj_limit_what_name(l->what), pj_tune_setting_text(l, l->now).s,
                 pj_tune_setting_text(l, l->usual).s, pj_tune_bounds_text(l).s, pj_safe(l->name).s);
    }
    for (uint32_t i = 0; i < limits->count; i++) {
        const pj_limit *l = &limits->items[i];
        if (!l->settable)
            pj_print(out, "%s %s: not settable: %s\n", pj_safe(l->device).s,
                     pj_limit_what_name(l->what), pj_safe(l->reason).s);
    }
    pj_print(out,
             "Nothing was changed. To measure under several limits, which are restored "
             "afterwards:\n"
             "  perjoule tune --apply --device %s --limit %s -- COMMAND\n",
             pj_safe(limits->items[0].device).s, pj_limit_what_name(limits->items[0].what));
}

static const char *json_unit(const pj_limit *l)
{
    return l->what == PJ_LIMIT_POWER ? "mW" : "MHz";
}

void pj_tune_survey_write(const pj_limits *limits, pj_json *json)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < limits->count; i++) {
        const pj_limit *l = &limits->items[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "device", l->device);
        pj_json_kv_string(json, "limit", pj_limit_what_name(l->what));
        pj_json_kv_string(json, "name", l->name[0] ? l->name : NULL);
        pj_json_kv_string(json, "unit", json_unit(l));
        pj_json_kv_double(json, "now", l->now);
        pj_json_kv_double(json, "default", l->usual);
        pj_json_kv_double(json, "least", l->least);
        pj_json_kv_double(json, "most", l->most);
        pj_json_kv_bool(json, "settable", l->settable);
        pj_json_kv_string(json, "reason", l->settable ? NULL : l->reason);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

/* ---- a sweep ---- */

static bool is_measured(const pj_tune *t, int part)
{
    return t->results[part].known;
}

static const char *part_name(const pj_tune *t, int part)
{
    return part == PJ_TUNE_REQUEST && !t->tokens ? "run" : part_names[part];
}

static void print_sweep_table(const pj_tune *t, FILE *out)
{
    pj_print(out, "%s%-9s", pj_style_on(out, PJ_STYLE_BOLD), pj_limit_what_name(t->limit->what));
    for (int part = 0; part < PJ_TUNE_PARTS; part++)
        if (is_measured(t, part))
            pj_print(out, "  %10s %11s", part_name(t, part), t->tokens ? "tokens/s" : "runs/s");
    pj_print(out, "%s\n", pj_style_off(out));
    for (uint32_t i = t->setting_count; i-- > 0;) {
        pj_print(out, "%-9s", pj_tune_setting_text(t->limit, t->settings[i]).s);
        for (int part = 0; part < PJ_TUNE_PARTS; part++) {
            const pj_sweep_point *p = &t->results[part].points[i];
            if (is_measured(t, part))
                pj_print(out, "  %10s %11s", pj_energy_text(p->joules * 1e3).s,
                         pj_number_text("%.4g", p->speed).s);
        }
        pj_print(out, "\n");
    }
    char partial[512] = "";
    bool is_partial = pj_gate_partial(&t->runs.energy, partial, sizeof partial);
    pj_print(out, "%s; means of %u blocks, %s%s%s\n",
             t->tokens ? "energy per token (of prefill: per input token)" : "energy per run",
             t->block_count, t->runs.energy.source, is_partial ? ", partial: " : "", partial);
}

static pj_text ratio_text(const pj_ratio *r)
{
    pj_text text;
    snprintf(text.s, sizeof text.s, "%.3g (%.3g to %.3g)", r->ratio, r->lo, r->hi);
    return text;
}

static void print_part(const pj_tune *t, int part, FILE *out)
{
    const pj_sweep_result *r = &t->results[part];
    const pj_sweep_point *best = &r->points[r->best];
    pj_text top = pj_tune_setting_text(t->limit, t->settings[t->setting_count - 1]);
    pj_text chosen = pj_tune_setting_text(t->limit, t->settings[r->best]);
    const char *name = part_name(t, part);
    if (r->saves) {
        pj_print(out,
                 "%s: %s takes %s times the joules of %s at %s times its speed\n"
                 "%*s  best in %.0f %% of resampled blocks; in 95 %% of them between %s and %s\n",
                 name, chosen.s, ratio_text(&best->cost).s, top.s, ratio_text(&best->pace).s,
                 (int)strlen(name), "", 100 * r->chosen_share,
                 pj_tune_setting_text(t->limit, r->lo).s, pj_tune_setting_text(t->limit, r->hi).s);
    } else if (r->best + 1 < t->setting_count) {
        pj_print(out, "%s: no saving is certain; %s takes %s times the joules of %s\n", name,
                 chosen.s, ratio_text(&best->cost).s, top.s);
    } else {
        pj_print(out, "%s: keep %s; nothing below saves joules within %.2g %% of its speed\n", name,
                 top.s, 100 * t->most_loss);
    }
}

static void commands_of(const pj_tune *t, pj_buffer *set, pj_buffer *reset)
{
    const pj_sweep_result *r = &t->results[PJ_TUNE_REQUEST];
    pj_buffer_init(set, 1 << 20);
    pj_buffer_init(reset, 1 << 20);
    if (!r->saves) return;
    pj_limit_command(t->limits, t->limit, t->settings[r->best], set);
    pj_limit_command(t->limits, t->limit, NAN, reset);
}

void pj_tune_print(const pj_tune *t, FILE *out)
{
    pj_buffer set, reset;
    print_sweep_table(t, out);
    for (int part = 0; part < PJ_TUNE_PARTS; part++)
        if (is_measured(t, part)) print_part(t, part, out);
    commands_of(t, &set, &reset);
    if (set.length)
        pj_print(out, "set:   %s\nreset: %s\n", pj_buffer_get(&set), pj_buffer_get(&reset));
    pj_buffer_fini(&set);
    pj_buffer_fini(&reset);
    if (t->runs.disturbed)
        pj_say("%u of %u runs were disturbed by other load", t->runs.disturbed, t->runs.count);
}

static void write_ratio(pj_json *json, const char *name, const pj_ratio *r)
{
    pj_json_kv_object_begin(json, name);
    pj_json_kv_double(json, "value", r->ratio);
    pj_json_kv_double(json, "lo", r->lo);
    pj_json_kv_double(json, "hi", r->hi);
    pj_json_object_end(json);
}

static void write_part(const pj_tune *t, int part, pj_json *json)
{
    const pj_sweep_result *r = &t->results[part];
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", part_name(t, part));
    pj_json_kv_double(json, "best", t->settings[r->best]);
    pj_json_kv_bool(json, "saves", r->saves);
    pj_json_kv_double(json, "chosen_share", r->chosen_share);
    pj_json_kv_double(json, "best_lo", r->lo);
    pj_json_kv_double(json, "best_hi", r->hi);
    pj_json_kv_array_begin(json, "settings");
    for (uint32_t i = 0; i < t->setting_count; i++) {
        const pj_sweep_point *p = &r->points[i];
        pj_json_object_begin(json);
        pj_json_kv_double(json, "setting", t->settings[i]);
        pj_json_kv_double(json, t->tokens ? "joules_per_token" : "joules", p->joules);
        pj_json_kv_double(json, t->tokens ? "tokens_per_second" : "runs_per_second", p->speed);
        write_ratio(json, "cost_ratio", &p->cost);
        write_ratio(json, "speed_ratio", &p->pace);
        pj_json_kv_bool(json, "fast_enough", p->fast_enough);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_tune_write(const pj_tune *t, pj_json *json)
{
    char partial[512];
    pj_buffer set, reset;
    commands_of(t, &set, &reset);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "device", t->limit->device);
    pj_json_kv_string(json, "limit", pj_limit_what_name(t->limit->what));
    pj_json_kv_string(json, "unit", json_unit(t->limit));
    pj_json_kv_double(json, "former", t->limit->now);
    pj_json_kv_uint(json, "blocks", t->block_count);
    pj_json_kv_string(json, "energy_source", t->runs.energy.source);
    pj_json_kv_string(json, "partial", pj_gate_partial(&t->runs.energy, partial, sizeof partial));
    pj_json_kv_uint(json, "disturbed_runs", t->runs.disturbed);
    pj_json_kv_array_begin(json, "parts");
    for (int part = 0; part < PJ_TUNE_PARTS; part++)
        if (is_measured(t, part)) write_part(t, part, json);
    pj_json_array_end(json);
    pj_json_kv_string(json, "set_command", set.length ? pj_buffer_get(&set) : NULL);
    pj_json_kv_string(json, "reset_command", reset.length ? pj_buffer_get(&reset) : NULL);
    pj_json_object_end(json);
    pj_buffer_fini(&set);
    pj_buffer_fini(&reset);
}
