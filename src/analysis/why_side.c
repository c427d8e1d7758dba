/* Adds the rows of runs to the parts of a side. */
#include "analysis/why_impl.h"

#include "base/median.h"
#include "base/memory.h"
#include "trace/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PARTS = 4096, LEAST_TIMES = 4 };
static const double most_slowed = 0.3, spell_ms = 100, spell_stall_ms = 20;
#define BETWEEN "(between)"

pj_status pj_why_side_new(pj_why_side **side, pj_error *err)
{
    *side = pj_alloc(1, sizeof **side);
    if (!*side) return pj_fail_memory(err, "an explanation");
    (*side)->at_a_time = 1;
    pj_arena_init(&(*side)->arena, 0);
    return PJ_OK;
}

bool pj_why_sides_alike(const pj_why_side *a, const pj_why_side *b)
{
    return a->per_run == b->per_run;
}

void pj_why_side_at_a_time(pj_why_side *side, uint32_t requests)
{
    side->at_a_time = requests;
}

void pj_why_side_free(pj_why_side *side)
{
    if (!side) return;
    pj_arena_fini(&side->arena);
    pj_free(side);
}

double pj_why_slowed_sd(const pj_why_side *s, double ms)
{
    double often = isnan(s->disturbed_share) ? 0 : fmin(2 * s->disturbed_share, 1);
    return most_slowed * fmax(often, exp(-ms / spell_ms));
}

uint32_t pj_why_side_runs(const pj_why_side *side)
{
    return side->runs;
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* A class's key, by lengths: names are copied for new parts alone. */
typedef struct part_key {
    const char *component, *operation; /* operation NULL: none */
    size_t component_bytes;
    uint8_t phase;
    bool on_device;
} part_key;

static bool is_part(const pj_why_part *p, const part_key *key)
{
    if (p->phase != key->phase || p->on_device != key->on_device ||
        strncmp(p->component, key->component, key->component_bytes) != 0 ||
        p->component[key->component_bytes])
        return false;
    if (!p->operation || !key->operation) return !p->operation && !key->operation;
    return strcmp(p->operation, key->operation) == 0;
}

/* NULL: out of memory, or too many. */
static pj_why_part *part_of(pj_why_side *s, const part_key *key)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (is_part(&s->parts[i], key)) return &s->parts[i];
    if (s->count == MOST_PARTS) return NULL;
    s->parts = pj_arena_more(&s->arena, s->parts, s->count, sizeof *s->parts);
    if (!s->parts) return NULL;
    pj_why_part *p = &s->parts[s->count];
    *p = (pj_why_part){.phase = key->phase,
                       .on_device = key->on_device,
                       .flops = NAN,
                       .bytes = NAN,
                       .calm_ms = NAN,
                       .place = UINT32_MAX};
    p->component = pj_arena_strndup(&s->arena, key->component, key->component_bytes);
    if (key->operation)
        p->operation = pj_arena_strndup(&s->arena, key->operation, strlen(key->operation));
    if (!p->component || (key->operation && !p->operation)) return NULL;
    for (uint32_t r = 0; r < s->runs; r++) {
        pj_moments_add(&p->ms, 0);
        pj_moments_add(&p->mj, 0);
    }
    s->count++;
    return p;
}

static part_key key_of_class(const pj_class_row *c)
{
    part_key key = {.phase = c->phase, .on_device = c->device != 0, .component = c->name};
    if (strcmp(c->name, BETWEEN) == 0) return key; /* component "" */
    key.component_bytes = strcspn(c->name, "/");
    if (c->name[key.component_bytes]) key.operation = c->name + key.component_bytes + 1;
    return key;
}

/* ---- figures of classes --------------------------------------------------------------------- */

static bool is_of_request(const pj_class_row *c)
{
    return c->phase != PJ_PHASE_IDLE && strcmp(c->name, PJ_SECTION_MODEL_LOAD) != 0;
}

static double add_known(double sum, double value)
{
    return isnan(value) ? sum : isnan(sum) ? value : sum + value;
}

static bool add_class(pj_why_side *s, const pj_class_row *c, double tokens)
{
    if (!is_of_request(c) || isnan(c->energy_mj)) return true;
    part_key key = key_of_class(c);
    pj_why_part *p = part_of(s, &key);
    if (!p) return false;
    double mj = (c->energy_mj - c->disturbed_mj) / tokens;
    /* An energy without an uncertainty may be wrong by all of it. */
    double random = isnan(c->energy_sd.random_mj) ? c->energy_mj : c->energy_sd.random_mj;
    double bias = isnan(c->energy_sd.bias_mj) ? 0 : c->energy_sd.bias_mj;
    p->ms_now += (c->time_ms - c->disturbed_ms) / tokens;
    if (!s->runs) s->phase_ms[c->phase] += c->time_ms;
    if (!s->runs) s->ms += c->time_ms;
    p->mj_now += mj;
    p->random_now += random * random / (tokens * tokens);
    p->bias_now += bias / tokens;
    p->flops = add_known(p->flops, c->flops / tokens);
    p->bytes = add_known(p->bytes, c->bytes / tokens);
    s->has_operations |= p->operation != NULL;
    s->has_devices |= p->on_device;
    return true;
}

static void end_run(pj_why_side *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        pj_why_part *p = &s->parts[i];
        pj_moments_add(&p->ms, p->ms_now);
        pj_moments_add(&p->mj, p->mj_now);
        p->random += p->random_now;
        p->bias += p->bias_now;
        p->ms_now = p->mj_now = p->random_now = p->bias_now = 0;
    }
    s->runs++;
}

/* ---- rows of the first run ------------------------------------------------------------------ */

/* Times of one place, a token or in prefill a call, are added up. */
static bool add_time(pj_why_side *s, pj_why_part *p, uint32_t place, double ms)
{
    if (p->place == place) {
        p->times[p->time_count - 1] += ms;
        return true;
    }
    p->times = pj_arena_more(&s->arena, p->times, p->time_count, sizeof *p->times);
    if (!p->times) return false;
    p->times[p->time_count++] = ms;
    p->place = place;
    return true;
}

/* Their spread says how well the sum is known. Other programs only slow: the quickest quarter is as
 * quick beside them, as long as they let it be; of fewer than four they may hold up all. */
static void end_times(pj_why_part *p, double *work)
{
    double n = p->time_count;
    pj_moments all = {0};
    for (uint32_t i = 0; i < p->time_count; i++) pj_moments_add(&all, p->times[i]);
    p->token_variance = n > 1 ? n * all.squares / (n - 1) : 0;
    if (p->time_count < LEAST_TIMES) return;
    double sd = pj_median_sd(p->times, p->time_count, p->time_count, work);
    p->calm_variance = n * n * sd * sd;
    pj_sort_doubles(p->times, p->time_count);
    p->calm_ms = n * p->times[(p->time_count - 1) / 4];
}

static void add_look(pj_why_part *p, const pj_stats *stats, uint32_t token, uint32_t layer)
{
    pj_why_look look = {token,          layer,           stats->mean_abs, stats->std,
                        stats->max_abs, stats->sparsity, stats->mean};
    p->repeated += p->has_last && p->last.token == token && p->last.layer == layer &&
                   pj_why_looks_equal(&p->last, &look, 1e-3);
    p->last = look;
    p->has_last = true;
    if (p->look_count < PJ_WHY_LOOKS) p->looks[p->look_count++] = look;
}

typedef struct row_place {
    uint8_t phase;
    uint32_t token, layer; /* position, index; PJ_NO_PARENT: none */
} row_place;

static row_place place_of(const pj_run_data *d, const pj_component_row *c)
{
    row_place place = {PJ_PHASE_COUNT, PJ_NO_PARENT, PJ_NO_PARENT};
    uint32_t step = pj_step_of_component(d, c), phase = PJ_NO_PARENT;
    if (step < d->token_count) {
        phase = d->tokens[step].phase;
        place.token = d->tokens[step].position;
    } else if (c->section < d->section_count) {
        phase = d->sections[c->section].phase;
    }
    if (phase < d->phase_count) place.phase = d->phases[phase].phase;
    if (c->layer < d->layer_count) place.layer = d->layers[c->layer].layer_index;
    return place;
}

static bool add_row(pj_why_side *s, const row_place *at, const char *component,
                    const char *operation, bool on_device, double ms, const pj_stats *stats)
{
    part_key key = {component, operation, strlen(component), at->phase, on_device};
    pj_why_part *p = part_of(s, &key);
    if (!p) return false;
    p->calls++;
    if (stats) add_look(p, stats, at->token, at->layer);
    return add_time(s, p, at->phase == PJ_PHASE_DECODE ? at->token : (uint32_t)p->calls, ms);
}

static bool is_decode_step(const pj_run_data *d, uint32_t token)
{
    const pj_token_row *t = &d->tokens[token];
    bool shares = t->step != PJ_NO_PARENT && t->step != token;
    return t->phase < d->phase_count && d->phases[t->phase].phase == PJ_PHASE_DECODE && !shares;
}

/* Time of each decode step in which none of its components ran. */
static bool add_between(pj_why_side *s, const pj_run_data *d, const double *covered)
{
    pj_why_part *gap = NULL;
    bool room = true;
    for (uint32_t i = 0; i < s->count; i++) {
        pj_why_part *p = &s->parts[i];
        if (!*p->component && p->phase == PJ_PHASE_DECODE && !p->on_device) gap = p;
    }
    for (uint32_t i = 0; gap && i < d->token_count && room; i++)
        if (is_decode_step(d, i))
            room = add_time(s, gap, i, fmax(d->tokens[i].duration_ms - covered[i], 0));
    return room;
}

/* What steps took beyond their median: it may as well have hit what happens only once. `ms` has
 * room for three times the tokens. */
static void find_stalls(pj_why_side *s, const pj_run_data *d, double *ms)
{
    double all = 0, squares = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->token_count; i++)
        if (is_decode_step(d, i)) ms[count++] = d->tokens[i].duration_ms;
    s->longest_stall_ms = INFINITY;
    if (count < LEAST_TIMES) return;
    double sd = pj_median_sd(ms, count, count, ms + count), median = pj_median(ms, count);
    for (uint32_t i = 0; i < count; i++) {
        all += ms[i];
        if (ms[i] > median) squares += (ms[i] - median) * (ms[i] - median);
    }
    if (!(median > 0)) return;
    double unseen_ms =
        spell_stall_ms * pj_why_slowed_sd(s, s->phase_ms[PJ_PHASE_DECODE]) / most_slowed;
    s->longest_stall_ms = hypot(ms[count - 1] - median, unseen_ms);
    s->stalls_ms = squares / all;
    s->pace_sd = sd / median;
}

static pj_status sum_times(pj_why_side *s, const pj_run_data *d, pj_error *err)
{
    uint32_t most = d->token_count;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->parts[i].time_count > most) most = s->parts[i].time_count;
    double *work = pj_alloc((size_t)most + 1, 3 * sizeof *work);
    if (!work) return pj_fail_memory(err, "an explanation");
    for (uint32_t i = 0; i < s->count; i++) end_times(&s->parts[i], work);
    find_stalls(s, d, work);
    pj_free(work);
    return PJ_OK;
}

static pj_status add_rows(pj_why_side *s, const pj_run_data *d, pj_error *err)
{
    double *covered = pj_alloc(d->token_count + 1, sizeof *covered);
    bool room = covered != NULL;
    uint32_t op = 0;
    for (uint32_t i = 0; i < d->component_count && room; i++) {
        const pj_component_row *c = &d->components[i];
        row_place at = place_of(d, c);
        uint32_t step = pj_step_of_component(d, c);
        if (step < d->token_count) covered[step] += c->duration_ms;
        if (at.phase == PJ_PHASE_COUNT) continue;
        room = add_row(s, &at, c->name, NULL, c->device != 0, c->duration_ms,
                       c->has_stats ? &c->stats : NULL);
        for (; op < d->operation_count && d->operations[op].component < i; op++) {
        }
        for (; room && op < d->operation_count && d->operations[op].component == i; op++) {
            const pj_operation_row *o = &d->operations[op];
            room = add_row(s, &at, c->name, o->name, o->device != 0, o->duration_ms,
                           o->has_stats ? &o->stats : NULL);
        }
    }
    room = room && add_between(s, d, covered);
    pj_free(covered);
    return room ? sum_times(s, d, err) : pj_fail_memory(err, "an explanation");
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void add_first(pj_why_side *s, const pj_run_info *info)
{
    pj_device_conditions all[PJ_DEVICES_MAX];
    uint32_t count = pj_device_conditions_read(info->conditions_json, all);
    for (uint32_t i = 0; i < count && s->device_count < sizeof s->devices / sizeof *s->devices; i++)
        s->devices[s->device_count++] = all[i];
    s->input_tokens = (double)info->input_tokens;
    s->per_run = !info->output_tokens;
    s->output_tokens = s->per_run ? 1 : (double)info->output_tokens;
    s->batch = info->batch_size ? info->batch_size : 1;
    snprintf(s->engine, sizeof s->engine, "%s", info->engine ? info->engine : "");
    snprintf(s->dtype, sizeof s->dtype, "%s", info->dtype ? info->dtype : "");
    snprintf(s->isa, sizeof s->isa, "%s", info->isa ? info->isa : "");
    s->threads = info->threads;
    s->disturbed_share = info->disturbed_share;
    snprintf(s->machine, sizeof s->machine, "%s", info->machine ? info->machine : "");
}

pj_status pj_why_side_add(pj_why_side *s, const pj_run_data *run, pj_error *err)
{
    const pj_run_info *info = &run->info;
    double tokens = info->output_tokens ? (double)info->output_tokens : 1;
    bool room = true;
    if (!isfinite(info->request_mj) || (s->runs && s->per_run != !info->output_tokens))
        return PJ_OK;
    for (uint32_t i = 0; i < run->class_count && room; i++)
        room = add_class(s, &run->classes[i], tokens);
    if (!room) return pj_fail_memory(err, "an explanation");
    double random = info->request_sd.random_mj, bias = info->request_sd.bias_mj;
    pj_moments_add(&s->request, info->request_mj / tokens);
    s->request_variance +=
        isnan(random) ? INFINITY : (random * random + bias * bias) / (tokens * tokens);
    if (isfinite(info->request_disturbed.mj))
        s->disturbed_mj += info->request_disturbed.mj / tokens;
    if (!s->runs) add_first(s, info);
    bool first = !s->runs;
    end_run(s);
    return first ? add_rows(s, run, err) : PJ_OK;
}
