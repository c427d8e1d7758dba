/*
 * Unusual values of a series, and unusual tokens of a run with what is unusual and the likely
 * cause. A score is a distance from the median in robust standard deviations (1.4826 times the
 * median absolute deviation), so that outliers do not mask each other. Pure.
 */
#ifndef PJ_ANALYSIS_ANOMALIES_H
#define PJ_ANALYSIS_ANOMALIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pj_anomaly_cause {
    PJ_CAUSE_UNKNOWN = 0,
    PJ_CAUSE_BUSY,      /* its threads waited because something else ran */
    PJ_CAUSE_WAITED,    /* it drew less power than usual: it did not compute */
    PJ_CAUSE_THROTTLED, /* the clock fell */
    PJ_CAUSE_FAULTS,    /* page faults or switches */
    PJ_CAUSE_REAL,      /* its statistics differ too */
    PJ_CAUSES
} pj_anomaly_cause;

const char *pj_anomaly_cause_name(pj_anomaly_cause cause);

typedef struct pj_anomaly {
    size_t index;
    double value, expected, score; /* score: signed; of a token, that of `figure` */
    /* of a token; value and expected: its energy, or its duration where energy is unknown */
    const char *figure; /* with the largest score: "energy", "duration", "power", ... */
    bool by_forest;     /* unusual only in combination */
    pj_anomaly_cause cause;
} pj_anomaly;

/* Smallest deviation that is an anomaly, relative to what is expected. */
#define PJ_ANOMALY_LEAST 0.2

/* Adds an anomaly to the `count` strongest ones, at most `max`; returns how many there are. */
size_t pj_anomalies_add(pj_anomaly *found, size_t count, size_t max, pj_anomaly new);

/* Writes at most `max` anomalies beyond `threshold` deviations and PJ_ANOMALY_LEAST of the median,
 * the strongest first, and returns how many. A deviation is the robust spread, but at least `floor`
 * (what the sensor resolves) and 0.5 % of the median. Fewer than 8 values have none. `work` holds
 * `count` doubles. */
size_t pj_anomalies_find(const double *values, size_t count, double threshold, double floor,
                         double *work, pj_anomaly *found, size_t max);

/* Figures of the decode tokens in their order; each array may be NULL, each value NAN: unknown. */
typedef struct pj_token_figures {
    size_t count;
    const double *duration_ms, *energy_mj;
    const double *attention_share; /* of the token's time */
    const double *spread;          /* of its statistics: standard deviation of the last output */
    const double *processor_share; /* processor time of its threads / wall time */
    const double *faults;          /* page faults and involuntary switches during the token */
    const double *clock_share;     /* clock / its median over the run */
    const double *energy_sd_mj;    /* of energy_mj, 1 sigma */
    double resolution_mj;          /* energy that the sensor resolves in one token; 0: unknown */
} pj_token_figures;

enum { PJ_TOKEN_ANOMALIES_MAX = 20 };

/* The same of tokens, whose energy (duration where that is unknown) deviates by PJ_ANOMALY_LEAST
 * and beyond its own interval; the first and the last are at the edges of their phase and are left
 * out. An isolation forest (analysis/forest.h) adds those whose figures are unusual only in
 * combination. 0 also when memory is out. */
size_t pj_token_anomalies_find(const pj_token_figures *figures, uint64_t seed, pj_anomaly *found,
                               size_t max);

#endif
