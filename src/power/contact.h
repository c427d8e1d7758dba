/* What first contact with a rail measured besides its period and grid, which are the rail's own. */
#ifndef PJ_POWER_CONTACT_H
#define PJ_POWER_CONTACT_H

#include <stdint.h>

typedef struct pj_rail_contact {
    int64_t cost_ns;                  /* of the cheapest read; 0: unknown */
    int64_t cost_p50_ns, cost_p95_ns; /* of all reads, preemption included; 0: unknown */
    double disagreement; /* of a counter with the device's power, relative; NAN: not compared */
} pj_rail_contact;

#endif
