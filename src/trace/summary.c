/* Ratios of a run. Definitions: docs/measurement.md. */
#include "trace/summary.h"

#include <math.h>
#include <string.h>

static double summary_divide(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/* Tokens made by decoding: the first token of each sequence comes from prefill. */
static double decoded_tokens(const pj_run_info *info)
{
    double sequences = info->batch_size ? info->batch_size : 1;
    return info->output_tokens > sequences ? (double)info->output_tokens - sequences : 0;
}

/* Prompt tokens processed by prefill; cached ones cost next to nothing. */
static double worked_tokens(const pj_run_info *info)
{
    double cached = info->cached_tokens > 0 ? info->cached_tokens : 0;
    return fmax(0, (double)info->input_tokens - cached);
}

void pj_run_ratios_get(const pj_run_info *info, pj_run_ratios *r)
{
    double decoded = decoded_tokens(info), output = (double)info->output_tokens;
    double request_j = info->request_mj / 1e3;
    r->tokens_per_second = decoded > 0 ? summary_divide(decoded, info->decode_ms / 1e3) : NAN;
    /* without a token, the prompt may have been read in part */
    double read = info->status == PJ_RUN_COMPLETED || output > 0 ? worked_tokens(info) : NAN;
    r->prefill_tokens_per_second = summary_divide(read, info->prefill_ms / 1e3);
    r->joules_per_token = summary_divide(request_j, output);
    r->joules_per_token_sd = summary_divide(info->request_sd_mj / 1e3, output);
    r->joules_per_token_net = summary_divide(info->request_net_mj / 1e3, output);
    r->joules_per_token_net_sd = summary_divide(info->request_net_sd_mj / 1e3, output);
    r->joules_per_token_typical = info->typical_token_mj / 1e3;
    r->joules_per_token_typical_sd = info->typical_sd_mj / 1e3;
    r->typical_bounds =
        pj_bounds_of(r->joules_per_token_typical, PJ_Z95 * r->joules_per_token_typical_sd);
    r->joules_per_input_token = summary_divide(info->prefill_mj / 1e3, read);
    r->joules_per_output_token = decoded > 0 ? summary_divide(info->decode_mj / 1e3, output) : NAN;
    r->tokens_per_joule = output > 0 ? summary_divide(output, request_j) : NAN;
    r->energy_delay_product = request_j * info->request_ms / 1e3;
    r->mean_power_mw = summary_divide(info->total_mj * 1e3, info->total_ms);
    r->prefill_decode_ratio = summary_divide(info->prefill_mj, info->decode_mj);
    r->mj_per_million_parameters = summary_divide(info->request_mj, info->parameters / 1e6);
    r->mj_per_million_active_parameters =
        summary_divide(info->request_mj, info->active_parameters / 1e6);
}

double pj_run_gain_sd(const pj_run_info *info)
{
    double gain = (double)info->total_sd.gain_mj / info->total_mj;
    return gain > 0 && isfinite(gain) ? gain : 0;
}

/* Of standard deviations stored in 32 bits, no smaller part can be told from rounding. */
static const double STORED_SD = 5e-4;

double pj_sd_without_gain(double mj, double sd_mj, double gain_sd)
{
    double gain_mj = gain_sd * mj, least_mj = STORED_SD * fabs(gain_mj);
    double rest = sd_mj * sd_mj - gain_mj * gain_mj;
    return rest < least_mj * least_mj ? least_mj : sqrt(rest);
}

double pj_typical_request_mj(const pj_run_info *info)
{
    double decoded = decoded_tokens(info);
    double typical = info->request_mj - info->decode_mj + decoded * info->typical_token_mj;
    return decoded > 0 && typical > 0 ? typical : info->request_mj;
}

double pj_run_ratios_primary(const pj_run_ratios *r)
{
    return isnan(r->joules_per_token_typical) ? r->joules_per_token : r->joules_per_token_typical;
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

const char *pj_run_scope(const pj_run_info *info)
{
    const char *scope = info->scope ? info->scope : "machine";
    return strcmp(scope, "request") == 0 && !info->allocation ? "machine" : scope;
}
