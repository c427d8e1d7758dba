/*
 * Conditions: what a device reports about itself beside its power, once per second: temperature,
 * clocks, utilisation, power limit, and what holds its clocks down. They explain a run and are no
 * part of any energy.
 */
#ifndef PJ_TRACE_CONDITIONS_H
#define PJ_TRACE_CONDITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_CONDITION_DEVICES = 24, PJ_DEVICE_NAME_BYTES = 24 };

/* What slows a device down, as bits. */
enum {
    PJ_THROTTLE_POWER = 1,   /* its power limit */
    PJ_THROTTLE_THERMAL = 2, /* its temperature */
    PJ_THROTTLE_HARDWARE = 4 /* a slowdown that hardware asked for: power brake, supply */
};

typedef struct pj_condition {
    int64_t at_ns;
    char device[PJ_DEVICE_NAME_BYTES]; /* "cpu", "gpu0", a chip's name */
    double temperature_c, clock_mhz, memory_clock_mhz; /* NAN: not reported */
    double utilisation;                                /* 0..1 since the last look */
    double power_limit_mw;                             /* in force */
    double tdp_mw;                                     /* what it was designed for */
    uint32_t throttle;                                 /* PJ_THROTTLE_... */
    uint32_t throttle_known;
} pj_condition;

/* "power,thermal"; "" where nothing holds it back. */
void pj_throttle_names(uint32_t throttle, char *text, size_t bytes);

#endif
