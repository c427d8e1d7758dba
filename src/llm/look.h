/*
 * What looking costs: the time that statistics and extras take of the thread that drives a pass.
 * It is one of the team, so that its own share is what looking adds to the pass, whether the team
 * shares the work or waits. One look in sixteen, by chance, is timed and counts sixteenfold: a
 * reading of the clock takes as long as looking at a short row.
 *
 * Threads: each has its own clock, stopped until pj_look_start; a team's other threads never start
 * theirs.
 */
#ifndef PJ_LLM_LOOK_H
#define PJ_LLM_LOOK_H

#include "base/clock.h"

typedef struct pj_look_clock {
    uint32_t wait; /* looks until the next that is timed; 0: the clock is stopped */
    uint32_t random;
    int64_t reading_ns; /* what reading the clock takes */
    int64_t spent_ns;
} pj_look_clock;

extern _Thread_local pj_look_clock pj_looks;

void pj_look_start(void);
int64_t pj_look_stop(void); /* nanoseconds since the start */
void pj_look_add(int64_t begun_ns);

/* Around each look; they do not nest. */
static inline int64_t pj_look_begin(void)
{
    return pj_looks.wait && --pj_looks.wait == 0 ? pj_clock_ns() : 0;
}
static inline void pj_look_end(int64_t begun_ns)
{
    if (begun_ns) pj_look_add(begun_ns);
}

#endif
