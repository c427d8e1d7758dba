/* The HTTP and WebSocket server of one process: libmicrohttpd with one thread per connection, so
 * that a request waiting for a run or a slow export blocks no other; and one hub thread for all
 * WebSocket readers (hub.h), which takes over a socket after its handshake. */
#ifndef PJ_NET_SERVER_H
#define PJ_NET_SERVER_H

#include "net/gate.h"
#include "net/hub.h"
#include "net/relay.h"
#include "net/service.h"

typedef struct pj_server pj_server;

typedef struct pj_server_options {
    const char *host;               /* NULL: 127.0.0.1 */
    uint16_t port;                  /* 0: a free one */
    const char *token;              /* NULL: none; of at least 16 characters off loopback */
    const char *const *join_tokens; /* of machines that join (gate.h); NULL: the token */
    const char *const *extra_hosts, *const *extra_origins; /* NULL-terminated, or NULL */
    const pj_service *service;
    pj_hub *hub;
    pj_relay *relay;               /* NULL: machines cannot join this server */
    void (*say)(const char *text); /* gets refused machines and wrong tokens; NULL: nobody */
    bool no_listen;                /* connections come only by pj_server_add, for tests */
    bool is_polled; /* no thread per connection: work is done by pj_server_poll; with no_listen */
} pj_server_options;

/* Strings, service and hub are borrowed until the server is closed. */
pj_status pj_server_open(const pj_server_options *options, pj_server **server, pj_error *err);
/* Aborts answers in progress. Requests that wait for a run must have been answered before (their
 * runs ended). NULL is allowed. */
void pj_server_close(pj_server *server);
uint16_t pj_server_port(const pj_server *server);
/* Takes a connected socket as if it had been accepted. */
pj_status pj_server_add(pj_server *server, int fd, pj_error *err);
/* Does what can be done without waiting, for a server that is polled. */
void pj_server_poll(pj_server *server);

#endif
