/* Conditions: what a device reports besides power, once per second: temperature,
 * clocks, utilisation, power limit, throttling. They explain a run and do not enter any energy. */
#ifndef PJ_TRACE_CONDITIONS_H
#define PJ_TRACE_CONDITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_CONDITION_DEVICES = 24, PJ_DEVICE_NAME_BYTES = 24 };

/* Throttle reasons, as a bit mask. */
enum {
    PJ_THROTTLE_POWER = 1,   /* its power limit */
    PJ_THROTTLE_THERMAL = 2, /* its temperature */
    PJ_THROTTLE_HARDWARE = 4 /* slowdown signalled by hardware: power brake, supply */
};

typedef struct pj_condition {
    int64_t at_ns;
    char device[PJ_DEVICE_NAME_BYTES];                 /* "cpu", "gpu0", a chip's name */
    double temperature_c, clock_mhz, memory_clock_mhz; /* NAN: not reported */
    double utilisation;                                /* 0..1 since the last query */
    double power_limit_mw;                             /* as enforced now */
    double tdp_mw;                                     /* thermal design power */
    uint32_t throttle;                                 /* PJ_THROTTLE_... */
    uint32_t throttle_known;
} pj_condition;

/* "power,thermal"; "" when not throttled. */
void pj_throttle_names(uint32_t throttle, char *text, size_t bytes);

#endif
