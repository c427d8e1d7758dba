#include "serve/curl.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    GLOBAL_ALL = 3
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

static void load(void)
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
    pthread_once(&once, load);
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
    if (!handle) return pj_fail(err, PJ_E_NO_MEMORY, "libcurl has no memory for a request");
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
    return pj_fail(err, PJ_E_STATE, "%s answers with status %ld", shown, *http_status);
}

/* ---- connections ------------------------------------------------------------------------------
 */

struct pj_curl_connection {
    void *handle;
    bool (*is_stopped)(void *context);
    void *context;
    char why[ERROR_BYTES];
};

static int is_stopped(void *connection, int64_t total_down, int64_t down, int64_t total_up,
                      int64_t up)
{
    const pj_curl_connection *c = connection;
    return c->is_stopped(c->context);
}

static void set_up(pj_curl_connection *c, const char *url, int timeout_ms)
{
    curl.setopt(c->handle, OPTION_URL, url);
    curl.setopt(c->handle, OPTION_CONNECT_ONLY, 1L);
    curl.setopt(c->handle, OPTION_HTTP_VERSION, (long)HTTP_VERSION_1_1);
    curl.setopt(c->handle, OPTION_CONNECTTIMEOUT_MS, (long)timeout_ms);
    curl.setopt(c->handle, OPTION_NOSIGNAL, 1L);
    curl.setopt(c->handle, OPTION_ERRORBUFFER, c->why);
    curl.setopt(c->handle, OPTION_NOPROGRESS, 0L);
    curl.setopt(c->handle, OPTION_XFERINFOFUNCTION, is_stopped);
    curl.setopt(c->handle, OPTION_XFERINFODATA, c);
    set_certificates(c->handle);
}

pj_status pj_curl_connect(const char *url, int timeout_ms, bool (*stopped)(void *context),
                          void *context, pj_curl_connection **connection, pj_error *err)
{
    char shown[256];
    pj_curl_connection *c = pj_alloc(1, sizeof *c);
    if (c) c->handle = curl.init();
    if (!c || !c->handle) {
        pj_free(c);
        return pj_fail_memory(err, "a connection");
    }
    c->is_stopped = stopped;
    c->context = context;
    set_up(c, url, timeout_ms);
    int code = curl.perform(c->handle);
    if (code == 0) {
        *connection = c;
        return PJ_OK;
    }
    public_url(url, shown, sizeof shown);
    pj_status status = pj_fail(err, PJ_E_UNAVAILABLE, "%s cannot be reached: %s", shown,
                               c->why[0] ? c->why : curl.strerror(code));
    pj_curl_disconnect(c);
    return status;
}

int pj_curl_socket(const pj_curl_connection *c)
{
    int fd = -1; /* curl_socket_t */
    return curl.getinfo(c->handle, INFO_ACTIVESOCKET, &fd) == 0 ? fd : -1;
}

static pj_curl_moved moved(int code, size_t count)
{
    if (code == CODE_AGAIN) return PJ_CURL_AGAIN;
    return code == 0 && count ? PJ_CURL_DONE : PJ_CURL_CLOSED;
}

pj_curl_moved pj_curl_send(pj_curl_connection *c, const void *bytes, size_t count, size_t *sent)
{
    *sent = 0;
    int code = curl.send(c->handle, bytes, count, sent);
    return moved(code, *sent);
}

pj_curl_moved pj_curl_receive(pj_curl_connection *c, void *bytes, size_t count, size_t *received)
{
    *received = 0;
    int code = curl.receive(c->handle, bytes, count, received);
    return moved(code, *received);
}

void pj_curl_disconnect(pj_curl_connection *c)
{
    if (!c) return;
    curl.cleanup(c->handle);
    pj_free(c);
}
