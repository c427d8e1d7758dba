/*
 * The messages that the hub keeps, by number. Slots outlive their messages, so that a reader still
 * learns whether what is gone would have been for it. Bounded in messages and bytes: beyond the
 * bytes the oldest state messages go, then the oldest of all; beyond the count the oldest of all.
 *
 * Written by the hub's thread alone, with the hub's mutex held; read by it without.
 */
#ifndef PJ_NET_RING_H
#define PJ_NET_RING_H

#include "net/message.h"

typedef struct pj_ring_slot {
    pj_message *message; /* NULL: gone, or never made */
    uint64_t run_key;
    uint8_t audience;
    bool state;
} pj_ring_slot;

typedef struct pj_message_ring {
    pj_ring_slot *slots;
    uint64_t mask;
    uint64_t head, tail; /* numbers: next to come, oldest kept */
    uint64_t state_tail; /* below it all state messages are gone */
    size_t bytes, bytes_max;
} pj_message_ring;

pj_status pj_message_ring_init(pj_message_ring *ring, uint32_t messages, size_t bytes_max,
                               pj_error *err);
void pj_message_ring_fini(pj_message_ring *ring);
/* Takes the reference. Numbers that were skipped become empty slots. */
void pj_message_ring_put(pj_message_ring *ring, pj_message *message);

/* All messages of an audience from number `from` to the head in one block, with one reference;
 * NULL: there are none, or some are gone, or they are more than `bytes_max`. */
pj_message *pj_message_ring_join(const pj_message_ring *ring, uint64_t from, pj_audience audience,
                                 size_t bytes_max);

static inline pj_ring_slot *pj_message_ring_at(const pj_message_ring *ring, uint64_t number)
{
    return &ring->slots[number & ring->mask];
}

#endif
