/* The virtual clock: one list of waiting threads, each waiting for a time or for an object. */
#include "virtual_clock.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The thread sanitizer watches the real functions. */
#if defined(__SANITIZE_THREAD__)
#define IS_WATCHED true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_WATCHED true
#endif
#endif
#ifndef IS_WATCHED
#define IS_WATCHED false
#endif
enum { REAL_TIME_ONLY = IS_WATCHED };

int64_t __real_pj_clock_ns(void);
int64_t __real_pj_clock_wall_ns(void);
void __real_pj_clock_sleep_until(int64_t monotonic_ns);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int64_t __wrap_pj_clock_ns(void);
int64_t __wrap_pj_clock_wall_ns(void);
void __wrap_pj_clock_sleep_until(int64_t monotonic_ns);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

enum { READING_NS = 100 }; /* what a reading of the clock takes */
/* Fixed, so that a test gives the same result on every day; the wall clock is ahead of files'
 * times. */
static const int64_t START_NS = 100000 * INT64_C(1000000000);
static const int64_t WALL_START_NS = 4000000000 * INT64_C(1000000000);
static const int64_t NEVER = INT64_MAX;

/* A thread that waits, on its own stack: until `due_ns`, or until `object` wakes it. */
typedef struct waiting {
    struct waiting *next; /* sleepers by time, others in the order in which they came */
    const void *object;
    int64_t due_ns;
    bool is_awake;
    pthread_cond_t woken;
} waiting;

typedef struct counted_thread {
    struct counted_thread *next;
    pthread_t id;
    bool has_ended;
    void *(*run)(void *);
    void *context;
} counted_thread;

static bool in_use;
static pthread_mutex_t clock_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static waiting *waiters;
static counted_thread *threads;       /* that were not joined yet */
static int running;                   /* threads that don't wait */
static atomic_llong time_ns, next_ns; /* the time, and that of the first sleeper */
static atomic_int mutex_waiters;      /* threads that wait for a mutex */
static int64_t wall_offset_ns;
static _Thread_local bool is_counted; /* among the running threads */

/* ---- waiting ----------------------------------------------------------------------------------
 */

static void enlist(waiting *w)
{
    waiting **at = &waiters;
    while (*at && (*at)->due_ns <= w->due_ns) at = &(*at)->next;
    w->next = *at;
    *at = w;
    atomic_store(&next_ns, waiters->due_ns);
}

static void delist(waiting *w)
{
    waiting **at = &waiters;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    atomic_store(&next_ns, waiters ? waiters->due_ns : NEVER);
}

static void wake(waiting *w)
{
    delist(w);
    w->is_awake = true;
    running++;
    __real_pthread_cond_signal(&w->woken);
}

/* Where no thread runs, the first sleeper's time has come. */
static void go_on(void)
{
    if (running > 0 || !waiters || waiters->due_ns == NEVER) return;
    if (waiters->due_ns > atomic_load(&time_ns)) atomic_store(&time_ns, waiters->due_ns);
    wake(waiters);
}

static void begin_waiting(waiting *w)
{
    __real_pthread_mutex_lock(&clock_mutex);
    pthread_cond_init(&w->woken, NULL);
    if (!is_counted) running++; /* a thread of a library, for as long as it waits */
    enlist(w);
}

static void wait_awake(waiting *w)
{
    running--;
    go_on();
    while (!w->is_awake) __real_pthread_cond_wait(&w->woken, &clock_mutex);
    if (!is_counted) running--;
    __real_pthread_mutex_unlock(&clock_mutex);
    pthread_cond_destroy(&w->woken);
}

static void wake_waiters(const void *object, int most)
{
    for (waiting *w = waiters, *next; w && most > 0; w = next) {
        next = w->next;
        if (w->object != object) continue;
        wake(w);
        most--;
    }
}

static void wake_those_of(const void *object, int most)
{
    __real_pthread_mutex_lock(&clock_mutex);
    wake_waiters(object, most);
    __real_pthread_mutex_unlock(&clock_mutex);
}

/* ---- the clock --------------------------------------------------------------------------------
 */

void __wrap_pj_clock_sleep_until(int64_t monotonic_ns)
{
    if (!in_use) {
        __real_pj_clock_sleep_until(monotonic_ns);
        return;
    }
    waiting w = {.due_ns = monotonic_ns};
    begin_waiting(&w);
    wait_awake(&w);
}

/* SQLite's, which waits so for locks. */
__attribute__((visibility("default"))) int usleep(useconds_t us)
{
    __wrap_pj_clock_sleep_until(__wrap_pj_clock_ns() + 1000 * (int64_t)us);
    return 0;
}

/* Who reads the clock when a sleeper should wake lets it go first. */
int64_t __wrap_pj_clock_ns(void)
{
    if (!in_use) return __real_pj_clock_ns();
    int64_t now = atomic_fetch_add(&time_ns, READING_NS) + READING_NS;
    if (is_counted && now >= atomic_load(&next_ns)) __wrap_pj_clock_sleep_until(now);
    return now;
}

int64_t __wrap_pj_clock_wall_ns(void)
{
    return in_use ? atomic_load(&time_ns) + wall_offset_ns : __real_pj_clock_wall_ns();
}

/* The machine is never suspended: while time stands still here, the boot clock does, too. */
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
#ifdef CLOCK_BOOTTIME
    if (in_use && id == CLOCK_BOOTTIME) {
        int64_t now = atomic_load(&time_ns);
        *t = (struct timespec){(time_t)(now / PJ_NS_PER_S), (long)(now % PJ_NS_PER_S)};
        return 0;
    }
#endif
    return __real_clock_gettime(id, t);
}

/* ---- conditions and mutexes -------------------------------------------------------------------
 */

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (!in_use) return __real_pthread_cond_wait(cond, mutex);
    waiting w = {.object = cond, .due_ns = NEVER};
    begin_waiting(&w);
    __real_pthread_mutex_unlock(&clock_mutex);
    __wrap_pthread_mutex_unlock(mutex);
    __real_pthread_mutex_lock(&clock_mutex);
    wait_awake(&w);
    return __wrap_pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    if (in_use) wake_those_of(cond, 1);
    return __real_pthread_cond_signal(cond);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    if (in_use) wake_those_of(cond, INT32_MAX);
    return __real_pthread_cond_broadcast(cond);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!in_use) return __real_pthread_mutex_lock(mutex);
    while (pthread_mutex_trylock(mutex) != 0) {
        waiting w = {.object = mutex, .due_ns = NEVER};
        atomic_fetch_add(&mutex_waiters, 1);
        begin_waiting(&w);
        bool is_free = pthread_mutex_trylock(mutex) == 0; /* meanwhile */
        if (is_free) wake(&w);
        wait_awake(&w);
        atomic_fetch_sub(&mutex_waiters, 1);
        if (is_free) return 0;
    }
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int status = __real_pthread_mutex_unlock(mutex);
    if (in_use && atomic_load(&mutex_waiters) > 0) wake_those_of(mutex, 1);
    return status;
}

/* ---- threads ----------------------------------------------------------------------------------
 */

static void *run_counted(void *context)
{
    counted_thread *thread = context;
    is_counted = true;
    void *result = thread->run(thread->context);
    is_counted = false;
    __real_pthread_mutex_lock(&clock_mutex);
    thread->has_ended = true;
    running--;
    wake_waiters(thread, 1);
    go_on();
    __real_pthread_mutex_unlock(&clock_mutex);
    return result;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context)
{
    counted_thread *thread = in_use ? calloc(1, sizeof *thread) : NULL;
    if (!thread) return __real_pthread_create(id, attributes, run, context);
    thread->run = run;
    thread->context = context;
    __real_pthread_mutex_lock(&clock_mutex);
    int failure = __real_pthread_create(id, attributes, run_counted, thread);
    if (!failure) {
        thread->id = *id;
        thread->next = threads;
        threads = thread;
        running++;
    }
    __real_pthread_mutex_unlock(&clock_mutex);
    if (failure) free(thread);
    return failure;
}

static counted_thread **find_thread(pthread_t id)
{
    counted_thread **at = &threads;
    while (*at && !pthread_equal((*at)->id, id)) at = &(*at)->next;
    return at;
}

int __wrap_pthread_join(pthread_t id, void **result)
{
    __real_pthread_mutex_lock(&clock_mutex);
    counted_thread *thread = *find_thread(id);
    bool waits = thread && !thread->has_ended;
    __real_pthread_mutex_unlock(&clock_mutex);
    if (waits) {
        waiting w = {.object = thread, .due_ns = NEVER};
        begin_waiting(&w);
        if (thread->has_ended) wake(&w); /* meanwhile */
        wait_awake(&w);
    }
    int status = __real_pthread_join(id, result);
    if (!thread) return status;
    __real_pthread_mutex_lock(&clock_mutex);
    *find_thread(id) = thread->next;
    __real_pthread_mutex_unlock(&clock_mutex);
    free(thread);
    return status;
}

/* ---- use --------------------------------------------------------------------------------------
 */

static void begin_in_child(void)
{
    pthread_mutex_init(&clock_mutex, NULL);
    waiters = NULL;
    threads = NULL;
    running = 1;
    atomic_store(&mutex_waiters, 0);
    atomic_store(&next_ns, NEVER);
}

void virtual_clock_use(void)
{
    if (REAL_TIME_ONLY) return;
    const char *start = getenv("PJ_VIRTUAL_START_NS"); /* another phase of every sensor's ticks */
    atomic_store(&time_ns, start ? strtoll(start, NULL, 10) : START_NS);
    atomic_store(&next_ns, NEVER);
    wall_offset_ns = WALL_START_NS - START_NS;
    running = 1;
    is_counted = true;
    pthread_atfork(NULL, NULL, begin_in_child);
    in_use = true;
}
