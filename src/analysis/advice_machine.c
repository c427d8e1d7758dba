/* Rules about the machine and its sensors. */
#include "analysis/advice_rules.h"

#include "base/estimate.h"

#include <math.h>
#include <stdio.h>

#define FALLS_BACK 0.5 /* of the energy above idle: a host that only launches work draws less */
#define RISES      0.2 /* of a token's energy: from here on it is not the usual warming up */

static const char *advice_machine_disturbed(const pj_advice_facts *f, pj_advice *a)
{
    if (!(f->disturbed_share > 0.1)) return "less than 10 % of the energy is in disturbances";
    pj_advice_evidence(a, "disturbed_share", "share", f->disturbed_share,
                       "of the request's energy is in disturbances");
    a->limits = true;
    snprintf(a->text, sizeof a->text,
             "%.0f %% of the request's energy went into disturbances, by other load, throttling or "
             "waiting: these figures do not describe the model. Measure again on an idle machine.",
             100 * f->disturbed_share);
    pj_advice_run(f, a, "");
    return NULL;
}

static const char *advice_machine_throttled(const pj_advice_facts *f, pj_advice *a)
{
    if (isnan(f->throttled_share)) return "no device reports throttling";
    if (f->throttled_share <= 0.05) return "clocks were throttled for less than 5 % of the run";
    pj_advice_evidence(a, "throttled_share", "share", f->throttled_share,
                       "of the run was throttled");
    a->limits = true;
    snprintf(a->text, sizeof a->text,
             "Clocks were throttled for %.0f %% of the run: cool the machine, or set its power "
             "limit to what it can sustain, so that runs are comparable.",
             100 * f->throttled_share);
    pj_advice_run(f, a, "");
    return NULL;
}

static const char *advice_machine_rising(const pj_advice_facts *f, pj_advice *a)
{
    double least = (f->rise - PJ_Z95 * f->rise_sd) / f->rise_explained;
    if (isnan(f->rise)) return "there are too few decode tokens of one sequence";
    if (!(least > 1 + RISES))
        return "later tokens are not reliably a fifth dearer than earlier ones";
    pj_advice_evidence(a, "rise", "ratio", f->rise,
                       "of a token of the last third, to one of the first");
    pj_advice_evidence(a, "rise_explained", "ratio", f->rise_explained,
                       "explained by the longer context");
    a->limits = true;
    snprintf(a->text, sizeof a->text,
             "A token of the last third took %.2f times the energy of one of the first, and the "
             "longer context explains %.2f times: heat, lower clocks or other load add up during "
             "the run, so that figures depend on its length. See whether a repetition does it too.",
             f->rise, f->rise_explained);
    pj_advice_run(f, a, "");
    return NULL;
}

static const char *advice_machine_fallback(const pj_advice_facts *f, pj_advice *a)
{
    if (isnan(f->host_share)) return "no device besides the processor, or one is not measured";
    if (!(f->host_share > FALLS_BACK)) return "the processor drew less than half of the energy";
    pj_advice_evidence(a, "host_share", "share", f->host_share,
                       "of the energy above idle is the processor's");
    a->limits = true;
    snprintf(a->text, sizeof a->text,
             "The processor drew %.0f %% of the energy above idle, though the run names %s as its "
             "device: operations that it lacks may fall back to the processor, or the program "
             "waits for it without sleeping. Look at the parts that take longest.",
             100 * f->host_share, f->device ? f->device : "another");
    pj_advice_run(f, a, "");
    return NULL;
}

static const char *advice_machine_power_limit(const pj_advice_facts *f, pj_advice *a)
{
    double near = f->power_mw / f->power_limit_mw, decode = f->decode_mj / f->request_mj;
    if (!(f->has_energy && f->power_limit_mw > 0)) return "no power limit is reported";
    if (!(near > 0.9)) return "power stayed below 90 % of the limit";
    if (pj_advice_not_bytes_bound(f)) return pj_advice_not_bytes_bound(f);
    pj_advice_evidence(a, "limit_share", "share", near, "of the power limit is drawn");
    pj_advice_evidence(a, "decode_share", "share", decode, "of the request is decode");
    a->latency = "prefill is slower, decode hardly";
    snprintf(a->text, sizeof a->text,
             "The device draws %.0f %% of its power limit while decode waits for memory: a lower "
             "limit costs little speed.",
             100 * near);
    pj_advice_run(f, a, "--tag lower-limit");
    return pj_advice_predicts(f, a, 0.05 * decode, 0.12 * decode, 0.25 * decode, NAN);
}

static const char *advice_machine_calibrate(const pj_advice_facts *f, pj_advice *a)
{
    if (f->is_elsewhere) return "only components of perjoule's engine can be calibrated";
    if (!(f->interval > 0.2)) return "the intervals of components are below 20 %, or unknown";
    if (f->interval_calibrated >= 0.9 * f->interval)
        return "a calibration would not narrow the intervals";
    pj_advice_evidence(a, "interval", "share", f->interval,
                       "typical 95 % half width of a component's energy");
    if (!isnan(f->interval_calibrated))
        pj_advice_evidence(a, "interval_calibrated", "share", f->interval_calibrated,
                           "the same, expected after calibrating");
    a->limits = true;
    snprintf(a->text, sizeof a->text,
             "The sensor is too slow to separate components: their energies are known to ±%.0f %%. "
             "Calibrating once (about a minute) measures each on its own.",
             100 * f->interval);
    snprintf(a->test, sizeof a->test, "perjoule calibrate %s%s%s", f->model,
             f->device ? " --device " : "", f->device ? f->device : "");
    return NULL;
}

static const char *advice_machine_idle(const pj_advice_facts *f, pj_advice *a)
{
    double idle_ms = f->window_ms - f->window_busy_ms, share = idle_ms / f->window_ms;
    double idle_mj = f->idle_mw * idle_ms / 1000, all = idle_mj + f->window_mj;
    if (f->window_prompts < 10 || !(f->window_ms > 60e3))
        return "fewer than ten prompts in the hour before: not a server's load";
    if (!(f->idle_mw > 0)) return "idle power is unknown";
    if (!(share > 0.3)) return "the machine idled for less than 30 % of the window";
    pj_advice_evidence(a, "idle_share", "share", share, "of the window between runs");
    pj_advice_evidence(a, "idle_power_mw", "mW", f->idle_mw, "idle");
    pj_advice_evidence(a, "window_runs", "", f->window_runs, "runs in the window");
    a->latency = "wake-up time, or waiting for the shared machine";
    snprintf(a->text, sizeof a->text,
             "Between its runs the machine idled for %.0f %% of the last hour's window at %.3g W: "
             "put the work of several such machines on one, or let it sleep.",
             100 * share, f->idle_mw / 1000);
    snprintf(a->test, sizeof a->test, "perjoule top --duration 60");
    /* Idle energy is as uncertain beside the runs' energy as that is. */
    double most = idle_mj / all, half = PJ_Z95 * f->relative_sd * f->window_mj / all;
    return pj_advice_saves(f, a, "window", all, 0.3 * most, 0.7 * most, most + half, "predicted");
}

static const char *advice_machine_region(const pj_advice_facts *f, pj_advice *a)
{
    double grams = f->request_mj / 3.6e9 * f->g_per_kwh;
    if (!(f->has_energy && f->g_per_kwh > 0)) return "no carbon intensity was given";
    if (!f->lowest_region || !(f->lowest_g_per_kwh < 0.5 * f->g_per_kwh))
        return "the given region is already among the lowest";
    pj_advice_evidence(a, "co2_grams", "g", grams, "of CO2 for this request");
    pj_advice_evidence(a, "g_per_kwh", "g/kWh", f->g_per_kwh, "where it ran");
    pj_advice_evidence(a, "g_per_kwh_there", "g/kWh", f->lowest_g_per_kwh, "in the other region");
    a->of = "co2";
    a->share = a->hi = 1 - f->lowest_g_per_kwh / f->g_per_kwh;
    a->lo = 0.7 * a->share;
    a->basis = "predicted";
    a->latency = "the distance";
    snprintf(a->text, sizeof a->text,
             "Saves CO2, not energy: in %s a kilowatt-hour emits %.0f g instead of %.0f g. Work "
             "that can wait may also wait for windy or sunny hours.",
             f->lowest_region, f->lowest_g_per_kwh, f->g_per_kwh);
    snprintf(a->test, sizeof a->test, "perjoule show %s --g-per-kwh %.0f", f->run_id,
             f->lowest_g_per_kwh);
    return NULL;
}

const pj_advice_rule pj_advice_machine_rules[] = {
    {"disturbed", "Measure again on a quiet machine", PJ_ADVICE_OF_ENERGY,
     advice_machine_disturbed},
    {"throttled", "Keep the clocks steady", 0, advice_machine_throttled},
    {"rising", "Find what makes later tokens dearer", PJ_ADVICE_OF_ENERGY, advice_machine_rising},
    {"fallback", "Find what the processor does beside the device", PJ_ADVICE_OF_ENERGY,
     advice_machine_fallback},
    {"power-limit", "Lower the power limit", PJ_ADVICE_OF_ENERGY, advice_machine_power_limit},
    {"calibrate", "Calibrate the attribution", PJ_ADVICE_OF_ENERGY, advice_machine_calibrate},
    {"idle", "Consolidate idle machines, or let them sleep", PJ_ADVICE_OF_ENERGY,
     advice_machine_idle},
    {"region", "Run where the grid is cleaner", PJ_ADVICE_OF_ENERGY, advice_machine_region},
    {0},
};
