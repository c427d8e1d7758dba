#include "http/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static struct addrinfo *socket_look_up(const pj_url *url, bool to_listen, int *why)
{
    char port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = to_listen ? AI_PASSIVE : 0},
                    *list = NULL;
    snprintf(port, sizeof port, "%d", url->port);
    *why = getaddrinfo(url->host, port, &hints, &list);
    return *why ? NULL : list;
}

/* Whether a connection to it is accepted within a second. */
static bool socket_accepts(const struct addrinfo *a)
{
    pj_address address = {.bytes = a->ai_addrlen};
    memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    int fd = pj_dial(&address);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    bool is = fd >= 0 && poll(&p, 1, 1000) > 0 && pj_dial_error(fd) == 0;
    if (fd >= 0) close(fd);
    return is;
}

const struct addrinfo *pj_address_choose(const struct addrinfo *list)
{
    static const int families[] = {AF_INET, AF_INET6};
    const struct addrinfo *first = NULL;
    for (int f = 0; f < 2; f++)
        for (const struct addrinfo *a = list; a; a = a->ai_next) {
            if (a->ai_family != families[f]) continue;
            if (!list->ai_next || socket_accepts(a)) return a;
            if (!first) first = a;
        }
    return first ? first : list;
}

pj_status pj_address_resolve(const pj_url *url, pj_address *address, pj_error *err)
{
    int why;
    struct addrinfo *list = socket_look_up(url, false, &why);
    if (!list)
        return pj_fail(err, PJ_E_UNAVAILABLE, "cannot find %s: %s", url->host, gai_strerror(why));
    const struct addrinfo *best = pj_address_choose(list);
    *address = (pj_address){.bytes = best->ai_addrlen};
    memcpy(&address->storage, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(list);
    return PJ_OK;
}

/* ---- this machine ---------------------------------------------------------------------------- */

static bool address_is_v4(const void *bytes)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(bytes, mapped, sizeof mapped) == 0;
}

/* The address's bytes as those of IPv6. */
static bool address_get_bytes(const struct sockaddr *from, unsigned char to[16])
{
    if (from && from->sa_family == AF_INET6) {
        memcpy(to, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        return true;
    }
    if (!from || from->sa_family != AF_INET) return false;
    memset(to, 0, 10);
    to[10] = to[11] = 0xff;
    memcpy(to + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    return true;
}

bool pj_address_is_here(const pj_address *address)
{
    static const unsigned char any[16], loopback[16] = {[15] = 1};
    unsigned char wanted[16], own[16];
    struct ifaddrs *all = NULL;
    if (!address_get_bytes((const struct sockaddr *)&address->storage, wanted)) return false;
    if (memcmp(wanted, any, 16) == 0 || memcmp(wanted, loopback, 16) == 0) return true;
    if (address_is_v4(wanted) && (wanted[12] == 127 || memcmp(wanted + 12, any, 4) == 0))
        return true;
    if (getifaddrs(&all) != 0) return false;
    bool found = false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        found = address_get_bytes(i->ifa_addr, own) && memcmp(own, wanted, 16) == 0;
    freeifaddrs(all);
    return found;
}

bool pj_url_is_here(const pj_url *url)
{
    pj_address address;
    return pj_host_is_loopback(url->host) ||
           (pj_address_resolve(url, &address, NULL) == PJ_OK && pj_address_is_here(&address));
}

/* ---- sockets --------------------------------------------------------------------------------- */

int pj_fd_prepare(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

static int socket_prepare_connection(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return pj_fd_prepare(fd);
}

int pj_dial(const pj_address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    socket_prepare_connection(fd);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->bytes) == 0 ||
        errno == EINPROGRESS)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int pj_dial_error(int fd)
{
    int why = 0;
    socklen_t bytes = sizeof why;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &bytes) != 0) return errno;
    return why;
}

static int socket_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* -1: errno is set. */
static int socket_listen_at(const struct addrinfo *a)
{
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return pj_fd_prepare(fd);
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

pj_status pj_listen(pj_url *url, int *fd, pj_error *err)
{
    int why;
    struct addrinfo *list = socket_look_up(url, true, &why);
    *fd = -1;
    if (!list)
        return pj_fail(err, PJ_E_INVALID, "%s is not an address of this machine: %s", url->host,
                       gai_strerror(why));
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) *fd = socket_listen_at(a);
    why = errno;
    freeaddrinfo(list);
    if (*fd < 0 && why == EADDRINUSE)
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "port %d of %s is in use already; choose another, or 0 for a free one",
                       url->port, url->host);
    if (*fd < 0)
        return pj_fail_errno(err, why, "cannot listen on %s port %d", url->host, url->port);
    url->port = socket_port(*fd);
    return PJ_OK;
}

void pj_peer_address(int fd, char *text, size_t bytes)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    text[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0) return;
    if (getnameinfo((struct sockaddr *)&address, length, text, (socklen_t)bytes, NULL, 0,
                    NI_NUMERICHOST) != 0)
        text[0] = 0;
}

int pj_accept(int listener)
{
    int fd = accept(listener, NULL, NULL);
    return fd < 0 ? -1 : socket_prepare_connection(fd);
}
