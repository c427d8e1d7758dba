/* The engine's thread team: a fixed set of pinned threads that repeatedly run one function together
 * (fork-join). Waiting threads spin for some microseconds, then sleep, so that a dispatch in a
 * decode step costs well under a microsecond and an idle engine costs nothing. The calling thread
 * is thread 0. No allocation after pj_team_new. One team serves one caller at a time. */
#ifndef PJ_KERNELS_TEAM_H
#define PJ_KERNELS_TEAM_H

#include "engine/kernels/ahead.h"

enum { PJ_TEAM_MAX_THREADS = 256, PJ_TEAM_SCRATCH_BYTES = 2 << 20 };

typedef struct pj_team pj_team;
typedef void pj_team_fn(void *context, unsigned thread);

/* `threads` 0: as many as pj_cpu_threads. `pin`: each thread on its own CPU, of different cores as
 * long as there are any, including the caller (its previous affinity is restored by pj_team_free on
 * the same thread); not where a quota limits the time on all of them. */
pj_status pj_team_new(unsigned threads, bool pin, pj_team **team, pj_error *err);
void pj_team_free(pj_team *team); /* NULL is allowed */
unsigned pj_team_threads(const pj_team *team);

/* Runs `run(context, thread)` on every thread of the team and returns when all have finished. */
void pj_team_run(pj_team *team, pj_team_fn *run, void *context);
/* The same for work distributed only by pj_team_take: returns when no thread is working on it. A
 * thread that did not arrive before all work was done, because its CPU was busy, is not waited for
 * and does not run. */
void pj_team_offer(pj_team *team, pj_team_fn *run, void *context);
/* Inside a run: takes up to `grain` of the `count` items (dynamic scheduling); false when none are
 * left. Restarts at 0 with every run. */
bool pj_team_take(pj_team *team, size_t count, size_t grain, size_t *begin, size_t *end);
/* This thread's equal share of `count` items (static scheduling), in multiples of `grain`; may be
 * empty. */
void pj_team_share(const pj_team *team, unsigned thread, size_t count, size_t grain, size_t *begin,
                   size_t *end);
/* This thread's PJ_TEAM_SCRATCH_BYTES, 64-byte aligned; contents are lost after the run. */
void *pj_team_scratch(pj_team *team, unsigned thread);
/* Prefetch distances of the products that these threads compute. */
pj_ahead *pj_team_ahead(pj_team *team);

#endif
