/* Compares a run with the prediction from earlier runs and with published figures. JSON:
 * docs/api.md, "summary". */
#ifndef PJ_INSIGHT_OUTLOOK_H
#define PJ_INSIGHT_OUTLOOK_H

#include "analysis/published.h"
#include "base/json.h"
#include "store/store.h"

typedef struct pj_expectation {
    uint32_t runs, reserved; /* the prediction is based on */
    char refusal[128];       /* why nothing is predicted; "": predicted */
    double joules, joules_lo, joules_hi, actual_joules;
    double seconds, seconds_lo, seconds_hi, actual_seconds;
} pj_expectation;

typedef struct pj_outlook {
    const pj_expectation *predicted; /* in the arena; NULL: the run lacks the required figures */
    pj_published_beside published[PJ_PUBLISHED_NEAREST];
    uint32_t published_count;
} pj_outlook;

bool pj_expectation_is_met(const pj_expectation *e);
pj_status pj_outlook_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                         pj_outlook *outlook, pj_error *err);
/* The members `predicted` and `published` of an open object. */
void pj_outlook_write(const pj_outlook *outlook, pj_json *json);

#endif
