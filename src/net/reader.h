/*
 * One WebSocket reader as the hub's thread sees it: a position in the ring, a few messages on their
 * way out, and the small frames that the protocol itself wants (pong, ping, close). wslay reads
 * what comes in; what goes out is framed already and only needs a socket.
 */
#ifndef PJ_NET_READER_H
#define PJ_NET_READER_H

#include "net/ring.h"

enum { PJ_READER_PENDING = 16, PJ_READER_CONTROL_BYTES = 1024, PJ_INBOUND_MAX_BYTES = 4096 };

typedef struct pj_reader {
    int fd;
    uint64_t run_key;
    uint8_t audience;                       /* PJ_FOR_JSON or PJ_FOR_BINARY */
    uint64_t cursor;                        /* number of the next message to look at */
    uint64_t gap_from, gap_to;              /* lost and not told yet; gap_from 0: nothing */
    pj_message *pending[PJ_READER_PENDING]; /* chosen, in order; references held */
    uint32_t pending_count;
    size_t offset; /* sent of pending[0] */
    unsigned char control[PJ_READER_CONTROL_BYTES];
    size_t control_used, control_sent;
    bool blocked; /* the socket took no more */
    bool lagging; /* ... and the reader is far behind: no state messages until it has caught up */
    bool closing; /* a close frame went out or lies in `control`: then the socket goes */
    int64_t progress_ns, ping_ns;
    struct wslay_event_context *wslay;
    unsigned char *early; /* bytes that came with the handshake */
    size_t early_bytes, early_used;
    size_t turn_bytes; /* read in this turn */
    uint64_t sent, skipped;
} pj_reader;

pj_reader *pj_reader_new(int fd, const pj_reader_options *options, const void *early,
                         size_t early_bytes); /* NULL when memory is out; takes no socket then */
void pj_reader_free(pj_reader *reader, bool reset); /* closes the socket */
/* Puts a message of its own in front of all others: hello. Takes the reference. */
void pj_reader_greet(pj_reader *reader, pj_message *hello);
/* Reads what has come; false: the reader is to be freed. */
bool pj_reader_receive(pj_reader *reader);
/* Sends until the socket is full or nothing is left; false: the reader is to be freed. */
bool pj_reader_send(pj_reader *reader, const pj_message_ring *ring, int64_t now_ns);
void pj_reader_ping(pj_reader *reader, int64_t now_ns);
void pj_reader_say_goodbye(pj_reader *reader, unsigned code);
/* Whether bytes should be waited for: not while answers to earlier ones are stuck. */
bool pj_reader_listens(const pj_reader *reader);

#endif
