#include "net/watch.h"

#include "base/clock.h"
#include "base/memory.h"

#include <pthread.h>
#include <sys/socket.h>

typedef struct slot {
    bool used;
    int fd;
    int64_t since_ns; /* its request has been incomplete since then; 0: it is complete */
} slot;

struct pj_watch {
    pthread_mutex_t mutex;
    uint32_t count, used;
    slot slots[];
};

pj_watch *pj_watch_new(uint32_t connections_max)
{
    pj_watch *watch = pj_alloc(1, sizeof *watch + connections_max * sizeof(slot));
    if (!watch) return NULL;
    watch->count = connections_max;
    pthread_mutex_init(&watch->mutex, NULL);
    return watch;
}

void pj_watch_free(pj_watch *watch)
{
    if (!watch) return;
    pthread_mutex_destroy(&watch->mutex);
    pj_free(watch);
}

/* Keeps an eighth of the slots free, because a connection that is cut off takes a moment to go. It
 * is only shut down, not closed: libmicrohttpd owns the descriptor and then ends the connection. */
static void watch_make_room(pj_watch *watch)
{
    slot *longest = NULL;
    if (watch->used < watch->count - watch->count / 8) return;
    for (uint32_t i = 0; i < watch->count; i++) {
        slot *s = &watch->slots[i];
        if (s->used && s->since_ns && (!longest || s->since_ns < longest->since_ns)) longest = s;
    }
    if (!longest) return;
    shutdown(longest->fd, SHUT_RDWR);
    longest->since_ns = 0;
}

static void watch_take_slot(pj_watch *watch, struct MHD_Connection *connection, void **out)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    watch_make_room(watch);
    for (uint32_t i = 0; i < watch->count && info; i++) {
        if (watch->slots[i].used) continue;
        watch->slots[i] = (slot){true, info->connect_fd, pj_clock_ns()};
        watch->used++;
        *out = &watch->slots[i];
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
        *(slot *)*out = (slot){0};
        watch->used--;
    }
    pthread_mutex_unlock(&watch->mutex);
}

void pj_watch_complete(pj_watch *watch, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return;
    pthread_mutex_lock(&watch->mutex);
    ((slot *)info->socket_context)->since_ns = 0;
    pthread_mutex_unlock(&watch->mutex);
}
