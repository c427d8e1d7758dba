/* Ratios of a run and its summary object. Definitions: docs/measurement.md. */
#include "trace/summary.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- ratios -------------------------------------------------------------------------------- */

static double divide(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/* Tokens made by decoding: the first token of each sequence comes from prefill. */
static double decoded_tokens(const pj_run_info *info)
{
    double sequences = info->batch_size ? info->batch_size : 1;
    return info->output_tokens > sequences ? (double)info->output_tokens - sequences : 0;
}

/* Prompt tokens processed by prefill; those that a server had cached cost next to nothing.
 */
static double worked_tokens(const pj_run_info *info)
{
    double cached = info->cached_tokens > 0 ? info->cached_tokens : 0;
    return fmax(0, (double)info->input_tokens - cached);
}

void pj_run_ratios_get(const pj_run_info *info, pj_run_ratios *r)
{
    double decoded = decoded_tokens(info), output = (double)info->output_tokens;
    double request_j = info->request_mj / 1e3;
    r->tokens_per_second = decoded > 0 ? divide(decoded, info->decode_ms / 1e3) : NAN;
    r->prefill_tokens_per_second = divide(worked_tokens(info), info->prefill_ms / 1e3);
    r->joules_per_token = divide(request_j, output);
    r->joules_per_token_sd = divide(info->request_sd_mj / 1e3, output);
    r->joules_per_token_net = divide(info->request_net_mj / 1e3, output);
    r->joules_per_token_net_sd = divide(info->request_net_sd_mj / 1e3, output);
    r->joules_per_token_typical = info->typical_token_mj / 1e3;
    r->joules_per_input_token = divide(info->prefill_mj / 1e3, worked_tokens(info));
    r->joules_per_output_token = decoded > 0 ? divide(info->decode_mj / 1e3, output) : NAN;
    r->tokens_per_joule = divide(output, request_j);
    r->energy_delay_product = request_j * info->request_ms / 1e3;
    r->mean_power_mw = divide(info->total_mj * 1e3, info->total_ms);
    r->prefill_decode_ratio = divide(info->prefill_mj, info->decode_mj);
    r->mj_per_million_parameters = divide(info->request_mj, info->parameters / 1e6);
    r->mj_per_million_active_parameters = divide(info->request_mj, info->active_parameters / 1e6);
}

/* 1 kWh = 3.6e6 J = 3.6e9 mJ. */
double pj_cost_usd(double mj, const pj_cost_rates *rates)
{
    return mj / 3.6e9 * rates->usd_per_kwh;
}

double pj_co2_grams(double mj, const pj_cost_rates *rates)
{
    return mj / 3.6e9 * rates->co2_g_per_kwh;
}

/* ---- the object ---------------------------------------------------------------------------- */

static void write_tags(pj_json *json, const pj_run_info *info)
{
    pj_json_key(json, "tags");
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < info->tag_count; i++) pj_json_string(json, info->tags[i]);
    pj_json_array_end(json);
}

static void write_optional_object(pj_json *json, const char *key, const char *object)
{
    pj_json_key(json, key);
    if (object && *object)
        pj_json_raw(json, object, strlen(object));
    else
        pj_json_null(json);
}

static void write_identity(pj_json *json, const pj_run_info *info)
{
    char created[32];
    pj_clock_format_iso(info->created_wall_ns, created);
    pj_json_kv_string(json, "id", info->id);
    pj_json_kv_string(json, "run_id", info->id);
    pj_json_kv_string(json, "prompt", info->prompt);
    write_optional_object(json, "prompt_private", info->prompt_private);
    write_optional_object(json, "output_private", info->output_private);
    pj_json_kv_string(json, "model_name", info->model_name);
    pj_json_kv_string(json, "model_path", info->model_path);
    pj_json_kv_string(json, "engine", info->engine);
    pj_json_kv_string(json, "scope", info->scope);
    pj_json_kv_string(json, "level", info->level);
    pj_json_kv_string(json, "created_at", created);
    pj_json_kv_string(json, "status", pj_run_status_name(info->status));
    pj_json_kv_string(json, "failure", info->failure);
    pj_json_kv_string(json, "profiling_depth", pj_depth_name(info->depth));
    pj_json_kv_uint(json, "batch_size", info->batch_size ? info->batch_size : 1);
    pj_json_kv_string(json, "batch_rule", info->batch_rule);
    pj_json_kv_string(json, "allocation", info->allocation);
    pj_json_kv_string(json, "dtype", info->dtype);
    pj_json_kv_string(json, "isa", info->isa);
    pj_json_key(json, "threads");
    if (info->threads)
        pj_json_uint(json, info->threads);
    else
        pj_json_null(json);
    write_tags(json, info);
    pj_json_kv_string(json, "experiment_name", info->experiment_name);
    pj_json_kv_string(json, "machine", info->machine);
    pj_json_kv_string(json, "repeat_group", info->repeat_group);
    pj_json_kv_uint(json, "repeat_index", info->repeat_index);
    write_optional_object(json, "settings", info->settings_json);
    write_optional_object(json, "model", info->model_json);
}

/* PREFIX_sd_random_mj, PREFIX_sd_bias_mj and PREFIX_sd_gain_mj. */
static void write_sd(pj_json *json, const char *prefix, const pj_sd *sd)
{
    const struct {
        const char *name;
        float mj;
    } terms[] = {{"random", sd->random_mj}, {"bias", sd->bias_mj}, {"gain", sd->gain_mj}};
    char key[64];
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s_sd_%s_mj", prefix, terms[i].name);
        pj_json_key(json, key);
        pj_json_float(json, terms[i].mj);
    }
}

/* A list of names with commas between them, as an array; NULL is an empty one. */
static void write_names(pj_json *json, const char *key, const char *names)
{
    pj_json_key(json, key);
    pj_json_array_begin(json);
    for (const char *at = names; at && *at;) {
        char name[PJ_RAIL_NAME_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        pj_json_string(json, name);
        at += length + (at[length] == ',');
    }
    pj_json_array_end(json);
}

static void write_energy(pj_json *json, const pj_run_info *info)
{
    pj_json_kv_string(json, "energy_source", pj_quality_name(info->quality));
    pj_json_kv_string(json, "power_sources", info->power_sources);
    pj_json_kv_string(json, "method", pj_method_name(info->method));
    pj_json_kv_double(json, "total_energy_mj", info->total_mj);
    pj_json_kv_double(json, "total_energy_sd_mj", info->total_sd_mj);
    write_sd(json, "total_energy", &info->total_sd);
    pj_json_kv_double(json, "idle_energy_mj", info->idle_mj);
    pj_json_kv_double(json, "net_energy_mj", info->net_mj);
    pj_json_kv_double(json, "net_energy_sd_mj", info->net_sd_mj);
    write_sd(json, "net_energy", &info->net_sd);
    pj_json_kv_double(json, "energy_upper_mj", info->upper_mj);
    pj_json_kv_string(json, "unavailable_reason",
                      info->absence ? pj_absence_name(info->absence) : NULL);
    pj_json_kv_bool(json, "total_is_partial", info->total_is_partial);
    write_names(json, "total_rails", info->total_rails);
    write_names(json, "partial_rails", info->partial_rails);
    pj_json_kv_double(json, "request_energy_mj", info->request_mj);
    pj_json_kv_double(json, "request_energy_sd_mj", info->request_sd_mj);
    write_sd(json, "request_energy", &info->request_sd);
    pj_json_kv_double(json, "request_energy_net_mj", info->request_net_mj);
    pj_json_kv_double(json, "request_energy_net_sd_mj", info->request_net_sd_mj);
    write_sd(json, "request_energy_net", &info->request_net_sd);
    pj_json_kv_double(json, "model_load_energy_mj", info->model_load_mj);
    pj_json_kv_double(json, "model_load_energy_sd_mj", info->model_load_sd_mj);
    write_sd(json, "model_load_energy", &info->model_load_sd);
    pj_json_kv_double(json, "prefill_energy_mj", info->prefill_mj);
    pj_json_kv_double(json, "decode_energy_mj", info->decode_mj);
    pj_json_kv_double(json, "prefill_energy_net_mj", info->prefill_net_mj);
    pj_json_kv_double(json, "decode_energy_net_mj", info->decode_net_mj);
    pj_json_kv_double(json, "baseline_cold_mw", info->baseline_cold_mw);
    pj_json_kv_double(json, "baseline_resident_mw", info->baseline_resident_mw);
}

static void write_conditions(pj_json *json, const pj_run_info *info)
{
    write_optional_object(json, "conditions", info->conditions_json);
}

static void write_disturbed(pj_json *json, const pj_run_info *info)
{
    pj_json_key(json, "disturbed_tokens");
    if (info->disturbed_tokens < 0)
        pj_json_null(json);
    else
        pj_json_int(json, info->disturbed_tokens);
    pj_json_kv_double(json, "disturbed_share", info->disturbed_share);
}

static void write_ratios(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    pj_json_kv_double(json, "tokens_per_second", r.tokens_per_second);
    pj_json_kv_double(json, "prefill_tokens_per_second", r.prefill_tokens_per_second);
    pj_json_kv_double(json, "joules_per_token", r.joules_per_token);
    pj_json_kv_double(json, "joules_per_token_sd", r.joules_per_token_sd);
    pj_json_kv_double(json, "joules_per_token_net", r.joules_per_token_net);
    pj_json_kv_double(json, "joules_per_token_net_sd", r.joules_per_token_net_sd);
    pj_json_kv_double(json, "joules_per_token_typical", r.joules_per_token_typical);
    write_disturbed(json, info);
    pj_json_kv_double(json, "joules_per_input_token", r.joules_per_input_token);
    pj_json_kv_double(json, "joules_per_output_token", r.joules_per_output_token);
    pj_json_kv_double(json, "tokens_per_joule", r.tokens_per_joule);
    pj_json_kv_double(json, "energy_delay_product", r.energy_delay_product);
    pj_json_kv_double(json, "mean_power_mw", r.mean_power_mw);
    pj_json_kv_double(json, "prefill_decode_ratio", r.prefill_decode_ratio);
    pj_json_kv_double(json, "cost_usd", pj_cost_usd(info->total_mj, rates));
    pj_json_kv_double(json, "co2_grams", pj_co2_grams(info->total_mj, rates));
    double mj_per_token = r.joules_per_token * 1e3;
    pj_json_kv_double(json, "cost_usd_per_token", pj_cost_usd(mj_per_token, rates));
    pj_json_kv_double(json, "co2_grams_per_token", pj_co2_grams(mj_per_token, rates));
    pj_json_kv_double(json, "energy_per_million_parameters_mj", r.mj_per_million_parameters);
    pj_json_kv_double(json, "energy_per_million_active_parameters_mj",
                      r.mj_per_million_active_parameters);
}

static void write_attribution(pj_json *json, const pj_run_info *info)
{
    pj_json_key(json, "attribution");
    pj_json_object_begin(json);
    pj_json_kv_double(json, "condition_number", info->condition_number);
    pj_json_kv_double(json, "pj_per_flop", info->pj_per_flop);
    pj_json_kv_double(json, "pj_per_flop_sd", info->pj_per_flop_sd);
    pj_json_kv_double(json, "pj_per_byte", info->pj_per_byte);
    pj_json_kv_double(json, "pj_per_byte_sd", info->pj_per_byte_sd);
    pj_json_kv_double(json, "interval", info->attribution_interval);
    pj_json_kv_double(json, "interval_calibrated", info->attribution_interval_calibrated);
    pj_json_kv_double(json, "calibration_gap", info->calibration_gap);
    pj_json_object_end(json);
}

static void write_overhead(pj_json *json, const pj_run_info *info)
{
    pj_json_key(json, "overhead");
    pj_json_object_begin(json);
    pj_json_kv_double(json, "time_ms", info->overhead_ms);
    pj_json_kv_double(json, "share", info->overhead_share);
    pj_json_kv_double(json, "statistics_ms", info->statistics_ms);
    pj_json_kv_double(json, "sampler_cpu_share", info->sampler_cpu_share);
    pj_json_kv_double(json, "sampler_jitter_us", info->sampler_jitter_us);
    pj_json_kv_uint(json, "samples_missed", info->samples_missed);
    pj_json_kv_uint(json, "spans_lost", info->spans_lost);
    pj_json_object_end(json);
}

void pj_summary_write_members(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates)
{
    const pj_cost_rates usual = PJ_COST_RATES_DEFAULT;
    write_identity(json, info);
    pj_json_kv_double(json, "total_duration_ms", info->total_ms);
    pj_json_kv_double(json, "request_duration_ms", info->request_ms);
    pj_json_kv_double(json, "prefill_duration_ms", info->prefill_ms);
    pj_json_kv_double(json, "decode_duration_ms", info->decode_ms);
    if (info->input_tokens)
        pj_json_kv_uint(json, "input_tokens", info->input_tokens);
    else
        pj_json_kv_null(json, "input_tokens");
    pj_json_kv_double(json, "cached_tokens", info->cached_tokens);
    pj_json_kv_uint(json, "output_tokens", info->output_tokens);
    write_energy(json, info);
    write_ratios(json, info, rates ? rates : &usual);
    write_conditions(json, info);
    write_attribution(json, info);
    write_overhead(json, info);
}

void pj_summary_write(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates)
{
    pj_json_object_begin(json);
    pj_summary_write_members(json, info, rates);
    pj_json_object_end(json);
}
