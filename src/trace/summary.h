/* Ratios, cost and CO2 of a run, and the names of enumerations. Cost and CO2 are computed when
 * shown, so that prices are never stored. The summary as a JSON object: store/run_summary.h. */
#ifndef PJ_TRACE_SUMMARY_H
#define PJ_TRACE_SUMMARY_H

#include "base/estimate.h"
#include "trace/run_data.h"

typedef struct pj_cost_rates {
    double usd_per_kwh;   /* default 0.12 */
    double co2_g_per_kwh; /* default 400 */
} pj_cost_rates;

#define PJ_COST_RATES_DEFAULT ((pj_cost_rates){0.12, 400})

/* Ratios derived from a run's figures; NAN where an input is unavailable. */
typedef struct pj_run_ratios {
    double tokens_per_second; /* output tokens after the first of each sequence / decode time */
    double prefill_tokens_per_second; /* input tokens / prefill time */
    /* The request leaves out model loading and idle gaps: see trace/request.h. */
    double joules_per_token; /* gross energy of the request / output tokens */
    double joules_per_token_net;
    double joules_per_token_sd, joules_per_token_net_sd; /* 1 sigma of the two */
    double joules_per_token_typical; /* of the undisturbed decode tokens: trace/typical.h */
    double joules_per_token_typical_sd;
    pj_bounds typical_bounds;       /* its interval */
    double joules_per_input_token;  /* prefill / input tokens */
    double joules_per_output_token; /* decode / output tokens; NAN without decoding */
    double tokens_per_joule;        /* 1 / joules_per_token */
    double energy_delay_product;    /* request energy x request duration, J s */
    double mean_power_mw;           /* of the whole run */
    double prefill_decode_ratio;    /* of energy */
    double mj_per_million_parameters, mj_per_million_active_parameters; /* of the request */
} pj_run_ratios;

void pj_run_ratios_get(const pj_run_info *info, pj_run_ratios *ratios);
/* Joules per token by which a run is judged: of the typical token or, without decode tokens, the
 * mean of the request. Runs that are compared with each other need the same of the two. */
double pj_run_ratios_primary(const pj_run_ratios *ratios);
/* The request with typical tokens in place of all decode tokens, and so without their disturbances:
 * what predictions and laws are about. */
double pj_typical_request_mj(const pj_run_info *info);
/* Relative 1 sigma of the sensor's calibration, which all energies of a run share; 0: unknown.
 * Tables of a run say it once, and give their rows the rest. */
double pj_run_gain_sd(const pj_run_info *info);
double pj_sd_without_gain(double mj, double sd_mj, double gain_sd);
double pj_cost_usd(double mj, const pj_cost_rates *rates);
double pj_co2_grams(double mj, const pj_cost_rates *rates);

/* The status of a queued run: shown, never stored, not a pj_run_status. */
enum { PJ_RUN_QUEUED = 100 };
/* What the energy of a run is of. A request that was alone has all of the machine's. */
const char *pj_run_scope(const pj_run_info *info);
const char *pj_run_status_name(pj_run_status status);   /* "completed", ... */
const char *pj_depth_name(pj_depth depth);              /* "off", "module", "deep" */
const char *pj_quality_name(pj_source_quality quality); /* "measured", "modelled", ... */
const char *pj_method_name(pj_method method);           /* "none", "integrate", "fit", ... */
/* "": available; "no_sensor", "sensor_gap", "below_resolution". */
const char *pj_absence_name(pj_absence absence);
/* A description for a name as above; any other name: no sensor. */
const char *pj_absence_text(const char *name);
/* The value of a name, or -1. */
int pj_run_status_parse(const char *name);
int pj_depth_parse(const char *name);
int pj_quality_parse(const char *name);

#endif
