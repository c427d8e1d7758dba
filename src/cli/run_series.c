/* Statistics of repeated runs: mean, standard deviation and 95 % interval of the mean, for figures
 * of the run, its phases and its components. */
#include "cli/run_parts.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

static pj_series_figure *series_figure_of(pj_series *series, pj_series_group group,
                                          const char *part, const char *name, const char *unit)
{
    for (uint32_t i = 0; i < series->count; i++) {
        pj_series_figure *f = &series->figures[i];
        if (f->group == group && strcmp(f->name, name) == 0 &&
            strncmp(f->part, part, sizeof f->part - 1) == 0)
            return f;
    }
    if (series->count == PJ_SERIES_FIGURES) return NULL;
    pj_series_figure *f = &series->figures[series->count++];
    *f = (pj_series_figure){.group = group, .name = name, .unit = unit};
    snprintf(f->part, sizeof f->part, "%s", part);
    return f;
}

static void series_add(pj_series *series, pj_series_group group, const char *part, const char *name,
                       const char *unit, double value)
{
    pj_series_figure *f = series_figure_of(series, group, part, name, unit);
    if (!f || isnan(value)) return;
    pj_moments_add(&f->moments, value);
}

static void add_parts(pj_series *series, pj_series_group group, const pj_run_parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        const pj_run_part *p = &parts->items[i];
        series_add(series, group, p->name, "duration_ms", "ms", p->ms);
        series_add(series, group, p->name, "energy_mj", "mJ", p->gross_mj);
        if (group == PJ_SERIES_PHASE)
            series_add(series, group, p->name, "net_energy_mj", "mJ", p->net_mj);
    }
}

static void series_add_run(pj_series *series, const pj_run_info *info)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    const struct {
        const char *name, *unit;
        double value;
    } figures[] = {
        {"total_duration_ms", "ms", info->total_ms},
        {"prefill_tokens_per_second", "tokens/s", r.prefill_tokens_per_second},
        {"tokens_per_second", "tokens/s", r.tokens_per_second},
        {"total_energy_mj", "mJ", info->total_mj},
        {"idle_energy_mj", "mJ", info->idle_mj},
        {"net_energy_mj", "mJ", info->net_mj},
        {"request_energy_mj", "mJ", info->request_mj},
        {"model_load_energy_mj", "mJ", info->model_load_mj},
        {"joules_per_token", "J", r.joules_per_token},
        {"joules_per_token_typical", "J", r.joules_per_token_typical},
        {"joules_per_token_net", "J", r.joules_per_token_net},
        {"joules_per_input_token", "J", r.joules_per_input_token},
        {"joules_per_output_token", "J", r.joules_per_output_token},
        {"tokens_per_joule", "1/J", r.tokens_per_joule},
        {"energy_delay_product", "J s", r.energy_delay_product},
        {"mean_power_mw", "mW", r.mean_power_mw},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        series_add(series, PJ_SERIES_RUN, "", figures[i].name, figures[i].unit, figures[i].value);
}

void pj_series_add(pj_series *series, const pj_run_data *run)
{
    pj_run_parts parts;
    series->runs++;
    series->gain_sd = fmax(series->gain_sd, pj_run_gain_sd(&run->info));
    series_add_run(series, &run->info);
    pj_run_parts_phases(&parts, run);
    add_parts(series, PJ_SERIES_PHASE, &parts);
    pj_run_parts_components(&parts, run);
    add_parts(series, PJ_SERIES_COMPONENT, &parts);
}

/* Energy above idle: the idle baseline is a measurement with an error of its own. */
static bool may_be_negative(const pj_series_figure *f)
{
    return strcmp(f->name, "net_energy_mj") == 0 || strcmp(f->name, "joules_per_token_net") == 0;
}

void pj_series_finish(pj_series *series)
{
    for (uint32_t i = 0; i < series->count; i++) {
        pj_series_figure *f = &series->figures[i];
        f->mean = pj_mean_of(&f->moments, may_be_negative(f));
    }
}

static void series_print_figure(FILE *out, const pj_series_figure *f)
{
    enum { NAME_AND_VALUE = 59 };
    char label[96];
    pj_text value;
    const pj_mean *m = &f->mean;
    snprintf(label, sizeof label, "%s%s%s", f->part, *f->part ? " " : "", f->name);
    size_t used = pj_estimate_write(m->value, (pj_bounds){m->lo, m->hi}, value.s, sizeof value.s);
    snprintf(value.s + used, sizeof value.s - used, " %s", f->unit);
    int rest = NAME_AND_VALUE - (int)strlen(label); /* a long name has a short value */
    pj_print(out, "  %s%s  n %u", label, pj_padded(rest > 0 ? rest : 0, value).s, m->n);
    pj_digits_write(m->sd, 2, value.s, sizeof value.s);
    pj_print(out, m->n > 1 ? "  sd %s\n" : "\n", value.s);
}

/* The components with the most energy, or time where energy is unknown. */
static void print_components(FILE *out, const pj_series *series)
{
    enum { HOTTEST = 8 };
    bool shown[PJ_SERIES_FIGURES] = {false}, joules = false;
    for (uint32_t i = 0; i < series->count; i++) {
        const pj_series_figure *f = &series->figures[i];
        joules |=
            f->group == PJ_SERIES_COMPONENT && f->moments.n && strcmp(f->name, "energy_mj") == 0;
    }
    for (int k = 0; k < HOTTEST; k++) {
        const pj_series_figure *best = NULL;
        for (uint32_t i = 0; i < series->count; i++) {
            const pj_series_figure *f = &series->figures[i];
            if (f->group == PJ_SERIES_COMPONENT && !shown[i] && f->moments.n &&
                strcmp(f->name, joules ? "energy_mj" : "duration_ms") == 0 &&
                (!best || f->mean.value > best->mean.value))
                best = f;
        }
        if (!best) return;
        shown[best - series->figures] = true;
        series_print_figure(out, best);
    }
}

void pj_series_print(FILE *out, const pj_series *series)
{
    pj_print(out,
             "\n%u runs: mean with its 95 %% interval, number of values (n), standard deviation\n",
             series->runs);
    for (uint32_t i = 0; i < series->count; i++)
        if (series->figures[i].group != PJ_SERIES_COMPONENT && series->figures[i].moments.n)
            series_print_figure(out, &series->figures[i]);
    print_components(out, series);
    pj_gain_of_rows_print(out, "  ", series->gain_sd);
}

static void series_write_figure(pj_json *json, const pj_series_figure *f)
{
    pj_json_kv_object_begin(json, f->name);
    pj_json_kv_uint(json, "n", f->mean.n);
    pj_json_kv_double(json, "mean", f->mean.value);
    pj_json_kv_double(json, "sd", f->mean.sd);
    pj_json_kv_double(json, "low", f->mean.lo);
    pj_json_kv_double(json, "high", f->mean.hi);
    pj_json_object_end(json);
}

/* Writes one object per part; the figures of a part are consecutive. */
static void write_group(pj_json *json, const pj_series *series, pj_series_group group,
                        const char *key)
{
    const char *part = NULL;
    pj_json_kv_object_begin(json, key);
    for (uint32_t i = 0; i < series->count; i++) {
        const pj_series_figure *f = &series->figures[i];
        if (f->group != group) continue;
        if (!part || strcmp(part, f->part) != 0) {
            if (part) pj_json_object_end(json);
            pj_json_kv_object_begin(json, f->part);
            part = f->part;
        }
        series_write_figure(json, f);
    }
    if (part) pj_json_object_end(json);
    pj_json_object_end(json);
}

void pj_series_write(pj_json *json, const pj_series *series)
{
    pj_json_object_begin(json);
    for (uint32_t i = 0; i < series->count; i++)
        if (series->figures[i].group == PJ_SERIES_RUN)
            series_write_figure(json, &series->figures[i]);
    write_group(json, series, PJ_SERIES_PHASE, "phases");
    write_group(json, series, PJ_SERIES_COMPONENT, "components");
    pj_json_object_end(json);
}
