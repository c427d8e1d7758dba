#include "net/front.h"

#include "net/params.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/head.h"
#include "http/problem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD_MAX_BYTES = 24 << 10, /* fits into libmicrohttpd's memory of a connection */
    LENGTH_MAX_BYTES =
        64 << 20,     /* a larger body is not even read; the limit of the routes is lower */
    GUESTS_MAX = 512, /* connections with an incomplete head; when full, the oldest is dropped */
    HEAD_MS = 20000,  /* for the head to arrive */
    LINGER_MS = 2000, /* for a refused client to read its answer */
    OUT_OF_FILES_MS = 100 /* pause when out of descriptors, instead of spinning */
};

/* A connection whose head is being read, or that was refused and is still being answered. */
typedef struct guest {
    int fd;
    bool refused;
    size_t seen;
    int64_t until_ns;
    struct sockaddr_storage address;
    socklen_t address_bytes;
} guest;

struct pj_front {
    int listener, wake[2];
    pj_front_pass_fn *pass;
    void *context;
    pthread_t thread;
    bool running;
    int64_t deaf_until_ns; /* out of descriptors until then */
    int count;
    guest guests[GUESTS_MAX];
    char head[HEAD_MAX_BYTES + 1];
};

/* ---- refusing ------------------------------------------------------------------------------- */

static void set_least(int fd, int bytes)
{
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

/* Closing with unread bytes would reset the connection and discard the answer: input is drained for
 * a moment. */
static void front_refuse(guest *g, int status, const char *detail, bool is_head)
{
    char text[PJ_PROBLEM_BYTES];
    size_t bytes = pj_problem_write(text, status, detail,
                                    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                                    "Referrer-Policy: no-referrer\r\n"
                                    "Content-Security-Policy: default-src 'none'\r\n",
                                    is_head);
    ssize_t sent = send(g->fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
    shutdown(g->fd, SHUT_WR);
    set_least(g->fd, 1);
    g->refused = true;
    g->until_ns = pj_clock_ns() + LINGER_MS * PJ_NS_PER_MS;
}

/* What a valid head may not ask of this server. */
static pj_head_verdict front_check(const pj_head *head, pj_head_fault *fault)
{
    *fault = (pj_head_fault){0};
    if (!head->has_host)
        *fault = (pj_head_fault){400, "a request must have exactly one Host header"};
    else if (head->target_bytes > PJ_TARGET_MAX_BYTES)
        *fault = (pj_head_fault){414, "the address is too long"};
    else if (head->length > LENGTH_MAX_BYTES)
        *fault = (pj_head_fault){413, "the body is too large"};
    else if (head->body == PJ_BODY_CHUNKED)
        *fault = (pj_head_fault){411, "send the body with Content-Length instead of in chunks"};
    else if (head->wrong_expectation)
        *fault = (pj_head_fault){417, "only Expect: 100-continue is supported"};
    return fault->status ? PJ_HEAD_BAD : PJ_HEAD_COMPLETE;
}

/* ---- guests --------------------------------------------------------------------------------- */

static void front_forget(pj_front *front, int index)
{
    front->guests[index] = front->guests[--front->count];
}

static void front_drop(pj_front *front, int index)
{
    close(front->guests[index].fd);
    front_forget(front, index);
}

static void front_make_room(pj_front *front)
{
    int oldest = 0;
    if (front->count < GUESTS_MAX) return;
    for (int i = 1; i < front->count; i++)
        if (front->guests[i].until_ns < front->guests[oldest].until_ns) oldest = i;
    front_drop(front, oldest);
}

/* True when the guest has been removed. */
static bool front_pass_on(pj_front *front, int index, bool is_head)
{
    guest *g = &front->guests[index];
    set_least(g->fd, 1);
    if (front->pass(front->context, g->fd, (const struct sockaddr *)&g->address,
                    g->address_bytes)) {
        front_forget(front, index);
        return true;
    }
    front_refuse(g, 503, "too many connections are open; try again in a moment", is_head);
    return false;
}

/* True when the guest has been removed. */
static bool front_look_at(pj_front *front, int index)
{
    guest *g = &front->guests[index];
    ssize_t n =
        recv(g->fd, front->head, HEAD_MAX_BYTES, MSG_DONTWAIT | (g->refused ? 0 : MSG_PEEK));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        front_drop(front, index);
        return true;
    }
    if (g->refused) return false;
    pj_head head;
    pj_head_fault fault;
    pj_head_verdict verdict =
        pj_head_parse(front->head, (size_t)n, true, HEAD_MAX_BYTES, &head, &fault);
    if (verdict == PJ_HEAD_COMPLETE) verdict = front_check(&head, &fault);
    if (verdict == PJ_HEAD_BAD)
        front_refuse(g, fault.status, fault.detail, strcmp(head.method, "HEAD") == 0);
    else if (verdict == PJ_HEAD_COMPLETE)
        return front_pass_on(front, index, strcmp(head.method, "HEAD") == 0);
    else if ((size_t)n == g->seen) { /* no more data: the client closed its side */
        front_drop(front, index);
        return true;
    } else {
        g->seen = (size_t)n;
        set_least(g->fd, (int)n + 1); /* makes poll report new data only */
    }
    return false;
}

static void end_overdue(pj_front *front, int64_t now_ns)
{
    for (int i = front->count; i-- > 0;) {
        guest *g = &front->guests[i];
        if (g->until_ns > now_ns) continue;
        if (g->refused || g->seen == 0)
            front_drop(front, i);
        else
            front_refuse(g, 408, "the request header did not arrive in time", false);
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void front_accept_all(pj_front *front)
{
    for (int i = 0; i < 64; i++) {
        guest g = {.address_bytes = sizeof g.address};
        g.fd = accept(front->listener, (struct sockaddr *)&g.address, &g.address_bytes);
        if (g.fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                front->deaf_until_ns = pj_clock_ns() + OUT_OF_FILES_MS * PJ_NS_PER_MS;
            return;
        }
        fcntl(g.fd, F_SETFD, FD_CLOEXEC);
        g.until_ns = pj_clock_ns() + HEAD_MS * PJ_NS_PER_MS;
        front_make_room(front);
        front->guests[front->count] = g;
        front_look_at(front, front->count++);
    }
}

static int timeout_ms(const pj_front *front, int64_t now_ns)
{
    int64_t next_ns = front->deaf_until_ns > now_ns ? front->deaf_until_ns : INT64_MAX;
    for (int i = 0; i < front->count; i++)
        if (front->guests[i].until_ns < next_ns) next_ns = front->guests[i].until_ns;
    if (next_ns == INT64_MAX) return -1;
    return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / PJ_NS_PER_MS) + 1;
}

static void *run_front(void *context)
{
    pj_front *front = context;
    struct pollfd polls[GUESTS_MAX + 2];
    for (;;) {
        int64_t now_ns = pj_clock_ns();
        int count = front->count;
        polls[0] = (struct pollfd){.fd = front->wake[0], .events = POLLIN};
        polls[1] = (struct pollfd){.fd = front->deaf_until_ns > now_ns ? -1 : front->listener,
                                   .events = POLLIN};
        for (int i = 0; i < count; i++)
            polls[i + 2] = (struct pollfd){.fd = front->guests[i].fd, .events = POLLIN};
        int ready = poll(polls, (nfds_t)count + 2, timeout_ms(front, now_ns));
        if (polls[0].revents) break;
        /* Backwards: a removed guest is replaced by the last one, which was handled already. */
        for (int i = count; ready > 0 && i-- > 0;)
            if (polls[i + 2].revents) front_look_at(front, i);
        if (ready > 0 && polls[1].revents) front_accept_all(front);
        end_overdue(front, pj_clock_ns());
    }
    return NULL;
}

pj_status pj_front_open(int listener, pj_front_pass_fn *pass, void *context, pj_front **out,
                        pj_error *err)
{
    pj_status status = PJ_OK;
    *out = NULL;
    pj_front *front = pj_alloc(1, sizeof *front);
    if (!front) {
        close(listener);
        return pj_fail_memory(err, "the server");
    }
    front->listener = listener;
    front->pass = pass;
    front->context = context;
    if (pipe(front->wake) != 0) {
        front->wake[0] = front->wake[1] = -1;
        status = pj_fail_errno(err, errno, "cannot create a pipe");
    }
    if (status == PJ_OK)
        status = pj_thread_start(&front->thread, "pj-front", run_front, front, err);
    front->running = status == PJ_OK;
    if (status == PJ_OK)
        *out = front;
    else
        pj_front_close(front);
    return status;
}

void pj_front_close(pj_front *front)
{
    if (!front) return;
    if (front->running) {
        ssize_t n = write(front->wake[1], "s", 1);
        (void)n;
        pthread_join(front->thread, NULL);
    }
    while (front->count > 0) front_drop(front, front->count - 1);
    close(front->listener);
    for (int i = 0; i < 2; i++)
        if (front->wake[i] >= 0) close(front->wake[i]);
    pj_free(front);
}
