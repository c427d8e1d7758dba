/* Figures: SCI per token, the EU's form, InferenceX. */
#include "report/disclosure_forms.h"

#include <math.h>
#include <stdio.h>

static void write_facts(const pj_disclosure *x, const pj_disclosure_item *i, pj_json *json)
{
    char text[400];
    pj_disclosure_task(i, text, sizeof text);
    pj_json_kv_string(json, "task", text);
    pj_disclosure_boundary(i, x->terms, text, sizeof text);
    pj_json_kv_string(json, "boundary", text);
    pj_json_kv_string(json, "energy_source", pj_quality_name(i->first->quality));
    pj_json_kv_uint(json, "runs", i->runs);
    pj_json_kv_string(json, "hardware", i->first->machine);
    pj_json_kv_string(json, "engine", i->first->engine);
}

static void write_scaled(pj_json *json, const char *key, const pj_mean *mean, double factor)
{
    char name[64];
    pj_json_kv_double(json, key, mean->value * factor);
    snprintf(name, sizeof name, "%s_lo", key);
    pj_json_kv_double(json, name, mean->lo * factor);
    snprintf(name, sizeof name, "%s_hi", key);
    pj_json_kv_double(json, name, mean->hi * factor);
}

/* ---- SCI ------------------------------------------------------------------------------------ */

/* Grams of the machine's embodied emissions per output token: TE x TiR / EL, with all of the
 * machine reserved (RR = ToR). */
static double embodied_per_token(const pj_disclosure *x, const pj_disclosure_item *i)
{
    double life_s = x->terms->lifetime_years * 365.25 * 86400;
    return x->terms->embodied_kg * 1e3 * i->total_seconds / life_s / i->total_output;
}

static void write_sci(const pj_disclosure *x, const pj_disclosure_item *i, pj_json *json)
{
    const pj_disclosure_terms *t = x->terms;
    double kwh = pj_disclosure_kwh(1, t), m = embodied_per_token(x, i);
    pj_mean sci = i->joules_per_token;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", pj_disclosure_model(i));
    pj_json_kv_string(json, "functional_unit", "output token");
    write_facts(x, i, json);
    write_scaled(json, "e_kwh", &i->joules_per_token, kwh);
    pj_json_kv_double(json, "pue", t->pue);
    pj_json_kv_double(json, "i_g_per_kwh", t->g_per_kwh);
    pj_json_kv_string(json, "i_source",
                      t->g_is_default ? "default, not of this location" : "given");
    write_scaled(json, "o_g", &i->joules_per_token, kwh * t->g_per_kwh);
    pj_json_kv_double(json, "m_g", m);
    pj_json_kv_object_begin(json, "m_terms");
    pj_json_kv_double(json, "te_kg", t->embodied_kg);
    pj_json_kv_double(json, "tir_s", i->total_seconds / i->total_output);
    pj_json_kv_double(json, "el_years", t->lifetime_years);
    pj_json_kv_double(json, "rr_of_tor", isnan(t->embodied_kg) ? NAN : 1);
    pj_json_object_end(json);
    /* the interval is that of E: M is not measured */
    double factor = kwh * t->g_per_kwh;
    sci.value = sci.value * factor + m, sci.lo = sci.lo * factor + m, sci.hi = sci.hi * factor + m;
    write_scaled(json, "sci_g", &sci, 1);
    pj_json_object_end(json);
}

void pj_disclosure_sci(const pj_disclosure *x, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "standard", "ISO/IEC 21031:2024, SCI for AI, stage: inference");
    pj_json_kv_string(json, "formula", "SCI = ((E x I) + M) / R, g CO2eq");
    pj_json_kv_string(json, "created", x->now);
    pj_json_kv_string(json, "generator", "perjoule " PJ_VERSION_TEXT);
    pj_json_kv_array_begin(json, "scores");
    for (uint32_t i = 0; i < x->count; i++) write_sci(x, &x->items[i], json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- the EU's model documentation form ------------------------------------------------------ */

static double two_digits(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.1e", value);
    double rounded = NAN;
    return isfinite(value) && sscanf(text, "%lf", &rounded) == 1 ? rounded : NAN;
}

enum { EU_TOKENS = 100000 };

/* Counted where the engine counts, else two per active parameter and token. */
static double flops_per_token(const pj_disclosure_item *i, const char **basis)
{
    const pj_run_info *run = i->first;
    double tokens = i->input_tokens + i->output_tokens;
    *basis = isfinite(i->flops) ? "counted" : "2 per active parameter and token";
    if (isfinite(i->flops)) return i->flops / i->output_tokens;
    double parameters = isfinite(run->active_parameters) ? run->active_parameters : run->parameters;
    if (isnan(parameters)) *basis = NULL;
    return 2 * parameters * tokens / i->output_tokens;
}

static void write_eu(const pj_disclosure *x, const pj_disclosure_item *i, pj_json *json)
{
    const char *basis;
    double flops = flops_per_token(i, &basis), kwh = EU_TOKENS * pj_disclosure_kwh(1, x->terms);
    pj_mean rounded = i->joules_per_token;
    char text[200];
    rounded.value = two_digits(rounded.value * kwh);
    rounded.lo = two_digits(rounded.lo * kwh), rounded.hi = two_digits(rounded.hi * kwh);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model_name", pj_disclosure_model(i));
    pj_json_kv_double(json, "parameters", two_digits(i->first->parameters));
    snprintf(text, sizeof text,
             "generating %d tokens by requests of %.4g input and %.4g output tokens", EU_TOKENS,
             i->input_tokens, i->output_tokens);
    pj_json_kv_string(json, "computational_task", text);
    pj_json_kv_double(json, "computation_flops", two_digits(EU_TOKENS * flops));
    pj_json_kv_string(json, "computation_basis", basis);
    write_scaled(json, "energy_kwh", &rounded, 1);
    pj_json_kv_double(json, "pue", x->terms->pue);
    write_facts(x, i, json);
    pj_json_object_end(json);
}

void pj_disclosure_eu(const pj_disclosure *x, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "form",
                      "Model Documentation Form (GPAI Code of Practice, Measure 1.1): energy "
                      "consumption during training and inference");
    pj_json_kv_string(json, "created", x->now);
    pj_json_kv_string(json, "generator", "perjoule " PJ_VERSION_TEXT);
    pj_json_kv_string(json, "precision", "two significant figures");
    pj_json_kv_null(json, "training");
    pj_json_kv_array_begin(json, "inference");
    for (uint32_t i = 0; i < x->count; i++) write_eu(x, &x->items[i], json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

/* ---- InferenceX ----------------------------------------------------------------------------- */

/* Its energies are those of the accelerators, of all requests. */
static void write_metrics(const pj_disclosure_item *i, bool valid, pj_json *json)
{
    double joules = valid ? i->gpu_joules : NAN, watts = joules / i->gpu_seconds;
    double requests = i->runs * (i->first->batch_size ? i->first->batch_size : 1);
    pj_json_kv_double(json, "avg_power_w", watts / i->gpus);
    pj_json_kv_double(json, "avg_total_gpu_power_w", watts);
    pj_json_kv_double(json, "total_gpu_energy_j", joules);
    pj_json_kv_double(json, "joules_per_successful_query", joules / requests);
    pj_json_kv_double(json, "joules_per_input_token",
                      i->total_input > 0 ? joules / i->total_input : NAN);
    pj_json_kv_double(json, "joules_per_output_token", joules / i->total_output);
    pj_json_kv_double(json, "joules_per_total_token", joules / (i->total_input + i->total_output));
}

static void write_inferencex(const pj_disclosure *x, const pj_disclosure_item *i, pj_json *json)
{
    const pj_run_info *run = i->first;
    bool valid = i->gpus && isfinite(i->gpu_joules) && !i->gpu_modelled;
    double batch = run->batch_size ? run->batch_size : 1;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model", pj_disclosure_model(i));
    pj_json_kv_string(json, "hardware", run->machine);
    pj_json_kv_string(json, "framework", run->engine);
    pj_json_kv_string(json, "precision", run->dtype);
    pj_json_kv_double(json, "isl", i->input_tokens / batch);
    pj_json_kv_double(json, "osl", i->output_tokens / batch);
    uint32_t at_a_time = pj_run_at_a_time(run);
    pj_json_kv_double(json, "conc", at_a_time ? batch * at_a_time : NAN);
    pj_json_kv_uint(json, "num_gpus", i->gpus);
    pj_json_kv_int(json, "power_metric_schema_version", 2);
    pj_json_kv_int(json, "power_valid", valid);
    pj_json_kv_array_begin(json, "power_invalid_reasons");
    if (!i->gpus) pj_json_string(json, "no_gpu_sensor");
    if (i->gpus && i->gpu_modelled) pj_json_string(json, "gpu_energy_not_measured");
    if (i->gpus && isnan(i->gpu_joules)) pj_json_string(json, "gpu_energy_unavailable");
    pj_json_array_end(json);
    write_metrics(i, valid, json);
    pj_json_kv_object_begin(json, "perjoule");
    write_facts(x, i, json);
    pj_json_kv_double(json, "pue", x->terms->pue);
    write_scaled(json, "joules_per_token", &i->joules_per_token, 1);
    write_scaled(json, "joules_per_request", &i->joules, 1);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

void pj_disclosure_inferencex(const pj_disclosure *x, pj_json *json)
{
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < x->count; i++) write_inferencex(x, &x->items[i], json);
    pj_json_array_end(json);
}
