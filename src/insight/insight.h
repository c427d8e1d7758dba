/*
 * Analysis of stored runs: a run's summary with its anomalies, and comparisons of runs or groups.
 * Forms: docs/api.md. On failure the JSON is incomplete: discard it.
 */
#ifndef PJ_INSIGHT_INSIGHT_H
#define PJ_INSIGHT_INSIGHT_H

#include "insight/model_use.h"
#include "insight/outlook.h"
#include "insight/sides.h"
#include "store/views.h"

enum { PJ_COMPARE_MAX = 4 };

typedef enum pj_event_kind {
    PJ_EVENT_POWER = 0,   /* power of the decode phase */
    PJ_EVENT_TOKEN,       /* tokens */
    PJ_EVENT_DISTURBANCE, /* see trace/disturbance.h */
} pj_event_kind;

/* Something unusual with a begin and an end; neighbours are one event. */
typedef struct pj_run_anomaly {
    double begin_ms, end_ms;
    double value, expected; /* energies (mJ), durations (ms) if unknown, powers (mW) */
    double times;           /* value / expected */
    double extra_mj;        /* beyond what is expected, negative: less; NAN: unknown */
    uint32_t kind;          /* pj_event_kind */
    uint32_t token, tokens; /* the first, and how many rows; 0: in none */
    uint32_t by_forest;     /* its figures are unusual only in combination */
    uint32_t cause;         /* pj_anomaly_cause: the first that fits, by rule */
    char figure[24];        /* of tokens: which figure is unusual */
} pj_run_anomaly;

void pj_run_anomaly_reason(const pj_run_anomaly *anomaly, char *reason, size_t bytes);

/* Analysis of a stored run, in the arena. */
typedef struct pj_run_insight {
    pj_run_anomaly *anomalies; /* the dearest first */
    uint32_t anomaly_count;
    pj_model_use use;
    pj_outlook outlook;
} pj_run_insight;

pj_status pj_run_insight_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                             pj_run_insight *insight, pj_error *err);

/* The complete answer of /summary. */
pj_status pj_insight_summary(pj_store *store, const char *id, const pj_cost_rates *rates,
                             pj_json *json, pj_error *err);
/* Computes and caches the expensive parts of the summary of a run just stored. */
void pj_insight_prepare(pj_store *store, const char *id);
/* Runs, or groups of runs, side by side. */
typedef struct pj_compared_run {
    pj_run_list one;
    const pj_run_info *info;
    pj_run_list series; /* completed runs of its --repeat series; fewer than 2: none */
    pj_component_sum *components;
    uint32_t component_count;
} pj_compared_run;

typedef struct pj_compared {
    pj_sides sides;
    pj_compared_run runs[PJ_COMPARE_MAX];
    uint32_t run_count; /* 0: groups */
    /* of groups */
    const char *by;
    pj_run_list list;                    /* all runs that are compared */
    uint32_t group_count, without_value; /* all groups, also beyond PJ_SIDES_MAX; runs in none */
} pj_compared;

/* The runs of /compare/groups, and the field that groups them. */
typedef struct pj_group_query {
    pj_run_query runs; /* completed ones of these; status and limit are ignored */
    const char *by;    /* "dtype", "tag", "settings.NAME", ... */
    bool with_disturbed;
    const char *const *values; /* only the groups of these two; NULL: the largest of all */
} pj_group_query;

/* How a group is shown: that of "8" and of "batch 8" as "batch 8"; in `shown`. */
const char *pj_group_name(const char *value, const char *by, char shown[PJ_SIDE_NAME_BYTES]);

/* 2 to 4 runs. On failure *c is NULL. */
pj_status pj_compared_runs(pj_store *store, const char *const *ids, uint32_t count, pj_compared **c,
                           pj_error *err);
pj_status pj_compared_groups(pj_store *store, const pj_group_query *query, pj_compared **c,
                             pj_error *err);
void pj_compared_free(pj_compared *c); /* NULL is allowed */

/* The answers of /compare and /compare/groups. */
pj_status pj_insight_compare(pj_store *store, const char *const *ids, uint32_t count,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err);
pj_status pj_insight_groups(pj_store *store, const pj_group_query *query, pj_json *json,
                            pj_error *err);
void pj_compared_write(const pj_compared *c, const pj_cost_rates *rates, pj_json *json);

#endif
