/* The summary of a run. */
#include "store/run_summary.h"

#include "base/clock.h"
#include "store/rows.h"
#include "store/sql.h"

#include <string.h>

void pj_json_names(pj_json *json, const char *names)
{
    pj_json_array_begin(json);
    for (const char *at = names; at && *at;) {
        size_t length = strcspn(at, ",");
        if (length) pj_json_string_n(json, at, length);
        at += length + (at[length] == ',');
    }
    pj_json_array_end(json);
}

static void run_summary_write_value(pj_json *json, const pj_column *column, const pj_run_info *info)
{
    pj_value v = {0};
    pj_column_get(&pj_run_table, column, info, &v);
    if (column->type == PJ_COLUMN_LIST)
        pj_json_names(json, v.text);
    else
        pj_column_write(json, column, &v);
}

/* The columns that are shown in an object of the summary, or (NULL) in the summary itself. */
static void write_columns(pj_json *json, const pj_run_info *info, const char *object)
{
    size_t length = object ? strlen(object) : 0;
    if (object) {
        pj_json_kv_object_begin(json, object);
    }
    for (int c = 0; c < pj_run_table.column_count; c++) {
        const pj_column *column = &pj_run_table.columns[c];
        const char *path = column->shown ? column->shown : column->name;
        const char *dot = strchr(path, '.');
        bool is_here =
            object ? dot && (size_t)(dot - path) == length && strncmp(path, object, length) == 0
                   : !dot && *path;
        if (!is_here) continue;
        pj_json_key(json, dot ? dot + 1 : path);
        run_summary_write_value(json, column, info);
    }
    if (object) pj_json_object_end(json);
}

static void run_summary_write_ratios(pj_json *json, const pj_run_info *info,
                                     const pj_cost_rates *rates)
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
    pj_json_kv_double(json, "joules_per_token_typical_sd", r.joules_per_token_typical_sd);
    pj_json_kv_double(json, "joules_per_token_typical_lo", r.typical_bounds.lo);
    pj_json_kv_double(json, "joules_per_token_typical_hi", r.typical_bounds.hi);
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

void pj_summary_write_members(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates)
{
    const pj_cost_rates usual = PJ_COST_RATES_DEFAULT;
    pj_run_info shown = *info;
    char created[32];
    pj_clock_format_iso(info->created_wall_ns, created);
    if (!shown.batch_size) shown.batch_size = 1;
    pj_json_kv_string(json, "id", info->id);
    pj_json_kv_string(json, "run_id", info->id);
    pj_json_kv_string(json, "created_at", created);
    pj_json_key(json, "tags");
    pj_tags_write(json, info->tags, info->tag_count);
    write_columns(json, &shown, NULL);
    run_summary_write_ratios(json, info, rates ? rates : &usual);
    write_columns(json, &shown, "disturbance");
    write_columns(json, &shown, "attribution");
    write_columns(json, &shown, "overhead");
}

void pj_summary_write(pj_json *json, const pj_run_info *info, const pj_cost_rates *rates)
{
    pj_json_object_begin(json);
    pj_summary_write_members(json, info, rates);
    pj_json_object_end(json);
}
