#include "cli/run_answer.h"

#include "base/buffer.h"
#include "cli/run_parts.h"
#include "cli/terminal.h"
#include "cli/wrap.h"
#include "trace/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* MOST_LINES below the parts, of which the last names the run. */
enum { HOTTEST = 4, MOST_LINES = 12, LABEL = 12, NARROWEST = 40, WIDEST = 100, BAR = 20 };

#define LEAST_DISTURBED 0.01 /* of the run: below, it is not worth a word */

static int answer_width(FILE *out)
{
    int width = pj_terminal_width(out);
    return width < NARROWEST ? NARROWEST : width > WIDEST ? WIDEST : width;
}

/* Lines that are too long go on at column `indent`. */
__attribute__((format(printf, 3, 0))) static void print_formatted(FILE *out, int indent,
                                                                  const char *format, va_list args)
{
    char text[4096];
    vsnprintf(text, sizeof text, format, args);
    pj_print(out, "  ");
    pj_print_wrapped(out, text, 2, indent, answer_width(out));
}

/* A line that begins with a label. */
__attribute__((format(printf, 2, 3))) static void print_line(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_formatted(out, 2 + LABEL, format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static void print_headline(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_formatted(out, 4, format, args);
    va_end(args);
}

/* ---- the headline ---- */

/* How far the figures can be trusted: ", modelled (estimate); partial: CPU only, GPU missing". */
static void trust_text(const pj_run_info *info, char *text, size_t bytes)
{
    char partial[256];
    double disturbed = info->disturbed.mj / info->total_mj;
    size_t used = (size_t)snprintf(text, bytes, "%s", pj_quality_name(info->quality));
    if (info->power_sources)
        used += (size_t)snprintf(text + used, bytes - used, " (%.60s)", info->power_sources);
    if (disturbed >= LEAST_DISTURBED)
        used += (size_t)snprintf(text + used, bytes - used, "; %.0f %% of the energy is disturbed",
                                 100 * disturbed);
    if (!info->partial_rails) return;
    pj_partial_text(info->total_rails, info->partial_rails, partial, sizeof partial);
    snprintf(text + used, bytes - used, "; partial: %s", partial);
}

static void print_no_energy(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    bool explained = info->absence <= PJ_ABSENT_NO_SENSOR; /* by a warning */
    for (uint32_t i = 0; i < d->warning_count; i++)
        explained |= strcmp(d->warnings[i].code, "below_resolution") == 0;
    char upper[80] = "";
    if (!isnan(info->upper_mj))
        snprintf(upper, sizeof upper, "; at most %s", pj_energy_text(info->upper_mj).s);
    print_headline(out, "energy is unavailable%s%s%s", explained ? "" : ": ",
                   explained ? "" : pj_absence_text(pj_absence_name(info->absence)), upper);
}

static void print_joules(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    pj_run_ratios r;
    char trust[512];
    pj_run_ratios_get(info, &r);
    bool typical = !isnan(r.joules_per_token_typical);
    double mj = 1e3 * (typical ? r.joules_per_token_typical : r.joules_per_token);
    double sd_mj = 1e3 * (typical ? r.joules_per_token_typical_sd : r.joules_per_token_sd);
    trust_text(info, trust, sizeof trust);
    if (isnan(info->total_mj))
        print_no_energy(out, d);
    else if (isnan(mj))
        print_headline(out, "%s%s%s in all, %s", pj_style_on(out, PJ_STYLE_GREEN),
                       pj_interval_text(info->total_mj, info->total_sd_mj).s, pj_style_off(out),
                       trust);
    else
        print_headline(out, "%s%s per token%s, %s, %s", pj_style_on(out, PJ_STYLE_GREEN),
                       pj_interval_text(mj, sd_mj).s, pj_style_off(out),
                       typical ? "typical" : "on average", trust);
}

/* Four digits. */
static pj_text speed_text(double speed)
{
    return pj_number_text(speed < 1000 ? "%.4g tokens/s" : "%.0f tokens/s", speed);
}

static void print_speeds(FILE *out, const pj_run_info *info)
{
    pj_run_ratios r;
    char input[32] = "unknown", speeds[160] = "";
    size_t used = 0;
    pj_run_ratios_get(info, &r);
    if (info->input_tokens)
        snprintf(input, sizeof input, "%llu", (unsigned long long)info->input_tokens);
    if (!isnan(r.tokens_per_second))
        used = (size_t)snprintf(speeds, sizeof speeds, "%s, ", speed_text(r.tokens_per_second).s);
    if (!isnan(r.prefill_tokens_per_second))
        snprintf(speeds + used, sizeof speeds - used, "prompt at %s; ",
                 speed_text(r.prefill_tokens_per_second).s);
    print_headline(out, "%s%s token%s in, %llu out", speeds, input,
                   info->input_tokens == 1 ? "" : "s", (unsigned long long)info->output_tokens);
}

void pj_run_answer_print_headline(FILE *out, const pj_run_data *d)
{
    fputc('\n', out);
    print_joules(out, d);
    print_speeds(out, &d->info);
}

/* ---- the parts ---- */

static void print_part(FILE *out, const char *name, const pj_run_part *part, bool with_energy,
                       double share)
{
    char bar[3 * BAR + 1] = "";
    int cells = isfinite(share) ? (int)(fmax(0, fmin(share, 1)) * BAR + 0.5) : 0;
    bool narrow = answer_width(out) < 60;
    bool is_wide = answer_width(out) >= 2 + LABEL + 10 + 24 + 9 + 2 + BAR;
    for (int i = 0; is_wide && i < cells; i++) strcat(bar, "█");
    pj_text energy = pj_or_dash(part->gross_mj, pj_interval_text(part->gross_mj, part->sd_mj));
    energy = pj_padded(narrow ? 20 : 24, energy);
    pj_print(out, "  %-*.*s%s%s%s%s%s\n", narrow ? 9 : LABEL, LABEL - 1, name,
             pj_padded(narrow ? 8 : 10, pj_time_text(part->ms)).s, with_energy ? energy.s : "",
             narrow ? "" : pj_padded(9, pj_number_text("%.1f %%", 100 * share)).s, *bar ? "  " : "",
             bar);
}

/* Of energy, or where that is unknown of time. */
static double share_of(const pj_run_info *info, const pj_run_part *part)
{
    return isnan(info->total_mj) || isnan(part->gross_mj) ? part->ms / info->total_ms
                                                          : part->gross_mj / info->total_mj;
}

static void print_phases(FILE *out, const pj_run_data *d)
{
    static const struct {
        pj_phase phase;
        const char *name;
    } shown[] = {{PJ_PHASE_PRE_INFERENCE, "load"},
                 {PJ_PHASE_PREFILL, "prefill"},
                 {PJ_PHASE_DECODE, "decode"}};
    pj_run_parts phases;
    pj_run_parts_phases(&phases, d);
    pj_run_parts_drop_gain(&phases, pj_run_gain_sd(&d->info));
    for (int i = 0; i < 3; i++) {
        const pj_run_part *part = pj_run_parts_find(&phases, pj_phase_name(shown[i].phase));
        if (part)
            print_part(out, shown[i].name, part, !isnan(d->info.total_mj),
                       share_of(&d->info, part));
    }
}

/* What the rows above hold of waiting, throttling and other load, as soon as the headline says it.
 */
static void print_disturbed(FILE *out, const pj_run_info *info)
{
    pj_run_part part = {.ms = info->disturbed.ms, .gross_mj = info->disturbed.mj, .sd_mj = NAN};
    double share = share_of(info, &part);
    if (share >= LEAST_DISTURBED)
        print_part(out, "  disturbed", &part, !isnan(info->total_mj), share);
}

static int hotter_part(const void *a, const void *b)
{
    const pj_run_part *x = a, *y = b;
    bool known = !isnan(x->gross_mj) && !isnan(y->gross_mj);
    double p = known ? x->gross_mj : x->ms, q = known ? y->gross_mj : y->ms;
    return p > q ? -1 : p < q;
}

/* "hottest     attention 8.1 %, down_proj 5.9 %" */
static void print_hottest_parts(FILE *out, const pj_run_data *d)
{
    pj_run_parts parts;
    char text[512];
    pj_run_parts_components(&parts, d);
    if (!parts.count) return;
    qsort(parts.items, parts.count, sizeof *parts.items, hotter_part);
    bool timed = isnan(d->info.total_mj) || isnan(parts.items[0].gross_mj);
    size_t used = (size_t)snprintf(text, sizeof text, "%-*s", LABEL, timed ? "longest" : "hottest");
    for (uint32_t i = 0; i < parts.count && i < HOTTEST; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.32s %.1f %%", i ? ", " : "",
                                 parts.items[i].name, 100 * share_of(&d->info, &parts.items[i]));
    print_line(out, "%s", text);
}

static void print_gain(FILE *out, double gain_sd)
{
    char percent[32];
    double gain = 100 * PJ_Z95 * gain_sd;
    if (gain < 0.1) return;
    pj_digits_write(gain, 2, percent, sizeof percent);
    print_line(out,
               "%-*sleft out of these intervals: ±%s %% that all share, the sensor's calibration",
               LABEL, "", percent);
}

static void print_total(FILE *out, const pj_run_info *info)
{
    double net_sd_mj = hypot((double)info->net_sd.random_mj, (double)info->net_sd.bias_mj);
    pj_text net = pj_signed_text(info->net_mj, net_sd_mj);
    bool is_net = !isnan(info->net_mj);
    char power[160];
    if (isnan(info->total_mj)) {
        print_line(out, "%-*s%s", LABEL, "in all", pj_time_text(info->total_ms).s);
        return;
    }
    snprintf(power, sizeof power, " in %s (%s)", pj_time_text(info->total_ms).s,
             pj_power_text(info->total_mj / info->total_ms * 1e3).s);
    double sd_mj = pj_sd_without_gain(info->total_mj, info->total_sd_mj, pj_run_gain_sd(info));
    print_line(out, "%-*s%s%s%s%s%s", LABEL, "in all", pj_interval_text(info->total_mj, sd_mj).s,
               power, is_net ? ", " : "", is_net ? net.s : "", is_net ? " net of idle" : "");
    print_gain(out, pj_run_gain_sd(info));
}

/* ---- what is to be known ---- */

static int lines_of(const char *text)
{
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

/* Warnings as far as `room` lines suffice; the others are counted. */
static void print_warnings(FILE *out, const pj_run_data *d, int room)
{
    uint32_t shown = 0;
    for (; shown < d->warning_count; shown++) {
        char *text = NULL;
        size_t bytes;
        FILE *memory = open_memstream(&text, &bytes);
        if (!memory) break;
        pj_print(memory, "  %-*s", LABEL, "warning");
        pj_print_wrapped(memory, d->warnings[shown].text, 2 + LABEL, 2 + LABEL, answer_width(out));
        fclose(memory);
        int lines = lines_of(text), rest = shown + 1 < d->warning_count;
        bool fits = lines + rest <= room;
        if (fits)
            pj_print(out, "  %s%-*s%s%s", pj_style_on(out, PJ_STYLE_YELLOW), LABEL, "warning",
                     pj_style_off(out), text + 2 + LABEL);
        free(text);
        if (!fits) break;
        room -= lines;
    }
    if (shown < d->warning_count)
        print_line(out, "%-*s%u more in perjoule show, or with --verbose", LABEL, "warnings",
                   d->warning_count - shown);
}

void pj_run_settings_text(const pj_run_data *d, bool with_kernels, char *text, size_t bytes)
{
    const pj_run_info *info = &d->info;
    pj_buffer out;
    pj_buffer_init(&out, bytes);
    pj_buffer_printf(&out, "%.100s", info->model_name ? info->model_name : "");
    if (info->dtype) pj_buffer_printf(&out, " %s", info->dtype);
    if (info->isa && with_kernels) pj_buffer_printf(&out, ", %s kernels", info->isa);
    for (uint32_t i = 1; i < d->device_count; i++) /* 0 is the host */
        if (d->devices[i].name) pj_buffer_printf(&out, " on %.64s", d->devices[i].name);
    if (info->threads)
        pj_buffer_printf(&out, ", %u thread%s", info->threads, info->threads == 1 ? "" : "s");
    if (info->batch_size > 1) pj_buffer_printf(&out, ", batch %u", info->batch_size);
    pj_buffer_printf(&out, ", depth %s, %s", pj_depth_name(info->depth),
                     pj_run_status_name(info->status));
    snprintf(text, bytes, "%s", pj_buffer_get(&out));
    pj_buffer_fini(&out);
}

static void print_run_line(FILE *out, const pj_run_data *d)
{
    char text[512];
    pj_run_settings_text(d, false, text, sizeof text);
    print_line(out, "%-*s%s%.18s%s  %s", LABEL, "run", pj_style_on(out, PJ_STYLE_BOLD), d->info.id,
               pj_style_off(out), text);
}

void pj_run_answer_print(FILE *out, const pj_run_data *d)
{
    char draft[400];
    pj_run_answer_print_headline(out, d);
    fputc('\n', out);
    print_phases(out, d);
    print_disturbed(out, &d->info);
    print_hottest_parts(out, d);
    print_total(out, &d->info);
    if (pj_run_report_draft_text(d, draft, sizeof draft))
        print_line(out, "%-*s%s", LABEL, "draft model", draft);
    print_run_line(out, d);
    print_warnings(out, d, MOST_LINES - 7);
}

/* ---- repeated runs ---- */

static const pj_series_figure *figure_of(const pj_series *series, pj_series_group group,
                                         const char *part, const char *name)
{
    for (uint32_t i = 0; i < series->count; i++) {
        const pj_series_figure *f = &series->figures[i];
        if (f->group == group && f->moments.n && strcmp(f->part, part) == 0 &&
            strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

static pj_text joules_of(const pj_series_figure *f, double mj_per_unit)
{
    const pj_mean *m = &f->mean;
    return pj_bounds_text(m->value * mj_per_unit,
                          (pj_bounds){m->lo * mj_per_unit, m->hi * mj_per_unit});
}

static void print_series_joules(FILE *out, const pj_series *series, const pj_run_data *last)
{
    char trust[512];
    const pj_series_figure *typical =
        figure_of(series, PJ_SERIES_RUN, "", "joules_per_token_typical");
    const pj_series_figure *f =
        typical ? typical : figure_of(series, PJ_SERIES_RUN, "", "joules_per_token");
    trust_text(&last->info, trust, sizeof trust);
    if (!f)
        print_no_energy(out, last);
    else
        print_headline(out, "%s%s per token%s, %s, mean of %u runs; %s",
                       pj_style_on(out, PJ_STYLE_GREEN), joules_of(f, 1e3).s, pj_style_off(out),
                       typical ? "typical" : "on average", f->mean.n, trust);
}

static void print_series_speeds(FILE *out, const pj_series *series)
{
    static const struct {
        const char *name, *before;
    } speeds[] = {{"tokens_per_second", ""}, {"prefill_tokens_per_second", "prompt at "}};
    char text[256] = "";
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        const pj_series_figure *f = figure_of(series, PJ_SERIES_RUN, "", speeds[i].name);
        char value[64];
        if (!f) continue;
        pj_estimate_write(f->mean.value, (pj_bounds){f->mean.lo, f->mean.hi}, value, sizeof value);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s tokens/s",
                                 used ? ", " : "", speeds[i].before, value);
    }
    if (used) print_headline(out, "%s", text);
}

static void print_series_part(FILE *out, const pj_series *series, const char *label,
                              pj_series_group group, const char *part)
{
    bool is_run = group == PJ_SERIES_RUN;
    const pj_series_figure *time =
        figure_of(series, group, part, is_run ? "total_duration_ms" : "duration_ms");
    const pj_series_figure *energy =
        figure_of(series, group, part, is_run ? "total_energy_mj" : "energy_mj");
    if (!time) return;
    pj_print(out, "  %-*s%s%s\n", LABEL, label, pj_padded(10, pj_time_text(time->mean.value)).s,
             pj_padded(24, energy ? joules_of(energy, 1) : (pj_text){"-"}).s);
}

void pj_series_answer_print(FILE *out, const pj_series *series, const pj_run_data *last)
{
    fputc('\n', out);
    print_series_joules(out, series, last);
    print_series_speeds(out, series);
    fputc('\n', out);
    print_series_part(out, series, "load", PJ_SERIES_PHASE, "pre_inference");
    print_series_part(out, series, "prefill", PJ_SERIES_PHASE, "prefill");
    print_series_part(out, series, "decode", PJ_SERIES_PHASE, "decode");
    print_series_part(out, series, "in all", PJ_SERIES_RUN, "");
    print_gain(out, series->gain_sd);
    print_hottest_parts(out, last);
    print_run_line(out, last);
    print_line(out, "%-*sperjoule table compares series; --verbose prints every statistic", LABEL,
               "");
    print_warnings(out, last, MOST_LINES - 7);
}
