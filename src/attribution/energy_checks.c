/* Applies the checks of power/checks.h to a run: raises uncertainties and adds warnings. */
#include "attribution/energies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The uncertainty of a rail contradicted by another is at least their disagreement. */
static void energy_checks_doubt(pj_energies *j, const pj_finding *finding)
{
    pj_curve *curve = j->curves[finding->rail];
    pj_curve_doubt_gain(curve, finding->excess);
    j->d->rails[finding->rail].gain_sd = pj_curve_rail(curve)->gain_sd;
}

pj_status pj_energy_check(pj_energies *j, pj_error *err)
{
    j->findings = pj_arena_alloc(&j->arena, PJ_FINDINGS_MAX, sizeof *j->findings);
    if (!j->findings) return pj_fail_memory(err, "the checks of a run");
    j->finding_count =
        pj_rails_check(j->d->rails, j->d->rail_count, (const pj_curve *const *)j->curves,
                       j->tree->begin_ns, j->tree->end_ns, j->findings);
    for (uint32_t i = 0; i < j->finding_count; i++) energy_checks_doubt(j, &j->findings[i]);
    return PJ_OK;
}

/* Whether the meter or an earlier attribution has reported the finding. Two rails may have the same
 * fault, so the code alone does not identify it. */
static bool is_reported(const pj_run_data *d, uint32_t before, const pj_finding *finding)
{
    for (uint32_t i = 0; i < before; i++)
        if (strcmp(d->warnings[i].code, finding->code) == 0 &&
            (strcmp(d->warnings[i].text, finding->text) == 0 ||
             strstr(d->warnings[i].text, d->rails[finding->rail].source)))
            return true;
    return false;
}

static bool add_warning(pj_energies *j, const char *code, const char *text)
{
    pj_arena *arena = &j->d->arena;
    pj_warning_row *row = &j->d->warnings[j->d->warning_count++];
    *row = (pj_warning_row){(double)(j->tree->end_ns - j->tree->begin_ns) / 1e6,
                            pj_arena_strndup(arena, code, strlen(code)),
                            pj_arena_strndup(arena, text, strlen(text))};
    return row->code && row->text;
}

/* Devices that computed and that no rail measures. */
static bool report_devices(pj_energies *j)
{
    char text[400];
    bool ok = true;
    for (uint32_t i = 1; i < j->d->device_count; i++) {
        const pj_device_row *device = &j->d->devices[i];
        if (j->measured >> i & 1 || j->tree->busy_ns[i] == 0) continue;
        snprintf(text, sizeof text,
                 "no sensor measures %.80s (%s), which computed part of this run: its work has no "
                 "energy, and neither has what contains it",
                 device->name, device->rail_reason);
        ok &= add_warning(j, "device_without_sensor", text);
    }
    return ok;
}

/* Warns of what attribution could not do, each once. */
static bool report_limits(pj_energies *j)
{
    char text[256];
    double upper_mj = (double)j->run.upper_mj;
    bool ok = true;
    if (j->below_resolution) {
        char bound[48] = "";
        if (!isnan(upper_mj)) snprintf(bound, sizeof bound, " (at most %.3g J)", upper_mj / 1e3);
        snprintf(text, sizeof text,
                 "the sensors did not resolve this run, whose energy is unavailable%s: make it "
                 "longer, or use a faster sensor",
                 bound);
        ok &= add_warning(j, "below_resolution", text);
    }
    if (j->run.absence == PJ_ABSENT_SENSOR_GAP)
        ok &= add_warning(j, "sensor_gap",
                          "the sensors gave no readings for a part of the run, whose energy is "
                          "unavailable");
    if (j->no_device) {
        char names[128];
        uint64_t others = 0;
        for (uint32_t r = 0; r < j->d->rail_count; r++)
            if (pj_rail_in_column(j->d->rails, j->d->rail_count, r, PJ_RAIL_TOTAL))
                others |= 1ull << r;
        pj_rail_names(j->d->rails, j->d->rail_count, others, names, sizeof names);
        snprintf(text, sizeof text,
                 "no sensor measures the CPU, which computed this run: its energy is unavailable "
                 "(%s is not the run's)",
                 names);
        ok &= add_warning(j, "device_without_sensor", text);
    }
    if (j->no_parts) ok &= report_devices(j);
    if (j->idle_moved)
        ok &= add_warning(j, "idle_power_moved",
                          "the run used less than an idle machine: idle power has changed since it "
                          "was measured, so net figures are unavailable");
    if (j->pooled_many) {
        snprintf(text, sizeof text,
                 "%u classes of work share one power with others of their phase: attribution "
                 "can separate at most 160",
                 j->pooled_many);
        ok &= add_warning(j, "classes_pooled", text);
    }
    return ok;
}

pj_status pj_energy_report(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    uint32_t before = d->warning_count, most = before + j->finding_count + 5 + d->device_count;
    pj_warning_row *all = pj_arena_alloc(&d->arena, most, sizeof *all);
    if (!all) return pj_fail_memory(err, "the warnings of a run");
    if (before) memcpy(all, d->warnings, before * sizeof *all);
    d->warnings = all;
    bool ok = true;
    for (uint32_t i = 0; i < j->finding_count; i++)
        if (!is_reported(d, before, &j->findings[i]))
            ok &= add_warning(j, j->findings[i].code, j->findings[i].text);
    if (!report_limits(j) || !ok) return pj_fail_memory(err, "the warnings of a run");
    char unmeasured[256];
    pj_energy_name_unmeasured(j, unmeasured, sizeof unmeasured);
    return pj_run_name_total(d, j->used_rails, j->missing_rails, unmeasured, err);
}
