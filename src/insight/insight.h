/*
 * Where stored runs and analysis meet: a run's summary with its anomalies, and runs or groups of
 * runs side by side. Forms: docs/api.md. On failure the JSON is incomplete: discard it.
 */
#ifndef PJ_INSIGHT_INSIGHT_H
#define PJ_INSIGHT_INSIGHT_H

#include "store/views.h"

enum { PJ_COMPARE_MAX = 4 };

/* The complete answer of /summary. */
pj_status pj_insight_summary(pj_store *store, const char *id, const pj_cost_rates *rates,
                             pj_json *json, pj_error *err);
/* Computes and caches the expensive parts of the summary of a run just stored. */
void pj_insight_prepare(pj_store *store, const char *id);
/* The answer of /compare for 2 to 4 runs. */
pj_status pj_insight_compare(pj_store *store, const char *const *ids, uint32_t count,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err);

/* Which runs /compare/groups takes, and by which field it divides them. */
typedef struct pj_group_query {
    pj_run_query runs; /* completed ones of these; status and limit are ignored */
    const char *by;    /* "dtype", "tag", "settings.NAME", ... */
    bool with_disturbed;
} pj_group_query;
/* The answer of /compare/groups. */
pj_status pj_insight_groups(pj_store *store, const pj_group_query *query, pj_json *json,
                            pj_error *err);

#endif
