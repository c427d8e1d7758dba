/* Shared by the rules of advice. */
#ifndef PJ_ANALYSIS_ADVICE_RULES_H
#define PJ_ANALYSIS_ADVICE_RULES_H

#include "analysis/advice.h"

typedef struct pj_advice_rule {
    const char *id, *title;
    void (*look)(const pj_advice_facts *f, pj_advice *a);
} pj_advice_rule;

/* Rules about how a model is run, and about the machine and its sensors; an entry without an id
 * ends the list. */
extern const pj_advice_rule pj_advice_run_rules[], pj_advice_machine_rules[];

void pj_advice_silent(pj_advice *a, const char *why);
void pj_advice_evidence(pj_advice *a, const char *name, const char *unit, double value,
                        const char *says);
/* The rule applies and would save `lo` to `hi` of `mj`. It becomes a recommendation when `lo` is
 * above PJ_ADVICE_LEAST of the request. */
void pj_advice_saves(const pj_advice_facts *f, pj_advice *a, const char *of, double mj, double lo,
                     double share, double hi, const char *basis);
/* Whether decode is memory-bound: reading its bytes takes more than twice as long as its FLOPs at
 * the speed of prefill, or its arithmetic intensity is very low. */
bool pj_advice_is_bytes_bound(const pj_advice_facts *f);
/* A neighbour that differs in exactly one setting: `threads`, `batch` (0: as this run) or dtype. */
const pj_advice_neighbour *pj_advice_neighbour_of(const pj_advice_facts *f, uint32_t threads,
                                                  uint32_t batch, const char *dtype);
/* A "perjoule experiment …" command that compares this run's settings with others. */
void pj_advice_experiment(const pj_advice_facts *f, pj_advice *a, const char *settings);
void pj_advice_run(const pj_advice_facts *f, pj_advice *a, const char *options);

#endif
