#include "cli/patience.h"

#include "base/clock.h"
#include "base/thread.h"
#include "cli/terminal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static struct {
    const char *name, *what;
    const pj_progress *progress; /* of `what`; NULL: nothing is known */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    int64_t begin_ns, quiet_since_ns;
    bool ends, shown;
    _Atomic bool running; /* read without the mutex by everything that prints */
} patience = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The cursor stays at the line's begin, so that whatever is printed next replaces it. */
static void show_line(void)
{
    int64_t now_ns = pj_clock_ns();
    if (now_ns - patience.quiet_since_ns < PJ_NS_PER_S) return;
    uint32_t total = patience.progress ? atomic_load(&patience.progress->total) : 0;
    uint32_t done = total ? atomic_load(&patience.progress->done) : 0;
    char doing[80] = "";
    if (done < total)
        snprintf(doing, sizeof doing, " %s, %u %%,", patience.what,
                 (uint32_t)((uint64_t)done * 100 / total));
    fprintf(stderr, "\r\033[K%s:%s %d s\r", patience.name, doing,
            (int)((now_ns - patience.begin_ns) / PJ_NS_PER_S));
    fflush(stderr);
    patience.shown = true;
}

static void hide_line(void)
{
    if (patience.shown) fputs("\r\033[K", stderr);
    fflush(stderr);
    patience.shown = false;
}

static void *watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&patience.mutex);
    while (!patience.ends) {
        pj_cond_wait_for(&patience.ended, &patience.mutex, PJ_NS_PER_S);
        if (!patience.ends) show_line();
    }
    hide_line();
    pthread_mutex_unlock(&patience.mutex);
    return NULL;
}

void pj_patience_begin(const char *name)
{
    if (!pj_terminal_is(stderr) || patience.running) return;
    patience.name = name;
    patience.begin_ns = patience.quiet_since_ns = pj_clock_ns();
    patience.ends = patience.shown = false;
    pj_cond_init(&patience.ended);
    patience.running = pj_thread_start(&patience.thread, "patience", watch, NULL, NULL) == PJ_OK;
}

void pj_patience_for(const char *what, const pj_progress *progress)
{
    pthread_mutex_lock(&patience.mutex);
    patience.what = what;
    patience.progress = progress;
    pthread_mutex_unlock(&patience.mutex);
}

void pj_patience_end(void)
{
    if (!atomic_exchange(&patience.running, false)) return;
    pthread_mutex_lock(&patience.mutex);
    patience.ends = true;
    pthread_cond_signal(&patience.ended);
    pthread_mutex_unlock(&patience.mutex);
    pthread_join(patience.thread, NULL);
    pthread_cond_destroy(&patience.ended);
}

void pj_patience_pause(void)
{
    if (!patience.running) return;
    pthread_mutex_lock(&patience.mutex);
    hide_line();
    patience.quiet_since_ns = pj_clock_ns();
    pthread_mutex_unlock(&patience.mutex);
}
