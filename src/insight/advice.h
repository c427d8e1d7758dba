/* Advice about a stored run: the facts required by the rules of analysis/advice.h, from the run and
 * its neighbours in the store, and the answers as JSON (docs/api.md, "Advice"). */
#ifndef PJ_INSIGHT_ADVICE_H
#define PJ_INSIGHT_ADVICE_H

#include "analysis/advice.h"
#include "store/views.h"

typedef struct pj_advice_options {
    double g_per_kwh; /* NAN: no CO2 */
} pj_advice_options;

/* The advice about a run. */
typedef struct pj_advice_list {
    pj_run_list run;      /* the run; owns everything here */
    const pj_advice *all; /* [count]; the first `speaking` have a recommendation */
    size_t count, speaking;
    const char *refusal; /* why there is no advice on this run; NULL: there may be */
} pj_advice_list;

/* `options` NULL: no CO2. */
pj_status pj_advice_list_get(pj_store *store, const char *id, const pj_advice_options *options,
                             pj_advice_list *list, pj_error *err);
void pj_advice_list_fini(pj_advice_list *list); /* may run twice */

/* The facts about a run, by advice_facts.c; those from other runs by advice_neighbours.c. Texts
 * live in the arena, or in `info`, which must outlive the facts. */
pj_status pj_advice_facts_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                              pj_advice_facts *facts, pj_error *err);
pj_status pj_advice_facts_neighbours(pj_store *store, const pj_run_info *info, pj_arena *arena,
                                     pj_advice_facts *facts, pj_error *err);

/* The answer of /run/{id}/advice. */
pj_status pj_insight_advice(pj_store *store, const char *id, const pj_advice_options *options,
                            pj_json *json, pj_error *err);

#endif
