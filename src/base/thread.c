/* Starting and pinning threads on Linux and macOS. */
#include "base/thread.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#ifdef __linux__
static _Thread_local cpu_set_t allowed_before; /* the pin */
static _Thread_local bool pinned;
#endif

static void name_thread(pthread_t thread, const char *name)
{
#ifdef __linux__
    pthread_setname_np(thread, name);
#else
    (void)thread;
    (void)name;
#endif
}

/* Smallest stack: kernels and builders keep tens of kilobytes there, and the default follows
 * `ulimit -s`, which may be small. */
enum { LEAST_STACK_BYTES = 1 << 20 };

static int create_with_stack(pthread_t *thread, pj_thread_fn *run, void *context)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_attr_init(&attributes) != 0) return pthread_create(thread, NULL, run, context);
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < LEAST_STACK_BYTES)
        pthread_attr_setstacksize(&attributes, LEAST_STACK_BYTES);
    int failure = pthread_create(thread, &attributes, run, context);
    pthread_attr_destroy(&attributes);
    return failure;
}

/* A new thread inherits its creator's CPU affinity, so a pinned thread drops its pin while it
 * creates one. */
static int start_unpinned(pthread_t *thread, pj_thread_fn *run, void *context)
{
#ifdef __linux__
    cpu_set_t mine;
    pthread_t self = pthread_self();
    bool let_go = pinned && pthread_getaffinity_np(self, sizeof mine, &mine) == 0 &&
                  pthread_setaffinity_np(self, sizeof allowed_before, &allowed_before) == 0;
    int failure = create_with_stack(thread, run, context);
    if (let_go) pthread_setaffinity_np(self, sizeof mine, &mine);
    return failure;
#else
    return create_with_stack(thread, run, context);
#endif
}

pj_status pj_thread_start(pthread_t *thread, const char *name, pj_thread_fn *run, void *context,
                          pj_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* raised by the thread itself: blocked, it would end the process */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = start_unpinned(thread, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure) return pj_fail_errno(err, failure, "cannot start the thread %s", name);
    name_thread(*thread, name);
    return PJ_OK;
}

bool pj_thread_confine(int cpu)
{
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
#else
    (void)cpu;
    return false;
#endif
}

bool pj_thread_pin(int cpu)
{
#ifdef __linux__
    if (!pinned)
        pinned =
            pthread_getaffinity_np(pthread_self(), sizeof allowed_before, &allowed_before) == 0;
    if (!pinned) return false;
#endif
    return pj_thread_confine(cpu);
}

void pj_thread_unpin(void)
{
#ifdef __linux__
    if (pinned) pthread_setaffinity_np(pthread_self(), sizeof allowed_before, &allowed_before);
    pinned = false;
#endif
}

bool pj_thread_timer_slack(uint64_t slack_ns)
{
#ifdef __linux__
    return prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns, 0, 0, 0) == 0;
#else
    (void)slack_ns;
    return false;
#endif
}

/* macOS has no condition on another clock than the wall's, but a wait relative to now. */
void pj_cond_init(pthread_cond_t *cond)
{
#ifdef __APPLE__
    pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
}

bool pj_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns)
{
    struct timespec time = {ns / PJ_NS_PER_S, ns % PJ_NS_PER_S};
#ifdef __APPLE__
    return pthread_cond_timedwait_relative_np(cond, mutex, &time) == 0;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ns = time.tv_nsec + now.tv_nsec;
    time.tv_sec += now.tv_sec + ns / PJ_NS_PER_S;
    time.tv_nsec = ns % PJ_NS_PER_S;
    return pthread_cond_timedwait(cond, mutex, &time) == 0;
#endif
}
