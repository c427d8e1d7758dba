/* Events of a run: disturbances, unusual tokens, unusual power. */
#ifndef PJ_INSIGHT_RUN_EVENTS_H
#define PJ_INSIGHT_RUN_EVENTS_H

#include "insight/insight.h"

/* The dearest first, at most PJ_EVENTS_MAX. */
enum { PJ_EVENTS_MAX = 40 };
pj_status pj_run_events_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                            pj_run_insight *insight, pj_error *err);

#endif
