/*
 * Classifies raw values: update, repeat, gap, implausible, restart. One filter per rail, fed in
 * time order; it classifies the reading in place, determines when the value was published, and
 * reports events (frozen, reset, lost, changed period).
 *
 * Pure: no clock, no thread, no allocation. The sampler, the simulator and the fault-injection
 * tests use the same filter.
 */
#ifndef PJ_POWER_FILTER_H
#define PJ_POWER_FILTER_H

#include "power/meter.h"

enum { PJ_NOTE_NONE = -1 };
enum { PJ_FILTER_INTERVALS = 15, PJ_FILTER_ERRORS_LOST = 10, PJ_FILTER_FROZEN_PERIODS = 20 };

typedef struct pj_filter {
    const pj_rail *rail;
    bool armed;  /* `value` has been accepted */
    bool frozen; /* reported; cleared by the next update */
    bool lost;
    bool rejected_reported;
    double value;                   /* last accepted */
    int64_t change_ns;              /* when it was first seen, middle of that poll */
    int64_t fresh_ns;               /* when it was published */
    int64_t fresh_error_ns;         /* of that */
    int64_t seen_begin_ns, seen_ns; /* begin and end of the last good poll */
    int64_t watched_ns;             /* since when polling has been continuous */
    int64_t longest_still_ns;       /* longest time without a change that ended with a change */
    int64_t passed_ns;              /* last reading passed on */
    double suspect;     /* last rejected value, NAN: none; a similar second one means a reset */
    int64_t suspect_ns; /* when */
    int errors;         /* failures in a row */
    int64_t period_ns;  /* best estimate: declared, then measured */
    int64_t intervals[PJ_FILTER_INTERVALS]; /* between the last changes */
    uint32_t interval_count;
    int note; /* of the last reading: a pj_meter_event_kind, or PJ_NOTE_NONE */
    double note_value;
} pj_filter;

void pj_filter_init(pj_filter *filter, const pj_rail *rail);
/* Classifies a reading. For repeats, fresh_ns is since when continuous polling has seen the value.
 * True: pass the reading on. False: it holds nothing new (repeats are passed on once per period).
 * Sets the filter's note. */
bool pj_filter_take(pj_filter *filter, pj_reading *reading);
/* After a restart of the source or a suspend: the next value only arms the filter. */
void pj_filter_rearm(pj_filter *filter);
/* Median interval between changes so far; 0: too few. */
int64_t pj_filter_period(const pj_filter *filter);

#endif
