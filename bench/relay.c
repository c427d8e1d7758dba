/* A relay of bytes, for comparison with the proxy. */
#include "bench/relay.h"

#include "attach/poller.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOCKETS_MAX = 2048, RELAY_BYTES = 64 << 10 };

/* Each connection knows its counterpart. */
typedef struct half {
    int fd;
    bool is_open;
    struct half *other;
} half;

typedef struct relay {
    const pj_bench_relay *o;
    pj_poller *poller;
    pj_address address;
    half halves[SOCKETS_MAX];
    pj_ready ready[SOCKETS_MAX];
    char bytes[RELAY_BYTES];
} relay;

static void relay_hang_up(relay *r, half *h)
{
    if (!h->is_open) return;
    pj_poller_set(r->poller, h->fd, POLLIN, 0, NULL);
    close(h->fd);
    h->is_open = false;
}

bool pj_bench_send(int fd, const char *bytes, size_t count)
{
    while (count) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) return false;
        if (n < 0 && poll(&p, 1, 1000) <= 0) return false;
        if (n > 0) bytes += n, count -= (size_t)n;
    }
    return true;
}

static void relay_copy(relay *r, half *from)
{
    ssize_t n = recv(from->fd, r->bytes, sizeof r->bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0 && pj_bench_send(from->other->fd, r->bytes, (size_t)n)) return;
    relay_hang_up(r, from);
    relay_hang_up(r, from->other);
}

static void relay_take(relay *r, int client)
{
    int server = pj_dial(&r->address);
    for (uint32_t i = 0; server >= 0 && i < SOCKETS_MAX; i += 2) {
        half *a = &r->halves[i], *b = a + 1;
        if (a->is_open || b->is_open) continue;
        *a = (half){client, true, b};
        *b = (half){server, true, a};
        pj_poller_set(r->poller, client, 0, POLLIN, a);
        pj_poller_set(r->poller, server, 0, POLLIN, b);
        return;
    }
    if (server >= 0) close(server);
    close(client);
}

static void relay_turn(relay *r)
{
    uint32_t n = pj_poller_wait(r->poller, r->ready, SOCKETS_MAX, 10);
    bool knocks = false;
    for (uint32_t i = 0; i < n; i++) {
        half *h = r->ready[i].tag;
        if (!h)
            knocks = true;
        else if (h->is_open)
            relay_copy(r, h);
    }
    for (int fd; knocks && (fd = pj_accept(r->o->listener)) >= 0;) relay_take(r, fd);
}

void pj_bench_relay_run(const pj_bench_relay *options)
{
    relay *r = pj_alloc(1, sizeof *r);
    pj_poller *poller = pj_poller_new(SOCKETS_MAX + 1);
    if (r && poller && pj_address_resolve(options->to, &r->address, NULL) == PJ_OK) {
        r->o = options;
        r->poller = poller;
        pj_poller_set(poller, options->listener, 0, POLLIN, NULL);
        while (!atomic_load(options->stop)) relay_turn(r);
        for (uint32_t i = 0; i < SOCKETS_MAX; i++) relay_hang_up(r, &r->halves[i]);
    }
    pj_poller_free(poller);
    pj_free(r);
}
