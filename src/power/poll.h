/*
 * When to read a rail. Most reads take microseconds and are made at every tick of the sampler. One
 * that takes milliseconds, as that of some cards' energy counters does, may use a third of a
 * percent of a core: it is made about once a second. Where the counter's ticks are on a grid
 * (power/grid.h), such a read is still an exact pair of a time and an energy; the phase of the grid
 * is found by reading until a tick is seen, and confirmed every now and then. A grid that first
 * contact did not find, as on a busy machine, is learnt from the ticks that reads happen to see,
 * and from looks at several ticks in a row.
 *
 * A user who needs the energy up to a time asks for it (pj_poll_want): the read is then made as
 * soon as that time has been published.
 *
 * Pure: no clock, no thread, no allocation.
 */
#ifndef PJ_POWER_POLL_H
#define PJ_POWER_POLL_H

#include "power/grid.h"
#include "trace/rail.h"

enum { PJ_POLL_TOOK = 4, PJ_POLL_TICKS = 32 };

typedef struct pj_poll {
    const pj_rail *rail;
    pj_grid grid;
    bool has_log;                  /* that distributes its energy: it is read before this rail */
    int64_t cost_ns;               /* typical duration of a read; 0: not known yet */
    int64_t took_ns[PJ_POLL_TOOK]; /* durations of the last reads */
    uint32_t took_count;
    int64_t due_ns;       /* next read of a costly rail */
    int64_t wanted_ns;    /* an earlier one that a user waits for; 0: none */
    int64_t covered_ns;   /* the time up to which values have been published */
    int64_t read_ns;      /* begin of the last read; 0: none */
    int64_t old_ns;       /* begin of the last read that saw the present value; 0: none */
    bool saw_tick;        /* the last read and the one before it lie around a tick */
    bool is_vague;        /* the last read is to be made again */
    uint32_t vague_count; /* in a row */
    bool looking;         /* for a tick: reads follow each other */
    int64_t look_from_ns; /* when it begins, or earlier for a waiting caller */
    int64_t look_end_ns;  /* then it gives up */
    bool look_missed;     /* the counter moved during the look, at an unexpected time */
    uint32_t lost_count;  /* how often in a row a grid that was kept was not confirmed */
    bool is_refuted;      /* too often: that grid is none of this counter */
    bool stands;          /* it did not move during the last look */
    int64_t hold_ns;      /* when the phase is confirmed next, or a grid is looked for */
    int64_t hold_step_ns, learn_step_ns;
    /* without a grid: ticks that were seen well */
    int64_t tick_from_ns[PJ_POLL_TICKS], tick_to_ns[PJ_POLL_TICKS];
    uint32_t tick_count;
    int64_t next_tick_ns; /* during a look: expected there; 0: at any time */
    bool look_blurred;    /* it may have come without being seen */
} pj_poll;

/* `has_log`: of a counter; `cost_ns` as measured before, 0: unknown; `rail->grid_ns` is used. */
void pj_poll_init(pj_poll *poll, const pj_rail *rail, bool has_log, int64_t cost_ns);
/* Whether reads of this cost have to be rare: such a rail has its own due times. */
bool pj_cost_is_high(const pj_rail *rail, int64_t cost_ns);
/* The same, of the present cost; a counter with a log is read as rarely as that, after it. */
bool pj_poll_is_costly(const pj_poll *poll);
/* Sampling begins, possibly after a pause. */
void pj_poll_start(pj_poll *poll, int64_t now_ns);
/* The same, soon after it stopped, with a value that is known from before. */
void pj_poll_resume(pj_poll *poll, int64_t now_ns);
/* When a costly rail is read next. */
int64_t pj_poll_due(const pj_poll *poll);
/* Someone waits for the energy up to `at_ns`. May be called again until it is known. */
void pj_poll_want(pj_poll *poll, int64_t at_ns);
/* A reading, as classified by the filter: shows ticks, and what a read costs. Where the phase of
 * the grid is known, sets when the value was published; a repeated value that must have been
 * published again becomes an update: nothing was counted. */
void pj_poll_see(pj_poll *poll, pj_reading *reading);
/* A costly rail was read: sets when it is read next, at least `pace_ns` later. */
void pj_poll_done(pj_poll *poll, int64_t before_ns, int64_t after_ns, int64_t pace_ns);
/* Whether the last read was a first one and straddled a tick, so that its date is not known: it is
 * forgotten, and made again at once. */
bool pj_poll_is_vague(const pj_poll *poll);
/* Whether the last read was made while a tick was looked for, for which no log is read: its value
 * is passed on at the next due time after the look, unless the look brings a later one. */
bool pj_poll_is_early(const pj_poll *poll);
/* A read has shown the value of an early one again. If that one may have been of either side of a
 * tick, and this one is not, it has the date. */
void pj_poll_date_early(const pj_poll *poll, const pj_reading *again, pj_reading *early);

#endif
