/* Gathers the facts for the rules of advice. */
#ifndef PJ_INSIGHT_ADVICE_FACTS_H
#define PJ_INSIGHT_ADVICE_FACTS_H

#include "analysis/advice.h"
#include "store/views.h"

/* Texts live in the arena, or in `info`, which must outlive the facts. */
pj_status pj_advice_facts_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                              pj_advice_facts *facts, pj_error *err);
/* The part that comes from other runs. */
pj_status pj_advice_facts_neighbours(pj_store *store, const pj_run_info *info, pj_arena *arena,
                                     pj_advice_facts *facts, pj_error *err);

#endif
