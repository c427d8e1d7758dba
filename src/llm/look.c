/* Times a random sample of looks, so that no periodic pattern is missed. */
#include "llm/look.h"

enum { EVERY = 64, TRIES = 31 };

_Thread_local pj_look_clock pj_looks;

static uint32_t next_wait(pj_look_clock *c)
{
    c->random = c->random * 1664525u + 1013904223u;
    return 1 + (c->random >> 8) % (2 * EVERY - 1); /* EVERY on average */
}

/* Median cost of reading the clock: with the minimum, part of every reading would be counted as a
 * look, EVERY times over. */
static int64_t cost_of_reading(void)
{
    int64_t took[TRIES];
    for (int i = 0; i < TRIES; i++) {
        int64_t begun = pj_clock_thread_cpu_ns(), t = pj_clock_thread_cpu_ns() - begun;
        int at = i;
        for (; at > 0 && took[at - 1] > t; at--) took[at] = took[at - 1];
        took[at] = t;
    }
    return took[TRIES / 2];
}

void pj_look_start(void)
{
    pj_look_clock *c = &pj_looks;
    *c = (pj_look_clock){.random = 1, .reading_ns = cost_of_reading()};
    c->started_ns = pj_clock_thread_cpu_ns();
    c->wait = next_wait(c);
}

void pj_look_add(int64_t begun_ns)
{
    pj_look_clock *c = &pj_looks;
    /* may be negative: dropping those would make the sum too large */
    c->spent_ns += EVERY * (pj_clock_thread_cpu_ns() - begun_ns - c->reading_ns);
    c->wait = next_wait(c);
}

/* An estimate from few samples may exceed the thread's total CPU time, which bounds it. */
int64_t pj_look_stop(void)
{
    pj_look_clock *c = &pj_looks;
    int64_t most_ns = pj_clock_thread_cpu_ns() - c->started_ns;
    int64_t spent_ns = c->spent_ns > 0 ? c->spent_ns : 0;
    c->wait = 0;
    return spent_ns < most_ns ? spent_ns : most_ns;
}
