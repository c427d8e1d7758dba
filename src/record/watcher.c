/* The watcher's loop: reads conditions at the start, once per second, and at the end. */
#include "record/watcher.h"

#include "base/clock.h"

static const int64_t EVERY_NS = PJ_NS_PER_S;
static const int64_t NAP_NS = 50 * PJ_NS_PER_MS; /* bounds the delay of stop */

static void watcher_sample(pj_watcher *w)
{
    pj_condition rows[PJ_CONDITION_DEVICES];
    pthread_mutex_lock(w->mutex);
    uint32_t count = pj_conditions_read(w->conditions, rows);
    pthread_mutex_unlock(w->mutex);
    if (count > 0) w->take(w->context, rows, count);
}

static void *watcher_watch(void *context)
{
    pj_watcher *w = context;
    int64_t due = pj_clock_ns();
    while (!atomic_load(&w->stop)) {
        int64_t now = pj_clock_ns();
        if (now >= due) {
            watcher_sample(w);
            due += EVERY_NS;
            if (due < now) due = now + EVERY_NS;
        }
        pj_clock_sleep_until(due - now < NAP_NS ? due : now + NAP_NS);
    }
    watcher_sample(w);
    return NULL;
}

void pj_watcher_start(pj_watcher *w)
{
    if (!w->conditions) return;
    atomic_store(&w->stop, false);
    w->running = pj_thread_start(&w->thread, "pj-conditions", watcher_watch, w, NULL) == PJ_OK;
}

void pj_watcher_stop(pj_watcher *w)
{
    if (!w->running) return;
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    w->running = false;
}
