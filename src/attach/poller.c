#include "attach/poller.h"

#include "base/memory.h"

#include <poll.h>
#include <unistd.h>

#if defined __linux__ && !defined PJ_POLLER_PORTABLE

#include <sys/epoll.h>

/* Linux gives the flags of both interfaces the same values. */
_Static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR &&
                   POLLHUP == EPOLLHUP,
               "the flags of poll and epoll differ");

enum { AT_ONCE = 256 };

struct pj_poller {
    int fd;
};

pj_poller *pj_poller_new(uint32_t most)
{
    pj_poller *p = pj_alloc(1, sizeof *p);
    (void)most;
    if (!p) return NULL;
    p->fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->fd >= 0) return p;
    pj_free(p);
    return NULL;
}

void pj_poller_free(pj_poller *p)
{
    if (p) close(p->fd);
    pj_free(p);
}

bool pj_poller_set(pj_poller *p, int fd, short before, short events, void *tag)
{
    struct epoll_event event = {.events = (uint32_t)events, .data.ptr = tag};
    if (before == events) return true;
    int change = !before ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    return epoll_ctl(p->fd, change, fd, &event) == 0;
}

uint32_t pj_poller_wait(pj_poller *p, pj_ready *ready, uint32_t most, int timeout_ms)
{
    struct epoll_event events[AT_ONCE];
    int n = epoll_wait(p->fd, events, most < AT_ONCE ? (int)most : AT_ONCE, timeout_ms);
    for (int i = 0; i < n; i++)
        ready[i] = (pj_ready){.tag = events[i].data.ptr, .events = (short)events[i].events};
    return n > 0 ? (uint32_t)n : 0;
}

#else

struct pj_poller {
    uint32_t count, most;
    struct pollfd *polls;
    void **tags;
};

pj_poller *pj_poller_new(uint32_t most)
{
    pj_poller *p = pj_alloc(1, sizeof *p);
    if (!p) return NULL;
    p->most = most;
    p->polls = pj_alloc(most, sizeof *p->polls);
    p->tags = pj_alloc(most, sizeof *p->tags);
    if (p->polls && p->tags) return p;
    pj_poller_free(p);
    return NULL;
}

void pj_poller_free(pj_poller *p)
{
    if (!p) return;
    pj_free(p->polls);
    pj_free(p->tags);
    pj_free(p);
}

static uint32_t location_of(const pj_poller *p, int fd)
{
    uint32_t i = 0;
    while (i < p->count && p->polls[i].fd != fd) i++;
    return i;
}

bool pj_poller_set(pj_poller *p, int fd, short before, short events, void *tag)
{
    if (before == events) return true;
    uint32_t i = location_of(p, fd);
    if (i == p->count && (!events || p->count == p->most)) return !events;
    if (events) {
        p->count += i == p->count;
        p->polls[i] = (struct pollfd){.fd = fd, .events = events};
        p->tags[i] = tag;
    } else {
        p->count--;
        p->polls[i] = p->polls[p->count];
        p->tags[i] = p->tags[p->count];
    }
    return true;
}

uint32_t pj_poller_wait(pj_poller *p, pj_ready *ready, uint32_t most, int timeout_ms)
{
    uint32_t found = 0;
    if (poll(p->polls, p->count, timeout_ms) <= 0) return 0;
    for (uint32_t i = 0; i < p->count && found < most; i++)
        if (p->polls[i].revents)
            ready[found++] = (pj_ready){.tag = p->tags[i], .events = p->polls[i].revents};
    return found;
}

#endif
