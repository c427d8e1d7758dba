/*
 * A proxy in front of an engine's server: what clients send and what the server answers passes
 * through as it is, byte by byte and without waiting, except that the energy of a request is put
 * into its answer: headers where the answer is one piece, a member of every `usage` object, a
 * trailer where the client takes trailers. Every request to a model is an exchange that
 * is reported to the hooks.
 *
 * One thread, sockets that do not block, one connection to the server for each of a client. What
 * either side does wrong ends its own connection and nothing else.
 */
#ifndef PJ_ATTACH_PROXY_H
#define PJ_ATTACH_PROXY_H

#include "attach/dial.h"
#include "attach/exchange.h"

/* Joules; NAN: unavailable. */
typedef struct pj_proxy_energy {
    double total, input, output, lo, hi;
    const char *source, *method; /* "measured"; "allocated" */
    bool provisional;
} pj_proxy_energy;

typedef struct pj_proxy_hooks {
    void *context;
    /* Whether a client may come in; texts are NULL where there is no such header. 0: it may; else
     * the status to refuse it with, and `detail`. */
    int (*admit)(void *context, const char *host, const char *origin, const char *authorization,
                 const char *token, const char **detail);
    /* Whether this Authorization is the proxy's own token, which the server is not to see. */
    bool (*is_own_token)(void *context, const char *authorization);
    void *(*begin)(void *context, pj_exchange *exchange); /* NULL: it is not followed */
    void (*progress)(void *context, void *request);
    /* It has ended; the exchange goes over (also where `request` is NULL). Energy may be asked for
     * until release. */
    void (*end)(void *context, void *request, pj_exchange *exchange);
    void (*release)(void *context, void *request);
    const char *(*id)(void *context, void *request);
    pj_proxy_energy (*energy)(void *context, void *request, int64_t now_ns);
} pj_proxy_hooks;

typedef struct pj_proxy_options {
    const pj_url *url;
    int listener; /* of pj_listen; stays the caller's */
    bool headers_only;
    const _Atomic bool *stop;
    pj_proxy_hooks hooks;
} pj_proxy_options;

/* Runs until it is stopped. */
pj_status pj_proxy_run(const pj_proxy_options *options, pj_error *err);

#endif
