/* Shared by the rules of advice. */
#ifndef PJ_ANALYSIS_ADVICE_RULES_H
#define PJ_ANALYSIS_ADVICE_RULES_H

#include "analysis/advice.h"

/* What a rule needs to know before it is asked. */
enum { PJ_ADVICE_OF_ENERGY = 1 };

typedef struct pj_advice_rule {
    const char *id, *title;
    unsigned needs;
    /* Fills in the advice; returns why there is none, or NULL: it is a recommendation. */
    const char *(*look)(const pj_advice_facts *f, pj_advice *a);
} pj_advice_rule;

/* Rules about how a model is run, and about the machine and its sensors; an entry without an id
 * ends the list. */
extern const pj_advice_rule pj_advice_run_rules[], pj_advice_machine_rules[];

void pj_advice_evidence(pj_advice *a, const char *name, const char *unit, double value,
                        const char *says);
/* The advice would save `lo` to `hi` of `mj`. NULL: that is a recommendation, since `lo` is above
 * PJ_ADVICE_LEAST of the request. */
const char *pj_advice_saves(const pj_advice_facts *f, pj_advice *a, const char *of, double mj,
                            double lo, double share, double hi, const char *basis);
/* The same of the request, predicted by a formula from the energy of a part that is known to `sd`
 * (relative 1 sigma; NAN: to nothing worse than the request). */
const char *pj_advice_predicts(const pj_advice_facts *f, pj_advice *a, double lo, double share,
                               double hi, double sd);
/* The share of the weights that memory has to deliver in every step if the last level of cache
 * keeps what it can hold; 1 if its size is unknown. Weights are read one after the other, so that
 * it may as well keep nothing: this is for the lower end of a saving. */
double pj_advice_uncached(const pj_advice_facts *f);
/* Why fewer bytes of weights would not save energy by this run's figures; NULL: they may. */
const char *pj_advice_not_bytes_bound(const pj_advice_facts *f);
/* A neighbour that differs in exactly one setting: `threads`, `batch` (0: as this run) or dtype. */
const pj_advice_neighbour *pj_advice_neighbour_of(const pj_advice_facts *f, uint32_t threads,
                                                  uint32_t batch, const char *dtype);
/* The command that tests an advice; of a run of another engine, the comparison with its repetition.
 */
void pj_advice_command(const pj_advice_facts *f, pj_advice *a, const char *command);
/* A "perjoule experiment …" command that compares this run's settings with others. */
void pj_advice_experiment(const pj_advice_facts *f, pj_advice *a, const char *settings, ...)
    __attribute__((format(printf, 3, 4)));
void pj_advice_run(const pj_advice_facts *f, pj_advice *a, const char *options);

#endif
