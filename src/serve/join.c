/* The connection that a machine keeps to another server, and its hand-over to the hub. An https
 * server is reached through a tunnel (tunnel.h), which is a socket like any other. */
#include "serve/join.h"

#include "attach/dial.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/frame_reader.h"
#include "serve/curl.h"
#include "serve/tunnel.h"

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
    HEAD_BYTES = 4096,
    MAX_TUNNELS = 64 /* streams at once over TLS */
};

struct pj_join {
    pj_join_options options;
    pj_url url;
    pthread_t thread;
    int stop[2]; /* self-pipe that stops the thread */
    bool has_failed, is_tls;
    pj_tunnel *tunnels[MAX_TUNNELS]; /* those that may still be in use; NULL: free */
};

typedef enum waited { STOPPED, TIMED_OUT, READY } waited;

/* Waits for the descriptor (-1: none), the time, or the stop. */
static waited wait_for(pj_join *j, int fd, short events, int ms)
{
    struct pollfd waits[2] = {{.fd = j->stop[0], .events = POLLIN}, {.fd = fd, .events = events}};
    int ready;
    do ready = poll(waits, 2, ms);
    while (ready < 0 && errno == EINTR);
    if (waits[0].revents) return STOPPED;
    return ready > 0 ? READY : TIMED_OUT;
}

/* ---- the request ------------------------------------------------------------------------------
 */

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

/* The key only ties the answer to this request; it is not a secret. */
static void put_request(const pj_join *j, pj_buffer *out)
{
    char host[PJ_URL_HOST_BYTES + 16];
    pj_url_authority(&j->url, host, sizeof host);
    pj_buffer_printf(out, "GET %s/ws/join?machine=", j->url.prefix);
    put_encoded(out, j->options.machine);
    pj_buffer_printf(out,
                     " HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cGVyam91bGUtbWFjaGluZQ==\r\n",
                     host);
    if (j->options.token) pj_buffer_printf(out, "Authorization: Bearer %s\r\n", j->options.token);
    pj_buffer_text(out, "\r\n");
}

static pj_status send_request(pj_join *j, int fd, pj_error *err)
{
    pj_buffer text;
    size_t sent = 0;
    pj_buffer_init(&text, 1 << 16);
    put_request(j, &text);
    pj_status status = pj_buffer_status(&text, "a request", err);
    while (status == PJ_OK && sent < text.length) {
        ssize_t n = send(fd, text.data + sent, text.length - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        if (n < 0 && (errno != EAGAIN || wait_for(j, fd, POLLOUT, DIAL_MS) != READY))
            status = pj_fail_errno(err, errno, "cannot send to %s", j->options.url);
    }
    pj_buffer_fini(&text);
    return status;
}

/* Reads the head of the answer byte by byte, because the bytes after it belong to the stream. */
static pj_status read_answer(pj_join *j, int fd, pj_error *err)
{
    char head[HEAD_BYTES];
    size_t used = 0;
    int http = 0;
    while (used < 4 || memcmp(head + used - 4, "\r\n\r\n", 4) != 0) {
        ssize_t n = used < sizeof head - 1 ? recv(fd, head + used, 1, 0) : 0;
        if (n > 0) used++;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
            (n < 0 && wait_for(j, fd, POLLIN, DIAL_MS) != READY))
            return pj_fail(err, PJ_E_UNAVAILABLE, "%s does not answer", j->options.url);
    }
    head[used] = 0;
    if (sscanf(head, "HTTP/1.1 %d", &http) != 1) http = 0;
    if (http == 101) return PJ_OK;
    if (http == 401)
        return pj_fail(err, PJ_E_DENIED, "%s refuses the token (--join-token)", j->options.url);
    return pj_fail(err, PJ_E_STATE, "%s is no perjoule server that machines can join (status %d)",
                   j->options.url, http);
}

/* ---- connections ------------------------------------------------------------------------------
 */

static pj_tunnel **find_place(pj_join *j)
{
    pj_tunnel **place = NULL;
    for (int i = 0; i < MAX_TUNNELS; i++) {
        if (j->tunnels[i] && pj_tunnel_has_ended(j->tunnels[i], NULL)) {
            pj_tunnel_close(j->tunnels[i]);
            j->tunnels[i] = NULL;
        }
        if (!j->tunnels[i]) place = &j->tunnels[i];
    }
    return place;
}

/* The server's https address without the path. */
static void tunnel_url(const pj_join *j, char *text, size_t bytes)
{
    char authority[PJ_URL_HOST_BYTES + 16];
    pj_url_authority(&j->url, authority, sizeof authority);
    snprintf(text, bytes, "https://%s/", authority);
}

static int dial_tls(pj_join *j, pj_error *err)
{
    char url[PJ_URL_HOST_BYTES + 32];
    pj_error failure = {0};
    int fd = -1;
    pj_tunnel **place = find_place(j);
    if (!place) {
        pj_fail(err, PJ_E_FULL, "too many watch through %s at once", j->options.url);
        return -1;
    }
    tunnel_url(j, url, sizeof url);
    if (pj_tunnel_open(url, DIAL_MS, place, &fd, err) != PJ_OK) return -1;
    if (send_request(j, fd, err) == PJ_OK && read_answer(j, fd, err) == PJ_OK) return fd;
    if (pj_tunnel_has_ended(*place, &failure) && failure.status != PJ_OK) *err = failure;
    close(fd);
    return -1;
}

static int dial_plain(pj_join *j, pj_error *err)
{
    pj_address address;
    if (pj_address_resolve(&j->url, &address, err) != PJ_OK) return -1;
    int fd = pj_dial(&address), why = errno;
    if (fd >= 0 && wait_for(j, fd, POLLOUT, DIAL_MS) == READY && !(why = pj_dial_error(fd)) &&
        send_request(j, fd, err) == PJ_OK && read_answer(j, fd, err) == PJ_OK)
        return fd;
    if (fd < 0 || why) pj_fail_errno(err, why ? why : ETIMEDOUT, "cannot reach %s", j->options.url);
    if (fd >= 0) close(fd);
    return -1;
}

static int dial(pj_join *j, pj_error *err)
{
    return j->is_tls ? dial_tls(j, err) : dial_plain(j, err);
}

/* ---- being watched ----------------------------------------------------------------------------
 */

static void note_watch(void *context, const char *text, size_t bytes)
{
    bool *is_wanted = context;
    if (bytes == 5 && memcmp(text, "watch", 5) == 0) *is_wanted = true;
}

/* Waits until the server requests the stream (the hub then owns the socket) or the connection ends.
 */
static waited wait_for_watch(pj_join *j, int fd)
{
    pj_frame_reader reader;
    bool is_wanted = false, open = true;
    waited state = READY;
    pj_frame_reader_init(&reader, fd, note_watch, &is_wanted);
    while (state == READY && open && !is_wanted) {
        state = wait_for(j, fd, POLLIN, -1);
        if (state == READY) open = pj_frame_reader_receive(&reader);
    }
    pj_frame_reader_fini(&reader);
    if (state == READY && is_wanted && open)
        pj_hub_add(j->options.hub, fd, &(pj_reader_options){0}, NULL, 0);
    else
        close(fd);
    return state;
}

static void report(pj_join *j, const pj_error *err)
{
    bool failed = err != NULL;
    if (failed == j->has_failed || !j->options.say) return;
    j->has_failed = failed;
    char text[PJ_ERROR_TEXT_BYTES + 64];
    if (failed)
        snprintf(text, sizeof text, "%s; this is tried again", err->text);
    else
        snprintf(text, sizeof text, "joined %s", j->options.url);
    j->options.say(text);
}

static void *join_always(void *context)
{
    pj_join *j = context;
    int pause_ms = FIRST_PAUSE_MS;
    do {
        pj_error err = {0};
        int fd = dial(j, &err);
        report(j, fd < 0 ? &err : NULL);
        if (fd >= 0) {
            pause_ms = FIRST_PAUSE_MS;
            if (wait_for_watch(j, fd) == STOPPED) break;
        } else {
            pause_ms = 2 * pause_ms < MAX_PAUSE_MS ? 2 * pause_ms : MAX_PAUSE_MS;
        }
    } while (wait_for(j, -1, 0, pause_ms) != STOPPED);
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

pj_status pj_join_open(const pj_join_options *options, pj_join **join, pj_error *err)
{
    pj_join *j = pj_alloc(1, sizeof *j);
    if (!j) return pj_fail_memory(err, "joining a server");
    j->options = *options;
    pj_status status = pj_url_parse_tls(options->url, &j->url, &j->is_tls, err);
    if (status == PJ_OK && j->is_tls) status = pj_curl_load(err);
    if (status == PJ_OK && options->token && strpbrk(options->token, "\r\n"))
        status = pj_fail(err, PJ_E_INVALID, "--join-token has a line break in it");
    if (status == PJ_OK && pipe(j->stop) != 0)
        status = pj_fail_errno(err, errno, "cannot make a pipe");
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
