/* Rules about the machine and its sensors. */
#include "analysis/advice_rules.h"

#include <math.h>
#include <stdio.h>

#define SAY(a, ...) snprintf((a)->text, sizeof(a)->text, __VA_ARGS__)

static bool lacks(pj_advice *a, bool known, const char *why)
{
    if (known) return false;
    pj_advice_silent(a, why);
    return true;
}

static void advice_machine_disturbed(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, f->disturbed_share > 0.1, "less than 10 % of the energy is in disturbed tokens"))
        return;
    pj_advice_evidence(a, "disturbed_share", "share", f->disturbed_share,
                       "of the request's energy is in disturbed tokens");
    a->speaks = a->limits = true;
    SAY(a,
        "%.0f %% of the request's energy went into tokens slowed down by other load on the "
        "machine: these figures do not describe the model. Measure again on an idle machine.",
        100 * f->disturbed_share);
    pj_advice_run(f, a, "");
}

static void advice_machine_throttled(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, !isnan(f->throttled_share), "no device reports throttling")) return;
    if (lacks(a, f->throttled_share > 0.05, "clocks were throttled for less than 5 % of the run"))
        return;
    pj_advice_evidence(a, "throttled_share", "share", f->throttled_share,
                       "of the run was throttled");
    a->speaks = a->limits = true;
    SAY(a,
        "Clocks were throttled for %.0f %% of the run: cool the machine, or set its power limit to "
        "what it can sustain, so that runs are comparable.",
        100 * f->throttled_share);
    pj_advice_run(f, a, "");
}

static void advice_machine_power_limit(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, f->has_energy && f->power_limit_mw > 0, "no power limit is reported")) return;
    double near = f->power_mw / f->power_limit_mw;
    if (lacks(a, near > 0.9, "power stayed below 90 % of the limit")) return;
    if (lacks(a, pj_advice_is_bytes_bound(f), "decode is not memory-bound")) return;
    double decode = f->decode_mj / f->request_mj;
    pj_advice_evidence(a, "limit_share", "share", near, "of the power limit is drawn");
    pj_advice_evidence(a, "decode_share", "share", decode, "of the request is decode");
    a->latency = "prefill is slower, decode hardly";
    pj_advice_saves(f, a, "request", f->request_mj, 0.05 * decode, 0.12 * decode, 0.25 * decode,
                    "predicted");
    if (!a->speaks) return;
    SAY(a,
        "The device draws %.0f %% of its power limit while decode waits for memory: a lower limit "
        "costs little speed.",
        100 * near);
    pj_advice_run(f, a, "--tag lower-limit");
}

static void advice_machine_calibrate(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, f->own_engine, "only runs of perjoule's own engine can be calibrated")) return;
    if (lacks(a, f->interval > 0.2, "the intervals of components are below 20 %, or unknown"))
        return;
    if (lacks(a, !(f->interval_calibrated >= 0.9 * f->interval),
              "a calibration would not narrow the intervals"))
        return;
    pj_advice_evidence(a, "interval", "share", f->interval,
                       "typical 95 % half width of a component's energy");
    if (!isnan(f->interval_calibrated))
        pj_advice_evidence(a, "interval_calibrated", "share", f->interval_calibrated,
                           "the same, expected after calibrating");
    a->speaks = a->limits = true;
    SAY(a,
        "The sensor is too slow to separate components: their energies are known to ±%.0f %%. "
        "Calibrating once (about a minute) measures each on its own.",
        100 * f->interval);
    snprintf(a->test, sizeof a->test, "perjoule calibrate %s", f->model);
}

static void advice_machine_idle(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, f->window_prompts >= 10 && f->window_ms > 60e3,
              "fewer than ten prompts in the hour before: not a server's load"))
        return;
    if (lacks(a, f->idle_mw > 0, "idle power is unknown")) return;
    double idle_ms = f->window_ms - f->window_busy_ms, share = idle_ms / f->window_ms;
    if (lacks(a, share > 0.3, "the machine idled for less than 30 % of the window")) return;
    double idle_mj = f->idle_mw * idle_ms / 1000;
    double all = idle_mj + f->window_mj;
    pj_advice_evidence(a, "idle_share", "share", share, "of the window between runs");
    pj_advice_evidence(a, "idle_power_mw", "mW", f->idle_mw, "idle");
    pj_advice_evidence(a, "window_runs", "", f->window_runs, "runs in the window");
    a->latency = "wake-up time, or waiting for the shared machine";
    pj_advice_saves(f, a, "window", all, 0.3 * idle_mj / all, 0.7 * idle_mj / all, idle_mj / all,
                    "predicted");
    if (!a->speaks) return;
    SAY(a,
        "Between its runs the machine idled for %.0f %% of the last hour's window at %.3g W: put "
        "the "
        "work of several such machines on one, or let it sleep.",
        100 * share, f->idle_mw / 1000);
    snprintf(a->test, sizeof a->test, "perjoule top --duration 60");
}

static void advice_machine_region(const pj_advice_facts *f, pj_advice *a)
{
    if (lacks(a, f->has_energy && f->g_per_kwh > 0, "no carbon intensity was given")) return;
    if (lacks(a, f->lowest_region && f->lowest_g_per_kwh < 0.5 * f->g_per_kwh,
              "the given region is already among the lowest"))
        return;
    double grams = f->request_mj / 3.6e9 * f->g_per_kwh;
    double share = 1 - f->lowest_g_per_kwh / f->g_per_kwh;
    pj_advice_evidence(a, "co2_grams", "g", grams, "of CO2 for this request");
    pj_advice_evidence(a, "g_per_kwh", "g/kWh", f->g_per_kwh, "where it ran");
    pj_advice_evidence(a, "g_per_kwh_there", "g/kWh", f->lowest_g_per_kwh, "in the other region");
    a->of = "co2";
    a->share = share;
    a->lo = 0.7 * share;
    a->hi = share;
    a->basis = "predicted";
    a->speaks = true;
    a->latency = "the distance";
    SAY(a,
        "Saves CO2, not energy: in %s a kilowatt-hour emits %.0f g instead of %.0f g. Work that can "
        "wait may also wait for windy or sunny hours.",
        f->lowest_region, f->lowest_g_per_kwh, f->g_per_kwh);
    snprintf(a->test, sizeof a->test, "perjoule show %s --g-per-kwh %.0f", f->run_id,
             f->lowest_g_per_kwh);
}

const pj_advice_rule pj_advice_machine_rules[] = {
    {"disturbed", "Measure again on a quiet machine", advice_machine_disturbed},
    {"throttled", "Keep the clocks steady", advice_machine_throttled},
    {"power-limit", "Lower the power limit", advice_machine_power_limit},
    {"calibrate", "Calibrate the attribution", advice_machine_calibrate},
    {"idle", "Consolidate idle machines, or let them sleep", advice_machine_idle},
    {"region", "Run where the grid is cleaner", advice_machine_region},
    {0},
};
