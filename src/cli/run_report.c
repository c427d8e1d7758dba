/* The report of a run. Uncertainties are 95 % intervals. */
#include "cli/run_report.h"

#include "base/clock.h"
#include "cli/conditions_line.h"
#include "cli/disturbances.h"
#include "cli/run_parts.h"
#include "cli/terminal.h"
#include "cli/thinking_line.h"
#include "trace/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOTTEST = 8 };

static pj_text energy_text(double mj, double sd_mj)
{
    return pj_or_dash(mj, pj_interval_text(mj, sd_mj));
}

/* ---- phases ---- */

static void run_report_print_line(FILE *out, const pj_run_part *line)
{
    pj_text power = pj_or_dash(line->gross_mj, pj_power_text(line->gross_mj / line->ms * 1e3));
    pj_text net = pj_supported_text(line->net_mj, line->net_sd_mj);
    pj_print(out, "  %-15s%s%s%s%s\n", line->name, pj_padded(10, pj_time_text(line->ms)).s,
             pj_padded(24, energy_text(line->gross_mj, line->sd_mj)).s,
             pj_padded(12, pj_or_dash(line->net_mj, net)).s, pj_padded(11, power).s);
}

static void run_report_print_phases(FILE *out, const pj_run_data *d)
{
    pj_print(out, "%s  %-15s%10s%24s%12s%11s%s\n", pj_style_on(out, PJ_STYLE_DIM), "phase", "time",
             "energy", "net of idle", "power", pj_style_off(out));
    pj_run_parts phases;
    double gain = pj_run_gain_sd(&d->info);
    pj_run_parts_phases(&phases, d);
    pj_run_parts_drop_gain(&phases, gain);
    for (int p = PJ_PHASE_IDLE; p < PJ_PHASE_COUNT; p++) {
        const pj_run_part *line = pj_run_parts_find(&phases, pj_phase_name((pj_phase)p));
        if (line) run_report_print_line(out, line);
    }
    const pj_run_info *info = &d->info;
    pj_run_part run = {"run",
                       info->total_ms,
                       info->total_mj,
                       info->net_mj,
                       pj_sd_without_gain(info->total_mj, info->total_sd_mj, gain),
                       pj_sd_without_gain(info->net_mj, info->net_sd_mj, gain)};
    fputs(pj_style_on(out, PJ_STYLE_BOLD), out);
    run_report_print_line(out, &run);
    fputs(pj_style_off(out), out);
    pj_gain_note_print(out, "  ", gain);
    if (!info->partial_rails || isnan(info->total_mj)) return;
    char text[256];
    pj_partial_text(info->total_rails, info->partial_rails, text, sizeof text);
    pj_print(out, "  %spartial:%s %s\n", pj_style_on(out, PJ_STYLE_YELLOW), pj_style_off(out),
             text);
}

/* ---- components with the most energy ---- */

static int hotter(const void *a, const void *b)
{
    const pj_run_part *x = a, *y = b;
    bool known = !isnan(x->gross_mj) && !isnan(y->gross_mj);
    double p = known ? x->gross_mj : x->ms, q = known ? y->gross_mj : y->ms;
    return p > q ? -1 : p < q;
}

/* Components are without disturbances, which are a line of their own. */
static void print_disturbed_part(FILE *out, const pj_run_info *info)
{
    const pj_disturbed_sum *sum = &info->disturbed;
    double share = isnan(sum->mj) ? sum->ms / info->total_ms : sum->mj / info->total_mj;
    if (!(sum->ms > 0)) return;
    pj_print(out, "  %-15s%s%s%10.1f %%\n", "disturbed", pj_padded(10, pj_time_text(sum->ms)).s,
             pj_padded(24, energy_text(sum->mj, NAN)).s, 100 * share);
}

static void print_hottest(FILE *out, const pj_run_data *d)
{
    pj_run_parts parts;
    pj_run_part *list = parts.items;
    pj_run_parts_components(&parts, d);
    pj_run_parts_drop_gain(&parts, pj_run_gain_sd(&d->info));
    double whole_mj = d->info.total_mj, whole_ms = d->info.total_ms;
    if (!parts.count) return;
    qsort(list, parts.count, sizeof *list, hotter);
    /* the total may be known where parts are not: of a device that no sensor measures */
    bool unmeasured = isnan(whole_mj) || isnan(list[0].gross_mj);
    pj_print(out, "\n%s  %-15s%10s%24s%12s%s\n", pj_style_on(out, PJ_STYLE_DIM),
             unmeasured ? "longest" : "hottest", "time", "energy", "share", pj_style_off(out));
    for (uint32_t i = 0; i < parts.count && i < HOTTEST; i++) {
        double share = unmeasured ? list[i].ms / whole_ms : list[i].gross_mj / whole_mj;
        pj_print(out, "  %-15.32s%s%s%10.1f %%\n", list[i].name,
                 pj_padded(10, pj_time_text(list[i].ms)).s,
                 pj_padded(24, energy_text(list[i].gross_mj, list[i].sd_mj)).s, 100 * share);
    }
    print_disturbed_part(out, &d->info);
}

/* ---- lines below ---- */

static void print_disturbed(FILE *out, const pj_run_info *info)
{
    char first[64];
    snprintf(first, sizeof first, "  %sdisturbed:%s ", pj_style_on(out, PJ_STYLE_YELLOW),
             pj_style_off(out));
    pj_print_disturbances(out, info, first, "    ");
}

/* Four digits. */
static void run_report_print_speed(FILE *out, const char *phase, double speed)
{
    if (!isnan(speed))
        pj_print(out, speed < 1000 ? "; %s %.4g tokens/s" : "; %s %.0f tokens/s", phase, speed);
}

/* The typical token, by which runs are compared, or without decode tokens the mean. */
static void print_per_token(FILE *out, const pj_run_info *info, const pj_run_ratios *r)
{
    bool typical = !isnan(r->joules_per_token_typical);
    pj_text mean = energy_text(r->joules_per_token * 1e3, r->joules_per_token_sd * 1e3);
    pj_text median =
        energy_text(r->joules_per_token_typical * 1e3, r->joules_per_token_typical_sd * 1e3);
    pj_print(out, "  %s%s per token%s", pj_style_on(out, PJ_STYLE_GREEN),
             typical ? median.s : mean.s, pj_style_off(out));
    if (typical)
        pj_print(out, " (typical: median of decode); %s\n  %s on average",
                 pj_quality_name(info->quality), mean.s);
    pj_print(out, " (gross%s)", isnan(info->model_load_mj) ? "" : ", excluding model load");
    if (!isnan(r->joules_per_token_net))
        pj_print(
            out, ", %s net of idle",
            pj_supported_text(r->joules_per_token_net * 1e3, r->joules_per_token_net_sd * 1e3).s);
    pj_print(out, typical ? "\n" : "; %s\n", pj_quality_name(info->quality));
}

static void print_rates(FILE *out, const pj_run_info *info)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    char input[32] = "unknown";
    if (info->input_tokens)
        snprintf(input, sizeof input, "%llu", (unsigned long long)info->input_tokens);
    pj_print(out, "\n  %s tokens in, %llu out", input, (unsigned long long)info->output_tokens);
    run_report_print_speed(out, "prefill", r.prefill_tokens_per_second);
    run_report_print_speed(out, "decode", r.tokens_per_second);
    fputc('\n', out);
    if (!isnan(r.joules_per_token)) {
        print_per_token(out, info, &r);
        if (!isnan(info->model_load_mj))
            pj_print(out, "  %s for loading the model\n",
                     energy_text(info->model_load_mj, info->model_load_sd_mj).s);
    }
    if (pj_thinking_line(info).s[0]) pj_print(out, "  thinking: %s\n", pj_thinking_line(info).s);
    print_disturbed(out, info);
}

static pj_run_draft draft_of(const pj_run_data *d)
{
    pj_run_draft draft;
    double ms = 0, mj = 0;
    for (uint32_t i = 0; i < d->section_count; i++) {
        if (strcmp(d->sections[i].name, "draft") != 0) continue;
        ms += d->sections[i].duration_ms;
        mj += pj_mj_of_nj(d->sections[i].energy.gross_nj);
    }
    pj_run_draft_get(d, ms, ms > 0 ? mj : NAN, &draft);
    return draft;
}

/* Acceptance rate and cost of speculative decoding's draft model. */
static void print_draft(FILE *out, const pj_run_data *d)
{
    char text[400];
    pj_run_draft draft = draft_of(d);
    if (!draft.name[0]) return;
    pj_run_draft_text(&draft, text, sizeof text);
    pj_print(out, "  draft model %s\n", text);
}

void pj_run_report_write_draft(pj_json *json, const pj_run_data *d)
{
    pj_run_draft draft = draft_of(d);
    if (draft.ms <= 0) {
        pj_json_kv_null(json, "draft");
        return;
    }
    pj_json_kv_object_begin(json, "draft");
    pj_json_kv_double(json, "duration_ms", draft.ms);
    pj_json_kv_double(json, "energy_mj", draft.mj);
    pj_json_kv_double(json, "target_energy_mj", draft.target_mj);
    pj_json_object_end(json);
}

static void print_cost(FILE *out, const char *before, double value, double sd, const char *unit)
{
    char text[64];
    pj_estimate_write(value, pj_bounds_of(value, PJ_Z95 * sd), text, sizeof text);
    pj_print(out, "%s%s %s", before, text, unit);
}

static void print_attribution(FILE *out, const pj_run_info *info)
{
    double now = 100 * info->attribution_interval;
    double then = 100 * info->attribution_interval_calibrated;
    if (info->method == PJ_METHOD_TIME)
        pj_print(out, "  components: shared by time, because the fit of their powers failed\n");
    if (isnan(now)) return;
    pj_print(out, "  components: %s, ", pj_method_name(info->method));
    if (now >= 100)
        pj_print(out, "not separable with this sensor");
    else if (now < 0.01)
        pj_print(out, "half of their net energy within ±0.01 %%");
    else
        pj_print(out, "half of their net energy within ±%.2g %%", now);
    if (info->method == PJ_METHOD_FIT && then < now / 2)
        pj_print(out, "; `perjoule calibrate` would make it about ±%.2g %%", then);
    if (!isnan(info->calibration_gap) && fabs(info->calibration_gap) > 0.03)
        pj_print(out, "; the calibration does not explain this run (%+.0f %%)",
                 100 * info->calibration_gap);
    fputc('\n', out);
    bool flop = !isnan(info->pj_per_flop), byte = !isnan(info->pj_per_byte);
    if (flop) print_cost(out, "  ", info->pj_per_flop, info->pj_per_flop_sd, "pJ/FLOP");
    if (byte)
        print_cost(out, flop ? ", " : "  ", info->pj_per_byte, info->pj_per_byte_sd, "pJ/byte");
    pj_print(out, "%s\n",
             flop && byte ? ""
             : flop       ? ", pJ/byte not identifiable"
             : byte       ? ", pJ/FLOP not identifiable"
                          : "  pJ/FLOP and pJ/byte: not identifiable from this run");
}

static void print_overhead(FILE *out, const pj_run_info *info)
{
    if (isnan(info->overhead_share)) return;
    pj_print(out, "  profiling overhead: %.2f ms of CPU time (%.2f %%)", info->overhead_ms,
             100 * info->overhead_share);
    if (info->statistics_ms > 0) pj_print(out, ", %.2f ms of it statistics", info->statistics_ms);
    if (info->spans_lost) pj_print(out, "; %llu spans lost", (unsigned long long)info->spans_lost);
    if (info->samples_missed)
        pj_print(out, "; %llu sample%s missed", (unsigned long long)info->samples_missed,
                 info->samples_missed == 1 ? "" : "s");
    fputc('\n', out);
}

static void print_conditions(FILE *out, const pj_run_info *info)
{
    char text[2048];
    pj_conditions_line(info->conditions_json, "\n              ", text, sizeof text);
    if (text[0]) pj_print(out, "  conditions: %s\n", text);
}

static void run_report_print_warnings(FILE *out, const pj_run_data *d)
{
    for (uint32_t i = 0; i < d->warning_count; i++)
        pj_print(out, "  %swarning:%s %s\n", pj_style_on(out, PJ_STYLE_YELLOW), pj_style_off(out),
                 d->warnings[i].text);
}

/* Why there is no energy, where no warning gives the reason. */
static void print_absence(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    if (!isnan(info->total_mj) || info->absence <= PJ_ABSENT_NO_SENSOR) return;
    for (uint32_t i = 0; i < d->warning_count; i++)
        if (strcmp(d->warnings[i].code, "below_resolution") == 0) return;
    pj_print(out, "  energy is unavailable: %s", pj_absence_text(pj_absence_name(info->absence)));
    if (!isnan(info->upper_mj)) pj_print(out, "; at most %s", pj_energy_text(info->upper_mj).s);
    fputc('\n', out);
}

static void run_report_print_title(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    pj_print(out, "\n%s%s%s  %s", pj_style_on(out, PJ_STYLE_BOLD), info->id, pj_style_off(out),
             info->model_name ? info->model_name : "");
    if (info->dtype) pj_print(out, " %s", info->dtype);
    if (info->isa) pj_print(out, ", %s kernels", info->isa);
    for (uint32_t i = 1; i < d->device_count; i++) /* 0 is the host */
        if (d->devices[i].name) pj_print(out, " on %s", d->devices[i].name);
    if (info->threads) pj_print(out, ", %u thread%s", info->threads, info->threads == 1 ? "" : "s");
    if (info->batch_size > 1) pj_print(out, ", batch %u", info->batch_size);
    pj_print(out, ", depth %s, %s\n\n", pj_depth_name(info->depth),
             pj_run_status_name(info->status));
}

void pj_run_report_print(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    run_report_print_title(out, d);
    run_report_print_phases(out, d);
    print_absence(out, d);
    print_hottest(out, d);
    print_rates(out, info);
    print_draft(out, d);
    print_attribution(out, info);
    print_overhead(out, info);
    print_conditions(out, info);
    run_report_print_warnings(out, d);
}

void pj_run_report_speed(FILE *out, const pj_run_data *d, const pj_generate_result *g,
                         const pj_engine_facts *facts, double read_speed)
{
    double seconds = (double)g->decode_ns * 1e-9, steps = g->decode_steps;
    run_report_print_title(out, d);
    run_report_print_phases(out, d);
    print_rates(out, &d->info);
    if (steps > 0 && seconds > 0) {
        double speed = (double)facts->decode_weight_bytes * steps / seconds;
        pj_print(out, "  %.3f ms a step, %.2f GB/s of weights", seconds / steps * 1e3,
                 speed * 1e-9);
        if (isfinite(read_speed))
            pj_print(out, ", %.0f %% of the measured read bandwidth of %.1f GB/s",
                     100 * speed / read_speed, read_speed * 1e-9);
        pj_print(out, "\n");
    }
    if (g->logits_hash) pj_print(out, "  logits %016llx\n", (unsigned long long)g->logits_hash);
    run_report_print_warnings(out, d);
}

/* ---- start and memory ---- */

static double run_report_ms_of(int64_t ns)
{
    return (double)ns / PJ_NS_PER_MS;
}

void pj_run_report_start(FILE *out, const pj_run_start *s)
{
    int64_t all = s->first_token_ns - s->began_ns;
    int64_t rest = all - s->model_ns - s->tokenizer_ns - s->prefill_ns;
    pj_print(out,
             "  first token after %.1f ms: sensors and idle baseline %.1f, model %.1f, "
             "tokenizer %.1f, prefill %.1f\n",
             run_report_ms_of(all), run_report_ms_of(rest), run_report_ms_of(s->model_ns),
             run_report_ms_of(s->tokenizer_ns), run_report_ms_of(s->prefill_ns));
}

void pj_run_report_write_start(pj_json *json, const pj_run_start *s)
{
    if (!s) {
        pj_json_kv_null(json, "start");
        return;
    }
    pj_json_kv_object_begin(json, "start");
    pj_json_kv_int(json, "began_ns", s->began_ns);
    pj_json_kv_double(json, "model_ms", run_report_ms_of(s->model_ns));
    pj_json_kv_double(json, "tokenizer_ms", run_report_ms_of(s->tokenizer_ns));
    pj_json_kv_double(json, "prefill_ms", run_report_ms_of(s->prefill_ns));
    pj_json_kv_double(json, "first_token_ms", run_report_ms_of(s->first_token_ns - s->began_ns));
    pj_json_object_end(json);
}

void pj_run_report_resident(FILE *out, const pj_process_memory *m, uint64_t weight_bytes)
{
    if (m->resident_bytes == 0) return;
    pj_print(out, "  resident %.1f MB: %.1f MB of mapped files, %.1f MB own; weights %.1f MB\n",
             (double)m->resident_bytes * 1e-6, (double)m->file_bytes * 1e-6,
             (double)m->anonymous_bytes * 1e-6, (double)weight_bytes * 1e-6);
}

void pj_run_report_write_resident(pj_json *json, const pj_process_memory *m)
{
    if (m->resident_bytes == 0) {
        pj_json_kv_null(json, "resident");
        return;
    }
    pj_json_kv_object_begin(json, "resident");
    pj_json_kv_uint(json, "bytes", m->resident_bytes);
    pj_json_kv_uint(json, "file_bytes", m->file_bytes);
    pj_json_kv_uint(json, "anonymous_bytes", m->anonymous_bytes);
    pj_json_object_end(json);
}

/* ---- engine, text and ids ---- */

void pj_run_report_write_engine(pj_json *json, const pj_engine_facts *facts)
{
    pj_json_kv_string(json, "model_name", facts->model_name);
    pj_json_kv_string(json, "dtype", facts->dtype);
    pj_json_kv_string(json, "isa", facts->isa);
    pj_json_kv_uint(json, "threads", facts->threads);
}

static void run_report_write_ids(pj_json *json, const char *key, const int32_t *ids, uint32_t count)
{
    pj_json_kv_array_begin(json, key);
    for (uint32_t i = 0; i < count; i++) pj_json_int(json, ids[i]);
    pj_json_array_end(json);
}

static void write_sequence(pj_json *json, const pj_sequence_result *s)
{
    pj_json_key(json, "text");
    pj_json_string_n(json, s->text ? s->text : "", s->text_bytes);
    run_report_write_ids(json, "token_ids", s->ids, s->count);
    run_report_write_ids(json, "prompt_ids", s->prompt_ids, s->prompt_count);
    pj_json_kv_string(json, "stop_reason", pj_stop_reason_name(s->stop));
}

void pj_run_report_write_text(pj_json *json, const pj_generate_result *g)
{
    char hash[17];
    const pj_sequence_result none = {0}; /* and a hash of 0: not known */
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)g->logits_hash);
    write_sequence(json, g->count ? &g->sequences[0] : &none);
    pj_json_kv_string(json, "logits_hash", g->logits_hash ? hash : NULL);
    if (g->count < 2) return;
    pj_json_kv_array_begin(json, "sequences");
    for (uint32_t i = 0; i < g->count; i++) {
        pj_json_object_begin(json);
        write_sequence(json, &g->sequences[i]);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}
