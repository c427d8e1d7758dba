/* A run's thread that reads the conditions of the machine's devices once per second. */
#ifndef PJ_RECORD_WATCHER_H
#define PJ_RECORD_WATCHER_H

#include "base/thread.h"
#include "power/conditions.h"

#include <stdatomic.h>

typedef struct pj_watcher {
    pj_conditions *conditions;
    pthread_mutex_t *mutex; /* guards the conditions, which several watchers share */
    /* Called by the thread with each reading. */
    void (*take)(void *context, const pj_condition *rows, uint32_t count);
    void *context;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
} pj_watcher;

/* The caller sets `conditions`, `mutex`, `take` and `context`. If the thread cannot be started
 * there are no conditions; this is not an error. */
void pj_watcher_start(pj_watcher *watcher);
void pj_watcher_stop(pj_watcher *watcher); /* reads once more; may run twice */

#endif
