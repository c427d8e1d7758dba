/* Made runs, each of which one rule of advice applies to, and no other: known truth for the rules
 * (analysis/advice.h). */
#ifndef PJ_BENCH_PLANTED_ADVICE_H
#define PJ_BENCH_PLANTED_ADVICE_H

#include "analysis/advice.h"
#include "base/random.h"

/* A run that no rule applies to: 4-bit weights, a batch, a fast sensor with little noise. */
void pj_planted_advice_none(pj_advice_facts *facts);

typedef struct pj_planted_advice {
    const char *rule;
    void (*plant)(pj_advice_facts *facts); /* changes the run above */
} pj_planted_advice;

extern const pj_planted_advice pj_planted_advices[]; /* one a rule; ends with NULL */

/* Changes every figure by a random share. */
void pj_planted_advice_vary(pj_advice_facts *facts, pj_random *random, double share);

/* Parts of the above. */
void pj_planted_bytes_bound(pj_advice_facts *facts);
void pj_planted_no_room(pj_advice_facts *facts); /* for a larger batch */
/* Runs that differ in one setting, with that ratio of joules per token, known to 2 %. */
void pj_planted_neighbour(pj_advice_facts *facts, uint32_t threads, uint32_t batch,
                          const char *dtype, double ratio);

#endif
