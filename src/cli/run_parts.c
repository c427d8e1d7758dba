#include "cli/run_parts.h"

#include "cli/terminal.h"
#include "trace/disturbance.h"
#include "trace/model_figures.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t run_parts_index_of(const pj_run_parts *parts, const char *name)
{
    uint32_t i = 0;
    while (i < parts->count && strcmp(parts->items[i].name, name) != 0) i++;
    return i;
}

const pj_run_part *pj_run_parts_find(const pj_run_parts *parts, const char *name)
{
    uint32_t i = run_parts_index_of(parts, name);
    return i < parts->count ? &parts->items[i] : NULL;
}

/* Adds everything but the standard deviations; NULL when full. */
static pj_run_part *run_parts_add(pj_run_parts *parts, const char *name, double ms,
                                  const pj_energy *energy)
{
    uint32_t i = run_parts_index_of(parts, name);
    if (i == PJ_RUN_PARTS_MAX) return NULL;
    pj_run_part *part = &parts->items[i];
    if (i == parts->count) {
        parts->count++;
        *part = (pj_run_part){.name = name};
    }
    part->ms += ms;
    part->gross_mj += pj_mj_of_nj(energy->gross_nj);
    part->net_mj += pj_mj_of_nj(energy->net_nj);
    return part;
}

void pj_run_parts_phases(pj_run_parts *parts, const pj_run_data *run)
{
    parts->count = 0;
    for (uint32_t i = 0; i < run->phase_count; i++) {
        const pj_phase_row *row = &run->phases[i];
        const char *name = pj_phase_name(row->phase);
        pj_run_part *part = run_parts_add(parts, name, row->duration_ms, &row->energy);
        if (!part) continue;
        part->sd_mj = hypot(part->sd_mj, (double)row->energy.sd_mj);
        part->net_sd_mj = hypot(part->net_sd_mj, (double)row->energy.net_sd_mj);
    }
}

/* Errors of rows of one component are correlated: standard deviations add linearly, as in the
 * store. Disturbances are left out. */
void pj_run_parts_components(pj_run_parts *parts, const pj_run_data *run)
{
    parts->count = 0;
    for (uint32_t i = 0; i < run->component_count; i++) {
        const pj_component_row *row = &run->components[i];
        double share = pj_component_disturbed_share(row);
        pj_energy energy = pj_energy_without_share(&row->energy, share);
        pj_run_part *part =
            run_parts_add(parts, row->name, row->duration_ms * (1 - share), &energy);
        if (part) part->sd_mj += (double)energy.sd_mj;
    }
}

void pj_run_parts_drop_gain(pj_run_parts *parts, double gain_sd)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        pj_run_part *p = &parts->items[i];
        p->sd_mj = pj_sd_without_gain(p->gross_mj, p->sd_mj, gain_sd);
        p->net_sd_mj = pj_sd_without_gain(p->net_mj, p->net_sd_mj, gain_sd);
    }
}

void pj_run_draft_get(const pj_run_data *run, double ms, double mj, double sd_mj, pj_run_draft *d)
{
    pj_model_figures model;
    double all_mj = 0;
    pj_model_figures_read(run->info.model_json, &model);
    *d = (pj_run_draft){.proposed = model.draft_proposed,
                        .accepted = model.draft_accepted,
                        .ms = ms,
                        .mj = mj,
                        .sd_mj = sd_mj};
    memcpy(d->name, model.draft_name, sizeof d->name);
    for (uint32_t i = 0; i < run->phase_count; i++) {
        const pj_phase_row *row = &run->phases[i];
        if (row->phase == PJ_PHASE_PREFILL || row->phase == PJ_PHASE_DECODE)
            all_mj += pj_mj_of_nj(row->energy.gross_nj);
    }
    d->target_mj = all_mj - d->mj;
}

void pj_run_draft_text(const pj_run_draft *d, char *text, size_t bytes)
{
    bool draft = !isnan(d->mj), target = !isnan(d->target_mj);
    bool each = draft && d->accepted > 0;
    snprintf(text, bytes,
             "%s: %.0f of %.0f proposed tokens accepted (%.0f %%); it took %s%s%s%s%s%s%s%s",
             d->name, d->accepted, d->proposed,
             d->proposed > 0 ? 100 * d->accepted / d->proposed : 0, pj_time_text(d->ms).s,
             draft ? ", " : "", draft ? pj_interval_text(d->mj, d->sd_mj).s : "", each ? " (" : "",
             each ? pj_interval_text(d->mj / d->accepted, d->sd_mj / d->accepted).s : "",
             each ? " per accepted token)" : "", target ? ", and the model " : "",
             target ? pj_energy_text(d->target_mj).s : "");
}
