/*
 * The grid of a counter's ticks. A driver that publishes a counter every 100.000 ms does so at
 * begin + n x 100 ms of some clock. Once that phase is known, any single read of the counter is an
 * exact pair of a time (the last tick) and an energy, so a counter whose read takes milliseconds
 * need not be polled.
 *
 * The phase is kept as the interval in which a tick must have occurred. Every pair of reads between
 * which the value changed narrows it, and the drift of the device's clock widens it with time.
 *
 * Pure: no clock, no thread, no allocation.
 */
#ifndef PJ_POWER_GRID_H
#define PJ_POWER_GRID_H

#include <stdbool.h>
#include <stdint.h>

/* Ticks that are enough to find a grid; those of counters faster than this are not worth
 * predicting.
 */
enum { PJ_GRID_ENOUGH = 10, PJ_GRID_LEAST_NS = 10 * 1000000 };

typedef struct pj_grid {
    int64_t period_ns; /* 0: the ticks are on no grid */
    int64_t tick_ns;   /* middle of the interval that contains a tick */
    int64_t slack_ns;  /* half its width at `seen_ns`; 0: the phase is unknown */
    int64_t seen_ns;   /* when a tick was last seen */
    uint32_t misses;   /* contradictions in a row */
} pj_grid;

/* Half the width of the interval of a tick near `at_ns`; INT64_MAX: unknown. */
int64_t pj_grid_error(const pj_grid *grid, int64_t at_ns);
/* Whether ticks near `at_ns` are known to an eighth of the period. */
bool pj_grid_known(const pj_grid *grid, int64_t at_ns);
/* The last tick at or before `at_ns`, of a known phase. */
int64_t pj_grid_last(const pj_grid *grid, int64_t at_ns);
/* One tick, the only one, occurred between `from_ns` and `to_ns`. False: not on the known grid;
 * after two of these in a row the phase is forgotten. */
bool pj_grid_observe(pj_grid *grid, int64_t from_ns, int64_t to_ns);

/* Whether ticks, each seen in an interval [from, to] and in order of time, are on a grid: returns
 * its period, 0: none, or too few ticks to tell; -1: several periods fit. */
int64_t pj_grid_find(const int64_t *from_ns, const int64_t *to_ns, uint32_t count);

#endif
