/*
 * From the readings of one rail to the samples that were asked for. `--interval` may ask for coarser
 * samples than the sensor publishes: a counter's readings are then thinned, and power readings are
 * averaged over the interval, so that nothing the sensor saw is left out. The same machinery makes a
 * value that stands still known on rails whose driver states no update period.
 *
 * Pure: no clock, no thread, no allocation.
 */
#ifndef PJ_POWER_COARSEN_H
#define PJ_POWER_COARSEN_H

#include "trace/rail.h"

enum { PJ_COARSEN_MOST = 2 }; /* readings that one reading can become */

typedef struct pj_coarsen {
    pj_rail_kind kind;
    bool active;         /* false: every reading passes as it is */
    bool may_stand;      /* the driver states no period: a value that stands still is a value */
    int64_t interval_ns; /* of samples; 0: as published */
    int64_t period_ns;   /* of the sensor; 0: unknown */
    double seen_share;   /* of the time that the sensor's windows cover */
    bool armed;
    int64_t begin_ns, end_ns; /* of the stretch being averaged; a counter: last passed on */
    double mw_ns;             /* power x time over it */
    double value;             /* last seen */
    int64_t change_ns;        /* when a counter last moved */
    bool holds;               /* a counter's reading is held back */
    pj_reading held;
} pj_coarsen;

/* `rail` as the source gave it, with the period that was found; `declared`: the period is the
 * driver's own statement; `interval_ns` as asked for, 0: none. */
void pj_coarsen_init(pj_coarsen *coarsen, const pj_rail *rail, bool declared, int64_t interval_ns);
/* What to pass on for this classified reading: up to PJ_COARSEN_MOST, oldest first. */
int pj_coarsen_take(pj_coarsen *coarsen, const pj_reading *reading, pj_reading *out);
/* What is still held when sampling stops; `seen_ns`: when the value was last seen. */
int pj_coarsen_flush(pj_coarsen *coarsen, int64_t seen_ns, pj_reading *out);
/* After a restart or a pause. */
void pj_coarsen_rearm(pj_coarsen *coarsen);
/* The rail's period and window as its samples now have them. */
void pj_coarsen_describe(const pj_coarsen *coarsen, pj_rail *rail);

#endif
