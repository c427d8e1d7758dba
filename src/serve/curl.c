#include "serve/curl.h"

#include "base/memory.h"
#include "base/thread.h"
#include "http/socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* libcurl's stable interface, as far as it is used: numbers of options never change. */
enum {
    OPTION_TIMEOUT_MS = 155,
    OPTION_CONNECTTIMEOUT_MS = 156,
    OPTION_NOPROGRESS = 43,
    OPTION_HTTP_VERSION = 84,
    OPTION_NOSIGNAL = 99,
    OPTION_CONNECT_ONLY = 141,
    OPTION_POSTFIELDSIZE = 60,
    OPTION_URL = 10002,
    OPTION_ERRORBUFFER = 10010,
    OPTION_POSTFIELDS = 10015,
    OPTION_HTTPHEADER = 10023,
    OPTION_XFERINFODATA = 10057,
    OPTION_CAINFO = 10065,
    OPTION_WRITEFUNCTION = 20011,
    OPTION_XFERINFOFUNCTION = 20219,
    INFO_RESPONSE_CODE = 0x200002,
    INFO_ACTIVESOCKET = 0x50002c,
    HTTP_VERSION_1_1 = 2,
    CODE_AGAIN = 81,
    ERROR_BYTES = 256, /* of OPTION_ERRORBUFFER */
    GLOBAL_ALL = 3,
    CHUNK_BYTES = 16384,
    /* TLS may have to receive before it can send: the sockets are looked at again after this. */
    LOOK_AGAIN_MS = 1000
};

static struct {
    int (*global_init)(long flags);
    void *(*init)(void);
    int (*setopt)(void *handle, int option, ...);
    int (*perform)(void *handle);
    int (*getinfo)(void *handle, int info, ...);
    const char *(*strerror)(int code);
    void (*cleanup)(void *handle);
    int (*send)(void *handle, const void *bytes, size_t count, size_t *sent);
    int (*receive)(void *handle, void *bytes, size_t count, size_t *received);
    void *(*list_append)(void *list, const char *text);
    void (*list_free)(void *list);
} curl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing; /* a library or function */

static const char *const names[] = {
#ifdef __APPLE__
    "libcurl.4.dylib", "/usr/lib/libcurl.4.dylib",
#endif
    "libcurl.so.4", "libcurl-gnutls.so.4", NULL};

static void curl_load(void)
{
    void *library = NULL;
    for (int i = 0; names[i] && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        missing = "libcurl.so.4";
        return;
    }
#define FIND(member, name)                          \
    do {                                            \
        void *found = dlsym(library, name);         \
        if (!found) missing = name;                 \
        memcpy(&curl.member, &found, sizeof found); \
    } while (0)
    FIND(global_init, "curl_global_init");
    FIND(init, "curl_easy_init");
    FIND(setopt, "curl_easy_setopt");
    FIND(perform, "curl_easy_perform");
    FIND(getinfo, "curl_easy_getinfo");
    FIND(strerror, "curl_easy_strerror");
    FIND(cleanup, "curl_easy_cleanup");
    FIND(send, "curl_easy_send");
    FIND(receive, "curl_easy_recv");
    FIND(list_append, "curl_slist_append");
    FIND(list_free, "curl_slist_free_all");
#undef FIND
    if (!missing && curl.global_init(GLOBAL_ALL) != 0) missing = "a usable libcurl";
}

pj_status pj_curl_load(pj_error *err)
{
    pthread_once(&once, curl_load);
    if (!missing) return PJ_OK;
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "telemetry and https need libcurl, and %s is missing: install libcurl (Debian: "
                   "libcurl4)",
                   missing);
}

static size_t discard(char *bytes, size_t size, size_t count, void *context)
{
    return size * count;
}

/* Without "user:password@". */
static void public_url(const char *url, char *text, size_t bytes)
{
    const char *host = strstr(url, "://"), *at;
    host = host ? host + 3 : url;
    size_t authority = strcspn(host, "/?#");
    at = memchr(host, '@', authority);
    snprintf(text, bytes, "%.*s%s", (int)(host - url), url, at ? at + 1 : host);
}

static void *list_of(const char *const *headers)
{
    void *list = NULL;
    for (; headers && *headers; headers++) {
        void *longer = curl.list_append(list, *headers);
        if (longer) list = longer;
    }
    return list;
}

/* As the program curl does it; libcurl itself does not read the environment for this. */
static void set_certificates(void *handle)
{
    const char *file = getenv("CURL_CA_BUNDLE");
    if (!file || !*file) file = getenv("SSL_CERT_FILE");
    if (file && *file) curl.setopt(handle, OPTION_CAINFO, file);
}

pj_status pj_curl_post(const pj_curl_request *r, long *http_status, pj_error *err)
{
    char shown[256];
    *http_status = 0;
    public_url(r->url, shown, sizeof shown);
    void *handle = curl.init(), *headers = list_of(r->headers);
    if (!handle) return pj_fail(err, PJ_E_NO_MEMORY, "libcurl is out of memory");
    curl.setopt(handle, OPTION_URL, r->url);
    curl.setopt(handle, OPTION_POSTFIELDS, r->body);
    curl.setopt(handle, OPTION_POSTFIELDSIZE, (long)r->body_bytes);
    curl.setopt(handle, OPTION_HTTPHEADER, headers);
    curl.setopt(handle, OPTION_WRITEFUNCTION, discard);
    set_certificates(handle);
    curl.setopt(handle, OPTION_TIMEOUT_MS, (long)r->timeout_ms);
    curl.setopt(handle, OPTION_NOSIGNAL, 1L);
    int code = curl.perform(handle);
    if (code == 0) curl.getinfo(handle, INFO_RESPONSE_CODE, http_status);
    curl.cleanup(handle);
    curl.list_free(headers);
    if (code != 0)
        return pj_fail(err, PJ_E_UNAVAILABLE, "%s cannot be reached: %s", shown,
                       curl.strerror(code));
    if (*http_status / 100 == 2) return PJ_OK;
    return pj_fail(err, PJ_E_STATE, "%s responded with status %ld", shown, *http_status);
}

/* ---- tunnels -------------------------------------------------------------------------------- */

struct pj_tunnel {
    pthread_t thread;
    void *handle;
    int end; /* the thread's end of the socket pair */
    int timeout_ms;
    atomic_bool is_stopping, has_ended;
    pj_error failure; /* read after has_ended */
    char why[ERROR_BYTES], url[512];
};

typedef enum moved { MOVED, AGAIN, CLOSED } moved;
typedef moved tunnel_move(const pj_tunnel *t, char *bytes, size_t count, size_t *done);

static moved local_moved(ssize_t n, size_t *done)
{
    *done = n > 0 ? (size_t)n : 0;
    if (n > 0) return MOVED;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? AGAIN : CLOSED;
}

static moved local_receive(const pj_tunnel *t, char *bytes, size_t count, size_t *done)
{
    return local_moved(recv(t->end, bytes, count, 0), done);
}

static moved local_send(const pj_tunnel *t, char *bytes, size_t count, size_t *done)
{
    return local_moved(send(t->end, bytes, count, MSG_NOSIGNAL), done);
}

static moved remote_moved(int code, const size_t *done)
{
    if (code == CODE_AGAIN) return AGAIN;
    return code == 0 && *done ? MOVED : CLOSED;
}

static moved remote_receive(const pj_tunnel *t, char *bytes, size_t count, size_t *done)
{
    return remote_moved(curl.receive(t->handle, bytes, count, done), done);
}

static moved remote_send(const pj_tunnel *t, char *bytes, size_t count, size_t *done)
{
    return remote_moved(curl.send(t->handle, bytes, count, done), done);
}

/* Bytes on their way in one direction. */
typedef struct carried {
    char bytes[CHUNK_BYTES];
    size_t begin, end;
} carried;

static moved tunnel_carry(const pj_tunnel *t, carried *c, tunnel_move *receive,
                          tunnel_move *send_on)
{
    size_t count = 0;
    moved state = MOVED;
    if (c->begin == c->end) {
        state = receive(t, c->bytes, sizeof c->bytes, &count);
        c->begin = 0;
        c->end = count;
    }
    if (state != MOVED) return state;
    count = 0;
    state = send_on(t, c->bytes + c->begin, c->end - c->begin, &count);
    c->begin += count;
    return state;
}

static short tunnel_events(const carried *in, const carried *out)
{
    return (short)((in->begin == in->end ? POLLIN : 0) | (out->begin == out->end ? 0 : POLLOUT));
}

static void tunnel_carry_all(pj_tunnel *t)
{
    carried up, down;
    int remote = -1;
    up.begin = up.end = down.begin = down.end = 0;
    curl.getinfo(t->handle, INFO_ACTIVESOCKET, &remote);
    while (!atomic_load(&t->is_stopping)) {
        moved sent = tunnel_carry(t, &up, local_receive, remote_send);
        moved received = tunnel_carry(t, &down, remote_receive, local_send);
        if (sent == CLOSED || received == CLOSED) return;
        if (sent == MOVED || received == MOVED) continue;
        struct pollfd waits[2] = {{.fd = t->end, .events = tunnel_events(&up, &down)},
                                  {.fd = remote, .events = tunnel_events(&down, &up)}};
        poll(waits, 2, LOOK_AGAIN_MS);
    }
}

/* Polled by libcurl about once a second while it connects. */
static int tunnel_is_stopping(void *context, int64_t total_down, int64_t down, int64_t total_up,
                              int64_t up)
{
    const pj_tunnel *t = context;
    return atomic_load(&t->is_stopping);
}

static void tunnel_connect(pj_tunnel *t)
{
    char shown[256];
    curl.setopt(t->handle, OPTION_URL, t->url);
    curl.setopt(t->handle, OPTION_CONNECT_ONLY, 1L);
    curl.setopt(t->handle, OPTION_HTTP_VERSION, (long)HTTP_VERSION_1_1);
    curl.setopt(t->handle, OPTION_CONNECTTIMEOUT_MS, (long)t->timeout_ms);
    curl.setopt(t->handle, OPTION_NOSIGNAL, 1L);
    curl.setopt(t->handle, OPTION_ERRORBUFFER, t->why);
    curl.setopt(t->handle, OPTION_NOPROGRESS, 0L);
    curl.setopt(t->handle, OPTION_XFERINFOFUNCTION, tunnel_is_stopping);
    curl.setopt(t->handle, OPTION_XFERINFODATA, t);
    set_certificates(t->handle);
    int code = curl.perform(t->handle);
    if (code == 0) return;
    public_url(t->url, shown, sizeof shown);
    pj_fail(&t->failure, PJ_E_UNAVAILABLE, "%s cannot be reached: %s", shown,
            t->why[0] ? t->why : curl.strerror(code));
}

static void *tunnel_run(void *context)
{
    pj_tunnel *t = context;
    tunnel_connect(t);
    if (t->failure.status == PJ_OK) tunnel_carry_all(t);
    atomic_store(&t->has_ended, true);
    shutdown(t->end, SHUT_RDWR); /* closed by pj_tunnel_close, which may be using it */
    return NULL;
}

static void tunnel_free(pj_tunnel *t)
{
    if (t->handle) curl.cleanup(t->handle);
    close(t->end);
    pj_free(t);
}

pj_status pj_tunnel_open(const char *url, int timeout_ms, pj_tunnel **tunnel, int *fd,
                         pj_error *err)
{
    int pair[2];
    pj_status status = pj_curl_load(err);
    if (status != PJ_OK) return status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return pj_fail_errno(err, errno, "cannot create a pair of sockets");
    for (int i = 0; i < 2; i++) pj_fd_prepare(pair[i]);
    pj_tunnel *t = pj_alloc(1, sizeof *t);
    if (!t) {
        close(pair[0]);
        close(pair[1]);
        return pj_fail_memory(err, "a TLS connection");
    }
    t->end = pair[0];
    t->timeout_ms = timeout_ms;
    snprintf(t->url, sizeof t->url, "%s", url);
    t->handle = curl.init();
    status = t->handle ? pj_thread_start(&t->thread, "pj-tunnel", tunnel_run, t, err)
                       : pj_fail_memory(err, "a TLS connection");
    if (status == PJ_OK) {
        *tunnel = t;
        *fd = pair[1];
        return PJ_OK;
    }
    tunnel_free(t);
    close(pair[1]);
    return status;
}

bool pj_tunnel_has_ended(pj_tunnel *t, pj_error *why)
{
    bool ended = atomic_load(&t->has_ended);
    if (ended && why) *why = t->failure;
    return ended;
}

void pj_tunnel_close(pj_tunnel *t)
{
    atomic_store(&t->is_stopping, true);
    shutdown(t->end, SHUT_RDWR);
    pthread_join(t->thread, NULL);
    tunnel_free(t);
}
