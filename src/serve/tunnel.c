#include "serve/tunnel.h"

#include "base/memory.h"
#include "base/thread.h"
#include "serve/curl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 16384,
    /* TLS may have to receive before it can send: the sockets are looked at again after this. */
    LOOK_AGAIN_MS = 1000
};

struct pj_tunnel {
    pthread_t thread;
    int end; /* the thread's end of the socket pair */
    int timeout_ms;
    atomic_bool is_stopping, has_ended;
    pj_error failure; /* read after has_ended */
    char url[512];
};

/* Bytes on their way in one direction. */
typedef struct carried {
    char bytes[CHUNK_BYTES];
    size_t begin, end;
} carried;

/* ---- carrying ---------------------------------------------------------------------------------
 */

/* The socket's ends in the words of curl.h. */
static pj_curl_moved receive_local(int fd, void *bytes, size_t count, size_t *received)
{
    ssize_t n = recv(fd, bytes, count, 0);
    *received = n > 0 ? (size_t)n : 0;
    if (n > 0) return PJ_CURL_DONE;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? PJ_CURL_AGAIN : PJ_CURL_CLOSED;
}

static pj_curl_moved send_local(int fd, const void *bytes, size_t count, size_t *sent)
{
    ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
    *sent = n > 0 ? (size_t)n : 0;
    if (n > 0) return PJ_CURL_DONE;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? PJ_CURL_AGAIN : PJ_CURL_CLOSED;
}

static bool is_empty(const carried *c)
{
    return c->begin == c->end;
}

static pj_curl_moved carry_up(int fd, pj_curl_connection *connection, carried *c)
{
    size_t count = 0;
    pj_curl_moved state = PJ_CURL_DONE;
    if (is_empty(c)) {
        state = receive_local(fd, c->bytes, sizeof c->bytes, &count);
        c->begin = 0;
        c->end = count;
    }
    if (state != PJ_CURL_DONE) return state;
    state = pj_curl_send(connection, c->bytes + c->begin, c->end - c->begin, &count);
    c->begin += count;
    return state;
}

static pj_curl_moved carry_down(int fd, pj_curl_connection *connection, carried *c)
{
    size_t count = 0;
    pj_curl_moved state = PJ_CURL_DONE;
    if (is_empty(c)) {
        state = pj_curl_receive(connection, c->bytes, sizeof c->bytes, &count);
        c->begin = 0;
        c->end = count;
    }
    if (state != PJ_CURL_DONE) return state;
    state = send_local(fd, c->bytes + c->begin, c->end - c->begin, &count);
    c->begin += count;
    return state;
}

static void carry(pj_tunnel *t, pj_curl_connection *connection)
{
    carried up, down;
    up.begin = up.end = down.begin = down.end = 0;
    while (!atomic_load(&t->is_stopping)) {
        pj_curl_moved sent = carry_up(t->end, connection, &up);
        pj_curl_moved received = carry_down(t->end, connection, &down);
        if (sent == PJ_CURL_CLOSED || received == PJ_CURL_CLOSED) return;
        if (sent == PJ_CURL_DONE || received == PJ_CURL_DONE) continue;
        struct pollfd waits[2] = {
            {.fd = t->end,
             .events = (short)((is_empty(&up) ? POLLIN : 0) | (is_empty(&down) ? 0 : POLLOUT))},
            {.fd = pj_curl_socket(connection),
             .events = (short)((is_empty(&down) ? POLLIN : 0) | (is_empty(&up) ? 0 : POLLOUT))}};
        poll(waits, 2, LOOK_AGAIN_MS);
    }
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static bool is_stopping(void *context)
{
    pj_tunnel *t = context;
    return atomic_load(&t->is_stopping);
}

static void *run(void *context)
{
    pj_tunnel *t = context;
    pj_curl_connection *connection = NULL;
    pj_status status =
        pj_curl_connect(t->url, t->timeout_ms, is_stopping, t, &connection, &t->failure);
    if (status == PJ_OK) carry(t, connection);
    pj_curl_disconnect(connection);
    atomic_store(&t->has_ended, true);
    shutdown(t->end, SHUT_RDWR); /* closed by pj_tunnel_close, which may be using it */
    return NULL;
}

pj_status pj_tunnel_open(const char *url, int timeout_ms, pj_tunnel **tunnel, int *fd,
                         pj_error *err)
{
    int pair[2];
    pj_status status = pj_curl_load(err);
    if (status != PJ_OK) return status;
    pj_tunnel *t = pj_alloc(1, sizeof *t);
    if (!t) return pj_fail_memory(err, "a TLS connection");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        pj_free(t);
        return pj_fail_errno(err, errno, "cannot make a pair of sockets");
    }
    for (int i = 0; i < 2; i++) {
        fcntl(pair[i], F_SETFL, O_NONBLOCK);
        fcntl(pair[i], F_SETFD, FD_CLOEXEC);
    }
    t->end = pair[0];
    t->timeout_ms = timeout_ms;
    snprintf(t->url, sizeof t->url, "%s", url);
    status = pj_thread_start(&t->thread, "pj-tunnel", run, t, err);
    if (status == PJ_OK) {
        *tunnel = t;
        *fd = pair[1];
        return PJ_OK;
    }
    close(pair[0]);
    close(pair[1]);
    pj_free(t);
    return status;
}

bool pj_tunnel_has_ended(pj_tunnel *t, pj_error *why)
{
    bool ended = atomic_load(&t->has_ended);
    if (ended && why) *why = t->failure;
    return ended;
}

void pj_tunnel_close(pj_tunnel *t)
{
    atomic_store(&t->is_stopping, true);
    shutdown(t->end, SHUT_RDWR);
    pthread_join(t->thread, NULL);
    close(t->end);
    pj_free(t);
}
