/* A fake service with known answers, and access to a server over a socket pair instead of a port.
 */
#ifndef PJ_TESTS_MADE_SERVICE_H
#define PJ_TESTS_MADE_SERVICE_H

#include "net/server.h"

#include <stdatomic.h>

/* One stored run of this id; an export of `export_bytes` bytes; a queue of one that is full after
 * it. */
#define MADE_RUN "01989c2e-7d1a-7c3e-9b8f-0123456789ab"

typedef struct made {
    pj_service service;
    uint64_t export_bytes;
    _Atomic uint64_t exported; /* bytes produced so far */
    _Atomic int generated, waited;
    atomic_bool holds_groups; /* views of groups take until it is cleared */
    _Atomic int grouping, most_grouping, grouped;
} made;

void made_init(made *m);
/* A server without a port on that service, with its own hub. */
void made_server(made *m, const pj_hub_options *options, pj_hub **hub, pj_server **server);
/* A server driven by made_talk_polled in the caller's thread. */
void made_server_polled(made *m, pj_hub **hub, pj_server **server);
int made_connect(pj_server *server); /* a connected socket */
/* Sends, shuts down the sending side, and receives until the end of the stream, at most 4 MB.
 * Returns the NUL-terminated response; the caller frees it. */
char *made_talk(pj_server *server, const void *request, size_t bytes, size_t *got);
char *made_talk_polled(pj_server *server, const void *request, size_t bytes, size_t *got);
int made_status(const char *answer); /* 200 of "HTTP/1.1 200 ...", 0: none */

#endif
