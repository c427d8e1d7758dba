/* Non-blocking sockets: resolving, connecting, listening. */
#ifndef PJ_HTTP_SOCKET_H
#define PJ_HTTP_SOCKET_H

#include "http/url.h"

#include <netdb.h>
#include <sys/socket.h>

typedef struct pj_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} pj_address;

/* May ask a name server. Of a name with several addresses ("localhost" is 127.0.0.1 and ::1) takes
 * the first at which something listens, IPv4 first; that may take a second for each. */
pj_status pj_address_resolve(const pj_url *url, pj_address *address, pj_error *err);
/* Of these, the first at which something listens, else the first of all. */
const struct addrinfo *pj_address_choose(const struct addrinfo *list);
/* Whether it is one of this machine's own addresses. */
bool pj_address_is_here(const pj_address *address);
/* Whether the server is on this machine; may ask a name server. */
bool pj_url_is_here(const pj_url *url);
/* Makes a descriptor non-blocking and closed on exec; returns it. */
int pj_fd_prepare(int fd);
/* A socket that is connecting: writable once it is done. -1: errno is set. */
int pj_dial(const pj_address *address);
/* 0 once connected, else the error number. */
int pj_dial_error(int fd);
/* A listening socket at the first of the host's addresses that allows it; for port 0, `url`
 * receives the assigned port. */
pj_status pj_listen(pj_url *url, int *fd, pj_error *err);
/* The next connection, -1 when there is none (errno as of accept). */
/* The other end's numeric address without its port; "": unknown. */
void pj_peer_address(int fd, char *text, size_t bytes);
int pj_accept(int listener);

#endif
