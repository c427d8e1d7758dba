/* An experiment on simulated sensors, whose planted energies are known. */
#ifndef PJ_BENCH_SIM_EXPERIMENT_H
#define PJ_BENCH_SIM_EXPERIMENT_H

#include "experiment/experiment.h"
#include "experiment/experiment_view.h"

/* Runs of a small model without attention, MLP, head and all layers but one, and whole ones. */
extern const char pj_sim_parts_plan[];

/* Runs a plan that has a name, with its runs in `database`. `end` (or NULL) is called after each
 * run. *result: to be freed; NULL on failure. */
pj_status pj_sim_experiment_run(const char *plan, const char *database, uint64_t seed,
                                void (*end)(void *context, pj_status status,
                                            const pj_profile_result *result, const pj_error *err),
                                void *context, pj_experiment_result **result, pj_error *err);

/* How many of the intervals of a result's ablations contain the planted energy. */
typedef struct pj_sim_parts_score {
    double difference, difference_held, attributed, attributed_held;
    double too_short; /* differences below what the sensor resolves: not stated */
} pj_sim_parts_score;

/* adds */
void pj_sim_parts_judge(const pj_experiment_result *result, pj_sim_parts_score *score);

#endif
