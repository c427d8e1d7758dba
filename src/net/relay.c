#include "net/relay.h"

#include "base/memory.h"
#include "base/thread.h"
#include "http/websocket.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOK_MS = 250,
    UNWATCHED_NS = 3 * 1000 * 1000 * 1000LL, /* then the machine's stream is closed */
    SILENT_NS = 60 * 1000 * 1000 * 1000LL,   /* machines ping every 20 s */
    RETRY_NS = 1000 * 1000 * 1000LL,
    FORGET_NS = 60 * 1000 * 1000 * 1000LL, /* longer than a handshake may hold a machine's hub */
    SWEEP_MS = 10000,
    RING_BYTES = 4 << 20,
    RING_MESSAGES = 8192
};

typedef struct machine {
    pj_relay *relay;
    char name[PJ_RELAY_NAME_BYTES], key[PJ_RELAY_KEY_BYTES];
    int idle_fd;    /* idle connection of the machine; -1: none */
    int watched_fd; /* -1: none */
    pj_hub *hub;    /* NULL: never watched yet */
    pthread_t thread;
    bool has_thread, is_streaming;
    int64_t watched_ns; /* when there was last a watcher, or one arrived */
    pj_buffer hello;    /* the machine's own members of `hello` */
} machine;

struct pj_relay {
    pthread_mutex_t mutex; /* guards everything but the hubs */
    pthread_cond_t closes;
    machine *machines[PJ_RELAY_MACHINES];
    uint32_t count, watched;
    bool closing;
    int wake[2]; /* self-pipe of the sweeper: there is another idle connection, or it must end */
    pthread_t sweeper;
    bool is_swept;
};

/* ---- sockets --------------------------------------------------------------------------------- */

static void keep_alive(int fd)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef TCP_KEEPIDLE
    int idle_s = 30, probe_s = 10, probes = 3; /* a machine that lost power is gone in a minute */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof probe_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
#endif
}

static bool is_connected(int fd)
{
    char byte;
    ssize_t n = fd < 0 ? 0 : recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* A machine sends nothing before it is watched, so an idle connection that can be read has ended
 * or is no machine's. */
static bool is_quiet(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

static void relay_drop(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* A frame of a server: not masked. Small enough for an empty socket buffer. */
static bool send_watch(int fd)
{
    static const char frame[] = "\x81\x05watch";
    return send(fd, frame, sizeof frame - 1, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof frame - 1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Strips the first member, the machine's sequence number: `{"seq":12,"type":...`. */
static const char *after_number(const char *text, size_t *bytes)
{
    static const char head[] = "{\"seq\":";
    size_t at = sizeof head - 1;
    if (*bytes <= at || memcmp(text, head, at) != 0) return NULL;
    while (at < *bytes && text[at] >= '0' && text[at] <= '9') at++;
    if (at >= *bytes || text[at] != ',') return NULL;
    *bytes -= at;
    return text + at;
}

static bool is_state_type(const char *type)
{
    static const char *const types[] = {"power_sample",
                                        "layer_metrics",
                                        "component_metrics",
                                        "operation_metrics",
                                        "layer_running",
                                        "load_progress",
                                        NULL};
    for (int i = 0; types[i]; i++)
        if (strcmp(type, types[i]) == 0) return true;
    return false;
}

/* Remembers the machine's current run, for readers that connect later. */
static void keep_hello(machine *m, const json_t *message)
{
    json_t *running = json_object_get(message, "running"),
           *queue = json_object_get(message, "queue");
    char *text = running ? json_dumps(running, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    pthread_mutex_lock(&m->relay->mutex);
    pj_buffer_clear(&m->hello);
    pj_buffer_printf(&m->hello, "\"running\":%s,\"queue\":%lld", text ? text : "null",
                     (long long)json_integer_value(queue));
    pthread_mutex_unlock(&m->relay->mutex);
    free(text);
}

static void write_hello(void *context, pj_buffer *members)
{
    machine *m = context;
    pthread_mutex_lock(&m->relay->mutex);
    if (m->hello.length)
        pj_buffer_append(members, m->hello.data, m->hello.length);
    else
        pj_buffer_text(members, "\"running\":null,\"queue\":0");
    pthread_mutex_unlock(&m->relay->mutex);
}

static void relay_publish(machine *m, const json_t *message, const char *rest, size_t bytes)
{
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *run = json_string_value(json_object_get(message, "run_id"));
    pj_buffer text;
    pj_buffer_init(&text, PJ_FRAME_MAX_BYTES + 16);
    pj_buffer_char(&text, '{');
    pj_buffer_append(&text, rest + 1, bytes - 1);
    pj_publication publication = {.run_id = run && strlen(run) < PJ_UUID_BYTES ? run : NULL,
                                  .audience = PJ_FOR_ALL,
                                  .state = is_state_type(type),
                                  .begins_run = strcmp(type, "run_started") == 0,
                                  .ends_run = strcmp(type, "inference_complete") == 0 ||
                                              strcmp(type, "run_failed") == 0,
                                  .bytes = text.data,
                                  .count = text.length};
    if (!text.failed) pj_hub_publish(m->hub, &publication);
    pj_buffer_fini(&text);
}

/* What a machine sends is forwarded to browsers, so only complete JSON objects with a type are
 * accepted. */
static void relay_take_text(void *context, const char *text, size_t bytes)
{
    machine *m = context;
    json_t *message = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *rest = after_number(text, &bytes);
    if (type && strcmp(type, "hello") == 0)
        keep_hello(m, message);
    else if (type && rest)
        relay_publish(m, message, rest, bytes);
    json_decref(message);
}

static void relay_report_away(machine *m)
{
    static const char text[] =
        "{\"type\":\"warning\",\"run_id\":null,\"t_ms\":null,\"code\":"
        "\"machine_away\",\"text\":\"the machine's stream was interrupted; it "
        "resumes when the machine is back\"}";
    pj_hub_publish(
        m->hub, &(pj_publication){.audience = PJ_FOR_ALL, .bytes = text, .count = sizeof text - 1});
}

/* ---- a watched machine ----------------------------------------------------------------------- */

typedef enum stream_end { STREAMING, LOST, RELEASED } stream_end;

static uint32_t watchers(const machine *m)
{
    return pj_hub_readers(m->hub, false) + pj_hub_readers(m->hub, true);
}

/* Checked and closed under the mutex: a watcher that arrives now is either counted or finds the
 * machine not streaming and opens a new stream. */
static bool release_if_unwatched(machine *m)
{
    int64_t now = pj_clock_ns();
    pthread_mutex_lock(&m->relay->mutex);
    if (watchers(m) > 0) m->watched_ns = now;
    bool over = m->relay->closing || now - m->watched_ns > UNWATCHED_NS;
    if (over) {
        relay_drop(&m->watched_fd);
        m->is_streaming = false;
    }
    pthread_mutex_unlock(&m->relay->mutex);
    return over;
}

static stream_end stream(machine *m, int fd)
{
    pj_frame_reader reader;
    int64_t heard_ns = pj_clock_ns();
    stream_end end = STREAMING;
    pj_frame_reader_init(&reader, fd, relay_take_text, m);
    while (end == STREAMING) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        bool ready = poll(&wait, 1, LOOK_MS) > 0;
        if (ready) heard_ns = pj_clock_ns();
        bool lost =
            (ready && !pj_frame_reader_receive(&reader)) || pj_clock_ns() - heard_ns > SILENT_NS;
        if (release_if_unwatched(m))
            end = RELEASED;
        else if (lost)
            end = LOST;
    }
    pj_frame_reader_fini(&reader);
    return end;
}

/* After a lost connection, continues on the machine's idle one. False: there is none; the stream
 * resumes when the machine joins again. */
static bool take_spare(machine *m)
{
    pthread_mutex_lock(&m->relay->mutex);
    relay_drop(&m->watched_fd);
    if (!m->relay->closing && watchers(m) > 0 && is_connected(m->idle_fd) &&
        send_watch(m->idle_fd)) {
        m->watched_fd = m->idle_fd;
        m->idle_fd = -1;
    }
    bool more = m->is_streaming = m->watched_fd >= 0;
    pthread_mutex_unlock(&m->relay->mutex);
    return more;
}

/* False: the relay closes. */
static bool wait_to_retry(machine *m)
{
    pthread_mutex_lock(&m->relay->mutex);
    if (!m->relay->closing) pj_cond_wait_for(&m->relay->closes, &m->relay->mutex, RETRY_NS);
    bool more = !m->relay->closing;
    pthread_mutex_unlock(&m->relay->mutex);
    return more;
}

/* Once is_streaming is false another thread may join this one while holding the mutex, so from then
 * on this one takes no lock. */
static void *stream_always(void *context)
{
    machine *m = context;
    do {
        if (stream(m, m->watched_fd) == RELEASED) break;
        relay_report_away(m);
    } while (wait_to_retry(m) && take_spare(m));
    return NULL;
}

/* With the mutex held. */
static pj_status begin_stream(machine *m, pj_error *err)
{
    pj_status status = PJ_OK;
    if (!m->hub) {
        pj_hub_options options = {.messages_max = RING_MESSAGES,
                                  .bytes_max = RING_BYTES,
                                  .hello = write_hello,
                                  .context = m};
        if (m->relay->watched == PJ_RELAY_WATCHED)
            return pj_fail(err, PJ_E_FULL,
                           "%d machines are already being watched through this server",
                           PJ_RELAY_WATCHED);
        status = pj_hub_open(&options, &m->hub, err);
        if (status != PJ_OK) return status;
        m->relay->watched++;
    }
    m->watched_ns = pj_clock_ns();
    if (m->is_streaming) return PJ_OK;
    if (!is_connected(m->idle_fd) || !send_watch(m->idle_fd)) {
        relay_drop(&m->idle_fd);
        return pj_fail(err, PJ_E_UNAVAILABLE, "machine %s is not connected now", m->name);
    }
    if (m->has_thread) pthread_join(m->thread, NULL); /* the thread has ended: not streaming */
    m->watched_fd = m->idle_fd;
    m->idle_fd = -1;
    status = pj_thread_start(&m->thread, "pj-relay", stream_always, m, err);
    m->has_thread = m->is_streaming = status == PJ_OK;
    if (status != PJ_OK) relay_drop(&m->watched_fd);
    return status;
}

/* ---- joining and watching -------------------------------------------------------------------- */

static machine *relay_find(pj_relay *relay, const char *name)
{
    for (uint32_t i = 0; i < relay->count; i++)
        if (strcmp(relay->machines[i]->name, name) == 0) return relay->machines[i];
    return NULL;
}

static machine *relay_find_or_add(pj_relay *relay, const char *name)
{
    machine *m = relay_find(relay, name);
    if (m || relay->count == PJ_RELAY_MACHINES || strlen(name) >= sizeof m->name) return m;
    m = pj_alloc(1, sizeof *m);
    if (!m) return NULL;
    *m = (machine){.relay = relay, .idle_fd = -1, .watched_fd = -1};
    snprintf(m->name, sizeof m->name, "%s", name);
    pj_buffer_init(&m->hello, 1 << 20);
    relay->machines[relay->count++] = m;
    return m;
}

/* A machine has two connections while it is watched, so the name alone does not tell another
 * machine from the same one. A machine without a key may replace its idle connection only after
 * that has ended or is being watched. */
static bool is_name_of_another(const machine *m, const char *key)
{
    bool is_idle = is_connected(m->idle_fd);
    if (!is_idle && !is_connected(m->watched_fd)) return false;
    return strcmp(m->key, key) != 0 || (!key[0] && is_idle);
}

static pj_status relay_may_join(pj_relay *relay, const char *name, const char *key, pj_error *err)
{
    const machine *m = relay_find(relay, name);
    if (m && is_name_of_another(m, key))
        return pj_fail(err, PJ_E_STATE, "another machine has joined as %.100s", name);
    if (!m && relay->count == PJ_RELAY_MACHINES)
        return pj_fail(err, PJ_E_UNAVAILABLE, "%d machines have already joined this server",
                       PJ_RELAY_MACHINES);
    return PJ_OK;
}

pj_status pj_relay_may_join(pj_relay *relay, const char *name, const char *key, pj_error *err)
{
    pthread_mutex_lock(&relay->mutex);
    pj_status status = relay_may_join(relay, name, key, err);
    pthread_mutex_unlock(&relay->mutex);
    return status;
}

static void relay_wake(pj_relay *relay)
{
    ssize_t n = write(relay->wake[1], "w", 1);
    (void)n; /* a full pipe wakes as well */
}

void pj_relay_join(pj_relay *relay, const char *name, const char *key, int fd)
{
    keep_alive(fd);
    pthread_mutex_lock(&relay->mutex);
    machine *m = relay->closing || relay_may_join(relay, name, key, NULL) != PJ_OK
                     ? NULL
                     : relay_find_or_add(relay, name);
    if (m) {
        relay_drop(&m->idle_fd);
        m->idle_fd = fd;
        snprintf(m->key, sizeof m->key, "%s", key);
        /* it was disconnected while being watched */
        if (m->hub && !m->is_streaming && watchers(m) > 0) begin_stream(m, NULL);
    }
    pthread_mutex_unlock(&relay->mutex);
    if (!m) close(fd);
    relay_wake(relay);
}

bool pj_relay_has(pj_relay *relay, const char *name)
{
    if (!relay) return false;
    pthread_mutex_lock(&relay->mutex);
    const machine *m = relay_find(relay, name);
    bool has = m && (m->is_streaming || is_connected(m->idle_fd));
    pthread_mutex_unlock(&relay->mutex);
    return has;
}

pj_hub *pj_relay_watch(pj_relay *relay, const char *name, pj_error *err)
{
    pj_hub *hub = NULL;
    pthread_mutex_lock(&relay->mutex);
    machine *m = relay_find(relay, name);
    if (!m)
        pj_fail(err, PJ_E_NOT_FOUND,
                "no machine %.100s has joined this server (perjoule serve --join)", name);
    else if (begin_stream(m, err) == PJ_OK)
        hub = m->hub;
    pthread_mutex_unlock(&relay->mutex);
    return hub;
}

/* ---- machines that are gone --------------------------------------------------------------------
 */

static void free_machine(machine *m)
{
    if (m->has_thread) pthread_join(m->thread, NULL);
    pj_hub_close(m->hub);
    relay_drop(&m->idle_fd);
    relay_drop(&m->watched_fd);
    pj_buffer_fini(&m->hello);
    pj_free(m);
}

/* A hub stays for a while after its last watcher: a handshake may be about to use it. */
static bool relay_is_gone(const machine *m, int64_t now_ns)
{
    if (m->idle_fd >= 0 || m->is_streaming) return false;
    return !m->hub || (watchers(m) == 0 && now_ns - m->watched_ns > FORGET_NS);
}

/* With the mutex held: takes one machine that is gone from the list. */
static machine *relay_take_gone(pj_relay *relay)
{
    int64_t now_ns = pj_clock_ns();
    for (uint32_t i = 0; i < relay->count; i++) {
        machine *m = relay->machines[i];
        if (!relay_is_gone(m, now_ns)) continue;
        relay->machines[i] = relay->machines[--relay->count];
        if (m->hub) relay->watched--;
        return m;
    }
    return NULL;
}

/* Freed without the mutex, which the threads of a hub and of a stream take. */
static void relay_forget(pj_relay *relay)
{
    machine *gone;
    do {
        pthread_mutex_lock(&relay->mutex);
        gone = relay_take_gone(relay);
        pthread_mutex_unlock(&relay->mutex);
        if (gone) free_machine(gone);
    } while (gone);
}

/* Closes idle connections that have ended, and lists the others. False: the relay closes. */
static bool relay_list_idle(pj_relay *relay, struct pollfd *waits, nfds_t *count)
{
    *count = 0;
    waits[(*count)++] = (struct pollfd){.fd = relay->wake[0], .events = POLLIN};
    pthread_mutex_lock(&relay->mutex);
    for (uint32_t i = 0; i < relay->count; i++) {
        machine *m = relay->machines[i];
        if (m->idle_fd >= 0 && !is_quiet(m->idle_fd)) relay_drop(&m->idle_fd);
        if (m->idle_fd >= 0)
            waits[(*count)++] = (struct pollfd){.fd = m->idle_fd, .events = POLLIN};
    }
    bool more = !relay->closing;
    pthread_mutex_unlock(&relay->mutex);
    return more;
}

static void *relay_sweep(void *context)
{
    pj_relay *relay = context;
    struct pollfd *waits = pj_alloc(PJ_RELAY_MACHINES + 1, sizeof *waits);
    nfds_t count;
    char bytes[256];
    while (waits && relay_list_idle(relay, waits, &count)) {
        relay_forget(relay);
        if (poll(waits, count, SWEEP_MS) > 0 && waits[0].revents)
            while (read(relay->wake[0], bytes, sizeof bytes) == (ssize_t)sizeof bytes) continue;
    }
    pj_free(waits);
    return NULL;
}

/* ---- opening and closing
 * ------------------------------------------------------------------------- */

static pj_status relay_start_sweeper(pj_relay *relay, pj_error *err)
{
    if (pipe(relay->wake) != 0) return pj_fail_errno(err, errno, "cannot create a pipe");
    for (int i = 0; i < 2; i++) fcntl(relay->wake[i], F_SETFL, O_NONBLOCK);
    pj_status status = pj_thread_start(&relay->sweeper, "pj-sweep", relay_sweep, relay, err);
    relay->is_swept = status == PJ_OK;
    return status;
}

pj_status pj_relay_open(pj_relay **out, pj_error *err)
{
    pj_relay *relay = pj_alloc(1, sizeof *relay);
    if (!relay) return pj_fail_memory(err, "the streams of other machines");
    relay->wake[0] = relay->wake[1] = -1;
    pthread_mutex_init(&relay->mutex, NULL);
    pj_cond_init(&relay->closes);
    pj_status status = relay_start_sweeper(relay, err);
    if (status == PJ_OK)
        *out = relay;
    else
        pj_relay_close(relay);
    return status;
}

void pj_relay_close(pj_relay *relay)
{
    if (!relay) return;
    pthread_mutex_lock(&relay->mutex);
    relay->closing = true;
    for (uint32_t i = 0; i < relay->count; i++)
        if (relay->machines[i]->watched_fd >= 0)
            shutdown(relay->machines[i]->watched_fd, SHUT_RDWR);
    pthread_cond_broadcast(&relay->closes);
    pthread_mutex_unlock(&relay->mutex);
    relay_wake(relay);
    if (relay->is_swept) pthread_join(relay->sweeper, NULL);
    for (uint32_t i = 0; i < relay->count; i++) free_machine(relay->machines[i]);
    for (int i = 0; i < 2; i++) relay_drop(&relay->wake[i]);
    pthread_cond_destroy(&relay->closes);
    pthread_mutex_destroy(&relay->mutex);
    pj_free(relay);
}
