/*
 * A dispatch increments one counter: workers wait for it to change, check in, run, and check out at
 * a second counter that the caller waits for. Both waits spin first and then sleep on a condition
 * variable; a waker takes the lock only if a thread has announced that it sleeps.
 *
 * Checking in adds one to a word that also holds the dispatch number. A caller that has seen all
 * work taken may close that word: a worker that arrives later, because it was descheduled, finds it
 * closed and waits for the next dispatch, and the caller does not wait for it.
 */
#include "engine/kernels/team.h"

#include "base/cpus.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

enum { LINE = 64, SPIN_ROUNDS = 20000 }; /* tens of microseconds to half a millisecond */

static const uint64_t CLOSED = UINT64_C(1) << 31;

/* A counter that threads wait on. */
typedef struct gate {
    _Alignas(LINE) atomic_uint value;
    atomic_uint sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} gate;

typedef struct worker {
    pj_team *team;
    unsigned index;
    pthread_t thread;
} worker;

struct pj_team {
    gate start;                              /* dispatches so far */
    gate arrived;                            /* threads that finished, summed over all dispatches */
    _Alignas(LINE) _Atomic uint64_t present; /* dispatch << 32 | CLOSED | workers checked in */
    _Alignas(LINE) atomic_size_t next;       /* next item for pj_team_take */
    _Alignas(LINE) pj_team_fn *run;
    void *context;
    atomic_bool stop;
    bool pinned;
    unsigned threads, started, spin_rounds;
    int cpus[PJ_CPUS_MAX]; /* in the order in which threads occupy them */
    int cpu_count;
    char *scratch;
    pj_ahead ahead;
    worker workers[PJ_TEAM_MAX_THREADS];
};

static void gate_init(gate *g)
{
    atomic_init(&g->value, 0);
    atomic_init(&g->sleepers, 0);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static void gate_fini(gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->mutex);
}

static void gate_add(gate *g)
{
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleepers) == 0) return;
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

/* Waits until the counter reaches `target` (with wrap-around). */
static void gate_wait(gate *g, unsigned target, unsigned spin_rounds)
{
    for (unsigned round = 0; round < spin_rounds; round++) {
        if ((int)(atomic_load_explicit(&g->value, memory_order_acquire) - target) >= 0) return;
        pj_cpu_relax();
    }
    pthread_mutex_lock(&g->mutex);
    atomic_fetch_add(&g->sleepers, 1);
    while ((int)(atomic_load(&g->value) - target) < 0) pthread_cond_wait(&g->changed, &g->mutex);
    atomic_fetch_sub(&g->sleepers, 1);
    pthread_mutex_unlock(&g->mutex);
}

/* False if the dispatch, whose number is returned in *turn, is over. */
static bool check_in(pj_team *team, unsigned *turn)
{
    uint64_t now = atomic_load(&team->present);
    do {
        *turn = (unsigned)(now >> 32);
        if (now & CLOSED) return false;
    } while (!atomic_compare_exchange_weak(&team->present, &now, now + 1));
    return true;
}

static void *team_work(void *context)
{
    worker *self = context;
    pj_team *team = self->team;
    unsigned turn = 0;
    if (team->pinned) pj_thread_pin(team->cpus[self->index]);
    for (;;) {
        gate_wait(&team->start, turn + 1, team->spin_rounds);
        if (atomic_load(&team->stop)) return NULL;
        if (!check_in(team, &turn)) continue;
        team->run(team->context, self->index);
        gate_add(&team->arrived);
    }
}

pj_status pj_team_new(unsigned threads, bool pin, pj_team **result, pj_error *err)
{
    *result = NULL;
    pj_team *team = pj_alloc_aligned(LINE, 1, sizeof *team);
    if (!team) return pj_fail_memory(err, "the thread team");
    int cores;
    team->cpu_count = pj_cpu_places(team->cpus, &cores);
    if (threads == 0) threads = (unsigned)pj_cpu_threads();
    if (threads > PJ_TEAM_MAX_THREADS) threads = PJ_TEAM_MAX_THREADS;
    team->threads = threads;
    /* With more threads than CPUs, spinning would keep the awaited thread from running. */
    bool fits = threads <= (unsigned)team->cpu_count;
    /* Containers with quotas share the CPUs: their threads would all be pinned to the same ones. */
    team->pinned = pin && fits && !pj_cpu_quota("");
    team->spin_rounds = fits ? SPIN_ROUNDS : 1;
    gate_init(&team->start);
    gate_init(&team->arrived);
    pj_status status = PJ_OK;
    team->scratch = pj_alloc_aligned(LINE, threads, PJ_TEAM_SCRATCH_BYTES);
    if (!team->scratch) status = pj_fail_memory(err, "the thread team");
    for (unsigned i = 1; i < threads && status == PJ_OK; i++) {
        team->workers[i] = (worker){.team = team, .index = i};
        status =
            pj_thread_start(&team->workers[i].thread, "pj-team", team_work, &team->workers[i], err);
        if (status == PJ_OK) team->started = i;
    }
    if (status != PJ_OK) {
        team->pinned = false; /* the caller is not pinned yet */
        pj_team_free(team);
        return status;
    }
    if (team->pinned) pj_thread_pin(team->cpus[0]);
    *result = team;
    return PJ_OK;
}

void pj_team_free(pj_team *team)
{
    if (!team) return;
    atomic_store(&team->stop, true);
    gate_add(&team->start);
    for (unsigned i = 1; i <= team->started; i++) pthread_join(team->workers[i].thread, NULL);
    if (team->pinned) pj_thread_unpin();
    gate_fini(&team->start);
    gate_fini(&team->arrived);
    pj_free(team->scratch);
    pj_free(team);
}

unsigned pj_team_threads(const pj_team *team)
{
    return team->threads;
}

/* Begins a dispatch; all threads of the previous one have checked out. */
static void team_dispatch(pj_team *team, pj_team_fn *run, void *context)
{
    team->run = run;
    team->context = context;
    uint64_t turn = (unsigned)(atomic_load(&team->start.value) + 1);
    atomic_store(&team->present, turn << 32);
    gate_add(&team->start);
}

void pj_team_run(pj_team *team, pj_team_fn *run, void *context)
{
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    if (team->threads == 1) {
        run(context, 0);
        return;
    }
    unsigned done = atomic_load(&team->arrived.value) + team->threads - 1;
    team_dispatch(team, run, context);
    run(context, 0);
    gate_wait(&team->arrived, done, team->spin_rounds);
}

void pj_team_offer(pj_team *team, pj_team_fn *run, void *context)
{
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    if (team->threads == 1) {
        run(context, 0);
        return;
    }
    unsigned done = atomic_load(&team->arrived.value);
    team_dispatch(team, run, context);
    run(context, 0);
    done += (unsigned)(atomic_fetch_or(&team->present, CLOSED) & (CLOSED - 1));
    gate_wait(&team->arrived, done, team->spin_rounds);
}

bool pj_team_take(pj_team *team, size_t count, size_t grain, size_t *begin, size_t *end)
{
    size_t first = atomic_fetch_add_explicit(&team->next, grain, memory_order_relaxed);
    if (first >= count) return false;
    *begin = first;
    *end = first + grain < count ? first + grain : count;
    return true;
}

void pj_team_share(const pj_team *team, unsigned thread, size_t count, size_t grain, size_t *begin,
                   size_t *end)
{
    size_t units = (count + grain - 1) / grain, each = units / team->threads;
    size_t more = units % team->threads; /* the first threads take one more */
    size_t first = thread * each + (thread < more ? thread : more);
    size_t last = first + each + (thread < more ? 1 : 0);
    *begin = first * grain < count ? first * grain : count;
    *end = last * grain < count ? last * grain : count;
}

void *pj_team_scratch(pj_team *team, unsigned thread)
{
    return team->scratch + (size_t)thread * PJ_TEAM_SCRATCH_BYTES;
}

pj_ahead *pj_team_ahead(pj_team *team)
{
    return &team->ahead;
}
