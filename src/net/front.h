/* The front of the server: one thread accepts connections and reads the request head with MSG_PEEK,
 * so that it stays in the socket. A valid head passes the connection on; any other gets one problem
 * document and a closed connection. Connections carry one request each (every answer says
 * Connection: close), so every request is checked here. */
#ifndef PJ_NET_FRONT_H
#define PJ_NET_FRONT_H

#include "base/error.h"

#include <sys/socket.h>

typedef struct pj_front pj_front;

/* Receives a connection whose head is complete, and then owns the descriptor; false: there is no
 * room for it, and the front answers 503. */
typedef bool pj_front_pass_fn(void *context, int fd, const struct sockaddr *address,
                              socklen_t bytes);

/* Takes ownership of `listener`, which does not block, whatever the outcome. */
pj_status pj_front_open(int listener, pj_front_pass_fn *pass, void *context, pj_front **front,
                        pj_error *err);
void pj_front_close(pj_front *front); /* stops accepting; NULL is allowed */

#endif
