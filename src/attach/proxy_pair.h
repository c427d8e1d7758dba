/* What proxy.c and proxy_answer.c share: a client's connection and its counterpart. */
#ifndef PJ_ATTACH_PROXY_PAIR_H
#define PJ_ATTACH_PROXY_PAIR_H

#include "attach/proxy.h"
#include "attach/usage_spot.h"
#include "attach/wire.h"

enum {
    PJ_PAIR_HOLD_BYTES = 64 << 10,  /* of a chunk that may get a figure */
    PJ_PAIR_BODY_BYTES = 32 << 20,  /* of a request, to be looked into */
    PJ_PAIR_WHOLE_BYTES = 16 << 20, /* of an answer in one piece, to be looked into */
    PJ_PAIR_SPOTS = 8
};

/* A queue of bytes to be sent. */
typedef struct pj_outgoing {
    pj_buffer bytes;
    size_t sent;
} pj_outgoing;

typedef enum pj_answer_mode {
    PJ_ANSWER_PASS = 0, /* bytes as they come */
    PJ_ANSWER_STREAM,   /* chunk by chunk, usage objects get a member */
    PJ_ANSWER_WHOLE     /* kept until it is complete */
} pj_answer_mode;

typedef enum pj_pair_state {
    PJ_PAIR_IDLE = 0, /* a request's head is awaited */
    PJ_PAIR_REQUEST,  /* its body is passing */
    PJ_PAIR_ANSWER,   /* the answer is awaited, or passing */
    PJ_PAIR_WAITING,  /* the answer is complete or held, its energy is not final yet */
    PJ_PAIR_CLOSING   /* what is queued is sent, then all ends */
} pj_pair_state;

typedef struct pj_pair {
    int client, server;           /* -1: none */
    bool connecting, server_used; /* used: it carried a request before */
    pj_pair_state state;
    int64_t since_ns, heard_ns; /* in this state; last byte of either side */
    pj_buffer in;               /* from the client, not taken yet */
    pj_outgoing to_client, to_server;
    /* the request */
    pj_wire_head request;
    pj_wire_body request_body;
    pj_buffer body; /* of an inference, as far as it is looked into */
    bool inference, takes_trailers, wants_wait, wants_none, ended, answered;
    char target[2048];
    pj_exchange *exchange;
    void *request_hook;
    pj_buffer unseen; /* of the answer's payload: passed on, not parsed yet */
    int64_t unseen_ns;
    /* the answer */
    pj_buffer head; /* until it is complete */
    pj_wire_head answer;
    pj_wire_body answer_body;
    pj_answer_mode mode;
    bool has_head;
    pj_usage_spot spot;
    pj_buffer hold;       /* the chunk in progress, or the whole answer, with its framing */
    uint64_t chunk_bytes; /* of the chunk in hold */
    bool in_chunk;
    bool chunk_raw;    /* part of it is on its way already: it passes as it is */
    bool framing_sent; /* a piece of a size line is */
    pj_buffer late;    /* of the server, behind a chunk that waits */
    int64_t hold_ns;
    size_t spots[PJ_PAIR_SPOTS]; /* where in hold figures go */
    bool spot_empty[PJ_PAIR_SPOTS];
    uint32_t spot_count;
    int64_t ended_ns;
    bool shut; /* nothing more is sent to the client */
} pj_pair;

/* What became of bytes of an answer. */
typedef enum pj_answer_step {
    PJ_STEP_MORE = 0,
    PJ_STEP_DONE,  /* the answer is complete and queued */
    PJ_STEP_WAIT,  /* it has to wait for its energy */
    PJ_STEP_BROKEN /* the server broke the rules: what came is queued */
} pj_answer_step;

/* The head is complete in pair->head and parsed in pair->answer: decides the mode, queues it. */
void pj_pair_take_head(const pj_proxy_options *o, pj_pair *p, int64_t now_ns);
pj_answer_step pj_pair_take_body(const pj_proxy_options *o, pj_pair *p, const char *bytes,
                                 size_t count, int64_t now_ns);
/* The server closed the connection. */
pj_answer_step pj_pair_take_end(const pj_proxy_options *o, pj_pair *p, int64_t now_ns);
/* The answer breaks off: queues what has come of it, so that it breaks off for the client alike. */
void pj_pair_pass_what_came(const pj_proxy_options *o, pj_pair *p);
/* Queues a chunk that has been held for too long as it is. */
void pj_pair_flush_hold(pj_pair *p);
/* Its energy is final, or there is no more time: queues what waited. DONE, or MORE for a stream
 * that goes on. */
pj_answer_step pj_pair_go_on(const pj_proxy_options *o, pj_pair *p, int64_t now_ns);
/* Parses what has been passed on. */
void pj_pair_look(const pj_proxy_options *o, pj_pair *p);
/* Ends the exchange, once. */
void pj_pair_end_exchange(const pj_proxy_options *o, pj_pair *p, pj_exchange_outcome outcome,
                          const char *why, int64_t now_ns);
void pj_pair_queue(pj_outgoing *to, const void *bytes, size_t count);

#endif
