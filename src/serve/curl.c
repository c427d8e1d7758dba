#include "serve/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* libcurl's stable interface, as far as it is used: numbers of options never change. */
enum {
    OPTION_TIMEOUT_MS = 155,
    OPTION_NOSIGNAL = 99,
    OPTION_POSTFIELDSIZE = 60,
    OPTION_URL = 10002,
    OPTION_POSTFIELDS = 10015,
    OPTION_HTTPHEADER = 10023,
    OPTION_WRITEFUNCTION = 20011,
    INFO_RESPONSE_CODE = 0x200002,
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
                   "telemetry is sent through libcurl, and %s is missing: install libcurl (Debian: "
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
