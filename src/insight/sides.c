/* Sides of a comparison: their runs and figures. */
#include "insight/sides.h"

#include "trace/device_conditions.h"
#include "trace/rail.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Thresholds above which a run counts as disturbed. */
static const double disturbed_limit = 0.10, throttled_limit = 0.05;

/* ---- figures of a run ----------------------------------------------------------------------- */

#define OF_RUN(member)    offsetof(pj_run_info, member), SIZE_MAX
#define OF_RATIOS(member) SIZE_MAX, offsetof(pj_run_ratios, member)
#define ERRORS(name)      offsetof(pj_run_info, name##_mj), offsetof(pj_run_info, name##_sd)
#define TYPICAL_ERRORS    offsetof(pj_run_info, typical_token_mj), offsetof(pj_run_info, typical_sd)
const pj_figure pj_figures[] = {
    {"joules_per_token_typical", "J", "lower", OF_RATIOS(joules_per_token_typical), TYPICAL_ERRORS},
    {"joules_per_token", "J", "lower", OF_RATIOS(joules_per_token), ERRORS(request)},
    {"total_energy_mj", "mJ", "lower", OF_RUN(total_mj), ERRORS(total)},
    {"net_energy_mj", "mJ", "lower", OF_RUN(net_mj), ERRORS(net), true},
    {"total_duration_ms", "ms", "lower", OF_RUN(total_ms)},
    {"mean_power_mw", "mW", "lower", OF_RATIOS(mean_power_mw), ERRORS(total)},
    {"joules_per_token_net", "J", "lower", OF_RATIOS(joules_per_token_net), ERRORS(request_net),
     true},
    {"joules_per_input_token", "J", "lower", OF_RATIOS(joules_per_input_token)},
    {"joules_per_output_token", "J", "lower", OF_RATIOS(joules_per_output_token)},
    {"tokens_per_second", "1/s", "higher", OF_RATIOS(tokens_per_second)},
    {"prefill_tokens_per_second", "1/s", "higher", OF_RATIOS(prefill_tokens_per_second)},
    {"tokens_per_joule", "1/J", "higher", OF_RATIOS(tokens_per_joule), ERRORS(request)},
    {"energy_delay_product", "J s", "lower", OF_RATIOS(energy_delay_product), ERRORS(request)},
    {"request_energy_mj", "mJ", "lower", OF_RUN(request_mj), ERRORS(request)},
    {"energy_per_million_parameters_mj", "mJ", "lower", OF_RATIOS(mj_per_million_parameters),
     ERRORS(request)},
    {"energy_per_million_active_parameters_mj", "mJ", "lower",
     OF_RATIOS(mj_per_million_active_parameters), ERRORS(request)},
};
const uint32_t pj_figure_count = sizeof pj_figures / sizeof *pj_figures;

uint32_t pj_figure_find(const char *name)
{
    for (uint32_t i = 0; i < pj_figure_count; i++)
        if (strcmp(pj_figures[i].name, name) == 0) return i;
    return pj_figure_count;
}

void pj_note_typical(bool *all, const pj_run_info *run)
{
    if (isfinite(run->request_mj) && isnan(run->typical_token_mj)) *all = false;
}

uint32_t pj_primary_figure(bool all_typical)
{
    size_t member = all_typical ? offsetof(pj_run_ratios, joules_per_token_typical)
                                : offsetof(pj_run_ratios, joules_per_token);
    uint32_t i = 0;
    while (pj_figures[i].in_ratios != member) i++;
    return i;
}

double pj_figure_of(const pj_run_info *info, uint32_t figure)
{
    const pj_figure *f = &pj_figures[figure];
    pj_run_ratios ratios;
    if (f->in_run != SIZE_MAX)
        return *(const double *)(const void *)((const char *)info + f->in_run);
    pj_run_ratios_get(info, &ratios);
    return *(const double *)(const void *)((const char *)&ratios + f->in_ratios);
}

uint32_t pj_side_values(const pj_side *side, uint32_t figure, double *values)
{
    for (uint32_t i = 0; i < side->run_count; i++) values[i] = pj_figure_of(side->runs[i], figure);
    return side->run_count;
}

/* ---- disturbed runs ------------------------------------------------------------------------- */

static bool is_throttled(const char *conditions)
{
    pj_device_conditions devices[PJ_DEVICES_MAX];
    /* A cheap search first, because most runs report no throttling. */
    if (!conditions || (!strstr(conditions, "\"throttled_share\":0.") &&
                        !strstr(conditions, "\"throttled_share\":1")))
        return false;
    uint32_t count = pj_device_conditions_read(conditions, devices);
    for (uint32_t i = 0; i < count; i++)
        if (devices[i].throttled_share > throttled_limit) return true;
    return false;
}

bool pj_run_is_disturbed(const pj_run_info *info)
{
    return info->disturbed_share > disturbed_limit || is_throttled(info->conditions_json);
}

/* ---- sources -------------------------------------------------------------------------------- */

const char *pj_side_source(const pj_side *side)
{
    bool measured = false, modelled = false;
    for (uint32_t i = 0; i < side->run_count; i++) {
        measured |= side->runs[i]->quality == PJ_MEASURED;
        modelled |= side->runs[i]->quality == PJ_MODELLED;
    }
    if (measured && modelled) return "measured and modelled";
    return pj_quality_name(measured ? PJ_MEASURED : modelled ? PJ_MODELLED : PJ_UNAVAILABLE);
}

const char *pj_side_partial(const pj_side *side, char *text, size_t bytes)
{
    for (uint32_t i = 0; i < side->run_count; i++) {
        const pj_run_info *run = side->runs[i];
        if (!run->partial_rails || run->quality == PJ_UNAVAILABLE) continue;
        pj_partial_text(run->total_rails ? run->total_rails : "", run->partial_rails, text, bytes);
        return text;
    }
    return NULL;
}

/* ---- sides ---------------------------------------------------------------------------------- */

void pj_sides_init(pj_sides *sides, pj_store *store)
{
    *sides = (pj_sides){.store = store};
    pj_arena_init(&sides->arena, 0);
}

void pj_sides_fini(pj_sides *sides)
{
    pj_arena_fini(&sides->arena);
}

/* Leaves out disturbed runs if at least two runs and half of all remain. */
static void choose_runs(const pj_sides *sides, pj_side *side, const pj_run_info *const *runs,
                        uint32_t count)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < count; i++) good += !pj_run_is_disturbed(runs[i]);
    bool all = sides->with_disturbed || good == count || good < 2 || 2 * good < count;
    side->kept_disturbed = all && good < count;
    for (uint32_t i = 0; i < count; i++)
        if (all || !pj_run_is_disturbed(runs[i])) side->runs[side->run_count++] = runs[i];
    side->left_out = count - side->run_count;
}

pj_status pj_sides_add(pj_sides *sides, const char *name, const pj_run_info *const *runs,
                       uint32_t count, pj_error *err)
{
    if (sides->count == PJ_SIDES_MAX)
        return pj_fail(err, PJ_E_INVALID, "at most %d groups can be compared", PJ_SIDES_MAX);
    pj_side *side = &sides->sides[sides->count];
    *side = (pj_side){.runs = pj_arena_alloc(&sides->arena, count + 1, sizeof *side->runs)};
    if (!side->runs) return pj_fail_memory(err, "a comparison");
    snprintf(side->name, sizeof side->name, "%s", name);
    choose_runs(sides, side, runs, count);
    sides->count++;
    if (side->run_count > 1) return PJ_OK;
    return pj_view_token_series(sides->store, side->runs[0]->id, &sides->arena, &side->tokens, err);
}
