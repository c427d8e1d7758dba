/* Figures of the request. Definitions: docs/measurement.md. */
#include "trace/request.h"

#include "trace/thinking.h"
#include "trace/typical.h"

#include <math.h>
#include <string.h>

void pj_request_clear(pj_run_info *info)
{
    info->request_mj = info->request_sd_mj = info->request_ms = NAN;
    info->request_net_mj = info->request_net_sd_mj = NAN;
    info->request_sd = info->request_net_sd = info->model_load_sd = PJ_SD_UNKNOWN;
    info->typical_sd = PJ_SD_UNKNOWN;
    info->model_load_mj = info->model_load_sd_mj = NAN;
    info->typical_token_mj = info->typical_sd_mj = NAN;
    info->thinking_tokens = info->thinking_mj = info->thinking_sd_mj = info->thinking_ms = NAN;
    info->tool_calls = NAN;
    pj_disturbances_clear(info);
}

/* ---- energy of the request ------------------------------------------------------------------- */

/* Excluded from the request. Energies are NAN if any part's energy is unavailable. */
typedef struct taken_out {
    double gross_mj, net_mj, ms;
    bool any;
} taken_out;

static void take_out(taken_out *t, const pj_energy *energy, double ms)
{
    t->any = true;
    t->gross_mj += pj_mj_of_nj(energy->gross_nj);
    t->net_mj += pj_mj_of_nj(energy->net_nj);
    t->ms += ms;
}

static taken_out model_loads(const pj_run_data *d)
{
    taken_out load = {0};
    for (uint32_t i = 0; i < d->section_count; i++)
        if (d->sections[i].name && strcmp(d->sections[i].name, PJ_SECTION_MODEL_LOAD) == 0)
            take_out(&load, &d->sections[i].energy, d->sections[i].duration_ms);
    return load;
}

static taken_out idle_gaps(const pj_run_data *d)
{
    taken_out idle = {0};
    for (uint32_t i = 0; i < d->phase_count; i++)
        if (d->phases[i].phase == PJ_PHASE_IDLE)
            take_out(&idle, &d->phases[i].energy, d->phases[i].duration_ms);
    return idle;
}

static void request_fill_energy(pj_run_data *d)
{
    pj_run_info *info = &d->info;
    taken_out load = model_loads(d), idle = idle_gaps(d);
    info->model_load_mj = load.any ? load.gross_mj : NAN;
    info->request_mj = info->total_mj - load.gross_mj - idle.gross_mj;
    info->request_net_mj = info->net_mj - load.net_mj - idle.net_mj;
    info->request_ms = info->total_ms - load.ms - idle.ms;
    double share = info->request_mj / info->total_mj;
    info->request_sd_mj = info->total_sd_mj * share;
    info->request_net_sd_mj = info->net_sd_mj * share;
    info->request_sd = pj_sd_scaled(&info->total_sd, share);
    info->request_net_sd = pj_sd_scaled(&info->net_sd, share);
    double load_share = info->model_load_mj / info->total_mj;
    info->model_load_sd_mj = info->total_sd_mj * load_share;
    info->model_load_sd = pj_sd_scaled(&info->total_sd, load_share);
}

pj_status pj_request_typical(pj_run_data *d, pj_error *err)
{
    pj_typical typical;
    pj_status status = pj_typical_get(d, &typical, err);
    if (status != PJ_OK) return status;
    d->info.typical_token_mj = typical.mj;
    d->info.typical_sd = typical.sd;
    d->info.typical_sd_mj = pj_sd_total(&typical.sd);
    return PJ_OK;
}

pj_status pj_request_figures(pj_run_data *data, const pj_usual_times *usual, pj_error *err)
{
    pj_request_clear(&data->info);
    request_fill_energy(data);
    pj_status status = pj_thinking_find(data, err);
    if (status == PJ_OK) status = pj_disturbances_find(data, usual, err);
    return status == PJ_OK ? pj_request_typical(data, err) : status;
}
