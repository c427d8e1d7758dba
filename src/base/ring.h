/* Lock-free ring of fixed-size elements for one producer and one consumer thread. The producer
 * never waits: when the ring is full the element is counted as lost, because a silent loss would
 * become a wrong figure. Indices only grow; head belongs to the
 * producer, tail to the consumer; each has its own cache line, with a cached copy of the other's
 * index. */
#ifndef PJ_BASE_RING_H
#define PJ_BASE_RING_H

#include "base/error.h"

#include <stdatomic.h>

typedef struct pj_ring {
    unsigned char *slots;
    size_t element_bytes;
    size_t mask;                        /* capacity - 1 */
    _Alignas(64) _Atomic uint64_t head; /* next to write */
    uint64_t tail_seen;                 /* writer's copy of tail */
    _Atomic uint64_t lost;
    _Alignas(64) _Atomic uint64_t tail; /* next to read */
} pj_ring;

/* Capacity is rounded up to a power of two. */
pj_status pj_ring_init(pj_ring *ring, size_t capacity, size_t element_bytes, pj_error *err);
void pj_ring_fini(pj_ring *ring);                       /* may run twice */
bool pj_ring_write(pj_ring *ring, const void *element); /* claim, copy, publish */
/* Reader: copies up to `max` elements out, returns how many. */
size_t pj_ring_read(pj_ring *ring, void *elements, size_t max);
uint64_t pj_ring_lost(const pj_ring *ring);

#endif
