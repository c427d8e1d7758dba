/* Fills the public result from the rows of a finished run. */
#include "record/result.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "store/run_summary.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { SIZE_0_1 = offsetof(pj_result, json) + sizeof(char *) };

pj_status pj_result_check(const pj_result *result, pj_error *err)
{
    if (result->size == 0 || (result->size >= SIZE_0_1 && result->size <= 1 << 16)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "the result has a size of %zu bytes: set it with sizeof",
                   result->size);
}

/* Rows of one phase share their systematic errors, so their standard deviations add linearly. */
static bool sum_phase(const pj_run_data *data, pj_phase phase, pj_phase_result *out)
{
    double gross = 0, net = 0, sd = 0, net_sd = 0;
    bool found = false;
    *out = (pj_phase_result){.phase = phase};
    for (uint32_t i = 0; i < data->phase_count; i++) {
        const pj_phase_row *row = &data->phases[i];
        if (row->phase != phase) continue;
        found = true;
        out->duration_ms += row->duration_ms;
        gross += pj_mj_of_nj(row->energy.gross_nj);
        net += pj_mj_of_nj(row->energy.net_nj);
        sd += (double)row->energy.sd_mj;
        net_sd += (double)row->energy.net_sd_mj;
    }
    out->gross = pj_gross_with_interval(gross, sd);
    out->net = pj_with_interval(net, net_sd);
    return found;
}

static void result_write_figure(pj_json *json, const char *name, const pj_joules_mj *figure)
{
    pj_json_kv_object_begin(json, name);
    pj_json_kv_double(json, "mj", figure->mj);
    pj_json_kv_double(json, "lo_mj", figure->lo_mj);
    pj_json_kv_double(json, "hi_mj", figure->hi_mj);
    pj_json_object_end(json);
}

/* The energy of each rail over the whole run. */
static void result_write_rails(pj_json *json, const pj_run_data *data)
{
    pj_json_kv_array_begin(json, "rails");
    for (uint32_t i = 0; i < data->rail_energy_count; i++) {
        const pj_rail_energy *e = &data->rail_energy[i];
        if (e->phase != PJ_PHASE_COUNT || e->rail >= data->rail_count) continue;
        pj_joules_mj gross = pj_gross_with_interval(e->gross_mj, e->sd_mj);
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", data->rails[e->rail].name);
        pj_json_kv_string(json, "source", data->rails[e->rail].source);
        result_write_figure(json, "gross", &gross);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static char *make_json(const pj_run_data *data, const pj_result *result)
{
    pj_json json;
    pj_json_open(&json, 16 << 20);
    pj_json_object_begin(&json);
    pj_summary_write_members(&json, &data->info, NULL);
    result_write_figure(&json, "total", &result->total);
    result_write_figure(&json, "net", &result->net);
    pj_json_kv_array_begin(&json, "phases");
    for (uint32_t i = 0; i < result->phase_count; i++) {
        const pj_phase_result *p = &result->phases[i];
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "phase", pj_phase_name(p->phase));
        pj_json_kv_double(&json, "duration_ms", p->duration_ms);
        result_write_figure(&json, "gross", &p->gross);
        result_write_figure(&json, "net", &p->net);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    result_write_rails(&json, data);
    pj_json_object_end(&json);
    char *text = pj_json_finish(&json) ? pj_buffer_take(&json.own) : NULL;
    pj_json_close(&json);
    return text;
}

static void result_fill(pj_result *r, const pj_run_data *data)
{
    const pj_run_info *info = &data->info;
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    memcpy(r->run_id, info->id, sizeof info->id);
    r->status = info->status;
    r->duration_ms = info->total_ms;
    r->energy_source = info->quality;
    r->is_partial = info->total_is_partial;
    r->total = pj_gross_with_interval(info->total_mj, info->total_sd_mj);
    r->net = pj_with_interval(info->net_mj, info->net_sd_mj);
    r->total_upper_mj = info->upper_mj;
    r->joules_per_token = ratios.joules_per_token;
    r->typical_token = pj_gross_with_interval(info->typical_token_mj, info->typical_sd_mj);
    r->input_tokens = info->input_tokens;
    r->output_tokens = info->output_tokens;
    for (pj_phase p = 0; p < PJ_PHASE_COUNT; p++)
        r->phase_count += sum_phase(data, p, &r->phases[r->phase_count]);
    r->json = make_json(data, r);
}

_Static_assert(PJ_PHASE_COUNT <= PJ_RESULT_PHASES, "every phase has a place");
_Static_assert(sizeof(((pj_result *)0)->run_id) >= PJ_UUID_BYTES, "ids fit");

void pj_result_fill(pj_result *result, const pj_run_data *data, bool stored)
{
    static const pj_joules_mj unknown = {NAN, NAN, NAN};
    pj_result all = {.total = unknown,
                     .net = unknown,
                     .duration_ms = NAN,
                     .total_upper_mj = NAN,
                     .joules_per_token = NAN,
                     .typical_token = unknown,
                     .is_stored = stored};
    size_t size = result->size ? result->size : SIZE_0_1;
    if (data->info.id[0]) result_fill(&all, data);
    all.size = result->size;
    memset(result, 0, size);
    memcpy(result, &all, size < sizeof all ? size : sizeof all);
}

void pj_result_fini(pj_result *result)
{
    if (!result) return;
    pj_free(result->json);
    result->json = NULL;
}
