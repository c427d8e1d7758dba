/* One WebSocket reader as seen by the hub's thread: a position in the ring, a few messages being
 * sent, and the protocol's control frames (pong, ping, close). wslay parses input; output is
 * already framed and only needs a socket. */
#ifndef PJ_NET_READER_H
#define PJ_NET_READER_H

#include "net/ring.h"

enum { PJ_READER_PENDING = 16, PJ_READER_CONTROL_BYTES = 1024, PJ_INBOUND_MAX_BYTES = 4096 };

/* Members touched when delivering to an up-to-date reader come first: a run that streams weights
 * evicts the caches, so each further cache line of a thousand readers is a memory access every
 * time. */
typedef struct pj_reader {
    int fd;
    uint8_t audience; /* PJ_FOR_JSON or PJ_FOR_BINARY */
    bool blocked;     /* the socket was full */
    bool lagging; /* ... and the reader is far behind: no state messages until it has caught up */
    bool closing; /* a close frame was sent or is in `control`: the socket closes after it */
    bool talking; /* wslay has more output than fitted into `control` */
    uint32_t pending_count;
    uint32_t control_used, control_sent;
    uint64_t cursor;           /* sequence number of the next message to consider */
    uint64_t gap_from, gap_to; /* lost and not yet reported; gap_from 0: none */
    uint64_t run_key;
    size_t offset; /* bytes sent of pending[0] */
    int64_t progress_ns, ping_ns;
    uint64_t sent, skipped;
    pj_message *pending[PJ_READER_PENDING]; /* chosen, in order; references held */
    struct wslay_event_context *wslay;
    unsigned char *early; /* bytes that came with the handshake */
    size_t early_bytes, early_used;
    size_t turn_bytes; /* read in this turn */
    unsigned char control[PJ_READER_CONTROL_BYTES];
} pj_reader;

/* New messages of this delivery, for readers that are up to date. */
typedef struct pj_reader_news {
    const pj_message_ring *ring;
    uint64_t from;         /* where the blocks begin; they end at the ring's head */
    pj_message *blocks[2]; /* for JSON, for binary; NULL: message by message */
} pj_reader_news;

pj_reader *pj_reader_new(int fd, const pj_reader_options *options, const void *early,
                         /* NULL when out of memory; the socket is then not taken */
                         size_t early_bytes);
void pj_reader_free(pj_reader *reader, bool reset); /* closes the socket */
/* Queues a message for this reader alone before all others: hello. Takes the reference. */
void pj_reader_greet(pj_reader *reader, pj_message *hello);
/* Reads available input; false: the reader is to be freed. */
bool pj_reader_receive(pj_reader *reader);
/* Sends until the socket is full or nothing is left; false: the reader is to be freed. */
bool pj_reader_send(pj_reader *reader, const pj_reader_news *news, int64_t now_ns);
void pj_reader_ping(pj_reader *reader, int64_t now_ns);
void pj_reader_say_goodbye(pj_reader *reader, unsigned code);
/* Whether to poll for input: not while answers to earlier input are stuck. */
bool pj_reader_listens(const pj_reader *reader);

#endif
