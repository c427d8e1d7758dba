/* What a device reported over a run: means and extremes. A run keeps them as one JSON object by
 * device (pj_run_info.conditions_json). */
#ifndef PJ_TRACE_DEVICE_CONDITIONS_H
#define PJ_TRACE_DEVICE_CONDITIONS_H

#include "base/json.h"

#include <stdint.h>

enum { PJ_DEVICES_MAX = 96 };

/* NAN: not reported. */
typedef struct pj_device_conditions {
    char device[32];
    double temperature_c, temperature_max_c, clock_mhz, clock_min_mhz, clock_max_mhz;
    double memory_clock_mhz, utilisation, power_limit_mw;
    double throttled_share, tdp_mw, tdp_share; /* tdp_share: mean power / TDP */
    bool power_limit_changed, throttle_known;
    char throttle[64]; /* reasons that occurred, "power,thermal"; "": none */
} pj_device_conditions;

/* The device as a member of an open object. */
void pj_device_conditions_write(const pj_device_conditions *device, pj_json *json);
/* Returns how many; `json` NULL: none. */
uint32_t pj_device_conditions_read(const char *json, pj_device_conditions devices[PJ_DEVICES_MAX]);

#endif
