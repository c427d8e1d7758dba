/* The client: connections and their state machines. */
#include "attach/client.h"

#include "attach/wire.h"
#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, TICK_MS = 50 };
#define USUAL_PATIENCE_NS (600 * PJ_NS_PER_S)

typedef enum call_state { FREE = 0, CONNECTING, SENDING, READING_HEAD, READING_BODY } call_state;

/* A connection, and the request on it. */
typedef struct call {
    int fd; /* -1: none */
    call_state state;
    bool reused; /* the connection carried a request before */
    uint32_t index;
    pj_buffer out, head;
    size_t sent;
    pj_wire_head answer;
    pj_wire_body body;
    pj_exchange *exchange;
    void *request;
    int64_t heard_ns;
} call;

typedef struct client {
    const pj_client_options *options;
    pj_address address;
    uint32_t next, ended;
    uint32_t count;
    call *calls;
    struct pollfd *polls;
    char *scratch;
} client;

/* ---- ends ----------------------------------------------------------------------------------- */

static void hang_up(call *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void finish(client *k, call *c, pj_exchange_outcome outcome, const char *why)
{
    const pj_client_hooks *hooks = &k->options->hooks;
    pj_exchange_end(c->exchange, outcome, why, pj_clock_ns());
    if (outcome != PJ_EXCHANGE_COMPLETED || !c->answer.keep_alive) hang_up(c);
    hooks->end(hooks->context, c->request, c->exchange);
    c->exchange = NULL;
    c->state = FREE;
    k->ended++;
}

static void fail(client *k, call *c, const char *what, int why)
{
    char text[256], authority[PJ_URL_HOST_BYTES + 8];
    pj_url_authority(k->options->url, authority, sizeof authority);
    snprintf(text, sizeof text, "%s %s%s%s", what, authority, why ? ": " : "",
             why ? strerror(why) : "");
    finish(k, c, PJ_EXCHANGE_FAILED, text);
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool write_request(const client *k, call *c, const char *body, size_t bytes)
{
    const pj_client_options *o = k->options;
    char authority[PJ_URL_HOST_BYTES + 8];
    pj_url_authority(o->url, authority, sizeof authority);
    pj_buffer_clear(&c->out);
    pj_buffer_printf(&c->out,
                     "POST %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                     "Accept: text/event-stream, application/json\r\nUser-Agent: perjoule\r\n%s"
                     "Content-Length: %zu\r\n\r\n",
                     o->url->prefix, o->path, authority, o->headers ? o->headers : "", bytes);
    return pj_buffer_append(&c->out, body, bytes);
}

static void connect_call(client *k, call *c)
{
    c->reused = false;
    c->fd = pj_dial(&k->address);
    c->state = CONNECTING;
    if (c->fd < 0) fail(k, c, "cannot connect to", errno);
}

static void begin_call(client *k, call *c)
{
    const pj_client_options *o = k->options;
    size_t bytes;
    c->index = k->next++;
    const char *body = o->hooks.body(o->hooks.context, c->index, &bytes);
    c->sent = 0;
    c->answer = (pj_wire_head){0};
    pj_buffer_clear(&c->head);
    c->heard_ns = pj_clock_ns();
    c->exchange = pj_exchange_new("POST", o->path, body, bytes, c->heard_ns);
    if (!c->exchange || !write_request(k, c, body, bytes)) {
        pj_exchange_free(c->exchange);
        c->exchange = NULL;
        k->ended++;
        return;
    }
    pj_exchange_demand(c->exchange);
    c->request = o->hooks.begin(o->hooks.context, c->index, c->exchange);
    c->reused = c->fd >= 0;
    c->state = SENDING;
    if (c->fd < 0) connect_call(k, c);
}

/* If the server closed a kept-alive connection between two requests, the second is retried on a new
 * one. */
static void broken(client *k, call *c, const char *what, int why)
{
    if (c->reused && c->state <= READING_HEAD && c->head.length == 0) {
        hang_up(c);
        c->sent = 0;
        connect_call(k, c);
        return;
    }
    fail(k, c, what, why);
}

static void send_more(client *k, call *c)
{
    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            broken(k, c, "cannot send to", errno);
            return;
        }
        c->sent += (size_t)n;
    }
    c->state = READING_HEAD;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void take_body(client *k, call *c, const char *bytes, size_t count, int64_t now_ns)
{
    const pj_client_hooks *hooks = &k->options->hooks;
    bool heard = false;
    while (count && !c->body.done) {
        pj_wire_part part = pj_wire_body_next(&c->body, bytes, count);
        if (part.kind == PJ_WIRE_BROKEN) {
            fail(k, c, "malformed chunks from", 0);
            return;
        }
        if (part.kind == PJ_WIRE_DATA) {
            pj_exchange_payload(c->exchange, bytes, part.bytes, now_ns);
            heard = true;
        }
        bytes += part.bytes;
        count -= part.bytes;
    }
    if (heard) hooks->progress(hooks->context, c->request);
    if (c->body.done) finish(k, c, PJ_EXCHANGE_COMPLETED, NULL);
}

static void take_head(client *k, call *c, int64_t now_ns)
{
    const char *why = NULL, *bytes = pj_buffer_get(&c->head);
    size_t type_bytes, coding_bytes;
    pj_wire_verdict verdict = pj_wire_parse(bytes, c->head.length, false, &c->answer, &why);
    if (verdict == PJ_WIRE_INCOMPLETE) return;
    if (verdict == PJ_WIRE_BAD) {
        char text[160];
        snprintf(text, sizeof text, "no answer of HTTP (%s) from", why);
        fail(k, c, text, 0);
        return;
    }
    size_t head_bytes = c->answer.bytes;
    if (c->answer.status <
        200) { /* an interim response such as 100 Continue: the final one follows */
        memmove(c->head.data, c->head.data + head_bytes, c->head.length - head_bytes);
        c->head.length -= head_bytes;
        take_head(k, c, now_ns);
        return;
    }
    const char *type = pj_wire_field(bytes, head_bytes, "content-type", &type_bytes);
    const char *coding = pj_wire_field(bytes, head_bytes, "content-encoding", &coding_bytes);
    pj_exchange_head(c->exchange, c->answer.status, type, type_bytes, coding != NULL, now_ns);
    pj_wire_body_begin(&c->body, c->answer.body, c->answer.length);
    c->state = READING_BODY;
    if (c->body.done)
        finish(k, c, PJ_EXCHANGE_COMPLETED, NULL);
    else
        take_body(k, c, bytes + head_bytes, c->head.length - head_bytes, now_ns);
}

static void closed(client *k, call *c, int why)
{
    if (c->state == READING_BODY && c->answer.body == PJ_BODY_UNTIL_CLOSE && !why)
        finish(k, c, PJ_EXCHANGE_COMPLETED, NULL);
    else
        broken(k, c,
               c->state == READING_BODY ? "the answer broke off, connection closed by"
                                        : "connection closed by",
               why);
}

static void receive(client *k, call *c)
{
    ssize_t n = recv(c->fd, k->scratch, READ_BYTES, 0);
    int64_t now_ns = pj_clock_ns();
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        closed(k, c, n < 0 ? errno : 0);
        return;
    }
    c->heard_ns = now_ns;
    if (c->state == READING_BODY) {
        take_body(k, c, k->scratch, (size_t)n, now_ns);
    } else {
        if (c->state == SENDING)
            c->state = READING_HEAD; /* rejected before the request was sent completely */
        pj_buffer_append(&c->head, k->scratch, (size_t)n);
        take_head(k, c, now_ns);
    }
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void step(client *k, call *c, short events)
{
    int why;
    if (c->state == CONNECTING) {
        if (!(events & (POLLOUT | POLLERR | POLLHUP))) return;
        why = pj_dial_error(c->fd);
        if (why) {
            fail(k, c, "cannot connect to", why);
            return;
        }
        c->state = SENDING;
    }
    if (c->state == SENDING && (events & (POLLOUT | POLLERR))) send_more(k, c);
    if (c->state >= SENDING && c->fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR))) receive(k, c);
}

static short events_of(const call *c)
{
    if (c->state == CONNECTING) return POLLOUT;
    if (c->state == SENDING) return POLLIN | POLLOUT;
    return POLLIN;
}

static bool cut_off(client *k)
{
    const _Atomic bool *cancel = k->options->cancel;
    if (!cancel || !atomic_load(cancel)) return false;
    for (uint32_t i = 0; i < k->count; i++)
        if (k->calls[i].state != FREE)
            finish(k, &k->calls[i], PJ_EXCHANGE_CANCELLED, "interrupted");
    return true;
}

static void end_overdue(client *k, int64_t now_ns)
{
    int64_t patience = k->options->patience_ns ? k->options->patience_ns : USUAL_PATIENCE_NS;
    for (uint32_t i = 0; i < k->count; i++) {
        call *c = &k->calls[i];
        if (c->state != FREE && now_ns - c->heard_ns > patience) fail(k, c, "nothing came from", 0);
    }
}

static void turn(client *k)
{
    call *polled[PJ_CLIENT_CONCURRENCY_MAX];
    nfds_t n = 0;
    for (uint32_t i = 0; i < k->count; i++) {
        call *c = &k->calls[i];
        while (c->state == FREE && k->next < k->options->requests) begin_call(k, c);
        if (c->state == FREE || c->fd < 0) continue;
        k->polls[n] = (struct pollfd){.fd = c->fd, .events = events_of(c)};
        polled[n++] = c;
    }
    if (poll(k->polls, n, TICK_MS) <= 0) return;
    for (nfds_t i = 0; i < n; i++)
        if (k->polls[i].revents) step(k, polled[i], k->polls[i].revents);
}

static void release(client *k)
{
    for (uint32_t i = 0; k->calls && i < k->count; i++) {
        hang_up(&k->calls[i]);
        pj_buffer_fini(&k->calls[i].out);
        pj_buffer_fini(&k->calls[i].head);
    }
    pj_free(k->calls);
    pj_free(k->polls);
    pj_free(k->scratch);
}

static pj_status prepare(client *k, pj_error *err)
{
    const pj_client_options *o = k->options;
    k->count =
        o->concurrency < PJ_CLIENT_CONCURRENCY_MAX ? o->concurrency : PJ_CLIENT_CONCURRENCY_MAX;
    if (!k->count) k->count = 1;
    k->calls = pj_alloc(k->count, sizeof *k->calls);
    k->polls = pj_alloc(k->count, sizeof *k->polls);
    k->scratch = pj_alloc(READ_BYTES, 1);
    if (!k->calls || !k->polls || !k->scratch) return pj_fail_memory(err, "a client");
    for (uint32_t i = 0; i < k->count; i++) {
        k->calls[i].fd = -1;
        pj_buffer_init(&k->calls[i].out, 256 << 20);
        pj_buffer_init(&k->calls[i].head, PJ_WIRE_HEAD_MAX_BYTES + READ_BYTES);
    }
    return pj_address_resolve(o->url, &k->address, err);
}

pj_status pj_client_run(const pj_client_options *options, pj_error *err)
{
    client k = {.options = options};
    pj_status status = prepare(&k, err);
    while (status == PJ_OK && k.ended < options->requests) {
        turn(&k);
        end_overdue(&k, pj_clock_ns());
        if (cut_off(&k)) status = pj_fail(err, PJ_E_CANCELLED, "interrupted");
    }
    release(&k);
    return status;
}

/* ---- one small request ---------------------------------------------------------------------- */

static bool wait_for(int fd, short events, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    int64_t left_ms = (until_ns - pj_clock_ns()) / PJ_NS_PER_MS;
    return left_ms > 0 && poll(&p, 1, (int)left_ms) > 0;
}

static bool send_all(int fd, const pj_buffer *out, int64_t until_ns)
{
    for (size_t sent = 0; sent < out->length;) {
        ssize_t n = send(fd, out->data + sent, out->length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) return false;
        if (n < 0 && !wait_for(fd, POLLOUT, until_ns)) return false;
        if (n > 0) sent += (size_t)n;
    }
    return true;
}

/* True when the answer is complete; `closed`: nothing more comes. */
static bool unpack(const pj_buffer *in, bool closed, int *status, pj_buffer *out)
{
    pj_wire_head head;
    pj_wire_body body;
    if (!in->length || pj_wire_parse(in->data, in->length, false, &head, NULL) != PJ_WIRE_COMPLETE)
        return false;
    *status = head.status;
    pj_buffer_clear(out);
    pj_wire_body_begin(&body, head.body, head.length);
    for (size_t at = head.bytes; at < in->length && !body.done;) {
        pj_wire_part part = pj_wire_body_next(&body, in->data + at, in->length - at);
        if (part.kind == PJ_WIRE_BROKEN) return false;
        if (part.kind == PJ_WIRE_DATA) pj_buffer_append(out, in->data + at, part.bytes);
        at += part.bytes;
    }
    return body.done || (closed && body.kind == PJ_BODY_UNTIL_CLOSE);
}

/* Reads until the answer is complete, since not every server honours Connection: close. */
static bool receive_answer(int fd, pj_buffer *in, int64_t until_ns, int *status, pj_buffer *body)
{
    char bytes[8192];
    for (;;) {
        if (!wait_for(fd, POLLIN, until_ns)) return false;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return false;
        if (n == 0) return unpack(in, true, status, body);
        if (!pj_buffer_append(in, bytes, (size_t)n)) return false;
        if (unpack(in, false, status, body)) return true;
    }
}

pj_status pj_client_get(const pj_url *url, const char *path, const char *headers,
                        int64_t patience_ns, int *status, pj_buffer *body, pj_error *err)
{
    pj_address address;
    pj_buffer out, in;
    char authority[PJ_URL_HOST_BYTES + 8];
    int64_t until_ns = pj_clock_ns() + patience_ns;
    pj_url_authority(url, authority, sizeof authority);
    pj_buffer_init(&out, 64 << 10);
    pj_buffer_init(&in, 16 << 20);
    pj_buffer_init(body, 16 << 20);
    pj_status result = pj_address_resolve(url, &address, err);
    int fd = result == PJ_OK ? pj_dial(&address) : -1;
    pj_buffer_printf(&out,
                     "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: perjoule\r\n%s"
                     "Connection: close\r\n\r\n",
                     url->prefix, path, authority, headers ? headers : "");
    errno = 0;
    if (result == PJ_OK &&
        (fd < 0 || !wait_for(fd, POLLOUT, until_ns) || pj_dial_error(fd) ||
         !send_all(fd, &out, until_ns) || !receive_answer(fd, &in, until_ns, status, body)))
        result = pj_fail(err, PJ_E_UNAVAILABLE, "no answer of HTTP from %s%s", authority, path);
    if (fd >= 0) close(fd);
    pj_buffer_fini(&out);
    pj_buffer_fini(&in);
    return result;
}
