/* Many connections that store runs in one database at the same time. */
#ifndef PJ_BENCH_BENCH_STORE_WRITERS_H
#define PJ_BENCH_BENCH_STORE_WRITERS_H

#include "store/store.h"

typedef struct pj_bench_writers {
    const char *database;
    uint32_t count;
    double seconds; /* duration: requested, then actual */
    /* ---- results ---- */
    uint64_t saved;  /* runs reported as stored */
    uint64_t failed; /* attempts that failed */
    uint64_t lost;   /* saved runs that are missing or duplicated */
    double slowest_ms;
} pj_bench_writers;

/* Fails only if the writers cannot be started or the result cannot be counted. */
pj_status pj_bench_writers_run(pj_bench_writers *writers, pj_error *err);

#endif
