/* An experiment on simulated sensors, whose planted energies are known. */
#ifndef PJ_BENCH_SIM_EXPERIMENT_H
#define PJ_BENCH_SIM_EXPERIMENT_H

#include "experiment/experiment.h"

#include <jansson.h>

/* Runs of a small model without attention, MLP, head and all layers but one, beside whole ones. */
extern const char pj_sim_parts_plan[];

/* Runs a plan that has a name, with its runs in `database`. `end` (or NULL) is called after each
 * run. *view: the experiment's result (docs/api.md, "Experiments"), to be released. */
pj_status pj_sim_experiment_run(const char *plan, const char *database, uint64_t seed,
                                void (*end)(void *context, pj_status status,
                                            const pj_profile_result *result, const pj_error *err),
                                void *context, json_t **view, pj_error *err);

/* How many of the intervals of a result's ablations contain the planted energy. */
typedef struct pj_sim_parts_score {
    double difference, difference_held, attributed, attributed_held;
    double too_short; /* differences below what the sensor resolves: not stated */
} pj_sim_parts_score;

void pj_sim_parts_judge(const json_t *view, pj_sim_parts_score *score); /* adds */

#endif
