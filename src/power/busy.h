/* CPU time of the machine since boot; the difference of two gives a busy share. */
#ifndef PJ_POWER_BUSY_H
#define PJ_POWER_BUSY_H

#include "power/source.h"

typedef struct pj_busy {
    double busy, total; /* ticks; total 0: unknown */
} pj_busy;

void pj_busy_get(const pj_power_env *env, pj_busy *busy);
double pj_busy_share(const pj_busy *before, const pj_busy *after); /* NAN: unknown */

#endif
