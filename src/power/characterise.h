/* Measures the update periods of a source's sensors before a run, and caches them. */
#ifndef PJ_POWER_CHARACTERISE_H
#define PJ_POWER_CHARACTERISE_H

#include "power/sampler.h"

/* Polls the sampler's open source as fast as is sensible until every rail has changed often enough,
 * for at most 3 s, and sets the rails' periods where the source left them open or was off by half.
 * A valid cache entry (same device, field, driver, kernel) is used instead. *disagreement is the
 * largest relative difference between a counter and a power reading of one device, NAN without such
 * a pair. */
pj_status pj_characterise(pj_power_sampler *sampler, double *disagreement, pj_error *err);

#endif
