/* How often the detection of phases is right on simulated requests whose tags were removed: one
 * machine, requests of many lengths, each classified by a model that was trained on all others. */
#ifndef PJ_BENCH_SIM_PHASES_H
#define PJ_BENCH_SIM_PHASES_H

#include "base/error.h"

#include <stdint.h>

/* Counts of readings. `clear`: the mean power of their phase differs from that of every other phase
 * of the trace by more than twice the noise, which is the standard deviation within the phases. */
typedef struct pj_sim_phase_score {
    double all, right, clear, clear_right;
    double near_90, near_90_right;        /* with a confidence of 85 to 95 % */
    double unknown;                       /* traces: too short or too flat to classify */
    double prior_right, prior_confidence; /* by the prior, without the other traces */
} pj_sim_phase_score;

/* Adds the requests of one simulated machine to `score`. `seed` draws the powers of its components
 * and the requests; `stretch` multiplies their times, for slow sensors. */
pj_status pj_sim_phases_judge(const char *preset, uint64_t seed, double stretch,
                              pj_sim_phase_score *score, pj_error *err);

#endif
