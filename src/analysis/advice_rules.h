/* What the rules of advice share. */
#ifndef PJ_ANALYSIS_ADVICE_RULES_H
#define PJ_ANALYSIS_ADVICE_RULES_H

#include "analysis/advice.h"

typedef struct pj_advice_rule {
    const char *id, *title;
    void (*look)(const pj_advice_facts *f, pj_advice *a);
} pj_advice_rule;

/* Rules about how a model is run, and about the machine and its sensors; ends without an id. */
extern const pj_advice_rule pj_advice_run_rules[], pj_advice_machine_rules[];

void pj_advice_silent(pj_advice *a, const char *why);
void pj_advice_evidence(pj_advice *a, const char *name, const char *unit, double value,
                        const char *says);
/* The rule applies; `lo` to `hi` of `mj` saved. It speaks when `lo` is above PJ_ADVICE_LEAST of
 * the request. */
void pj_advice_saves(const pj_advice_facts *f, pj_advice *a, const char *of, double mj, double lo,
                     double share, double hi, const char *basis);
/* Decode waits for bytes: the time they need is more than twice that of its FLOPs at the speed that
 * prefill showed, or nearly no FLOPs are done per byte. */
bool pj_advice_is_bytes_bound(const pj_advice_facts *f);
/* A neighbour that differs in exactly one setting: `threads`, `batch` (0: as this run) or dtype. */
const pj_advice_neighbour *pj_advice_neighbour_of(const pj_advice_facts *f, uint32_t threads,
                                                  uint32_t batch, const char *dtype);
/* "perjoule experiment …" that tries settings of this run beside others. */
void pj_advice_experiment(const pj_advice_facts *f, pj_advice *a, const char *settings);
void pj_advice_run(const pj_advice_facts *f, pj_advice *a, const char *options);

#endif
