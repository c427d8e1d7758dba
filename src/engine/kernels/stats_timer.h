/*
 * CPU time that statistics and extras take on the thread that drives a pass, which does an equal
 * share of its team's. They are computed in bracketed sections; one in 64, chosen at random, is
 * timed and counted 64 times, because reading a clock takes as long as summing a short row.
 *
 * Clocks: short sections are timed by the monotonic clock, because the CPU clock needs a system
 * call that takes several times as long. A long one may include time during which the thread was
 * preempted, so sections that follow a long one are timed by the CPU clock.
 *
 * Threads: each has its own clock, stopped until pj_stats_timer_start; a team's other threads never
 * start theirs.
 */
#ifndef PJ_KERNELS_STATS_TIMER_H
#define PJ_KERNELS_STATS_TIMER_H

#include "base/clock.h"

typedef struct pj_stats_timer {
    uint32_t wait; /* sections until the next timed one; 0: the clock is stopped */
    uint32_t random;
    uint32_t by_cpu;                    /* timed sections left for the CPU clock */
    int64_t reading_ns, reading_cpu_ns; /* cost of reading the clocks */
    int64_t started_ns;                 /* the thread's CPU time at the start */
    int64_t spent_ns;
} pj_stats_timer;

extern _Thread_local pj_stats_timer pj_stats_timing;

void pj_stats_timer_start(void);
/* CPU time spent in sections since the start, at most the thread's own. */
int64_t pj_stats_timer_stop(void);
void pj_stats_timer_add(int64_t begun_ns);

/* Bracket a section; must not be nested. */
static inline int64_t pj_stats_timer_begin(void)
{
    if (!pj_stats_timing.wait || --pj_stats_timing.wait) return 0;
    return pj_stats_timing.by_cpu ? pj_clock_thread_cpu_ns() : pj_clock_ns();
}
static inline void pj_stats_timer_end(int64_t begun_ns)
{
    if (begun_ns) pj_stats_timer_add(begun_ns);
}

#endif
