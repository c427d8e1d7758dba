/*
 * The hub: one thread that sends live messages to all WebSocket readers. A message is framed once
 * and kept in a ring; a reader is a position in that ring, so that a thousand readers cost a
 * thousand numbers and sockets. Messages are batched for about 30 ms, and readers that are up to
 * date get all new messages as one shared buffer: the cost is not in the messages but in visiting a
 * thousand sockets, whose kernel memory the concurrent run has evicted from the caches. If visiting
 * all of them takes long, batches get longer too: the hub idles nine tenths of the time.
 *
 * A slow reader delays no one else:
 *
 *   - A reader whose socket is full and that is more than PJ_HUB_LAG messages behind gets no
 * *state* messages (power, heatmaps: a later one supersedes them) until it has caught up. Messages
 * that the ring no longer holds are lost for it too. In both cases it gets a `gap`.
 *   - A reader that accepts nothing for PJ_HUB_STALL_S seconds is disconnected.
 *   - The ring is bounded in messages and bytes: the oldest state messages go first, then events.
 *
 * Messages have sequence numbers. A new reader gets `hello` and then the current run's messages
 * from the ring, or with `from` everything since that number, so that a reconnecting reader
 * continues without duplicates.
 *
 * Threads: publishing, counting and reading messages as JSON from any thread; sockets and the ring
 * belong to the hub's thread. Publishing takes a mutex for the length of a list append and never
 * waits for a reader.
 */
#ifndef PJ_NET_HUB_H
#define PJ_NET_HUB_H

#include "base/buffer.h"
#include "base/ids.h"

enum {
    PJ_HUB_LAG = 60,
    PJ_HUB_STALL_S = 10,
    PJ_HUB_READERS_MAX = 16384,
    PJ_HUB_COALESCE_MAX_MS = 100
};

typedef struct pj_hub pj_hub;

typedef struct pj_hub_options {
    uint32_t readers_max;  /* 0: as the limit of open files allows, at most 16384 */
    uint32_t messages_max; /* 0: 65536; rounded up to a power of two */
    size_t bytes_max;      /* 0: 32 MB */
    /* batching time; 0: 33 ms; grows with the cost of a delivery up to PJ_HUB_COALESCE_MAX_MS */
    int64_t coalesce_ns;
    int64_t ping_ns;       /* 0: 20 s */
    int64_t stall_ns;      /* 0: PJ_HUB_STALL_S */
    int send_buffer_bytes; /* of a reader's socket; 0: 128 kB (doubled by Linux) */
    /* Writes the members of `hello` besides type, seq, version: {"running": ..., "queue": n}.
     * Called on the hub's thread. */
    void (*hello)(void *context, pj_buffer *members);
    void *context;
} pj_hub_options;

pj_status pj_hub_open(const pj_hub_options *options, pj_hub **hub, pj_error *err);
/* Sends a close frame (1001) to all readers, gives them a second to read it, ends the thread. */
void pj_hub_close(pj_hub *hub); /* NULL is allowed */

/* ---- readers ------------------------------------------------------------------------------- */

typedef struct pj_reader_options {
    bool binary; /* binary power and heatmap frames instead of their JSON forms */
    bool resume; /* begin at message `from` */
    uint64_t from;
    char run_id[PJ_UUID_BYTES]; /* messages of this run only; "": all */
} pj_reader_options;

/* Takes a socket after the handshake; `bytes` were already read from it. False: the hub is full or
 * closing, and the socket has been closed. */
bool pj_hub_add(pj_hub *hub, int fd, const pj_reader_options *options, const void *bytes,
                size_t count);
bool pj_hub_has_room(const pj_hub *hub);
/* How many, approximately: messages that are costly to make are made for readers only. */
uint32_t pj_hub_readers(const pj_hub *hub, bool binary);

/* ---- messages ------------------------------------------------------------------------------ */

typedef enum pj_audience { PJ_FOR_ALL = 3, PJ_FOR_JSON = 1, PJ_FOR_BINARY = 2 } pj_audience;

typedef struct pj_publication {
    const char *run_id; /* NULL: of no run */
    pj_audience audience;
    /* superseded by later ones: may be skipped for slow readers, goes first when the ring is
     * full */
    bool state;
    bool begins_run; /* a new reader's replay begins here */
    bool ends_run;   /* ... and ends with it */
    bool binary;     /* a binary frame with its number at byte 4; else a JSON object */
    const void *bytes;
    size_t count;
} pj_publication;

/* Numbers, frames and queues a copy. A JSON object gets `seq` as first member. Out of memory: the
 * message is lost, and readers get a gap. */
void pj_hub_publish(pj_hub *hub, const pj_publication *publication);

/* The run's JSON messages that the ring still holds, from number `from` on, as one JSON array:
 * fetched over REST by readers that came late or had a gap. */
void pj_hub_write_messages(pj_hub *hub, const char *run_id, uint64_t from, pj_buffer *out);

typedef struct pj_hub_stats {
    uint32_t readers;
    uint64_t published, sent, skipped, dropped; /* messages, over all readers; readers */
    size_t ring_bytes;
    int64_t cpu_ns; /* of the hub's thread */
} pj_hub_stats;

void pj_hub_get_stats(const pj_hub *hub, pj_hub_stats *stats);

#endif
