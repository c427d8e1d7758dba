/* Conditions of a device over a run: means and extremes. A run keeps them as one JSON object by
 * device (pj_run_info.conditions_json). */
#ifndef PJ_TRACE_DEVICE_CONDITIONS_H
#define PJ_TRACE_DEVICE_CONDITIONS_H

#include "base/json.h"

#include <stdint.h>

enum { PJ_DEVICES_MAX = 96 };

/* clang-format off */
#define PJ_CONDITION_NUMBERS(X) \
    X(temperature_c) X(temperature_max_c) X(clock_mhz) X(clock_min_mhz) X(clock_max_mhz) \
    X(memory_clock_mhz) X(utilisation) X(power_limit_mw) X(throttled_share) X(tdp_mw) \
    X(tdp_share)
/* clang-format on */

/* NAN: not reported. tdp_share: mean power / thermal design power. */
typedef struct pj_device_conditions {
    char device[32];
#define MEMBER(name) double name;
    PJ_CONDITION_NUMBERS(MEMBER)
#undef MEMBER
    bool power_limit_changed, throttle_known;
    char throttle[64]; /* reasons that occurred, "power,thermal"; "": none */
} pj_device_conditions;

/* The device as a member of an open object. */
void pj_device_conditions_write(const pj_device_conditions *device, pj_json *json);
/* Returns how many; `json` NULL: none. */
uint32_t pj_device_conditions_read(const char *json, pj_device_conditions devices[PJ_DEVICES_MAX]);

#endif
