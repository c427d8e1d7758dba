/* Measures how a source's sensors behave before a run, and caches it. */
#ifndef PJ_POWER_CHARACTERISE_H
#define PJ_POWER_CHARACTERISE_H

#include "power/sampler.h"

/* Polls the sampler's open source as fast as is sensible until every rail has changed often enough,
 * for at most 3 s, and sets the rails' periods where the source left them open or was off by half,
 * the grids of counters' ticks, what reads cost, how well counters agree with the power of the
 * same device, and which rails stand still. A valid cache entry (same machine, device, field,
 * driver, kernel) is used instead, unless a counter that stood still has moved since. */
pj_status pj_characterise(pj_power_sampler *sampler, pj_error *err);
/* Caches grids that a stopped sampler has learnt since. */
void pj_characterise_keep(const pj_power_sampler *sampler);

#endif
