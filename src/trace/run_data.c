/* Ownership of a finished run: everything is in its arena. */
#include "trace/run_data.h"

#include <stdio.h>
#include <string.h>

void pj_run_data_fini(pj_run_data *data)
{
    pj_arena_fini(&data->arena);
    *data = (pj_run_data){0};
}

void pj_run_info_init(pj_run_info *info)
{
    *info = (pj_run_info){0};
    info->overhead_ms = info->overhead_share = info->statistics_ms = NAN;
    info->sampler_cpu_share = info->sampler_jitter_us = NAN;
    info->baseline_cold_mw = info->baseline_resident_mw = NAN;
    info->memory_read_bytes = info->memory_written_bytes = info->process_mj = NAN;
    info->parameters = info->active_parameters = NAN;
    info->cached_tokens = info->monotonic_ms = NAN;
}

static const char *run_data_keep(pj_run_data *data, const char *text)
{
    return pj_arena_strndup(&data->arena, text, strlen(text));
}

pj_status pj_run_name_total(pj_run_data *data, uint64_t used, uint64_t missing,
                            const char *unmeasured, pj_error *err)
{
    pj_run_info *info = &data->info;
    char names[PJ_MAX_RAILS * PJ_RAIL_NAME_BYTES], lacks[sizeof names + 512];
    pj_rail_names(data->rails, data->rail_count, used, names, sizeof names);
    info->total_rails = names[0] ? run_data_keep(data, names) : NULL;
    bool kept = !names[0] || info->total_rails;
    pj_rail_names(data->rails, data->rail_count, missing, names, sizeof names);
    const char *before = info->partial_rails ? info->partial_rails : "";
    snprintf(lacks, sizeof lacks, "%.250s%s%s", before, *before && names[0] ? "," : "", names);
    size_t used_bytes = strlen(lacks);
    snprintf(lacks + used_bytes, sizeof lacks - used_bytes, "%s%s",
             used_bytes && *unmeasured ? "," : "", unmeasured);
    info->partial_rails = lacks[0] ? run_data_keep(data, lacks) : NULL;
    info->total_is_partial = lacks[0] != 0;
    return kept && (!lacks[0] || info->partial_rails)
               ? PJ_OK
               : pj_fail_memory(err, "the rails of a run's total");
}

uint32_t pj_step_of_component(const pj_run_data *data, const pj_component_row *c)
{
    if (c->layer >= data->layer_count) return pj_step_of(c->token, c->step);
    const pj_layer_row *layer = &data->layers[c->layer];
    return pj_step_of(layer->token, layer->step);
}

uint32_t pj_shared_step_end(const pj_run_data *data, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < data->token_count && data->tokens[end].step == first) end++;
    return end;
}

/* Same formula as the view `components_of_tokens`. */
double pj_token_part_mj(const pj_token_row *token, const pj_component_row *c)
{
    double mj = pj_mj_of_nj(c->energy.gross_nj);
    if (token->step == PJ_NO_PARENT) return mj;
    double net = pj_mj_of_nj(c->energy.net_nj), context = isnan(net) ? mj : net;
    bool by_context = strcmp(c->name, PJ_CONTEXT_COMPONENT) == 0;
    return mj * token->share + (by_context ? context * (token->context_share - token->share) : 0);
}

static const char *const batch_rules[] = {"bytes", "tokens", "equal"};

const char *pj_batch_rule_name(pj_batch_rule rule)
{
    return (unsigned)rule < 3 ? batch_rules[rule] : "unknown";
}

int pj_batch_rule_parse(const char *name)
{
    for (int i = 0; name && i < 3; i++)
        if (strcmp(batch_rules[i], name) == 0) return i;
    return -1;
}
