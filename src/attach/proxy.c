/* Connections of the proxy, and forwarding of requests to the server. */
#include "attach/poller.h"
#include "attach/proxy_pair.h"

#include "base/clock.h"
#include "base/memory.h"
#include "http/problem.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MOST_SERVED = 1024,
    MOST_REFUSED = 128, /* being told so; more wait to be accepted */
    MOST_PAIRS = MOST_SERVED + MOST_REFUSED,
    MOST_SOCKETS = 2 * MOST_PAIRS + 1,
    READ_BYTES = 64 << 10,
    QUEUE_BYTES = 1 << 20, /* reading pauses while this much waits to be sent */
    IN_BYTES = PJ_HEAD_MAX_BYTES + 2 * READ_BYTES,
    TICK_MS = 10,
    REST_MS = 100 /* between ticks while no pair has anything due soon */
};
_Static_assert((int)MOST_SOCKETS < (int)PJ_PROXY_FILES, "the caller provides for all of them");
#define HEAD_NS   (20 * PJ_NS_PER_S)  /* to receive the head of a request */
#define IDLE_NS   (120 * PJ_NS_PER_S) /* between requests */
#define HOLD_NS   (20 * PJ_NS_PER_MS) /* for the rest of an incomplete chunk */
#define ENDED_NS  (600 * PJ_NS_PER_S) /* for an answer to a client that sends nothing more */
#define FINAL_NS  (5 * PJ_NS_PER_S)   /* for the sensors to cover the end of a request */
#define CLOSE_NS  (10 * PJ_NS_PER_S)  /* for a client to receive the remaining bytes */
#define LINGER_NS (2 * PJ_NS_PER_S)   /* and to close its end */

typedef struct proxy {
    const pj_proxy_options *o;
    pj_address address;
    pj_pair *pairs[MOST_PAIRS];
    uint32_t count, refused; /* refused: for want of room */
    pj_poller *poller;
    bool is_listening;
    pj_ready ready[MOST_SOCKETS];
    pj_pair *listed[MOST_PAIRS]; /* with events in this turn */
    uint32_t listed_count;
    int64_t deaf_until_ns; /* out of file descriptors */
    bool is_due;           /* a pair holds bytes back until a time */
    char scratch[READ_BYTES];
} proxy;

/* ---- pairs ---------------------------------------------------------------------------------- */

static pj_pair *new_pair(const pj_proxy_options *options, int fd)
{
    pj_pair *p = pj_alloc(1, sizeof *p);
    if (!p) return NULL;
    p->options = options;
    p->client = fd;
    p->server = -1;
    p->at_client.pair = p->at_server.pair = p;
    p->since_ns = p->heard_ns = pj_clock_ns();
    pj_peer_address(fd, p->address, sizeof p->address);
    pj_buffer_init(&p->in, IN_BYTES);
    pj_buffer_init(&p->to_client.bytes, 1u << 30);
    pj_buffer_init(&p->to_server.bytes, 1u << 30);
    pj_buffer_init(&p->body, PJ_PAIR_BODY_BYTES);
    pj_buffer_init(&p->unseen, 2 * READ_BYTES);
    pj_buffer_init(&p->head, IN_BYTES);
    pj_hidden_init(&p->secrets);
    pj_buffer_init(&p->hold, PJ_PAIR_WHOLE_BYTES + (1 << 20));
    pj_buffer_init(&p->late, 1 << 24);
    return p;
}

static void proxy_hang_up(proxy *x, int *fd, pj_pair_watch *watch)
{
    if (*fd < 0) return;
    pj_poller_set(x->poller, *fd, watch->watched, 0, NULL);
    watch->watched = 0;
    close(*fd);
    *fd = -1;
}

static void hang_up_server(proxy *x, pj_pair *p)
{
    proxy_hang_up(x, &p->server, &p->at_server);
    p->server_reported = false;
}

static const char client_left[] = "the client closed the connection";

static void drop_request(proxy *x, pj_pair *p, pj_exchange_outcome outcome, const char *why)
{
    const pj_proxy_hooks *hooks = &x->o->hooks;
    pj_pair_end_exchange(p, outcome, why, pj_clock_ns());
    if (p->request_hook) hooks->release(hooks->context, p->request_hook);
    p->request_hook = NULL;
}

static void free_pair(proxy *x, pj_pair *p, const char *why)
{
    drop_request(x, p, PJ_EXCHANGE_CANCELLED, why);
    proxy_hang_up(x, &p->client, &p->at_client);
    hang_up_server(x, p);
    pj_buffer_fini(&p->in);
    pj_buffer_fini(&p->to_client.bytes);
    pj_buffer_fini(&p->to_server.bytes);
    pj_buffer_fini(&p->body);
    pj_buffer_fini(&p->unseen);
    pj_buffer_fini(&p->head);
    pj_hidden_fini(&p->secrets);
    pj_buffer_fini(&p->hold);
    pj_buffer_fini(&p->late);
    pj_free(p);
}

static void proxy_enter(pj_pair *p, pj_pair_state state)
{
    p->state = state;
    p->since_ns = pj_clock_ns();
}

static size_t left_of(const pj_outgoing *out)
{
    return out->bytes.length - out->sent;
}

/* ---- answers made by the proxy -------------------------------------------------------------- */

/* Sends a problem document and closes the connection. */
static void proxy_refuse(proxy *x, pj_pair *p, int status, const char *detail)
{
    char text[PJ_PROBLEM_BYTES];
    const char *lines = status == 401   ? "WWW-Authenticate: Bearer\r\n"
                        : status == 503 ? "Retry-After: 1\r\n"
                                        : "";
    size_t bytes = pj_problem_write(text, status, detail, lines, false);
    pj_pair_queue(&p->to_client, text, bytes);
    hang_up_server(x, p);
    proxy_enter(p, PJ_PAIR_CLOSING);
}

/* The server failed. Before any byte of the answer was forwarded the client gets an error; later
 * its connection is aborted, as the server's was. */
static void server_failed(proxy *x, pj_pair *p, const char *what, int why)
{
    char text[256], authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(x->o->url, authority, sizeof authority);
    snprintf(text, sizeof text, "%s %s%s%s", what, authority, why ? ": " : "",
             why ? strerror(why) : "");
    bool untold = !p->has_head;
    pj_pair_pass_what_came(p);
    /* A server that stops once its client sends nothing more takes that for leaving. */
    if (p->server_reported)
        drop_request(x, p, PJ_EXCHANGE_CANCELLED, client_left);
    else
        drop_request(x, p, PJ_EXCHANGE_FAILED, text);
    untold &= !p->server_reported;
    hang_up_server(x, p);
    if (untold)
        proxy_refuse(x, p, 502, text);
    else
        proxy_enter(p, PJ_PAIR_CLOSING);
}

/* ---- requests ------------------------------------------------------------------------------- */

static const char *field_text(const pj_pair *p, const char *name, char *text, size_t size)
{
    size_t bytes;
    const char *value = pj_head_find(pj_buffer_get(&p->in), p->request.bytes, name, &bytes);
    if (!value) return NULL;
    snprintf(text, size, "%.*s", (int)bytes, value);
    return text;
}

static bool admit(proxy *x, pj_pair *p)
{
    const pj_proxy_hooks *hooks = &x->o->hooks;
    char host[300], origin[300], authorization[2048], token[300];
    const char *detail = "";
    int status = hooks->admit(hooks->context, field_text(p, "host", host, sizeof host),
                              field_text(p, "origin", origin, sizeof origin),
                              field_text(p, "authorization", authorization, sizeof authorization),
                              field_text(p, "x-perjoule-token", token, sizeof token), &detail);
    if (status) proxy_refuse(x, p, status, detail);
    return !status;
}

static bool is_path(const pj_pair *p, const char *path)
{
    size_t bytes = strlen(path);
    return p->request.target_bytes >= bytes && memcmp(p->request.target, path, bytes) == 0 &&
           (p->request.target_bytes == bytes || p->request.target[bytes] == '?');
}

/* GET /metrics. True: it has been answered. */
static bool answer_metrics(proxy *x, pj_pair *p)
{
    char head[160];
    pj_buffer text;
    if (!x->o->hooks.metrics || strcmp(p->request.method, "GET") != 0 || !is_path(p, "/metrics"))
        return false;
    pj_buffer_init(&text, 4 << 20);
    x->o->hooks.metrics(x->o->hooks.context, &text);
    int bytes = snprintf(head, sizeof head,
                         "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                         "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                         text.length);
    pj_pair_queue(&p->to_client, head, (size_t)bytes);
    pj_pair_queue(&p->to_client, pj_buffer_get(&text), text.length);
    pj_buffer_fini(&text);
    hang_up_server(x, p);
    proxy_enter(p, PJ_PAIR_CLOSING);
    return true;
}

/* The path at the server: adds the server's prefix unless the path has it. */
static bool set_target(const proxy *x, pj_pair *p)
{
    char text[sizeof p->target];
    const char *prefix = x->o->url->prefix, *target = text;
    size_t n = strlen(prefix);
    if (p->request.target_bytes >= sizeof text) return false;
    if (x->o->hooks.metrics && is_path(p, "/upstream/metrics")) { /* at the server's root */
        snprintf(p->target, sizeof p->target, "/metrics");
        return true;
    }
    snprintf(text, sizeof text, "%.*s", (int)p->request.target_bytes, p->request.target);
    bool has = strncmp(target, prefix, n) == 0 && (!target[n] || strchr("/?", target[n]));
    if (strncmp(target, "http://", 7) == 0) { /* absolute form of the request target */
        const char *path = strchr(target + 7, '/');
        target = path ? path : "/";
    }
    return (size_t)snprintf(p->target, sizeof p->target, "%s%s", has ? "" : prefix, target) <
           sizeof p->target;
}

static bool is_ours(const proxy *x, const pj_head_field *line)
{
    char value[2048];
    if (pj_field_is(line, "X-Perjoule-Token") || pj_field_is(line, "X-Energy") ||
        pj_field_is(line, "X-Energy-Wait") || pj_field_is(line, "X-Energy-Fields"))
        return true;
    if (!pj_field_is(line, "Authorization")) return false;
    snprintf(value, sizeof value, "%.*s", (int)line->value_bytes, line->value);
    return x->o->hooks.is_own_token(x->o->hooks.context, value);
}

static void queue_request_head(const proxy *x, pj_pair *p)
{
    char line[PJ_URL_HOST_BYTES + 2200], authority[PJ_URL_AUTHORITY_BYTES];
    const char *head = pj_buffer_get(&p->in);
    pj_head_field field;
    pj_hidden_fini(&p->secrets);
    pj_hidden_init(&p->secrets);
    pj_hidden_take(&p->secrets, head, p->request.bytes);
    int n = snprintf(line, sizeof line, "%s %s HTTP/1.%d\r\n", p->request.method, p->target,
                     p->request.minor);
    pj_pair_queue(&p->to_server, line, (size_t)n);
    pj_url_authority(x->o->url, authority, sizeof authority);
    for (size_t at = 0; pj_head_next(head, p->request.bytes, &at, &field);) {
        if (is_ours(x, &field)) continue;
        if (p->inference && pj_field_is(&field, "Accept-Encoding")) continue; /* kept for parsing */
        if (pj_field_is(&field, "Host")) {
            n = snprintf(line, sizeof line, "Host: %s\r\n", authority);
            pj_pair_queue(&p->to_server, line, (size_t)n);
        } else {
            pj_pair_queue(&p->to_server, field.line, field.line_bytes);
        }
    }
    pj_pair_queue(&p->to_server, "\r\n", 2);
}

static void read_wishes(pj_pair *p)
{
    char text[300];
    const char *te = field_text(p, "te", text, sizeof text);
    p->takes_trailers = te && pj_field_has(te, strlen(te), "trailers");
    const char *wait = field_text(p, "x-energy-wait", text, sizeof text);
    p->wants_wait = wait && strcmp(wait, "1") == 0;
    const char *energy = field_text(p, "x-energy", text, sizeof text);
    p->wants_none = energy && strcmp(energy, "none") == 0;
    if (!field_text(p, "x-session-id", p->session, sizeof p->session)) p->session[0] = 0;
    if (!field_text(p, "x-client-id", p->named, sizeof p->named)) p->named[0] = 0;
}

/* A list that cannot be read refuses the request: its client would look for the fields in vain. */
static bool read_fields(proxy *x, pj_pair *p)
{
    char list[512];
    pj_error err = {0};
    p->fields = x->o->fields ? *x->o->fields : (pj_energy_fields){.count = 0};
    const char *asked = field_text(p, "x-energy-fields", list, sizeof list);
    if (!asked || pj_energy_fields_add(&p->fields, asked, &err) == PJ_OK) return true;
    proxy_refuse(x, p, 400, err.text);
    return false;
}

static void connect_pair(proxy *x, pj_pair *p)
{
    p->server_used = p->server >= 0;
    if (p->server >= 0) return;
    p->server = pj_dial(&x->address);
    p->connecting = p->server >= 0;
    if (p->server < 0) server_failed(x, p, "cannot connect to", errno);
}

static void begin_exchange(proxy *x, pj_pair *p)
{
    const pj_proxy_hooks *hooks = &x->o->hooks;
    if (!p->inference || p->exchange || p->ended) return;
    p->exchange = pj_exchange_new(p->request.method, p->target, pj_buffer_get(&p->body),
                                  p->body.length, pj_clock_ns());
    if (p->exchange) {
        pj_exchange_set_session(p->exchange, p->session);
        pj_exchange_set_client(p->exchange, p->address, false);
        pj_exchange_set_client(p->exchange, p->named, true);
    }
    if (p->exchange && p->secrets.values.length)
        pj_buffer_append(&p->exchange->hidden.values, p->secrets.values.data,
                         p->secrets.values.length);
    if (p->exchange) p->request_hook = hooks->begin(hooks->context, p->exchange);
    pj_buffer_fini(&p->body);
    pj_buffer_init(&p->body, PJ_PAIR_BODY_BYTES);
}

static void request_sent(proxy *x, pj_pair *p)
{
    begin_exchange(x, p);
    proxy_enter(p, PJ_PAIR_ANSWER);
}

/* Forwards those of the client's bytes that belong to the request's body. */
static void take_request_body(proxy *x, pj_pair *p)
{
    size_t used = 0;
    while (used < p->in.length && !p->request_body.done) {
        const char *at = p->in.data + used;
        pj_body_part part = pj_body_next(&p->request_body, at, p->in.length - used);
        if (part.kind == PJ_PART_BROKEN) {
            drop_request(x, p, PJ_EXCHANGE_FAILED, "the request's chunks were malformed");
            proxy_refuse(x, p, 400, "malformed chunks");
            return;
        }
        if (part.kind == PJ_PART_DATA && p->inference) pj_buffer_append(&p->body, at, part.bytes);
        pj_pair_queue(&p->to_server, at, part.bytes);
        used += part.bytes;
    }
    memmove(p->in.data, p->in.data + used, p->in.length - used);
    p->in.length -= used;
    if (p->request_body.done) request_sent(x, p);
}

static void proxy_take_request(proxy *x, pj_pair *p)
{
    pj_head_fault fault;
    if (p->state == PJ_PAIR_REQUEST) {
        if (p->in.length) take_request_body(x, p);
        return;
    }
    if (p->state != PJ_PAIR_IDLE || !p->in.length) return;
    pj_head_verdict verdict =
        pj_head_parse(p->in.data, p->in.length, true, PJ_HEAD_MAX_BYTES, &p->request, &fault);
    if (verdict == PJ_HEAD_BAD) proxy_refuse(x, p, fault.status, fault.detail);
    if (verdict != PJ_HEAD_COMPLETE || !admit(x, p)) return;
    if (p->request.upgrades || strcmp(p->request.method, "CONNECT") == 0) {
        proxy_refuse(x, p, 501, "the proxy accepts plain HTTP requests only");
        return;
    }
    if (answer_metrics(x, p)) return;
    if (!set_target(x, p)) {
        proxy_refuse(x, p, 414, "the address is too long");
        return;
    }
    p->inference = pj_exchange_is_inference(p->request.method, p->target);
    p->has_head = p->ended = false;
    p->wants_wait = p->wants_none = p->takes_trailers = false;
    pj_buffer_clear(&p->head);
    read_wishes(p);
    if (!read_fields(x, p)) return;
    queue_request_head(x, p);
    pj_body_begin(&p->request_body, p->request.body, p->request.length);
    memmove(p->in.data, p->in.data + p->request.bytes, p->in.length - p->request.bytes);
    p->in.length -= p->request.bytes;
    proxy_enter(p, PJ_PAIR_REQUEST);
    connect_pair(x, p);
    if (p->state == PJ_PAIR_REQUEST && p->request_body.done)
        request_sent(x, p);
    else if (p->state == PJ_PAIR_REQUEST)
        take_request_body(x, p);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* False: the peer has disconnected. */
static bool send_queue(int fd, pj_outgoing *out)
{
    while (left_of(out)) {
        ssize_t n = send(fd, out->bytes.data + out->sent, left_of(out), MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n < 0) return false;
        out->sent += (size_t)n;
    }
    pj_buffer_clear(&out->bytes);
    out->sent = 0;
    return !out->bytes.failed;
}

/* True when the pair is over. */
static bool send_to_client(pj_pair *p)
{
    if (!send_queue(p->client, &p->to_client)) return true;
    if (p->state == PJ_PAIR_CLOSING && !left_of(&p->to_client) && p->client_ended) return true;
    if (p->state == PJ_PAIR_CLOSING && !left_of(&p->to_client) && !p->shut) {
        p->shut = true; /* input is drained until the client closes */
        shutdown(p->client, SHUT_WR);
        p->since_ns = pj_clock_ns();
    }
    return false;
}

/* ---- the answer ----------------------------------------------------------------------------- */

static void answer_done(proxy *x, pj_pair *p)
{
    bool keep = p->answer.keep_alive && p->request.keep_alive && p->request_body.done;
    drop_request(x, p, PJ_EXCHANGE_COMPLETED, NULL);
    if (!keep) hang_up_server(x, p);
    p->server_used = true;
    proxy_enter(p, keep ? PJ_PAIR_IDLE : PJ_PAIR_CLOSING);
    if (keep) proxy_take_request(x, p);
    if (p->state == PJ_PAIR_IDLE && p->client_ended) proxy_enter(p, PJ_PAIR_CLOSING);
}

static void after_step(proxy *x, pj_pair *p, pj_answer_step step)
{
    if (step == PJ_STEP_DONE) answer_done(x, p);
    if (step == PJ_STEP_BROKEN) server_failed(x, p, "the answer broke off at", 0);
    if (step == PJ_STEP_WAIT) {
        pj_pair_end_exchange(p, PJ_EXCHANGE_COMPLETED, NULL, pj_clock_ns());
        proxy_enter(p, PJ_PAIR_WAITING);
    }
}

static void take_answer(proxy *x, pj_pair *p, const char *bytes, size_t count, int64_t now_ns)
{
    pj_head_fault fault;
    while (!p->has_head) {
        if (count) pj_buffer_append(&p->head, bytes, count);
        count = 0;
        pj_head_verdict verdict = pj_head_parse(pj_buffer_get(&p->head), p->head.length, false,
                                                PJ_HEAD_MAX_BYTES, &p->answer, &fault);
        if (verdict == PJ_HEAD_BAD) server_failed(x, p, "no HTTP response from", 0);
        if (verdict != PJ_HEAD_COMPLETE) return;
        size_t head = p->answer.bytes;
        if (p->answer.status < 200) { /* 100 Continue: the final response follows */
            pj_pair_queue(&p->to_client, p->head.data, head);
            memmove(p->head.data, p->head.data + head, p->head.length - head);
            p->head.length -= head;
            continue;
        }
        begin_exchange(x, p); /* the answer began before the request was complete */
        pj_pair_take_head(p);
        bytes = p->head.data + head;
        count = p->head.length - head;
    }
    pj_answer_step step =
        p->answer_body.done ? PJ_STEP_DONE : pj_pair_take_body(p, bytes, count, now_ns);
    after_step(x, p, step);
}

/* The server closed a kept-alive connection before answering: the request is sent once more on a
 * new one. Its bytes are still queued if none were sent. */
static bool try_again(proxy *x, pj_pair *p)
{
    bool whole = left_of(&p->to_server) && !p->to_server.sent;
    if (!p->server_used || p->has_head || p->head.length || !whole) return false;
    hang_up_server(x, p);
    connect_pair(x, p);
    return p->server >= 0;
}

static void receive_from_server(proxy *x, pj_pair *p)
{
    ssize_t n = recv(p->server, x->scratch, READ_BYTES, 0);
    int64_t now_ns = pj_clock_ns();
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) {
        p->heard_ns = now_ns;
        if (p->state == PJ_PAIR_IDLE) /* no request is pending */
            hang_up_server(x, p);
        else
            take_answer(x, p, x->scratch, (size_t)n, now_ns);
        return;
    }
    int why = n < 0 ? errno : 0;
    if (p->state == PJ_PAIR_IDLE) {
        hang_up_server(x, p);
        return;
    }
    if (try_again(x, p)) return;
    pj_answer_step step = n == 0 ? pj_pair_take_end(p, now_ns) : PJ_STEP_BROKEN;
    if (step == PJ_STEP_BROKEN)
        server_failed(x, p,
                      p->has_head ? "the answer broke off, connection closed by"
                                  : "connection closed by",
                      why);
    else
        after_step(x, p, step);
}

/* False: the client has disconnected. */
static bool receive_from_client(proxy *x, pj_pair *p)
{
    size_t room = IN_BYTES - 1 - p->in.length;
    if (room > READ_BYTES) room = READ_BYTES;
    ssize_t n = recv(p->client, x->scratch, room, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) {
        /* What it asked for is still answered: it may have closed its sending side alone. */
        p->client_ended = n == 0 && !p->client_ended && p->state != PJ_PAIR_IDLE && !p->shut;
        return p->client_ended;
    }
    p->heard_ns = pj_clock_ns();
    if (p->state == PJ_PAIR_CLOSING)
        return true; /* the input is drained so that our answer arrives */
    pj_buffer_append(&p->in, x->scratch, (size_t)n);
    proxy_take_request(x, p);
    return true;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static bool reads_client(const pj_pair *p)
{
    if (p->client_ended) return false;
    if (p->in.length + READ_BYTES >= IN_BYTES) return false;
    return left_of(&p->to_server) < QUEUE_BYTES;
}

static bool reads_server(const pj_pair *p)
{
    return !p->connecting && p->state != PJ_PAIR_WAITING && left_of(&p->to_client) < QUEUE_BYTES;
}

static void step_server(proxy *x, pj_pair *p, short events)
{
    if (p->server < 0 || !events) return;
    if (p->connecting) {
        int why = pj_dial_error(p->server);
        if (why) {
            server_failed(x, p, "cannot connect to", why);
            return;
        }
        p->connecting = false;
    }
    bool writable = events & (POLLOUT | POLLERR | POLLHUP);
    if (writable && left_of(&p->to_server) && !send_queue(p->server, &p->to_server) &&
        !try_again(x, p) && !(events & POLLIN)) {
        server_failed(x, p, "cannot send to", errno);
        return;
    }
    if (p->server >= 0 && !p->connecting && reads_server(p) &&
        (events & (POLLIN | POLLHUP | POLLERR)))
        receive_from_server(x, p);
}

/* Passes the end of what the client sends on, as a direct connection would. */
static void proxy_notify_server(pj_pair *p)
{
    bool more = p->in.length || left_of(&p->to_server) || p->connecting;
    if (!p->client_ended || p->server_reported || p->server < 0 || more) return;
    p->server_reported = shutdown(p->server, SHUT_WR) == 0;
}

/* True when the pair is over. */
static bool step_pair(proxy *x, pj_pair *p)
{
    short client_events = p->at_client.came;
    step_server(x, p, p->at_server.came);
    if (p->client_ended && (client_events & (POLLHUP | POLLERR))) return true;
    if ((client_events & (POLLIN | POLLHUP | POLLERR)) && !receive_from_client(x, p)) return true;
    if (p->server >= 0 && !p->connecting && left_of(&p->to_server) &&
        !send_queue(p->server, &p->to_server) && !try_again(x, p))
        server_failed(x, p, "cannot send to", errno);
    proxy_notify_server(p);
    return send_to_client(p);
}

/* True when the pair is over. */
static bool check_time(proxy *x, pj_pair *p, int64_t now_ns)
{
    int64_t in_state = now_ns - p->since_ns;
    const pj_proxy_hooks *hooks = &x->o->hooks;
    if (p->state == PJ_PAIR_IDLE && p->in.length)
        return in_state > IDLE_NS + HEAD_NS || now_ns - p->heard_ns > HEAD_NS;
    if (p->state == PJ_PAIR_IDLE) return in_state > IDLE_NS;
    if (p->state == PJ_PAIR_CLOSING) return in_state > (p->shut ? LINGER_NS : CLOSE_NS);
    if (p->state == PJ_PAIR_REQUEST) return now_ns - p->heard_ns > IDLE_NS;
    if (p->client_ended && now_ns - p->heard_ns > ENDED_NS) return true;
    if (p->state == PJ_PAIR_ANSWER && p->hold.length && now_ns - p->hold_ns > HOLD_NS)
        pj_pair_flush_hold(p);
    if (p->state != PJ_PAIR_WAITING) return false;
    pj_proxy_energy e = p->request_hook
                            ? hooks->energy(hooks->context, p->request_hook, p->ended_ns)
                            : (pj_proxy_energy){.provisional = false};
    if (e.provisional && in_state < FINAL_NS) return false;
    proxy_enter(p, PJ_PAIR_ANSWER);
    after_step(x, p, pj_pair_go_on(p, p->ended_ns));
    return send_to_client(p);
}

static bool holds_back(const pj_pair *p)
{
    return p->state == PJ_PAIR_WAITING || p->hold.length;
}

/* Waits for what the pair can go on with now. A socket that nothing is expected of is not watched:
 * a closed one would be reported by every wait. */
static void watch(proxy *x, pj_pair *p)
{
    short client = (short)((reads_client(p) ? POLLIN : 0) | (left_of(&p->to_client) ? POLLOUT : 0));
    short server = (short)((reads_server(p) ? POLLIN : 0) |
                           (p->connecting || left_of(&p->to_server) ? POLLOUT : 0));
    if (p->client >= 0 &&
        pj_poller_set(x->poller, p->client, p->at_client.watched, client, &p->at_client))
        p->at_client.watched = client;
    if (p->server >= 0 &&
        pj_poller_set(x->poller, p->server, p->at_server.watched, server, &p->at_server))
        p->at_server.watched = server;
    x->is_due |= holds_back(p);
}

static void remove_pair(proxy *x, pj_pair *p)
{
    pj_pair *last = x->pairs[--x->count];
    x->pairs[p->index] = last;
    last->index = p->index;
    x->refused -= p->is_refused;
    free_pair(x, p, client_left);
}

static void refuse_for_room(proxy *x, pj_pair *p)
{
    char text[80];
    snprintf(text, sizeof text, "the proxy already serves %d connections", MOST_SERVED);
    p->is_refused = true;
    x->refused++;
    proxy_refuse(x, p, 503, text);
}

static void proxy_accept_all(proxy *x)
{
    while (x->count < MOST_PAIRS) {
        int fd = pj_accept(x->o->listener);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                x->deaf_until_ns = pj_clock_ns() + 100 * PJ_NS_PER_MS;
            return;
        }
        pj_pair *p = new_pair(x->o, fd);
        if (!p) {
            close(fd);
            continue;
        }
        p->index = x->count;
        x->pairs[x->count++] = p;
        if (x->count - x->refused > MOST_SERVED) refuse_for_room(x, p);
        watch(x, p);
    }
}

static void listen_or_not(proxy *x, int64_t now_ns)
{
    bool listens = now_ns >= x->deaf_until_ns && x->count < MOST_PAIRS;
    if (listens != x->is_listening &&
        pj_poller_set(x->poller, x->o->listener, x->is_listening ? POLLIN : 0, listens ? POLLIN : 0,
                      NULL))
        x->is_listening = listens;
}

/* Both connections of a pair may be ready: collects the pairs, each once. True: so is the
 * listener. */
static bool list_ready(proxy *x, uint32_t count)
{
    bool knocks = false;
    x->listed_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        pj_pair_watch *at = x->ready[i].tag;
        if (!at) {
            knocks = true;
            continue;
        }
        at->came |= x->ready[i].events;
        if (at->pair->is_listed) continue;
        at->pair->is_listed = true;
        x->listed[x->listed_count++] = at->pair;
    }
    return knocks;
}

/* Forwards for all pairs first; then the answers are parsed. */
static void step_listed(proxy *x)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < x->listed_count; i++) {
        pj_pair *p = x->listed[i];
        bool over = step_pair(x, p);
        p->is_listed = false;
        p->at_client.came = p->at_server.came = 0;
        if (over)
            remove_pair(x, p);
        else
            x->listed[left++] = p;
    }
    for (uint32_t i = 0; i < left; i++) {
        pj_pair_poll(x->listed[i]);
        watch(x, x->listed[i]);
    }
}

static void proxy_tick(proxy *x, int64_t now_ns)
{
    x->is_due = false;
    for (uint32_t i = x->count; i-- > 0;) {
        pj_pair *p = x->pairs[i];
        if (check_time(x, p, now_ns)) {
            remove_pair(x, p);
        } else {
            pj_pair_poll(p);
            watch(x, p);
        }
    }
}

static void proxy_turn(proxy *x, int64_t *tick_ns)
{
    uint32_t ready =
        pj_poller_wait(x->poller, x->ready, MOST_SOCKETS, x->is_due ? TICK_MS : REST_MS);
    int64_t now_ns = pj_clock_ns();
    bool knocks = list_ready(x, ready);
    step_listed(x);
    if (now_ns - *tick_ns >= TICK_MS * PJ_NS_PER_MS) {
        *tick_ns = now_ns;
        proxy_tick(x, now_ns);
    }
    if (knocks) proxy_accept_all(x);
    listen_or_not(x, now_ns);
}

pj_status pj_proxy_run(const pj_proxy_options *options, pj_error *err)
{
    proxy *x = pj_alloc(1, sizeof *x);
    pj_poller *poller = pj_poller_new(MOST_SOCKETS);
    int64_t tick_ns = 0;
    if (!x || !poller) {
        pj_free(x);
        pj_poller_free(poller);
        return pj_fail_memory(err, "a proxy");
    }
    x->o = options;
    x->poller = poller;
    pj_status status = pj_address_resolve(options->url, &x->address, err);
    listen_or_not(x, pj_clock_ns());
    while (status == PJ_OK && !atomic_load(options->stop)) proxy_turn(x, &tick_ns);
    while (x->count) free_pair(x, x->pairs[--x->count], "the proxy was stopped");
    listen_or_not(x, INT64_MIN);
    pj_poller_free(poller);
    pj_free(x);
    return status;
}
