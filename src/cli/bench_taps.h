/*
 * WebSocket readers for benchmarks: many sockets, one thread, frames counted and checked as they
 * come and not kept. Some of them may be deaf: they connect and never read.
 */
#ifndef PJ_CLI_BENCH_TAPS_H
#define PJ_CLI_BENCH_TAPS_H

#include "base/error.h"

typedef struct pj_taps pj_taps;

typedef struct pj_taps_report {
    uint32_t readers, deaf;
    uint64_t messages, bytes;  /* over all that read */
    uint64_t least, most;      /* messages of one reader */
    uint64_t gaps, disordered; /* gap messages; numbers that did not rise */
    uint32_t ended, cut;       /* ends of runs that were heard; readers that were cut off */
    double cpu_s;              /* of the reading thread */
} pj_taps_report;

/* Connects `readers` to ws://127.0.0.1:port/ws/profiling, every `deaf_every`th of them deaf (0:
 * none). The reading thread stays on `cpu`, wherever the caller is pinned. */
pj_status pj_taps_open(uint16_t port, uint32_t readers, uint32_t deaf_every, bool binary, int cpu,
                       pj_taps **taps, pj_error *err);
/* Connects the deaf ones anew: the server cuts off who takes nothing for long. */
pj_status pj_taps_renew_deaf(pj_taps *taps, pj_error *err);
/* Waits until all that read have heard of the ends of so many runs; false: not within `timeout_ns`.
 */
bool pj_taps_wait(pj_taps *taps, uint32_t runs, int64_t timeout_ns);
void pj_taps_close(pj_taps *taps, pj_taps_report *report); /* NULL is allowed */

#endif
