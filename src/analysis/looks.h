/* Repeated looks at growing data with a controlled error: how small a one-sided p value has to be
 * at each look so that, over all of them, a true hypothesis is rejected with at most the level. By
 * error spending (Lan and DeMets) in the form of O'Brien and Fleming, which leaves most of the
 * level to the last look. Pure. */
#ifndef PJ_ANALYSIS_LOOKS_H
#define PJ_ANALYSIS_LOOKS_H

#include <stdint.h>

enum { PJ_LOOKS_MAX = 256 };

/* `information` at each look, increasing; proportional to 1 / variance of the estimate. */
void pj_looks_plan(const double *information, uint32_t count, double level, double *p);

#endif
