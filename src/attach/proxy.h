/*
 * A proxy in front of an engine's server. It forwards requests and answers unchanged and without
 * buffering, except that it adds the energy of a request to its answer: as headers when the answer
 * is not streamed, as a member of every `usage` object, and as a trailer if the client accepts
 * trailers. Every inference request is reported to the hooks as an exchange. GET /metrics is
 * answered by the proxy; the server's own is at /upstream/metrics.
 *
 * One thread, non-blocking sockets, one server connection per client connection. A protocol error
 * ends only its own pair of connections.
 */
#ifndef PJ_ATTACH_PROXY_H
#define PJ_ATTACH_PROXY_H

#include "attach/energy_fields.h"
#include "attach/exchange.h"
#include "http/socket.h"

/* Joules; NAN: unavailable. */
typedef struct pj_proxy_energy {
    double total, input, output, lo, hi;
    const char *source, *method; /* "measured"; "allocated" */
    bool provisional;
} pj_proxy_energy;

typedef struct pj_proxy_hooks {
    void *context;
    /* Whether a request is admitted; texts are NULL for absent headers. 0: admitted; else the
     * status to reject it with, and `detail`. */
    int (*admit)(void *context, const char *host, const char *origin, const char *authorization,
                 const char *token, const char **detail);
    /* Whether this Authorization header is the proxy's own token, which is not forwarded. */
    bool (*is_own_token)(void *context, const char *authorization);
    void *(*begin)(void *context, pj_exchange *exchange); /* NULL: the request is not recorded */
    void (*progress)(void *context, void *request);
    /* The request has ended; ownership of the exchange passes to the hook (also when `request` is
     * NULL). `energy` may be called until release. */
    void (*end)(void *context, void *request, pj_exchange *exchange);
    void (*release)(void *context, void *request);
    const char *(*id)(void *context, void *request);
    pj_proxy_energy (*energy)(void *context, void *request, int64_t now_ns);
    /* Writes GET /metrics of the proxy itself; NULL: the server's is passed on. */
    void (*metrics)(void *context, pj_buffer *out);
} pj_proxy_hooks;

typedef struct pj_proxy_options {
    const pj_url *url;
    int listener; /* of pj_listen; stays the caller's */
    bool headers_only;
    const pj_energy_fields *fields; /* of every answer; NULL: none */
    const _Atomic bool *stop;
    pj_proxy_hooks hooks;
} pj_proxy_options;

enum { PJ_PROXY_FILES = 2400 }; /* descriptors that all its connections take */

/* Runs until it is stopped. Connections beyond the most it serves are told so (503). */
pj_status pj_proxy_run(const pj_proxy_options *options, pj_error *err);

#endif
