/* For `perjoule bench attach`: a relay that copies bytes between connections unexamined: the lower
 * bound of what a proxy costs. */
#ifndef PJ_BENCH_BENCH_RELAY_H
#define PJ_BENCH_BENCH_RELAY_H

#include "http/socket.h"

#include <stdatomic.h>

typedef struct pj_bench_relay {
    const pj_url *to;
    int listener; /* of pj_listen; stays the caller's */
    const _Atomic bool *stop;
} pj_bench_relay;

/* All of the bytes, through a socket that need not be ready; false: the connection is gone. */
bool pj_bench_send(int fd, const char *bytes, size_t count);
void pj_bench_relay_run(const pj_bench_relay *relay);

#endif
