/* Non-blocking sockets. */
#include "attach/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static struct addrinfo *look_up(const pj_url *url, bool to_listen, int *why)
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

pj_status pj_address_resolve(const pj_url *url, pj_address *address, pj_error *err)
{
    int why;
    struct addrinfo *list = look_up(url, false, &why), *best = list;
    if (!list)
        return pj_fail(err, PJ_E_UNAVAILABLE, "cannot find %s: %s", url->host, gai_strerror(why));
    for (struct addrinfo *a = list; a; a = a->ai_next)
        if (a->ai_family == AF_INET) {
            best = a;
            break;
        }
    *address = (pj_address){.bytes = best->ai_addrlen};
    memcpy(&address->storage, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(list);
    return PJ_OK;
}

static int prepare(int fd)
{
    int on = 1, flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
}

int pj_dial(const pj_address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    prepare(fd);
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

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

pj_status pj_listen(pj_url *url, int *fd, pj_error *err)
{
    int why, on = 1;
    struct addrinfo *list = look_up(url, true, &why);
    char authority[PJ_URL_HOST_BYTES + 8];
    pj_url_authority(url, authority, sizeof authority);
    if (!list)
        return pj_fail(err, PJ_E_UNAVAILABLE, "cannot listen at %s: %s", authority,
                       gai_strerror(why));
    *fd = socket(list->ai_family, SOCK_STREAM, 0);
    if (*fd >= 0) {
        prepare(*fd);
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    bool ok =
        *fd >= 0 && bind(*fd, list->ai_addr, list->ai_addrlen) == 0 && listen(*fd, BACKLOG) == 0;
    why = errno;
    freeaddrinfo(list);
    if (!ok) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        return pj_fail_errno(err, why, "cannot listen at %s", authority);
    }
    url->port = port_of(*fd);
    return PJ_OK;
}

int pj_accept(int listener)
{
    int fd = accept(listener, NULL, NULL);
    return fd < 0 ? -1 : prepare(fd);
}
