#include "attach/client.h"

#include "base/clock.h"
#include "base/memory.h"
#include "http/call.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>

enum { TICK_MS = 50, ANSWER_MAX_BYTES = 1 << 30 };
#define PATIENCE_NS (600 * PJ_NS_PER_S) /* without any byte received */

/* A connection, and the request on it. */
typedef struct lane {
    pj_call call;
    pj_exchange *exchange; /* NULL: free for the next request */
    void *request;
    bool has_heard; /* payload, in this turn */
    size_t bytes;   /* of the answer so far */
} lane;

typedef struct client {
    const pj_client_options *options;
    uint32_t next, ended;
    uint32_t count;
    lane *lanes;
    struct pollfd *polls;
} client;

/* ---- a request ------------------------------------------------------------------------------ */

static void lane_take_head(void *context)
{
    lane *l = context;
    size_t type_bytes, coding_bytes;
    const char *head = l->call.in.data;
    const char *type = pj_head_find(head, l->call.head.bytes, "content-type", &type_bytes);
    const char *coding = pj_head_find(head, l->call.head.bytes, "content-encoding", &coding_bytes);
    pj_exchange_head(l->exchange, l->call.head.status, type, type_bytes, coding != NULL);
}

static bool lane_take_body(void *context, const char *bytes, size_t count)
{
    lane *l = context;
    pj_exchange_payload(l->exchange, bytes, count, l->call.heard_ns);
    l->has_heard = true;
    l->bytes += count;
    return l->bytes <= ANSWER_MAX_BYTES && !l->exchange->overflowed; /* no answer is endless */
}

static void client_finish(client *k, lane *l, pj_exchange_outcome outcome, const char *why)
{
    const pj_client_hooks *hooks = &k->options->hooks;
    pj_exchange_end(l->exchange, outcome, why, pj_clock_ns());
    hooks->end(hooks->context, l->request, l->exchange);
    l->exchange = NULL;
    k->ended++;
}

/* Reports what the call's last step has brought. */
static void client_report(client *k, lane *l)
{
    const pj_client_hooks *hooks = &k->options->hooks;
    if (l->has_heard) hooks->progress(hooks->context, l->request);
    l->has_heard = false;
    if (l->call.state == PJ_CALL_DONE) client_finish(k, l, PJ_EXCHANGE_COMPLETED, NULL);
    if (l->call.state == PJ_CALL_FAILED) client_finish(k, l, PJ_EXCHANGE_FAILED, l->call.failure);
}

static void client_begin(client *k, lane *l)
{
    const pj_client_options *o = k->options;
    size_t bytes;
    uint32_t index = k->next++;
    const char *body = o->hooks.body(o->hooks.context, index, &bytes);
    l->exchange = pj_exchange_new("POST", o->path, body, bytes, pj_clock_ns());
    if (!l->exchange) {
        k->ended++;
        return;
    }
    pj_call_write(&l->call, "POST", o->path);
    pj_buffer_printf(&l->call.out,
                     "Content-Type: application/json\r\n"
                     "Accept: text/event-stream, application/json\r\n%s"
                     "Content-Length: %zu\r\n\r\n",
                     o->headers ? o->headers : "", bytes);
    pj_hidden_take(&l->exchange->hidden, l->call.out.data, l->call.out.length);
    pj_buffer_append(&l->call.out, body, bytes);
    l->exchange->must_be_read = true;
    l->bytes = 0;
    l->request = o->hooks.begin(o->hooks.context, index, l->exchange);
    pj_call_begin(&l->call);
    client_report(k, l);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static bool client_is_cancelled(client *k)
{
    const _Atomic bool *cancel = k->options->cancel;
    if (!cancel || !atomic_load(cancel)) return false;
    for (uint32_t i = 0; i < k->count; i++)
        if (k->lanes[i].exchange)
            client_finish(k, &k->lanes[i], PJ_EXCHANGE_CANCELLED, "interrupted");
    return true;
}

static void client_end_overdue(client *k, int64_t now_ns)
{
    for (uint32_t i = 0; i < k->count; i++) {
        lane *l = &k->lanes[i];
        if (!l->exchange || now_ns - l->call.heard_ns <= PATIENCE_NS) continue;
        pj_call_fail(&l->call, "nothing came from", 0);
        client_report(k, l);
    }
}

static void client_turn(client *k)
{
    lane *polled[PJ_CLIENT_CONCURRENCY_MAX];
    nfds_t n = 0;
    for (uint32_t i = 0; i < k->count; i++) {
        lane *l = &k->lanes[i];
        while (!l->exchange && k->next < k->options->requests) client_begin(k, l);
        if (!l->exchange) continue;
        k->polls[n] = (struct pollfd){.fd = l->call.fd, .events = pj_call_events(&l->call)};
        polled[n++] = l;
    }
    if (poll(k->polls, n, TICK_MS) <= 0) return;
    for (nfds_t i = 0; i < n; i++) {
        if (!k->polls[i].revents) continue;
        pj_call_step(&polled[i]->call, k->polls[i].revents);
        client_report(k, polled[i]);
    }
}

static void client_release(client *k)
{
    for (uint32_t i = 0; k->lanes && i < k->count; i++) pj_call_fini(&k->lanes[i].call);
    pj_free(k->lanes);
    pj_free(k->polls);
}

static pj_status client_prepare(client *k, pj_error *err)
{
    const pj_client_options *o = k->options;
    pj_address address;
    k->count =
        o->concurrency < PJ_CLIENT_CONCURRENCY_MAX ? o->concurrency : PJ_CLIENT_CONCURRENCY_MAX;
    if (!k->count) k->count = 1;
    k->lanes = pj_alloc(k->count, sizeof *k->lanes);
    k->polls = pj_alloc(k->count, sizeof *k->polls);
    if (!k->lanes || !k->polls) return pj_fail_memory(err, "a client");
    pj_status status = pj_address_resolve(o->url, &address, err);
    for (uint32_t i = 0; i < k->count; i++) {
        pj_call *call = &k->lanes[i].call;
        pj_call_init(call, o->url);
        call->address = address;
        call->context = &k->lanes[i];
        call->take_head = lane_take_head;
        call->take_body = lane_take_body;
    }
    return status;
}

pj_status pj_client_run(const pj_client_options *options, pj_error *err)
{
    client k = {.options = options};
    pj_status status = client_prepare(&k, err);
    while (status == PJ_OK && k.ended < options->requests) {
        client_turn(&k);
        client_end_overdue(&k, pj_clock_ns());
        if (client_is_cancelled(&k)) status = pj_fail(err, PJ_E_CANCELLED, "interrupted");
    }
    client_release(&k);
    return status;
}
