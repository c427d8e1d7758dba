/* Threads: a name, a core, a timer slack. Mutexes and conditions are plain pthread ones. */
#ifndef PJ_BASE_THREAD_H
#define PJ_BASE_THREAD_H

#include "base/error.h"

#include <pthread.h>

typedef void *pj_thread_fn(void *context);

/* Starts a thread with all signals blocked (the program's main thread handles them). */
pj_status pj_thread_start(pthread_t *thread, const char *name, pj_thread_fn *run, void *context,
                          pj_error *err);
/* Best effort, for the calling thread alone: threads that it starts may run wherever it could
 * before, so that a pinned engine does not drag the collector and the samplers of its run onto its
 * own CPU. False where the system does not have it. */
bool pj_thread_pin(int cpu);
void pj_thread_unpin(void); /* back to what was allowed before the first pin */
/* The same, for the calling thread and those that it starts from now on. */
bool pj_thread_confine(int cpu);
/* Asks for wake-ups as late as `slack_ns` after the due time at most (Linux; default is 50 us). */
bool pj_thread_timer_slack(uint64_t slack_ns);
/* CPUs this process may run on: their number, and the numbers themselves in `cpus` (may be NULL).
 */
int pj_cpu_allowed(int *cpus, int max);

static inline void pj_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
