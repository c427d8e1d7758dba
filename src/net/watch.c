#include "net/watch.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <sys/socket.h>

/* One connection; free entries form a linked list. */
typedef struct location {
    int fd;
    int64_t since_ns; /* waiting for a request since then; 0: not waiting */
    bool used;
} location;

struct pj_watch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stopping;
    bool stop;
    uint32_t count, used;
    location locations[];
};

/* Only shut down, not closed: libmicrohttpd owns the descriptor and then ends the connection. */
static void watch_cut(location *p)
{
    shutdown(p->fd, SHUT_RDWR);
    p->since_ns = 0;
}

static void cut_overdue(pj_watch *watch)
{
    int64_t latest_ns = pj_clock_ns() - PJ_REQUEST_DEADLINE_S * PJ_NS_PER_S;
    for (uint32_t i = 0; i < watch->count; i++) {
        location *p = &watch->locations[i];
        if (p->used && p->since_ns && p->since_ns <= latest_ns) watch_cut(p);
    }
}

/* Keeps an eighth of the connection slots free, because a connection that is cut off takes a moment
 * to go. */
static void watch_make_room(pj_watch *watch)
{
    location *longest = NULL;
    if (watch->used < watch->count - watch->count / 8) return;
    for (uint32_t i = 0; i < watch->count; i++) {
        location *p = &watch->locations[i];
        if (p->used && p->since_ns && (!longest || p->since_ns < longest->since_ns)) longest = p;
    }
    if (longest) watch_cut(longest);
}

static void *run_watch(void *context)
{
    pj_watch *watch = context;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 2;
        pthread_cond_timedwait(&watch->stopping, &watch->mutex, &until);
        cut_overdue(watch);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static void watch_take_slot(pj_watch *watch, struct MHD_Connection *connection, void **out)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    watch_make_room(watch);
    for (uint32_t i = 0; i < watch->count && info; i++) {
        if (watch->locations[i].used) continue;
        watch->locations[i] = (location){info->connect_fd, pj_clock_ns(), true};
        watch->used++;
        *out = &watch->locations[i];
        return;
    }
}

void pj_watch_connection(void *context, struct MHD_Connection *connection, void **out,
                         enum MHD_ConnectionNotificationCode code)
{
    pj_watch *watch = context;
    pthread_mutex_lock(&watch->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        watch_take_slot(watch, connection, out);
    else if (*out) {
        *(location *)*out = (location){0};
        watch->used--;
    }
    pthread_mutex_unlock(&watch->mutex);
}

static void set_since(pj_watch *watch, struct MHD_Connection *connection, int64_t since_ns)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return;
    pthread_mutex_lock(&watch->mutex);
    ((location *)info->socket_context)->since_ns = since_ns;
    pthread_mutex_unlock(&watch->mutex);
}

void pj_watch_request(pj_watch *watch, struct MHD_Connection *connection)
{
    set_since(watch, connection, 0);
}

void pj_watch_idle(pj_watch *watch, struct MHD_Connection *connection)
{
    set_since(watch, connection, pj_clock_ns());
}

pj_status pj_watch_open(uint32_t connections_max, pj_watch **out, pj_error *err)
{
    *out = NULL;
    pj_watch *watch = pj_alloc(1, sizeof *watch + connections_max * sizeof(location));
    if (!watch) return pj_fail_memory(err, "the server");
    watch->count = connections_max;
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->stopping, NULL);
    pj_status status = pj_thread_start(&watch->thread, "pj-watch", run_watch, watch, err);
    if (status == PJ_OK)
        *out = watch;
    else
        pj_free(watch);
    return status;
}

void pj_watch_close(pj_watch *watch)
{
    if (!watch) return;
    pthread_mutex_lock(&watch->mutex);
    watch->stop = true;
    pthread_cond_signal(&watch->stopping);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->mutex);
    pthread_cond_destroy(&watch->stopping);
    pj_free(watch);
}
