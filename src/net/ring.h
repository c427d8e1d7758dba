/*
 * The messages that the hub keeps, by sequence number. Slots outlive their messages, so that a
 * reader can tell whether a dropped message was for it. Bounded in messages and bytes: beyond the
 * byte limit the oldest state messages are dropped, then the oldest of all; beyond the count the
 * oldest of all.
 *
 * Written only by the hub's thread with the hub's mutex held; that thread reads it without the
 * mutex.
 */
#ifndef PJ_NET_RING_H
#define PJ_NET_RING_H

#include "net/message.h"

typedef struct pj_ring_slot {
    pj_message *message; /* NULL: dropped, or never created */
    uint64_t run_key;
    uint8_t audience;
    bool state;
} pj_ring_slot;

typedef struct pj_message_ring {
    pj_ring_slot *slots;
    uint64_t mask;
    uint64_t head, tail; /* sequence numbers: next to come, oldest kept */
    uint64_t state_tail; /* below it all state messages have been dropped */
    size_t bytes, bytes_max;
} pj_message_ring;

pj_status pj_message_ring_init(pj_message_ring *ring, uint32_t messages, size_t bytes_max,
                               pj_error *err);
void pj_message_ring_fini(pj_message_ring *ring);
/* Takes the reference. Skipped numbers become empty slots. */
void pj_message_ring_put(pj_message_ring *ring, pj_message *message);

/* All messages of an audience from number `from` to the head as one block, with one reference;
 * NULL: none, some were dropped, or more than `bytes_max`. */
pj_message *pj_message_ring_join(const pj_message_ring *ring, uint64_t from, pj_audience audience,
                                 size_t bytes_max);

static inline pj_ring_slot *pj_message_ring_at(const pj_message_ring *ring, uint64_t number)
{
    return &ring->slots[number & ring->mask];
}

#endif
