/* Combines a requested plan with the stored one of its name: same name, same experiment. */
#ifndef PJ_EXPERIMENT_EXPERIMENT_PLAN_H
#define PJ_EXPERIMENT_EXPERIMENT_PLAN_H

#include "analysis/plan.h"
#include "store/store.h"

typedef struct pj_plan_request {
    const char *json; /* a plan (docs/formats.md); missing members are taken from the stored plan */
    bool only_resumes; /* the request contains no grid, so a stored plan of its name must exist */
    bool again;        /* another round of the stored plan */
    const char *power; /* list of power sources where the plan names none; NULL: it stays open */
    double interval_ms;
    bool measures_itself; /* as a server: with this power and interval, whatever the plan names */
} pj_plan_request;

/* Texts of the plan live in the arena. PJ_E_NOT_FOUND: nothing to resume. PJ_E_INVALID: the stored
 * plan has another grid, or is measured with other power sources. Nothing is stored. */
pj_status pj_plan_join_stored(pj_store *store, const pj_plan_request *request, pj_arena *arena,
                              pj_plan *plan, pj_error *err);

#endif
