/* Repeated runs: mean, standard deviation and the 95 % interval of the mean of each figure. */
#include "cli/run_report.h"
#include "trace/summary.h"

#include <math.h>

double pj_student_t975(uint32_t degrees)
{
    static const double exact[] = {NAN,   12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                   2.306, 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
                                   2.120, 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069,
                                   2.064, 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    if (degrees < sizeof exact / sizeof *exact) return exact[degrees];
    double z = 1.959964, n = degrees; /* Cornish-Fisher; four digits from 31 on */
    return z + (z * z * z + z) / (4 * n) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

static void add(pj_series *series, int which, const char *name, const char *unit, double value)
{
    pj_series_figure *f = &series->figures[which];
    f->name = name;
    f->unit = unit;
    if (!isnan(value) && f->count < PJ_SERIES_MAX) f->values[f->count++] = value;
}

void pj_series_add(pj_series *series, const pj_run_info *info)
{
    pj_run_ratios r;
    pj_run_ratios_get(info, &r);
    series->runs++;
    add(series, 0, "total_duration_ms", "ms", info->total_ms);
    add(series, 1, "prefill_tokens_per_second", "tokens/s", r.prefill_tokens_per_second);
    add(series, 2, "tokens_per_second", "tokens/s", r.tokens_per_second);
    add(series, 3, "total_energy_mj", "mJ", info->total_mj);
    add(series, 4, "net_energy_mj", "mJ", info->net_mj);
    add(series, 5, "joules_per_token", "J", r.joules_per_token);
    add(series, 6, "joules_per_token_net", "J", r.joules_per_token_net);
    add(series, 7, "mean_power_mw", "mW", r.mean_power_mw);
}

void pj_series_finish(pj_series *series)
{
    for (int i = 0; i < PJ_SERIES_FIGURES; i++) {
        pj_series_figure *f = &series->figures[i];
        double sum = 0, squares = 0, n = f->count;
        for (uint32_t k = 0; k < f->count; k++) sum += f->values[k];
        f->mean = n > 0 ? sum / n : NAN;
        for (uint32_t k = 0; k < f->count; k++)
            squares += (f->values[k] - f->mean) * (f->values[k] - f->mean);
        f->sd = n > 1 ? sqrt(squares / (n - 1)) : NAN;
        double half = n > 1 ? pj_student_t975(f->count - 1) * f->sd / sqrt(n) : NAN;
        f->low = f->mean - half;
        f->high = f->mean + half;
    }
}

void pj_series_print(FILE *out, const pj_series *series)
{
    fprintf(out, "\n%u runs: mean, standard deviation, 95 %% interval of the mean\n", series->runs);
    for (int i = 0; i < PJ_SERIES_FIGURES; i++) {
        const pj_series_figure *f = &series->figures[i];
        if (isnan(f->mean)) continue;
        fprintf(out, "  %-26s %12.6g %-9s sd %-10.3g %.6g to %.6g\n", f->name, f->mean, f->unit,
                f->sd, f->low, f->high);
    }
}

void pj_series_write(pj_json *json, const pj_series *series)
{
    pj_json_object_begin(json);
    for (int i = 0; i < PJ_SERIES_FIGURES; i++) {
        const pj_series_figure *f = &series->figures[i];
        pj_json_key(json, f->name);
        pj_json_object_begin(json);
        pj_json_kv_uint(json, "n", f->count);
        pj_json_kv_double(json, "mean", f->mean);
        pj_json_kv_double(json, "sd", f->sd);
        pj_json_kv_double(json, "low", f->low);
        pj_json_kv_double(json, "high", f->high);
        pj_json_object_end(json);
    }
    pj_json_object_end(json);
}
