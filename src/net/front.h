/*
 * The front of the server: one thread accepts connections and looks at the head of the request
 * (recv with MSG_PEEK, so that it stays to be read). A head that is sound hands its connection on;
 * any other gets one problem document and a closed connection. Connections carry one request each
 * (every answer says Connection: close), so every request is judged here.
 */
#ifndef PJ_NET_FRONT_H
#define PJ_NET_FRONT_H

#include "base/error.h"

#include <sys/socket.h>

typedef struct pj_front pj_front;

/* Takes a connection whose head is complete; the descriptor goes over. */
typedef void pj_front_pass_fn(void *context, int fd, const struct sockaddr *address,
                              socklen_t bytes);

/* `listener` goes over, whatever the outcome. */
pj_status pj_front_open(int listener, pj_front_pass_fn *pass, void *context, pj_front **front,
                        pj_error *err);
void pj_front_close(pj_front *front); /* takes no more; NULL is allowed */

#endif
