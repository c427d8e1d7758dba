/*
 * Unusual tokens of a run, each with a score, what is unusual, and the likely cause. Deviations are
 * in robust standard deviations, with a floor given by the sensor's resolution; the isolation
 * forest adds tokens whose figures are unusual only in combination. Pure.
 */
#ifndef PJ_ANALYSIS_TOKEN_ANOMALIES_H
#define PJ_ANALYSIS_TOKEN_ANOMALIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Figures of the decode tokens in their order; each array may be NULL, each value NAN: unknown. */
typedef struct pj_token_figures {
    size_t count;
    const double *duration_ms, *energy_mj;
    const double *attention_share; /* of the token's time */
    const double *spread;          /* of its statistics: standard deviation of the last output */
    const double *processor_share; /* processor time of its threads / wall time */
    const double *faults;          /* page faults and involuntary switches during the token */
    const double *clock_share;     /* clock / its median over the run */
    double resolution_mj;          /* energy that the sensor resolves in one token; 0: unknown */
} pj_token_figures;

typedef enum pj_anomaly_cause {
    PJ_CAUSE_UNKNOWN = 0,
    PJ_CAUSE_DISTURBED, /* its threads waited because something else ran */
    PJ_CAUSE_THROTTLED, /* the clock fell */
    PJ_CAUSE_FAULTS,    /* page faults or switches */
    PJ_CAUSE_FIRST,     /* first of a kind: the first step, or growth of the cache */
    PJ_CAUSE_REAL       /* its statistics differ too */
} pj_anomaly_cause;

const char *pj_anomaly_cause_name(pj_anomaly_cause cause);

typedef struct pj_token_anomaly {
    size_t index;
    double value, expected; /* energy, or duration where energy is unknown */
    double score;           /* largest deviation of a figure, in robust standard deviations */
    const char *figure;     /* which one: "energy", "duration", "power", "attention share", ... */
    bool by_forest;         /* unusual only in combination */
    pj_anomaly_cause cause;
} pj_token_anomaly;

enum { PJ_TOKEN_ANOMALIES_MAX = 20 };

/* The strongest, at most `max`; returns how many. 0 also when memory is out. */
size_t pj_token_anomalies_find(const pj_token_figures *figures, uint64_t seed,
                               pj_token_anomaly *found, size_t max);

#endif
