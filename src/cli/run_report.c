/* The report of a run. Uncertainties are 95 % intervals. */
#include "cli/run_report.h"

#include "base/clock.h"
#include "cli/conditions_line.h"
#include "cli/disturbances.h"
#include "cli/run_answer.h"
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
    pj_print(out, "%s", pj_style_on(out, PJ_STYLE_BOLD));
    run_report_print_line(out, &run);
    pj_print(out, "%s", pj_style_off(out));
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

/* Beside the typical token, which the headline has. */
static void print_per_token(FILE *out, const pj_run_info *info)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    fputc('\n', out);
    if (!isnan(r.joules_per_token)) {
        char net[96] = "";
        if (!isnan(r.joules_per_token_net))
            snprintf(
                net, sizeof net, ", %s net of idle",
                pj_signed_text(r.joules_per_token_net * 1e3, r.joules_per_token_net_sd * 1e3).s);
        pj_print(out, "  %s per token on average (gross%s)%s\n",
                 energy_text(r.joules_per_token * 1e3, r.joules_per_token_sd * 1e3).s,
                 isnan(info->model_load_mj) ? "" : ", excluding model load", net);
        if (!isnan(info->model_load_mj))
            pj_print(out, "  %s for loading the model\n",
                     energy_text(info->model_load_mj, info->model_load_sd_mj).s);
    }
    if (pj_thinking_line(info).s[0]) pj_print(out, "  thinking: %s\n", pj_thinking_line(info).s);
    print_disturbed(out, info);
}

/* What the machine counted: all of it, not the model's part alone. */
static void print_machine_counts(FILE *out, const pj_run_info *info)
{
    double bytes = info->memory_read_bytes + info->memory_written_bytes;
    if (bytes > 0) {
        pj_print(out, "  memory of the machine: %sB read, %sB written",
                 pj_count_text(info->memory_read_bytes).s,
                 pj_count_text(info->memory_written_bytes).s);
        if (info->output_tokens)
            pj_print(out, ", %sB per output token",
                     pj_count_text(bytes / (double)info->output_tokens).s);
        fputc('\n', out);
    }
    if (info->process_mj > 0)
        pj_print(out, "  the system ascribes %s to the process (CPU, the vendor's model)\n",
                 pj_energy_text(info->process_mj).s);
}

static pj_run_draft draft_of(const pj_run_data *d)
{
    pj_run_draft draft;
    double ms = 0, mj = 0, random = 0, bias = 0;
    for (uint32_t i = 0; i < d->section_count; i++) {
        const pj_section_row *s = &d->sections[i];
        if (strcmp(s->name, "draft") != 0) continue;
        ms += s->duration_ms;
        mj += pj_mj_of_nj(s->energy.gross_nj);
        random = hypot(random, (double)s->energy.sd.random_mj);
        bias += (double)s->energy.sd.bias_mj;
    }
    pj_run_draft_get(d, ms, ms > 0 ? mj : NAN, hypot(random, bias), &draft);
    return draft;
}

bool pj_run_report_draft_text(const pj_run_data *d, char *text, size_t bytes)
{
    pj_run_draft draft = draft_of(d);
    if (draft.name[0]) pj_run_draft_text(&draft, text, bytes);
    return draft.name[0];
}

static void print_draft(FILE *out, const pj_run_data *d)
{
    char text[400];
    if (pj_run_report_draft_text(d, text, sizeof text)) pj_print(out, "  draft model %s\n", text);
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
    pj_json_kv_double(json, "energy_per_accepted_mj",
                      draft.accepted > 0 ? draft.mj / draft.accepted : NAN);
    pj_json_object_end(json);
}

static void print_separation(FILE *out, const pj_run_info *info)
{
    double now = 100 * info->attribution_interval;
    double then = 100 * info->attribution_interval_calibrated;
    char within[96], better[96] = "", gap[96] = "";
    if (now >= 100)
        snprintf(within, sizeof within, "not separable with this sensor");
    else
        snprintf(within, sizeof within, "half of their net energy within ±%.2g %%",
                 fmax(now, 0.01));
    if (info->method == PJ_METHOD_FIT && then < now / 2)
        snprintf(better, sizeof better, "; `perjoule calibrate` would make it about ±%.2g %%",
                 then);
    if (!isnan(info->calibration_gap) && fabs(info->calibration_gap) > 0.03)
        snprintf(gap, sizeof gap, "; the calibration does not explain this run (%+.0f %%)",
                 100 * info->calibration_gap);
    pj_print(out, "  components: %s, %s%s%s\n", pj_method_name(info->method), within, better, gap);
}

static void write_cost(char *text, size_t bytes, double value, double sd, const char *unit)
{
    size_t used = pj_estimate_write(value, pj_bounds_of(value, PJ_Z95 * sd), text, bytes);
    snprintf(text + used, bytes - used, " %s", unit);
}

static void print_attribution(FILE *out, const pj_run_info *info)
{
    char flop[96] = "pJ/FLOP not identifiable", byte[96] = "pJ/byte not identifiable";
    if (info->method == PJ_METHOD_TIME)
        pj_print(out, "  components: shared by time, because the fit of their powers failed\n");
    if (isnan(info->attribution_interval)) return;
    print_separation(out, info);
    if (!isnan(info->pj_per_flop))
        write_cost(flop, sizeof flop, info->pj_per_flop, info->pj_per_flop_sd, "pJ/FLOP");
    if (!isnan(info->pj_per_byte))
        write_cost(byte, sizeof byte, info->pj_per_byte, info->pj_per_byte_sd, "pJ/byte");
    pj_print(out, "  %s, %s\n", flop, byte);
}

static void print_overhead(FILE *out, const pj_run_info *info)
{
    char statistics[64] = "", lost[64] = "", missed[64] = "";
    if (isnan(info->overhead_share)) return;
    if (info->statistics_ms > 0)
        snprintf(statistics, sizeof statistics, ", %.2f ms of it statistics", info->statistics_ms);
    if (info->spans_lost)
        snprintf(lost, sizeof lost, "; %llu spans lost", (unsigned long long)info->spans_lost);
    if (info->samples_missed)
        snprintf(missed, sizeof missed, "; %llu sample%s missed",
                 (unsigned long long)info->samples_missed, info->samples_missed == 1 ? "" : "s");
    pj_print(out, "  profiling overhead: %.2f ms of CPU time (%.2f %%)%s%s%s\n", info->overhead_ms,
             100 * info->overhead_share, statistics, lost, missed);
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

static void run_report_print_title(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    char text[1024];
    pj_run_settings_text(d, true, text, sizeof text);
    pj_print(out, "\n%s%s%s  %s\n\n", pj_style_on(out, PJ_STYLE_BOLD), info->id, pj_style_off(out),
             text);
}

void pj_run_report_print(FILE *out, const pj_run_data *d)
{
    const pj_run_info *info = &d->info;
    pj_run_answer_print_headline(out, d);
    run_report_print_title(out, d);
    run_report_print_phases(out, d);
    print_hottest(out, d);
    print_per_token(out, info);
    print_machine_counts(out, info);
    print_draft(out, d);
    print_attribution(out, info);
    print_overhead(out, info);
    print_conditions(out, info);
    run_report_print_warnings(out, d);
}

void pj_run_report_speed(FILE *out, const pj_generate_result *g, const pj_engine_facts *facts,
                         double read_speed)
{
    double seconds = (double)g->decode_ns * 1e-9, steps = g->decode_steps;
    if (steps > 0 && seconds > 0) {
        double speed = (double)facts->decode_weight_bytes * steps / seconds;
        pj_print(out, "  %.3f ms a step, %.2f GB/s of weights", seconds / steps * 1e3,
                 speed * 1e-9);
        if (isfinite(read_speed))
            pj_print(out, ", %.0f %% of the measured %.1f GB/s", 100 * speed / read_speed,
                     read_speed * 1e-9);
        pj_print(out, "\n");
    }
    if (g->logits_hash) pj_print(out, "  logits %016llx\n", (unsigned long long)g->logits_hash);
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
             "  first token after %.1f ms: sensors and idle power %.1f, model %.1f,\n"
             "    tokenizer %.1f, prefill %.1f\n",
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
