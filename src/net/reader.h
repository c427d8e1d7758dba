/*
 * One WebSocket reader as the hub's thread sees it: a position in the ring, a few messages on their
 * way out, and the small frames that the protocol itself wants (pong, ping, close). wslay reads
 * what comes in; what goes out is framed already and only needs a socket.
 */
#ifndef PJ_NET_READER_H
#define PJ_NET_READER_H

#include "net/ring.h"

enum { PJ_READER_PENDING = 16, PJ_READER_CONTROL_BYTES = 1024, PJ_INBOUND_MAX_BYTES = 4096 };

/* What a delivery to a reader that keeps up touches stands first: beside a run that streams weights
 * through the caches, each further line of a thousand readers comes from memory every time. */
typedef struct pj_reader {
    int fd;
    uint8_t audience; /* PJ_FOR_JSON or PJ_FOR_BINARY */
    bool blocked;     /* the socket took no more */
    bool lagging; /* ... and the reader is far behind: no state messages until it has caught up */
    bool closing; /* a close frame went out or lies in `control`: then the socket goes */
    bool talking; /* wslay has more to say than found room in `control` */
    uint32_t pending_count;
    uint32_t control_used, control_sent;
    uint64_t cursor;           /* number of the next message to look at */
    uint64_t gap_from, gap_to; /* lost and not told yet; gap_from 0: nothing */
    uint64_t run_key;
    size_t offset; /* sent of pending[0] */
    int64_t progress_ns, ping_ns;
    uint64_t sent, skipped;
    pj_message *pending[PJ_READER_PENDING]; /* chosen, in order; references held */
    struct wslay_event_context *wslay;
    unsigned char *early; /* bytes that came with the handshake */
    size_t early_bytes, early_used;
    size_t turn_bytes; /* read in this turn */
    unsigned char control[PJ_READER_CONTROL_BYTES];
} pj_reader;

/* What is new in this delivery, for readers that had got all before it. */
typedef struct pj_reader_news {
    const pj_message_ring *ring;
    uint64_t from;         /* where the blocks begin; they end at the ring's head */
    pj_message *blocks[2]; /* for JSON, for binary; NULL: message by message */
} pj_reader_news;

pj_reader *pj_reader_new(int fd, const pj_reader_options *options, const void *early,
                         size_t early_bytes); /* NULL when memory is out; takes no socket then */
void pj_reader_free(pj_reader *reader, bool reset); /* closes the socket */
/* Puts a message of its own in front of all others: hello. Takes the reference. */
void pj_reader_greet(pj_reader *reader, pj_message *hello);
/* Reads what has come; false: the reader is to be freed. */
bool pj_reader_receive(pj_reader *reader);
/* Sends until the socket is full or nothing is left; false: the reader is to be freed. */
bool pj_reader_send(pj_reader *reader, const pj_reader_news *news, int64_t now_ns);
void pj_reader_ping(pj_reader *reader, int64_t now_ns);
void pj_reader_say_goodbye(pj_reader *reader, unsigned code);
/* Whether bytes should be waited for: not while answers to earlier ones are stuck. */
bool pj_reader_listens(const pj_reader *reader);

#endif
