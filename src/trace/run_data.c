/* Ownership of a finished run: everything lies in its arena. */
#include "trace/run_data.h"

#include <stdio.h>
#include <string.h>

void pj_run_data_fini(pj_run_data *data)
{
    pj_arena_fini(&data->arena);
    *data = (pj_run_data){0};
}

static const char *keep(pj_run_data *data, const char *text)
{
    return pj_arena_strndup(&data->arena, text, strlen(text));
}

pj_status pj_run_name_total(pj_run_data *data, uint64_t used, uint64_t missing, pj_error *err)
{
    pj_run_info *info = &data->info;
    char names[PJ_MAX_RAILS * PJ_RAIL_NAME_BYTES], lacks[sizeof names + 256];
    pj_rail_names(data->rails, data->rail_count, used, names, sizeof names);
    info->total_rails = names[0] ? keep(data, names) : NULL;
    bool kept = !names[0] || info->total_rails;
    pj_rail_names(data->rails, data->rail_count, missing, names, sizeof names);
    const char *before = info->partial_rails ? info->partial_rails : "";
    snprintf(lacks, sizeof lacks, "%.250s%s%s", before, *before && names[0] ? "," : "", names);
    info->partial_rails = lacks[0] ? keep(data, lacks) : NULL;
    info->total_is_partial = lacks[0] != 0;
    return kept && (!lacks[0] || info->partial_rails)
               ? PJ_OK
               : pj_fail_memory(err, "the rails of a run's total");
}
