/* A live message: framed once, shared by reference counting. A block is several messages in one
 * buffer, for readers that get all of them. */
#ifndef PJ_NET_MESSAGE_H
#define PJ_NET_MESSAGE_H

#include "http/websocket.h"
#include "net/hub.h"

#include <stdatomic.h>

typedef struct pj_message {
    _Atomic uint32_t references;
    uint32_t head_bytes; /* of the frame; the payload follows; 0: a block */
    uint32_t count;      /* messages in it: 1, or those of a block */
    size_t bytes;        /* of the whole frame, or all of a block's */
    uint64_t sequence;
    uint64_t run_key; /* 0: of no run */
    uint8_t audience; /* pj_audience */
    bool state, begins_run, ends_run, binary;
    struct pj_message *next; /* link in the inbox */
    unsigned char frame[];
} pj_message;

uint64_t pj_run_key(const char *run_id); /* 0 for NULL and "" */
pj_message *pj_message_new(const pj_publication *publication, uint64_t sequence); /* 1 reference */
pj_message *pj_message_ref(pj_message *message);
void pj_message_unref(pj_message *message); /* NULL is allowed */

#endif
