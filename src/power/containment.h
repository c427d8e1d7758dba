/* Containment between rails of different sources. */
#ifndef PJ_POWER_CONTAINMENT_H
#define PJ_POWER_CONTAINMENT_H

#include "trace/rail.h"

/* Sets parents across sources; each source sets those between its own rails. */
void pj_rails_contain(pj_rail *rails, uint32_t count);

#endif
