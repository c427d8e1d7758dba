/* A thread of a run that looks at the conditions of the machine's devices once per second. */
#ifndef PJ_PROFILE_WATCHER_H
#define PJ_PROFILE_WATCHER_H

#include "base/thread.h"
#include "power/conditions.h"

#include <stdatomic.h>

typedef struct pj_watcher {
    pj_conditions *conditions;
    /* Called by the thread with what it read. */
    void (*take)(void *context, const pj_condition *rows, uint32_t count);
    void *context;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
} pj_watcher;

/* `conditions`, `take` and `context` are set. A machine that cannot start a thread has no
 * conditions, which is no error. */
void pj_watcher_start(pj_watcher *watcher);
void pj_watcher_stop(pj_watcher *watcher); /* looks once more; may run twice */

#endif
