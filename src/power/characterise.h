/* What a sensor really does, found out before a run and kept for the next one. */
#ifndef PJ_POWER_CHARACTERISE_H
#define PJ_POWER_CHARACTERISE_H

#include "power/sampler.h"

/* What was learned of one rail. */
typedef struct pj_rail_profile {
    int64_t period_ns; /* median time between changes; 0: too few were seen */
    double error_rate, zero_rate;
    double call_us;
} pj_rail_profile;

/* Polls the sampler's open source as fast as is sensible, until every rail has changed often enough
 * or `limit_ns` has passed (3 s at most), and writes what it learned into profiles[rail_count] and
 * into the rails (period where the source left it open or was off by half). A fresh entry of the
 * cache (same device, field, driver, kernel) is taken instead. *disagreement is the largest
 * relative difference between a counter and a power reading of one device, NAN without such a pair.
 */
pj_status pj_characterise(pj_power_sampler *sampler, int64_t limit_ns,
                          pj_rail_profile profiles[PJ_MAX_RAILS], double *disagreement,
                          pj_error *err);

#endif
