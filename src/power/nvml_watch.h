/* Conditions of NVIDIA GPUs, through a separate handle on the driver's library. */
#ifndef PJ_POWER_NVML_WATCH_H
#define PJ_POWER_NVML_WATCH_H

#include "power/source.h"
#include "trace/conditions.h"

typedef struct pj_nvml_watch pj_nvml_watch;

pj_nvml_watch *pj_nvml_watch_open(const pj_power_env *env); /* NULL: there are none */
void pj_nvml_watch_close(pj_nvml_watch *watch);             /* NULL is allowed */
uint32_t pj_nvml_watch_read(const pj_nvml_watch *watch, pj_condition *rows, uint32_t max);

#endif
