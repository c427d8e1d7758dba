#include "http/call.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 16 << 10, OUT_MAX_BYTES = 256 << 20, GET_MAX_BYTES = 16 << 20 };

void pj_call_init(pj_call *c, const pj_url *url)
{
    *c = (pj_call){.url = url, .fd = -1};
    pj_buffer_init(&c->out, OUT_MAX_BYTES);
    pj_buffer_init(&c->in, PJ_HEAD_MAX_BYTES + READ_BYTES);
}

static void call_hang_up(pj_call *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->is_reused = false;
}

void pj_call_fini(pj_call *c)
{
    call_hang_up(c);
    pj_buffer_fini(&c->out);
    pj_buffer_fini(&c->in);
}

void pj_call_fail(pj_call *c, const char *what, int error_number)
{
    char authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(c->url, authority, sizeof authority);
    snprintf(c->failure, sizeof c->failure, "%s %s%s%s", what, authority, error_number ? ": " : "",
             error_number ? strerror(error_number) : "");
    call_hang_up(c);
    c->state = PJ_CALL_FAILED;
}

/* A connection whose request or answer is incomplete cannot be used again. */
static void call_finish(pj_call *c)
{
    c->state = PJ_CALL_DONE;
    if (c->head.status == 101) return;
    if (c->head.keep_alive && c->body.done && c->sent == c->out.length)
        c->is_reused = true;
    else
        call_hang_up(c);
}

/* ---- sending -------------------------------------------------------------------------------- */

void pj_call_write(pj_call *c, const char *method, const char *path)
{
    char authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(c->url, authority, sizeof authority);
    pj_buffer_clear(&c->out);
    pj_buffer_printf(&c->out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: perjoule\r\n", method,
                     c->url->prefix, path, authority);
}

static void call_connect(pj_call *c)
{
    c->sent = 0;
    c->fd = pj_dial(&c->address);
    c->state = PJ_CALL_CONNECTING;
    if (c->fd < 0) pj_call_fail(c, "cannot connect to", errno);
}

void pj_call_begin(pj_call *c)
{
    c->sent = 0;
    c->head = (pj_head){0};
    c->body = (pj_body){0};
    pj_buffer_clear(&c->in);
    c->heard_ns = pj_clock_ns();
    c->state = PJ_CALL_SENDING;
    if (c->out.failed)
        pj_call_fail(c, "not enough memory for a request to", 0);
    else if (c->fd < 0)
        call_connect(c);
}

/* If the server closed a kept-alive connection between two requests, the second is retried on a new
 * one. */
static void call_break(pj_call *c, const char *what, int error_number)
{
    if (!c->is_reused || c->state > PJ_CALL_HEAD || c->in.length) {
        pj_call_fail(c, what, error_number);
        return;
    }
    call_hang_up(c);
    call_connect(c);
}

static void call_send(pj_call *c)
{
    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            call_break(c, "cannot send to", errno);
            return;
        }
        c->sent += (size_t)n;
    }
    c->sent_ns = pj_clock_ns();
    c->state = PJ_CALL_HEAD;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void call_take_body(pj_call *c, const char *bytes, size_t count)
{
    while (count && !c->body.done) {
        pj_body_part part = pj_body_next(&c->body, bytes, count);
        if (part.kind == PJ_PART_BROKEN) {
            pj_call_fail(c, "malformed chunks from", 0);
            return;
        }
        if (part.kind == PJ_PART_DATA && c->take_body &&
            !c->take_body(c->context, bytes, part.bytes)) {
            pj_call_fail(c, "the answer is too large from", 0);
            return;
        }
        bytes += part.bytes;
        count -= part.bytes;
    }
    if (c->body.done) call_finish(c);
}

/* The next final head; interim responses such as 100 Continue are skipped. */
static pj_head_verdict call_parse_head(pj_call *c, pj_head_fault *fault)
{
    pj_head_verdict verdict;
    while ((verdict = pj_head_parse(pj_buffer_get(&c->in), c->in.length, false, PJ_HEAD_MAX_BYTES,
                                    &c->head, fault)) == PJ_HEAD_COMPLETE &&
           c->head.status < 200 && c->head.status != 101) {
        c->in.length -= c->head.bytes;
        memmove(c->in.data, c->in.data + c->head.bytes, c->in.length);
    }
    return verdict;
}

static void call_take_head(pj_call *c)
{
    pj_head_fault fault;
    pj_head_verdict verdict = call_parse_head(c, &fault);
    if (verdict == PJ_HEAD_BAD) {
        char text[160];
        snprintf(text, sizeof text, "no HTTP response (%s) from", fault.detail);
        pj_call_fail(c, text, 0);
    }
    if (verdict != PJ_HEAD_COMPLETE) return;
    c->state = PJ_CALL_BODY;
    pj_body_begin(&c->body, c->head.body, c->head.length);
    if (c->take_head) c->take_head(c->context);
    if (c->body.done)
        call_finish(c);
    else
        call_take_body(c, c->in.data + c->head.bytes, c->in.length - c->head.bytes);
}

static void call_take_end(pj_call *c, int error_number)
{
    bool in_body = c->state == PJ_CALL_BODY;
    if (in_body && c->head.body == PJ_BODY_UNTIL_CLOSE && !error_number)
        call_finish(c);
    else
        call_break(c,
                   in_body ? "the answer broke off, connection closed by" : "connection closed by",
                   error_number);
}

static void call_receive(pj_call *c)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        call_take_end(c, n < 0 ? errno : 0);
        return;
    }
    c->heard_ns = pj_clock_ns();
    if (c->state == PJ_CALL_BODY) {
        call_take_body(c, bytes, (size_t)n);
        return;
    }
    c->state = PJ_CALL_HEAD; /* also when the answer comes before the request is sent completely */
    pj_buffer_append(&c->in, bytes, (size_t)n);
    if (c->in.failed)
        pj_call_fail(c, "not enough memory for the answer of", 0);
    else
        call_take_head(c);
}

/* ---- going on ------------------------------------------------------------------------------- */

bool pj_call_is_running(const pj_call *c)
{
    return c->state >= PJ_CALL_CONNECTING && c->state <= PJ_CALL_BODY;
}

void pj_call_step(pj_call *c, short events)
{
    if (c->state == PJ_CALL_CONNECTING && (events & (POLLOUT | POLLERR | POLLHUP))) {
        int why = pj_dial_error(c->fd);
        c->state = PJ_CALL_SENDING;
        if (why) pj_call_fail(c, "cannot connect to", why);
    }
    if (c->state == PJ_CALL_SENDING && (events & (POLLOUT | POLLERR))) call_send(c);
    bool listens = c->state >= PJ_CALL_SENDING && c->state <= PJ_CALL_BODY;
    if (listens && (events & (POLLIN | POLLHUP | POLLERR))) call_receive(c);
}

short pj_call_events(const pj_call *c)
{
    if (c->state == PJ_CALL_CONNECTING) return POLLOUT;
    return c->state == PJ_CALL_SENDING ? POLLIN | POLLOUT : POLLIN;
}

void pj_call_poll(pj_call *c, int timeout_ms)
{
    struct pollfd p = {.fd = c->fd, .events = pj_call_events(c)};
    if (poll(&p, 1, timeout_ms) > 0) pj_call_step(c, p.revents);
}

bool pj_call_wait(pj_call *c, int64_t until_ns)
{
    while (pj_call_is_running(c)) {
        int64_t left_ns = until_ns - pj_clock_ns();
        if (left_ns <= 0)
            pj_call_fail(c, "nothing came from", 0);
        else
            pj_call_poll(c, (int)(left_ns / PJ_NS_PER_MS) + 1);
    }
    return c->state == PJ_CALL_DONE;
}

/* ---- one small request ---------------------------------------------------------------------- */

static bool call_keep(void *context, const char *bytes, size_t count)
{
    return pj_buffer_append(context, bytes, count);
}

pj_status pj_call_get(const pj_url *url, const char *path, const char *lines, int64_t timeout_ns,
                      int *status, pj_buffer *body, pj_error *err)
{
    pj_call call;
    pj_buffer_init(body, GET_MAX_BYTES);
    pj_call_init(&call, url);
    call.context = body;
    call.take_body = call_keep;
    pj_call_write(&call, "GET", path);
    pj_buffer_printf(&call.out, "%sConnection: close\r\n\r\n", lines ? lines : "");
    int64_t until_ns = pj_clock_ns() + timeout_ns;
    pj_status result = pj_address_resolve(url, &call.address, err);
    if (result == PJ_OK) pj_call_begin(&call);
    if (result == PJ_OK && !pj_call_wait(&call, until_ns))
        result = pj_fail(err, PJ_E_UNAVAILABLE, "%s", call.failure);
    *status = call.head.status;
    pj_call_fini(&call);
    return result;
}
