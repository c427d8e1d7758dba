/* What is disturbed: units, what is expected of each, and the events made of them. */
#include "trace/disturbance_parts.h"

#include "base/median.h"
#include "trace/request.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How far a prompt or a load may be from what comparable runs took, relative, 1 sigma. */
static const double usual_spread = 0.1;

/* ---- units ---- */

static pj_phase judge_phase(const pj_run_data *d, uint32_t row)
{
    return row < d->phase_count ? (pj_phase)d->phases[row].phase : PJ_PHASE_IDLE;
}

/* Consecutive rows of one step; those of one phase, position and time are one, too. */
static uint32_t judge_step_end(const pj_run_data *d, uint32_t first)
{
    const pj_token_row *step = &d->tokens[first];
    uint32_t end = first + 1;
    if (step->step == first) return pj_shared_step_end(d, first);
    while (end < d->token_count && d->tokens[end].phase == step->phase &&
           d->tokens[end].position == step->position && d->tokens[end].start_ms == step->start_ms)
        end++;
    return end;
}

static void judge_add_steps(const pj_run_data *d, pj_disturbed_units *u)
{
    for (uint32_t i = 0, end; i < d->token_count; i = end) {
        const pj_token_row *t = &d->tokens[i];
        pj_phase phase = judge_phase(d, t->phase);
        end = judge_step_end(d, i);
        if (phase != PJ_PHASE_DECODE && phase != PJ_PHASE_PREFILL) continue;
        u->items[u->count++] = (pj_disturbed_unit){
            .kind = phase == PJ_PHASE_DECODE ? PJ_DISTURBED_STEP : PJ_DISTURBED_PROMPT,
            .phase = t->phase,
            .first = i,
            .end = end,
            .section = PJ_NO_PARENT,
            .start_ms = t->start_ms,
            .ms = t->duration_ms,
            .own_ms = NAN,
            .expected_ms = NAN};
        for (uint32_t k = i; k < end; k++) u->of_token[k] = u->count;
    }
    u->step_count = u->count;
}

static void judge_add_other(pj_disturbed_units *u, pj_disturbance_kind kind, uint32_t phase,
                            uint32_t section, double start_ms, double ms)
{
    u->items[u->count++] = (pj_disturbed_unit){.kind = kind,
                                               .phase = phase,
                                               .section = section,
                                               .start_ms = start_ms,
                                               .ms = ms,
                                               .own_ms = NAN,
                                               .expected_ms = NAN};
}

static void judge_add_loads(const pj_run_data *d, pj_disturbed_units *u)
{
    for (uint32_t i = 0; i < d->section_count; i++)
        if (d->sections[i].name && strcmp(d->sections[i].name, PJ_SECTION_MODEL_LOAD) == 0)
            judge_add_other(u, PJ_DISTURBED_LOAD, d->sections[i].phase, i, d->sections[i].start_ms,
                            d->sections[i].duration_ms);
}

/* Whether computing goes on right before and after: setting up before the prompt is work. */
static bool judge_is_between(const pj_run_data *d, uint32_t idle)
{
    const pj_phase_row *gap = &d->phases[idle];
    bool before = false, after = false;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        if (d->phases[i].phase != PJ_PHASE_PREFILL && d->phases[i].phase != PJ_PHASE_DECODE)
            continue;
        before |= d->phases[i].start_ms < gap->start_ms;
        after |= d->phases[i].start_ms >= gap->start_ms + gap->duration_ms;
    }
    return before && after;
}

/* Time between two phases, and between two steps of a phase. */
static void judge_add_gaps(const pj_run_data *d, pj_disturbed_units *u)
{
    for (uint32_t i = 0; i < d->phase_count; i++)
        if (d->phases[i].phase == PJ_PHASE_IDLE && judge_is_between(d, i))
            judge_add_other(u, PJ_DISTURBED_GAP, i, PJ_NO_PARENT, d->phases[i].start_ms,
                            d->phases[i].duration_ms);
    for (uint32_t s = 0; s + 1 < u->step_count; s++) {
        const pj_disturbed_unit *a = &u->items[s], *b = a + 1;
        double end_ms = a->start_ms + a->ms;
        if (a->phase == b->phase && b->start_ms > end_ms)
            judge_add_other(u, PJ_DISTURBED_GAP, a->phase, PJ_NO_PARENT, end_ms,
                            b->start_ms - end_ms);
    }
}

static void judge_add_work(const pj_run_data *d, pj_disturbed_units *u)
{
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        uint32_t token = pj_step_of_component(d, c);
        if (token >= d->token_count || !u->of_token[token]) continue;
        pj_disturbed_unit *unit = &u->items[u->of_token[token] - 1];
        if (c->flops > 0) unit->flops += c->flops;
        if (c->bytes > 0) unit->bytes += c->bytes;
    }
}

static pj_status judge_find_units(const pj_run_data *d, pj_disturbed_units *u, pj_error *err)
{
    size_t most = 2 * (size_t)d->token_count + d->section_count + d->phase_count + 1;
    u->items = pj_alloc(most, sizeof *u->items);
    u->of_token = pj_alloc((size_t)d->token_count + 1, sizeof *u->of_token);
    if (!u->items || !u->of_token) return pj_fail_memory(err, "the steps of a run");
    judge_add_steps(d, u);
    judge_add_loads(d, u);
    judge_add_gaps(d, u);
    judge_add_work(d, u);
    return PJ_OK;
}

/* ---- decode steps ---- */

/* Indices of the decode steps, and of the running window around each. */
typedef struct decode_steps {
    const pj_disturbed_units *units;
    uint32_t *index;
    uint32_t count;
} decode_steps;

/* The values of one member of the steps around step `at`; returns how many. */
static uint32_t judge_window(const decode_steps *s, uint32_t at, size_t member, double *values)
{
    uint32_t window = s->count < PJ_DISTURBED_WINDOW ? s->count : PJ_DISTURBED_WINDOW;
    uint32_t begin = at > window / 2 ? at - window / 2 : 0;
    if (begin + window > s->count) begin = s->count - window;
    for (uint32_t i = 0; i < window; i++) {
        const pj_disturbed_unit *unit = &s->units->items[s->index[begin + i]];
        memcpy(&values[i], (const char *)unit + member, sizeof values[i]);
    }
    return window;
}

static double judge_running_median(const decode_steps *s, uint32_t at, size_t member)
{
    double values[PJ_DISTURBED_WINDOW];
    return pj_median(values, judge_window(s, at, member, values));
}

static double judge_running_spread(const decode_steps *s, uint32_t at, double median)
{
    double values[PJ_DISTURBED_WINDOW];
    uint32_t n = judge_window(s, at, offsetof(pj_disturbed_unit, ms), values);
    for (uint32_t i = 0; i < n; i++) values[i] = fabs(values[i] - median);
    return 1.4826 * pj_median(values, n);
}

/* The step's work relative to the median, at least 1: less work does not lower the limit. */
static double judge_work_ratio(const decode_steps *s, uint32_t at)
{
    const pj_disturbed_unit *unit = &s->units->items[s->index[at]];
    double flops = judge_running_median(s, at, offsetof(pj_disturbed_unit, flops));
    double bytes = judge_running_median(s, at, offsetof(pj_disturbed_unit, bytes));
    double ratio = 1;
    if (flops > 0) ratio = fmax(ratio, unit->flops / flops);
    if (bytes > 0) ratio = fmax(ratio, unit->bytes / bytes);
    return ratio;
}

static void judge_unit(pj_disturbed_unit *unit, double expected_ms, double spread_ms)
{
    unit->expected_ms = expected_ms;
    unit->spread_ms = spread_ms;
    unit->disturbed = unit->ms > PJ_DISTURBED_RATIO * expected_ms;
}

/* Returns the median duration of the steps; NAN: too few to judge by. */
static double judge_steps(pj_disturbed_units *u, pj_error *err, pj_status *status)
{
    decode_steps s = {.units = u, .index = pj_alloc((size_t)u->step_count + 1, sizeof *s.index)};
    double *ms = pj_alloc((size_t)u->step_count + 1, sizeof *ms), typical = NAN;
    if (!s.index || !ms) {
        *status = pj_fail_memory(err, "the steps of a run");
        goto done;
    }
    for (uint32_t i = 0; i < u->step_count; i++) {
        if (u->items[i].kind != PJ_DISTURBED_STEP || u->items[i].ms < PJ_LEAST_STEP_MS) continue;
        ms[s.count] = u->items[i].ms;
        s.index[s.count++] = i;
    }
    if (s.count < PJ_DISTURBED_LEAST_STEPS) goto done;
    for (uint32_t i = 0; i < s.count; i++) {
        pj_disturbed_unit *unit = &u->items[s.index[i]];
        double median = judge_running_median(&s, i, offsetof(pj_disturbed_unit, ms));
        double work = unit->ms > PJ_DISTURBED_RATIO * median ? judge_work_ratio(&s, i) : 1;
        judge_unit(unit, median * work, judge_running_spread(&s, i, median) * work);
    }
    typical = pj_median(ms, s.count);
done:
    pj_free(s.index);
    pj_free(ms);
    return typical;
}

/* ---- prompts, loading, gaps ---- */

static double judge_prompt_tokens(const pj_run_data *d, const pj_disturbed_unit *unit)
{
    double tokens = 0, cached = d->info.cached_tokens > 0 ? d->info.cached_tokens : 0;
    for (uint32_t i = unit->first; i < unit->end; i++) tokens += d->tokens[i].context_tokens;
    if (tokens == 0) tokens = (double)d->info.input_tokens - cached;
    return tokens;
}

/* A prompt is at most as much work as a decode step for each of its tokens. */
static double judge_prompt_bound(const pj_run_data *d, const pj_disturbed_unit *unit,
                                 double step_ms)
{
    double tokens = judge_prompt_tokens(d, unit);
    return tokens > 0 ? tokens * step_ms : NAN;
}

static uint32_t judge_count(const pj_disturbed_units *u, pj_disturbance_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < u->count; i++) count += u->items[i].kind == kind;
    return count;
}

/* Comparable runs know what all prompts together take. */
static void judge_prompts(const pj_run_data *d, pj_disturbed_units *u, double step_ms,
                          const pj_usual_times *usual)
{
    double all_ms = 0;
    for (uint32_t i = 0; i < u->step_count; i++)
        if (u->items[i].kind == PJ_DISTURBED_PROMPT) all_ms += u->items[i].ms;
    double slower = judge_count(u, PJ_DISTURBED_PROMPT) ? all_ms / usual->prefill_ms : NAN;
    for (uint32_t i = 0; i < u->step_count; i++) {
        pj_disturbed_unit *unit = &u->items[i];
        if (unit->kind != PJ_DISTURBED_PROMPT) continue;
        double expected = isnan(slower) ? fmin(unit->own_ms, judge_prompt_bound(d, unit, step_ms))
                                        : unit->ms / slower;
        judge_unit(unit, expected, usual_spread * expected);
    }
}

static double judge_usual_gap(const pj_disturbed_units *u, double *work)
{
    size_t n = 0;
    for (uint32_t i = u->step_count; i < u->count; i++)
        if (u->items[i].kind == PJ_DISTURBED_GAP) work[n++] = u->items[i].ms;
    return n ? pj_median(work, n) : 0;
}

/* A gap holds no work of the run: what it takes is judged by a step, and what is expected of it is
 * the run's usual gap. */
static void judge_others(pj_disturbed_units *u, double step_ms, const pj_usual_times *usual,
                         double *work)
{
    double gap_ms = judge_usual_gap(u, work);
    for (uint32_t i = u->step_count; i < u->count; i++) {
        pj_disturbed_unit *unit = &u->items[i];
        if (unit->kind == PJ_DISTURBED_LOAD)
            judge_unit(unit, usual->model_load_ms, usual_spread * usual->model_load_ms);
        else
            judge_unit(unit, fmax(gap_ms, step_ms), 0);
        if (unit->kind == PJ_DISTURBED_GAP && unit->disturbed) unit->expected_ms = gap_ms;
        if (unit->kind == PJ_DISTURBED_GAP && isnan(step_ms)) unit->disturbed = false;
    }
}

/* ---- events ---- */

static int64_t judge_sum(int64_t sum, int64_t nj)
{
    return sum == PJ_NJ_UNKNOWN || nj == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : sum + nj;
}

/* Gross energy of a unit and its deviation. Between steps only the disturbed part is known. */
static int64_t judge_gross(const pj_run_data *d, const pj_disturbed_unit *u, double *sd_mj)
{
    int64_t nj = 0;
    *sd_mj = 0;
    for (uint32_t t = u->first; t < u->end; t++) {
        nj = judge_sum(nj, d->tokens[t].energy.gross_nj);
        *sd_mj += (double)d->tokens[t].energy.sd_mj;
    }
    if (u->end > u->first) return nj;
    const pj_energy *e = u->kind == PJ_DISTURBED_LOAD ? &d->sections[u->section].energy
                                                      : &d->phases[u->phase].energy;
    double share = 1;
    if (u->kind == PJ_DISTURBED_GAP && judge_phase(d, u->phase) != PJ_PHASE_IDLE) {
        nj = llround((double)u->part.gross_nj * u->ms / u->part.ms);
        share = (double)nj / (double)e->gross_nj;
    }
    *sd_mj = (double)e->sd_mj * share;
    return share < 1 && e->gross_nj != PJ_NJ_UNKNOWN ? nj : e->gross_nj;
}

static void judge_energies(const pj_run_data *d, const pj_disturbed_unit *u, pj_disturbance *e)
{
    double sd_mj, extra = u->part.ms / u->ms;
    int64_t nj = judge_gross(d, u, &sd_mj);
    bool known = nj != PJ_NJ_UNKNOWN;
    e->mj = pj_mj_of_nj(nj);
    e->extra_mj = known ? (double)u->part.gross_nj / 1e6 : NAN;
    e->extra_net_mj = known && !isnan(d->info.net_mj) ? (double)u->part.net_nj / 1e6 : NAN;
    e->extra_sd_mj = hypot(sd_mj * extra, e->mj * u->spread_ms / u->ms);
}

static pj_disturbance judge_event(const pj_run_data *d, const pj_disturbed_unit *u)
{
    pj_disturbance e = {.kind = u->kind,
                        .phase = judge_phase(d, u->phase),
                        .token = u->end > u->first ? u->first : PJ_NO_PARENT,
                        .tokens = u->end - u->first,
                        .start_ms = u->start_ms,
                        .ms = u->ms,
                        .expected_ms = u->expected_ms};
    judge_energies(d, u, &e);
    return e;
}

static bool judge_follows(const pj_disturbance *a, const pj_disturbance *b)
{
    return a->kind == PJ_DISTURBED_STEP && b->kind == PJ_DISTURBED_STEP &&
           b->token == a->token + a->tokens;
}

static void judge_join(pj_disturbance *a, const pj_disturbance *b)
{
    a->tokens += b->tokens;
    a->ms = b->start_ms + b->ms - a->start_ms;
    a->expected_ms += b->expected_ms;
    a->mj += b->mj;
    a->extra_mj += b->extra_mj;
    a->extra_net_mj += b->extra_net_mj;
    a->extra_sd_mj += b->extra_sd_mj; /* they share their expectation */
}

static int judge_by_time(const void *x, const void *y)
{
    double a = ((const pj_disturbance *)x)->start_ms, b = ((const pj_disturbance *)y)->start_ms;
    return (a > b) - (a < b);
}

static pj_status judge_keep_events(pj_run_data *d, const pj_disturbed_units *u, pj_error *err)
{
    pj_disturbances list = {.items = pj_alloc((size_t)u->count + 1, sizeof *list.items)};
    if (!list.items) return pj_fail_memory(err, "the disturbances of a run");
    for (uint32_t i = 0; i < u->count; i++) {
        if (!u->items[i].disturbed) continue;
        pj_disturbance e = judge_event(d, &u->items[i]);
        if (list.count && judge_follows(&list.items[list.count - 1], &e))
            judge_join(&list.items[list.count - 1], &e);
        else
            list.items[list.count++] = e;
    }
    qsort(list.items, list.count, sizeof *list.items, judge_by_time);
    pj_status status = pj_disturbances_keep(d, &list, err);
    pj_free(list.items);
    return status;
}

/* ---- the run ---- */

static void judge_mark_tokens(pj_run_data *d, const pj_disturbed_units *u)
{
    d->info.disturbed_tokens = 0;
    for (uint32_t i = 0; i < u->step_count; i++) {
        const pj_disturbed_unit *unit = &u->items[i];
        if (isnan(unit->expected_ms)) continue;
        for (uint32_t t = unit->first; t < unit->end; t++) {
            d->tokens[t].disturbed = unit->disturbed;
            d->info.disturbed_tokens += unit->disturbed;
        }
    }
}

static bool judge_any(const pj_disturbed_units *u)
{
    for (uint32_t i = 0; i < u->count; i++)
        if (!isnan(u->items[i].expected_ms)) return true;
    return false;
}

static pj_status judge_all(pj_run_data *d, pj_disturbed_units *u, const pj_usual_times *usual,
                           pj_error *err)
{
    pj_unit_leaves leaves = {0};
    pj_status status = PJ_OK;
    double step_ms = judge_steps(u, err, &status);
    if (status == PJ_OK) status = pj_unit_leaves_find(d, u, &leaves, err);
    double *work = pj_alloc((size_t)u->count + 1, sizeof *work);
    if (status == PJ_OK && !work) status = pj_fail_memory(err, "the steps of a run");
    if (status == PJ_OK) {
        judge_prompts(d, u, step_ms, usual);
        judge_others(u, step_ms, usual, work);
    }
    pj_free(work);
    if (status == PJ_OK && judge_any(u)) {
        judge_mark_tokens(d, u);
        status = pj_disturbances_share(d, u, &leaves, err);
        if (status == PJ_OK) status = judge_keep_events(d, u, err);
    }
    pj_free(leaves.items);
    return status;
}

pj_status pj_disturbances_find(pj_run_data *d, const pj_usual_times *usual, pj_error *err)
{
    pj_disturbed_units units = {0};
    pj_usual_times unknown = PJ_USUAL_TIMES_UNKNOWN;
    pj_disturbances_clear(&d->info);
    for (uint32_t i = 0; i < d->token_count; i++) d->tokens[i].disturbed = -1;
    pj_status status = judge_find_units(d, &units, err);
    if (status == PJ_OK) status = judge_all(d, &units, usual ? usual : &unknown, err);
    pj_free(units.items);
    pj_free(units.of_token);
    return status;
}
