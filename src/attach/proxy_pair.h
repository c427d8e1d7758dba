/* Shared by proxy.c and proxy_answer.c: a client's connection and its connection to the server. */
#ifndef PJ_ATTACH_PROXY_PAIR_H
#define PJ_ATTACH_PROXY_PAIR_H

#include "attach/energy_fields.h"
#include "attach/proxy.h"
#include "attach/usage_spot.h"
#include "http/head.h"

#include <netinet/in.h>

enum {
    PJ_PAIR_HOLD_BYTES = 64 << 10,  /* maximum size of a held chunk */
    PJ_PAIR_BODY_BYTES = 32 << 20,  /* maximum size of a request that is parsed */
    PJ_PAIR_WHOLE_BYTES = 16 << 20, /* maximum size of a held unstreamed answer */
    PJ_PAIR_SPOTS = 8
};

/* A queue of bytes to be sent. */
typedef struct pj_outgoing {
    pj_buffer bytes;
    size_t sent;
} pj_outgoing;

typedef enum pj_answer_mode {
    PJ_ANSWER_PASS = 0, /* forwarded as received */
    PJ_ANSWER_STREAM,   /* chunk by chunk; usage objects get a member */
    PJ_ANSWER_WHOLE     /* held until it is complete */
} pj_answer_mode;

typedef enum pj_pair_state {
    PJ_PAIR_IDLE = 0, /* waiting for a request's head */
    PJ_PAIR_REQUEST,  /* forwarding its body */
    PJ_PAIR_ANSWER,   /* waiting for the answer, or forwarding it */
    PJ_PAIR_WAITING,  /* the answer is complete or held; its energy is not final yet */
    PJ_PAIR_CLOSING   /* sending what is queued, then closing */
} pj_pair_state;

/* A connection's part in the loop: what is waited for, and what came. */
typedef struct pj_pair_watch {
    struct pj_pair *pair;
    short watched, came;
} pj_pair_watch;

typedef struct pj_pair {
    const pj_proxy_options *options;
    uint32_t index;     /* in the proxy's list */
    bool is_listed;     /* in this turn's list of pairs with events */
    bool is_refused;    /* one more than are served */
    int client, server; /* -1: none */
    pj_pair_watch at_client, at_server;
    bool connecting, server_used; /* used: it has carried a request before */
    bool client_ended;            /* the client sends nothing more; it may still receive */
    bool server_reported;         /* ... and the server knows */
    pj_pair_state state;
    int64_t since_ns, heard_ns; /* start of this state; last byte in either direction */
    pj_buffer in;               /* received from the client, not processed yet */
    pj_outgoing to_client, to_server;
    /* the request */
    pj_head request;
    pj_body request_body;
    pj_buffer body; /* body of an inference request, as far as it is parsed */
    bool inference, takes_trailers, wants_wait, wants_none, ended;
    char target[2048];
    char session[PJ_EXCHANGE_SESSION_MAX_BYTES + 2]; /* one byte too many where it was cut */
    char named[PJ_EXCHANGE_CLIENT_MAX_BYTES + 2];    /* the client, by its own account; "": none */
    char address[INET6_ADDRSTRLEN];                  /* the client's */
    pj_energy_fields fields;                         /* that it asks for */
    pj_exchange *exchange;
    void *request_hook;
    pj_buffer unseen; /* payload that was forwarded but not parsed yet */
    int64_t unseen_ns;
    /* the answer */
    pj_buffer head;    /* incomplete head */
    pj_hidden secrets; /* of the request */
    pj_head answer;
    pj_body answer_body;
    pj_answer_mode mode;
    bool has_head;
    pj_usage_spot spot;
    pj_buffer hold;       /* the current chunk, or the whole answer, with framing */
    uint64_t chunk_bytes; /* size of the held chunk */
    bool in_chunk;
    bool chunk_raw;    /* part of it was already forwarded: the rest follows unchanged */
    bool framing_sent; /* ... namely a piece of its size line */
    pj_buffer late;    /* received from the server after a held chunk */
    int64_t hold_ns;
    size_t spots[PJ_PAIR_SPOTS]; /* offsets in `hold` at which figures are inserted */
    bool spot_empty[PJ_PAIR_SPOTS];
    uint32_t spot_count;
    int64_t ended_ns;
    bool shut; /* nothing more is sent to the client */
} pj_pair;

/* Result of processing bytes of an answer. */
typedef enum pj_answer_step {
    PJ_STEP_MORE = 0,
    PJ_STEP_DONE,  /* the answer is complete and queued */
    PJ_STEP_WAIT,  /* waiting for its energy */
    PJ_STEP_BROKEN /* protocol error of the server; the bytes received are queued */
} pj_answer_step;

/* Called with the complete head in pair->head, parsed in pair->answer: chooses the mode and queues
 * the head. */
void pj_pair_take_head(pj_pair *p);
pj_answer_step pj_pair_take_body(pj_pair *p, const char *bytes, size_t count, int64_t now_ns);
/* The server closed the connection. */
pj_answer_step pj_pair_take_end(pj_pair *p, int64_t now_ns);
/* The answer was cut off: queues what was received, so that the client sees the same. */
void pj_pair_pass_what_came(pj_pair *p);
/* Queues a chunk that has been held too long, unchanged. */
void pj_pair_flush_hold(pj_pair *p);
/* Called when the energy is final or the wait timed out: queues the held bytes. DONE, or MORE for a
 * stream that continues. */
pj_answer_step pj_pair_go_on(pj_pair *p, int64_t now_ns);
/* Parses what has been passed on. */
void pj_pair_poll(pj_pair *p);
/* Ends the exchange, once. */
void pj_pair_end_exchange(pj_pair *p, pj_exchange_outcome outcome, const char *why, int64_t now_ns);
void pj_pair_queue(pj_outgoing *to, const void *bytes, size_t count);

#endif
