/* Draws the requests, trains without each in turn, and counts. */
#include "bench/sim_phases.h"

#include "analysis/phases.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/sim_trace.h"

#include <math.h>
#include <stdio.h>

enum { TRACES = 20 };

static double sim_phases_between(pj_random *r, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(r);
}

static double log_between(pj_random *r, double lo, double hi)
{
    return lo * pow(hi / lo, pj_random_unit(r));
}

/* In a third of the requests prefill draws what decode draws; half of the traces have idle time. */
static pj_sim_request sim_phases_draw(pj_random *r, double stretch)
{
    return (pj_sim_request){
        .idle_ms = stretch * (pj_random_unit(r) < 0.5 ? 0 : log_between(r, 300, 2000)),
        .load_ms = stretch * log_between(r, 200, 3000),
        .token_ms = stretch * log_between(r, 5, 60),
        .prefill = pj_random_unit(r) < 0.3 ? 1 : sim_phases_between(r, 1.2, 2.5),
        .layers = 4,
        .prompt = (uint32_t)log_between(r, 8, 512),
        .tokens = (uint32_t)log_between(r, 16, 200)};
}

/* Mean and variance of the power of each phase. */
typedef struct levels {
    double n[PJ_PHASE_COUNT], mean[PJ_PHASE_COUNT], variance[PJ_PHASE_COUNT];
} levels;

static levels levels_of(const pj_sim_trace *t)
{
    levels l = {0};
    for (size_t i = 0; i < t->count; i++) {
        l.n[t->phase[i]]++;
        l.mean[t->phase[i]] += t->mw[i];
    }
    for (int p = 0; p < PJ_PHASE_COUNT; p++) l.mean[p] /= fmax(l.n[p], 1);
    for (size_t i = 0; i < t->count; i++) {
        double d = t->mw[i] - l.mean[t->phase[i]];
        l.variance[t->phase[i]] += d * d / l.n[t->phase[i]];
    }
    return l;
}

static bool is_clear(const levels *l, int p)
{
    for (int q = 0; q < PJ_PHASE_COUNT; q++) {
        double noise = sqrt((l->variance[p] + l->variance[q]) / 2);
        if (q != p && l->n[q] > 0 && !(fabs(l->mean[p] - l->mean[q]) > 2 * noise)) return false;
    }
    return true;
}

static void count(const pj_sim_trace *t, const uint8_t *phase, const double *confidence,
                  pj_sim_phase_score *s)
{
    levels l = levels_of(t);
    bool clear[PJ_PHASE_COUNT];
    for (int p = 0; p < PJ_PHASE_COUNT; p++) clear[p] = is_clear(&l, p);
    for (size_t i = 0; i < t->count; i++) {
        bool right = phase[i] == t->phase[i], near = confidence[i] >= 0.85 && confidence[i] < 0.95;
        s->all++, s->right += right;
        s->clear += clear[t->phase[i]], s->clear_right += clear[t->phase[i]] && right;
        s->near_90 += near, s->near_90_right += near && right;
    }
}

static void count_prior(const pj_sim_trace *t, const uint8_t *phase, const double *confidence,
                        pj_sim_phase_score *s)
{
    for (size_t i = 0; i < t->count; i++) {
        s->prior_right += phase[i] == t->phase[i];
        s->prior_confidence += confidence[i];
    }
}

static bool sim_phases_judge(const pj_sim_trace *t, const pj_phase_model *model,
                             pj_sim_phase_score *s)
{
    pj_phase_model prior;
    uint8_t *phase = pj_alloc(t->count + 1, sizeof *phase);
    double *confidence = pj_alloc(t->count + 1, sizeof *confidence);
    pj_phase_trace untagged = {t->t_ms, t->mw, t->count, NAN, NULL};
    bool ok = phase && confidence;
    if (ok && pj_phases_detect(&untagged, model, phase, confidence))
        count(t, phase, confidence, s);
    else
        s->unknown++;
    pj_phase_model_prior(&prior);
    if (ok && pj_phases_detect(&untagged, &prior, phase, confidence))
        count_prior(t, phase, confidence, s);
    pj_free(phase);
    pj_free(confidence);
    return ok;
}

static bool score_all(const pj_sim_trace *traces, pj_sim_phase_score *score)
{
    pj_phase_trace others[TRACES];
    pj_phase_model model;
    for (int i = 0; i < TRACES; i++) {
        size_t n = 0;
        for (int k = 0; k < TRACES; k++) {
            const pj_sim_trace *t = &traces[k];
            if (k != i) others[n++] = (pj_phase_trace){t->t_ms, t->mw, t->count, NAN, t->phase};
        }
        if (!pj_phase_model_train(others, n, &model) ||
            !sim_phases_judge(&traces[i], &model, score))
            return false;
    }
    return true;
}

pj_status pj_sim_phases_judge(const char *preset, uint64_t seed, double stretch,
                              pj_sim_phase_score *score, pj_error *err)
{
    pj_sim_trace traces[TRACES] = {0};
    pj_random random = {seed};
    char sensor[128];
    pj_status status = PJ_OK;
    snprintf(sensor, sizeof sensor, "preset=%s,seed=%d,noise=0.01", preset, (int)seed);
    for (int i = 0; i < TRACES && status == PJ_OK; i++) {
        pj_sim_request request = sim_phases_draw(&random, stretch);
        status = pj_sim_trace_make(sensor, &request, seed * 1000 + (uint64_t)i, &traces[i], err);
    }
    if (status == PJ_OK && !score_all(traces, score)) status = pj_fail_memory(err, "phases");
    for (int i = 0; i < TRACES; i++) pj_sim_trace_fini(&traces[i]);
    return status;
}
