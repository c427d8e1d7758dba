/* Threads: a name, a core, a timer slack. Mutexes and conditions are plain pthread ones; a
 * condition that is waited for with a limit is made here, so that setting the wall clock does not
 * matter. */
#ifndef PJ_BASE_THREAD_H
#define PJ_BASE_THREAD_H

#include "base/error.h"

#include <pthread.h>

typedef void *pj_thread_fn(void *context);

/* Starts a thread with all signals but SIGBUS blocked (the program's main thread handles them). */
pj_status pj_thread_start(pthread_t *thread, const char *name, pj_thread_fn *run, void *context,
                          pj_error *err);
/* Pins the calling thread, best effort. Threads it creates get the affinity from before the pin, so
 * that a pinned engine does not put its run's collector and samplers on its own CPU. False where
 * the system cannot pin. */
bool pj_thread_pin(int cpu);
void pj_thread_unpin(void); /* restores the affinity from before the first pin */
/* The same, but inherited by threads created from now on. */
bool pj_thread_confine(int cpu);
/* Sets how late a timer may wake this thread (Linux; default 50 us). */
bool pj_thread_timer_slack(uint64_t slack_ns);

void pj_cond_init(pthread_cond_t *cond);
/* Waits at most `ns` of the monotonic clock, 0 and up; false when they have passed. */
bool pj_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns);

static inline void pj_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
