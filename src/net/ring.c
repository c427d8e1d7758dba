#include "net/ring.h"

#include "base/memory.h"

#include <string.h>

pj_status pj_message_ring_init(pj_message_ring *ring, uint32_t messages, size_t bytes_max,
                               pj_error *err)
{
    uint64_t capacity = 64;
    while (capacity < messages) capacity *= 2;
    *ring = (pj_message_ring){
        .mask = capacity - 1, .head = 1, .tail = 1, .state_tail = 1, .bytes_max = bytes_max};
    ring->slots = pj_alloc(capacity, sizeof *ring->slots);
    return ring->slots ? PJ_OK : pj_fail_memory(err, "live messages");
}

static void ring_forget(pj_message_ring *ring, pj_ring_slot *slot)
{
    if (!slot->message) return;
    ring->bytes -= slot->message->bytes;
    pj_message_unref(slot->message);
    slot->message = NULL;
}

static void drop_oldest(pj_message_ring *ring)
{
    ring_forget(ring, pj_message_ring_at(ring, ring->tail++));
    if (ring->state_tail < ring->tail) ring->state_tail = ring->tail;
}

void pj_message_ring_fini(pj_message_ring *ring)
{
    while (ring->slots && ring->tail < ring->head) drop_oldest(ring);
    pj_free(ring->slots);
    ring->slots = NULL;
}

/* The newest message stays, however large it is. */
static void ring_shrink(pj_message_ring *ring)
{
    while (ring->bytes > ring->bytes_max && ring->state_tail + 1 < ring->head) {
        pj_ring_slot *slot = pj_message_ring_at(ring, ring->state_tail++);
        if (slot->state) ring_forget(ring, slot);
    }
    while (ring->bytes > ring->bytes_max && ring->tail + 1 < ring->head) drop_oldest(ring);
}

static void ring_append(pj_message_ring *ring, pj_ring_slot slot)
{
    if (ring->head - ring->tail > ring->mask) drop_oldest(ring);
    *pj_message_ring_at(ring, ring->head++) = slot;
}

void pj_message_ring_put(pj_message_ring *ring, pj_message *message)
{
    /* More missing numbers than the capacity are equivalent to an empty ring. */
    if (message->sequence - ring->head > ring->mask + 1) {
        while (ring->tail < ring->head) drop_oldest(ring);
        ring->head = ring->tail = ring->state_tail = message->sequence - ring->mask;
    }
    while (ring->head < message->sequence)
        ring_append(ring, (pj_ring_slot){.audience = PJ_FOR_ALL});
    ring_append(ring, (pj_ring_slot){message, message->run_key, message->audience, message->state});
    ring->bytes += message->bytes;
    ring_shrink(ring);
}

pj_message *pj_message_ring_join(const pj_message_ring *ring, uint64_t from, pj_audience audience,
                                 size_t bytes_max)
{
    size_t bytes = 0;
    uint32_t count = 0;
    if (from < ring->tail) return NULL;
    for (uint64_t n = from; n < ring->head; n++) {
        const pj_ring_slot *slot = pj_message_ring_at(ring, n);
        if (!(slot->audience & audience)) continue;
        if (!slot->message || (bytes += slot->message->bytes) > bytes_max) return NULL;
        count++;
    }
    pj_message *block = count ? pj_alloc(1, sizeof *block + bytes) : NULL;
    if (!block) return NULL;
    atomic_init(&block->references, 1);
    block->count = count;
    for (uint64_t n = from; n < ring->head; n++) {
        const pj_ring_slot *slot = pj_message_ring_at(ring, n);
        if (!(slot->audience & audience)) continue;
        memcpy(block->frame + block->bytes, slot->message->frame, slot->message->bytes);
        block->bytes += slot->message->bytes;
    }
    return block;
}
