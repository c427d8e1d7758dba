/*
 * Where stored runs and analysis meet: a run's summary with its anomalies, and runs side by side
 * with tests of their differences. Forms: docs/api.md. On failure the JSON is unfinished.
 */
#ifndef PJ_PROFILE_INSIGHT_H
#define PJ_PROFILE_INSIGHT_H

#include "store/views.h"

enum { PJ_COMPARE_MAX = 4 };

/* The whole answer of /summary. */
pj_status pj_insight_summary(pj_store *store, const char *id, const pj_cost_rates *rates,
                             pj_json *json, pj_error *err);
/* Makes what the summary of a run that was just stored keeps, before somebody waits for it. */
void pj_insight_prepare(pj_store *store, const char *id);
/* The answer of /compare for 2 to 4 runs. */
pj_status pj_insight_compare(pj_store *store, const char *const *ids, uint32_t count,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err);

#endif
