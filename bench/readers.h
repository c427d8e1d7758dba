/* WebSocket readers for benchmarks: many sockets, one thread; frames are counted and checked but
 * not stored. Some may be deaf: they connect and never read. */
#ifndef PJ_BENCH_BENCH_TAPS_H
#define PJ_BENCH_BENCH_TAPS_H

#include "base/error.h"

typedef struct pj_bench_readers pj_bench_readers;

typedef struct pj_bench_readers_report {
    uint32_t readers, deaf;
    uint64_t messages, bytes;  /* sum over all readers that read */
    uint64_t least, most;      /* messages of one reader */
    uint64_t gaps, disordered; /* gap messages; sequence numbers that did not increase */
    uint32_t ended, cut;       /* run ends received; readers that were disconnected */
} pj_bench_readers_report;

/* Connects `readers` to ws://127.0.0.1:port/ws/profiling, every `deaf_every`th of them deaf (0:
 * none). The reading thread stays on `cpu`, wherever the caller is pinned. */
pj_status pj_bench_readers_open(uint16_t port, uint32_t readers, uint32_t deaf_every, bool binary,
                                int cpu, pj_bench_readers **reader_set, pj_error *err);
/* Reconnects the deaf ones: the server disconnects readers that accept nothing for long. */
pj_status pj_bench_readers_renew_deaf(pj_bench_readers *reader_set, pj_error *err);
/* Waits until all reading readers have received the ends of `runs` runs; false: timeout. */
bool pj_bench_readers_wait(pj_bench_readers *reader_set, uint32_t runs, int64_t timeout_ns);
void pj_bench_readers_close(pj_bench_readers *reader_set,
                            pj_bench_readers_report *report); /* NULL is allowed */

#endif
