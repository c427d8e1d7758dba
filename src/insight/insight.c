/* A run's summary with its anomalies and its predicted figures. */
#include "insight/insight.h"

#include "analysis/anomalies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANOMALIES = 20 }; /* of tokens, and of each phase's power */

/* Threshold in robust standard deviations: none is expected among 1000 normal values. */
static const double threshold = 5;

static int by_score(const void *x, const void *y)
{
    double a = ((const pj_run_anomaly *)x)->score, b = ((const pj_run_anomaly *)y)->score;
    return (a < b) - (a > b);
}

void pj_run_anomaly_reason(const pj_run_anomaly *a, char *reason, size_t bytes)
{
    if (!a->is_token)
        snprintf(reason, bytes, "total power %.1f robust deviations %s the median of its phase",
                 a->score, a->value > a->expected ? "above" : "below");
    else if (a->by_forest)
        snprintf(reason, bytes,
                 "its combination of figures is unusual; %s by %.1f robust deviations", a->figure,
                 a->score);
    else
        snprintf(reason, bytes, "%s %.1f robust deviations from the tokens around it", a->figure,
                 a->score);
}

static void write_anomaly(pj_json *json, const pj_run_anomaly *a)
{
    char reason[128];
    pj_run_anomaly_reason(a, reason, sizeof reason);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", a->is_token ? "token" : "power");
    pj_json_kv_optional(json, "token", a->is_token, a->token);
    pj_json_kv_double(json, "t_ms", a->t_ms);
    pj_json_kv_double(json, "value", a->value);
    pj_json_kv_double(json, "expected", a->expected);
    pj_json_kv_double(json, "score", a->score);
    pj_json_kv_string(json, "reason", reason);
    pj_json_kv_string(json, "cause", pj_anomaly_cause_name((pj_anomaly_cause)a->cause));
    pj_json_object_end(json);
}

typedef struct search {
    pj_arena arena;
    pj_token_series tokens;
    pj_power_series power;
    pj_run_anomaly found[(PJ_PHASE_COUNT + 1) * MAX_ANOMALIES];
    uint32_t count;
    double *clock_share; /* of each token; NULL: no device reports its clock */
} search;

/* Energy resolution of one reading of the run's sensors; 0: unknown. */
static double resolution_of(const search *s)
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

static pj_run_anomaly *add_anomaly(search *s, const pj_anomaly *a, double t_ms)
{
    pj_run_anomaly *put = &s->found[s->count++];
    *put = (pj_run_anomaly){
        .t_ms = t_ms, .value = a->value, .expected = a->expected, .score = fabs(a->score)};
    return put;
}

static void search_tokens(search *s)
{
    pj_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    pj_token_figures figures = {.count = s->tokens.count,
                                .duration_ms = s->tokens.duration_ms,
                                .energy_mj = s->tokens.energy_mj,
                                .clock_share = s->clock_share,
                                .resolution_mj = resolution_of(s) * usual_duration(s) / 1e3};
    size_t n = pj_token_anomalies_find(&figures, 1, found, PJ_TOKEN_ANOMALIES_MAX);
    for (size_t i = 0; i < n; i++) {
        pj_run_anomaly *put = add_anomaly(s, &found[i], s->tokens.start_ms[found[i].index]);
        put->token = s->tokens.token[found[i].index];
        put->is_token = true;
        put->by_forest = found[i].by_forest;
        put->cause = found[i].cause;
        snprintf(put->figure, sizeof put->figure, "%s", found[i].figure);
    }
}

/* Each phase has its own median. */
static void search_phase(search *s, int phase, double *values, uint32_t *of, double *work)
{
    pj_anomaly found[MAX_ANOMALIES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->power.count; i++) {
        if (s->power.phase[i] != phase) continue;
        values[n] = s->power.columns[PJ_RAIL_TOTAL][i];
        of[n++] = i;
    }
    size_t many = pj_anomalies_find(values, n, threshold, 0, work, found, MAX_ANOMALIES);
    for (size_t i = 0; i < many; i++) add_anomaly(s, &found[i], s->power.t_ms[of[found[i].index]]);
}

static pj_status find_anomalies(search *s, pj_store *store, const char *id, pj_error *err)
{
    pj_status status = pj_view_token_series(store, id, &s->arena, &s->tokens, err);
    if (status == PJ_OK) status = pj_view_power_series(store, id, &s->arena, &s->power, err);
    if (status == PJ_OK)
        status = pj_view_token_clocks(store, id, &s->arena, &s->tokens, &s->clock_share, err);
    if (status != PJ_OK) return status;
    size_t most = s->power.count > s->tokens.count ? s->power.count : s->tokens.count;
    double *work = pj_arena_alloc(&s->arena, most + 1, sizeof *work);
    double *values = pj_arena_alloc(&s->arena, most + 1, sizeof *values);
    uint32_t *of = pj_arena_alloc(&s->arena, most + 1, sizeof *of);
    if (!work || !values || !of) return pj_fail_memory(err, "the search for anomalies");
    search_tokens(s);
    for (int p = 0; p < PJ_PHASE_COUNT && s->power.count; p++) search_phase(s, p, values, of, work);
    if (s->count) qsort(s->found, s->count, sizeof *s->found, by_score);
    return PJ_OK;
}

typedef struct question {
    pj_store *store;
    const char *id;
} question;

static pj_status make_anomalies(void *context, pj_buffer *items, pj_error *err)
{
    const question *q = context;
    search *s = pj_alloc(1, sizeof *s);
    if (!s) return pj_fail_memory(err, "the search for anomalies");
    pj_arena_init(&s->arena, 0);
    pj_status status = find_anomalies(s, q->store, q->id, err);
    uint32_t count = s->count < 2 * MAX_ANOMALIES ? s->count : 2 * MAX_ANOMALIES;
    pj_buffer_append(items, s->found, count * sizeof *s->found);
    pj_arena_fini(&s->arena);
    pj_free(s);
    return status;
}

static pj_status get_anomalies(pj_store *store, const char *id, pj_arena *arena,
                               pj_run_insight *insight, pj_error *err)
{
    static const pj_view_chart chart = {"anomalies-4", sizeof(pj_run_anomaly), make_anomalies};
    void *items = NULL;
    question q = {store, id};
    pj_status status =
        pj_view_kept(store, id, &chart, &q, arena, &items, &insight->anomaly_count, err);
    insight->anomalies = items;
    for (uint32_t i = 0; i < insight->anomaly_count && status == PJ_OK; i++) {
        pj_run_anomaly *a = &insight->anomalies[i];
        a->figure[sizeof a->figure - 1] = 0; /* databases are untrusted */
        if (a->cause > PJ_CAUSE_REAL) a->cause = PJ_CAUSE_UNKNOWN;
    }
    return status;
}

pj_status pj_run_insight_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                             pj_run_insight *insight, pj_error *err)
{
    *insight = (pj_run_insight){0};
    pj_status status = get_anomalies(store, info->id, arena, insight, err);
    if (status == PJ_OK) status = pj_model_use_get(store, info, arena, &insight->use, err);
    if (status == PJ_OK) status = pj_outlook_get(store, info, arena, &insight->outlook, err);
    return status;
}

static void write_insight(const pj_run_insight *insight, pj_json *json)
{
    pj_json_kv_array_begin(json, "anomalies");
    for (uint32_t i = 0; i < insight->anomaly_count; i++)
        write_anomaly(json, &insight->anomalies[i]);
    pj_json_array_end(json);
    pj_json_key(json, "model_use");
    pj_model_use_write(&insight->use, json);
    pj_outlook_write(&insight->outlook, json);
}

pj_status pj_insight_summary(pj_store *store, const char *id, const pj_cost_rates *rates,
                             pj_json *json, pj_error *err)
{
    char full[PJ_UUID_BYTES];
    pj_run_list one = {0};
    pj_run_insight insight;
    pj_status status = pj_store_resolve(store, id, full, err);
    if (status == PJ_OK) status = pj_store_info(store, full, &one, err);
    if (status == PJ_OK) status = pj_run_insight_get(store, one.runs, &one.arena, &insight, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        status = pj_view_summary_members(store, full, rates, json, err);
        write_insight(&insight, json);
        pj_json_object_end(json);
    }
    pj_run_list_fini(&one);
    return status;
}

void pj_insight_prepare(pj_store *store, const char *id)
{
    pj_buffer discarded;
    pj_json json;
    pj_buffer_init(&discarded, 64 << 20);
    pj_json_init(&json, &discarded);
    pj_insight_summary(store, id, NULL, &json, NULL);
    pj_buffer_fini(&discarded);
}
