/* Reads the conditions of this machine's devices: the CPU from cpufreq, thermal sensors and procfs,
 * GPUs from hwmon and NVML. Independent of the power samplers, so that a slow driver call here
 * never delays a power reading. */
#ifndef PJ_POWER_CONDITIONS_H
#define PJ_POWER_CONDITIONS_H

#include "power/source.h"
#include "trace/conditions.h"

typedef struct pj_conditions pj_conditions;

/* NULL when out of memory; a machine that reports nothing gives no rows. */
pj_conditions *pj_conditions_open(const pj_power_env *env);
void pj_conditions_close(pj_conditions *conditions); /* NULL is allowed */
/* One row per device that reports anything. Takes a few milliseconds: do not call on a sampler
 * thread. */
uint32_t pj_conditions_read(pj_conditions *conditions, pj_condition rows[PJ_CONDITION_DEVICES]);

#endif
