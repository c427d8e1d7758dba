/* Times a random sample of looks, so that no periodic pattern is missed. */
#include "llm/look.h"

enum { EVERY = 32, TRIES = 32 };

_Thread_local pj_look_clock pj_looks;

static uint32_t next_wait(pj_look_clock *c)
{
    c->random = c->random * 1664525u + 1013904223u;
    return 1 + (c->random >> 8) % (2 * EVERY - 1); /* EVERY on average */
}

void pj_look_start(void)
{
    pj_look_clock *c = &pj_looks;
    *c = (pj_look_clock){.random = 1, .reading_ns = INT64_MAX};
    for (int i = 0; i < TRIES; i++) {
        int64_t begun = pj_clock_thread_cpu_ns(), took = pj_clock_thread_cpu_ns() - begun;
        if (took < c->reading_ns) c->reading_ns = took;
    }
    c->started_ns = pj_clock_thread_cpu_ns();
    c->wait = next_wait(c);
}

void pj_look_add(int64_t begun_ns)
{
    pj_look_clock *c = &pj_looks;
    int64_t took = pj_clock_thread_cpu_ns() - begun_ns - c->reading_ns;
    if (took > 0) c->spent_ns += EVERY * took;
    c->wait = next_wait(c);
}

/* An estimate from few samples may exceed the thread's total CPU time, which bounds it. */
int64_t pj_look_stop(void)
{
    pj_look_clock *c = &pj_looks;
    int64_t most_ns = pj_clock_thread_cpu_ns() - c->started_ns;
    c->wait = 0;
    return c->spent_ns < most_ns ? c->spent_ns : most_ns;
}
