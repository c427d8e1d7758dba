/* Non-blocking sockets of client and proxy: resolving (once, at the start), connecting, listening.
 */
#ifndef PJ_ATTACH_DIAL_H
#define PJ_ATTACH_DIAL_H

#include "attach/url.h"

#include <sys/socket.h>

typedef struct pj_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} pj_address;

/* May ask a name server. Prefers IPv4 for "localhost", where most engines listen. */
pj_status pj_address_resolve(const pj_url *url, pj_address *address, pj_error *err);
/* A socket that is connecting: writable once it is done. -1: errno says why. */
int pj_dial(const pj_address *address);
/* 0 once connected, else the error number. */
int pj_dial_error(int fd);
/* A listening socket; for port 0, `url` receives the assigned port. */
pj_status pj_listen(pj_url *url, int *fd, pj_error *err);
/* The next connection, -1 when there is none (errno as of accept). */
int pj_accept(int listener);

#endif
