/* Live interface of the simulated source, used by the meter. */
#ifndef PJ_POWER_SIM_SOURCE_H
#define PJ_POWER_SIM_SOURCE_H

#include "power/sim.h"

const pj_sim_spec *pj_sim_source_spec(const void *state);
void pj_sim_source_set_activity(void *state, double net_mw); /* any thread */

#endif
