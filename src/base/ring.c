/* Single-producer single-consumer ring; see the header for the protocol. */
#include "base/ring.h"

#include "base/memory.h"

#include <string.h>

pj_status pj_ring_init(pj_ring *ring, size_t capacity, size_t element_bytes, pj_error *err)
{
    size_t rounded = 1;
    while (rounded < capacity) rounded *= 2;
    memset(ring, 0, sizeof *ring);
    ring->slots = pj_alloc_aligned(64, rounded, element_bytes);
    if (!ring->slots) return pj_fail_memory(err, "a ring buffer");
    ring->element_bytes = element_bytes;
    ring->mask = rounded - 1;
    return PJ_OK;
}

void pj_ring_fini(pj_ring *ring)
{
    pj_free(ring->slots);
    ring->slots = NULL;
}

/* Writer: a slot to fill, or NULL (and one more lost). Then publish. */
static void *ring_claim(pj_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - ring->tail_seen > ring->mask) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - ring->tail_seen > ring->mask) {
            atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
            return NULL;
        }
    }
    return ring->slots + (head & ring->mask) * ring->element_bytes;
}

static void ring_publish(pj_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

bool pj_ring_write(pj_ring *ring, const void *element)
{
    void *slot = ring_claim(ring);
    if (!slot) return false;
    memcpy(slot, element, ring->element_bytes);
    ring_publish(ring);
    return true;
}

size_t pj_ring_read(pj_ring *ring, void *elements, size_t max)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    size_t count = head - tail < max ? (size_t)(head - tail) : max;
    size_t first = ring->mask + 1 - (tail & ring->mask); /* until the wrap */
    if (first > count) first = count;
    memcpy(elements, ring->slots + (tail & ring->mask) * ring->element_bytes,
           first * ring->element_bytes);
    memcpy((char *)elements + first * ring->element_bytes, ring->slots,
           (count - first) * ring->element_bytes);
    atomic_store_explicit(&ring->tail, tail + count, memory_order_release);
    return count;
}

uint64_t pj_ring_lost(const pj_ring *ring)
{
    return atomic_load_explicit(&ring->lost, memory_order_relaxed);
}
