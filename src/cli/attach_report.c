/* Figures of a load, as a table and as JSON. */
#include "cli/attach_report.h"

#include "base/memory.h"
#include "cli/json_out.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "store/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SUMMARY_BYTES = 1 << 30 };

/* ---- collecting ---- */

static void keep_times(pj_load_row *row, const pj_exchange *exchange)
{
    pj_exchange_token *tokens = pj_exchange_tokens(exchange, &row->token_count);
    row->tokens_ns = pj_alloc(row->token_count, sizeof *row->tokens_ns);
    if (!row->tokens_ns) row->token_count = 0;
    for (size_t i = 0; i < row->token_count; i++) row->tokens_ns[i] = tokens[i].at_ns;
    pj_free(tokens);
}

static void keep_data(pj_load *load, const pj_run_data *data)
{
    pj_json json;
    size_t bytes;
    pj_json_init(&json, &load->summaries);
    if (load->summaries.length) pj_buffer_char(&load->summaries, ',');
    pj_summary_write(&json, &data->info, NULL);
    free(load->report);
    load->report = NULL;
    FILE *out = open_memstream(&load->report, &bytes);
    if (!out) return;
    pj_run_report_print(out, data);
    fclose(out);
}

/* Why a run has no energy. */
static const char *absence_of(const pj_run_data *data)
{
    for (uint32_t i = 0; i < data->warning_count; i++)
        if (strcmp(data->warnings[i].code, "power_unavailable") == 0) return data->warnings[i].text;
    return pj_absence_text(pj_absence_name(data->info.absence));
}

static void keep_quality(pj_load *load, const pj_run_data *data)
{
    pj_source_quality quality = data->info.quality;
    if (isnan(data->info.total_mj)) {
        if (!load->unknown++)
            snprintf(load->why_unknown, sizeof load->why_unknown, "%s", absence_of(data));
    } else if (load->quality == PJ_UNAVAILABLE || quality < load->quality) {
        load->quality = quality;
    }
    if (!isnan(data->info.total_mj) && data->info.partial_rails)
        pj_partial_text(data->info.total_rails, data->info.partial_rails, load->partial,
                        sizeof load->partial);
}

static pj_load_row *load_add_row(pj_load *load)
{
    if (load->count == load->capacity) {
        uint32_t wanted = load->capacity ? load->capacity * 2 : 64;
        pj_load_row *bigger = pj_resize(load->rows, wanted, sizeof *bigger);
        if (!bigger) return NULL;
        load->rows = bigger;
        load->capacity = wanted;
    }
    load->rows[load->count] = (pj_load_row){0};
    return &load->rows[load->count++];
}

void pj_load_add(pj_load *load, const pj_exchange *x, const pj_run_data *data, const pj_error *err)
{
    pj_exchange_counts c = pj_exchange_count(x);
    pj_load_row *row = load_add_row(load);
    if (!row) return;
    *row = (pj_load_row){.sent_ns = x->sent_ns,
                         .first_ns = x->first_ns,
                         .last_ns = x->last_ns,
                         .input = c.input >= 0 ? (double)c.input : NAN,
                         .cached = c.cached > 0 ? (double)c.cached : 0,
                         .output = (double)c.output,
                         .prefill_mj = data ? data->info.prefill_mj : NAN,
                         .decode_mj = data ? data->info.decode_mj : NAN,
                         .total_mj = data ? data->info.total_mj : NAN,
                         .failed = x->outcome != PJ_EXCHANGE_COMPLETED};
    keep_times(row, x);
    load->approximate += c.approximate && !row->failed; /* of the tokens that are counted */
    if (row->failed && !load->failed++)
        snprintf(load->first_failure, sizeof load->first_failure, "%s",
                 x->failure[0] ? x->failure : "the request was cut off");
    if (err->status != PJ_OK && !load->unstored++)
        snprintf(load->store_failure, sizeof load->store_failure, "%s", err->text);
    if (!data) return;
    keep_quality(load, data);
    load->gain_sd = fmax(load->gain_sd, pj_run_gain_sd(&data->info));
    if (data->info.allocation) snprintf(load->rule, sizeof load->rule, "%s", data->info.allocation);
    if (!load->keeps_data) return;
    if (!load->summaries.max_bytes) pj_buffer_init(&load->summaries, MOST_SUMMARY_BYTES);
    keep_data(load, data);
}

void pj_load_clear(pj_load *load)
{
    bool keeps = load->keeps_data;
    for (uint32_t i = 0; i < load->count; i++) pj_free(load->rows[i].tokens_ns);
    pj_free(load->rows);
    pj_buffer_fini(&load->summaries);
    free(load->report);
    *load = (pj_load){.keeps_data = keeps};
}

/* ---- the steady state ---- */

static int load_by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void count_tokens(const pj_load *load, pj_load_window *w)
{
    for (uint32_t i = 0; i < load->count; i++) {
        const pj_load_row *r = &load->rows[i];
        for (size_t k = 0; k < r->token_count; k++)
            w->output += r->tokens_ns[k] > w->begin_ns && r->tokens_ns[k] <= w->end_ns;
        if (r->first_ns > w->begin_ns && r->first_ns <= w->end_ns) w->input += r->input - r->cached;
    }
}

void pj_load_steady(const pj_load *load, uint32_t concurrency, pj_requests *requests,
                    pj_load_window *w)
{
    uint32_t firsts = 0;
    int64_t *times = pj_alloc(load->count + 1, sizeof *times);
    *w = (pj_load_window){.why_not = "too few requests: give at least three times --concurrency"};
    for (uint32_t i = 0; times && i < load->count; i++)
        if (load->rows[i].first_ns) times[firsts++] = load->rows[i].first_ns;
    if (times && concurrency > 0 && firsts > 2 * concurrency) {
        qsort(times, firsts, sizeof *times, load_by_time);
        w->begin_ns = times[concurrency - 1];
        w->end_ns = times[firsts - concurrency - 1];
        if (w->end_ns > w->begin_ns) w->why_not = NULL;
    }
    pj_free(times);
    if (w->why_not) return;
    count_tokens(load, w);
    pj_requests_machine(requests, w->begin_ns, w->end_ns, &w->machine);
    w->quality = pj_requests_quality(requests);
}

/* ---- figures over requests ---- */

static void load_add(pj_moments *m, double value)
{
    if (!isnan(value) && !isinf(value)) pj_moments_add(m, value);
}

typedef struct figures {
    pj_moments ttft_ms, token_ms, input_rate, output_rate, input_j, output_j;
    double input, cached, output; /* input NAN: not reported by the server */
    double total_mj;              /* of the requests whose energy is known */
} figures;

static figures load_sum_up(const pj_load *load)
{
    figures f = {0};
    for (uint32_t i = 0; i < load->count; i++) {
        const pj_load_row *r = &load->rows[i];
        double worked = r->input - r->cached, decoded = r->output - 1;
        double prefill_ms = (double)(r->first_ns - r->sent_ns) / 1e6;
        double decode_ms = (double)(r->last_ns - r->first_ns) / 1e6;
        if (!isnan(r->total_mj)) f.total_mj += r->total_mj;
        if (r->failed || !r->first_ns) continue;
        f.input += r->input;
        f.cached += r->cached;
        f.output += r->output;
        load_add(&f.ttft_ms, prefill_ms);
        load_add(&f.input_rate, worked > 0 ? worked / prefill_ms * 1e3 : NAN);
        load_add(&f.input_j, worked > 0 ? r->prefill_mj / worked / 1e3 : NAN);
        if (decoded < 1 || decode_ms <= 0) continue;
        load_add(&f.token_ms, decode_ms / decoded);
        load_add(&f.output_rate, decoded / decode_ms * 1e3);
        load_add(&f.output_j, r->decode_mj / decoded / 1e3);
    }
    return f;
}

/* ---- tables ---- */

void pj_load_print_one(const pj_load *load)
{
    const pj_load_row *r = &load->rows[0];
    double decode_ms = (double)(r->last_ns - r->first_ns) / 1e6;
    if (load->report) pj_print(stdout, "%s", load->report);
    if (!r->first_ns) return;
    pj_print(stdout, "  first token after %s",
             pj_time_text((double)(r->first_ns - r->sent_ns) / 1e6).s);
    if (r->output > 1)
        pj_print(stdout, ", then one every %s", pj_time_text(decode_ms / (r->output - 1)).s);
    if (r->cached > 0)
        pj_print(stdout, "; %.0f of %.0f prompt tokens were cached", r->cached, r->input);
    putchar('\n');
}

/* The mean over requests with its 95 % interval. */
static void load_print_cell(const pj_moments *m, int width)
{
    pj_text text;
    pj_mean mean = pj_mean_of(m, false);
    pj_estimate_write(mean.value, (pj_bounds){mean.lo, mean.hi}, text.s, sizeof text.s);
    pj_print(stdout, " %s |", pj_padded(width, pj_or_dash(mean.value, text)).s);
}

static void load_print_row(const char *test, const pj_moments *rate, const pj_moments *ms,
                           const pj_moments *j)
{
    pj_print(stdout, "| %-11s |", test);
    load_print_cell(rate, 22);
    load_print_cell(ms, 22);
    load_print_cell(j, 24);
    putchar('\n');
}

static void print_window(const pj_load_window *w)
{
    double mj = w->machine.energy_mj;
    if (w->why_not) {
        pj_print(stdout, "steady state: none (%s)\n", w->why_not);
        return;
    }
    double seconds = (double)(w->end_ns - w->begin_ns) * 1e-9;
    pj_print(stdout, "steady state: %.2f s, ", seconds);
    if (!isnan(w->input)) pj_print(stdout, "%.0f input and ", w->input);
    pj_print(stdout, "%.0f output tokens, %.2f output tokens/s\n", w->output, w->output / seconds);
    if (isnan(mj)) {
        if (w->quality)
            pj_print(stdout, "  machine: energy unavailable, a sensor gave no reading\n");
        return;
    }
    char share[160] = "";
    if (w->output > 0)
        snprintf(share, sizeof share, ", %s per output token, prefill included",
                 pj_interval_text(mj / w->output, w->machine.sd_mj / w->output).s);
    pj_print(stdout, "  machine %s (%s%s)%s\n", pj_interval_text(mj, w->machine.sd_mj).s,
             pj_power_text(mj / seconds).s, w->quality == PJ_MODELLED ? ", modelled" : "", share);
}

/* A sum of some requests is none of all. */
static void load_print_energy(const pj_load *load, double total_mj)
{
    uint32_t known = load->count - load->unknown;
    if (load->quality == PJ_UNAVAILABLE)
        pj_print(stdout, "energy unavailable");
    else
        pj_print(stdout, "energy %s%s", pj_energy_text(total_mj).s,
                 load->quality == PJ_MODELLED ? " (modelled)" : "");
    if (load->quality != PJ_UNAVAILABLE && load->unknown)
        pj_print(stdout, " for %u request%s; unavailable for %u", known, known == 1 ? "" : "s",
                 load->unknown);
    if (load->unknown) pj_print(stdout, ":\n%s", load->why_unknown);
    if (load->partial[0]) pj_print(stdout, "\npartial: %s", load->partial);
    pj_print(stdout, "\n\n");
}

void pj_load_print(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                   const pj_load_window *window)
{
    figures f = load_sum_up(load);
    pj_print(stdout, "%s, %s: %u requests, %u at once", pj_safe(server->engine).s,
             pj_safe(server->model).s, load->count, concurrency);
    if (load->failed) pj_print(stdout, ", %u failed", load->failed);
    putchar('\n');
    if (!isnan(f.input)) pj_print(stdout, "%.0f input tokens (%.0f cached), ", f.input, f.cached);
    pj_print(stdout, "%.0f output tokens%s, ", f.output,
             load->approximate ? " (chunks counted)" : "");
    load_print_energy(load, f.total_mj);
    pj_print(stdout, "| %-11s | %22s | %22s | %24s |\n", "per request", "tokens/s", "ms",
             "J per token");
    pj_print(stdout, "| %-11s | %22s | %22s | %24s |\n", "----------:", "---------------------:",
             "---------------------:", "-----------------------:");
    load_print_row("input", &f.input_rate, &f.ttft_ms, &f.input_j);
    load_print_row("output", &f.output_rate, &f.token_ms, &f.output_j);
    pj_print(stdout,
             "(ms: until the first token; between tokens. Means with their 95 %% intervals.");
    if (load->rule[0] && concurrency > 1)
        pj_print(stdout, "\n Energy is allocated between requests in flight by the rule %s.",
                 load->rule);
    pj_print(stdout, ")\n");
    pj_gain_of_rows_print(stdout, "", load->gain_sd);
    putchar('\n');
    print_window(window);
}

/* ---- JSON ---- */

static void load_write_figure(pj_json *json, const char *key, const pj_moments *m)
{
    pj_mean mean = pj_mean_of(m, false);
    pj_json_kv_object_begin(json, key);
    pj_json_kv_double(json, "mean", mean.value);
    pj_json_kv_double(json, "sd", mean.sd);
    pj_json_kv_double(json, "low", mean.lo);
    pj_json_kv_double(json, "high", mean.hi);
    pj_json_kv_uint(json, "count", mean.n);
    pj_json_object_end(json);
}

static void write_window(pj_json *json, const pj_load_window *w)
{
    double seconds = (double)(w->end_ns - w->begin_ns) * 1e-9;
    if (w->why_not) {
        pj_json_kv_null(json, "steady_state");
        return;
    }
    pj_json_kv_object_begin(json, "steady_state");
    pj_json_kv_double(json, "duration_ms", seconds * 1e3);
    pj_json_kv_double(json, "input_tokens", w->input);
    pj_json_kv_double(json, "output_tokens", w->output);
    pj_json_kv_double(json, "output_tokens_per_second", w->output / seconds);
    pj_json_kv_double(json, "machine_energy_mj", w->machine.energy_mj);
    pj_json_kv_double(json, "machine_energy_sd_mj", w->machine.sd_mj);
    pj_json_kv_double(json, "joules_per_output_token",
                      w->output > 0 ? w->machine.energy_mj / 1e3 / w->output : NAN);
    pj_json_object_end(json);
}

void pj_load_print_json(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                        const pj_load_window *window)
{
    figures f = load_sum_up(load);
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "engine", server->engine);
    pj_json_kv_string(json, "model", server->model);
    pj_json_kv_uint(json, "concurrency", concurrency);
    pj_json_kv_uint(json, "requests", load->count);
    pj_json_kv_uint(json, "failed", load->failed);
    pj_json_kv_string(json, "failure", load->failed ? load->first_failure : NULL);
    pj_json_kv_string(json, "energy_source", pj_quality_name(load->quality));
    pj_json_kv_string(json, "allocation", load->rule[0] ? load->rule : NULL);
    pj_json_kv_double(json, "total_energy_mj", load->quality && !load->unknown ? f.total_mj : NAN);
    pj_json_kv_string(json, "partial", load->partial[0] ? load->partial : NULL);
    pj_json_kv_uint(json, "requests_without_energy", load->unknown);
    pj_json_kv_string(json, "unavailable_reason", load->unknown ? load->why_unknown : NULL);
    pj_json_kv_double(json, "input_tokens", f.input);
    pj_json_kv_double(json, "cached_tokens", f.cached);
    pj_json_kv_double(json, "output_tokens", f.output);
    pj_json_kv_bool(json, "tokens_approximate", load->approximate > 0);
    load_write_figure(json, "ttft_ms", &f.ttft_ms);
    load_write_figure(json, "ms_per_token", &f.token_ms);
    load_write_figure(json, "joules_per_input_token", &f.input_j);
    load_write_figure(json, "joules_per_output_token", &f.output_j);
    write_window(json, window);
    pj_json_kv_array_begin(json, "runs");
    if (load->summaries.length) pj_json_raw(json, load->summaries.data, load->summaries.length);
    pj_json_array_end(json);
    pj_json_object_end(json);
    pj_json_out_end(&out, PJ_OK, NULL);
}
