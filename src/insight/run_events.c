/* Finds a run's events. Disturbances are stored with the run; tokens and power are searched without
 * them, so that nothing is listed twice, and neighbours are joined. */
#include "insight/run_events.h"

#include "analysis/anomalies.h"
#include "base/median.h"
#include "trace/disturbance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE_SAMPLES = 2 };

/* Threshold in robust standard deviations: none is expected among 1000 normal values. */
static const double threshold = 5;

void pj_run_anomaly_reason(const pj_run_anomaly *a, char *reason, size_t bytes)
{
    if (a->kind == PJ_EVENT_DISTURBANCE)
        snprintf(reason, bytes, "took %.3g times what is expected", a->times);
    else if (a->kind == PJ_EVENT_POWER)
        snprintf(reason, bytes, "power %.3g times what is usual in its phase", a->times);
    else if (a->by_forest)
        snprintf(
            reason, bytes,
            "its combination of figures is unusual; %.3g times the energy of the tokens around",
            a->times);
    else
        snprintf(reason, bytes, "%s unusual; it took %.3g times what the tokens around it took",
                 a->figure, a->times);
}

typedef struct search {
    pj_arena arena;
    pj_disturbances disturbances;
    pj_token_series tokens;
    pj_power_series power;
    pj_run_anomaly *found;
    uint32_t count;
    double *clock_share; /* of each token; NULL: no device reports its clock */
} search;

static pj_run_anomaly *event_add(search *s, const pj_run_anomaly *event)
{
    s->found = pj_arena_more(&s->arena, s->found, s->count, sizeof *s->found);
    if (!s->found) return NULL;
    s->found[s->count] = *event;
    return &s->found[s->count++];
}

/* ---- disturbances ---- */

static uint32_t event_cause_of(pj_disturbance_cause cause)
{
    switch (cause) {
    case PJ_DISTURBED_BUSY: return PJ_CAUSE_BUSY;
    case PJ_DISTURBED_WAITED: return PJ_CAUSE_WAITED;
    case PJ_DISTURBED_THROTTLED: return PJ_CAUSE_THROTTLED;
    default: return PJ_CAUSE_UNKNOWN;
    }
}

static void add_disturbances(search *s)
{
    for (uint32_t i = 0; i < s->disturbances.count; i++) {
        const pj_disturbance *d = &s->disturbances.items[i];
        pj_run_anomaly a = {.begin_ms = d->start_ms,
                            .end_ms = d->start_ms + d->ms,
                            .value = d->ms,
                            .expected = d->expected_ms,
                            .times = d->expected_ms > 0 ? d->ms / d->expected_ms : NAN,
                            .extra_mj = d->extra_mj,
                            .kind = PJ_EVENT_DISTURBANCE,
                            .token = d->token,
                            .tokens = d->tokens,
                            .cause = event_cause_of(d->cause)};
        snprintf(a.figure, sizeof a.figure, "%s", pj_disturbance_kind_name(d->kind));
        event_add(s, &a);
    }
}

/* ---- tokens ---- */

/* Smallest step of the run's power readings; 0: unknown. */
static double power_resolution(const search *s)
{
    double least = INFINITY;
    for (uint32_t i = 1; i < s->power.count; i++) {
        const double *mw = s->power.columns[PJ_RAIL_TOTAL];
        double step = fabs(mw[i] - mw[i - 1]);
        if (step > 0 && step < least) least = step;
    }
    return isfinite(least) ? least : 0;
}

static double usual_duration(const search *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->tokens.count; i++) sum += s->tokens.duration_ms[i];
    return s->tokens.count ? sum / s->tokens.count : 0;
}

static int by_index(const void *x, const void *y)
{
    size_t a = ((const pj_anomaly *)x)->index, b = ((const pj_anomaly *)y)->index;
    return (a > b) - (a < b);
}

static bool has_energy(const search *s, size_t i)
{
    return s->tokens.energy_mj && !isnan(s->tokens.energy_mj[i]);
}

/* Adds a token to the event before it, if that is its neighbour and deviates likewise. */
static void add_token(search *s, const pj_anomaly *a, size_t before)
{
    double end_ms = s->tokens.start_ms[a->index] + s->tokens.duration_ms[a->index];
    pj_run_anomaly *last = before + 1 == a->index && s->count ? &s->found[s->count - 1] : NULL;
    double extra = has_energy(s, a->index) ? a->value - a->expected : NAN;
    if (last && last->kind == PJ_EVENT_TOKEN && (a->value > a->expected) == (last->times > 1)) {
        last->end_ms = end_ms;
        last->value += a->value;
        last->expected += a->expected;
        last->times = last->value / last->expected;
        last->extra_mj += extra;
        last->tokens = s->tokens.token[a->index] - last->token + 1;
        return;
    }
    pj_run_anomaly event = {.begin_ms = s->tokens.start_ms[a->index],
                            .end_ms = end_ms,
                            .value = a->value,
                            .expected = a->expected,
                            .times = a->value / a->expected,
                            .extra_mj = extra,
                            .kind = PJ_EVENT_TOKEN,
                            .token = s->tokens.token[a->index],
                            .tokens = 1,
                            .by_forest = a->by_forest,
                            .cause = a->cause};
    snprintf(event.figure, sizeof event.figure, "%s", a->figure);
    event_add(s, &event);
}

static void search_tokens(search *s)
{
    pj_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    bool joules = s->tokens.count && has_energy(s, 0);
    pj_token_figures figures = {.count = s->tokens.count,
                                .duration_ms = s->tokens.duration_ms,
                                .energy_mj = joules ? s->tokens.energy_mj : NULL,
                                .energy_sd_mj = s->tokens.energy_sd_mj,
                                .clock_share = s->clock_share,
                                .resolution_mj = power_resolution(s) * usual_duration(s) / 1e3};
    size_t n = pj_token_anomalies_find(&figures, 1, found, PJ_TOKEN_ANOMALIES_MAX);
    qsort(found, n, sizeof *found, by_index);
    for (size_t i = 0; i < n; i++) add_token(s, &found[i], i ? found[i - 1].index : SIZE_MAX - 1);
}

/* ---- power ---- */

/* Mean powers over whole steps: a sensor that is faster than a step sees its components, which draw
 * different powers; one step differs from another by what is unusual. */
typedef struct blocks {
    double *mw, *begin_ms, *end_ms;
    uint32_t count;
} blocks;

static double median_step(search *s)
{
    double *ms = pj_arena_alloc(&s->arena, s->tokens.count + 1, sizeof *ms);
    if (!ms) return NAN;
    memcpy(ms, s->tokens.duration_ms, s->tokens.count * sizeof *ms);
    return pj_median(ms, s->tokens.count);
}

static void blocks_fill(search *s, blocks *b, uint32_t first, uint32_t end, uint32_t size)
{
    for (uint32_t i = first; i + size <= end; i += size) {
        double sum = 0;
        for (uint32_t k = 0; k < size; k++) sum += s->power.columns[PJ_RAIL_TOTAL][i + k];
        b->mw[b->count] = sum / size;
        b->begin_ms[b->count] = s->power.t_ms[i];
        b->end_ms[b->count++] = s->power.t_ms[i + size - 1];
    }
}

static bool is_decode(const search *s, uint32_t i)
{
    return i < s->power.count && s->power.phase[i] == PJ_PHASE_DECODE;
}

/* Samples at the edges of the phase are readings of what is beside it, too. */
static bool blocks_make(search *s, blocks *b)
{
    uint32_t n = s->power.count;
    double step_ms = median_step(s);
    double every_ms = n > 1 ? (s->power.t_ms[n - 1] - s->power.t_ms[0]) / (n - 1) : NAN;
    b->mw = pj_arena_alloc(&s->arena, n + 1, sizeof(double));
    b->begin_ms = pj_arena_alloc(&s->arena, n + 1, sizeof(double));
    b->end_ms = pj_arena_alloc(&s->arena, n + 1, sizeof(double));
    if (!b->mw || !b->begin_ms || !b->end_ms) return false;
    if (!(every_ms > 0) || isnan(step_ms)) return true;
    uint32_t size = (uint32_t)fmin(n, fmax(1, ceil(step_ms / every_ms)));
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; is_decode(s, end) && is_decode(s, i);) end++;
        if (is_decode(s, i) && end - i > 2 * EDGE_SAMPLES)
            blocks_fill(s, b, i + EDGE_SAMPLES, end - EDGE_SAMPLES, size);
    }
    return true;
}

static bool is_listed(const search *s, double begin_ms, double end_ms)
{
    double margin = 2 * (end_ms - begin_ms) + 1;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->found[i].begin_ms - margin <= end_ms && s->found[i].end_ms + margin >= begin_ms)
            return true;
    return false;
}

static void add_power(search *s, const blocks *b, const pj_anomaly *a, size_t before)
{
    double begin = b->begin_ms[a->index], end = b->end_ms[a->index];
    double next = a->index + 1 < b->count ? b->begin_ms[a->index + 1] : end;
    double extra = (a->value - a->expected) * (next - begin) / 1e3;
    pj_run_anomaly *last = before + 1 == a->index && s->count ? &s->found[s->count - 1] : NULL;
    if (last && last->kind == PJ_EVENT_POWER && last->end_ms >= begin &&
        (a->value > a->expected) == (last->times > 1)) {
        double was = last->end_ms - last->begin_ms + 1e-9;
        last->value = (last->value * was + a->value * (next - begin)) / (was + next - begin);
        last->times = last->value / last->expected;
        last->extra_mj += extra;
        last->end_ms = next;
        return;
    }
    pj_run_anomaly event = {.begin_ms = begin,
                            .end_ms = next,
                            .value = a->value,
                            .expected = a->expected,
                            .times = a->value / a->expected,
                            .extra_mj = extra,
                            .kind = PJ_EVENT_POWER,
                            .cause = a->value < a->expected ? PJ_CAUSE_WAITED : PJ_CAUSE_BUSY};
    if (!is_listed(s, begin, next)) event_add(s, &event);
}

static pj_status search_power(search *s, pj_error *err)
{
    pj_anomaly found[PJ_EVENTS_MAX];
    blocks b = {.count = 0};
    double *work = pj_arena_alloc(&s->arena, (size_t)s->power.count + 1, sizeof *work);
    if (!work || !blocks_make(s, &b)) return pj_fail_memory(err, "the search for anomalies");
    size_t n = pj_anomalies_find(b.mw, b.count, threshold, 0, work, found, PJ_EVENTS_MAX);
    qsort(found, n, sizeof *found, by_index);
    for (size_t i = 0; i < n; i++)
        add_power(s, &b, &found[i], i ? found[i - 1].index : SIZE_MAX - 1);
    return PJ_OK;
}

/* ---- all of them ---- */

static pj_status events_read(search *s, pj_store *store, const char *id, pj_error *err)
{
    pj_status status = pj_view_token_series(store, id, &s->arena, &s->tokens, err);
    if (status == PJ_OK) status = pj_view_power_series(store, id, &s->arena, &s->power, err);
    if (status == PJ_OK)
        status = pj_view_token_clocks(store, id, &s->arena, &s->tokens, &s->clock_share, err);
    return status;
}

static int by_cost(const void *x, const void *y)
{
    const pj_run_anomaly *a = x, *b = y;
    double p = fabs(a->extra_mj), q = fabs(b->extra_mj);
    if (isnan(p) || isnan(q)) return a->begin_ms < b->begin_ms ? -1 : a->begin_ms > b->begin_ms;
    return (p < q) - (p > q);
}

typedef struct question {
    pj_store *store;
    const pj_run_info *info;
} question;

static pj_status events_find(search *s, const question *q, pj_error *err)
{
    bool without = pj_store_leaves_out_disturbances(q->store);
    pj_status status =
        pj_disturbances_read(q->info->disturbances_json, &s->arena, &s->disturbances, err);
    pj_store_leave_out_disturbances(q->store, true);
    if (status == PJ_OK) status = events_read(s, q->store, q->info->id, err);
    pj_store_leave_out_disturbances(q->store, without);
    if (status != PJ_OK) return status;
    add_disturbances(s);
    search_tokens(s);
    if (s->tokens.count) status = search_power(s, err);
    if (s->count) qsort(s->found, s->count, sizeof *s->found, by_cost);
    return status;
}

static pj_status events_make(void *context, pj_buffer *items, pj_error *err)
{
    search *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "the search for anomalies");
    pj_arena_init(&s->arena, 0);
    pj_status status = events_find(s, context, err);
    uint32_t count = s->count < PJ_EVENTS_MAX ? s->count : PJ_EVENTS_MAX;
    if (status == PJ_OK) pj_buffer_append(items, s->found, count * sizeof *s->found);
    pj_arena_fini(&s->arena);
    pj_free(s);
    return status;
}

pj_status pj_run_events_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                            pj_run_insight *insight, pj_error *err)
{
    static const pj_view_chart chart = {"events-1", sizeof(pj_run_anomaly), events_make};
    void *items = NULL;
    question q = {store, info};
    pj_status status =
        pj_view_kept(store, info->id, &chart, &q, arena, &items, &insight->anomaly_count, err);
    insight->anomalies = items;
    for (uint32_t i = 0; i < insight->anomaly_count && status == PJ_OK; i++) {
        pj_run_anomaly *a = &insight->anomalies[i];
        a->figure[sizeof a->figure - 1] = 0; /* databases are untrusted */
        if (a->cause >= PJ_CAUSES) a->cause = PJ_CAUSE_UNKNOWN;
        if (a->kind > PJ_EVENT_DISTURBANCE) a->kind = PJ_EVENT_POWER;
    }
    return status;
}
