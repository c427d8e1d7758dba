/*
 * Turns one rail's readings into samples at the requested interval. `--interval` may ask for
 * coarser samples than the sensor publishes: counter readings are then thinned, and power readings
 * averaged over the interval, so that no observed energy is dropped. The same code also reports
 * constant values as measured on rails whose driver states no update period.
 *
 * Pure: no clock, no thread, no allocation.
 */
#ifndef PJ_POWER_COARSEN_H
#define PJ_POWER_COARSEN_H

#include "trace/rail.h"

enum { PJ_COARSEN_MOST = 2 }; /* samples that one reading can yield */

typedef struct pj_coarsen {
    pj_rail_kind kind;
    bool active;         /* false: every reading passes unchanged */
    bool may_stand;      /* the driver states no period: an unchanged value is a measurement */
    int64_t interval_ns; /* of samples; 0: as published */
    int64_t period_ns;   /* of the sensor; 0: unknown */
    double seen_share;   /* of the time that the sensor's windows cover */
    bool armed;
    int64_t begin_ns, end_ns; /* of the interval being averaged; for counters: last passed on */
    double mw_ns;             /* power x time over it */
    double value;             /* last seen */
    int64_t change_ns;        /* when a counter last moved */
    bool holds;               /* a counter's reading is held back */
    pj_reading held;
} pj_coarsen;

/* `rail` as the source described it, with the measured period; `declared`: the driver states the
 * period; `interval_ns` as requested, 0: none. */
void pj_coarsen_init(pj_coarsen *coarsen, const pj_rail *rail, bool declared, int64_t interval_ns);
/* Returns the samples due with this classified reading: up to PJ_COARSEN_MOST, oldest first. */
int pj_coarsen_take(pj_coarsen *coarsen, const pj_reading *reading, pj_reading *out);
/* Returns a held reading when sampling stops; `seen_ns`: when the value was last seen. */
int pj_coarsen_flush(pj_coarsen *coarsen, int64_t seen_ns, pj_reading *out);
/* After a restart or a pause. */
void pj_coarsen_rearm(pj_coarsen *coarsen);
/* Updates the rail's period and window to those of its samples. */
void pj_coarsen_describe(const pj_coarsen *coarsen, pj_rail *rail);

#endif
