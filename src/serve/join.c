/* The connection that a machine keeps to another server, and its hand-over to the hub. An https
 * server is reached through a tunnel (curl.h), which is a socket like any other. */
#include "serve/join.h"

#include "base/ids.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/call.h"
#include "http/websocket.h"
#include "serve/curl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    DIAL_MS = 10000,
    FIRST_PAUSE_MS = 1000, /* minimum pause, also between two streams, so that a server cannot cause
                              rapid reconnects */
    MAX_PAUSE_MS = 30000,
    MAX_TUNNELS = 64 /* streams at once over TLS */
};

struct pj_join {
    pj_join_options options;
    pj_url url;
    char key[PJ_SECRET_BYTES]; /* tells this machine from another of its name */
    pthread_t thread;
    int stop[2]; /* self-pipe that stops the thread */
    bool has_failed, is_tls;
    pj_tunnel *tunnels[MAX_TUNNELS]; /* those that may still be in use; NULL: free */
};

typedef enum waited { STOPPED, TIMED_OUT, READY } waited;

/* Waits for the descriptor (-1: none), the time, or the stop. */
static waited join_wait_for(pj_join *j, int fd, short events, int ms)
{
    struct pollfd waits[2] = {{.fd = j->stop[0], .events = POLLIN}, {.fd = fd, .events = events}};
    int ready;
    do ready = poll(waits, 2, ms);
    while (ready < 0 && errno == EINTR);
    if (waits[0].revents) return STOPPED;
    return ready > 0 ? READY : TIMED_OUT;
}

/* ---- the request ----------------------------------------------------------------------------- */

static void put_encoded(pj_buffer *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool plain =
            (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (plain)
            pj_buffer_char(out, (char)*c);
        else
            pj_buffer_printf(out, "%%%02X", *c);
    }
}

static void put_request(const pj_join *j, pj_call *call)
{
    pj_buffer path;
    pj_buffer_init(&path, 4096);
    pj_buffer_text(&path, "/ws/join?machine=");
    put_encoded(&path, j->options.machine);
    pj_call_write(call, "GET", pj_buffer_get(&path));
    pj_buffer_text(&call->out, PJ_WEBSOCKET_LINES);
    pj_buffer_printf(&call->out, "X-Perjoule-Machine-Key: %.32s\r\n", j->key);
    if (j->options.token)
        pj_buffer_printf(&call->out, "Authorization: Bearer %s\r\n", j->options.token);
    pj_buffer_text(&call->out, "\r\n");
    pj_buffer_fini(&path);
}

/* Sends the request over the call's connection, and reads the head of the answer. */
static pj_status request_upgrade(pj_join *j, pj_call *call, pj_error *err)
{
    put_request(j, call);
    pj_call_begin(call);
    while (pj_call_is_running(call) && call->state != PJ_CALL_BODY &&
           join_wait_for(j, call->fd, pj_call_events(call), DIAL_MS) == READY)
        pj_call_step(call, pj_call_events(call));
    int http = call->head.status;
    if (call->state == PJ_CALL_DONE && http == 101) return PJ_OK;
    if (call->state == PJ_CALL_FAILED) return pj_fail(err, PJ_E_UNAVAILABLE, "%s", call->failure);
    if (!http) return pj_fail(err, PJ_E_UNAVAILABLE, "%s does not respond", j->options.url);
    if (http == 401)
        return pj_fail(err, PJ_E_DENIED, "%s rejected the token (--join-token)", j->options.url);
    if (http == 409)
        return pj_fail(err, PJ_E_STATE, "%s has already been joined by another machine named %s",
                       j->options.url, j->options.machine);
    if (http == 503)
        return pj_fail(err, PJ_E_UNAVAILABLE, "%s has no room for another machine now",
                       j->options.url);
    return pj_fail(err, PJ_E_STATE,
                   "%s is not a perjoule server that machines can join (status %d)", j->options.url,
                   http);
}

/* ---- connections ----------------------------------------------------------------------------- */

static pj_tunnel **join_find_slot(pj_join *j)
{
    pj_tunnel **slot = NULL;
    for (int i = 0; i < MAX_TUNNELS; i++) {
        if (j->tunnels[i] && pj_tunnel_has_ended(j->tunnels[i], NULL)) {
            pj_tunnel_close(j->tunnels[i]);
            j->tunnels[i] = NULL;
        }
        if (!j->tunnels[i]) slot = &j->tunnels[i];
    }
    return slot;
}

/* The server's https address without the path. */
static void tunnel_url(const pj_join *j, char *text, size_t bytes)
{
    char authority[PJ_URL_AUTHORITY_BYTES];
    pj_url_authority(&j->url, authority, sizeof authority);
    snprintf(text, bytes, "https://%s/", authority);
}

static pj_status dial_tls(pj_join *j, pj_call *call, pj_error *err)
{
    char url[PJ_URL_AUTHORITY_BYTES + 16];
    pj_error failure = {0};
    pj_tunnel **slot = join_find_slot(j);
    if (!slot) return pj_fail(err, PJ_E_FULL, "too many readers watch through %s", j->options.url);
    tunnel_url(j, url, sizeof url);
    pj_status status = pj_tunnel_open(url, DIAL_MS, slot, &call->fd, err);
    if (status != PJ_OK) return status;
    status = request_upgrade(j, call, err);
    if (status != PJ_OK && pj_tunnel_has_ended(*slot, &failure) && failure.status != PJ_OK)
        *err = failure;
    return status;
}

/* After success the call holds the connection. */
static pj_status dial(pj_join *j, pj_call *call, pj_error *err)
{
    if (j->is_tls) return dial_tls(j, call, err);
    pj_status status = pj_address_resolve(&j->url, &call->address, err);
    return status == PJ_OK ? request_upgrade(j, call, err) : status;
}

/* ---- being watched --------------------------------------------------------------------------- */

static void note_watch(void *context, const char *text, size_t bytes)
{
    bool *is_wanted = context;
    if (bytes == 5 && memcmp(text, "watch", 5) == 0) *is_wanted = true;
}

/* Waits until the server requests the stream, which the hub then owns, or the connection ends. */
static waited wait_for_watch(pj_join *j, pj_call *call)
{
    pj_frame_reader reader;
    bool is_wanted = false;
    waited state = READY;
    int fd = call->fd;
    size_t head = call->head.bytes;
    pj_frame_reader_init(&reader, fd, note_watch, &is_wanted);
    bool open = pj_frame_reader_take(&reader, call->in.data + head, call->in.length - head);
    while (state == READY && open && !is_wanted) {
        state = join_wait_for(j, fd, POLLIN, -1);
        if (state == READY) open = pj_frame_reader_receive(&reader);
    }
    pj_frame_reader_fini(&reader);
    if (state == READY && is_wanted && open) {
        pj_hub_add(j->options.hub, fd, &(pj_reader_options){0}, NULL, 0);
        call->fd = -1;
    }
    return state;
}

static void join_report(pj_join *j, const pj_error *err)
{
    bool failed = err != NULL;
    if (failed == j->has_failed || !j->options.say) return;
    j->has_failed = failed;
    char text[PJ_ERROR_TEXT_BYTES + 64];
    if (failed)
        snprintf(text, sizeof text, "%s; retrying", err->text);
    else
        snprintf(text, sizeof text, "joined %s", j->options.url);
    j->options.say(text);
}

static void *join_always(void *context)
{
    pj_join *j = context;
    int pause_ms = FIRST_PAUSE_MS;
    waited state;
    do {
        pj_error err = {0};
        pj_call call;
        pj_call_init(&call, &j->url);
        bool joined = dial(j, &call, &err) == PJ_OK;
        join_report(j, joined ? NULL : &err);
        state = joined ? wait_for_watch(j, &call) : READY;
        pj_call_fini(&call);
        pause_ms = joined ? FIRST_PAUSE_MS : 2 * pause_ms;
        if (pause_ms > MAX_PAUSE_MS) pause_ms = MAX_PAUSE_MS;
    } while (state != STOPPED && join_wait_for(j, -1, 0, pause_ms) != STOPPED);
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

pj_status pj_join_open(const pj_join_options *options, pj_join **join, pj_error *err)
{
    pj_join *j = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "joining a server");
    j->options = *options;
    pj_status status = pj_url_parse_tls(options->url, &j->url, &j->is_tls, err);
    if (status == PJ_OK && j->is_tls) status = pj_curl_load(err);
    if (status == PJ_OK && options->token && strpbrk(options->token, "\r\n"))
        status = pj_fail(err, PJ_E_INVALID, "--join-token contains a line break");
    if (status == PJ_OK && !pj_secret_make(j->key))
        status = pj_fail(err, PJ_E_UNAVAILABLE, "the system gives no random numbers");
    if (status == PJ_OK && pipe(j->stop) != 0)
        status = pj_fail_errno(err, errno, "cannot create a pipe");
    if (status == PJ_OK) {
        status = pj_thread_start(&j->thread, "pj-join", join_always, j, err);
        if (status != PJ_OK) {
            close(j->stop[0]);
            close(j->stop[1]);
        }
    }
    if (status == PJ_OK)
        *join = j;
    else
        pj_free(j);
    return status;
}

void pj_join_close(pj_join *j)
{
    if (!j) return;
    ssize_t n = write(j->stop[1], "s", 1);
    (void)n;
    pthread_join(j->thread, NULL);
    for (int i = 0; i < MAX_TUNNELS; i++)
        if (j->tunnels[i]) pj_tunnel_close(j->tunnels[i]);
    close(j->stop[0]);
    close(j->stop[1]);
    pj_free(j);
}
