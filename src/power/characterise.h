/* Measures how a sensor really behaves before a run, and caches the result. */
#ifndef PJ_POWER_CHARACTERISE_H
#define PJ_POWER_CHARACTERISE_H

#include "power/sampler.h"

/* Measured properties of one rail. */
typedef struct pj_rail_profile {
    int64_t period_ns; /* median time between changes; 0: too few were seen */
    double error_rate, zero_rate;
    double call_us;
} pj_rail_profile;

/* Polls the sampler's open source as fast as is sensible until every rail has changed often enough
 * or `limit_ns` has passed (at most 3 s), and stores the results in profiles[rail_count] and in the
 * rails (the period where the source left it open or was off by half). A valid cache entry (same
 * device, field, driver, kernel) is used instead. *disagreement is the largest relative difference
 * between a counter and a power reading of one device, NAN without such a pair. */
pj_status pj_characterise(pj_power_sampler *sampler, int64_t limit_ns,
                          pj_rail_profile profiles[PJ_MAX_RAILS], double *disagreement,
                          pj_error *err);

#endif
