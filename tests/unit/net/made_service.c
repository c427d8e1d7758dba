#include "made_service.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static pj_status resolve(void *context, const char *text, char id[PJ_UUID_BYTES], pj_error *err)
{
    if (strcmp(text, "last") != 0 && strncmp(MADE_RUN, text, strlen(text)) != 0)
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", text);
    memcpy(id, MADE_RUN, PJ_UUID_BYTES);
    return PJ_OK;
}

static void group(made *m)
{
    int now = atomic_fetch_add(&m->grouping, 1) + 1;
    atomic_fetch_add(&m->grouped, 1);
    for (int most = 0; most < now;)
        if (atomic_compare_exchange_weak(&m->most_grouping, &most, now)) break;
    while (atomic_load(&m->holds_groups)) pj_clock_sleep_until(pj_clock_ns() + PJ_NS_PER_MS);
    atomic_fetch_sub(&m->grouping, 1);
}

/* Records the request, so that tests can check what arrived. */
static pj_status view(void *context, const pj_view_request *r, pj_json *out, uint64_t *total,
                      pj_error *err)
{
    if (r->view == PJ_PRUNE_RUNS && !r->params->count)
        return pj_fail(err, PJ_E_INVALID, "give before=TIME, keep=N, or both");
    if (r->view == PJ_VIEW_GROUPS) group(context);
    if (r->view == PJ_VIEW_CUBE) {
        pj_buffer_append(out->buffer, "PJCUBE1", 8);
        return PJ_OK;
    }
    pj_json_object_begin(out);
    pj_json_kv_int(out, "view", r->view);
    pj_json_kv_string(out, "id", r->id);
    for (uint32_t i = 0; i < r->params->count; i++)
        pj_json_kv_string(out, r->params->items[i].name, r->params->items[i].value);
    pj_json_object_end(out);
    *total = 7;
    return PJ_OK;
}

static pj_status export_run(void *context, const char *id, const char *format,
                            bool without_disturbances, pj_export_write_fn *write,
                            void *write_context, pj_error *err)
{
    made *m = context;
    char block[1000];
    if (strcmp(format, "folded") == 0) return pj_fail(err, PJ_E_UNAVAILABLE, "no energy is known");
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)('a' + i % 26);
    while (atomic_load(&m->exported) < m->export_bytes) {
        if (!write(write_context, block, sizeof block))
            return pj_fail(err, PJ_E_IO, "nobody reads any more");
        atomic_fetch_add(&m->exported, sizeof block);
    }
    return PJ_OK;
}

static pj_status generate(void *context, const pj_generation_request *request,
                          char id[PJ_UUID_BYTES], uint32_t *position, pj_error *err)
{
    made *m = context;
    if (request->prompt && strcmp(request->prompt, "full") == 0)
        return pj_fail(err, PJ_E_FULL, "the queue is full");
    atomic_fetch_add(&m->generated, 1);
    memcpy(id, MADE_RUN, PJ_UUID_BYTES);
    *position = 1;
    return PJ_OK;
}

static pj_status wait_for(void *context, const char *id, pj_json *out, pj_error *err)
{
    made *m = context;
    atomic_fetch_add(&m->waited, 1);
    pj_json_object_begin(out);
    pj_json_kv_string(out, "run_id", id);
    pj_json_object_end(out);
    return PJ_OK;
}

static pj_status cancel(void *context, const char *id, bool *was_waiting, pj_error *err)
{
    return pj_fail(err, PJ_E_STATE, "run %s has already ended", id);
}

static void metrics(void *context, pj_metrics *m)
{
    m->queued = 3;
    m->rail_count = 1;
    snprintf(m->rails[0].rail, sizeof m->rails[0].rail, "odd\"name");
    snprintf(m->rails[0].source, sizeof m->rails[0].source, "hwmon");
    m->rails[0].class_name = "cpu";
    m->rails[0].power_mw = 12500;
    m->rails[0].drawn_mj = 3500;
    for (int p = 0; p < PJ_PHASE_COUNT; p++) m->rails[0].energy_mj[p] = p ? NAN : 250;
    m->sampler_cpu_share = m->sampler_jitter_seconds = NAN;
}

void made_init(made *m)
{
    *m = (made){.service = {.context = m,
                            .resolve = resolve,
                            .view = view,
                            .export_run = export_run,
                            .generate = generate,
                            .wait = wait_for,
                            .cancel = cancel,
                            .metrics = metrics},
                .export_bytes = 2000};
}

static void open_server(made *m, const pj_hub_options *options, bool is_polled, pj_hub **hub,
                        pj_server **server)
{
    static const pj_hub_options none = {0};
    pj_error err = {0};
    if (pj_hub_open(options ? options : &none, hub, &err) ||
        pj_server_open(
            &(pj_server_options){
                .service = &m->service, .hub = *hub, .no_listen = true, .is_polled = is_polled},
            server, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

void made_server(made *m, const pj_hub_options *options, pj_hub **hub, pj_server **server)
{
    open_server(m, options, false, hub, server);
}

void made_server_polled(made *m, pj_hub **hub, pj_server **server)
{
    open_server(m, NULL, true, hub, server);
}

int made_connect(pj_server *server)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return -1;
    if (pj_server_add(server, pair[1], NULL) == PJ_OK) return pair[0];
    close(pair[0]);
    return -1;
}

typedef struct received {
    char *bytes;
    size_t count, capacity;
} received;

/* Receives once; false at the end of the stream, on an error, or after 4 MB. */
static bool receive(int fd, received *r, int flags)
{
    enum { FIRST = 16 << 10, MAX = 4 << 20 };
    if (r->count == r->capacity) {
        if (r->capacity == MAX) return false;
        r->capacity = r->capacity ? r->capacity * 2 : FIRST;
        r->bytes = realloc(r->bytes, r->capacity + 1);
        if (!r->bytes) abort();
    }
    ssize_t n = recv(fd, r->bytes + r->count, r->capacity - r->count, flags);
    if (n > 0) r->count += (size_t)n;
    r->bytes[r->count] = 0;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

char *made_talk(pj_server *server, const void *request, size_t bytes, size_t *got)
{
    received answer = {0};
    int fd = made_connect(server);
    if (fd < 0) abort();
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(fd, (const char *)request + sent, bytes - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += (size_t)n;
    }
    shutdown(fd, SHUT_WR);
    while (receive(fd, &answer, 0)) continue;
    close(fd);
    *got = answer.count;
    return answer.bytes;
}

char *made_talk_polled(pj_server *server, const void *request, size_t bytes, size_t *got)
{
    received answer = {0};
    int fd = made_connect(server);
    if (fd < 0) abort();
    size_t sent = 0;
    bool is_ended = false;
    do {
        ssize_t n = sent < bytes ? send(fd, (const char *)request + sent, bytes - sent,
                                        MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : 0;
        if (n > 0) sent += (size_t)n;
        if (n < 0 && errno != EAGAIN) sent = bytes;
        if (sent == bytes && !is_ended) {
            shutdown(fd, SHUT_WR);
            is_ended = true;
        }
        pj_server_poll(server);
    } while (receive(fd, &answer, MSG_DONTWAIT));
    close(fd);
    pj_server_poll(server);
    *got = answer.count;
    return answer.bytes;
}

int made_status(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}
