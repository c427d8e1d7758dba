/* Which rail of one source lies inside a rail of another one. */
#ifndef PJ_POWER_CONTAINMENT_H
#define PJ_POWER_CONTAINMENT_H

#include "trace/rail.h"

/* Sets parents across sources; those within a source are the source's own business. */
void pj_rails_contain(pj_rail *rails, uint32_t count);

#endif
