/* Wastes planted on simulated machines (bench/sim_machine.h): whether the advice about a stored run
 * names what was planted, and promises a saving that contains what the same machine really takes
 * less without it. */
#ifndef PJ_BENCH_PLANTED_SAVINGS_H
#define PJ_BENCH_PLANTED_SAVINGS_H

#include "bench/sim_machine.h"

typedef struct pj_saving_score {
    double machines, found, held; /* held: the stated interval contains the planted saving */
    double stated, planted;       /* sums of the savings, as shares */
    double other;                 /* recommendations of another rule that is not planted either */
} pj_saving_score;

/* Rules with a planted waste; ends with NULL. */
extern const char *const pj_planted_savings[];

/* Runs of one machine per seed, in the database of `store`, which must be empty and is empty again
 * afterwards; adds to the score. `rule` NULL: a machine on which nothing is wasted. */
pj_status pj_planted_saving_judge(const char *rule, uint64_t seed, pj_store *store,
                                  pj_saving_score *score, pj_error *err);

#endif
