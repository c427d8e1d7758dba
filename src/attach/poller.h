/*
 * Readiness of many sockets, level-triggered. On Linux this is epoll, so that a wait costs by the
 * sockets that are ready and not by those that are open; elsewhere it is poll.
 */
#ifndef PJ_ATTACH_POLLER_H
#define PJ_ATTACH_POLLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_poller pj_poller;

typedef struct pj_ready {
    void *tag;
    short events; /* POLLIN, POLLOUT, POLLERR, POLLHUP */
} pj_ready;

/* For at most `most` sockets at once. NULL: out of memory or file descriptors. */
pj_poller *pj_poller_new(uint32_t most);
void pj_poller_free(pj_poller *p);
/* Waits for `events` (POLLIN, POLLOUT) of a socket that is watched for `before`; 0: not watched,
 * and then errors and disconnections are not reported either. Must be set to 0 before the socket is
 * closed. False: the socket cannot be watched. */
bool pj_poller_set(pj_poller *p, int fd, short before, short events, void *tag);
/* The number of sockets that are ready, up to `most`; 0: none within the timeout. */
uint32_t pj_poller_wait(pj_poller *p, pj_ready *ready, uint32_t most, int timeout_ms);

#endif
