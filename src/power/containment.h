/* Containment between rails of different sources. */
#ifndef PJ_POWER_CONTAINMENT_H
#define PJ_POWER_CONTAINMENT_H

#include "trace/rail.h"

/* Sets parents across sources; each source sets those between its own rails. */
void pj_rails_contain(pj_rail *rails, uint32_t count);
/* The first rail that a chain of parents leads back to or out of the array; -1: none. Such a rail
 * would be contained in itself, and counted nowhere. */
int pj_rails_misplaced(const pj_rail *rails, uint32_t count);

#endif
