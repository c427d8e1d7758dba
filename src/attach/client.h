/* A client for streaming HTTP servers: sends a number of requests with bounded concurrency and
 * reports their progress through hooks. One thread; one connection per request in flight, kept
 * alive between requests where the server allows it. */
#ifndef PJ_ATTACH_CLIENT_H
#define PJ_ATTACH_CLIENT_H

#include "attach/exchange.h"
#include "http/url.h"

enum { PJ_CLIENT_CONCURRENCY_MAX = 1024 };

typedef struct pj_client_hooks {
    void *context;
    /* The body of request `index`; it stays valid until the request ends. */
    const char *(*body)(void *context, uint32_t index, size_t *bytes);
    /* A request is about to be sent. Returns the `request` argument of the other hooks. */
    void *(*begin)(void *context, uint32_t index, pj_exchange *exchange);
    void (*progress)(void *context, void *request); /* a part of the answer has arrived */
    /* The request has ended, successfully or not; ownership of the exchange passes to the hook. */
    void (*end)(void *context, void *request, pj_exchange *exchange);
} pj_client_hooks;

typedef struct pj_client_options {
    const pj_url *url;
    const char *path;    /* after the URL's prefix: "/chat/completions" */
    const char *headers; /* more lines of the head, each with CR LF; or NULL */
    uint32_t requests, concurrency;
    const _Atomic bool *cancel; /* or NULL */
    pj_client_hooks hooks;
} pj_client_options;

/* Returns when all requests have ended. Failures of single requests are recorded in their
 * exchanges; an error here means that no request could be attempted. PJ_E_CANCELLED: requests in
 * flight were aborted. */
pj_status pj_client_run(const pj_client_options *options, pj_error *err);

#endif
