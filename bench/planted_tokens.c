/* Makes tokens and counts what is found among them. */
#include "bench/planted_tokens.h"

#include <string.h>

enum { TOKENS = PJ_PLANTED_TOKENS, EVERY = TOKENS / PJ_PLANTED_ANOMALIES };

static double planted_tokens_noisy(pj_random *random, double value, double share)
{
    return value * (1 + share * pj_random_normal(random));
}

static void plant(pj_planted_tokens *t, int i, double size, double *power)
{
    static const pj_anomaly_cause causes[] = {PJ_CAUSE_BUSY, PJ_CAUSE_THROTTLED, PJ_CAUSE_FAULTS,
                                              PJ_CAUSE_REAL};
    t->planted[i] = causes[i / EVERY % 4];
    t->duration[i] *= size;
    if (t->planted[i] == PJ_CAUSE_BUSY) t->processor[i] /= size, *power *= 0.85;
    if (t->planted[i] == PJ_CAUSE_THROTTLED) t->clock[i] = 0.7, *power *= 0.8;
    if (t->planted[i] == PJ_CAUSE_FAULTS) t->faults[i] = 300;
    if (t->planted[i] == PJ_CAUSE_REAL) t->spread[i] *= 1.5, t->attention[i] += 0.2;
}

void pj_planted_tokens_make(pj_planted_tokens *t, pj_random *random, bool with_anomalies)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TOKENS; i++) {
        double power = planted_tokens_noisy(random, 30, 0.01),
               size = 1.6 + 1.2 * pj_random_unit(random);
        t->duration[i] = planted_tokens_noisy(random, 10 * (1 + 0.3 * i / TOKENS), 0.01);
        t->attention[i] = 0.3 + 0.01 * pj_random_normal(random);
        t->spread[i] = planted_tokens_noisy(random, 1, 0.02);
        t->processor[i] = 0.98;
        t->clock[i] = 1;
        if (with_anomalies && i % EVERY == EVERY / 2) plant(t, i, size, &power);
        t->energy[i] = t->duration[i] * power;
    }
}

void pj_planted_tokens_flat(pj_planted_tokens *t, pj_random *random, double step_mj)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TOKENS; i++) {
        t->duration[i] = 10;
        t->energy[i] = planted_tokens_noisy(random, 300, 1e-12) + (i % 97 == 50 ? step_mj : 0);
        t->attention[i] = 0.3;
        t->spread[i] = t->processor[i] = t->clock[i] = 1;
    }
}

pj_token_figures pj_planted_tokens_figures(const pj_planted_tokens *t)
{
    return (pj_token_figures){.count = TOKENS,
                              .duration_ms = t->duration,
                              .energy_mj = t->energy,
                              .attention_share = t->attention,
                              .spread = t->spread,
                              .processor_share = t->processor,
                              .faults = t->faults,
                              .clock_share = t->clock};
}

void pj_planted_tokens_judge(const pj_planted_tokens *t, pj_planted_score *score)
{
    pj_anomaly found[PJ_TOKEN_ANOMALIES_MAX];
    pj_token_figures figures = pj_planted_tokens_figures(t);
    size_t n = pj_token_anomalies_find(&figures, 1, found, PJ_TOKEN_ANOMALIES_MAX);
    score->runs++;
    score->reported += (double)n;
    for (size_t i = 0; i < n; i++) {
        pj_anomaly_cause planted = t->planted[found[i].index];
        score->right += planted != PJ_CAUSE_UNKNOWN;
        score->caused += planted != PJ_CAUSE_UNKNOWN && planted == found[i].cause;
    }
}
