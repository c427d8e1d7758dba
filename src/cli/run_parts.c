#include "cli/run_parts.h"

#include <math.h>
#include <string.h>

static uint32_t index_of(const pj_run_parts *parts, const char *name)
{
    uint32_t i = 0;
    while (i < parts->count && strcmp(parts->items[i].name, name) != 0) i++;
    return i;
}

const pj_run_part *pj_run_parts_find(const pj_run_parts *parts, const char *name)
{
    uint32_t i = index_of(parts, name);
    return i < parts->count ? &parts->items[i] : NULL;
}

/* Adds everything but the standard deviation; NULL when full. */
static pj_run_part *add(pj_run_parts *parts, const char *name, double ms, const pj_energy *energy)
{
    uint32_t i = index_of(parts, name);
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
        pj_run_part *part = add(parts, name, row->duration_ms, &row->energy);
        if (part) part->sd_mj = hypot(part->sd_mj, (double)row->energy.sd_mj);
    }
}

/* Errors of rows of one component are correlated: standard deviations add linearly, as in the
 * store. */
void pj_run_parts_components(pj_run_parts *parts, const pj_run_data *run)
{
    parts->count = 0;
    for (uint32_t i = 0; i < run->component_count; i++) {
        const pj_component_row *row = &run->components[i];
        pj_run_part *part = add(parts, row->name, row->duration_ms, &row->energy);
        if (part) part->sd_mj += (double)row->energy.sd_mj;
    }
}
