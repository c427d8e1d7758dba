/* Figures of the request and disturbed steps. Definitions: docs/measurement.md. */
#include "trace/request.h"

#include "base/median.h"
#include "trace/typical.h"

#include <math.h>
#include <string.h>

/* The end of the step that begins with token row `first`: rows of one phase and position are one
 * step of a batch, and consecutive. */
static uint32_t step_end(const pj_run_data *data, uint32_t first)
{
    const pj_token_row *step = &data->tokens[first];
    uint32_t end = first + 1;
    while (end < data->token_count && data->tokens[end].phase == step->phase &&
           data->tokens[end].position == step->position)
        end++;
    return end;
}

void pj_request_clear(pj_run_info *info)
{
    info->request_mj = info->request_sd_mj = info->request_ms = NAN;
    info->request_net_mj = info->request_net_sd_mj = NAN;
    info->request_sd = info->request_net_sd = info->model_load_sd = PJ_SD_UNKNOWN;
    info->typical_sd = PJ_SD_UNKNOWN;
    info->model_load_mj = info->model_load_sd_mj = info->disturbed_share = NAN;
    info->typical_token_mj = info->typical_sd_mj = NAN;
    info->disturbed_tokens = -1;
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

/* ---- disturbed steps ---- */

/* A decode step: its duration and its recorded work (0: none recorded). */
typedef struct step {
    uint32_t first, end; /* token rows */
    double ms, flops, bytes;
} step;

typedef struct steps {
    step *items;
    uint32_t count;
    uint32_t *of_token; /* [token_count] index + 1 of the decode step, 0: of none */
} steps;

static void steps_fini(steps *s)
{
    pj_free(s->items);
    pj_free(s->of_token);
}

static bool find_steps(const pj_run_data *d, steps *s)
{
    s->items = pj_alloc((size_t)d->token_count + 1, sizeof *s->items);
    s->of_token = pj_alloc((size_t)d->token_count + 1, sizeof *s->of_token);
    if (!s->items || !s->of_token) return false;
    for (uint32_t i = 0, end; i < d->token_count; i = end) {
        const pj_token_row *t = &d->tokens[i];
        end = step_end(d, i);
        if (t->phase >= d->phase_count || d->phases[t->phase].phase != PJ_PHASE_DECODE) continue;
        s->items[s->count++] = (step){i, end, t->duration_ms, 0, 0};
        for (uint32_t k = i; k < end; k++) s->of_token[k] = s->count;
    }
    return true;
}

static void request_add_work(const pj_run_data *d, steps *s)
{
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        uint32_t token = pj_step_of_component(d, c);
        if (token >= d->token_count || !s->of_token[token]) continue;
        step *at = &s->items[s->of_token[token] - 1];
        if (c->flops > 0) at->flops += c->flops;
        if (c->bytes > 0) at->bytes += c->bytes;
    }
}

/* The median of one member of the steps around step `at`. */
static double running_median(const steps *s, uint32_t at, size_t member)
{
    double values[PJ_DISTURBED_WINDOW];
    uint32_t window = s->count < PJ_DISTURBED_WINDOW ? s->count : PJ_DISTURBED_WINDOW;
    uint32_t begin = at > window / 2 ? at - window / 2 : 0;
    if (begin + window > s->count) begin = s->count - window;
    for (uint32_t i = 0; i < window; i++)
        memcpy(&values[i], (const char *)&s->items[begin + i] + member, sizeof values[i]);
    return pj_median(values, window);
}

/* The step's work relative to the median, at least 1: less work does not lower the limit. */
static double work_ratio(const steps *s, uint32_t at)
{
    double flops = running_median(s, at, offsetof(step, flops));
    double bytes = running_median(s, at, offsetof(step, bytes));
    double ratio = 1;
    if (flops > 0) ratio = fmax(ratio, s->items[at].flops / flops);
    if (bytes > 0) ratio = fmax(ratio, s->items[at].bytes / bytes);
    return ratio;
}

static bool is_disturbed(const steps *s, uint32_t at)
{
    double usual_ms = running_median(s, at, offsetof(step, ms));
    if (!(s->items[at].ms > PJ_DISTURBED_RATIO * usual_ms)) return false;
    return s->items[at].ms > PJ_DISTURBED_RATIO * usual_ms * work_ratio(s, at);
}

static void mark_disturbed(pj_run_data *d, const steps *s)
{
    double mj = 0;
    d->info.disturbed_tokens = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        bool disturbed = is_disturbed(s, i);
        for (uint32_t k = s->items[i].first; k < s->items[i].end; k++) {
            d->tokens[k].disturbed = disturbed;
            if (!disturbed) continue;
            d->info.disturbed_tokens++;
            mj += pj_mj_of_nj(d->tokens[k].energy.gross_nj);
        }
    }
    d->info.disturbed_share = d->info.request_mj > 0 ? mj / d->info.request_mj : NAN;
}

static pj_status fill_disturbed(pj_run_data *d, pj_error *err)
{
    steps s = {0};
    bool good = find_steps(d, &s);
    for (uint32_t i = 0; i < d->token_count; i++) d->tokens[i].disturbed = -1;
    if (good && s.count >= PJ_DISTURBED_LEAST_STEPS) {
        request_add_work(d, &s);
        mark_disturbed(d, &s);
    }
    steps_fini(&s);
    return good ? PJ_OK : pj_fail_memory(err, "the tokens of a run");
}

pj_status pj_request_figures(pj_run_data *data, pj_error *err)
{
    pj_request_clear(&data->info);
    request_fill_energy(data);
    pj_status status = fill_disturbed(data, err);
    return status == PJ_OK ? pj_request_typical(data, err) : status;
}
