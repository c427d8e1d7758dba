/* Conditions and limits of NVIDIA GPUs, through a separate handle on the driver's library. */
#ifndef PJ_POWER_NVML_WATCH_H
#define PJ_POWER_NVML_WATCH_H

#include "power/source.h"
#include "trace/conditions.h"

typedef struct pj_nvml_watch pj_nvml_watch;

pj_nvml_watch *pj_nvml_watch_open(const pj_power_env *env); /* NULL: there are none */
void pj_nvml_watch_close(pj_nvml_watch *watch);             /* NULL is allowed */
uint32_t pj_nvml_watch_read(const pj_nvml_watch *watch, pj_condition *rows, uint32_t max);

/* A power limit (milliwatts) or a bound of the clock (megahertz); NAN: unknown, or none is set. */
typedef struct pj_nvml_limit {
    double now, usual, least, most;
    char name[96], uuid[96];
    bool settable; /* the driver has the call; whether it permits it is not known */
} pj_nvml_limit;

uint32_t pj_nvml_watch_count(const pj_nvml_watch *watch);
/* False: the GPU has none. */
bool pj_nvml_power_limit(const pj_nvml_watch *watch, uint32_t gpu, pj_nvml_limit *limit);
bool pj_nvml_clock_limit(const pj_nvml_watch *watch, uint32_t gpu, pj_nvml_limit *limit);
double pj_nvml_power_now(const pj_nvml_watch *watch, const char *uuid);
pj_status pj_nvml_power_set(const pj_nvml_watch *watch, const char *uuid, double mw, pj_error *err);
/* NAN: no bound. */
pj_status pj_nvml_clock_set(const pj_nvml_watch *watch, const char *uuid, double mhz,
                            pj_error *err);

#endif
