#include "bench/prior.h"

#include "base/random.h"

#include <string.h>

bool pj_bench_prior_of(void *context, const pj_rail *rail, const char *name, pj_phase phase,
                       double *power_mw, double *sd_mw)
{
    const pj_bench_prior *p = context;
    if (name[0] == '(' || phase == PJ_PHASE_IDLE) return false;
    pj_random random = {pj_hash64(p->seed, name, strlen(name)) + (uint64_t)phase};
    double truth = pj_sim_class_mw(p->spec, name, phase);
    *sd_mw = p->sd * truth;
    *power_mw = truth + *sd_mw * pj_random_normal(&random);
    return true;
}
