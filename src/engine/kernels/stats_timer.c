/* Times a random sample of sections, so that no periodic pattern is missed. */
#include "engine/kernels/stats_timer.h"

enum {
    EVERY = 64,
    TRIES = 31,
    LONG_NS = 20000, /* a section with a preemption takes at least this */
    BY_CPU = 8       /* timed sections after a long one, by the CPU clock */
};

_Thread_local pj_stats_timer pj_stats_timing;

static uint32_t next_wait(pj_stats_timer *c)
{
    c->random = c->random * 1664525u + 1013904223u;
    return 1 + (c->random >> 8) % (2 * EVERY - 1); /* EVERY on average */
}

/* Median cost of reading a clock: with the minimum, part of every reading would be counted as
 * statistics, EVERY times over. */
static int64_t cost_of_reading(int64_t (*clock_ns)(void))
{
    int64_t took[TRIES];
    for (int i = 0; i < TRIES; i++) {
        int64_t begun = clock_ns(), t = clock_ns() - begun;
        int at = i;
        for (; at > 0 && took[at - 1] > t; at--) took[at] = took[at - 1];
        took[at] = t;
    }
    return took[TRIES / 2];
}

void pj_stats_timer_start(void)
{
    pj_stats_timer *c = &pj_stats_timing;
    *c = (pj_stats_timer){.random = 1,
                          .reading_ns = cost_of_reading(pj_clock_ns),
                          .reading_cpu_ns = cost_of_reading(pj_clock_thread_cpu_ns)};
    c->started_ns = pj_clock_thread_cpu_ns();
    c->wait = next_wait(c);
}

void pj_stats_timer_add(int64_t begun_ns)
{
    pj_stats_timer *c = &pj_stats_timing;
    bool by_cpu = c->by_cpu > 0;
    int64_t took_ns = by_cpu ? pj_clock_thread_cpu_ns() - begun_ns - c->reading_cpu_ns
                             : pj_clock_ns() - begun_ns - c->reading_ns;
    if (by_cpu) c->by_cpu--;
    if (took_ns >= LONG_NS) c->by_cpu = BY_CPU;
    if (took_ns >= LONG_NS && !by_cpu) {
        c->wait = 1; /* perhaps preempted: the CPU clock times the next section instead */
        return;
    }
    c->spent_ns += EVERY * took_ns; /* negative ones too: without them the sum would be too large */
    c->wait = next_wait(c);
}

/* An estimate from few samples may exceed the thread's total CPU time, which bounds it. */
int64_t pj_stats_timer_stop(void)
{
    pj_stats_timer *c = &pj_stats_timing;
    int64_t most_ns = pj_clock_thread_cpu_ns() - c->started_ns;
    int64_t spent_ns = c->spent_ns > 0 ? c->spent_ns : 0;
    c->wait = 0;
    return spent_ns < most_ns ? spent_ns : most_ns;
}
